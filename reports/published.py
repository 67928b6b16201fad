"""The published tables of reports/published/, and our values beside them.

A file is a source: title, author, date, url (null where no address was recorded), caveats and, where our gains are
others than the published ones, the reason as `apart`; then `tables`, in the
source's order, and `not_applicable`, what our results can't stand beside, with `why`. What a table says of device, B,
T, metric, unit, devices and kind holds for its rows unless a row says otherwise. A row's `ours` names our counterpart
beside it, according to the table's `quantity`: a rung or peer; a pair of them to form a ratio from; files to count the
lines of; phases, kernel types, ops or counters of our profile; or null. A row of PyTorch's numbers has a peer as `ours`, and
further counterparts, such as our rungs, in a list `beside`: a column each. Gains are judged by the first column of
which anything is measured. `reference` names the row that ratios are against, by default the first; `ratios` is false
where there is none to form; `cumulative` rows are judged against the row above too. `model` is ours where that isn't
gpt2, and `with` the row of a profile whose type a row shares.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

import sources
from profiles import Profile
from results import GIB, Results, Row, Workload

# The sources that come first; others follow by name.
ORDER = ["gunton-2024-07", "karpathy-video-chapters", "raschka-llm-training-speed", "llmc-2024-05-03"]

# A gain of ours that differs from the published one by no more than this share counts as the same.
SAME = 0.15

UNMEASURED = "not measured"  # summary()'s column for published gains that we have not measured

# Ladders of scripts/peers that published rows stand beside, with the model that each trains where that isn't ours.
PEER_LADDERS = {"pytorch-options": "", "raschka-pytorch": "raschka-pytorch"}

FOLDER = Path(__file__).parent / "published"
ROOT = FOLDER.parent.parent


def _memory(kind: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.memory, kind) / GIB or None if row.memory else None


def _scaled(name: str, factor: float) -> Callable[[Row], float | None]:
    return lambda row: None if getattr(row, name) is None else getattr(row, name) * factor


def _first_step_ms(row: Row) -> float | None:
    """The longest first step of a row's rounds: with an empty cache of the compiler, if a round had one."""
    return max((steps["step_ms"][0] for steps in row.rounds if steps and steps["step_ms"]), default=row.first_step_ms)


# For each quantity of a single row: the function that gives its value in the table's unit, and whether more is better.
OF_ROW: dict[str, tuple[Callable[[Row], float | None], bool]] = {
    "step_ms": (lambda row: row.median_ms, False),
    "tokens_per_second": (lambda row: row.tokens_per_second, True),
    "first_step_ms": (_first_step_ms, False),
    "first_step_s": (lambda row: (ms := _first_step_ms(row)) and ms / 1e3, False),
    "mfu_percent": (_scaled("mfu_nanogpt", 100), True),
    "live_gib": (_memory("live"), False),
    "reserved_gib": (_memory("reserved"), False),
    "process_gib": (_memory("process"), False),
}

# For each quantity of two rows: the function from the second row's speed-up to the table's value, and its inverse.
OF_PAIR: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "reduction": (lambda gain: 100 * (1 - 1 / gain), lambda percent: 1 / (1 - percent / 100)),
    "speedup": (lambda gain: gain, lambda gain: gain),
    "advantage": (lambda gain: 100 * (gain - 1), lambda percent: 1 + percent / 100),
}


# For each quantity of a profile: the function that gives ms by phase, kernel type or op, or counters. Tables show shares
# of the ms, which don't compare across devices, and counters for as many tokens as the source's.
OF_PROFILE: dict[str, Callable[[Profile], dict[str, float]]] = {
    "phases": lambda profile: profile.phases,
    "kernel_types": lambda profile: {name: ms for name, (ms, _) in profile.kernel_types.items()},
    "op_tflops": lambda profile: {op.name: op.ms for op in profile.ops if op.tflops},
    "counters": lambda profile: profile.counters,
}


@dataclass
class Ours:
    """Our counterpart of a published row. Texts, "" where there is nothing."""

    name: str = ""
    value: str = ""
    ratio: str = ""  # gain over the reference row
    step: str = ""  # gain over the row above
    same_device: str = ""  # our value over the published one
    note: str = ""  # where the value is from, if the rest of its column is from elsewhere


@dataclass
class Line:
    """A row of a table. Texts, "" where there is nothing."""

    variant: str
    values: list[str]
    ratio: str = ""
    step: str = ""
    columns: list[Ours] = field(default_factory=lambda: [Ours()])  # the row is judged by the first
    agreement: float | None = None  # our ratio over the published one
    step_agreement: float | None = None
    note: str = ""

    @property
    def ours(self) -> Ours:
        return self.columns[0]

    @property
    def notes(self) -> str:
        return "; ".join(filter(None, (self.note, *(ours.note for ours in self.columns))))


_TEXTS = {"published", "ours", "beside", "note"}  # columns of text


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
    speed: bool = True  # whether the table is of speed, not of memory
    of_ratios: bool = False  # its values are ratios themselves

    def has(self, column: str) -> bool:
        """Whether a line has something in a column, named as in Line: "ratio", "ours.ratio"."""
        return any(map(attrgetter(column), self.lines))

    @property
    def told(self) -> dict:
        """The table in the form of those of `stepladder report`: columns, and the text of each cell."""
        def of_other(place: int, name: str) -> Callable[[Line], str]:
            return lambda line: getattr(line.columns[place], name)

        def agreement(name: str) -> Callable[[Line], str]:
            return lambda line: f"{value:.2f}" if (value := getattr(line, name)) else ""

        columns = [("published", attrgetter("variant"))]
        columns += [(header, lambda line, place=place: line.values[place]) for place, header in enumerate(self.headers)]
        for name, *of_name in (
                ("ratio", ("×", attrgetter("ratio"))), ("step", ("× above", attrgetter("step"))),
                ("ours.name", ("ours", attrgetter("ours.name")), ("value", attrgetter("ours.value"))),
                ("ours.ratio", ("×", attrgetter("ours.ratio"))), ("agreement", ("ours / published", agreement("agreement"))),
                ("ours.step", ("× above", attrgetter("ours.step"))),
                ("step_agreement", ("ours / published", agreement("step_agreement"))),
                ("ours.same_device", ("same device", attrgetter("ours.same_device")))):
            columns += of_name if self.has(name) and not (self.of_ratios and name in ("ratio", "ours.ratio")) else []
        for place in range(1, max(len(line.columns) for line in self.lines)):
            if any(line.columns[place].value for line in self.lines):
                columns += [("beside", of_other(place, "name")), ("value", of_other(place, "value"))]
                columns += [("×", of_other(place, "ratio"))] if self.has("ratio") and not self.of_ratios else []
        columns += [("note", attrgetter("notes"))] if self.has("notes") else []
        return _told([(title, "left" if title in _TEXTS else "right") for title, _ in columns],
                     [[cell(line) or "-" for _, cell in columns] for line in self.lines])


@dataclass
class Source:
    name: str
    title: str
    by: str
    url: str | None
    caveats: list[str]
    tables: list[Table]
    apart: str = ""  # why some of our gains differ

    @property
    def judged(self) -> dict[str, list[bool]]:
        """For each kind of gain a list: of each published gain of which ours is known, whether ours agrees with it. UNMEASURED
        has an entry for each published gain of which ours has no run."""
        lines = [(table.speed, line) for table in self.tables for line in table.lines]
        return {"speed-ups": [agrees(line.agreement) for speed, line in lines if speed and line.agreement],
                "over the row above": [agrees(line.step_agreement) for _, line in lines if line.step_agreement],
                "memory": [agrees(line.agreement) for speed, line in lines if not speed and line.agreement],
                UNMEASURED: [False for _, line in lines if line.ratio and line.ours.name and not line.ours.value]}

    @property
    def answer(self) -> str:
        """Says which speed-ups of the first table with ours beside them are ours too, which aren't, and why."""
        lines = next(([line for line in table.lines if line.agreement] for table in self.tables
                      if table.speed and any(line.agreement for line in table.lines)), [])
        same, other = ([f"{line.variant} ({line.ours.ratio}, published {line.ratio})" for line in lines
                        if agrees(line.agreement) == wanted] for wanted in (True, False))
        steps = [f"{line.variant} ({line.ours.step}, published {line.step})" for line in lines
                 if line.step_agreement and not agrees(line.step_agreement)]
        sentences = [f"Speed-ups within {100 * SAME:.0f} % of the published ones: {', '.join(same)}."] if same else []
        if other:
            sentences.append(f"Others: {', '.join(other)}.")
        if steps:
            sentences.append(f"Others over the row above: {', '.join(steps)}.")
        return " ".join(filter(None, [*sentences, self.apart if other or steps else ""]))


def summary(reproduced: Sequence[Source]) -> dict:
    """How many published gains with ours beside them are ours too: a table as Table.told, a row a source, and all; without
    rows where ours stand beside none."""
    rows = [(source.title, source.judged) for source in reproduced if any(source.judged.values())]
    if not any(of for _, judged in rows for kind, of in judged.items() if kind != UNMEASURED):
        rows = []
    if rows:
        rows.append(("all", {kind: [one for _, judged in rows for one in judged[kind]] for kind in rows[0][1]}))
    cells = [[title, *(f"{sum(of)} of {len(of)}" if of else "-" for kind, of in judged.items() if kind != UNMEASURED),
              str(len(judged[UNMEASURED]) or "-")] for title, judged in rows]
    titles = ("source", *(kind for kind in rows[0][1] if kind != UNMEASURED), UNMEASURED) if rows else ()
    return _told([(title, "left" if title == "source" else "right") for title in titles], cells)


def _told(columns: Sequence[tuple[str, str]], rows: list[list[str]]) -> dict:
    """A table in the form of those of `stepladder report`, from its rows and each column's title and alignment."""
    return {"heading": "", "rows": rows,
            "columns": [{"title": title, "unit": "", "align": align, "priority": 0, "reasons": False, "meaning": ""}
                        for title, align in columns]}


def agrees(ratio: float) -> bool:
    """Whether a gain that is `ratio` times the published one is the same."""
    return abs(ratio - 1) <= SAME


def told_by(results: Sequence[Results]) -> bool:
    """Whether a published row may stand beside one of `results`: none may beside trainers of one's own."""
    return not results or any(workload.ladder in ("", *PEER_LADDERS) for one in results for workload in one.workloads)


def load() -> list[dict]:
    """The sources, those of ORDER first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    return sorted(found, key=lambda one: ORDER.index(one["source"]) if one["source"] in ORDER else len(ORDER))


def reproduce(results: list[Results], profiles: Sequence[Profile] = ()) -> list[Source]:
    """Every source with our values."""
    return [Source(source["source"], source["title"], ", ".join(filter(None, (source["author"], source["date"]))),
                   source["url"], source["caveats"],
                   [_table(table, results, profiles) for table in source["tables"] + source["not_applicable"]],
                   source.get("apart", ""))
            for source in load()]


def figures(value: float) -> str:
    """About four significant digits; from 1e15 on, where a double's digits end, as a power of ten."""
    size = abs(value)
    if size >= 1e15:
        return f"{value:.2e}"
    return f"{value:,.{3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0}f}"


def _table(table: dict, results: list[Results], profiles: Sequence[Profile]) -> Table:
    columns = table.get("columns") or [table]
    shown = Table(table["title"], _setting(table), [f"published, {column['unit']}" for column in columns], [],
                  table.get("notes", []), missing=table.get("ours_missing", ""), why=table.get("why", ""),
                  speed=not table.get("quantity", "").endswith("_gib"), of_ratios=table.get("quantity") == "speedup")
    for row in table["rows"]:
        note = "; ".join(filter(None, (_unlike(row), row.get("note"))))
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


@dataclass
class _Found:
    """A row of ours, and where it was measured."""

    row: Row
    results: Results
    workload: Workload


class _Column:
    """Our counterparts of a table's rows, from the workload that has most of them; among several such workloads, from the
    one whose device and batch are most like the table's."""

    def __init__(self, table: dict, names: list[str | list[str] | None], results: list[Results]):
        self.table, self.names, self.all = table, names, results
        wanted = [name for item in names if item for name in (item if isinstance(item, list) else [item])]

        def likeness(candidate: tuple[Results, Workload]) -> tuple:
            _, workload = candidate
            found = sum(1 for name in wanted if _named(workload, name))
            far = abs(math.log2(workload.B / (table["B"] or workload.B)))
            return found, _same_device(table, workload.device), -far

        candidates = [place for place in self._workloads() if place[1].devices == table.get("devices", 1)]
        best = max(candidates, key=likeness, default=None)
        self.main = best if best and likeness(best)[0] else None
        self.found = [[self._find(name, row) for name in (item if isinstance(item, list) else [item])] if item else []
                      for item, row in zip(names, table["rows"], strict=True)]

    def _workloads(self) -> Iterator[tuple[Results, Workload]]:
        for one in self.all:
            for workload in one.workloads:
                if workload.model == (PEER_LADDERS.get(workload.ladder) or self.table.get("model", "gpt2")) \
                        and workload.T == (self.table["T"] or workload.T):
                    yield one, workload

    @property
    def setting(self) -> str:
        workload = self.main[1]
        return f"{workload.device}, {workload.model}, B = {workload.B}, T = {workload.T}"

    def _find(self, name: str, row: dict) -> _Found | None:
        """Our counterpart on the main workload, or on one with the batch or devices that the row says are its own; at any
        batch for a rung that chooses its own."""
        if not self.main:
            return None
        main, workload = self.main
        devices, batch = row.get("devices", workload.devices), row.get("B", workload.B)
        any_batch = sources.LADDER.get(name.split("/")[-1], {}).get("batch") == "largest"
        batches = {batch} if devices == workload.devices else {batch, workload.B}
        places = [(one, other) for one, other in self._workloads()
                  if (other.device, other.devices) == (workload.device, devices) and (any_batch or other.B in batches)]
        places.sort(key=lambda place: (place[1].B != batch, place[1] is not workload, place[0] is not main))
        return next((_Found(_named(other, name), one, other) for one, other in places if _named(other, name)), None)

    @property
    def missing(self) -> list[str]:
        """The names of counterparts that were not measured; if none of the column was, the names of their ladders."""
        listed = [(item, found) if isinstance(item, list) else ([item], found)
                  for item, found in zip(self.names, self.found) if item]
        names = [name for item, found in listed for name, one in zip(item, found) if one is None]
        return list(dict.fromkeys(name.split("/")[0] if self.main is None else name for name in names))

    def ours(self, i: int) -> Ours:
        """Our cell of row i, its value still to be filled in."""
        item, found = self.names[i], self.found[i]
        cell = Ours(" → ".join(item) if isinstance(item, list) else item or "")
        for one in filter(None, found):
            if one.workload is not self.main[1]:
                cell.note = f"{cell.name}: B = {one.workload.B}, of {one.results.name}"
        return cell


def _named(workload: Workload, name: str) -> Row | None:
    """The row called `name` if it is ok; a rung of ours only with the settings that it has by default, though in any
    16-bit type, as not every device has the default. In the results of a ladder, its own rows are called without the
    ladder's name."""
    row = workload.find(name.removeprefix(f"{workload.ladder}/")) if "/" in name or not workload.ladder else None
    if row is None or not row.ok:
        return None
    others = [setting for setting in row.settings.split(", ") if setting and not setting.startswith("dtype ")]
    return row if "/" in name or not others else None


def _beside(table: dict, quantity: str, results: list[Results], shown: Table) -> None:
    """Fills in the published ratios, and our columns."""
    rows = table["rows"]
    names = [[row["ours"], *row.get("beside", [])] for row in rows]
    width = max(map(len, names))
    columns = [_Column(table, [row[i] if i < len(row) else None for row in names], results) for i in range(width)]
    missing = columns[0].missing
    columns.sort(key=lambda column: column.main is None)  # rows are judged by the first with a measurement
    if columns[0].main is None:
        shown.missing = f"none of its rows was measured on {table.get('model', 'gpt2')}" + \
            (f" with T = {table['T']}" if table["T"] else "") + \
            (f" on {table['devices']} devices" if table.get("devices", 1) > 1 else "")
    else:
        shown.ours_setting = "; ".join(dict.fromkeys(column.setting for column in columns if column.main))
        if missing:
            shown.notes = [*shown.notes, f"Not measured: {', '.join(missing)}."]
    for i, line in enumerate(shown.lines):
        line.columns = [column.ours(i) for column in columns]
    if quantity in OF_PAIR:
        _fill_pairs(rows, quantity, columns, shown)
        return
    reference = next((i for i, row in enumerate(rows) if row["variant"] == table.get("reference")), 0)
    for i, (row, line) in enumerate(zip(rows, shown.lines)):
        above = i - 1 if table.get("cumulative") and i - 1 > reference else None
        others = [None if i == reference or not table.get("ratios", True) else reference, above]
        more_is_better = OF_ROW[quantity][1]
        published = [None if other is None else _gain(rows[other]["value"], row["value"], more_is_better) for other in others]
        line.ratio, line.step = ("" if gain is None else f"{gain:.2f}×" for gain in published)
        for column, cell in zip(columns, line.columns):
            gains = _fill(cell, column, quantity, i, others)
            if column is columns[0]:
                line.agreement, line.step_agreement = (
                    gain / theirs if gain and theirs else None for gain, theirs in zip(gains, published))


def _fill_pairs(rows: list[dict], quantity: str, columns: list[_Column], shown: Table) -> None:
    """Fills in the value of each row's pair of our rows, judged by how many times as fast the second is."""
    value_of, gain_from = OF_PAIR[quantity]
    for i, (row, line) in enumerate(zip(rows, shown.lines)):
        published = gain_from(row["value"])
        line.ratio = f"{published:.2f}×"
        for column, cell in zip(columns, line.columns):
            pair = column.found[i]
            if len(pair) != 2 or not all(pair):
                continue
            gain = _gain_of(pair[1], pair[0])
            cell.value, cell.ratio = figures(value_of(gain)), f"{gain:.2f}×"
            if column is columns[0]:
                line.agreement = gain / published


def _fill(cell: Ours, column: _Column, quantity: str, i: int, others: list[int | None]) -> list[float | None]:
    """Fills in a cell's value and its gains over other rows, which it returns."""
    value_of, more_is_better = OF_ROW[quantity]
    at = [(column.found[place] or [None])[0] if place is not None else None for place in (i, *others)]
    values = [value_of(one.row) if one else None for one in at]
    if values[0] is None:
        return [None, None]
    cell.value = figures(values[0])
    row, table = column.table["rows"][i], column.table
    workload = at[0].workload
    if _same_device(table, workload.device) and workload.B == (row.get("B") or table["B"] or workload.B):
        cell.same_device = f"{values[0] / row['value']:.2f}"
    gains = [None if value is None else _gain_of(at[0], other) if quantity in ("step_ms", "tokens_per_second")
             else _gain(value, values[0], more_is_better) if _as_many(table, place, i, other, at[0]) else None
             for place, other, value in zip(others, at[1:], values[1:])]
    cell.ratio, cell.step = ("" if gain is None else f"{gain:.2f}×" for gain in gains)
    return gains


def _as_many(table: dict, before: int, after: int, ours_before: _Found, ours_after: _Found) -> bool:
    """Whether our batch grows from one row to the other as the published one does, for quantities that grow with it."""
    batches = [table["rows"][i].get("B") or table["B"] for i in (before, after)]
    return None in batches or ours_after.workload.B * batches[0] == ours_before.workload.B * batches[1]


def _gain_of(after: _Found, before: _Found) -> float:
    """How many times as fast `after` is as `before`, per token. Rounds are paired only within a part; a rung that was
    measured in both workloads is compared with its own there."""
    if after.results is before.results and (after.workload is before.workload or not after.workload.find(before.row.rung)):
        return after.row.speedup_over(before.row)
    return after.row.tokens_per_second / before.row.tokens_per_second


def _beside_profile(table: dict, quantity: str, profiles: Sequence[Profile], shown: Table) -> None:
    """Fills in shares of the step from the fastest profile, from one in 8 bits only if there are no others, as no
    published profile is in 8 bits. A row's `ours` are phases or kernel types, added up."""
    parts_of = OF_PROFILE[quantity]
    profile = min((one for one in profiles if one.workload.startswith("gpt2,") and sum(parts_of(one).values()) > 0),
                  key=lambda one: (sources.LADDER.get(one.rung, {}).get("math") == "fp8", one.ms), default=None)
    if profile is None:
        shown.missing = f"no profile of gpt2 {'with --counters ' if quantity == 'counters' else ''}was given"
        return
    shown.ours_setting = f"{profile.device}, {profile.workload}, profile of {profile.rung}"
    parts = parts_of(profile)
    if quantity == "counters":
        shown.ours_setting += ", for as many tokens"
        as_many = table["B"] * table["T"] / profile.tokens
        for row, line in zip(table["rows"], shown.lines):
            if row["ours"]:
                unit = 1e9 if row.get("unit") == "1e9" else GIB
                line.columns = [Ours(" + ".join(row["ours"]), figures(sum(map(parts.get, row["ours"])) * as_many / unit))]
        return
    if quantity == "op_tflops":
        rates = {op.name: op.tflops for op in profile.ops if op.tflops}
        for row, line in zip(table["rows"], shown.lines):
            time = sum(parts.get(name, 0.0) for name in row["ours"])
            line.columns = [Ours(" + ".join(row["ours"]))]
            if time:
                rate = sum(parts.get(name, 0.0) * rates.get(name, 0.0) for name in row["ours"]) / time
                line.columns[0].value = figures(rate)
        return
    shown.ours_setting += ", % of the step" if quantity == "phases" else ", % of the kernels' time"
    for row, line in zip(table["rows"], shown.lines):
        if row["ours"]:
            share = 100 * sum(parts.get(name, 0.0) for name in row["ours"]) / sum(parts.values())
            line.columns = [Ours(" + ".join(row["ours"]), f"{share:.1f} %")]
    _add_up(table, shown)


def _add_up(table: dict, shown: Table) -> None:
    """Notes the published share of rows of one type, beside the first of them."""
    percent = next((i for i, column in enumerate(table.get("columns", [])) if column["unit"] == "%"), None)
    named = {line.variant: line for line in shown.lines}
    for variant in dict.fromkeys(row["with"] for row in table["rows"] if "with" in row):
        rows = [row for row in table["rows"]
                if variant in (row["variant"].removeprefix("llmc_profile:"), row.get("with"))]
        others = ", ".join(row["variant"].removeprefix("llmc_profile:") for row in rows if "with" in row)
        named[variant].note = f"{sum(row['values'][percent] for row in rows):.1f} % with {others}"


def _gain(reference: float, value: float, more_is_better: bool) -> float:
    """How many times better `value` is than the reference."""
    return value / reference if more_is_better else reference / value


def _same_device(table: dict, device: str) -> bool:
    return device in (table["device"], *table.get("same_device", []))


def _count_lines(patterns: list[str] | None, line: Line) -> None:
    if patterns:
        files = [path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.is_file()]
        lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
        line.columns = [Ours(", ".join(patterns), f"{lines:,}" if files else "")]


def _setting(table: dict) -> str:
    devices = table.get("devices", 1)
    where = table["device"] or "device not named"
    parts = [f"{devices} × {where}" if devices > 1 else where]
    parts += [f"{name} = {table[name]}" for name in ("B", "T") if table[name]]
    return ", ".join(parts) + (", illustrative" if table.get("kind") == "illustrative" else "")


def _unlike(row: dict) -> str:
    """The text of the fields that a row sets for itself instead of its table: metric, B, T and devices."""
    parts = [row["metric"].replace("_", " ")] if "metric" in row else []
    parts += [f"{name} = {row[name]}" for name in ("B", "T") if row.get(name)]
    return ", ".join(parts + ([f"{row['devices']} devices"] if "devices" in row else []))
