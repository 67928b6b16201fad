"""The page of one or several results: one HTML file that needs nothing else, and the published tables as Markdown."""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2
import published
import sources
from markupsafe import Markup, escape
from published import figures
from profiles import Profile
from results import (GAINS, GIB, PEERS, Estimate, Gain, Ratio, Results, ResultsError, Row, Workload, groups_of,
                     interval_name, plain, rounds_of, together, with_interval)

TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent / "page"), autoescape=True,
                               trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)


@dataclass
class Cell:
    """`text` with, smaller, `more`; `hint` shows where the pointer rests; sorted by `key`."""

    text: str = "–"
    more: str = ""
    hint: str = ""
    key: float | str | None = None
    href: str = ""
    kind: str = ""  # "text" or "bad"; a number else


@dataclass
class Column:
    name: str
    hint: str = ""
    cell: Callable[[Row], Cell] | None = None  # of a table of rungs
    absolute: bool = False  # milliseconds, tokens, bytes: not beside another device's
    device: str = ""  # below the name, where columns differ by it


@dataclass
class Chart:
    name: str
    caption: str
    svg: Markup | None
    title: Markup | str = ""
    missing: str = ""


# ---- the ladder's tables ---------------------------------------------------------------------------------------------


def _number(value: float | None, text: str = "", more: str = "", hint: str = "") -> Cell:
    return Cell() if value is None else Cell(text or figures(value), more, hint, value)


def _between(interval: tuple[float, float] | None) -> str:
    return f"{figures(interval[0])} to {figures(interval[1])}" if interval else ""


def _sure(row: Row, ratio: Ratio) -> str:
    """How sure a ratio of `row` to another is: its interval, after what it follows."""
    if not ratio.interval:
        return ""
    return f"; {interval_name(ratio.rounds or row.counted)} {ratio.interval[0]:.2f}× to {ratio.interval[1]:.2f}×"


def _times(row: Row, ratio: Ratio | None) -> Cell:
    if ratio is None:
        return Cell()
    return _number(ratio.value, f"{ratio.value:.2f}×", hint=f"against {ratio.against}{_sure(row, ratio)}")


def _rung(row: Row) -> Cell:
    return Cell(row.rung, row.changes, key=row.rung, kind="text",
                href=f"#diff-{row.rung}" if row.diff else "")


def _status(row: Row) -> Cell:
    if row.ok and not row.disturbance:
        return Cell("ok", key="ok", kind="text")
    status = row.status if not row.ok else row.disturbance
    return Cell(status, row.reason, key=status, kind="bad")


def _measured(estimate: Estimate | None, scale: float = 1.0) -> Cell:
    if estimate is None:
        return Cell()
    between = tuple(scale * end for end in estimate.interval) if estimate.interval else None
    return _number(scale * estimate.value, hint=_between(between))


def _joules(row: Row) -> Cell:
    return _measured(row.joules) if row.joules else Cell(hint=row.joules_unknown)


def _memory(row: Row) -> Cell:
    if not row.live_gib:
        return Cell()
    hint = f"arena {row.live_gib:.2f} GiB, whole process {row.memory.process / GIB:.2f} GiB"
    return _number(row.live_gib, f"{row.live_gib:.1f}", hint=hint)


def _percent(row: Row) -> Cell:
    if row.mfu_nanogpt is None:
        return Cell("n/a" if row.ok else "–", hint="the device's peak is not known" if row.ok else "")
    hint = f"by llm.c's formula {100 * row.mfu_llmc:.1f} %" if row.mfu_llmc else ""
    return _number(row.mfu_nanogpt, f"{100 * row.mfu_nanogpt:.1f}", hint=hint)


def _columns(workload: Workload, rows: list[Row]) -> list[Column]:
    """Of rows that are all rungs, or all peers."""
    ours = not rows[0].peer
    columns = [
        Column("rung", "", _rung) if ours else
        Column("peer", "", lambda row: Cell(row.rung, key=row.rung, kind="text")),
        Column("ms", f"median over rounds of each run's median step{with_interval(rows)}", lambda row:
               _number(row.median_ms, more=_between(row.interval_ms)) if row.ok else Cell(), absolute=True),
        Column("tok/s", "tokens per second", lambda row: _number(row.tokens_per_second), absolute=True)]
    if ours:
        columns += [Column("× previous", "times as fast as the rung before", lambda row: _times(row, row.previous)),
                    Column("× baseline", "times as fast as the lowest rung", lambda row: _times(row, row.baseline))]
        for peer in dict.fromkeys(row.peer for row in workload.all_peers):
            def against(row: Row, peer: str = peer) -> Row | None:
                ratio = row.against(peer)
                return workload.find(ratio.against) if ratio else None
            title = PEERS.get(peer, peer)
            if peer not in _single_peers(workload):
                columns.append(Column(f"{title} ms", f"{title}'s counterpart in the same rounds", lambda row,
                                      against=against: _number(against(row).median_ms, hint=against(row).rung)
                                      if against(row) else Cell(), absolute=True))
            columns += [
                Column(f"× {title}", f"times as fast as {title}", lambda row, peer=peer:
                       _times(row, row.against(peer)))]
    columns += [
        Column("MFU %", "model FLOPs utilisation by nanoGPT's formula", _percent),
        Column("GiB", "live memory at its peak", _memory, absolute=True),
        Column("loss", "of the last training step", lambda row:
               _number(row.final_loss, "" if row.final_loss is None else f"{row.final_loss:.4f}")),
        Column("val loss", "validation loss after the last step", lambda row:
               _number(row.val_loss, "" if row.val_loss is None else f"{row.val_loss:.4f}")),
        Column("status", "", _status),
        Column("first ms", "the first step, compiling and searching included", lambda row: _number(row.first_step_ms),
               absolute=True),
        Column("Mcycles", "millions of cycles that an SM's clock counted in a step", lambda row:
               _measured(row.cycles, 1e-6), absolute=True),
        Column("J/step", "joules of a step, all devices together", _joules, absolute=True),
        Column("tok/J", "tokens a joule", lambda row: _measured(row.tokens_per_joule), absolute=True)]
    return columns


def _single_peers(workload: Workload) -> dict[str, Row]:
    """Peers that are one trainer, the same beside every rung."""
    return {row.peer: row for row in workload.peers}


def _peers_note(workload: Workload) -> str:
    """In place of a column that holds one value."""
    return " ".join(f"{PEERS.get(peer, peer)}: {figures(row.median_ms)} ms a step, one trainer beside all rungs."
                    for peer, row in _single_peers(workload).items())


def _table(columns: list[Column], rows: list[Row], ratios_only: bool) -> dict:
    """Of the columns that have something to say of `rows`."""
    columns = [column for column in columns if not (ratios_only and column.absolute)
               and any(column.cell(row).text != "–" for row in rows)]
    return {"columns": columns, "rows": [[column.cell(row) for column in columns] for row in rows]}


def _measurements(workload: Workload, rows: list[Row], ratios_only: bool) -> dict | None:
    return _table(_columns(workload, rows), rows, ratios_only) if rows else None


def _time_to_loss(workload: Workload, ratios_only: bool) -> dict | None:
    """What training until a loss took, of rungs and peers alike; of what none knows there is no column."""
    rows = [row for row in workload.rows + workload.all_peers if row.to_loss]
    if not rows:
        return None
    firsts = {row.to_loss.first.against for row in rows if row.to_loss.first}  # that the rest is held against
    first = firsts.pop() if len(firsts) == 1 else "first"

    def reached(row: Row) -> Cell:
        count = row.to_loss.reached
        return Cell(f"{count} of {row.to_loss.rounds}", key=count, kind="" if count else "bad")

    def steps(row: Row) -> Cell:
        known = row.to_loss.steps
        return _number(known.value, f"{known.value:,.0f}", hint=_between(known.interval)) if known else Cell()

    def seconds(row: Row) -> Cell:
        known = row.to_loss.seconds
        return _number(known.value, more=_between(known.interval)) if known else Cell()

    def faster(row: Row) -> Cell:
        return _times(row, row.to_loss.first)

    columns = [
        Column("trained to a loss", "", lambda row: replace(_rung(row), more="")),
        Column("val loss", "the validation loss asked for", lambda row:
               _number(row.to_loss.loss, f"≤ {row.to_loss.loss:g}")),
        Column("reached", "in how many rounds; the numbers are of these", reached),
        Column("seconds", "of training, all steps by their clock, evaluations left out: median over rounds, with "
               "its interval", seconds, absolute=True),
        Column(f"× {first}",
               "times as fast as the first that reached it: median over the rounds in which both did", faster),
        Column("steps", "median over rounds", steps),
        Column("Mtokens", "millions of tokens, of all devices", lambda row: _measured(row.to_loss.tokens, 1e-6)),
        Column("kJ", "kilojoules, of all devices", lambda row: _measured(row.to_loss.joules, 1e-3), absolute=True)]
    return _table(columns, rows, ratios_only)


# ---- the answer ------------------------------------------------------------------------------------------------------


def _fastest(one: Results) -> tuple[Workload, Row] | None:
    """The fastest rung, of those on the fewest devices, with its workload."""
    measured = [(workload, row) for workload in one.workloads for row in workload.rows if row.ok and not row.disturbance]
    return max(measured, default=None,
               key=lambda pair: (-pair[1].world_size, pair[1].tokens_per_second or 1 / pair[1].median_ms))


def _answer(one: Results, others: list[Results], ratios_only: bool) -> dict | None:
    """The fastest rung, by how much, in how much memory, and against whom: each peer's fastest in the same rounds.
    Where `one` lacks the peer on this batch, from `others` of the device, or on the nearest batch."""
    if not (fastest := _fastest(one)):
        return None
    workload, best = fastest
    tiles = []
    if not ratios_only:
        rate = f"{best.tokens_per_second:,.0f} tokens/s" if best.tokens_per_second else ""
        step = f"{figures(best.median_ms)} ms"
        several = len({other.B for other in one.workloads if other.rows}) > 1  # batches, among which rates compare
        wider = any(other.devices > workload.devices for other in one.workloads if other.rows)
        on = " on one device" if wider and workload.devices == 1 else ""
        tiles.append((f"Most tokens a second{on}", rate, f"{step} a step") if several and rate else
                     (f"Fastest step{on}", step, rate))
    if best.baseline:
        baseline = workload.find(best.baseline.against)
        tiles.append(("Against the baseline", f"{best.baseline.value:.1f}× as fast",
                      "; ".join((_against(best, best.baseline, baseline, ratios_only),
                                 *(f"{best.rung} {where}" for where in _diverged_in(best, others))))))
    candidates = [item for other in [one, *others] for item in _beside_peers(other, workload, best.math)]
    candidates.sort(key=lambda item: abs(math.log2(item[1].B / workload.B)))
    compared = {item[3].peer: item for item in reversed(candidates)}
    for peer in dict.fromkeys([*(PEERS if best.ours else ()), *compared]):
        title = PEERS.get(peer, peer)
        if peer not in compared:
            tiles.append((f"Against {title}", "not measured", f"run with --peer {peer}"))
            continue
        other, where, row, ratio = compared[peer]
        more = _against(row, ratio, where.find(ratio.against), ratios_only)
        if other is not one or row is not best:
            more += (f"; {row.rung} in {other.name}" + ("" if where.B == workload.B else f" at B = {where.B}")
                     + ("" if ratios_only else f", {figures(row.median_ms)} ms"))
        tiles.append((f"Against {title}'s fastest", f"{ratio.value:.2f}× as fast", more))
    if beside := _fastest_beside([one, *others], workload, best):
        other, _, row = beside
        more = [f"{ratio.value:.2f}× as fast as {PEERS.get(ratio.against, ratio.against)}"
                for ratio in (*row.peers, row.previous) if ratio]
        head = more.pop(0) if ratios_only and more else f"{figures(row.median_ms)} ms"
        notes = [] if other is one else [f"measured in {_called(other)}"]
        notes += _diverged_in(row, [one, *others])
        tiles.append((f"Beside the ladder: {row.rung}", head, "; ".join(filter(None, (", ".join(more), *notes)))))
    if best.live_gib:
        lowest = workload.find(best.baseline.against) if best.baseline else None
        if ratios_only:
            if lowest and lowest.live_gib:
                tiles.append(("Memory", f"{lowest.live_gib / best.live_gib:.1f}× less",
                              f"than {best.baseline.against}"))
        else:
            beside = {"baseline": lowest, "PyTorch": best.counterpart}
            tiles.append(("Live memory", f"{best.live_gib:.1f} GiB", ", ".join(
                f"{name} {row.live_gib:.1f} GiB" for name, row in beside.items() if row and row.live_gib)))
    return {"workload": workload, "rung": best.rung, "tiles": tiles, "device": one.device, "row": best}


def _diverged_in(row: Row, results: list[Results]) -> list[str]:
    """In which measurements the rung learned something else."""
    return [f"diverged in {_called(one)}" for one in results
            if any(same.rung == row.rung and same.status == "diverged"
                   for workload in one.workloads for same in workload.rows)]


def _called(one: Results) -> str:
    """A file by its name, a campaign's part as one, of which it is told what it measures."""
    return f"part {one.name}" if one.about else one.name


def _beside_ladder(results: list[Results], like: Workload) -> dict[str, tuple[Results, Workload, Row]]:
    """The trainers beside the ladder on a workload like another, by name: of each the row of the most rounds."""
    found: dict[str, tuple[Results, Workload, Row]] = {}
    for one in results:
        for workload in one.workloads:
            for row in workload.rows if workload.same(like) else []:
                if row.ok and row.beside and not row.disturbance and (
                        row.rung not in found or row.counted > found[row.rung][2].counted):
                    found[row.rung] = one, workload, row
    return found


def _fastest_beside(results: list[Results], like: Workload, best: Row) -> tuple[Results, Workload, Row] | None:
    """The fastest trainer beside the ladder on the workload of the fastest rung, where it is faster still."""
    fastest = min(_beside_ladder(results, like).values(), key=lambda item: item[2].median_ms, default=None)
    return fastest if fastest and fastest[2].median_ms < best.median_ms else None


def _by_device(by_device: dict[str, list[Results]]) -> dict | None:
    """Ratios of one ladder's rungs, and of trainers beside it, on each device, on the first workload that several
    devices have; what failed in the ladder's own results has none. None where no workload is of several."""
    if len(by_device) < 2:
        return None

    def rows_on(results: list[Results], like: Workload) -> dict[str, Row]:
        own = next((workload.rows for one in results for workload in one.workloads
                    if workload.rows and workload.same(like)), [])
        there, settings = {row.rung for row in own}, {row.settings for row in own}
        beside = [row for *_, row in _beside_ladder(results, like).values()
                  if row.rung not in there and row.settings in settings]
        return {row.rung: row for row in [*own, *beside]
                if row.ok and not row.disturbance and (row.previous or row.baseline or row.peers)}

    for one, like in ((one, workload) for ones in by_device.values() for one in ones for workload in one.workloads):
        rows_of = {device: rows for device, ones in by_device.items()
                   if (rows := rows_on([other for other in ones if other.ladder == one.ladder], like))}
        if len(rows_of) > 1:
            break
    else:
        return None
    rungs: dict[str, list[Row]] = {}
    for rows in rows_of.values():
        for row in rows.values():
            rungs.setdefault(row.rung, []).append(row)
    rungs = dict(sorted(rungs.items(), key=lambda item: item[1][0].place))
    peers = dict.fromkeys(ratio.peer for rows in rungs.values() for row in rows for ratio in row.peers)
    ratios = [("previous", lambda row: row.previous), ("baseline", lambda row: row.baseline),
              *((PEERS.get(peer, peer), lambda row, peer=peer: row.against(peer)) for peer in peers)]

    def cell(rung: str, device: str, ratio_of: Callable[[Row], Ratio | None]) -> Cell:
        row = rows_of[device].get(rung)
        if not row or not (ratio := ratio_of(row)):
            return Cell()
        alike = {other.against for one in rungs[rung] if (other := ratio_of(one))} == {ratio.against}
        return replace(_times(row, ratio), more="" if alike else f"of {ratio.against}")

    called = _shortly(rows_of)
    settings = {device: next(iter(rows.values())).settings for device, rows in rows_of.items()}
    if len(set(settings.values())) > 1:
        called = {device: ", ".join(filter(None, (name, settings[device]))) for device, name in called.items()}
    columns = []
    for name, ratio_of in ratios:
        for device in rows_of:
            cells = [cell(rung, device, ratio_of) for rung in rungs]
            if any(one.text != "–" for one in cells):
                hint = f"times as fast as {name}, on {device}"
                columns.append((Column(f"× {name}", hint, device=called[device]), cells))
    return {"workload": like, "columns": [Column("rung"), *(column for column, _ in columns)],
            "rows": [[replace(_rung(rows[0]), more=""), *(cells[i] for _, cells in columns)]
                     for i, rows in enumerate(rungs.values())]}


def _shortly(devices: Iterable[str]) -> dict[str, str]:
    """Devices' names without the words that all begin with."""
    words = {device: device.split() for device in devices}
    same = len(os.path.commonprefix([of_one[:-1] for of_one in words.values()]))
    short = {device: " ".join(of_one[same:]) for device, of_one in words.items()}
    return short if len(set(short.values())) == len(short) else {device: device for device in words}


def _beside_peers(one: Results, like: Workload, of_math: str) -> Iterator[tuple[Results, Workload, Row, Ratio]]:
    """On each workload but for the batch like another: the fastest rung of that math beside the peers in the same
    rounds."""
    for workload in one.workloads:
        rows = [row for row in workload.rows if row.ok and not row.disturbance and row.math == of_math]
        if rows and (workload.model, workload.T, workload.devices) == (like.model, like.T, like.devices):
            best = min(rows, key=lambda row: row.median_ms)
            ratios = one.against if _fastest(one)[1] is best and one.against else best.peers
            yield from ((one, workload, best, ratio) for ratio in ratios)


def _against(row: Row, ratio: Ratio, other: Row | None, ratios_only: bool) -> str:
    """What `row` is compared with, and how sure that is."""
    ms = ratios_only or not other or not other.ok
    text = ratio.against if ms else f"{ratio.against}, {figures(other.median_ms)} ms"
    return text + _sure(row, ratio)


def _stale(results: list[Results], profiles: list[Profile]) -> list[str]:
    """A warning where rungs were measured from other sources than are here."""

    def changed(rows) -> set[str]:
        return {row.rung for row in rows if row.source_hash and (now := sources.source_hash(row.rung))
                and now != row.source_hash}

    measured = [(_called(one), changed(row for workload in one.workloads for row in workload.rows if row.ours))
                for one in results] + [(one.name or "a profile", changed([one])) for one in profiles]
    stale = [(called, rungs) for called, rungs in measured if rungs]
    if not stale:
        return []
    where = ", ".join(dict.fromkeys(called for called, _ in stale)) if len(stale) <= 3 else \
        f"{len(stale)} of {len(measured)} measurements"
    return [f"Stale: the sources of {', '.join(sorted(set().union(*(rungs for _, rungs in stale))))} have changed since "
            f"{where} {'was' if len(stale) == 1 else 'were'} made; the diffs below show them as they are now."]


def _warnings(one: Results) -> list[str]:
    warnings = list(one.warnings)
    for workload in one.workloads:
        for status in dict.fromkeys(row.status for row in workload.rows if row.status not in ("ok", "unsupported")):
            names = ", ".join(row.rung for row in workload.rows if row.status == status)
            warnings.append(f"{status}: {names} on {workload}. No speed-up is claimed for it.")
    return warnings


# ---- environment -----------------------------------------------------------------------------------------------------


def _environment(one: Results, like: Results | None = None) -> list[tuple[str, str]]:
    """What it was measured on; where it is another's `like`, only in what it differs."""
    device, context, plan = one.context["device"], one.context, one.plan
    fields = [(device, "name", "device"), (device, "compute_capability", "compute capability"),
              (device, "total_memory", "device memory"), (device, "driver", "driver's CUDA"),
              (device, "runtime", "CUDA runtime"), (device, "blas", "BLAS"), (device, "attention", "flash attention"),
              (device, "uuid", "UUID"), (context, "os", "system"), (context, "cpu", "CPU"), (context, "cores", "cores"),
              (context, "memory", "memory"), (context, "version", "stepladder"), (context, "commit", "commit"),
              (context, "time", "measured"), (context, "command_line", "command"), (plan, "data", "data"),
              (plan, "val_data", "validation data"), (plan, "seed", "seed"), (plan, "lr", "learning rate")]
    shown = [(title, _bytes(value) if key.endswith("memory") else plain(value, 400))
             for where, key, title in fields if (value := where.get(key)) not in (None, "")]
    return [item for item in shown if not like or item not in _environment(like)]


def _bytes(value: object) -> str:
    return f"{value / GIB:.1f} GiB" if isinstance(value, (int, float)) else "?"


def _protocol(one: Results) -> str:
    """Rounds that the numbers are of, of those planned where that is more, and their steps."""
    plan = {key: plain(one.plan[key], 20) for key in ("rounds", "steps", "warmup") if key in one.plan}
    if len(plan) < 3:
        return ""
    rounds = rounds_of([row for workload in one.workloads for row in workload.everyone])
    rounds = plan["rounds"] if rounds in ("", plan["rounds"]) else f"{rounds} of {plan['rounds']}"
    plural = "s" if rounds != "1" else ""
    most = "at most " if one.plan.get("until_loss") else ""
    return f"{rounds} round{plural} of {most}{plan['steps']} steps, of which {plan['warmup']} or more are warm-up"


def _origin(one: Results) -> str:
    """With which libraries, from when to when, of which commit, in which file."""
    device, context = one.context["device"], one.context
    commit = context.get("commit", "")[:9]
    days = [(call.get("time") or "")[:10] for call in (context, *context.get("resumed", ()))]
    return plain(", ".join(filter(None, (device.get("blas"), device.get("attention"),
                                         " to ".join(dict.fromkeys([days[0], days[-1]])),
                                         commit and f"commit {commit}", _called(one)))), 200)


# ---- charts ----------------------------------------------------------------------------------------------------------


def inline_svg(text: str) -> Markup:
    """An SVG of our own as part of a page: no prologue and no size."""
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg"):], flags=re.S)
    for size in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    return Markup(text)


def _charts(drawn: dict[str, list[Path] | str], captions: dict[str, str]) -> list[Chart]:
    charts = []
    for name, written in drawn.items():
        caption = " ".join(captions[name].split())
        if isinstance(written, str):
            charts.append(Chart(name, caption, None, missing=written))
            continue
        before, title, after = re.split("<title>(.*?)</title>", written[0].read_text(encoding="utf-8"), maxsplit=1)
        charts.append(Chart(name, caption, inline_svg(before + after), Markup(title)))
    return charts


# ---- the files -------------------------------------------------------------------------------------------------------


def render(results: list[Results], profiles: list[Profile], drawn: dict[str, list[Path] | str],
           captions: dict[str, str], history: Sequence = ()) -> str:
    """The page. `drawn` has each chart's files or what it lacks, `captions` what each shows."""
    everything = together(results, profiles)
    mixed = everything.mixed
    by_device: dict[str, list[Results]] = {}
    for one in results:
        by_device.setdefault(one.device, []).append(one)
    main = {device: ones[0] for device, ones in by_device.items()}
    parts = [{
        "results": one,
        "main": one is main[one.device],
        "answer": _answer(one, [other for other in ones if other is not one], mixed),
        "protocol": _protocol(one),
        "warnings": _warnings(one),
        "environment": _environment(one, None if one is main[one.device] else main[one.device]),
        "tables": [{"workload": workload, "rungs": _measurements(workload, workload.rows, mixed),
                    "note": "" if mixed else _peers_note(workload), "groups": _groups(workload),
                    "peers": _measurements(workload, workload.all_peers, mixed),
                    "to_loss": _time_to_loss(workload, mixed)} for workload in one.workloads],
        "ablations": _ablations(one),
    } for ones in by_device.values() for one in ones]
    diffs = {row.rung: row.diff for one in results for workload in one.workloads for row in workload.rows if row.diff}
    device = ", ".join(dict.fromkeys(one.device for one in [*results, *profiles, *history]))
    return TEMPLATES.get_template("page.html").render(
        device=device, measured=parts, mixed=mixed, by_device=_by_device(by_device), stale=_stale(results, profiles),
        charts=_charts(drawn, captions),
        profiles=[] if mixed else everything.profiles,
        diffs=[diffs[rung] for rung in everything.rungs if rung in diffs],
        gains=_gains(results),
        published=published_sources(results, profiles), figures=figures)


def _gains(results: list[Results]) -> dict[str, str]:
    """By rung how many times as fast as the rung before, on the main workload if it was measured there, else on the
    first, which is then named."""
    first = next((str(workload) for one in results for workload in one.workloads if workload.rows), "")
    found: dict[str, tuple[str, Row]] = {}
    for one in results:
        for workload in one.workloads:
            for row in workload.rows:
                known = found.get(row.rung)
                if row.previous and (not known or (str(workload) == first) > (known[0] == first)):
                    found[row.rung] = str(workload), row
    return {rung: f"{row.previous.value:.2f}×" + ("" if where == first else f" on {where}")
            for rung, (where, row) in found.items()}


def _groups(workload: Workload) -> dict | None:
    """Groups of rungs, as published tables have them."""
    rows = [[Cell(group.name, f"{group.before.rung} to {group.after.rung}", key=group.name, kind="text"),
             _number(group.gain, f"{group.gain:.2f}×"),
             Cell() if group.gain_in_pytorch is None else
             _number(group.gain_in_pytorch, f"{group.gain_in_pytorch:.2f}×")] for group in groups_of(workload)]
    columns = [Column("rungs as published tables group them"), Column("faster"), Column("PyTorch's")]
    return {"columns": columns, "rows": rows} if rows else None


def _ablations(one: Results) -> dict | None:
    """Gains by rung, or why there is none."""
    if not one.ablations:
        return None

    def cell(gain: Gain | None) -> Cell:
        if gain is None:
            return Cell()
        if not gain.ok:
            return Cell(gain.status, gain.reason, kind="bad")
        return _number(gain.ratio, f"{gain.ratio:.3f}×", _between(gain.interval))

    kinds = [kind for kind in GAINS if any(kind in row.gains for row in one.ablations)]
    rows = [[Cell(row.rung, "" if len(one.workloads) < 2 else str(row.workload), key=row.rung, kind="text"),
             *(cell(row.gains.get(kind)) for kind in kinds)] for row in one.ablations]
    return {"columns": [Column("rung"), *(Column(GAINS[kind]) for kind in kinds)], "rows": rows}


_ENTITIES = {"<": "&lt;", "@": "&#64;", "&": "&amp;"}


def markdown_text(text: str) -> str:
    """Foreign text in a Markdown file, which shows it as it is. The same as markdown_text() of bench/base/table.h."""
    text = re.sub("[<@&]", lambda mark: _ENTITIES[mark[0]], text)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<!&)#|[\\`*\[\]|~]", r"\\\g<0>", text)


TEMPLATES.filters["breakable"] = lambda text: Markup(str(escape(text)).replace("/", "/<wbr>"))
TEMPLATES.filters["codes"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
_MARKDOWN = TEMPLATES.overlay(autoescape=False)
_MARKDOWN.filters["called"] = _called
_MARKDOWN.filters["text"] = markdown_text
_MARKDOWN.filters["cell"] = lambda text: markdown_text(text) or "-"


def published_sources(results: list[Results], profiles: list[Profile]) -> list[published.Source]:
    """None beside trainers of one's own alone, which they say nothing of."""
    return published.reproduce(results, profiles) if published.told_by(results) else []


def published_markdown(results: list[Results], profiles: list[Profile]) -> str:
    """"" where there is none."""
    sources = published_sources(results, profiles)
    return _MARKDOWN.get_template("published.md").render(published=sources) if sources else ""


# ---- tables in another file ------------------------------------------------------------------------------------------

_MARKS = ("<!-- stepladder: begin -->\n", "<!-- stepladder: end -->\n")


def _like_the_peers(rows: list[Row]) -> list[Row]:
    """The fastest; before one of 8 bits the fastest of 16, which the peers' GEMMs have."""
    fastest = sorted(rows, key=lambda row: row.median_ms)
    half = [row for row in fastest if row.math == "half"]
    return half[:1] + fastest[:1] if fastest and fastest[0].math == "fp8" else fastest[:1]


def text_of(path: Path) -> tuple[str, str]:
    """A text file's text, and how its lines end. Throws ResultsError where it is no UTF-8."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    if text.count("\r\n") == text.count("\n"):
        return text.replace("\r\n", "\n"), "\r\n"
    return text, "\n"


def renew(text: str, path: Path, results: list[Results]) -> str:
    """A Markdown file's text with what stands between its marks replaced by tables of the results, of the first
    device; where a file has six rounds, and so 95 % intervals, only of those. Throws ResultsError where there are no
    marks, or no results."""
    text += "" if text.endswith("\n") else "\n"
    if not all(text.count(mark) == 1 for mark in _MARKS) or text.index(_MARKS[0]) > text.index(_MARKS[1]):
        raise ResultsError(f"{path}: wants one line {_MARKS[0].strip()} and one {_MARKS[1].strip()} below it")
    if not results:
        raise ResultsError(f"{path}: no results file to make tables of")
    head, tail = text.split(_MARKS[0])[0], text.split(_MARKS[1])[1]

    def rounds(one: Results) -> int:
        return min(6, max((row.counted for workload in one.workloads for row in workload.rows), default=0))

    here = [one for one in results if one.device == results[0].device]
    most = max(map(rounds, here))
    here = [one for one in here if rounds(one) == most]
    beside = [(one, workload, row) for one in here for workload in one.workloads if workload.devices == 1
              for row in _like_the_peers([row for row in workload.rows if row.ok and row.peers])]
    beside.sort(key=lambda item: (item[1].B, item[2].place, item[2].counted))
    # Of a rung at a batch, from the file with most rounds.
    beside = list({(workload.B, row.rung): (one, workload, row) for one, workload, row in beside}.values())
    ladder = next((workload for workload in results[0].workloads if workload.rows), None)
    return head + _MARKS[0] + _MARKDOWN.get_template("tables.md").render(
        main=results[0], protocol=_protocol(results[0]), origin=_origin(results[0]), ladder=ladder, beside=beside,
        groups=groups_of(ladder) if ladder else [],
        ablations=[row for one in here for row in one.ablations], gains=GAINS, peers=PEERS,
        figures=figures) + _MARKS[1] + tail
