"""docs/multi-device.md: its batch script asks Slurm for the devices it measures on, and its rungs exist."""

import re
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BLOCKS = re.findall(r"^```(sh|slurm)\n(.*?)^```", (REPOSITORY / "docs" / "multi-device.md").read_text(), re.M | re.S)


class Recipes(unittest.TestCase):
    def test_the_page_has_recipes(self):
        self.assertEqual({kind for kind, _ in BLOCKS}, {"sh", "slurm"})

    def test_slurm_has_a_device_for_each_rank(self):
        (script,) = [text for kind, text in BLOCKS if kind == "slurm"]
        asked = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", script, re.M))
        self.assertEqual(asked["ntasks-per-node"], asked["gpus-per-node"])
        devices = re.search(r"--devices ([0-9,]+)", script)[1].split(",")
        self.assertEqual(max(map(int, devices)), int(asked["nodes"]) * int(asked["gpus-per-node"]))
        self.assertIn(f"srun --nodes {asked['nodes']}'", script)

    def test_every_rung_that_is_started_is_in_the_ladder(self):
        names = {rung for _, text in BLOCKS for rung in re.findall(r"bin/(\d\d_\w+)", text)}
        ladder = (REPOSITORY / "variants" / "ladder.json").read_text()
        for rung in names:
            self.assertIn(f'"{rung}"', ladder)


if __name__ == "__main__":
    unittest.main()
