"""The chart of training until a loss, or to a certificate of one."""

from dataclasses import replace
from textwrap import shorten

import style
from layout import columns_right, label_rows, left_of, legend_above, legend_right, panels
from matplotlib.lines import Line2D
from results import Curve, Results, Row, Workload

_GAVE_UP = {"marker": "x", "markersize": 6.5, "markeredgewidth": 1.8, "linestyle": "none", "zorder": 5}
_COLUMNS = (46, 86, 128)
_RIGHT = 1.95  # inches that the columns of numbers take


def _rows(workload: Workload) -> list[Row]:
    """The rows that trained for a loss, and those that failed."""
    return [row for row in workload.rows + workload.all_peers if row.curves or row.to_loss or not row.ok]


def _joined(workloads: list[Workload]) -> list[Workload]:
    """The workloads, the one with the lowest rung first. Those of one configuration and loss that share no trainer are one:
    trials have a part for each trainer. It pairs no rounds, so that no time is a multiple of another."""
    joined: list[Workload] = []
    for workload in workloads:
        def fits(other: Workload, workload=workload) -> bool:
            here, there = ({row.target for row in one.everyone if row.curves} for one in (workload, other))
            return (workload.device, workload.key, here) == (other.device, other.key, there) and \
                not {row.rung for row in workload.everyone} & {row.rung for row in other.everyone}

        if (place := next((i for i, other in enumerate(joined) if fits(other)), None)) is None:
            joined.append(workload)
            continue
        rows, peers = ([replace(row, to_loss=row.to_loss and replace(row.to_loss, first=None)) for row in rows] for rows in (
            joined[place].rows + workload.rows, joined[place].all_peers + workload.all_peers))
        joined[place] = replace(workload, rows=sorted(rows, key=lambda row: row.place), all_peers=peers, label="")
    return sorted(joined, key=lambda workload: (min(row.place for row in workload.everyone), -len(workload.rows)))


def _median(row: Row) -> list[Curve]:
    """The round of median time, or the two around it, of the rounds that reached the loss, or of all if none did."""
    curves = sorted([curve for curve in row.curves if curve.reached] or row.curves, key=lambda curve: curve.seconds[-1])
    return curves[(len(curves) - 1) // 2:len(curves) // 2 + 1]


def _drawn(curve: Curve, logarithmic: bool) -> list[tuple[float, float]]:
    """A curve's points; on a logarithmic axis without the untrained model's, at zero seconds."""
    return [point for point in zip(curve.seconds, curve.losses) if point[0] > 0 or not logarithmic]


def _set_axes(above, axes: list, trained: list[Row]) -> None:
    """Sets the seconds of all `axes`, logarithmic where runs are of very different lengths, and draws the target."""
    curves, target = [curve for row in trained for curve in row.curves], trained[0].target
    ends = [curve.seconds[-1] for curve in curves]
    logarithmic = 0 < 4 * min(ends) < max(ends)
    for ax in axes:
        if logarithmic:
            ax.set_xscale("log")
            style.log_axis(ax.xaxis)
            ax.set_xlim(min(_drawn(curve, True)[0][0] for curve in curves), 1.15 * max(ends))
        else:
            ax.set_xlim(0, 1.05 * max(ends) or 1)
    above.tick_params(axis="x", labelbottom=above is axes[-1])
    begun = 0 if logarithmic else 0.08 * max(ends)  # the steep start would flatten the rest
    losses = [loss for curve in curves for seconds, loss in _drawn(curve, logarithmic)
              if seconds >= begun or len(curve.seconds) < 6] + [target]
    margin = 0.05 * (max(losses) - min(losses)) or 1
    above.set_ylim(min(losses) - 1.5 * margin, max(losses) + margin)
    above.set_ylabel("validation loss in nats per token")
    above.axhline(target, color=style.MUTED, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1.5)
    above.annotate(f"target: {target:g}", (1, target), xycoords=above.get_yaxis_transform(), xytext=(5, 0),
                   textcoords="offset points", va="center", annotation_clip=False)


def _draw_curves(ax, row: Row, look: style.Line) -> None:
    """Draws a line a round, the median one thick. A round that gave up ends in a cross; the target is marked at the
    median time."""
    middle = _median(row)
    for curve in row.curves:
        thick = any(curve is one for one in middle)
        (line,) = ax.plot(*zip(*_drawn(curve, ax.get_xscale() == "log")), color=look.color,
                          linestyle=look.linestyle if thick else "-", linewidth=1.7 if thick else 0.8,
                          alpha=1.0 if thick else 0.4, zorder=3 if thick else 2)
        style.tip(line, f"{row.rung}: {curve.losses[-1]:.4f} after {style.number(curve.seconds[-1])} s")
        if not curve.reached and row.to_loss:
            ax.plot(curve.seconds[-1], curve.losses[-1], color=look.color, alpha=1.0 if thick else 0.5, **_GAVE_UP)
    if row.to_loss and row.to_loss.seconds:
        seconds = row.to_loss.seconds.value
        ax.plot(seconds, row.to_loss.loss, marker=look.marker, color=look.color, markersize=6, linestyle="none",
                zorder=6)
        ax.plot([seconds] * 2, [0, row.to_loss.loss], color=look.color, linewidth=0.8, alpha=0.5, zorder=1.5)


def _draw_time(ax, y: int, row: Row, look: style.Line) -> None:
    """Draws the row of a rung: the median time with its range, a cross for each round that gave up, and the numbers."""
    if not row.to_loss:
        reason = shorten(f"{row.status}: {row.reason}" if row.reason else row.status,
                         int(ax.get_position().width * style.WIDTH / style.text_width("x")), placeholder=" …")
        style.beside(ax, reason, (0, y), xycoords=ax.get_yaxis_transform(), color=style.MUTED, style="italic")
        return
    to_loss, left = row.to_loss, ax.get_xlim()[0]
    texts = ["", "", f"{to_loss.reached} of {to_loss.rounds}"]
    ends = [curve.seconds[-1] for curve in row.curves if not curve.reached]
    for seconds in ends:
        style.mark(ax, seconds, y, f"{row.rung}: not reached after {style.number(seconds)} s", color=look.color, **_GAVE_UP)
    if known := to_loss.seconds:
        ax.plot([left, known.value], [y, y], color=look.color, linestyle=look.linestyle, linewidth=1.7)
        ax.plot([known.value] * 2, [-0.5, y], color=look.color, linewidth=0.8, alpha=0.5, zorder=1.5)
        if known.interval:
            ax.errorbar(known.value, y, xerr=known.errors, **style.WHISKER)
        between = f", {style.number(known.low)} to {style.number(known.high)}" if known.interval else ""
        style.mark(ax, known.value, y, f"{row.rung}: {style.number(known.value)} s{between}", marker=look.marker,
                   color=look.color, markersize=6, linestyle="none", zorder=6)
        texts[:2] = f"{style.number(known.value)} s", f"{to_loss.first.value:.2f}×" if to_loss.first else ""
    elif ends:
        ax.plot([left, min(ends)], [y, y], color=look.color, linestyle=look.linestyle, linewidth=1.7)
        lowest = min(loss for curve in row.curves for loss in curve.losses)
        right = ax.transAxes.inverted().transform(ax.transData.transform((min(ends), y)))[0] < 0.5
        style.beside(ax, f"not reached, {lowest:.3f} at best", (max(ends) if right else min(ends), y), 9 if right else -9,
                     ground=1, ha="left" if right else "right", color=style.MUTED, style="italic", fontsize=9, zorder=5)
    columns_right(ax, y, texts, _COLUMNS)


def draw_to_loss(data: Results):
    """Validation loss over seconds of training, evaluations left out: each round thin, the one of median time,
    or the two around it, thick. Below, the median seconds until the loss asked for, with their interval or range, and
    how many times sooner than the first line's, over the rounds in which both reached it. Runs of a fixed number of
    steps, which certify a loss, have curves alone."""
    workloads = _joined(data.knowing(lambda row: bool(row.curves)))
    if not workloads:
        return ("no rung trained until a loss: `stepladder run --until-loss LOSS` does that; or none was evaluated before its "
                "last step: with `--seeds`, `--eval-every` does")
    rows_of = [_rows(workload) for workload in workloads]
    several = any(len(row.curves) > 1 for rows in rows_of for row in rows)
    heights = [[2.7, 0.27 * len(rows) + 0.1] if any(row.to_loss for row in rows) else [2.7] for rows in rows_of]
    heads = [[0.2 if place else 0.0, *[0.0] * (len(group) - 1)] for place, group in enumerate(heights)]  # below the axis above
    fig, groups = panels(data, "Time to a loss", "thin: each round, thick: the median one, or two" if several else "", workloads,
                         heights, left_of([row.rung for rows in rows_of for row in rows]), _RIGHT, heads)
    looks = style.lines(list(dict.fromkeys(row.rung for rows in rows_of for row in rows)))
    for (above, *beneath), rows in zip(groups, rows_of):
        trained = [row for row in rows if row.curves]
        _set_axes(above, [above, *beneath], trained)
        for row in trained:
            _draw_curves(above, row, looks[row.rung])
        if not beneath:
            legend_right(fig, above, [Line2D([], [], label=row.rung, color=looks[row.rung].color, linestyle=looks[row.rung].linestyle)
                                      for row in trained], lines=True)
            continue
        (below,) = beneath
        label_rows(below, [row.rung for row in rows])
        sooner = "sooner" if any(row.to_loss and row.to_loss.first for row in rows) else ""
        columns_right(below, -0.75, ("median", sooner, "reached"), _COLUMNS, style.MUTED)
        for y, row in enumerate(rows):
            _draw_time(below, y, row, looks[row.rung])
    if any(row.to_loss and not curve.reached for rows in rows_of for row in rows for curve in row.curves):
        legend_above(fig, [Line2D([], [], color=style.INK, label="gave up", **_GAVE_UP)], 1.2)
    for (*_, last), rows in zip(groups, rows_of):
        fewest = min((row.to_loss for row in rows if row.to_loss and row.to_loss.reached > 1), default=None,
                     key=lambda to_loss: to_loss.reached)
        ranged = f"; whiskers: {fewest.interval} over rounds" if fewest else ""
        last.set_xlabel(f"seconds of training{ranged}")
    return fig


CHARTS = {"to_loss": draw_to_loss}
