"""Pinned requirements: scripts/requirements*.txt have the packages that the .in files beside them name, each with its
hashes. The project's version is equal in the three files that have it."""

import re
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


class Requirements(unittest.TestCase):
    def test_what_is_asked_for_is_what_is_pinned(self) -> None:
        for asked in sorted(SCRIPTS.glob("requirements*.in")):
            names = set(re.findall(r"^([\w.-]+)", asked.read_text(), re.MULTILINE))
            pinned = re.split(r"^(?=[\w.-]+==)", asked.with_suffix(".txt").read_text(), flags=re.MULTILINE)[1:]
            self.assertEqual(names, {block.split("==")[0] for block in pinned if f"-r scripts/{asked.name}" in block})
            for block in pinned:
                self.assertIn("--hash=sha256:", block)

    def test_the_version_is_the_same_everywhere(self) -> None:
        versions = {re.search(pattern, SCRIPTS.parent.joinpath(file).read_text(), re.MULTILINE)[1]
                    for file, pattern in (("CMakeLists.txt", r"VERSION ([\d.]+) LANGUAGES"),
                                          ("CITATION.cff", r"^version: ([\d.]+)"),
                                          ("examples/stepladder.ipynb", r'VERSION = \\"([\d.]+)'))}
        self.assertEqual(len(versions), 1, versions)


if __name__ == "__main__":
    unittest.main()
