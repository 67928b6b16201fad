"""Reads what the charts need from a results file of schema 1."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

T = TypeVar("T")


class ResultsError(Exception):
    """What is wrong with a results file, on one line."""


PEERS = {"pytorch": "PyTorch", "llmc": "llm.c"}
ABLATIONS = ("without/", "only/")  # what their variants' names begin with


@dataclass
class Row:
    """A rung, or a peer, on a workload, over its rounds."""

    rung: str
    status: str
    reason: str
    median_ms: float = math.nan
    interval_ms: tuple[float, float] | None = None
    speedup: float | None = None  # against the baseline
    rounds: list[list[dict]] = field(default_factory=list)  # the steps of each run
    counterpart: "Row | None" = None  # PyTorch's same rung, where it is ok

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def over_rounds(self, key: str) -> dict[int, float]:
        """Median over rounds of a step's field, by step; steps without it are left out."""
        values: dict[int, list[float]] = {}
        for steps in self.rounds:
            for step in steps:
                if step.get(key) is not None:
                    values.setdefault(step["step"], []).append(step[key])
        return {step: median(values[step]) for step in sorted(values)}

    def warmup(self) -> int:
        """Warm-up steps, of the run that took the most."""
        return max((sum(step["warmup"] for step in steps) for steps in self.rounds), default=0)


@dataclass
class Workload:
    """The rows of one configuration, in the order of the ladder; peers without rungs apart."""

    model: str
    B: int
    T: int
    rows: list[Row] = field(default_factory=list)
    peers: list[Row] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.model}, B = {self.B}, T = {self.T}"


GAINS = {"ladder": "ladder gain", "without": "leave-one-out", "only": "only-one"}


@dataclass
class Gain:
    """How many times faster a rung makes training, or why there is no number."""

    status: str
    reason: str
    ratio: float = math.nan
    interval: tuple[float, float] | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def low(self) -> float:
        return self.interval[0] if self.interval else self.ratio

    @property
    def high(self) -> float:
        return self.interval[1] if self.interval else self.ratio


@dataclass
class Ablation:
    """The gains of a rung on a workload, by the keys of GAINS, as far as they were asked for."""

    rung: str
    workload: Workload
    gains: dict[str, Gain]


@dataclass
class Results:
    device: str
    backend: str
    workloads: list[Workload]
    ablations: list[Ablation] = field(default_factory=list)

    @property
    def rungs(self) -> list[str]:
        """Every rung that took part, in the order of the ladder."""
        return sorted({row.rung for workload in self.workloads for row in workload.rows})

    @property
    def rounds(self) -> int:
        return max((len(row.rounds) for workload in self.workloads for row in workload.rows), default=0)


def read(path: Path) -> Results:
    """Throws ResultsError naming the file and what is wrong with it."""
    return load(path, _results)


def load(path: Path, parse: Callable[[dict], T]) -> T:
    """What `parse` makes of a JSON file; whatever it throws over the file's contents becomes a ResultsError."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8"), parse_constant=finite))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ResultsError(f"{path}: not JSON: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ResultsError(f"{path}: {error}") from None
    except KeyError as error:
        raise ResultsError(f"{path}: {error} is missing") from None
    except (TypeError, AttributeError) as error:
        raise ResultsError(f"{path}: a field is of the wrong type: {error}") from None


def _results(data: dict) -> Results:
    if data["schema"] != 1:
        raise ValueError(f"schema {data['schema']!r}, expected 1")
    workloads: dict[tuple, Workload] = {}
    for variant in sorted(data["variants"], key=lambda variant: "peer" in variant):  # rungs first
        workload = workloads.setdefault(_key(variant), Workload(*_key(variant)))
        row = Row(variant["variant"], variant["status"], variant["reason"])
        if row.ok:
            estimate, speedup = variant["median_step_ms"], variant["speedup_baseline"]
            row.median_ms = positive(estimate["value"])
            row.interval_ms = _interval(estimate, row.median_ms, f"{row.rung} on {workload}")
            if speedup is not None:
                row.speedup = positive(speedup["ratio"])
        row.rounds = [_steps(run) for run in data["runs"] if run["variant"] == row.rung and _key(run) == _key(variant)]
        if row.ok and not all(row.rounds or [[]]):
            raise ValueError(f"{row.rung} on {workload} is ok, yet a run of it has no steps")
        if variant["variant"].startswith(ABLATIONS):
            continue
        if "peer" not in variant:
            workload.rows.append(row)
        elif row.ok and row.rung == variant["peer"]:
            workload.peers.append(row)
        elif row.ok:
            for rung in workload.rows:
                if row.rung == f"{variant['peer']}/{rung.rung}":
                    rung.counterpart = row
    device = data["context"]["device"]
    used = [workload for workload in workloads.values() if workload.rows or workload.peers]
    ablations = [_ablation(item) for item in data.get("ablations", [])]
    return Results(str(device["name"]), str(device["backend"]), used, ablations)


def _ablation(item: dict) -> Ablation:
    gains = {}
    for kind in GAINS:
        if kind in item:
            gain = gains[kind] = Gain(str(item[kind]["status"]), str(item[kind]["reason"]))
            if gain.ok:
                gain.ratio = positive(item[kind]["ratio"])
                gain.interval = _interval(item[kind], gain.ratio, f"{kind} of {item['rung']}")
    return Ablation(str(item["rung"]), Workload(*_key(item)), gains)


def _interval(estimate: dict, value: float, what: str) -> tuple[float, float] | None:
    """The interval, which must hold the value; none of a single round."""
    if estimate["lo"] is None:
        return None
    low, high = positive(estimate["lo"]), positive(estimate["hi"])
    if not low <= value <= high:
        raise ValueError(f"{what}: a median of {value} outside its interval")
    return low, high


def _key(item: dict) -> tuple[str, int, int]:
    config = item["config"]
    return config["model"], int(config["B"]), int(config["T"])


def _steps(run: dict) -> list[dict]:
    return [{"step": int(finite(step["step"])), "warmup": bool(step["warmup"]), "step_ms": positive(step["step_ms"]),
             "loss": None if step["loss"] is None else finite(step["loss"])} for step in run["steps"]]


def finite(text: str | float) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not finite")
    return value


def positive(value: float) -> float:
    if not finite(value) > 0:
        raise ValueError(f"a time or ratio of {value}")
    return value
