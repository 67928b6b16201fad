#!/usr/bin/env python3
"""Writes the page of a report, index.html, and published.md, and each chart as SVG and PNG.

Prints a line for each file written, and one that begins with "! " for what can't be: without matplotlib there are no
charts, without jinja2 no page. Exit status: 0, or 2 for a results file that can't be read or a folder that can't be
written.
"""

import argparse
import json
import sys
from pathlib import Path

import profiles
import results
from files import replace
from schema import answered, kind_of

LACKING = f"! no {{}}: {sys.executable} has no {{}}; install python3-{{}}, or name another Python in STEPLADDER_PYTHON"


def report(page_path: Path, paths: list[Path], out: Path) -> None:
    told = json.loads(page_path.read_bytes())
    loaded = [(path, results.told(path)) for path in paths]
    measured = [results.read(data) for _, data in loaded if kind_of(data) == "results"]
    traced = [profiles.read(path, data) for path, data in loaded if kind_of(data) == "profile"]
    try:
        import page
    except ModuleNotFoundError as missing:
        page = None
        print(LACKING.format("page", missing.name, "jinja2"))
    out.mkdir(parents=True, exist_ok=True)
    everything, drawn, captions = results.together(measured, traced), {}, {}
    try:
        import charts
        import history

        series = [one for path, data in loaded if kind_of(data) == "history" for one in history.read(path, data)]
        everything = results.together(measured, traced, series)
        drawn, captions = charts.write(everything, out), charts.captions(everything)
        for written in drawn.values():
            if not isinstance(written, str):
                print(*written, sep="\n")
    except ModuleNotFoundError as missing:
        print(LACKING.format("charts", missing.name, "matplotlib"))
    if page is None:
        return
    for path, text in ((out / "published.md", page.published_markdown(measured, traced)),
                       (out / "index.html", page.render(told, measured, everything, drawn, captions))):
        if text:
            replace(path, text.encode())
            print(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="what the page says, as `stepladder report` tells it")
    parser.add_argument("results", type=Path, nargs="*", help="what charts are drawn of: results, profiles and histories")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write to (default: here)")
    options = parser.parse_args(arguments)
    return answered("report", lambda: report(options.page, options.results, options.out))


if __name__ == "__main__":
    sys.exit(main())
