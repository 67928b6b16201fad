#!/usr/bin/env python3
"""Prints a table of what each rung costs to build and to read: lines, lines changed against its parent, and CPU seconds.

Builds in a new folder, without a compiler cache, one command after the other. Seconds are of one CPU, user and system
together, so that other work on the machine hardly changes them. What all rungs share is built once and has a row of its
own. Exit status: 0, 1 where a command fails, 2 for a preset or an option that CMake refuses.
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "reports"))
import sources  # noqa: E402


class BuildError(Exception):
    """A command of the build failed; the text says which, and has its output."""


def commands_of(folder: Path, target: str) -> list[str]:
    """The shell commands that build a target, in the order of their needs."""
    told = subprocess.run(["ninja", "-C", folder, "-t", "commands", target], capture_output=True, text=True, check=False)
    if told.returncode:
        raise BuildError(f"ninja -t commands {target}: {told.stderr.strip() or told.stdout.strip()}")
    return told.stdout.splitlines()


def cpu_seconds() -> float:
    """User and system time of the processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def built(command: str, folder: Path) -> float:
    """Runs a command of the build in its folder. Returns the CPU seconds that it took."""
    before = cpu_seconds()
    run = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        output = re.search(r"-o (\S+)", command)
        raise BuildError(f"{output[1] if output else command}: exit status {run.returncode}\n{run.stderr or run.stdout}")
    return cpu_seconds() - before


def measure(folder: Path, programs: Sequence[str]) -> tuple[float, dict[str, float]]:
    """Builds `programs`. Returns the CPU seconds of what several programs need, and of what each program alone needs."""
    users: dict[str, set[str]] = {}  # the programs that need each command
    for program in programs:
        for command in commands_of(folder, f"bin/{program}"):
            users.setdefault(command, set()).add(program)
    shared, alone = 0.0, dict.fromkeys(programs, 0.0)
    for command, of in users.items():
        seconds = built(command, folder)
        if len(of) > 1:
            shared += seconds
        else:
            alone[next(iter(of))] += seconds
    return shared, alone


def table(shared: float, alone: dict[str, float]) -> Iterable[str]:
    """The table as lines of Markdown."""
    yield "| rung | lines | changed | CPU seconds |"
    yield "|---|---|---|---|"
    yield f"| what all share | | | {shared:.1f} |"
    for rung, seconds in alone.items():
        diff = sources.diff(rung)
        lines = sources.file_of(rung).read_text(encoding="utf-8").count("\n")
        yield f"| `{rung}` | {lines} | {diff.changed if diff else ''} | {seconds:.1f} |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cpu", help="of CMakePresets.json, cpu or cuda (default: cpu)")
    parser.add_argument("cmake", nargs="*", help="options for CMake behind --, such as -DCMAKE_CUDA_ARCHITECTURES=90a-real")
    options = parser.parse_args(arguments)
    rungs = [name for name, rung in sources.LADDER.items() if rung.get("trainer", name) == name]
    with tempfile.TemporaryDirectory(prefix="stepladder-build-") as folder:
        configured = subprocess.run(["cmake", "--preset", options.preset, "-S", ROOT, "-B", folder, "-G", "Ninja",
                                     "-DCCACHE=OFF", "-DSTEPLADDER_TESTS=OFF", *options.cmake],
                                    capture_output=True, text=True, check=False, cwd=ROOT)
        if configured.returncode:
            print(f"build_times: error: CMake: {configured.stderr.strip()}", file=sys.stderr)
            return 2
        try:
            print(*table(*measure(Path(folder), rungs)), sep="\n")
        except BuildError as error:
            print(f"build_times: error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
