"""A factor F (r, n) of K = F'F that returns some of its columns, and multiplies all of them from the left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints


class MatrixFactor(Protocol):
    """F (r, n) with K = F'F."""

    @property
    def shape(self) -> tuple[int, int]:
        """r and n."""

    def columns(self, S: Ints) -> Floats:
        """Return (r, s) the columns S, in that order."""

    def products(self, V: Floats) -> Floats:
        """Return (c, n) V'F for V (r, c). One pass over F."""

    def leading(self, p: int) -> NDArray[np.float32]:
        """Return (n, p) the same p coordinates of every column. One pass over F."""


@dataclass(frozen=True)
class InMemoryFactor:
    """F as an array in this process. targets: (r, N) T, if the cross products are F'T."""

    F: Floats
    targets: Floats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """r and n."""
        return int(self.F.shape[0]), int(self.F.shape[1])

    def columns(self, S: Ints) -> Floats:
        """Return (r, s) the columns S."""
        return np.ascontiguousarray(self.F[:, S])

    def products(self, V: Floats) -> Floats:
        """Return (c, n) V'F."""
        return np.asarray(V.T @ self.F)

    def leading(self, p: int) -> NDArray[np.float32]:
        """Return (n, p) the first p rows, transposed."""
        return np.ascontiguousarray(self.F[:p].T, dtype=np.float32)
