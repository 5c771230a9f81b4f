"""Rounds of passes over the rows, for methods that score subsets on left-out rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsel.data.dataset import Dataset
from dsel.errors import OptionError
from dsel.passes.base import PassCost
from dsel.passes.cross_validation.disk_cache import bytes_on_disk, rounds_between_rewrites
from dsel.passes.cross_validation.held_out import held_out_pass
from dsel.passes.cross_validation.rows import loo_pass, penalty_pass, would_cache
from dsel.planning.representations.base import INTERPRETER, TASK_SHARE
from dsel.planning.validation import ValidatedRequest

#: Bytes of a worker's memory for compiled code (numba; measured 50 MiB).
COMPILED = 64 << 20


def number_of_rounds(dataset: Dataset, validated: ValidatedRequest) -> int:
    """Return how many rounds the method makes, at least: columns to insert, or to remove."""
    cv, included, k = validated.requirements.cross_validation, validated.include.size, validated.request.limit
    if cv is None or k == included:
        return 0
    free = dataset.n - validated.exclude.size
    return max(0, free - k) if cv.direction == "backward" else min(k, free) - included


def rounds_are_known(validated: ValidatedRequest) -> bool:
    """Return whether the number of rounds does not depend on the data."""
    cv = validated.requirements.cross_validation
    return cv is None or cv.direction == "forward"


def round_costs(
    dataset: Dataset, validated: ValidatedRequest, state: dict[str, Any] | None, rewrite_every: int | None
) -> Iterator[PassCost]:
    """Yield the costs of the passes of all rounds. Cross-validation by folds takes none.

    state: of an interrupted search. rewrite_every: rounds between rewrites of a cache on disk, None without one.
    """
    cv, rounds = validated.requirements.cross_validation, number_of_rounds(dataset, validated)
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
        if rewrite_every is not None and step > rewrite_every:
            cost = _cached(cost, dataset, step % rewrite_every)
        costs.append(cost)
    yield PassCost.total("rounds of leave-one-out", costs)


def _cached(cost: PassCost, dataset: Dataset, since: int) -> PassCost:
    """Return the cost of a round that reads the cache on disk, `since` rounds after it was rewritten."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    return replace(cost, passes=0, bytes_read=8 * m * (n + N + 1), flops=m * n * (2 * since + 8 * N))


def held_out_cost(held_out: Dataset, validated: ValidatedRequest) -> PassCost:
    """Return the cost of the pass over held-out rows, if it reads all of their columns."""
    k = validated.request.limit
    return held_out_pass(held_out, k + 1, k).cost()


def rewrite_interval(
    dataset: Dataset, validated: ValidatedRequest, scratch: Path | None, isolated_cluster: str
) -> tuple[int | None, int]:
    """Return the rounds between rewrites of a cache of rows on disk and its bytes; (None, 0) if there is none.

    scratch: a folder for it. isolated_cluster: the kind of a cluster whose workers share no folder with this process.

    Errors: CapacityError where it does not fit the disk; OptionError where the workers would not see it.
    """
    cv = validated.requirements.cross_validation
    if cv is None or cv.folds:
        return None, 0
    asked = cv.rewrite_every
    if dataset.weighted and asked != "never":
        return None, 0
    if isinstance(asked, int) and isolated_cluster:
        raise OptionError(
            f"fold_every: the workers ({isolated_cluster}) share no folder with this run for the cache.",
            "Leave it out (then nothing is cached), or use slurm with out on a file system that all nodes share.",
        )
    every = rounds_between_rewrites(
        asked, dataset, validated.include.size, validated.request.limit, scratch, loss=cv.loss, direction=cv.direction
    )
    return every, 0 if every is None else bytes_on_disk(dataset, cv.loss)


def round_worker_bytes(dataset: Dataset, validated: ValidatedRequest) -> int:
    """Return the memory limit that a worker needs for a round; 0 without rounds."""
    if validated.requirements.cross_validation is None:
        return 0
    arrays = 3 * 8 * dataset.n * (validated.request.limit + dataset.n_targets)
    block = dataset.nbytes // max(len(dataset.blocks), 1)
    return math.ceil((INTERPRETER + COMPILED + arrays + 3 * block) / TASK_SHARE)
