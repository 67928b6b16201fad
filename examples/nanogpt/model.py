"""A small GPT in the manner of nanoGPT: pre-norm blocks, learned positions, a tied head."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels: int, heads: int, flash: bool):
        super().__init__()
        self.heads, self.flash = heads, flash
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(C, dim=2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)  # (B,NH,T,T)
            future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
            y = att.masked_fill(future, -math.inf).softmax(dim=-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab: int, positions: int, layers: int, heads: int, channels: int, flash: bool):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, channels), nn.Embedding(positions, channels)
        self.blocks = nn.Sequential(*(Block(channels, heads, flash) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(channels)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy; tokens and targets are (B,T)."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        logits = F.linear(self.ln_f(self.blocks(x)), self.wte.weight)  # (B,T,V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
