"""`dsel.certify`, `dsel.alternatives` and `dsel.submodularity_ratio`: how good a selection is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dsel._lib.events import Event
    from dsel.config.size_rule import InformationCriterion
    from dsel.selection.alternatives import Alternatives
    from dsel.selection.result import Selection


def certify(
    selection: Selection,
    X: Any,
    Y: Any = None,
    *,
    seconds: float | None = 60.0,
    nodes: int | None = None,
    sizes: Literal["chosen", "all"] = "chosen",
    coefficient_limit: float | None = None,
    largest_coefficient: float | None = None,
    sample_weight: Any = None,
    offset: Any = None,
    progress: bool | None = None,
    on_event: Callable[[Event], None] | None = None,
    **earlier: Any,
) -> Selection:
    """Prove how far a selection can be from the best one.

    Parameters
    ----------
    selection : Selection
        What `select` returned. Its request says how to read the data.
    X, Y : array-like, store or dataset
        The data of the selection, with the same Y next to a store.
    seconds : float, optional
        Wall time of the proofs; None for no limit.
    nodes : int, optional
        How many nodes the proofs visit at most, for all sizes together.
    sizes : {"chosen", "all"}
        Prove for the chosen size only, or for every size up to k that has something to choose: with included columns
        these are the larger sizes.
    coefficient_limit : float, optional
        Prove for subsets whose squared coefficients, for columns of norm 1, sum to at most this many times those of
        the selection. It is for one target. With fewer than 150 columns, the proof is about all subsets. For a loss
        other than the squared error, the same as `largest_coefficient`, with any number of columns.
    largest_coefficient : float, optional
        Prove for subsets whose coefficients, for columns of norm 1, are at most this many times the largest one of the
        selection. It is for one target. With fewer than 150 columns, the proof is about all subsets.
    sample_weight : (m,) array, str or False, optional
        The weights of the selection. By default those of its request: a variable of the store, or none.
    offset : (m,) array or str, optional
        The offset of a selection by a loss, or its name in a frame, if it is no variable of the store.
    progress : bool, optional
        Show a line that says what runs; None for in notebooks and terminals only.
    on_event : callable, optional
        Called with each `Event` of the proof, as for `select`.
    **earlier
        `coefficients`, the earlier name of `coefficient_limit`.

    Returns
    -------
    Selection
        The selection with `certificate`. A better subset that a proof finds replaces its columns, and a note says so.

    Raises
    ------
    OptionError
        An argument is wrong, or the selection minimizes a custom criterion.
    DataError
        The data are not those of the selection.
    CapacityError
        Neither the Gram matrix nor the tables of a proof in passes fit in memory.

    Notes
    -----
    If the Gram matrix fits in memory, it takes one pass. If not, the proof makes a pass for each of its steps.

    Examples
    --------
    >>> import numpy as np
    >>> from dsel import select
    >>> X = np.random.default_rng(0).normal(size=(50, 20))
    >>> y = X[:, 3] - 2 * X[:, 7] + X[:, 1] ** 2
    >>> certify(select(X, y, k=2), X, y).certificate[0]["proven"]
    True
    """
    from dsel.api.run_proofs import certified

    limits = {
        "seconds": seconds, "nodes": nodes, "sizes": sizes, "coefficient_limit": coefficient_limit,
        "largest_coefficient": largest_coefficient,
    }  # fmt: skip
    return certified(selection, X, Y, limits, earlier, sample_weight, offset, progress, on_event)


def alternatives(
    selection: Selection,
    X: Any,
    Y: Any = None,
    *,
    within: float = 0.01,
    nbest: int | None = None,
    by: InformationCriterion | None = None,
    limit: int = 1000,
    seconds: float | None = 60.0,
    sizes: Literal["chosen", "all"] = "chosen",
    sample_weight: Any = None,
    offset: Any = None,
    progress: bool | None = None,
) -> Alternatives:
    """List all subsets that are nearly as good as the best one, with a verdict and a price for each column.

    A subset of k columns is near-best if it explains at least (1 - within) of what the best one of its size explains,
    included columns counted. A column is *necessary* if every near-best subset has it, *useless* if none has, and
    *replaceable* if some have it and some do not. It is *undecided* if the time did not suffice, or if it represents
    near-copies of which none is known to replace it. If the selection chose groups of columns, such as categories of a
    frame, all of this is about groups.

    Parameters
    ----------
    selection : Selection
        What `select` returned. Its request says how to read the data.
    X, Y : array-like, store or dataset
        The data of the selection, with the same Y next to a store.
    within : float
        How much less than the best subset a near-best one may explain, as a share of it.
    nbest : int, optional
        List this many best subsets instead, whatever they explain. The verdicts are then about these.
    by : {"aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"}, optional
        List the `nbest` best subsets of any size by this criterion. It is for single columns.
    limit : int
        List at most this many near-best subsets, the best ones. The verdicts count all of them. `nbest` has no limit.
    seconds : float, optional
        Wall time of the proofs; None for no limit.
    sizes : {"chosen", "all"}
        For the chosen size only, or for every size up to k; see `Alternatives.by_size`.
    sample_weight : (m,) array, str or False, optional
        The weights of the selection. By default those of its request: a variable of the store, or none.
    offset : (m,) array or str, optional
        The offset of a selection by a loss, or its name in a frame, if it is no variable of the store.
    progress : bool, optional
        Show a line that says what runs; None for in notebooks and terminals only.

    Returns
    -------
    Alternatives
        The subsets, whether the list is complete, and the verdict and the price of each column.
        `selection.with_alternatives` keeps them in the selection, for its report and its file.

    Raises
    ------
    OptionError
        An argument is wrong, or the selection minimizes a custom criterion.
    DataError
        The data are not those of the selection.
    CapacityError
        The Gram matrix does not fit in memory, or the proof of the chosen size failed or had too little time to begin.

    Notes
    -----
    It takes one pass. The tree of the proof looks for all subsets that are good enough, in place of better ones than
    the best. So "necessary" and "useless" are proofs, and two subsets show that a column is replaceable. Where columns
    represent near-copies, the list and the verdicts are about subsets without the copies, and the bounds of prices are
    about all columns.

    Examples
    --------
    >>> import numpy as np
    >>> from dsel import select
    >>> X = np.random.default_rng(0).normal(size=(50, 20))
    >>> y = X[:, 3] - 2 * X[:, 7] + X[:, 1] ** 2
    >>> found = alternatives(select(X, y, k=2), X, y)
    >>> found.complete, found.verdicts["x7"]
    (True, 'necessary')
    """
    from dsel.api.run_proofs import near_best_subsets

    limits = {"within": within, "nbest": nbest, "by": by, "limit": limit}
    return near_best_subsets(selection, X, Y, limits, sample_weight, offset, progress, seconds=seconds, sizes=sizes)


def submodularity_ratio(selection: Selection, X: Any, Y: Any = None, *, sample_weight: Any = None) -> Selection:
    """Return a selection with an estimate and a proved bound of its submodularity ratio gamma.

    Parameters
    ----------
    selection : Selection
        What `select` returned.
    X, Y : array-like, store or dataset
        The data of the selection, with the same Y next to a store.
    sample_weight : (m,) array, str or False, optional
        The weights of the selection. By default those of its request: a variable of the store, or none.

    Returns
    -------
    Selection
        The selection with `submodularity`. Forward selection and POSS explain at least the share 1 - e^-gamma of what
        the best k columns explain.

    Raises
    ------
    DataError
        The data are not those of the selection.
    CapacityError
        The Gram matrix does not fit in memory.
    OptionError
        The selection is one of groups.

    Notes
    -----
    It takes one pass. `certify` does the same for up to 2000 columns. With more, the bound is
    Gershgorin's, which is 0 unless all correlations are small.

    Source: Das and Kempe, "Submodular meets spectral", ICML 2011.

    Examples
    --------
    >>> import dsel
    >>> import numpy as np
    >>> X = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 20)))[0]
    >>> y = X[:, 3] - 2 * X[:, 7]
    >>> selection = dsel.select(X, y, k=2, preprocess="none")
    >>> round(dsel.submodularity_ratio(selection, X, y).submodularity.guarantee, 3)
    0.632
    """
    from dsel.jobs.certify import with_ratio

    return with_ratio(selection, X, Y, sample_weight)
