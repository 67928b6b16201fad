"""Charts of the ladder beside its step times: where the speed-up comes from, memory, MFU, and the peers."""

import style
from charts_profile import ceilings
from layout import columns_right, label_rows, left_of, legend_above, legend_right, panels
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from results import GIB, PEERS, Memory, Ratio, Results, Row, Workload

# Parts of the arena, by what their names begin with; in the order in which they are stacked.
PARTS = {
    "parameters": ("params", "weights"),
    "8-bit copies": ("fp8",),
    "gradients": ("grads",),
    "AdamW": ("adam",),
    "activations": ("activations",),
    "scratch": ("scratch",),
    "workspace": ("workspace",),
}
# Hatches tell the parts apart in grey.
_PART_LOOKS = {
    "parameters": ("#0072B2", ""), "8-bit copies": ("#0072B2", ".."), "gradients": ("#56B4E9", "//"),
    "AdamW": ("#009E73", ""), "activations": ("#E69F00", "\\\\"), "scratch": ("#CC79A7", "xx"),
    "workspace": ("#D55E00", ""), "other": (style.BASELINE_BAR, ".."),
}


def _heights(workloads, pitch: float = 0.34) -> list[list[float]]:
    return [[pitch * len(workload.rows) + 0.1] for workload in workloads]


def _failure(ax, x: float, y: float, text: str) -> None:
    """Writes why a rung failed in place of its bar: never a number."""
    style.beside(ax, text, (x, y), color=style.MUTED, style="italic")


def _why(row: Row, missing: str = "not measured") -> str:
    return missing if row.ok else row.status


def _why_no_gain(row: Row) -> str:
    return _why(row, row.disturbance or "nothing to compare it with")


def _bracket_groups(ax, workload: Workload) -> None:
    """Brackets rungs that are one step elsewhere, on the right, with their joint gain and PyTorch's for that step."""
    places = [row.rung for row in workload.rows]
    for group in workload.groups:
        first, last = places.index(group.rungs[0]) - 0.3, places.index(group.rungs[-1]) + 0.3
        ax.plot([0.985, 1, 1, 0.985], [first, first, last, last], color=style.MUTED, linewidth=0.8, clip_on=False,
                transform=ax.get_yaxis_transform())
        text = f"{group.name}\n×{group.gain:.2f}"
        if group.gain_in_pytorch:
            text += f"\nPyTorch ×{group.gain_in_pytorch:.2f}"
        ax.annotate(text, (1, (first + last) / 2), xycoords=ax.get_yaxis_transform(), xytext=(7, 0),
                    textcoords="offset points", va="center", fontsize=8.5, linespacing=1.4, annotation_clip=False)


def draw_waterfall(data: Results):
    """Each bar is a rung's gain over the rung before, or of a trainer beside the ladder over the one that it changes; gains
    multiply to the total beside them. The axis is logarithmic, so equal lengths are equal gains; a rung that costs
    time is orange and hatched. Whiskers are the interval of its speed-up against the baseline. A bracket joins rungs that
    published tables, and PyTorch, have as one step."""
    workloads = [workload for workload in data.ladders() if any(row.speedup for row in workload.rows)]
    if data.emulated:
        return "a CPU emulates reduced precisions: speeds there tell nothing of a GPU's"
    if not workloads:
        return "no rung was measured together with the baseline"
    left = left_of(data.rungs)
    fig, groups = panels(data, "Where the speed-up comes from", "bar: gain over the rung before  ·  logarithmic",
                         workloads, _heights(workloads), left, 1.35 if any(workload.groups for workload in workloads) else 0.3)
    for (ax,), workload in zip(groups, workloads):
        _bracket_groups(ax, workload)
        ends = {row.rung: (row.speedup, y) for y, row in enumerate(workload.rows) if row.speedup}
        reached, last, shown = 1.0, "", [1.0]  # reached: the speed-up of the rung drawn last
        for y, row in enumerate(workload.rows):
            if row.ok and row.speedup is None and y == 0:
                style.beside(ax, "baseline", (1.0, y))
                continue
            if row.speedup is None:
                _failure(ax, reached, y, _why_no_gain(row))
                continue
            if row.previous:  # as in the ladder's table: not the quotient of two medians
                before, gain = row.previous.against, row.previous.value
                start, top = ends.get(before, (row.speedup / gain, y))
            else:
                before, (start, top) = "the rung before", ends.get(last, (1.0, y))
                gain = row.speedup / start
            low, high = sorted((start, row.speedup))
            bar = ax.barh(y, high - low, left=low, height=0.62, color=style.BAR if gain >= 1 else style.PEER_BAR,
                          hatch="" if gain >= 1 else "//", edgecolor="white", linewidth=0.6)
            style.tip(bar[0], f"{row.rung}: {gain:.2f}× {before}, {row.speedup:.2f}× the baseline")
            ax.plot([row.speedup] * 2, [y - 0.31, y + 0.31], color=style.MUTED, linewidth=0.8)
            if top != y:
                ax.plot([start] * 2, [top, y + 0.31], color=style.MUTED, linewidth=0.8)
            ax.errorbar(row.speedup, y, xerr=row.baseline.errors, **style.WHISKER)
            style.beside(ax, f"×{gain:.2f}   {row.speedup:.2f}×", (max(high, row.baseline.high), y), ground=1)
            reached, last = row.speedup, row.rung
            shown += [start, row.speedup, row.baseline.low, row.baseline.high]
        style.times_axis(ax, (1, 1.2, 1.5, 2, 3, 5, 8) if max(shown) < 5 * min(shown) else (1, 2, 5))
        ax.set_xlim(0.92 * min(shown), max(max(shown)**1.3, 1.3 * max(shown)))
        label_rows(ax, [row.rung for row in workload.rows])
    groups[-1][-1].set_xlabel("speed-up against the baseline")
    return fig


_TIME_MARK = {"marker": "o", "markersize": 5, "color": style.BAR, "linestyle": "none", "zorder": 5}
_CYCLES_MARK = {"marker": "s", "markersize": 9, "color": "white", "markeredgecolor": "#D55E00", "markeredgewidth": 1.5,
                "linestyle": "none", "zorder": 4}
_CYCLES_COLUMNS = (41, 83, 139, 185)


def draw_cycles(data: Results):
    """How many times less time a step takes than the rung before's, as in the ladder's table, and how many times fewer
    cycles of the card's clock, by their medians; the axis is logarithmic. Where both are the same, so was the
    clock. A square further right: the clock fell, and hides that much of the gain; further left: it rose, and adds
    that much. More cycles at a higher clock aren't always slower: memory has a clock of its own."""
    workloads = [workload for workload in data.ladders() if any(row.cycles for row in workload.rows)]
    if not workloads:
        return "no cycles were measured: only CUDA devices count them"
    workloads = [workload for workload in workloads if any(row.previous for row in workload.rows)]
    if not workloads:
        return "no rung was measured beside one before it: --rungs with a range, such as 08-13, has both"
    fig, groups = panels(data, "Time and cycles", "gain over the rung before  ·  logarithmic", workloads,
                         _heights(workloads), left_of(data.rungs), 2.7)
    legend_above(fig, [Line2D([], [], **_TIME_MARK, label="time"), Line2D([], [], **_CYCLES_MARK, label="cycles")], 1.2)
    for (ax,), workload in zip(groups, workloads):
        ax.axvline(1.0, color=style.INK, linewidth=1.0)
        columns_right(ax, -0.75, ("time", "cycles", "clock", "clock ±"), _CYCLES_COLUMNS, style.MUTED)
        shown = [1.0]
        for y, row in enumerate(workload.rows):
            if not row.ok or (row.previous is None and y):
                _failure(ax, 1.0, y, _why_no_gain(row))
                continue
            clock = f"{row.clock_mhz:.0f} MHz" if row.cycles else "no cycles"
            if row.previous is None:
                columns_right(ax, y, ("", "", clock, ""), _CYCLES_COLUMNS)
                continue
            before = workload.find(row.previous.against)
            time = row.previous.value
            texts = [f"×{time:.2f}", "", clock, ""]
            if row.cycles and before and before.cycles:
                cycles = before.cycles.value / row.cycles.value
                faster = 100 * (row.clock_mhz / before.clock_mhz - 1)
                texts[1], texts[3] = f"×{cycles:.2f}", f"{round(faster, 1) + 0:+.1f} %".replace("-", "−")
                ax.plot([time, cycles], [y, y], color=style.BASELINE_BAR, linewidth=2.5)
                style.mark(ax, cycles, y, f"{row.rung}: {cycles:.3f} times fewer cycles than {before.rung}", **_CYCLES_MARK)
                shown.append(cycles)
            style.mark(ax, time, y, f"{row.rung}: {time:.3f} times less time than {row.previous.against}", **_TIME_MARK)
            shown.append(time)
            columns_right(ax, y, texts, _CYCLES_COLUMNS)
        style.times_axis(ax, (1, 1.2, 1.5, 2, 3, 5, 7))
        ax.set_xlim(0.96 * min(shown), max(1.25, 1.05 * max(shown)))
        label_rows(ax, [row.rung for row in workload.rows])
    groups[-1][-1].set_xlabel("gain over the rung before (×)")
    return fig


def parts_of(memory: Memory) -> dict[str, int]:
    """Bytes of the arena by part; bytes in none of PARTS, and padding between parts, are "other"."""
    sizes = dict.fromkeys(PARTS, 0)
    for name, size in memory.by_name.items():
        for part, prefixes in PARTS.items():
            if name.startswith(prefixes):
                sizes[part] += size
    return sizes | {"other": max(0, memory.live - sum(sizes.values()))}


def draw_memory(data: Results):
    """Peak memory of the trainer's arena by what it holds; the tick is the whole process as the device sees it, the
    diamond what PyTorch's same rung had allocated at most."""
    workloads = [workload for workload in data.ladders()
                 if any(row.live_gib and row.memory.by_name for row in workload.rows)]
    if not workloads:
        return "no run says what its memory holds"
    fig, groups = panels(data, "Peak memory, by what it holds", "the trainer's arena", workloads, _heights(workloads),
                         left_of(data.rungs), 1.9)
    shown = set()
    for (ax,), workload in zip(groups, workloads):
        for y, row in enumerate(workload.rows):
            if not row.live_gib or not row.memory.by_name:
                _failure(ax, 0.0, y, _why(row))
                continue
            end = 0.0
            for part, size in parts_of(row.memory).items():
                if size / row.memory.live < 0.002:
                    continue
                color, hatch = _PART_LOOKS[part]
                bar = ax.barh(y, size / GIB, left=end, height=0.62, color=color, hatch=hatch, edgecolor="white",
                              linewidth=0.5)
                style.tip(bar[0], f"{row.rung}, {part}: {style.number(size / GIB)} GiB")
                shown.add(part)
                end += size / GIB
            process = row.memory.process / GIB
            ax.plot([process] * 2, [y - 0.36, y + 0.36], color=style.INK, linewidth=1.6)
            beside = row.counterpart.live_gib if row.counterpart else None
            if beside:
                style.mark(ax, beside, y, f"{row.counterpart.rung}: {beside:.2f} GiB allocated at most", **_PEER_MARK)
                shown.add("peer")
            columns_right(ax, y, [style.number(row.live_gib)], (-2,))
        label_rows(ax, [row.rung for row in workload.rows])
        ax.set_xlim(0, 1.1 * ax.get_xlim()[1])  # leaves room for the column of numbers beside the marks
    groups[-1][-1].set_xlabel("GiB; the number is the arena's peak")
    handles = [Patch(facecolor=color, hatch=hatch, edgecolor="white", label=part)
               for part, (color, hatch) in _PART_LOOKS.items() if part in shown]
    handles.append(Line2D([], [], color=style.INK, linewidth=1.6, label="whole process"))
    if "peer" in shown:
        handles.append(Line2D([], [], **_PEER_MARK, label="PyTorch, allocated"))
    legend_right(fig, groups[0][0], handles)
    return fig


_PEER_MARK = {"marker": "D", "markersize": 5.5, "color": "white", "markeredgecolor": style.INK, "linestyle": "none",
              "zorder": 5}
_GEMM_MARK = {"marker": ">", "markersize": 6, "color": style.INK, "linestyle": "none", "zorder": 5}


def draw_mfu(data: Results):
    """Model FLOPs utilisation against the dense peak of what the rung's GEMMs run on. It falls where a rung moves on to
    a faster unit: the step is shorter, the peak higher still. The triangle is against the fastest GEMM that a profile
    measured instead."""
    workloads = [workload for workload in data.ladders() if any(row.mfu_nanogpt for row in workload.rows)]
    if not workloads:
        return "the device's peak is not known, or no rung ended well"
    names = {row.rung: f"{row.rung}  ({row.math})" if row.math else row.rung
             for workload in workloads for row in workload.rows}
    fig, groups = panels(data, "Model FLOPs utilisation", "of the dense peak of what the GEMMs run on", workloads,
                         _heights(workloads), left_of(list(names.values())), 1.75)
    of_gemm = None
    for (ax,), workload in zip(groups, workloads):
        for y, row in enumerate(workload.rows):
            if not row.mfu_nanogpt:
                _failure(ax, 0.0, y, _why(row))
                continue
            percent = 100 * row.mfu_nanogpt
            bar = ax.barh(y, percent, height=0.62,
                          color=style.BASELINE_BAR if row.rung in workload.baselines else style.BAR)
            style.tip(bar[0], f"{row.rung}: {percent:.1f} % by nanoGPT's formula")
            if row.mfu_llmc:
                ax.plot([100 * row.mfu_llmc] * 2, [y - 0.31, y + 0.31], color="white", linewidth=1.6)
            if row.counterpart and row.counterpart.mfu_nanogpt:
                its = 100 * row.counterpart.mfu_nanogpt
                style.mark(ax, its, y, f"{row.counterpart.rung}: {its:.1f} %", **_PEER_MARK)
            end, text = percent, f"{percent:.1f} %"
            peak, gemm = ceilings(data, workload.device).get(row.math, (None, None))
            if peak and gemm:
                of_gemm = percent * peak / gemm
                end, text = max(end, of_gemm), f"{text}, {of_gemm:.0f} % of GEMM"
                style.mark(ax, of_gemm, y, f"{row.rung}: {of_gemm:.1f} % of the fastest GEMM measured", **_GEMM_MARK)
            style.beside(ax, text, (end, y), 8)
        label_rows(ax, [names[row.rung] for row in workload.rows])
        ax.set_xlim(0, 100 if of_gemm is None else 125)
        ax.set_xticks(range(0, 101, 20))
    groups[-1][-1].set_xlabel("% of peak")
    handles = [Patch(color=style.BAR, label="nanoGPT's formula"),
               (Patch(color=style.BAR, label="llm.c's formula"),
                Line2D([], [], color="white", marker="|", markersize=11, markeredgewidth=1.6, linestyle="none"))]
    if any(row.counterpart for workload in workloads for row in workload.rows):
        handles.append(Line2D([], [], **_PEER_MARK, label="PyTorch, same rung"))
    if of_gemm is not None:
        handles.append(Line2D([], [], **_GEMM_MARK, label="of measured GEMM"))
    legend_right(fig, groups[0][0], handles)
    return fig


_COMPARABLE = 0.5


def _peers_of(row: Row) -> list[Ratio]:
    """The ratios to peers that are drawn. A peer that is one trainer, such as llm.c, is left out beside rungs less than
    half as fast: the ladder shows how far they are from its end, and they would squeeze the marks around 1."""
    return [ratio for ratio in row.peers if ratio.against != ratio.peer or ratio.value >= _COMPARABLE]


def draw_peers(data: Results):
    """How many times as fast each rung is as its counterpart in PyTorch, and as other peers, in the same rounds, with
    the interval over rounds; and how many times less memory it takes than PyTorch's. Right of 1 ours is faster, or
    smaller. Rungs that are one step in PyTorch have their marks at the last of them. A peer that is one trainer, such
    as llm.c, is beside the rungs that are at least half as fast; the tables have the others."""
    workloads = data.knowing(lambda row: bool(_peers_of(row)), once=True)
    if not workloads:
        return "no peer was measured: `stepladder run --peer pytorch` measures PyTorch beside the rungs"
    fig, groups = panels(data, "Beside the peers", "right of 1: ours is faster, or smaller", workloads,
                         _heights(workloads, 0.46), left_of(data.rungs), 1.75)
    looks = {"pytorch": ("o", style.BAR), "llmc": ("^", "#D55E00"), "memory": ("s", "#009E73")}
    peers = dict.fromkeys(ratio.peer for workload in workloads for row in workload.rows for ratio in _peers_of(row))
    others = [name for name in peers if name not in PEERS]
    lines = style.lines(["", *looks, *others])
    looks |= {name: (lines[name].marker, lines[name].color) for name in others}
    labels = {name: f"time, {PEERS.get(name, name)}" for name in [*PEERS, *others] if name in peers}
    labels |= {"memory": "memory, PyTorch"}
    shift = {name: 0.28 * (place - (len(labels) - 1) / 2) for place, name in enumerate(labels)}
    shown, ends = set(), [1.0]
    for (ax,), workload in zip(groups, workloads):
        ax.axvline(1.0, color=style.INK, linewidth=1.0)
        part_of = {rung: group.rungs[-1] for group in workload.groups if group.gain_in_pytorch for rung in group.rungs}
        for y, row in enumerate(workload.rows):
            points = [(ratio.peer, ratio.value, ratio.interval) for ratio in _peers_of(row)]
            if row.live_gib and row.counterpart and row.counterpart.live_gib:
                points.append(("memory", row.counterpart.live_gib / row.live_gib, None))
            if not points:
                alone = f"part of {part_of[row.rung]}" if row.rung in part_of else "no counterpart"
                _failure(ax, 1.0, y, alone if row.ok else row.status)
            for name, value, interval in points:
                (marker, color), at = looks[name], y + shift[name]
                ax.plot([1.0, value], [at] * 2, color=color, linewidth=1.0, alpha=0.5)
                style.mark(ax, value, at, f"{row.rung}, {labels[name]}: {value:.2f}×", marker=marker, color=color,
                           linestyle="none", markersize=6.5)
                shown.add(name)
                ends += [value, *(interval or ())]
                if interval:
                    ax.plot(interval, [at] * 2, color=style.INK, linewidth=1.2, solid_capstyle="butt")
                low, high = interval or (value, value)
                style.beside(ax, f"{value:.2f}", (low if value < 1 else high, at), -6 if value < 1 else 6, ground=0.5,
                             ha="right" if value < 1 else "left", fontsize=8)
        label_rows(ax, [row.rung for row in workload.rows])
    axes = [ax for (ax,) in groups]
    for ax in axes:  # all on one scale
        style.times_axis(ax, (1, 1.2, 1.5, 2, 3, 5, 8) if max(ends) < 5 * min(ends) else (1, 2, 5))
        room = 1.05 * (max(ends) / min(ends)) ** 0.12  # leaves room for a number
        ax.set_xlim(min(ends) / room, max(ends) * room)
        ax.tick_params(axis="x", labelbottom=ax in (axes[0], axes[-1]))
    groups[-1][-1].set_xlabel("how many times faster, or smaller, ours is")
    legend_right(fig, groups[0][0], [Line2D([], [], marker=looks[name][0], linestyle="none", color=looks[name][1],
                                            label=label) for name, label in labels.items() if name in shown])
    return fig


CHARTS = {"waterfall": draw_waterfall, "cycles": draw_cycles, "peers": draw_peers, "memory": draw_memory,
          "mfu": draw_mfu}
