"""The corpora that scripts/prepare_data.py makes of packages."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import prepare_data

DICTIONARY = """
00-database-info
   Converted on a Tuesday.

A \\A\\ (named [=a] in the English).
   The first letter of the English
   alphabet.
   [1913 Webster]

   2. (Mus.) The name of the sixth tone.

            A quotation.
                                                  --Milton.
      [Webster 1913 Suppl.]

Aam \\Aam\\, n.
   A Dutch and German measure of
   liquids [Obs.]
   and more.
"""


class Dictionary(unittest.TestCase):
    def test_its_entries_are_unwrapped_and_begin_with_a(self):
        self.assertEqual(prepare_data.unwrapped(DICTIONARY, "A \\A\\"),
                         "A \\A\\ (named [=a] in the English). The first letter of the English alphabet.\n\n"
                         "2. (Mus.) The name of the sixth tone.\n\nA quotation. --Milton.\n\n"
                         "Aam \\Aam\\, n. A Dutch and German measure of liquids [Obs.] and more.\n")


class Texts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "data/text.txt"

    def prepare(self, make):
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(io.StringIO()) as errors:
            there = prepare_data.prepare_text(self.path, "a-package", prepare_data.sha256(b"right"), make, "a text")
        return there, errors.getvalue()

    def test_a_text_is_made_once(self):
        self.assertTrue(self.prepare(lambda _: b"right")[0])
        self.assertEqual(self.path.read_bytes(), b"right")
        self.assertTrue(self.prepare(lambda _: self.fail("made again"))[0])

    def test_another_text_is_refused_and_what_is_there_stays(self):
        self.path.parent.mkdir()
        self.path.write_bytes(b"before")
        there, errors = self.prepare(lambda _: b"wrong")
        self.assertFalse(there)
        self.assertEqual(self.path.read_bytes(), b"before")
        for named in ("a-package", prepare_data.sha256(b"wrong"), "--data"):
            self.assertIn(named, errors)

    def test_a_package_that_cannot_be_had_is_named_in_a_line(self):
        def unavailable(_):
            raise prepare_data.Unavailable("apt-get: no network")
        there, errors = self.prepare(unavailable)
        self.assertFalse(there)
        self.assertRegex(errors, r"\Aerror: .*a-package.*apt-get: no network\n\Z")
        self.assertFalse(self.path.exists())


if __name__ == "__main__":
    unittest.main()
