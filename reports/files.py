"""Files that are either whole or as they were."""

import glob
import os
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """The file is `data` from now on. Raises OSError that names it; then it is as it was."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):  # by a process that was killed
        if not Path("/proc", left.name.split(".")[-2]).exists():
            left.unlink(missing_ok=True)
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
