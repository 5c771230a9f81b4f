"""`dsel.select`, `dsel.certify`, `dsel.alternatives`, `dsel.plan`, `dsel.stability` and `dsel.eigh`.

The same from the sums of rows that no one may pool: `dsel.sums`, `dsel.open_sums`, `dsel.from_sums`, `dsel.check_part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Literal, Never

from dsel._lib.events import Event, is_observed, telling
from dsel.config.ingest_request import Dates
from dsel.config.job import ListLimits
from dsel.config.request import (
    Categories,
    Column,
    Missing,
    NearCopies,
    Polish,
    Preprocess,
    SelectionRequest,
    SketchRule,
)
from dsel.config.size_rule import InformationCriterion, SizeCriterion, SizeRule
from dsel.data.dataset import Dataset, as_dataset
from dsel.data.offset import split_offset
from dsel.engine.clusters.connect import active_client, engine_of
from dsel.engine.clusters.local import worker_memory as memory_of_worker
from dsel.engine.engine_protocol import Engine
from dsel.errors import CapacityError, DataError, OptionError
from dsel.jobs.certify import certify_selection, data_again, proof_events
from dsel.jobs.locations import dataset_of
from dsel.jobs.proof_store import ProofBudget
from dsel.passes.noise import Noise
from dsel.passes.statistics_cache import StatisticsCache
from dsel.passes.sums import Sums, noisy_sums_of, pooled, read_sums, sums_of, sums_of_arrays
from dsel.planning.calibration import calibrated
from dsel.planning.eigh import Eigendecomposition, EighMethod, decompose, eigh_request
from dsel.planning.plan import Plan, available_resources
from dsel.planning.validation import ValidatedRequest, validate
from dsel.search.anytime import AnytimeSearch, slice_event
from dsel.search.method import OnSlice
from dsel.search.placement import Site
from dsel.selection.alternatives import Alternatives
from dsel.selection.context import RunContext
from dsel.selection.pipeline import plan_selection, run_events, run_validated
from dsel.selection.progress_line import showing_progress
from dsel.selection.result import Selection
from dsel.selection.results.check_part import PartShare, part_share
from dsel.selection.stability.result import Stability
from dsel.selection.stability.run import Resample, run_stability


def select(
    X: Any,
    Y: Any = None,
    *,
    k: int | Literal["auto"],
    max_k: int | None = None,
    choose_k: SizeRule | SizeCriterion | dict[str, Any] | None = None,
    method: str = "poss",
    lam: float = 0.0,
    preprocess: Preprocess = "standardize",
    include: Sequence[Column] = (),
    exclude: Sequence[Column] = (),
    groups: Mapping[Any, Any] | Sequence[Sequence[Column]] | str | None = None,
    categories: Categories = "groups",
    dates: Dates = "refuse",
    near_copies: NearCopies = "first",
    polish: Polish = "none",
    seed: int = 0,
    missing: Missing = "refuse",
    targets: Sequence[Column] | None = None,
    unsupervised: bool = False,
    sample_weight: Any = None,
    rows: dict[str, Any] | None = None,
    loss: Any = "squared",
    offset: Any = None,
    class_weight: Any = None,
    criterion: Callable[..., float] | str | None = None,
    reduce: SketchRule | dict[str, Any] | None = None,
    progress: bool | None = None,
    on_event: Callable[[Event], None] | None = None,
    **options: Any,
) -> Selection:
    """Choose at most k columns of X that best explain Y.

    Parameters
    ----------
    X : (m, n) array, sparse matrix, DataFrame, Dask or xarray array, Dataset, AnnData, or str or Path
        The data: m samples of n features. A DataFrame is one of pandas, polars, Dask or Arrow, and may hold text and
        categories. An xarray array of more dimensions has the features in all but that of the samples. A path or URL
        names a store. A store or a Dataset may hold its own Y. A session of Icechunk, or a URL such as
        ``"icechunk://s3://bucket/prefix?branch=main"``, stands for the Dataset of its snapshot.
    Y : (m,) or (m, N) array, Series, DataFrame, Dask or xarray array, str, int or list of them, optional
        The targets, or the names of the columns of a frame X (of obs of AnnData) that are the targets. A whole number
        names a column where whole numbers name all columns of the frame. Text and
        categories are classes: one column of 0 and 1 for two, a column each for more. Without any targets, columns are
        selected for X itself (Y = X: column subset selection).
    k : int or "auto"
        The number of columns to choose at most, with the included ones. "auto": chosen as `choose_k` says.
    max_k : int, optional
        The upper limit of ``k="auto"``; by default 30, or fewer where there are few rows or columns.
    choose_k : SizeRule, dict or {"folds", "held-out", "path", "aic", "aicc", "bic", ...}, optional
        How ``k="auto"`` chooses: by the error on left-out folds (default), or the keys of a `SizeRule`, such as
        ``{"folds": 10, "one_standard_error": True}``.
    method : str
        One of

        - ``"poss"``: Pareto optimization of the error and the number of columns (POSS; POCSS where Y = X),
        - ``"portfolio"``: several searches that share what they find, for a given time, and a proof,
        - ``"pposs"``, ``"pposs-asy"``: the same on workers, reproducible or without waiting,
        - ``"forward"``, ``"omp"``, ``"foba"``, ``"backward"``, ``"rfe"``, ``"exchange"``, ``"splicing"``: greedy
          methods,
        - ``"greedy-rls"``, ``"kfold"``: greedy, by the leave-one-out or K-fold error of ridge regression,
        - ``"branch-and-bound"``, ``"astar"``: exact, or within a given factor of the optimum,
        - ``"two-stage"``, ``"approx-svd"``: for Y = X only,

        or a method of an installed package.
    lam : float
        The ridge penalty on the preprocessed data.
    preprocess : {"standardize", "center", "unit", "none"}
        Mean 0 and variance 1; mean 0; norm 1 without centering; or nothing.
    include, exclude : sequence of str or int
        Columns that are always or never chosen. A string is a label. An integer is a position from 0, or the label
        where whole numbers name all columns of a DataFrame or xarray array.
    groups : mapping, list of lists or str, optional
        Columns that enter and leave together, and count as one column towards k: a mapping from names to lists of
        columns, ``{"size": ["height", "width"]}``, or from columns to names, ``{"height": "size", "width": "size"}``;
        lists of columns, ``[["height", "width"], ["red", "blue"]]``; or the name of a coordinate of the features, such
        as ``"source"``, which `ingest` writes for one-hot columns. Columns are labels or positions. Each other column
        forms a group by itself. `include` and `exclude` may name groups, and a column there stands for its group. For
        ``"forward"``, ``"omp"``, ``"foba"``, ``"backward"``, ``"exchange"``, ``"splicing"``, ``"poss"``, ``"pposs"``,
        ``"pposs-asy"``, ``"random"``, ``"branch-and-bound"``, and ``"pivoted-qr"`` where Y = X.
    categories : {"groups", "columns", "refuse"}
        Text and categories become a column of zeros and ones for each value: of a frame here (text with at most 50
        values), of a store in `ingest`. These are chosen together and count as one column, by the methods that take
        `groups`, among fewer than 10 000 columns; or are chosen one by one; or are refused.
    dates : {"refuse", "days"}
        Dates of a frame are refused, or become numbers: days since the beginning of 1970.
    near_copies : {"first", "keep", "refuse"}
        Of columns that correlate by at least 1 - 1e-6, search with the first one only, and list the others among its
        substitutes; with all of them; or refuse them. In wide data, whose Gram matrix is not in memory, the
        correlations are estimated. If columns are not centered either, near-copies are multiples of each other. Groups
        stay whole, and custom criteria see all columns.
    polish : {"none", "exchange"}
        "exchange": after the search, replace one column by a better one until none helps. The answer and the best
        subsets of smaller sizes never get worse. Not for methods that use rows, nor with a criterion.
    seed : int
        The seed of all random numbers. The same seed gives the same selection, except for ``"pposs-asy"`` and limits
        of time.
    missing : {"refuse", "mean"}
        Refuse missing values in X (NaN or masked), or replace them by the mean of their column.
    targets : str or sequence of str or int, optional
        Some of the columns of Y. They stay in the order of Y. Without Y, the columns of a frame X that are the targets,
        also as `target`.
    unsupervised : bool
        Select columns for X itself, even where the data hold targets.
    sample_weight : (m,) array, str or False, optional
        Weights >= 0 of the rows in every sum. For a store or a Dataset: the name of a variable, by default ``weight``
        where there is one, or False for no weights.
    rows : dict, optional
        Some consecutive rows of a store: ``{"last": 90}`` for the last 90 segments (appends), ``{"last": 0.2}`` for the
        last fifth of the rows, ``{"first": ...}`` likewise, or ``{"time": ["2026-08-01", None]}`` for the rows between
        two values of a variable over the samples (from the first value on, up to but without the second).
    loss : str, mapping or Loss
        What the selection minimizes. "squared": the squared error. The deviance of "logistic" (two classes),
        "multinomial" (three or more), "poisson" (counts), "gamma" (amounts above 0), "huber" (numbers with outliers),
        "quantile" (the median) or "cox" (times to an event: Y has the time, and 1 for an event or 0 if it was cut off).
        Or a loss with its parameters: ``{"quantile": {"level": 0.9}}``, ``{"huber": {"delta": 2.0}}``, or an object.
        `error` is then the deviance with the penalty, and `r2` the share of the deviance that the columns explain (D2).
        The intercept is not penalized.
    offset : (m,) array or str, optional
        What is added to the linear predictor of each row, such as the logarithm of an exposure. For a store the name
        of a target, which is then none, or of another variable over the samples; for a frame that of a column, which is
        then no feature. It needs a loss other than the squared error.
    class_weight : {"balanced"} or dict, optional
        Weights of the classes for the losses "logistic" and "multinomial", which multiply those of the rows. "balanced"
        gives all classes the same weight in total. A dict such as ``{"yes": 5.0}`` leaves the others at 1. Columns are
        centered and scaled without them, but with `sample_weight`: with `lam` above 0 the two differ.
    criterion : callable or str, optional
        A function f(S) of the ascending columns chosen, which is minimized in place of the squared error. With a second
        parameter it is called as f(S, data) with a `dsel.data.criterion_data.ColumnData`. It is called once for each
        subset. Chosen columns that depend on others have coefficient 0. For ``"forward"``, ``"exchange"``,
        ``"splicing"``, ``"poss"``, ``"pposs"`` and ``"pposs-asy"``. Text names a function as package.module:function.
    reduce : SketchRule or dict, optional
        Search on a randomized eigendecomposition of X, such as ``{"rank": 100}`` or ``{"accuracy": 0.95}``. Errors and
        bounds in the result are those of the data. By default only data with Y = X for which nothing exact fits in
        memory are reduced. The earlier name `sketch` is read, too.
    progress : bool, optional
        Show a line that says what runs, on standard error. By default in notebooks and terminals only.
    on_event : callable, optional
        Called with each event of the run as it happens: `event.kind`, `event.at` and `event.values`. An error in it is
        a warning, and ends the calls.
    **options
        The method's own options, such as ``iterations``. The page "Methods" of the documentation lists them.

    Returns
    -------
    Selection
        The chosen columns, coefficients, the best subset of every size, and the cost.

    Raises
    ------
    OptionError, MissingInputError
        An argument is wrong, or the data are missing. Raised before the first pass over the data.
    CapacityError
        The work does not fit in memory.
    DataError
        Values cannot be used. The error names the block that they are in.
    CriterionError
        The criterion failed. The error holds the subset and the traceback.
    ClusterError
        The cluster failed.
    MissingExtraError, AccessError, StorageError
        Object storage cannot be used.

    Notes
    -----
    The active Dask client runs the passes over stores and Dask arrays. Without a client, threads of this process do.
    Arrays in memory are used where they are. The cost is one pass over the data with m n (n + N) multiplications, the
    search, and one more pass over the chosen columns (over all columns where Y = X).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> select(X, X[:, 3] - 2 * X[:, 7], k=2).indices
    (7, 3)
    """
    dataset, request = _asked(
        X, Y, k=k, max_k=max_k, choose_k=choose_k, method=method, lam=lam, preprocess=preprocess, include=include,
        exclude=exclude, groups=groups, categories=categories, dates=dates,
        near_copies=near_copies, polish=polish, seed=seed, missing=missing, targets=targets, unsupervised=unsupervised,
        sample_weight=sample_weight, rows=rows, criterion=criterion, reduce=reduce, loss=loss, offset=offset,
        class_weight=class_weight, **options,
    )  # fmt: skip
    return select_from(dataset, request, progress=progress, on_event=on_event)


def select_from(
    dataset: Dataset, request: SelectionRequest, cache: StatisticsCache | None = None, *,
    progress: bool | None = False, on_event: Callable[[Event], None] | None = None,
) -> Selection:  # fmt: skip
    """Run a request on a dataset, on the workers of the active Dask client if that helps.

    Parameters
    ----------
    dataset : Dataset
        The data.
    request : SelectionRequest
        What to select.
    cache : StatisticsCache, optional
        Where statistics of data with a fingerprint are read and saved.
    progress : bool, optional
        Show a line that says what runs; None for in notebooks and terminals only.
    on_event : callable, optional
        Called with each `Event` of the run.

    Returns
    -------
    Selection
        The selection.

    Raises
    ------
    DselError
        As `select` raises them.
    """
    validated = validate(dataset, request)
    if on_event is not None:
        with telling(on_event), run_events(validated) as ended:
            selection = _selected(validated, cache, progress)
            ended(selection)
            return selection
    return _selected(validated, cache, progress)


def _selected(validated: ValidatedRequest, cache: StatisticsCache | None, progress: bool | None) -> Selection:
    """Run a validated request on the workers of the active client if that helps."""
    dataset = validated.dataset
    helps = not dataset.in_memory or validated.placed(Site(cluster=True)).on_workers
    client = active_client() if helps else None
    with _running(client, RunContext(cache=cache), progress) as context:
        return run_validated(validated, context)


def _telling_slices(before: OnSlice | None, stage: str) -> OnSlice:
    """Return what tells observers of each slice, after what is called already."""

    def on_slice(search: AnytimeSearch) -> None:
        if before is not None:
            before(search)
        slice_event(stage, search)

    return on_slice


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
    dataset = as_dataset(X, Y, targets=targets, unsupervised=unsupervised, sample_weight=sample_weight)
    dtype = str(sample_weight.dtype) if hasattr(sample_weight, "dtype") else None
    cache = None
    if dataset.store is not None:
        saved = dataset.store.path.with_name(f"{dataset.store.path.name}.artefacts")
        cache = StatisticsCache(saved) if saved.exists() else None
    with _engine_for(dataset) as engine:
        if noise is not None:
            return noisy_sums_of(dataset, Noise.of(noise, dataset), engine)
        return sums_of(dataset, weight_dtype=dtype, engine=engine, cache=cache)


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
        What `select` takes besides: `method`, `lam`, `preprocess`, `include`, `exclude`, `groups`, `seed`, and options
        of the method.

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
    arrays = {
        "XtX": XtX, "Xty": Xty, "yty": yty, "weight": weight, "means": means, "features": features, "targets": targets,
    }  # fmt: skip
    given = [name for name, value in arrays.items() if value is not None]
    if parts and given:
        raise OptionError(f"There are parts, and {', '.join(given)}.", "Give parts, or arrays.")
    if not parts and (XtX is None or m is None):
        raise OptionError("There are no sums.", "Give parts, or XtX, Xty, yty and m.")
    found = open_sums(*parts) if m is None or parts else sums_of_arrays(**arrays, m=m)
    if m not in (None, found.m):
        raise DataError(f"The parts have {found.m} rows together, and m is {m}.", "Add the missing part, or correct m.")
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
    dataset = as_dataset(X, Y, sample_weight=sample_weight)
    with _engine_for(dataset) as engine:
        return part_share(selection, dataset, engine)


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
        The data of the selection.
    seconds : float, optional
        Wall time of the proofs; None for no limit.
    nodes : int, optional
        The number of nodes after which the proofs end.
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
    sample_weight : (m,) array or str, optional
        The weights of the selection.
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
    >>> X = np.random.default_rng(0).normal(size=(50, 20))
    >>> y = X[:, 3] - 2 * X[:, 7] + X[:, 1] ** 2
    >>> certify(select(X, y, k=2), X, y).certificate[0]["proven"]
    True
    """
    if not isinstance(selection, Selection):
        raise OptionError(f"selection is a {type(selection).__name__}.", "Use what select or open_selection returns.")
    if unknown := earlier.keys() - ProofBudget.renamed.keys():
        raise TypeError(f"certify() got an unexpected keyword argument {min(unknown)!r}")
    limits = {"coefficient_limit": coefficient_limit, "largest_coefficient": largest_coefficient}
    budget = ProofBudget.of(seconds=seconds, nodes=nodes, sizes=sizes, **limits, **earlier)
    dataset, request = data_again(selection, X, Y, sample_weight, offset)
    client = None if dataset.in_memory else active_client()
    with telling(on_event), proof_events(dataset, request, selection) as ended:
        with _running(client, RunContext(), progress, "certificate") as context:
            certified = certify_selection(dataset, request, selection, budget, context)
        ended(certified)
        return certified


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
        The data of the selection.
    within : float
        How much less than the best subset a near-best one may explain, as a share of it.
    nbest : int, optional
        List this many best subsets instead, whatever they explain. The verdicts are then about these.
    by : {"aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"}, optional
        List the `nbest` best subsets of any size by this criterion. It is for single columns.
    limit : int
        List at most this many near-best subsets, the best ones. The verdicts count all of them.
    seconds : float, optional
        Wall time of the proofs; None for no limit.
    sizes : {"chosen", "all"}
        For the chosen size only, or for every size up to k; see `Alternatives.by_size`.
    sample_weight : (m,) array or str, optional
        The weights of the selection.
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
        The Gram matrix does not fit in memory, or the proof failed or had too little time to begin.

    Notes
    -----
    It takes one pass. The tree of the proof looks for all subsets that are good enough, in place of better ones than
    the best. So "necessary" and "useless" are proofs, and two subsets show that a column is replaceable. Where columns
    represent near-copies, the list and the verdicts are about subsets without the copies, and the bounds of prices are
    about all columns.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 20))
    >>> y = X[:, 3] - 2 * X[:, 7] + X[:, 1] ** 2
    >>> found = alternatives(select(X, y, k=2), X, y)
    >>> found.complete, found.verdicts["x7"]
    (True, 'necessary')
    """
    if not isinstance(selection, Selection):
        raise OptionError(f"selection is a {type(selection).__name__}.", "Use what select or open_selection returns.")
    limits = ListLimits.of(within=within, nbest=nbest, by=by, limit=limit)
    budget = ProofBudget.of(seconds=seconds, sizes=sizes, near_best=limits)
    dataset, request = data_again(selection, X, Y, sample_weight, offset)
    return alternatives_from(dataset, request, selection, budget, progress=progress)


def alternatives_from(
    dataset: Dataset, request: SelectionRequest, selection: Selection, budget: ProofBudget,
    cache: StatisticsCache | None = None, *, progress: bool | None = False,
) -> Alternatives:  # fmt: skip
    """Return the near-best subsets of a selection of a dataset.

    Parameters
    ----------
    dataset, request, selection : Dataset, SelectionRequest, Selection
        The data, what was asked, and what was found.
    budget : ProofBudget
        Which subsets are listed, and how long to search.
    cache : StatisticsCache, optional
        Where statistics of data with a fingerprint are read and saved.
    progress : bool, optional
        Show a line that says what runs; None for in notebooks and terminals only.

    Returns
    -------
    Alternatives
        The near-best subsets.

    Raises
    ------
    DselError
        As `alternatives` raises them.
    """
    with _running(None if dataset.in_memory else active_client(), RunContext(cache=cache), progress) as context:
        proved = certify_selection(dataset, request, replace(selection, alternatives=None), budget, context)
    if proved.alternatives is None:
        return _no_alternatives([note for note in proved.notes if note not in selection.notes])
    return proved.alternatives


def _no_alternatives(failures: Sequence[str]) -> Never:
    """Raise the error that says why there is no near-best subset."""
    if failures:
        raise CapacityError(f"There is no near-best subset: {'; '.join(failures)}.", "Allow more time.")
    raise OptionError(
        "There is no near-best subset: there is no column to choose besides those that are included.",
        "Select for a larger k.",
    )


def stability(
    X: Any,
    Y: Any = None,
    *,
    k: int,
    method: str = "forward",
    resample: Resample = "pairs",
    samples: int = 100,
    parts: int = 20,
    split: Literal["random", "blocks"] = "random",
    row_groups: Any = None,
    **arguments: Any,
) -> Stability:
    """Return how often each column is chosen on subsamples of the rows (stability selection).

    Parameters
    ----------
    X, Y : array-like, store or dataset
        The data, as for `select`.
    k : int
        The number of columns to choose at most. The result has the frequencies for every size up to k.
    method : str
        A method of `select` that needs only the Gram matrix.
    resample : {"pairs", "halves", "bootstrap"}
        Halves of the rows in complementary pairs, random halves, or bootstrap samples of the parts.
    samples : int
        The number of subsamples; each of a pair counts.
    parts : int
        The rows are divided into this many parts, of which the subsamples are made. It must be even for halves.
    split : {"random", "blocks"}
        Divide the rows at random, or into blocks of consecutive rows, for rows in order of time.
    row_groups : str or (m,) array, optional
        The group of each row. All rows of a group are in one part. A store names a variable over its samples.
    **arguments
        Further arguments of `select`, such as `groups`, `include` or `lam`, with the method's options.

    Returns
    -------
    Stability
        The frequencies, error bounds, a table and a picture.

    Raises
    ------
    OptionError, MissingInputError
        An argument is wrong. Raised before the first pass over the data.
    CapacityError
        The Gram matrices of the parts do not fit in memory.
    DataError
        Values cannot be used.

    Notes
    -----
    The Gram matrices of all parts come from one pass over the data, which sums `parts` matrices in place of one. The
    Gram matrix of a subsample is the sum of those of its parts. The search runs once for each subsample. With parts
    that are drawn at random, half of the parts is a random half of the rows.

    Source: Meinshausen and Buehlmann, "Stability selection", Journal of the Royal Statistical Society B 72, 2010; Shah
    and Samworth, "Variable selection with error control", ibid. 75, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = X[:, 3] - 2 * X[:, 7] + np.random.default_rng(1).normal(size=200)
    >>> stability(X, y, k=3).stable(0.9)
    ['x3', 'x7']
    """
    dataset, request = _asked(X, Y, k=k, method=method, **arguments)
    with _engine_for(dataset) as engine:
        return run_stability(
            dataset, request, RunContext(engine), resample=resample,
            samples=samples, parts=parts, split=split, row_groups=row_groups,
        )  # fmt: skip


def plan(
    X: Any, Y: Any = None, *, workers: int | None = None, worker_memory: str | int | None = None,
    calibrate: bool = True, **arguments: Any,
) -> Plan:  # fmt: skip
    """Return what ``select(X, Y, **arguments)`` will take, before anything of it runs.

    Parameters
    ----------
    X, Y : array-like, store or dataset
        The data, as for `select`.
    workers : int, optional
        The number of workers that the selection will run on; by default those of the active Dask client, or one.
    worker_memory : int or str, optional
        The memory limit of each worker in bytes, or text such as "1GiB"; by default that of the active client's
        workers, or no limit.
    calibrate : bool
        Estimate the time of the passes and of the search. This takes a second or two and reads one block.
    **arguments
        The arguments of `select`, with the method's options.

    Returns
    -------
    Plan
        Passes, bytes and tasks are those that will be counted. A plan that does not fit says so in `lacks` and
        `remedy`. Print it, or read its fields.

    Raises
    ------
    OptionError, MissingInputError, DataError
        As for `select`, where they show before the first pass.
    """
    dataset, request = _asked(X, Y, **arguments)
    validated = validate(dataset, request)
    if workers is not None and workers < 1:
        raise OptionError(f"workers is {workers}.", "It is a number of workers >= 1.")
    with _engine_for(dataset) as engine:
        limit = engine.worker_memory if worker_memory is None else memory_of_worker(workers, worker_memory)
        available = available_resources(workers or engine.workers, limit, not engine.in_process or workers is not None)
        made = plan_selection(validated, RunContext(engine), available=available)
    return calibrated(made, dataset) if calibrate else made


def eigh(
    X: Any,
    *,
    rank: int | None = None,
    accuracy: float | None = None,
    oversampling: int = 10,
    power_iterations: int = 2,
    method: EighMethod = "auto",
    preprocess: Preprocess = "standardize",
    missing: Missing = "refuse",
    sample_weight: Any = None,
    seed: int = 0,
) -> Eigendecomposition:
    """Return the leading eigenvalues and eigenvectors of X'X, out of core.

    Parameters
    ----------
    X : (m, n) array, sparse matrix, DataFrame, Dask or xarray array, Dataset, or str or Path
        The data, as for `select`. Targets in a store are not used.
    rank : int, optional
        How many eigenvalues at most. By default all of them, which needs an exact method.
    accuracy : float, optional
        The share of ||X||^2 to capture, between 0 and 1. The rank is then the least that reaches it, up to `rank` (by
        default 1000).
    oversampling : int
        Further random vectors of the randomized method beyond the rank.
    power_iterations : int
        Power iterations of the randomized method. Each one takes two more passes.
    method : {"auto", "gram", "row-gram", "randomized"}
        From X'X (n x n) in one pass, from X X' (m x m) in three, or by a randomized sketch in 3 + 2 q passes for q
        power iterations. "auto": the cheapest that fits in memory.
    preprocess : {"standardize", "center", "unit", "none"}
        How columns are centered and scaled.
    missing : {"refuse", "mean"}
        Refuse NaN, or replace it by the mean of its column.
    sample_weight : (m,) array, str or False, optional
        Weights of the rows, as for `select`.
    seed : int
        The seed of the random vectors. They depend neither on the chunks nor on the workers.

    Returns
    -------
    Eigendecomposition
        Values, components, the share that they capture, and a bound on what they miss.

    Raises
    ------
    OptionError
        An argument is wrong.
    CapacityError
        No method fits in memory.
    DataError
        Values cannot be used.

    Notes
    -----
    The randomized method is subspace iteration (Halko, Martinsson and Tropp, SIAM Review 2011, algorithm 4.4). Its
    result is a projection of X: the components capture at least the share `captured`.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.random.default_rng(0).normal(size=(500, 3))
    >>> X = Z @ np.random.default_rng(1).normal(size=(3, 40))
    >>> found = eigh(X, rank=3)
    >>> found.rank, round(found.captured, 6)
    (3, 1.0)
    """
    request = eigh_request(
        rank, accuracy, oversampling, power_iterations, preprocess=preprocess, missing=missing, seed=seed,
        sample_weight=sample_weight,
    )  # fmt: skip
    validated = validate(dataset_of(request, X), request)
    with _engine_for(validated.dataset) as engine:
        available = available_resources(engine.workers, engine.worker_memory, not engine.in_process)
        return decompose(validated, method, engine, available)


def _engine_for(dataset: Dataset) -> AbstractContextManager[Engine]:
    """Provide the engine of the active client; that of this process without one, and for data in memory."""
    return engine_of(None if dataset.in_memory else active_client())


@contextmanager
def _running(
    client: Any, context: RunContext, progress: bool | None, stage: str = "search"
) -> Iterator[RunContext]:  # fmt: skip
    """Provide the context on a client's workers, or in this process if it is None, with a line of progress.

    stage: what observers are told of each slice of.
    """
    with showing_progress(context, progress) as (shown, line):
        if is_observed():
            shown = replace(shown, on_slice=_telling_slices(shown.on_slice, stage))
        on_tasks = None if line is None else line.tasks
        with engine_of(client, on_tasks) as engine:
            yield replace(shown, engine=engine)


def _asked(X: Any, Y: Any, **arguments: Any) -> tuple[Dataset, SelectionRequest]:
    """Return the data and the request of a call. Numbers are labels where numbers name the columns."""
    if "offset" in arguments:
        X, arguments["offset"] = split_offset(X, arguments["offset"])
    request = _request(**arguments)
    dataset = dataset_of(request, X, Y)
    return dataset, request.by_name() if dataset.numbered else request


def _request(**arguments: Any) -> SelectionRequest:
    """Return the request of a call. What is not a field of a request is an option of the method."""
    if "options" in arguments:
        raise OptionError("options is not an argument.", "Give the method's options as keyword arguments.")
    fields = {*SelectionRequest.model_fields, *SelectionRequest.renamed} - {"options"}
    options = {name: value for name, value in arguments.items() if name not in fields}
    return SelectionRequest.of(options=options, **{name: arguments[name] for name in fields & set(arguments)})
