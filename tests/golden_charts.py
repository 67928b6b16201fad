"""Runs a report's script so that it keeps the numbers behind each chart, as NAME.data, instead of drawing it.

python3 golden_charts.py SCRIPT ARGUMENT...

It doesn't check files against the schema, which takes most of the time and has tests of its own. It neither compares
rungs with today's sources nor counts the sources' lines.
"""

import json
import math
import runpy
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]).parent))
import published  # noqa: E402
import schema  # noqa: E402
import sources  # noqa: E402
import style  # noqa: E402
from matplotlib.collections import Collection  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.ticker import FixedFormatter  # noqa: E402


def number(value: object) -> float | None:
    """A number rounded to five digits, which hide rounding errors; None for a value that isn't drawn."""
    return None if value is None or value != value else float(f"{float(value):.5g}")


def numbers(values: object) -> list | str:
    """The numbers; for a long curve 12 to 23 of them, evenly spaced, with the count and the sum of all."""
    values = [number(value) for value in values]
    every = len(values) // 12
    if every < 2:
        return values
    known = [value for value in values if value is not None]  # math.fsum: sum() rounds otherwise before Python 3.12
    return f"{len(values)} numbers, sum {number(math.fsum(known))}: {' '.join(map(str, values[::every]))}"


def points(x: object, y: object) -> list:
    return [numbers(x), numbers(y)]


def artist_data(kind: str, artist: object, **data: object) -> dict:
    """An artist's data, label and tooltip."""
    label, tip = str(artist.get_label()), style._tips.get(artist.get_gid())
    return {"draws": kind, **data, **({} if label.startswith("_") or not label else {"label": label}),
            **({"tip": tip} if tip else {})}


def legend_data(legend: object) -> dict:
    return {"draws": "legend", "entries": [text.get_text() for text in legend.get_texts()]}


def text_data(text: object) -> dict:
    at = getattr(text, "xy", text.get_position())
    return artist_data("text", text, text=text.get_text(), at=[place if isinstance(place, str) else number(place)
                                                            for place in at])


def axes_data(ax: object) -> Iterator[dict]:
    yield {"draws": "axes", "title": ax.get_title("left") or ax.get_title(), "x": ax.get_xlabel(), "y": ax.get_ylabel(),
           "scales": [ax.get_xscale(), ax.get_yscale()]}
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        if isinstance(axis.get_major_formatter(), FixedFormatter):
            yield {"draws": f"{name} labels", "at": [number(place) for place in axis.get_majorticklocs()],
                   "labels": [label.get_text() for label in axis.get_ticklabels()]}
    for line in ax.lines:
        x, y = points(line.get_xdata(), line.get_ydata())
        yield artist_data("line", line, look=f"{to_hex(line.get_color())} {line.get_linestyle()} {line.get_marker()}",
                          x=x, y=y)
    for patch in ax.patches:
        corners = patch.get_path().transformed(patch.get_patch_transform()).get_extents()
        yield artist_data("bar", patch, look=f"{to_hex(patch.get_facecolor())} {patch.get_hatch() or ''}".strip(),
                          x=[number(corners.x0), number(corners.x1)], y=[number(corners.y0), number(corners.y1)])
    for collection in ax.collections:
        yield artist_data("marks", collection, at=[points(*offsets) for offsets in collection_points(collection)])
    yield from map(text_data, ax.texts)
    if legend := ax.get_legend():
        yield legend_data(legend)


def collection_points(collection: Collection) -> list[tuple]:
    """A collection's points as one list, or the ends of each whisker."""
    if collection.get_offset_transform() == collection.axes.transData and len(collection.get_offsets()):
        return [tuple(zip(*collection.get_offsets()))]
    return [tuple(zip(*path.vertices)) for path in collection.get_paths() if len(path.vertices)]


def chart_data(figure: object) -> list[dict]:
    """The data of every item that a figure draws."""
    return [*map(text_data, figure.texts), *map(legend_data, figure.legends),
            *(item for ax in figure.axes for item in axes_data(ax))]


def keep_data(figure: object, stem: Path) -> list[Path]:
    """Replaces style.save(): keeps a chart's data, and an SVG with only its title."""
    lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in chart_data(figure))
    stem.with_suffix(".data").write_text(f"[\n{lines}\n]", encoding="utf-8")
    style._tips.clear()
    stem.with_suffix(".svg").write_text(f"<svg><title>{escape(figure.get_label())}</title></svg>", encoding="utf-8")
    return [stem.with_suffix(".svg"), stem.with_suffix(".png")]


def uncounted(patterns: list[str] | None, line: published.Line) -> None:
    """Replaces published._count_lines(), which reads today's sources."""
    if patterns:
        line.columns = [published.Ours(", ".join(patterns), "N")]


if __name__ == "__main__":
    style.save = keep_data
    schema.best_match = sources.source_hash = lambda _: None
    published._count_lines = uncounted
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
