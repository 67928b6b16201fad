"""Charts of a results file: what is drawn, what is not, and the answers to damaged files."""

import copy
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reports"))
try:
    import charts
    import charts_ladder
    import charts_sweep
    import charts_profile
    import charts_to_loss
    import files
    import history
    import profiles
    import results
    import schema
    import style
    from matplotlib.transforms import Bbox
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the charts' Python packages are not installed") from None

RUNGS = {"00_fp32_baseline": 40.0, "01_causal_mask": 38.0, "02_tf32": 16.0}
STEPS, WARMUP, ROUNDS = 12, 3, 3


def estimate(value, lo=None, hi=None):
    return {"value": value, "lo": lo, "hi": hi}


def over(against, ratio, lo=None, hi=None):
    return {"ratio": ratio, "lo": lo, "hi": hi, "against": against}


def texts(artists):
    return [artist.get_text() for artist in artists]


def widths(ax):
    return [bar.get_width() for bar in ax.patches]


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def whiskers(ax):
    return [tuple(round(x, 6) for x in path.vertices[:, 0]) for bars in ax.collections for path in bars.get_paths()]


def marks(ax, marker):
    return [line.get_xdata()[0] for line in ax.lines if line.get_marker() == marker]


def config(B):
    return {"model": "gpt2-tiny", "B": B, "T": 64}


def run(rung, B, number, ms):
    steps = {"step_ms": [ms + number + (900 if i == 0 else 0) for i in range(STEPS)],
             "loss": [10.0 - 0.3 * i + (1e-5 * i if rung != "00_fp32_baseline" else 0) for i in range(STEPS)]}
    return {"variant": rung, "source_hash": "", "backend": "cuda", "round": number, "status": "ok", "reason": "",
            "config": config(B), "steps": steps, "summary": summary(ms + number)}


def summary(ms):
    return {"median_step_ms": ms, "p10_step_ms": ms, "p90_step_ms": ms, "first_step_ms": ms + 900, "startup_ms": 640.0,
            "warmup_steps": WARMUP, "tokens_per_second": 4 * 64e3 / ms, "mfu_nanogpt": None, "mfu_llmc": None,
            "val_loss": None, "memory_bytes": {"live_peak": 1, "reserved_peak": 2, "process_peak": 3, "by_name": {}}}


def row(rung, B, ms):
    baseline = RUNGS["00_fp32_baseline"]
    return {"variant": rung, "backend": "cuda", "config": config(B), "status": "ok", "reason": "", "rounds": ROUNDS,
            "counted": list(range(ROUNDS)), "interval": "range (75 %)",
            "median_step_ms": estimate(ms + 1, ms, ms + 2),
            "speedup_baseline": None if ms == baseline else
            over("00_fp32_baseline", baseline / ms)}


def sample(batches=(4,)):
    rows = [(rung, B, ms) for B in batches for rung, ms in RUNGS.items()]
    device = {"name": "NVIDIA H200", "backend": "cuda"}
    return {"schema": 3, "complete": True, "context": {"device": device}, "plan": {},
            "runs": [run(rung, B, number, ms) for number in range(ROUNDS) for rung, B, ms in rows],
            "variants": [row(rung, B, ms) for rung, B, ms in rows]}


def twice_as_long(data):
    """`data` with each run's steps repeated once."""
    for item in data["runs"]:
        item["steps"] = {key: 2 * column for key, column in item["steps"].items()}
    return data


def with_peers(data):
    """`data` with PyTorch's counterpart of each rung, half as fast, and llm.c, at 20 ms."""
    for rung, ms in RUNGS.items():
        data["variants"].append(row(f"pytorch/{rung}", 4, 2 * ms) | {"peer": "pytorch"})
        data["runs"] += [run(f"pytorch/{rung}", 4, number, 2 * ms) | {"peer": "pytorch"} for number in range(ROUNDS)]
    data["variants"].insert(0, row("llmc", 4, 20.0) | {"peer": "llmc"})
    data["runs"] += [run("llmc", 4, number, 20.0) | {"peer": "llmc"} for number in range(ROUNDS)]
    return data


def with_other_peer(data):
    """`data` with a peer from a user's own ladder beside each rung, a third as fast."""
    for rung, ms in RUNGS.items():
        data["variants"].append(row(f"jax/{rung}", 4, 3 * ms) | {"peer": "jax"})
        data["runs"] += [run(f"jax/{rung}", 4, number, 3 * ms) | {"peer": "jax"} for number in range(ROUNDS)]
        variant(data, rung).setdefault("speedup_peers", []).append(
            {"ratio": 3.0, "lo": 2.9, "hi": 3.1, "against": f"jax/{rung}"})
    return data


def with_energy(data):
    """`data` with cycles of its rungs, at 1.5 GHz for 02_tf32 and 2 GHz for the others, and joules of all, at 500 W."""
    for item in data["variants"]:
        ms = item["median_step_ms"]["value"]
        item["joules"] = estimate(ms / 2, ms / 2 - 0.1, ms / 2 + 0.1)
        item["tokens_per_joule"] = estimate(512 / ms)
        if "peer" not in item:
            item["cycles"] = estimate(ms * (1.5e6 if item["variant"] == "02_tf32" else 2e6))
    for item in data["runs"]:
        ms = item["summary"]["median_step_ms"]
        item["summary"] |= {"joules": ms / 2} | ({} if "peer" in item else {
            "cycles": ms * (1.5e6 if item["variant"] == "02_tf32" else 2e6)})
    for (before, ms), (rung, less) in zip(RUNGS.items(), [*RUNGS.items()][1:]):
        variant(data, rung)["speedup_previous"] = {"ratio": (ms + 1) / (less + 1), "lo": None, "hi": None,
                                                   "against": before}
    return data


LOSS = 7.0


def until_loss(data, gave_up=()):
    """`data` with its runs of batch 4 trained until a validation loss of 7, evaluated every 4 steps; runs in `gave_up`,
    pairs of rung and round, get to 8.8."""
    for item in data["runs"]:
        if item["config"] == config(4) and item["summary"]:
            reached, seconds = (item["variant"], item["round"]) not in gave_up, sum(item["steps"]["step_ms"]) / 1e3
            item["evaluations"] = [{"step": step, "val_loss": 10 - (0.3 if reached else 0.1) * step}
                                   for step in range(0, STEPS + 1, 4)]
            item["summary"]["to_loss"] = {"loss": LOSS, "reached": reached, "steps": STEPS, "seconds": seconds,
                                          "tokens": 3e6, "joules": 500 * seconds}

    def without_compiling(run):
        summary = run["summary"]
        return round(summary["to_loss"]["seconds"] - (summary["first_step_ms"] - summary["median_step_ms"]) / 1e3, 9)

    first = {}
    for item in data["variants"]:
        if item["config"] == config(4) and item["status"] == "ok":
            took = {one["round"]: one["summary"]["to_loss"] | {"seconds": without_compiling(one)} for one in data["runs"]
                    if one["variant"] == item["variant"] and one["config"] == config(4)}
            took = {number: one for number, one in took.items() if one["reached"]}
            item["to_loss"] = {"loss": LOSS, "reached": len(took)}
            for name in ("seconds", "steps", "tokens", "joules") if took else ():
                values = [one[name] for one in took.values()]
                item["to_loss"][name] = estimate(median(values), min(values), max(values))
            if took and not first:
                first = {"against": item["variant"], "took": took}
            if common := took.keys() & first.get("took", {}).keys():
                ratios = [first["took"][number]["seconds"] / took[number]["seconds"] for number in common]
                seconds = estimate(median(ratios), min(ratios), max(ratios))
                item["to_loss"]["first"] = {"against": first["against"], "seconds": seconds, "steps": seconds,
                                            "step_ms": estimate(1.0, 1.0, 1.0)}
    return data


def disturbed(data, rung, rounds, how="throttled"):
    """`data` with these rounds of a rung on a device that was throttled, or shared."""
    for item in data["runs"]:
        if item["variant"] == rung and item["round"] in rounds:
            item["summary"][how] = True
    counted = [number for number in range(ROUNDS) if number not in rounds] or list(range(ROUNDS))
    variant(data, rung).update(disturbed_rounds=len(rounds), disturbance=how, disturbed=len(rounds) == ROUNDS, counted=counted)
    return data


def variant(data, name):
    return next(item for item in data["variants"] if item["variant"] == name)


def everything():
    """Results with something for every chart: peers, energy and cycles, memory by name, MFU, a loss trained to, two
    batches, two numbers of devices."""
    data = with_energy(with_peers(sample()))
    memory = {"live_peak": 100 * 2**20, "reserved_peak": 110 * 2**20, "process_peak": 120 * 2**20,
              "by_name": {"params/wte": 10 * 2**20, "weights/wte": 5 * 2**20, "adam_m/wte": 2**20,
                          "activations/att": 60 * 2**20, "batch/tokens": 2**20}}
    for item in data["runs"]:
        ms = item["summary"]["median_step_ms"]
        item["summary"].update(mfu_nanogpt=8 / ms, mfu_llmc=7.5 / ms, memory_bytes=memory)
    for item in data["variants"]:
        ms = item["median_step_ms"]["value"]
        item.update(tokens_per_second=estimate(4 * 64e3 / ms), mfu_nanogpt=8 / ms,
                    mfu_llmc=7.5 / ms, speedup_peers=[], memory_bytes=copy.deepcopy(memory))
        if item["variant"] in RUNGS:
            item["speedup_peers"] = [{"ratio": 2.0, "lo": 1.9, "hi": 2.1, "against": f"pytorch/{item['variant']}"}]
    for B, devices in ((8, 1), (16, 1), (4, 2), (4, 4)):
        more = copy.deepcopy([item for item in data["variants"] if item["variant"] == "02_tf32"][0])
        more["config"] = config(B) | ({"world_size": devices} if devices > 1 else {})
        more["tokens_per_second"]["value"] *= 0.9 * B * devices / 4
        data["variants"].append(more)
        data["runs"].append(run("02_tf32", B, 0, 20.0) | {"config": more["config"]})
    data["scaling"] = [{"variant": "02_tf32", "config": config(4), "devices": devices, "one_batch": 4, "against": "02_tf32",
                        "tokens_per_second": estimate(900.0 * devices, 890.0 * devices, 910.0 * devices),
                        "efficiency": estimate(0.9, 0.89, 0.91)} for devices in (4, 2)]
    data["ablations"] = ablated()["ablations"]
    return until_loss(data)


def prediction(devices):
    return {"variant": "02_tf32", "batch": 4, "devices": devices, "machines": 1, "tokens_per_second": 950.0 * devices,
            "efficiency": 0.95}


def gain(ratio, low=None, high=None):
    return {"before": "a", "after": "b", "status": "ok", "reason": "", "ratio": ratio, "lo": low, "hi": high,
            "saved_bytes": 0}


def missing(status, reason):
    return {"before": "a", "after": "b", "status": status, "reason": reason}


def ablated(batches=(4,)):
    """`sample` as an ablation: a rung with every gain, and one whose leave-one-out failed."""
    data = sample(batches)
    data["variants"].append(row("only/02_tf32", 4, 17.0) | {"speedup_baseline": None})
    data["runs"] += [run("only/02_tf32", 4, number, 17.0) for number in range(ROUNDS)]
    data["ablations"] = [item for B in batches for item in (
        {"rung": "01_causal_mask", "config": config(B), "ladder": gain(1.05, 1.04, 1.06),
         "without": missing("unsupported", "needs sm_80"), "only": gain(1.05)},
        {"rung": "02_tf32", "config": config(B), "ladder": gain(2.5, 2.4, 2.6), "without": gain(1.5, 1.4, 1.6),
         "only": gain(2.45, 2.3, 2.5)})]
    return data


def failing(data, rung, status, reason):
    """`data` with a rung that failed before its first step."""
    for item in data["variants"] + data["runs"]:
        if item["variant"] == rung:
            item.update(status=status, reason=reason, backend="")
            item.pop("median_step_ms", None)
            item.pop("speedup_baseline", None)
            if "steps" in item:
                item.update(steps={"step_ms": [], "loss": []}, summary=None)
    return data


def read(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.json")
        path.write_text(json.dumps(data))
        return results.read(schema.load(path))


@cache
def draw(text):
    """Draws the charts of a file with this text. Returns exit status, messages, and charts by name."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "results.json"), Path(folder, "out")
        path.write_text(text)
        out.mkdir()
        try:
            data = schema.load(path)
            traced = [profiles.read(path, data)] if schema.kind_of(data) == "profile" else []
            written = charts.write(results.together([] if traced else [results.read(data)], traced), out)
        except schema.ResultsError as error:
            return 2, f"{error}\n", {}
        said = "".join(f"charts: no {name} chart: {why}\n" for name, why in written.items() if isinstance(why, str))
        return 0, said, {file.name: file.read_bytes() for file in out.glob("*")}


class FileTest(unittest.TestCase):
    def test_a_chart_that_finds_no_space_leaves_the_old_one_and_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            chart = Path(folder, "ladder.svg")
            chart.write_text("before")
            limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
                with self.assertRaises(OSError) as caught:
                    style.save(style.Figure(), Path(folder, "ladder"))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
                signal.signal(signal.SIGXFSZ, handler)
            self.assertEqual(caught.exception.filename, str(chart))
            self.assertEqual(chart.read_text(), "before")
            self.assertEqual([path.name for path in Path(folder).iterdir()], ["ladder.svg"])

    def test_what_a_killed_process_left_is_cleared(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in (".results.csv.999999999.tmp", ".results.csv.1.tmp"):  # the writer of the second file lives
                Path(folder, name).write_text("half")
            files.replace(Path(folder, "results.csv"), b"whole")
            self.assertEqual({path.name for path in Path(folder).iterdir()}, {"results.csv", ".results.csv.1.tmp"})

    def test_no_process_that_draws_outlives_a_killed_one(self):
        script = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import charts
def draw(data):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
charts.CHARTS = {"one": draw, "two": draw}
class Data:
    mixed, emulated, workloads = False, False, ()
charts.write(Data(), "/nowhere")
"""
        with subprocess.Popen([sys.executable, "-c", script, str(Path(charts.__file__).parent)],
                              stdout=subprocess.PIPE) as child:
            workers = [int(child.stdout.readline()) for _ in range(2)]
            child.kill()
        for _ in range(100):
            left = [worker for worker in workers if Path(f"/proc/{worker}").exists()]
            if not left:
                break
            time.sleep(0.05)
        self.assertEqual(left, [])


class Files(unittest.TestCase):
    def test_more_rungs_than_a_reader_tells_apart_are_left_to_the_tables(self):
        rows = [results.Row(f"{number:03}", "ok", "", median_ms=1.0) for number in range(charts.MOST_RUNGS + 1)]
        with tempfile.TemporaryDirectory() as folder:
            for rungs, drawn in ((rows[1:3], True), (rows, False)):
                data = results.Results("", "cuda", [results.Workload("gpt2", 4, 64, rows=rungs)])
                self.assertEqual(isinstance(charts.write_chart("ladder", data, Path(folder)), list), drawn)
            self.assertNotIn("201", charts.write_chart("phases", data, Path(folder)))

    def test_each_chart_is_written_as_svg_and_png(self):
        status, errors, files = draw(json.dumps(everything()))
        self.assertEqual(status, 0)
        absent = {*charts_profile.CHARTS, *history.CHARTS}
        self.assertEqual({line.split()[2] for line in errors.splitlines()}, absent)
        self.assertEqual(sorted(files), sorted(f"{name}.{kind}" for name in charts.CHARTS if name not in absent
                                               for kind in ("svg", "png")))
        self.assertTrue(all(file.startswith(b"\x89PNG") for name, file in files.items() if name.endswith("png")))

    def test_the_words_of_a_chart_can_be_searched_and_keep_their_spaces(self):
        ladder = draw(json.dumps(sample()))[2]["ladder.svg"].decode()
        self.assertIn(">02_tf32</text>", ladder)
        self.assertRegex(ladder, "ms\N{NO-BREAK SPACE}")

    def test_text_like_an_attribute_is_drawn_as_text(self):
        texts = (' style="}main{display:none}.x{"', ' d="M!L!"', ' x="1.25"', ' id="a" fill="#123456"', "xlink:href=1.25",
                 ' transform="rotate(-0 1.25)"', ' href="#a" url(#b)', "font-family: 'DejaVu Sans'", "<g/>", "-->",
                 "a < b > c & d</text>", ' xmlns:xlink="http://www.w3.org/1999/xlink"')
        with tempfile.TemporaryDirectory() as folder:
            plain = style.save(style.figure("title", "", [1], [0], 1, 1)[0], Path(folder, "a"))[0].read_text()
            figure, (axes,) = style.figure("title", "", [1] , [0], 1, 1)
            for i, text in enumerate(texts):
                style.tip(axes.text(0, i / 12, text), text)
            tree = ElementTree.fromstring(style.save(figure, Path(folder, "a"))[0].read_bytes())
        drawn = ["".join(one.itertext()).replace("\N{NO-BREAK SPACE}", " ").strip()
                 for one in tree.iter("{http://www.w3.org/2000/svg}text")]
        tips = [one.text for one in tree.iter("{http://www.w3.org/2000/svg}title")]
        for text in texts:
            self.assertIn(text.strip(), drawn)
            self.assertIn(text, tips)
        rules = re.compile(r"\.a\d+\{[^}]*\}")
        (sheet,) = [one.text for one in tree.iter("{http://www.w3.org/2000/svg}style") if ".a0" in one.text]
        self.assertNotIn("display", sheet)
        self.assertRegex(sheet.split("@media")[0], rf"^({rules.pattern})+$")
        self.assertIn("<text", plain)

    def test_no_text_is_cut(self):
        long, single, many = everything(), sample(), sample()
        long["context"]["device"].update(name="AMD Ryzen Threadripper PRO 7995WX 96-Cores", backend="cpu")
        for key in ("variants", "runs"):
            single[key] = [item for item in single[key] if item["variant"] == "00_fp32_baseline"]
            many[key] = [{**item, "variant": f"{i:02}_rung"} for i in range(21) for item in single[key]]
        for data in (long, single, many):
            for name in ("ladder", "memory", "mfu", "steps", "loss"):
                figure = charts.CHARTS[name](read(data))
                if figure is None or isinstance(figure, str):
                    continue
                texts = [text for ax in figure.axes for text in ax.texts]
                words = Bbox.union([one.get_window_extent() for one in figure.texts + figure.legends + texts])
                with tempfile.TemporaryDirectory() as folder:
                    svg = style.save(figure, Path(folder, name))[0].read_text()
                size = [float(re.search(rf'<svg[^>]* {side}="([\d.]+)pt"', svg)[1]) for side in ("width", "height")]
                self.assertGreater(size[0] + 1, 72 / figure.dpi * words.width, name)
                self.assertGreater(size[1] + 1, 72 / figure.dpi * words.height, name)

    def test_a_path_of_lines_is_written_as_the_steps_between_its_points(self):
        for path, steps in (("M1.5 2L3 2L3 -1.1z", "M1.5 2l1.5 0 0 -3.1z"), ("M0 1L2 1M5 5L6 6", "M0 1L2 1M5 5L6 6"),
                            ("M0 0C1 1 2 2 3 3", "M0 0C1 1 2 2 3 3"), ("M1 2z", "M1 2z")):
            self.assertEqual(style._by_steps(path), steps)

    def test_each_svg_holds_together_and_has_no_group_that_says_nothing(self):
        _, _, files = draw(json.dumps(everything()))
        for name, data in files.items():
            if name.endswith(".svg"):
                with self.subTest(name):
                    tree = ElementTree.fromstring(data)
                    groups = [*tree.iter("{http://www.w3.org/2000/svg}g")]
                    self.assertTrue(all(one.attrib or one[0].tag.endswith("title") for one in groups))
                    used = {one.get("href")[1:] for one in tree.iter() if one.get("href")}
                    self.assertLessEqual(used, {one.get("id") for one in tree.iter()})

    def test_the_same_results_give_the_same_bytes(self):
        self.assertEqual(draw(json.dumps(sample())), draw.__wrapped__(json.dumps(sample())), "drawn anew")

    def test_a_chart_without_data_is_left_out_with_a_note(self):
        data = sample()
        for rung in RUNGS:
            failing(data, rung, "crash", "signal 11")
        status, errors, files = draw(json.dumps(data))
        self.assertEqual((status, files), (0, {}))
        self.assertEqual(errors.count("\n"), len(charts.CHARTS))

    def test_a_value_shows_where_the_pointer_rests(self):
        _, _, files = draw(json.dumps(sample()))
        self.assertIn("<title>02_tf32: 17.0 ms, 16.0 to 18.0</title>", files["ladder.svg"].decode())

    def test_no_colour_is_forgotten_on_a_dark_ground(self):
        kept = {"#cc79a7", "#e69f00", "#8c9196"}  # legible on light and dark grounds
        for name, file in draw(json.dumps(everything()))[2].items():
            if name.endswith("svg"):
                light, dark = file.decode().split("@media (prefers-color-scheme: dark)")
                dark, drawn = dark.split("</style>", 1)
                self.assertEqual(re.findall('style="|fill="#|stroke="#', drawn), [], name)
                changed = dict(re.findall(r"[.]([\w-]+){([^}]*)}", dark))
                used = {colour for own, look in re.findall(r"[.]([\w-]+){([^}]*)}", light)
                        for colour in re.findall(r"(?:fill|stroke): #\w{6}", look)
                        if colour[-7:] not in kept and colour in changed.get(own, colour)}
                self.assertEqual(used, set(), name)

    def test_names_that_are_no_names_are_drawn_as_text(self):
        for name in ("x" * 10_000, "$\\frac{1}$", "a\x00\x1b[31m\nb", "<script>alert(1)</script>", "\ud800"):
            status, errors, files = draw(json.dumps(sample()).replace('"02_tf32"', json.dumps(name)))
            self.assertEqual((status, "ladder.svg" in files), (0, True), errors)
            self.assertNotIn(b"<script", files["ladder.svg"])


class Ladder(unittest.TestCase):
    def test_a_bar_is_the_median_with_its_interval_and_speed_up(self):
        (ax,) = charts.draw_ladder(read(sample())).axes
        self.assertEqual(widths(ax), [41.0, 39.0, 17.0])
        self.assertEqual(whiskers(ax), [(40.0, 42.0), (38.0, 40.0), (16.0, 18.0)])
        self.assertEqual(texts(ax.texts), ["41.0 ms", "39.0 ms   1.05×", "17.0 ms   2.50×"])

    def test_a_failed_rung_is_its_reason_and_no_bar(self):
        (ax,) = charts.draw_ladder(read(failing(sample(), "02_tf32", "unsupported", "needs sm_80"))).axes
        self.assertEqual(len(ax.patches), 2)
        self.assertEqual(ax.texts[2].get_text(), "unsupported: needs sm_80")

    def test_a_single_round_has_no_interval(self):
        data = sample()
        for item in data["variants"]:
            item["median_step_ms"].update(lo=None, hi=None)
        (ax,) = charts.draw_ladder(read(data)).axes
        self.assertEqual(len(ax.collections), 0)

    def test_the_interval_is_named_by_the_rounds_of_what_is_drawn(self):
        data, other = sample(), sample((8,))
        for item in data["variants"] + other["variants"]:
            item["interval"] = "range (75 %)" if item in data["variants"] else "95 % interval"
            item["counted"] = list(range(2 if item in data["variants"] else 6))
        label = charts.draw_ladder(measured([data, other])).axes[-1].get_xlabel()
        self.assertIn("range (75 %)", label)
        for item in data["variants"]:
            item["median_step_ms"].update(lo=None, hi=None)
        self.assertNotIn("over rounds", charts.draw_ladder(read(data)).axes[-1].get_xlabel())

    def test_panels_of_other_numbers_of_rounds_say_so(self):
        alone = sample((8,))
        alone["runs"] = [item for item in alone["runs"] if item["round"] == 0]
        for item in alone["variants"]:
            item["counted"] = [0]
        both = measured([alone, sample()])
        both.workloads = [replace(workload, main=True) for workload in both.workloads]
        self.assertIn("1 to 3 rounds", charts.draw_ladder(both).texts[1].get_text())

    def test_a_speed_up_is_explained_where_there_is_one(self):
        data = sample()
        self.assertIn("×", charts.draw_ladder(read(data)).texts[1].get_text())
        for item in data["variants"]:
            item["speedup_baseline"] = None
        self.assertNotIn("×", charts.draw_ladder(read(data)).texts[1].get_text())

    def test_pytorch_is_a_thin_bar_below_and_llm_c_a_line_across(self):
        (ax,) = charts.draw_ladder(read(with_other_peer(with_peers(sample())))).axes
        self.assertEqual(widths(ax), [41.0, 81.0, 39.0, 77.0, 17.0, 33.0], "and no peer of a user's own")
        figure = charts.draw_ladder(read(with_peers(sample())))
        (ax,) = figure.axes
        self.assertEqual(widths(ax), [41.0, 81.0, 39.0, 77.0, 17.0, 33.0])
        self.assertLess(ax.patches[1].get_height(), ax.patches[0].get_height() / 2)
        self.assertEqual(list(ax.lines[0].get_xdata()), [21.0, 21.0])
        self.assertGreater(ax.get_xlim()[1], 82)
        self.assertEqual(texts(figure.legends[0].texts), ["PyTorch, same rung", "llm.c"])
        self.assertEqual(texts(ax.get_yticklabels()), list(RUNGS))

    def test_a_peer_that_failed_is_not_drawn(self):
        data = with_peers(sample())
        for name in [f"pytorch/{rung}" for rung in RUNGS] + ["llmc"]:
            failing(data, name, "unsupported", "no PyTorch")
        figure = charts.draw_ladder(read(data))
        self.assertEqual(len(figure.axes[0].patches), 3)
        self.assertEqual(figure.legends, [])

    def test_peers_have_no_line_by_step(self):
        data = read(with_peers(sample()))
        self.assertEqual(data.rungs, list(RUNGS))
        self.assertEqual([len(ax.lines) for ax in charts.draw_steps(data).axes], [ROUNDS + 1] * len(RUNGS))

    def test_rungs_are_in_the_order_of_their_ladder_whatever_file_has_them(self):
        text, ladder = json.dumps(sample()), ["eager", "compiled", "amp"]
        for name, own in zip(RUNGS, ladder):
            text = text.replace(name, own)
        data = json.loads(text)
        data["plan"]["ladder"] = {"name": "mine", "rungs": [{"name": name, "parent": None} for name in ladder]}
        self.assertEqual(read(data).rungs, ladder)
        last = copy.deepcopy(data)
        for key in ("runs", "variants"):
            last[key] = [item for item in last[key] if item["variant"] == "amp"]
        both = results.together([read(last), read(data)])
        self.assertEqual(both.rungs, ladder)
        self.assertEqual([ax.texts[0].get_text() for ax in charts.draw_steps(read(data)).axes], ladder)

    def test_each_batch_size_has_its_panel(self):
        for draw_it, data in ((charts.draw_ladder, sample((16, 64))), (charts.draw_ablation, ablated((16, 64)))):
            self.assertEqual(titles(draw_it(read(data))), ["gpt2-tiny, B = 16, T = 64", "gpt2-tiny, B = 64, T = 64"])


class Energy(unittest.TestCase):
    def test_joules_are_bars_with_the_peers_beside_them(self):
        (ax,) = charts.draw_energy(read(with_energy(with_peers(sample())))).axes
        self.assertEqual(widths(ax), [20.5, 40.5, 19.5, 38.5, 8.5, 16.5])
        self.assertIn((8.4, 8.6), whiskers(ax))
        self.assertEqual(list(ax.lines[0].get_xdata()), [10.5, 10.5])
        self.assertEqual(ax.texts[-1].get_text(), "8.50 J   30.1 tok/J")

    def test_a_rung_without_joules_says_why_and_has_no_bar(self):
        data = with_energy(sample())
        del variant(data, "02_tf32")["joules"]
        for item in data["runs"]:
            item["summary"]["joules_unknown"] = "steps too short"
        (ax,) = charts.draw_energy(read(data)).axes
        self.assertEqual(len(ax.patches), 2)
        self.assertIn("steps too short", ax.texts[-1].get_text())

    def of(self, *datas):
        """For each panel, the joules of each listed rung; 0 for a rung without joules."""
        axes = charts.draw_energy(results.together([read(data) for data in datas])).axes
        return [{label.get_text(): next((bar.get_width() for bar in ax.patches
                                         if bar.get_y() < y < bar.get_y() + 0.6), 0)
                 for y, label in enumerate(ax.get_yticklabels())} for ax in axes]

    def test_a_rung_without_joules_has_those_of_another_file(self):
        short, longer = sample(), with_energy(sample())
        del variant(longer, "01_causal_mask")["joules"]
        self.assertEqual(self.of(short, longer), [{"00_fp32_baseline": 20.5, "01_causal_mask": 0, "02_tf32": 8.5}])

    def test_of_a_rung_in_several_files_the_longest_run_has_a_bar(self):
        short, longer = with_energy(sample()), with_energy(twice_as_long(sample()))
        for item in longer["variants"]:
            item["joules"] = estimate(7.0)
        longer["variants"] = longer["variants"][1:]
        self.assertEqual(self.of(short, longer), [{"00_fp32_baseline": 20.5, "01_causal_mask": 7.0, "02_tf32": 7.0}])
        self.assertEqual(self.of(short, until_loss(longer)), self.of(short), "evaluated in between")
        for item in longer["variants"]:
            item.update(config=item["config"] | {"dtype": "fp16"}, settings="dtype fp16")
            del item["to_loss"]
        self.assertEqual(self.of(short, longer), self.of(short), "which measured something else")

    def test_of_another_ladder_or_configuration_no_joules_are_taken(self):
        main = with_energy(sample())
        for item in main["variants"]:
            item["config"] = item["config"] | {"hidden": 64}
        for ladder, hidden, taken in ((None, 64, True), (None, 128, False), ("mine", 64, False)):
            longer = with_energy(twice_as_long(sample()))
            for item in longer["variants"]:
                item["joules"] = estimate(7.0)
                item["config"] = item["config"] | {"hidden": hidden, "lr": 0.1, "steps": 80}
            if ladder:
                longer["plan"]["ladder"] = {"name": ladder, "rungs": [{"name": name} for name in RUNGS]}
            panel, *_ = self.of(main, longer)
            self.assertEqual(panel["02_tf32"], 7.0 if taken else 8.5, (ladder, hidden))

    def test_a_peer_s_joules_are_of_its_longest_run_too(self):
        main, other = with_energy(with_peers(sample())), with_energy(with_peers(twice_as_long(sample())))
        variant(other, "pytorch/02_tf32")["joules"] = estimate(7.0)
        other["variants"] = [variant(other, "pytorch/02_tf32")]
        for item in other["runs"]:
            item["steps"] = {key: 2 * column for key, column in item["steps"].items()}
        (ax,) = charts.draw_energy(results.together([read(main), read(other)])).axes
        self.assertEqual(ax.patches[-1].get_width(), 7.0)

    def test_the_workloads_with_the_most_rungs_are_shown(self):
        few = with_energy(sample((8,)))
        few["variants"] = few["variants"][:1]
        axes = charts.draw_energy(results.together([read(few), read(with_energy(sample((2, 4))))])).axes
        self.assertEqual([ax.get_title(loc="left") for ax in axes],
                         ["gpt2-tiny, B = 2, T = 64", "gpt2-tiny, B = 4, T = 64"])

    def test_what_a_bar_says_is_within_the_chart(self):
        figure = charts.draw_energy(read(with_energy(sample())))
        figure.canvas.draw()
        ends = [text.get_window_extent().x1 for text in figure.axes[0].texts]
        self.assertLess(max(ends), figure.bbox.x1)


class BesideTheLadder(unittest.TestCase):
    def test_the_waterfall_multiplies_up_to_each_speed_up(self):
        (ax,) = charts_ladder.draw_waterfall(read(sample())).axes
        ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
        for (low, high), expected in zip(ends, [(1.0, 40 / 38), (40 / 38, 2.5)], strict=True):
            self.assertAlmostEqual(low, expected[0])
            self.assertAlmostEqual(high, expected[1])
        self.assertEqual(texts(ax.texts), ["baseline", "×1.05   1.05×", "×2.38   2.50×"])

    def test_the_waterfalls_whiskers_are_the_intervals_against_the_baseline(self):
        data = sample()
        variant(data, "02_tf32")["speedup_baseline"].update(lo=2.25, hi=2.75)
        (ax,) = charts_ladder.draw_waterfall(read(data)).axes
        self.assertIn((2.25, 2.75), whiskers(ax))

    def test_a_first_rung_that_has_a_speed_up_is_not_the_baseline(self):
        data = sample()
        data["variants"][2]["config"] = config(8)
        for item in data["runs"]:
            if item["variant"] == "02_tf32":
                item["config"] = config(8)
        _, ax = charts_ladder.draw_waterfall(read(data)).axes
        self.assertEqual(widths(ax), [1.5])
        self.assertIn("2.50×", ax.texts[0].get_text())

    def test_a_gain_is_said_as_in_the_table(self):
        data = sample()
        variant(data, "02_tf32")["speedup_previous"] = over("01_causal_mask", 2.34)
        (ax,) = charts_ladder.draw_waterfall(read(data)).axes
        self.assertEqual(ax.texts[-1].get_text(), "×2.34   2.50×")

    def test_a_rung_that_costs_time_is_marked_without_colour(self):
        data = sample()
        data["variants"][2]["speedup_baseline"]["ratio"] = 1.01
        (ax,) = charts_ladder.draw_waterfall(read(data)).axes
        self.assertEqual([bar.get_hatch() for bar in ax.patches], ["", "//"])

    def test_a_trainer_beside_the_ladder_starts_at_its_parent_and_gains_what_the_table_says(self):
        data = sample()
        for rung, ms, parent, gain_over_parent in (("fp8", 10.0, "02_tf32", 1.61), ("recompute", 20.0, "02_tf32", 0.81),
                                                   ("fp8_recompute", 12.5, "fp8", 0.79)):
            data["variants"].append(row(rung, 4, ms) | {"speedup_previous": over(parent, gain_over_parent)})
            data["runs"] += [run(rung, 4, number, ms) for number in range(ROUNDS)]
        (ax,) = charts_ladder.draw_waterfall(read(data)).axes
        ends = [sorted((bar.get_x(), bar.get_x() + bar.get_width())) for bar in ax.patches[2:]]
        for found, expected in zip(ends, ([2.5, 4.0], [2.0, 2.5], [3.2, 4.0]), strict=True):
            for end, value in zip(found, expected):
                self.assertAlmostEqual(end, value)
        self.assertEqual(texts(ax.texts[3:]), ["×1.61   4.00×", "×0.81   2.00×", "×0.79   3.20×"])
        self.assertEqual([bar.get_hatch() for bar in ax.patches[2:]], ["", "//", "//"])
        joined = [line.get_xdata()[0] for line in ax.lines if line.get_ydata()[-1] - line.get_ydata()[0] > 2]
        self.assertEqual(joined, [2.5, 4.0], "lines to the two bars that aren't just below their parent's")

    def test_a_rung_whose_parent_is_not_in_its_panel_is_as_long_as_its_gain(self):
        data = sample()
        variant(data, "01_causal_mask")["speedup_previous"] = {"ratio": 0.5, "lo": None, "hi": None,
                                                               "against": "elsewhere"}
        (ax,) = charts_ladder.draw_waterfall(read(data)).axes
        self.assertAlmostEqual(ax.patches[0].get_width(), 40 / 38)
        self.assertGreater(ax.get_xlim()[1], 2 * 40 / 38)
        self.assertEqual(ax.texts[1].get_text(), "×0.50   1.05×")

    def grouped(self, data, in_pytorch=None):
        """`data` with its last two rungs as one group."""
        gains = {"ratio": estimate(2.5), "pytorch": in_pytorch and estimate(in_pytorch)}
        return data | {"groups": [{"name": "fused kernels", "before": "00_fp32_baseline", "config": config(4),
                                   "rungs": ["01_causal_mask", "02_tf32"]} | gains]}

    def test_rungs_that_are_one_step_elsewhere_are_bracketed_with_their_gain(self):
        for data, gains in ((self.grouped(sample()), ["2.50"]), (self.grouped(sample(), 2.45), ["2.50", "2.45"])):
            (ax,) = charts_ladder.draw_waterfall(read(data)).axes
            (said,) = [text.get_text() for text in ax.texts if "fused kernels" in text.get_text()]
            self.assertEqual(re.findall(r"×([\d.]+)", said), gains)
            (bracket,) = [line for line in ax.lines if len(line.get_xdata()) == 4]
            self.assertEqual([round(y) for y in bracket.get_ydata()], [1, 1, 2, 2])
        (ax,) = charts_ladder.draw_waterfall(read(sample())).axes
        self.assertEqual([line for line in ax.lines if len(line.get_xdata()) == 4], [])

    def test_beside_the_peers_a_rung_of_a_group_names_the_one_that_stands_for_it(self):
        data = self.grouped(everything(), 2.45)
        data["variants"] = [item for item in data["variants"] if item["variant"] != "pytorch/01_causal_mask"]
        variant(data, "01_causal_mask")["speedup_peers"] = []
        ax = charts_ladder.draw_peers(read(data)).axes[0]
        (said,) = [text.get_text() for text in ax.texts if not re.fullmatch(r"[\d.]+", text.get_text())]
        self.assertIn("02_tf32", said)

    def test_time_and_cycles_are_two_marks_that_differ_as_the_clock_does(self):
        (ax,) = charts_ladder.draw_cycles(read(with_energy(sample()))).axes
        for mark, expected in (("o", (41 / 39, 39 / 17)), ("s", (41 / 39, 39 / 17 / 0.75))):
            for value, gain_over_previous in zip(marks(ax, mark), expected, strict=True):
                self.assertAlmostEqual(value, gain_over_previous)
        said = texts(ax.texts)
        for text in ("×2.29", "×3.06", "1500 MHz", "−25.0 %"):
            self.assertIn(text, said)

    def test_a_clock_that_is_all_but_the_same_has_changed_by_nothing_and_not_by_less(self):
        data = read(with_energy(sample()))
        first, second, _ = data.workloads[0].rows
        second.cycles = results.Estimate(1999.9e3 * second.median_ms)
        first.cycles = results.Estimate(2000e3 * first.median_ms)
        (ax,) = charts_ladder.draw_cycles(data).axes
        self.assertIn("+0.0 %", texts(ax.texts))

    def test_beside_cycles_the_time_is_the_table_s_and_the_clock_s_change_that_of_the_clocks_shown(self):
        data = with_energy(sample())
        variant(data, "02_tf32")["speedup_previous"]["ratio"] = 2.2
        (ax,) = charts_ladder.draw_cycles(read(data)).axes
        self.assertIn(2.2, marks(ax, "o"))
        said = texts(ax.texts)
        for text in ("×2.20", "×3.06", "−25.0 %"):
            self.assertIn(text, said)

    def test_a_rung_without_cycles_has_its_time_alone(self):
        data = with_energy(sample())
        del variant(data, "01_causal_mask")["cycles"]
        (ax,) = charts_ladder.draw_cycles(read(data)).axes
        self.assertEqual([len(marks(ax, marker)) for marker in "os"], [2, 0])

    def test_without_a_rung_before_another_there_is_nothing_to_compare_cycles_with(self):
        data = with_energy(sample())
        data["variants"] = data["variants"][:1]
        self.assertIn("--rungs", charts_ladder.draw_cycles(read(data)))

    def test_the_parts_of_memory_sum_to_the_arena(self):
        data = read(everything())
        memory = data.workloads[0].rows[0].memory
        parts = {name: size // 2**20 for name, size in charts_ladder.parts_of(memory).items()}
        self.assertEqual(parts, {"parameters": 15, "8-bit copies": 0, "gradients": 0, "AdamW": 1, "activations": 60,
                                 "scratch": 0, "workspace": 0, "other": 24})
        ax = charts_ladder.draw_memory(data).axes[0]
        first = [bar for bar in ax.patches if abs(bar.get_y() + bar.get_height() / 2) < 0.1]
        self.assertAlmostEqual(sum(bar.get_width() for bar in first), 100 / 1024)

    def test_mfu_is_a_percentage_of_the_peak(self):
        ax = charts_ladder.draw_mfu(read(everything())).axes[0]
        self.assertAlmostEqual(ax.patches[0].get_width(), 100 * 8 / 41)
        self.assertEqual(len({bar.get_facecolor() for bar in ax.patches}), 2)

    def test_a_first_rung_that_is_not_the_baseline_looks_like_the_others(self):
        data = everything()
        data["variants"] = [item for item in data["variants"] if item["variant"] != "00_fp32_baseline"]
        for item in data["variants"]:
            item["speedup_baseline"] = None
        ax = charts_ladder.draw_mfu(read(data)).axes[0]
        self.assertEqual(len({bar.get_facecolor() for bar in ax.patches}), 1)

    def test_a_peer_s_ratio_is_a_mark(self):
        ax = charts_ladder.draw_peers(read(everything())).axes[0]
        self.assertEqual(marks(ax, "o"), [2.0] * len(RUNGS))

    def test_a_peer_that_is_one_trainer_is_beside_the_rungs_that_come_near_it(self):
        data = everything()
        for (rung, _), ratio in zip(RUNGS.items(), (0.08, 0.49, 1.11)):
            variant(data, rung)["speedup_peers"].append(over("llmc", ratio))
        variant(data, "00_fp32_baseline")["speedup_peers"][0].update(ratio=0.4, lo=None, hi=None)
        ax = charts_ladder.draw_peers(read(data)).axes[0]
        self.assertEqual((marks(ax, "o"), marks(ax, "^")), ([0.4, 2.0, 2.0], [1.11]))
        self.assertIn("1.11", texts(ax.texts))

    def test_ratios_near_1_have_ticks_that_tell_them_apart(self):
        ax = charts_ladder.draw_peers(read(everything())).axes[0]
        low, high = ax.get_xlim()
        self.assertLessEqual({1, 1.2, 1.5}, {round(tick, 3) for tick in ax.get_xticks() if low < tick < high})

    def test_every_peer_is_named_and_has_a_look_of_its_own(self):
        figure = charts_ladder.draw_peers(read(with_other_peer(everything())))
        (legend,) = figure.legends
        self.assertEqual(texts(legend.texts), ["time, PyTorch", "time, jax", "memory, PyTorch"])
        own = [line.get_marker() for line in figure.axes[0].lines if list(line.get_xdata()) == [3.0]]
        self.assertEqual(len(own), len(RUNGS))
        self.assertTrue({*own}.isdisjoint("o^s"), own)

    def test_throughput_is_drawn_over_the_batch(self):
        rate, memory = charts_sweep.draw_batch(read(everything())).axes
        (line,) = [line for line in rate.lines if line.get_label() == "02_tf32"]
        self.assertEqual(list(line.get_xdata()), [4, 8, 16])
        self.assertAlmostEqual(line.get_ydata()[0], 256 / 17)

    def test_scaling_is_drawn_with_its_intervals(self):
        rate, share = charts_sweep.draw_scaling(read(everything())).axes
        for ax, alone, value, half in ((rate, 256 / 17, 0.9, 0.01), (share, 100, 90.0, 1.0)):  # alone: as measured
            (measured,) = ax.containers
            line, _, (bars,) = measured.lines
            self.assertEqual(list(line.get_xdata()), [1, 2, 4])
            self.assertAlmostEqual(line.get_ydata()[0], alone)
            self.assertAlmostEqual(line.get_ydata()[1], value, msg="of each device")
            (_, low), (_, high) = bars.get_segments()[1]
            self.assertAlmostEqual(high - low, 2 * half)
        self.assertNotIn("predicted", rate.get_legend_handles_labels()[1])

    def test_the_legend_of_scaling_names_its_lines(self):
        data = everything()
        for predicted in ([], ["predicted"]):
            data["scaling_predicted"] = [prediction(64) for _ in predicted]
            (legend,) = charts_sweep.draw_scaling(read(data)).legends
            self.assertCountEqual(texts(legend.get_texts()), ["02_tf32", *predicted])

    def test_every_share_of_the_ideal_is_within_the_axis_with_its_interval(self):
        data = everything()
        data["scaling"][0]["efficiency"] = estimate(1.06, 0.69, 1.11)
        for low, high in ((69, 111), (90, 106)):  # with an interval, and without one
            _, share = charts_sweep.draw_scaling(read(data)).axes
            self.assertLess(share.get_ylim()[0], low)
            self.assertGreater(share.get_ylim()[1], high)
            data["scaling"][0]["efficiency"].update(lo=None, hi=None)

    def test_each_line_of_scaling_is_of_one_model_and_one_file(self):
        first, again, other = everything(), everything(), everything()
        again["scaling"] = again["scaling"][:1]
        for data, model in ((first, "gpt2-tiny"), (again, "gpt2-tiny"), (other, "gpt2-mini")):
            for item in data["scaling"]:
                item["config"] = config(4) | {"model": model}
            data["scaling_predicted"] = [prediction(2), prediction(64)]
        again["scaling"][0]["efficiency"]["value"] = 0.895
        files = [replace(read(data), name=str(place)) for place, data in enumerate((first, again, other))]
        self.assertEqual(len(charts_sweep.draw_scaling(results.together([read(sample()), files[2]])).axes), 2)
        both = results.together(files)
        _, share = charts_sweep.draw_scaling(both).axes
        (measured,) = share.containers
        self.assertEqual([*zip(*measured.lines[0].get_data())], [(1, 100), (2, 90.0), (4, 90.0)])
        self.assertEqual(len([line for line in share.lines if list(line.get_xdata()) == [2, 64]]), 1)

    def test_a_batch_that_devices_share_has_a_panel_of_its_own(self):
        data = everything()
        shared = copy.deepcopy(data["scaling"][-1])
        shared["config"]["B"] = 2
        data["scaling"].append(shared)
        data["scaling_predicted"] = [prediction(2), prediction(64)]
        fig = charts_sweep.draw_scaling(read(data))
        self.assertEqual(titles(fig), ["B = 4", "", "B = 4, shared by the devices", ""])
        self.assertEqual(len([line for line in fig.axes[3].lines if list(line.get_xdata()) == [2, 64]]), 0, "weak scaling alone")

    def test_what_is_predicted_is_dashed_and_named_so(self):
        data = everything()
        data["scaling_predicted"] = [prediction(2), prediction(64)]
        rate, share = charts_sweep.draw_scaling(read(data)).axes
        (dashed,) = [line for line in share.lines if list(line.get_xdata()) == [2, 64] and line.is_dashed()]
        self.assertEqual(list(dashed.get_ydata()), [95.0, 95.0])
        self.assertIn("predicted", rate.get_legend_handles_labels()[1])
        self.assertEqual(list(rate.containers[0].lines[0].get_xdata()), [1, 2, 4], "which the measured line leaves alone")
        self.assertEqual(rate.get_xlim(), share.get_xlim(), "one below the other")

    def test_scaling_has_a_pair_of_panels_a_batch_on_one_scale(self):
        data = everything()
        data["scaling"] += [copy.deepcopy(item) | {"one_batch": 64, "config": config(64)} for item in data["scaling"]]
        data["scaling"][-1]["efficiency"] = estimate(0.6, 0.59, 0.61)
        fig = charts_sweep.draw_scaling(read(data))
        self.assertEqual(titles(fig), ["B = 4", "", "B = 64", ""])
        self.assertEqual(fig.axes[0].get_ylim(), fig.axes[2].get_ylim())
        self.assertEqual(fig.axes[1].get_ylim(), fig.axes[3].get_ylim())
        self.assertLess(fig.axes[1].get_ylim()[0], 59)
        (legend,) = fig.legends
        self.assertEqual(texts(legend.get_texts()), ["02_tf32"], "one look a trainer")

    def test_workloads_on_several_devices_are_apart(self):
        names = [str(workload) for workload in read(everything()).workloads]
        self.assertIn("gpt2-tiny, B = 4, T = 64, 4 devices", names)
        self.assertIn("gpt2-tiny, B = 4, T = 64", names)

    def test_devices_apart_are_no_rounds_of_those_that_train_together(self):
        data = everything()
        together = read(data).workloads
        data["runs"].append(run("02_tf32", 4, 1, 99.0) | {"config": config(4) | {"world_size": 4, "independent_ranks": True}})
        self.assertEqual(read(data).workloads, together)

    def test_what_is_missing_is_said(self):
        data = read(sample())
        for draw_it, word in ((charts_ladder.draw_memory, "memory"), (charts_ladder.draw_mfu, "peak"),
                              (charts_ladder.draw_peers, "--peer"), (charts_ladder.draw_cycles, "cycles"),
                              (charts.draw_energy, "energy"), (charts_sweep.draw_batch, "--batch"),
                              (charts_sweep.draw_scaling, "devices"), (charts_to_loss.draw_to_loss, "--until-loss"),
                              (charts.draw_ablation, "ablate"),
                              (charts_profile.draw_dtype, "stepladder profile"),
                              (charts_profile.draw_gap, "stepladder profile"), (history.draw_history, "history")):
            self.assertIn(word, draw_it(data))

    def test_of_several_devices_only_ratios_are_drawn(self):
        other = everything()
        other["context"]["device"]["name"] = "Tesla T4"
        both = results.together([read(everything()), read(other)])
        with tempfile.TemporaryDirectory() as folder:
            written = {name: charts.write_chart(name, both, Path(folder)) for name in charts.CHARTS}
        drawn = {name for name, files in written.items() if not isinstance(files, str)}
        self.assertEqual(drawn, charts.ACROSS_DEVICES)
        self.assertEqual([str(ablation.workload) for ablation in both.ablations[::2]],
                         [f"{device}: gpt2-tiny, B = 4, T = 64" for device in ("NVIDIA H200", "Tesla T4")])


class ToLoss(unittest.TestCase):
    SECONDS = {rung: STEPS * (ms + 1) / 1e3 for rung, ms in RUNGS.items()}  # the median of three rounds

    def panels(self, data):
        return charts_to_loss.draw_to_loss(read(data)).axes

    def curves(self, ax, rung):
        """A rung's lines, one a round."""
        color = style.lines(list(RUNGS))[rung].color
        return [line for line in ax.lines if line.get_color() == color and len(line.get_xdata()) > 2]

    def marks(self, ax, marker):
        return [(round(line.get_xdata()[0], 9), line.get_ydata()[0]) for line in ax.lines if line.get_marker() == marker]

    def test_losses_are_drawn_over_the_steps_time_without_compiling_each_round_by_itself(self):
        above, _ = self.panels(until_loss(sample()))
        for number, line in enumerate(self.curves(above, "02_tf32")):
            for x, steps in zip(line.get_xdata(), (0, 4, 8, 12), strict=True):
                self.assertAlmostEqual(x, steps * (16 + number) / 1e3)
            self.assertEqual(list(line.get_ydata()), [10 - 0.3 * step for step in (0, 4, 8, 12)])

    def test_the_steep_start_of_a_curve_is_cut_off_unless_the_curve_has_few_points(self):
        for every, top in (4, 100), (1, 10):
            data = until_loss(sample())
            for item in data["runs"]:
                if "evaluations" in item:
                    item["evaluations"] = [{"step": step, "val_loss": 10 - 0.3 * step if step else 100.0}
                                           for step in range(0, STEPS + 1, every)]
            above, _ = self.panels(data)
            self.assertAlmostEqual(above.get_ylim()[1] / top, 1, delta=0.1)

    def test_seeds_of_fixed_steps_are_drawn_without_a_time_to_the_loss(self):
        data = until_loss(sample(), [("02_tf32", 0)])
        data["plan"]["certify_loss"] = LOSS
        for item in [item["summary"] for item in data["runs"]] + data["variants"]:
            (item or {}).pop("to_loss", None)
        (above,) = self.panels(data)
        self.assertEqual(len(self.curves(above, "02_tf32")), ROUNDS)
        self.assertEqual(self.marks(above, "x"), [], "none gave up")
        self.assertIn(f"target: {LOSS:g}", texts(above.texts))
        for item in data["runs"]:
            item["evaluations"] = item.get("evaluations", [])[-1:]
        self.assertIn("--eval-every", charts_to_loss.draw_to_loss(read(data)))

    def test_the_round_of_median_time_is_thick_and_of_an_even_number_the_two_around_it(self):
        for gave_up, thick in (((), [False, True, False]), ([("02_tf32", 1)], [True, False, True])):
            lines = self.curves(self.panels(until_loss(sample(), gave_up))[0], "02_tf32")
            self.assertEqual([line.get_linewidth() > 1 for line in lines], thick)

    def test_rounds_of_equal_time_count_each(self):
        curves = [results.Curve([0.0, seconds], [9.0, 6.0], True) for seconds in (1.0, 1.0, 1.0, 5.0, 6.0)]
        middle = charts_to_loss._median(results.Row("02_tf32", "ok", "", curves=curves))
        self.assertEqual({curve.seconds[-1] for curve in middle}, {1.0})

    def test_whiskers_are_named_where_another_rung_reached_the_loss_once(self):
        data = until_loss(sample(), [("02_tf32", 0), ("02_tf32", 1)])
        for item in data["variants"]:
            once = item["variant"] == "02_tf32"
            item["to_loss"]["interval"] = "single round" if once else "range (75 %)"
        self.assertIn("range (75 %)", self.panels(data)[-1].get_xlabel())

    def test_each_file_s_whiskers_are_named_and_a_rung_has_one_look_in_all(self):
        few, many = until_loss(sample()), until_loss(sample())
        for data, interval in ((few, "range (75 %)"), (many, "95 % interval")):
            for item in data["variants"]:
                item["to_loss"]["interval"] = interval
        many["variants"] = [item for item in many["variants"] if item["variant"] != "00_fp32_baseline"]
        many["context"]["device"]["name"] = "Tesla T4"
        axes = charts_to_loss.draw_to_loss(results.together([read(few), read(many)])).axes
        self.assertEqual([ax.get_xlabel().partition("whiskers: ")[2] for ax in axes],
                         ["", "range (75 %) over rounds", "", "95 % interval over rounds"])
        self.assertEqual(*({line.get_color() for line in self.curves(ax, "02_tf32")} for ax in axes[::2]))

    def test_a_disturbed_round_is_neither_drawn_nor_counted_while_others_are_left(self):
        for how in ("throttled", "shared"):
            data = disturbed(until_loss(sample()), "02_tf32", [2], how)
            variant(data, "02_tf32")["to_loss"]["reached"] = 2
            above, below = self.panels(data)
            self.assertEqual([line.get_linewidth() > 1 for line in self.curves(above, "02_tf32")], [True, True])
            self.assertEqual(below.texts[-1].get_text(), "2 of 2")

    def test_where_every_round_is_disturbed_all_are_drawn_and_counted(self):
        above, below = self.panels(disturbed(until_loss(sample()), "02_tf32", range(ROUNDS)))
        self.assertEqual(len(self.curves(above, "02_tf32")), ROUNDS)
        self.assertEqual(below.texts[-1].get_text(), "3 of 3")

    def test_of_a_shortened_run_the_last_step_is_drawn_nowhere(self):
        data = until_loss(sample())
        whole = read(data).workloads[0].rows[0].over_rounds("loss")
        for item in data["runs"]:
            if "to_loss" in (item["summary"] or {}):
                item["summary"]["to_loss"]["steps"] += 4000  # between the last two evaluations
        short = read(data).workloads[0].rows[0].over_rounds("loss")
        self.assertEqual(list(short), list(whole)[:-1])

    def test_the_median_time_is_marked_at_the_loss_with_its_range_and_numbers_below(self):
        above, below = self.panels(until_loss(sample()))
        for y, (rung, marker) in enumerate(zip(RUNGS, "osD")):
            self.assertEqual(self.marks(above, marker), [(self.SECONDS[rung], LOSS)])
            self.assertEqual(self.marks(below, marker), [(self.SECONDS[rung], y)])
        self.assertEqual(whiskers(below), [(0.48, 0.504), (0.456, 0.48), (0.192, 0.216)])
        self.assertEqual(texts(below.get_yticklabels()), list(RUNGS))
        said = texts(below.texts)
        self.assertEqual(said[-3:], ["0.204 s", "2.41×", "3 of 3"])

    def test_a_round_that_gave_up_ends_in_a_cross_and_counts_for_no_time(self):
        figure = charts_to_loss.draw_to_loss(read(until_loss(sample(), [("02_tf32", 2)])))
        above, below = figure.axes
        self.assertEqual(self.marks(above, "x"), [(0.216, 8.8)])
        self.assertEqual(self.marks(below, "x"), [(0.216, 2)])
        self.assertAlmostEqual(self.marks(above, "D")[0][0], 0.198)
        self.assertIn("2 of 3", texts(below.texts))
        self.assertEqual(len(figure.legends), 1)

    def test_a_rung_that_never_reached_it_says_so_and_has_no_mark(self):
        for rung, marker in zip(RUNGS, "osD"):
            above, below = self.panels(until_loss(sample(), [(rung, number) for number in range(ROUNDS)]))
            self.assertEqual((self.marks(above, marker), len(self.marks(above, "x"))), ([], ROUNDS))
            (said,) = [text.get_text() for text in below.texts if text.get_style() == "italic"]
            self.assertIn("8.800", said)
            self.assertIn("0 of 3", texts(below.texts))

    def test_where_none_reached_it_there_is_no_time(self):
        _, below = self.panels(until_loss(sample(), [(rung, number) for rung in RUNGS for number in range(ROUNDS)]))
        self.assertEqual([text.get_text() for text in below.texts if text.get_text().endswith((" s", "×"))], [])

    def test_a_failed_rung_is_its_reason(self):
        above, below = self.panels(until_loss(failing(sample(), "02_tf32", "oom", "wants 90 GiB")))
        self.assertEqual(self.curves(above, "02_tf32"), [])
        self.assertEqual([text.get_text() for text in below.texts if text.get_style() == "italic"],
                         ["oom: wants 90 GiB"])

    def test_peers_are_drawn_as_rungs_are(self):
        _, below = self.panels(until_loss(with_peers(sample())))
        self.assertEqual(texts(below.get_yticklabels()), [*RUNGS, "llmc", *(f"pytorch/{rung}" for rung in RUNGS)])

    def test_runs_of_very_different_lengths_are_on_a_logarithmic_axis_that_begins_with_an_evaluation(self):
        data = sample()
        self.assertEqual([ax.get_xscale() for ax in self.panels(until_loss(data))], ["linear"] * 2)
        for item in data["runs"]:
            if item["variant"] == "02_tf32":
                item["steps"]["step_ms"] = [ms / 10 for ms in item["steps"]["step_ms"]]
                item["summary"] |= {name: item["summary"][name] / 10 for name in ("first_step_ms", "median_step_ms")}
        above, below = self.panels(until_loss(data))
        self.assertEqual([ax.get_xscale() for ax in (above, below)], ["log"] * 2)
        self.assertEqual(above.get_xlim(), below.get_xlim())
        self.assertAlmostEqual(above.get_xlim()[0], 0.0064)
        self.assertTrue(all(min(line.get_xdata()) > 0 for rung in RUNGS for line in self.curves(above, rung)))

    def test_losses_that_are_not_finite_are_left_out(self):
        data = until_loss(sample())
        for item in data["runs"]:
            item["evaluations"][1]["val_loss"] = None
        self.assertEqual([len(line.get_xdata()) for line in self.curves(self.panels(data)[0], "02_tf32")], [3] * ROUNDS)

    def test_another_file_s_runs_are_found_beside_a_ladder(self):
        figure = charts_to_loss.draw_to_loss(results.together([read(sample()), read(until_loss(sample()))]))
        self.assertEqual(len(figure.axes), 2)

    def of(self, *names):
        """The results of the rungs and peers `names` alone."""
        data = until_loss(with_peers(sample()))
        for kind in "runs", "variants":
            data[kind] = [item for item in data[kind] if item["variant"] in names]
        return read(data)

    def test_files_that_share_no_trainer_are_one_panel_in_the_ladder_s_order_that_compares_no_rounds(self):
        first, second, third = RUNGS
        figure = charts_to_loss.draw_to_loss(results.together([self.of(third), self.of(first), self.of("llmc"), self.of(second)]))
        _, below = figure.axes
        self.assertEqual(texts(below.get_yticklabels()), [*RUNGS, "llmc"])
        self.assertFalse([text for text in below.texts if "×" in text.get_text() or text.get_text() == "sooner"])

    def test_the_file_with_the_ladder_s_first_rung_comes_first_and_one_with_more_rungs_before_one_with_less(self):
        first, second, third = RUNGS
        figure = charts_to_loss.draw_to_loss(
            results.together([self.of(second, third), self.of(first, third), self.of(*RUNGS)]))
        self.assertEqual([texts(below.get_yticklabels()) for below in figure.axes[1::2]],
                         [[*RUNGS], [first, third], [second, third]])


class Ablations(unittest.TestCase):
    def test_each_gain_is_a_point_with_its_interval_and_number(self):
        figure = charts.draw_ablation(read(ablated()))
        (ax,) = figure.axes
        self.assertEqual({kind: marks(ax, look["marker"]) for kind, look in style.GAINS.items()},
                         {"ladder": [1.05, 2.5], "without": [1.5], "only": [1.05, 2.45]})
        self.assertIn((1.4, 1.6), whiskers(ax))
        self.assertIn("1.500×", texts(ax.texts))
        self.assertEqual(texts(ax.get_yticklabels()), ["01_causal_mask", "02_tf32"])
        self.assertEqual(texts(figure.legends[0].texts), ["ladder gain", "leave-one-out", "only-one"])

    def test_what_is_missing_is_said_and_has_no_point(self):
        (ax,) = charts.draw_ablation(read(ablated())).axes
        said = [text.get_text() for text in ax.texts if text.get_style() == "italic"]
        self.assertEqual(said, ["unsupported"])
        self.assertRegex(draw(json.dumps(ablated()))[2]["ablation.svg"].decode(), "<title>.*needs sm_80</title>")

    def test_a_ladder_gain_is_joined_to_its_leave_one_out(self):
        (ax,) = charts.draw_ablation(read(ablated())).axes
        joints = [list(line.get_xdata()) for line in ax.lines if line.get_color() == style.BASELINE_BAR]
        self.assertEqual(joints, [[2.5, 1.5]])

    def test_a_kind_that_was_not_asked_for_is_not_in_the_legend(self):
        data = ablated()
        for item in data["ablations"]:
            del item["only"]
        figure = charts.draw_ablation(read(data))
        self.assertEqual(texts(figure.legends[0].texts), ["ladder gain", "leave-one-out"])

    def test_gains_close_to_one_are_within_the_axis(self):
        data = ablated()
        data["ablations"] = [{"rung": "02_tf32", "config": config(4), "ladder": gain(0.997, 0.99, 1.004)}]
        (ax,) = charts.draw_ablation(read(data)).axes
        self.assertEqual(ax.get_xscale(), "linear")
        low, high = ax.get_xlim()
        self.assertTrue(low < 0.99 and 1.004 < high, (low, high))

    def test_the_trainers_of_an_ablation_are_no_rungs(self):
        data = read(ablated())
        self.assertEqual(data.rungs, list(RUNGS))
        self.assertEqual(len(charts.draw_ladder(data).axes[0].patches), len(RUNGS))

    def test_a_gain_is_called_sooner_only_where_it_is_of_the_seconds_to_a_loss(self):
        for sooner in ((), (0,), (0, 1)):
            data = read(ablated())
            for place, ablation in enumerate(data.ablations):
                for one in ablation.gains.values():
                    one.to_loss = place in sooner
            figure = charts.draw_ablation(data)
            for text in figure.texts[1].get_text(), figure.axes[-1].get_xlabel():
                self.assertEqual(("faster" in text, "sooner" in text), (len(sooner) < 2, len(sooner) > 0))

    def test_only_our_own_rungs_emulate_precisions_on_a_cpu(self):
        own = ablated()
        own["plan"]["ladder"] = {"name": "mine", "rungs": [{"name": name} for name in RUNGS]}
        ours, theirs = (replace(read(data), backend="cpu") for data in (ablated(), own))
        for draw_it in charts.draw_ablation, charts.draw_ladder:
            for data, emulated in ((ours, True), (theirs, False), (results.together([ours, theirs]), True)):
                self.assertEqual("emulated" in draw_it(data).texts[1].get_text(), emulated)

    def test_without_a_number_there_is_a_note(self):
        data = ablated()
        data["ablations"] = [{"rung": "02_tf32", "config": config(4), "ladder": missing("oom", "90 GiB")}]
        self.assertIsInstance(charts.draw_ablation(read(data)), str)


class BySteps(unittest.TestCase):
    def test_each_rung_has_a_small_panel_on_one_scale_with_its_median_and_first_step(self):
        axes = charts.draw_steps(read(sample())).axes
        self.assertEqual([ax.texts[0].get_text() for ax in axes], list(RUNGS))
        self.assertEqual(axes[0].texts[1].get_text(), "41.0 ms, first step 941")
        self.assertEqual(len({ax.get_ylim() for ax in axes}), 1)

    def test_neither_the_first_step_nor_one_of_a_single_round_sets_the_scale(self):
        data = sample()
        data["runs"][0]["steps"]["step_ms"][-1] = 400.0
        self.assertLess(charts.draw_steps(read(data)).axes[0].get_ylim()[1], 110)
        for item in data["runs"]:
            item["steps"]["step_ms"][-1] = 1.2 * item["summary"]["median_step_ms"]
        self.assertGreater(charts.draw_steps(read(data)).axes[0].get_ylim()[1], 120)

    def test_each_round_is_thin_and_their_median_thick(self):
        lines = charts.draw_steps(read(sample())).axes[0].lines
        self.assertEqual([line.get_linewidth() > 1 for line in lines], [False] * ROUNDS + [True])
        self.assertEqual([round(value) for value in lines[-1].get_ydata()[:2]], [round(94100 / 41), 100])

    def test_a_disturbed_round_is_in_no_median_while_others_are_left(self):
        for rounds, first in (([2], 940.5), (range(ROUNDS), 941.0)):
            ax = charts.draw_steps(read(disturbed(sample(), "00_fp32_baseline", rounds))).axes[0]
            self.assertEqual(len(ax.lines), 1 + (ROUNDS - len(rounds) or ROUNDS))
            self.assertEqual(ax.texts[1].get_text().split()[-1], style.number(first))

    def test_names_that_are_wider_than_a_panel_are_cut(self):
        data = json.loads(json.dumps(sample()).replace("02_tf32", "02_" + 40 * "x"))
        ax = charts.draw_steps(read(data)).axes[2]
        name = ax.texts[0].get_text()
        self.assertTrue(name.endswith("…"), name)
        self.assertLessEqual(style.text_width(name, 8.5), ax.get_position().width * style.WIDTH)

    def test_fewer_panels_than_a_row_holds_take_its_width(self):
        for count in (1, 2, 3):
            data = sample()
            data["variants"] = data["variants"][:count]
            axes = charts.draw_steps(read(data)).axes
            self.assertEqual((len(axes), round(axes[-1].get_position().x1, 2)), (count, 0.96))

    def test_the_loss_of_a_diverged_rung_is_drawn_and_marked(self):
        data = sample()
        for item in data["variants"] + data["runs"]:
            if item["variant"] == "02_tf32":
                item.update(status="diverged", reason="loss is not finite")
        data["runs"][-1]["steps"]["loss"][-1] = None
        loss = charts.draw_loss(read(data)).axes[0]
        colours = {line.get_label(): line.get_color() for line in loss.lines}
        self.assertEqual({*colours}, {"00_fp32_baseline", "01_causal_mask", "02_tf32 (diverged)"})
        self.assertEqual(colours["01_causal_mask"], style.BASELINE_BAR)
        self.assertNotEqual(colours["02_tf32 (diverged)"], style.BASELINE_BAR)

    def test_a_rung_is_called_diverged_only_where_it_diverged(self):
        data = read(sample((4, 8)))
        data.workloads[1].rows[2].status = "diverged"
        names = [ax.texts[0].get_text() for ax in charts.draw_loss(data).axes if ax.texts]
        self.assertEqual(names, ["01_causal_mask", "02_tf32", "01_causal_mask", "02_tf32 (diverged)"])

    def test_what_learns_as_the_baseline_does_is_grey_and_the_farthest_have_colours(self):
        def colours(far):
            data = sample()
            for item in list(data["runs"]):
                if item["variant"] == "02_tf32":
                    for i in range(10):
                        more = copy.deepcopy(item) | {"variant": f"{i + 3:02}_more"}
                        more["steps"]["loss"] = [(1 + far * (i + 1)) * loss for loss in more["steps"]["loss"]]
                        data["runs"].append(more)
            data["variants"] += [row(f"{i + 3:02}_more", 4, 16.0) for i in range(10)]
            return {line.get_label() for line in charts.draw_loss(read(data)).axes[0].lines
                    if line.get_color() not in (style.INK, style.BASELINE_BAR)}

        self.assertEqual(colours(0.0), set())
        self.assertEqual(colours(0.012), {f"{i:02}_more" for i in range(7, 13)})

    def test_long_runs_are_drawn_as_means_of_several_steps(self):
        with mock.patch.object(charts, "LOSS_POINTS", STEPS // 4):
            loss = charts.draw_loss(read(sample())).axes[0]
        (steps, losses), = [line.get_data() for line in loss.lines if line.get_label() == "00_fp32_baseline"]
        self.assertEqual(list(steps), list(range(2, STEPS, 4)))
        self.assertAlmostEqual(losses[0], 10.0 - 0.3 * 1.5)
        self.assertIn("mean of 4 steps, median over rounds", loss.figure.texts[1].get_text())
        data = sample()
        data["runs"] = [item for item in data["runs"] if item["round"] == 0]
        for item in data["variants"]:
            item["counted"] = [0]
        self.assertTrue(charts.draw_loss(read(data)).texts[1].get_text().endswith("  ·  1 round"))

    def test_losses_are_compared_with_the_baselines(self):
        data = sample()
        for item in data["runs"]:
            if item["variant"] == "02_tf32":
                item["steps"]["loss"] = [loss + 999 * (10.0 - 0.3 * step) for step, loss in enumerate(item["steps"]["loss"])]
                item["steps"]["loss"] = [loss / 1000 for loss in item["steps"]["loss"]]
        _, one, other = charts.draw_loss(read(data)).axes
        self.assertEqual([ax.texts[0].get_text() for ax in (one, other)], ["01_causal_mask", "02_tf32"])
        step, distance = (data[-1] for data in one.lines[0].get_data())
        self.assertEqual(step, STEPS - 1)
        self.assertAlmostEqual(distance, 1e-3 * step / (10.0 - 0.3 * step), delta=1e-10)
        self.assertIn("baseline, %", one.texts[-1].get_text())
        self.assertEqual([ax.texts[1].get_text() for ax in (one, other)], ["at most 0.0016 %", "at most 0.0000016 %"])

    def test_every_rung_has_a_look_of_its_own_without_colour(self):
        looks = style.lines([f"rung {i}" for i in range(15)]).values()
        self.assertEqual(len({(str(look.linestyle), look.marker) for look in looks}), 15)


def profile(rung="13_cuda_graphs", ms=4.0):
    """A profile of a step: half matrix products, a quarter idle."""
    def op(name, flops, ms):
        return {"op": name, "type": "GEMM" if flops else "copy", "math": "half" if flops else None, "count": 1.0,
                "ms": ms, "bytes": 1e9, "flops": flops, "intensity": flops / 1e9, "gb_per_s": 1e3 / ms,
                "tflops": flops * 1e-9 / ms, "floor_ms": 0.75 * ms, "percent_of_gap": 25.0}
    return {"schema": 3, "context": {"device": {"name": "NVIDIA H200", "backend": "cuda"}}, "profile": {
        "variant": rung, "config": config(4), "device_ms": ms, "floor_ms": 0.5 * ms,
        "phases": [{"name": "forward block", "ms": 0.75 * ms}, {"name": "idle", "ms": 0.25 * ms}],
        "kernel_types": [{"type": "GEMM", "ms": 0.5 * ms}, {"type": "copy", "ms": 0.25 * ms}],
        "ceilings": {"copy_gb_per_s": 4000.0, "gemm_tflops": {"fp32": 50.0, "half": 700.0},
                     "peak_tflops": {"fp32": 100.0, "half": 1000.0, "fp8": 2000.0}},
        "ops": [op("matmul NT 1x1x1", 1e12, 0.4 * ms), op("matmul NN 1x1x1", 1e11, 0.1 * ms),
                op("copy", 0.0, 0.25 * ms)]}}


def measured(results_data, *profile_data):
    """Results and profiles joined, as the charts take them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{i}.json") for i in range(len(profile_data))]
        for path, content in zip(paths, profile_data):
            path.write_text(json.dumps(content))
        return results.together([read(data) for data in results_data],
                                [profiles.read(path, schema.load(path)) for path in paths])


class Profiles(unittest.TestCase):
    def of(self, *data):
        return measured([], *data)

    def test_each_chart_is_written_as_svg_and_png(self):
        status, errors, files = draw(json.dumps(profile()))
        self.assertEqual(status, 0)
        self.assertEqual(sorted(files), sorted(f"{name}.{kind}" for name in charts_profile.CHARTS
                                               for kind in ("svg", "png")))
        self.assertEqual(errors.count("\n"), len(charts.CHARTS) - len(charts_profile.CHARTS))

    def test_a_bar_is_cut_by_share_of_the_step(self):
        (ax,) = charts_profile.draw_phases(self.of(profile(), profile("00_fp32_baseline", 40.0))).axes
        self.assertEqual([(bar.get_x(), bar.get_width()) for bar in ax.patches], [(0, 75), (75, 25)] * 2)
        self.assertEqual(texts(ax.get_yticklabels()),
                         ["00_fp32_baseline\n40.0 ms", "13_cuda_graphs\n4.00 ms"], "in the order of the ladder")

    def test_profiles_of_one_rung_are_told_apart_by_what_they_traced(self):
        large = profile(ms=40.0)
        large["profile"]["config"]["model"] = "gpt2-xl"
        beside = [large, profile("fp8", 3.0), profile()]
        (roof,) = charts_profile.draw_roofline(self.of(*beside)).axes
        (phases,) = charts_profile.draw_phases(self.of(*beside)).axes
        xl, small = "gpt2-xl, B = 4, T = 64", "gpt2-tiny, B = 4, T = 64"
        self.assertEqual([points.get_label() for points in roof.collections],
                         [f"13_cuda_graphs, {xl}", f"13_cuda_graphs, {small}", f"fp8, {small}"])
        self.assertEqual(texts(phases.get_yticklabels()),
                         [f"13_cuda_graphs\n{xl}: 40.0 ms", f"13_cuda_graphs\n{small}: 4.00 ms", f"fp8\n{small}: 3.00 ms"])
        self.assertEqual([one.label for one in self.of(profile(), profile()).profiles], ["0.json", "1.json"])

    def test_parts_are_told_apart_without_colour(self):
        data = profile()
        data["profile"]["phases"] = [{"name": f"phase {i}", "ms": 1.0} for i in range(15)]
        (ax,) = charts_profile.draw_phases(self.of(data)).axes
        self.assertEqual(len({(bar.get_facecolor(), bar.get_hatch()) for bar in ax.patches}), 15)

    def test_parts_that_are_small_everywhere_are_one(self):
        data = profile()
        data["profile"]["phases"] += [{"name": f"small {i}", "ms": 0.004} for i in range(3)]
        figure = charts_profile.draw_phases(self.of(data))
        self.assertEqual(texts(figure.legends[0].texts), ["forward block", "idle", "other"])
        self.assertAlmostEqual(sum(bar.get_width() for bar in figure.axes[0].patches), 100)

    def test_what_is_other_itself_is_drawn_with_the_small_parts(self):
        data = profile()
        data["profile"]["kernel_types"] = [{"type": "GEMM", "ms": 60}, {"type": "other", "ms": 39.8},
                                           {"type": "memset", "ms": 0.2}]
        bars = charts_profile.draw_kernel_types(self.of(data)).axes[0].patches
        self.assertEqual([round(bar.get_width(), 6) for bar in bars], [60, 40])

    def test_an_op_is_its_floor_and_what_it_takes_beyond(self):
        (ax,) = charts_profile.draw_gap(self.of(profile())).axes
        self.assertEqual(texts(ax.get_yticklabels()), ["idle", "matmul NT 1x1x1", "copy", "matmul NN 1x1x1"])
        floor, beyond = ax.patches[2:4]
        self.assertAlmostEqual(floor.get_width(), 1.2)
        self.assertAlmostEqual(beyond.get_width(), 0.4)
        self.assertEqual(ax.texts[0].get_text(), "50 %")
        self.assertIn("floor 2.00 ms (50 %)", ax.get_title(loc="left"))

    def test_the_roof_is_the_measured_one_and_ops_without_products_are_not_under_it(self):
        (ax,) = charts_profile.draw_roofline(self.of(profile())).axes
        (roof,) = ax.lines  # only the roof of the products' math mode
        x, y = roof.get_data()
        self.assertEqual([*zip(x, y)], [(50, 200), (175, 700), (2000, 700)])  # 4 TB/s up to 700 TFLOP/s
        self.assertEqual(ax.collections[0].get_offsets().tolist(), [[1000.0, 625.0], [100.0, 250.0]])

    def test_each_type_has_its_peak_its_gemm_and_its_best_rung(self):
        rungs = everything()
        for item in rungs["variants"]:
            item["config"]["math"] = "half" if item["variant"] == "02_tf32" else "fp32"
        data = measured([rungs], profile())
        (ax,) = charts_profile.draw_dtype(data).axes
        best = data.workloads[0].find("02_tf32").mfu_nanogpt
        self.assertEqual([round(bar.get_width(), 3) for bar in ax.patches][3:],
                         [1000.0, 700.0, round(1000 * best, 3), 2000.0])
        said = texts(ax.texts)
        of_rung = f"02_tf32: {1000 * best:,.0f}, MFU {100 * best:.0f} %, {100 * best / 0.7:.0f} % of the GEMM"
        self.assertEqual(said[3:], ["1,000", "700, 70 % of peak", of_rung, "2,000", "not measured"])

    def test_throughput_has_its_unit_where_the_pointer_rests(self):
        rungs = everything()
        for item in rungs["variants"]:
            item["config"]["math"] = "half"
        with mock.patch.object(style, "tip") as tip:
            charts_profile.draw_dtype(measured([rungs], profile()))
        self.assertEqual([call.args[1] for call in tip.call_args_list][2:5],
                         ["peak: 1,000 TFLOP/s", "gemm: 700 TFLOP/s, 70 % of peak",
                          "02_tf32: 471 TFLOP/s, MFU 47 %, 67 % of the GEMM"])

    def test_a_type_that_only_another_file_has_a_rung_of_has_that_rung(self):
        beside = everything()
        for name in ("runs", "variants"):
            beside[name] = [item for item in beside[name] if item["variant"] == "02_tf32"]
        rungs = everything()
        for item, math in [(item, "fp32") for item in rungs["variants"]] + [(item, "fp8") for item in beside["variants"]]:
            item["config"]["math"] = math
        (ax,) = charts_profile.draw_dtype(measured([rungs, beside], profile())).axes
        self.assertTrue(ax.texts[-1].get_text().startswith("02_tf32: "), ax.texts[-1].get_text())

    def test_a_peak_that_is_not_known_is_no_number(self):
        data = profile()
        del data["profile"]["ceilings"]["peak_tflops"]
        (ax,) = charts_profile.draw_dtype(self.of(data)).axes
        self.assertEqual(texts(ax.texts), ["n/a", "50", "n/a", "700"])
        self.assertEqual(texts(ax.figure.legends[0].texts), ["measured GEMM"])

    def test_mfu_is_also_against_the_measured_gemm(self):
        rungs = everything()
        for item in rungs["variants"]:
            item["config"]["math"] = "half"
        ax = charts_ladder.draw_mfu(measured([rungs], profile())).axes[0]
        self.assertAlmostEqual(marks(ax, ">")[0], 100 * 8 / 41 / 0.7)

    def test_a_profile_without_kernels_has_no_chart_of_them(self):
        data = profile()
        data["profile"]["kernel_types"] = []
        self.assertIsInstance(charts_profile.draw_kernel_types(self.of(data)), str)

    def test_what_a_profile_lacks_costs_only_its_chart(self):
        for lacks in ({"phases": []}, {"phases": [{"name": "idle", "ms": 0}]}, {"ops": [], "phases": []},
                      {"kernel_types": [{"type": "GEMM", "ms": 0}]},
                      {"ceilings": {"copy_gb_per_s": 4000.0, "gemm_tflops": {}}}):
            data = profile()
            data["profile"] |= lacks
            for draw_it in charts_profile.CHARTS.values():
                draw_it(self.of(data))
            for draw_it in charts_profile.CHARTS.values():
                self.assertNotIsInstance(draw_it(self.of(data, profile("00_fp32_baseline", 40.0))), str)

    def test_a_roof_is_of_the_profiles_that_measured_it(self):
        other = profile("00_fp32_baseline", 40.0)
        other["profile"]["ceilings"]["gemm_tflops"] = {"fp32": 50.0}
        (ax,) = charts_profile.draw_roofline(self.of(profile(), other)).axes
        self.assertEqual(max(ax.lines[0].get_ydata()), 700)

    def test_a_damaged_profile_is_refused_by_name(self):
        for key in ("device_ms", "phases", "ceilings", "ops"):
            data = profile()
            del data["profile"][key]
            status, errors, files = draw(json.dumps(data))
            self.assertEqual((status, files), (2, {}))
            self.assertIn(key, errors)
        for text in (json.dumps(profile()).replace('"device_ms": 4.0', '"device_ms": 0'),
                     json.dumps(profile() | {"schema": 4}), json.dumps(profile() | {"profile": 3})):
            self.assertEqual(draw(text)[0], 2)


class Together(unittest.TestCase):
    """Several results measured on one device."""

    def test_the_first_results_are_the_ladder_and_the_longest_the_loss(self):
        longer = twice_as_long(sample((8,)))
        both = measured([sample(), longer])
        self.assertEqual([len(draw_it(both).axes) for draw_it in (charts.draw_ladder, charts.draw_steps)], [1, len(RUNGS)])
        self.assertEqual(len(charts.draw_ladder(both).axes[0].patches), len(RUNGS))
        self.assertIn("B = 4,", charts.draw_ladder(both).texts[1].get_text())
        self.assertIn("B = 8,", charts.draw_loss(both).texts[1].get_text())

    def test_longest_losses_without_the_baseline_come_after_the_longest_with_it(self):
        longer = twice_as_long(sample((8,)))
        for name in ("runs", "variants"):
            longer[name] = [item for item in longer[name] if item["variant"] != "00_fp32_baseline"]
        longest = measured([sample(), longer]).longest()
        self.assertEqual([(workload.B, workload.steps) for workload in longest], [(4, STEPS), (8, 2 * STEPS)])

    def test_training_until_a_loss_is_no_longest_loss(self):
        longer = until_loss(twice_as_long(sample((4,))))
        self.assertEqual([workload.B for workload in measured([sample((8,)), longer]).longest()], [8])

    def test_files_of_one_of_several_devices_are_told_apart(self):
        other = sample()
        other["context"]["device"]["name"] = "Tesla T4"
        given = [replace(read(data), name=name) for name, data in (("a", sample()), ("b", sample()), ("c", other))]
        self.assertEqual([workload.label for workload in results.together(given).workloads],
                         ["NVIDIA H200", "NVIDIA H200, b", "Tesla T4"])

    def test_results_are_emulated_where_all_are_of_a_cpu(self):
        on_cpu, on_gpu = (replace(read(sample()), backend=backend) for backend in ("cpu", "cuda"))
        for given, emulated in (([on_cpu], True), ([on_cpu, on_cpu], True), ([on_cpu, on_gpu], False), ([on_gpu, on_cpu], False)):
            self.assertEqual(results.together(given).emulated, emulated)

    def test_the_ladder_is_of_one_device_where_there_is_one(self):
        data = read(everything())
        self.assertEqual({workload.devices for workload in data.ladders()}, {1})
        data.workloads = [workload for workload in data.workloads if workload.devices > 1]
        self.assertEqual({workload.devices for workload in data.ladders()}, {2, 4})

    def test_peers_of_all_results_are_on_one_scale(self):
        more = everything()
        for item in more["variants"]:
            for ratio in item["speedup_peers"]:
                ratio.update(ratio=4.0, lo=3.9, hi=4.1)
        axes = charts_ladder.draw_peers(measured([everything(), more])).axes
        self.assertGreater(len(axes), 1)
        self.assertEqual(len({ax.get_xlim() for ax in axes}), 1)

    def test_a_sweep_is_not_beside_rungs_that_happen_to_have_two_batches(self):
        two = [data for B in (4, 8) for data in [sample((B,))]]
        sweep = sample((2, 4, 8, 13, 16, 17))
        for data in (*two, sweep):
            for item in data["variants"]:
                item["tokens_per_second"] = estimate(1e3)
        for key in ("variants", "runs"):
            sweep[key] = [item for item in sweep[key] if item["variant"] == "02_tf32"]
        rate, _ = charts_sweep.draw_batch(measured([*two, sweep])).axes
        self.assertEqual([line.get_label() for line in rate.lines if line.get_label()[0] != "_"], ["02_tf32"])
        rate, _ = charts_sweep.draw_batch(measured(two)).axes
        self.assertEqual([line.get_label() for line in rate.lines if line.get_label()[0] != "_"], list(RUNGS))

    def test_a_line_over_the_batch_is_of_one_configuration(self):
        batches = []
        for B, dtype in ((4, "bf16"), (8, "bf16"), (16, "fp16")):
            data = sample((B,))
            for item in data["variants"]:
                item |= {"settings": f"dtype {dtype}", "tokens_per_second": estimate(1e3)}
            batches.append(data)
        for order in (batches, batches[::-1]):
            rate, _ = charts_sweep.draw_batch(measured(order)).axes
            self.assertEqual({tuple(line.get_xdata()) for line in rate.lines if line.get_label() in RUNGS}, {(4, 8)})
        self.assertIn("--batch", charts_sweep.draw_batch(measured(batches[1:])))

    def test_batches_between_powers_of_two_are_ticks_without_numbers(self):
        data = sample((2, 4, 8, 13, 16, 17))
        for item in data["variants"]:
            item["tokens_per_second"] = estimate(1e3)
        _, memory = charts_sweep.draw_batch(read(data)).axes
        self.assertEqual(list(memory.xaxis.get_majorticklocs()), [2, 4, 8, 16])
        self.assertEqual(list(memory.xaxis.get_minorticklocs()), [13, 17])

    def test_the_history_is_of_what_was_measured_often_at_several_commits(self):
        def series(name, *commits):
            return history.Series("H200", name, [history.Point(one, 10.0, None, None, 10.0, False) for one in commits])

        data = results.together([read(sample())], [], [series("same", *"aaaaa"), series("twice", *"ab"),
                                                       series("often", *"abcde"), series("once", "a")])
        self.assertEqual(titles(history.draw_history(data)), ["often", "twice"])
        data.history = data.history[:1]
        self.assertIsInstance(history.draw_history(data), str)

    def test_series_of_several_settings_are_told_apart(self):
        item = {"device": "H200", "variant": "02_tf32", "workload": "gpt2 B=4 T=64", "points": [
            {"commit": "abc", "time": "day 1", "median_step_ms": 10.0, "lo": None, "hi": None, "level_ms": 10.0,
             "changed": False}]}
        data = {"schema": 3, "kind": "history", "series": [item, item | {"settings": "dtype fp16, 15 steps"}]}
        self.assertEqual([series.title for series in history.read(Path("history.json"), data)],
                         ["02_tf32, gpt2 B=4 T=64", "02_tf32, gpt2 B=4 T=64, dtype fp16, 15 steps"])


class Captions(unittest.TestCase):
    def test_a_loss_that_diverged_has_its_reason(self):
        data = sample()
        variant(data, "02_tf32").update(status="diverged", reason="step 10: 0.03 apart")
        self.assertIn("step 10: 0.03 apart", charts.captions(read(data))["loss"])
        self.assertEqual(charts.captions(read(sample()))["loss"], charts.draw_loss.__doc__)

    def test_steps_that_grow_at_the_end_at_a_low_clock_are_named(self):
        def caption(data, rung="02_tf32"):
            for item in data["runs"]:
                if item["variant"] == rung:
                    item["steps"]["step_ms"][-2:] = [90.0, 91.0]
            return charts.captions(read(data))["steps"]

        said = caption(with_energy(sample()))
        self.assertIn("02_tf32", said)
        self.assertNotIn("01_causal_mask", said)
        for other in (caption(sample()), caption(with_energy(sample()), "01_causal_mask"),
                      charts.captions(read(with_energy(sample())))["steps"]):
            self.assertEqual(other, charts.draw_steps.__doc__)


if __name__ == "__main__":
    unittest.main()
