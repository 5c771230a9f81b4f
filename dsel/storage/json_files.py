"""Small JSON files, written completely or not at all."""

from __future__ import annotations

import json
import math
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


def valid_json(value: Any) -> Any:
    """Return a value without infinities and NaN, for which JSON has no word: they become null."""
    if isinstance(value, dict):
        return {name: valid_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [valid_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: AnyPath) -> Any | None:
    """Return the value of a JSON file, or None if the file is missing or incomplete."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
