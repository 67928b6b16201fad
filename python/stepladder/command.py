"""The command `stepladder`: starts the program of this package, with this Python for page and charts.

Before the first command that trains on the default text, the text and GPT-2's vocabulary are fetched into
$XDG_CACHE_HOME/stepladder/data (~/.cache), where the program finds them; scripts/prepare_data.py verifies them.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent
EXIT_USAGE, EXIT_FAILED = 2, 5
OLDEST_GLIBC = (2, 34)
OLDEST_FOR_THE_PAGE = (3, 10)
TRAIN = ("ablate", "calibrate", "campaign", "gate", "overhead", "profile", "run", "sample", "train", "tune")
NO_DEFAULT_TEXT = ("--data", "--help", "--help-all", "-h")
OUR_LADDERS = ("learning",)


class Refused(Exception):
    """An error: what is wrong and the way out, on one line, with an exit status."""

    def __init__(self, what: str, status: int = EXIT_FAILED):
        super().__init__(what)
        self.status = status


def check_system() -> None:
    """Raises Refused where the program can't start. (pip refuses too, but not a copied folder.)"""
    if platform.machine() != "x86_64":
        raise Refused(f"this package is for x86_64, and this machine is {platform.machine()}: build from source, "
                      "docs/building.md")
    try:
        name, _, version = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")
    except (ValueError, OSError, AttributeError):
        name, version = "another libc", ""
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < OLDEST_GLIBC:
        raise Refused(f"this package needs glibc {'.'.join(map(str, OLDEST_GLIBC))} (Ubuntu 22.04, Debian 12, RHEL 9 or "
                      f"newer), and here is {name} {version}: use a newer system or a container, or build from source")


def data_folder() -> Path:
    """The folder of the text that is trained on by default, the same as user_data_dir() in bench/base/place.cpp."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepladder" / "data"


def wants_default_text(arguments: list) -> bool:
    """Whether the command trains on the default text, as far as its words tell."""
    words = [part for word in arguments for part in word.split("=", 1)]
    ladders = [value for name, value in zip(words, words[1:]) if name == "--ladder"]
    return bool(arguments and arguments[0] in TRAIN and not set(words).intersection(NO_DEFAULT_TEXT)
                and all(ladder in OUR_LADDERS for ladder in ladders))


def fetch_data(folder: Path) -> None:
    """Fetches the text, unless it is here. Raises Refused where `folder` can't be written, or the text can't be had."""
    if (folder / "austen.txt").exists() or Path("data/austen.txt").exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise Refused(f"the default text belongs into {folder}, which can't be written ({error.strerror}): set XDG_CACHE_HOME "
                      "to a folder that can, or name a text with --data", EXIT_USAGE) from None
    print(f"stepladder: fetching the default text and GPT-2's vocabulary into {folder}, once", file=sys.stderr)
    prepare = HOME / "share/stepladder/scripts/prepare_data.py"
    status = subprocess.run([sys.executable, str(prepare), "--out", str(folder)], stdout=subprocess.DEVNULL).returncode
    if status:
        raise Refused("the default text is missing: name a text of your own with --data", EXIT_FAILED)


def main() -> int:
    arguments = sys.argv[1:]
    program = HOME / "bin/stepladder"
    try:
        check_system()
        if wants_default_text(arguments):
            fetch_data(data_folder())
    except Refused as refused:
        print(f"stepladder: error: {refused}", file=sys.stderr)
        return refused.status
    if sys.version_info >= OLDEST_FOR_THE_PAGE:
        os.environ.setdefault("STEPLADDER_PYTHON", sys.executable)
    elif "STEPLADDER_PYTHON" not in os.environ and arguments[:1] == ["report"]:
        print(f"stepladder: warning: no page and no charts with Python {platform.python_version()}, they need 3.10: name a "
              "newer one in STEPLADDER_PYTHON", file=sys.stderr)
    os.execv(program, ["stepladder", *arguments])
