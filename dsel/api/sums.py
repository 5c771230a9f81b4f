"""Selections from the sums of rows that no one may pool: `sums`, `open_sums`, `from_sums` and `check_part`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dsel.api.proofs import certify
from dsel.api.select import select
from dsel.errors import DataError, OptionError

if TYPE_CHECKING:
    from dsel.config.request import Column
    from dsel.passes.sums import Sums
    from dsel.selection.result import Selection
    from dsel.selection.results.check_part import PartShare


def sums(
    X: Any, Y: Any = None, *, targets: Sequence[Column] | None = None, unsupervised: bool = False,
    sample_weight: Any = None, noise: Mapping[str, Any] | None = None,
) -> Sums:  # fmt: skip
    """Return the sums of some rows, from which columns can be selected without the rows.

    Parameters
    ----------
    X, Y : array-like, store or dataset
        The rows of one part, as for `select`.
    targets : sequence of str or int, optional
        Some of the columns of Y.
    unsupervised : bool
        Ignore the Y of a store.
    sample_weight : (m,) array, str or False, optional
        Weights >= 0 of the rows, as for `select`.
    noise : dict, optional
        Add Gaussian noise that makes the sums differentially private for each row: `epsilon` > 0 and `delta` in (0, 1);
        `bounds`, the largest absolute value of each column, as a number or as a dict of labels, with ``"*"`` for all
        others; and `row_norm`, the norm above which a row in units of its bounds is scaled down, by default the square
        root of the number of columns and targets. State bounds that you know without the data.

    Returns
    -------
    Sums
        X'X, X'Y and the squared norms of Y about the means, means, weight, number of rows, and labels. ``save(path)``
        writes them to a file.

    Raises
    ------
    OptionError, MissingInputError
        An argument is wrong, or the data are missing.
    DataError
        Values cannot be used. Missing values are refused: each part would replace them by another mean.

    Notes
    -----
    It takes one pass, or none over a store whose sums are saved next to it. Sums say something about the rows: see the
    page "Select from data that no one may pool".

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> part = sums(X, X[:, 3] - 2 * X[:, 7])
    >>> part.m, part.n, part.n_targets
    (200, 20, 1)
    """
    from dsel.api.run_select import sums_of_rows

    return sums_of_rows(X, Y, noise, targets=targets, unsupervised=unsupervised, sample_weight=sample_weight)


def open_sums(*parts: Any) -> Sums:
    """Return the sums of all rows of some parts, merged in the order of the parts.

    Parameters
    ----------
    *parts : str, Path or Sums
        Files that ``Sums.save`` or ``dsel sums`` wrote, or what `sums` returned.

    Returns
    -------
    Sums
        What `select`, `certify` and `alternatives` take in place of X and Y.

    Raises
    ------
    MissingInputError
        A file does not exist.
    DataError
        A file is damaged; parts have other labels, targets or weights; or two of them hold the same rows, as far as
        sums tell.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = X[:, 3] - 2 * X[:, 7]
    >>> both = open_sums(sums(X[:80], y[:80]), sums(X[80:], y[80:]))
    >>> certify(select(both, k=2), both).certificate[0]["proven"]
    True
    """
    from dsel.passes.sums import Sums, pooled, read_sums

    return pooled([part if isinstance(part, Sums) else read_sums(part) for part in parts])


def from_sums(
    *parts: Any,
    k: int | Literal["auto"],
    XtX: Any = None,
    Xty: Any = None,
    yty: Any = None,
    m: int | None = None,
    weight: float | None = None,
    means: Any = None,
    features: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    proof_seconds: float | None = None,
    **arguments: Any,
) -> Selection:
    """Choose at most k columns from the sums of rows: as `select` does from the rows themselves.

    Parameters
    ----------
    *parts : str, Path or Sums
        The parts, as for `open_sums`. Without any, the arrays below.
    k : int or "auto"
        The number of columns. "auto" needs ``choose_k="bic"`` or another criterion without left-out rows.
    XtX, Xty, yty : arrays of shapes (n, n), (n,) or (n, N), and () or (N,) or (N, N)
        X'X, X'Y and Y'Y, summed by any program. Without Xty and yty, columns are selected for X itself (Y = X).
    m : int
        The number of rows of the arrays. With parts, the number of rows that they must have together, by which a
        missing part is noticed.
    weight : float, optional
        The sum of the weights of the rows, if they have any.
    means : pair of arrays of shapes (n,) and (N,), optional
        The means of X and Y. The arrays are then sums of products of the values as they are, and centered here.
        Without means, they count as sums about the means: all means are 0.
    features, targets : sequence of str, optional
        The labels of the columns of the arrays; by default x0, x1, ... and y0, y1, ...
    proof_seconds : float, optional
        Wall time of a proof, as for `certify`. By default there is none.
    **arguments
        What `select` takes besides: `method`, `lam`, `preprocess`, `include`, `exclude`, `groups`, `categories`,
        `seed`, and options of the method.

    Returns
    -------
    Selection
        The columns that `select` chooses from all rows. A note says that the answer is not checked on rows.

    Raises
    ------
    OptionError
        An argument is wrong, or the method, the rule for k or the criterion needs rows.
    MissingInputError, DataError
        Parts cannot be used, or do not fit together.
    CapacityError
        The Gram matrix does not fit in memory.

    Notes
    -----
    For parts in the same order, the search has the same bits as on a store whose segments are these parts, in the same
    chunks. R2 and coefficients come from the Gram matrix of the chosen columns, where `select` reads rows again. They
    agree up to rounding. Arrays of values as they are lose digits where means are much larger than deviations.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = X[:, 3] - 2 * X[:, 7]
    >>> from_sums(sums(X[:80], y[:80]), sums(X[80:], y[80:]), k=2).indices
    (7, 3)
    >>> from_sums(XtX=X.T @ X, Xty=X.T @ y, yty=y @ y, m=200, means=(X.mean(axis=0), y.mean()), k=2).indices
    (7, 3)
    """
    from dsel.passes.sums import sums_of_arrays

    arrays = {
        "XtX": XtX, "Xty": Xty, "yty": yty, "weight": weight, "means": means, "features": features, "targets": targets,
    }  # fmt: skip
    given = [name for name, value in arrays.items() if value is not None]
    if parts and given:
        at_sites = " Targets are chosen at each site: dsel.sums(X, Y, targets=...)." if "targets" in given else ""
        raise OptionError(
            f"{', '.join(given)} next to parts: these have their own sums, labels, targets and weights.",
            f"Give parts alone, or arrays alone.{at_sites}",
        )
    if not parts and (XtX is None or m is None):
        raise OptionError("There are no sums.", "Give parts, or XtX, Xty, yty and m.")
    found = open_sums(*parts) if m is None or parts else sums_of_arrays(**arrays, m=m)
    if m not in (None, found.m):
        raise DataError(
            f"The parts have {found.m} rows together, and m is {m}.", "Add the missing part, or correct m (--rows)."
        )
    selection = select(found, k=k, **arguments)
    return selection if proof_seconds is None else certify(selection, found, seconds=proof_seconds)


def check_part(selection: Selection, X: Any, Y: Any = None, *, sample_weight: Any = None) -> PartShare:
    """Return the share of some rows in the check of a selection from sums: their squared residuals.

    Parameters
    ----------
    selection : Selection
        What `from_sums` returned.
    X, Y : array-like, store or dataset
        The rows of one part.
    sample_weight : (m,) array, str or False, optional
        The weights of the rows, as for `sums`.

    Returns
    -------
    PartShare
        Sums of squares of each target. ``save(path)`` writes them; `dsel.selection.results.check_part.add_shares` adds
        those of all parts, and compares with the selection.

    Raises
    ------
    OptionError
        The selection has no targets.
    DataError
        Columns or targets of the selection are missing, or values cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from dsel.selection.results.check_part import add_shares
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = X[:, 3] - 2 * X[:, 7] + X[:, 1] ** 2
    >>> selection = from_sums(sums(X[:80], y[:80]), sums(X[80:], y[80:]), k=2)
    >>> add_shares(selection, [check_part(selection, X[:80], y[:80]), check_part(selection, X[80:], y[80:])]).agrees
    True
    """
    from dsel.api.run_select import part_of_check

    return part_of_check(selection, X, Y, sample_weight)
