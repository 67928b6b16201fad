#!/usr/bin/env python3
"""Converts a file of schema 2, of an earlier version, to a results file: results with their journal, a profile or a campaign.

Usage: convert.py OLD NEW   NEW is written whole or not at all, compressed if it ends in .gz. Exit status: 0, or 2 for a file
                            that can't be read or written
Version 0.4 removes this program.
"""

import gzip
import hashlib
import json
import sys
import zlib
from itertools import accumulate
from pathlib import Path

from files import replace


def rows(columns: list | dict) -> list[dict]:
    """The rows that an earlier version wrote column by column; a list as it is."""
    if isinstance(columns, list):
        return columns
    made: list[dict] = [{} for _ in range(columns["rows"])]
    for key, column in columns["columns"].items():
        places = range(len(made))
        if isinstance(column, dict) and "in" in column:
            places, column = column["in"], column["column"]
        for place, value in zip(places, values(column, len(places)), strict=True):
            made[place][key] = value
    return made


def values(column: list | dict, count: int) -> list:
    if isinstance(column, list):
        return column
    if "values" in column:
        of, each = column.get("of", [0] * count), rows(column["values"])
        return [each[i] for i in of]
    if "joined" not in column:
        return rows(column)
    joined, ends = rows(column["joined"]), list(accumulate(lengths := values(column["lengths"], count)))
    return [joined[end - length:end] for end, length in zip(ends, lengths)]


def part_lines(result: dict, part: dict, runs: list[dict]) -> list[dict]:
    """The lines of a part. The session's id is a hash of the part, so that each conversion makes the same file."""
    name = ": ".join(text for text in (part.get("name"), part.get("about")) if text)
    session = hashlib.sha256(json.dumps([name, result, runs]).encode()).hexdigest()[:16]
    begin = {"line": "session", "schema": 3, "session": session} | ({"part": name} if name else {})
    end = {"complete": result.get("complete", "profile" in result), "stopped": result.get("stopped")}
    end |= {key: part[key] for key in ("skipped", "exit_code") if key in part} | {"wall_s": part.get("wall_s", 0.0)}
    lines = [begin | {"context": result.get("context", {}), "plan": result.get("plan", {})}]
    lines += [{"line": "run", "session": session} | run for run in runs]
    if "profile" in result:
        lines.append({"line": "profile", "session": session} | result["profile"])
    return [*lines, {"line": "end", "session": session} | end]


def converted(path: Path) -> list[dict]:
    raw = path.read_bytes()
    data = json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    if not isinstance(data, dict) or data.get("schema") != 2 or data.get("kind") not in (None, "campaign"):
        raise ValueError("no results, profile or campaign of schema 2")
    lines = []
    for part in data.get("parts", [{"result": data}]):
        result = part.get("result", {"context": {"device": data.get("device", {}), "commit": data.get("commit", "")}})
        runs = rows(result.get("runs", []))
        journal = path.with_name(path.name + ".journal")
        if result is data and not data.get("complete") and journal.exists():  # runs since the file was written
            there = {(run["variant"], json.dumps(run["config"]), run["round"]) for run in runs}
            for line in journal.read_text(encoding="utf-8").split("\n")[1:-1]:
                run = json.loads(line)
                if (run["variant"], json.dumps(run["config"]), run["round"]) not in there:
                    runs.append(run)
        lines += part_lines(result, part, runs)
    return lines


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("convert: error: which file, and into which? stepladder convert OLD NEW", file=sys.stderr)
        return 2
    old, new = map(Path, arguments)
    if new.exists():
        print(f"convert: error: {new} is there already: name another", file=sys.stderr)
        return 2
    try:
        text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in converted(old))
        replace(new, gzip.compress(text.encode(), 9, mtime=0) if new.suffix == ".gz" else text.encode())
        print(f"wrote {new}")
        return 0
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = f"{old}: damaged gzip data: {error}; get the file again"
    except OSError as error:
        what = f"{error.filename}: {error.strerror}"
    except KeyError as error:
        what = f"{old}, or its journal, has no field {error}"
    except ValueError as error:
        what = f"{old}: {error}"
    except (AttributeError, IndexError, RecursionError, TypeError):  # Python's words say nothing of the file
        what = f"{old}: is damaged"
    print(f"convert: error: {what}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
