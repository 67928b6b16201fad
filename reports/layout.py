"""Figures of several panels under one title."""

import style
from results import Results, Workload, rounds_of


def panels(data: Results, title: str, note: str, workloads: list[Workload], heights: list[list[float]], left: float,
           right: float = 0.3):
    """A figure with a group of panels for each workload. Returns the figure and the groups of axes."""
    rounds = rounds_of(row for workload in workloads for row in workload.rows)
    several = len(workloads) > 1
    parts = [data.device, "" if several else str(workloads[0]),
             rounds and f"{rounds} round{'s' if rounds != '1' else ''}", note]
    gaps = [[0.65] + [0.12] * (len(group) - 1) for group in heights]
    gaps[0][0] = 0.45 if several else 0.2
    fig, axes = style.figure(title, "  ·  ".join(filter(None, parts)), sum(heights, []), sum(gaps, []), left, right)
    groups = [[axes.pop(0) for _ in group] for group in heights]
    if several:
        for group, workload in zip(groups, workloads):
            group[0].set_title(str(workload))
    return fig, groups


def label_rows(ax, names: list[str]) -> None:
    """Labels the rows of horizontal bars with `names`, from the top down."""
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)


def columns_right(ax, y: float, texts, places: tuple[int, ...], color: str = style.INK) -> None:
    """Writes a row's `texts` right of the panel, in columns that end at `places`, in points from the panel."""
    for place, text in zip(places, texts):
        ax.annotate(text, (1, y), xycoords=ax.get_yaxis_transform(), xytext=(place, 0), textcoords="offset points",
                    ha="right", va="center_baseline", color=color, fontsize=9, annotation_clip=False)


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
