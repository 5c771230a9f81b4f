"""Small JSON files with a digest of themselves, written completely or not at all.

The digest is the last key of the object. It covers the text before it, so that each changed bit shows. Files without
one, which older versions wrote, are read as they are.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from dsel._lib.damage import DamagedFileError, digest_of, warn_of_damage
from dsel.errors import OutputError
from dsel.storage.paths import AnyPath, write_bytes

DIGEST = "digest"
_LAST_KEY = re.compile(rf',\s*"{DIGEST}": "([0-9a-f]+)"\s*}}\s*$')

#: The last key is not longer than this.
_TAIL = 200


def checked_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON. An object gets the digest of its text as its last key."""
    text = json.dumps(value, indent=indent)
    if not isinstance(value, dict) or not value:
        return text
    space = " " if indent is None else "\n" + indent * " "
    body = text[:-1].rstrip()
    return f'{body},{space}"{DIGEST}": "{digest_of(body.encode())}"' + ("}" if indent is None else "\n}")


def parse_checked_json(text: str) -> tuple[Any, bool]:
    """Return the value of a text without its digest, and whether it has one.

    Raises
    ------
    DamagedFileError
        If the text is no JSON, or differs from what was written.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"it is no JSON ({error})") from error
    if not isinstance(value, dict) or DIGEST not in value:
        return value, False
    tail = _LAST_KEY.search(text, max(len(text) - _TAIL, 0))
    if tail is None or digest_of(text[: tail.start()].encode()) != tail[1]:
        raise DamagedFileError("it is not what was written (its digest differs)")
    del value[DIGEST]
    return value, True


def write_json(path: AnyPath, value: Any, *, digest: bool = True) -> None:
    """Write a value as JSON; readers see the old value or the new. Raises OutputError.

    digest: whether an object gets its digest. A format that other programs write goes without.
    """
    try:
        write_bytes(path, (checked_json(value) if digest else json.dumps(value)).encode())
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}.", "Free some space there, or change the folder's permissions."
        ) from error


def valid_json(value: Any) -> Any:
    """Return a value without infinities and NaN, for which JSON has no word: they become null."""
    if isinstance(value, dict):
        return {name: valid_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [valid_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: AnyPath, lost: str = "") -> Any | None:
    """Return the value of a JSON file, or None if the file is missing, incomplete or damaged.

    lost: what a damaged file costs, such as "the proof starts again". It is logged as a warning, once.
    """
    try:
        return parse_checked_json(path.read_text())[0]
    except OSError:
        return None
    except ValueError as error:  # also bytes that are no text
        if lost:
            warn_of_damage(path, lost, error)
        return None
