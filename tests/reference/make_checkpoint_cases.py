#!/usr/bin/env python3
"""Trains GPT-2 for a few steps with PyTorch's AdamW, and writes what a reproduction needs, to --out:

model.safetensors, config.json   the weights before the first step, as Hugging Face saves them
tokens.bin                       the batches, one after the other, in llm.c's format
losses.json                      hyperparameters, and each step's loss and gradient norm before clipping

The default is the tiny model under tests/data/hf_parity. The same for GPT-2 124M on a GPU, at a
rate at which rounding doesn't grow from step to step:

    make_checkpoint_cases.py --model gpt2 --device cuda --batch 4 --seq 1024 --lr 1e-4 --out /tmp/hf_parity

Needs torch and transformers. Trains in f64, since PyTorch's norm of large f32 tensors on a CPU is off by 1e-4. Weights
are random, biases and LayerNorm too, so that no two tensors can be confused unseen.
"""

import argparse
import json
import struct
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

MODELS = {
    "tiny": {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 128, "n_positions": 16, "initializer_range": 0.2,
             "bos_token_id": None, "eos_token_id": None},
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768},
    "gpt2-medium": {"n_layer": 24, "n_head": 16, "n_embd": 1024},
    "gpt2-large": {"n_layer": 36, "n_head": 20, "n_embd": 1280},
    "gpt2-xl": {"n_layer": 48, "n_head": 25, "n_embd": 1600},
}
HYPER = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0}


def build(name: str) -> GPT2LMHeadModel:
    torch.manual_seed(1337)
    config = GPT2Config(**MODELS[name], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * config.initializer_range)
    return model


def main() -> None:
    default = Path(__file__).resolve().parents[1] / "data" / "hf_parity"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=default)
    args = parser.parse_args()

    model = build(args.model)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out)
    (args.out / "generation_config.json").unlink(missing_ok=True)

    size = args.batch * args.seq
    tokens = torch.randint(model.config.vocab_size, (args.steps * size + 1,))
    with open(args.out / "tokens.bin", "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
        file.write(struct.pack(f"<{len(tokens)}H", *tokens.tolist()))

    model.to(args.device, torch.float64).train()
    parameters = list(model.parameters())  # the tied head once
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": HYPER["weight_decay"]},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=args.lr, betas=(HYPER["beta1"], HYPER["beta2"]), eps=HYPER["eps"],
    )
    losses, norms = [], []
    for step in range(args.steps):
        window = tokens[step * size : (step + 1) * size + 1].to(args.device)
        logits = model(window[:-1].view(args.batch, args.seq)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[1:])
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, HYPER["grad_clip"]).item())
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.6f} norm {norms[-1]:.6f}")

    made_by = {"torch": torch.__version__, "device": args.device}
    told = {"B": args.batch, "T": args.seq, "lr": args.lr, **HYPER}
    text = json.dumps({**told, "losses": losses, "norms": norms, "made_by": made_by})
    (args.out / "losses.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
