"""The charts of results, profiles and histories, each as SVG and PNG. A chart without data is left out, and the reason
given."""

import ctypes
import math
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from textwrap import shorten

import charts_ladder
import charts_profile
import charts_sweep
import charts_to_loss
import history
import style
from layout import CELL_HEAD, grid, grid_rows, label_rows, left_of, legend_above, legend_right, panels
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from results import GAINS, PEERS, Ablation, Estimate, Gain, Results, Row, Workload, span, with_interval
from schema import plain


# ---- step time and energy by rung ----------------------------------------------------------------------------------


@dataclass
class Quantity:
    """A quantity of a step that is drawn: the less of it, the better."""

    unit: str
    of: Callable[[Row], Estimate | None]
    beside: Callable[[Row], str]  # the text that follows the number
    unknown: Callable[[Row], str]  # why a rung that is ok has no number


TIME = Quantity("ms", lambda row: Estimate(row.median_ms, row.interval_ms) if row.ok else None,
                lambda row: f"{row.speedup:.2f}×" if row.speedup is not None else "", lambda row: "")
ENERGY = Quantity("J", lambda row: row.joules,
                  lambda row: f"{style.number(row.tokens_per_joule.value)} tok/J" if row.tokens_per_joule else "",
                  lambda row: f"no joules: {row.joules_unknown or 'not measured'}")


def outcome(row: Row, quantity: Quantity, inches: float) -> str:
    """The text at a bar's end; a reason is cut to the width."""
    if known := quantity.of(row):
        return f"{style.number(known.value)} {quantity.unit}   {quantity.beside(row)}".rstrip()
    reason = quantity.unknown(row) if row.ok else f"{row.status}: {row.reason}" if row.reason else row.status
    return shorten(reason, int(inches / style.text_width("x")), placeholder=" …")


def draw_bar(ax, y: float, row: Row, quantity: Quantity, height: float, color: str) -> float:
    """Draws a bar with the whisker of its interval. Returns where the bar ends; 0, without a bar, for no number."""
    if not (known := quantity.of(row)):
        return 0.0
    bar = ax.barh(y, known.value, height=height, color=color)
    between = f", {style.number(known.low)} to {style.number(known.high)}" if known.interval else ""
    style.tip(bar[0], f"{row.rung}: {style.number(known.value)} {quantity.unit}{between}")
    if known.interval:
        ax.errorbar(known.value, y, xerr=known.errors, **style.WHISKER)
    return known.high


def draw_peers_legend(fig, workloads: list[Workload], quantity: Quantity) -> None:
    """A legend of the peers, right of the title."""
    handles = []
    if any(row.counterpart and quantity.of(row.counterpart) for workload in workloads for row in workload.rows):
        handles.append(Patch(color=style.PEER_BAR, label="PyTorch, same rung"))
    for name in dict.fromkeys(peer.rung for workload in workloads for peer in workload.peers if quantity.of(peer)):
        handles.append(Line2D([], [], **style.PEER_LINE, label=PEERS.get(name, name)))
    if handles:
        legend_above(fig, handles, 1.8)


def draw_by_rung(data: Results, workloads: list[Workload], quantity: Quantity, title: str, note: str):
    """A bar for each rung, a thin one below for PyTorch's same rung, a line across for llm.c."""
    if data.emulated:
        note = "  ·  ".join(filter(None, (note, "reduced precisions emulated")))
    left = left_of(data.rungs)
    beside = any(row.counterpart and quantity.of(row.counterpart) for workload in workloads for row in workload.rows)
    pitch, above = (0.38, 0.14) if beside else (0.32, 0.0)  # height of a row, bar above its middle, in inches
    fig, groups = panels(data, title, note, workloads, [[pitch * len(workload.rows) + 0.1] for workload in workloads],
                         left)
    draw_peers_legend(fig, workloads, quantity)
    for (ax,), workload in zip(groups, workloads):
        peers = [known.value for peer in workload.peers if (known := quantity.of(peer))]
        for value in peers:
            ax.axvline(value, **style.PEER_LINE)
        limit = 1.1 * max(peers, default=0.0)
        for y, row in enumerate(workload.rows):
            end = draw_bar(ax, y - above, row, quantity, 0.5 if beside else 0.62,
                           style.BASELINE_BAR if row.rung in workload.baselines else style.BAR)
            text = outcome(row, quantity, style.WIDTH - left)
            style.beside(ax, text, (end, y - above), ground=1, color=style.INK if end else style.MUTED,
                         style="normal" if end else "italic")
            limit = max(limit, end / (1 - (style.text_width(text) + 0.15) / (style.WIDTH - left)))
            if row.counterpart:
                limit = max(limit, 1.1 * draw_bar(ax, y + 0.25, row.counterpart, quantity, 0.2, style.PEER_BAR))
        ax.set_xlim(0, limit)
        label_rows(ax, [row.rung for row in workload.rows])
    return fig, groups


def draw_ladder(data: Results):
    """Median step time of each rung with its interval. A rung that failed has its reason in place of a bar."""
    workloads = data.ladders()
    if not workloads:
        return None
    compared = any(row.baseline for workload in workloads for row in workload.rows)
    fig, groups = draw_by_rung(data, workloads, TIME, "Step time, rung by rung",
                               "×: speed-up against the baseline" if compared else "")
    interval = with_interval(row for workload in workloads for row in workload.everyone)
    groups[-1][-1].set_xlabel(f"median step time in ms{interval}")
    return fig


_ENERGY_PANELS = 2


def draw_energy(data: Results):
    """Joules that a step takes, by the device's own energy counter, and the tokens it trains on for each; of each rung
    in its longest run, whichever file and card has it, so that the tables' may differ by a few per cent. A rung whose
    steps were too short to tell says so. Shown are the workloads with the most rungs; the tables have the others."""
    workloads = data.by_longest_run(lambda row: row.joules is not None)
    most = sorted(workloads, key=lambda workload: -sum(bool(row.joules) for row in workload.rows))[:_ENERGY_PANELS]
    workloads = [replace(workload, label="") for workload in workloads if workload in most and workload.rows]
    if not workloads:
        unknown = next((row.joules_unknown for workload in data.workloads for row in workload.everyone if row.joules_unknown), "")
        return f"no energy was measured: {unknown or 'the device needs an energy counter'}"
    fig, groups = draw_by_rung(data, workloads, ENERGY, "Energy of a step, rung by rung", "tok/J: tokens a joule")
    interval = with_interval(row for workload in workloads for row in workload.everyone
                             if row.joules and row.joules.interval)
    groups[-1][-1].set_xlabel(f"joules a step{interval}")
    return fig


# ---- by step -------------------------------------------------------------------------------------------------------


def by_step(ax) -> None:
    """Sets the axis of steps."""
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))


_CELL = 0.85  # inches that a small panel is high


def draw_steps(data: Results):
    """How steady each rung's steps are: a step's time in % of the rung's median, each round thin, the median over rounds
    thick, warm-up shaded. All panels have one scale, that of the medians after warm-up; a first step, which compiles and
    searches, or a step of a single round may lie beyond it."""
    workloads = data.ladders()
    if not workloads:
        return None
    shown = [(workload, [row for row in workload.rows if row.ok]) for workload in workloads]
    heights = [[_CELL] * grid_rows(len(rows)) for _, rows in shown]
    fig, groups = panels(data, "Step time, step by step", "% of the rung's median  ·  thin: each round, thick: their median",
                         workloads, heights, 0.75, heads=[[CELL_HEAD] * len(rows) for rows in heights])
    for group, (_, rows) in zip(groups, shown):
        percent = {row.rung: [[100 * ms / row.median_ms for ms in steps["step_ms"]] for steps in row.rounds]
                   for row in rows}
        cells = grid(fig, group, [(row.rung, f"{style.number(row.median_ms)} ms, first step "
                                             f"{style.number(next(iter(row.over_rounds('step_ms').values())))}")
                                  for row in rows])
        timed = [100 * ms / row.median_ms for row in rows
                 for step, ms in row.over_rounds("step_ms").items() if step >= row.warmup]
        margin = 2 * max([2.5, *(abs(percent - 100) for percent in timed)])
        for ax, row in zip(cells, rows):
            medians = row.over_rounds("step_ms")
            for steps in percent[row.rung]:
                ax.plot(range(len(steps)), steps, color=style.BAR, linewidth=0.7, alpha=0.35)
            (line,) = ax.plot(list(medians), [100 * ms / row.median_ms for ms in medians.values()], color=style.BAR,
                              linewidth=1.6)
            style.tip(line, f"{row.rung}: {style.number(row.median_ms)} ms, the first step "
                            f"{style.number(next(iter(medians.values())))} ms")
            if row.warmup:
                ax.axvspan(-0.5, row.warmup - 0.5, color=style.SHADE, zorder=0, linewidth=0)
            by_step(ax)
        cells[0].set_ylim(100 - margin, 100 + margin)
        cells[0].set_xlim(-0.5, max(len(steps) for row in rows for steps in percent[row.rung]) - 0.5)
        cells[-1].set_xlabel("optimizer step")
    return fig


LOSS_POINTS = 250  # the fewest points of a line, if the run has as many steps


def steps_a_point(workload: Workload) -> int:
    return max(1, workload.steps // LOSS_POINTS)


def averaged(losses: dict[int, float], count: int) -> dict[int, float]:
    """The mean of `count` steps at a time, at the step in their middle."""
    steps = list(losses)
    parts = [steps[i:i + count] for i in range(0, len(steps), count)]
    return {part[len(part) // 2]: fmean(losses[step] for step in part) for part in parts}


def apart(losses: dict[int, float], baseline: dict[int, float]) -> dict[int, float]:
    """|loss / baseline - 1| in %, at the steps where the two differ."""
    return {step: 100 * abs(loss / baseline[step] - 1) for step, loss in losses.items()
            if baseline.get(step) and loss != baseline[step]}


_DIFFERS = 0.02  # least relative distance from the baseline's last losses in colour
_MOST_COLOURS = 6


def differing(rows: list[tuple[Row, dict, dict]]) -> list[str]:
    """The rungs to tell apart by colour: those that failed, and those whose last tenth of losses lies farther than 2 %
    from the baseline's; the farthest where there are too many."""
    ends = {}
    for row, losses, _ in rows[1:]:
        last = [step for step in list(losses)[-max(1, len(losses) // 10):] if rows[0][1].get(step)]
        far = abs(fmean(losses[step] / rows[0][1][step] - 1 for step in last)) if last else math.inf
        if not row.ok or far > _DIFFERS:
            ends[row.rung] = (row.ok, -far)
    most = sorted(ends, key=ends.get)[:_MOST_COLOURS]
    return [row.rung for row, *_ in rows if row.rung in most]


def loss_label(row: Row) -> str:
    return row.rung if row.ok else f"{row.rung} ({row.status})"


def draw_loss(data: Results):
    """Loss of every step, of long runs the mean of several, over the wide band of the lowest rung: in colour what failed
    or ended more than 2 % from it, six at most, in grey the others. Below, how far each rung lies from the lowest,
    without those whose losses are the same; of the results with the longest runs."""
    drawn = []  # (workload, [(row, losses, distances), ..])
    for workload in data.longest():
        rows = [(row, averaged(losses, steps_a_point(workload))) for row in workload.rows
                if (losses := row.over_rounds("loss"))]
        if rows:
            drawn.append((workload, [(row, losses, apart(losses, rows[0][1])) for row, losses in rows]))
    if not drawn:
        return "no two rungs ended well whose losses could lie beside each other"
    counts = [steps_a_point(workload) for workload, _ in drawn]
    averages = [f"mean of {span(counts)} steps"] * (max(counts) > 1) + ["median over rounds"] * any(
        len(row.rounds) > 1 for _, rows in drawn for row, *_ in rows)
    below = [[one for one in rows[1:] if one[2]] for _, rows in drawn]
    fig, groups = panels(data, "Training loss", ", ".join(averages), [workload for workload, _ in drawn],
                         [[2.4] + [_CELL] * grid_rows(len(rows)) for rows in below], 0.85,
                         0.25 + style.legend_width([*(loss_label(row) for _, rows in drawn for row, *_ in rows), "the 16 others"]),
                         [[0.0, *([CELL_HEAD + 0.65] + [CELL_HEAD] * grid_rows(len(rows)))[:grid_rows(len(rows))]]
                          for rows in below])
    for (ax, *beneath), (_, rows), distant in zip(groups, drawn, below):
        named = differing(rows)
        looks = style.lines([rows[0][0].rung, *named])
        others = len(rows) - 1 - len(named)
        handles = {}
        for row, losses, _ in sorted(rows[1:], key=lambda one: one[0].rung in named) + rows[:1]:
            look = looks.get(row.rung)
            line = {"color": look.color, "linestyle": look.linestyle, "linewidth": 1.5} if look else \
                {"color": style.BASELINE_BAR, "linewidth": 0.9}
            if row is rows[0][0]:
                line |= {"path_effects": style.BASELINE_EFFECT, "zorder": 1.8}
            label = loss_label(row) if look or others == 1 else f"the {others} others"
            (drawn_line,) = ax.plot(list(losses), list(losses.values()), label=label, **line)
            handles[label] = drawn_line
            style.tip(drawn_line, f"{loss_label(row)}: {list(losses.values())[-1]:.4f} at step {list(losses)[-1]}")
        ax.set_ylabel("loss in nats per token")
        ax.set_xlabel("optimizer step")
        by_step(ax)
        legend_right(fig, ax, [handles[label] for label in sorted(handles, key=lambda label: label != loss_label(rows[0][0]))],
                     lines=True)
        if not distant:
            continue
        beneath[0].set_title(f"Difference from {rows[0][0].rung}, %")
        cells = grid(fig, beneath, [(loss_label(row), f"at most {Decimal(f'{max(distances.values()):#.2g}'):f} %")
                                    for row, _, distances in distant])
        for cell, (row, _, distances) in zip(cells, distant):
            look = looks.get(row.rung)
            cell.plot(list(distances), list(distances.values()), color=look.color if look else style.BAR, linewidth=1.2)
            by_step(cell)
        cells[0].set_yscale("log")
        style.decades(cells[0].yaxis)
    return fig


# ---- ablation ------------------------------------------------------------------------------------------------------


def draw_gain(ax, y: float, kind: str, gain: Gain) -> None:
    """Draws a ratio with the whisker of its interval and its number, or, at 1, a word for why there is no number."""
    if gain.ok:
        ax.errorbar(gain.value, y, xerr=gain.errors, **style.GAINS[kind],
                    markersize=5, elinewidth=1.1, capsize=2.5, capthick=1.1)
        style.beside(ax, f"{gain.value:.3f}×", (gain.high, y), ground=0.5, fontsize=8)
    else:
        text = style.beside(ax, gain.status, (1, y), ground=0.5, fontsize=8, color=style.GAINS[kind]["color"], style="italic")
        style.tip(text, f"{GAINS[kind]}: {gain.status}: {gain.reason}".removesuffix(": "))


def draw_ablation(data: Results):
    """The gain of each rung or switch in the ladder, joined to what the tuned trainer loses without it, and what it
    gives the baseline alone; each with its interval over rounds. Where a loss was to be reached, gains are of the seconds to
    it. What could not be measured is a word, never a point; the table of ablations says why."""
    if not data.ablations:
        return ("no switch was left out or taken alone: a ladder file with switches can be ablated" if data.of_others else
                "no rung was left out or taken alone: `stepladder ablate` measures that")
    groups: dict[str, list[Ablation]] = {}
    for ablation in data.ablations:
        groups.setdefault(str(ablation.workload), []).append(ablation)
    measured = [gain for ablation in data.ablations for gain in ablation.gains.values() if gain.ok]
    if not measured:
        return "no gain could be measured"
    low, high = min([1.0] + [gain.low for gain in measured]), max([1.0] + [gain.high for gain in measured])
    left = left_of([ablation.rung for ablation in data.ablations])
    pitch = 0.46
    how = " or ".join(sorted({"sooner" if gain.to_loss else "faster" for gain in measured}))
    note = f"over 1: {how}{' at the loss' * ('sooner' in how)} with it" + ("  ·  reduced precisions emulated" if data.emulated else "")
    fig, panel = panels(data, "What each rung buys", note, [rows[0].workload for rows in groups.values()],
                        [[pitch * len(rows) + 0.1] for rows in groups.values()], left)
    kinds = [kind for kind in GAINS if any(kind in ablation.gains for ablation in data.ablations)]
    legend_above(fig, [Line2D([], [], linestyle="", label=GAINS[kind], **style.GAINS[kind]) for kind in kinds], 1)
    for (ax,), rows in zip(panel, groups.values()):
        if high > 2 * low:
            ax.set_xscale("log")
            style.log_axis(ax.xaxis, (1, 1.5, 2, 3, 5, 7))
            ax.set_xlim(low / 1.1, high * (high / low) ** 0.12)
        else:
            ax.set_xlim(low - 0.05 * (high - low + 0.01), high + 0.12 * (high - low + 0.01))
        ax.axvline(1, color=style.MUTED, linewidth=1, zorder=1)
        for y, ablation in enumerate(rows):
            places = {kind: y + 0.27 * (place - 1) for place, kind in enumerate(GAINS)}
            ends = [(ablation.gains[kind].value, places[kind]) for kind in ("ladder", "without")
                    if kind in ablation.gains and ablation.gains[kind].ok]
            if len(ends) == 2:
                ax.plot(*zip(*ends), color=style.BASELINE_BAR, linewidth=1.2, zorder=1.5)
            for kind, gain in ablation.gains.items():
                draw_gain(ax, places[kind], kind, gain)
        label_rows(ax, [ablation.rung for ablation in rows])
    files = {ablation.workload.file for ablation in data.ablations
             if any(gain.interval for gain in ablation.gains.values())}
    interval = with_interval(row for workload in data.workloads if workload.file in files for row in workload.rows)
    panel[-1][-1].set_xlabel(f"how many times {how}{interval}")
    return fig


# A chart takes results and returns a figure, or what is missing for it; its docstring is the caption on the page. The
# page shows charts in this order, but the leading one first.
CHARTS = {"ladder": draw_ladder, "waterfall": charts_ladder.draw_waterfall, **charts_to_loss.CHARTS, **charts_ladder.CHARTS,
          "energy": draw_energy, "ablation": draw_ablation, **charts_sweep.CHARTS, **charts_profile.CHARTS,
          "steps": draw_steps, "loss": draw_loss, **history.CHARTS}


def say_diverged(data: Results) -> str:
    """Says why each row failed that has losses drawn: it diverged, say, or ran out of memory."""
    return " ".join(f"{row.rung} {row.status}: {row.reason}." for workload in data.longest() for row in workload.rows
                    if not row.ok and row.reason and row.over_rounds("loss"))


def say_slower_at_the_end(data: Results) -> str:
    """Says which rungs' last steps are slower than their median by more than a twentieth, at a clock more than a tenth
    below the highest of the rungs."""
    names = []
    for workload in data.ladders():
        clocks = {row.rung: row.clock_mhz for row in workload.rows if row.ok and row.cycles}
        lowered = 0.9 * max(clocks.values(), default=0)
        names += [row.rung for row in workload.rows if clocks.get(row.rung, math.inf) < lowered and
                  median(list(row.over_rounds("step_ms").values())[-2:]) > 1.05 * row.median_ms]
    return (f"The last steps of {', '.join(names)} take longer: at the power limit the steps of a fast rung become "
            "longer after about a second of load and settle later, which the median of so few steps leaves out."
            if names else "")


# Sentences that captions add where the data call for them.
_NOTES = {"loss": say_diverged, "steps": say_slower_at_the_end}


def captions(data: Results) -> dict[str, str]:
    """The caption of each chart, by name."""
    return {name: " ".join(filter(None, (draw.__doc__, _NOTES[name](data) if name in _NOTES else "")))
            for name, draw in CHARTS.items()}


# Charts without milliseconds, joules or bytes, which are not compared across devices.
ACROSS_DEVICES = {"waterfall", "cycles", "mfu", "peers", "ablation", "loss"}
MOST_RUNGS = 200  # most rungs of a workload that a reader can tell apart


def write_chart(name: str, data: Results, out: Path) -> list[Path] | str:
    """Writes the SVG and PNG of a chart. Returns their paths, or why there is no chart."""
    if data.mixed and name not in ACROSS_DEVICES:
        return "several devices: only ratios are compared"
    rungs = max((len(workload.rows) for workload in data.workloads), default=0)
    if rungs > MOST_RUNGS and name not in charts_profile.CHARTS | history.CHARTS:
        return f"{rungs} rungs on a workload are more than the {MOST_RUNGS} that a chart shows; the tables have them"
    try:
        figure = CHARTS[name](data)
        if figure is None or isinstance(figure, str):
            return figure or "no run of a rung ended well"
        return style.save(figure, out / name)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:  # raised near the limits of float64
        return f"its numbers can't be drawn: {plain(error, 200)}"


_given = {}  # the data that this process draws, and the folder to write to


def begin(data: Results, out: Path) -> None:
    """Begins a process that draws. The kernel kills the process once its parent has ended, however the parent ended."""
    _given.update(data=data, out=out)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def write_given(name: str) -> list[Path] | str:
    return write_chart(name, **_given)


def leading(data: Results) -> str:
    """The name of the chart that answers: the curves where the main results trained until a loss, the losses of our rungs
    on a CPU, whose speed tells nothing, else the ladder."""
    main = [row for workload in data.workloads if workload.main for row in workload.rows if row.ok]
    if main and all(row.curves for row in main):
        return "to_loss"
    return "loss" if data.emulated else "ladder"


def write(data: Results, out: Path) -> dict[str, list[Path] | str]:
    """Writes every chart, the leading one first. Returns paths, or why there is no chart, by name. Two processes halve the
    time; forked, they have the data without a copy, and end with this process."""
    first = leading(data)
    order = sorted(CHARTS, key=lambda name: name != first)
    with ProcessPoolExecutor(2, mp_context=get_context("fork"), initializer=begin, initargs=(data, out)) as pool:
        return dict(zip(order, pool.map(write_given, order)))
