"""Which includes are allowed: in each room of bench/, where no file may include itself by a detour, and in a trainer."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"

# The rooms that files of each room may include besides their own; all may include model/.
ROOMS = {
    "base": set(),
    "results": {"base"},
    "run": {"base", "results"},
    "plan": {"base", "results", "run"},
    "verdict": {"base", "results", "plan"},
    "report": {"base", "results", "plan", "verdict"},
    "rung": {"base", "results", "run", "plan"},
    "cli": {"base", "results", "run", "plan", "report", "verdict"},
}


def includes(root: Path) -> dict[str, list[str]]:
    """The project's files that each file of bench/ (as bench/ROOM/FILE) includes."""
    return {
        f"bench/{path.relative_to(root)}": re.findall(r'^#include "(.*)"$', path.read_text(), re.MULTILINE)
        for path in sorted(root.rglob("*.*"))
        if path.suffix in (".h", ".cpp")
    }


def room_of(file: str) -> str:
    return file.split("/")[1] if file.count("/") == 2 else ""


def against_the_order(files: dict[str, list[str]]) -> list[str]:
    """Includes from rooms that the file's room may not include. ops_benchmark_main.cpp, in no room, may include a rung's."""
    wrong = []
    for file, included in files.items():
        room = room_of(file)
        for other in included:
            allowed = other.startswith("model/") or room_of(other) in (ROOMS[room] | {room} if room else {"rung"})
            if not allowed:
                wrong.append(f"{file} includes {other}")
    return wrong


def cycle(files: dict[str, list[str]]) -> list[str]:
    """Files that include each other in a circle, a header and its source taken as one; empty where there is no circle."""
    graph: dict[str, set[str]] = {}
    for file, included in files.items():
        unit = file.rsplit(".", 1)[0]
        units = {other.rsplit(".", 1)[0] for other in included} - {unit}
        graph.setdefault(unit, set()).update(units)

    done: set[str] = set()

    def search(unit: str, path: list[str]) -> list[str]:
        if unit in path:
            return path[path.index(unit):] + [unit]
        if unit in done:
            return []
        for other in sorted(graph.get(unit, ())):
            if found := search(other, [*path, unit]):
                return found
        done.add(unit)
        return []

    for unit in graph:
        if found := search(unit, []):
            return found
    return []


class Rooms(unittest.TestCase):
    def setUp(self) -> None:
        self.files = includes(BENCH)
        self.assertGreater(len(self.files), 50)

    def test_each_file_is_in_a_room(self) -> None:
        rooms = {room_of(file) for file in self.files if file != "bench/ops_benchmark_main.cpp"}
        self.assertEqual(rooms, set(ROOMS))

    def test_includes_go_one_way(self) -> None:
        self.assertEqual(against_the_order(self.files), [])

    def test_a_rung_knows_no_verdict(self) -> None:
        """A rung's program, including what its files include indirectly, has no part of gate or report."""
        known: set[str] = set()
        todo = [file for file in self.files if room_of(file) == "rung"]
        while todo:
            file = todo.pop()
            if file in known:
                continue
            known.add(file)
            todo += [other for other in self.files.get(file, []) if other in self.files]
            todo += [source for source in [file.removesuffix(".h") + ".cpp"] if source in self.files]
        self.assertLessEqual({room_of(file) for file in known}, {"base", "results", "run", "plan", "rung"})

    def test_no_cycle(self) -> None:
        self.assertEqual(cycle(self.files), [])


class Trainers(unittest.TestCase):
    """A trainer has no kernel, no CUDA header, no timer and no printing."""

    ALLOWED = {"model/data.h", "model/feed.h", "model/fp8_linears.h", "model/muon.h", "model/gpt2.h",
               "algorithm", "cmath", "iterator", "utility"}

    def test_include_the_model_and_nothing_that_measures_or_prints(self) -> None:
        files = sorted((ROOT / "variants").rglob("*.cpp"))
        self.assertGreater(len(files), 20)
        for file in files:
            included = set(re.findall(r'^\s*#\s*include\s*["<](.*)[">]', file.read_text(), re.MULTILINE))
            self.assertLessEqual(included, self.ALLOWED, file.name)


if __name__ == "__main__":
    unittest.main()
