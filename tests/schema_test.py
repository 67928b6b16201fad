"""The schema of results files, and how files are checked against it."""

import contextlib
import gzip
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent / "reports"), str(TESTS)]
try:
    import schema
    from charts_test import profile, sample
    from jsonschema import Draft202012Validator
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the reports' Python packages are not installed") from None

def load(data, **how):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.json")
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return schema.load(path, **how)


class Contract(unittest.TestCase):
    def test_it_is_a_json_schema_whose_examples_hold(self):
        Draft202012Validator.check_schema(schema.SCHEMA)
        for name, part in schema.SCHEMA["$defs"].items():
            for example in part.get("examples", ()):
                validator = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema.SCHEMA["$defs"]})
                self.assertEqual(list(validator.iter_errors(example)), [])

    def test_the_documentation_is_made_from_it(self):
        page = (TESTS.parent / "docs/results-schema.md").read_text(encoding="utf-8")
        self.assertEqual(page, schema.page(), "reports/schema.py --page >docs/results-schema.md renews it")
        titles = re.findall("^#+ (.*)", page, re.M)
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        self.assertEqual(set(re.findall(r"\]\(#([^)]*)\)", page)) - anchors, set())

    def test_every_field_says_what_it_holds(self):
        for name, part in schema.SCHEMA["$defs"].items():
            if "title" in part:
                silent = [key for key, field in part["properties"].items() if "description" not in field]
                self.assertEqual(silent, [], name)


class Files(unittest.TestCase):
    def refused(self, data, *words, **how):
        with self.assertRaises(schema.ResultsError) as caught:
            load(data, **how)
        said = str(caught.exception)
        self.assertEqual(said.count("\n"), 0)
        for word in ("results.json", *words):
            self.assertIn(word, said)

    def test_stretches_are_read_as_the_column_that_they_stand_for(self):
        data = sample()
        steps = data["runs"][1]["steps"]
        n = len(steps["step_ms"])
        steps["sm_mhz"] = {"values": [1980, None], "times": [n - 2, 2]}
        steps["throttle"] = {"values": [["sw_power_cap"]], "times": [n]}
        read = load(data, strict=True)["runs"][1]["steps"]
        self.assertEqual(read["sm_mhz"], [1980] * (n - 2) + [None] * 2)
        self.assertEqual(read["throttle"], [["sw_power_cap"]] * n)
        for times in ([n - 2, 1], [n - 2, 2, 1], [n]):
            steps["sm_mhz"]["times"] = times
            self.refused(data, data["runs"][1]["variant"], "sm_mhz")
        for values, times in (([1980, "fast"], [n - 2, 2]), ([1980, 1755], [n, 0]), ([1980], None)):
            steps["sm_mhz"] = {"values": values, "times": times}
            self.refused(data, "runs[1].steps.sm_mhz")

    def test_a_damaged_file_is_one_line_that_names_it(self):
        begin = {"line": "session", "schema": 3, "session": "a", "context": sample()["context"], "plan": {}}
        whole = gzip.compress(json.dumps(begin).encode() + b"\n")
        lines = [("not JSON", '{"line":'), ("session", '{"line":"run"}'), ("line", "[]"), ("line", '{"line":[]}'), ("64-bit", f'{{"line":{10**30}}}')]
        for name, words, content in (
                *(("a.jsonl", f"line 2: .*{word}", f'{json.dumps(begin, separators=(",", ":"))}\n{line}\n'.encode()) for word, line in lines),
                ("a.jsonl.gz", "get the file again", whole[:-9]), ("a.jsonl.gz", "get the file again", b"{}"),
                ("a.jsonl.gz", "get the file again", whole[:12] + b"\xff" * 9 + whole[21:]), ("a.jsonl", "not JSON", b"\xff\n")):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
                Path(folder, name).write_bytes(content)
                self.assertEqual(schema.main([f"{folder}/{name}"]), 2)
            self.assertRegex(said.getvalue(), f"^schema: error: {folder}/{name}: .*{words}.*\n$")

    def test_a_field_that_is_not_in_the_contract_is_seen_where_asked_for(self):
        data = sample()
        load(data, strict=True)
        data["runs"][0]["joules"] = 1
        load(data)
        self.refused(data, "joules", "runs[0]", strict=True)

    def test_what_does_not_hold_is_named_with_its_place(self):
        for change, words in (({"runs": 3}, ["runs"]), ({"schema": 4}, ["schema 4"]), ({"schema": "2"}, ["schema"]), ({"schema": True}, ["schema"])):
            self.refused(sample() | change, *words)
        data = sample()
        data["runs"][1]["config"]["x"] = [[[1]]]
        self.refused(data, "runs[1].config.x")
        data = profile()
        del data["profile"]["kernel_types"][0]["type"]
        self.refused(data, "profile.kernel_types[0]", "type")

    def test_a_config_may_be_as_deep_as_a_run_may_tell_it(self):
        for value in (1, None, [[0, 1], [2, 3]], [{"h": 1}], {"a": {"b": 1}}, {"a": [1]}, [[]]):
            data = sample()
            data["runs"][1]["config"]["x"] = value
            load(data, strict=True)
        for value in ([[[]]], [[{}]], [{"a": []}], {"a": {"b": {}}}, {"a": [[1]]}):
            data = sample()
            data["runs"][1]["config"]["x"] = value
            self.refused(data, "runs[1].config.x")

    def test_whole_numbers_have_64_bits(self):
        data = sample()
        for value in (2**64 - 1, -2**63):
            data["runs"][1]["config"]["x"] = value
            self.assertEqual(load(data)["runs"][1]["config"]["x"], value)
        for value in (2**64, -2**63 - 1):
            data["runs"][1]["config"]["x"] = value
            self.refused(data, "64-bit")

    def test_a_key_that_is_there_twice_and_numbers_that_are_none_are_refused(self):
        text = json.dumps(sample())
        self.refused(text.replace('"round": 0', '"round": 0, "round": 0', 1), "round")
        self.refused(text.replace('"round": 0', f'"round": {10**30}', 1), "64-bit")
        self.refused(text.replace('"startup_ms": 640.0', '"startup_ms": 1e999', 1), "1e999")


if __name__ == "__main__":
    unittest.main()
