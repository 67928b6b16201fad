#!/usr/bin/env python3
"""Runs clang-tidy over sources of a build, but over those only that have changed since they last passed.

Usage: tidy.py BUILD JOBS FILE...

A file has not changed where clang-tidy, its configuration, the file's compile command and the contents of all that it
includes are those of a stamp in BUILD/tidy/. Exit status: 0, or 1 where clang-tidy found something.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@cache
def digest(path: str) -> str:
    file = Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "gone since it was compiled"


def objects(build: str) -> dict[str, list[str]]:
    """What each object was made from, as ninja noted it."""
    made = {}
    for line in output_of("ninja", "-C", build, "-t", "deps").splitlines():
        if line.startswith(" "):
            files.append(os.path.join(build, line.strip()))
        elif line:
            files = made.setdefault(line.split(":")[0], [])
    return made


def stamps(build: str) -> dict[str, Path]:
    """A stamp for each source that the build compiles; its name says all that clang-tidy's answer depends on."""
    made, found = objects(build), {}
    tidy = output_of("clang-tidy", "--version") + digest(".clang-tidy")
    for entry in json.loads(Path(build, "compile_commands.json").read_text()):
        files = made.get(re.search(r" -o (\S+)", entry["command"])[1])
        if files:
            text = "\n".join([tidy, entry["command"], *map(digest, files)])
            found[entry["file"]] = Path(build, "tidy", hashlib.sha256(text.encode()).hexdigest())
    return found


def main(build: str, jobs: str, *files: str) -> int:
    stamp_of = stamps(build)
    Path(build, "tidy").mkdir(exist_ok=True)

    def passes(file: str) -> bool:
        stamp = stamp_of.get(os.path.abspath(file))
        if stamp and stamp.exists():
            return True
        done = subprocess.run(["clang-tidy", "-p", build, "--quiet", file], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="", end="", flush=True)
        elif stamp:
            stamp.touch()
        return done.returncode == 0

    with ThreadPoolExecutor(int(jobs)) as pool:
        return 0 if all(list(pool.map(passes, files))) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
