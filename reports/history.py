#!/usr/bin/env python3
"""Draws step times over time from the history.json of `stepladder history`, as history.svg and history.png.

Exit status: 0, or 2 for a history that can't be read or a folder that can't be written.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import style
from matplotlib.ticker import FuncFormatter, MaxNLocator
from results import positive


class HistoryError(Exception):
    """What is wrong with a history, on one line."""


@dataclass
class Point:
    label: str  # its commit, or its time
    ms: float
    low: float | None
    high: float | None
    level_ms: float
    changed: bool


@dataclass
class Series:
    device: str
    title: str
    points: list[Point]


def read(path: Path) -> list[Series]:
    """Throws HistoryError naming the file and what is wrong with it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != 1 or data["kind"] != "history":
            raise ValueError("no history of schema 1")
        return [Series(str(item["device"]), f"{item['variant']}, {item['workload']}",
                       [_point(point) for point in item["points"]]) for item in data["series"]]
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise HistoryError(f"{path}: {error}") from None
    except KeyError as error:
        raise HistoryError(f"{path}: {error} is missing") from None
    except (TypeError, AttributeError) as error:
        raise HistoryError(f"{path}: a field is of the wrong type: {error}") from None


def _point(data: dict) -> Point:
    low, high = (None if data[key] is None else positive(data[key]) for key in ("lo", "hi"))
    return Point(str(data["commit"])[:8] or str(data["time"])[:10], positive(data["median_step_ms"]), low, high,
                 positive(data["level_ms"]), bool(data["changed"]))


def draw(history: list[Series]):
    """A panel for each rung: medians with their intervals, the levels as lines, and each change of level marked by
    its size."""
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", type=Path, help="history.json of `stepladder history`")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write to (default: here)")
    options = parser.parse_args(arguments)
    try:
        history = read(options.history)
        options.out.mkdir(parents=True, exist_ok=True)
        for path in style.save(draw(history), options.out / "history") if history else []:
            print(path)
    except HistoryError as error:
        print(f"history: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"history: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
