"""What `sums` and `check_part` do when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsel.data.dataset import as_dataset
from dsel.engine.connect import engine_for
from dsel.passes.noise import Noise
from dsel.passes.statistics_cache import StatisticsCache
from dsel.passes.sums import Sums, noisy_sums_of, sums_of
from dsel.selection.result import Selection
from dsel.selection.results.check_part import PartShare, part_share


def sums_of_rows(X: Any, Y: Any, noise: Mapping[str, Any] | None, *, sample_weight: Any, **columns: Any) -> Sums:
    """Return the sums of some rows. See `dsel.sums`."""
    dataset = as_dataset(X, Y, sample_weight=sample_weight, **columns)
    dtype = str(sample_weight.dtype) if hasattr(sample_weight, "dtype") else None
    cache = None
    if dataset.store is not None:
        saved = dataset.store.path.with_name(f"{dataset.store.path.name}.artefacts")
        cache = StatisticsCache(saved) if saved.exists() else None
    with engine_for(dataset) as engine:
        if noise is not None:
            return noisy_sums_of(dataset, Noise.of(noise, dataset), engine)
        return sums_of(dataset, weight_dtype=dtype, engine=engine, cache=cache)


def part_of_check(selection: Selection, X: Any, Y: Any, sample_weight: Any) -> PartShare:
    """Return the share of some rows in a check. See `dsel.check_part`."""
    dataset = as_dataset(X, Y, sample_weight=sample_weight)
    with engine_for(dataset) as engine:
        return part_share(selection, dataset, engine)
