"""The tolerances of subsets and proofs: what counts as dependent, as equal, and as rounding.

Search, bounds, final check and the check of a proof use the same numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats

#: A subset is dependent if the others leave at most this share of a column's squared norm. Its "tolerance" is the
#: least such share over the columns (1 - R^2 of the column on the others, 1 over its variance inflation factor). The
#: rule does not depend on the order of the columns. All subsets of an independent subset are independent. Below the
#: tolerance, normal equations in float64 would lose more than 1e-8 of f.
DEPENDENCE_TOLERANCE = 1e-7
#: Bounds eliminate columns in other orders, where pivots may have any size. So they add a ridge to each column, which
#: is more than rounding: a share of its squared norm, and a multiple of eps for each column that is eliminated. The
#: largest rounding that was measured is 5 n eps (1e-12, n = 900, beyond the rank).
_RIDGE, _RIDGE_PER_COLUMN = 1e-14, 8.0 * float(np.finfo(np.float64).eps)
#: A dependent subset is real if the others leave more of each column than this many times the perturbation of bounds
#: (see `perturbation`), as a share of its squared norm. Otherwise rounding decides what it explains.
REAL = 100.0
#: Two columns are near-copies if their correlation, positive or negative, is at least 1 less this.
NEAR_COPY = 1e-6
#: A column is a multiple of another one, up to rounding, if at most this share of its norm is left of it. A subset with
#: it is then as good as with the other one in its place (`copies_share`), and as independent up to rounding.
EXACT_COPY = 1e-14
#: Columns whose correlation is 1 up to this may be multiples. A correlation cannot show more.
LIKELY_COPY = 1e-12
#: Subsets whose f differ by at most this share of ||Y||^2 count as equally good.
MARGIN = 1e-10


def same_norm(norm: float, norms: Floats) -> NDArray[np.bool_]:
    """Return which norms differ so little from one that columns of correlation 1 with these norms are near-copies.

    Parameters
    ----------
    norm : float
        The norm of a column.
    norms : (n,) array
        Those of others.

    Returns
    -------
    (n,) array of bool
        Whether the squared difference is at most 2e-6 of the product, as that of near-copies of equal norms.
    """
    close: NDArray[np.bool_] = np.square(norms - norm) <= 2.0 * NEAR_COPY * norm * norms
    return close


def copies_share(k: int, distance: float) -> float:
    """Return by which share of ||Y||^2 subsets can be better than those with other columns in place of copies.

    Parameters
    ----------
    k : int
        The most columns of a subset.
    distance : float
        The largest distance of a copy from a multiple of the other column, as a share of its norm.

    Returns
    -------
    float
        About k times 3162 times the distance.

    Notes
    -----
    Let R be what the subset leaves of Y, and b the coefficients of its columns x_j, copies of x_i with the distance e_j
    from c x_i. The coefficients c b_j of x_i leave R + sum of e_j b_j. Its square exceeds that of R by at most
    2 a ||R|| + a^2, a = sum of ||e_j|| ||b_j||. In independent subsets ||b_j|| ||x_j|| is at most
    sqrt(||Y||^2 - ||R||^2) over the square root of the tolerance. And 2 ||R|| sqrt(||Y||^2 - ||R||^2) <= ||Y||^2.
    """
    moved: float = k * distance / DEPENDENCE_TOLERANCE**0.5
    return moved + moved * moved


def ridge(n: int) -> float:
    """Return the ridge of bounds that eliminate n columns, as a share of a column's squared norm.

    Parameters
    ----------
    n : int
        The number of columns.

    Returns
    -------
    float
        1e-14 + 8 n eps.
    """
    return _RIDGE + _RIDGE_PER_COLUMN * n


def perturbation(n: int) -> float:
    """Return by which share of a column's squared norm a bound may differ from an exact one: ridge and rounding.

    Parameters
    ----------
    n : int
        The number of columns.

    Returns
    -------
    float
        Twice the ridge.
    """
    return 2.0 * ridge(n)
