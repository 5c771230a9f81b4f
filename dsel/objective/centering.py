"""How far the rounding of means changes inner products of centered columns.

Statistics are summed in blocks of rows, about the mean of each block, and merged (Chan, Golub and LeVeque, 1983). The
means are float64 numbers, so that each is rounded by a share of its own size, not of the deviations. For p blocks,
means mu, norms N about the means, and weight W, the difference of two merged means is wrong by at most about

    h N / sqrt(W),    h = eps (p + 1) (sqrt(W) |mu| / N + 4).

Merging adds w d_x d_y, with differences d of means. The weights w of all merges sum to at most W log2(p), and the sums
of w d^2 to at most the squared norms. By Cauchy and Schwarz, X'y is wrong by at most

    (sqrt(log2(p)) (h_x + h_y) + (log2(p) + 1) h_x h_y) N_x N_y,

and by what the mean of a block is wrong in both, (m eps)^2 for m rows times both ratios of means to deviations.

A mean that replaces missing values is a sum over rows, wrong by a share of about m eps. So a filled column is x_j + d_j
with ||d_j|| <= u N_j. This is no error of products, but other data: Y - X b changes by at most u sum of |b_j| N_j, and
Y by u ||Y|| where Y = X. With a = u (1 + sum of |b_j| N_j / ||Y||), f changes by (2 + a) a ||Y||^2 at most, which
grows with the coefficients, not with their squares.

Included columns I are removed from K, B and c by solving K_II A = K_I. The result is exact for products that differ
by a share u of the norms before, not of what is left. So u is added to the errors: after the removal, f of I and T is
wrong by at most u (1 + sum of |b_j| ||x_j|| / ||Y||)^2 ||Y||^2, with the coefficients b of I and T. If M = B B' was
reduced by subtraction, f is wrong by u (sum of ||x_j|| sqrt((K^-1)_jj))^2 ||Y||^2, however little of Y is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dsel._lib.tolerances import ridge
from dsel._lib.types import Floats

_EPS = float(np.finfo(np.float64).eps)
#: If rounding changes included columns by at most this share, it changes their coefficients by at most a factor of 2.
_MILD = 0.25


@dataclass(frozen=True)
class CenteringError:
    """By how much computed inner products may differ from exact ones, after centering and the removal of columns.

    gram: of two columns, as a share of their norms. cross: of a column and a target. targets: of ||Y||^2, as a share of
    it. filled: of a column whose missing values its mean replaces, as a share of its norm. largest: the largest squared
    norm of a preprocessed column. included: the largest sum of |b_j| ||x_j|| over the included columns, for a fit of a
    column or of Y of norm 1; None if that is not known. subtracted: whether included columns were removed from
    M = B B' by subtraction.
    """

    gram: float = 0.0
    cross: float = 0.0
    targets: float = 0.0
    filled: float = 0.0
    largest: float = 0.0
    included: float | None = None
    subtracted: bool = False

    @classmethod
    def of(cls, ratios: Floats, of_targets: Floats, *, rows: int, blocks: int, largest: float, of_filled: Floats,
           raw: bool = False, merged: bool = True) -> CenteringError:  # fmt: skip
        """Return the errors of sums over blocks of rows.

        Parameters
        ----------
        ratios, of_targets, of_filled : ndarray
            sqrt(W) |mean| / norm of each column, of each target and of each column whose mean replaces missing values.
        rows, blocks : int
            Number of rows, and of blocks of rows.
        largest : float
            Largest squared norm of a preprocessed column.
        raw : bool, default False
            Whether the columns are used with their means, and the norms include them.
        merged : bool, default True
            Whether inner products of columns are merged. If not, all rows are centered by the same means, and those of
            columns and of targets come from two passes, with means that may differ in place of missing values.
        """
        steps, merges = blocks + 1.0, math.log2(blocks)
        first = math.sqrt(merges) + (1.0 if raw else 0.0)

        # of an inner product of two columns whose means are x and y times as large as their deviations
        def second_order(x: float, y: float) -> float:
            return _EPS**2 * (rows**2 + (blocks + 1.0) ** 2) * x * y

        def error(x: float, y: float) -> float:
            h_x, h_y = _EPS * steps * x, _EPS * steps * y
            return first * (h_x + h_y) + merges * h_x * h_y + second_order(x, y)

        x, y = (4.0 + float(r.max(initial=0.0)) for r in (ratios, of_targets))
        gram = error(x, x) if merged else second_order(x, x)
        filled = _EPS * (steps + rows) * (4.0 + float(of_filled.max())) if of_filled.size else 0.0
        return cls(gram, error(x, y), error(y, y), filled if merged else 3.0 * filled, largest)

    def share(self, coefficients: float) -> float:
        """Return by what share of ||Y||^2 f of a subset may be too large.

        coefficients: the largest sum of |b_j| ||x_j|| / ||Y|| over the columns of a subset.
        """
        moved = self.filled * (1.0 + coefficients)
        return self.targets + 2.0 * self.cross * coefficients + self.gram * coefficients**2 + (2.0 + moved) * moved

    def given(
        self, K: Floats, columns: Floats, targets: Floats, largest: float, *, subtracted: bool = False
    ) -> CenteringError:
        """Return the errors once some columns are included, with the rounding of their removal.

        Parameters
        ----------
        K : ndarray of shape (i, i)
            Inner products of the included columns, for norm 1.
        columns, targets : ndarray of shape (i, n) and (i,)
            Sizes of the coefficients of the fits of the other columns and of Y, for norm 1.
        largest : float
            Largest squared norm of any of these columns.
        subtracted : bool, default False
            Whether the columns are removed from M by subtraction.
        """
        removal = ridge(K.shape[0])
        inflation = float(np.trace(np.linalg.inv(K)))
        more = float("inf")  # coefficients of nearly dependent columns are rounding themselves
        if (self.gram + removal) * K.shape[0] * inflation < _MILD:
            more = 2.0 * max(float(columns.sum(axis=0).max(initial=0.0)), float(targets.sum()))
        return replace(
            self, gram=self.gram + removal, cross=self.cross + removal, targets=self.targets + removal,
            largest=max(self.largest, largest), included=(1.0 + (self.included or 0.0)) * (1.0 + more) - 1.0,
            subtracted=self.subtracted or subtracted,
        )  # fmt: skip


#: The error of products that were computed without means.
NONE = CenteringError()
