"""The eigendecomposition of the data, for users."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import counted
from dsel._lib.types import Floats

if TYPE_CHECKING:
    import xarray as xr

#: How the eigendecomposition is computed.
EighMethod = Literal["auto", "gram", "row-gram", "randomized"]


@dataclass(frozen=True, eq=False)
class Eigendecomposition:
    """The leading eigenvalues of X X' and X'X, for the preprocessed X, with what they leave out.

    Parameters
    ----------
    values : ndarray of shape (r,)
        Eigenvalues in descending order.
    components : ndarray of shape (r, n)
        Eigenvectors of X'X as orthonormal rows. The largest entry of each is positive.
    features : ndarray of shape (n,)
        Labels of the columns.
    total : float
        ||X||_F^2, the sum of all eigenvalues.
    error_bound : float
        The spectral norm of X less its projection is at most this, with probability 1 - `error_chance`. It is 0 for an
        exact decomposition of full rank.
    error_chance : float
        The probability that `error_bound` fails; 0 if it always holds.
    method : {"gram", "row-gram", "randomized"}
        How it was computed.
    passes : int
        Passes over X.
    """

    values: Floats
    components: Floats
    features: NDArray[np.object_]
    total: float
    error_bound: float
    error_chance: float
    method: str
    passes: int

    @property
    def rank(self) -> int:
        """The number r of eigenvalues."""
        return int(self.values.size)

    @property
    def captured(self) -> float:
        """The share of ||X||_F^2 that the components capture."""
        return min(float(self.values.sum()) / self.total, 1.0) if self.total else 1.0

    @property
    def relative_error(self) -> float:
        """The Frobenius norm of X less its projection, as a share of ||X||_F. It follows from `captured`."""
        return math.sqrt(max(1.0 - self.captured, 0.0))

    @property
    def reduced(self) -> Floats:
        """W of shape (r, n): rows of `components` times the roots of `values`, so that W'W is about X'X."""
        return np.asarray(np.sqrt(self.values)[:, None] * self.components)

    @property
    def figures(self) -> dict[str, Any]:
        """The rank, what the components capture and miss, and how they were computed, by name."""
        names = ("rank", "captured", "relative_error", "error_bound", "error_chance", "total", "method", "passes")
        return {name: getattr(self, name) for name in names}

    def to_xarray(self) -> xr.Dataset:
        """Return values and components as an xarray Dataset with labels, and the figures as attributes.

        Returns
        -------
        Dataset
            Variables `values` and `components`, with the dimensions component and feature.
        """
        import xarray as xr

        variables = {"values": ("component", self.values), "components": (("component", "feature"), self.components)}
        return xr.Dataset(variables, {"feature": self.features}, self.figures)

    def __repr__(self) -> str:
        return f"<Eigendecomposition: {self}>"

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {counted(self.features.size, 'column')} captures {self.captured:.4%} of ||X||^2 "
            f"(relative error {self.relative_error:.2e}; {self.method}, {counted(self.passes, 'pass', 'passes')})"
        )
