"""GPT-2 in PyTorch, and a step of its training as each rung of the ladder would have it."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.attention
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from token_files import Windows


@dataclass
class Config:
    """GPT-2's dimensions and the micro-batch, by the field's letters."""

    B: int
    T: int
    max_T: int
    V: int
    L: int
    NH: int
    C: int


@dataclass
class Features:
    """The features that a rung switches on; each rung keeps those of the rungs below it."""

    tf32: bool = False  # GEMMs on TF32 tensor cores
    fused_adamw: bool = False  # one multi-tensor kernel for AdamW, and for clipping; else one kernel per op per tensor
    pinned: bool = False  # page-locked batches, copied without waiting while the step before them runs
    half: torch.dtype | None = None  # autocast; float16 with dynamic loss scaling
    compile: str = ""  # mode of torch.compile
    flash: bool = False  # scaled_dot_product_attention
    attention: str = "auto"  # backend of scaled_dot_product_attention
    pure: bool = False  # parameters, gradients and AdamW's state in `half` too: no fp32 masters, no autocast
    dropout: float = 0.0  # of embeddings, attention and residuals
    padded: bool = False  # vocabulary rounded up to a multiple of 128, as in nanoGPT: padding is not masked
    shape_padding: bool = False  # inductor may pad the operands of products
    zero: bool = False  # optimizer state sharded over ranks

    def model(self, config: Config) -> nn.Module:
        return GPT2(config, self.flash)

    def groups(self, parameters: list[nn.Parameter], weight_decay: float) -> list[dict]:
        """AdamW's groups of parameters: weight decay for matrices alone."""
        return [{"params": [p for p in parameters if p.dim() == 2], "weight_decay": weight_decay},
                {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0}]

    @property
    def adamw(self) -> dict[str, bool]:
        """Arguments that choose AdamW's implementation: fused, or a loop over tensors."""
        return {"fused": True} if self.fused_adamw else {"foreach": False, "fused": False}

    def optimizer(self, model: nn.Module, hyper) -> torch.optim.Optimizer:
        """AdamW of all parameters, with a learning rate of 0; `hyper` as Trainer has it."""
        kind: Callable = torch.optim.AdamW
        if self.zero and torch.distributed.is_initialized():
            from torch.distributed.optim import ZeroRedundancyOptimizer
            kind = partial(ZeroRedundancyOptimizer, optimizer_class=torch.optim.AdamW)
        return kind(self.groups(list(model.parameters()), hyper.weight_decay), lr=0.0, betas=(hyper.beta1, hyper.beta2),
                    eps=hyper.eps, **self.adamw)


# ---- model -----------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    queries_and_keys = staticmethod(lambda q, k: (q, k))  # (B,NH,T,HS) each; other models change them

    def __init__(self, config: Config, flash: bool):
        super().__init__()
        self.NH, self.flash = config.NH, flash
        self.c_attn = nn.Linear(config.C, 3 * config.C)
        self.c_proj = nn.Linear(config.C, config.C)
        if not flash:
            causal = torch.ones(config.max_T, config.max_T, dtype=torch.bool).tril()
            self.register_buffer("future", ~causal, persistent=False)  # (max_T,max_T)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.NH, C // self.NH).transpose(1, 2) for y in self.c_attn(x).split(C, dim=2))
        if self.flash:
            q, k = self.queries_and_keys(q, k)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B,NH,T,HS)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(C // self.NH))  # (B,NH,T,T)
            y = att.masked_fill(self.future[:T, :T], -math.inf).softmax(dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


def sdpa_backend(config: Config, features: Features, device: torch.device) -> str:
    """Which of the enabled backends PyTorch takes for Attention: "flash_attention", "cudnn_attention", ..., or "error"
    where none of them can."""
    shape = (1, config.T, config.NH, config.C // config.NH)  # one sequence: the choice doesn't depend on the batch
    q = torch.empty(shape, dtype=features.half, device=device, requires_grad=True).transpose(1, 2)
    names = {backend.value: name for name, backend in torch.nn.attention.SDPBackend.__members__.items()}
    try:
        choice = torch._fused_sdp_choice(q, q, q, is_causal=True)
    except RuntimeError:
        return "error"
    return names.get(choice, str(choice)).lower()


class MLP(nn.Module):
    activation = staticmethod(partial(F.gelu, approximate="tanh"))

    def __init__(self, config: Config):
        super().__init__()
        self.c_fc = nn.Linear(config.C, 4 * config.C)
        self.c_proj = nn.Linear(4 * config.C, config.C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(self.activation(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, config: Config, flash: bool):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.C), Attention(config, flash)
        self.ln_2, self.mlp = nn.LayerNorm(config.C), MLP(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """GPT-2 with a tied head, biases everywhere but in the head, and no dropout."""

    def __init__(self, config: Config, flash: bool = False):
        super().__init__()
        self.wte = nn.Embedding(config.V, config.C)
        self.wpe = nn.Embedding(config.max_T, config.C)
        self.h = nn.ModuleList(Block(config, flash) for _ in range(config.L))
        self.ln_f = nn.LayerNorm(config.C)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.L) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy; tokens and targets are (B,T)."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # (B,T,V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---- data ------------------------------------------------------------------------------------------------------------


class Batches:
    """Batch i is `windows[i]`, (B,T+1) tokens. A rank takes every `world_size`th batch."""

    def __init__(self, windows: Windows, device: torch.device, pinned: bool, rank: int = 0, world_size: int = 1):
        self.windows, self.device = windows, device
        self.pinned = pinned and device.type == "cuda"
        self.index, self.stride, self.ahead = rank, world_size, None

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next batch: tokens and targets, each (B,T) on the device."""
        ready, self.ahead = self.ahead or self._fetch(), None
        return ready

    def prefetch(self) -> None:
        """Starts on the next batch; only page-locked batches can be copied without waiting."""
        if self.pinned:
            self.ahead = self._fetch()

    def _fetch(self) -> tuple[torch.Tensor, torch.Tensor]:
        window = torch.from_numpy(self.windows[self.index].astype(np.int64))
        self.index += self.stride
        return self._upload(window[:, :-1].contiguous()), self._upload(window[:, 1:].contiguous())

    def _upload(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.pinned:
            tokens = tokens.pin_memory()
        return tokens.to(self.device, non_blocking=self.pinned)


# ---- training --------------------------------------------------------------------------------------------------------


class Trainer:
    """Trains by AdamW with a clipped gradient. `hyper` has accumulate, weight_decay, beta1, beta2, eps and grad_clip
    (0: none)."""

    def __init__(self, config: Config, features: Features, hyper, seed: int, device: torch.device):
        self.features, self.hyper, self.device = features, hyper, device
        torch.set_float32_matmul_precision("high" if features.tf32 else "highest")
        if features.attention != "auto":
            for backend in ("flash", "cudnn", "mem_efficient", "math"):
                getattr(torch.backends.cuda, f"enable_{backend}_sdp")(backend == features.attention)

        torch.manual_seed(seed)
        with device:
            self.model = features.model(config)
        if features.pure:
            self.model.to(features.half)
        self.world_size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if self.world_size > 1:  # before compiling: torch.compile then splits the graph at DDP's buckets
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True,
                                                 device_ids=None if device.type == "cpu" else [device.index])
        self.forward: Callable = self.model
        if features.compile:
            from torch._inductor import config as inductor  # the import takes a second, which eager rungs need not wait
            inductor.shape_padding = features.shape_padding
            # PyTorch caches graphs, attention's kernels among them, without asking which backends were enabled.
            torch.compiler.config.cache_key_tag = f"attention={features.attention}"
            self.forward = torch.compile(self.model, mode=features.compile, fullgraph=self.world_size == 1,
                                         dynamic=False)

        self.parameters = list(self.model.parameters())
        self.optimizer = features.optimizer(self.model, hyper)
        self.scaler = torch.amp.GradScaler(device.type, enabled=features.half == torch.float16)
        # Under CUDA graphs the next micro-batch's gradient overwrites this one's: sums need memory of their own.
        self.own_gradients = hyper.accumulate > 1 and features.compile in ("reduce-overhead", "max-autotune")
        if self.own_gradients:
            for p in self.parameters:
                p.grad = torch.zeros_like(p)

    def step(self, batches: Batches, lr: float) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One optimizer step. Returns the mean loss and the gradient's norm before clipping, both still on the device; no
        norm where nothing is clipped."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        total = torch.zeros((), device=self.device)
        for micro in range(self.hyper.accumulate):
            tokens, targets = batches.next()
            last = micro + 1 == self.hyper.accumulate  # gradients are reduced after the last one
            with contextlib.nullcontext() if last or self.world_size == 1 else self.model.no_sync():
                loss = self.loss(tokens, targets) / self.hyper.accumulate
                batches.prefetch()
                self.scaler.scale(loss).backward()
            total += loss.detach()
        if self.world_size > 1:
            torch.distributed.all_reduce(total)
            total /= self.world_size
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.hyper.grad_clip,
                                        foreach=None if self.features.fused_adamw else False) \
            if self.hyper.grad_clip else None
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=not self.own_gradients)
        return total, norm

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        half = self.features.half
        autocast = half and not self.features.pure
        with torch.autocast(self.device.type, dtype=half) if autocast else contextlib.nullcontext():
            torch.compiler.cudagraph_mark_step_begin()
            return self.forward(tokens, targets)

    @torch.no_grad()
    def evaluate(self, batches: Batches, count: int) -> float:
        """Mean loss over `count` batches, without dropout."""
        if self.features.dropout:  # else the mode is left alone: another mode may be compiled again
            self.model.eval()
        mean = sum(self.loss(*batches.next()).item() for _ in range(count)) / count
        if self.features.dropout:
            self.model.train()
        return mean
