"""README and docs/: links lead somewhere, and commands parse."""

import re
import subprocess
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-") for heading in headings}


class Docs(unittest.TestCase):
    def test_every_link_leads_to_a_file_and_a_heading(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
                with self.subTest(page=page.name, target=target):
                    path, _, anchor = target.partition("#")
                    if path.startswith(("https:", "http:")):
                        continue
                    file = page.parent / path if path else page
                    self.assertTrue(file.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(file))

    def test_every_command_parses(self):
        for page in PAGES:
            for text in re.findall(r"^```(?:sh|slurm)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
                with self.subTest(page=page.name, text=text):
                    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
                    self.assertEqual((checked.returncode, checked.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
