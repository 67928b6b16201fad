"""Charts of profiles: where the time of a step goes, and how far from its floor."""

from collections.abc import Callable
from itertools import cycle

import style
from layout import label_rows, left_of, legend_above, legend_right
from matplotlib.patches import Patch
from profiles import Profile
from results import Results, Row


def _no_profile(data: Results) -> str:
    return ("a trainer of one's own has no profile" if data.of_others else
            "no profile was given: `stepladder profile 09 --out profile.json`, then give profile.json to "
            "`stepladder report` too")


# Colour and hatch tell the parts of a bar apart; each colour once without a hatch, then with.
_HATCHES = ("", "///", "...")


def _subtitle(profiles: list[Profile], note: str) -> str:
    """The device, and the workload if all profiles share it: otherwise the rows name it."""
    workloads = {profile.workload for profile in profiles}
    return "  ·  ".join([profiles[0].device, *(workloads if len(workloads) == 1 else ()), note])


def _stacks(data: Results, parts_of: Callable[[Profile], dict[str, float]], title: str, missing: str):
    """A bar for each profile, cut into its parts, in % of their sum. Parts below 0.5 % everywhere are "other" too."""
    profiles = [profile for profile in data.profiles if sum(parts_of(profile).values()) > 0]
    if not profiles:
        return missing if data.profiles else _no_profile(data)
    parts = [parts_of(profile) for profile in profiles]
    small = {"other"} | {name for part in parts for name in part} - {
        name for part in parts for name, ms in part.items() if ms >= 0.005 * sum(part.values())}
    parts = [{name: ms for name, ms in part.items() if name not in small}
             | ({"other": other} if (other := sum(part.get(name, 0) for name in small)) else {}) for part in parts]
    names = list(dict.fromkeys(name for part in parts for name in part))
    looks = {name: {"color": color, "hatch": hatch}
             for name, (color, hatch) in zip(names, cycle((c, h) for h in _HATCHES for c in style.COLOURS))}
    looks |= {"idle": {"color": style.BAND, "hatch": "xx"}}
    rows = [f"{profile.rung}\n{': '.join(filter(None, (profile.label, f'{style.number(profile.ms)} ms')))}"
            for profile in profiles]
    left = left_of([line for row in rows for line in row.splitlines()])
    fig, (ax,) = style.figure(title, _subtitle(profiles, "traced"),
                              [max(0.55 * len(profiles), 0.17 * len(names)) + 0.1], [0.2], left,
                              0.25 + style.legend_width(names))
    for y, (profile, part) in enumerate(zip(profiles, parts)):
        start, total = 0.0, sum(part.values())
        for name, ms in part.items():
            width = 100 * ms / total
            bar = ax.barh(y, width, left=start, height=0.66, edgecolor="white", linewidth=0.5,
                          facecolor=looks[name]["color"], hatch=looks[name]["hatch"])
            style.tip(bar[0], f"{profile.title}, {name}: {style.number(ms)} ms, {width:.1f} %")
            if width > 6:
                ax.annotate(style.number(ms), (start + width / 2, y), ha="center", va="center_baseline", fontsize=8.5,
                            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
            start += width
    legend_right(fig, ax, [Patch(facecolor=looks[name]["color"], hatch=looks[name]["hatch"], edgecolor="white",
                                 label=name) for name in names])
    label_rows(ax, rows)
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of the time, ms inside")
    return fig


def draw_phases(data: Results):
    """What part of the step each phase takes, in the order of the step. Tracing adds some of the idle time."""
    return _stacks(data, lambda profile: profile.phases, "A step by phase", "no phase was traced")


def draw_kernel_types(data: Results):
    """What part of the device's busy time each type of kernel takes, the longest first."""
    return _stacks(data, lambda profile: {name: ms for name, (ms, _) in profile.kernel_types.items()},
                   "A step by type of kernel", "no kernel was traced")


_OPS = 10  # the most ops shown of a profile


def draw_gap(data: Results):
    """What a step takes beyond its floor: of each op the floor, which the measured copy and GEMM rates allow,
    and what it takes beyond. Ops with the largest gap come first; the number is the op's share of the whole gap.
    Tracing adds some of the idle time."""
    profiles = [profile for profile in data.profiles
                if profile.floor_ms and (profile.ops or profile.phases.get("idle"))]
    if not profiles:
        return "the profiles have no floor" if data.profiles else _no_profile(data)
    tables = []  # of each profile: name, floor, ms, share of the gap
    for profile in profiles:
        gap = profile.ms - profile.floor_ms
        rows = [(op.name if op.count == 1 else f"{op.count:g} × {op.name}", op.floor_ms, op.ms, op.gap_percent)
                for op in profile.ops if None not in (op.floor_ms, op.gap_percent)]
        if idle := profile.phases.get("idle"):
            rows.append(("idle", 0.0, idle, 100 * idle / gap if gap > 0 else 0.0))
        rows.sort(key=lambda row: row[1] - row[2])
        rest = rows[_OPS:]
        if rest:
            rows[_OPS:] = [(f"{len(rest)} others", *(sum(row[i] for row in rest) for i in (1, 2, 3)))]
        tables.append(rows)
    left = left_of([name for rows in tables for name, *_ in rows])
    fig, axes = style.figure("Time beyond the floor, op by op", _subtitle(profiles, "floor: measured copy and GEMM"),
                             [0.27 * len(rows) + 0.1 for rows in tables], [0.45] + [0.75] * (len(profiles) - 1), left,
                             0.75)
    for ax, profile, rows in zip(axes, profiles, tables):
        ax.set_title(f"{profile.title}: {style.number(profile.ms)} ms, floor {style.number(profile.floor_ms)} ms "
                     f"({100 * profile.floor_ms / profile.ms:.0f} %)",
                     x=(style.EDGE - left) / (ax.get_position().width * style.WIDTH))  # begins below the chart's title
        for y, (name, floor, ms, share) in enumerate(rows):
            times = f"{style.number(ms)} ms, floor {style.number(floor)} ms"
            part = f"{share:.0f} %" if abs(share) >= 0.5 else "0 %"
            if y == _OPS:  # the ops left over, whose bar would make the others small
                end, part = 0.0, f"{times}; {part}"
            else:
                low, end = min(floor, ms), ms
                for bar in (*ax.barh(y, low, height=0.62, color=style.BAR),
                            *ax.barh(y, ms - low, left=low, height=0.62, facecolor=style.PEER_BAR, hatch="///",
                                     edgecolor="white", linewidth=0.5)):
                    style.tip(bar, f"{name}: {times}")
            style.beside(ax, part, (end, y), 5, fontsize=8.5)
        label_rows(ax, [name for name, *_ in rows])
        ax.tick_params(axis="y", labelsize=8.5)
        ax.margins(x=0.08)
    axes[-1].set_xlabel("ms of the step; beside the bar, % of the gap")
    legend_above(fig, [Patch(facecolor=style.BAR, label="floor"),
                       Patch(facecolor=style.PEER_BAR, hatch="///", edgecolor="white", label="beyond it")], 1.6)
    return fig


def draw_roofline(data: Results):
    """Achieved FLOP/s of each product against the measured roofs; a marker's area is the op's time. Those above a roof
    ran faster than the large GEMM that it was measured by."""
    profiles = [profile for profile in data.profiles if profile.products]
    if not profiles:
        return "no matrix product was timed" if data.profiles else _no_profile(data)
    titles = [profile.title for profile in profiles]
    looks = style.lines(titles).values()
    fig, (ax,) = style.figure("Roofline of the matrix products", _subtitle(profiles, "roofs: measured copy and GEMM"),
                              [3.6], [0.2], 0.8, 0.25 + style.legend_width(titles))
    products = [op for profile in profiles for op in profile.products]
    low, high = min(op.intensity for op in products) / 2, max(op.intensity for op in products) * 2
    for math in dict.fromkeys(op.math for op in products):
        peak = max(profile.gemm_tflops.get(math, 0) for profile in profiles)
        if not peak:
            continue
        copy = max(profile.copy_gb_per_s for profile in profiles) * 1e-3
        ridge = max(low, peak / copy)
        ax.plot([low, ridge, max(high, ridge)], [min(low * copy, peak), peak, peak], color=style.MUTED, linewidth=1.2,
                label="_roof")
        ax.annotate(MATHS.get(math, math), (max(high, ridge), peak), xytext=(-2, 3), textcoords="offset points",
                    ha="right", fontsize=8.5, color=style.MUTED)
    for profile, look in zip(profiles, looks):
        longest = max(op.ms for op in profile.products)
        ax.scatter([op.intensity for op in profile.products], [op.tflops for op in profile.products],
                   s=[12 + 90 * op.ms / longest for op in profile.products], color=look.color, marker=look.marker,
                   alpha=0.75, linewidths=0, label=profile.title)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        style.log_axis(axis)
    ax.set_xlabel("FLOP per byte moved")
    ax.set_ylabel("TFLOP/s")
    legend_right(fig, ax, ax.get_legend_handles_labels()[0], lines=True)
    return fig


MATHS = {"fp32": "FP32", "tf32": "TF32", "half": "bf16 / fp16", "fp8": "FP8"}


def ceilings(data: Results, device: str) -> dict[str, tuple[float | None, float | None]]:
    """By math mode: the data sheet's dense peak, and the fastest GEMM in a profile of the device, in TFLOP/s."""
    profiles = [profile for profile in data.profiles if profile.device == device]

    def highest(which: str, math: str) -> float | None:
        return max((getattr(profile, which)[math] for profile in profiles if math in getattr(profile, which)),
                   default=None)
    return {math: (highest("peak_tflops", math), highest("gemm_tflops", math)) for math in MATHS}


def _fastest(data: Results, math: str) -> Row | None:
    """The rung with the highest MFU on the ladder's workloads; of other files if the ladder has none of this type."""
    ladders = data.ladders()
    same = [workload for workload in data.workloads if workload.key in [ladder.key for ladder in ladders]]
    rows = ([row for workload in of if workload.devices == 1 for row in workload.rows
             if row.ok and row.math == math and row.mfu_nanogpt] for of in (ladders, same))
    return max(next(filter(None, rows), []), key=lambda row: row.mfu_nanogpt, default=None)


def draw_dtype(data: Results):
    """What the device computes with each type: the data sheet's dense peak, the fastest GEMM that was measured, and the
    model FLOP/s (nanoGPT's formula) of the rung that makes the most of it. A device whose peak is not known has n/a."""
    if not data.profiles:
        return _no_profile(data)
    rows = []  # y, kind, name, TFLOP/s, and the text after the number or in place of it
    looks = {"peak": {"facecolor": style.BAND, "hatch": "\\\\\\"}, "gemm": {"facecolor": style.BAR, "hatch": ""},
             "rung": {"facecolor": style.PEER_BAR, "hatch": "///"}}
    ticks, place = {}, 0.0
    for math, (peak, gemm) in ceilings(data, data.device).items():
        if peak is None and gemm is None:
            continue
        row = _fastest(data, math)
        model = row.mfu_nanogpt * peak if row and peak else None
        rows.append((place, "peak", "", peak, "" if peak else "n/a"))
        of_peak = f", {100 * gemm / peak:.0f} % of peak" if gemm and peak else ""
        rows.append((place + 1, "gemm", "", gemm, of_peak if gemm else "not measured"))
        if model:
            of_gemm = f", {100 * model / gemm:.0f} % of the GEMM" if gemm else ""
            rows.append((place + 2, "rung", f"{row.rung}: ", model, f", MFU {100 * model / peak:.0f} %{of_gemm}"))
        count = 3 if model else 2
        ticks[MATHS[math]] = place + (count - 1) / 2
        place += count + 0.7
    if not rows:
        return "no GEMM was measured, and the device's peak is not known"
    fig, (ax,) = style.figure("Throughput by type", f"{data.device}  ·  dense, TFLOP/s", [0.22 * place + 0.1], [0.2],
                              left_of(list(ticks)), 1.85)
    for y, kind, name, value, more in rows:
        if value:
            bar = ax.barh(y, value, height=0.9, edgecolor="white", linewidth=0.5, **looks[kind])
            style.tip(bar[0], f"{name or f'{kind}: '}{value:,.0f} TFLOP/s{more}")
        text = f"{name}{value:,.0f}{more}" if value else more
        style.beside(ax, text, (value or 0, y), 5, ground=0.5, fontsize=8.5, color=style.INK if value else style.MUTED)
    ax.set_yticks(list(ticks.values()), list(ticks))
    ax.set_ylim(place - 1.2, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    widest = max(value or 0 for *_, value, _ in rows)
    ax.set_xlim(0, 1.3 * widest)
    ax.set_xlabel("TFLOP/s")
    drawn = {kind for _, kind, _, value, _ in rows if value}
    legend_right(fig, ax, [Patch(edgecolor="white", label=label, **looks[kind]) for kind, label in (
        ("peak", "dense peak"), ("gemm", "measured GEMM"), ("rung", "best rung")) if kind in drawn])
    return fig


CHARTS = {"dtype": draw_dtype, "phases": draw_phases, "kernel_types": draw_kernel_types, "gap": draw_gap,
          "roofline": draw_roofline}
