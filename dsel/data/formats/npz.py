""".npz archives: arrays X and Y, and optionally feature_names, target_names and sample_names."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.base import Reader, file_identity, wanted_dtype
from dsel.data.formats.npy import NpyArray, NpyReader, check_shapes, read_header
from dsel.errors import DataError
from dsel.storage.paths import AnyPath


class NpzSource:
    """Array X (m x n), optional Y (m x N or m); the members are streamed, never loaded whole."""

    def __init__(self, path: AnyPath, dtype: str | None) -> None:
        self.name = path.name
        self._path = path
        found = members(path)
        if "X" not in found:
            raise DataError(
                f"{path} has no array X; it has {shorten(found)}.",
                "Save it as numpy.savez(FILE, X=..., Y=...).",
            )
        self._x = read_header(path, found["X"])
        self._y = read_header(path, found["Y"]) if "Y" in found else None
        self.shape, self.y_shape = check_shapes(self._x, self._y)
        self.dtype = wanted_dtype(dtype, self._x.dtype, self._x.where)
        self.y_dtype = None if self._y is None else wanted_dtype(None, self._y.dtype, self._y.where)
        self.features = _labels(path, found, "feature_names", self.shape[1], "columns of X")
        self.targets = None
        if self.y_shape is not None:
            self.targets = _labels(path, found, "target_names", self.y_shape[1], "columns of Y")
        self._samples = self._sample_labels(found)
        self.has_samples = self._samples is not None

    def _sample_labels(self, members: dict[str, str]) -> NpyArray | None:
        if "sample_names" not in members:
            return None
        header = read_header(self._path, members["sample_names"])
        _check_labels(header, self.shape[0], "rows of X")
        return header

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(self._path)]}

    def open(self, start: int, scratch: Path) -> Reader:
        return NpyReader(self._x, self._y, self._samples, start, scratch)


def members(path: AnyPath) -> dict[str, str]:
    """Array name -> zip member."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return {name.removesuffix(".npy"): name for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is not an .npz archive: {error}.", "Save it with numpy.savez.") from error


def _labels(path: AnyPath, members: dict[str, str], name: str, count: int, of: str) -> list[str] | None:
    if name not in members:
        return None
    _check_labels(read_header(path, members[name]), count, of)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return [str(label) for label in archive[name]]


def _check_labels(header: NpyArray, count: int, of: str) -> None:
    if header.dtype.kind not in "Uiu":
        raise DataError(f"{header.where} has dtype {header.dtype}.", "Labels must be strings: use astype(str).")
    if header.shape != (count,):
        raise DataError(f"{header.where} has shape {header.shape}.", f"It must have one label for the {count} {of}.")
