"""Read the files of a proof log: its manifest, and the numbers and bounds of its records.

deploy/docs/explanation/proof-logs.md describes the format.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.damage import DamagedFileError
from dsel._lib.npz import read_npz
from dsel.errors import DataError, MissingInputError
from dsel.storage.json_files import read_json
from dsel.storage.paths import AnyPath

FORMAT = 1
MANIFEST = "manifest.json"
_PLAIN_NAME = re.compile(r"\w+\.npz")


class LogError(Exception):
    """A record of a proof log is wrong. `where` names the leaf or the place in the file."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what


def read_manifest(folder: AnyPath) -> dict[str, Any]:
    """Return the manifest of a log, or raise MissingInputError or DataError."""
    values = read_json(folder / MANIFEST)
    if not isinstance(values, dict):
        raise MissingInputError(
            f"{folder} holds no complete proof log.", "Certify with a log: dsel certify --log, or certify: {log: true}."
        )
    if values.get("format") != FORMAT:
        raise DataError(f"{folder / MANIFEST} has an unknown format.", "Use a newer version of dsel.")
    if not _makes_sense(values):
        raise DataError(f"{folder / MANIFEST} is damaged.", "Certify with a log again.")
    return values


def _makes_sense(values: dict[str, Any]) -> bool:
    """Return whether a manifest has all values, of the right types."""
    counts = all(_is_number(values.get(name), int) for name in ("n", "k"))
    numeric = all(_is_number(values.get(name)) for name in ("bound", "value", "lam"))
    columns = all(_is_list(values.get(name), int) for name in ("columns", "included", "indices"))
    files = values.get("files")
    named = isinstance(files, list) and all(isinstance(f, str) and _PLAIN_NAME.fullmatch(f) for f in files)
    claim = values.get("relaxation")
    claimed = claim is None or (
        isinstance(claim, dict) and _is_number(claim.get("bound")) and _is_list(claim.get("d"))
        and _is_list(claim.get("z"))
    )  # fmt: skip
    groups = values.get("groups")
    grouped = groups is None or (isinstance(groups, list) and all(_is_list(group, int) for group in groups))
    return counts and numeric and columns and named and claimed and grouped


def _is_number(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)


def _is_list(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, list) and all(_is_number(number, kind) for number in value)


def digest_of(content: bytes) -> str:
    """Return the digest by which the content of a file is known."""
    return hashlib.sha256(content).hexdigest()


def read_file(name: str, content: bytes) -> tuple[list[int], NDArray[np.float64]]:
    """Return the numbers and bounds in the content of a file of a log, or raise LogError."""
    try:
        arrays = read_npz(io.BytesIO(content), ("numbers", "bounds"))
        numbers, bounds = arrays["numbers"], arrays["bounds"]
    except (OSError, DamagedFileError) as error:
        raise LogError(name, f"the file is damaged: certify with a log again ({error})") from error
    if numbers.dtype.kind != "u" or numbers.ndim != 1 or bounds.dtype.kind != "f" or bounds.ndim != 1:
        raise LogError(name, "its arrays are not numbers and bounds")
    return numbers.tolist(), bounds.astype(np.float64)


class RecordReader:
    """Numbers and bounds in their order."""

    def __init__(self, name: str, numbers: list[int], bounds: NDArray[np.float64]) -> None:
        self.name, self._numbers = name, numbers
        self._bounds: list[float] = bounds.tolist()
        self.place = 0
        self._bound = 0

    @property
    def more(self) -> bool:
        return self.place < len(self._numbers)

    @property
    def where(self) -> str:
        return f"{self.name}, number {self.place}"

    def number(self) -> int:
        if not self.more:
            raise LogError(self.where, "the file ends within a segment")
        self.place += 1
        return self._numbers[self.place - 1]

    def list(self, size: int) -> list[int]:
        if self.place + size > len(self._numbers):
            raise LogError(self.where, "the file ends within a segment")
        self.place += size
        return self._numbers[self.place - size : self.place]

    def bound(self) -> float:
        if self._bound >= len(self._bounds):
            raise LogError(self.where, "a bound is missing")
        self._bound += 1
        return self._bounds[self._bound - 1]

    def require_end(self) -> None:
        if self._bound != len(self._bounds):
            raise LogError(self.where, "there are more bounds than leaves")
