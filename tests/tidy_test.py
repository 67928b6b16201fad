"""scripts/tidy.py: which files it checks, and which it skips."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from temporary import temp_folder

TIDY = Path(__file__).resolve().parent.parent / "scripts" / "tidy.py"


class Tidy(unittest.TestCase):
    def setUp(self):
        self.root = temp_folder(self)
        for name in (".clang-tidy", "a.cpp", "b.cpp", "a.h", "build/compile_commands.json"):
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text("")
        self.compile("-O2")
        # A compiler that lists a source's includes: a.h for a.cpp.
        self.program("c++", 'for file; do :; done; echo "$file.o: $file \\\\"; [[ $file != *a.cpp ]] || echo " ../a.h"')
        # A clang-tidy that finds the word "wrong" and notes the files it reads.
        self.program("clang-tidy", '[[ $1 != --version ]] || { echo 14; exit; }; '
                                   f'echo ${{2##*/}} >>{self.root}/asked; ! grep --with-filename --line-number wrong "$2"')

    def program(self, name, text):
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def compile(self, flags):
        commands = [{"file": str(self.root / f"{name}.cpp"), "directory": str(self.root / "build"),
                     "command": f"c++ {flags} -o {name}.o -c ../{name}.cpp"} for name in "ab"]
        (self.root / "build/compile_commands.json").write_text(json.dumps(commands))

    def compile_together(self):
        unity = self.root / "build/CMakeFiles/x.dir/Unity/unity_0_cxx.cxx"
        unity.parent.mkdir(parents=True)
        unity.write_text("".join(f'#include "{self.root / name}"\n' for name in ("a.cpp", "b.cpp", "build/made.cpp")))
        commands = [{"file": str(unity), "directory": str(self.root / "build"), "command": f"c++ -o unity.o -c {unity}"}]
        (self.root / "build/compile_commands.json").write_text(json.dumps(commands))

    def tidy(self, *files):
        (self.root / "asked").write_text("")
        return subprocess.run([sys.executable, TIDY, "build", "1", *files], cwd=self.root, capture_output=True, text=True,
                              env=os.environ | {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"})

    def run_tidy(self):
        """Runs tidy.py on a.cpp and b.cpp. Returns exit status and the files that clang-tidy read."""
        done = self.tidy("a.cpp", "b.cpp")
        self.assertEqual(done.stderr, "")
        return done.returncode, (self.root / "asked").read_text().split()

    def test_what_passed_is_looked_at_again_only_when_something_changed(self):
        self.assertEqual(self.run_tidy(), (0, ["a.cpp", "b.cpp"]))
        self.assertEqual(self.run_tidy(), (0, []))
        (self.root / "a.h").write_text("// another\n")
        self.assertEqual(self.run_tidy(), (0, ["a.cpp"]))
        self.compile("-O3")
        self.assertEqual(self.run_tidy(), (0, ["a.cpp", "b.cpp"]))
        (self.root / ".clang-tidy").write_text("Checks: '*'\n")
        self.assertEqual(self.run_tidy(), (0, ["a.cpp", "b.cpp"]))

    def test_what_passed_with_other_options_is_looked_at_again(self):
        for options in ([], ["--checks=-x"]):
            self.assertEqual(self.tidy(*options, "a.cpp").returncode, 0)
            self.assertEqual((self.root / "asked").read_text().split(), ["a.cpp"])

    def test_a_finding_fails_every_time_until_it_is_gone(self):
        (self.root / "b.cpp").write_text("wrong\n")
        self.assertEqual(self.run_tidy(), (1, ["a.cpp", "b.cpp"]))
        self.assertEqual(self.run_tidy(), (1, ["b.cpp"]))
        (self.root / "b.cpp").write_text("right\n")
        self.assertEqual(self.run_tidy(), (0, ["b.cpp"]))

    def test_what_is_compiled_together_is_looked_at_together(self):
        self.compile_together()
        (self.root / "a.cpp").write_text("#include <x>\nwrong\n")
        (self.root / "b.cpp").write_text("#include <x>\n#include <x>\nright\n")
        done = self.tidy("a.cpp")
        self.assertEqual((done.returncode, done.stdout), (1, f"{self.root}/a.cpp:2:wrong\n"))
        joined, = (self.root / "build/tidy").glob("*.cpp")
        # Includes that an earlier source has and files that the build made are left out; b.cpp's repetition is kept.
        self.assertEqual(joined.read_text(), "#include <x>\n#include <x>\nright\n\nwrong\n")
        (self.root / "a.cpp").write_text("right\n")
        self.assertEqual([self.run_tidy() for _ in range(2)], [(0, [joined.name]), (0, [])])
        (self.root / "b.cpp").write_text("other\n")
        self.assertEqual(self.run_tidy(), (0, [joined.name]))

    def test_trainers_are_looked_at_together(self):
        classes = [line.split()[2] for line in self.joined_of("variants").splitlines() if line.startswith("#define Gpt2Trainer ")]
        self.assertEqual(len(set(classes)), 2, "each class has a name of its own")

    def joined_of(self, place: str) -> str:
        """The one file that two sources of a folder become, of which the first is wrong."""
        names, folder = (f"{place}/a.cpp", f"{place}/b.cpp"), self.root / "build"
        (self.root / place).mkdir(parents=True)
        commands = [{"file": str(self.root / name), "directory": str(folder),
                     "command": f"c++ -o x.o -c {self.root / name}"} for name in names]
        (folder / "compile_commands.json").write_text(json.dumps(commands))
        (self.root / names[0]).write_text("#include <x>\nwrong\n")
        (self.root / names[1]).write_text("#include <x>\nright\n")
        done = self.tidy(*names)
        self.assertEqual((done.returncode, done.stdout), (1, f"{self.root}/{names[0]}:2:wrong\n"))
        joined, = (folder / "tidy").glob("*.cpp")
        self.assertEqual((self.root / "asked").read_text().split(), [joined.name])
        return joined.read_text()

    def test_a_file_that_is_not_compiled_is_named(self):
        done = self.tidy("a.cpp", "nowhere.cpp")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere.cpp", done.stderr)


if __name__ == "__main__":
    unittest.main()
