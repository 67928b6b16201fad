#!/usr/bin/env python3
"""The ladder of learning in PyTorch: the same algorithms with all that PyTorch's 13_cuda_graphs has, measured and reported
like a rung's executable.

Batches, clock and events are those of pytorch_ladder.py.
"""

from pathlib import Path

import peer
import pytorch_ladder
from peer import UnsupportedError
from pytorch_ladder import COMPILE_MODES, checked, missing, rungs_of

HERE = Path(__file__).resolve().parent
RUNGS = rungs_of("pytorch_learning.json")
FILES = (HERE / "pytorch_learning.py", HERE / "learning_gpt2.py")


def parse(arguments: list[str]):
    parser = pytorch_ladder.parser_of("pytorch_learning", __doc__, RUNGS, pytorch_ladder.source_hash(*FILES))
    parser.add_choices(("dtype", ("auto", "bf16", "fp16"), "of mixed precision; fp16 is unsupported"), ("compile-mode", COMPILE_MODES, "torch.compile's"))
    return checked(parser.parsed(arguments))


def features_of(settings, device):
    """The changes that the rung makes. Raises UnsupportedError for what the device lacks."""
    import torch
    from learning_gpt2 import Changes
    if lacks := missing(device):
        raise UnsupportedError(lacks)
    if settings.dtype == "fp16":
        raise UnsupportedError("PyTorch's ladder of learning trains in bf16 alone: leave --dtype fp16 out")

    def made(change: str) -> bool:
        """Whether the rung makes it: a step of the ladder that is at or below the rung, or the rung itself."""
        return change == settings.rung or change[0].isdigit() and change < settings.rung

    return Changes(tf32=True, fused_adamw=True, pinned=True, half=torch.bfloat16, compile=settings.compile_mode, flash=True,
                   attention=settings.attention, padded=True, shape_padding=True, muon=made("01_muon"),
                   qk_norm=made("02_qk_norm"), rotary=made("03_rotary"), zero_projections=made("zero_projections"),
                   relu_squared=made("relu_squared"), soft_cap=made("soft_cap"), untied_head=made("untied_head"))


class Run(pytorch_ladder.Run):
    rungs, several, files = RUNGS, None, FILES
    recorded = tuple(name for name in pytorch_ladder.Run.recorded if name != "parameters")
    features_of = staticmethod(features_of)


if __name__ == "__main__":
    pytorch_ladder.leave(peer.main("pytorch_learning.py", lambda announce: pytorch_ladder.run(announce, parse, Run)))
