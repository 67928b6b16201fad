"""Corpora that scripts/prepare_data.py makes from packages."""

import contextlib
import io
import shutil
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path
from temporary import temp_folder
from unittest import mock

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

RFC = """


Network Working Group                                          A. Author
Request for Comments: 1                                       April 1969

                              A Title

Abstract

   The first paragraph goes
   over a page, and
   ends there.

   Field       Meaning
   Length      of the rest



Author                       Experimental                      [Page 1]
\f
RFC 1                           A Title                       April 1969


   +-----+
   | box |
   +-----+

   The last.  It has two sentences.



Author                       Experimental                      [Page 2]
"""


class Rfc(unittest.TestCase):
    def test_its_pages_are_joined_and_its_paragraphs_unwrapped(self):
        lines = prepare_data.paragraphs(RFC).split("\n")
        for whole in ("The first paragraph goes over a page, and ends there.", "   Length      of the rest", "   | box |",
                      "The last. It has two sentences."):
            self.assertIn(whole, lines)
        for part in ("[Page", "RFC 1 ", "\f", "\n\n"):
            self.assertNotIn(part, prepare_data.paragraphs(RFC))

    def test_each_is_a_document_and_later_ones_are_left_out(self):
        deb = DebianPackage().package("./a/rfc1.txt", "./a/rfc2.txt", "./a/rfc2.html", "./a/rfc99999.txt")
        with mock.patch("prepare_data.download", return_value=deb):
            documents = prepare_data.rfcs(Path()).decode().split("<|endoftext|>")
        self.assertEqual(sorted(documents), ["./a/rfc1.txt\n", "./a/rfc2.txt\n"])


class Texts(unittest.TestCase):
    def setUp(self):
        self.path = temp_folder(self) / "data/text.txt"

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


class DebianPackage(unittest.TestCase):
    def package(self, *names: str) -> bytes:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:xz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = len(name)
                tar.addfile(member, io.BytesIO(name.encode()))

        def member(name: str, data: bytes) -> bytes:
            return f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
        return b"!<arch>\n" + member("debian-binary", b"2.0") + member("data.tar.xz", archive.getvalue())

    def setUp(self):
        self.folder = temp_folder(self) / "unpacked"

    def test_its_files_are_unpacked_and_none_beside_the_folder(self):
        prepare_data.unpack(self.package("./usr/share/text", "../outside"), self.folder)
        self.assertEqual((self.folder / "usr/share/text").read_text(), "./usr/share/text")
        self.assertFalse((self.folder.parent / "outside").exists())

    @unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg-deb")
    def test_one_compressed_as_ubuntu_s_are_is_unpacked_too(self):
        tree, deb = self.folder.parent / "tree", self.folder.parent / "package.deb"
        prepare_data.write(tree / "DEBIAN/control",
                           b"Package: a\nVersion: 1\nArchitecture: all\nMaintainer: b\nDescription: c\n")
        prepare_data.write(tree / "usr/share/text", b"text")
        subprocess.run(["dpkg-deb", "-Zzstd", "--build", tree, deb], check=True, capture_output=True)
        prepare_data.unpack(deb.read_bytes(), self.folder)
        self.assertEqual((self.folder / "usr/share/text").read_text(), "text")
        with self.assertRaisesRegex(prepare_data.Unavailable, "dpkg-deb"):
            prepare_data.unpack(deb.read_bytes()[:-40], self.folder)
        with mock.patch("shutil.which", return_value=None):
            with self.assertRaisesRegex(prepare_data.Unavailable, "zstd.*install dpkg"):
                prepare_data.unpack(deb.read_bytes(), self.folder)

    def test_a_damaged_one_is_said_to_be(self):
        for damaged in (b"", b"!<arch>\n", self.package("./text")[:180]):
            with self.assertRaises(prepare_data.Unavailable):
                prepare_data.unpack(damaged, self.folder)

    def test_without_apt_it_comes_from_the_server(self):
        deb = self.package("./usr/share/text")
        with mock.patch("subprocess.run", side_effect=FileNotFoundError("apt-get")):
            with mock.patch("urllib.request.urlopen", return_value=io.BytesIO(deb)):
                self.assertEqual(prepare_data.download("package", self.folder, "main/package.deb"), deb)
            with mock.patch("urllib.request.urlopen", side_effect=OSError("no network")):
                with self.assertRaisesRegex(prepare_data.Unavailable, "apt-get.*no network"):
                    prepare_data.download("package", self.folder, "main/package.deb")
            with self.assertRaises(prepare_data.Unavailable):
                prepare_data.download("another", self.folder)


if __name__ == "__main__":
    unittest.main()
