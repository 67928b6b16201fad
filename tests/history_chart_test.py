"""The chart of a history: what is drawn, and the answers to damaged files."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "reports"))
try:
    import history
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the charts' Python packages are not installed") from None


def point(ms, changed=False, interval=True):
    return {"file": "a.json", "commit": "0123456789", "time": "2025-01-31T12:00:00.000Z", "median_step_ms": ms,
            "lo": ms - 1 if interval else None, "hi": ms + 1 if interval else None, "level_ms": ms,
            "changed": changed}


def sample():
    points = [point(40.0), point(40.0, interval=False), point(42.0, changed=True), point(42.0)]
    return {"schema": 3, "kind": "history", "skipped": [],
            "series": [{"device": "NVIDIA H200", "variant": "13_cuda_graphs", "workload": "gpt2 B=16 T=1024",
                        "points": points}]}


def draw(data):
    """Draws a history. Returns exit status, stderr and names of the files written."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as errors, \
            contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder, "history.json")
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        code = history.main([str(path), "--out", str(Path(folder, "out"))])
        written = sorted(file.name for file in Path(folder).glob("out/*"))
    return code, errors.getvalue(), written


class HistoryChart(unittest.TestCase):
    def test_every_point_and_each_change_is_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "history.json")
            path.write_text(json.dumps(sample()))
            series = history.read(path)
        figure = history.draw(series)
        axes = figure.axes[0]
        self.assertEqual(axes.get_title("left"), "13_cuda_graphs, gpt2 B=16 T=1024")
        self.assertEqual([text.get_text() for text in axes.texts], ["+5.0 %"])
        self.assertEqual(len(axes.containers), 4)
        self.assertEqual(draw(sample())[::2], (0, ["history.png", "history.svg"]))

    def test_of_many_series_those_with_the_most_points_are_drawn_and_how_many_is_said(self):
        data = sample()
        series = data["series"][0]
        data["series"] = [series | {"points": series["points"][:2]}, *[series] * 40]
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said, \
                mock.patch.object(history.style, "save", lambda figure, _: [len(ax.containers) for ax in figure.axes]):
            path = Path(folder, "history.json")
            path.write_text(json.dumps(data))
            history.main([str(path), "--out", folder])
        warning, *points = said.getvalue().splitlines()
        self.assertRegex(warning, "^! .*40 of 41")
        self.assertEqual(points, ["4"] * 40)

    def test_an_edit_is_not_the_commit_it_was_made_on(self):
        data = sample()
        data["series"][0]["points"][2]["commit"] += "-dirty"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "history.json")
            path.write_text(json.dumps(data))
            (series,) = history.read(path)
        self.assertEqual([one.label for one in series.points][1:3], ["01234567", "01234567-dirty"])

    def test_an_outlier_is_hollow(self):
        data = sample()
        data["series"][0]["points"][1]["outlier"] = True
        axes = history.draw(history.read(Path("history.json"), data)).axes[0]
        self.assertEqual([bars[0].get_fillstyle() for bars in axes.containers], ["full", "none", "full", "full"])

    def test_a_damaged_history_is_refused_in_one_line(self):
        broken = [json.loads(json.dumps(sample())) for _ in range(4)]
        broken[0]["kind"] = "comparison"
        broken[1]["series"][0]["points"][0]["median_step_ms"] = -1
        broken[2]["series"][0]["points"][0]["median_step_ms"] = "40"
        del broken[3]["series"][0]["points"]
        for data in ["", "[1]", "{}", *broken]:
            code, errors, written = draw(data)
            self.assertEqual((code, errors.count("\n"), written), (2, 1, []), errors)
            self.assertIn("history.json", errors)


if __name__ == "__main__":
    unittest.main()
