"""`dsel.select`: the whole job in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsel.config.request import Column, Settings, check
from dsel.data.dataset import Dataset, as_dataset
from dsel.data.labels import column_list
from dsel.engine.clusters.connect import active_client
from dsel.engine.clusters.local import worker_memory as memory_of_worker
from dsel.engine.dask import DaskEngine
from dsel.engine.threads import THREADS
from dsel.passes.gram import Missing
from dsel.passes.statistics import Preprocess
from dsel.planning.calibration import calibrated
from dsel.planning.plan import Plan, available_resources
from dsel.search.registry import METHODS
from dsel.selection.context import RunContext
from dsel.selection.left_out_rows import held_out_rows
from dsel.selection.pipeline import plan_selection, run_selection
from dsel.selection.result import Selection

_SETTINGS = ("method", "lam", "preprocess", "missing", "seed", "criterion")


def select(
    X: Any,
    Y: Any = None,
    *,
    k: int,
    method: str = "poss",
    lam: float = 0.0,
    preprocess: Preprocess = "standardize",
    include: Sequence[Column] = (),
    exclude: Sequence[Column] = (),
    seed: int = 0,
    missing: Missing = "refuse",
    targets: Sequence[Column] | None = None,
    unsupervised: bool = False,
    sample_weight: Any = None,
    criterion: Callable[..., float] | None = None,
    **options: Any,
) -> Selection:
    """Choose at most k columns of X (m samples x n features) that say the most about Y (m x N, or m).

    X, Y: numpy, scipy sparse, pandas, Dask or xarray; or X alone a store's path or a Dataset, which bring their own Y
    where they have one. Without any Y, Y = X: column subset selection (`unsupervised=True` asks for that in any case).
    method: poss (also POCSS, where Y = X), pposs, pposs-asy (on workers), forward, omp, foba, backward, rfe, exchange,
    greedy-rls, kfold, branch-and-bound, astar, two-stage, approx-svd; its own `options` are in dsel.search.options.
    lam: ridge penalty on the preprocessed data. preprocess: standardize (mean 0, variance 1), center, unit (norm 1, not
    centred), none.
    include, exclude: columns always or never chosen, by label (a string) or by position: an integer counts columns from
    0, also where a DataFrame's own labels are integers. missing: refuse NaN in X (masked values count
    as NaN), or put the column's mean in their place. targets: some of Y's columns, likewise; they stay in Y's order.
    sample_weight: (m,) numbers >= 0, by which every sum over rows is weighted (dsel.data.weights); for a store or a
    Dataset the name of a variable (by default `weight`, where there is one), or False for none.
    criterion: a function f(S) of the ascending columns chosen, or f(S, data) where it has a second parameter
    (dsel.data.criterion_data.ColumnData: data.columns(S), data.Y), to be minimised in place of the squared error
    (poss, pposs,
    pposs-asy; called once for every subset met). Of the columns it chooses, those that depend on the others have
    coefficient 0.

    The active Dask client does the passes over stores and Dask arrays; without one, threads of this process do. Arrays
    in memory are worked on where they are. Cost: one pass over the data of m n (n + N) multiplications, the search, and
    one more pass on the chosen columns (all columns where Y = X).

    Errors (dsel.errors): OptionError and MissingInputError before the first pass; CapacityError where the plan does not
    fit, or the search's tables do not; DataError for values that cannot be used, with the block they are in;
    CriterionError with the subset and the traceback; ClusterError; MissingExtraError, AccessError and StorageError for
    data in object storage.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> select(X, X[:, 3] - 2 * X[:, 7], k=2).indices
    (7, 3)
    """
    dataset, settings = _asked(
        X, Y, k=k, method=method, lam=lam, preprocess=preprocess, missing=missing, include=include, exclude=exclude,
        seed=seed, criterion=criterion, targets=targets, unsupervised=unsupervised, sample_weight=sample_weight,
        **options,
    )  # fmt: skip
    on_workers = getattr(METHODS.get(str(method)), "on_workers", False)
    client = None if dataset.in_memory and not on_workers else active_client()
    return run_selection(dataset, settings, RunContext(THREADS if client is None else DaskEngine(client)))


def plan(
    X: Any, Y: Any = None, *, workers: int | None = None, worker_memory: str | int | None = None,
    calibrate: bool = True, **asked: Any,
) -> Plan:  # fmt: skip
    """What `select(X, Y, **asked)` will take, before anything of it runs: print it, or look at its fields.

    workers, worker_memory (bytes, or "1GiB"): of the cluster that it will run on; by default those of the active Dask
    client, or one worker without a limit. calibrate: estimate the time of the passes, which takes a second or two.
    Passes, bytes and tasks are those that will be counted. A plan that does not fit says so in `lacks` and `remedy`.

    Errors: those of `select` that show before the first pass, but CapacityError.
    """
    dataset, settings = _asked(X, Y, **asked)
    checked = check(dataset, settings)
    client = None if dataset.in_memory else active_client()
    engine = THREADS if client is None else DaskEngine(client)
    limit = engine.worker_memory if worker_memory is None else memory_of_worker(workers, worker_memory)
    available = available_resources(workers or engine.workers, limit, engine.keeps_values or workers is not None)
    made = plan_selection(dataset, checked, RunContext(), held_out_rows(dataset, checked), available=available)
    return calibrated(made, dataset) if calibrate else made


def _asked(
    X: Any, Y: Any, *, k: int, targets: Any = None, unsupervised: bool = False, sample_weight: Any = None,
    include: Any = (), exclude: Any = (), **asked: Any,
) -> tuple[Dataset, Settings]:  # fmt: skip
    """The data and the settings of a call."""
    dataset = as_dataset(X, Y, targets=targets, unsupervised=unsupervised, sample_weight=sample_weight)
    known = {name: asked.pop(name) for name in _SETTINGS if name in asked}
    settings = Settings(
        k=k, include=column_list(include, "include"), exclude=column_list(exclude, "exclude"), options=asked, **known
    )
    return dataset, settings
