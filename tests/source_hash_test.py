"""The sources that a rung's hash covers."""

import functools
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "cmake"))
from source_hash import Model, code, gemm_hash, source_hash  # noqa: E402

RUNGS = [path for folder in ("", "beside", "learning", "learning/beside") for path in sorted((ROOT / "variants" / folder).glob("*.cpp"))]
SUFFIXES = (".h", ".cuh", ".cpp", ".cu")


@functools.cache
def here():
    return Model(ROOT)


def changed_by(*touched, rung=RUNGS[0], hashed=None):
    """Whether changes to these files of model/ change a rung's hash."""
    hashed = hashed or (lambda model: source_hash(rung, model))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "model", Path(folder, "model"))
        for file in touched:
            path = Path(folder, file)
            path.write_text(path.read_text() + "using Touched = int;\n")
        return hashed(Model(Path(folder))) != hashed(here())


def calling(op):
    return next(rung for rung in RUNGS if f"ops({op}{{" in rung.read_text())


class SourceHash(unittest.TestCase):
    def test_a_file_that_goes_changes_every_rung(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "model", Path(folder, "model"))
            before = source_hash(RUNGS[0], Model(Path(folder)))
            Path(folder, "model/arena.cpp").unlink()
            self.assertNotEqual(source_hash(RUNGS[0], Model(Path(folder))), before)
        # The build renews the hash when the list of sources changes.
        rules = (ROOT / "cmake/trainers.cmake").read_text()
        self.assertRegex(rules, r"DEPENDS [^)]*generated/hashed_sources\.txt")

    def test_an_op_that_a_rung_does_not_call_leaves_its_hash(self):
        model = Model(ROOT)
        for op in ("AttentionForward", "Quantize", "LinearForward", "AdamWStep"):
            self.assertNotIn(f"{op}{{", RUNGS[0].read_text())
        self.assertFalse(changed_by("model/cpu/flash_attention.cpp", "model/cuda/flash_attention.cu",
                                    "model/cuda/attention_cudnn.cpp", "model/cpu/fp8.cpp", "model/cuda/fp8.cu",
                                    "model/cuda/fp8.cuh", "model/ops/fp8.h", "model/cpu/linear.cpp",
                                    "model/cuda/adamw.cu"))
        self.assertEqual(set(model.ops_in["model/cpu/flash_attention.cpp"]),
                         {"AttentionForward", "AttentionBackward", "CachedAttention"})

    def test_an_op_that_it_calls_and_what_that_includes_change_it(self):
        for file in ("model/ops/rows.h", "model/cpu/rows.cpp", "model/cuda/rows.cu", "model/cuda/softmax.cu",
                     "model/cuda/long_softmax.h", "model/cuda/wide.cuh", "model/cpu/statistics.h", "model/ops/op.h",
                     "model/cpu/matmul.cpp", "model/cuda/matmul_plans.cpp"):
            self.assertTrue(changed_by(file), file)

    def test_what_belongs_to_no_op_changes_every_rung(self):
        for file in ("model/arena.cpp", "model/data.cpp", "model/ops.h", "model/cuda/device.cpp",
                     "model/cpu/parallel.cpp"):
            for rung in (RUNGS[0], RUNGS[-1]):
                self.assertTrue(changed_by(file, rung=rung), file)

    def test_what_several_devices_do_counts_for_trainers_on_several(self):
        several = next(rung for rung in RUNGS if "Collective::" in rung.read_text())
        for file in ("model/cuda/comm_nccl.cpp", "model/cuda/peer_copies.cu", "model/cpu/comm_mpi.cpp"):
            self.assertTrue(changed_by(file, rung=several), file)
            self.assertFalse(changed_by(file), file)

    def test_what_lies_beside_an_op_counts_with_it(self):
        for file in ("model/cuda/flash_attention.cu", "model/cuda/attention_cudnn.cpp"):
            self.assertTrue(changed_by(file, rung=calling("AttentionForward")), file)
        scaled = calling("ScaledCausalSoftmaxForward")
        self.assertNotIn("ops(CausalSoftmaxForward{", scaled.read_text())
        self.assertTrue(changed_by("model/cuda/softmax.cu", rung=scaled), "its long rows are computed there")

    def test_ops_that_a_part_of_the_model_calls_for_a_rung_count(self):
        model = Model(ROOT)
        self.assertNotIn("model/cuda/fp8.cu", model.counted('#include "model/gpt2.h"\n'))
        self.assertIn("model/cuda/fp8.cu", model.counted('#include "model/gpt2.h"\n#include "model/fp8_linears.h"\n'))

    def test_every_op_of_every_rung_counts_with_all_of_its_files(self):
        model = Model(ROOT)
        every = {file for file in model.text if file.endswith(SUFFIXES)}
        for rung in RUNGS:
            text = code(rung.read_bytes())
            counted = set(model.counted(text))
            called = set(re.findall(r"ops\((\w+)\{", text))
            self.assertTrue(called)
            for op in called:
                self.assertIn(model.header_of[op], counted)
                self.assertEqual({file for file in every if op in model.ops_in[file]} - counted, set(), op)
                self.assertEqual(len([file for file in every if op in model.ops_in[file]]), 2, f"{op}: CPU and CUDA")
        # The decoder's ops are no rung's: it samples, and no step depends on it.
        callers = [*RUNGS, ROOT / "model/decoder.cpp"]
        self.assertEqual(every - {file for caller in callers for file in model.counted(caller.read_text())}, set())

    def test_found_gemms_are_kept_until_what_is_timed_changes(self):
        for file in ("model/cuda/matmul_plans.cpp", "model/cuda/linear_cublaslt.cpp", "model/cuda/matmul_cublas.cpp",
                     "model/cuda/rows.cu", "model/cuda/fused_maps.cu", "model/cuda/gelu.cuh", "model/cuda/wide.cuh",
                     "model/cuda/fp8_gelu.cu", "model/cuda/hopper.cuh", "model/cuda/fp8.cu", "model/ops/matmul.h",
                     "model/cuda/symmetric_matmul.cu"):
            self.assertTrue(changed_by(file, hashed=gemm_hash), file)
        self.assertFalse(changed_by("model/cuda/flash_attention.cu", "model/cuda/adamw.cu", "model/cuda/layernorm.cu",
                                    "model/ops/adamw.h", "model/cpu/matmul.cpp", "model/cuda/cross_entropy.cu",
                                    "model/data.cpp", hashed=gemm_hash))

    def test_a_comment_that_names_an_op_calls_none(self):
        self.assertNotIn("model/cuda/fp8.cu", Model(ROOT).counted(code(b"// as Quantize does\n")))

    def test_a_comment_changes_no_hash(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "model", Path(folder, "model"))
            rung = Path(shutil.copy(RUNGS[0], folder))
            before = source_hash(rung, Model(Path(folder)))
            for path in (rung, Path(folder, "model/gpt2.h"), Path(folder, "model/cuda/device.cpp")):
                text = path.read_text()
                path.write_text(re.sub(r"(?m)^( *)//.*", r"\1// other words,\n\n\1// on two lines", text) + "int a;  // b\n")
                self.assertNotEqual(source_hash(rung, Model(Path(folder))), before)
                path.write_text(path.read_text().replace("int a;  // b\n", "// b\n"))
                self.assertEqual(source_hash(rung, Model(Path(folder))), before, path)

    def test_what_looks_like_a_comment_in_a_string_is_none(self):
        self.assertNotEqual(code(b'call("http://a");\n'), code(b'call("http://b");\n'))
        self.assertEqual(code(b"f('\"', 1'000);  // it's \"so\"\n"), "f('\"', 1'000);\n")


if __name__ == "__main__":
    unittest.main()
