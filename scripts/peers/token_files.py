"""Token files as model/data.h has them: which files --data names, where a file holds its tokens, and which tokens a
batch has."""

import glob
import os
import re
from array import array
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import peer
from peer import InputError

VOCABULARY = 50257
LLMC_LAYOUT, LLMC_MAGIC, LLMC_HEADER = "llm.c's .bin", 20240520, 1024  # bytes
NPY_MAGIC = b"\x93NUMPY"
SAMPLE = 4096  # bytes


# ---- which files -----------------------------------------------------------------------------------------------------


def files_of(path: str) -> tuple[list[Path], list[Path]]:
    """Files to train on and for validation that a file, folder or glob pattern names, each sorted by name."""
    found = peer.shipped(path)
    if found.is_dir():
        files = [file for file in found.iterdir()
                 if file.suffix in (".bin", ".npy") and not file.name.startswith(".")]
        if not files:
            raise InputError(f"{path}: no token file (.bin, .npy) in this folder; name one that has some")
    elif found.exists() or not re.search(r"[*?[]", path):
        return [found], []
    else:
        files = [Path(file) for file in glob.glob(path)]
        if not files:
            raise InputError(f"{path}: no file matches this pattern; check the path")
    files.sort(key=lambda file: str(file).encode())
    validation = [file for file in files if re.search(r"(?<![a-zA-Z0-9])val(?![a-zA-Z0-9])", file.stem)]
    return [file for file in files if file not in validation], validation


def data_files(data: str, val_data: str) -> tuple[list[Path], list[Path]]:
    """Files to train on and for validation; no validation files where its tokens are a part of the training files."""
    train, validation = files_of(data)
    if not train:
        raise InputError(f"{data}: {validation[0]} is for validation by name, none is left to train on; name training "
                         "files too")
    if val_data:
        others, validation = files_of(val_data)
        validation = validation or others
    return train, validation


# ---- their tokens ----------------------------------------------------------------------------------------------------


class Shard(NamedTuple):
    """Tokens [begin, begin + size) of a file, which holds its first at byte `offset`."""

    path: Path
    layout: str
    offset: int
    begin: int
    size: int

    def read(self, opened, first: int, count: int):
        """The shard's `count` tokens from the `first` on, as an array, read from the opened file."""
        import numpy as np
        raw = os.pread(opened.fileno(), 2 * count, self.offset + 2 * (self.begin + first))
        if len(raw) < 2 * count:
            raise InputError(f"{self.path}: has become shorter; write it again, and leave it alone while a run reads")
        return np.frombuffer(raw, "<u2")


def bytes_per_token(sample: bytes) -> int:
    """2, unless raw tokens look like integers of 4 or 8 bytes: every second uint16 is 0, or three of four."""
    words = array("I", sample[:len(sample) // 4 * 4])
    nonzero = sum(word != 0 for word in words)
    if len(sample) < 32 or max(words) > 0xFFFF:
        return 2
    if 2 * nonzero > len(words):
        return 4
    return 8 if not any(words[1::2]) and 4 * nonzero > len(words) else 2


def check_is_raw(path: Path, head: bytes, tail: bytes, file_bytes: int) -> None:
    """Raises InputError for text, and for tokens of more than two bytes."""
    if head.startswith(b"version https://git-lfs."):
        raise InputError(f"{path}: is a Git LFS pointer; `git lfs pull` in its repository gets the file itself")
    if re.match(rb"\s*<(!doctype )?html", head, re.IGNORECASE):
        raise InputError(f"{path}: is an HTML page; download the file itself, and look at the address")
    if not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", head):
        raise InputError(f"{path}: is text: call it {path.stem}.txt, and its tokens are trained on")
    width = bytes_per_token(head)
    if width > 2 and file_bytes % width == 0 and bytes_per_token(tail) == width:
        raise InputError(f"{path}: seems to be int{8 * width} tokens; write them as uint16")


def open_shard(path: Path) -> Shard:
    """The tokens of a file, found by reading no more than its ends. Raises InputError."""
    try:
        with path.open("rb") as opened:
            header = opened.read(SAMPLE)
            file_bytes = opened.seek(0, 2)
            opened.seek(max(0, file_bytes - SAMPLE) // 8 * 8)
            tail = opened.read(SAMPLE)
        if header.startswith(NPY_MAGIC):
            import numpy as np
            tokens = np.load(path, mmap_mode="r", allow_pickle=False)
            if tokens.dtype != np.dtype("<u2") or tokens.ndim != 1:
                raise InputError(f"{path}: .npy is not a vector of uint16 ('<u2'); save tokens as such")
            return Shard(path, ".npy", tokens.offset, 0, len(tokens))
        if path.suffix == ".npy":
            raise InputError(f"{path}: does not begin as .npy does; write it again with numpy.save")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if int.from_bytes(header[:4], "little") == LLMC_MAGIC:
        version, size = int.from_bytes(header[4:8], "little"), int.from_bytes(header[8:12], "little")
        if version != 1 or file_bytes != LLMC_HEADER + 2 * size:
            raise InputError(f"{path}: damaged, or not llm.c's version 1: its header says {size} tokens of version "
                             f"{version}, there are {(file_bytes - LLMC_HEADER) // 2}")
        return Shard(path, LLMC_LAYOUT, LLMC_HEADER, 0, size)
    if file_bytes:
        check_is_raw(path, header, tail, file_bytes)
    if not file_bytes or file_bytes % 2:
        raise InputError(f"{path}: {file_bytes} bytes are no uint16 tokens; write it again")
    return Shard(path, "raw uint16", 0, 0, file_bytes // 2)


def open_shards(files: list[Path], vocab: str) -> list[Shard]:
    texts = [file for file in files if file.suffix == ".txt"]
    if texts and len(files) > 1:
        raise InputError(f"{texts[0]}: a text is trained on by itself; leave it out, or name it alone")
    try:
        shards = [open_shard(peer.tokenised(file, vocab) if texts else file) for file in files]
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    for shard in shards:
        if shard.layout != shards[0].layout:
            raise InputError(f"{shard.path}: is {shard.layout}, but {shards[0].path} is {shards[0].layout}; one of "
                             "them is damaged, or they are not of one text")
    return shards


def open_data(settings) -> tuple[list[Shard], list[Shard]]:
    """Shards to train on and for validation: without validation files, the last file, or the last tenth of a single one."""
    train_files, val_files = data_files(settings.data, settings.val_data)
    train = open_shards(train_files, settings.vocab)
    if val_files:
        return train, open_shards(val_files, settings.vocab)
    if len(train) > 1:
        return train[:-1], train[-1:]
    held_out = train[0].size // 10
    cut = train[0].size - held_out
    return [train[0]._replace(size=cut)], [train[0]._replace(begin=cut, size=held_out)]


# ---- their order -----------------------------------------------------------------------------------------------------


def random_bits(seed: int, counter: int) -> int:
    """The random bits of model/random.h."""
    mask = 2**64 - 1
    z = (seed * 0xD1342543DE82EF95 + (counter + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def permutation(count: int, seed: int) -> list[int]:
    order = list(range(count))
    for i in range(count, 1, -1):
        j = random_bits(seed, i) % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


class Windows:
    """The B sequences of a batch, (B,T+1) tokens, by the batch's index, as model/data.h's Loader has them."""

    def __init__(self, shards: list[Shard], B: int, T: int, seed: int | None = None):
        self.shards, self.B, self.T, self.seed = shards, B, T, seed
        self.counts = [(shard.size - 1) // (B * T) for shard in shards]
        self.epoch_size = sum(self.counts)
        self.epoch = self.turn = None

    def __getitem__(self, index: int):
        import numpy as np
        epoch, batch = divmod(index, self.epoch_size)
        if epoch != self.epoch:
            self.begin_epoch(epoch)
        turn = bisect_right(self.first, batch) - 1
        shard = self.order[turn]
        if turn != self.turn:
            self.begin_shard(turn, shard)
        first = (batch - self.first[turn]) * self.B
        with self.shards[shard].path.open("rb", buffering=0) as opened:
            sequences = np.stack([self.shards[shard].read(opened, at * self.T, self.T + 1)
                                  for at in self.sequences[first:first + self.B]])
        if sequences.max() >= VOCABULARY:
            raise InputError(f"{self.shards[shard].path}: token {sequences.max()} is outside the vocabulary of "
                             f"{VOCABULARY}")
        return sequences

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self.turn, self.order = epoch, None, range(len(self.shards))
        if self.seed is not None:
            self.epoch_seed = random_bits(self.seed, epoch)
            self.order = permutation(len(self.shards), self.epoch_seed)
        self.first = [0, *accumulate(self.counts[shard] for shard in self.order)][:-1]

    def begin_shard(self, turn: int, shard: int) -> None:
        self.turn, self.sequences = turn, range((self.shards[shard].size - 1) // self.T)
        if self.seed is not None:
            shard_seed = random_bits(self.epoch_seed, len(self.shards) + 1 + shard)
            self.sequences = permutation(len(self.sequences), shard_seed)
