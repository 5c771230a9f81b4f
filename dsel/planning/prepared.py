"""The problem made ready to be searched, in the representation that was chosen for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.config.request import Settings
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.objective.base import Objective
from dsel.objective.on_demand import InMemoryFactor, OnDemandObjective
from dsel.passes.cache import StatisticsCache
from dsel.passes.column_blocks import ColumnBlocks
from dsel.passes.column_factor import ColumnFactor
from dsel.passes.column_statistics import ColumnStatistics, column_statistics, target_gram
from dsel.passes.eigendecomposition import Eigen, exact_eigendecomposition, randomized_eigendecomposition
from dsel.passes.gram import gram_statistics
from dsel.passes.refit import Fit, refit
from dsel.passes.statistics import ColumnScales, Preprocess, Scaling, Statistics
from dsel.passes.tiles import Tiling
from dsel.planning.representation import POWERS, SKETCH_ROWS, Representation

log = logging.getLogger("dsel")


@dataclass
class Prepared:
    """Statistics of the columns; `objective` over all n columns for a penalty lam; `fit`: f of some columns from the
    data, for a penalty."""

    statistics: ColumnScales
    objective: Callable[[float], Objective]
    fit: Callable[[NDArray[np.int64], float], Fit]
    counts: dict[str, Any] = field(default_factory=dict)


def of_gram(dataset: Dataset, settings: Settings, statistics: Statistics, engine: Engine) -> Prepared:
    """From a Gram matrix that is there."""

    def fit(S: NDArray[np.int64], lam: float) -> Fit:
        return refit(
            dataset, S, statistics.scaling(settings.preprocess), lam,
            usable=~statistics.unusable(settings.preprocess), engine=engine,
            fill=statistics.mean_x if settings.missing == "mean" else None,
        )  # fmt: skip

    return Prepared(statistics, lambda lam: statistics.objective(settings.preprocess, lam), fit)


def saved_or_made(
    dataset: Dataset,
    settings: Settings,
    artefacts: StatisticsCache | None,
    kind: str,
    make: Callable[[], Any],
) -> Any:
    """Return statistics of a kind, from the cache if they were saved for the same data and options."""
    key = None
    if artefacts is not None and dataset.fingerprint is not None:
        key = StatisticsCache.key(dataset.fingerprint, kind=kind, missing=settings.missing)
        saved = artefacts.load(key)
        if saved is not None:
            log.info("statistics of %s are saved in %s: the data are not read", dataset.name, artefacts.path(key))
            return saved
    made = make()
    if key is not None and artefacts is not None:
        artefacts.save(key, made)
    return made


def cached_gram_statistics(
    dataset: Dataset, settings: Settings, artefacts: StatisticsCache | None, engine: Engine,
    tiling: Tiling | None = None,
) -> Statistics:  # fmt: skip
    """Return the statistics with the Gram matrix, from the cache if they are saved."""

    def make() -> Statistics:
        return gram_statistics(dataset, missing=settings.missing, engine=engine, tiling=tiling)

    found: Statistics = saved_or_made(dataset, settings, artefacts, "gram", make)
    return found


@dataclass
class Sharded(Prepared):
    """With the data as a factor Z of K."""

    factor: ColumnFactor = field(kw_only=True)


def in_shards(
    dataset: Dataset, settings: Settings, chosen: Representation, artefacts: StatisticsCache | None,
    engine: Engine,
) -> Sharded:  # fmt: skip
    """X in column shards, which the workers keep where the representation says so."""
    blocks = ColumnBlocks(dataset, keep=chosen.in_memory)

    def make() -> ColumnStatistics:
        return column_statistics(blocks, settings.missing, engine)

    statistics: ColumnStatistics
    statistics = saved_or_made(dataset, settings, artefacts, "columns", make)
    factor = ColumnFactor(blocks, statistics, settings.preprocess, settings.missing, engine)

    def fit(S: NDArray[np.int64], lam: float) -> Fit:
        usable = ~statistics.unusable(settings.preprocess)
        if not dataset.n_targets:
            return factor.refit(S, lam, usable)
        return refit(
            dataset, S, statistics.scaling(settings.preprocess), lam, usable=usable, engine=engine,
            fill=statistics.mean_x if settings.missing == "mean" else None,
        )  # fmt: skip

    def objective(lam: float) -> Objective:
        return on_demand_objective(
            factor, statistics, settings.preprocess, lam, chosen.bound_rows, chosen.rows_a_pass, chosen.kept_bytes
        )

    return Sharded(statistics, objective, fit, {"representation": "shards"}, factor=factor)


def reduced(
    dataset: Dataset, settings: Settings, chosen: Representation, artefacts: StatisticsCache | None,
    engine: Engine,
) -> Prepared:  # fmt: skip
    """Y = X by its eigen-reduced W: exact through the row Gram matrix, or of a chosen rank by a sketch."""
    ready = in_shards(dataset, settings, chosen, artefacts, engine)
    statistics, factor = ready.statistics, ready.factor
    held: list[Eigen] = []

    def objective(lam: float) -> Objective:
        if not held:
            held.append(_eigen(dataset, settings, chosen, artefacts, factor, squared_norm(statistics, settings)))
        eigen = held[0]
        squares = np.square(eigen.W)
        return OnDemandObjective(
            InMemoryFactor(eigen.W), squares.sum(axis=0), None, eigen.total, lam, target_operator=eigen.values,
            moment_diagonal=eigen.values @ squares, leading_rows=SKETCH_ROWS,
        )  # fmt: skip

    return Prepared(statistics, objective, ready.fit, {"representation": chosen.name, "rank": chosen.rank})


def squared_norm(statistics: ColumnScales, settings: Settings) -> float:
    """||Z||_F^2 of the preprocessed X."""
    scaling = statistics.scaling(settings.preprocess)
    raw = settings.preprocess in ("unit", "none")
    squares = statistics.squares + (statistics.weight * statistics.mean_x**2 if raw else 0.0)
    return float((squares / scaling.scale_x**2)[~statistics.unusable(settings.preprocess)].sum())


def reduction_key(dataset: Dataset, settings: Settings, chosen: Representation) -> dict[str, Any]:
    """What the saved eigendecomposition depends on."""
    options: dict[str, Any] = {"missing": settings.missing, "preprocess": settings.preprocess, "way": chosen.name}
    if chosen.name == "sketch":
        options |= {"rank": chosen.rank, "powers": POWERS, "seed": settings.seed}
    return StatisticsCache.key(dataset.fingerprint or "", kind="eigen", **options)


def _eigen(
    dataset: Dataset, settings: Settings, chosen: Representation, artefacts: StatisticsCache | None,
    factor: ColumnFactor, total: float,
) -> Eigen:  # fmt: skip
    key = None
    if artefacts is not None and dataset.fingerprint is not None:
        key = reduction_key(dataset, settings, chosen)
        saved: Eigen | None = artefacts.load(key)
        if saved is not None:
            log.info("the eigendecomposition of %s is saved in %s", dataset.name, artefacts.path(key))
            return saved
    if chosen.name == "rows":
        eigen = exact_eigendecomposition(factor)
    else:
        eigen = randomized_eigendecomposition(factor, total, chosen.rank, powers=POWERS, seed=settings.seed)
    if key is not None and artefacts is not None:
        artefacts.save(key, eigen)
    return eigen


def on_demand_objective(
    factor: ColumnFactor, statistics: ColumnStatistics, preprocess: Preprocess, lam: float, leading_rows: int,
    batch: int, row_bytes: int,
) -> OnDemandObjective:  # fmt: skip
    """The quadratic objective over all n columns, unusable ones included; where Y = X, two passes for M = Z'(Z Z')Z."""
    scaling: Scaling = statistics.scaling(preprocess)
    raw = preprocess in ("unit", "none")
    squared = statistics.squared + (statistics.weight * statistics.mean_x**2 if raw else 0.0)
    unusable = statistics.unusable(preprocess)
    diagonal = np.where(unusable, 0.0, squared / scaling.scale_x**2)
    if not statistics.unsupervised:
        B, c = statistics.targets(preprocess, statistics.B)
        return OnDemandObjective(
            factor, diagonal, B, c, lam, leading_rows=leading_rows, batch=batch, row_cache_bytes=row_bytes,
            load_target_gram=partial(target_gram, factor.dataset, statistics, preprocess),
        )  # fmt: skip
    if unusable.all():
        raise statistics.no_column_varies()
    G = factor.row_gram()
    return OnDemandObjective(
        factor, diagonal, None, float(diagonal.sum()), lam, target_operator=G,
        moment_diagonal=factor.quadratic_diagonal(G), leading_rows=leading_rows, batch=batch,
        row_cache_bytes=row_bytes,
    )  # fmt: skip
