"""Files of SVMlight and LIBSVM, read by scikit-learn some lines at a time. They become sparse stores.

The file is read twice: the first time for the number of rows, of columns and of values. Columns are numbered from 1,
unless a line has a column 0, or the option `first_column` says so.
"""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import IO, Any, Final

import numpy as np

from dsel.data.formats.source import (
    Format,
    SourceOptions,
    SparseBlock,
    SparseSource,
    file_identity,
    import_extra,
    wanted_dtype,
)
from dsel.errors import DataError
from dsel.storage.paths import AnyPath, stat

BLOCK_BYTES: Final = 2_000_000
TARGET: Final = "target"

_OPENERS: Final[dict[str, Callable[[Any], Any]]] = {".gz": gzip.open, ".bz2": bz2.open}


class SvmlightSource(SparseSource):
    """A file of lines ``target column:value column:value ...``; text after # is ignored."""

    def __init__(self, path: AnyPath, options: SourceOptions) -> None:
        self.name, self._path = path.name, path
        self.dtype = wanted_dtype(options.dtype, np.dtype(np.float64), str(path))
        self._blocks: list[tuple[int, int, int]] = []  # the first row, the values before it, the bytes before it
        rows = values = 0
        low, high, size = 1 if options.first_column is None else options.first_column, -1, stat(path).size
        for position, block, _ in self._read(0):
            self._blocks.append((rows, values, position))
            rows, values = rows + block.shape[0], values + block.nnz
            if block.nnz:
                low, high = min(low, int(block.indices.min())), max(high, int(block.indices.max()))
            if options.scanned is not None:
                options.scanned(position, size if path.suffix not in _OPENERS else 0)
        if not rows or high < 0:
            raise DataError(f"{path} has {rows} rows and no values.", "X needs at least one row and one column.")
        if options.first_column is not None and low < options.first_column:
            raise DataError(
                f"{path} has a column {low}, and those of the store are numbered from {options.first_column}.",
                "Number the columns of all files alike.",
            )
        self.first_column = low
        self.shape, self.stored = (rows, high + 1 - low), values
        self.columns, self.targets = {TARGET: np.dtype(np.float64)}, (TARGET,)
        self.notes = (f"columns are numbered from {low}; labels begin with x0",)

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(self._path)], "dtype": str(self.dtype)}

    def blocks(self, start: int) -> Iterator[SparseBlock]:
        at = max(i for i, (row, _, _) in enumerate(self._blocks) if row <= start)
        for (row, values, _), (_, block, y) in zip(self._blocks[at:], self._read(self._blocks[at][2]), strict=True):
            block.indices -= self.first_column
            block.resize(block.shape[0], self.shape[1])
            yield SparseBlock(row, values, block, {TARGET: y})

    def _read(self, position: int) -> Iterator[tuple[int, Any, Any]]:
        """Yield the position in the file, the rows and the targets of each block from a position on."""
        load = import_extra("sklearn.datasets", "scikit-learn", "sklearn", self._path).load_svmlight_file
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(self._path.open("rb"))
            opener = _OPENERS.get(self._path.suffix.lower())
            if opener is not None:
                file = stack.enter_context(opener(file))
            file.seek(position)
            while text := file.read(BLOCK_BYTES):
                text += file.readline()
                try:
                    block, y = load(io.BytesIO(text), n_features=np.iinfo(np.int32).max, zero_based=True)
                except ValueError as error:
                    raise DataError(
                        f"{self._path} cannot be read in bytes {position} to {position + len(text)}: {error}.",
                        "Each line is a number, then column:value in ascending order of columns.",
                    ) from error
                if block.shape[0]:
                    yield position, block.astype(self.dtype), y
                position += len(text)


_SUFFIXES: Final = (".svm", ".svmlight", ".libsvm")
FORMAT = Format(
    "svmlight", tuple(suffix + packed for suffix in _SUFFIXES for packed in ("", ".gz", ".bz2")), SvmlightSource,
    instead="Each line holds its target; columns have numbers, not names.",
)  # fmt: skip
