"""GPT-2 with the changes of the ladder of learning: Muon, and architectures that learn faster."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from pytorch_gpt2 import GPT2, Config, Features

MUON_RATE = 20.0  # Muon's learning rate over AdamW's
MUON_MOMENTUM = 0.95
SOFT_CAP = 30.0  # of logits


@dataclass
class Changes(Features):
    """The changes that a rung makes to GPT-2 and AdamW."""

    muon: bool = False  # the blocks' matrices are updated by Muon
    qk_norm: bool = False  # each head of queries and keys is divided by its root mean square
    rotary: bool = False  # queries and keys are rotated by their position, which isn't learned
    relu_squared: bool = False  # max(x, 0)^2, not GELU
    zero_projections: bool = False  # matrices that write to the residual stream begin at 0
    soft_cap: bool = False  # logits are 30 tanh(logits / 30)
    untied_head: bool = False  # a matrix of its own for the output head

    def model(self, config: Config) -> nn.Module:
        return Model(config, self)

    def optimizer(self, model: nn.Module, hyper) -> torch.optim.Optimizer:
        if not self.muon:
            return super().optimizer(model, hyper)
        named = [(name, p) for name, p in model.named_parameters() if name.startswith("h.") and p.dim() == 2]
        matrices = {id(p) for _, p in named}
        others = [p for p in model.parameters() if id(p) not in matrices]
        return Muon([(p, 3 if "c_attn" in name else 1) for name, p in named], self, hyper.weight_decay,
                    self.groups(others, hyper.weight_decay), lr=0.0, betas=(hyper.beta1, hyper.beta2), eps=hyper.eps,
                    **self.adamw)


class Model(GPT2):
    def __init__(self, config: Config, changes: Changes):
        super().__init__(config, flash=True)
        self.changes, self.HS = changes, config.C // config.NH
        if changes.rotary:
            del self.wpe
            rates = 10_000.0 ** -(torch.arange(self.HS // 2) / (self.HS // 2))
            angles = torch.outer(torch.arange(config.max_T), rates)  # (max_T,HS/2)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
        if changes.untied_head:
            self.head = nn.Linear(config.C, config.V, bias=False)
            nn.init.normal_(self.head.weight, std=0.02)
        for block in self.h:
            block.attn.queries_and_keys = self.queries_and_keys
            if changes.relu_squared:
                block.mlp.activation = lambda x: F.relu(x).square()
            if changes.zero_projections:
                nn.init.zeros_(block.attn.c_proj.weight)
                nn.init.zeros_(block.mlp.c_proj.weight)

    def queries_and_keys(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys, (B,NH,T,HS) each, normalised and rotated as the rung has them."""
        def one(x: torch.Tensor) -> torch.Tensor:
            y = F.rms_norm(x.float(), (self.HS,), eps=2.0 ** -23) if self.changes.qk_norm else x
            if self.changes.rotary:
                a, b = y.chunk(2, dim=-1)
                cos, sin = self.cos[:x.shape[2]], self.sin[:x.shape[2]]
                y = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
            return y.type_as(x)
        return one(q), one(k)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy; tokens and targets are (B,T)."""
        x = self.wte(tokens)
        if not self.changes.rotary:
            x = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        head = self.head if self.changes.untied_head else self.wte
        logits = F.linear(self.ln_f(x), head.weight)  # (B,T,V)
        if self.changes.soft_cap:
            logits = SOFT_CAP * torch.tanh(logits.float() / SOFT_CAP)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---- Muon ------------------------------------------------------------------------------------------------------------


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """Matrices (N,R,C) with all their singular values made about 1, by five Newton-Schulz iterations (Jordan et al. 2024)."""
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.mT if tall else x


def update(weights: list[torch.Tensor], grads: list[torch.Tensor], mean: torch.Tensor, lr: torch.Tensor, decay: float,
           dtype: torch.dtype) -> None:
    """One step of Muon for N matrices of one shape (R,C); `mean`, (N,R,C), is their momentum, `dtype` that of products."""
    R, C = weights[0].shape
    grad = torch.stack(grads).to(mean.dtype)
    mean.lerp_(grad, 1 - MUON_MOMENTUM)
    x = orthogonal(grad.lerp(mean, MUON_MOMENTUM).to(dtype))  # Nesterov's momentum
    torch._foreach_mul_(weights, 1 - lr * decay)
    torch._foreach_sub_(weights, list((lr * max(1, R / C) ** 0.5 * x).unbind()))


class Muon(torch.optim.AdamW):
    """AdamW of `groups`, and Muon of `matrices`: each a parameter, and how many matrices it stacks (3 in c_attn). Those of
    one shape are updated together. They decay by as much in a step as under AdamW."""

    def __init__(self, matrices: list[tuple[nn.Parameter, int]], changes: Changes, weight_decay: float, groups: list[dict],
                 **adamw):
        super().__init__(groups, **adamw)
        self.decay, self.dtype = weight_decay / MUON_RATE, changes.half or torch.float32
        self.update: Callable = torch.compile(update, dynamic=False) if changes.compile else update
        self.matrices = [p for p, _ in matrices]
        self.rate = torch.zeros((), device=self.matrices[0].device)
        stacks: dict[tuple[int, int], list[tuple[nn.Parameter, int]]] = {}
        for p, count in matrices:
            stacks.setdefault((p.shape[0] // count, p.shape[1]), []).append((p, count))
        self.stacks = [(stack, self.rate.new_zeros(sum(count for _, count in stack), *shape))
                       for shape, stack in stacks.items()]

    @torch.no_grad()
    def step(self) -> None:
        super().step()
        self.rate.fill_(MUON_RATE * self.param_groups[0]["lr"])
        for stack, mean in self.stacks:
            self.update([w for p, count in stack for w in p.chunk(count)],
                        [g for p, count in stack for g in p.grad.chunk(count)], mean, self.rate, self.decay, self.dtype)

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for p in self.matrices:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.zero_()
