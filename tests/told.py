"""Runs `stepladder report` on results that a test makes: only runs, from which everything else follows."""

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

REPORTS = Path(__file__).resolve().parent.parent / "reports"
# A Python of a report that keeps the files that stepladder gives it, by number.
KEEPING = """#!/bin/sh
shift
for file; do
  case $file in --out=*) ;; *) n=$((n + 1)); cp "$file" told/$(printf %03d $n) ;; esac
done
"""


def stepladder(folder: Path, *arguments: object, python: str = sys.executable) -> subprocess.CompletedProcess:
    """Runs stepladder in `folder`. Skips the test where STEPLADDER_BIN names no folder of programs."""
    if not (programs := os.environ.get("STEPLADDER_BIN")):
        raise unittest.SkipTest("STEPLADDER_BIN names no folder that has stepladder in it")
    return subprocess.run([Path(programs, "stepladder"), *arguments], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"STEPLADDER_PYTHON": python}, check=False)


def lines(data: dict, session: str) -> str:
    """The text of a results file with one part."""
    begin = {"line": "session", "schema": 3, "session": session, "context": data["context"], "plan": data.get("plan", {})}
    if about := data.get("report", {}).get("about"):
        begin["part"] = f"{data['report']['name']}: {about}"
    made = [begin, *({"line": "run", "session": session} | run for run in data.get("runs", ()))]
    if "profile" in data:
        made.append({"line": "profile", "session": session} | data["profile"])
    made.append({"line": "end", "session": session, "complete": data.get("complete", True), "stopped": None, "exit_code": 0,
                 "wall_s": 1.0})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in made)


def files_of(folder: Path, *datas: dict) -> list[str]:
    """Writes files with these results or histories. Returns the files' names."""
    names = []
    for number, data in enumerate(datas):
        known = data if isinstance(data, dict) else {}
        names.append(known.get("report", {}).get("name", f"results{number}.json"))
        text = data if isinstance(data, str) else json.dumps(data) if "kind" in data else lines(data, f"{number:016x}")
        Path(folder, names[-1]).write_text(text)
    return names


def reported(folder: Path, *datas: dict, more: tuple = (), charts: bool = True,
             page: bool = True) -> subprocess.CompletedProcess:
    """Runs `stepladder report` on these results; output goes to `folder`/out, without a page all but what Python writes."""
    python = sys.executable if page else "true"
    if page and not charts:
        python = Path(folder, "without-charts")
        python.write_text(f"#!/bin/sh\nexec {sys.executable} {__file__} \"$@\"\n")
        python.chmod(0o755)
    return stepladder(folder, "report", *files_of(folder, *datas), "--out", "out", *more, python=str(python))


def page_of(*datas: dict, charts: bool = False) -> str:
    """The page of these results; without charts it is made much faster."""
    return _page_of(json.dumps(datas), charts)


@functools.cache
def _page_of(datas: str, charts: bool) -> str:
    """Makes a page in this process, which spares loading again what a page needs."""
    import report

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python, told, out = folder / "keeping", folder / "told", folder / "out"
        python.write_text(KEEPING)
        python.chmod(0o755)
        told.mkdir()
        done = stepladder(folder, "report", *files_of(folder, *json.loads(datas)), "--out", "out", python=str(python))
        assert done.returncode == 0, done.stderr
        without = contextlib.nullcontext() if charts else mock.patch.dict(sys.modules, charts=None)
        with without, contextlib.redirect_stdout(io.StringIO()):
            assert report.main([*map(str, sorted(told.iterdir())), "--out", str(out)]) == 0
        return (out / "index.html").read_text(encoding="utf-8")


if __name__ == "__main__":  # run as the Python of a report without charts
    sys.path.insert(0, str(REPORTS))
    sys.modules["matplotlib"] = None
    import report

    sys.exit(report.main(sys.argv[2:]))
