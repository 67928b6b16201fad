"""The results kept in reports/, as `stepladder export --format json` prints them."""

import os
import subprocess
import sys
import tempfile
import unittest
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "reports"))
import schema


@cache
def parts(path: Path) -> list[dict]:
    """Parts of a kept results file, or the file as its only one. Skips the test where STEPLADDER_BIN names no folder of
    programs."""
    if not (programs := os.environ.get("STEPLADDER_BIN")):
        raise unittest.SkipTest("STEPLADDER_BIN names no folder that has stepladder in it")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([Path(programs, "stepladder"), "export", path, "--format", "json"], check=True, stdout=file)
        data = schema.load(Path(file.name))
        return data.get("parts") or [{"name": "", "result": data}]
