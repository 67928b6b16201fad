"""The published tables: nothing published is lost or made up, and ours stands beside it as the table asks."""

import csv
import sys
import tempfile
import unittest
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "reports"), str(Path(__file__).resolve().parent)]
try:
    import kept
    import profiles
    import published
    import results
    import sources
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the reports' Python packages are not installed") from None

FIELDS = ("source", "device", "devices", "variant", "metric", "value", "unit", "B", "T", "kind")


def listed():
    """What was published, row by row, as it was collected: tests/data/published_rows.tsv."""
    with Path(__file__).with_name("data").joinpath("published_rows.tsv").open(encoding="utf-8") as file:
        return [tuple(row[name] for name in FIELDS) for row in csv.DictReader(file, delimiter="\t")]


def ours(ladder, device="NVIDIA H200", B=16, T=1024):
    """Results of these rungs, each with its milliseconds."""
    row_of = {name: results.Row(name, "ok", "", median_ms=ms, tokens_per_second=B * T * 1e3 / ms, first_step_ms=10 * ms,
                                memory=results.Memory(*[int(ms * results.GIB)] * 3)) for name, ms in ladder.items()}
    workload = results.Workload("gpt2", B, T, rows=list(row_of.values()), device=device)
    return results.Results(device, "cuda", [workload])


def table(source, title, measured):
    tables = next(one.tables for one in published.reproduce(measured) if one.name == source)
    return next(one for one in tables if one.title == title)


LADDER = {"00_fp32_baseline": 400.0, "05_mixed_precision": 100.0, "08_fused_elementwise": 50.0, "09_flash_attention": 40.0,
          "10_padded_vocab": 32.0}
FILE = published.ROOT / "reports/h200/results.jsonl.gz"
PROFILE = profiles.read(FILE, next(part["result"] for part in kept.parts(FILE) if part["name"] == "profile_13"))
GUNTON = ("gunton-2024-07", "Step time on an A100")


class Rows(unittest.TestCase):
    def test_every_published_row_is_in_one_table_or_not_applicable_with_why(self):
        rows = [tuple("" if row[name] is None else str(row[name]) for name in FIELDS)
                for source in published.load() for row in published.rows(source)]
        self.assertEqual(Counter(rows), Counter(listed()))
        self.assertEqual(len(rows), 192)
        for source in published.load():
            for one in source["not_applicable"]:
                self.assertGreater(len(one["why"]), 20, one["title"])

    def test_what_of_ours_is_named_exists(self):
        ladder = set(sources.LADDER) | {"llmc"}
        for source in published.load():
            for one in source["tables"]:
                for row in one["rows"]:
                    names = row.get("ours") or []
                    for name in [names] if isinstance(names, str) else names:
                        if one["quantity"] == "lines":
                            self.assertTrue(list(published.ROOT.glob(name)), name)
                        elif one["quantity"] in published.OF_PROFILE:
                            self.assertIn(name, published.OF_PROFILE[one["quantity"]](PROFILE))
                        else:
                            self.assertIn(name.removeprefix("pytorch/"), ladder)

    def test_a_damaged_source_is_named(self):
        for text in ("{", "[]", '{"source": "x", "tables": [{}], "not_applicable": []}',
                     '{"source": "x", "tables": [{"columns": [{}], "rows": [{"variant": "a", "values": [1, 2]}]}],'
                     ' "not_applicable": []}'):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "bad.json").write_text(text)
                with self.assertRaisesRegex(results.ResultsError, "bad.json"):
                    published.load(Path(folder))


class Beside(unittest.TestCase):
    def test_ratios_are_against_the_first_row_and_compared(self):
        flash = table(*GUNTON, [ours(LADDER)]).lines[3]
        self.assertEqual((flash.variant, flash.values, flash.ratio), ("flash", ["104"], "10.00×"))
        self.assertEqual((flash.beside, flash.ours, flash.ours_ratio), ("09_flash_attention", "40.00", "10.00×"))
        self.assertAlmostEqual(flash.agreement, 1.0)

    def test_a_source_says_which_gains_are_ours_too_and_why_others_are_not(self):
        def answer(*gains, apart="Because."):
            lines = [published.Line(name, [], f"{theirs:.2f}×", ours_ratio=f"{ours:.2f}×",
                                    agreement=ours / theirs) for name, theirs, ours in gains]
            tables = [published.Table("memory", "", [], [published.Line("fp32", ["1"])]),
                      published.Table("ms", "", [], lines)]
            return published.Source("s", "", "", None, [], tables, apart).answer

        self.assertRegex(answer(("tf32", 3.0, 2.6), ("flash", 10.0, 6.8)),
                         r"15 %.*: tf32 \(2\.60×, .*3\.00×\)\. .*: flash \(6\.80×, .*10\.00×\)\. Because\.$")
        self.assertNotIn("Because", answer(("tf32", 3.0, 3.4)))
        self.assertIn("Because", answer(("tf32", 3.0, 3.46)), "15.3 %, which rounds to 15")
        self.assertEqual(answer(), "")

    def test_milliseconds_are_compared_on_the_same_device_only(self):
        self.assertFalse(table(*GUNTON, [ours(LADDER)]).has("same_device"))
        here = table(*GUNTON, [ours(LADDER), ours(LADDER, device="NVIDIA A100-SXM4-40GB")])
        self.assertEqual(here.lines[0].same_device, f"{400 / 1040:.2f}")
        self.assertIn("A100", here.ours_setting)

    def test_the_workload_with_the_most_rows_is_taken_then_the_nearest_batch(self):
        measured = [ours({"09_flash_attention": 40.0}), ours(LADDER, B=64), ours(LADDER, B=8)]
        self.assertIn("B = 8,", table(*GUNTON, measured).ours_setting)

    def test_another_batch_stands_beside_nothing_but_a_rung_that_chooses_its_own(self):
        measured = ours({name: ms for name, ms in LADDER.items() if name != "00_fp32_baseline"}, device="NVIDIA A100", B=64)
        measured.workloads += ours({"00_fp32_baseline": 400.0}, device="NVIDIA A100").workloads
        one = table(*GUNTON, [measured])
        self.assertIn("B = 64", one.ours_setting)
        self.assertEqual(one.lines[0].ours, "")
        self.assertFalse(one.has("same_device"), "milliseconds of another batch")

    def test_more_memory_is_worse_and_more_tokens_are_better(self):
        raschka = "raschka-llm-training-speed"
        memory = table(raschka, "Reserved memory", [ours(LADDER)]).lines[7]
        self.assertEqual((memory.ratio, memory.ours_ratio), ("4.45×", "10.00×"))
        rate = table(raschka, "Throughput of the ten steps, and on 4 devices", [ours(LADDER)]).lines[7]
        self.assertEqual((rate.ratio, rate.ours_ratio), ("7.34×", "10.00×"))

    def test_a_pair_gives_the_time_saved(self):
        saved = table("gunton-2024-07", "Time saved, as the author rounds it, A100", [ours(LADDER)])
        self.assertEqual([line.ours for line in saved.lines], ["75.00", "50.00", "87.50", "92.00"])

    def test_a_gain_is_the_ladder_table_s_where_that_has_it(self):
        measured = ours(LADDER)
        rows = {row.rung: row for row in measured.workloads[0].rows}
        rows["10_padded_vocab"].baseline = results.Ratio(12.6, "00_fp32_baseline")
        rows["09_flash_attention"].previous = results.Ratio(1.2, "08_fused_elementwise")
        self.assertEqual(table(*GUNTON, [measured]).lines[4].ours_ratio, "12.60×")
        total = table("gunton-2024-07", "Speed-up in total, A100", [measured])
        self.assertEqual(total.lines[0].ours, "12.60")
        self.assertEqual(rows["08_fused_elementwise"].speedup_over(rows["09_flash_attention"]), 1 / 1.2)
        self.assertEqual(rows["09_flash_attention"].speedup_over(rows["05_mixed_precision"]), 2.5)

    def test_another_model_or_length_and_a_failed_rung_stand_beside_nothing(self):
        tiny = ours(LADDER)
        tiny.workloads[0].model = "gpt2-tiny"
        failed = ours(LADDER)
        for row in failed.workloads[0].rows:
            row.status = "oom"
        for measured in (tiny, ours(LADDER, T=512), failed):
            one = table(*GUNTON, [measured])
            self.assertFalse(one.has("ours"))
            self.assertIn("T = 1024", one.missing)

    def test_numbers_of_as_many_devices_stand_beside_each_other(self):
        def ddp(*measured):
            lines = table("raschka-llm-training-speed", "Throughput of the ten steps, and on 4 devices", measured).lines
            return next(line.ours for line in lines if line.beside == "15_multi_gpu")

        one = ours(LADDER)
        for devices, rate in ((1, 100.0), (2, 200.0), (4, 400.0)):
            row = results.Row("15_multi_gpu", "ok", "", tokens_per_second=rate)
            one.workloads.append(results.Workload("gpt2", 16, 1024, devices, rows=[row], device="NVIDIA H200"))
        self.assertEqual(ddp(one), "400.0")
        one.workloads.pop()
        self.assertEqual(ddp(one), "")

    def test_several_devices_do_not_stand_beside_one(self):
        both = ours(LADDER)
        both.workloads[0].devices = 2
        self.assertFalse(table(*GUNTON, [both]).has("ours"))

    def test_a_rung_that_failed_leaves_its_place_empty(self):
        measured = ours(LADDER)
        measured.workloads[0].rows[3].status = "oom"
        lines = table(*GUNTON, [measured]).lines
        self.assertEqual([line.ours for line in lines], ["400.0", "100.0", "50.00", "", "32.00"])

    def test_a_profile_s_shares_of_the_step_stand_beside_llm_c_s(self):
        llmc = next(one for one in published.reproduce([], [PROFILE]) if one.name == "llmc-2024-05-03").tables
        phases, kernels = (next(one for one in llmc if one.title == f"Profile: {title}")
                           for title in ("phases of a step", "kernels"))
        whole = PROFILE.phases
        head = 100 * (whole["classifier"] + whole["classifier backward"]) / sum(whole.values())
        self.assertEqual(phases.lines[2].beside, "classifier + classifier backward")
        self.assertEqual(phases.lines[2].ours, f"{head:.1f} %")
        self.assertEqual((kernels.lines[0].beside, kernels.lines[1].ours), ("GEMM", ""))
        self.assertIn("profile of 13_cuda_graphs", kernels.ours_setting)
        shares = [float(line.ours.split()[0]) for line in kernels.lines if line.ours]
        self.assertLess(sum(shares), 100.5)  # none is counted twice
        self.assertGreater(sum(shares), 98)

    def test_a_profile_in_8_bits_gives_way_to_a_slower_one(self):
        fp8 = replace(PROFILE, rung="fp8", ms=PROFILE.ms / 2)
        self.assertEqual(published.reproduce([], [fp8, PROFILE]), published.reproduce([], [PROFILE]))
        self.assertNotEqual(published.reproduce([], [fp8]), published.reproduce([]))

    def test_a_profile_without_times_stands_beside_nothing(self):
        empty = replace(PROFILE, ms=1e-3, phases={}, kernel_types={})
        self.assertEqual(published.reproduce([], [empty]), published.reproduce([]))
        self.assertEqual(published.reproduce([], [empty, PROFILE]), published.reproduce([], [PROFILE]))

    def test_without_a_profile_of_gpt2_there_is_nothing_beside_one(self):
        self.assertIn("no profile", table("llmc-2024-05-03", "Profile: kernels", []).missing)

    def test_what_a_compiler_takes_stands_beside_a_compiled_peer(self):
        for source in published.load():
            for one in source["tables"]:
                if one.get("quantity") in ("first_step_ms", "first_step_s"):
                    for row in one["rows"]:
                        self.assertTrue(row["ours"] is None or row["ours"].startswith("pytorch/"), (one["title"], row))

    def test_a_source_without_an_address_says_so(self):
        self.assertTrue(any(one.url is None for one in published.reproduce([])))

    def test_lines_of_code_are_counted(self):
        lines = table("llmc-2024-05-03", "Lines of code", []).lines
        self.assertGreater(int(lines[0].ours.replace(",", "")), 1000)


if __name__ == "__main__":
    unittest.main()
