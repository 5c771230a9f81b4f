"""What the rounds take of methods that score subsets on left-out rows: their number, passes, cache and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsel.data.dataset import Dataset
from dsel.errors import OptionError
from dsel.objective.on_demand import FEW_COLUMNS
from dsel.passes.columns.column_factor import product_pass
from dsel.passes.cross_validation.column_rows import penalty_cost
from dsel.passes.cross_validation.column_rows import round_costs as costs_on_columns
from dsel.passes.cross_validation.disk_cache import cache_file_bytes, cache_width, rounds_between_rewrites
from dsel.passes.cross_validation.rows import loo_pass, penalty_pass, would_cache
from dsel.passes.data_pass import PassCost
from dsel.planning.representations import memory
from dsel.planning.representations.column_blocks import InColumnBlocks
from dsel.planning.representations.representation import Representation
from dsel.planning.validation import ValidatedRequest


def number_of_rounds(validated: ValidatedRequest) -> int:
    """Return how many rounds the method makes, at least: columns to insert, or to remove."""
    cv, included, k = validated.requirements.cross_validation, validated.include.size, validated.request.limit
    if cv is None or k == included:
        return 0
    free = validated.dataset.n - validated.exclude.size
    return max(0, free - k) if cv.direction == "backward" else min(k, free) - included


def rounds_are_known(validated: ValidatedRequest) -> bool:
    """Return whether the number of rounds does not depend on the data."""
    cv = validated.requirements.cross_validation
    return cv is None or cv.direction == "forward"


def round_costs(
    validated: ValidatedRequest, state: dict[str, Any] | None, rewrite_every: int | None, chosen: Representation
) -> Iterator[PassCost]:
    """Yield the costs of the passes of all rounds. Cross-validation by folds takes none with their Gram matrices.

    state: of an interrupted search. rewrite_every: rounds between rewrites of a cache on disk, None without one.
    """
    cv, rounds, dataset = validated.requirements.cross_validation, number_of_rounds(validated), validated.dataset
    if isinstance(chosen, InColumnBlocks) and cv is not None:
        yield from _costs_on_columns(validated, state, rewrite_every, chosen)
        return
    if cv is None or cv.folds or not rounds:
        return
    if cv.penalties and state is None:
        yield penalty_pass(dataset, cv.penalties).cost()
    if cv.direction == "forward" and would_cache(dataset):
        return
    backward = cv.direction == "backward"
    first = dataset.n - validated.exclude.size if backward else validated.include.size
    costs = []
    for step in range(0 if state is None else len(state["path"]), rounds):
        cost = loo_pass(dataset, first - step if backward else first + step).cost()
        if rewrite_every is not None and step > rewrite_every:  # it reads the cache on disk
            m, n, N, since = dataset.m, dataset.n, dataset.n_targets, step % rewrite_every
            cost = replace(cost, passes=0, bytes_read=8 * m * (n + N + 1), flops=m * n * (2 * since + 8 * N))
        costs.append(cost)
    yield PassCost.total("rounds of leave-one-out", costs)


def _costs_on_columns(
    validated: ValidatedRequest, state: dict[str, Any] | None, rewrite_every: int | None, chosen: InColumnBlocks
) -> Iterator[PassCost]:
    """Yield the costs of rounds on blocks of columns."""
    dataset = validated.dataset
    blocks, rows_per_pass = chosen.blocks(dataset), chosen.shape.rows_per_pass
    cv, done = validated.requirements.cross_validation, 0 if state is None else len(state["path"])
    assert cv is not None
    included, rounds = validated.include.size, number_of_rounds(validated)
    if included and dataset.n > FEW_COLUMNS:  # the objective needs their rows, too
        batches = math.ceil(included / rows_per_pass)
        yield PassCost.total("included columns", [product_pass(blocks, rows_per_pass).cost()] * batches)
    if cv.penalties and state is None:
        yield penalty_cost(blocks)
    steps = list(range(done, rounds))
    cached = {}
    if rewrite_every is not None:
        cached = {i: step % rewrite_every for i, step in enumerate(steps) if step > rewrite_every}
    memory = cv.direction == "forward" and not cv.folds and would_cache(dataset)
    if cv.penalties or not memory:
        yield PassCost("targets", bytes_read=dataset.y_bytes)
    costs = costs_on_columns(
        blocks, [included + step for step in steps], included + done, validated.partition, memory, cached
    )
    yield PassCost.total("rounds on blocks of columns", costs)


def rewrite_interval(
    validated: ValidatedRequest, scratch: Path | None, isolated_cluster: str, chosen: Representation
) -> tuple[int | None, int]:
    """Return the rounds between rewrites of a cache of rows on disk and its bytes; (None, 0) if there is none.

    scratch: a folder for it. isolated_cluster: the kind of a cluster whose workers share no folder with this process.

    Errors: CapacityError where it does not fit the disk; OptionError where the workers would not see it.
    """
    cv, dataset = validated.requirements.cross_validation, validated.dataset
    if cv is None or cv.folds:
        return None, 0
    asked = cv.rewrite_every
    if dataset.weighted and asked != "never":
        return None, 0
    if isinstance(asked, int) and isolated_cluster:
        raise OptionError(
            f"rewrite_every: the workers ({isolated_cluster}) share no folder with this run for the cache.",
            "Leave it out (then nothing is cached), or use slurm with out on a file system that all nodes share.",
        )
    if asked == "auto" and isinstance(chosen, InColumnBlocks) and chosen.keeps_blocks:
        return None, 0  # rounds read nothing
    columns = chunk_columns(chosen, dataset)
    nbytes = cache_file_bytes(dataset, cache_width(dataset, cv.loss, columns), columns)
    every = rounds_between_rewrites(
        asked, dataset, validated.include.size, validated.request.limit, scratch, nbytes=nbytes, direction=cv.direction
    )
    return every, 0 if every is None else nbytes


def chunk_columns(chosen: Representation, dataset: Dataset) -> int | None:
    """Return the columns of a chunk of the cache, where rounds read blocks of columns; else None."""
    return chosen.blocks(dataset).edges[1] if isinstance(chosen, InColumnBlocks) else None


def round_worker_bytes(validated: ValidatedRequest, chosen: Representation) -> int:
    """Return the memory limit that a worker needs for a round on rows; 0 without rounds."""
    dataset = validated.dataset
    if validated.requirements.cross_validation is None or isinstance(chosen, InColumnBlocks):
        return 0
    arrays = 3 * 8 * dataset.n * (validated.request.limit + dataset.n_targets)
    block = dataset.nbytes // max(len(dataset.blocks), 1)
    return chosen.worker_limit(memory.COMPILED + arrays + 3 * block)
