"""The page of a report: what it holds, what it makes of hostile and missing fields, and how a browser takes it."""

import contextlib
import csv
import io
import json
import re
import resource
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path

TESTS = Path(__file__).resolve().parent
REPORTS = TESTS.parent / "reports"
sys.path[:0] = [str(REPORTS), str(TESTS)]
try:
    import page
    import report
    import results
    from browser import Browser, find
    from charts_test import RUNGS, everything, failing, run, sample, with_peers
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


def page_of(*datas, charts=False):
    """The page of these results; drawing its charts is most of the work."""
    with tempfile.TemporaryDirectory() as folder:
        if charts:
            status, said, out = write(folder, *datas)
            assert status == 0, said
            return (out / "index.html").read_text(encoding="utf-8")
        path = Path(folder, "results.json")
        measured = []
        for data in datas:
            path.write_text(json.dumps(data))
            measured.append(results.read(path))
        return page.render(measured, {}, {}, "")


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


class Page(unittest.TestCase):
    def test_the_answer_comes_first(self):
        html = page_of(everything())
        head = Tags(html[html.index("<main>"):html.index('id="ladder"')]).text
        self.assertRegex(" ".join(head.split()), r"02_tf32 is the fastest rung, 2\.5× the speed of the baseline")
        for part in ("2.00× faster", "pytorch/02_tf32", "0.1 GiB", "NVIDIA H200"):
            self.assertIn(part, head)

    def test_it_needs_nothing_else(self):
        html = page_of(everything(), charts=True)
        self.assertIn("default-src 'none'", html)
        for tag, attributes in Tags(html).tags:
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "image", "base"))
            self.assertNotIn("src", attributes)
            for name in ("href", "xlink:href"):
                if tag != "a" and name in attributes:
                    self.assertTrue(attributes[name].startswith("#"), attributes)
        self.assertEqual(re.findall(r"url\((?!#)[^)]*\)|@import", html), [])

    def test_no_two_elements_have_the_same_id(self):
        tags = Tags(page_of(everything(), charts=True)).tags
        ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
        self.assertEqual(len(ids), len(set(ids)))

    def test_what_charts_refer_to_is_in_the_page(self):
        html = page_of(everything(), charts=True)
        ids = set(re.findall(r'\bid="([^"]*)"', html))
        self.assertEqual(set(re.findall(r'(?:href="#|url\(#)([^")]*)', html)) - ids, set())

    def test_a_rung_leads_to_its_diff(self):
        tags = Tags(page_of(sample()))
        self.assertIn(("a", {"href": "#diff-02_tf32"}), tags.tags)
        self.assertIn(("details", {"id": "diff-02_tf32"}), tags.tags)
        self.assertIn("+    ops.set_matmul_precision(Precision::tf32);", tags.text)

    def test_a_failed_rung_has_its_reason_and_no_number(self):
        html = page_of(failing(sample(), "02_tf32", "unsupported", "needs sm_80"))
        row = html[html.index('data-key="02_tf32"'):]
        row = Tags(row[row.index(">") + 1:row.index("</tr>")]).text
        self.assertIn("needs sm_80", row)
        self.assertEqual(re.findall(r"\d+\.\d+", row), [])

    def test_warnings_are_shown(self):
        data = failing(sample(), "02_tf32", "diverged", "loss left the baseline's")
        data["report"] = {"name": "results.json", "warnings": ["Unfinished: 3 of 9 runs"], "notes": ["a note"]}
        data["variants"][1]["throttled"] = True
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
        self.assertNotRegex(Tags(ladder).text, r"\d ms|GiB|tok/s|17\.0")
        for absolute in ("ladder", "memory", "steps", "batch"):
            self.assertIn(f"<li>{absolute}: several devices", html)

    def test_one_row_a_rung_and_peer_goes_into_the_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            _, _, out = write(folder, failing(with_peers(sample()), "02_tf32", "oom", 'wants "90, has 80'))
            with (out / "results.csv").open(newline="") as file:
                rows = {row["variant"]: row for row in csv.DictReader(file)}
        self.assertEqual(len(rows), 7)
        self.assertEqual(rows["01_causal_mask"]["median_step_ms"], "39.0")
        self.assertEqual((rows["02_tf32"]["reason"], rows["02_tf32"]["median_step_ms"]), ('wants "90, has 80', ""))

    def test_published_tables_are_markdown_too(self):
        with tempfile.TemporaryDirectory() as folder:
            _, _, out = write(folder, sample())
            text = (out / "published.md").read_text(encoding="utf-8")
        self.assertIn("| compile | 145 | 7.17× |", text)
        for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            self.assertEqual(len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}), 1, block)


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

    def test_missing_fields_cost_their_part_only(self):
        for field in ("memory_bytes", "mfu_nanogpt", "mfu_llmc", "tokens_per_second", "speedup_peers",
                      "speedup_baseline", "speedup_previous", "final_loss", "first_step_ms", "startup_ms"):
            data = everything()
            for item in data["variants"]:
                item.pop(field, None)
            self.assertIn("02_tf32</code> is the fastest rung", page_of(data), field)
        bare = sample()
        del bare["plan"], bare["complete"]
        self.assertIn("is the fastest rung", page_of(bare))

    def test_no_rung_that_ended_well_gives_a_page_too(self):
        data = sample()
        for rung in RUNGS:
            failing(data, rung, "crash", "signal 11")
        self.assertIn("No rung ended well", page_of(data))

    def test_an_output_that_is_no_folder_and_damaged_results_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "out").write_text("")
            for data in (sample(), "{"):
                status, said, _ = write(folder, data)
                self.assertEqual((status, said.count("\n")), (2, 1), said)

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
        """At most 5 s on two cores, as processor time, and 3 MB."""
        data = everything()
        steps = [{"step": i, "warmup": i < 10, "step_ms": 40 + i % 7 / 10, "loss": 11 - i / 40} for i in range(200)]
        data["variants"] = [{**data["variants"][1], "variant": f"{i:02}_rung"} for i in range(14)]
        data["runs"] = [{**run(f"{i:02}_rung", 4, number, 40.0), "steps": steps}
                        for i in range(14) for number in range(5)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "results.json")
            path.write_text(json.dumps(data))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, REPORTS / "report.py", path, "--out", folder], check=True,
                           capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assertLess(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, 10.0)
            self.assertLess(Path(folder, "index.html").stat().st_size, 3_000_000)


@unittest.skipUnless(find(), "no Chromium here (chromium-headless-shell, chromium, google-chrome)")
class InABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        _, _, out = write(folder.name, failing(everything(), "01_causal_mask", "oom", "wants 90 GiB"))
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
                    return [box.width, box.height, [...svg.querySelectorAll("path, use")].filter(
                        mark => mark.getBoundingClientRect().width > 0).length]; })""")
                self.assertEqual(len(charts), 15)
                for wide, high, marks in charts:
                    self.assertGreater(min(wide / 300, high / 100, marks / 50), 1.0)
                self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)

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
        click = """(name => { const heads = [...document.querySelector("table.sortable").tHead.rows[0].cells];
            heads.find(head => head.textContent.trim() === name).firstElementChild.click();
            return [...document.querySelector("table.sortable").tBodies[0].rows].map(
                row => (row.cells[0].querySelector("a") ?? row.cells[0]).textContent.trim().slice(0, 2)); })"""
        self.assertEqual(self.browser.evaluate(click + '("ms")'), ["00", "02", "01"])
        self.assertEqual(self.browser.evaluate(click + '("ms")'), ["02", "00", "01"])
        self.assertEqual(self.browser.evaluate(click + '("rung")'), ["00", "01", "02"])
        self.assertEqual(self.browser.evaluate('document.querySelectorAll("[aria-sort]").length'), 1)

    def test_a_value_shows_where_the_pointer_rests(self):
        self.browser.open(self.path)
        box = self.browser.evaluate("""(() => { const bar = document.querySelector("#chart-ladder [data-tip]");
            bar.scrollIntoView({block: "center"}); const box = bar.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; })()""")
        self.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        self.assertEqual(self.browser.evaluate("document.getElementById('tip').textContent"),
                         "00_fp32_baseline: 41.0 ms, 40.0 to 42.0")
        self.assertFalse(self.browser.evaluate("document.getElementById('tip').hidden"))

    def test_a_link_opens_the_diff(self):
        self.browser.open(self.path)
        self.assertFalse(self.browser.evaluate("document.getElementById('diff-02_tf32').open"))
        self.browser.evaluate("document.querySelector('a[href=\"#diff-02_tf32\"]').click()")
        self.browser.evaluate("new Promise(done => setTimeout(done, 50))")
        self.assertTrue(self.browser.evaluate("document.getElementById('diff-02_tf32').open"))


if __name__ == "__main__":
    unittest.main()
