#!/usr/bin/env python3
"""Writes tests/data/tokenizer_cases.json: texts and their tokens by OpenAI's tiktoken, and the number and hash of the
corpus's tokens; and tokens.npy by numpy.

Needs tiktoken and numpy, and what scripts/prepare_data.py prepares.
"""

import json
from pathlib import Path

import numpy as np
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

REPOSITORY = Path(__file__).resolve().parents[2]
VOCABULARY = REPOSITORY / "data" / "gpt2"
OUT = REPOSITORY / "tests" / "data"

TEXTS = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "It's they're I've I'm we'll he'd DON'T IT'S can''t 's",
    "  leading, trailing  and   inner    blanks  ",
    "tabs\tand\t\ttabs \t mixed\r\nlines\n\n\n  indented\n\tmore",
    "non-breaking\u00a0space, thin\u2009space, ideographic\u3000space, line\u2028separator, next\u0085line \u0085x",
    "no space: U+180E \u180e here, U+200B \u200b there, U+001C \x1c too",
    "control \x00\x01\x02\x7f bytes",
    "12345 3.14159 1,000,000 \u00bd \u2167 \u0661\u0662\u0663 x\u00b2",
    "na\u00efve caf\u00e9 cafe\u0301 stra\u00dfe \u0130stanbul",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1eb\U0001f1f7 \u2764\ufe0f\U0001f44d\U0001f3fd",
    "\U0001d504\U0001d505 \U00010348 \ufffd \ufeffBOM",
    "<|endoftext|> is plain text here",
    "def f(x):\n    return {'a': [x**2, \"b\"], 'c': lambda y: y != x}  # comment\n",
    "https://example.org/a_b?c=d&e=%20f#g",
    "!!!???...---___===",
    "a" * 1000,
    "ab" * 500 + " " + "\u00e9" * 300,
    " " * 257 + "x" + "\n" * 65,
    "Pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    " SolidGoldMagikarp petertodd rawdownloadcloneembedreportprint",
]


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main() -> None:
    ranks = data_gym_to_mergeable_bpe_ranks(str(VOCABULARY / "vocab.bpe"), str(VOCABULARY / "encoder.json"))
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    gpt2 = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    OUT.mkdir(parents=True, exist_ok=True)
    cases = [json.dumps({"text": text, "tokens": gpt2.encode_ordinary(text)}) for text in TEXTS]
    corpus = (REPOSITORY / "data" / "austen.txt").read_text(encoding="utf-8")
    tokens = gpt2.encode(corpus, allowed_special="all")
    summary = json.dumps({"tokens": len(tokens), "fnv1a": fnv1a(np.array(tokens, "<u2").tobytes())})
    lines = ",\n".join(cases)
    (OUT / "tokenizer_cases.json").write_text(f'{{"corpus": {summary},\n"texts": [\n{lines}\n]}}\n')
    np.save(OUT / "tokens.npy", np.arange(100, 164, dtype=np.uint16))


if __name__ == "__main__":
    main()
