#!/usr/bin/env python3
"""Draws step times over time from the history.json of `stepladder history`, as history.svg and history.png.

Exit status: 0, or 2 for a history that can't be read or a folder that can't be written.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import style
from matplotlib.ticker import FuncFormatter, MaxNLocator
from results import Results
from schema import ResultsError, answered, kind_of, load, plain


@dataclass
class Point:
    label: str  # the commit, or the day of the measurement
    ms: float
    low: float | None
    high: float | None
    level_ms: float
    changed: bool
    outlier: bool = False


@dataclass
class Series:
    device: str
    title: str
    points: list[Point]


def read(path: Path, data: dict | None = None) -> list[Series]:
    """The series of a history file, or of what load() has read. Throws ResultsError naming the file and the fault."""
    data = data or load(path)
    if kind_of(data) != "history":
        raise ResultsError(f"{path}: no history but a {plain(kind_of(data))}")
    return [Series(plain(item["device"]), ", ".join(plain(item[key]) for key in ("variant", "workload", "settings")
                                                    if key in item), [_point(point) for point in item["points"]])
            for item in data["series"]]


def _point(data: dict) -> Point:
    commit, dash, dirty = plain(data["commit"]).partition("-")
    return Point(commit[:8] + dash + dirty or plain(data["time"])[:10], data["median_step_ms"], data["lo"], data["hi"],
                 data["level_ms"], data["changed"], data.get("outlier", False))


def draw(history: list[Series]):
    """A panel for each rung: medians with their intervals, the levels as lines, each change of level marked by its
    size, and outliers hollow."""
    devices = list(dict.fromkeys(series.device for series in history))
    subtitle = "  ·  ".join([*devices[:2], "line: level, with its changes"])
    fig, axes = style.figure("Step time over time", subtitle, [1.5] * len(history), [0.55] * len(history), 0.85, 0.3)
    for ax, series in zip(axes, history):
        points = series.points
        ax.set_title(series.title if len(devices) == 1 else f"{series.title}; {series.device}")
        ax.step(range(len(points)), [point.level_ms for point in points], where="mid", color=style.MUTED,
                linewidth=1.1)
        for x, point in enumerate(points):
            whisker = None if point.low is None else [[max(point.ms - point.low, 0)], [max(point.high - point.ms, 0)]]
            ax.errorbar(x, point.ms, yerr=whisker, fmt="D" if point.changed else "o", markersize=4.5, capsize=2.5,
                        fillstyle="none" if point.outlier else "full",
                        color=style.PEER_LINE["color"] if point.changed else style.BAR, elinewidth=1.1)
            if point.changed:
                change = (point.level_ms / points[x - 1].level_ms - 1) * 100
                ax.axvline(x - 0.5, color=style.PEER_LINE["color"], linewidth=1, linestyle=(0, (4, 2)))
                ax.annotate(f"{change:+.1f} %", (x - 0.5, 1), xycoords=("data", "axes fraction"), xytext=(3, -3),
                            textcoords="offset points", va="top", fontsize=8.5)
        ax.margins(y=0.25)
        ax.set_xlim(-0.6, len(points) - 0.4)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        ax.xaxis.set_major_formatter(FuncFormatter(
            lambda x, _, points=points: points[int(x)].label if x == int(x) and 0 <= x < len(points) else ""))
        ax.set_ylabel("median ms")
    return fig


_SHOWN, _MOST = 4, 40  # series shown, those with the most points: on the page, and in a chart of their own


def draw_history(data: Results):
    """Step time over several results, in the order of their time, by commit: medians with their intervals, and the
    levels as lines. Only results of one configuration are joined. Shown are the rungs that were measured most often."""
    several = sorted((series for series in data.history if len({point.label for point in series.points}) > 1),
                     key=lambda series: -len(series.points))
    if not several:
        return ("no rung was measured in the same configuration at two commits: give the results of each, or what "
                "`stepladder history` wrote")
    return draw(several[:_SHOWN])


CHARTS = {"history": draw_history}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path, help="history.json of `stepladder history`")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write to (default: here)")
    options = parser.parse_args(arguments)

    def work() -> None:
        history = read(options.history)
        options.out.mkdir(parents=True, exist_ok=True)
        drawn = [series for series in history if len(series.points) > 1] or history
        if len(drawn) > _MOST:
            print(f"! the chart shows {_MOST} of {len(drawn)} series, those of the most points")
            drawn = sorted(drawn, key=lambda series: -len(series.points))[:_MOST]
        for path in style.save(draw(drawn), options.out / "history") if drawn else []:
            print(path)

    return answered("history", work)


if __name__ == "__main__":
    sys.exit(main())
