"""scripts/build_times.py: files that programs share are built and counted once, a program's own files as its own."""

import contextlib
import io
import subprocess
import sys
import unittest
from pathlib import Path
from temporary import temp_folder
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))
import build_times

# A shell command that computes for some hundredths of a second, then makes a file.
WORK = f"{sys.executable} -c 'sum(range(3000000))' && touch"
NINJA = f"""
rule work
  command = echo $out >>log && {WORK} $out
build shared.o: work
build a.o: work
build bin/a: work shared.o a.o
build bin/b: work shared.o
rule refuse
  command = echo no such header >&2; exit 3 -o $out
build bin/broken: refuse
"""


class BuildTimes(unittest.TestCase):
    def setUp(self):
        self.folder = temp_folder(self)
        (self.folder / "bin").mkdir()
        (self.folder / "build.ninja").write_text(NINJA)

    def test_what_programs_share_is_built_once(self):
        with mock.patch.object(build_times, "built", lambda command, _: {"shared": 8.0, "a.o": 4.0}.get(
                next((name for name in ("shared", "a.o") if f"echo {name}" in command), ""), 1.0)):
            self.assertEqual(build_times.measure(self.folder, ["a", "b"]), (8.0, {"a": 5.0, "b": 1.0}))
        shared, alone = build_times.measure(self.folder, ["a", "b"])
        self.assertEqual((self.folder / "log").read_text().split(), ["shared.o", "a.o", "bin/a", "bin/b"])
        self.assertGreater(min(shared, *alone.values()), 0.01, "CPU seconds of a child")

    def test_a_command_that_fails_is_told_with_what_it_says(self):
        with self.assertRaisesRegex(build_times.BuildError, "^bin/broken: exit status 3\nno such header"):
            build_times.measure(self.folder, ["broken"])
        with self.assertRaisesRegex(build_times.BuildError, "bin/other"):
            build_times.measure(self.folder, ["other"])

    def test_the_table_has_a_rungs_lines_and_changes(self):
        rows = list(build_times.table(90.0, {"00_fp32_baseline": 2.0, "02_tf32": 1.25}))
        baseline = (ROOT / "variants/00_fp32_baseline.cpp").read_text().count("\n")
        self.assertEqual(rows[3], f"| `00_fp32_baseline` | {baseline} |  | 2.0 |")
        changed = subprocess.run(["diff", ROOT / "variants/01_causal_mask.cpp", ROOT / "variants/02_tf32.cpp"],
                                 capture_output=True, text=True, check=False).stdout
        self.assertIn(f"| {sum(line[0] in '<>' for line in changed.splitlines())} | 1.2 |", rows[4])

    def test_what_cmake_refuses_is_a_usage_error(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(build_times.main(["--preset", "none_such"]), 2)
        self.assertIn("none_such", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
