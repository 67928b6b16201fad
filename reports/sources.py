"""The rungs' table and their sources as they are here: each rung's diff against its parent, and its sources' hash."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "cmake"))
import source_hash as hashing  # noqa: E402


def rows(ladder: object) -> dict[str, dict]:
    """The rungs, by name, of a ladder: one of ours, or one in a results file, which may hold anything."""
    rungs = ladder.get("rungs") if isinstance(ladder, dict) else None
    return {str(rung["name"]): rung for rung in rungs if isinstance(rung, dict) and "name" in rung} \
        if isinstance(rungs, list) else {}


LADDER, LEARNING = (rows(json.loads((ROOT / "variants" / ladder).read_text(encoding="utf-8")))
                    for ladder in ("ladder.json", "learning/ladder.json"))


@dataclass
class Diff:
    """The diff of a rung's file against its parent's: lines, each with its kind, "add", "del", "hunk" or ""."""

    rung: str
    parent: str
    lines: list[tuple[str, str]]

    @property
    def changed(self) -> int:
        return sum(kind in ("add", "del") for kind, _ in self.lines)

    @property
    def stretches(self) -> list[tuple[str, str]]:
        """The lines, with consecutive lines of one kind joined into one text."""
        return [(kind, "\n".join(line for _, line in lines)) for kind, lines in groupby(self.lines, itemgetter(0))]


def file_of(rung: str) -> Path:
    """The trainer that a rung or an ablation of ours runs."""
    row = LADDER.get(rung) or LEARNING.get(rung, {})
    program = row.get("trainer", rung)
    return _trainers().get(f"{{bin}}/{program}", ROOT / f"variants/{program}.cpp")


@cache
def _trainers() -> dict[str, Path]:
    """The file of each of our trainers, by the program that a ladder's command starts."""
    folders = "", "beside", "learning", "learning/beside"
    return {f"{{bin}}/{file.stem}": file for folder in folders for file in (ROOT / "variants" / folder).glob("*.cpp")}


@cache
def diff(rung: str) -> Diff | None:
    """The diff of a rung's file against its parent's. None for a rung without a parent, and where a file is not here."""
    parent = LADDER.get(rung, {}).get("parent")
    if not parent or not all(file_of(name).is_file() for name in (parent, rung)):
        return None
    return _diff(rung, parent, *(file_of(name).read_text(encoding="utf-8").splitlines() for name in (parent, rung)))


def diff_of_commands(rung: str, ladder: dict[str, dict]) -> Diff | None:
    """The diff of a rung of another ladder against its parent: of the trainers if both run one of ours, else of environment
    and command, a word a line. None without a parent."""
    rows = [ladder.get(name, {}) for name in (str(ladder.get(rung, {}).get("parent") or ""), rung)]
    files = [_trainers().get(str([*row.get("command", []), ""][0])) for row in rows]
    if all(files):
        return _diff(rung, str(rows[0]["name"]), *(file.read_text(encoding="utf-8").splitlines() for file in files))
    words = [[*(f"{name}={value}" for name, value in dict(row.get("environment", {})).items()),
              *map(str, row.get("command", []))] for row in rows]
    return _diff(rung, str(rows[0]["name"]), *words) if all(words) else None


def _diff(rung: str, parent: str, before: list[str], after: list[str]) -> Diff:
    """The diff that the program diff makes, which has the lines of `stepladder diff`; Python's difflib may find more."""
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "before"), Path(folder, "after")
        for file, text in zip(files, (before, after)):
            file.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
        run = subprocess.run(["diff", "--unified", *files], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()[2:]  # without the files' names
    return Diff(rung, parent, [(kinds.get(line[:1], ""), line) for line in lines])


@cache
def _model() -> hashing.Model:
    return hashing.Model(ROOT)


def source_hash(rung: str) -> str | None:
    """The hash of a rung's sources, as the build computes it; None for a rung whose file is not here."""
    file = file_of(rung)
    return hashing.source_hash(file, _model()) if file.is_file() else None
