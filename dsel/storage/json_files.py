"""Small JSON files, written completely or not at all."""

from __future__ import annotations

import json
from typing import Any

from dsel.errors import OutputError
from dsel.storage.paths import AnyPath, write_bytes


def write_json(path: AnyPath, value: Any) -> None:
    """Write a value as JSON; readers see the old value or the new. Raises OutputError."""
    try:
        write_bytes(path, json.dumps(value).encode())
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}.",
            "Free some space there, or change the folder's permissions.",
        ) from error


def read_json(path: AnyPath) -> Any | None:
    """Return the value of a JSON file, or None if the file is missing or incomplete."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
