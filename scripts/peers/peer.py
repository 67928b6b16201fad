"""What the peers share with a rung's executable: one-line errors, exit codes, the events of bench/run/events.h."""

import argparse
import hashlib
import signal
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "python/trainer"))

import stepladder  # noqa: E402

EXIT_USAGE, EXIT_FAILED = 2, stepladder.EXIT_FAILED
SHARED = (Path(__file__), Path(stepladder.__file__))  # sources of all peers


class Failure(Exception):
    """An error that ends a run, on one line; `status` is one of bench/run/events.h's."""

    status, code = "error", EXIT_FAILED


class InputError(Failure):
    code = EXIT_USAGE


class UnsupportedError(Failure):
    status = "unsupported"


class OutOfMemoryError(Failure):
    status = "oom"


class DivergedError(Failure):
    status = "diverged"


class Parser(argparse.ArgumentParser):
    """A parser of long options alone, which raises InputError for wrong ones."""

    def __init__(self, **more):
        super().__init__(allow_abbrev=False, add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter,
                         **more)
        self.add_argument("--help", action="help", help="print this and exit")

    def error(self, message):
        raise InputError(message)

    def add_options(self, *options):
        """Adds options: of each a name, a type, the default and the help text."""
        for name, kind, default, what in options:
            self.add_argument(f"--{name}", type=kind, default=default, help=what, metavar=name.split("-")[-1].upper())

    def add_choices(self, *options):
        """Adds options: of each a name, the choices with the default first, and the help text."""
        for name, choices, what in options:
            self.add_argument(f"--{name}", choices=choices, default=choices[0], help=what)

    def add_shared(self):
        """Adds the options of a rung's executable that every peer has a use for."""
        self.add_options(
            ("data", str, "data/austen.txt", "a file of tokens, a folder of them, a pattern ('fw/*.bin'), or a .txt "
             "that a rung tokenised"),
            ("val-data", str, "", "the same for validation; default: of several files those named 'val' or the last, "
             "of one a tenth"),
            ("vocab", str, "data/gpt2", "folder of encoder.json and vocab.bpe, which a .txt was tokenised with"),
            ("steps", COUNT, 40, "optimizer steps in all"),
            ("accumulate", number(int, 1, 65536), 1, "micro-batches in a step"),
            ("lr", RATE, 6e-4, "learning rate after warm-up"),
            ("warmup-lr-steps", FROM_ZERO, 10, "steps of linear warm-up"),
            ("min-lr", RATE, None, "learning rate after decay; default: a tenth of --lr"),
            ("decay-steps", FROM_ZERO, 0, "step at which cosine decay ends; 0: none"),
            ("weight-decay", RATE, 0.1, "of the matrices"),
            ("device", number(int, 0, 1023), 0, "index of the CUDA device, of a process by itself"),
            ("eval-every", FROM_ZERO, 0, "steps between validation losses; 0: none"),
            ("eval-batches", COUNT, 8, "micro-batches of a validation loss"),
            ("eval-skip", FROM_ZERO, 0, "micro-batches of the validation data that come before those"),
            ("until-loss", number(float, 0, 1000), None, "stop at the first validation loss that is no higher"),
            ("events", FROM_ZERO, None, "write JSON lines to this file descriptor"))

    def parsed(self, arguments):
        """The options' values; the last learning rate is filled in where it was left out."""
        settings = self.parse_args(arguments)
        if settings.min_lr is None:
            settings.min_lr = settings.lr / 10
        return settings


def number(kind, low, high):
    """An argument's type: a finite number of `kind` from `low` to `high`."""

    def parse(text):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is out of range: from {low} to {high}")
        return value

    parse.__name__ = "whole number" if kind is int else "number"
    return parse


COUNT, FROM_ZERO, RATE = number(int, 1, 2**31 - 1), number(int, 0, 2**31 - 1), number(float, 0, 100)


def open_events(fd: int | None) -> stepladder.Events:
    """The events to write to the descriptor of --events, or where the harness listens; without either, to nowhere."""
    try:
        return stepladder.Events(stepladder.stream() if fd is None else fd)
    except OSError:
        raise InputError(f"--events {fd}: no such open file descriptor") from None


def source_hash(*parts: Path | str) -> str:
    """SHA-256 over the contents of files and over texts."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part.read_bytes() if isinstance(part, Path) else part.encode()).digest())
    return total.hexdigest()


def shipped(path: str) -> Path:
    """The path of a file that comes with the project, for a run outside its folder; any other path as it is."""
    return REPOSITORY / path if not Path(path).exists() and (REPOSITORY / path).exists() else Path(path)


def tokenised(text: Path, vocab: str) -> Path:
    """The file in which a rung's executable has left the tokens of a text; its header notes how long the text was."""
    kept = Path(f"{text}.gpt2.bin" if (shipped(vocab) / "vocab.bpe").exists() else f"{text}.bytes.bin")
    size = text.stat().st_size
    if not kept.exists() or int.from_bytes(kept.read_bytes()[16:24], "little") != size:
        raise InputError(f"{kept}: missing, or not of {text} as it is now: any rung's executable writes it")
    return kept


def main(name: str, run) -> int:
    """Calls run(announce), which hands the opened Events to `announce`; answers what it raises like a rung."""
    opened = [open_events(None)]

    def ended(status: str, reason: str, code: int) -> int:
        reason = " ".join(reason.split())
        opened[-1].write("error", status=status, reason=reason)
        print(f"{name}: error: {reason}", file=sys.stderr)
        return code

    try:
        return run(opened.append)
    except Failure as failure:
        return ended(failure.status, str(failure), failure.code)
    except KeyboardInterrupt:
        return ended("interrupted", "interrupted", 128 + signal.SIGINT)
    except Exception as error:  # a bug, or a library's error
        return ended("error", f"{type(error).__name__}: {error}", EXIT_FAILED)
