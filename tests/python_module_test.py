"""What a user's trainer tells the harness through python/trainer/stepladder.py or bench/run/stepladder.h."""

import ast
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import unittest
from importlib.util import find_spec
from pathlib import Path
from temporary import temp_folder
from threading import Timer

REPOSITORY = Path(__file__).resolve().parent.parent
MODULE, EXAMPLES = REPOSITORY / "python/trainer", REPOSITORY / "examples"
COMPILER = shutil.which("c++")

# A fake PyTorch: its device takes 20 ms for each launch, which pass when the host waits for the device.
TORCH = """
import sys, time, types
torch = types.ModuleType("torch")
calls, pending = [], [0.0]

class Tensor:
    def __init__(self, value):
        self.value = value
    def detach(self):
        return self
    def __float__(self):
        calls.append("read")
        time.sleep(0.05 + pending[0])
        return self.value

class OutOfMemoryError(RuntimeError):
    pass

def synchronize():
    calls.append("synchronize")
    time.sleep(pending[0])
    pending[0] = 0.0

def launch(value=2.0):
    pending[0] += 0.02
    return Tensor(value)

torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: initialized, synchronize=synchronize, current_device=lambda: 0,
    get_device_properties=lambda device: types.SimpleNamespace(name="NVIDIA Fake", uuid="0123-45"),
    mem_get_info=lambda: (1000, 5000), max_memory_allocated=lambda: 100, max_memory_reserved=lambda: 200,
    OutOfMemoryError=OutOfMemoryError)
sys.modules["torch"] = torch
initialized = True
"""


def loop(*body: str, start: str = "batch=1, seq=1", times: int = 99) -> str:
    """A script that makes so many steps, each of these lines."""
    begin = f"run = stepladder.start({start})\nfor i in range({times}):\n    with run.step() as step:\n"
    return f"\n{begin}" + "".join(f"        {line}\n" for line in body)


class Trainer(unittest.TestCase):
    def setUp(self):
        self.folder = temp_folder(self)

    def run_command(self, *command, **environment: str):
        """Runs a program with a listening harness. Returns the program's exit status, stderr and events."""
        read, write = os.pipe()
        with subprocess.Popen([*map(str, command)], cwd=self.folder, pass_fds=[write], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=self.environment(write) | environment) as child:
            os.close(write)
            limit = Timer(60, child.kill)
            limit.start()
            with os.fdopen(read) as pipe:
                events = [json.loads(line) for line in pipe]
            errors = child.stderr.read()
            limit.cancel()
            return child.wait(), errors, events

    def run_rank(self, *command, **environment: str):
        """Runs a command that starts its own ranks. Returns its exit status and the events of rank 1."""
        path = self.folder / "rank1"
        os.mkfifo(path)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            done = subprocess.run([*map(str, command)], cwd=self.folder, timeout=20, stderr=subprocess.DEVNULL,
                                  env=self.environment() | environment | {"STEPLADDER_EVENTS_1": str(path)})
            events = [json.loads(line) for line in stream.read().splitlines()]
        path.unlink()
        return done.returncode, events

    def environment(self, fd: int | None = None) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("STEPLADDER_", "OMPI_"))}
        listens = {} if fd is None else {"STEPLADDER_EVENTS": str(fd), "STEPLADDER_STEPS": "3"}
        return known | {"PYTHONPATH": str(MODULE), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"} | listens

    def took(self, steps, at_least: float, less_than: float) -> None:
        """Expects the fastest step's milliseconds in [at_least, less_than); the machine may hold up other steps."""
        times = [step["step_ms"] for step in steps]
        self.assertTrue(at_least <= min(times) < less_than, times)

    def kinds(self, events) -> list[str]:
        return [event["event"] for event in events]


class Python(Trainer):
    def script(self, text: str) -> Path:
        path = self.folder / "train.py"
        path.write_text("import os, sys, time\nimport stepladder\n" + text)
        return path

    def run_script(self, text: str, **environment: str):
        return self.run_command(sys.executable, self.script(text), **environment)

    def alone(self, text: str) -> str:
        """The output of a script that runs without a harness."""
        return subprocess.run([sys.executable, self.script(text)], env=self.environment(), check=True,
                              capture_output=True, text=True).stdout

    def failed(self, outcome, status: str, *words: str, after: tuple[str, ...] = ("start",)) -> None:
        code, errors, events = outcome
        self.assertNotEqual(code, 0)
        self.assertEqual(self.kinds(events), [*after, "error"], errors)
        self.assertEqual(events[-1]["status"], status)
        for word in words:
            self.assertIn(word, events[-1]["reason"])


class Steps(Python):
    def test_a_loop_is_measured_and_ended(self):
        code, errors, (start, *steps, end) = self.run_script("""
run = stepladder.start(batch=16, seq=1024, dtype="bf16", lr=float("inf"), layers=12, kind=Ellipsis)
assert run
for i in range(99):
    with run.step() as step:
        time.sleep(0.03)
        step.loss, step.lr, step.grad_norm = 4.0 - i, 0.1, float("nan")
    time.sleep(0.03)
""")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual((start["event"], start["protocol"], start["backend"], start["rank"]), ("start", 1, "cpu", 0))
        self.assertEqual(start["config"], {"B": 16, "T": 1024, "dtype": "bf16", "lr": None, "layers": 12,
                                           "kind": "Ellipsis", "versions": {"python": platform.python_version()}})
        self.assertEqual(start["host"], os.uname().nodename)
        self.assertTrue(0 < start["startup_ms"] < 60e3)
        self.assertEqual([(step["event"], step["step"], step["loss"], step["lr"], step["grad_norm"]) for step in steps],
                         [("step", i, 4.0 - i, 0.1, None) for i in range(3)])
        self.took(steps, 30, 59)
        self.assertEqual((end["event"], set(end["memory_bytes"])), ("end", {"process_peak"}))
        self.assertGreater(end["memory_bytes"]["process_peak"], 1 << 20)

    def test_nothing_happens_where_no_harness_listens(self):
        said = self.alone(TORCH + """
run = stepladder.start(batch=16, seq=1024, dtype="bf16")
assert not run and not run.finished and not run.evaluation_due
for i in range(5):
    with run.step() as step:
        step.loss = launch()
        step.grad_norm = step.lr = 0.1
    assert not run.evaluated(0.0)
print(calls, step.loss is not None)
""")
        self.assertEqual(said, "[] True\n")

    def test_a_step_that_nobody_measures_takes_what_one_that_is_measured_does(self):
        said = self.alone("""
step, measured = stepladder.start(batch=1, seq=1).step(), stepladder.Step
with step:
    step.stop()
print([name for name in (*measured.__slots__, *vars(measured)) if name[0] != "_" and not hasattr(step, name)], step.ms)
""")
        self.assertEqual(said, "[] None\n")

    def test_neither_torch_nor_transformers_is_imported(self):
        said = self.alone("""
stepladder.start(batch=1, seq=1)
print({"torch", "cupy", "numpy", "transformers"} & set(sys.modules), hasattr(stepladder, "Trainer"))
""")
        self.assertEqual(said, "set() False\n")

    def test_it_is_python_3_9(self):
        ast.parse((MODULE / "stepladder.py").read_text(), feature_version=(3, 9))

    def test_without_a_number_of_steps_it_measures_to_the_end(self):
        code, _, events = self.run_script(loop("step.loss = 1.0", times=5), STEPLADDER_STEPS="")
        self.assertEqual((code, self.kinds(events)), (0, ["start"] + 5 * ["step"] + ["end"]))

    def test_it_goes_on_where_it_is_told_to(self):
        code, errors, events = self.run_script("""
run = stepladder.start(batch=1, seq=1, exit=False)
for i in range(5):
    with run.step() as step:
        step.loss = 1.0
    print(run.finished, file=sys.stderr)
sys.exit(7)
""")
        self.assertEqual((code, errors.split()), (7, ["False", "False", "True", "True", "True"]))
        self.assertEqual(self.kinds(events), ["start", "step", "step", "step", "end"])

    def test_each_event_is_one_write(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, subprocess.Popen([sys.executable, self.script("""
run = stepladder.start(batch=1, seq=1, note="x" * 5000)
with run.step() as step:
    step.loss = 1.0
with run.step() as step:
    raise ValueError("y" * 500000)
""")], pass_fds=[theirs.fileno()], env=self.environment(theirs.fileno()), stderr=subprocess.DEVNULL):
            theirs.close()
            lines = list(iter(lambda: ours.recv(1 << 20), b""))
        self.assertEqual(self.kinds(map(json.loads, lines)), ["start", "step", "error"])
        for line in lines:
            self.assertEqual((line.count(b"\n"), line[-1:]), (1, b"\n"))
        self.assertLess(len(lines[2]), 4096)

    def test_a_second_start_is_refused(self):
        code, errors, _ = self.run_script("stepladder.start(batch=1, seq=1)\nstepladder.start(batch=1, seq=1)")
        self.assertEqual(code, 1)
        self.assertIn("second", errors)

    def test_what_has_no_batch_is_refused(self):
        for batch, seq, word in ((0, 8, "batch=0"), (8, -1, "seq=-1"), (1.5, 8, "batch=1.5"), ("'4'", 8, "batch='4'")):
            code, errors, events = self.run_script(f"stepladder.start(batch={batch}, seq={seq})")
            self.assertEqual((code, events), (1, []))
            self.assertIn(word, errors)
        code, errors, _ = self.run_script("stepladder.start(batch=1, seq=1)", STEPLADDER_EVENTS="77")
        self.assertEqual(code, 1)
        self.assertIn("STEPLADDER_EVENTS=77", errors.splitlines()[-1])


class Devices(Python):
    def test_the_clock_waits_for_torchs_device(self):
        code, errors, (start, *steps, end) = self.run_script(TORCH + """
import atexit
atexit.register(lambda: print(" ".join(calls), file=sys.stderr))
run = stepladder.start(batch=1, seq=1)
while True:
    if run.done == 1:
        launch()  # before the step, and not of it
    with run.step() as step:
        step.loss = launch()
""")
        self.assertEqual(code, 0)
        self.assertEqual(errors.split(), 3 * ["synchronize", "synchronize", "read"])
        self.assertEqual((start["backend"], start["device"]), ("cuda", {"name": "NVIDIA Fake", "uuid": "GPU-0123-45"}))
        self.took(steps, 20, 38)  # excludes earlier launches and the reading of the loss
        self.assertEqual([step["loss"] for step in steps], 3 * [2.0])
        self.assertEqual(end["memory_bytes"], {"live_peak": 100, "reserved_peak": 200, "process_peak": 4000})

    def test_a_step_is_told_while_the_device_works_on_the_next_one(self):
        """A step is reported at once where the device doesn't keep the host waiting: a later report would cost the next
        step's time."""
        order = TORCH + """
import json
stepladder.LONG_WAIT = 0.015  # between the device's 0.02 and what a busy machine takes
write = os.write
os.write = lambda fd, line: calls.append(json.loads(line)["event"]) or write(fd, line)
run = stepladder.start(batch=1, seq=1, exit=False)
while not run.finished:
    with run.step() as step:
        step.loss = launch() if works else Tensor(2.0)
        calls.append("launched")
print(*calls, file=sys.stderr)
"""
        waits = "synchronize start launched synchronize read " + 2 * "synchronize launched step synchronize read " + "step end"
        waits_not = "synchronize start launched synchronize read step " + 2 * "synchronize launched synchronize read step " + "end"
        for works, expected in ((True, waits), (False, waits_not)):
            _, errors, events = self.run_script(f"works = {works}\n" + order)
            self.assertEqual(errors.split(), expected.split())
            self.assertEqual([event["step"] for event in events[1:-1]], [0, 1, 2])

    def test_the_clock_waits_by_pytorchs_inner_function_where_there_is_one(self):
        _, errors, (_, *steps, _) = self.run_script(TORCH + """
torch._C = types.SimpleNamespace(_cuda_synchronize=lambda: calls.append("inner") or synchronize())
torch.cuda.synchronize = None
run = stepladder.start(batch=1, seq=1, exit=False)
while not run.finished:
    with run.step() as step:
        step.loss = launch()
print(calls.count("inner"), file=sys.stderr)
""")
        self.took(steps, 20, 38)
        self.assertEqual(errors, "6\n")

    def test_a_number_may_be_set_once_the_clock_has_stopped(self):
        _, _, (_, *steps, _) = self.run_script(
            TORCH + loop("step.loss = launch(4.0)", "step.stop()", "step.grad_norm = launch(7.0)"))
        self.took(steps, 20, 38)
        self.assertEqual([(step["loss"], step["grad_norm"]) for step in steps], 3 * [(4.0, 7.0)])

    def test_a_torch_that_trains_on_the_cpu_is_left_alone(self):
        _, _, (start, *steps, end) = self.run_script(
            TORCH + "initialized = False" + loop("assert not calls", "step.loss = 1.0"))
        self.assertEqual((start["backend"], len(steps), end["event"]), ("cpu", 3, "end"))
        self.assertNotIn("device", start)

    def test_cuda_that_begins_in_the_first_step_is_waited_for(self):
        _, _, (_, first, *_) = self.run_script(
            TORCH + "initialized = False" + loop("initialized = True", "step.loss = launch()"))
        self.assertGreaterEqual(first["step_ms"], 20)

    def test_the_clock_waits_for_cupys_device(self):
        _, _, (start, *steps, end) = self.run_script("""
import types
def synchronize():
    time.sleep(0.02)
sys.modules["cupy"] = types.SimpleNamespace(cuda=types.SimpleNamespace(
    is_available=lambda: True, runtime=types.SimpleNamespace(
        deviceSynchronize=synchronize, getDevice=lambda: 1, memGetInfo=lambda: (1000, 5000),
        getDeviceProperties=lambda device: {"name": b"Fake %d" % device, "uuid": bytes(range(16))})))
""" + loop("step.loss = 1.0"))
        self.assertEqual(start["device"], {"name": "Fake 1", "uuid": "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"})
        self.took(steps, 20, 38)
        self.assertEqual(end["memory_bytes"], {"process_peak": 4000})

    def test_another_framework_brings_its_own_wait_and_memory(self):
        brings = "synchronize=lambda: time.sleep(0.02), memory=lambda: {'live_peak': 7, 'exact': True}"
        _, _, events = self.run_script(loop("step.loss = 1.0", start=f"batch=1, seq=1, {brings}"))
        self.took(events[1:-1], 20, 38)
        self.assertEqual((events[-1]["memory_bytes"]["live_peak"], len(events[-1]["memory_bytes"])), (7, 3))
        self.assertIs(events[-1]["memory_bytes"]["exact"], True)

    def test_memory_is_that_of_steps_not_of_evaluations(self):
        _, _, events = self.run_script(TORCH + """
torch.cuda.max_memory_allocated = lambda: allocated
run = stepladder.start(batch=1, seq=1)
for allocated in (30, 20, 99):
    with run.step() as step:
        step.loss = 1.0
    if allocated == 20:
        run.evaluated(1.0)
""")
        self.assertEqual(events[-1]["memory_bytes"]["live_peak"], 30)

    def test_memory_is_read_seldom_but_after_the_last_step_and_before_an_evaluation_that_is_due(self):
        count = """
reads = []
torch.cuda.max_memory_allocated = lambda: reads.append(run.done) or 1
run = stepladder.start(batch=1, seq=1, exit=False)
while not run.finished:
    with run.step() as step:
        step.loss = 1.0
    if run.evaluation_due:
        run.evaluated(2.0)
print(*reads, file=sys.stderr)
"""
        read = lambda **environment: self.run_script(TORCH + count, **environment)[1].split()
        self.assertEqual(read(STEPLADDER_STEPS="11"), ["1", "2", "4", "8", "11"])
        self.assertEqual(read(STEPLADDER_STEPS="9", STEPLADDER_EVAL_EVERY="3"), ["1", "2", "3"])


def gpu() -> bool:
    """Whether PyTorch finds a GPU; a child process asks and then releases it."""
    asked = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return find_spec("torch") is not None and subprocess.run([sys.executable, "-c", asked]).returncode == 0


@unittest.skipUnless(shutil.which("nvidia-smi") and gpu(), "needs PyTorch and a GPU")
class Gpu(Python):
    """Steps of 50 ms, all equally long."""

    TRAINER = """
import json, statistics, torch
a = torch.ones(8192, 8192, device="cuda", dtype=torch.bfloat16)
def work():
    torch.cuda._sleep(cycles)
    return a.mean()
def now():
    torch.cuda.synchronize()
    return time.perf_counter() * 1e3
cycles = 10**7
for _ in range(20):
    begin = now()
    work()
    took = now() - begin
cycles = int(cycles * 50 / took)
"""

    def test_its_times_are_the_scripts_and_the_device_is_the_one_in_use(self):
        _, errors, (start, *steps, end) = self.run_script(self.TRAINER + """
run, own = stepladder.start(batch=1, seq=1, exit=False), []
while not run.finished:
    with run.step() as step:
        begin = time.perf_counter() * 1e3  # nothing is pending
        step.loss = work()
        own.append(now() - begin)
print(json.dumps(own), file=sys.stderr)
""", STEPLADDER_STEPS="60")
        own, told = json.loads(errors), [step["step_ms"] for step in steps]
        print(f"\nown clock {statistics.median(own):.3f} ms, told {statistics.median(told):.3f} ms")
        self.assertLess(abs(statistics.median(told) / statistics.median(own) - 1), 0.005)
        listed = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"{start['device']['name']} (UUID: {start['device']['uuid']})", listed)
        memory = end["memory_bytes"]
        self.assertTrue(2 * 8192**2 <= memory["live_peak"] <= memory["reserved_peak"] <= memory["process_peak"], memory)

    def test_a_loop_takes_as_long_as_one_that_times_itself(self):
        """Ten steps of each loop, alternating: both wait for their steps and read the losses; ours also tells the harness."""
        _, errors, (_, *steps, _) = self.run_script(self.TRAINER + """
run = stepladder.start(batch=1, seq=1, exit=False)
def by_itself():
    begin = time.perf_counter()
    loss = work()
    torch.cuda.synchronize()
    alone.append((time.perf_counter() - begin) * 1e3)
    float(loss)
def measured():
    with run.step() as step:
        step.loss = work()
alone, took = [], {by_itself: [], measured: []}
while not run.finished:
    for loop in (by_itself, measured)[::1 if len(took[measured]) % 20 else -1]:
        begin = now()
        for _ in range(10):
            loop()
            took[loop].append(time.perf_counter() * 1e3 - begin)
            begin += took[loop][-1]
print(json.dumps([alone, *took.values()]), file=sys.stderr)
""", STEPLADDER_STEPS="160")
        alone, by_itself, measured = json.loads(errors)
        told = [step["step_ms"] for step in steps]
        for statistic in (statistics.mean, statistics.median):
            step, loop = statistic(told) / statistic(alone), statistic(measured) / statistic(by_itself)
            print(f"\n{statistic.__name__} of measured by that of others: step {step:.5f}, loop {loop:.5f} of "
                  f"{statistic(measured):.3f} ms", end="")
        self.assertLess(abs(step - 1), 0.002)
        self.assertLess(abs(loop - 1), 0.002)


class Ranks(Python):
    SCRIPT = loop("pass", times=9)

    def test_each_rank_has_its_stream_and_only_the_first_a_loss(self):
        for variables in ({"RANK": "1", "WORLD_SIZE": "2"}, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
                          {"SLURM_PROCID": "1", "WORLD_SIZE": "2"}):
            code, events = self.run_rank(sys.executable, self.script(self.SCRIPT), STEPLADDER_STEPS="2", **variables)
            self.assertEqual((code, self.kinds(events)), (0, ["start", "step", "step", "end"]))
            self.assertEqual((events[0]["rank"], events[0]["config"]["world_size"]), (1, 2))
            self.assertIsNone(events[1]["loss"])

    def test_a_step_of_the_first_rank_needs_a_loss(self):
        self.failed(self.run_script(self.SCRIPT, RANK="0", WORLD_SIZE="2"), "error", "step.loss")


class Failures(Python):
    def step(self, body: str, before: str = "", **environment: str):
        return self.run_script(before + f"""
run = stepladder.start(batch=1, seq=1)
with run.step() as step:
    {body}
""", **environment)

    def test_running_out_of_memory_is_told_and_goes_on(self):
        for error in ("MemoryError()", "torch.cuda.OutOfMemoryError('tried to allocate')",
                      "RuntimeError('CUDA error: out of memory')"):
            outcome = self.step(f"raise {error}", TORCH)
            self.failed(outcome, "oom", error.partition("(")[0].rpartition(".")[2])
            self.assertIn("Traceback", outcome[1])

    def test_any_other_exception_is_told_on_one_line(self):
        self.failed(self.step("raise ValueError('of\\n  several lines')"), "error", "ValueError: of several lines")
        self.failed(self.step("raise KeyboardInterrupt"), "interrupted")
        self.failed(self.step("open('/proc/no/such')"), "error", "FileNotFoundError", "/proc/no/such")

    def test_one_outside_of_a_step_is_told_too(self):
        self.failed(self.run_script("stepladder.start(batch=1, seq=1)\nraise MemoryError"), "oom", after=())
        self.failed(self.step("step.loss = 1.0\nraise KeyError('gone')"), "error", "KeyError", "gone",
                    after=("start", "step"))

    def test_a_loop_that_ends_too_early_is_told(self):
        code, _, events = self.step("step.loss = 1.0")
        self.assertEqual((code, self.kinds(events), events[-1]["status"]), (0, ["start", "step", "error"], "error"))
        self.assertIn("1 of 3", events[-1]["reason"])

    def test_a_forked_process_tells_nothing(self):
        _, _, events = self.run_script("""
run = stepladder.start(batch=1, seq=1)
if os.fork() == 0:
    sys.exit(0)
os.wait()
for i in range(99):
    with run.step() as step:
        step.loss = 1.0
""")
        self.assertEqual(self.kinds(events), ["start", "step", "step", "step", "end"])

    def test_a_process_forked_within_a_step_tells_nothing(self):
        for end in ("sys.exit(3)", "raise MemoryError", "step.loss = 5.0", "run.failed(OSError('gone'))"):
            _, _, events = self.run_script(loop("step.loss = 1.0", "if i == 1 and os.fork() == 0:", f"    {end}",
                                                "if i == 1:", "    os.wait()"))
            self.assertEqual(self.kinds(events), ["start", "step", "step", "step", "end"], end)
            self.assertEqual([event["loss"] for event in events[1:-1]], [1.0, 1.0, 1.0], end)

    def test_a_loss_that_is_not_finite_is_diverged(self):
        for exits in ("True", "False"):
            code, errors, events = self.run_script(loop("step.loss = 1.0 if i == 0 else float('nan')",
                                                        start=f"batch=1, seq=1, exit={exits}", times=3))
            self.assertEqual((code, errors.count("\n")), (5, 1))
            self.assertEqual(self.kinds(events), ["start", "step", "step", "error"])
            self.assertEqual((events[2]["loss"], events[3]["status"]), (None, "diverged"))

    def test_a_harness_that_is_gone_ends_the_program(self):
        read, write = os.pipe()
        os.close(read)
        with subprocess.Popen([sys.executable, self.script("""
run = stepladder.start(batch=1, seq=1)
with run.step() as step:
    step.loss = 1.0
print("still here")
""")], pass_fds=[write], env=self.environment(write), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            os.close(write)
            said, errors = child.communicate()
        self.assertEqual((child.returncode, said, errors.count("\n")), (5, "", 1))

    def test_what_does_not_belong_into_a_step_is_an_error(self):
        self.failed(self.step("run.step()"), "error", "within", "run.step()")
        self.failed(self.step("run.evaluated(1.0)"), "error", "within", "evaluated()")
        self.failed(self.step("pass"), "error", "step 0", "step.loss")

    def test_after_a_failure_no_step_begins(self):
        code, _, events = self.run_script("""
run = stepladder.start(batch=1, seq=1)
for i in range(9):
    try:
        with run.step() as step:
            raise ValueError
    except ValueError:
        pass
""")
        self.assertEqual((code, self.kinds(events)), (5, ["start", "error"]))


class Evaluations(Python):
    def losses(self, losses: list, after: str = "run.evaluation_due", rest: str = "", **environment: str):
        return self.run_script(f"""
run = stepladder.start(batch=1, seq=1, exit={not rest})
losses = {losses}
for i in range(9):
    with run.step() as step:
        step.loss = 1.0
    if {after}:
        print(run.evaluated(float(losses.pop(0))), file=sys.stderr)
    {rest}
""", **environment)

    def test_a_loss_that_is_reached_ends_training(self):
        code, errors, events = self.losses([3.0, 2.0], STEPLADDER_EVAL_EVERY="1", STEPLADDER_UNTIL_LOSS="2.0")
        self.assertEqual((code, errors), (0, "False\n"))
        self.assertEqual(self.kinds(events), ["start", "step", "eval", "step", "eval", "end"])
        self.assertEqual([(event["step"], event["val_loss"]) for event in events if event["event"] == "eval"],
                         [(1, 3.0), (2, 2.0)])

    def test_a_loss_of_none_is_an_error(self):
        for asked in ({}, {"STEPLADDER_UNTIL_LOSS": "2.0"}):
            _, _, events = self.run_script(loop("step.loss = 1.0") + "    run.evaluated(None)", **asked)
            self.assertEqual(self.kinds(events), ["start", "step", "error"])
            self.assertIn("evaluated(None) after 1 steps", events[-1]["reason"])

    def test_the_end_waits_for_the_last_steps_evaluation(self):
        for every in ("1", "2", "3"):  # the last of three steps is always evaluated
            _, _, events = self.losses([3.0] * 3, STEPLADDER_EVAL_EVERY=every, STEPLADDER_UNTIL_LOSS="2.0")
            due = [i for i in (1, 2, 3) if i % int(every) == 0 or i == 3]
            self.assertEqual([event["step"] for event in events if event["event"] == "eval"], due)
            self.assertEqual(self.kinds(events)[-3:], ["step", "eval", "end"])

    def test_a_step_is_told_before_its_evaluation_begins(self):
        """The harness reads the energy of training when it hears of a step, so it must hear before the evaluation."""
        _, errors, _ = self.run_script(TORCH + """
import json
stepladder.LONG_WAIT = 0.015  # so that the device keeps the host waiting
write = os.write
os.write = lambda fd, line: calls.append(json.loads(line)["event"]) or write(fd, line)
run = stepladder.start(batch=1, seq=1, exit=False)
while not run.finished:
    with run.step() as step:
        step.loss = launch()
    if run.evaluation_due:
        calls.append("evaluate")
        run.evaluated(3.0)
print(*[call for call in calls if call not in ("synchronize", "read")], file=sys.stderr)
""", STEPLADDER_EVAL_EVERY="2", STEPLADDER_UNTIL_LOSS="2.0")
        self.assertEqual(errors.split(), "start step step evaluate eval step evaluate eval end".split())

    def test_an_evaluation_that_never_comes_is_not_waited_for(self):
        for times in (99, 3):
            code, errors, events = self.run_script(loop("step.loss = 1.0", times=times), STEPLADDER_EVAL_EVERY="3",
                                                   STEPLADDER_UNTIL_LOSS="2.0")
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual(self.kinds(events), ["start", "step", "step", "step", "end"])

    def test_a_trainers_own_evaluations_are_told_once_each(self):
        _, _, events = self.run_script("""
run = stepladder.start(batch=1, seq=1)
run.evaluated(9.0)
for i in range(9):
    with run.step() as step:
        step.loss = 1.0
    run.evaluated(3.0)
    run.evaluated(4.0)
""")
        self.assertEqual(self.kinds(events), ["start", "step", "eval", "step", "eval", "step", "end"])
        self.assertEqual(events[2]["val_loss"], 3.0)

    def test_whether_the_loss_is_reached_is_returned(self):
        code, errors, events = self.losses(["nan", 2.0, 1.0], rest="if run.finished: break",
                                           STEPLADDER_EVAL_EVERY="1", STEPLADDER_UNTIL_LOSS="2.5")
        self.assertEqual((code, errors.split()), (0, ["False", "True"]))
        self.assertEqual([event["val_loss"] for event in events if event["event"] == "eval"], [None, 2.0])


# A Trainer that calls its callbacks like transformers' _inner_training_loop and _maybe_log_save_evaluate.
TRANSFORMERS = """
import types
class Base: pass
sys.modules["transformers"] = types.SimpleNamespace(TrainerCallback=Base)
callback = stepladder.TrainerCallback(seq=64, dtype="f32")
assert isinstance(callback, Base) and stepladder.TrainerCallback is type(callback)
args = types.SimpleNamespace(train_batch_size=4, gradient_accumulation_steps=2, logging_nan_inf_filter=True)
state, control = None, types.SimpleNamespace(should_log=False, should_evaluate=False, should_training_stop=False)
callback.on_train_begin(args, state, control)
done = 0
while not control.should_training_stop and done < 9:
    callback.on_step_begin(args, state, control)
    time.sleep(0.02)
    control.should_log = False
    callback.on_step_end(args, state, control)
    done += 1
    time.sleep(0.02)
    if control.should_log:
        loss = losses[done - 1]
        if loss != loss and args.logging_nan_inf_filter: loss = 0.0
        logs = {"loss": loss, "grad_norm": 0.5, "learning_rate": 0.1, "epoch": 1}
        callback.on_log(args, state, control, logs=logs)
    if control.should_evaluate:
        control.should_evaluate = False
        callback.on_log(args, state, control, logs={"eval_loss": 3.0})
        callback.on_evaluate(args, state, control, metrics={"eval_loss": 3.0})
callback.on_log(args, state, control, logs={"train_loss": 1.0})
print(done, file=sys.stderr)
"""


class HuggingFace(Python):
    def test_a_step_is_told_with_its_logged_loss(self):
        code, errors, (start, *steps, end) = self.run_script("losses = [4, 3, 2]" + TRANSFORMERS)
        self.assertEqual((code, errors, end["event"]), (0, "3\n", "end"))
        self.assertEqual({**start["config"], "versions": None}, {"B": 8, "T": 64, "dtype": "f32", "versions": None})
        self.assertEqual([(step["loss"], step["grad_norm"], step["lr"]) for step in steps],
                         [(loss, 0.5, 0.1) for loss in (4, 3, 2)])
        self.took(steps, 20, 38)

    def test_evaluations_are_the_trainers(self):
        _, errors, events = self.run_script("losses = [4, 3, 2]" + TRANSFORMERS, STEPLADDER_EVAL_EVERY="2",
                                            STEPLADDER_UNTIL_LOSS="3.5")
        self.assertEqual((errors, self.kinds(events)), ("2\n", ["start", "step", "step", "eval", "end"]))

    def test_a_loss_that_is_not_finite_is_diverged_though_the_trainer_would_log_0(self):
        code, _, events = self.run_script("losses = [4, float('nan')]" + TRANSFORMERS)
        self.assertEqual((code, events[-1]["status"], events[-2]["loss"]), (5, "diverged", None))

    def test_a_loss_that_is_rounded_to_0_is_one(self):
        code, _, events = self.run_script("losses = [4, 0.0, 0.0]" + TRANSFORMERS)
        self.assertEqual((code, self.kinds(events)), (0, ["start", "step", "step", "step", "end"]))

    def test_nothing_happens_where_no_harness_listens(self):
        self.alone("losses = None" + TRANSFORMERS + "assert done == 9 and not control.should_log")

    @unittest.skipUnless(find_spec("torch") and find_spec("transformers") and find_spec("accelerate"),
                         "transformers is not installed")
    def test_the_example_trains(self):
        code, errors, events = self.run_command(sys.executable, EXAMPLES / "huggingface/train.py", "--batch", "2",
                                                "--seq", "16", "--steps", "3", STEPLADDER_EVAL_EVERY="2",
                                                STEPLADDER_UNTIL_LOSS="0.1")
        self.assertEqual(code, 0, errors)
        self.assertEqual(self.kinds(events), ["start", "step", "step", "eval", "step", "eval", "end"])
        self.assertEqual((events[0]["config"]["B"], events[0]["config"]["T"]), (2, 16))


def rungs_of(ladder: dict) -> list[dict]:
    """The rungs of a ladder file, each with the fields that the file gives for all."""
    return [{**ladder, "parent": None, **rung,
             "command": rung.get("command", ladder.get("command", [])) + rung.get("arguments", [])}
            for rung in ladder["rungs"]]


class Ladders(Trainer):
    def test_the_examples_ladders_name_files_and_rungs_that_are_there(self):
        for path in EXAMPLES.glob("*/ladder.json"):
            ladder = json.loads(path.read_text())
            known = [None]
            for rung in rungs_of(ladder):
                self.assertIn(rung["parent"], known, path)
                known.append(rung["name"])
                self.assertTrue((path.parent / rung["source"]).is_file(), path)
                for word in rung["command"]:
                    self.assertIn(word, ("{python}", "{batch}", "{seq}", "{steps}", "{seed}", word.strip("{}")), path)
            self.assertGreater(ladder["workload"]["steps"], ladder["workload"]["warmup"])
        self.assertEqual(len(list(EXAMPLES.glob("*/ladder.json"))), 3)

    @unittest.skipUnless(find_spec("torch"), "PyTorch is not installed")
    def test_nanogpts_rungs_learn_the_same(self):
        ladder = json.loads((EXAMPLES / "nanogpt/ladder.json").read_text())
        curves = []
        for rung in rungs_of(ladder):
            if "--compile" in rung["command"]:  # torch.compile takes a minute
                continue
            values = {"{python}": sys.executable, "{batch}": "2", "{seq}": "16", "{steps}": "3", "{seed}": "1",
                      "train.py": EXAMPLES / "nanogpt/train.py"}
            code, errors, events = self.run_command(*(values.get(word, word) for word in rung["command"]))
            self.assertEqual((code, self.kinds(events)), (0, ["start", "step", "step", "step", "end"]), errors)
            self.assertEqual((events[0]["config"]["B"], events[0]["config"]["T"]), (2, 16))
            curves.append([event["loss"] for event in events[1:-1]])
        self.assertEqual(len(curves), 2)
        for loss, expected in zip(curves[1], curves[0]):
            self.assertAlmostEqual(loss, expected, delta=rungs_of(ladder)[1]["tolerance"] * expected)


CLIENT = r"""
#include <sys/wait.h>
#include <unistd.h>
#include <clocale>
#include <cmath>
#include <csignal>
#include <string>
#include "stepladder.h"
int main(int, char** argv) {
  const std::string mode = argv[1];
  std::setlocale(LC_ALL, "");
  std::signal(SIGPIPE, SIG_IGN);
  stepladder_client::Run run(16, 1024, [] { usleep(20000); });
  run.config("dtype", "b\"f16\n");
  run.config("lr", 0.25);
  run.config("layers", 12);
  run.config("fused", true);
  run.device("cuda", "NVIDIA Fake", "GPU-01");
  run.memory({100, 200, {}, mode == "exact"});
  try {
    for (int i = 0; i < 9 && !run.finished(); ++i) {
      usleep(20000);
      auto step = run.step();
      if (mode == "nested") run.step();
      if (mode == "throws" && i == 1) throw std::runtime_error("of\nlines");
      if (mode == "oom") throw std::bad_alloc();
      if (mode == "longwinded") throw std::runtime_error(std::string(1999, 'x') + "\u00e9 and more");
      if (mode == "returns" && i == 1) return 3;
      if (mode == "forks" && i == 1) {
        if (fork() == 0) return 3;
        wait(nullptr);
      }
      if (mode == "lossless") step.done();
      step.done(i == 1 && mode == "diverges" ? std::nan("") : 4.5F - i, {}, 0.5);
      if (mode == "leaves") break;
      if (mode != "evaluates not" && run.evaluation_due()) run.evaluated(3.0 - i);
    }
  } catch (const std::exception& error) {
    run.failed(error);
  }
  return run.exit_code();
}
"""


@unittest.skipUnless(COMPILER, "there is no C++ compiler")
class Header(Trainer):
    @classmethod
    def setUpClass(cls):
        folder = temp_folder(cls)
        cls.client = folder / "client"
        cls.compiled(folder / "client.cpp", cls.client, CLIENT, "-ffast-math")

    @staticmethod
    def compiled(source: Path, program: Path, text: str = "", *flags: str) -> None:
        if text:
            source.write_text(text)
        subprocess.run([COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", *flags, "-I", REPOSITORY / "bench/run",
                        source, "-o", program], check=True)

    def run_client(self, mode: str = "", **environment: str):
        return self.run_command(self.client, mode, **environment)

    def test_steps_are_measured_and_the_run_ends(self):
        code, errors, (start, *steps, end) = self.run_client(WORLD_SIZE="2", RANK="0")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(start["config"], {"B": 16, "T": 1024, "world_size": 2, "dtype": 'b"f16 ', "lr": 0.25,
                                           "layers": 12, "fused": True})
        self.assertEqual((start["protocol"], start["rank"], start["backend"]), (1, 0, "cuda"))
        self.assertEqual((start["host"], start["device"]),
                         (os.uname().nodename, {"name": "NVIDIA Fake", "uuid": "GPU-01"}))
        self.assertTrue(0 < start["startup_ms"] < 60e3)
        self.assertEqual([(step["event"], step["step"], step["loss"], step["lr"]) for step in steps],
                         [("step", i, 4.5 - i, 0.5) for i in range(3)])
        self.took(steps, 20, 38)
        self.assertEqual((end["event"], end["memory_bytes"]), ("end", {"live_peak": 100, "reserved_peak": 200}))
        self.assertIs(self.run_client("exact")[2][-1]["memory_bytes"]["exact"], True)

    def test_nothing_happens_where_no_harness_listens(self):
        done = subprocess.run([self.client, "diverges"], env=self.environment(), capture_output=True, check=True)
        self.assertEqual((done.stdout, done.stderr), (b"", b""))

    def test_evaluations_end_it_in_order(self):
        asked = {"STEPLADDER_EVAL_EVERY": "2", "STEPLADDER_UNTIL_LOSS": "1.5"}
        _, _, events = self.run_client(**asked)
        self.assertEqual(self.kinds(events), ["start", "step", "step", "eval", "step", "eval", "end"])
        self.assertEqual([event["val_loss"] for event in events if event["event"] == "eval"], [2.0, 1.0])
        _, _, events = self.run_client(**asked | {"STEPLADDER_UNTIL_LOSS": "2.0"})
        self.assertEqual(self.kinds(events), ["start", "step", "step", "eval", "end"])
        _, _, events = self.run_client("evaluates not", **asked)
        self.assertEqual(self.kinds(events), ["start", "step", "step", "step", "end"])

    def test_what_goes_wrong_is_told(self):
        for mode, steps, status, word in (("throws", 1, "error", "of lines"), ("oom", 0, "oom", ""),
                                          ("returns", 1, "error", "step 1"), ("nested", 0, "error", "within"),
                                          ("lossless", 0, "error", "done(loss)"), ("leaves", 1, "error", "1 of 3"),
                                          ("diverges", 2, "diverged", "step 1")):
            code, _, events = self.run_client(mode)
            self.assertEqual(self.kinds(events), ["start", *steps * ["step"], "error"], mode)
            self.assertEqual(events[-1]["status"], status)
            self.assertIn(word, events[-1]["reason"])
            self.assertEqual(code, {"returns": 3, "leaves": 0}.get(mode, 5), mode)
        self.assertIsNone(events[-2]["loss"])

    def test_a_process_forked_within_a_step_tells_nothing(self):
        _, _, events = self.run_client("forks")
        self.assertEqual(self.kinds(events), ["start", "step", "step", "step", "end"])

    def test_a_long_reason_is_cut_between_characters(self):
        _, _, events = self.run_client("longwinded")
        self.assertEqual(events[-1]["reason"], 1999 * "x")

    def test_a_rank_writes_to_its_own_stream_and_needs_no_loss(self):
        code, events = self.run_rank(self.client, "lossless", STEPLADDER_STEPS="1", RANK="1")
        self.assertEqual((code, self.kinds(events), events[0]["rank"]), (0, ["start", "step", "end"], 1))

    def test_a_harness_that_is_gone_finishes_it(self):
        read, write = os.pipe()
        os.close(read)
        with subprocess.Popen([self.client, ""], pass_fds=[write], env=self.environment(write)) as child:
            os.close(write)
        self.assertEqual(child.returncode, 5)

    def test_the_example_trains(self):
        program = self.folder / "train"
        self.compiled(EXAMPLES / "cpp/train.cpp", program)
        code, errors, (start, *steps, end) = self.run_command(program, "--batch", "8", "--features", "4", "--seed", "1")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual((start["config"]["B"], start["config"]["T"], end["event"]), (8, 4, "end"))
        self.assertGreater(end["memory_bytes"]["process_peak"], 1 << 20)
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])


if __name__ == "__main__":
    unittest.main()
