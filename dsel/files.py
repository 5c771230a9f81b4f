"""Small files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from dsel.errors import OutputError


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name in the same folder, flush it to disk, rename. Errors: OutputError."""
    temporary = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    try:
        with temporary.open("w") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}.", "Free some space there, or mend the folder's permissions."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_json(path: Path) -> Any | None:
    """The value, or None where there is no whole file."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
