"""Runs examples/stepladder.ipynb on the CPU with the built command: cell by cell in one Python, without Jupyter."""

import json
import os
import re
import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path
from temporary import temp_folder

REPOSITORY = Path(__file__).resolve().parent.parent
NOTEBOOK = json.loads((REPOSITORY / "examples/stepladder.ipynb").read_text())
SMALL = 'options = "--backend cpu --preset cpu-quick --rungs 00-02 --steps 3 --warmup 1 --rounds 1"'
JUPYTER = """
import subprocess, sys, types
display = sys.modules["IPython.display"] = types.ModuleType("IPython.display")
display.HTML = display.Markdown = lambda text: print(text.strip()[:20])
sys.modules["IPython"] = types.ModuleType("IPython")
def shell(command): subprocess.run(command, shell=True, check=True)
"""


def python_of(cell: dict) -> str:
    """A cell as Python: a magic that writes a file, lines of shell behind a `!`, or Python code."""
    source = "".join(cell["source"])
    if source.startswith("%%writefile "):
        first, _, text = source.partition("\n")
        return f"open({first.split()[1]!r}, 'w').write({text!r})"
    python = re.sub(r"^( *)!(.*)", lambda line: f"{line[1]}shell(f{line[2]!r})", source, flags=re.M)
    return f"{python}\n{SMALL}" if "parameters" in cell["metadata"].get("tags", []) else python


def execute(cells: list, folder: str) -> subprocess.CompletedProcess:
    binaries = os.environ["STEPLADDER_BIN"]
    # The environment has what the installed package has: the command and the module.
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "STEPLADDER_PYTHON": sys.executable,
                   "PYTHONPATH": str(REPOSITORY / "python/trainer")}
    script = "\n".join([JUPYTER, *map(python_of, cells)])
    return subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)


class Notebook(unittest.TestCase):
    def setUp(self):
        self.folder = temp_folder(self)
        code = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
        at = next(i for i, cell in enumerate(code) if cell["source"][0].startswith("%%writefile train.py"))
        self.ladder, self.own = code[:at], code[at:]

    def assert_made(self, done: subprocess.CompletedProcess, *files: str) -> None:
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for file in files:
            self.assertTrue((self.folder / file).stat().st_size, file)

    @unittest.skipUnless(all(map(find_spec, ("jinja2", "jsonschema", "matplotlib"))), "packages are not installed: jinja2, matplotlib")
    def test_it_climbs_and_shows_the_page_and_the_published_table(self):
        done = execute(self.ladder, self.folder)
        self.assert_made(done, "ladder.jsonl", "page/index.html", "page/published.md")
        for shown in ("01_causal_mask", "<iframe", "# "):
            self.assertIn(shown, done.stdout)

    @unittest.skipUnless(find_spec("torch"), "no torch")
    def test_a_trainer_of_ones_own_is_measured(self):
        done = execute([{"source": ["import sys\n", "from pathlib import Path"], "metadata": {}}, *self.own], self.folder)
        self.assert_made(done, "mine.jsonl")
        self.assertIn("01_foreach", done.stdout)

    def test_it_is_kept_without_output_and_names_one_repository(self):
        self.assertFalse(any(cell.get("outputs") for cell in NOTEBOOK["cells"]))
        text = "".join("".join(cell["source"]) for cell in NOTEBOOK["cells"])
        named = re.search(r'^REPOSITORY = "(.+)"$', text, re.M)[1]
        self.assertEqual(re.findall(r"colab\.research\.google\.com/github/([^/]+/[^/]+)/", text), [named])


if __name__ == "__main__":
    unittest.main()
