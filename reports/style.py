"""The one look of every chart: type, colours, markers, titles, and files that are the same bytes every time."""

import io
import math
import re
from collections.abc import Callable, Iterator
from html import escape
from itertools import chain, cycle, pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Bbox

from files import replace

INK = "#1a1a1a"
MUTED = "#5f6368"
GRID = "#e3e5e8"
SHADE = "#f3f4f6"
BAND = "#d3d7dc"
BAR = "#0072B2"
BASELINE_BAR = "#8c9196"
PEER_BAR = "#E69F00"

# Okabe and Ito's palette, which readers with any colour vision can tell apart; black is the baseline's. Dashes and
# markers tell the series apart in grey, and combine into more series than there are colours.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ((0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1.2)), "-")
_MARKERS = "sD^vPXo"

# The whisker of an interval, and the line of a peer's time across all rungs.
WHISKER = {"color": INK, "elinewidth": 1.1, "capsize": 3, "capthick": 1.1, "zorder": 4}
PEER_LINE = {"color": "#D55E00", "linewidth": 1.2, "linestyle": (0, (4, 2)), "zorder": 1.5}

# A rung's gains: colour and marker, each enough by itself to tell them apart.
GAINS = {"ladder": {"color": INK, "marker": "o"}, "without": {"color": "#0072B2", "marker": "s"},
         "only": {"color": "#D55E00", "marker": "^"}}

WIDTH = 8.4  # inches
EDGE = 0.16  # inches left of titles
_DPI = 160
_FONTS = "'DejaVu Sans', Verdana, sans-serif"  # of an SVG's text; the second is as wide as the first

matplotlib.rcParams.update({
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "stepladder",
})


# Under a line: the wide band that marks the baseline.
BASELINE_EFFECT = [Stroke(linewidth=7, foreground=BAND), Normal()]

# The colour that replaces each colour on a dark ground.
_DARK = {"#ffffff": "#15181b", INK: "#e8eaed", MUTED: "#a2a8ae", GRID: "#2d3237", SHADE: "#1e2226", BAND: "#454b52",
         "#000000": "#e8eaed", BAR.lower(): "#3f97d6", "#56b4e9": "#a5dafa", "#d55e00": "#f08040", "#009e73": "#2bc396"}


def _on_dark(look: str) -> str:
    return re.sub(r"(?<=: )#\w{6}", lambda colour: _DARK.get(colour[0], colour[0]), look)


class Line(NamedTuple):
    color: str
    linestyle: object
    marker: str


def lines(names: list[str]) -> dict[str, Line]:
    """A line style for each name; the first is the baseline's."""
    rest = (Line(*look) for look in zip(cycle(COLOURS), cycle(_DASHES), cycle(_MARKERS)))
    return dict(zip(names, chain([Line(INK, "-", "o")], rest)))


def text_width(text: str, size: float = 9.5) -> float:
    """About how many inches wide a text is."""
    return 0.0084 * size * len(text)


def legend_width(labels: list[str]) -> float:
    return 0.75 + max(text_width(label, 9) for label in labels)


def figure(title: str, subtitle: str, heights: list[float], gaps: list[float], left: float, right: float):
    """Panels one above the other under a title and a subtitle, all in inches: `gaps` lie above each panel, `left` and
    `right` beside them. Returns the figure and its axes."""
    header, footer = 0.6, 0.52
    total = header + sum(heights) + sum(gaps) + footer
    fig = Figure(figsize=(WIDTH, total))
    fig.set_label(title)
    fig.text(EDGE / WIDTH, 1 - 0.12 / total, title, fontsize=13, fontweight="bold", va="top")
    fig.text(EDGE / WIDTH, 1 - 0.38 / total, subtitle, fontsize=9, color=MUTED, va="top")
    axes, top = [], total - header
    for height, gap in zip(heights, gaps):
        top -= gap + height
        axes.append(fig.add_axes((left / WIDTH, top / total, 1 - (left + right) / WIDTH, height / total)))
    return fig, axes


def number(value: float) -> str:
    """Three significant digits, more before the point: 4.56, 41.7, 370, 1240."""
    return f"{value:.0f}" if 99.95 <= abs(value) < 1e15 else f"{value:#.3g}"


def log_axis(axis, at=(1, 2, 5)) -> None:
    """Labels a logarithmic axis in plain numbers, at the multiples `at` of each decade."""
    axis.set_major_locator(LogLocator(subs=at, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def decades(axis) -> None:
    """Labels a logarithmic axis with 10⁻⁵, 10⁻⁴, ..."""
    digits = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"10{f'{math.log10(value):.0f}'.translate(digits)}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


_tips: dict[str, str] = {}


def tip(artist, text: str) -> None:
    """Sets the text that the SVG shows where the pointer rests on `artist`."""
    name = f"tip{len(_tips)}"
    _tips[name] = text
    artist.set_gid(name)


def mark(ax, x: float, y: float, text: str, **look) -> None:
    """Draws a mark with the tooltip `text`."""
    (drawn,) = ax.plot(x, y, **look)
    tip(drawn, text)


def beside(ax, text: str, at: tuple, offset: float = 6, ground: float | None = None, **look):
    """Writes `text` so many points right of a mark, or left of it; with `ground` on white that reaches so far around it."""
    box = {} if ground is None else {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": ground}}
    return ax.annotate(text, at, xytext=(offset, 0), textcoords="offset points", va="center_baseline", **box, **look)


def times_axis(ax, at=(1, 2, 5)) -> None:
    """Makes x logarithmic, labelled 1×, 2×, 5×, ..."""
    ax.set_xscale("log")
    log_axis(ax.xaxis, at)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))


def _by_steps(path: str) -> str:
    """`path` with each point relative to the one before, which is shorter, if it has straight lines alone with
    coordinates in tenths; else `path`."""
    if not re.fullmatch(r"M[^A-Za-z]+(L[^A-Za-z]+)+z?", path):
        return path
    points = [[round(10 * float(value)) for value in point.split()] for point in re.split("[ML]", path.rstrip("z"))[1:]]
    steps = (f"{(to[0] - of[0]) / 10:g} {(to[1] - of[1]) / 10:g}" for of, to in pairwise(points))
    return path[:path.index("L")] + "l" + " ".join(steps) + "z" * path.endswith("z")


_TAG = r"<[^>]*>"


def _in_tags(pattern: str, replacement: str | Callable[[re.Match], str], svg: str) -> str:
    """re.sub() in an SVG's tags alone: a text may read like an attribute."""
    return re.sub(_TAG, lambda tag: re.sub(pattern, replacement, tag[0]), svg)


def _slim(svg: str, name: str) -> str:
    """`svg` with coordinates in tenths of a point, ids only where something refers to them, and a class for each look,
    in a light and a dark one. Names begin with `name`: several charts may stand on a page."""

    def rounded(attribute: re.Match) -> str:
        value = re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 1) + 0:.7g}", attribute[2])
        value = re.sub(r"\s*([CLMQz])\s*", r"\1", value).strip()
        return f' {attribute[1]}="{_by_steps(value) if attribute[1] == "d" else value}"'

    def found(pattern: str) -> Iterator[tuple[int, str]]:
        return enumerate(dict.fromkeys(re.findall(pattern, "".join(re.findall(_TAG, svg)))))

    svg = _in_tags(r' (d|x|y|width|height|transform)="([^"]*)"', rounded, svg)
    ids = {one: f"{name}-{i}" for i, one in found(r'(?:href="|url\()#([^")]*)')}
    svg = _in_tags(r' id="([^"]*)"', lambda own: f' id="{ids[own[1]]}"' if own[1] in ids else "", svg)
    svg = _in_tags(r'(href="|url\()#([^")]*)', lambda to: f"{to[1]}#{ids[to[2]]}", svg)
    svg = _in_tags(r' fill="(#\w{6})"', r' style="fill: \1"', svg)  # the fill under hatches
    looks = {look: f"{name}{i}" for i, look in found(r' style="([^"]*)"')}
    svg = _in_tags(r' style="([^"]*)"', lambda look: f' class="{looks[look[1]]}"', svg)
    light = "".join(f".{own}{{{look}}}" for look, own in looks.items())
    dark = "".join(f".{own}{{{_on_dark(look)}}}" for look, own in looks.items() if _on_dark(look) != look)
    rules = f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"
    svg = _in_tags(' xmlns:xlink="[^"]*"', "", svg.replace("<defs>", rules + "\n<defs>", 1))
    svg = _in_tags("xlink:href", "href", re.sub(r"\s*\n\s*", "\n", svg)).replace("<g/>\n", "")
    return _without_bare_groups(svg)


def _without_bare_groups(svg: str) -> str:
    """`svg` without the groups that have neither an attribute nor a title."""
    kept, stack = [], []
    for part in re.split(r"(<g>\n(?!<title>)|<g\b|</g>\n?)", svg):
        if part.startswith("<g"):
            stack.append(part == "<g")
        if not part.startswith(("<g>", "</g>")) or part.startswith("</g>") and stack.pop():
            kept.append(part)
    return "".join(kept)


def save(fig, stem: Path) -> list[Path]:
    """Writes stem.svg, which follows the reader's light or dark ground, and stem.png, without a date."""
    paths = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    box = Bbox.union([Bbox([(0, 0), fig.get_size_inches()]), fig.get_tightbbox()])  # grows with long names
    file = io.StringIO()
    fig.savefig(file, format="svg", bbox_inches=box,
                metadata={"Title": fig.get_label(), "Date": None, "Creator": "stepladder"})
    text = _in_tags("font-family: 'DejaVu Sans'", f"font-family: {_FONTS}", file.getvalue())
    text = _in_tags(r' transform="rotate\(-0 [^"]*"', "", text)
    text = re.sub(r">[^<]+</text>", lambda words: words[0].replace("  ", "\N{NO-BREAK SPACE} "), text)
    for name, words in _tips.items():
        text = text.replace(f'<g id="{name}">', f"<g><title>{escape(words)}</title>")
    _tips.clear()
    replace(paths[0], _slim(text, stem.name).encode())
    pixels = io.BytesIO()
    fig.savefig(pixels, format="png", dpi=_DPI, bbox_inches=box, metadata={"Software": "stepladder"})
    replace(paths[1], pixels.getvalue())
    return paths
