"""Small files that are there whole or not at all."""

from __future__ import annotations

import json
from typing import Any

from dsel.errors import OutputError
from dsel.storage.paths import Place, write_bytes


def write_json(path: Place, value: Any) -> None:
    """Write JSON so that readers see the old value or the new one, whole. Errors: OutputError."""
    try:
        write_bytes(path, json.dumps(value).encode())
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}.", "Free some space there, or mend the folder's permissions."
        ) from error


def read_json(path: Place) -> Any | None:
    """The value, or None where there is no whole file."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
