"""The page of a report: what it holds, what it makes of hostile and missing fields, and how a browser takes it.

A test makes only runs: `stepladder` derives and words everything else (see tests/told.py)."""

import contextlib
import copy
import csv
import html as markup
import io
import json
import re
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from temporary import temp_folder

TESTS = Path(__file__).resolve().parent
REPORTS = TESTS.parent / "reports"
sys.path[:0] = [str(REPORTS), str(TESTS)]
try:
    import kept
    import page
    import profiles
    import report
    import results
    from browser import Browser, find
    from charts_test import (ROUNDS, RUNGS, ablated, config, disturbed, everything, failing, profile, run, sample, until_loss,
                             with_energy, with_other_peer, with_peers)
    from told import files_of, page_of, reported, stepladder
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the page's Python packages are not installed") from None


def drawn_page():
    """The page of everything(), with its charts."""
    return page_of(everything(), charts=True)


def csv_of(*datas):
    """The rows of results.csv."""
    with tempfile.TemporaryDirectory() as folder:
        reported(Path(folder), *datas, page=False)
        text = Path(folder, "out/results.csv").read_bytes().decode()
        assert "\r" not in text, "the ends of lines are those of other text"
        return list(csv.DictReader(io.StringIO(text)))


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


def tables_of(html):
    """Tables in the ladder's section: for each its heads with units and its rows of texts, intervals included."""
    html = html[html.index('id="ladder"'):html.index('id="charts"')].replace("<wbr>", "")
    tables = []
    for table in html.split("<table")[1:]:
        rows = [[markup.unescape(" ".join(re.sub("<.*?>", " ", cell).split()))
                 for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.S)]
                for row in table[:table.index("</table>")].split("<tr>")[1:]]
        tables.append((rows[0], rows[1:]))
    return tables


def table_with(html, head):
    """The heads and rows of the first table with a column of this name; empty lists if no table has it."""
    return next((table for table in tables_of(html) if head in table[0]), ([], []))


def tiles_of(html):
    """The number of each tile and the text below it, by the tile's title."""
    return {markup.unescape(title): (value, markup.unescape(re.sub("<.*?>", "", more))) for title, value, more in
            re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd>(?:<dd class=\"more\">(.*?)</dd>)?</div>", html)}


def on_the_cpu(data):
    """`data` as measured on a CPU, where speeds tell nothing."""
    data["context"]["device"]["backend"] = "cpu"
    for item in data["runs"]:
        item["backend"] = "cpu"
    return data


def of_ones_own(data, rungs=None):
    """`data` as measured with a user's own ladder."""
    data["plan"]["ladder"] = {"name": "mine", "rungs": rungs or [
        {"name": name, "parent": None, "changes": "it", "command": ["true"]} for name in RUNGS]}
    return data


def at(data, ms):
    """`data` with these times of some rungs in every round."""
    for item in data["runs"]:
        if item["variant"] in ms:
            item["summary"].update(median_step_ms=ms[item["variant"]],
                                   tokens_per_second=item["config"]["B"] * 64e3 / ms[item["variant"]])
    return data


def on(device, data):
    """`data` as measured on another device."""
    data["context"]["device"]["name"] = device
    return data


def named(name, data):
    return data | {"report": {"name": name}}


def beside_each_other(*datas, head="x baseline"):
    """A column of the table of several devices, by rung and device; None without such a table."""
    html = page_of(*datas)
    if "beside each other" not in html:
        return None
    heads, rows = tables_of(html)[0]
    return {(row[0].split()[0], row[heads.index("measured")].removeprefix("on ")): row[heads.index(head)].split()[0]
            for row in rows}


class Page(unittest.TestCase):
    def test_the_answer_comes_first(self):
        html = page_of(with_peers(sample()))
        head = Tags(html[html.index("<main>"):html.index('id="ladder"')]).text
        self.assertRegex(" ".join(head.split()), r"^Fastest: 02_tf32 NVIDIA H200;")
        self.assertEqual(tiles_of(html)["Against the baseline"][0], "2.4x as fast")
        self.assertEqual(tiles_of(html)["Against PyTorch's fastest"],
                         ("1.94x as fast", "pytorch/02_tf32, 33.00 ms; range (75 %) 1.89 to 2.00"))
        self.assertIn("NVIDIA H200", head)

    def test_no_rung_is_called_fastest_where_speeds_say_nothing(self):
        html = page_of(on_the_cpu(sample()))
        self.assertIn("Both other rungs learn", html[html.index("<h1>"):html.index("</h1>")])
        self.assertEqual(tiles_of(html), {})

    def test_the_ladder_s_picture_stands_before_its_table(self):
        html = page_of(sample(), charts=True)
        self.assertLess(html.index('id="chart-ladder"'), html.index('id="ladder"'))
        self.assertEqual(html.count('id="chart-ladder"'), 1)

    def test_a_page_of_a_cpu_leads_with_its_losses_and_shows_a_gpu_s_ladder(self):
        html = page_of(on_the_cpu(sample()), charts=True)
        places = [html.index(part) for part in ('id="chart-loss"', 'id="ladder"', 'id="gpu"', 'id="charts"', 'id="chart-ladder"')]
        self.assertEqual(places, sorted(places))
        gpu = html[html.index('<section id="gpu"'):html.index('id="charts"')]
        self.assertIn("13_cuda_graphs", gpu)
        self.assertNotIn('"ladder', gpu, "names of its own, as the page has a chart of that name")
        for other in (sample(), of_ones_own(on_the_cpu(sample()))):
            self.assertNotIn('id="gpu"', page_of(other))

    def test_of_many_warnings_three_are_shown_and_the_others_folded(self):
        def warnings(count):
            nothing = {"heading": "", "sentences": [], "facts": [], "tables": [], "notes": [], "legend": ""}
            section = nothing | {"notes": [{"warning": True, "text": f"warning {i}"} for i in range(count)]}
            file = {"name": "a", "about": "", "called": "a", "ladder": "", "device": "GPU", "main": True, "gist": "Fastest", "section": section,
                    "environment": nothing, "sources": {}}
            told = {"title": "", "mixed": False, "by_device": nothing, "horizons": nothing, "trials": [], "gains": {}, "files": [file],
                    "profiles": []}
            html = page.render(told, [], results.together([], []), {}, {})
            text = html[html.index('class="warnings"'):html.index('id="ladder"')]
            return text.split("<details>")[0].count("warning "), text.count("warning ")

        self.assertEqual([warnings(count) for count in (1, 4, 5, 9)], [(1, 1), (4, 4), (3, 5), (3, 9)])

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
        data = sample()
        for item in data["runs"]:
            item["summary"]["memory_bytes"].update(live_peak=0, reserved_peak=0, process_peak=120 * 2**20)
        html = page_of(data)
        self.assertNotIn("Live memory", tiles_of(html))
        heads, rows = table_with(html, "live/process GiB")
        self.assertEqual(rows[0][heads.index("live/process GiB")], "- / 0.12")
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
        rungs = [{"name": name, "parent": parent, "changes": "it", "command": ["python3", "train.py", *more],
                  "environment": environment} for name, parent, more, environment in (("00_fp32_baseline", None, [], {"A": "1"}),
                                                         ("02_tf32", "00_fp32_baseline", ["--tf32"], {"A": "2"}))]
        rungs.append({"name": "01_causal_mask", "parent": "02_tf32", "changes": "all", "command": ["true"]})
        html = page_of(of_ones_own(sample(), rungs))
        self.assertEqual(re.findall('<details id="diff-(.*?)"', html), ["mine-02_tf32", "mine-01_causal_mask"])
        section = Tags(html[html.index('id="diffs"'):html.index('id="how"')]).text
        for part in ("3 lines against 00_fp32_baseline", "-A=1", "+A=2", " train.py", "+--tf32"):
            self.assertIn(part, section)
        self.assertIn(("a", {"href": "#diff-mine-02_tf32"}), Tags(html).tags)

    def test_rungs_of_one_name_on_two_ladders_have_each_its_diff_and_gain(self):
        rungs = [{"name": name, "parent": parent, "changes": "it", "command": ["train.py", name]}
                 for name, parent in (("00_fp32_baseline", None), ("02_tf32", "00_fp32_baseline"))]
        other = of_ones_own(at(named("other.json", sample((4,))), {"02_tf32": 10.0}), rungs)
        other["runs"] = [item for item in other["runs"] if item["variant"] in ("00_fp32_baseline", "02_tf32")]
        html = page_of(sample(), other)
        found = {name: Tags(text).text for name, text in re.findall(r'<details id="diff-(.*?)">(.*?)</details>', html, re.DOTALL)}
        self.assertIn("lines against 01_causal_mask, 2.29x", found["02_tf32"])
        self.assertIn("2 lines against 00_fp32_baseline, 4.", found["mine-02_tf32"])
        self.assertNotIn("train.py", found["02_tf32"])
        for rung in ("02_tf32", "mine-02_tf32"):
            self.assertIn(f'href="#diff-{rung}"', html)

    def test_the_diff_of_a_trainer_of_ours_on_another_ladder_is_its_file_s(self):
        rungs = [{"name": name, "parent": parent, "changes": "it", "command": [f"{{bin}}/{program}", "{arguments}"]}
                 for name, parent, program in (("00_fp32_baseline", None, "13_cuda_graphs"), ("02_tf32", "00_fp32_baseline", "01_muon"),
                                               ("01_causal_mask", "02_tf32", "fp8_muon"))]
        html = page_of(of_ones_own(sample(), rungs))
        section = Tags(html[html.index('id="diffs"'):html.index('id="how"')]).text
        self.assertIn("Muon", section)
        self.assertIn("Fp8", section)
        self.assertNotIn("{bin}", section)

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
        other = named("other.json", sample((8,)))
        other["runs"] = [item for item in other["runs"] if item["variant"] == "02_tf32"]
        other["runs"] += [run("03_fused_adamw", 8, number, 8.0) for number in range(ROUNDS)]
        html = page_of(sample(), at(other, {"02_tf32": 10.0, "03_fused_adamw": 8.0}))
        self.assertIn(" lines against 01_causal_mask, 2.29x</span>", html)
        self.assertIn(" lines against 02_tf32, 1.25x on gpt2-tiny B=8 T=64</span>", html)

    def test_what_a_rung_is_comes_before_what_it_costs(self):
        heads, rows = table_with(page_of(everything()), "x previous")
        self.assertLess(heads.index("x llm.c"), min(map(heads.index, ("J/step", "tok/J", "first step ms"))))
        self.assertEqual(rows[0][0], "00_fp32_baseline plain FP32: one kernel per op, a stored causal mask")

    def test_energy_and_cycles_are_columns_where_a_row_knows_them(self):
        heads, _ = table_with(page_of(sample()), "x previous")
        self.assertEqual({"J/step", "tok/J", "Mcycles"} & {*heads}, set())
        one = with_energy(sample())
        for item in one["runs"]:
            if item["variant"] != "02_tf32":
                item["summary"] |= {"joules": None, "joules_unknown": "too short"}
        html = page_of(one)
        heads, rows = table_with(html, "x previous")
        row = dict(zip(heads, rows[2]))
        self.assertEqual([row[name] for name in ("J/step", "tok/J", "Mcycles")], ["8.500", "30.12", "25.50"])
        self.assertEqual(dict(zip(heads, rows[0]))["J/step"], "-")
        self.assertIn('title="too short"', html)

    def test_time_to_a_loss_is_a_table_where_a_row_knows_it(self):
        data = until_loss(sample(), [("00_fp32_baseline", 0), *(("02_tf32", number) for number in range(ROUNDS))])
        heads, rows = table_with(page_of(data), "trained to a loss")
        self.assertEqual(heads, ["trained to a loss", "val loss", "reached", "seconds", "steps", "step ms", "Mtokens", "kJ"])
        self.assertEqual([row[1:] for row in rows], [
            ["<= 7", "2 of 3", "0.407 0.402 to 0.412", "10 10 to 10", "41.50 41.00 to 42.00", "2.45", "0.571 0.568 to 0.573"],
            ["<= 7", "3 of 3", "0.382 0.372 to 0.392", "10 10 to 10", "39.00 38.00 to 40.00", "2.45", "0.558 0.554 to 0.563"],
            ["<= 7", "0 of 3", "-", "-", "-", "-", "-"]])
        heads, rows = table_with(page_of(data), "x seconds")
        self.assertEqual(heads[1:], ["than", "x steps", "x time a step", "x seconds", "x joules"])
        self.assertEqual([row[1:] for row in rows], [["00_fp32_baseline", "1.00 1.00 to 1.00", "1.05 1.05 to 1.05", "1.05 1.05 to 1.05",
                                                      "1.02 1.02 to 1.02"]])
        self.assertEqual(table_with(page_of(sample()), "trained to a loss"), ([], []))
        heads, _ = table_with(page_of(data, on("Tesla T4", until_loss(sample()))), "trained to a loss")
        self.assertEqual(heads[2:], ["reached", "steps", "Mtokens"])

    def test_one_round_until_a_loss_tells_its_factors_without_an_interval(self):
        data = sample((4,))
        data["runs"] = [item for item in data["runs"] if item["round"] == 0]
        (more,) = (more for title, (_, more) in tiles_of(page_of(until_loss(data))).items() if title.startswith("Against "))
        self.assertRegex(more, "^steps .*, time a step ")

    def test_a_ratios_interval_is_named_by_the_rounds_of_both(self):
        data = sample()
        data["runs"] = [item for item in data["runs"] if item["variant"] != "02_tf32" or item["round"] < 2]
        self.assertIn("against 00_fp32_baseline; range (50 %)", page_of(data))

    def test_a_failed_rung_has_its_reason_and_no_number(self):
        heads, rows = table_with(page_of(failing(sample(), "02_tf32", "unsupported", "needs sm_80")), "x previous")
        self.assertEqual({*rows[2][1:-1]}, {"-"})
        self.assertEqual(rows[2][-1], "unsupported needs sm_80")

    def test_warnings_are_shown(self):
        data = disturbed(failing(sample(), "02_tf32", "diverged", "loss left the baseline's"), "01_causal_mask", range(ROUNDS))
        data["complete"] = False
        for item in data["runs"]:
            item["source_hash"] = "0" * 64
        html = page_of(data)
        text = Tags(html[html.index('class="warnings"'):html.index('id="ladder"')]).text
        for part in ("Unfinished: 9 of", "diverged: 02_tf32", "Stale", "nothing is claimed"):
            self.assertIn(part, text)
        self.assertIn("ok, throttled", html)

    def test_every_rung_of_both_ladders_has_a_file_whose_changes_make_a_page_stale(self):
        for name in page.sources.LADDER | page.sources.LEARNING:
            self.assertTrue(page.sources.file_of(name).is_file(), name)

    def test_the_sources_that_were_measured_are_not_stale(self):
        data = sample()
        for item in data["runs"]:
            item["source_hash"] = page.sources.source_hash(item["variant"])
        self.assertNotIn("Stale", page_of(data))

    def test_it_is_told_that_only_what_stands_beside_the_ladder_is_stale(self):
        def of_sources(name, known):
            data = named(name, sample() if known else sample((8,)))
            for item in data["runs"]:
                item["source_hash"] = page.sources.source_hash(item["variant"]) if known else "0" * 64
            return data

        self.assertIn("have changed since batches was made, but not since ladder was;", page_of(of_sources("ladder", True), of_sources("batches", False)))
        self.assertIn("have changed since ladder was made;", page_of(of_sources("ladder", False)))

    def test_measurements_of_several_devices_are_stale_each_by_itself(self):
        data = sample()
        for item in data["runs"]:
            item["source_hash"] = "0" * 64
        part = {"name": "ladder", "about": "the ladder"}
        html = page_of(data | {"report": part}, on("Tesla T4", copy.deepcopy(data)) | {"report": part | {"name": "other"}})
        self.assertRegex(html, "since .* on NVIDIA H200, .* on Tesla T4 were made")

    def test_of_several_devices_only_ratios_are_shown(self):
        html = page_of(everything(), on("Tesla T4", everything()), charts=True)
        ladder = html[html.index("<main>"):html.index('id="charts"')]
        self.assertIn("Tesla T4", ladder)
        self.assertIn("2.41", ladder)
        self.assertNotRegex(Tags(ladder).text, r"\d ms|GiB|tok/s|J/step|tok/J|Mcycles|17\.0")
        for absolute in ("ladder", "memory", "energy", "to_loss", "steps", "batch", "dtype", "phases", "gap", "history"):
            self.assertIn(f"<li>{absolute}: several devices", html)

    def test_training_to_a_loss_leads_with_its_curves_and_factors(self):
        html = page_of(until_loss(sample()), charts=True)
        places = [html.index(part) for part in ('<section class="answer">', 'id="chart-to_loss"', 'id="ladder"', ">x seconds<",
                                                ">median<small>", 'id="chart-ladder"')]
        self.assertEqual(places, sorted(places))
        self.assertEqual(html.count('id="chart-to_loss"'), 1)
        self.assertIn("chart-to_loss", page_of(everything(), charts=True))

    def test_several_devices_stand_beside_each_other(self):
        one, other = (with_other_peer(with_peers(sample())) for _ in range(2))
        one, other = failing(one, "01_causal_mask", "oom", "no memory"), on(
            "NVIDIA T4", at(other, {"00_fp32_baseline": 40.0, "02_tf32": 32.0}))
        ratios = beside_each_other(one, other)
        self.assertEqual([*ratios], [("00_fp32_baseline", "NVIDIA H200"), ("00_fp32_baseline", "NVIDIA T4"),
                                     ("01_causal_mask", "NVIDIA T4"), ("02_tf32", "NVIDIA H200"), ("02_tf32", "NVIDIA T4")])
        self.assertEqual((ratios["02_tf32", "NVIDIA H200"], ratios["02_tf32", "NVIDIA T4"]), ("2.41", "1.25"))
        self.assertEqual(beside_each_other(one, other, head="x jax")["02_tf32", "NVIDIA H200"], "2.88")

    def test_a_cpu_with_other_cores_is_another_device(self):
        def on_cores(cores):
            data = on_the_cpu(on("AMD EPYC", sample()))
            data["context"]["cores"] = cores
            return data
        html = page_of(on_cores(2), named("more.json", on_cores(64)))
        self.assertIn("AMD EPYC, 2 cores, AMD EPYC, 64 cores", html[:html.index("<style>")])
        self.assertIn("several devices", html)
        self.assertNotIn("several devices", page_of(on_cores(1), named("more.json", on_cores(1))))

    def test_devices_are_compared_on_what_several_have(self):
        other = on("Tesla T4", sample(batches=(8,)))
        self.assertIsNone(beside_each_other(sample(), other))
        for first in (sample(batches=(4, 8)), sample(batches=(8, 4))):
            ratios = beside_each_other(first, other)
            self.assertEqual([ratios["02_tf32", device] for device in ("NVIDIA H200", "Tesla T4")], ["2.41", "2.41"])
        only = on("Tesla T4", sample())
        only["runs"] = [item for item in only["runs"] if item["variant"] == "00_fp32_baseline"]
        self.assertIsNone(beside_each_other(sample(), only))

    def test_ladders_of_others_do_not_stand_beside_ours(self):
        self.assertIsNone(beside_each_other(sample(), of_ones_own(on("Tesla T4", sample()))))

    def test_what_diverged_in_the_ladder_takes_no_ratio_from_elsewhere(self):
        ladder, part = sample(), named("part.json", sample())
        for data, ms in ((ladder, 10.0), (part, 5.0)):
            data["runs"] += [run("fp8", 4, number, ms) for number in range(ROUNDS)]
            data["runs"] += [run("13_cuda_graphs", 4, number, 20.0) for number in range(ROUNDS)]
        other = on("Tesla T4", copy.deepcopy(ladder))
        ratios = beside_each_other(ladder, part, other, head="x previous")
        self.assertEqual([ratios["fp8", device] for device in ("NVIDIA H200", "Tesla T4")], ["1.91", "1.91"])
        ratios = beside_each_other(failing(ladder, "fp8", "diverged", "left it"), part, other, head="x previous")
        self.assertEqual([key for key in ratios if key[0] == "fp8"], [("fp8", "Tesla T4")])

    def test_ratios_say_against_which_rung(self):
        other = on("Tesla T4", sample())
        other["runs"] = [item for item in other["runs"] if item["variant"] != "01_causal_mask"]
        html = page_of(sample(), other)
        table = html[html.index("beside each other"):html.index("</table>")]
        self.assertEqual(re.findall(r'title="against (\S+);', table[table.rindex("02_tf32") - 4000:])[-4:],
                         ["01_causal_mask", "00_fp32_baseline", "00_fp32_baseline", "00_fp32_baseline"])

    def test_measurements_are_listed_by_device(self):
        datas = [named(f"{number}.jsonl", on(("NVIDIA H200", "Tesla T4")[number % 2], sample())) for number in range(4)]
        html = page_of(*datas)
        self.assertEqual(re.findall(r"1 other measurement on ([^<]*)</summary>\s*<details>\s*<summary>(\S*)", html),
                         [("NVIDIA H200", "2.jsonl"), ("Tesla T4", "3.jsonl")])

    def test_one_row_a_rung_and_peer_goes_into_the_csv(self):
        data = failing(with_energy(with_peers(sample())), "02_tf32", "oom", 'wants "90, has 80')
        rows = {row["variant"]: row for row in csv_of(data)}
        self.assertEqual(len(rows), 7)
        self.assertEqual([rows["01_causal_mask"][name] for name in ("median_step_ms", "cycles", "joules")],
                         ["39", "7.8e+07", "19.5"])
        self.assertEqual((rows["02_tf32"]["reason"], rows["02_tf32"]["median_step_ms"]), ('wants "90, has 80', ""))

    def test_rows_on_several_devices_and_disturbed_ones_can_be_told_apart_in_the_csv(self):
        rows = csv_of(disturbed(everything(), "00_fp32_baseline", range(ROUNDS)))
        keys = [(row["variant"], row["model"], row["B"], row["T"], row["devices"]) for row in rows]
        self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual([row["variant"] for row in rows if row["disturbance"] == "throttled"], ["00_fp32_baseline"])

    def test_rounds_are_those_that_the_numbers_are_of(self):
        data = disturbed(until_loss(sample()), "02_tf32", [1])
        self.assertEqual([row["rounds"] for row in csv_of(data)], ["3", "3", "2"])
        _, rows = table_with(page_of(data), "trained to a loss")
        self.assertEqual([row[2] for row in rows], ["3 of 3", "3 of 3", "2 of 2"])
        for how in ("throttled", "shared"):
            data = disturbed(until_loss(sample()), "02_tf32", range(ROUNDS), how)
            self.assertEqual([row["rounds"] for row in csv_of(data)], ["3"] * 3, "where all are, all count")

    def test_published_tables_are_markdown_too(self):
        with tempfile.TemporaryDirectory() as folder:
            reported(Path(folder), sample(), charts=False)
            text = Path(folder, "out/published.md").read_text(encoding="utf-8")
        self.assertIn("| compile | 145 | 7.17× |", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)

    def test_begins_as_the_command_knows_its_own_files_which_it_replaces(self):
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                done = reported(Path(folder), sample(), charts=False)
                self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("results.csv", "index.html", "published.md", "summary.md"):
                Path(folder, "out", name).write_text("one's own")
                self.assertEqual(reported(Path(folder), sample(), charts=False).returncode, 2, name)
                Path(folder, "out", name).unlink()

    def test_beside_trainers_of_ones_own_nothing_published_and_no_command_for_our_rungs_is_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            reported(Path(folder), of_ones_own(sample()))
            html = Path(folder, "out/index.html").read_text(encoding="utf-8")
            self.assertFalse(Path(folder, "out/published.md").exists())
        for ours in ('id="published"', 'href="#published"', "stepladder ablate", "stepladder profile"):
            self.assertNotIn(ours, html)

    def test_a_column_tells_its_priority_its_unit_and_what_it_means(self):
        html = page_of(sample())
        self.assertRegex(html, r'<th scope="col" class="p5"><button type="button" title="tokens a second">tok/s</button>')
        self.assertRegex(html, r'class="p0"><button type="button" title="step time[^"]*">median<small>ms</small>')


class Together(unittest.TestCase):
    """Results, sweeps, peers and profiles of one device on one page."""

    def files(self):
        llmc = sample()
        llmc["runs"] = [item for item in with_peers(sample())["runs"] if item["variant"] in (*RUNGS, "llmc")]
        llmc["complete"] = False
        return named("ladder.json", everything()), named("llmc.json", llmc), profile()

    def test_the_first_results_lead_and_the_others_follow_with_their_warnings(self):
        html = page_of(*self.files()[:2])
        answer = Tags(html[html.index('class="answer"'):html.index('id="ladder"')]).text
        self.assertEqual(html.count('class="answer"'), 1)
        self.assertNotIn("Unfinished", answer)
        besides = html[html.index("<summary>llmc.json"):html.index('id="charts"')]
        self.assertRegex(" ".join(Tags(besides).text.split()), r"llmc\.json .*1 warning.*Unfinished: 12 of")

    def test_more_other_results_than_three_are_behind_one_line(self):
        for count in (3, 4):
            html = page_of(everything(), *(named(f"other{i}.json", sample()) for i in range(count)))
            self.assertEqual("4 other measurements" in html, count == 4)
            self.assertEqual(html.count("<summary>other"), count)
            self.assertEqual(html.count("<details"), html.count("</details>"))

    def test_a_peer_that_another_file_measured_is_in_the_answer_with_its_interval(self):
        ladder = named("ladder.json", sample())
        ladder["runs"] += [item for item in with_peers(sample())["runs"] if item.get("peer") == "pytorch"]
        tiles = tiles_of(page_of(ladder, self.files()[1]))
        self.assertEqual(tiles["Against llm.c's fastest"], ("1.24x as fast", "llmc, 21.00 ms; range (75 %) 1.22 to 1.25; "
                                                            "02_tf32 in llmc.json, 17.00 ms"))
        self.assertEqual(tiles["Against PyTorch's fastest"][0], "1.94x as fast")
        self.assertEqual(tiles_of(page_of(ladder))["Against llm.c"], ("not measured", "run with --peer llmc"))

    def test_another_peer_is_in_the_answer_and_only_our_ladder_lacks_the_usual_ones(self):
        data = with_other_peer(sample())
        tiles = tiles_of(page_of(data))
        self.assertEqual(tiles["Against jax's fastest"][0], "2.88x as fast")
        self.assertEqual([value for value, _ in tiles.values()].count("not measured"), 2)
        tiles = tiles_of(page_of(of_ones_own(data)))
        self.assertIn("Against jax's fastest", tiles)
        self.assertNotIn("not measured", [value for value, _ in tiles.values()])

    def test_a_faster_trainer_beside_the_ladder_is_in_the_answer_with_its_file(self):
        def beside(ms, rounds=ROUNDS, name="beside.json"):
            runs = [run(rung, 4, number, time) for number in range(rounds) for rung, time in (("fp8", ms), ("llmc", 20.0))]
            return named(name, sample()) | {"runs": [item | ({"peer": "llmc"} if item["variant"] == "llmc" else {})
                                                     for item in runs]}

        def tile(*datas):
            return tiles_of(page_of(*datas)).get("Beside the ladder: fp8")

        self.assertEqual(tile(sample(), beside(10.0)), ("11.00 ms", "1.91x as fast as llmc; all measured in beside.json"))
        self.assertEqual(tile(sample(), beside(8.0, 1, "less.json"), beside(10.0))[0], "11.00 ms", "of the most rounds")
        self.assertIsNone(tile(sample(), beside(20.0)))
        other = beside(10.0)
        for item in other["runs"]:
            item["config"] = config(8)
        self.assertIsNone(tile(sample(), other), "on another batch")
        self.assertIsNone(tile(sample(), on("Tesla T4", beside(10.0))))
        self.assertEqual(tile(sample(), beside(10.0), on("Tesla T4", sample())), ("1.91x as fast as llmc", "all measured in beside.json"))
        diverged = failing(beside(12.0, name="loss.json"), "fp8", "diverged", "step 10: 0.03 apart")
        self.assertIn("; fp8 diverged in loss.json", tile(sample(), beside(10.0), diverged)[1])

    def test_the_rung_soonest_at_a_loss_is_in_the_answer_of_times_with_the_largest_factor(self):
        def learned(name, seconds):
            data = named(name, sample((4,)))
            data["runs"] = [item for item in data["runs"] if item["variant"] in seconds]
            for item in data["runs"]:
                ms = [1e3 * seconds[item["variant"]] / len(item["steps"]["step_ms"])] * len(item["steps"]["step_ms"])
                item["steps"]["step_ms"], item["summary"]["first_step_ms"] = ms, ms[0]
            return until_loss(data)

        def tile(*datas):
            return next(((title, more) for title, (_, more) in tiles_of(page_of(*datas)).items() if title.startswith("To a loss")), None)

        less, more = (learned(name, {"00_fp32_baseline": 8.0, "02_tf32": took}) for name, took in (("less.json", 4.0), ("more.json", 2.0)))
        self.assertEqual(tile(sample(), less, more),
                         ("To a loss of 7: 02_tf32", "4.00x sooner than 00_fp32_baseline; measured in more.json"))
        self.assertIsNone(tile(sample()))
        self.assertIsNone(tile(sample(), learned("no.json", {"00_fp32_baseline": 4.0, "02_tf32": 8.0})), "none sooner than the first")

    def test_the_answer_says_where_its_rung_diverged(self):
        def tile(*datas):
            return tiles_of(page_of(*datas))["Against the baseline"][1]

        ladder = named("ladder.json", everything())
        self.assertIn("; 02_tf32 diverged in loss.json",
                      tile(ladder, failing(named("loss.json", sample()), "02_tf32", "diverged", "step 663: 0.03 apart")))
        other = failing(named("loss.json", sample()), "00_fp32_baseline", "crash", "no memory")
        self.assertNotIn("diverged in", tile(ladder, other))

    def test_among_several_batches_the_first_number_is_a_rate(self):
        first = [next(iter(tiles_of(page_of(one)).values())) for one in (at(sample((4, 8)), {"02_tf32": 17.0}), sample())]
        self.assertEqual(first, [("30,118 tokens/s", "17.00 ms a step; 02_tf32"), ("17.00 ms", "15,059 tokens/s; 02_tf32")])

    def test_a_throttled_rung_is_not_the_answer_and_devices_are_not_added_up(self):
        data = everything()
        for item in data["runs"]:
            if item["config"].get("world_size", 1) > 1:
                item["summary"]["tokens_per_second"] *= 10
        html = page_of(data)
        self.assertIn("02_tf32 at B=4", html[html.index("<h1>"):html.index("</h1>")])
        self.assertIn("gpt2-tiny B=4 T=64 on 4 devices", html)
        html = page_of(disturbed(sample(), "02_tf32", range(ROUNDS)))
        self.assertIn("01_causal_mask", html[html.index("<h1>"):html.index("</h1>")])

    def test_the_rounds_that_were_measured_are_said_not_those_planned(self):
        data = sample() | {"plan": {"rounds": 5, "steps": 12, "warmup": 3}, "complete": False}
        self.assertIn("3 of 5 rounds of 12 steps", page_of(data))
        self.assertIn("3 of 5 rounds of at most 12", page_of(data | {"plan": data["plan"] | {"until_loss": 3.0}}))
        self.assertIn("; 3 rounds of 12", page_of(data | {"plan": data["plan"] | {"rounds": ROUNDS}}))

    def test_ablations_are_a_table(self):
        data = ablated()
        data["plan"] = {"ablate": {"rungs": ["02_tf32"], "kinds": ["without", "only"]}}
        data["runs"] += [failed | {"variant": "without/02_tf32"}
                         for failed in failing(sample(), "02_tf32", "unsupported", "no")["runs"] if failed["variant"] == "02_tf32"]
        heads, rows = table_with(page_of(data), "leave-one-out")
        self.assertEqual(heads[:4], ["rung", "ladder gain", "leave-one-out", "only-one"])
        self.assertEqual(rows[0][1:4], ["2.294 2.222 to 2.375", "unsupported", "2.278 2.211 to 2.353"])

    def test_profiles_are_on_the_page_with_their_charts_and_tables(self):
        html = page_of(*self.files(), charts=True)
        for name in ("dtype", "phases", "kernel_types", "gap", "roofline", "mfu", "batch", "peers"):
            self.assertIn(f'id="chart-{name}"', html)
        section = Tags(html[html.index('id="profiles"'):html.index('id="diffs"')]).text
        for part in ("13_cuda_graphs", "matmul NT 1x1x1", "1.600", "GEMM", "25.0"):
            self.assertIn(part, section)
        self.assertEqual(section.count("13_cuda_graphs"), 1, "the heading has it")
        self.assertIn("<li>history: ", html)

    def test_a_profile_s_timeline_is_a_strip_of_phases_and_one_of_types(self):
        self.assertNotIn("<figure class=\"timeline\"", page_of(profile()), "a profile of before")
        data = profile()
        data["profile"]["timeline"] = [{"phase": phase, "type": type, "start_ms": start, "ms": ms} for phase, type, start, ms in (
            ("forward <b>", "GEMM", 0.0, 2.0), ("forward <b>", "copy", 2.0, 1.0), ("data", "copy", 5.0, 1.0), ("forward <b>", "GEMM", 6.0, 4.0))]
        html = page_of(data)
        figure = html[html.index('<figure class="timeline">'):html.index("</figure>", html.index('<figure class="timeline">'))]
        # A strip is 1,000 units wide: adjacent stretches of forward are joined, and the longest name of each strip comes first.
        self.assertIn('<path class="t0" d="M0.00 0H300.00v34H0.00zM600.00 0H1000.00v34H600.00z">'
                      "<title>forward &lt;b&gt;: 7 ms, 70.0 % of the step</title>", figure)
        self.assertIn('<path class="t1" d="M500.00 0H600.00v34H500.00z"><title>data: 1 ms, 10.0 % of the step</title>', figure)
        self.assertIn('<path class="t1" d="M200.00 40H300.00v34H200.00zM500.00 40H600.00v34H500.00z"><title>copy: 2 ms', figure)
        self.assertIn(">10 ms</text>", figure)

    def test_parts_of_one_name_keep_their_own_staleness_and_timelines(self):
        nothing = {"heading": "", "sentences": [], "facts": [], "tables": [], "notes": [], "legend": ""}
        file = {"name": "ladder", "about": "all", "called": "part ladder", "device": "GPU", "main": True, "gist": "Fastest",
                "section": nothing, "environment": nothing}
        traced = [profiles.Profile("13_cuda_graphs", "GPU", workload, 1.0, {}, {}, 1.0, {}, {}, [], name="profile_13",
                                   timeline=[profiles.Stretch(phase, "GEMM", 0.0, 1.0)])
                  for workload, phase in (("xl", "zeroth"), ("small", "first"), ("xl", "second"))]
        told = {"title": "", "mixed": False, "by_device": nothing, "horizons": nothing, "trials": [], "gains": {},
                "files": [file | {"sources": {"02_tf32": kept}} for kept in ("0" * 64, page.sources.source_hash("02_tf32"))],
                "profiles": [{"name": one.name, "rung": one.rung, "section": nothing} for one in traced]}
        html = page.render(told, [], results.together([], traced), {}, {})
        self.assertIn("the sources of 02_tf32 have changed since part ladder was made", html)
        self.assertEqual(re.findall("<title>(.*?): 1 ms", html)[::2], ["zeroth", "first", "second"])

    def test_profiles_alone_are_a_page_too(self):
        self.assertIn("Profiles of NVIDIA H200", page_of(profile()))

    def test_a_history_alone_is_named_by_its_device(self):
        points = [{"file": "a", "commit": "abc", "time": "", "median_step_ms": 9.0, "lo": None, "hi": None, "level_ms": 9.0,
                   "changed": False}] * 3
        html = page_of({"schema": 3, "kind": "history", "series": [
            {"device": "NVIDIA H200", "variant": "02_tf32", "workload": "gpt2", "points": points}]}, charts=True)
        self.assertIn("<title>Stepladder: NVIDIA H200</title>", html)
        (head,) = re.findall("<h1>(.*?)</h1>", html)
        self.assertIn("NVIDIA H200", head)
        self.assertNotIn("Profiles", head)

    def test_a_profile_of_other_sources_is_stale_and_of_another_device_not_shown(self):
        data = profile()
        data["profile"]["source_hash"] = "0" * 64
        data["context"]["device"]["name"] = "Tesla T4"
        self.assertRegex(page_of(data), "Stale: .*13_cuda_graphs have changed since results0.json was made")
        html = page_of(everything(), data, charts=True)
        self.assertNotIn('id="profiles"', html)
        self.assertIn("<li>gap: several devices", html)

    def test_of_each_file_only_what_differs_is_in_the_environment(self):
        one, other = everything(), everything()
        one["context"]["commit"] = other["context"]["commit"] = "abcdefabc"
        other["context"]["time"] = "tomorrow"
        html = page_of(one, other)
        environment = html[html.index('id="environment"'):]
        self.assertEqual((environment.count("abcdefabc"), environment.count("tomorrow")), (1, 1))


class Renewed(unittest.TestCase):
    """Tables between marks in a file such as README.md."""

    MARKS = "<!-- stepladder: begin -->\nold\n<!-- stepladder: end -->\n"

    def renewed(self, text, *datas):
        """Runs `report --into` on a file with this text. Returns exit status, the file's new content, and stderr."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "README.md").write_bytes(text if isinstance(text, bytes) else text.encode())
            done = reported(Path(folder), *datas, more=("--into", "README.md"), page=False)
            self.assertTrue(done.returncode == 0 or not Path(folder, "out").exists(), "nothing was written before")
            return done.returncode, Path(folder, "README.md").read_bytes(), done.stderr

    def tables(self, *datas):
        status, text, said = self.renewed(self.MARKS, *datas)
        self.assertEqual(status, 0, said)
        return text.decode()

    def beside(self, *datas):
        """Rung, workload and device of each row in the table of rungs beside peers."""
        tables = [[[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
                  for block in re.findall(r"(?:^\|.*\n)+", self.tables(*datas), flags=re.M)]
        heads, _, *rows = next((table for table in tables if "measured" in table[0]), ([], []))
        return [(row[0], row[heads.index("workload")] if "workload" in heads else "", row[heads.index("measured")])
                for row in rows]

    def test_names_are_no_markdown(self):
        name = "<img src=x>[x](http://y)*b*`c`|@someone &amp; __d__ ~~e~~ #1"
        data = json.loads(json.dumps(everything()).replace('"02_tf32"', json.dumps("02" + name)))
        data["context"].update(commit=name, time=name)
        data["context"]["device"].update(name=name, blas=name, attention=name)
        data["plan"].update(rounds=name)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "README.md").write_text(self.MARKS)
            reported(Path(folder), data, more=("--into", "README.md"), charts=False)
            marked = [Path(folder, file).read_text() for file in ("README.md", "out/published.md", "out/summary.md")]
        for text in marked:
            text = re.sub(r"(?s)<!--.*?-->", "", text)
            for raw in ("<img", "[x](", "*b*", "`c`", "@someone", "&amp; ", "__d__", "~~e"):
                self.assertNotIn(raw, text.replace("\\" + raw, ""), raw)

    def test_what_stands_between_the_marks_is_renewed_and_nothing_else(self):
        text = self.tables(failing(everything(), "01_causal_mask", "oom", "wants 90 | has 80"))
        self.assertTrue(text.startswith("<!--") and text.endswith("-->\n"))
        self.assertNotIn("old", text)
        for row in ("| 02_tf32 | 17.00 | 2.41 | 2.41 | 1.94 |", r" | oom: wants 90 \| has 80 |"):
            self.assertIn(row, text)
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)

    def test_a_file_keeps_the_ends_of_its_lines_and_its_bytes(self):
        marks = self.MARKS.encode()
        for before, kept in ((b"a\r\n" + marks.replace(b"\n", b"\r\n"), lambda text: text.count(b"\n")),
                             (b"a\r\n" + marks, lambda text: 1), (b"caf\xe9\n" + marks, lambda text: 0)):
            status, text, said = self.renewed(before, sample())
            self.assertEqual(status, 0, said)
            self.assertIn(b"| 02_tf32 |", text)
            self.assertTrue(text.startswith(before[:4]))
            self.assertEqual(text.count(b"\r\n"), kept(text))

    def test_the_tables_say_with_what_and_when_they_were_measured(self):
        data = sample()
        data["context"] |= {"time": "2026-11-24T21:47:05.073Z", "commit": "cc0720193be0b4e6", "device":
                            data["context"]["device"] | {"blas": "cuBLAS 13.1.0"}}
        self.assertIn("; 2026-11-24T21:47:05.073Z, commit cc0720193be0b4e6; cuBLAS 13.1.0, results0.json.", self.tables(data))

    def test_beside_the_peers_stands_what_computes_in_16_bits_as_they_do(self):
        data = with_peers(sample())
        for item in data["runs"]:
            item["config"] = item["config"] | {"math": {"01_causal_mask": "half", "02_tf32": "fp8"}.get(item["variant"], "fp32")}
        self.assertEqual([rung for rung, *_ in self.beside(data)], ["01_causal_mask", "02_tf32"])

    def test_a_rung_stands_beside_the_peers_once_from_the_file_with_most_rounds(self):
        def of(name, rounds):
            data = with_peers(sample())
            data["runs"] = [item | {"round": number} for number in range(rounds) for item in data["runs"] if item["round"] == 0]
            return named(name, data)

        self.assertEqual(self.beside(of("a.json", 6), of("b.json", 8), of("c.json", 6)), [("02_tf32", "", "in b.json")])

    def test_where_a_file_has_95_percent_intervals_those_of_fewer_rounds_have_no_table(self):
        few, many = named("few.json", with_peers(sample())), named("many.json", with_peers(sample()))
        for item in few["runs"]:
            item["config"] = item["config"] | {"B": 32}
        many["runs"] = [item | {"round": number} for number in range(6) for item in many["runs"] if item["round"] == 0]
        self.assertEqual(len(self.beside(few)), 1)
        self.assertEqual(self.beside(many, few), [("02_tf32", "", "in many.json")])

    def test_the_end_mark_may_end_the_file(self):
        status, text, said = self.renewed(self.MARKS.rstrip(), sample())
        self.assertEqual((status, b"old" in text), (0, False), said)

    def test_a_file_without_marks_is_left_alone(self):
        for text in ("no marks\n", self.MARKS[::-1], 2 * self.MARKS):
            status, kept, said = self.renewed(text, sample())
            self.assertEqual((status, kept.decode(), said.count("\n")), (2, text, 1), said)
        self.assertEqual(self.renewed(self.MARKS, profile())[0], 2, "no results to make tables of")

    def test_docs_have_the_tables_of_the_kept_results(self):
        docs = REPORTS.parent / "docs/results.md"
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "results.md").write_bytes(docs.read_bytes())
            done = stepladder(Path(folder), "report", REPORTS / "h200/results.jsonl.gz", "--out", "out", "--into", "results.md",
                              python="true")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(Path(folder, "results.md").read_text(), docs.read_text(),
                             "stepladder report reports/h200/results.jsonl.gz --into docs/results.md renews it")

    def test_measurements_of_the_ladder_of_learning_lead_with_its_time_to_a_loss(self):
        with tempfile.TemporaryDirectory() as folder:
            parts = (f"{REPORTS}/h200/results.jsonl.gz:learning{part}" for part in ("_steps", "_beside", "_peers", ""))
            done = stepladder(Path(folder), "report", *parts, "--out", "out", python="true")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(Path(folder, "out/summary.md").read_text(), r"^# Stepladder\n\n## learning: .*\n\nSoonest at a loss of 3: ")

    def test_the_readme_has_the_numbers_of_the_kept_results(self):
        text = (REPORTS.parent / "README.md").read_text()

        def rows(after, before):
            """The first word of each row of the table between two texts, and the row's numbers."""
            found = []
            for line in text.partition(after)[2].partition(before)[0].splitlines():
                row = re.match(r"\| `?([\w.]+)", line)
                numbers = [float(cell.replace(",", "")) for cell in re.findall(r"(?<=\| )[\d.,]+(?= \|)", line)]
                if row and numbers:
                    found.append((row[1], *numbers))
            return found

        results = {part["name"]: part["result"].get("variants") for part in kept.parts(REPORTS / "h200/results.jsonl.gz")}
        ms = {row["variant"]: row["median_step_ms"]["value"] for row in results["ladder"]}
        climbed = rows("## Results", "Beside other trainers")
        self.assertGreater(len(climbed), 5)
        for rung, step, times in climbed:
            self.assertAlmostEqual(step, ms[rung], delta=0.051, msg=rung)
            self.assertAlmostEqual(times, ms["00_fp32_baseline"] / ms[rung], delta=0.051, msg=rung)

        others = {row["variant"].removesuffix("/13_cuda_graphs"): row for row in results["beside"] if row["config"]["B"] == 16}
        compared = rows("Beside other trainers", "Do these rungs")
        self.assertEqual(len(compared), 4)
        for trainer, step, joules in compared:
            row = others[{"PyTorch": "pytorch", "llm.c": "llmc"}.get(trainer, trainer)]
            self.assertAlmostEqual(step, row["median_step_ms"]["value"], delta=0.051, msg=trainer)
            self.assertAlmostEqual(joules, row["joules"]["value"], delta=0.051, msg=trainer)

        learned = {row["variant"]: row["to_loss"] for part in ("learning_beside", "learning") for row in results[part]}
        taught = rows("A second ladder", "**[The page]")
        self.assertEqual(len(taught), 5)
        for rung, *numbers in taught:
            for name, number, unit, digits in zip(("steps", "seconds", "joules"), numbers, (1, 1, 1000), (0, 1, 1), strict=True):
                self.assertEqual(number, round(learned[rung][name]["value"] / unit, digits), f"{rung}, {name}")


class Hostile(unittest.TestCase):
    STRINGS = ("<script>alert(1)</script>", "\"><img src=x onerror='alert(1)'>", "a\x00\x1b[31m\u2028b", "x" * 10_000,
               "{{ 7 * 7 }}", "--><svg onload=alert(1)>", "javascript:alert(1)")

    def full_of(self, text):
        data = json.loads(json.dumps(failing(sample(), "01_causal_mask", "oom", text)).replace('"02_tf32"', json.dumps(text)))
        data["context"].update({key: text for key in ("commit", "command_line", "time", "cpu")})
        data["context"]["device"].update(name=text, blas=text)
        data["plan"] = {"rounds": text, "steps": text, "warmup": text, "data": text}
        return data

    def test_numbers_near_the_ends_of_double_leave_out_charts_not_the_page(self):
        rungs, traced = sample(), profile()
        rungs["runs"][0]["steps"]["step_ms"][-1] = 5e-324
        for item in rungs["runs"]:
            item["steps"]["loss"][-1] = 1.7e308
            item["summary"]["median_step_ms"] = 1.7e308
        traced["profile"]["device_ms"] = 1.7e308
        traced["profile"]["phases"][0].update(name="p" * 163, ms=1.7e308)
        html = page_of(rungs, traced, charts=True)
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
            clean = Tags(page_of(self.full_of("plain"), charts=charts))
            for text in strings:
                html = page_of(self.full_of(text), charts=charts)
                tags = Tags(html)
                for tag in ("script", "img", "style"):
                    self.assertEqual(*([name for name, _ in one.tags].count(tag) for one in (tags, clean)))
                self.assertEqual([key for _, attributes in tags.tags for key in attributes if key.startswith("on")], [])
                self.assertFalse([a for tag, a in tags.tags if tag == "a" and a["href"].startswith("javascript")])
                self.assertLess(max(map(len, re.findall(r"x+", html))), 500)
                self.assertFalse("\x1b" in html or "\x00" in html)

    def test_a_profile_s_strings_are_shown_never_run(self):
        for text in self.STRINGS:
            data = json.loads(json.dumps(profile()).replace('"matmul NT 1x1x1"', json.dumps(text)))
            data["profile"]["variant"] = data["context"]["device"]["name"] = text
            html = page_of(data)
            self.assertEqual([name for name, _ in Tags(html).tags].count("script"), 1)
            self.assertNotIn("onload=alert", html.replace("&lt;svg onload=alert", ""))

    def test_no_rung_that_ended_well_gives_a_page_too(self):
        data = sample()
        for rung in RUNGS:
            failing(data, rung, "crash", "signal 11")
        self.assertIn("<h1>No rung", page_of(data))

    def test_an_output_that_is_no_folder_and_damaged_results_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "out").write_text("")
            for data in (sample(), "{"):
                done = reported(Path(folder), data)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(report.main(["/nowhere/page.json"]), 2)
        self.assertIn("/nowhere/page.json", said.getvalue())

    def test_what_is_not_installed_is_said_and_the_rest_written(self):
        with tempfile.TemporaryDirectory() as folder:
            for module, written, lost in (("jinja2", "ladder.svg", "index.html"),
                                          ("matplotlib", "index.html", "ladder.svg")):
                python = Path(folder, module)
                python.write_text(f"""#!/bin/sh
exec {sys.executable} -c 'import sys; sys.modules["{module}"] = None; sys.path.insert(0, "{REPORTS}"); sys.argv = sys.argv[1:]
import report; sys.exit(report.main())' "$@"
""")
                python.chmod(0o755)
                done = stepladder(Path(folder), "report", *files_of(Path(folder), sample()), "--out", f"out-{module}",
                                  python=str(python))
                self.assertRegex(done.stderr, rf"(?m)^stepladder: warning: no .*{module}")
                self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1))
                self.assertTrue(Path(folder, f"out-{module}", written).exists())
                self.assertFalse(Path(folder, f"out-{module}", lost).exists())


class Budget(unittest.TestCase):
    def test_fourteen_rungs_of_five_rounds_of_two_hundred_steps(self):
        """The page has at most 3 MB."""
        data = sample()
        steps = {"step_ms": [40 + i % 7 / 10 for i in range(200)], "loss": [11 - i / 40 for i in range(200)]}
        data["runs"] = [{**run(f"{i:02}_rung", 4, number, 40.0), "steps": steps}
                        for i in range(14) for number in range(5)]
        self.assertLess(len(page_of(data, charts=True).encode()), 3_000_000)


@unittest.skipUnless(find(), "no Chromium here (chromium-headless-shell, chromium, google-chrome)")
class InABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = temp_folder(cls)
        data = failing(everything(), "01_causal_mask", "oom", "wants 90 GiB")
        data["plan"] = {"ablate": {"rungs": ["02_tf32", "03_fused_adamw", "04_pinned_loader"], "kinds": ["only"]}}
        data["runs"] += [run(f"only/{rung}", 4, number, ms) for number in range(ROUNDS) for rung, ms in (
            ("02_tf32", 15.0), ("03_fused_adamw", 4.0), ("04_pinned_loader", 5.0))]
        done = reported(folder, data, profile())
        assert done.returncode == 0, done.stderr
        cls.path = folder / "out/index.html"
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
                self.browser.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
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
        self.assertEqual(self.browser.evaluate(click + '("medianms")')[:2], ["00", "02"])
        self.assertEqual(self.browser.evaluate(click + '("medianms")')[-1], "01", "what is missing stays last")
        self.assertEqual(self.browser.evaluate(click + '("rung")')[:3], ["00", "01", "02"])
        self.assertEqual(self.browser.evaluate('document.querySelectorAll("[aria-sort]").length'), 1)
        self.assertEqual(self.browser.evaluate(click + '("only-one")')[:3], ["03", "04", "02"])
        self.assertEqual(self.browser.evaluate(click + '("only-one")')[:3], ["02", "04", "03"])

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

    def test_the_answer_and_its_picture_are_on_the_first_screen(self):
        self.browser.open(self.path)
        top, wide = self.browser.evaluate("""(box => [box.top, box.width])(
            document.querySelector(".first figure svg").getBoundingClientRect())""")
        self.assertLess(top, 450)
        self.assertGreater(wide, 800)

    def test_devices_answers_are_beside_each_other_above_their_picture(self):
        with tempfile.TemporaryDirectory() as folder:
            reported(Path(folder), with_peers(sample()), on("Tesla T4", with_peers(sample())))
            with Browser() as browser:
                for width, beside in ((1280, True), (390, False)):
                    browser.open(Path(folder, "out/index.html"), width)
                    one, other = browser.evaluate("""[...document.querySelectorAll(".answer")].map(
                        answer => answer.getBoundingClientRect().top)""")
                    self.assertEqual(one == other, beside)
                    self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), width)

    def test_a_long_name_widens_no_page(self):
        with tempfile.TemporaryDirectory() as folder:
            reported(Path(folder), sample(), named(f"trial_{90 * 'x'}.json", sample()))
            with Browser() as browser:
                browser.open(Path(folder, "out/index.html"), 390)
                browser.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
                self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), 390)

    def test_a_picture_alone_leaves_its_caption_room_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            reported(Path(folder), on_the_cpu(sample()))
            with Browser() as browser:
                for width in (1400, 1700):
                    browser.open(Path(folder, "out/index.html"), width)
                    figure, caption = browser.evaluate("""["svg", "figcaption"].map(
                        part => document.querySelector(".first figure " + part).getBoundingClientRect().left)""")
                    self.assertGreater(caption, figure + 700)

    def test_a_phone_shows_what_each_rung_gains(self):
        self.browser.open(self.path, 390)
        right = self.browser.evaluate("""Math.max(...[...document.querySelectorAll("#ladder thead th")].filter(
            head => /x (previous|baseline)|speed-up/.test(head.textContent)).map(head => head.getBoundingClientRect().right))""")
        self.assertLessEqual(right, 390)

    def test_a_laptop_hides_columns_of_wide_tables_alone(self):
        self.browser.open(self.path, 1280)
        hidden = self.browser.evaluate("""[...document.querySelectorAll("#ladder thead th")].filter(
            head => !head.offsetWidth && !head.closest("details")).map(head => head.textContent.trim())""")
        self.assertIn("tok/J", hidden)
        self.assertNotIn("kJ", hidden)

    def test_a_link_opens_the_diff(self):
        self.browser.open(self.path)
        self.assertFalse(self.browser.evaluate("document.getElementById('diff-02_tf32').open"))
        self.browser.evaluate("document.querySelector('a[href=\"#diff-02_tf32\"]').click()")
        self.browser.evaluate("new Promise(done => setTimeout(done, 50))")
        self.assertTrue(self.browser.evaluate("document.getElementById('diff-02_tf32').open"))


if __name__ == "__main__":
    unittest.main()
