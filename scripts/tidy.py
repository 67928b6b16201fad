#!/usr/bin/env python3
"""Runs clang-tidy over sources of a build, but over those only that have changed since they last passed.

Usage: tidy.py BUILD JOBS FILE...

BUILD/compile_commands.json says how each is compiled; nothing has to be built but what the sources include. A file has not
changed where clang-tidy, its configuration and the file's compile command are those that name a stamp in BUILD/tidy/, and
all that the file includes is as the stamp says. Exit status: 0, or 1 where clang-tidy found something.
"""

import hashlib
import json
import os
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


class Stamp:
    """What clang-tidy saw of a source when it last passed."""

    def __init__(self, entry: dict[str, str], build: str, tidy: str):
        self.command, self.folder = entry["command"], entry["directory"]
        self.path = Path(build, "tidy", hashlib.sha256(f"{tidy}\n{self.command}".encode()).hexdigest())

    def holds(self) -> bool:
        if not self.path.exists():
            return False
        lines = (line.split(" ", 1) for line in self.path.read_text().splitlines())
        return all(digest(name) == seen for seen, name in lines)

    def write(self) -> None:
        self.path.write_text("".join(f"{digest(name)} {name}\n" for name in included(self.command, self.folder)))


def main(build: str, jobs: str, *files: str) -> int:
    version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True, text=True).stdout
    entries = json.loads(Path(build, "compile_commands.json").read_text())
    stamps = {entry["file"]: Stamp(entry, build, version + digest(".clang-tidy")) for entry in entries}
    Path(build, "tidy").mkdir(exist_ok=True)

    def passes(file: str) -> bool:
        stamp = stamps.get(os.path.abspath(file))
        if stamp and stamp.holds():
            return True
        done = subprocess.run(["clang-tidy", "-p", build, "--quiet", file], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="", end="", flush=True)
        elif stamp:
            stamp.write()
        return done.returncode == 0

    with ThreadPoolExecutor(int(jobs)) as pool:
        return 0 if all(list(pool.map(passes, files))) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
