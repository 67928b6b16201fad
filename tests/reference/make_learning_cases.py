#!/usr/bin/env python3
"""Trains the rungs and ablations of the ladder of learning, and the trainers beside it, for ten steps with PyTorch, in f64,
and writes each step's loss and gradient norm before clipping to learning.json in a folder of make_checkpoint_cases.py:
tests/data/hf_parity unless --folder names another. Weights, batches and AdamW's hyperparameters are those of the
folder; a head that is not tied begins as wte with its rows in reverse.

Needs torch 2.9 or newer, for torch.optim.Muon.
"""

import argparse
import json
import struct
import unittest.mock
from pathlib import Path

import torch
import torch.nn.functional as F

RUNGS = ("01_muon", "02_qk_norm", "03_rotary")
BESIDE = ("zero_projections", "relu_squared", "soft_cap", "untied_head")  # each changes the last rung
MUON_RATE, MUON_MOMENTUM, SOFT_CAP, ROTARY_BASE = 20.0, 0.95, 30.0, 10000.0
MATRICES = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")


def cases():
    """The name of each trainer, and the changes that it makes."""
    yield from ((rung, RUNGS[:i + 1]) for i, rung in enumerate(RUNGS))
    yield from ((f"only/{rung}", (rung,)) for rung in RUNGS)
    yield from ((f"without/{rung}", tuple(r for r in RUNGS if r != rung)) for rung in RUNGS)
    yield from ((name, (*RUNGS, name)) for name in BESIDE)


def read_weights(path):
    """The tensors of a safetensors file, all f32."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    return {name.removeprefix("transformer."):
            torch.frombuffer(bytearray(raw[8 + size:][slice(*entry["data_offsets"])]), dtype=torch.float32)
            .reshape(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def rotated(x):
    """Heads (B,NH,T,HS), with channels i and i + HS/2 rotated by t * base^(-2i/HS)."""
    T, half = x.shape[-2], x.shape[-1] // 2
    angle = torch.outer(torch.arange(T, device=x.device, dtype=x.dtype),
                        ROTARY_BASE ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half))
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Model:
    def __init__(self, weights, changes, device):
        self.changes = changes
        self.p = {}
        for name, w in weights.items():
            w = w.to(device, torch.float64)
            if name == "wpe.weight" and "03_rotary" in changes:
                continue
            matrix = name.startswith("h.") and name.rsplit(".", 1)[0].split(".", 2)[2] in MATRICES and w.dim() == 2
            if matrix:
                w = w.T  # (out,in), as in nn.Linear
                if "c_proj" in name and "zero_projections" in changes:
                    w = torch.zeros_like(w)
            if matrix and "c_attn" in name:  # a matrix each for queries, keys and values
                for part, of in zip("qkv", w.chunk(3)):
                    self.p[f"{name}.{part}"] = of
            else:
                self.p[name] = w
        if "untied_head" in changes:
            self.p["head"] = self.p["wte.weight"].flip(0)
        self.p = {name: w.clone().contiguous().requires_grad_() for name, w in self.p.items()}

    def matrices(self):
        return [w for name, w in self.p.items() if name.startswith("h.") and w.dim() == 2]

    def loss(self, tokens, targets, heads):
        p, changes = self.p, self.changes
        B, T = tokens.shape
        x = F.embedding(tokens, p["wte.weight"])
        if "03_rotary" not in changes:
            x = x + p["wpe.weight"][:T]
        C = x.shape[-1]
        norm = lambda x, name: F.layer_norm(x, (C,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)  # noqa: E731
        layers = 1 + max(int(name.split(".")[1]) for name in p if name.startswith("h."))
        for h in (f"h.{layer}" for layer in range(layers)):
            y, bias = norm(x, f"{h}.ln_1"), p[f"{h}.attn.c_attn.bias"].chunk(3)
            q, k, v = (F.linear(y, p[f"{h}.attn.c_attn.weight.{part}"], b).view(B, T, heads, -1).transpose(1, 2)
                       for part, b in zip("qkv", bias))
            if "02_qk_norm" in changes:
                q, k = (F.rms_norm(u, (u.shape[-1],), eps=2.0 ** -23) for u in (q, k))
            if "03_rotary" in changes:
                q, k = rotated(q), rotated(k)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
            x = x + F.linear(y, p[f"{h}.attn.c_proj.weight"], p[f"{h}.attn.c_proj.bias"])
            y = F.linear(norm(x, f"{h}.ln_2"), p[f"{h}.mlp.c_fc.weight"], p[f"{h}.mlp.c_fc.bias"])
            y = F.relu(y).square() if "relu_squared" in changes else F.gelu(y, approximate="tanh")
            x = x + F.linear(y, p[f"{h}.mlp.c_proj.weight"], p[f"{h}.mlp.c_proj.bias"])
        logits = F.linear(norm(x, "ln_f"), p["head" if "untied_head" in changes else "wte.weight"])
        if "soft_cap" in changes:
            logits = SOFT_CAP * torch.tanh(logits / SOFT_CAP)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, tokens, told, heads):
    """Trains for as many steps as there are tokens for. Returns each step's loss and gradient norm."""
    parameters = list(model.p.values())
    muon = model.matrices() if "01_muon" in model.changes else []
    others = [w for w in parameters if all(w is not m for m in muon)]
    adamw = torch.optim.AdamW(
        [{"params": [w for w in others if w.dim() >= 2], "weight_decay": told["weight_decay"]},
         {"params": [w for w in others if w.dim() < 2], "weight_decay": 0.0}],
        lr=told["lr"], betas=(told["beta1"], told["beta2"]), eps=told["eps"])
    optimizers = [adamw]
    if muon:
        optimizers.append(torch.optim.Muon(muon, lr=MUON_RATE * told["lr"], momentum=MUON_MOMENTUM,
                                           weight_decay=told["weight_decay"] / MUON_RATE))
    size, losses, norms = told["B"] * told["T"], [], []
    for at in range(0, len(tokens) - size, size):
        window = tokens[at:at + size + 1]
        loss = model.loss(window[:-1].view(told["B"], -1), window[1:].view(told["B"], -1), heads)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, told["grad_clip"]).item())
        losses.append(loss.item())
        with unittest.mock.patch.object(torch, "bfloat16", torch.float64):  # Muon would compute in bfloat16
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return {"losses": losses, "norms": norms}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parents[1] / "data" / "hf_parity")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rungs", nargs="*", help="these alone; default: all, and the ablations")
    args = parser.parse_args()

    told = json.loads((args.folder / "losses.json").read_text())
    heads = json.loads((args.folder / "config.json").read_text())["n_head"]
    weights = read_weights(args.folder / "model.safetensors")
    raw = (args.folder / "tokens.bin").read_bytes()
    tokens = torch.tensor(struct.unpack(f"<{(len(raw) - 1024) // 2}H", raw[1024:])).to(args.device)
    trained = {}
    for name, changes in cases():
        if not args.rungs or name in args.rungs:
            trained[name] = train(Model(weights, changes, args.device), tokens, told, heads)
            print(name, *(f"{loss:.6f}" for loss in trained[name]["losses"]))
    text = json.dumps({"made_by": {"torch": torch.__version__, "device": args.device}, "trainers": trained}, indent=1)
    (args.folder / "learning.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
