"""Reads profiles of `stepladder profile`: where the time of a step goes."""

from dataclasses import dataclass, replace
from pathlib import Path

from results import finite, has, load, plain, positive


@dataclass
class Op:
    """An op of a profile, over its calls in a step."""

    name: str
    math: str  # what its product runs on; "" where it is none
    count: float
    ms: float
    floor_ms: float | None  # at the speed of light: the measured copy and GEMM
    gap_percent: float | None  # its share of what the step takes beyond its floor
    intensity: float  # FLOP/byte
    tflops: float | None


@dataclass
class Profile:
    """Where the time of a step goes."""

    rung: str
    device: str
    workload: str
    ms: float
    phases: dict[str, float]  # ms, in the order of the step
    kernel_types: dict[str, tuple[float, float]]  # ms and calls, the longest first
    copy_gb_per_s: float
    gemm_tflops: dict[str, float]  # measured, by math
    peak_tflops: dict[str, float]  # the data sheet's, where the device is known
    ops: list[Op]
    floor_ms: float | None = None
    name: str = ""  # of the file
    source_hash: str = ""

    @property
    def products(self) -> list[Op]:
        return [op for op in self.ops if op.math and op.ms > 0]


def is_profile(path: Path) -> bool:
    """Whether the file is one; what can't be read is not."""
    return has(path, lambda data: "profile" in data)


def read(path: Path) -> Profile:
    """Throws ResultsError naming the file and what is wrong with it."""
    one = load(path, _profile)
    return replace(one, name=one.name or path.name)


def _profile(data: dict) -> Profile:
    if data["schema"] != 1:
        raise ValueError(f"schema {data['schema']!r}, expected 1")
    profile = data["profile"]
    config, ceilings = profile["config"], profile["ceilings"]
    ops = [Op(plain(row["op"]), plain(row["math"] or ""), finite(row.get("count", 1)), finite(row["ms"]),
              _finite_or_none(row.get("floor_ms")), _finite_or_none(row.get("percent_of_gap")),
              finite(row["intensity"] or 0), _finite_or_none(row["tflops"])) for row in profile["ops"]]
    for op in ops:
        if op.math and op.ms > 0:
            positive(op.intensity), positive(op.tflops)
    return Profile(
        rung=plain(profile["variant"]),
        device=plain(data["context"]["device"]["name"]),
        workload=f"{plain(config['model'])}, B = {int(config['B'])}, T = {int(config['T'])}",
        ms=positive(profile["device_ms"]),
        phases={plain(row["name"]): finite(row["ms"]) for row in profile["phases"]},
        kernel_types={plain(row["type"]): (finite(row["ms"]), finite(row.get("count", 0)))
                      for row in profile["kernel_types"]},
        copy_gb_per_s=positive(ceilings["copy_gb_per_s"]),
        gemm_tflops=_peaks(ceilings["gemm_tflops"]),
        peak_tflops=_peaks(ceilings.get("peak_tflops", {})),
        ops=ops,
        floor_ms=_finite_or_none(profile.get("floor_ms")),
        name=plain(data.get("report", {}).get("name", "")),
        source_hash=str(profile.get("source_hash", "")))


def _peaks(peaks: dict) -> dict[str, float]:
    return {plain(math): positive(peak) for math, peak in peaks.items()}


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None else finite(value)
