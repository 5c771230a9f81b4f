"""What a source with a sparse X is: row blocks in CSR, with columns over the samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A row block has about this many values.
BLOCK_VALUES = 1 << 18


@dataclass(frozen=True)
class SparseBlock:
    """Consecutive rows of a sparse source.

    Parameters
    ----------
    start : int
        The first row.
    first : int
        The number of stored values before it.
    rows : scipy.sparse.csr_matrix, shape (r, n)
        The rows.
    columns : dict of str to ndarray, shape (r,)
        The targets and the weights of the rows.
    samples : sequence, optional
        The labels of the rows.
    """

    start: int
    first: int
    rows: Any
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    samples: Sequence[Any] | None = None


class SparseSource(ABC):
    """An opened file with a sparse X. All attributes are known when it is open.

    Attributes
    ----------
    name : str
        The name of the file, recorded in the store.
    shape : tuple of int
        The shape of X, (m, n).
    stored : int
        The number of stored values.
    dtype : dtype
        The dtype of these values.
    features : sequence of str, optional
        Labels of the columns of X.
    columns : dict of str to dtype
        The columns over the samples.
    targets : tuple of str
        Those of them that are targets.
    weight : str, optional
        That of them that holds weights.
    first_column : int, optional
        The number of the first column of X, in a file that numbers its columns.
    classes, notes
        As in `Source`.
    """

    name: str
    shape: tuple[int, int]
    stored: int
    dtype: np.dtype[Any]
    features: Sequence[str] | None = None
    columns: Mapping[str, np.dtype[Any]] = MappingProxyType({})
    targets: tuple[str, ...] = ()
    weight: str | None = None
    first_column: int | None = None
    classes: Mapping[str, Sequence[str]] = MappingProxyType({})
    notes: tuple[str, ...] = ()

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the values depend on, as JSON."""

    @abstractmethod
    def blocks(self, start: int) -> Iterator[SparseBlock]:
        """Yield the row blocks in order, beginning with one that contains row `start`."""
