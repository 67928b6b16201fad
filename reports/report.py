#!/usr/bin/env python3
"""Writes the report of results files: index.html, published.md, results.csv, and each chart as SVG and PNG.

Prints a line for each file written, and one that begins with "! " for what can't be: without matplotlib there are no
charts, without jinja2 no page. Exit status: 0, or 2 for a results file that can't be read or a folder that can't be
written.
"""

import argparse
import csv
import io
import sys
from pathlib import Path

import profiles
import results
from files import replace
from results import Results
from schema import answered

COLUMNS = ("file", "device", "backend", "model", "B", "T", "devices", "variant", "peer", "status", "reason",
           "disturbance", "rounds", "median_step_ms", "median_step_ms_lo", "median_step_ms_hi", "tokens_per_second",
           "speedup_previous", "speedup_baseline", "mfu_nanogpt", "mfu_llmc", "cycles", "joules", "tokens_per_joule",
           "live_peak_bytes", "reserved_peak_bytes", "process_peak_bytes", "first_step_ms", "startup_ms", "final_loss",
           "val_loss")

LACKING = f"! no {{}}: {sys.executable} has no {{}}; install python3-{{}}, or name another Python in STEPLADDER_PYTHON"


def write_csv(measured: list[Results], path: Path) -> None:
    """A line for each rung or peer on a workload; empty where there is no number."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in measured:
        for workload in one.workloads:
            for row in workload.rows + workload.all_peers:
                memory = row.memory
                low, high = row.interval_ms or (None, None)
                writer.writerow((
                    one.name, workload.device, one.backend, workload.model, workload.B, workload.T, workload.devices,
                    row.rung, row.peer, row.status, row.reason, row.disturbance, len(row.rounds),
                    row.median_ms if row.ok else None, low, high, row.tokens_per_second,
                    row.previous and row.previous.value, row.speedup, row.mfu_nanogpt, row.mfu_llmc,
                    *(known and known.value for known in (row.cycles, row.joules, row.tokens_per_joule)),
                    *((memory.live or None, memory.reserved or None, memory.process or None) if memory else (None,) * 3),
                    row.first_step_ms, row.startup_ms, row.final_loss, row.val_loss))
    replace(path, file.getvalue().encode())


def shorten_names(given: list[Results | profiles.Profile]) -> None:
    """Beside parts of a campaign, which have no extension, neither have files, where that tells them apart."""
    names = [one.name for one in given]
    if all(name.endswith(".json") for name in names):
        return
    short = [name.removesuffix(".json") for name in names]
    for one, name in zip(given, short):
        if short.count(name) == 1:
            one.name = name


def report(paths: list[Path], out: Path, into: Path | None) -> None:
    loaded = {path: results.load(path) for path in paths}
    kinds = {path: results.kind_of(data) for path, data in loaded.items()}
    measured = [results.read(path, data) for path, data in loaded.items() if kinds[path] not in ("profile", "history")]
    traced = [profiles.read(path, data) for path, data in loaded.items() if kinds[path] == "profile"]
    try:
        import page

        text, end = page.text_of(into) if into else ("", "\n")
        renewed = page.renew(text, into, measured).replace("\n", end) if into else ""
    except ModuleNotFoundError as missing:
        page = None
        print(LACKING.format("page", missing.name, "jinja2"))
    out.mkdir(parents=True, exist_ok=True)
    write_csv(measured, out / "results.csv")
    print(out / "results.csv")
    shorten_names(measured + traced)

    drawn, captions, series = {}, {}, []
    try:
        import charts
        import history

        series = [one for path, data in loaded.items() if kinds[path] == "history" for one in history.read(path, data)]
        together = results.together(measured, traced, series)
        drawn, captions = charts.write(together, out), charts.captions(together)
        for written in drawn.values():
            if not isinstance(written, str):
                print(*written, sep="\n")
    except ModuleNotFoundError as missing:
        print(LACKING.format("charts", missing.name, "matplotlib"))
    if page is None:
        return
    for path, text in ((out / "published.md", page.published_markdown(measured, traced)),
                       (out / "index.html", page.render(measured, traced, drawn, captions, series)),
                       *([(into, renewed)] if into else [])):
        if text:
            replace(path, text.encode())
            print(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="results files, profiles and histories")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write to (default: here)")
    parser.add_argument("--into", type=Path, help="also renews the tables between marks in this Markdown file")
    options = parser.parse_args(arguments)
    return answered("report", lambda: report(options.results, options.out, options.into))


if __name__ == "__main__":
    sys.exit(main())
