"""Lets Stepladder measure a training loop of your own.

    import stepladder

    run = stepladder.start(batch=16, seq=1024, dtype="bf16")
    for batch in data:
        with run.step() as step:
            step.loss = train_step(batch)
        if run.evaluation_due:
            run.evaluated(validation_loss())

`stepladder run --ladder ladder.json` starts the program, tells it how many steps to take, and listens. Started in any
other way it runs as it would without these lines: nothing is timed or synchronised.

A step is timed by the host's clock, with the CUDA device synchronised before and after where PyTorch or CuPy uses one.
Everything that belongs to an optimizer step goes into the block: fetching the batch, all micro-batches, the update.
Numbers may be tensors: they are read once the clock has stopped. Where the device kept the host waiting, a step is told
while the host waits for the next one, so that telling it takes no time of the loop.

After the last step that was asked for the program ends, by SystemExit(0), so that the loop needs no limit. Where a run
until a validation loss was asked for, the last step is evaluated too: then the program ends in the `evaluated()` after
it, or, where that isn't called, at the next step or wherever it ends by itself. The same goes for an evaluation that
reaches the loss. With `start(..., exit=False)` the program goes on, and `run.finished` tells.

An error is told to the harness and otherwise left alone: an exception propagates. A loss that is not finite ends the
program by SystemExit(5), and so does a harness that is gone.
"""

from __future__ import annotations

import atexit
import json
import math
import operator
import os
import platform
import sys
import time

PROTOCOL = 1
EXIT_FAILED = 5
LONG_WAIT = 1e-3  # seconds; if a step waits longer for the device, its event is sent during the next step
_encode = json.JSONEncoder(allow_nan=False).encode
_started = False


def start(batch: int, seq: int, *, exit: bool = True, synchronize=None, memory=None, **config) -> Run | Unmeasured:
    """The measured run of this program; a run that does nothing where no harness listens, which `bool(run)` tells.

    batch: sequences of an optimizer step on this rank, all micro-batches together; seq: tokens of a sequence.
    exit: whether the program ends with the last step. For a framework other than PyTorch and CuPy, synchronize: a
    function that waits for the device; memory: one that returns peaks so far, {"live_peak": bytes handed out,
    "reserved_peak": taken from the driver, "process_peak": in use}, as far as they are known, and "exact": True where
    live_peak is the same in each run. Further keywords, such as dtype or lr, are recorded with the results.
    Raises TypeError or ValueError where batch or seq is no positive whole number, RuntimeError when called a second time,
    and OSError where the harness can't be written to.
    """
    global _started
    events = Events(stream())
    if not events:
        return Unmeasured()
    if _started:
        raise RuntimeError("stepladder.start() a second time: a program is one run, so keep the first")
    _started = True
    steps, every, until = (os.environ.get(f"STEPLADDER_{name}") for name in ("STEPS", "EVAL_EVERY", "UNTIL_LOSS"))
    run = Run(events, batch, seq, config, exit=exit, synchronize=synchronize, memory=memory,
              steps=int(steps) if steps else None, eval_every=int(every or 0),
              until_loss=float(until) if until else None)
    atexit.register(run.close)
    return run


class Events:
    """Writes events to a file descriptor, one JSON object a line, each by one write; drops them where `fd` is None.

    `end` and `error` are the last: events after either are not written, nor are those of a forked process.
    """

    def __init__(self, fd: int | None):
        if fd is not None:
            os.set_inheritable(fd, False)  # so that a process left behind keeps nobody waiting; OSError if not open
        self.fd, self._later, self._pid = fd, None, os.getpid()

    def __bool__(self) -> bool:
        return self.fd is not None

    def write_later(self, told: dict) -> None:
        """Keeps an event until the next write() or flush(); an event kept before must have been written."""
        self._later = told

    def flush(self) -> None:
        if self._later is not None:
            later, self._later = self._later, None
            self.write(**later)

    def write(self, event: str, **fields) -> None:
        """Writes an event; numbers that are not finite become null. Raises SystemExit where the harness is gone."""
        self.flush()
        if self.fd is None or os.getpid() != self._pid:
            return
        told = {"event": event, **fields}
        try:
            line = _encode(told)
        except ValueError:
            line = _encode({key: _finite(value) for key, value in told.items()})
        rest = line.encode() + b"\n"
        try:
            while rest:
                rest = rest[os.write(self.fd, rest):]
        except BrokenPipeError:
            self.fd = None
            print("stepladder: error: the harness is gone", file=sys.stderr)
            raise SystemExit(EXIT_FAILED) from None
        if event in ("end", "error"):
            self.fd = None


class Step:
    """The step that `with run.step()` measures. `ms` is its time, once the clock has stopped."""

    __slots__ = ("loss", "grad_norm", "lr", "ms", "_run", "_begin", "_waited")

    def __init__(self, run: Run):
        self.loss = self.grad_norm = self.lr = self.ms = None
        self._run = run

    def __enter__(self) -> Step:
        run = self._run
        run._inside = True
        run._synchronize()
        if not run._started:
            run._start()
        self._begin = time.perf_counter()
        return self

    def stop(self) -> None:
        """Stops the clock, before the block ends."""
        self._run.events.flush()
        wait = time.perf_counter()
        self._run._synchronize()
        end = time.perf_counter()
        self.ms, self._waited = (end - self._begin) * 1e3, end - wait > LONG_WAIT

    def __exit__(self, kind, error, traceback) -> None:
        if error is not None:
            self._run.failed(error)
            return
        if self.ms is None:
            self.stop()
        self._run._report(self)


class Run:
    """A run that is measured. `start()` makes it from the environment; a peer of the harness from its options."""

    def __init__(self, events: Events, batch: int, seq: int, config: dict, *, steps: int | None = None,
                 eval_every: int = 0, until_loss: float | None = None, exit: bool = True, synchronize=None, memory=None,
                 **told):
        """`told`: further fields of the start event, or others instead of those found out."""
        self.config = {"B": _positive("batch", batch), "T": _positive("seq", seq)}
        self.rank, world_size = int(_of_ranks("RANK", "SLURM_PROCID") or 0), int(_of_ranks("WORLD_SIZE") or 1)
        if world_size > 1:
            self.config["world_size"] = world_size
        self.config.update((key, _plain(value)) for key, value in config.items())
        self.events, self.steps, self.eval_every, self.until_loss = events, steps, eval_every, until_loss
        self.done, self._pause = 0, 1  # steps done; steps done at the next _look_up()
        self.reached = False  # whether the validation loss to stop at was reached
        self._exit, self._code = exit, None
        self._more_synchronize, self._more_memory, self._told = synchronize, memory, told
        self._heard = bool(events)
        self._device, self._inside, self._started, self._evaluated, self._memory = _Host(), False, False, 0, {}

    def __bool__(self) -> bool:
        return self._heard

    @property
    def finished(self) -> bool:
        """Whether the harness has all it asked for, or was told what went wrong."""
        return self._code is not None

    @property
    def evaluation_due(self) -> bool:
        """Whether the harness asked for a validation loss after as many steps as are done: every few, and the last."""
        asked = self.eval_every or self.until_loss is not None
        due = self._complete or (self.eval_every and self.done % self.eval_every == 0)
        return bool(asked and due and self.done > self._evaluated and not self.finished)

    @property
    def _complete(self) -> bool:
        return self.steps is not None and self.done >= self.steps

    def step(self) -> Step | UnmeasuredStep:
        """A context manager around everything that belongs to one optimizer step. Set its loss; grad_norm and lr may
        be set too. Raises RuntimeError within another step, and where rank 0 leaves it without a loss."""
        if self._inside:
            raise RuntimeError("a step begins within a step: leave the block of `with run.step()` before the next one")
        if self._code is None and self.done != self.steps:
            return Step(self)
        self._end()  # ends a run whose last step was never evaluated
        if self._exit:
            raise SystemExit(self._code)
        return UnmeasuredStep()

    def evaluated(self, val_loss) -> bool:
        """Tells the validation loss after the steps done so far. Returns whether the loss to stop at is reached; all
        ranks must pass the same loss. A call before the first step is ignored, and so is a second one after a step."""
        if self._inside:
            raise RuntimeError("an evaluation within a step: call evaluated() after the block of `with run.step()`")
        if not self.finished and self.done > self._evaluated:
            val_loss = _number(val_loss)
            if val_loss is None:
                said = f"evaluated(None) after {self.done} steps: give it the validation loss"
                self._fail("error", said)
                raise TypeError(said)
            self._evaluated = self.done
            self.events.write("eval", step=self.done, val_loss=val_loss)
            self.reached = self.until_loss is not None and val_loss <= self.until_loss
            if self.reached or self._complete:
                self._end()
        return self.reached

    def failed(self, error: BaseException) -> None:
        """Tells the harness of an exception, which stays the caller's."""
        name, text = type(error).__name__, str(error)
        if isinstance(error, KeyboardInterrupt):
            self._fail("interrupted", "interrupted")
            return
        # PyTorch's and CuPy's errors are known by name, as neither may be there; some of CUDA's are just RuntimeErrors.
        oom = isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
        oom = oom or (isinstance(error, RuntimeError) and "out of memory" in text.lower())
        self._fail("oom" if oom else "error", f"{name}: {text}" if text else name)

    def close(self) -> None:
        """Called at the program's end: tells how the run ended, if nothing has before."""
        if self.finished:
            return
        self._exit = False
        if getattr(sys, "last_value", None) is not None:  # an exception that nobody caught
            self.failed(sys.last_value)
        elif self._complete or (self.steps is None and self.done > 0):
            self._end()
        else:
            why = "let it train on" if self.done else "each belongs into `with run.step() as step`"
            self._fail("error", f"the program ended after {self.done} of {self.steps} steps: {why}")

    def _synchronize(self) -> None:
        if self._device.backend == "cpu":  # PyTorch may just have begun to use CUDA
            self._device = _device_in_use()
        self._device.synchronize()
        if self._more_synchronize is not None:
            self._more_synchronize()
        elif self._device.backend != "cpu":
            self._synchronize = self._device.synchronize  # later calls go straight to the device

    def _start(self) -> None:
        self._started = True
        self.config.setdefault("versions", _versions())
        told = {"protocol": PROTOCOL, "backend": self._device.backend, "rank": self.rank, "host": platform.node(),
                "config": self.config, "device": self._device.describe() or None, "startup_ms": process_age_ms()}
        told.update(self._told)
        self.events.write("start", **_known(told))

    def _report(self, step: Step) -> None:
        # Between two steps the device waits for what is done here: each line costs microseconds.
        self._inside = False
        loss = _number(step.loss)
        if loss is None and self.rank == 0:
            said = f"step {self.done} has no loss: set step.loss in the block of `with run.step() as step`"
            self._fail("error", said)
            raise RuntimeError(said)
        told = {"event": "step", "step": self.done, "step_ms": step.ms, "loss": loss}
        if step.grad_norm is not None:
            told["grad_norm"] = _number(step.grad_norm)
        if step.lr is not None:
            told["lr"] = _number(step.lr)
        self.events.write_later(told)
        self.done += 1
        if not step._waited or self.evaluation_due:  # else the evaluation's energy would be the step's
            self.events.flush()
        if self.done >= self._pause or (loss is not None and not math.isfinite(loss)):
            self._look_up(loss)

    def _look_up(self, loss: float | None) -> None:
        """Handles a last step and a loss that is not finite, and reads the peaks of memory. Peaks only grow, and
        reading them takes longer than all else here: they are read seldom, and never after an evaluation, whose memory
        is not the step's."""
        if not self._evaluated:
            peaks = {**self._device.memory(), **(self._more_memory() if self._more_memory else {})}
            for key, bytes_now in peaks.items():
                self._memory[key] = max(bytes_now, self._memory.get(key, 0))
        if loss is not None and not math.isfinite(loss):
            reason = f"the loss is {loss} at step {self.done - 1}: lower the learning rate or look at the data"
            self._fail("diverged", reason)
            print(f"stepladder: error: {reason}", file=sys.stderr)
            raise SystemExit(EXIT_FAILED)
        if self._complete and not self.evaluation_due:
            self._end()
        pauses = [math.inf if self.steps is None else self.steps, 1 << self.done.bit_length()]
        if self.eval_every:
            pauses.append((self.done // self.eval_every + 1) * self.eval_every)
        self._pause = min(pauses)

    def _fail(self, status: str, reason: str) -> None:
        if not self.finished:
            self._inside, self._code = False, EXIT_FAILED
            self.events.write("error", status=status, reason=" ".join(reason.split())[:2000])

    def _end(self) -> None:
        if not self.finished:
            self._code = 0
            self.events.write("end", memory_bytes=self._memory)
            if self._exit:
                raise SystemExit(0)


class UnmeasuredStep:
    """A step of a run that no harness listens to: takes what a Step takes, and does nothing."""

    loss = grad_norm = lr = ms = None

    def __enter__(self) -> UnmeasuredStep:
        return self

    def stop(self) -> None:
        pass

    def __exit__(self, kind, error, traceback) -> None:
        pass


class Unmeasured:
    """A run that no harness listens to."""

    finished = evaluation_due = reached = False

    def __bool__(self) -> bool:
        return False

    def step(self) -> UnmeasuredStep:
        return UnmeasuredStep()

    def evaluated(self, val_loss) -> bool:
        return False


# ---- Hugging Face ----------------------------------------------------------------------------------------------------


def __getattr__(name: str):
    """TrainerCallback is made when it is asked for, so that nothing else needs transformers."""
    if name != "TrainerCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _trainer_callback()
    return globals()[name]


def _trainer_callback() -> type:
    import transformers

    class TrainerCallback(transformers.TrainerCallback):
        """Measures the steps of a transformers.Trainer: callbacks=[stepladder.TrainerCallback(seq=1024)].

        seq: tokens of a sequence; batch: sequences of an optimizer step on this process, by default the Trainer's own
        batch size times its accumulation; further keywords are recorded. The Trainer fetches a step's batches before
        it says that the step begins, so that they aren't timed. Each step is logged, after its clock has stopped, as
        the log is where the Trainer tells a step's loss; evaluations that the harness asks for are the Trainer's.
        Training stops after the last step; the program goes on.
        """

        def __init__(self, seq: int, batch: int | None = None, **config):
            self.seq, self.batch, self.config = seq, batch, config
            self.run = self.step = None

        def on_train_begin(self, args, state, control, **_):
            batch = self.batch or args.train_batch_size * args.gradient_accumulation_steps
            self.run = self.run or start(batch, self.seq, exit=False, **self.config)
            if self.run:  # the filter would make 0 of a loss that is not finite
                args.logging_nan_inf_filter = False

        def on_step_begin(self, args, state, control, **_):
            self.step = self.run.step().__enter__()

        def on_step_end(self, args, state, control, **_):  # _maybe_log_save_evaluate() comes next
            if isinstance(self.step, Step):
                self.step.stop()
                control.should_log = True

        def on_log(self, args, state, control, logs=None, **_):
            if "loss" not in logs or not isinstance(self.step, Step):  # logs of an evaluation, or a summary
                return
            self.step.loss = logs["loss"]
            self.step.grad_norm, self.step.lr = logs.get("grad_norm"), logs.get("learning_rate")
            self.step.__exit__(None, None, None)
            self.step = None
            control.should_evaluate = control.should_evaluate or self.run.evaluation_due
            control.should_training_stop = control.should_training_stop or self.run.finished

        def on_evaluate(self, args, state, control, metrics=None, **_):
            if self.run and "eval_loss" in metrics:
                self.run.evaluated(metrics["eval_loss"])
                control.should_training_stop = control.should_training_stop or self.run.finished

    return TrainerCallback


# ---- what the device tells -------------------------------------------------------------------------------------------


class _Host:
    """The CPU, and the defaults for other devices."""

    backend = "cpu"

    def synchronize(self) -> None:
        pass

    def describe(self) -> dict:
        return {}

    def memory(self) -> dict[str, int]:
        """Peaks so far, in bytes; of the CPU's, only the process's is known."""
        return _known({"process_peak": process_peak()})


class _Torch(_Host):
    """The CUDA device that PyTorch uses."""

    backend = "cuda"

    def __init__(self, torch):
        self.cuda = torch.cuda
        # torch.cuda.synchronize() calls this in the end: the rest of it takes longer than waiting for an idle device.
        inner = getattr(getattr(torch, "_C", None), "_cuda_synchronize", None)
        self.synchronize = inner or torch.cuda.synchronize

    def describe(self) -> dict:
        properties = self.cuda.get_device_properties(self.cuda.current_device())
        uuid = getattr(properties, "uuid", None)  # older PyTorch has none
        return {"name": properties.name, **({"uuid": f"GPU-{str(uuid).removeprefix('GPU-')}"} if uuid else {})}

    def memory(self) -> dict[str, int]:
        """Peaks of what PyTorch handed out and of what it took from the driver; memory of the device in use."""
        free, total = self.cuda.mem_get_info()
        return {"live_peak": self.cuda.max_memory_allocated(), "reserved_peak": self.cuda.max_memory_reserved(),
                "process_peak": total - free}


class _Cupy(_Host):
    """The CUDA device that CuPy uses."""

    backend = "cuda"

    def __init__(self, cupy):
        self.runtime = cupy.cuda.runtime
        self.synchronize = self.runtime.deviceSynchronize

    def describe(self) -> dict:
        properties = self.runtime.getDeviceProperties(self.runtime.getDevice())
        told, uuid = {"name": properties["name"].decode()}, properties.get("uuid")
        if uuid:
            digits = uuid.hex()
            told["uuid"] = "GPU-" + "-".join(digits[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
        return told

    def memory(self) -> dict[str, int]:
        free, total = self.runtime.memGetInfo()
        return {"process_peak": total - free}


def _device_in_use() -> _Host:
    """The device of PyTorch or CuPy. Imports neither of them: a program that uses one has imported it."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_initialized():  # a program that imports torch may train on the CPU
        return _Torch(torch)
    if cupy is not None and cupy.cuda.is_available():
        return _Cupy(cupy)
    return _Host()


def _versions() -> dict[str, str]:
    """The versions of Python and of the frameworks that the program has imported."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("torch", "jax", "cupy", "transformers")}
    return {"python": platform.python_version(), **{name: str(version) for name, version in found.items() if version}}


def process_age_ms() -> float | None:
    """Milliseconds since this process was started, by the kernel's record; None on systems other than Linux."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()  # from field 3; 22 is the start in ticks
    except OSError:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1e3 - float(fields[22 - 3]) * 1e3 / os.sysconf("SC_CLK_TCK")


def process_peak() -> int | None:
    """Peak memory of this process in bytes, by the kernel's record; None on systems other than Linux."""
    try:
        with open("/proc/self/status", "rb") as status:
            return int(status.read().partition(b"VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return None


# ---- environment variables, and conversion of values -----------------------------------------------------------------


def _of_ranks(name: str, slurm: str = "") -> str | None:
    """RANK or WORLD_SIZE as torchrun, Open MPI or Slurm tell it."""
    mpi = {"RANK": "OMPI_COMM_WORLD_RANK", "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE"}[name]
    return os.environ.get(name) or os.environ.get(mpi) or os.environ.get(slurm)


def stream() -> int | None:
    """The file descriptor to write events to; None where no harness listens."""
    variable = f"STEPLADDER_EVENTS_{_of_ranks('RANK', 'SLURM_PROCID') or 0}"
    if variable in os.environ:
        return os.open(os.environ[variable], os.O_WRONLY)
    fd = os.environ.get("STEPLADDER_EVENTS")
    if not fd:
        return None
    try:
        os.fstat(int(fd))
    except (ValueError, OSError):
        raise OSError(f"STEPLADDER_EVENTS={fd}: no open file descriptor; start the ranks of a command by torchrun or "
                      "mpirun, or leave the variable out") from None
    return int(fd)


def _positive(name: str, value) -> int:
    try:
        operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: must be a whole number") from None
    if operator.index(value) < 1:
        raise ValueError(f"{name}={value}: must be positive")
    return operator.index(value)


def _plain(value):
    """A value of the configuration as JSON has it; torch.bfloat16 as bfloat16."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return _finite(value)
    return str(value).removeprefix("torch.")


def _number(value) -> float | None:
    """The float of a number, or of a tensor with one element."""
    if value is None:
        return None
    return float(value.detach() if getattr(value, "requires_grad", False) else value)


def _known(fields: dict) -> dict:
    return {key: value for key, value in fields.items() if value is not None}


def _finite(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value
