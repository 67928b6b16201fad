"""Trains a small GPT on the bytes of a text until a validation loss, in the manner of the nanoGPT speedrun: each idea is a
flag, and switches.json names them.

    python train.py --data ../../data/austen.txt --steps 300 --muon --rotary
    stepladder run --ladder switches.json --until-loss 2.8 --eval-every 10 --max-steps 300 --rounds 6
    stepladder run --ladder switches.json --rungs all_on --seeds 6 --steps 150 --certify-loss 2.4
    stepladder gate ../../base/examples/speedrun . --ladder switches.json --until-loss 2.8 --eval-every 10 --max-steps 300
    stepladder ablate --ladder switches.json --until-loss 2.8 --eval-every 10 --max-steps 300
"""

import argparse

import stepladder
import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default, what in (("batch", 16, "sequences of a step"), ("seq", 128, "bytes of a sequence"),
                            ("steps", 300, "of the optimizer, over which the learning rate falls to 0"),
                            ("seed", 1337, "of parameters and batches"), ("layers", 4, "of the model"),
                            ("heads", 4, "of attention"), ("channels", 128, "of the model")):
    parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default})")
parser.add_argument("--data", required=True, help="a text: the last tenth is for validation")
parser.add_argument("--lr", type=float, default=2e-3, help="of AdamW")
parser.add_argument("--muon-lr", type=float, default=0.02, help="of Muon")
parser.add_argument("--muon", action="store_true", help="matrices of the blocks by Muon, not AdamW")
parser.add_argument("--rotary", action="store_true", help="rotary positions, not learned ones")
parser.add_argument("--qk-norm", action="store_true", help="queries and keys of unit root mean square")
parser.add_argument("--relu2", action="store_true", help="ReLU squared in the MLP, not GELU")
parser.add_argument("--zero-init", action="store_true", help="each block begins as the identity")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(args.seed)
with open(args.data, "rb") as file:
    text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
train_text, val_text = text[: -len(text) // 10], text[-len(text) // 10:]


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],))


class Rotary(nn.Module):
    """Turns pairs of channels by an angle that grows with the position (Su et al. 2021)."""

    def __init__(self, channels: int, positions: int):
        super().__init__()
        rates = 10_000 ** -(torch.arange(0, channels, 2) / channels)
        angles = torch.outer(torch.arange(positions), rates)  # (T,C/2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (B,NH,T,C)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * self.cos - b * self.sin, a * self.sin + b * self.cos), dim=-1)


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.qkv, self.out = (nn.Linear(channels, n * channels, bias=False) for n in (3, 1))
        self.up, self.down = nn.Linear(channels, 4 * channels, bias=False), nn.Linear(4 * channels, channels, bias=False)
        self.rotary = Rotary(channels // args.heads, args.seq) if args.rotary else nn.Identity()
        if args.zero_init:
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.down.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # (B,T,C)
        q, k, v = (y.unflatten(2, (args.heads, -1)).transpose(1, 2) for y in self.qkv(rms_norm(x)).chunk(3, dim=2))
        if args.qk_norm:
            q, k = rms_norm(q), rms_norm(k)
        y = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        h = self.up(rms_norm(x))
        return x + self.down(F.relu(h).square() if args.relu2 else F.gelu(h))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, args.channels), nn.Embedding(args.seq, args.channels)
        self.blocks = nn.Sequential(*(Block(args.channels) for _ in range(args.layers)))
        self.head = nn.Linear(args.channels, 256, bias=False)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)
        nn.init.zeros_(self.head.weight)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy in nats; tokens and targets are (B,T)."""
        x = self.wte(tokens)
        if not args.rotary:
            x = x + self.wpe.weight
        logits = self.head(rms_norm(self.blocks(x)))  # (B,T,256)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by five Newton-Schulz iterations (Jordan et al. 2024); for matrices."""

    def __init__(self, params, lr: float, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                mean = self.state[w].setdefault("mean", torch.zeros_like(w))
                mean.lerp_(w.grad, 1 - group["momentum"])
                x = w.grad.lerp(mean, group["momentum"])  # Nesterov's
                x = x / (x.norm() + 1e-7)
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                for _ in range(5):  # towards singular values of 1
                    gram = x @ x.T
                    x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
                w.add_(x.T if tall else x, alpha=-group["lr"] * max(1, w.shape[0] / w.shape[1]) ** 0.5)


def get_batch(source: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    starts = torch.randint(len(source) - args.seq, (args.batch,), generator=generator)
    windows = source[starts[:, None] + torch.arange(args.seq + 1)].long().to(device)
    return windows[:, :-1], windows[:, 1:]


@torch.no_grad()
def validate() -> float:
    same = torch.Generator().manual_seed(0)  # each time the same batches
    return sum(model(*get_batch(val_text, same)).item() for _ in range(16)) / 16


model = GPT().to(device)
matrices = [w for w in model.blocks.parameters() if args.muon]
others = [w for w in model.parameters() if all(w is not other for other in matrices)]
optimizers = [torch.optim.AdamW(others, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)]
if args.muon:
    optimizers.append(Muon(matrices, args.muon_lr))
rates = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, (args.steps - i) / (0.4 * args.steps)))
         for optimizer in optimizers]
batches = torch.Generator().manual_seed(args.seed)

run = stepladder.start(args.batch, args.seq, muon=args.muon, rotary=args.rotary, qk_norm=args.qk_norm, relu2=args.relu2,
                       zero_init=args.zero_init)
for i in range(args.steps):
    with run.step() as step:
        loss = model(*get_batch(train_text, batches))
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        for rate in rates:
            rate.step()
        step.loss = loss
    if run.evaluation_due or (not run and i % 50 == 49):
        val_loss = validate()
        run.evaluated(val_loss)
        print(f"step {i + 1} | loss {loss.item():.4f} | val loss {val_loss:.4f}", flush=True)
