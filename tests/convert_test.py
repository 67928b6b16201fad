"""Converts files of schema 2 to results files."""

import contextlib
import gzip
import io
import json
import sys
import unittest
from pathlib import Path
from temporary import temp_folder

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent / "reports"), str(TESTS)]
try:
    import convert
    import schema
    from charts_test import profile, sample
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the reports' Python packages are not installed") from None


def in_columns(runs):
    """Runs in columns, as in a campaign's file: repeated values stand once, and columns that some runs lack list their
    places."""
    columns = {}
    for key in dict.fromkeys(key for run in runs for key in run):
        places = [i for i, run in enumerate(runs) if key in run]
        values = [runs[i][key] for i in places]
        each = [json.loads(text) for text in dict.fromkeys(map(json.dumps, values))]
        column = {"values": each, "of": [each.index(value) for value in values]} if len(each) > 1 else {"values": each}
        columns[key] = column if len(places) == len(runs) else {"in": places, "column": column}
    return {"rows": len(runs), "columns": columns}


class Conversion(unittest.TestCase):
    def setUp(self):
        folder = temp_folder(self)
        self.old, self.new = folder / "old.json", folder / "new.jsonl"

    def converted(self, data):
        self.old.write_text(json.dumps(data | {"schema": 2}))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(convert.main([str(self.old), str(self.new)]), 0)
        schema.check(self.new)
        return [json.loads(line) for line in self.new.read_text().splitlines()]

    def runs(self, lines):
        return [{key: value for key, value in line.items() if key not in ("line", "session")}
                for line in lines if line["line"] == "run"]

    def test_results_keep_context_plan_runs_and_how_they_ended(self):
        data = sample() | {"stopped": {"reason": "rounds"}}
        lines = self.converted(data)
        self.assertEqual((lines[0]["context"], lines[0]["plan"]), (data["context"], data["plan"]))
        self.assertEqual(self.runs(lines), data["runs"])
        self.assertEqual((lines[-1]["complete"], lines[-1]["stopped"]), (True, data["stopped"]))

    def test_a_journal_adds_what_finished_after_the_file_was_written(self):
        data = sample()
        runs, data["runs"], data["complete"] = data["runs"], data["runs"][:1], False
        journal = [{"schema": 2, "context": data["context"]}, *runs]  # the first run is in both files
        self.old.with_name("old.json.journal").write_text("".join(json.dumps(line) + "\n" for line in journal) + '{"torn')
        lines = self.converted(data)
        self.assertEqual(self.runs(lines), runs)
        self.assertFalse(lines[-1]["complete"])

    def test_parts_of_a_campaign_keep_names_runs_profiles_and_what_was_skipped(self):
        ladder = sample()
        parts = [{"name": "ladder", "about": "all", "command": "run", "exit_code": 0, "wall_s": 7.5,
                  "result": ladder | {"schema": 2, "runs": in_columns(ladder["runs"])}},
                 {"name": "profile_13", "about": "", "command": "profile 13", "exit_code": 0, "result": profile() | {"schema": 2}},
                 {"name": "devices", "about": "on two", "command": "run", "skipped": "needs 2 devices"}]
        lines = self.converted({"kind": "campaign", "commit": "abc", "device": ladder["context"]["device"], "complete": True,
                                "parts": parts})
        begun = [line for line in lines if line["line"] == "session"]
        self.assertEqual([line["part"] for line in begun], ["ladder: all", "profile_13", "devices: on two"])
        self.assertEqual(self.runs(lines), ladder["runs"])
        ends = [line for line in lines if line["line"] == "end"]
        self.assertEqual((ends[0]["exit_code"], ends[0]["wall_s"], ends[2]["skipped"]), (0, 7.5, "needs 2 devices"))
        traced = next(line for line in lines if line["line"] == "profile")
        self.assertEqual(traced["phases"], profile()["profile"]["phases"])

    def test_the_same_file_is_made_of_the_same(self):
        once = self.converted(sample())
        self.new.unlink()
        self.assertEqual(self.converted(sample()), once)

    def test_a_name_that_ends_in_gz_is_compressed(self):
        lines = self.converted(sample())
        self.new = self.new.with_suffix(".jsonl.gz")
        self.old.write_text(json.dumps(sample() | {"schema": 2}))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(convert.main([str(self.old), str(self.new)]), 0)
        self.assertEqual([json.loads(line) for line in gzip.decompress(self.new.read_bytes()).splitlines()], lines)

    def test_what_is_none_of_these_is_refused_in_one_line_and_nothing_is_replaced(self):
        self.new.write_text("of mine")
        whole = gzip.compress(json.dumps(sample() | {"schema": 2}).encode())
        damaged = whole[:-9], whole[:40] + b"\xff" * 40 + whole[80:], b"\x1f\x8b\0\0", whole[:-8] + b"\0" * 8
        for text in (b"", b"[]", b"{", b'{"schema": 3}', b'{"schema": 2, "kind": "noise"}', b'{"schema": 2, "runs": {"rows": 1}}',
                     b"[" * 100_000, *damaged):
            for new in (self.new, self.new.with_name("other.jsonl")):
                self.old.write_bytes(text)
                said = io.StringIO()
                with contextlib.redirect_stderr(said):
                    self.assertEqual(convert.main([str(self.old), str(new)]), 2, text[:40])
                self.assertEqual(said.getvalue().count("\n"), 1)
                self.assertIn(str(new if new.exists() else self.old), said.getvalue())
        self.assertEqual(self.new.read_text(), "of mine")
        self.assertFalse(self.new.with_name("other.jsonl").exists())
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(convert.main(["/nowhere.json", "x"]), 2)

    def test_a_field_that_is_missing_is_named_as_one(self):
        self.old.write_text('{"schema": 2, "runs": {"rows": 1}}')
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            convert.main([str(self.old), str(self.new)])
        self.assertIn("field 'columns'", said.getvalue())


if __name__ == "__main__":
    unittest.main()
