"""Replaces files whole or not at all."""

import glob
import os
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """Replaces the file's content by `data`. Raises OSError naming the file, which is then unchanged."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):  # left by a process that was killed
        if not Path("/proc", left.name.split(".")[-2]).exists():
            left.unlink(missing_ok=True)
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
