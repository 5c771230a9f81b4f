"""A copy of X on disk by columns, for many passes over a few columns of a store whose chunks are full rows.

    FOLDER/START.npy    the rows of the block that begins with row START, transposed: (n, rows), as they are stored

Reading s columns of the copy reads s of n values. One pass writes it. It is removed after the run.
"""

from __future__ import annotations

import logging
import operator
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import Any
from uuid import uuid4

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel.data.blocks import Block, TransposedRows
from dsel.data.dataset import Dataset
from dsel.data.store.array import as_number
from dsel.data.store.reader import Store
from dsel.data.store.staging import output_errors
from dsel.engine.engine_protocol import Engine
from dsel.errors import CapacityError, OutputError
from dsel.passes.data_pass import PassCost
from dsel.passes.reduce_blocks import RowPass

log = logging.getLogger("dsel")

#: A copy is made where the passes read at least this many bytes less, its own pass included.
_SAVES_BYTES = 1 << 30
#: It takes at most this share of the free disk.
_DISK_SHARE = 0.5
_PREFIX = "dsel-columns-"


@dataclass(frozen=True)
class ColumnCopy:
    """The copy of a dataset in a folder. Making this object writes nothing.

    Parameters
    ----------
    source : Dataset
        The data: a store with a dense X.
    folder : Path
        A folder that the workers see, too.
    """

    source: Dataset
    folder: Path

    def fits(self) -> bool:
        """Return whether the disk has room."""
        there = next(parent for parent in (self.folder.absolute(), *self.folder.absolute().parents) if parent.exists())
        return self.source.x_bytes <= _DISK_SHARE * disk_usage(there).free

    @property
    def writing(self) -> RowPass:
        """The pass that writes the copy. It returns the bytes written."""
        write = partial(_write_block, folder=str(self.folder))
        return RowPass("copy by columns", self.source, write, operator.add, 8)

    @property
    def rows(self) -> Dataset:
        """The data with the copy as X."""
        store = self.source.store
        assert isinstance(store, Store)
        size = as_number(store.dtype).itemsize
        blocks = tuple(
            replace(b, x=TransposedRows(str(_file(self.folder, b)), 0, b.stop - b.start, self.source.n, size))
            for b in self.source.blocks
        )
        return replace(self.source, blocks=blocks)


def copy_that_saves(
    source: Dataset, folder: Path | None, costs: Callable[[Dataset], Iterable[PassCost]]
) -> tuple[ColumnCopy | None, str]:  # fmt: skip
    """Return the copy if passes then read much less, and a note about it; None if they do not, or if it does not fit.

    folder: that the workers see; None if there is none. costs: the passes over the data, or over their copy.
    """
    if not isinstance(source.store, Store):
        return None, ""
    copy = ColumnCopy(source, folder or Path())
    direct = PassCost.total("from the store", costs(source)).bytes_read
    copied = PassCost.total("from the copy", [copy.writing.cost(), *costs(copy.rows)]).bytes_read
    if direct - copied < _SAVES_BYTES:
        return None, ""
    size = format_bytes(source.x_bytes)
    if folder is not None and copy.fits():
        return copy, f"the passes of the loss read a copy of X by columns, {size} on disk, which is removed at the end"
    lack = "the workers share no folder with this process" if folder is None else f"{folder} has too little room"
    return None, (
        f"a copy of X by columns, {size} on disk, would save {format_bytes(direct - copied)} of reading, but {lack}; "
        "chunks of fewer columns save most of it, too"
    )


@contextmanager
def copied(source: Dataset, scratch: Path | None, engine: Engine) -> Iterator[Dataset]:
    """Write a copy by columns, and provide the data with it as X. Without room on the disk, these are the data.

    scratch: a folder of this run alone; None: a temporary folder.
    """
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
        for left in scratch.glob(f"{_PREFIX}*"):  # of a run that was killed
            rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=scratch) as folder:
        copy, rows = ColumnCopy(source, Path(folder)), source
        try:
            copy.writing.run(engine)
            rows = copy.rows
        except (CapacityError, OutputError) as error:
            log.warning("continuing without a copy by columns: %s", error)
            rmtree(folder, ignore_errors=True)
            Path(folder).mkdir()
        yield rows
    if scratch is not None:
        with suppress(OSError):
            scratch.rmdir()


def _file(folder: Path, block: Block) -> Path:
    return folder / f"{block.start}.npy"


def _write_block(x: Any, y: Any, block: Block, *, folder: str) -> int:
    """Write the rows of a block, and return their bytes. A task that is repeated replaces the file."""
    to = _file(Path(folder), block)
    staging = to.with_name(f"{uuid4().hex}.npy")
    with output_errors(to):
        np.save(staging, np.ascontiguousarray(x.T))
        os.replace(staging, to)
    return int(x.nbytes)
