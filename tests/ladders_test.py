"""Our two ladders: how CMake reads and merges them, and how commands name the second one."""

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path
from temporary import temp_folder

ROOT = Path(__file__).parent.parent
BIN = Path(os.environ["STEPLADDER_BIN"])
SMALL = ("--backend", "cpu", "--model", "gpt2-tiny", "--batch", "1", "--seq", "32", "--steps", "3", "--warmup", "1",
         "--rounds", "1", "--data", ROOT / "data/austen.txt")
LINES = ("one", "two", "three", "four")


def source(*upper):
    """A trainer's source: one word a line, those in `upper` changed."""
    return "\n\n".join(line.upper() if line in upper else line for line in LINES) + "\n"


def row(name, parent=None, **more):
    return {"name": name, "parent": parent, "changes": name, "math": "fp32", **more}


class Configure(unittest.TestCase):
    """Made-up rungs, configured and merged as the build does it for ours."""

    def setUp(self):
        self.root = temp_folder(self)
        (self.root / "cmake").mkdir()
        for name in ("ladders.cmake", "ablations.cmake", "merge_ablation.sh"):
            shutil.copy(ROOT / "cmake" / name, self.root / "cmake")
        (self.root / "CMakeLists.txt").write_text("""cmake_minimum_required(VERSION 3.22)
project(ladders NONE)
include(cmake/ladders.cmake)
include(cmake/ablations.cmake)
set(merges)
foreach(ablation IN LISTS ablations)
  list(APPEND merges ${merge_of_${ablation}})
endforeach()
add_custom_target(merged ALL DEPENDS ${merges})
""")
        self.write("variants", {"00_a": source(), "01_b": source("two")},
                   [row("00_a"), row("01_b", "00_a")])
        self.write("variants/learning", {"01_d": source("two", "one"), "02_e": source("two", "one", "four")},
                   [row("00_base", trainer="01_b"), row("01_d", "00_base"), row("02_e", "01_d")])

    def write(self, folder, files, rows):
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.root / folder / f"{name}.cpp").write_text(text)
        (self.root / folder / "ladder.json").write_text(json.dumps({"rungs": rows}))

    def cmake(self, *arguments):
        return subprocess.run(["cmake", *arguments], cwd=self.root, capture_output=True, text=True)

    def configure(self):
        cache = (BIN.parent / "CMakeCache.txt").read_text()
        of = {key: re.search(rf"^{key}:\w+=(.*)$", cache, re.MULTILINE)[1]
              for key in ("CMAKE_GENERATOR", "CMAKE_MAKE_PROGRAM")}
        return self.cmake("-S", ".", "-B", "build", "-G", of["CMAKE_GENERATOR"],
                          f"-DCMAKE_MAKE_PROGRAM={of['CMAKE_MAKE_PROGRAM']}")

    def test_the_second_ladder_is_merged_as_the_first(self):
        done = self.configure()
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.cmake("--build", "build")
        self.assertEqual(done.returncode, 0, done.stdout)
        merged = {str(path.relative_to(self.root / "build/generated").with_suffix("")): path.read_text()
                  for path in (self.root / "build/generated").rglob("*.cpp")}
        self.assertEqual(merged, {
            "only/01_b": source("two"), "without/01_b": source(),
            "only/01_d": source("two", "one"), "without/01_d": source("two", "four"),
            "only/02_e": source("two", "four"), "without/02_e": source("two", "one"),
        })

    def refused(self, *words):
        done = self.configure()
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_a_name_of_either_ladder_is_its_only_one(self):
        self.write("variants/learning", {"01_b": source("one")},
                   [row("00_base", trainer="00_a"), row("01_b", "00_base")])
        self.refused("variants/learning/ladder.json", "01_b")

    def test_a_file_has_a_row_and_a_row_a_file(self):
        (self.root / "variants/learning/03_f.cpp").write_text(source())
        self.refused("variants/learning/03_f.cpp")
        (self.root / "variants/learning/03_f.cpp").unlink()
        (self.root / "variants/learning/02_e.cpp").unlink()
        self.refused("variants/learning/ladder.json", "02_e")


class Commands(unittest.TestCase):
    """Commands with `--ladder learning`."""

    def setUp(self):
        self.root = temp_folder(self)

    def stepladder(self, *arguments, code=0):
        done = subprocess.run([BIN / "stepladder", *arguments], cwd=self.root, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_lists_its_rungs(self):
        rows = [line.split() for line in self.stepladder("list", "--wide", "--ladder", "learning", "--backend", "cpu").stdout.splitlines()]
        rungs = json.loads((ROOT / "variants/learning/ladder.json").read_text())["rungs"]
        listed = [row for row in rows if row and row[0] in {rung["name"] for rung in rungs}]
        self.assertEqual([row[0] for row in listed], [rung["name"] for rung in rungs])
        trainer = ROOT / "variants" / f"{rungs[0]['trainer']}.cpp"
        self.assertEqual(listed[0][-2:], [str(len(trainer.read_text().splitlines())), "yes"])

    def test_runs_and_reports(self):
        schedule = ("--warmup-lr-steps", "1", "--decay-steps", "3")
        self.stepladder("run", "--ladder", "learning", "--rungs", "00,01,untied_head", *SMALL, *schedule, "--out", "r.jsonl")
        self.assertIn("01_muon", self.stepladder("report", "r.jsonl").stdout)
        exported = json.loads(self.stepladder("export", "r.jsonl", "--format", "json").stdout)
        self.assertEqual(exported["plan"]["ladder"]["name"], "learning")
        self.assertEqual({run["status"] for run in exported["runs"]}, {"ok"})
        self.assertEqual({(run["config"]["warmup_lr_steps"], run["config"]["decay_steps"]) for run in exported["runs"]},
                         {(1, 3)})
        self.stepladder("resume", "r.jsonl", "--rounds", "2")

    def test_ablates(self):
        self.stepladder("ablate", "--ladder", "learning", "--rungs", "rotary", *SMALL, "--out", "a.jsonl")
        exported = json.loads(self.stepladder("export", "a.jsonl", "--format", "json").stdout)
        measured = {run["variant"]: run["status"] for run in exported["runs"]}
        self.assertLessEqual({"without/03_rotary", "only/03_rotary", "00_adamw", "03_rotary"}, measured.keys())
        self.assertEqual(set(measured.values()), {"ok"})

    def test_its_name_is_taken(self):
        (self.root / "ladder.json").write_text(json.dumps(
            {"name": "learning", "rungs": [{"name": "a", "changes": "", "command": ["true"]}]}))
        refused = self.stepladder("list", "--ladder", "ladder.json", code=2)
        self.assertIn("learning", refused.stderr)


if __name__ == "__main__":
    unittest.main()
