"""The page of a report: HTML of what `stepladder report` tells as data, with its charts; and the published tables as
Markdown. Neither derives nor words what was measured."""

import re
from dataclasses import dataclass
from pathlib import Path

import jinja2
import published
import sources
import timeline
from markupsafe import Markup, escape
from profiles import Profile
from results import Results

TEMPLATES = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent / "page"), autoescape=True,
                               trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)


@dataclass
class Chart:
    name: str
    caption: str
    svg: Markup | None
    title: Markup | str = ""
    missing: str = ""


def stale(measured: list[tuple[str, dict[str, str]]]) -> list[str]:
    """A warning where rungs were measured from other sources than are here. `measured` has the name of each measurement,
    and the hash of each rung's sources."""
    changed = [(called, {rung for rung, kept in rungs.items() if kept and (now := sources.source_hash(rung)) and now != kept})
               for called, rungs in measured]
    if not (found := [called for called, rungs in changed if rungs]):
        return []
    rungs = sorted(set().union(*(rungs for _, rungs in changed)))
    named = ", ".join(rungs) if len(rungs) <= 3 else f"{rungs[0]}, {rungs[1]} and {len(rungs) - 2} more rungs"
    where = ", ".join(found) if len(found) <= 3 else f"{len(found)} of {len(changed)} measurements"
    leading = "" if changed[0][1] else f", but not since {changed[0][0]} was"
    return [f"Stale: the sources of {named} have changed since {where} {'was' if len(found) == 1 else 'were'} made{leading}; "
            "the diffs below show them as they are now."]


def inline_svg(text: str) -> Markup:
    """An SVG of our own as part of a page: no prologue and no size."""
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg"):], flags=re.S)
    for size in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    return Markup(text)


def gpu_ladder() -> Markup | None:
    """The ladder on the H200 that our own results are of; None where it isn't here. Its names are no other chart's."""
    path = Path(__file__).parent / "h200/ladder.svg"
    if not path.exists():
        return None
    text = re.sub("<title>.*?</title>", "", path.read_text(encoding="utf-8"), count=1)
    return inline_svg(re.sub(r"\bladder(?=-?\d)", "gpu", text))


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


def render(page: dict, results: list[Results], everything: Results, drawn: dict[str, list[Path] | str],
           captions: dict[str, str]) -> str:
    """The page as HTML. `page` is what page_json() of bench/report/page.h tells, `everything` what was given to the
    charts, `drawn` has each chart's files or what it lacks, `captions` what each shows."""
    devices = [everything.device] if everything.device else dict.fromkeys(series.device for series in everything.history)
    measured = [(f"{file['called']} on {file['device']}" if page["mixed"] else file["called"], file["sources"])
                for file in page["files"]]
    measured += [(one.name or "a profile", {one.rung: one.source_hash}) for one in everything.profiles]
    traced = sorted(everything.profiles, key=lambda one: ([*sources.LADDER, one.rung].index(one.rung), one.place))
    shown = _charts(drawn, captions)
    diffs = {}
    for workload in everything.workloads:
        diffs.setdefault(workload.ladder, {}).update({row.rung: row.diff for row in workload.rows if row.diff})
    return TEMPLATES.get_template("page.html").render(
        page=page, history=everything.history, device=", ".join(devices), stale=stale(measured), charts=shown,
        leading=next((chart for chart in shown if chart.svg), None),
        gpu=gpu_ladder() if everything.emulated else None,
        diffs={ladder: {rung: of[rung] for rung in everything.rungs if rung in of} for ladder, of in diffs.items() if of},
        profiles=list(zip(page["profiles"], map(timeline.figure, traced))),  # which the page has in the same order
        **published_numbers(results, everything.profiles))


_ENTITIES = {"<": "&lt;", "@": "&#64;", "&": "&amp;"}


def markdown_text(text: str) -> str:
    """Foreign text, escaped so that Markdown shows it as it is."""
    text = re.sub("[<@&]", lambda mark: _ENTITIES[mark[0]], text)
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<!&)#|[\\`*\[\]|~]", r"\\\g<0>", text)


def markdown_table(table: dict) -> str:
    """A table of a section as Markdown."""
    titles, rows = [column["title"] for column in table["columns"]], table["rows"]
    rule = [":---" if column["align"] == "left" else "---:" for column in table["columns"]]
    return "\n".join(f"| {' | '.join(line)} |" for line in
                     [list(map(markdown_text, titles)), rule, *(map(markdown_text, row) for row in rows)])


TEMPLATES.filters["breakable"] = lambda text, after: Markup(re.sub(f"(?<=[{after}])", "<wbr>", str(escape(text))))
TEMPLATES.filters["codes"] = lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
_MARKDOWN = TEMPLATES.overlay(autoescape=False)
_MARKDOWN.filters["text"] = markdown_text
_MARKDOWN.filters["table"] = markdown_table


def published_numbers(results: list[Results], profiles: list[Profile]) -> dict:
    """The templates' values for published numbers: no sources where only trainers of one's own were measured."""
    shown = published.reproduce(results, profiles) if published.told_by(results) else []
    return {"published": shown, "summary": published.summary(shown), "same": round(100 * published.SAME)}


def published_markdown(results: list[Results], profiles: list[Profile]) -> str:
    """The published tables as Markdown; "" where there are none to show."""
    numbers = published_numbers(results, profiles)
    return _MARKDOWN.get_template("published.md").render(numbers) if numbers["published"] else ""
