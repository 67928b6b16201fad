#!/usr/bin/env python3
"""Raschka's ten steps (LLMs-from-scratch, ch05/10_llm-training-speed) as he took them, measured as a ladder.

His model, optimizer and order; batches, clock and events as pytorch_ladder.py has them. The rate is constant, the
gradient is not clipped, and weight decay is of all parameters.
"""

from pathlib import Path

import peer
import pytorch_ladder
from peer import UnsupportedError
from pytorch_ladder import checked, missing, rungs_of

HERE = Path(__file__).resolve().parent
RUNGS = rungs_of("raschka.json")
FILES = (HERE / "raschka_ladder.py", HERE / "raschka_gpt2.py")


def parse(arguments: list[str]):
    parser = pytorch_ladder.parser_of("raschka_ladder", __doc__, RUNGS, pytorch_ladder.source_hash(*FILES))
    parser.set_defaults(lr=5e-4, warmup_lr_steps=0, beta2=0.999, grad_clip=0.0, batch=8)
    return checked(parser.parsed(arguments))


def features_of(settings, device):
    """The features that the step switches on here. Raises UnsupportedError for what the device lacks."""
    import torch
    from raschka_gpt2 import Steps

    def climbed(rung: str) -> bool:
        return settings.rung >= rung

    if climbed("02_tensor_cores") and (lacks := missing(device)):
        raise UnsupportedError(lacks)
    pure = climbed("05_bf16")
    return Steps(tf32=climbed("02_tensor_cores"), fused_adamw=climbed("03_fused_adamw"),
                 pinned=climbed("04_pinned_memory"), half=torch.bfloat16 if pure else None, pure=pure,
                 compile="default" if climbed("08_compile") else "", shape_padding=climbed("08_compile"),
                 flash=climbed("07_flash_attention"), attention=settings.attention, padded=climbed("09_vocab50304"),
                 stored_mask=not climbed("01_mask_on_the_fly"), native=climbed("06_native_layernorm_gelu"))


class Run(pytorch_ladder.Run):
    name, rungs, several, files = "raschka-pytorch", RUNGS, "11_ddp", FILES
    recorded = tuple(name for name in pytorch_ladder.Run.recorded if name != "parameters")
    features_of = staticmethod(features_of)


if __name__ == "__main__":
    pytorch_ladder.leave(peer.main("raschka_ladder.py", lambda announce: pytorch_ladder.run(announce, parse, Run)))
