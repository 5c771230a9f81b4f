"""`dsel.select`, `dsel.plan`, `dsel.stability` and `dsel.eigh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dsel._lib.events import Event
    from dsel.config.ingest_request import Dates
    from dsel.config.request import Categories, Column, Missing, NearCopies, Polish, Preprocess, SketchRule
    from dsel.config.size_rule import SizeCriterion, SizeRule
    from dsel.planning.eigh import Eigendecomposition, EighMethod
    from dsel.planning.plan import Plan
    from dsel.selection.result import Selection
    from dsel.selection.stability.result import Stability
    from dsel.selection.stability.run import Resample


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
        names a column where whole numbers name all columns of the frame. Text and categories are classes: one column of
        0 and 1 for two, a column each for more. Next to a store they are values for all of its rows, which replace its
        own targets (`targets` names some of its own). Without any targets, columns are selected for X itself (Y = X:
        column subset selection).
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
        Columns that are always or never chosen. A string is a label. An integer is a position from 0 among the columns
        of X, without the targets, weights and offset that a frame holds. It is a label where whole numbers name all
        columns of a DataFrame or xarray array. A category stands for all columns that it becomes.
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
        Dates and durations of a frame, also as targets, are refused, or become numbers: days, of dates since the
        beginning of 1970.
    near_copies : {"first", "keep", "refuse"}
        Of columns that correlate by at least 1 - 1e-6, search with the first one only, and list the others among its
        substitutes; with all of them; or refuse them. In wide data, whose Gram matrix is not in memory, a read of the
        columns decides. If columns are not centered either, near-copies are multiples of each other. Groups stay whole,
        and custom criteria see all columns.
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
        where there is one, or False for no weights. For a frame, the name of a column, also a whole number where whole
        numbers name all columns.
    rows : dict, optional
        Some consecutive rows of a store: ``{"last": 90}`` for the last 90 appends, ``{"last": 0.2}`` for the
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
        then no feature. A whole number is a label where whole numbers name all columns. Labelled values are matched
        with the rows as Y is. It needs a loss other than the squared error.
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
    from dsel.api.run_select import asked, select_from

    dataset, request = asked(
        X, Y, k=k, max_k=max_k, choose_k=choose_k, method=method, lam=lam, preprocess=preprocess, include=include,
        exclude=exclude, groups=groups, categories=categories, dates=dates,
        near_copies=near_copies, polish=polish, seed=seed, missing=missing, targets=targets, unsupervised=unsupervised,
        sample_weight=sample_weight, rows=rows, criterion=criterion, reduce=reduce, loss=loss, offset=offset,
        class_weight=class_weight, **options,
    )  # fmt: skip
    return select_from(dataset, request, progress=progress, on_event=on_event)


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
    from dsel.api.run_select import planned

    return planned(X, Y, workers, worker_memory, calibrate, **arguments)


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
        The data, as for `select`, also targets in memory next to a store.
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
        The group of each row. All rows of a group are in one part. A store names a variable over its samples. Labelled
        values are matched with the rows as Y is.
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
    from dsel.api.run_select import on_subsamples

    return on_subsamples(
        X, Y, {"k": k, "method": method, **arguments}, resample=resample, samples=samples, parts=parts, split=split,
        row_groups=row_groups,
    )  # fmt: skip


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
    from dsel.api.run_select import decomposed

    return decomposed(
        X, method, rank=rank, accuracy=accuracy, oversampling=oversampling, power_iterations=power_iterations,
        preprocess=preprocess, missing=missing, seed=seed, sample_weight=sample_weight,
    )  # fmt: skip
