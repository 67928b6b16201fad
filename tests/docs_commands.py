"""Runs every command of README, CONTRIBUTING and docs/ as a reader would: docs_commands.py BIN [PAGE...]

They run on the CPU: stand-ins on PATH start the built programs with options that make the work small, as of an option
given twice the last counts. What is not here (srun, llm.c, PyTorch, nsys) is a stand-in too. A command that is wrong,
or names an option, rung or file that is not there, fails.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
HARNESS = ("stepladder", "ops_benchmark")
PROGRAM = r"(?:stepladder|ops_benchmark|fp8(?:_recompute|_zero1|_muon)?|muon_zero1|own_kernels|recompute|\d\d_\w+)"
SMALL = "--backend cpu --model gpt2-tiny --seq 16 --batch 2"
LIMIT_S = 300
SHORT = "--steps 3 --warmup 1 --rounds 1"

# Commands that don't run here, and where they are tested.
ELSEWHERE = {
    r"scripts/(?:test|build)\b": "CI, which runs what they are made of",
    r"scripts/prepare_data\.py .*": "prepare_data_test.py: it needs a network",
    r"cmake .*": "CI",
    r"pip install .*|python3 -m venv .*": "wheel_test.sh",
    r"build/tsan/bin/.*": "by who changes threads: a build of its own",
    r"export PATH=.*": "the stand-ins are on PATH",
    r"module load .*|export CMAKE_PREFIX_PATH=.*": "a cluster's",
    r"scripts/try-system .*": "it needs root and a network: .ci/full",
    r"python3 scripts/peers/.*|stepladder run --preset raschka-pytorch .*": "peers_test.py: it needs PyTorch",
    r"git (?:clone|worktree) .*|\(cd .*": "tests have no network, and no other commit",
}

# Options that a program's stand-in adds, by the program's first argument.
RUNG = f"{SMALL} --steps 2 --warmup-lr-steps 1 --decay-steps 2 --accumulate 1 --sample-tokens 4 --eval-batches 1"
ADDED = {
    "run": f"{SMALL} {SHORT} --overwrite",
    "ablate": f"{SMALL} {SHORT} --overwrite",
    "tune": f"{SMALL} --warmup 1 --eval-batches 1 --overwrite",
    "gate": f"{SMALL} --steps 3 --warmup 1 --pairs 3 --max-pairs 3 --repeat 1",
    "calibrate": f"{SMALL} --steps 3 --warmup 1 --pairs 3",
    "overhead": f"{SMALL} --steps 3 --warmup 1 --pairs 3",
    "profile": f"{SMALL} --steps 3 --warmup 1",
    "campaign": "--backend cpu --model gpt2-tiny --seq 16 --plan parts.json --overwrite",
    "resume": "--rounds 2",
    "train": RUNG,
    "sample": "--backend cpu --sample-tokens 4",
    "rung": RUNG,
    "ops_benchmark": "--benchmark_min_time=0.001",
}
# Options added for a reader's own ladder, whose commands say which options they take.
ADDED_TO_OWN = {"run": f"{SHORT} --overwrite", "ablate": f"{SHORT} --overwrite", "tune": "--overwrite",
                "calibrate": "--pairs 3", "gate": "--pairs 3 --max-pairs 3"}
# Exit codes of success besides 0, by subcommand.
ALSO = {"gate": {1, 3}, "compare": {1, 3}, "certify": {3, 4}, "overhead": {1, 3}, "run": {3}, "tune": {3}}

PARTS = [{"name": "ladder", "command": f"run --rungs 00,13 --batch 2 {SHORT}"},
         {"name": "profile_13", "command": "profile 13 --batch 2 --counters"},
         {"name": "devices", "command": f"run --rungs 13,15 --devices {{devices}} --batch 2 {SHORT}", "devices": 2}]


def blocks(page: Path) -> list[str]:
    """Commands on a page: blocks of shell, lines behind a $, and commands in README's tables."""
    text = page.read_text(encoding="utf-8")
    found = [(m.start(), m[1]) for m in re.finditer(r"^```(?:sh|slurm)\n(.*?)^```", text, re.M | re.S)]
    for console in re.finditer(r"^```console\n\$ (.*?)\n(.*?)^```", text, re.M | re.S):
        printed = f" | diff - <(cat <<'PRINTED'\n{console[2]}PRINTED\n)" if console[1].startswith("diff ") else ""
        found.append((console.start(), console[1] + printed))
    found += [(m.start(), m[1]) for m in re.finditer(r"^\|.*?\| `((?:stepladder|scripts/run) .*?)`", text, re.M)]
    return [block.replace("\\|", "|") for _, block in sorted(found)]


def here(command: str) -> str:
    """The command with a reader's values for placeholders; ":" for a command that is tested elsewhere."""
    if any(re.match(pattern, command) for pattern in ELSEWHERE):
        return ":"
    if command.startswith("#!/bin/sh\n# stepladder run --devices 16 --launcher './over_ssh"):  # launcher_test.cpp runs it
        return ":"
    command = re.sub(rf"(?:\.\./base/)?build/\w+/bin/({PROGRAM})\b", r"\1", command)
    for of_the_page, of_the_reader in (("BASE NEW", "../base/build/cuda/bin build/cuda/bin"), ("VENV", "~/torch"),
                                       ("llmc=PATH", "llmc=$HOME/llm.c/train_gpt2cu"), ("FILE", "tuned.jsonl"),
                                       (" ... ", " "), ("scripts/run", "stepladder run")):
        command = command.replace(of_the_page, of_the_reader)
    return command


def stand_in(name: str, words: list[str]) -> int:
    """Runs the stand-in for the command `name`. Returns its exit code."""
    program = next((i for i, word in enumerate(words) if re.fullmatch(PROGRAM, Path(word).name)), None)
    if name in ("nsys", "ncu"):
        return subprocess.run(words[program:], check=False).returncode
    if name in ("srun", "torchrun", "mpirun"):  # two ranks here; the harness's mpirun runs as it is
        of_the_harness = name == "mpirun" and "-H" not in words and (program is None or "/" in words[program])
        started = words if of_the_harness else ["-n", "2", *words[program:]]
        return subprocess.run([os.environ["DOCS_MPIRUN"], *started], check=False).returncode
    kind = name if name == "ops_benchmark" else words[0] if name == "stepladder" else "rung"
    learning = "learning" in words
    own = "--ladder" in words and not learning and "--peer" not in words
    added = (ADDED_TO_OWN if own else ADDED).get(kind, "").split()
    if kind in ("run", "tune", "ablate", "gate", "calibrate", "overhead") and not own and "--rungs" not in words:
        of_run = "00,03" if learning else "00,13"
        few = "13,15" if "--devices" in words else of_run if kind in ("run", "tune") else "03" if kind == "ablate" else "13"
        added += ["--rungs", few]
    if "--tuned" in words:  # says how many steps
        steps = added.index("--steps")
        del added[steps:steps + 2]
    if "--until-loss" in words and "--steps" in added:  # goes with a maximum of steps
        added[added.index("--steps")] = "--max-steps"
    if "--seeds" in words and "--rounds" in added:  # gives the number of runs, so no --rounds
        rounds = added.index("--rounds")
        del added[rounds:rounds + 2]
    small = {"--batch": "2", "--devices": "1,2" if "--launcher" not in words else "2", "--max-time": "3s",
             "--eval-every": "1", "--sample-every": "1", "--seeds": "3", "--horizons": "3", "--certify-loss": "20"}
    if kind == "tune" or "--tuned" in words:  # a loss that is reached, as --tuned takes trials that reached it
        small |= {"--until-loss": "5.2", "--rungs": "00"} | ({} if own else {"--tuned": "learning_trials.jsonl"})
    if kind == "tune" and "--warmup-lr-steps" not in words and not own:
        added += ["--warmup-lr-steps", "1"]
    if kind == "tune":
        small |= {"--steps": "12,13" if own else "8,9", "--warmup-lr-steps": "0,1", "--lr": "1e-2,2e-2"}
    if kind in ("run", "gate", "ablate", "rung", "tune"):  # replaced in place, as a repeated list option appends
        words = [small.get(option, word) for option, word in zip(["", *words], words)]
    code = subprocess.run([Path(os.environ["STEPLADDER_BIN_DIR"]) / name, *words, *added], check=False).returncode
    return 0 if code in ALSO.get(kind, ()) else code


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def prepare(root: Path, bin_dir: Path) -> dict[str, str]:
    """Sets up a reader's files: a checkout, another beside it, results, data. Returns the environment."""
    checkout, shims = root / "here", root / "shims"
    for folder in (checkout / "build/cuda", checkout / "build/cpu", root / "base/build/cuda", shims, root / "bin",
                   root / "home/torch/bin", root / "home/llm.c", checkout / "results", checkout / "my",
                   checkout / "data"):
        folder.mkdir(parents=True)
    rungs = [path.name for path in bin_dir.iterdir() if re.fullmatch(PROGRAM, path.name) and path.name not in HARNESS]
    for build in (checkout / "build/cuda", checkout / "build/cpu", root / "base/build/cuda"):
        (build / "bin").symlink_to(root / "bin")
    for path in bin_dir.rglob("*"):
        place = root / "bin" / path.relative_to(bin_dir)
        if path.is_dir():
            place.mkdir()
        elif path.name in rungs or "ablations" in place.parts:  # a small vocabulary saves most of a small model's time
            small = f"--vocabulary 251 --data {checkout}/tokens.bin"
            executable(place, f'#!/bin/sh\ncase "$*" in *--sample*) small= ;; *) small="{small}" ;; esac\n'
                              f'exec {path} "$@" $small\n')
        else:
            place.symlink_to(path)
    for name in ("scripts", "variants", "examples", "python", "model", "data/gpt2", "data/austen.txt"):
        if (REPOSITORY / name).exists():
            (checkout / name).symlink_to(REPOSITORY / name)
    for name in ("dictionary", "rfc"):
        (checkout / f"data/{name}.txt").write_text(1000 * "A is the first letter.\n")
    charts = shutil.ignore_patterns("*.png", "*.svg", "*.html")
    shutil.copytree(REPOSITORY / "reports", checkout / "reports", ignore=charts)
    (root / "home/torch/bin/python").symlink_to(sys.executable)
    executable(root / "home/llm.c/train_gpt2cu", "#!/bin/sh\nexit 1\n")
    for name in ["srun", "mpirun", "torchrun", "nsys", "ncu", *HARNESS, *rungs]:
        executable(shims / name, f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY / 'tests')!r})\n"
                                 f"import docs_commands\nsys.exit(docs_commands.stand_in({name!r}, sys.argv[1:]))\n")
    (shims / "git").symlink_to("/bin/true")

    (checkout / "parts.json").write_text(json.dumps(PARTS))
    header, ids = [20240520, 1, 4096, *[0] * 253], [i % 16 for i in range(4096)]
    tokens = struct.pack("<256i", *header) + struct.pack("<4096H", *ids)
    (checkout / "tokens.bin").write_bytes(tokens)
    for folder in ("shards", "llm.c/dev/data/fineweb100B"):
        (checkout / folder).mkdir(parents=True)
        for shard in ("fineweb_train_000001.bin", "fineweb_val_000000.bin"):
            (checkout / folder / shard).write_bytes(tokens)
    question = [65535, 22, 0, 1, 2, 1, 7, 1, 8, 1, 9]  # 22 bytes
    (checkout / "llm.c/dev/data/hellaswag").mkdir()
    (checkout / "llm.c/dev/data/hellaswag/hellaswag_val.bin").write_bytes(
        struct.pack("<256i", 20240522, 1, 1, *[0] * 253) + struct.pack(f"<{len(question)}H", *question))
    environment = os.environ | {
        "PATH": f"{shims}:{os.environ['PATH']}", "HOME": str(root / "home"), "STEPLADDER_BIN_DIR": str(root / "bin"),
        "DOCS_MPIRUN": shutil.which("mpirun") or "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1",
        "STEPLADDER_PYTHON": "/nowhere/python",  # other tests cover charts
        "STEPLADDER_BUSY_SAMPLE_MS": "0"}
    made = ("stepladder run --rungs 00,08,09,13 --rounds 2 --out tuned.jsonl\n"
            "for copy in base new mine runs results/1 results/2 h200 a100 reports/latest/results; do\n"
            "  mkdir -p $(dirname $copy); cp tuned.jsonl $copy.jsonl\ndone\ncp new.jsonl $HOME/baseline.jsonl\n"
            "02_tf32 --save-weights model.safetensors --data tokens.bin\n"
            "stepladder calibrate --out noise.json\n"
            "stepladder tune --ladder learning --until-loss 5.2 --steps 8 --lr 1e-2 --out learning_trials.jsonl\n"
            "stepladder tune --ladder my/ladder.json --until-loss 5.2 --steps 12 --lr 1e-2 --out trials.jsonl\n")
    own_trainer(root)
    subprocess.run(["bash", "-ec", made], cwd=checkout, env=environment, check=True, stdout=subprocess.DEVNULL)
    return environment


def own_trainer(root: Path) -> None:
    """Writes the trainer and the ladder of docs/own-trainer.md, with what docs/loss.md adds to them."""
    text, of_loss = ((REPOSITORY / page).read_text(encoding="utf-8") for page in ("docs/own-trainer.md", "docs/loss.md"))
    (loop,), (evaluation,) = (re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) for page in (text, of_loss))
    blocks_of_json = re.findall(r"^```json\n(.*?)^```", text, re.M | re.S)
    (ladder,) = [block for block in blocks_of_json if '"rungs"' in block]
    (switches,) = [block for block in blocks_of_json if '"switches"' in block]
    ladder = ladder.replace('"--steps", "{steps}"', '"--steps", "{steps}", "--lr", "{lr}"')
    train = ("import argparse, itertools, time\n\nparser = argparse.ArgumentParser()\n"
             "for name in ('batch', 'seq', 'seed', 'steps'):\n    parser.add_argument('--' + name, type=int)\n"
             "parser.add_argument('--lr', type=float)\n"
             "for name in ('compile', 'fused'):\n    parser.add_argument('--' + name, action='store_true')\n"
             "parser.add_argument('--attention')\nargs = parser.parse_args()\n"
             "batches = itertools.count()\n\n"
             "def train_step(batch):\n    time.sleep(0.003)\n    return 9 / (1 + batch)\n\n"
             "def validate():\n    return 9 / (1 + i)\n\n")
    for folder in ("here", "here/my", "base", "base/my"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / "ladder.json").write_text(ladder)
        (root / folder / "switches.json").write_text(switches)
        (root / folder / "train.py").write_text(train + loop + evaluation)
        (root / folder / "model.py").touch()


def main(bin_dir: Path, pages: list[Path]) -> int:
    failed, known = 0, {":"}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        environment = prepare(root, bin_dir)
        for page in pages:
            for block in blocks(page):
                script = here(block) if block.startswith("#!") else "\n".join(map(here, block.split("\n")))
                if script in known:  # another page has the script too
                    continue
                known.add(script)
                trap = "trap 'echo \"FAILED: $BASH_COMMAND\" >&2' ERR\n"
                try:
                    done = subprocess.run(["bash", "-eE", "-c", trap + script], cwd=root / "here", env=environment,
                                          text=True, capture_output=True, check=False, timeout=LIMIT_S)
                except subprocess.TimeoutExpired:
                    done = subprocess.CompletedProcess(script, 124, "", f"took longer than {LIMIT_S} s")
                if done.returncode != 0:
                    failed += 1
                    print(f"==== {page.name}, exit code {done.returncode}:\n{script}\n{done.stdout[-1500:]}\n"
                          f"{done.stderr[-1500:]}")
    print(f"{len(known) - 1} blocks of {len(pages)} pages, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    PAGES = [REPOSITORY / page for page in sys.argv[2:]] or \
        [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    sys.exit(main(Path(sys.argv[1]).resolve(), PAGES))
