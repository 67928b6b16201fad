"""Computes medians, intervals and speed-ups of the kept results again from their raw lines, independently of the C++
that `stepladder export` uses."""

import gzip
import json
import math
import sys
import unittest
from collections import defaultdict
from pathlib import Path
from statistics import median

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
sys.path[:0] = [str(ROOT / "reports"), str(TESTS)]
try:
    from kept import parts
except ModuleNotFoundError as missing:
    raise unittest.SkipTest(f"no {missing.name}: the report's Python packages are not installed") from None

PARENTS = {rung["name"]: rung.get("parent") for rung in json.loads((ROOT / "variants/ladder.json").read_text())["rungs"]}
SHORT = 2e-4  # relative rounding of a step's time: kept files have five digits


def workload(config: dict) -> tuple:
    return tuple(config.get(key, 1) for key in ("model", "B", "T", "world_size"))


def tokens(config: dict) -> int:
    return config["B"] * config["T"] * config.get("accumulate", 1) * config.get("world_size", 1)


def interval(values: list[float]) -> tuple[float, float] | None:
    """The k-th smallest to the k-th largest value, with the largest k for which fewer than k of n fair coins show heads
    in at most 2.5 % of cases; the whole range without such a k."""
    n = len(values)
    if n < 2:
        return None
    left_out = 0
    while sum(math.comb(n, heads) for heads in range(left_out + 2)) / 2**n <= 0.025:
        left_out += 1
    ordered = sorted(values)
    return ordered[left_out], ordered[n - 1 - left_out]


def rows_in(path: Path) -> dict[str, dict[tuple, dict[int, dict]]]:
    """The valid runs by part, then by variant and workload, then by round."""
    parts_of, rows, failed = {}, defaultdict(lambda: defaultdict(dict)), set()
    for line in map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines()):
        if line["line"] == "session":
            parts_of[line["session"]] = line.get("part", "").split(":")[0]
        elif line["line"] == "run" and not line["config"].get("independent_ranks"):
            part, row = parts_of[line["session"]], (line["variant"], workload(line["config"]))
            rows[part][row][line["round"]] = line
            failed |= {(part, row)} if line["status"] != "ok" else set()
    for part, of_part in rows.items():
        for row, runs in of_part.items():
            clean = {number: run for number, run in runs.items() if (part, row) not in failed
                     and not any(run["summary"].get(how) for how in ("throttled", "shared"))}
            if (part, row) not in failed:
                of_part[row] = clean or runs
        for row in [row for row in of_part if (part, row) in failed]:
            del of_part[row]
    return rows


def ratio(before: dict[int, dict], after: dict[int, dict]) -> list[float]:
    """Time per token in `before` over that in `after`, for each round that both have."""
    def of(run: dict) -> float:
        return run["summary"]["median_step_ms"] / tokens(run["config"])

    return [of(before[number]) / of(after[number]) for number in sorted(before.keys() & after.keys())]


def to_loss(run: dict) -> dict[str, float] | None:
    """Steps, step time and seconds that a run takes to its loss, by the falling curve nearest to its evaluations; None
    if it didn't reach the loss."""
    until, pools = run["summary"]["to_loss"], []  # pools of evaluations: count, sum of losses, sum of log steps
    if not until["reached"]:
        return None
    for item in run["evaluations"]:
        if item["step"] > 0:
            pools.append((1, item["val_loss"], math.log(item["step"])))
        while len(pools) > 1 and pools[-1][1] / pools[-1][0] >= pools[-2][1] / pools[-2][0]:
            pools[-2:] = [tuple(map(sum, zip(*pools[-2:])))]
    curve = [(losses / count, logs / count) for count, losses, logs in pools]
    below = next(place for place, (loss, _) in enumerate(curve) if loss <= until["loss"])
    (high, begin), (low, end) = curve[below - 1:below + 1]
    steps = math.exp(begin + (end - begin) * (high - until["loss"]) / (high - low))
    step_ms = (until["seconds"] * 1e3 - run["summary"]["first_step_ms"]) / (until["steps"] - 1)
    return {"steps": steps, "step_ms": step_ms, "seconds": steps * step_ms * 1e-3}


class Recomputed(unittest.TestCase):
    def close(self, derived: dict, values: list[float], of: str, key: str = "value") -> None:
        self.assertTrue(math.isclose(derived[key], median(values), rel_tol=1e-12), of)
        self.assertEqual((derived["lo"], derived["hi"]) == (None, None), len(values) < 2, of)
        for mine, its in zip(interval(values) or (), (derived["lo"], derived["hi"])):
            self.assertTrue(math.isclose(mine, its, rel_tol=1e-12), of)

    def holds(self, device: str) -> None:
        path = ROOT / "reports" / device / "results.jsonl.gz"
        raw, checked = rows_in(path), 0
        for part in parts(path):
            rows = raw[part["name"]]
            for variant in part.get("result", {}).get("variants", ()):
                of = f"{part['name']}: {variant['variant']}"
                name, where = variant["variant"], workload(variant["config"])
                self.assertEqual(variant["status"] == "ok", (name, where) in rows, of)
                if variant["status"] != "ok":
                    continue
                runs = rows[name, where]
                self.assertEqual(variant["counted"], sorted(runs), of)
                self.close(variant["median_step_ms"], [run["summary"]["median_step_ms"] for run in runs.values()], of)
                for run in runs.values():
                    summary, steps = run["summary"], run["steps"]["step_ms"]
                    if "to_loss" not in summary and not run.get("ranks"):
                        self.assertTrue(math.isclose(median(steps[summary["warmup_steps"]:]), summary["median_step_ms"],
                                                     rel_tol=SHORT), of)
                        rate = tokens(run["config"]) * 1e3 / summary["median_step_ms"]
                        self.assertTrue(math.isclose(rate, summary["tokens_per_second"], rel_tol=1e-9), of)
                if variant.get("to_loss", {}).get("reached"):
                    took = {number: one for number, run in runs.items() if (one := to_loss(run))}
                    self.assertEqual(variant["to_loss"]["reached"], len(took), of)
                    first = variant["to_loss"]["first"]
                    other = {number: to_loss(run) for number, run in rows[first["against"], where].items()}
                    for key in ("steps", "step_ms", "seconds"):
                        self.close(variant["to_loss"][key], [one[key] for one in took.values()], of)
                        self.close(first[key], [other[number][key] / one[key] for number, one in sorted(took.items())
                                                if other.get(number)], f"{of} against {first['against']}")
                    checked += 1
                below = []
                while (below or [name])[-1] in PARENTS and PARENTS[(below or [name])[-1]]:
                    below.append(PARENTS[(below or [name])[-1]])
                there = [rung for rung in below if (rung, where) in rows]
                for key, against in (("previous", there[:1]), ("baseline", [rung for rung in below[-1:] if rung in there])):
                    speedup = variant[f"speedup_{key}"]
                    if against and speedup and speedup["against"] == against[0]:
                        self.close(speedup, ratio(rows[against[0], where], runs), f"{of} against {against[0]}", "ratio")
                        checked += 1
                for speedup in variant["speedup_peers"]:
                    ratios = ratio(rows[speedup["against"], where], runs)
                    self.close(speedup, ratios, f"{of} against {speedup['against']}", "ratio")
                    checked += 1
        self.assertGreater(checked, 100)

    def test_what_the_h200_measured(self):
        self.holds("h200")

    def test_what_the_h100_measured(self):
        self.holds("h100")


if __name__ == "__main__":
    unittest.main()
