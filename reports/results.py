"""What the charts and the page need of results files. Rows may lack fields that charts and page can do without."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from statistics import median

import sources
from schema import kind_of, load, plain, whole

PEERS = {"pytorch": "PyTorch", "llmc": "llm.c"}
ABLATIONS = ("without/", "only/", "both/")  # the beginnings of their variants' names
GIB = 2**30
# Keys of a configuration that are the workload's, or say how long and from what to train: a step's time doesn't depend
# on them.
NOT_SETTINGS = {"model", "B", "T", "max_T", "world_size", "seed", "steps", "data", "val_data", "vocab", "shuffle", "lr",
                "min_lr", "warmup_lr_steps", "decay_steps", "beta1", "beta2", "eps", "weight_decay", "grad_clip",
                "loss_scale", "versions"}


@dataclass
class Estimate:
    """A median over rounds, with its interval."""

    value: float = math.nan
    interval: tuple[float, float] | None = None

    @property
    def low(self) -> float:
        return self.interval[0] if self.interval else self.value

    @property
    def high(self) -> float:
        return self.interval[1] if self.interval else self.value

    @property
    def errors(self) -> list[list[float]]:
        """How far the interval reaches below and above the value, in matplotlib's form for a single point."""
        return [[self.value - self.low], [self.high - self.value]]


@dataclass
class Ratio(Estimate):
    """How many times faster a row is than another, with the interval over the rounds of both."""

    against: str = ""

    @property
    def peer(self) -> str:
        """The peer whose row the ratio is against, if it is against a peer's."""
        return self.against.split("/")[0]


@dataclass
class Memory:
    """Peak bytes: of the arena, taken from the driver, of the process; the arena's also by name. 0 is unknown."""

    live: int
    reserved: int
    process: int
    by_name: dict[str, int] = field(default_factory=dict)


@dataclass
class TimeToLoss:
    """What training until a validation loss took: medians over the rounds that reached it, None where no round did."""

    loss: float  # the loss asked for
    reached: int  # rounds that reached it
    rounds: int  # rounds that count
    interval: str = ""  # name of its intervals: "95 % interval"
    seconds: Estimate | None = None
    first: Ratio | None = None  # in seconds, over the first row that reached the loss, from rounds in which both did


@dataclass
class Curve:
    """A run's validation losses over seconds of training: without evaluations, and with the first step at the median's time."""

    seconds: list[float]
    losses: list[float]
    reached: bool  # whether it ended at or below the loss asked for


@dataclass
class Row:
    """A rung, or a peer, on a workload, over its rounds."""

    rung: str
    status: str
    reason: str
    median_ms: float = math.nan
    interval_ms: tuple[float, float] | None = None
    rounds: list[dict[str, list]] = field(default_factory=list)  # steps of each run that counts, as columns
    warmup: int = 0  # the most warm-up steps of a run
    counted: int = 0  # rounds that the numbers are from: undisturbed ones, if there are any
    interval: str = ""  # the name of intervals over as many rounds
    disturbance: str = ""  # "throttled" or "shared", if that was so in all rounds: nothing is claimed on its numbers
    counterpart: "Row | None" = None  # PyTorch's same rung, where it is ok
    peer: str = ""  # "pytorch" or "llmc"; "" for a rung
    tokens_per_second: float | None = None
    rates: dict[int, float] = field(default_factory=dict)  # tokens a second, by round
    first_step_ms: float | None = None
    previous: Ratio | None = None
    baseline: Ratio | None = None
    peers: list[Ratio] = field(default_factory=list)
    mfu_nanogpt: float | None = None  # a fraction
    mfu_llmc: float | None = None
    cycles: Estimate | None = None  # of a step, by an SM's own clock
    joules: Estimate | None = None  # of a step, all devices together
    joules_unknown: str = ""  # why a run has no joules
    tokens_per_joule: Estimate | None = None
    memory: Memory | None = None
    to_loss: TimeToLoss | None = None
    curves: list[Curve] = field(default_factory=list)  # one for each counted run with at least two finite evaluations
    target: float | None = None  # the validation loss asked for: to train until, or to certify
    math: str = ""  # the math mode of its GEMMs
    settings: str = ""  # settings that change its time, other than model, batch, length and steps
    configuration: dict = field(default_factory=dict)  # all that may change its time, with what a trainer of one's own recorded
    place: int = 0  # in its ladder; rows that aren't in it come last
    diff: sources.Diff | None = None  # against its parent

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the baseline."""
        return self.baseline.value if self.baseline else None

    @property
    def timed_seconds(self) -> float:
        """The timed seconds of the longest run; 0 for runs until a loss, which are evaluated in between."""
        runs = [sum(steps["step_ms"][self.warmup:]) for steps in self.rounds if steps and not self.to_loss]
        return max(runs, default=0.0) / 1e3

    @property
    def live_gib(self) -> float | None:
        """The arena's peak; None for a trainer that knows its process's alone."""
        return self.memory.live / GIB if self.memory and self.memory.live else None

    @property
    def clock_mhz(self) -> float | None:
        """The SMs' mean clock in a step."""
        return self.cycles.value / self.median_ms / 1e3 if self.cycles else None

    def speedup_over(self, other: "Row") -> float:
        """How many times as fast as another row, per token: the ratio that the ladder's table shows, if it has one, else
        the median over rounds that both have, or the ratio of the two medians."""
        for row, against, sign in ((self, other, 1), (other, self, -1)):
            for ratio in (row.previous, row.baseline, *row.peers):
                if ratio and ratio.against == against.rung:
                    return ratio.value**sign
        if common := self.rates.keys() & other.rates.keys():
            return median(self.rates[round] / other.rates[round] for round in common)
        if self.tokens_per_second and other.tokens_per_second:
            return self.tokens_per_second / other.tokens_per_second  # batches may differ
        return other.median_ms / self.median_ms

    def alike(self, other: "Row") -> bool:
        """Whether the two rows are configured alike. Keys that only one of them has come from another version, and are
        ignored."""
        mine, its = self.configuration, other.configuration
        return self.settings == other.settings and all(mine[key] == its[key] for key in mine.keys() & its.keys())

    def over_rounds(self, key: str) -> dict[int, float]:
        """Median over rounds of a step's field, by step; steps without it are left out."""
        columns = [steps[key] for steps in self.rounds if steps]
        of_steps = [[column[step] for column in columns if step < len(column) and column[step] is not None]
                    for step in range(max(map(len, columns), default=0))]
        return {step: median(values) for step, values in enumerate(of_steps) if values}


# Numeric fields of Row, by name, with their type: filled from the file's variant, which has the same names.
NUMBERS = {of.name: of.type for of in fields(Row) if of.type in (float | None, Estimate | None)}


@dataclass
class Workload:
    """The rungs measured with one model, batch and sequence length, in the order of the ladder, and the peers beside them."""

    model: str
    B: int
    T: int
    devices: int = 1  # each trains on a batch of B
    rows: list[Row] = field(default_factory=list)
    all_peers: list[Row] = field(default_factory=list)  # peers beside a rung and failed ones, too
    label: str = ""  # the device and the file it is from, each where there are several
    device: str = ""
    ladder: str = ""  # the name of a ladder of one's own
    file: str = ""
    main: bool = True  # of the device's first results, which the charts of the ladder show
    groups: list["Group"] = field(default_factory=list)  # groups of which both ends were measured

    def __str__(self) -> str:
        return f"{self.label + ': ' if self.label else ''}{self.model}, B = {self.B}, T = {self.T}" + \
            (f", {self.devices} devices" if self.devices > 1 else "")

    @property
    def ours(self) -> bool:
        """Whether its rungs are of one of Stepladder's ladders, whose sources are here."""
        return self.ladder in ("", "learning")

    @property
    def key(self) -> tuple:
        """What a row shares with its counterparts in other files: all but device and configuration."""
        return self.ladder, self.model, self.B, self.T, self.devices

    @property
    def steps(self) -> int:
        """The steps of the longest run."""
        return max((len(steps["step_ms"]) for row in self.rows for steps in row.rounds if steps), default=0)

    @property
    def baselines(self) -> set[str]:
        """Rungs that speed-ups are against."""
        return {row.baseline.against for row in self.rows if row.baseline}

    @property
    def peers(self) -> list[Row]:
        """Those that are one trainer, such as llm.c, and ok."""
        return [row for row in self.all_peers if row.ok and row.rung == row.peer]

    @property
    def everyone(self) -> list[Row]:
        return self.rows + self.all_peers

    def find(self, rung: str) -> Row | None:
        return next((row for row in self.everyone if row.rung == rung), None)


@dataclass
class Group:
    """Several rungs taken as one step, from the rung before them to their last."""

    name: str
    rungs: list[str]  # rungs that took part
    gain: float
    gain_in_pytorch: float | None


def span(counts: Iterable[int]) -> str:
    """The text "3", or "2 to 3"; "" for no counts."""
    found = sorted(set(counts))
    return " to ".join(map(str, found[:1] + found[1:][-1:]))


def rounds_of(rows: Iterable[Row]) -> str:
    """The numbers of rounds of the rows that ended well, as span() has them."""
    return span(len(row.rounds) for row in rows if row.ok)


def with_interval(rows: Iterable[Row]) -> str:
    """Text saying that medians of rows have an interval, by its name for the fewest rounds; "" where no row has one."""
    fewest = min((row for row in rows if row.interval_ms), default=None, key=lambda row: row.counted)
    return f", with the {fewest.interval} over rounds" if fewest else ""


GAINS = {"ladder": "ladder gain", "without": "leave-one-out", "only": "only-one"}


@dataclass
class Gain(Estimate):
    """How many times faster a rung makes training, or why there is no number; for runs until a loss, how many sooner."""

    status: str = "ok"
    reason: str = ""
    to_loss: bool = False

    @property
    def ok(self) -> bool:
        return self.status == "ok" and not math.isnan(self.value)


@dataclass
class Ablation:
    """The gains of a rung on a workload, by the keys of GAINS, as far as they were asked for."""

    rung: str
    workload: Workload
    gains: dict[str, Gain]


@dataclass
class Scaled:
    """A rung or peer on several devices beside one device, measured or as a model of communication predicts."""

    rung: str
    devices: int
    batch: int  # batch of the run on one device
    tokens_per_second: Estimate
    efficiency: Estimate  # a fraction
    alone: float | None = None  # tokens/s of one device by itself; None for a prediction
    machines: int = 1
    setting: tuple[str, int] | None = None  # model and sequence length, where the file says them
    shared: bool = False  # whether the devices share that batch (strong scaling)
    file: str = ""


@dataclass
class Results:
    device: str
    backend: str
    workloads: list[Workload]
    ablations: list[Ablation] = field(default_factory=list)
    name: str = ""  # of the results file
    scaling: list[Scaled] = field(default_factory=list)
    predicted: list[Scaled] = field(default_factory=list)
    mixed: bool = False  # measured on several devices: only ratios compare
    profiles: list = field(default_factory=list)  # profiles.Profile objects, given with the results
    history: list = field(default_factory=list)  # of history.Series

    @property
    def rungs(self) -> list[str]:
        """Every rung that took part, in the order of the ladder."""
        places = {row.rung: row.place for workload in self.workloads for row in workload.rows}
        return sorted(places, key=places.get)

    @property
    def of_others(self) -> bool:
        """Whether only trainers of one's own were measured: they have no ablation, profile or published number."""
        measured = [workload for workload in self.workloads if workload.rows]
        return bool(measured) and not any(workload.ours for workload in measured)

    @property
    def emulated(self) -> bool:
        """Whether our rungs ran on a CPU alone, which emulates reduced precisions: the losses are real, speeds tell nothing."""
        return self.backend == "cpu" and any(workload.rows and workload.ours for workload in self.workloads)

    def ladders(self) -> list[Workload]:
        """The workloads of each device's first results on which a rung is ok: those on a single device, else those on
        several."""
        main = [workload for workload in self.workloads if workload.main and any(row.ok for row in workload.rows)]
        return [workload for workload in main if workload.devices == 1] or main

    def by_longest_run(self, known: Callable[[Row], bool]) -> list[Workload]:
        """One workload for each device and key, from all files. Each rung and peer is the row with the longest run for
        which `known` holds, among rows configured as in the first file that has the rung. A rung without such a row is
        there only if the main results have it."""
        usual: dict[tuple, Row] = {}
        same: dict[tuple, list[Workload]] = {}
        for workload in self.workloads:
            same.setdefault((workload.device, workload.key), []).append(workload)
            for row in filter(known, workload.everyone) if not workload.main else workload.everyone:
                usual.setdefault((workload.device, workload.ladder, row.rung), row)
        found = []
        for workloads in same.values():
            best: dict[str, Row] = {}
            for workload in sorted(workloads, key=lambda workload: not workload.main):
                for row in workload.everyone:
                    there = best.get(row.rung)
                    if (known(row) or workload.main) and row.alike(usual[workload.device, workload.ladder, row.rung]) \
                            and (not there or (known(row), row.timed_seconds) > (known(there), there.timed_seconds)):
                        best[row.rung] = row
            if any(map(known, best.values())):
                rows = [replace(row, counterpart=best.get(f"pytorch/{row.rung}"))
                        for row in sorted(best.values(), key=lambda row: row.place) if not row.peer]
                peers = [row for row in best.values() if row.rung == row.peer]
                found.append(replace(workloads[0], rows=rows, all_peers=peers))
        return found

    def knowing(self, known: Callable[[Row], bool], once: bool = False) -> list[Workload]:
        """The workloads with a row or peer for which `known` holds. Those outside the main results keep only such rows and, if
        `once`, of rows measured in several files only the one with the most rounds. Labelled by file if files differ."""
        def place(workload: Workload, row: Row) -> tuple:
            return workload.device, workload.key, row.rung, row.settings

        most: dict[tuple, Row] = {}
        for workload in self.workloads:
            for row in filter(known, workload.rows):
                there = most.setdefault(place(workload, row), row)
                if row.counted > there.counted:
                    most[place(workload, row)] = row
        found = []
        for workload in self.workloads:
            rows = [row for row in workload.rows
                    if known(row) and (not once or workload.main or most[place(workload, row)] is row)]
            if rows or any(map(known, workload.all_peers)):
                found.append((workload, workload.rows if workload.main else rows))
        several = len({workload.file for workload, _ in found}) > 1
        return [replace(workload, rows=rows, label=workload.label or (workload.file if several else ""))
                for workload, rows in found]

    def longest(self) -> list[Workload]:
        """For each device, the workloads with the longest runs of two rungs or more; if none of these has the baseline,
        the workloads with the longest runs that have it come first. Runs until a loss, whose rounds differ in seed, only
        count where there are no others."""
        def most_steps(of: list[Workload]) -> list[Workload]:
            most = max((workload.steps for workload in of), default=0)
            return [workload for workload in of if workload.steps == most]

        chosen = []
        several = [workload for workload in self.workloads if sum(any(row.rounds) for row in workload.rows) > 1]
        for device in dict.fromkeys(workload.device for workload in several):
            here = [workload for workload in several if workload.device == device]
            here = [workload for workload in here if not any(row.to_loss for row in workload.rows)] or here
            based = [workload for workload in here
                     if any(row.rung == self.rungs[0] and any(row.rounds) for row in workload.rows)]
            longest = most_steps(here)
            chosen += [*([] if any(workload in based for workload in longest) else most_steps(based)), *longest]
        return chosen

    def measured(self) -> Iterator[tuple[Workload, Row]]:
        """Every rung and peer that is ok, with its workload."""
        for workload in self.workloads:
            yield from ((workload, row) for row in workload.everyone if row.ok)


def _labelled(profiles: Sequence) -> list:
    """The profiles by workload, in the order of the ladder, each labelled by what tells it from the others of its device."""
    workloads = [*dict.fromkeys(profile.workload for profile in profiles)]
    of_its_own = Counter((profile.rung, profile.workload) for profile in profiles)

    def label(profile) -> str:
        again = of_its_own[profile.rung, profile.workload] > 1
        return ", ".join([*[profile.workload] * (len(workloads) > 1), *[profile.name] * again])

    placed = [replace(profile, label=label(profile), place=place) for place, profile in enumerate(profiles)]
    return sorted(placed, key=lambda profile: (workloads.index(profile.workload),
                                               [*sources.LADDER, profile.rung].index(profile.rung)))


def together(results: list[Results], profiles: Sequence = (), history: Sequence = ()) -> Results:
    """Several results as one, the first of each device as its main ones. Workloads are labelled by device where devices
    differ, by file where they would read the same; profiles by workload where there are several, and by file likewise."""
    devices = list(dict.fromkeys(one.device for one in [*results, *profiles]))
    main = {one.device: one for one in reversed(results)}
    seen = [(one.device, str(workload)) for one in results for workload in one.workloads]

    def labelled(one: Results, workload: Workload) -> Workload:
        first = one is main[one.device]
        again = not first and seen.count((one.device, str(workload))) > 1
        label = ", ".join([*[one.device] * (len(devices) > 1), *[one.name] * again])
        return replace(workload, label=label, file=one.name, main=first)

    workloads = [labelled(one, workload) for one in results for workload in one.workloads]
    ablations = [replace(ablation, workload=labelled(one, ablation.workload))
                 for one in results for ablation in one.ablations]
    return Results(", ".join(devices), ", ".join(dict.fromkeys(one.backend for one in results)), workloads, ablations,
                   mixed=len(devices) > 1, history=list(history),
                   profiles=_labelled(profiles),
                   scaling=[replace(row, file=one.name) for one in results for row in one.scaling],
                   predicted=[replace(row, file=one.name) for one in results for row in one.predicted])


def told(path: Path) -> dict:
    """Reads a file from `stepladder report`. Results are taken as they are, since the command has checked and derived them; a
    profile or a history, which it passes on unread, is held to the schema. Throws ResultsError."""
    data = json.loads(path.read_bytes())
    return whole(data) if kind_of(data) == "results" else load(path)


def read(data: dict) -> Results:
    """The results of a file, as `stepladder report` tells it."""
    workloads: dict[tuple, Workload] = {}
    runs: dict[tuple, list[dict]] = {}
    for run in data["runs"]:
        if not run["config"].get("independent_ranks"):  # only the scaling uses independent ranks
            runs.setdefault((run["variant"], _key(run)), []).append(run)
    device, model = data["context"]["device"], plain(data["context"]["device"]["name"])
    own = data["plan"].get("ladder")  # a ladder of one's own
    ladder = sources.rows(own) if own else sources.LADDER
    for variant in sorted(data["variants"], key=lambda variant: "peer" in variant):  # rungs first
        workload = workloads.setdefault(_key(variant), Workload(
            *_key(variant), device=model, ladder=plain((own or {}).get("name", ""))))
        counted = set(variant["counted"])
        row = _row(variant, [run for run in runs.get((variant["variant"], _key(variant)), ()) if run["round"] in counted],
                   data["plan"].get("certify_loss"))
        row.diff = sources.diff_of_commands(row.rung, ladder) if own else sources.diff(row.rung)
        row.place = [*ladder, row.rung].index(row.rung)
        if row.rung.startswith(ABLATIONS):
            continue
        if not row.peer:
            workload.rows.append(row)
            continue
        workload.all_peers.append(row)
        if row.ok and row.peer == "pytorch":
            for rung in workload.rows:
                if row.rung == f"{row.peer}/{rung.rung}":
                    rung.counterpart = row
    for item in data.get("groups", []):
        workloads[_key(item)].groups.append(Group(
            plain(item["name"]), [plain(rung) for rung in item["rungs"]], item["ratio"]["value"],
            item["pytorch"] and item["pytorch"]["value"]))
    used = [workload for workload in workloads.values() if workload.rows or workload.all_peers]
    return Results(model, plain(device["backend"]), used, [_ablation(item) for item in data.get("ablations", [])],
                   name=plain(data.get("report", {}).get("name", "")),
                   scaling=[_scaled(item, workloads) for item in data.get("scaling", [])],
                   predicted=[Scaled(plain(x["variant"]), x["devices"], x["batch"], Estimate(x["tokens_per_second"]),
                                        Estimate(x["efficiency"])) for x in data.get("scaling_predicted", [])])


def _row(variant: dict, runs: list[dict], certify_loss: float | None) -> Row:
    row = Row(plain(variant["variant"]), plain(variant["status"]), plain(variant["reason"], 400))
    row.peer = plain(variant.get("peer", ""))
    row.rounds = [_steps(run) for run in runs]
    row.warmup = max((run["summary"]["warmup_steps"] for run in runs if run["summary"]), default=0)
    row.math = plain(variant["config"].get("math", ""))
    row.configuration = {key: value for key, value in variant["config"].items() if key not in NOT_SETTINGS}
    row.settings = plain(variant.get("settings", ""), 400)
    row.disturbance = plain(variant.get("disturbance", "")) if variant.get("disturbed") else ""
    row.counted, row.interval = len(variant["counted"]), variant["interval"]
    row.joules_unknown = next((plain(run["summary"]["joules_unknown"], 200) for run in runs
                               if run["summary"] and "joules_unknown" in run["summary"]), "")
    if not row.ok:
        return row
    row.median_ms, row.interval_ms = _estimate(variant["median_step_ms"])
    row.previous, row.baseline = (_ratio(variant.get(f"speedup_{what}")) for what in ("previous", "baseline"))
    row.peers = [_ratio(speedup) for speedup in variant.get("speedup_peers", [])]
    row.rates = {run["round"]: rate for run in runs if (rate := run["summary"].get("tokens_per_second"))}
    for name in variant.keys() & NUMBERS:
        number = variant[name]
        if isinstance(number, dict):
            number = Estimate(*_estimate(number)) if NUMBERS[name] == Estimate | None else number["value"]
        setattr(row, name, number)
    if "to_loss" in variant:
        row.to_loss = _time_to_loss(variant["to_loss"], len(runs))
    row.target = row.to_loss.loss if row.to_loss else certify_loss
    if row.target is not None:
        row.curves = [curve for run in runs if (curve := _curve(run, row.target))]
    if memory := variant.get("memory_bytes"):
        by_name = {plain(name): size for name, size in memory["by_name"].items()}
        row.memory = Memory(*(memory[f"{kind}_peak"] for kind in ("live", "reserved", "process")), by_name)
    return row


def _time_to_loss(item: dict, rounds: int) -> TimeToLoss:
    seconds, first = item.get("seconds"), item.get("first")
    return TimeToLoss(item["loss"], item["reached"], rounds, item.get("interval", ""),
                      seconds and Estimate(*_estimate(seconds)),
                      first and Ratio(*_estimate(first["seconds"]), against=plain(first["against"])))


def _curve(run: dict, target: float) -> Curve | None:
    """The curve through a run's evaluations of finite loss; None for fewer than two of them."""
    points = [item for item in run.get("evaluations", []) if item["val_loss"] is not None]
    if not run["summary"] or len(points) < 2:
        return None
    at = [0.0, *accumulate(ms / 1e3 for ms in run["steps"]["step_ms"])]  # seconds after so many steps
    longer = (run["summary"]["first_step_ms"] - run["summary"]["median_step_ms"]) / 1e3  # the first step, by compiling
    return Curve([(item["seconds"] if "seconds" in item else at[item["step"]]) - (longer if item["step"] else 0)
                  for item in points], [item["val_loss"] for item in points], points[-1]["val_loss"] <= target)


def _estimate(estimate: dict, key: str = "value") -> tuple[float, tuple[float, float] | None]:
    """A value, and its interval where there is one."""
    low, high = estimate["lo"], estimate["hi"]
    return estimate[key], None if low is None or high is None else (low, high)


def _ratio(speedup: dict | None) -> Ratio | None:
    if speedup is None:
        return None
    return Ratio(*_estimate(speedup, "ratio"), against=plain(speedup["against"]))


def _ablation(item: dict) -> Ablation:
    gains = {}
    for kind in GAINS:
        if kind in item:
            to_loss, status = item[kind].get("to_loss"), plain(item[kind]["status"])
            gains[kind] = Gain(*(_estimate(to_loss["seconds"]) if to_loss else
                                 _estimate(item[kind], "ratio") if status == "ok" else ()),
                               status=status, reason=plain(item[kind]["reason"], 400), to_loss=bool(to_loss))
    return Ablation(plain(item["rung"]), Workload(*_key(item)), gains)


def _scaled(item: dict, workloads: dict[tuple, Workload]) -> Scaled:
    model, B, T, _ = _key(item)
    one = workloads.get((model, item["one_batch"], T, 1))
    alone = next((row.tokens_per_second for row in (one.everyone if one else ()) if row.rung == plain(item["against"])), None)
    return Scaled(plain(item["variant"]), item["devices"], item["one_batch"],
                  *(Estimate(*_estimate(item[key])) for key in ("tokens_per_second", "efficiency")), alone, item.get("machines", 1),
                  (model, T), B != item["one_batch"])


def _key(item: dict) -> tuple[str, int, int, int]:
    config = item["config"]
    return plain(config["model"]), int(config["B"]), int(config["T"]), int(config.get("world_size", 1))


def _steps(run: dict) -> dict[str, list]:
    steps, to_loss = run["steps"], (run["summary"] or {}).get("to_loss")
    if to_loss and to_loss["steps"] > len(steps["step_ms"]):  # a shortened file keeps the last step after a gap
        steps = {name: column[:-1] for name, column in steps.items()}
    return steps if steps["step_ms"] else {}
