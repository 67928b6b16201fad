#!/usr/bin/env python3
"""Reads Stepladder's files and holds them to their contract, results.schema.json.

Usage: schema.py FILE...   whether each, exported JSON or a results file, holds what the contract says, and nothing besides:
                           exit status 0, else 2
       schema.py --page    docs/results-schema.md, made from the contract
"""

import gzip
import json
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

SCHEMA = json.loads(Path(__file__).with_name("results.schema.json").read_text(encoding="utf-8"))
for _name, _field in SCHEMA["$defs"]["summary"]["properties"].items():  # over_rounds: overrides for a variant
    if (_over_rounds := _field.pop("over_rounds", None)) is not None:
        SCHEMA["$defs"]["variant"]["properties"][_name] = \
            _field | {"description": "as in a summary, the median over rounds"} | _over_rounds
KINDS = ("line", "session", "run", "traced", "end", "results", "parts", "profile", "noise", "comparison", "history")


class ResultsError(Exception):
    """What is wrong with a file, on one line."""


def plain(value: object, limit: int = 60) -> str:
    """One line of foreign text: control characters as '?', cut to `limit`."""
    text = str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= limit else text[:limit - 1] + "…"


def kind_of(data: dict) -> str:
    return "profile" if "profile" in data else str(data.get("kind", "results"))


def check(path: Path) -> None:
    """Throws ResultsError unless the file holds what the contract says, and nothing besides."""
    lines = _text(path).split("\n")[:-1]  # a last line without a line feed was torn
    if not lines or not lines[0].startswith('{"line":'):
        load(path, strict=True)
        return
    sessions = set()
    for number, text in enumerate(lines, 1):
        try:
            line = parsed(text)
        except (RecursionError, ValueError) as error:
            raise ResultsError(f"{path}: line {number}: not JSON: {error}") from None
        if not (error := best_match(_validator("line", False).iter_errors(line))):
            kind = {"profile": "traced"}.get(line["line"], line["line"])
            sessions |= {line["session"]} if kind == "session" else set()
            error = best_match(_validator(kind, True).iter_errors(line)) or line["session"] not in sessions and "no session"
        if error:
            raise ResultsError(f"{path}: line {number}: {plain(error, 300)}")


def _text(path: Path) -> str:
    """The file's text, decompressed if its name ends in .gz. Throws ResultsError."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path}: not JSON: {error}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ResultsError(f"{path}: damaged gzip data: {error}; get the file again") from None
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None


def parsed(text: str) -> dict:
    """JSON of finite numbers, no key twice in an object. Throws ValueError."""
    return json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole, object_pairs_hook=_object)


def load(path: Path, strict: bool = False) -> dict:
    """JSON that holds to the contract; where `strict`, with no further fields. Throws ResultsError naming the file and
    what is wrong with it."""
    try:
        data = parsed(_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ResultsError(f"{path}: not JSON: {error}") from None
    except ValueError as error:
        raise ResultsError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != 3:
        found = plain(data.get("schema")) if isinstance(data, dict) else "none"
        raise ResultsError(f"{named(path, data)}: schema {found}, expected 3")
    if error := best_match(_validator(kind_of(data), strict).iter_errors(data)):
        what = error.message if len(error.message) < 200 else f"not {error.validator} {error.validator_value}"
        where = plain(error.json_path[2:] or "the file", 200)
        raise ResultsError(f"{named(path, data)}: {where}: {plain(what, 200)}")
    try:
        return whole(data)
    except ValueError as error:
        raise ResultsError(f"{named(path, data)}: {error}") from None


def whole(data: dict) -> dict:
    """`data` with stretches of steps expanded to columns. Throws ValueError."""
    for run in data.get("runs", ()):
        of = f"{plain(run['variant'])}, round {run['round']}"
        run["steps"] = {name: _column(of, name, column, run["steps"]) for name, column in run["steps"].items()}
    return data


def answered(program: str, work: Callable[[], None]) -> int:
    """Calls work(). Returns the exit status: 0, or 2, with the reason on stderr, if a file can't be read or written."""
    try:
        work()
        return 0
    except ResultsError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"{program}: error: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2


def named(path: Path, data: dict) -> str:
    """The file's name in an error: the path that the user gave to `stepladder report`."""
    report = data.get("report") if isinstance(data, dict) else None
    return plain(report.get("path", path) if isinstance(report, dict) else path, 400)


def _column(of: str, name: str, column: list | dict, steps: dict) -> list:
    if isinstance(column, list) or name not in SCHEMA["$defs"]["steps"]["properties"]:
        return column
    if len(column["values"]) != len(column["times"]) or sum(column["times"]) != len(steps["step_ms"]):
        raise ValueError(f"{of}: {plain(name)}: its stretches are not as long as step_ms")
    return [value for value, times in zip(column["values"], column["times"]) for _ in range(times)]


def _finite(text: str) -> float:
    if abs(number := float(text)) < float("inf"):
        return number
    raise ValueError(f"{plain(text)} is not finite")


def _whole(text: str) -> int:
    if len(text) <= 20 and -2**63 <= (number := int(text)) < 2**64:
        return number
    raise ValueError(f"{plain(text)} is no 64-bit whole number")


def _object(pairs: list[tuple[str, object]]) -> dict:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError(f"a key is there twice among {plain(', '.join(data), 200)}")
    return data


@cache
def _validator(kind: str, strict: bool) -> Draft202012Validator:
    defs = {name: {"additionalProperties": False} | schema if strict and "properties" in schema else schema
            for name, schema in SCHEMA["$defs"].items()}
    return Draft202012Validator({"$ref": f"#/$defs/{kind if kind in SCHEMA['$defs'] else 'results'}", "$defs": defs})


# ---- the page of the documentation -----------------------------------------------------------------------------------


def page() -> str:
    """A section for each object with a title, in the order that they are first needed."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if "properties" not in SCHEMA["$defs"][name]:
            for ref in _refs(SCHEMA["$defs"][name]):
                visit(ref)
            return
        order.append(name)
        for schema in SCHEMA["$defs"][name]["properties"].values():
            for ref in _refs(schema):
                visit(ref)

    for kind in KINDS:
        visit(kind)
    text = "<!-- made by reports/schema.py --page from reports/results.schema.json; edit that -->\n\n" \
        f"# {SCHEMA['title']}\n\n{SCHEMA['description']}\n"
    for name in order:
        schema = SCHEMA["$defs"][name]
        text += f"\n{'##' if name in KINDS else '###'} {schema.get('title', name.capitalize())}\n\n"
        if "description" in schema:
            text += schema["description"] + "\n\n"
        text += "| field | type | holds |\n|---|---|---|\n"
        for key, field in schema["properties"].items():
            optional = "" if key in schema.get("required", ()) else ", optional"
            text += f"| `{key}` | {_type_of(field)}{optional} | {field.get('description', '')} |\n"
        for example in schema.get("examples", ()):
            text += f"\n```json\n{json.dumps(example)}\n```\n"
    return text


def _refs(schema: dict) -> list[str]:
    inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())]
    return [name for part in inner if isinstance(part, dict) for name in _refs(part)] + \
        [schema[key].rsplit("/", 1)[1] for key in ("$ref",) if key in schema]


def _type_of(schema: dict) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_type_of, schema["anyOf"]))
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        target = SCHEMA["$defs"][name]
        if "properties" not in target:
            return _type_of(target)
        title = target.get("title", name.capitalize())
        return f"[{title}](#{title.lower().replace(' ', '-').replace(',', '')})"
    if "items" in schema:
        return f"list of {_type_of(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{_type_of(schema['additionalProperties'])} by name"
    if "const" in schema or "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    types = schema["type"]
    return types if isinstance(types, str) else " or ".join(types)


def main(arguments: list[str]) -> int:
    if arguments == ["--page"]:
        print(page(), end="")
        return 0
    return answered("schema", lambda: [check(Path(path)) for path in arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
