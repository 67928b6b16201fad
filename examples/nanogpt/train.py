"""Trains a small GPT. Every rung of ladder.json is this program with one more flag; switches.json names the flags.

    python train.py --batch 4 --seq 64 --steps 100 --dtype bf16 --compile
    stepladder run --ladder ladder.json
    stepladder ablate --ladder switches.json
"""

import argparse

import stepladder
import torch

from model import GPT

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default, what in (("batch", 4, "sequences of a step"), ("seq", 64, "tokens of a sequence"),
                            ("steps", 100, "of the optimizer"), ("seed", 1337, "of parameters and batches"),
                            ("layers", 4, "of the model"), ("heads", 4, "of attention"),
                            ("channels", 128, "of the model"), ("vocab", 512, "tokens known; GPT-2's fit into 50304")):
    parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default})")
parser.add_argument("--data", help="tokens as raw uint16, as nanoGPT prepares them; default: random ones")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast")
parser.add_argument("--tf32", action="store_true", help="products of fp32 on TF32 tensor cores")
parser.add_argument("--flash", action="store_true", help="F.scaled_dot_product_attention")
parser.add_argument("--compile", action="store_true", help="torch.compile")
parser.add_argument("--fused-adamw", action="store_true", help="one kernel for the update")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(args.seed)
torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
if args.data:
    with open(args.data, "rb") as file:
        tokens = torch.tensor(memoryview(file.read()).cast("H"), dtype=torch.long)
else:
    tokens = (args.vocab * torch.rand(100_000) ** 3).long()  # the smaller the likelier
val_tokens, tokens = tokens[: len(tokens) // 10], tokens[len(tokens) // 10:]


def get_batch(source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(source) - args.seq, (args.batch,)).tolist()
    windows = torch.stack([source[i:i + args.seq + 1] for i in starts]).to(device)
    return windows[:, :-1], windows[:, 1:]


def mean_loss(source: torch.Tensor) -> torch.Tensor:
    with torch.autocast(device, dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
        return model(*get_batch(source))


@torch.no_grad()
def validate() -> float:
    return sum(mean_loss(val_tokens).item() for _ in range(8)) / 8


model = GPT(args.vocab, args.seq, args.layers, args.heads, args.channels, args.flash).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1,
                              **({"fused": True} if args.fused_adamw else {"foreach": False}))
if args.compile:
    model = torch.compile(model)

run = stepladder.start(args.batch, args.seq, dtype=args.dtype, tf32=args.tf32, flash=args.flash, compile=args.compile,
                       fused_adamw=args.fused_adamw)
for i in range(args.steps):
    with run.step() as step:
        loss = mean_loss(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step.loss = loss
    if run.evaluation_due:
        run.evaluated(validate())
    if i % 10 == 0:
        print(f"step {i} | loss {loss.item():.4f}", flush=True)
