"""The data that a custom criterion f(S, data) gets: columns as dense arrays, read where the criterion runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.data.blocks import dense_rows, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import group_codes
from dsel.data.labels import Labels
from dsel.errors import OptionError

#: X is kept in memory, once per process, if it has at most this many bytes as float64.
KEEP_BYTES = 256 << 20

#: The last data that this process has read, by the fingerprint of the store.
_kept: dict[str, dict[str, NDArray[np.float64]]] = {}
#: Of several threads that need the data, one reads them, and the others wait.
_lock = threading.Lock()


def _forget(key: str) -> None:
    _kept.pop(key, None)  # without the lock: a worker calls this where it must not wait for a file


class ColumnData:
    """The rows of a selection with all columns of X and its targets, as they are stored.

    Parameters
    ----------
    dataset : Dataset
        The data. For a store only its path is sent to other processes.

    Attributes
    ----------
    m, n, n_targets : int
        The numbers of samples, features and targets.
    labels : ndarray of str, shape (n,)
        The labels of the features.

    Raises
    ------
    OptionError
        For Dask arrays, which cannot be read inside a task.

    Notes
    -----
    A criterion sees what the request chooses: its targets, the rows of its row window, and its weights. Columns of
    `exclude` and `include` are there, too. Values are not standardized, and there is no penalty. A missing value is
    NaN, also with ``missing="mean"``.
    """

    def __init__(self, dataset: Dataset) -> None:
        if any(block.lazy for block in dataset.blocks):
            raise OptionError(
                "A criterion f(S, data) cannot be given Dask arrays.", "Write them to a store, and select from that."
            )
        self.m, self.n, self.n_targets = dataset.m, dataset.n, dataset.n_targets
        self.labels: Labels = dataset.features
        self._dataset = dataset
        self._key = dataset.fingerprint
        self._own: dict[str, NDArray[np.float64]] = {}
        self._groups: dict[str, NDArray[np.int64]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_own": {}, "_groups": {}}

    def columns(self, S: Sequence[int]) -> NDArray[np.float64]:
        """Return the columns S of X as a new array, shape (m, len(S)).

        X is kept in memory if it has at most 256 MiB. Otherwise each call reads whole chunks of the store.
        """
        members = np.asarray(S, np.int64)
        if 8 * self.m * self.n > KEEP_BYTES:
            order = np.argsort(members)
            found = self._read("x", members[order])
            return np.asarray(found[:, np.argsort(order)])
        return np.asarray(self._cached("x")[:, members])

    @cached_property
    def identity(self) -> str:
        """What tells these data from others: the fingerprint of their store, or a digest of arrays in memory."""
        if self._key is not None:
            return self._key
        digest = hashlib.blake2b("\0".join(map(str, self.labels.tolist())).encode(), digest_size=16)
        for block in self._dataset.blocks:
            for part, columns in ((block.x, None), (block.y, self._dataset.target_columns)):
                if part is not None:
                    digest.update(dense_rows(load_block(part, columns), 0, block.stop - block.start).tobytes())
        if self._dataset.weighted:
            digest.update(self.weights.tobytes())
        return digest.hexdigest()

    @property
    def Y(self) -> NDArray[np.float64]:
        """The chosen targets in the order of the data, shape (m, N); (m, 0) if there are none."""
        return self._cached("y") if self.n_targets else np.empty((self.m, 0))

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights of the rows, shape (m,); 1 where there are none."""
        return self._cached("w")[:, 0]

    def row_groups(self, groups: Any) -> NDArray[np.int64]:
        """Return the number of the group of each row, shape (m,), from a label for each row or the name of a variable.

        Raises OptionError and DataError as `dsel.data.row_partition.group_codes` does.
        """
        key = f"groups {groups}" if isinstance(groups, str) else f"groups {id(groups)}"
        if key not in self._groups:
            self._groups[key] = group_codes(self._dataset, groups)
        return self._groups[key]

    def cleanup(self) -> tuple[Callable[[], None], ...]:
        """Return functions that free, in any process, the memory that these data take there."""
        return () if self._key is None else (partial(_forget, self._key),)

    def _cached(self, which: str) -> NDArray[np.float64]:
        with _lock:
            kept = self._own
            if self._key is not None:
                if self._key not in _kept:
                    _kept.clear()
                kept = _kept.setdefault(self._key, {})
            if which not in kept:
                kept[which] = self._read(which, None)
                kept[which].setflags(write=False)  # a criterion must not change the data of later calls
            return kept[which]

    def _read(self, which: str, members: NDArray[np.int64] | None) -> NDArray[np.float64]:
        rows: list[NDArray[np.float64]] = []
        columns = self._dataset.target_columns if which == "y" else members
        for block in self._dataset.blocks:
            m = block.stop - block.start
            if which == "w":
                weights = load_weights(block.w)
                rows.append(np.ones((m, 1)) if weights is None else weights[:, None])
            else:
                rows.append(dense_rows(load_block(block.x if which == "x" else block.y, columns), 0, m))
        return np.concatenate(rows)
