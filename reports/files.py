"""Files that are either whole or as they were."""

import os
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """The file is `data` from now on. Raises OSError that names it; then it is as it was."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
