"""The peers: what they report, and what they refuse. llm.c is a stand-in; PyTorch runs where it is installed."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
import unittest
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from temporary import temp_folder
from types import SimpleNamespace
from unittest import mock

REPOSITORY = Path(__file__).resolve().parent.parent
PEERS = REPOSITORY / "scripts" / "peers"
sys.path.insert(0, str(PEERS))

import peer  # noqa: E402
from token_files import Windows, data_files, open_data, open_shard, open_shards  # noqa: E402

# The output of train_gpt2cu, which among several ranks only the first prints; $steps and $batch are its -x and -b.
LLMC = r"""#!/bin/sh
told="$*"
while [ $# -gt 0 ]; do
  case $1 in -x) steps=$2 ;; -b) batch=$2 ;; -pn) ranks=$2 ;; -pr) rank=$2 ;; esac
  shift
done
[ ${rank:-0} = 0 ] || exit 0
echo "$told" >arguments
echo "| num_processes         | ${ranks:-1}                                                  |"
echo "| device                | NVIDIA H200                                        |"
echo "| precision             | BF16                                               |"
echo "allocated 237 MiB for model parameters"
echo "allocating 237 MiB for parameter gradients"
echo "allocating 900 MiB for activations"
echo "device memory usage: 2134 MiB / 143771 MiB"
echo "val loss 11.006021"
i=1
while [ $i -le $steps ]; do
  printf 'step %4d/%d | loss 10.%d6021 (+nanz)| norm 15.3235 (+nanz)| lr 1.00e-04 | ' $i $steps $i
  echo "3$i.41 ms | 53.1% bf16 MFU | 538000 tok/s"
  i=$((i + 1))
done
echo "val loss 9.875"
echo "total average iteration time: 30.41 ms"
"""


def write_tokens(path: Path, tokens: list[int]) -> None:
    """Writes a token file in llm.c's format."""
    header = struct.pack("<3i", 20240520, 1, len(tokens)).ljust(1024, b"\0")
    path.write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))


class Peer(unittest.TestCase):
    def setUp(self):
        self.folder = temp_folder(self)
        write_tokens(self.folder / "data.bin", [7919 * i * i % 50257 for i in range(3000)])

    def start(self, *command: str, **environment: str):
        """Runs a peer to its end. Returns its exit status, stderr and events."""
        read, write = os.pipe()
        with subprocess.Popen([sys.executable, *map(str, command), "--events", str(write)], cwd=self.folder,
                              pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"OMP_NUM_THREADS": "1"} | environment) as child:
            os.close(write)
            with os.fdopen(read) as pipe:
                events = [json.loads(line) for line in pipe]
            return child.wait(), child.stderr.read(), events

    def refused(self, outcome, code: int, status: str, *words: str) -> None:
        got, errors, events = outcome
        self.assertEqual((got, errors.count("\n")), (code, 1), errors)
        self.assertEqual([(event["event"], event["status"]) for event in events], [("error", status)])
        for word in words:
            self.assertIn(word, events[0]["reason"])
            self.assertIn(word, errors)


    def refuses(self, outcome, word: str) -> None:
        """Expects an error of use, on one line that has the word."""
        self.assertEqual((outcome[0], outcome[1].count("\n")), (2, 1), outcome[1])
        self.assertIn(word, outcome[1])


class Llmc(Peer):
    def setUp(self):
        super().setUp()
        self.binary = self.folder / "train_gpt2cu"
        self.write(LLMC)

    def write(self, text: str) -> None:
        self.binary.write_text(text)
        self.binary.chmod(0o755)

    def run_llmc(self, *more: str, **environment: str):
        return self.start(PEERS / "llmc", self.binary, "--data", "data.bin", "--batch", "2", "--seq", "64",
                          "--steps", "3", *more, **environment)

    def test_its_lines_become_events(self):
        code, errors, (start, *steps, end) = self.run_llmc()
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual((start["variant"], start["backend"]), ("llmc", "cuda"))
        self.assertEqual(start["config"] | {"B": 2, "T": 64, "dtype": "bf16", "math": "half"}, start["config"])
        self.assertEqual([(step["step"], step["step_ms"], step["loss"]) for step in steps],
                         [(0, 31.41, 10.16021), (1, 32.41, 10.26021), (2, 33.41, 10.36021)])
        self.assertEqual((steps[0]["grad_norm"], steps[0]["lr"]), (15.3235, 1e-4))
        self.assertEqual(end["memory_bytes"]["live_peak"], 1374 << 20)
        self.assertEqual(end["memory_bytes"]["process_peak"], 2134 << 20)
        self.assertEqual(end["memory_bytes"]["by_name"]["activations"], 900 << 20)

    def test_it_is_told_the_workload(self):
        self.run_llmc("--accumulate", "4", "--lr", "0.002", "--attention", "cudnn", LLMC_FLAGS="-r 1 -ge 2")
        arguments = (self.folder / "arguments").read_text()
        for words in ("-b 2 -t 64 -d 512 -x 3 -l 0.002", "-e d12", "-v 4 -m 1", "-r 1 -ge 2"):
            self.assertIn(words, arguments)
        self.assertNotIn("-q", arguments)

    def test_its_rate_decays_until_its_last_step_alone(self):
        for more, share in (("", "0.1"), ("--min-lr 0", "0.0"), ("--min-lr 0.001", "0.5")):
            self.run_llmc("--lr", "0.002", "--decay-steps", "3", *more.split())
            self.assertIn(f"-q {share} ", (self.folder / "arguments").read_text())
        self.refused(self.run_llmc("--decay-steps", "2"), 2, "error", "--decay-steps 2", "3")

    def test_the_type_it_was_built_for_is_the_one_asked_for(self):
        self.assertEqual(self.run_llmc("--dtype", "bf16")[0], 0)
        self.refused(self.run_llmc("--dtype", "fp16"), 5, "unsupported", "built for BF16", "PRECISION=FP16")

    def test_validation_is_the_one_after_the_last_step(self):
        code, _, events = self.run_llmc("--val-data", "data.bin", "--eval-every", "3")
        self.assertEqual([event for event in events if event["event"] == "eval"],
                         [{"event": "eval", "step": 3, "val_loss": 9.875}])

    def test_it_evaluates_on_what_a_rung_holds_out(self):
        self.write(LLMC.replace("-x) steps=$2 ;;", "-x) steps=$2 ;; -i) cp $2 told.train ;; -j) cp $2 told.val ;;"))
        self.assertEqual(self.run_llmc("--eval-every", "1")[0], 0)
        tokens = (self.folder / "data.bin").read_bytes()[1024:]
        for told, expected in (("told.train", tokens[:2 * 2700]), ("told.val", tokens[2 * 2700:])):
            shard = open_shard(self.folder / told)
            self.assertEqual((shard.layout, shard.size), ("llm.c's .bin", len(expected) // 2))
            self.assertEqual((self.folder / told).read_bytes()[1024:], expected)
        self.refused(self.run_llmc("--eval-every", "1", "--seq", "150"), 5, "unsupported", "300 tokens", "--val-data")
        self.assertEqual(self.run_llmc("--eval-every", "1", "--eval-skip", "1")[0], 0)
        self.assertEqual((self.folder / "told.val").read_bytes()[1024:], tokens[2 * (2700 + 2 * 64):])
        self.refused(self.run_llmc("--eval-every", "1", "--eval-skip", "3"), 5, "unsupported", "0 tokens", "--val-data")

    def test_a_loss_that_is_reached_ends_it_in_good_order(self):
        self.binary.write_text(LLMC.replace("  i=$((i + 1))", '  echo "val loss 9.$((9 - i))"\n  i=$((i + 1))'))
        for data in ([], ["--val-data", "data.bin"]):
            code, _, (_, *events, end) = self.run_llmc(*data, "--eval-every", "1", "--until-loss", "9.7")
            self.assertEqual((code, end["event"]), (0, "end"))
            self.assertEqual([event["step"] for event in events if event["event"] == "step"], [0, 1])
            self.assertEqual(events[-1], {"event": "eval", "step": 2, "val_loss": 9.7})

    def test_its_version_names_script_and_binary(self):
        def version() -> str:
            command = [PEERS / "llmc", self.binary, "--version"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        before = version()
        self.assertRegex(before, r" source [0-9a-f]{64}\n$")
        self.write(LLMC + "# changed")
        self.assertNotEqual(version(), before)

    def test_what_it_cannot_measure_is_unsupported(self):
        self.refused(self.run_llmc("--model", "gpt2-tiny"), 5, "unsupported", "gpt2-tiny")
        self.refused(self.run_llmc("--backend", "cpu"), 5, "unsupported", "CUDA")
        self.write(LLMC.replace("BF16", "TF32"))
        self.refused(self.run_llmc(), 5, "unsupported", "TF32", "PRECISION=BF16")

    def test_several_ranks_are_told_what_the_first_prints(self):
        others = self.folder / "events.1"
        os.mkfifo(others)
        with ThreadPoolExecutor() as pool:
            told = pool.submit(others.read_text)
            code, errors, events = self.run_llmc("--devices", "2", STEPLADDER_EVENTS_1=str(others))
            other = [json.loads(line) for line in told.result(timeout=10).splitlines()]
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual([event.pop("rank", None) for event in (events[0], other[0])], [0, 1])
        self.assertEqual(events, other)
        self.assertEqual((events[0]["config"]["world_size"], len(events)), (2, 5))
        self.assertRegex((self.folder / "arguments").read_text(), r"-d 256 .*-pn 2 -pg 2 -pi fs -pf \S+ -z 1 .*-pr 0")

    def test_each_rank_tells_which_device_is_its_own(self):
        smi = self.folder / "nvidia-smi"
        smi.write_text("#!/bin/sh\nprintf 'GPU-a\nGPU-b\nGPU-c\n'\n")
        smi.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        for visible, uuid in (("", "GPU-a"), ("2,1", "GPU-c"), ("GPU-b,GPU-a", "GPU-b"), ("5,6", None), ("1", None)):
            start = self.run_llmc("--devices", "2", PATH=path, CUDA_VISIBLE_DEVICES=visible)[2][0]
            self.assertEqual(start["device"].get("uuid"), uuid, visible)
        self.assertNotIn("uuid", self.run_llmc(PATH=path)[2][0]["device"])

    def test_it_runs_on_the_device_that_a_rung_would(self):
        self.write(LLMC.replace("echo \"$told\"", "echo \"$CUDA_VISIBLE_DEVICES\""))
        for visible, device, used in (("", "1", "1"), ("2,3", "1", "3"), ("GPU-b,GPU-a", "1", "GPU-a"), ("2,3", "0", "2,3")):
            self.run_llmc("--device", device, CUDA_VISIBLE_DEVICES=visible)
            self.assertEqual((self.folder / "arguments").read_text().strip(), used)

    def test_a_rank_that_fails_ends_the_others(self):
        self.write(LLMC.replace("exit 0", "{ echo no memory; exit 3; }").replace("i=1\n", "exec sleep 60\n"))
        begin = time.monotonic()
        code, errors, events = self.run_llmc("--devices", "3")
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual((code, events[-1]["status"]), (5, "error"))
        self.assertRegex(errors, r"rank [12] .*\b3: ")

    def test_what_fails_after_the_last_step_was_complete(self):
        self.write(LLMC.replace("exit 0", "exit 1") + "sleep 0.2\nexit 1\n")
        for devices in "1", "2":
            code, errors, events = self.run_llmc("--devices", devices)
            self.assertEqual((code, errors, events[-1]["event"]), (0, "", "end"))

    def test_one_built_for_one_device_is_unsupported_on_several(self):
        self.write(LLMC.replace("${ranks:-1}", "1"))
        self.refused(self.run_llmc("--devices", "2"), 5, "unsupported", "one device", "NCCL")

    def test_a_failure_is_its_last_line(self):
        self.write("#!/bin/sh\necho starting\necho 'Error: no such flag' >&2\nexit 1\n")
        self.refused(self.run_llmc(), 5, "error", "ended with 1", "no such flag")
        self.write("#!/bin/sh\necho '[CUDA ERROR] at file x.cu:1: out of memory' >&2\nexit 1\n")
        self.refused(self.run_llmc(), 5, "oom", "out of memory")
        self.write("#!/bin/sh\nexit 0\n")
        self.refused(self.run_llmc(), 5, "error", "train_gpt2cu")

    def test_a_loss_that_is_not_finite_is_diverged(self):
        self.write(LLMC.replace("10.%d6021", "nan%.0s"))
        code, _, events = self.run_llmc()
        self.assertEqual((code, events[-1]["status"], events[-2]["loss"]), (5, "diverged", None))

    def test_shards_are_a_pattern_for_it(self):
        self.write(LLMC.replace("-x) steps=$2 ;;", "-x) steps=$2 ;; -i) ls $2 | wc -l >trained ;;"))
        for i in range(3):
            write_tokens(self.folder / f"fw_{('val', 'train', 'train')[i]}_{i}.bin", [i] * 3000)
        code, errors, _ = self.run_llmc("--data", "fw*.bin", "--shuffle")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual((self.folder / "trained").read_text().split(), ["2"])
        self.assertRegex((self.folder / "arguments").read_text(), r"-j \S*fw_val_0.bin")

    def test_shuffle_moves_its_sequences_as_a_rungs_first_epoch_does(self):
        self.write(LLMC.replace("-x) steps=$2 ;;", "-x) steps=$2 ;; -i) cat $2 >trained.bin ;;"))
        write_tokens(self.folder / "val.bin", list(range(200)))
        for i, size in enumerate((64 * 20 + 1, 64 * 6 + 5)):  # the first holds whole batches and the last target
            write_tokens(self.folder / f"train{i}.bin", list(range(10_000 * i, 10_000 * i + size)))
        files = [self.folder / f"train{i}.bin" for i in range(2)]
        code, errors, _ = self.run_llmc("--data", "train*.bin", "--val-data", "val.bin", "--shuffle", "--seed", "3")
        self.assertEqual((code, errors), (0, ""))
        windows, wanted = Windows([open_shard(file) for file in files], 1, 64, 3), []
        windows.begin_epoch(0)
        for turn, shard in enumerate(windows.order):
            windows.begin_shard(turn, shard)
            firsts = [10_000 * shard + 64 * at for at in windows.sequences]
            wanted += [token for first in firsts for token in range(first, first + 64)] + [max(firsts) + 64]
        raw, trained = (self.folder / "trained.bin").read_bytes(), []
        while raw:
            size = struct.unpack("<3i", raw[:12])[2]
            trained += struct.unpack(f"<{size}H", raw[1024:1024 + 2 * size])
            raw = raw[1024 + 2 * size:]
        self.assertEqual(trained, wanted)
        self.assertNotEqual(wanted, sorted(wanted))

    def test_wrong_input_is_refused(self):
        (self.folder / "raw.bin").write_bytes(bytes(4000))
        self.refused(self.run_llmc("--data", "raw.bin"), 5, "unsupported", "raw.bin")
        self.refused(self.run_llmc("--data", "nowhere.bin"), 2, "error", "nowhere.bin")
        self.binary.unlink()
        missing = self.run_llmc()
        self.refuses(missing, str(self.binary))
        self.assertEqual(missing[2], [])


class TokenFiles(Peer):
    """The files and tokens of a batch, which tests/data_test.cpp checks for the rungs."""

    def shards(self, *sizes: int) -> None:
        for i, size in enumerate(sizes):
            write_tokens(self.folder / f"shard_{1000 + i}.bin", [1000 * i + j for j in range(size)])

    def names(self, data: str, val_data: str = "") -> list[list[str]]:
        return [[file.name for file in files] for files in data_files(data, val_data)]

    def test_names_say_what_validates(self):
        (self.folder / "data.bin").unlink()
        for name in ("fw_train_2.bin", "fw_val_0.bin", "fw_train_1.bin", "._fw_train_1.bin", "value.txt"):
            (self.folder / name).write_bytes(b"")
        for path in (str(self.folder), f"{self.folder}/*.bin"):
            self.assertEqual(self.names(path), [["fw_train_1.bin", "fw_train_2.bin"], ["fw_val_0.bin"]])
        only = str(self.folder / "fw_val_0.bin")
        self.assertEqual(self.names(only), [["fw_val_0.bin"], []])
        self.assertEqual(self.names(f"{self.folder}/*_1.bin", only), [["fw_train_1.bin"], ["fw_val_0.bin"]])
        self.assertEqual(self.names(only, str(self.folder)), [["fw_val_0.bin"], ["fw_val_0.bin"]])
        for data, val_data, word in ((f"{self.folder}/*_val_*", "", "fw_val_0.bin"),
                                     (f"{self.folder}/*.npy", "", "*.npy"), (only, f"{self.folder}/*.npy", "*.npy"),
                                     (str(PEERS / "__no__*"), "", "__no__*"), (str(REPOSITORY / "cmake"), "", "cmake")):
            with self.assertRaisesRegex(peer.InputError, word.replace("*", r"\*")):
                data_files(data, val_data)

    @unittest.skipUnless(find_spec("numpy"), "NumPy is not installed")
    def test_without_such_a_name_the_last_file_or_tenth_validates(self):
        self.shards(20, 30, 10)
        for data, sizes in ((f"{self.folder}/shard_*", ([20, 30], [10])), (self.folder / "shard_1001.bin", ([27], [3]))):
            found = open_data(SimpleNamespace(data=str(data), val_data="", vocab=""))
            self.assertEqual(tuple([shard.size for shard in shards] for shards in found), sizes)
        with found[1][0].path.open("rb") as opened:
            self.assertEqual(found[1][0].read(opened, 0, 3).tolist(), [1027, 1028, 1029])

    def test_a_damaged_shard_is_refused_by_name(self):
        self.shards(20, 30, 10)
        files = sorted(self.folder.glob("shard_*.bin"))
        good = files[1].read_bytes()
        for damaged in (good[:-2], b"x" + good[1:], b""):
            files[1].write_bytes(damaged)
            with self.assertRaisesRegex(peer.InputError, "shard_1001.bin"):
                open_shards(files, "")
        text = self.folder / "text.npy"
        text.write_text("sixteen bytes of")
        with self.assertRaisesRegex(peer.InputError, r"text\.npy.*numpy\.save"):
            open_shard(text)

    def test_a_file_of_another_kind_is_refused_by_name(self):
        wide = array("H", [i % 3000 if i % 2 == 0 else 0 for i in range(2, 2002)]).tobytes()
        widest = array("H", [i + 5 if i % 4 == 0 else 0 for i in range(2000)]).tobytes()
        for content, word in ((wide, "int32"), (widest, "int64"), (b"Some plain words.\n" * 9, "text"),
                              (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
                              (b"<!DOCTYPE html>\n<html></html>\n", "HTML")):
            (self.folder / "other.bin").write_bytes(content)
            with self.assertRaisesRegex(peer.InputError, rf"other\.bin.*{word}"):
                open_shard(self.folder / "other.bin")
        for tokens in ([0] * 2000, [5] + [0] * 1999, [i * 7 % 65 for i in range(2000)]):
            (self.folder / "real.bin").write_bytes(array("H", tokens).tobytes())
            self.assertEqual(open_shard(self.folder / "real.bin").size, 2000)

    @unittest.skipUnless(find_spec("numpy"), "NumPy is not installed")
    def test_a_file_that_gets_shorter_is_named(self):
        self.shards(40)
        windows = Windows(open_shards([self.folder / "shard_1000.bin"], ""), 2, 3)
        windows[0]
        os.truncate(self.folder / "shard_1000.bin", 1024 + 40)
        with self.assertRaisesRegex(peer.InputError, "shard_1000.bin.*shorter"):
            windows[5]

    @unittest.skipUnless(find_spec("numpy"), "NumPy is not installed")
    def test_batches_are_those_of_the_rungs(self):
        self.shards(64, 13, 31)
        shards = open_shards(sorted(self.folder.glob("shard_*.bin")), "")
        ordered, shuffled = Windows(shards, 2, 3), Windows(shards, 2, 3, 1337)
        self.assertEqual([ordered[i][0, 0] for i in (0, 9, 10, 11, 12, 16, 17)], [0, 54, 1000, 1006, 2000, 2024, 0])
        self.assertEqual(ordered[11].tolist(), [[1006, 1007, 1008, 1009], [1009, 1010, 1011, 1012]])
        expected = [int(token) for token in (REPOSITORY / "tests/data/shuffled_batches.txt").read_text().split()]
        self.assertEqual([first for i in range(34) for first in shuffled[i][:, 0]], expected)
        self.assertEqual(shuffled[20][0, 0], expected[40])
        write_tokens(self.folder / "shard_1001.bin", [*range(12), 60000])
        with self.assertRaisesRegex(peer.InputError, "shard_1001.bin.*60000"):
            ordered[11]


class Ladder(Peer):
    def trained(self, script: str, rung: str, *more: str, **environment: str):
        return self.start(PEERS / script, rung, "--model", "gpt2-tiny", "--data", "data.bin", "--batch", "2", "--seq", "32",
                          "--steps", "3", "--backend", "cpu", *more, **environment)

    def run_rung(self, rung: str, *more: str, **environment: str):
        return self.trained("pytorch_ladder.py", rung, *more, TORCHDYNAMO_DISABLE="1", **environment)


class WithoutPytorch(Ladder):
    def test_what_pytorch_has_no_counterpart_of_is_unsupported(self):
        self.refused(self.run_rung("01_causal_mask"), 5, "unsupported", "counterpart", "01_causal_mask")
        self.refused(self.run_rung("fp8"), 5, "unsupported", "counterpart", "fp8")

    def test_without_pytorch_every_rung_is_unsupported(self):
        (self.folder / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')")
        self.refused(self.run_rung("00_fp32_baseline", PYTHONPATH=str(self.folder)), 5, "unsupported", "no torch")

    def test_its_version_needs_no_pytorch(self):
        done = subprocess.run([PEERS / "pytorch_ladder.py", "--version"], check=True, capture_output=True, text=True)
        self.assertRegex(done.stdout, r" source [0-9a-f]{64}\n$")

    def test_wrong_options_are_refused_on_one_line(self):
        for options, word in ((["--batch", "0"], "--batch"), (["--lr", "fast"], "--lr"), (["--lrr", "1"], "--lrr"),
                              (["--dtype", "bf17"], "bf16")):
            self.refuses(self.run_rung("00_fp32_baseline", *options), word)

    def test_raschkas_ladder_names_his_steps_and_options(self):
        import raschka_ladder
        rungs = json.loads((PEERS / "raschka.json").read_text(encoding="utf-8"))["rungs"]
        self.assertEqual([rung["name"][:2] for rung in rungs], [f"{step:02}" for step in [*range(10), 11]])
        for rung, before in zip(rungs, [{"name": None}, *rungs]):
            self.assertEqual(rung["parent"], before["name"])
            program, script, *words = rung["command"]
            self.assertEqual((program, script), ("{python}", "raschka_ladder.py"))
            workload = {"batch": 8, "seq": 1024, "steps": 3, "seed": 1, "data": "x", "backend": "cpu", "device": 0}
            settings = raschka_ladder.parse([word.format(**workload) for word in words])
            self.assertEqual((settings.rung, settings.lr, settings.grad_clip), (rung["name"], 5e-4, 0))
            for file in rung["sources"]:
                self.assertTrue((PEERS / file).is_file(), file)

    def test_the_ladder_of_its_options_names_its_rungs_and_options(self):
        from pytorch_ladder import LADDER, parse
        for rung in json.loads((PEERS / "pytorch_options.json").read_text(encoding="utf-8"))["rungs"]:
            program, script, *words = rung["command"]
            self.assertEqual((program, script, words.pop(1)), ("{python}", "pytorch_ladder.py", "{arguments}"))
            self.assertIn(parse(words).rung, LADDER)

    def test_attention_is_chosen_as_a_rungs_is(self):
        from pytorch_ladder import parse
        for asked, backend in (([], "auto"), (["auto"], "auto"), (["cudnn"], "cudnn"), (["native"], "flash")):
            words = [word for name in asked for word in ("--attention", name)]
            self.assertEqual(parse(["09_flash_attention", *words]).attention, backend, asked)
        self.refuses(self.run_rung("09_flash_attention", "--attention", "cudn"), "cudn")

    def test_a_rank_of_no_world_is_refused(self):
        for world, word in (({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2"), ({"WORLD_SIZE": "two"}, "WORLD_SIZE=two"),
                            ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1")):
            self.refuses(self.run_rung("15_multi_gpu", **world), word)
        self.refuses(self.run_rung("15_multi_gpu", "--world-size", "4", RANK="0", WORLD_SIZE="2"), "--nproc-per-node=4")

    def test_ranks_are_as_torchrun_tells(self):
        from pytorch_ladder import rank_of
        with mock.patch.dict(os.environ, {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}):
            self.assertEqual(rank_of(None), (3, 4))
            self.assertEqual(rank_of(4), (3, 4))
        with mock.patch.dict(os.environ, clear=True):
            self.assertEqual(rank_of(None), (0, 1))

    def test_the_learning_rate_warms_up_and_decays(self):
        from pytorch_ladder import learning_rate
        settings = SimpleNamespace(lr=1.0, min_lr=0.1, warmup_lr_steps=4, decay_steps=8)
        rates = [learning_rate(settings, step) for step in (0, 3, 4, 6, 8, 100)]
        for rate, expected in zip(rates, (0.25, 1.0, 1.0, 0.55, 0.1, 0.1)):
            self.assertAlmostEqual(rate, expected)


@unittest.skipUnless(find_spec("torch") and find_spec("numpy"), "PyTorch is not installed")
class WithPytorch(Ladder):
    def test_every_rung_trains_on_the_same_batches(self):
        losses = {}
        for rung in ("00_fp32_baseline", "04_pinned_loader", "05_mixed_precision", "09_flash_attention"):
            code, errors, events = self.run_rung(rung)
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual([event["event"] for event in events], ["start", "step", "step", "step", "end"])
            start, *steps, end = events
            self.assertEqual(start["variant"], f"pytorch/{rung}")
            self.assertEqual(start["config"] | {"B": 2, "T": 32, "V": 50257}, start["config"])
            self.assertTrue(all(step["step_ms"] > 0 and step["grad_norm"] > 0 for step in steps))
            self.assertGreater(end["memory_bytes"]["process_peak"], 1 << 20)
            self.assertEqual("sdpa" in start["config"], rung == "09_flash_attention")
            losses[rung] = [step["loss"] for step in steps]
        for rung, curve in losses.items():
            for loss, expected in zip(curve, losses["00_fp32_baseline"]):
                self.assertAlmostEqual(loss, expected, delta=2e-3 * expected, msg=rung)

    def test_fp16_scales_its_loss_and_the_vocabulary_is_padded(self):
        code, errors, (start, *steps, evaluation, _) = self.run_rung(
            "13_cuda_graphs", "--dtype", "fp16", "--accumulate", "2", "--eval-every", "3", "--eval-batches", "1")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual((start["config"]["V"], start["config"]["dtype"]), (50304, "f16"))
        self.assertLess(abs(steps[0]["loss"] - 10.83), 0.2)
        self.assertEqual((evaluation["event"], evaluation["step"]), ("eval", 3))

    def test_inductor_pads_shapes_where_the_vocabulary_is_padded_or_as_asked(self):
        for rung, asked, pads in (("09_flash_attention", "auto", False), ("09_flash_attention", "on", True),
                                  ("10_padded_vocab", "auto", True), ("10_padded_vocab", "off", False)):
            code, errors, (start, *_) = self.run_rung(rung, "--shape-padding", asked)
            self.assertEqual((code, errors), (0, ""))
            self.assertIs(start["config"]["shape_padding"], pads, (rung, asked))

    def test_parameters_can_be_in_bf16_too(self):
        curves = {}
        for kept in ("fp32", "half"):
            code, errors, (start, *steps, _) = self.run_rung("09_flash_attention", "--parameters", kept)
            self.assertEqual((code, errors, start["config"]["parameters"]), (0, "", kept))
            curves[kept] = [step["loss"] for step in steps]
        self.assertNotEqual(curves["half"], curves["fp32"])
        self.assertAlmostEqual(curves["half"][-1], curves["fp32"][-1], delta=0.05)
        self.refused(self.run_rung("03_fused_adamw", "--parameters", "half"), 5, "unsupported", "05_mixed_precision")

    def test_the_backend_of_attention_is_recorded(self):
        for asked in ("auto", "flash"):
            code, errors, (start, *_) = self.run_rung("09_flash_attention", "--attention", asked)
            self.assertEqual((code, errors), (0, ""))
            self.assertEqual((start["config"]["attention"], start["config"]["sdpa"]), (asked, "flash_attention"))
        self.refused(self.run_rung("09_flash_attention", "--attention", "cudnn"), 5, "unsupported", "cudnn")

    def test_a_compiled_step_is_not_taken_from_another_backends_cache(self):
        import torch
        from pytorch_gpt2 import Batches, Config, Features, Trainer
        from pytorch_ladder import MODELS
        config = Config(2, 24, V=50257, **MODELS["gpt2-tiny"])
        hyper = SimpleNamespace(accumulate=1, weight_decay=0.1, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip=1.0)
        windows = Windows([open_shard(self.folder / "data.bin")], config.B, config.T)
        hits = torch._dynamo.utils.counters["aot_autograd"]
        with mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(self.folder / "cache")):
            for attention, cached in (("math", 0), ("flash", 0), ("flash", 1)):
                torch.compiler.reset()
                trainer = Trainer(config, Features(compile="default", flash=True, attention=attention), hyper, 0,
                                  torch.device("cpu"))
                before = hits["autograd_cache_hit"]
                trainer.step(Batches(windows, trainer.device, pinned=False), 1e-4)
                self.assertEqual(hits["autograd_cache_hit"] - before, cached, attention)

    def test_a_loss_that_is_reached_ends_training(self):
        code, _, events = self.run_rung("00_fp32_baseline", "--eval-every", "1", "--eval-batches", "1",
                                        "--until-loss", "20")
        self.assertEqual(code, 0)
        self.assertEqual([event["event"] for event in events], ["start", "step", "eval", "end"])

    def test_it_evaluates_on_the_batches_behind_those_passed_over(self):
        def loss(*options: str) -> float:
            *_, evaluation, _ = self.run_rung("00_fp32_baseline", "--eval-every", "3", *options)[2]
            return evaluation["val_loss"]
        first, second = (loss("--eval-batches", "1", "--eval-skip", skip) for skip in ("0", "1"))
        self.assertNotEqual(first, second)
        self.assertAlmostEqual(loss("--eval-batches", "2"), (first + second) / 2, delta=1e-4)

    def test_a_large_batch_is_searched_for(self):
        code, errors, events = self.start(PEERS / "pytorch_ladder.py", "14_large_batch", "--model", "gpt2-tiny",
                                          "--data", "data.bin", "--seq", "32", "--steps", "1", TORCHDYNAMO_DISABLE="1")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(events[0]["config"]["B"], 64)  # found for 2,700 training tokens

    def test_damaged_or_short_data_is_refused(self):
        (self.folder / "torn.bin").write_bytes((self.folder / "data.bin").read_bytes()[:-2])
        self.refused(self.run_rung("00_fp32_baseline", "--data", "torn.bin"), 2, "error", "torn.bin", "3000")
        self.refused(self.run_rung("00_fp32_baseline", "--batch", "999"), 2, "error", "data.bin", "--batch")
        (self.folder / "new.txt").write_text("never tokenised")
        self.refused(self.run_rung("00_fp32_baseline", "--data", "new.txt"), 2, "error", "new.txt", "rung's executable")
        write_tokens(self.folder / "wide.bin", [60000] * 3000)
        self.refused(self.run_rung("00_fp32_baseline", "--data", "wide.bin"), 2, "error", "60000")

    def test_two_ranks_learn_what_one_does_with_twice_the_batches(self):
        _, _, (_, *alone, _) = self.run_rung("15_multi_gpu", "--dtype", "bf16", "--accumulate", "2")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
        for rung in ("15_multi_gpu", "16_zero1"):
            with ThreadPoolExecutor(2) as pool:
                ranks = list(pool.map(lambda rank: self.run_rung(rung, RANK=str(rank), LOCAL_RANK=str(rank), **meeting),
                                      range(2)))
            for rank, (code, errors, (start, *steps, _)) in enumerate(ranks):
                self.assertEqual(code, 0, errors)
                self.assertEqual((start["rank"], start["config"]["world_size"]), (rank, 2))
                for step, expected in zip(steps, alone, strict=True):
                    self.assertAlmostEqual(step["loss"], expected["loss"], delta=1e-2 * expected["loss"])
        with ThreadPoolExecutor(2) as pool:
            ranks = list(pool.map(lambda rank: self.run_step("11_ddp", RANK=str(rank), LOCAL_RANK=str(rank), **meeting),
                                  range(2)))
        self.assertEqual([(code, events[-1]["event"]) for code, _, events in ranks], [(0, "end")] * 2)
        self.assertEqual(*([step["loss"] for step in events[1:-1]] for _, _, events in ranks))

    def run_step(self, rung: str, *more: str, **environment: str):
        return self.trained("raschka_ladder.py", rung, *more, TORCHDYNAMO_DISABLE="1", **environment)

    def test_raschkas_steps_train(self):
        for rung, told in (("00_orig", ("f32", "fp32", 50257, "")), ("05_bf16", ("bf16", "half", 50257, "")),
                           ("09_vocab50304", ("bf16", "half", 50304, "default"))):
            code, errors, (start, *steps, end) = self.run_step(rung)
            self.assertEqual((code, errors, end["event"], len(steps)), (0, "", "end", 3))
            self.assertEqual(start["variant"], f"raschka-pytorch/{rung}")
            self.assertEqual(tuple(start["config"][key] for key in ("dtype", "math", "V", "compile_mode")), told)
            self.assertEqual({step["lr"] for step in steps}, {5e-4})
            self.assertFalse(any("grad_norm" in step for step in steps), "he doesn't clip")
            self.assertLess(abs(steps[0]["loss"] - 11), 0.5)
        self.refused(self.run_step("10_batch_size"), 5, "unsupported", "10_batch_size")

    def test_raschkas_steps_are_one_model(self):
        """Every step's model has 163,009,536 parameters; without dropout all steps' ways of computing give equal results."""
        import torch
        from pytorch_gpt2 import Config
        from pytorch_ladder import MODELS
        from raschka_gpt2 import LayerNorm, Steps, gelu
        x = torch.linspace(-4, 4, 64).view(4, 16)
        torch.testing.assert_close(gelu(x), torch.nn.functional.gelu(x, approximate="tanh"))
        torch.testing.assert_close(LayerNorm(16)(0.01 * x), torch.nn.LayerNorm(16)(0.01 * x))
        ways = [Steps(dropout=0, **on) for on in
                ({"stored_mask": True}, {}, {"native": True}, {"native": True, "flash": True})]
        with torch.device("meta"):
            sizes = [sum(p.numel() for p in steps.model(Config(8, 1024, V=50257, **MODELS["gpt2"])).parameters())
                     for steps in ways]
        self.assertEqual(set(sizes), {163_009_536})
        config = Config(2, 24, V=61, **MODELS["gpt2-tiny"])
        torch.manual_seed(5)
        tokens = torch.randint(61, (3, 2, 24))
        weights, losses = ways[0].model(config).state_dict(), []
        for steps in ways:
            model = steps.model(config)
            if steps.flash:
                for i in range(config.L):
                    parts = [weights.pop(f"h.{i}.attn.qkv.{j}.weight") for j in range(3)]
                    weights[f"h.{i}.attn.qkv.0.weight"] = torch.cat(parts)
            model.load_state_dict(weights)
            losses.append(model(tokens[0], tokens[1]).item())
        for loss in losses:
            self.assertAlmostEqual(loss, losses[0], delta=1e-5)
        dropped = Steps().model(config)
        self.assertNotEqual(dropped(tokens[0], tokens[1]).item(), dropped(tokens[0], tokens[1]).item())

    def test_raschkas_bf16_has_no_masters_and_evaluation_no_dropout(self):
        import torch
        from pytorch_gpt2 import Batches, Config, Trainer
        from pytorch_ladder import MODELS
        from raschka_gpt2 import Steps
        config = Config(2, 24, V=50257, **MODELS["gpt2-tiny"])
        hyper = SimpleNamespace(accumulate=1, weight_decay=0.1, beta1=0.9, beta2=0.999, eps=1e-8, grad_clip=0.0)
        steps = Steps(half=torch.bfloat16, pure=True, native=True, flash=True, fused_adamw=True)
        trainer = Trainer(config, steps, hyper, 0, torch.device("cpu"))
        windows = Windows([open_shard(self.folder / "data.bin")], config.B, config.T)

        def validation() -> float:
            return trainer.evaluate(Batches(windows, trainer.device, pinned=False), 2)

        loss, norm = trainer.step(Batches(windows, trainer.device, pinned=False), 5e-4)
        self.assertIsNone(norm)
        state = trainer.optimizer.state[trainer.parameters[0]]
        self.assertEqual({p.dtype for p in trainer.parameters} | {state["exp_avg"].dtype}, {torch.bfloat16})
        self.assertEqual(validation(), validation())
        self.assertTrue(trainer.model.training)

    def learns(self, features, expected: dict, changed=lambda name, value: value) -> None:
        """Ten steps from the checkpoint of the parity tests give the expected losses and norms. `changed` has a parameter's
        first value, of the name and value in the checkpoint, where it is another one."""
        import numpy as np
        import torch
        from pytorch_gpt2 import Batches, Config, Trainer
        folder = REPOSITORY / "tests" / "data" / "hf_parity"
        reference = json.loads((folder / "losses.json").read_text())
        shape = json.loads((folder / "config.json").read_text())
        config = Config(B=reference["B"], T=reference["T"], max_T=shape["n_positions"], V=shape["vocab_size"],
                        L=shape["n_layer"], NH=shape["n_head"], C=shape["n_embd"])
        hyper = SimpleNamespace(accumulate=1, **{key: reference[key] for key in
                                                 ("weight_decay", "beta1", "beta2", "eps", "grad_clip")})
        raw = (folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        tensors = {key.removeprefix("transformer."): value for key, value in json.loads(raw[8:8 + size]).items()}
        cpu = torch.device("cpu")
        trainer = Trainer(config, features, hyper, 0, cpu)
        with torch.no_grad():
            for name, parameter in trainer.model.named_parameters():
                tensor = tensors[name if name in tensors else "wte.weight"]
                begin, end = tensor["data_offsets"]
                value = np.frombuffer(raw[8 + size + begin:8 + size + end], "<f4").reshape(tensor["shape"])
                conv1d = name.split(".")[-2].startswith("c_") and parameter.dim() == 2
                parameter.copy_(changed(name, torch.from_numpy((value.T if conv1d else value).copy())))
        windows = Windows([open_shard(folder / "tokens.bin")], config.B, config.T)
        batches = Batches(windows, cpu, pinned=False)
        for pair in zip(expected["losses"], expected["norms"], strict=True):
            for got, wanted in zip(trainer.step(batches, reference["lr"]), pair):
                self.assertAlmostEqual(got.item(), wanted, delta=1e-4 * wanted)

    def test_it_learns_what_the_rungs_learn(self):
        from pytorch_gpt2 import Features
        expected = json.loads((REPOSITORY / "tests" / "data" / "hf_parity" / "losses.json").read_text())
        for features in (Features(), Features(fused_adamw=True, flash=True)):
            self.learns(features, expected)

    def test_its_ladder_of_learning_learns_what_the_rungs_learn(self):
        from pytorch_learning import RUNGS, features_of
        folder = REPOSITORY / "tests" / "data" / "hf_parity"
        expected = {"00_adamw": json.loads((folder / "losses.json").read_text())}
        expected |= json.loads((folder / "learning.json").read_text())["trainers"]
        for rung in RUNGS:
            settings = SimpleNamespace(rung=rung, dtype="auto", compile_mode="", attention="auto")
            on = features_of(settings, SimpleNamespace(type="cpu"))
            features = replace(on, half=None, compile="", tf32=False)

            def changed(name, value, features=features):
                if features.zero_projections and name.endswith("c_proj.weight"):
                    return 0 * value
                return value.flip(0) if name == "head.weight" else value
            with self.subTest(rung):
                self.learns(features, expected[rung], changed)

    def test_its_ladder_of_learning_trains_compiled(self):
        write_tokens(self.folder / "data.bin", [i % 16 for i in range(3000)])
        for rung in "00_adamw", "zero_projections", "relu_squared", "soft_cap", "untied_head":
            code, errors, (start, *steps, end) = self.trained("pytorch_learning.py", rung, "--lr", "1e-3",
                                                              "--warmup-lr-steps", "1")
            self.assertEqual((code, end["event"], len(steps)), (0, "end", 3), errors)
            self.assertEqual(start["variant"], f"pytorch/{rung}")
            self.assertEqual(start["config"] | {"dtype": "bf16", "V": 50304, "compile_mode": "reduce-overhead"},
                             start["config"])
            self.assertLess(steps[-1]["loss"], steps[0]["loss"])


if __name__ == "__main__":
    unittest.main()
