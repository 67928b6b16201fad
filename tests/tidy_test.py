"""scripts/tidy.py: what is looked at, and what is passed over."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TIDY = Path(__file__).resolve().parent.parent / "scripts" / "tidy.py"


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name in (".clang-tidy", "a.cpp", "b.cpp", "a.h", "build/compile_commands.json"):
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text("")
        self.compile("-O2")
        # Lists what a source includes: a.h of a.cpp.
        self.program("c++", 'for file; do :; done; echo "$file.o: $file \\\\"; [[ $file != *a.cpp ]] || echo " ../a.h"')
        # Finds the word "wrong", and notes what it was asked to read.
        self.program("clang-tidy", 'for file; do :; done; [[ -f $file ]] || { echo 14; exit; }; '
                                   'echo ${file##*/} >>asked; ! grep wrong "$file"')

    def program(self, name, text):
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def compile(self, flags):
        commands = [{"file": str(self.root / f"{name}.cpp"), "directory": str(self.root / "build"),
                     "command": f"c++ {flags} -o {name}.o -c ../{name}.cpp"} for name in "ab"]
        (self.root / "build/compile_commands.json").write_text(json.dumps(commands))

    def run_tidy(self):
        """Exit status, and the files that clang-tidy was asked to read."""
        asked = self.root / "asked"
        asked.write_text("")
        done = subprocess.run([sys.executable, TIDY, "build", "1", "a.cpp", "b.cpp"], cwd=self.root, capture_output=True,
                              text=True, env=os.environ | {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"})
        self.assertEqual(done.stderr, "")
        return done.returncode, asked.read_text().split()

    def test_what_passed_is_looked_at_again_only_when_something_changed(self):
        self.assertEqual(self.run_tidy(), (0, ["a.cpp", "b.cpp"]))
        self.assertEqual(self.run_tidy(), (0, []))
        (self.root / "a.h").write_text("// another\n")
        self.assertEqual(self.run_tidy(), (0, ["a.cpp"]))
        self.compile("-O3")
        self.assertEqual(self.run_tidy(), (0, ["a.cpp", "b.cpp"]))
        (self.root / ".clang-tidy").write_text("Checks: '*'\n")
        self.assertEqual(self.run_tidy(), (0, ["a.cpp", "b.cpp"]))

    def test_a_finding_fails_every_time_until_it_is_gone(self):
        (self.root / "b.cpp").write_text("wrong\n")
        self.assertEqual(self.run_tidy(), (1, ["a.cpp", "b.cpp"]))
        self.assertEqual(self.run_tidy(), (1, ["b.cpp"]))
        (self.root / "b.cpp").write_text("right\n")
        self.assertEqual(self.run_tidy(), (0, ["b.cpp"]))


if __name__ == "__main__":
    unittest.main()
