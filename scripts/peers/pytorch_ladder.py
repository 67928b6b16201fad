#!/usr/bin/env python3
"""The ladder in PyTorch: each rung as PyTorch has it, measured and reported like a rung's executable.

Same GPT-2, same batches in the same order, same initialisation (not the same bits), same hyperparameters, same clock:
from before the batch is fetched until the device is synchronised after the update. Events are those of
bench/run/events.h; live_peak is what PyTorch's allocator had handed out at most, reserved_peak what it had taken from
the driver.
"""

import gc
import json
import math
import os
import signal
import sys
from pathlib import Path

import peer
from peer import FROM_ZERO, RATE, Failure, InputError, OutOfMemoryError, UnsupportedError, number, stepladder
from token_files import VOCABULARY, Windows, open_data

HERE = Path(__file__).resolve().parent


def rungs_of(file: str) -> dict[str, str]:
    """What each rung of a ladder file in this folder changes, by the rung's name."""
    return {rung["name"]: rung["changes"] for rung in json.loads((HERE / file).read_text(encoding="utf-8"))["rungs"]}


LADDER = rungs_of("pytorch.json")
ATTENTION = ("auto", "flash", "cudnn", "native", "math", "mem_efficient")
COMPILE_MODES = ("reduce-overhead", "default", "max-autotune", "max-autotune-no-cudagraphs")
# Radford et al. 2019, table 2; mini and tiny are ours.
MODELS = {
    "gpt2": {"L": 12, "NH": 12, "C": 768, "max_T": 1024},
    "gpt2-medium": {"L": 24, "NH": 16, "C": 1024, "max_T": 1024},
    "gpt2-large": {"L": 36, "NH": 20, "C": 1280, "max_T": 1024},
    "gpt2-xl": {"L": 48, "NH": 25, "C": 1600, "max_T": 1024},
    "gpt2-mini": {"L": 6, "NH": 6, "C": 384, "max_T": 256},
    "gpt2-tiny": {"L": 4, "NH": 4, "C": 128, "max_T": 256},
}
USUAL_BATCH = 4


def torch_version() -> str:
    """PyTorch's version, without importing PyTorch, which takes seconds; "" where there is none."""
    from importlib import metadata
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def source_hash(*more: Path) -> str:
    return peer.source_hash(*(HERE / name for name in ("pytorch_ladder.py", "pytorch_gpt2.py", "token_files.py")),
                            *more, *peer.SHARED, torch_version())


# ---- settings --------------------------------------------------------------------------------------------------------


def parser_of(name: str, about: str, rungs: dict[str, str], source: str) -> peer.Parser:
    """A parser of the options of a rung's executable that PyTorch has a use for, with the rung's names and defaults."""
    known = "\n".join(f"  {rung:20} {what}" for rung, what in rungs.items())
    parser = peer.Parser(prog=f"{name}.py", description=about, epilog=f"rungs:\n{known}")
    parser.add_argument("rung", help=f"such as {list(rungs)[-1]}")
    parser.add_argument("--version", action="version", help="print the versions and exit",
                        version=f"{name}, PyTorch {torch_version() or 'missing'} source {source}")

    parser.add_shared()
    parser.add_options(
        ("batch", number(int, 1, 16384), None, "sequences in a micro-batch; default: 4, or what the rung finds"),
        ("seq", number(int, 1, 32768), None, "tokens of a sequence; default: all positions"),
        ("beta1", number(float, 0, 0.999999), 0.9, "AdamW's first moment"),
        ("beta2", number(float, 0, 0.999999), 0.95, "AdamW's second moment"),
        ("eps", number(float, 0, 1), 1e-8, "AdamW's epsilon"),
        ("grad-clip", number(float, 0, 1e9), 1.0, "global gradient norm at most; 0: it isn't clipped"),
        ("seed", number(int, 0, 2**64 - 1), 1337, "of initialisation and --shuffle"),
        ("world-size", number(int, 1, 1024), None, "ranks, that torchrun has started; default: WORLD_SIZE, or 1"))
    parser.add_choices(
        ("model", tuple(MODELS), "GPT-2 of this size"),
        ("backend", ("auto", "cpu", "cuda"), "auto takes cuda where there is a device"),
        ("attention", ATTENTION, "backend of scaled_dot_product_attention; auto: PyTorch's choice; native: flash"))
    parser.add_argument("--shuffle", action="store_true",
                        help="train on the files and the sequences in them in random order, by --seed")
    return parser


def parse(arguments: list[str]):
    parser = parser_of("pytorch_ladder", __doc__, LADDER, source_hash())
    parser.add_choices(
        ("dtype", ("auto", "bf16", "fp16"), "of mixed precision; auto: bf16 where the device has it"),
        ("compile-mode", COMPILE_MODES, "torch.compile's, from 13_cuda_graphs on"),
        ("shape-padding", ("auto", "on", "off"), "inductor's; auto: on from 10_padded_vocab on"),
        ("parameters", ("fp32", "half"), "from 05_mixed_precision on; half: they, gradients and AdamW's state in bf16"))
    return checked(parser.parsed(arguments))


def checked(settings):
    """The settings with the options filled in that were left out."""
    if settings.attention == "native":  # a rung's name for kernels of its own
        settings.attention = "flash"
    shape = MODELS[settings.model]
    settings.seq = settings.seq or shape["max_T"]
    if settings.seq > shape["max_T"]:
        raise InputError(f"T={settings.seq} is longer than the model's {shape['max_T']} positions")
    settings.rank, settings.world_size = rank_of(settings.world_size)
    return settings


def rank_of(asked: int | None) -> tuple[int, int]:
    """This process's rank and how many there are, as torchrun tells them."""
    variables = {name: os.environ.get(name, default) for name, default in
                 (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))}
    known = all(value.isdecimal() for value in variables.values())
    if not known or int(variables["RANK"]) >= int(variables["WORLD_SIZE"]):
        told = ", ".join(map("=".join, variables.items()))
        raise InputError(f"{told}: no rank of a world; start ranks with torchrun")
    rank, world_size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
    if asked not in (None, world_size):
        raise InputError(f"--world-size {asked}, but this is one of {world_size} ranks: "
                         f"torchrun --nproc-per-node={asked}")
    return rank, world_size


def learning_rate(settings, step: int) -> float:
    """Linear warm-up, then cosine decay, as in model/schedule.h."""
    if step < settings.warmup_lr_steps:
        return settings.lr * (step + 1) / settings.warmup_lr_steps
    if settings.decay_steps == 0:
        return settings.lr
    if step >= settings.decay_steps:
        return settings.min_lr
    progress = (step - settings.warmup_lr_steps) / (settings.decay_steps - settings.warmup_lr_steps)
    return settings.min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (settings.lr - settings.min_lr)


# ---- a run -----------------------------------------------------------------------------------------------------------


def choose_device(settings, torch):
    if settings.backend == "cpu" or (settings.backend == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    index = int(os.environ["LOCAL_RANK"]) if settings.world_size > 1 else settings.device
    if index >= count:
        raise Failure(f"PyTorch {torch.__version__} sees no CUDA device {index}, it sees {count}")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def missing(device) -> str:
    """What the device lacks of TF32 and bf16; "" where it has both."""
    import torch
    if device.type != "cuda":
        return ""
    major, minor = torch.cuda.get_device_capability(device)
    return f"needs sm_80, this is sm_{10 * major + minor}" if major < 8 else ""


def features_of(settings, device):
    """The features that the rung switches on here. Raises UnsupportedError for what the device lacks."""
    import torch
    from pytorch_gpt2 import Features
    lacks = missing(device)

    def climbed(rung: str) -> bool:
        return settings.rung >= rung

    half = None
    if climbed("05_mixed_precision"):
        name = settings.dtype if settings.dtype != "auto" else "fp16" if lacks else "bf16"
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
    if lacks and (half == torch.bfloat16 or settings.rung == "02_tf32"):
        raise UnsupportedError(lacks)
    pure = settings.parameters == "half"
    if pure and half != torch.bfloat16:
        raise UnsupportedError("--parameters half is of bf16, and of 05_mixed_precision and the rungs above it")
    several = climbed("15_multi_gpu")  # reductions over devices are outside of CUDA graphs
    mode = (settings.compile_mode if climbed("13_cuda_graphs") and not several else
            "default" if climbed("08_fused_elementwise") else "")
    padded = climbed("10_padded_vocab")
    return Features(tf32=climbed("02_tf32"), fused_adamw=climbed("03_fused_adamw"), pinned=climbed("04_pinned_loader"),
                    half=half, compile=mode, flash=climbed("09_flash_attention"), attention=settings.attention,
                    pure=pure, padded=padded, shape_padding={"auto": padded, "on": True, "off": False}[settings.shape_padding],
                    zero=climbed("16_zero1"))


class Run:
    """One run, from its settings to its last line."""

    name, rungs = "pytorch", LADDER
    several: str | None = "15_multi_gpu"  # the first rung for several devices
    files: tuple[Path, ...] = ()  # its sources beside those of source_hash()
    features_of = staticmethod(features_of)
    recorded = ("data", "val_data", "shuffle", "vocab", "steps", "accumulate", "lr", "min_lr", "warmup_lr_steps",
                "decay_steps", "weight_decay", "beta1", "beta2", "eps", "grad_clip", "seed", "attention", "parameters")

    def __init__(self, settings, events: stepladder.Events):
        if settings.rung not in self.rungs:
            raise UnsupportedError(f"{self.name}'s ladder has no counterpart of {settings.rung}")
        try:
            import torch
            import numpy  # noqa: F401  (PyTorch can be there without)
        except ImportError as error:
            raise UnsupportedError(f"{sys.executable} has no {error.name or 'working PyTorch'}: {error}") from None
        from pytorch_gpt2 import Config
        self.torch, self.settings, self.events = torch, settings, events
        self.device = choose_device(settings, torch)
        if settings.world_size > 1:
            if not self.several or settings.rung < self.several:
                raise InputError(f"{settings.rung} runs on one device: start it without torchrun")
            torch.distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        self.features = self.features_of(settings, self.device)
        vocabulary = 128 * math.ceil(VOCABULARY / 128) if self.features.padded else VOCABULARY
        self.config = Config(B=settings.batch or USUAL_BATCH, T=settings.seq, V=vocabulary, **MODELS[settings.model])
        self.train_shards, self.val_shards = open_data(settings)
        self.stopped_by = 0

    def windows(self, shards, seed: int | None = None) -> Windows:
        need = self.config.B * self.config.T * self.settings.world_size + 1
        for shard in shards:
            if shard.size < need:
                raise InputError(f"{shard.path}: {shard.size} tokens, a batch of B={self.config.B} x T={self.config.T} "
                                 f"needs {need}; use a larger file or a smaller --batch or --seq")
        windows = Windows(shards, self.config.B, self.config.T, seed)
        windows[0]  # raises InputError for tokens that the model doesn't know
        return windows

    def build(self):
        """A trainer and its batches, for the present configuration."""
        from pytorch_gpt2 import Batches, Trainer
        windows = self.windows(self.train_shards, self.settings.seed if self.settings.shuffle else None)
        trainer = Trainer(self.config, self.features, self.settings, self.settings.seed, self.device)
        return trainer, Batches(windows, self.device, self.features.pinned, self.settings.rank,
                                self.settings.world_size)

    def search_batch(self) -> None:
        """Doubles the batch while a step fits, and leaves the configuration at the largest that did."""
        largest = 0
        while self.step_fits():
            largest = self.config.B
            self.config.B *= 2
        self.config.B = largest or self.config.B  # where none fits, the first step says why

    def step_fits(self) -> bool:
        try:
            trainer, batches = self.build()
            trainer.step(batches, 0.0)
            if self.device.type == "cuda":
                self.torch.cuda.synchronize()
            return True
        except (self.torch.OutOfMemoryError, InputError):
            return False
        finally:
            trainer = batches = None
            self.torch.compiler.reset()
            gc.collect()
            if self.device.type == "cuda":
                self.torch.cuda.empty_cache()
                self.torch.cuda.reset_peak_memory_stats()

    def attention_backend(self) -> dict[str, str]:
        """The backend of scaled_dot_product_attention, where the rung calls it."""
        if not self.features.flash:
            return {}
        from pytorch_gpt2 import sdpa_backend
        backend = sdpa_backend(self.config, self.features, self.device)
        if backend == "error":
            raise UnsupportedError(f"PyTorch {self.torch.__version__} has no {self.settings.attention} attention here: "
                                   "leave --attention out")
        return {"sdpa": backend}

    def memory_of_cpu(self) -> dict[str, int]:
        """Peaks of memory on the CPU, where only the process's is known: it stands for all three."""
        return dict.fromkeys(("live_peak", "reserved_peak", "process_peak"), stepladder.process_peak())

    def measured(self) -> stepladder.Run:
        torch, settings, config = self.torch, self.settings, self.config
        half = self.features.half
        device = {"backend": self.device.type, "name": "CPU", "blas": f"PyTorch {torch.__version__}"}
        if self.device.type == "cuda":
            properties = torch.cuda.get_device_properties(self.device)
            device |= {"name": properties.name, "uuid": f"GPU-{properties.uuid}", "runtime": torch.version.cuda,
                       "compute_capability": 10 * properties.major + properties.minor,
                       "total_memory": properties.total_memory}
        told = {"model": settings.model} | vars(config) | {
            "world_size": settings.world_size,
            "dtype": {None: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[half],
            "math": "half" if half else "tf32" if self.features.tf32 else "fp32",
            "torch": torch.__version__,
            "compile_mode": self.features.compile,
            "shape_padding": self.features.shape_padding,
        } | {name: getattr(settings, name) for name in self.recorded} | self.attention_backend()
        return stepladder.Run(
            self.events, config.B, config.T, told, steps=settings.steps, eval_every=settings.eval_every,
            until_loss=settings.until_loss if settings.eval_every else None, exit=False,
            memory=self.memory_of_cpu if self.device.type == "cpu" else None, backend=self.device.type, device=device,
            variant=f"{self.name}/{settings.rung}", source_hash=source_hash(*self.files), memory_by_name={})

    def step(self, run: stepladder.Run, trainer, batches, step: int) -> None:
        """Trains one step. The clock runs from before the batch is fetched until the device is done."""
        settings = self.settings
        with run.step() as measured:
            measured.lr = learning_rate(settings, step)
            loss, norm = trainer.step(batches, measured.lr)
            measured.stop()  # reading loss and norm is no part of the step, as with a rung
            measured.loss, measured.grad_norm = loss, norm
        tokens = self.config.B * self.config.T * settings.accumulate * settings.world_size
        clipped = "" if norm is None else f"norm {norm.item():.4f} | "
        print(f"step {step + 1:{len(str(settings.steps))}}/{settings.steps} | loss {loss.item():.4f} | {clipped}"
              f"lr {measured.lr:.2e} | {measured.ms:.2f} ms | "
              f"{tokens / measured.ms * 1e3:,.0f} tok/s", flush=True)

    def train(self) -> int:
        """Trains and returns the exit code."""
        settings = self.settings
        if self.rungs is LADDER and settings.rung >= "14_large_batch" and not settings.batch:
            self.search_batch()
        trainer, batches = self.build()
        val_windows = self.windows(self.val_shards) if settings.eval_every else None
        print(f"{settings.rung} in PyTorch {self.torch.__version__}: {self.features}\n{self.config}")
        for caught in (signal.SIGINT, signal.SIGTERM):
            signal.signal(caught, self.stop)
        run = self.measured()
        for step in range(settings.steps):
            self.step(run, trainer, batches, step)
            if run.evaluation_due:
                self.evaluate(run, trainer, val_windows)
            if run.finished:
                break
            if self.stopped_by:
                reason = f"stopped after step {step + 1}/{settings.steps}"
                self.events.write("error", status="interrupted", reason=reason)
                return 128 + self.stopped_by
        if settings.world_size > 1:
            self.torch.distributed.destroy_process_group()
        return 0

    def evaluate(self, run: stepladder.Run, trainer, windows) -> None:
        from pytorch_gpt2 import Batches
        validation = Batches(windows, self.device, pinned=False)
        validation.index = self.settings.eval_skip
        loss = trainer.evaluate(validation, self.settings.eval_batches)
        run.evaluated(loss)
        print(f"validation loss {loss:.4f} after {run.done} steps", flush=True)

    def stop(self, caught: int, _frame) -> None:
        self.stopped_by = caught
        signal.signal(caught, signal.SIG_DFL)  # a second signal ends the process


def run(announce, parse=parse, kind: type[Run] = Run) -> int:
    settings = parse(sys.argv[1:])
    events = peer.open_events(settings.events)
    announce(events)
    try:
        return kind(settings, events).train()
    except MemoryError:
        raise OutOfMemoryError("out of host memory: use a smaller --batch, --seq or --model") from None
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # PyTorch's error, by name, as PyTorch may not be there
            raise
        raise OutOfMemoryError(str(error)) from None


def leave(code: int) -> None:
    """Ends the process at once: Python would wait seconds for the end of torch.compile's workers."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(peer.main("pytorch_ladder.py", run))
