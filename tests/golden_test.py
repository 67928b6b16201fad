#!/usr/bin/env python3
"""What users see of kept measurements, held against golden files: tables, Markdown, CSV, exports, the page's text and
the numbers behind each chart.

tests/golden/CASE/ has the measurements of a case, and in expected/ what the program made of them. After a change that
is wanted, `python3 tests/golden_test.py --renew [CASE...]` writes what it makes of them now, and prints how that
differs.
STEPLADDER_BIN names the folder of the programs, by default build/cpu/bin.
"""

import argparse
import difflib
import gzip
import hashlib
import json
import lzma
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
SHOWN = 200  # lines of a difference in a test's message
LARGE = 4_000  # bytes; larger golden files are compressed

VENV = ROOT / ".venv"
for _package in ("jinja2", "jsonschema", "matplotlib"):
    if find_spec(_package):
        continue
    if __name__ == "__main__" and Path(sys.prefix) != VENV and (VENV / "bin/python").exists():
        os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])
    raise unittest.SkipTest(f"no {_package}: the report's Python packages are not installed")


class PageText(HTMLParser):
    """A page's text: a line for each block and row of a table, hints in braces; without scripts, styles, pictures and
    the code of diffs."""

    BLOCKS = {"p", "h1", "h2", "h3", "li", "tr", "summary", "section", "div", "dl", "dt", "figure", "figcaption", "ul",
              "table", "details", "title", "nav"}
    SKIPPED = {"style", "script", "svg", "pre"}

    def __init__(self, html: str):
        super().__init__()
        self.text, self._skipped = "", 0
        self.feed(html)
        lines = (" ".join(line.split()).removeprefix("| ") for line in self.text.splitlines())
        self.text = "".join(f"{line}\n" for line in lines if line)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        known = dict(attributes)
        self._skipped += tag in self.SKIPPED
        if tag in self.BLOCKS:
            self.text += "\n" + ("# " if tag in ("h1", "h2") else "## " if tag == "h3" else "")
        elif tag in ("td", "th", "dd"):
            self.text += " | "
        elif tag == "small":
            self.text += " "
        for shown in ("title", "aria-label"):
            if shown in known:
                self.text += f"{{{known[shown]}}} "

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in self.SKIPPED
        if tag in self.BLOCKS:
            self.text += "\n"

    def handle_data(self, text: str) -> None:
        if not self._skipped:
            self.text += re.sub(r"\s+", " ", text)


def page_text(html: str, whole: bool) -> str:
    """The text of a page without the lengths of diffs, which come from today's sources; unless `whole`, also without
    the sections that are equal on every page and without published numbers."""
    text = re.sub(r"\b\d+ lines against", "N lines against", PageText(html).text)
    same = r"^# (Published numbers|How each number).*?(?=^# )"
    return text if whole else re.sub(same, "", text, flags=re.DOTALL | re.MULTILINE)


def fingerprint(value: object) -> object:
    """The value, or a hash of it if that is shorter."""
    text = json.dumps(value, sort_keys=True)
    return value if len(text) < 80 else hashlib.sha256(text.encode()).hexdigest()[:16]


def brief(said: str) -> str:
    """An export's JSON with a line for each short value, and numbers of ten digits. Fingerprints replace the fields of
    a campaign's parts and all runs but the first, since the CSV has the runs' numbers."""
    text, more = re.fullmatch(r"(.*?)(---- .*)?", said, re.DOTALL).groups()
    file = json.loads(text, parse_float=lambda digits: float(f"{float(digits):.10g}"))
    if "runs" in file:
        file["runs"][1:] = map(fingerprint, file["runs"][1:])
    if "parts" in file:
        file["parts"] = {part["name"]: {key: fingerprint(value)
                                        for key, value in (part | part.get("result", {})).items()}
                         for part in file["parts"]}
    return f"{lines_of(file)}\n{more or ''}"


def lines_of(value: object, indent: str = "") -> str:
    flat = json.dumps(value, ensure_ascii=False)
    of_numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    if len(indent + flat) <= 110 or of_numbers or not isinstance(value, (dict, list)):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        first, last = "{}"
        items = [f"{inner}{json.dumps(key)}: {lines_of(item, inner)}" for key, item in value.items()]
    else:
        first, last = "[]"
        items = [inner + lines_of(item, inner) for item in value]
    return first + "\n" + ",\n".join(items) + f"\n{indent}{last}"


class Program:
    """Runs stepladder in a folder of its own, which has the case's measurements."""

    def __init__(self, folder: Path):
        self.folder, self.bin = folder, Path(os.environ.get("STEPLADDER_BIN", ROOT / "build/cpu/bin")).resolve()
        python = folder / "python"
        charts = [sys.executable, str(ROOT / "tests/golden_charts.py")]
        python.write_text(f"#!/bin/sh\nexec {shlex.join(charts)} \"$@\"\n")
        python.chmod(0o755)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPLADDER_")}
        self.environment |= {"STEPLADDER_PYTHON": str(python), "STEPLADDER_BUSY_SAMPLE_MS": "0", "OMP_NUM_THREADS": "1"}

    def __call__(self, *arguments: str, **environment: str) -> str:
        """The program's stdout, then its stderr and exit status unless empty and 0."""
        done = subprocess.run([self.bin / "stepladder", *arguments], cwd=self.folder, capture_output=True, timeout=120,
                              env=self.environment | environment, check=False, stdin=subprocess.DEVNULL)
        errors = done.stderr.decode()
        return (done.stdout.decode() + (f"---- stderr\n{errors}" if errors else "")
                + (f"---- exit status {done.returncode}\n" if done.returncode else ""))

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


Files = dict[str, str]  # contents of a case's golden files by name


def report(program: Program, *results: str, whole: bool = False) -> Files:
    """The output of `report` on results: terminal text and files."""
    into = program.folder / "into.md"
    into.write_text("before\n<!-- stepladder: begin -->\n<!-- stepladder: end -->\nafter\n")
    files = {"report.txt": program("report", *results, "--out", "out", "--into", "into.md"),
             "wide.txt": program("report", *results, "--out", "wide", "--wide", STEPLADDER_PYTHON="true"),
             "into.md": into.read_text(encoding="utf-8")}
    out = program.folder / "out"
    files |= {name: program.text(f"out/{name}") for name in ("summary.md", "results.csv")}
    if whole:
        files["published.md"] = program.text("out/published.md")
    files["page.txt"] = page_text(program.text("out/index.html"), whole)
    files["charts.json"] = charts_in(out)
    return files


def charts_in(folder: Path) -> str:
    drawn = (f"{json.dumps(path.stem)}: {path.read_text(encoding='utf-8')}" for path in sorted(folder.glob("*.data")))
    return "{" + ",\n".join(drawn) + "}\n"


def exports(program: Program, results: str) -> Files:
    files = {format: program("export", results, "--format", format) for format in ("csv", "json", "googlebenchmark")}
    return {"export.csv": files["csv"], "export.json": brief(files["json"]),
            "googlebenchmark.json": brief(files["googlebenchmark"])}


def first_line(text: str) -> dict:
    """The line of a results file's first session."""
    return json.loads(text[:text.index("\n")])


def traced_in(text: str) -> dict:
    """The profile in a results file."""
    line = next(line for line in map(json.loads, text.splitlines()) if line["line"] == "profile")
    return {key: value for key, value in line.items() if key not in ("line", "session")}


def results_of(case: str) -> Callable[[Program], Files]:
    """A function that makes the golden files of a case with one results file."""
    file = f"{case}.json"
    return lambda program: report(program, file) | exports(program, file) | {"plan-run.txt": program("plan-run", file)}


def copy_campaign(program: Program, device: str) -> str:
    (program.folder / device).mkdir()
    kept = gzip.decompress((ROOT / "reports" / device / "results.jsonl.gz").read_bytes())
    (program.folder / device / "results.json").write_bytes(kept)
    return f"{device}/results.json"


def campaign(device: str, *parts: tuple[str, str]) -> Callable[[Program], Files]:
    """Returns a function that makes the golden files of a device's kept campaign: its report, and exports of `parts`."""

    def files(program: Program) -> Files:
        file = copy_campaign(program, device)
        found = report(program, file, whole=True) | {"plan-run.txt": program("plan-run", file)}
        found["export.json"] = brief(program("export", file, "--format", "json"))
        for part, format in parts:
            found[f"{format}-{part}.txt"] = program("export", f"{file}:{part}", "--format", format)
        return found

    return files


def both(program: Program) -> Files:
    files = report(program, *(copy_campaign(program, device) for device in ("h200", "h100")))
    return {name: text for name, text in files.items() if name not in ("into.md", "results.csv")}


# A trainer that only reports times: %(us)d microseconds a step, slightly different from run to run.
TRAINER = """#!/bin/sh
[ "$1" = --version ] && { echo "%(name)s 0.1.0 source %(hash)s"; exit 0; }
while [ $# -gt 0 ]; do
  case $1 in --steps) steps=$2 ;; --batch) batch=$2 ;; --seq) seq=$2 ;; esac
  shift
done
n=$(($(cat %(count)s 2>/dev/null || echo %(us)d) + 1)); echo $n >%(count)s
us=$((%(us)d * (997 + 3 * n %% 7) / 1000))
step_ms=$(printf '%%d.%%03d' $((us / 1000)) $((us %% 1000)))
say() { printf '%%s\\n' "$1" >&3; }
say '{"event":"start","variant":"%(name)s","source_hash":"%(hash)s","backend":"cpu",'\\
'"config":{"model":"gpt2-tiny","dtype":"f32","B":'$batch',"T":'$seq'},'\\
'"startup_ms":12.5,"memory_by_name":{"params/wte":1024}}'
i=0
while [ $i -lt $steps ]; do
  sleep ${step_ms}e-3  # as long as it says: the harness adds it up
  say '{"event":"step","step":'$i',"step_ms":'$step_ms',"loss":4.'$((90 - i))',"grad_norm":1.5,"lr":0.001}'
  i=$((i + 1))
done
%(more)s
say '{"event":"end","memory_bytes":{"live_peak":1048576,"reserved_peak":2097152,"process_peak":3145728}}'
"""


def write_trainer(folder: Path, name: str, us: int, more: str = "") -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(TRAINER % {"name": name, "hash": f"{folder.name}123", "count": folder / f"{name}.count", "us": us,
                               "more": more})
    path.chmod(0o755)


WORKLOAD = ("--backend", "cpu", "--model", "gpt2-tiny", "--batch", "4", "--seq", "32", "--data", "data.bin")


def without_here(text: str, context: dict) -> str:
    """`text` without the time, the build and the machine."""
    text = re.sub(r"commit [0-9a-f]{9,}(-dirty)?|an unknown commit", "COMMIT", text)
    return re.sub(r"20\d\d-[-\d:.T]*Z", "TIME", text).replace(context["device"]["name"], "DEVICE")


def gate(program: Program) -> Files:
    """Verdicts of `compare` on kept runs, and of a gate on trainers that only report times."""
    compare = ("compare", "base.json", "new.json")
    files = {f"compare.{end}": program(*compare, "--format", format) for end, format in
             (("txt", "text"), ("md", "markdown"), ("github", "github"), ("xml", "junit"))}
    files["compare.json"] = brief(program(*compare, "--format", "json"))
    files |= {"wide.txt": program(*compare, "--wide"), "faster.txt": program("compare", "new.json", "base.json"),
              "threshold.txt": program(*compare, "--threshold", "20")}
    for side, us in (("base", 1000), ("new", 1060)):
        write_trainer(program.folder / side, "00_fp32_baseline", 2000)
        write_trainer(program.folder / side, "02_tf32", us)
    (program.folder / "data.bin").write_bytes(bytes(8192))
    measured = program("gate", "base", "new", *WORKLOAD, "--steps", "6", "--warmup", "2", "--pairs", "6", "--quiet",
                       "--max-pairs", "6", "--results", "runs", "--out", "gate.md",
                       STEPLADDER_BIN_DIR=str(program.folder / "base"))
    here = first_line(program.text("runs/base.jsonl"))["context"]
    return files | {name: without_here(text, here)
                    for name, text in (("gate.txt", measured), ("gate.md", program.text("gate.md")))}


def history(program: Program) -> Files:
    (program.folder / "kept").mkdir()
    for path in program.folder.glob("*.json"):
        path.rename(program.folder / "kept" / path.name)
    files = {"history.txt": program("history", "kept", "--out", "out"),
             "charts.json": charts_in(program.folder / "out"),
             "history.md": program("history", "kept", "--format", "markdown"),
             "history.json": brief(program.text("out/history.json"))}
    of_two = report(program, "kept/1.json", "kept/5.json", "out/history.json")
    shown = ("report.txt", "summary.md", "page.txt", "charts.json")
    return files | {f"report-{name}": of_two[name] for name in shown}


def profile(program: Program) -> Files:
    """The page of a kept profile, and what `profile` prints of a trainer that reports the same profile."""
    files = {"report.txt": program("report", "profile.json", "--out", "out"),
             "page.txt": page_text(program.text("out/index.html"), whole=False),
             "charts.json": charts_in(program.folder / "out")}
    traced = traced_in(program.text("profile.json"))
    name = traced["variant"]
    event = {"event": "profile", "profile": {key: value for key, value in traced.items()
                                             if key not in ("variant", "source_hash", "backend", "config")}}
    (program.folder / "event").write_text(json.dumps(event) + "\n")
    write_trainer(program.folder / "bin", name, 1000, f"cat {program.folder / 'event'} >&3")
    (program.folder / "data.bin").write_bytes(bytes(8192))
    for end, more in (("txt", ()), ("wide.txt", ("--wide",)), ("md", ("--format", "markdown"))):
        said = program("profile", name, *WORKLOAD, *more, "--steps", "3", "--warmup", "1", "--quiet", "--out", "now.json",
                       STEPLADDER_BIN_DIR=str(program.folder / "bin"))
        files[f"profile.{end}"] = without_here(said, first_line(program.text("now.json"))["context"])
    return files


def interrupted(program: Program) -> Files:
    """A run that was told to stop, and one that was killed, each as it left its file."""
    files = report(program, "interrupted.json", "killed.json") | exports(program, "killed.json")
    return files | {"compare.txt": program("compare", "interrupted.json", "killed.json")}


CASES: dict[str, Callable[[Program], Files]] = {
    "h200": campaign("h200", ("ladder", "csv"), ("learning", "csv"), ("devices_independent", "csv"),
                     ("ladder", "googlebenchmark")),
    "h100": campaign("h100", ("loss", "csv"), ("ablations", "googlebenchmark")), "both": both,
    "gate": gate, "history": history, "profile": profile, "interrupted": interrupted,
    **{case: results_of(case) for case in ("own", "devices", "ablations", "to_loss", "failed")}}


def made(case: str) -> Files:
    """A case's files as the program makes them now."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (GOLDEN / case).glob("*.gz"):
            Path(folder, path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        files = CASES[case](Program(Path(folder).resolve()))
        return {name: text.replace(str(Path(folder).resolve()), "FOLDER").replace(str(ROOT), "ROOT")
                for name, text in files.items()}


def kept(case: str) -> Files:
    """A case's golden files."""
    files = {}
    for path in sorted((GOLDEN / case / "expected").glob("*")):
        data = path.read_bytes()
        files[path.name.removesuffix(".xz")] = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    return files


def difference(case: str, before: Files, after: Files) -> list[str]:
    """Differences of a case's files as diff -u prints them."""
    lines = []
    for name in sorted({*before, *after}):
        path = f"tests/golden/{case}/expected/{name}"
        lines += difflib.unified_diff(before.get(name, "").splitlines(), after.get(name, "").splitlines(),
                                      path if name in before else "/dev/null", path if name in after else "/dev/null",
                                      lineterm="", n=2)
    return lines


def renew(case: str) -> list[str]:
    """Writes the golden files that changed. Returns the differences."""
    before, after, folder = kept(case), made(case), GOLDEN / case / "expected"
    folder.mkdir(parents=True, exist_ok=True)
    for name in {*before, *after}:
        if before.get(name) == after.get(name):
            continue
        for path in (folder / name, folder / f"{name}.xz"):
            path.unlink(missing_ok=True)
        if name in after:
            data = after[name].encode()
            if len(data) > LARGE:
                (folder / f"{name}.xz").write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
            else:
                (folder / name).write_bytes(data)
    return difference(case, before, after)


class Golden(unittest.TestCase):
    def holds(self, case: str) -> None:
        if lines := difference(case, kept(case), made(case)):
            more = [f"... and {len(lines) - SHOWN} lines"] if len(lines) > SHOWN else []
            self.fail("\n".join([f"what users see of {case} has changed:", *lines[:SHOWN], *more,
                                 f"where that is wanted: python3 tests/golden_test.py --renew {case}"]))


for _case in CASES:
    setattr(Golden, f"test_{_case}", lambda self, case=_case: self.holds(case))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--renew", nargs="*", metavar="CASE", choices=[*CASES, []], help="of these, or of all")
    options, more = parser.parse_known_args()
    if options.renew is None:
        unittest.main(argv=[sys.argv[0], *more])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for lines in pool.map(renew, options.renew or CASES):
            sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
