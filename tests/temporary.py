"""Temporary folders for tests."""

import tempfile
import unittest
from pathlib import Path


def temp_folder(test: unittest.TestCase | type[unittest.TestCase]) -> Path:
    """A new folder, removed at the end of the test, or of a class's tests."""
    folder = tempfile.TemporaryDirectory()
    (test.addClassCleanup if isinstance(test, type) else test.addCleanup)(folder.cleanup)
    return Path(folder.name)
