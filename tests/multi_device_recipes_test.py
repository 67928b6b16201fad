"""docs/multi-device.md: its commands parse, and what Slurm would start gets the ranks that it promises."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"^```(sh|slurm)\n(.*?)^```", (REPOSITORY / "docs" / "multi-device.md").read_text(), re.M | re.S)

# What srun does for a job of the nodes and tasks that sbatch was asked for: starts each task with Slurm's variables.
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
rank=0
while [ $rank -lt $((NODES * TASKS)) ]; do
  SLURM_PROCID=$rank SLURM_NTASKS=$((NODES * TASKS)) SLURM_LOCALID=$((rank % TASKS)) SLURM_JOB_ID=7 SLURM_STEP_ID=0 \\
    SLURM_STEP_NODELIST='node[01-02]' "$@"
  rank=$((rank + 1))
done
"""
RUNG = """#!/bin/sh
echo "$SLURM_PROCID/$SLURM_NTASKS local $SLURM_LOCALID: $*" >>"$STARTED"
"""


class Recipes(unittest.TestCase):
    def test_the_page_has_recipes(self):
        self.assertEqual({kind for kind, _ in BLOCKS}, {"sh", "slurm"})

    def test_every_command_parses(self):
        for _, text in BLOCKS:
            checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), text)

    def test_slurm_starts_a_rank_for_each_device(self):
        (script,) = [text for kind, text in BLOCKS if kind == "slurm"]
        asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", script, re.M))
        self.assertEqual(asked["ntasks-per-node"], asked["gpus-per-node"], "one rank for each device")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "build/cuda/bin").mkdir(parents=True)
            for path, text in (("srun", SRUN), ("build/cuda/bin/15_multi_gpu", RUNG)):
                (folder / path).write_text(text)
                (folder / path).chmod(0o755)
            environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "STARTED": str(folder / "started"),
                                        "NODES": asked["nodes"], "TASKS": asked["ntasks-per-node"]}
            subprocess.run(["sh"], input=script, text=True, cwd=folder, env=environment, check=True)
            started = (folder / "started").read_text().splitlines()
        self.assertEqual(started[5], "5/8 local 1: --batch 16 --steps 100")
        self.assertEqual(len(started), 8)

    def test_every_rung_that_is_started_is_in_the_ladder(self):
        names = {rung for _, text in BLOCKS for rung in re.findall(r"bin/(\d\d_\w+)", text)}
        ladder = (REPOSITORY / "variants" / "ladder.json").read_text()
        for rung in names:
            self.assertIn(f'"{rung}"', ladder)


if __name__ == "__main__":
    unittest.main()
