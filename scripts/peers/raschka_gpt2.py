"""Raschka's GPT-2 in PyTorch, which is not the 124M: an untied head, no bias of queries, keys and values, dropout."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from pytorch_gpt2 import Config, Features


@dataclass
class Steps(Features):
    """The features that Raschka's steps switch on; each step keeps those of the steps before it."""

    dropout: float = 0.1
    stored_mask: bool = False  # (max_T,max_T) in fp32, made a mask of booleans in each layer of each step
    native: bool = False  # PyTorch's LayerNorm and GELU instead of ones written in Python

    def model(self, config: Config) -> nn.Module:
        return Model(config, self)

    def groups(self, parameters: list[nn.Parameter], weight_decay: float) -> list[dict]:
        """AdamW's groups of parameters: weight decay for all parameters."""
        return [{"params": parameters, "weight_decay": weight_decay}]

    @property
    def adamw(self) -> dict[str, bool]:
        """Arguments that choose AdamW's implementation: fused, or PyTorch's default."""
        return {"fused": True} if self.fused_adamw else {}


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + 1e-5) * weight + bias over the last dimension, each operation an op of PyTorch."""

    def __init__(self, C: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(C)), nn.Parameter(torch.zeros(C))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        return self.weight * (centred / torch.sqrt(variance + 1e-5)) + self.bias


def gelu(x: torch.Tensor) -> torch.Tensor:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), each operation an op of PyTorch."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


class Attention(nn.Module):
    """Causal attention, with a projection each for queries, keys and values; with `flash`, one for all three."""

    def __init__(self, config: Config, steps: Steps):
        super().__init__()
        self.NH, self.steps = config.NH, steps
        self.qkv = nn.ModuleList(nn.Linear(config.C, width, bias=False)
                                 for width in ([3 * config.C] if steps.flash else [config.C] * 3))
        self.proj = nn.Linear(config.C, config.C)
        self.dropout = nn.Dropout(steps.dropout)
        if steps.stored_mask:
            self.register_buffer("future", torch.ones(config.max_T, config.max_T).triu(diagonal=1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        parts = self.qkv[0](x).split(C, dim=2) if self.steps.flash else [linear(x) for linear in self.qkv]
        q, k, v = (part.view(B, T, self.NH, C // self.NH).transpose(1, 2) for part in parts)
        if self.steps.flash:
            dropout = self.dropout.p if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        else:
            future = self.future if self.steps.stored_mask else torch.ones(T, T, device=x.device).triu(diagonal=1)
            att = (q @ k.transpose(2, 3)).masked_fill_(future.bool()[:T, :T], -math.inf)  # (B,NH,T,T)
            y = self.dropout((att / math.sqrt(C // self.NH)).softmax(dim=-1)) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    def __init__(self, config: Config, steps: Steps):
        super().__init__()
        self.native = steps.native
        self.fc, self.proj = nn.Linear(config.C, 4 * config.C), nn.Linear(4 * config.C, config.C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)
        return self.proj(F.gelu(x, approximate="tanh") if self.native else gelu(x))


class Block(nn.Module):
    def __init__(self, config: Config, steps: Steps):
        super().__init__()
        norm = nn.LayerNorm if steps.native else LayerNorm
        self.ln_1, self.attn = norm(config.C), Attention(config, steps)
        self.ln_2, self.mlp = norm(config.C), MLP(config, steps)
        self.dropout = nn.Dropout(steps.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attn(self.ln_1(x)))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class Model(nn.Module):
    """163,009,536 parameters in GPT-2's shape, initialised as PyTorch does by default."""

    def __init__(self, config: Config, steps: Steps):
        super().__init__()
        self.wte = nn.Embedding(config.V, config.C)
        self.wpe = nn.Embedding(config.max_T, config.C)
        self.dropout = nn.Dropout(steps.dropout)
        self.h = nn.ModuleList(Block(config, steps) for _ in range(config.L))
        self.ln_f = (nn.LayerNorm if steps.native else LayerNorm)(config.C)
        self.head = nn.Linear(config.C, config.V, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy; tokens and targets are (B,T)."""
        x = self.dropout(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), targets.flatten())
