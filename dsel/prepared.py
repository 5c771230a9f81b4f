"""The problem made ready to be searched, in the representation that was chosen for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.data.source import Source
from dsel.objective.quadratic import QuadraticObjective
from dsel.representation import Representation
from dsel.settings import Settings
from dsel.stats.artefact import ArtefactStore
from dsel.stats.column_pass import ColumnFactor, ColumnStatistics, column_statistics, on_demand_objective
from dsel.stats.columnwise import ColumnBlocks
from dsel.stats.gram import gram
from dsel.stats.residual import Fit, refit
from dsel.stats.statistics import ColumnScales, Statistics
from dsel.stats.tiles import Tiling

log = logging.getLogger("dsel")


@dataclass
class Prepared:
    """Statistics of the columns; `objective` over all n columns for a penalty lam; `fit`: f of some columns from the
    data, for a penalty."""

    statistics: ColumnScales
    objective: Callable[[float], QuadraticObjective]
    fit: Callable[[NDArray[np.int64], float], Fit]
    counts: dict[str, Any] = field(default_factory=dict)


def of_gram(
    source: Source, settings: Settings, statistics: Statistics, compute: Callable[[Any], Any] | None
) -> Prepared:
    """From a Gram matrix that is there."""

    def fit(S: NDArray[np.int64], lam: float) -> Fit:
        return refit(
            source, S, statistics.scaling(settings.preprocess), lam,
            usable=~statistics.unusable(settings.preprocess), compute=compute,
            fill=statistics.mean_x if settings.missing == "mean" else None,
        )  # fmt: skip

    return Prepared(statistics, lambda lam: statistics.objective(settings.preprocess, lam), fit)


def saved_or_made(
    source: Source, settings: Settings, artefacts: ArtefactStore | None, kind: str, make: Callable[[], tuple[Any, int]]
) -> tuple[Any, int]:
    """Statistics of a kind and the passes they took: 0 when they were saved before for the same data and options."""
    key = None
    if artefacts is not None and source.fingerprint is not None:
        key = ArtefactStore.key(source.fingerprint, kind=kind, missing=settings.missing)
        saved = artefacts.load(key)
        if saved is not None:
            log.info("statistics of %s are saved in %s: the data are not read", source.name, artefacts.path(key))
            return saved, 0
    made, passes = make()
    if key is not None and artefacts is not None:
        artefacts.save(key, made)
    return made, passes


def gram_statistics(
    source: Source, settings: Settings, artefacts: ArtefactStore | None, compute: Callable[[Any], Any] | None,
    tiling: Tiling | None = None,
) -> tuple[Statistics, int]:  # fmt: skip
    """Statistics with the Gram matrix, and the passes they took."""

    def make() -> tuple[Statistics, int]:
        return gram(source, missing=settings.missing, compute=compute, tiling=tiling)

    return saved_or_made(source, settings, artefacts, "gram", make)


def in_shards(
    source: Source, settings: Settings, chosen: Representation, leading_rows: int, artefacts: ArtefactStore | None,
    compute: Callable[[Any], Any] | None, persist: Callable[[list[Any]], list[Any]] | None,
) -> Prepared:  # fmt: skip
    """X in column shards, which the workers keep where the representation says so."""
    blocks = ColumnBlocks(source, compute, persist if chosen.in_memory else None)

    def make() -> tuple[ColumnStatistics, int]:
        return column_statistics(blocks, settings.missing), blocks.reads

    statistics: ColumnStatistics
    statistics, _ = saved_or_made(source, settings, artefacts, "columns", make)
    factor = ColumnFactor(blocks, statistics, settings.preprocess, settings.missing)

    def fit(S: NDArray[np.int64], lam: float) -> Fit:
        usable = ~statistics.unusable(settings.preprocess)
        if not source.n_targets:
            return factor.refit(S, lam, usable)
        return refit(
            source, S, statistics.scaling(settings.preprocess), lam, usable=usable, compute=compute,
            fill=statistics.mean_x if settings.missing == "mean" else None,
        )  # fmt: skip

    return Prepared(
        statistics, lambda lam: on_demand_objective(factor, statistics, settings.preprocess, lam, leading_rows), fit,
        {"representation": "shards"},
    )  # fmt: skip
