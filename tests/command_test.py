"""What the installed package's command does before it starts the program (python/stepladder/command.py)."""

import ast
import contextlib
import importlib.util
import io
import os
import stat
import sys
import unittest
from pathlib import Path
from temporary import temp_folder
from unittest import mock

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "python/stepladder/command.py"
spec = importlib.util.spec_from_file_location("command", SOURCE)
command = importlib.util.module_from_spec(spec)
spec.loader.exec_module(command)


class Started(Exception):
    """Raised in place of starting the program."""


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = temp_folder(self)
        (self.folder / "work").mkdir()
        before = Path.cwd()
        os.chdir(self.folder / "work")
        self.addCleanup(os.chdir, before)
        self.scripts = self.folder / "home/share/stepladder/scripts"
        self.scripts.mkdir(parents=True)
        self.prepare("Path(sys.argv[2], 'austen.txt').write_text('a text')")
        self.cache = self.folder / "cache/stepladder/data"
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        environment.pop("STEPLADDER_PYTHON", None)
        for patch in (mock.patch.object(command, "HOME", self.folder / "home"), mock.patch.dict(os.environ, environment, clear=True),
                      mock.patch("os.execv", side_effect=Started)):
            patch.start()
            self.addCleanup(patch.stop)

    def prepare(self, code: str) -> None:
        """Writes a stand-in for the script that fetches the data."""
        (self.scripts / "prepare_data.py").write_text(f"import sys\nfrom pathlib import Path\n{code}\n")

    def run_command(self, *arguments: str):
        """The exit status (None where the program was started) and stderr."""
        with mock.patch.object(sys, "argv", ["stepladder", *arguments]), contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                status = command.main()
            except Started:
                status = None
        return status, said.getvalue()

    def assert_refused(self, status: int, *words: str, arguments=("list",)) -> None:
        got, said = self.run_command(*arguments)
        self.assertEqual(got, status, said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(word, said)

    def test_the_program_is_started_with_this_python(self):
        self.assertEqual(self.run_command("list", "--wide"), (None, ""))
        os.execv.assert_called_once_with(self.folder / "home/bin/stepladder", ["stepladder", "list", "--wide"])
        self.assertEqual(os.environ["STEPLADDER_PYTHON"], sys.executable)
        os.environ["STEPLADDER_PYTHON"] = "mine"
        self.run_command("list")
        self.assertEqual(os.environ["STEPLADDER_PYTHON"], "mine")

    def test_an_older_glibc_another_libc_and_another_architecture_are_refused(self):
        with mock.patch("os.confstr", return_value="glibc 2.31"):
            self.assert_refused(5, "2.34", "2.31")
        with mock.patch("os.confstr", return_value="glibc 2.9"):
            self.assert_refused(5, "2.34", "2.9")
        with mock.patch("os.confstr", side_effect=ValueError):
            self.assert_refused(5, "2.34", "another libc")
        with mock.patch("os.confstr", return_value="glibc 2.100"):
            self.assertEqual(self.run_command("list"), (None, ""))
        with mock.patch("platform.machine", return_value="aarch64"):
            self.assert_refused(5, "x86_64", "aarch64")

    def test_an_older_python_has_no_page(self):
        with mock.patch.object(sys, "version_info", (3, 9, 2)):
            status, said = self.run_command("report", "r.jsonl")
        self.assertIsNone(status)
        self.assertEqual(said.count("\n"), 1)
        self.assertIn("3.10", said)
        self.assertNotIn("STEPLADDER_PYTHON", os.environ)
        for source in (SOURCE, SOURCE.with_name("__init__.py"), SOURCE.with_name("__main__.py")):
            ast.parse(source.read_text(), feature_version=(3, 9))

    def test_data_is_fetched_before_the_first_run_alone(self):
        for arguments in (["run", "--steps", "3"], ["run", "--ladder=learning"], ["tune", "--ladder", "learning"], ["calibrate"]):
            status, said = self.run_command(*arguments)
            self.assertIsNone(status)
            self.assertIn(str(self.cache), said)
            self.assertEqual((self.cache / "austen.txt").read_text(), "a text")
            self.assertEqual(self.run_command("run"), (None, ""))
            (self.cache / "austen.txt").unlink()

    def test_what_needs_no_text_fetches_none(self):
        for arguments in ([], ["list"], ["report", "r.jsonl"], ["run", "--data", "mine.txt"], ["run", "--data=mine.txt"],
                          ["run", "--ladder", "mine.json"], ["run", "--help"], ["run", "--help-all"]):
            self.assertEqual(self.run_command(*arguments), (None, ""), arguments)
        Path("data").mkdir()
        Path("data/austen.txt").write_text("here")
        self.assertEqual(self.run_command("run"), (None, ""))
        self.assertFalse(self.cache.exists())

    def test_a_cache_folder_that_cannot_be_written_is_named(self):
        (self.folder / "cache").write_text("a file")
        self.assert_refused(2, str(self.cache), "XDG_CACHE_HOME", "--data", arguments=["run"])
        (self.folder / "cache").unlink()
        self.cache.mkdir(parents=True)
        self.cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
        if os.geteuid() != 0:  # root ignores permissions
            self.assert_refused(2, str(self.cache), "XDG_CACHE_HOME", arguments=["run"])

    def test_a_text_that_cannot_be_had_ends_it(self):
        self.prepare("sys.exit(1)")
        status, said = self.run_command("run")
        self.assertEqual(status, 5)
        self.assertIn("--data", said)


if __name__ == "__main__":
    unittest.main()
