#!/usr/bin/env python3
"""Which sources a trainer's numbers depend on, and a hash over them.

Usage: source_hash.py FOLDER NAME=FILE...   writes the headers that the build includes into trainers, FOLDER/NAME.h: the
                                            NAME, and the hash of FILE's sources.
       source_hash.py --gemms OUT           writes a header with the hash of the sources that the choice of GEMMs depends
                                            on.
Leaves a header alone where it says so already.

The hash of a trainer is over: its file; for each op that it names, or that a part of model/ that it includes names, the
header in model/ops/ and the files that run the op, and likewise the files that run collectives; all files that these
include; and, for every trainer, the files that belong to no op.
"""

import hashlib
import re
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
LITERAL_OR_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\[^'\n]+|[^'\\\n])')|//.*""")
BACKENDS = ("model/cpu/cpu.h", "model/cuda/cuda.h")  # what defines these counts for every trainer


class Model:
    """The sources in model/ of a checkout, and how they depend on each other."""

    def __init__(self, root: Path) -> None:
        paths = [path for path in root.glob("model/**/*") if path.suffix in (".h", ".cuh", ".cpp", ".cu")]
        self.text = {path.relative_to(root).as_posix(): code(path.read_bytes()) for path in sorted(paths)}
        self.header_of = {name: file for file, text in self.text.items() if file.startswith("model/ops/")
                          for name in re.findall(r"^(?:struct|class|enum class) (\w+) ", text, re.M)
                          if PurePosixPath(file).name != "op.h"}
        self.ops_in = {file: set(re.findall(r"\b(\w+)::run\((?:Cpu|Cuda)&", text)) for file, text in self.text.items()}
        for file, text in self.text.items():  # collectives count for a trainer that names them
            if re.search(r"\bfinal : public Collectives\b", text):
                self.ops_in[file].add("Collective")
        self.included = {file: [name for name in includes(text) if name in self.text]
                         for file, text in self.text.items()}
        self.sources = [file for file in self.text if file.endswith((".cpp", ".cu"))]
        self.defining = {file: self._defining(file) for file in self.text if file.endswith(".h")}
        self.of_all = [file for file in self.sources if not self.ops_in[file] and not self._is_private(file)]
        self.of_all += [file for header in BACKENDS for file in self.defining.get(header, ())
                        if "Collective" not in self.ops_in[file]]

    def _defining(self, header: str) -> list[str]:
        """The sources that hold what a header declares: its functions, its classes' members."""
        names = re.findall(r"^(?!#)[^;\s][^;(]*\b(\w+)\(", self.text[header], re.M)
        classes = re.findall(r"^(?:class|struct) (\w+)", self.text[header], re.M)
        these = "|".join([*names, *(rf"{name}::~?\w+" for name in classes)])
        begins = re.compile(rf"^(?!#)\S[^;\n]*\b(?:{these})\(", re.M)
        using = [file for file in self.sources if header in self.included[file]]
        return [file for file in using if these and begins.search(self.text[file])]

    def _is_private(self, source: str) -> bool:
        """Whether only files with ops use this source, which has none: it then counts where one of these files does."""
        for header, defining in self.defining.items():
            users = [file for file in self.sources if header in self.included[file] and file not in defining]
            if source in defining and users and all(self.ops_in[file] for file in users):
                return True
        return False

    def counted(self, text: str) -> list[str]:
        """Files of model/ that the numbers of a trainer of this text depend on."""
        files: set[str] = set()
        called: set[str] = set()

        def call(source: str) -> None:
            if source in called:
                return
            called.add(source)
            self._add(source, files)
            for header in set(self.included[source]).difference(BACKENDS):
                for file in self.defining.get(header, ()):
                    call(file)

        for file in self.of_all:
            self._add(file, files)
        own = [name for name in includes(text) if name in self.text]
        words = set(re.findall(r"\w+", " ".join([text, *(self.text[file] for header in own
                                                         for file in (header, *self.defining.get(header, ())))])))
        for name in words & self.header_of.keys():
            self._add(self.header_of[name], files)
        for file, ops in self.ops_in.items():
            if ops & words:
                call(file)
        return sorted(files)

    def gemms(self) -> list[str]:
        """Files of model/ that decide which algorithm a search of GEMMs chooses: the search, the ops that it times, and
        those that these run before and after a product."""
        header = "model/cuda/matmul_plans.h"
        timed = [file for file in self.sources if header in self.included[file] and self.ops_in[file]]
        words = set(re.findall(r"\w+", " ".join(self.text[file] for file in timed)))
        files: set[str] = set()
        for file in [*timed, *self.defining.get(header, ())]:
            self._add(file, files)
        for name in words & self.header_of.keys():
            self._add(self.header_of[name], files)
        for file, ops in self.ops_in.items():
            if file.startswith("model/cuda/") and ops & words:
                self._add(file, files)
        return sorted(files)

    def _add(self, file: str, files: set[str]) -> None:
        """Adds a file and the files it includes, but not the ops that model/ops.h includes, since it includes all ops."""
        if file not in files:
            files.add(file)
            for name in self.included[file]:
                if file != "model/ops.h" or name not in self.header_of.values():
                    self._add(name, files)


def code(data: bytes) -> str:
    """Source text without comments, which change no number and may name any op, and without empty lines."""
    text = LITERAL_OR_COMMENT.sub(lambda found: found[1] or "", data.decode(errors="replace"))
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def includes(text: str) -> list[str]:
    return re.findall(r'^#include "(model/[^"]+)"', text, re.M)


def hash_of(parts: list[str]) -> str:
    """SHA-256 over the SHA-256s of the parts."""
    return hashlib.sha256("".join(hashlib.sha256(part.encode()).hexdigest() for part in parts).encode()).hexdigest()


def source_hash(file: Path, model: Model) -> str:
    """The hash of a trainer's file and of the files of model/ that count for it."""
    text = code(file.read_bytes())
    return hash_of([text, *(model.text[name] for name in model.counted(text))])


def gemm_hash(model: Model) -> str:
    """The hash of the files that a search of GEMMs times or is made of: other kernels don't change its choices."""
    return hash_of([model.text[name] for name in model.gemms()])


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(first: str, *others: str) -> None:
    model = Model(ROOT)
    if first == "--gemms":
        write(Path(*others), f'#define STEPLADDER_GEMMS "{gemm_hash(model)}"\n')
        return
    for name, file in (trainer.split("=", 1) for trainer in others):
        digest = source_hash(Path(file), model)
        write(Path(first, f"{name}.h"),
              f'#define STEPLADDER_RUNG_NAME "{name}"\n#define STEPLADDER_SOURCE_HASH "{digest}"\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
