"""Reads and draws profiles: where the time of a step goes."""

import json
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import style
from results import finite, load, positive


@dataclass
class Op:
    """A matrix product, on the roofline."""

    name: str
    math: str
    ms: float
    intensity: float  # FLOP/byte
    tflops: float


@dataclass
class Profile:
    rung: str
    device: str
    workload: str
    ms: float
    phases: dict[str, float]  # ms, in the order of the step
    kernel_types: dict[str, float]  # ms, the longest first
    copy_gb_per_s: float
    gemm_tflops: dict[str, float]
    products: list[Op]


def is_profile(path: Path) -> bool:
    """Whether the file is one of `stepladder profile`; what can't be read is not."""
    try:
        return "profile" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, TypeError):
        return False


def read(path: Path) -> Profile:
    """Throws ResultsError naming the file and what is wrong with it."""
    return load(path, _profile)


def _profile(data: dict) -> Profile:
    if data["schema"] != 1:
        raise ValueError(f"schema {data['schema']!r}, expected 1")
    profile = data["profile"]
    config, ceilings = profile["config"], profile["ceilings"]
    return Profile(
        rung=str(profile["variant"]),
        device=str(data["context"]["device"]["name"]),
        workload=f"{config['model']}, B = {int(config['B'])}, T = {int(config['T'])}",
        ms=positive(profile["device_ms"]),
        phases={str(row["name"]): finite(row["ms"]) for row in profile["phases"]},
        kernel_types={str(row["type"]): finite(row["ms"]) for row in profile["kernel_types"]},
        copy_gb_per_s=positive(ceilings["copy_gb_per_s"]),
        gemm_tflops={str(math): positive(peak) for math, peak in ceilings["gemm_tflops"].items()},
        products=[Op(str(row["op"]), str(row["math"]), positive(row["ms"]), positive(row["intensity"]),
                     positive(row["tflops"])) for row in profile["ops"] if row["flops"] and row["ms"]])


def _subtitle(profiles: list[Profile], note: str) -> str:
    devices = dict.fromkeys(f"{profile.device}  ·  {profile.workload}" for profile in profiles)
    return "  ·  ".join([*devices, note])


def _stacks(profiles: list[Profile], parts: list[dict[str, float]], title: str, note: str):
    """A bar a profile, cut into its parts, as percentages of all of them."""
    names = list(dict.fromkeys(name for part in parts for name in part))
    colours = dict(zip(names, plt.get_cmap("tab20").colors * 2)) | {"idle": style.GRID}
    left = 0.3 + max(style.text_width(profile.rung) for profile in profiles)
    fig, (ax,) = style.figure(title, _subtitle(profiles, note), [max(0.5 * len(profiles), 0.15 * len(names)) + 0.1], [0.2], left,
                              0.25 + style.legend_width(names))
    for y, (profile, part) in enumerate(zip(profiles, parts)):
        start, total = 0.0, sum(part.values())
        for name, ms in part.items():
            width = 100 * ms / total
            ax.barh(y, width, left=start, height=0.66, color=colours[name], edgecolor="white", linewidth=0.5)
            if width > 6:
                ax.annotate(style.number(ms), (start + width / 2, y), ha="center", va="center_baseline", fontsize=8)
            start += width
    handles = [plt.Rectangle((0, 0), 1, 1, color=colours[name]) for name in names]
    place = ax.get_position()
    fig.legend(handles, names, loc="center left", fontsize=8, handlelength=1, borderaxespad=0,
               bbox_to_anchor=(place.x1 + 0.12 / style.WIDTH, 0.5))
    ax.set_xlim(0, 100)
    ax.set_ylim(len(profiles) - 0.5, -0.5)
    ax.set_yticks(range(len(profiles)), [f"{profile.rung}\n{style.number(profile.ms)} ms" for profile in profiles])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("% of the time, ms inside")
    return fig


def draw_phases(profiles: list[Profile]):
    """What part of the step each phase takes, idle time included."""
    return _stacks(profiles, [profile.phases for profile in profiles], "A step by phase", "traced")


def draw_kernel_types(profiles: list[Profile]):
    """What part of the device's busy time each type of kernel takes."""
    if not all(profile.kernel_types for profile in profiles):
        return "no kernel was traced"
    return _stacks(profiles, [profile.kernel_types for profile in profiles], "A step by type of kernel", "traced")


def draw_roofline(profiles: list[Profile]):
    """Achieved FLOP/s of each product under the measured roofs; a marker's area is the op's time."""
    profiles = [profile for profile in profiles if profile.products]
    if not profiles:
        return "no matrix product was timed"
    looks = list(style.lines([profile.rung for profile in profiles]).values())
    fig, (ax,) = style.figure("Matrix products under the roof", _subtitle(profiles, "roofs: measured copy and GEMM"),
                              [3.6], [0.2], 0.8, 0.25 + style.legend_width([profile.rung for profile in profiles]))
    products = [op for profile in profiles for op in profile.products]
    low, high = min(op.intensity for op in products) / 2, max(op.intensity for op in products) * 2
    for math in dict.fromkeys(op.math for op in products):
        peak = max(profile.gemm_tflops[math] for profile in profiles)
        copy = max(profile.copy_gb_per_s for profile in profiles) * 1e-3
        ridge = max(low, peak / copy)
        ax.plot([low, ridge, max(high, ridge)], [min(low * copy, peak), peak, peak], color=style.MUTED, linewidth=1.2,
                label="_roof")
        ax.annotate(math, (max(high, ridge), peak), xytext=(-2, 3), textcoords="offset points", ha="right", fontsize=8.5,
                    color=style.MUTED)
    for profile, look in zip(profiles, looks):
        longest = max(op.ms for op in profile.products)
        ax.scatter([op.intensity for op in profile.products], [op.tflops for op in profile.products],
                   s=[12 + 90 * op.ms / longest for op in profile.products], color=look.color, marker=look.marker,
                   alpha=0.75, linewidths=0, label=profile.rung)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        style.log_axis(axis)
    ax.set_xlabel("FLOP per byte moved")
    ax.set_ylabel("TFLOP/s")
    place = ax.get_position()
    fig.legend(loc="upper left", fontsize=9, borderaxespad=0, bbox_to_anchor=(place.x1 + 0.12 / style.WIDTH, place.y1))
    return fig


# A chart takes profiles and returns a figure, or what is missing for it.
CHARTS = {"phases": draw_phases, "kernel_types": draw_kernel_types, "roofline": draw_roofline}
