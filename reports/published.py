"""The published tables of reports/published/, and our values beside them.

A file is a source: title, author, date, url (null where no address was recorded), caveats and, where our gains are
others than the published ones, the reason as `apart`; then `tables`, in the
source's order, and `not_applicable`, what our results can't stand beside, with `why`. What a table says of device, B,
T, metric, unit, devices and kind holds for its rows unless a row says otherwise. A row's `ours` is what of ours stands
beside it, according to the table's `quantity`: a rung or peer; a pair of them to form a ratio from; files to count the
lines of; phases or kernel types of our profile; or null. `reference` names the row that ratios are against, by default
the first; `ratios` is false where there is none to form.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sources
from profiles import Profile
from results import GIB, Results, ResultsError, Row, Workload

# The sources that come first; others follow by name.
ORDER = ["gunton-2024-07", "karpathy-video-chapters", "raschka-llm-training-speed", "llmc-2024-05-03"]

# A gain that differs by no more is the published one.
SAME = 0.15

FOLDER = Path(__file__).parent / "published"
ROOT = FOLDER.parent.parent


def _memory(kind: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.memory, kind) / GIB or None if row.memory else None


def _scaled(name: str, factor: float) -> Callable[[Row], float | None]:
    return lambda row: None if getattr(row, name) is None else getattr(row, name) * factor


# Of a row: its value in the table's unit, and whether more is better.
OF_ROW: dict[str, tuple[Callable[[Row], float | None], bool]] = {
    "step_ms": (lambda row: row.median_ms, False),
    "tokens_per_second": (lambda row: row.tokens_per_second, True),
    "first_step_ms": (lambda row: row.first_step_ms, False),
    "first_step_s": (_scaled("first_step_ms", 1e-3), False),
    "mfu_percent": (_scaled("mfu_nanogpt", 100), True),
    "live_gib": (_memory("live"), False),
    "reserved_gib": (_memory("reserved"), False),
    "process_gib": (_memory("process"), False),
}

# Of two rows: from how many times as fast the second is.
OF_PAIR: dict[str, Callable[[float], float]] = {
    "reduction": lambda gain: 100 * (1 - 1 / gain),
    "speedup": lambda gain: gain,
    "advantage": lambda gain: 100 * (gain - 1),
}


# Of a profile: ms by phase or kernel type. Milliseconds of another device don't compare, shares of the step do.
OF_PROFILE: dict[str, Callable[[Profile], dict[str, float]]] = {
    "phases": lambda profile: profile.phases,
    "kernel_types": lambda profile: {name: ms for name, (ms, _) in profile.kernel_types.items()},
}


@dataclass
class Line:
    """A row of a table. Texts, "" where there is nothing."""

    variant: str
    values: list[str]
    ratio: str = ""
    beside: str = ""  # what of ours
    ours: str = ""
    ours_ratio: str = ""
    agreement: float | None = None  # our ratio over the published one
    same_device: str = ""  # our value over the published one
    note: str = ""


@dataclass
class Table:
    title: str
    setting: str
    headers: list[str]
    lines: list[Line]
    notes: list[str] = field(default_factory=list)
    ours_setting: str = ""
    missing: str = ""  # why nothing of ours is beside it
    why: str = ""  # why nothing of ours can be

    def has(self, column: str) -> bool:
        return any(getattr(line, column) for line in self.lines)


@dataclass
class Source:
    name: str
    title: str
    by: str
    url: str | None
    caveats: list[str]
    tables: list[Table]
    apart: str = ""  # why some of our gains are others

    @property
    def answer(self) -> str:
        """Which of the speed-ups of its first table that has ours beside them are ours too, which aren't, and why."""
        lines = next(([line for line in table.lines if line.agreement] for table in self.tables
                      if any(line.agreement for line in table.lines)), [])
        same, other = ([f"{line.variant} ({line.ours_ratio}, published {line.ratio})" for line in lines
                        if (abs(line.agreement - 1) <= SAME) == wanted] for wanted in (True, False))
        sentences = [f"Speed-ups within {100 * SAME:.0f} % of the published ones, over the first row: {', '.join(same)}."] if same else []
        if other:
            sentences += [f"Others: {', '.join(other)}.", self.apart]
        return " ".join(filter(None, sentences))


def load(folder: Path = FOLDER) -> list[dict]:
    """The sources. Throws ResultsError naming the file that is wrong."""
    sources = []
    for path in sorted(folder.glob("*.json")):
        try:
            source = json.loads(path.read_text(encoding="utf-8"))
            list(rows(source))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultsError(f"{path}: {error!r}") from None
        sources.append(source)
    return sorted(sources, key=lambda one: ORDER.index(one["source"]) if one["source"] in ORDER else len(ORDER))


def rows(source: dict) -> Iterator[dict]:
    """Every published value of a source as a row of its own, what its table says filled in."""
    for table in source["tables"] + source["not_applicable"]:
        for row in table["rows"]:
            common = {key: row.get(key, table.get(key, default)) for key, default in (
                ("device", None), ("devices", 1), ("B", None), ("T", None), ("kind", "published"))}
            columns = table.get("columns")
            values = row["values"] if columns else [row["value"]]
            for column, value in zip(columns or [row], values, strict=True):
                yield {"source": source["source"], "variant": row["variant"], "value": value, **common,
                       "metric": column.get("metric", table.get("metric")),
                       "unit": column.get("unit", table.get("unit"))}


def reproduce(results: list[Results], profiles: Sequence[Profile] = ()) -> list[Source]:
    """Every source with our values."""
    return [Source(source["source"], source["title"], ", ".join(filter(None, (source["author"], source["date"]))),
                   source["url"], source["caveats"],
                   [_table(table, results, profiles) for table in source["tables"] + source["not_applicable"]],
                   source.get("apart", ""))
            for source in load()]


def figures(value: float) -> str:
    """About four significant digits; in powers of ten where a double has no more digits than that tells."""
    size = abs(value)
    if size >= 1e15:
        return f"{value:.2e}"
    return f"{value:,.{3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0}f}"


def _table(table: dict, results: list[Results], profiles: Sequence[Profile]) -> Table:
    columns = table.get("columns") or [table]
    shown = Table(table["title"], _setting(table), [f"published, {column['unit']}" for column in columns], [],
                  table.get("notes", []), missing=table.get("ours_missing", ""), why=table.get("why", ""))
    for row in table["rows"]:
        note = "; ".join(filter(None, (_unlike(row, table), row.get("note"))))
        values = [f"{value:,}" for value in row.get("values", [row.get("value")])]
        if "unit" in row:
            values = [f"{value} {row['unit']}" for value in values]
        shown.lines.append(Line(row["variant"].removeprefix("llmc_profile:"), values, note=note))
    quantity = table.get("quantity")
    if quantity == "lines":
        for row, line in zip(table["rows"], shown.lines):
            _count_lines(row["ours"], line)
    elif quantity in OF_PROFILE:
        _beside_profile(table, quantity, profiles, shown)
    elif quantity in OF_ROW or quantity in OF_PAIR:
        _beside(table, quantity, results, shown)
    return shown


def _beside(table: dict, quantity: str, results: list[Results], shown: Table) -> None:
    """Fills in ratios, and ours from the workload that has the most of the rows, of those the one like it most."""
    rows = table["rows"]
    wanted = [name for row in rows if row["ours"]
              for name in (row["ours"] if isinstance(row["ours"], list) else [row["ours"]])]
    candidates = [(one, workload) for one in results for workload in one.workloads
                  if workload.model == "gpt2" and workload.T == (table["T"] or workload.T)
                  and workload.devices == table.get("devices", 1)]

    def likeness(candidate: tuple[Results, Workload]) -> tuple:
        _, workload = candidate
        found = sum(1 for name in wanted if (row := workload.find(name)) and row.ok)
        return (found, _same_device(table, workload.device), -abs(math.log2(workload.B / (table["B"] or workload.B))))

    one, workload = max(candidates, key=likeness, default=(None, None))
    if workload is None or not likeness((one, workload))[0]:
        shown.missing = "none of its rows was measured on gpt2" + (f" with T = {table['T']}" if table["T"] else "")
        one = workload = None
    else:
        shown.ours_setting = f"{workload.device}, gpt2, B = {workload.B}, T = {workload.T}"

    def find(name: str, like: dict) -> Row | None:
        """In the workload, or on another batch, for a rung that chooses its own; on as many devices as was published."""
        if one is None:
            return None
        devices = like.get("devices", workload.devices)
        any_batch = sources.LADDER.get(name, {}).get("batch") == "largest"
        rows = [other.find(name) for other in [workload, *one.workloads]
                if (other.model, other.T, other.devices) == (workload.model, workload.T, devices)
                and (any_batch or other.B == workload.B)]
        return next((row for row in rows if row and row.ok), None)

    if quantity in OF_PAIR:
        for row, line in zip(rows, shown.lines):
            if row["ours"]:
                line.beside = " → ".join(row["ours"])
                before, after = (find(name, row) for name in row["ours"])
                if before and after:
                    line.ours = figures(OF_PAIR[quantity](after.speedup_over(before)))
        return

    value_of, more_is_better = OF_ROW[quantity]
    ours = [find(row["ours"], row) if row["ours"] else None for row in rows]
    reference = next((i for i, row in enumerate(rows) if row["variant"] == table.get("reference")), 0)
    for i, (row, line, our) in enumerate(zip(rows, shown.lines, ours)):
        line.beside = row["ours"] or ""
        value = value_of(our) if our else None
        if value is not None:
            line.ours = figures(value)
            if _same_device(table, workload.device) and workload.B == (row.get("B") or table["B"] or workload.B):
                line.same_device = f"{value / row['value']:.2f}"
        if i == reference or not table.get("ratios", True):
            continue
        published = _gain(rows[reference]["value"], row["value"], more_is_better)
        line.ratio = f"{published:.2f}×"
        first = value_of(ours[reference]) if ours[reference] else None
        if value is not None and first is not None:
            gain = our.speedup_over(ours[reference]) if quantity in ("step_ms", "tokens_per_second") else \
                _gain(first, value, more_is_better)
            line.ours_ratio, line.agreement = f"{gain:.2f}×", gain / published


def _beside_profile(table: dict, quantity: str, profiles: Sequence[Profile], shown: Table) -> None:
    """Fills in the fastest profile's share of the step, not of one in 8 bits while there are others, which no published
    one is in; a row's `ours` are phases or kernel types, added up."""
    parts_of = OF_PROFILE[quantity]
    profile = min((one for one in profiles if one.workload.startswith("gpt2,") and sum(parts_of(one).values()) > 0),
                  key=lambda one: (sources.LADDER.get(one.rung, {}).get("math") == "fp8", one.ms), default=None)
    if profile is None:
        shown.missing = "no profile of gpt2 was given"
        return
    of = "of the step" if quantity == "phases" else "of the kernels' time"
    shown.ours_setting = f"{profile.device}, {profile.workload}, profile of {profile.rung}, % {of}"
    parts = parts_of(profile)
    for row, line in zip(table["rows"], shown.lines):
        if row["ours"]:
            line.beside = " + ".join(row["ours"])
            line.ours = f"{100 * sum(parts.get(name, 0.0) for name in row['ours']) / sum(parts.values()):.1f} %"


def _gain(reference: float, value: float, more_is_better: bool) -> float:
    """How many times better than the reference."""
    return value / reference if more_is_better else reference / value


def _same_device(table: dict, device: str) -> bool:
    return device in (table["device"], *table.get("same_device", []))


def _count_lines(patterns: list[str] | None, line: Line) -> None:
    if patterns:
        files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.is_file()]
        line.beside = ", ".join(patterns)
        line.ours = f"{sum(path.read_text(encoding='utf-8').count(chr(10)) for path in files):,}" if files else ""


def _setting(table: dict) -> str:
    devices = table.get("devices", 1)
    where = table["device"] or "device not named"
    parts = [f"{devices} × {where}" if devices > 1 else where]
    parts += [f"{name} = {table[name]}" for name in ("B", "T") if table[name]]
    return ", ".join(parts) + (", illustrative" if table.get("kind") == "illustrative" else "")


def _unlike(row: dict, table: dict) -> str:
    """What is said of the row alone."""
    parts = [row[name].replace("_", " ") for name in ("metric",) if name in row]
    parts += [f"{name} = {row[name]}" for name in ("B", "T") if row.get(name)]
    return ", ".join(parts + ([f"{row['devices']} devices"] if "devices" in row else []))
