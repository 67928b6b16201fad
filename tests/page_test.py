"""The page of a report: what it holds, what it makes of hostile and missing fields, and how a browser takes it."""

import contextlib
import copy
import csv
import functools
import io
import json
import re
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

TESTS = Path(__file__).resolve().parent
REPORTS = TESTS.parent / "reports"
sys.path[:0] = [str(REPORTS), str(TESTS)]
try:
    import charts
    import page
    import profiles
    import report
    import results
    import schema
    from browser import Browser, find
    from kept import parts
    from charts_test import (ROUNDS, RUNGS, config, disturbed, everything, failing, gain, profile, read, row, run,
                             sample, until_loss, variant, with_energy, with_other_peer, with_peers)
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the page's Python packages are not installed") from None


def write(folder, *datas):
    """Runs the command on these results. Returns its exit status, what it said, and its folder."""
    paths, out, said = [], Path(folder, "out"), io.StringIO()
    for number, data in enumerate(datas):
        paths.append(Path(folder, f"results{number}.json"))
        paths[-1].write_text(data if isinstance(data, str) else json.dumps(data))
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = report.main([*map(str, paths), "--out", str(out)])
    return status, said.getvalue(), out


def without_charts():
    """Drawing charts is most of the work."""
    return mock.patch.object(charts, "write", return_value={})


def page_of(*datas, charts=False):
    """The page of these results; drawing its charts is most of the work."""
    if charts:
        with tempfile.TemporaryDirectory() as folder:
            status, said, out = write(folder, *datas)
            assert status == 0, said
            return (out / "index.html").read_text(encoding="utf-8")
    return page.render([read(data) for data in datas], [], {}, {})


@functools.cache
def drawn_page():
    """The page of everything(), with its charts."""
    return page_of(everything(), charts=True)


def csv_of(*datas):
    """The rows of results.csv."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.csv")
        report.write_csv([read(data) for data in datas], path)
        with path.open(newline="") as file:
            return list(csv.DictReader(file))


class Tags(HTMLParser):
    """The tags of a page, with their attributes, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


class Groups(unittest.TestCase):
    def test_rungs_that_are_one_step_elsewhere_are_taken_as_one(self):
        row_of = {name: results.Row(name, "ok", "", median_ms=ms) for name, ms in
                  (("05_mixed_precision", 100.0), ("06_fused_classifier", 90.0), ("08_fused_elementwise", 50.0),
                   ("10_padded_vocab", 30.0))}
        row_of["05_mixed_precision"].counterpart = results.Row("pytorch/05_mixed_precision", "ok", "", median_ms=140.0)
        row_of["08_fused_elementwise"].counterpart = results.Row("pytorch/08_fused_elementwise", "ok", "", median_ms=70.0)
        workload = results.Workload("gpt2", 16, 1024, rows=list(row_of.values()))
        fused, = results.groups_of(workload)
        self.assertEqual((fused.name, fused.gain, fused.gain_in_pytorch), ("fused kernels", 2.0, 2.0))

    def test_a_groups_gain_is_of_the_rounds_that_both_ends_have(self):
        before = results.Row("05_mixed_precision", "ok", "", median_ms=10.0, rates={0: 100.0, 1: 100.0, 2: 50.0, 3: 50.0})
        after = results.Row("08_fused_elementwise", "ok", "", median_ms=16.0, rates={2: 62.5, 3: 62.5})
        group, = results.groups_of(results.Workload("gpt2", 16, 1024, rows=[before, after]))
        self.assertEqual(group.gain, 1.25)

    def test_a_group_whose_end_failed_has_no_number(self):
        rows = [results.Row("05_mixed_precision", "ok", "", median_ms=100.0),
                results.Row("08_fused_elementwise", "oom", "does not fit")]
        self.assertEqual(results.groups_of(results.Workload("gpt2", 16, 1024, rows=rows)), [])


def on(device, data, ratios=None):
    """`data` as measured on another device, with these speed-ups over the baseline."""
    data["context"]["device"]["name"] = device
    for rung, ratio in (ratios or {}).items():
        variant(data, rung)["speedup_baseline"]["ratio"] = ratio
    return data


def beside_each_other(*datas):
    """What the page has of several devices: its columns as (what, device), and by rung its cells. None if nothing."""
    html = page_of(*datas)
    if "beside each other" not in html:
        return None
    table = html[html.index("beside each other"):]
    table = table[:table.index("</table>")]
    rows = table[table.index("<tbody>"):].split("</tr>")[:-1]
    return (re.findall(r">(× [\w.]+)<small>([^<]+)</small>", table),
            {re.search('data-key="([^"]*)"', row)[1]:
             [Tags(cell).text.strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)] for row in rows})


class Page(unittest.TestCase):
    def test_the_answer_comes_first(self):
        html = page_of(everything())
        head = Tags(html[html.index("<main>"):html.index('id="ladder"')]).text
        self.assertRegex(" ".join(head.split()), r"^\W*02_tf32 .*2\.5×")
        for part in ("2.00×", "pytorch/02_tf32", "0.1 GiB", "NVIDIA H200"):
            self.assertIn(part, head)

    def test_no_rung_is_called_fastest_where_speeds_say_nothing(self):
        data = everything()
        data["report"] = {"learning": "All 3 rungs learn."}
        html = page_of(data)
        answer = Tags(html[html.index('class="answer"'):html.index('id="ladder"')]).text
        self.assertIn("All 3 rungs learn.", answer)
        self.assertNotIn("fastest", answer)

    def test_it_needs_nothing_else(self):
        html = drawn_page()
        self.assertIn("default-src 'none'", html)
        for tag, attributes in Tags(html).tags:
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "image", "base"))
            self.assertNotIn("src", attributes)
            for name in ("href", "xlink:href"):
                if tag != "a" and name in attributes:
                    self.assertTrue(attributes[name].startswith("#"), attributes)
        self.assertEqual(re.findall(r"url\((?!#)[^)]*\)|@import", html), [])

    def test_no_two_elements_have_the_same_id(self):
        tags = Tags(drawn_page()).tags
        ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))

    def test_memory_that_only_the_process_knows_is_no_live_memory(self):
        data = everything()
        for item in data["variants"]:
            item["memory_bytes"].update(live_peak=0, reserved_peak=0)
        other = copy.deepcopy(data)
        other["context"]["device"]["name"] = "Tesla T4"
        for datas in ((data,), (data, other)):
            html = page_of(*datas, charts=True)
            text = Tags(html[html.index("<main>"):html.index('id="charts"')]).text
            self.assertNotIn("GiB", text)
            self.assertNotIn("Memory", text)
        self.assertIn("| - / - |", Renewed.tables(data))
        row = csv_of(data)[0]
        self.assertEqual([row[f"{name}_peak_bytes"] for name in ("live", "reserved", "process")],
                         ["", "", str(120 * 2**20)])

    def test_what_can_be_scrolled_has_a_name_of_its_own(self):
        tags = Tags(drawn_page()).tags
        ids = {attributes.get("id") for _, attributes in tags}
        charts = [attributes for _, attributes in tags if attributes.get("role") == "img"]
        self.assertIn("Step time", " ".join(chart["aria-label"] for chart in charts))
        self.assertLessEqual({chart["aria-describedby"] for chart in charts}, ids)
        names = [attributes["aria-label"] for _, attributes in tags if "tabindex" in attributes]
        self.assertIn("Diff of 02_tf32", names)

    def test_what_charts_refer_to_is_in_the_page(self):
        html = drawn_page()
        ids = set(re.findall(r'\bid="([^"]*)"', html))
        self.assertEqual(set(re.findall(r'(?:href="#|url\(#)([^")]*)', html)) - ids, set())

    def test_a_rung_of_ones_own_leads_to_what_its_command_changes(self):
        data = everything()
        data["plan"]["ladder"] = {"name": "mine", "rungs": [
            {"name": name, "parent": parent, "command": ["python3", "train.py", *more], "environment": environment}
            for name, parent, more, environment in (("00_fp32_baseline", None, [], {"A": "1"}),
                                                    ("02_tf32", "00_fp32_baseline", ["--tf32"], {"A": "2"}))]}
        data["plan"]["ladder"]["rungs"].append({"name": "01_causal_mask", "parent": "02_tf32", "command": ["true"]})
        html = page_of(data)
        self.assertEqual(re.findall('<details id="diff-(.*?)"', html), ["02_tf32", "01_causal_mask"])
        section = Tags(html[html.index('id="diffs"'):html.index('id="how"')]).text
        for part in ("3 lines against 00_fp32_baseline", "-A=1", "+A=2", " train.py", "+--tf32"):
            self.assertIn(part, section)
        self.assertIn(("a", {"href": "#diff-02_tf32"}), Tags(html).tags)

    def test_a_rung_leads_to_its_diff(self):
        tags = Tags(page_of(sample()))
        self.assertIn(("a", {"href": "#diff-02_tf32"}), tags.tags)
        self.assertIn(("details", {"id": "diff-02_tf32"}), tags.tags)
        self.assertIn("+  const Precision precision = Precision::tf32;", tags.text)

    def test_a_diff_has_no_more_lines_than_the_rung_may_change(self):
        for name, rung in page.sources.LADDER.items():
            if diff := page.sources.diff(name):
                self.assertLessEqual(diff.changed, rung["diff_budget"], name)

    def test_a_diffs_gain_is_of_the_main_workload_or_names_another(self):
        def gained(rung, B, ms, gain):
            return row(rung, B, ms) | {"speedup_previous": {"ratio": gain, "lo": None, "hi": None, "against": "x"}}

        main, other = sample(), sample((8,))
        other["report"] = {"name": "other.json"}
        other["variants"] = [gained("02_tf32", 8, 9.0, 1.5), gained("03_fused_adamw", 8, 8.0, 1.25)]
        other["runs"] += [run("03_fused_adamw", 8, number, 8.0) for number in range(ROUNDS)]
        main["variants"][-1] = gained("02_tf32", 4, 20.0, 1.75)
        html = page_of(main, other)
        self.assertIn(" lines against 01_causal_mask, 1.75×</span>", html)
        self.assertIn(" lines against 02_tf32, 1.25× on gpt2-tiny, B = 8, T = 64</span>", html)

    def test_what_a_rung_is_comes_before_what_it_takes_and_a_single_peer_has_no_column_of_its_time(self):
        data = everything()
        variant(data, "02_tf32")["speedup_peers"].append({"ratio": 1.2, "lo": 1.1, "hi": 1.3, "against": "llmc"})
        html = page_of(data)
        names = re.findall(r"<button[^>]*>(.*?)</button>", html[:html.index("</thead>")])
        self.assertLess(max(map(names.index, ("GiB", "status"))), min(map(names.index, ("J/step", "tok/J"))))
        self.assertIn("× llm.c", names)
        self.assertIn("PyTorch ms", names)
        self.assertNotIn("llm.c ms", names)
        self.assertIn("21.00 ms", html[html.index('id="ladder"'):html.index("<table")], "which is said once")

    def test_energy_and_cycles_are_columns_where_a_row_knows_them(self):
        def tables(data):
            html = page_of(data)
            return Tags(html[html.index('id="ladder"'):html.index('id="charts"')]).text

        self.assertNotRegex(tables(sample()), "J/step|tok/J|Mcycles")
        one = with_energy(with_peers(sample()))
        for item in one["variants"]:
            if item["variant"] != "02_tf32":
                del item["joules"], item["tokens_per_joule"]
        text = tables(one)
        for known in ("J/step", "8.500", "tok/J", "30.12", "Mcycles", "25.50"):
            self.assertIn(known, text)
        self.assertNotRegex(text[text.index("Peers"):], "J/step|tok/J|Mcycles")

    def test_time_to_a_loss_is_a_table_where_a_row_knows_it(self):
        def table(*datas):
            html = page_of(*datas)
            html = html[html.index('id="ladder"'):html.index('id="charts"')]
            self.assertEqual(html.count("Time to a loss</h3>"), len(datas))
            html = html[html.index("Time to a loss</h3>"):]
            rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, flags=re.S) for row in
                    html[:html.index("</table>")].split("<tr>")[1:]]
            return [[" ".join(re.sub(r"<.*?>", " ", cell).split()) for cell in row] for row in rows]

        data = until_loss(sample(), [("00_fp32_baseline", 0), *(("02_tf32", number) for number in range(ROUNDS))])
        self.assertEqual(table(data), [
            ["trained to a loss", "val loss", "reached", "seconds", "× 00_fp32_baseline", "steps", "Mtokens", "kJ"],
            ["00_fp32_baseline", "≤ 7", "2 of 3", "1.398 1.392 to 1.404", "1.00×", "12", "3.000", "0.699"],
            ["01_causal_mask", "≤ 7", "3 of 3", "1.368 1.356 to 1.380", "1.02×", "12", "3.000", "0.684"],
            ["02_tf32", "≤ 7", "0 of 3", "–", "–", "–", "–", "–"]])
        self.assertNotIn("Time to a loss</h3>", page_of(sample()))
        other = until_loss(sample())
        other["context"]["device"]["name"] = "Tesla T4"
        self.assertEqual(table(data, other)[0],
                         ["trained to a loss", "val loss", "reached", "× 00_fp32_baseline", "steps", "Mtokens"])

    def test_a_ratios_interval_is_named_by_the_rounds_of_both(self):
        data = sample()
        variant(data, "02_tf32")["speedup_baseline"] |= {"lo": 2.4, "hi": 2.6, "rounds": 2}
        self.assertIn("range (50 %) 2.40× to 2.60×", page_of(data))

    def test_where_the_loss_was_never_reached_there_are_no_numbers(self):
        data = until_loss(sample(), [(rung, number) for rung in RUNGS for number in range(ROUNDS)])
        html = page_of(data)
        html = html[html.index("Time to a loss</h3>"):html.index('id="charts"')]
        self.assertEqual(html.count("0 of 3"), len(RUNGS))
        self.assertNotIn("seconds</button>", html)

    def test_a_failed_rung_has_its_reason_and_no_number(self):
        html = page_of(failing(sample(), "02_tf32", "unsupported", "needs sm_80"))
        row = html[html.index('data-key="02_tf32"'):]
        row = Tags(row[row.index(">") + 1:row.index("</tr>")]).text
        self.assertIn("needs sm_80", row)
        self.assertEqual(re.findall(r"\d+\.\d+", row), [])

    def test_warnings_are_shown(self):
        data = failing(sample(), "02_tf32", "diverged", "loss left the baseline's")
        data["report"] = {"name": "results.json", "warnings": ["Unfinished: 3 of 9 runs"], "notes": ["a note"]}
        data["variants"][1] |= {"disturbed": True, "disturbance": "throttled", "disturbed_rounds": 3}
        for item in data["runs"]:
            item["source_hash"] = "0" * 64
        html = page_of(data)
        text = Tags(html[html.index('class="warnings"'):html.index('id="ladder"')]).text
        for part in ("Unfinished: 3 of 9", "diverged: 02_tf32", "Stale"):
            self.assertIn(part, text)
        self.assertIn('data-key="throttled"', html)
        self.assertIn("a note", html)

    def test_the_sources_that_were_measured_are_not_stale(self):
        data = sample()
        for item in data["runs"]:
            item["source_hash"] = page.sources.source_hash(item["variant"])
        self.assertNotIn("Stale", page_of(data))

    def test_of_several_devices_only_ratios_are_shown(self):
        other = everything()
        other["context"]["device"]["name"] = "Tesla T4"
        html = page_of(everything(), other, charts=True)
        ladder = html[html.index("<main>"):html.index('id="charts"')]
        self.assertIn("Tesla T4", ladder)
        self.assertIn("2.50×", ladder)
        self.assertNotRegex(Tags(ladder).text, r"\d ms|GiB|tok/s|J/step|tok/J|Mcycles|17\.0")
        for absolute in ("ladder", "memory", "energy", "to_loss", "steps", "batch", "dtype", "phases", "gap", "history"):
            self.assertIn(f"<li>{absolute}: several devices", html)

    def test_several_devices_stand_beside_each_other(self):
        one, other = (with_other_peer(with_peers(sample())) for _ in range(2))
        columns, rows = beside_each_other(failing(one, "01_causal_mask", "oom", "no memory"),
                                          on("NVIDIA T4", other, {"02_tf32": 1.25}))
        self.assertEqual(columns, [(column, device) for column in ("× baseline", "× jax") for device in ("H200", "T4")])
        self.assertEqual(list(rows), ["00_fp32_baseline", "01_causal_mask", "02_tf32"])
        self.assertEqual(rows["02_tf32"], ["2.50×", "1.25×", "3.00×", "3.00×"])
        self.assertEqual(rows["01_causal_mask"], ["–", "1.05×", "–", "3.00×"])

    def test_a_cpu_with_other_cores_is_another_device(self):
        def on_cores(cores):
            data = on("AMD EPYC", sample())
            data["context"]["device"]["backend"] = "cpu"
            data["context"]["cores"] = cores
            return data
        self.assertEqual(read(on_cores(1)).device, "AMD EPYC, 1 core")
        both = results.together([read(on_cores(2)), read(on_cores(64))])
        self.assertTrue(both.mixed, "milliseconds don't compare")
        self.assertEqual([workload.device for workload in both.workloads], ["AMD EPYC, 2 cores", "AMD EPYC, 64 cores"])
        self.assertFalse(results.together([read(on_cores(2)), read(on_cores(2))]).mixed)

    def test_devices_are_compared_on_what_several_have(self):
        other = on("Tesla T4", sample(batches=(8,)))
        self.assertIsNone(beside_each_other(sample(), other))
        for first in (sample(batches=(4, 8)), sample(batches=(8, 4))):
            self.assertEqual(beside_each_other(first, other)[1]["02_tf32"], ["2.50×", "2.50×"])
        only = on("Tesla T4", sample())
        del only["variants"][1:]
        only["runs"] = [item for item in only["runs"] if item["variant"] == "00_fp32_baseline"]
        self.assertIsNone(beside_each_other(sample(), only))

    def test_ladders_of_others_do_not_stand_beside_ours(self):
        other = on("Tesla T4", sample())
        other["plan"]["ladder"] = {"name": "mine", "rungs": [{"name": name, "parent": None, "command": ["true"]}
                                                             for name in RUNGS]}
        self.assertIsNone(beside_each_other(sample(), other))

    def test_what_diverged_in_the_ladder_takes_no_ratio_from_elsewhere(self):
        ladder, part = sample(), sample()
        for data, ratio in ((ladder, 2.0), (part, 9.0)):
            data["variants"].append(row("fp8", 4, 10.0))
            variant(data, "fp8")["speedup_baseline"]["ratio"] = ratio
            data["runs"] += [run("fp8", 4, number, 10.0) for number in range(ROUNDS)]
        other = on("Tesla T4", copy.deepcopy(ladder))
        self.assertEqual(beside_each_other(ladder, part, other)[1]["fp8"], ["2.00×", "2.00×"])
        self.assertEqual(beside_each_other(failing(ladder, "fp8", "diverged", "left it"), part, other)[1]["fp8"],
                         ["–", "2.00×"])

    def test_ratios_against_different_rungs_say_against_which(self):
        datas = [sample(), on("Tesla T4", sample())]
        for data, against in zip(datas, ("01_causal_mask", "00_fp32_baseline")):
            variant(data, "02_tf32")["speedup_previous"] = {"ratio": 2.0, "lo": None, "hi": None, "against": against}
        self.assertEqual(beside_each_other(*datas)[1]["02_tf32"][:2],
                         ["2.00×of 01_causal_mask", "2.00×of 00_fp32_baseline"])

    def test_devices_are_called_shortly_but_never_alike(self):
        for names, called in ((("NVIDIA H100", "NVIDIA H100 PCIe"), ["H100", "H100 PCIe"]),
                              (("NVIDIA H100", "NVIDIA  H100"), ["NVIDIA H100", "NVIDIA  H100"]),
                              (("A", "B"), ["A", "B"])):
            self.assertEqual(list(page._shortly(names).values()), called)

    def test_measurements_are_listed_by_device(self):
        datas = [sample() for _ in range(4)]
        for number, data in enumerate(datas):
            data["context"]["device"]["name"] = ("NVIDIA H200", "Tesla T4")[number % 2]
            data["report"] = {"name": f"{number}.json"}
        html = page_of(*datas)
        self.assertEqual(re.findall(r"Other measurements on ([^<]*)</h3>\s*<details>\s*<summary>(\S*)", html),
                         [("NVIDIA H200", "2.json"), ("Tesla T4", "3.json")])

    def test_one_row_a_rung_and_peer_goes_into_the_csv(self):
        data = failing(with_energy(with_peers(sample())), "02_tf32", "oom", 'wants "90, has 80')
        rows = {row["variant"]: row for row in csv_of(data)}
        self.assertEqual(len(rows), 7)
        self.assertEqual([rows["01_causal_mask"][name] for name in ("median_step_ms", "cycles", "joules")],
                         ["39.0", "78000000.0", "19.5"])
        self.assertEqual((rows["02_tf32"]["reason"], rows["02_tf32"]["median_step_ms"]), ('wants "90, has 80', ""))

    def test_rows_on_several_devices_and_disturbed_ones_can_be_told_apart_in_the_csv(self):
        data = everything()
        data["variants"][0] |= {"disturbed": True, "disturbance": "throttled", "disturbed_rounds": 3}
        rows = csv_of(data)
        keys = [(row["variant"], row["model"], row["B"], row["T"], row["devices"]) for row in rows]
        self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual([row["variant"] for row in rows if row["disturbance"] == "throttled"],
                         [data["variants"][0]["variant"]])

    def test_rounds_are_those_that_the_numbers_are_of(self):
        data = disturbed(until_loss(sample()), "02_tf32", [1])
        variant(data, "02_tf32")["to_loss"]["reached"] = 2
        self.assertEqual([row["rounds"] for row in csv_of(data)], ["3", "3", "2"])
        text = Tags(page_of(data)).text
        self.assertEqual([text.count(said) for said in ("2 of 2", "3 of 3", "2 of 3")], [1, 2, 0])
        for how in ("throttled", "shared"):
            data = disturbed(until_loss(sample()), "02_tf32", range(ROUNDS), how)
            self.assertEqual([row["rounds"] for row in csv_of(data)], ["3"] * 3, "where all are, all count")

    def test_published_tables_are_markdown_too(self):
        with tempfile.TemporaryDirectory() as folder:
            _, _, out = write(folder, sample())
            text = (out / "published.md").read_text(encoding="utf-8")
        self.assertIn("| compile | 145 | 7.17× |", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)

    def test_begins_as_the_command_knows_its_own_files_which_it_replaces(self):
        with tempfile.TemporaryDirectory() as folder:
            _, _, out = write(folder, sample())
            known = Path(report.__file__).parent.parent.joinpath("bench/results/file.cpp").read_text(encoding="utf-8")
            for name, begins in (("results.csv", "file,device,backend,"), ("index.html", "<title>Stepladder"),
                                 ("published.md", "# Published numbers and ours")):
                self.assertIn(begins, known)
                self.assertIn(begins, (out / name).read_text(encoding="utf-8")[:1000], name)

    def test_beside_trainers_of_ones_own_nothing_published_and_no_command_for_our_rungs_is_shown(self):
        data = sample()
        data["plan"]["ladder"] = {"name": "mine", "rungs": [{"name": name, "parent": None} for name in RUNGS]}
        with tempfile.TemporaryDirectory() as folder:
            _, _, out = write(folder, data)
            html = (out / "index.html").read_text(encoding="utf-8")
            self.assertFalse((out / "published.md").exists())
        for ours in ('id="published"', 'href="#published"', "stepladder ablate", "stepladder profile"):
            self.assertNotIn(ours, html)


class Together(unittest.TestCase):
    """Results, sweeps, peers and profiles of one device on one page."""

    def files(self):
        llmc = with_peers(sample())
        llmc["report"] = {"name": "llmc.json", "warnings": ["Unfinished: 3 of 9 runs"],
                          "against": [{"ratio": 1.2, "lo": 1.1, "hi": 1.3, "against": "llmc"}]}
        return everything() | {"report": {"name": "ladder.json"}}, llmc, profile()

    def test_the_first_results_lead_and_the_others_follow_with_their_warnings(self):
        html = page_of(*self.files()[:2])
        answer = Tags(html[html.index('class="answer"'):html.index('id="ladder"')]).text
        self.assertEqual(html.count('class="answer"'), 1)
        self.assertNotIn("Unfinished", answer)
        besides = html[html.index("Other measurements"):html.index('id="charts"')]
        self.assertRegex(" ".join(Tags(besides).text.split()), r"llmc\.json 3 rungs.*1 warning.*Unfinished: 3 of 9")

    def test_a_peer_that_another_file_measured_is_in_the_answer_with_its_interval(self):
        def tiles(*datas):
            html = page_of(*datas)
            return re.sub(r"\s+", " ", Tags(html[html.index("<dl"):html.index("</dl>")].replace("</d", " </d")).text)

        text = tiles(*self.files()[:2])
        self.assertRegex(text, r"llm\.c.*1\.20×.*llmc, 21\.00 ms.*\(75 %\) 1\.10× to 1\.30×.*llmc\.json.*17\.00 ms")
        self.assertRegex(text, r"PyTorch.*2\.00×.*pytorch/02_tf32.*\(75 %\) 1\.90× to 2\.10×")
        self.assertNotIn("95 % interval", page_of(*self.files()[:2]))
        self.assertIn("--peer llmc", tiles(everything()))

    def test_another_peer_is_in_the_answer_and_only_our_ladder_lacks_the_usual_ones(self):
        def tiles(data):
            html = page_of(data)
            return Tags(html[html.index("<dl"):html.index("</dl>")]).text

        data = with_other_peer(sample())
        text = tiles(data)
        self.assertRegex(text, "jax.*3.00×")
        self.assertEqual(text.count("not measured"), 2)
        data["plan"]["ladder"] = {"name": "mine", "rungs": [{"name": name, "parent": None} for name in RUNGS]}
        text = tiles(data)
        self.assertRegex(text, "jax.*3.00×")
        self.assertNotIn("not measured", text)

    def test_a_faster_trainer_beside_the_ladder_is_in_the_answer_with_its_file(self):
        def tiles(*datas):
            """By number, what stands with it."""
            found = re.findall("<div><dt>(.*?)</dt><dd>(.*?)</dd>(.*?)</div>", page_of(*datas))
            return {number: title + " " + more for title, number, more in found}

        def beside(ms, rounds=ROUNDS, name="beside.json"):
            data = sample()
            data["report"] = {"name": name}
            data["variants"] = [row("fp8", 4, ms) | {"rounds": rounds, "speedup_peers": [
                {"ratio": 1.53, "lo": None, "hi": None, "against": "llmc"}]}]
            data["runs"] = [run("fp8", 4, number, ms) for number in range(rounds)]
            return data

        self.assertRegex(tiles(sample(), beside(10.0))["11.00 ms"], r"fp8.*1\.53×.*beside\.json")
        self.assertIn("11.00 ms", tiles(sample(), beside(8.0, 1), beside(10.0)), "of the most rounds")
        self.assertNotIn("21.00 ms", tiles(sample(), beside(20.0)))
        other = beside(10.0)
        for item in other["variants"] + other["runs"]:
            item["config"] = config(8)
        self.assertNotIn("11.00 ms", tiles(sample(), other), "on another batch")
        elsewhere = beside(10.0)
        elsewhere["context"]["device"]["name"] = "Tesla T4"
        self.assertNotIn("11.00 ms", page_of(sample(), elsewhere))
        diverged = failing(beside(12.0, name="loss.json"), "fp8", "diverged", "step 10: 0.03 apart")
        self.assertIn("; diverged in loss.json", tiles(sample(), beside(10.0), diverged)["11.00 ms"])
        self.assertNotIn("diverged in", page_of(sample(), beside(10.0)))

    def test_the_answer_says_where_its_rung_diverged(self):
        def measured(name):
            return everything() | {"report": {"name": name}}

        fastest = re.search("<h1><code>(.*?)</code>", page_of(measured("ladder.json"))).group(1)
        diverged = failing(measured("loss.json"), fastest, "diverged", "step 663: 0.03 apart")
        answer = re.search("<dt>Against the baseline</dt>.*?</div>", page_of(measured("ladder.json"), diverged)).group()
        self.assertIn(f"; {fastest} diverged in loss.json", answer)
        other = failing(measured("loss.json"), "00_fp32_baseline", "crash", "no memory")
        self.assertNotIn("diverged in", page_of(measured("ladder.json"), other))

    def test_among_several_batches_the_first_number_is_a_rate(self):
        data = sample((4, 8))
        for item in data["variants"]:
            item["tokens_per_second"] = {"value": 1e3 * item["config"]["B"], "lo": None, "hi": None}
        first = [re.search(r"<dl.*?<dd>(.*?)</dd>", page_of(one), flags=re.S)[1] for one in (data, sample())]
        self.assertEqual(first, ["8,000 tokens/s", "17.00 ms"])

    def test_a_throttled_rung_is_not_the_answer_and_devices_are_not_added_up(self):
        data = everything()
        for item in data["variants"]:
            if item["config"].get("world_size", 1) > 1:
                item["tokens_per_second"]["value"] *= 10
        html = page_of(data)
        answer = html[html.index('class="answer"'):html.index('id="ladder"')]
        self.assertIn("2.5×", Tags(answer).text)
        self.assertNotIn("devices", answer)
        self.assertIn("<h3>gpt2-tiny, B = 4, T = 64, 4 devices</h3>", html)
        for item in data["variants"]:
            if item["variant"] == "02_tf32":
                item |= {"disturbed": True, "disturbance": "throttled", "disturbed_rounds": 3}
        self.assertIn("<h1><code>01_causal_mask</code>", page_of(data))

    def test_beside_parts_of_a_campaign_a_file_has_no_extension_but_where_that_tells_them_apart(self):
        def names(*given):
            data = [everything() | {"report": {"name": name}} for name in given]
            with tempfile.TemporaryDirectory() as folder, without_charts():
                _, said, out = write(folder, *data)
                html = (out / "index.html").read_text(encoding="utf-8")
                in_csv = {row["file"] for row in csv.DictReader((out / "results.csv").read_text().splitlines())}
            self.assertEqual(in_csv, {*given})
            return re.findall(r"<summary>(\S+) <span", html[:html.index('id="charts"')])

        self.assertEqual(names("ladder", "xl.json", "ladder.json"), ["xl", "ladder.json"])
        self.assertEqual(names("a.json", "b.json"), ["b.json"])

    def test_the_rounds_that_were_measured_are_said_not_those_planned(self):
        data = sample()
        data["plan"] = {"rounds": 5, "steps": 12, "warmup": 3}
        html = page_of(data)
        self.assertIn("3 of 5 rounds", html)
        self.assertNotIn("rounds of at most ", html)
        self.assertIn("3 of 5 rounds of at most ", page_of(data | {"plan": data["plan"] | {"until_loss": 3.0}}))
        data["runs"] = [item for item in data["runs"] if item["variant"] != "02_tf32" or item["round"] < 2]
        self.assertIn("2 to 3 of 5 rounds", page_of(data))
        data["plan"]["rounds"] = ROUNDS
        self.assertIn(" 3 rounds of 12", page_of(sample() | {"plan": data["plan"]}))

    def test_ablations_are_a_table(self):
        html = page_of(everything())
        table = Tags(html[html.index("Ablations</h3>"):html.index('id="charts"')]).text
        for part in ("leave-one-out", "2.500×", "1.400 to 1.600", "unsupported", "needs sm_80"):
            self.assertIn(part, table)

    def test_profiles_are_on_the_page_with_their_charts_and_tables(self):
        with tempfile.TemporaryDirectory() as folder:
            status, said, out = write(folder, *self.files())
            self.assertEqual(status, 0, said)
            html = (out / "index.html").read_text(encoding="utf-8")
        for name in ("dtype", "phases", "kernel_types", "gap", "roofline", "mfu", "ablation", "batch", "peers"):
            self.assertIn(f'id="chart-{name}"', html)
        section = Tags(html[html.index('id="profiles"'):html.index('id="diffs"')]).text
        for part in ("13_cuda_graphs", "50 % of the step", "matmul NT 1x1x1", "1.600", "GEMM", "25.0"):
            self.assertIn(part, section)
        self.assertIn("<li>history: ", html)

    def test_profiles_alone_are_a_page_too(self):
        with tempfile.TemporaryDirectory() as folder:
            status, said, out = write(folder, profile())
            self.assertEqual(status, 0, said)
            self.assertIn("Profiles of NVIDIA H200", (out / "index.html").read_text(encoding="utf-8"))

    def test_a_history_alone_is_named_by_its_device(self):
        points = [{"commit": "abc", "time": "", "median_step_ms": 9.0, "lo": None, "hi": None, "level_ms": 9.0,
                   "changed": False}] * 3
        with tempfile.TemporaryDirectory() as folder:
            status, said, out = write(folder, {"schema": 3, "kind": "history", "series": [
                {"device": "NVIDIA H200", "variant": "02_tf32", "workload": "gpt2", "points": points}]})
            self.assertEqual(status, 0, said)
            html = (out / "index.html").read_text(encoding="utf-8")
        self.assertIn("<title>Stepladder: NVIDIA H200</title>", html)
        (head,) = re.findall("<h1>(.*?)</h1>", html)
        self.assertIn("NVIDIA H200", head)
        self.assertNotIn("Profiles", head)

    def test_a_profile_of_other_sources_is_stale_and_of_another_device_not_shown(self):
        data = profile()
        data["profile"]["source_hash"] = "0" * 64
        data["context"]["device"]["name"] = "Tesla T4"
        with tempfile.TemporaryDirectory() as folder:
            _, _, out = write(folder, data)
            html = (out / "index.html").read_text(encoding="utf-8")
            self.assertRegex(html, "Stale: .*13_cuda_graphs have changed since results0.json was made")
            _, _, out = write(folder, everything(), data)
            html = (out / "index.html").read_text(encoding="utf-8")
        self.assertNotIn('id="profiles"', html)
        self.assertIn("<li>gap: several devices", html)

    def test_of_each_file_only_what_differs_is_in_the_environment(self):
        one, other = everything(), everything()
        one["context"]["commit"] = other["context"]["commit"] = "abc"
        other["context"]["time"] = "tomorrow"
        html = page_of(one, other)
        environment = html[html.index('id="environment"'):]
        self.assertEqual((environment.count("abc"), environment.count("tomorrow")), (1, 1))


class Renewed(unittest.TestCase):
    """Tables between marks in another file."""

    MARKS = "<!-- stepladder: begin -->\nold\n<!-- stepladder: end -->\n"

    @classmethod
    def tables(cls, *datas):
        return page.renew(cls.MARKS, Path("README.md"), [read(data) for data in datas])

    def test_names_are_no_markdown(self):
        name = "<img src=x>[x](http://y)*b*`c`|@someone &amp; __d__ ~~e~~ #1"
        data = json.loads(json.dumps(everything()).replace('"02_tf32"', json.dumps("02" + name)))
        data["context"].update(commit=name, time=name)
        data["context"]["device"].update(name=name, blas=name, attention=name)
        data["plan"].update(rounds=name)
        data["report"] = {"name": name}
        marked = [self.tables(data), page.published_markdown([read(data)], [])]
        self.assertTrue(all(marked))
        for text in marked:
            text = re.sub(r"(?s)<!--.*?-->", "", text)
            for raw in ("<img", "[x](", "*b*", "`c`", "@someone", "&amp; ", "__d__", "~~e"):
                self.assertNotIn(raw, text.replace("\\" + raw, ""), raw)

    def test_what_stands_between_the_marks_is_renewed_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "README.md")
            path.write_text("before\n" + self.MARKS + "after\n")
            results_file = Path(folder, "results.json")
            results_file.write_text(json.dumps(failing(everything(), "01_causal_mask", "oom", "wants 90 | has 80")))
            for _ in range(2):
                with contextlib.redirect_stdout(io.StringIO()), without_charts():
                    self.assertEqual(report.main([str(results_file), "--out", folder, "--into", str(path)]), 0)
            text = path.read_text()
        self.assertTrue(text.startswith("before\n<!--") and text.endswith("-->\nafter\n"))
        self.assertNotIn("old", text)
        for row in ("| 02_tf32 | 17.0 | 15,059 | 2.29 | 2.50 | 33.0 | 2.00 | 47.1 | 8.500 | 30.12 | 0.1 / 0.1 |",
                    r"| 01_causal_mask | oom: wants 90 \| has 80 | - |", "| 02_tf32 | 2.50 | 1.50 | 2.45 |",
                    "| 01_causal_mask | 1.05 | unsupported | 1.05 |", "| 02_tf32 | 4 | 17.0 | 8.500 | 33.0 | 2.00 | 16.50 |"):
            self.assertIn(row, text)
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)

    def test_a_file_keeps_the_ends_of_its_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path, results_file = Path(folder, "README.md"), Path(folder, "results.json")
            results_file.write_text(json.dumps(sample()))
            marks = self.MARKS.encode()
            for before, kept in ((b"a\r\n" + marks.replace(b"\n", b"\r\n"), lambda text: text.count(b"\n")),
                                 (b"a\r\n" + marks, lambda text: 1), (b"a\n" + marks, lambda text: 0)):
                path.write_bytes(before)
                with contextlib.redirect_stdout(io.StringIO()), without_charts():
                    self.assertEqual(report.main([str(results_file), "--out", folder, "--into", str(path)]), 0)
                text = path.read_bytes()
                self.assertIn(b"| 02_tf32 |", text)
                self.assertEqual(text.count(b"\r\n"), kept(text))

    def test_a_file_that_is_no_utf_8_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path, results_file = Path(folder, "latin1.md"), Path(folder, "results.json")
            path.write_bytes(b"caf\xe9\n" + self.MARKS.encode())
            results_file.write_text(json.dumps(sample()))
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(report.main([str(results_file), "--out", folder, "--into", str(path)]), 2)
            self.assertIn("latin1.md: is not UTF-8", said.getvalue())

    def test_the_tables_say_with_what_and_when_they_were_measured(self):
        data = sample()
        data["context"] |= {"time": "2026-11-24T21:47:05.073Z", "commit": "cc0720193be0b4e6", "device":
                            data["context"]["device"] | {"blas": "cuBLAS 13.1.0"}}
        self.assertIn("; cuBLAS 13.1.0, 2026-11-24, commit cc0720193, results.json.", self.tables(data))
        data["context"]["resumed"] = [{"runs": 2, "time": "2026-11-25T01:00:00.000Z"}, {"runs": 3, "time": "2026-11-26T01:00:00.000Z"}]
        self.assertIn(" 2026-11-24 to 2026-11-26, commit", self.tables(data))

    def test_how_much_faster_than_the_rung_before_has_its_interval_where_there_is_one(self):
        data = sample()
        next(item for item in data["variants"] if item["variant"] == "02_tf32")["speedup_previous"] = {
            "ratio": 2.28, "lo": 2.251, "hi": 2.31, "against": "00_fp32_baseline"}
        self.assertRegex(self.tables(data), r"\| 02_tf32 \|.* \| \d\.\d\d \(2\.25 to 2\.31\) \|")

    def test_unless_all_rungs_know_their_joules_there_is_no_column(self):
        some = with_energy(sample())
        del next(item for item in some["variants"] if item["variant"] == "02_tf32")["joules"]
        for data, known in ((sample(), False), (some, False), (with_energy(sample()), True)):
            self.assertEqual("| J/step | tok/J |" in self.tables(data), known)

    def test_beside_the_peers_stands_what_computes_in_16_bits_as_they_do(self):
        data = everything()
        for item in data["variants"]:
            item["config"] = item["config"] | {"math": {"01_causal_mask": "half", "02_tf32": "fp8"}.get(item["variant"])}
        beside = re.findall(r"^\| (\S+) \| 4 \|", self.tables(data), flags=re.M)
        self.assertEqual(beside, ["01_causal_mask", "02_tf32"])

    def test_a_rung_stands_beside_the_peers_once_from_the_file_with_most_rounds(self):
        given = []
        for name, rounds in (("a.json", 2), ("b.json", 6), ("c.json", 3)):
            data = everything() | {"report": {"name": name}}
            for item in data["variants"]:
                item["rounds"] = rounds
            given.append(data)
        text = self.tables(*given)
        self.assertEqual(set(re.findall(r"^\| \S+ \| 4 \|.* (\S+) \|$", text, flags=re.M)), {"b.json"})
        self.assertEqual(len(re.findall(r"^\| \S+ \| 4 \|", text, flags=re.M)), 1)

    def test_where_a_file_has_95_percent_intervals_those_of_fewer_rounds_have_no_table(self):
        few, many = everything(), {key: value for key, value in everything().items() if key != "ablations"}
        for item in few["variants"] + few["runs"]:
            item["config"] = item["config"] | {"B": 32}
        for item in few["variants"]:
            item["rounds"] = 3
        self.assertIn("what each rung is worth", self.tables(few))
        for item in many["variants"]:
            item["rounds"] = 6
        text = self.tables(many, few)
        self.assertNotIn("what each rung is worth", text)
        self.assertEqual(len(re.findall(r"^\| \S+ \| 4 \|", text, flags=re.M)), 1)
        self.assertEqual(re.findall(r"^\| \S+ \| 32 \|", text, flags=re.M), [])

    def test_the_end_mark_may_end_the_file(self):
        self.assertNotIn("old", page.renew(self.MARKS.rstrip(), Path("README.md"), [read(sample())]))

    def test_a_file_without_marks_is_left_alone(self):
        for text in ("no marks\n", self.MARKS[::-1], 2 * self.MARKS):
            with tempfile.TemporaryDirectory() as folder:
                path, results_file = Path(folder, "README.md"), Path(folder, "results.json")
                path.write_text(text)
                results_file.write_text(json.dumps(sample()))
                said = io.StringIO()
                with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(report.main([str(results_file), "--out", folder, "--into", str(path)]), 2)
                    self.assertFalse(Path(folder, "results.csv").exists(), "and nothing was written before")
                self.assertEqual((path.read_text(), said.getvalue().count("\n")), (text, 1))

    def test_the_readme_has_the_tables_of_the_kept_results(self):
        folder = REPORTS / "h200"
        kept = [read(part["result"] | {"report": {"name": part["name"], "about": part["about"]}})
                for part in parts(folder / "results.jsonl.gz") if "runs" in part.get("result", {})]
        kept.sort(key=lambda one: -max(len(workload.rows + workload.all_peers) for workload in one.workloads))
        readme = REPORTS.parent / "README.md"
        text = readme.read_text(encoding="utf-8")
        self.assertEqual(page.renew(text, readme, kept), text,
                         "stepladder report reports/h200/results.jsonl.gz --into README.md renews it")


class Hostile(unittest.TestCase):
    STRINGS = ("<script>alert(1)</script>", "\"><img src=x onerror='alert(1)'>", "a\x00\x1b[31m\u2028b", "x" * 10_000,
               "{{ 7 * 7 }}", "--><svg onload=alert(1)>", "javascript:alert(1)")

    def full_of(self, text):
        data = json.loads(json.dumps(sample()).replace('"02_tf32"', json.dumps(text)))
        for item in data["variants"] + data["runs"]:
            item["reason"] = text
        data["variants"][1].update(status=text)
        data["context"].update({key: text for key in ("commit", "command_line", "time", "cpu")})
        data["context"]["device"].update(name=text, blas=text)
        data["plan"] = {"rounds": text, "steps": text, "warmup": [text], "data": text}
        data["report"] = {"name": text, "warnings": [text], "notes": [text]}
        return data

    def test_numbers_near_the_ends_of_double_leave_out_charts_not_the_page(self):
        rungs, traced = sample(), profile()
        rungs["runs"][0]["steps"]["step_ms"][-1] = 5e-324
        for item in rungs["runs"]:
            item["steps"]["loss"][-1] = 1.7e308
        traced["profile"]["device_ms"] = 1.7e308
        traced["profile"]["phases"][0].update(name="p" * 163, ms=1.7e308)
        for item in rungs["variants"]:
            if "median_step_ms" in item:
                item["median_step_ms"] = {"value": 1.7e308, "lo": None, "hi": None}
        with tempfile.TemporaryDirectory() as folder:
            status, said, out = write(folder, rungs, traced)
            self.assertEqual(status, 0, said)
            html = (out / "index.html").read_text(encoding="utf-8")
        self.assertIn("00_fp32_baseline", html)
        self.assertTrue("<li>loss: its numbers can" in html, "the chart that is left out is named")
        self.assertTrue('id="chart-phases"' in html, "its names and numbers are shortened")
        self.assertLess(max(map(len, re.findall(r"[\d,]+", Tags(html).text))), 40, "no number of 309 digits")

    def test_a_device_named_like_a_style_hides_nothing(self):
        for text in (' style="}main{display:none}.x{"', ' d="M!L!"'):
            data = sample()
            data["context"]["device"]["name"] = text
            html = page_of(data, charts=True)
            self.assertFalse([rules for rules in re.findall("(?s)<style>(.*?)</style>", html) if "main{display" in rules])
            self.assertIn(text, Tags(html).text)

    def test_strings_are_shown_never_run(self):
        for charts, strings in ((False, self.STRINGS), (True, self.STRINGS[:1])):
            clean = Tags(page_of(sample(), charts=charts))
            for text in strings:
                html = page_of(self.full_of(text), charts=charts)
                tags = Tags(html)
                for tag in ("script", "img", "style"):
                    self.assertEqual(*([name for name, _ in one.tags].count(tag) for one in (tags, clean)))
                self.assertEqual([key for _, attributes in tags.tags for key in attributes if key.startswith("on")], [])
                self.assertFalse([a for tag, a in tags.tags if tag == "a" and a["href"].startswith("javascript")])
                self.assertLess(max(map(len, re.findall(r"x+", html))), 500)
                self.assertFalse("\x1b" in html or "\x00" in html)
                self.assertIn("".join(c if c.isprintable() else "?" for c in text)[:50], tags.text)

    def test_a_profile_s_strings_are_shown_never_run(self):
        for text in self.STRINGS:
            data = json.loads(json.dumps(profile()).replace('"matmul NT 1x1x1"', json.dumps(text)))
            data["profile"]["variant"] = data["context"]["device"]["name"] = text
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "profile.json")
                path.write_text(json.dumps(data))
                html = page.render([], [profiles.read(path)], {}, {})
            self.assertEqual([name for name, _ in Tags(html).tags].count("script"), 1)
            self.assertNotIn("onload=alert", html.replace("&lt;svg onload=alert", ""))

    def test_missing_fields_cost_their_part_only(self):
        for field in ("memory_bytes", "mfu_nanogpt", "mfu_llmc", "tokens_per_second", "speedup_peers",
                      "speedup_baseline", "speedup_previous", "final_loss", "first_step_ms", "startup_ms"):
            data = everything()
            for item in data["variants"]:
                item.pop(field, None)
            self.assertIn("<h1><code>02_tf32</code>", page_of(data), field)

    def test_no_rung_that_ended_well_gives_a_page_too(self):
        data = sample()
        for rung in RUNGS:
            failing(data, rung, "crash", "signal 11")
        self.assertIn("<h1>No rung", page_of(data))

    def test_an_output_that_is_no_folder_and_damaged_results_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "out").write_text("")
            for data in (sample(), "{"):
                status, said, _ = write(folder, data)
                self.assertEqual((status, said.count("\n")), (2, 1), said)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(report.main(["/nowhere/results.json"]), 2)
        self.assertIn("/nowhere/results.json", said.getvalue())

    def test_what_is_not_installed_is_said_and_the_rest_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "results.json")
            path.write_text(json.dumps(sample()))
            for module, written, lost in (("jinja2", "ladder.svg", "index.html"),
                                          ("matplotlib", "index.html", "ladder.svg")):
                out = Path(folder, module)
                code = f"import sys; sys.modules[{module!r}] = None; import report; sys.exit(report.main(sys.argv[1:]))"
                done = subprocess.run([sys.executable, "-c", code, str(path), "--out", str(out)], cwd=REPORTS,
                                      capture_output=True, text=True, check=True)
                self.assertRegex(done.stdout, rf"(?m)^! no .*{module}")
                self.assertEqual(done.stderr, "")
                self.assertTrue((out / written).exists())
                self.assertFalse((out / lost).exists())


class Budget(unittest.TestCase):
    def test_fourteen_rungs_of_five_rounds_of_two_hundred_steps(self):
        """At most 3 MB."""
        data = everything()
        steps = {"step_ms": [40 + i % 7 / 10 for i in range(200)], "loss": [11 - i / 40 for i in range(200)]}
        data["variants"] = [{**data["variants"][1], "variant": f"{i:02}_rung"} for i in range(14)]
        data["runs"] = [{**run(f"{i:02}_rung", 4, number, 40.0), "steps": steps}
                        for i in range(14) for number in range(5)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "results.json")
            path.write_text(json.dumps(data))
            subprocess.run([sys.executable, REPORTS / "report.py", path, "--out", folder], check=True,
                           capture_output=True)
            self.assertLess(Path(folder, "index.html").stat().st_size, 3_000_000)


@unittest.skipUnless(find(), "no Chromium here (chromium-headless-shell, chromium, google-chrome)")
class InABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        data = failing(everything(), "01_causal_mask", "oom", "wants 90 GiB")
        data["ablations"] += [{"rung": rung, "config": config(4), "ladder": gain(1.0), "without": gain(ratio)}
                              for rung, ratio in (("03_fused_adamw", 10.5), ("04_pinned_loader", 9.2))]
        _, _, out = write(folder.name, data, profile())
        cls.path = out / "index.html"
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def test_no_request_leaves_and_nothing_is_complained_of(self):
        with Browser() as browser:
            browser.open(self.path)
            browser.open(self.path, width=390, dark=True)
            self.assertEqual(set(browser.requests()), {self.path.resolve().as_uri()})
            self.assertEqual(browser.complaints(), [])

    def test_every_chart_is_visible_on_wide_and_narrow_screens_light_and_dark(self):
        for width in (1280, 390):
            for dark in (False, True):
                self.browser.open(self.path, width, dark)
                charts = self.browser.evaluate("""[...document.querySelectorAll("figure svg")].map(svg => {
                    const box = svg.getBoundingClientRect();
                    return [box.width, box.height, [...svg.querySelectorAll("path, use, text")].filter(
                        mark => mark.getBoundingClientRect().width > 0).reduce(
                        (sum, mark) => sum + (mark.textContent.trim().length || 1), 0)]; })""")
                self.assertEqual(len(charts), len(list(self.path.parent.glob("*.svg"))))
                self.assertGreaterEqual(len(charts), 18)
                for wide, high, marks in charts:
                    self.assertGreater(min(wide / 300, high / 100, marks / 50), 1.0)
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)

    def test_the_ladder_s_table_fits_a_laptop(self):
        self.browser.open(self.path, 1400)
        self.assertEqual(self.browser.evaluate("""[...document.querySelectorAll("#ladder .scroll")].filter(
            one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel)"""), [])

    def test_text_stands_out_from_its_ground(self):
        for dark in (False, True):
            self.browser.open(self.path, dark=dark)
            for where in ("body", ".setting", ".warnings", ".badge", "th a", "#charts svg text, figcaption"):
                contrast = self.browser.evaluate("""(where => {
                    const light = color => color.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255).map(
                        c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4).reduce(
                        (sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
                    const at = document.querySelector(where);
                    let ground = at;
                    while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)")
                        ground = ground.parentElement;
                    const [a, b] = [light(getComputedStyle(at).color), light(getComputedStyle(ground).backgroundColor)];
                    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); })""" + f"({json.dumps(where)})")
                self.assertGreater(contrast, 4.5, where)

    def test_a_head_sorts_its_column_both_ways_with_what_is_missing_last(self):
        self.browser.open(self.path)
        click = """(name => { const named = head => head.textContent.trim() === name;
            const table = [...document.querySelectorAll("table.sortable")].find(
                table => [...table.tHead.rows[0].cells].some(named));
            [...table.tHead.rows[0].cells].find(named).firstElementChild.click();
            return [...table.tBodies[0].rows].map(
                row => (row.cells[0].querySelector("a") ?? row.cells[0]).textContent.trim().slice(0, 2)); })"""
        self.assertEqual(self.browser.evaluate(click + '("ms")'), ["00", "02", "01"])
        self.assertEqual(self.browser.evaluate(click + '("ms")'), ["02", "00", "01"])
        self.assertEqual(self.browser.evaluate(click + '("rung")'), ["00", "01", "02"])
        self.assertEqual(self.browser.evaluate('document.querySelectorAll("[aria-sort]").length'), 1)
        self.assertEqual(self.browser.evaluate(click + '("leave-one-out")'), ["03", "04", "02", "01"])
        self.assertEqual(self.browser.evaluate(click + '("leave-one-out")'), ["02", "04", "03", "01"])

    def test_a_value_shows_where_the_pointer_rests(self):
        self.browser.open(self.path)
        box = self.browser.evaluate("""(() => { const bar = document.querySelector("#chart-ladder [data-tip]");
            bar.scrollIntoView({block: "center"}); const box = bar.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; })()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        self.assertEqual(self.browser.evaluate("document.getElementById('tip').textContent"),
                         "00_fp32_baseline: 41.0 ms, 40.0 to 42.0")
        self.assertFalse(self.browser.evaluate("document.getElementById('tip').hidden"))

    def test_a_hint_shows_at_the_focus_until_escape(self):
        self.browser.open(self.path)
        head = 'document.querySelector("th button[data-tip]")'
        shown = "!document.getElementById('tip').hidden"
        self.browser.evaluate(f"{head}.focus()")
        self.assertTrue(self.browser.evaluate(shown))
        self.assertTrue(self.browser.evaluate(f"document.getElementById('tip').textContent === {head}.dataset.tip"))
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
        self.assertFalse(self.browser.evaluate(shown))

    def test_a_link_opens_the_diff(self):
        self.browser.open(self.path)
        self.assertFalse(self.browser.evaluate("document.getElementById('diff-02_tf32').open"))
        self.browser.evaluate("document.querySelector('a[href=\"#diff-02_tf32\"]').click()")
        self.browser.evaluate("new Promise(done => setTimeout(done, 50))")
        self.assertTrue(self.browser.evaluate("document.getElementById('diff-02_tf32').open"))


if __name__ == "__main__":
    unittest.main()
