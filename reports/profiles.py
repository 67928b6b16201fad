"""Reads profiles of `stepladder profile`: where the time of a step goes."""

from dataclasses import dataclass, field
from pathlib import Path

from schema import ResultsError, kind_of, named, plain

# Fields of a profile's counters, each summed over the types of kernels.
COUNTERS = "dram_read_bytes", "dram_written_bytes", "l2_bytes", "instructions"


@dataclass
class Op:
    """An op of a profile, over its calls in a step."""

    name: str
    math: str  # math mode of a matrix product; "" for other ops
    count: float
    ms: float
    floor_ms: float | None  # at the measured rates of a copy and a GEMM
    gap_percent: float | None  # its share of what the step takes beyond its floor
    intensity: float  # FLOP/byte
    tflops: float | None


@dataclass
class Stretch:
    """Part of a step's timeline that is of one phase and one type of kernel."""

    phase: str
    type: str
    start_ms: float
    ms: float


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
    name: str = ""  # the profile's file name
    source_hash: str = ""
    label: str = ""  # what tells the profile from others beside it: workload, file
    place: int = 0  # among the profiles given
    timeline: list[Stretch] = field(default_factory=list)  # of the last traced step
    tokens: int = 0  # of a step
    counters: dict[str, float] = field(default_factory=dict)  # of a step: bytes by field, and instructions; empty: not counted

    @property
    def title(self) -> str:
        return ", ".join(filter(None, (self.rung, self.label)))

    @property
    def products(self) -> list[Op]:
        return [op for op in self.ops if op.math and op.ms > 0]


def read(path: Path, data: dict) -> Profile:
    """The profile in `data`, which load() has read from the file. Throws ResultsError naming the file and the fault."""
    if kind_of(data) != "profile":
        raise ResultsError(f"{path}: no profile but a {plain(kind_of(data))}")
    profile = data["profile"]
    config, ceilings = profile["config"], profile["ceilings"]
    counted = profile.get("counters", {}).get("kernel_types", [])
    ops = [Op(plain(row["op"]), plain(row["math"] or ""), row.get("count", 1), row["ms"], row.get("floor_ms"),
              row.get("percent_of_gap"), row["intensity"] or 0, row["tflops"]) for row in profile["ops"]]
    if not all(op.intensity > 0 and (op.tflops or 0) > 0 for op in ops if op.math and op.ms > 0):
        raise ResultsError(f"{named(path, data)}: a product without an intensity or TFLOP/s")
    return Profile(
        rung=plain(profile["variant"]),
        device=plain(data["context"]["device"]["name"]),
        workload=f"{plain(config['model'])}, B = {config['B']}, T = {config['T']}",
        ms=profile["device_ms"],
        phases={plain(row["name"]): row["ms"] for row in profile["phases"]},
        kernel_types={plain(row["type"]): (row["ms"], row.get("count", 0)) for row in profile["kernel_types"]},
        copy_gb_per_s=ceilings["copy_gb_per_s"],
        gemm_tflops=_by_name(ceilings["gemm_tflops"]),
        peak_tflops=_by_name(ceilings.get("peak_tflops", {})),
        ops=ops,
        floor_ms=profile.get("floor_ms"),
        name=plain(data.get("report", {}).get("name", path.name)),
        source_hash=profile.get("source_hash", ""),
        timeline=[Stretch(plain(row["phase"]), plain(row["type"]), row["start_ms"], row["ms"])
                  for row in profile.get("timeline", []) if row["ms"] > 0],
        tokens=config["B"] * config["T"],
        counters={name: sum(row[name] for row in counted) for name in COUNTERS if counted})


def _by_name(peaks: dict[str, float]) -> dict[str, float]:
    return {plain(math): peak for math, peak in peaks.items()}
