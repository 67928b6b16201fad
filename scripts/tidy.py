#!/usr/bin/env python3
"""Runs clang-tidy over sources of a build, but over those only that have changed since they last passed.

Usage: tidy.py BUILD JOBS [OPTION OF CLANG-TIDY]... FILE...

BUILD/compile_commands.json says how each is compiled; nothing has to be built but what the sources include. Sources that
are compiled together (CMake's unity builds) are looked at together, and so are trainers: most of the time goes into the
headers of each.
Sources count as unchanged where clang-tidy, its configuration, its options and the compile command are those that name a
stamp in BUILD/tidy/, and all that the sources include is as the stamp says. Exit status: 0, or 1 where clang-tidy found
something.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path


@cache
def digest(path: str) -> str:
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "gone since it was compiled"


def included(command: str, folder: str) -> list[str]:
    """The source and all that it includes, as the compiler finds it."""
    words = shlex.split(command)
    output = words.index("-o")
    words[output : output + 2] = ["-M"]
    words.remove("-c")
    rule = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout
    return [os.path.join(folder, name) for name in rule.replace("\\\n", " ").split()[1:]]


def trains(source: str) -> bool:
    return "/variants/" in source


SAME = ("Gpt2Trainer", "register_rung")  # names that every trainer has
TOGETHER = 12  # sources


class Unit:
    """What clang-tidy reads at once: a source, or several, which the compile command of the first is for."""

    def __init__(self, command: str, folder: str, sources: list[str], build: str, tidy: str, options: list[str]):
        self.command, self.folder, self.sources, self.options = command, folder, sources, options
        self.file, self.lines = command.split(" -c ")[-1], []
        if len(sources) > 1 or "/Unity/" in self.file:
            self.join(Path(build, "tidy"))
        seen = hashlib.sha256(f"{tidy}\n{options}\n{self.command}".encode()).hexdigest()
        self.stamp = Path(build, "tidy", seen)

    def join(self, folder: Path) -> None:
        """Writes the sources into one file, since the static analyzer skips functions of included files. Their order is
        reversed, so that a source that lacks an include, which the one before it has, fails to compile."""
        path = (folder / os.path.relpath(self.file).split("CMakeFiles/")[-1].replace("/", "_")).with_suffix(".cpp").absolute()
        included = set()  # lines to include a file, which the joined file has once each
        with path.open("w") as joined:
            for source in reversed(self.sources):
                lines = Path(source).read_text().splitlines()
                for name in SAME if trains(source) else ():
                    joined.write(f"#undef {name}\n#define {name} {name}_{len(self.lines)}\n")
                    self.lines += [(source, 1)] * 2
                joined.writelines("\n" if line in included else f"{line}\n" for line in lines)
                included.update(line for line in lines if line.startswith("#include "))
                self.lines += [(source, number + 1) for number in range(len(lines))]
        self.command = self.command.replace(self.file, str(path))
        self.file = str(path)

    def holds(self) -> bool:
        """Whether the unit has passed as it is now."""
        if not self.stamp.exists():
            return False
        lines = (line.split(" ", 1) for line in self.stamp.read_text().splitlines())
        return all(digest(name) == seen for seen, name in lines)

    def passes(self) -> bool:
        words = shlex.split(self.command)[1:]
        done = subprocess.run(["clang-tidy", "--quiet", self.file, *self.options, "--", *words], cwd=self.folder,
                              capture_output=True, text=True)
        if done.returncode != 0:
            print(self.located(done.stdout), done.stderr, sep="", end="", flush=True)
            return False
        self.stamp.write_text("".join(f"{digest(name)} {name}\n" for name in included(self.command, self.folder)))
        return True

    def located(self, findings: str) -> str:
        """The findings with the sources' own lines."""
        def place(found: re.Match) -> str:
            source, line = self.lines[int(found[1]) - 1]
            return f"{source}:{line}"
        return re.sub(rf"{re.escape(self.file)}:(\d+)", place, findings) if self.lines else findings


def main(build: str, jobs: str, *arguments: str) -> int:
    options = [word for word in arguments if word.startswith("-")]
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True, text=True).stdout
    Path(build, "tidy").mkdir(exist_ok=True)
    wanted, units, trainers = {os.path.abspath(file) for file in arguments if file not in options}, [], []
    for entry in json.loads(Path(build, "compile_commands.json").read_text()):
        file, folder = entry["file"], entry["directory"]
        sources = [file]
        if "/Unity/" in file:
            sources = re.findall(r'^#include "(.+)"$', Path(file).read_text(), re.MULTILINE)
            sources = [source for source in sources if not source.startswith(folder)]  # no generated source
        if wanted.intersection(sources):
            wanted.difference_update(sources)
            (trainers if trains(file) else units).append((entry["command"], folder, sources))
    for some in (trainers[first:first + TOGETHER] for first in range(0, len(trainers), TOGETHER)):
        units.append((some[0][0], some[0][1], [source for _, _, sources in some for source in sources]))
    units = [Unit(*unit, build, version + digest(".clang-tidy"), options) for unit in units]
    for file in sorted(wanted):
        print(f"{file}: not compiled in {build}", file=sys.stderr)
    with ThreadPoolExecutor(int(jobs)) as pool:
        passed = list(pool.map(lambda unit: unit.holds() or unit.passes(), units))
    return 0 if all(passed) and not wanted else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
