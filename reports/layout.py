"""Figures of several panels under one title."""

from math import ceil

import style
from results import Results, Workload, rounds_of


def panels(data: Results, title: str, note: str, workloads: list[Workload], heights: list[list[float]], left: float,
           right: float = 0.3, heads: list[list[float]] | None = None):
    """A figure with a group of panels for each workload; `heads` are inches above each panel for words of its own.
    Returns the figure and the groups of axes."""
    rounds = rounds_of(row for workload in workloads for row in workload.rows)
    several = len(workloads) > 1
    parts = [data.device, "" if several else str(workloads[0]),
             rounds and f"{rounds} round{'s' if rounds != '1' else ''}", note]
    gaps = [[0.65] + [0.12] * (len(group) - 1) for group in heights]
    gaps[0][0] = 0.45 if several else 0.2
    if heads:
        gaps = [[gap + head for gap, head in zip(*group)] for group in zip(gaps, heads)]
    fig, axes = style.figure(title, "  ·  ".join(filter(None, parts)), sum(heights, []), sum(gaps, []), left, right)
    groups = [[axes.pop(0) for _ in group] for group in heights]
    if several:
        for group, workload in zip(groups, workloads):
            group[0].set_title(str(workload))
    return fig, groups


COLUMNS = 4  # of a grid, at most
CELL_HEAD = 0.36  # inches above a cell of a grid, for its name and a note
_BETWEEN = 0.22  # inches


def grid_rows(count: int) -> int:
    return ceil(count / COLUMNS)


def grid(fig, rows: list, heads: list[tuple[str, str]]) -> list:
    """Cuts the panels `rows` into small ones of the same axes, one for each pair of a name and a note in `heads`, which
    stand above it, up to the right edge. The title of the first panel stays. Returns the small panels."""
    cells, title, columns = [], rows[0].get_title("left"), min(COLUMNS, len(heads))
    for row, ax in enumerate(rows):
        place = ax.get_position()
        ax.remove()
        width = (1 - place.x0 - (0.3 + (columns - 1) * _BETWEEN) / style.WIDTH) / columns
        for column in range(min(columns, len(heads) - len(cells))):
            cell = fig.add_axes((place.x0 + column * (width + _BETWEEN / style.WIDTH), place.y0, width, place.height))
            if cells:
                cell.sharex(cells[0])
                cell.sharey(cells[0])
            cell.tick_params(which="minor", length=0)
            cell.tick_params(labelsize=8, labelleft=column == 0, labelbottom=row * columns + column + columns >= len(heads))
            name, note = heads[len(cells)]
            most = int(width * style.WIDTH / style.text_width("x", 8.5))
            above = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
            cell.annotate(name if len(name) <= most else name[:most - 1] + "…", (0, 1), xytext=(0, 14), fontsize=8.5,
                          fontweight="bold", **above)
            cell.annotate(note, (0, 1), xytext=(0, 4), fontsize=8, color=style.MUTED, **above)
            cells.append(cell)
    if title:
        cells[0].annotate(title, (0, 1), xycoords="axes fraction", xytext=(0, 32), textcoords="offset points",
                          fontsize=10, fontweight="bold", annotation_clip=False)
    return cells


def label_rows(ax, names: list[str]) -> None:
    """Labels the rows of horizontal bars with `names`, from the top down."""
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


def columns_right(ax, y: float, texts, places: tuple[int, ...], color: str = style.INK) -> None:
    """Writes a row's `texts` right of the panel, in columns that end at `places`, in points from the panel."""
    for place, text in zip(places, texts):
        style.beside(ax, text, (1, y), place, xycoords=ax.get_yaxis_transform(), ha="right", color=color, fontsize=9,
                     annotation_clip=False)


def legend_right(fig, ax, handles: list, lines: bool = False) -> None:
    """A legend right of `ax`; `lines` makes room for dashes. A tuple in `handles` is artists drawn over each other, and
    has the label of the first; matplotlib's containers, such as error bars, are tuples with a label of their own."""
    place = ax.get_position()
    labels = [(handle[0] if type(handle) is tuple else handle).get_label() for handle in handles]
    fig.legend(handles, labels, loc="upper left", fontsize=9, borderaxespad=0, handlelength=None if lines else 1.6,
               bbox_to_anchor=(place.x1 + (0.12 if lines else 0.15) / style.WIDTH, place.y1))


def legend_above(fig, handles: list, handlelength: float) -> None:
    """A legend right of the title."""
    fig.legend(handles=handles, loc="upper right", ncols=len(handles), fontsize=9, handlelength=handlelength,
               bbox_to_anchor=(1 - 0.1 / style.WIDTH, 1))


def left_of(names: list[str]) -> float:
    """Inches that row names take left of a panel."""
    return 0.3 + max(style.text_width(name) for name in names)
