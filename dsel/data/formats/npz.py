""".npz archives: arrays X and Y, and optionally feature_names, target_names and sample_names."""

from __future__ import annotations

import zipfile

from dsel._lib.npz import open_npz
from dsel._lib.text import shorten
from dsel.data.formats.base import Format, SourceOptions
from dsel.data.formats.npy import NpyArray, NpySource, read_header
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath


class NpzSource(NpySource):
    """Array X (m x n), optional Y (m x N or m) and weights; the members are streamed, never loaded as a whole."""

    def __init__(self, path: AnyPath, options: SourceOptions) -> None:
        found = members(path)
        if "X" not in found:
            raise DataError(
                f"{path} has no array X; it has {shorten(found)}.",
                "Save it as numpy.savez(FILE, X=..., Y=...).",
            )
        weight = None if options.weight is None else str(options.weight)
        if weight is not None and weight not in found:
            raise OptionError(f"weight={weight!r}: {path} has no such array.", f"It has {shorten(found)}.")
        x, y, w, samples = (
            read_header(path, found[name]) if name in found else None for name in ("X", "Y", weight, "sample_names")
        )
        assert x is not None
        super().__init__(x, y, w, samples, options.dtype)
        if samples is not None:
            _check_labels(samples, x.rows, "rows of X")
        self.features = _labels(path, found, "feature_names", self.shape[1], "columns of X")
        if self.n_targets:
            self.targets = _labels(path, found, "target_names", self.n_targets, "columns of Y")


def members(path: AnyPath) -> dict[str, str]:
    """Return the zip member of each array, by the name of the array."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return {name.removesuffix(".npy"): name for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise DataError(f"{path} is not an .npz archive: {error}.", "Save it with numpy.savez.") from error


def _labels(path: AnyPath, members: dict[str, str], name: str, count: int, of: str) -> list[str] | None:
    if name not in members:
        return None
    _check_labels(read_header(path, members[name]), count, of)
    with path.open("rb") as file, open_npz(file) as archive:
        return [str(label) for label in archive[name]]


def _check_labels(header: NpyArray, count: int, of: str) -> None:
    if header.dtype.kind not in "Uiu":
        raise DataError(f"{header.where} has dtype {header.dtype}.", "Labels must be strings: use astype(str).")
    if header.shape != (count,):
        raise DataError(f"{header.where} has shape {header.shape}.", f"It must have one label for the {count} {of}.")


FORMAT = Format(
    "npz", (".npz",), NpzSource, frozenset(("weight",)), "Put the arrays X, Y and sample_names into the .npz file."
)
