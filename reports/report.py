#!/usr/bin/env python3
"""Writes the report of results files: index.html, published.md, results.csv, and each chart as SVG and PNG.

Prints a line for each file written, and one that begins with "! " for what can't be: without matplotlib there are no
charts, without jinja2 no page. Exit status: 0, or 2 for a results file that can't be read or a folder that can't be
written.
"""

import argparse
import csv
import sys
from pathlib import Path

import results
from results import Results, ResultsError

COLUMNS = ("file", "device", "backend", "model", "B", "T", "variant", "peer", "status", "reason", "rounds",
           "median_step_ms", "median_step_ms_lo", "median_step_ms_hi", "tokens_per_second", "speedup_previous",
           "speedup_baseline", "mfu_nanogpt", "mfu_llmc", "live_peak_bytes", "reserved_peak_bytes",
           "process_peak_bytes", "first_step_ms", "startup_ms", "final_loss", "val_loss")

LACKING = f"! no {{}}: {sys.executable} has no {{}}; install python3-{{}}, or name another Python in STEPLADDER_PYTHON"


def write_csv(measured: list[Results], path: Path) -> None:
    """A line for each rung or peer on a workload; empty where there is no number."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for one in measured:
            for workload in one.workloads:
                for row in workload.rows + workload.all_peers:
                    memory = row.memory
                    low, high = row.interval_ms or (None, None)
                    writer.writerow((
                        one.name, workload.device, one.backend, workload.model, workload.B, workload.T, row.rung,
                        row.peer, row.status, row.reason, len(row.rounds), row.median_ms if row.ok else None, low, high,
                        row.tokens_per_second, row.previous and row.previous.value, row.speedup, row.mfu_nanogpt,
                        row.mfu_llmc, *((memory.live, memory.reserved, memory.process) if memory else (None,) * 3),
                        row.first_step_ms, row.startup_ms, row.final_loss, row.val_loss))


def report(paths: list[Path], out: Path) -> None:
    measured = [results.read(path) for path in paths]
    out.mkdir(parents=True, exist_ok=True)
    write_csv(measured, out / "results.csv")
    print(out / "results.csv")

    drawn, captions, dark_css = {}, {}, ""
    try:
        import charts
        import style

        drawn = charts.write(results.together(measured), out)
        captions = {name: draw.__doc__ for name, draw in charts.CHARTS.items()}
        dark_css = style.dark_css()
        for written in drawn.values():
            if not isinstance(written, str):
                print(*written, sep="\n")
    except ModuleNotFoundError as missing:
        print(LACKING.format("charts", missing.name, "matplotlib"))
    try:
        import page
    except ModuleNotFoundError as missing:
        print(LACKING.format("page", missing.name, "jinja2"))
        return
    for name, text in (("published.md", page.published_markdown(measured)),
                       ("index.html", page.render(measured, drawn, captions, dark_css))):
        (out / name).write_text(text, encoding="utf-8")
        print(out / name)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="results files, schema 1")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write to (default: here)")
    options = parser.parse_args(arguments)
    try:
        report(options.results, options.out)
    except ResultsError as error:
        print(f"report: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"report: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
