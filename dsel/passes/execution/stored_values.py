"""Partial results as files: one NumPy archive holds a header, the structure of a value, and its arrays.

A file appears whole or not at all. Nothing in it is code, so that reading one that somebody else wrote is safe.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from scipy.linalg.lapack import dtpttr, dtrttp

from dsel._lib.damage import warn_of_damage
from dsel._lib.npz import pack_npz, read_npz
from dsel.errors import AccessError, CapacityError, OutputError, StorageError
from dsel.storage.paths import AnyPath, write_bytes

log = logging.getLogger("dsel")

C = TypeVar("C", bound=type[Any])

#: The classes of partial results, by name.
_CLASSES: dict[str, type[Any]] = {}
_HEADER = "header"


def storable(kind: C) -> C:
    """Make the values of a class storable: its attributes are storable. Use it as a decorator."""
    _CLASSES[kind.__name__] = kind
    return kind


class UnstorableError(TypeError):
    """A value has a part that cannot be stored."""


class UpperTriangle:
    """Mark a square matrix of which the upper triangle alone has a meaning: half of it is stored."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix


def write_value(file: AnyPath, header: dict[str, Any], value: Any) -> int:
    """Write a value with a header in one step, and return the bytes written.

    Raises
    ------
    UnstorableError
        If the value has a part that is no number, text, array, list, dict or `storable` object.
    OSError
        If the file cannot be written.
    """
    arrays: list[Any] = []
    text = json.dumps([header, _structure(value, arrays)])
    named = {str(i): array for i, array in enumerate(arrays)}
    data = pack_npz({_HEADER: np.frombuffer(text.encode(), np.uint8), **named})
    write_bytes(file, data)
    return len(data)


@contextmanager
def warning_if_unwritable(folder: AnyPath) -> Iterator[None]:
    """Log a warning if the body cannot write statistics to a folder, since the next run can compute them again."""
    try:
        yield
    except (OSError, AccessError, CapacityError, OutputError, StorageError) as error:
        log.warning(
            "statistics are not saved, the next run reads the data again: %s cannot be written (%s); "
            "name another folder with artefacts", folder, error,
        )  # fmt: skip


def read_header(file: AnyPath) -> dict[str, Any] | None:
    """Return the header of a file, or None if the file is missing or damaged. Its arrays are not read."""
    found = _read(file, with_value=False)
    return None if found is None else found[0]


def read_value(file: AnyPath) -> tuple[dict[str, Any], Any] | None:
    """Return header and value, or None if the file is missing or damaged."""
    return _read(file, with_value=True)


def _read(file: AnyPath, with_value: bool) -> tuple[dict[str, Any], Any] | None:
    try:
        with file.open("rb") as source:
            found = read_npz(source, None if with_value else (_HEADER,))
        header, structure = json.loads(found[_HEADER].tobytes())
        return dict(header), _value(structure, found) if with_value else None
    except OSError:
        return None
    except (ValueError, LookupError, TypeError) as error:
        warn_of_damage(file, "what it held is computed again", error)
        return None


def _structure(value: Any, arrays: list[Any]) -> Any:
    """Return a value as JSON, with the numbers of the arrays in it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, UpperTriangle):
        arrays.append(dtrttp(value.matrix, uplo="U")[0])
        return {"upper": len(arrays) - 1, "size": value.matrix.shape[0]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_structure(one, arrays) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[_structure(key, arrays), _structure(one, arrays)] for key, one in value.items()]}
    if _CLASSES.get(type(value).__name__) is type(value):
        parts = value.stored_parts() if hasattr(value, "stored_parts") else vars(value)
        return {"object": type(value).__name__, "parts": _structure(dict(parts), arrays)}
    raise UnstorableError(f"A {type(value).__name__} cannot be stored.")


def _value(structure: dict[str, Any], arrays: Any) -> Any:
    if "value" in structure:
        return structure["value"]
    if "array" in structure:
        return arrays[str(structure["array"])]
    if "upper" in structure:
        return dtpttr(structure["size"], arrays[str(structure["upper"])], uplo="U")[0]
    if "list" in structure:
        return [_value(one, arrays) for one in structure["list"]]
    if "tuple" in structure:
        return tuple(_value(one, arrays) for one in structure["tuple"])
    if "dict" in structure:
        return {_value(key, arrays): _value(one, arrays) for key, one in structure["dict"]}
    found = object.__new__(_CLASSES[structure["object"]])
    found.__dict__.update(_value(structure["parts"], arrays))
    return found
