"""The passes of a selection before they are made: how many, and the bytes, tasks and flops of each kind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.config.request import Checked
from dsel.data.dataset import Dataset
from dsel.passes.cache import StatisticsCache
from dsel.passes.column_blocks import by_rows, groups_of_columns, tasks_of_columns
from dsel.passes.folds import fold_keys
from dsel.passes.gram import columns_of_read, partial_bytes, without_targets
from dsel.passes.leave_one_out.rows import would_cache
from dsel.passes.reduce_blocks import tasks_of_pass
from dsel.passes.tiles import Tiling
from dsel.planning.prepared import reduction_key
from dsel.planning.representation import Representation

#: Bytes that a manifest and the headers of saved arrays take.
_HEADERS = 4096


@dataclass(frozen=True)
class Stage:
    """Passes of one kind: how many, the bytes they read, the tasks of their graphs, multiplications and additions."""

    name: str
    passes: int
    bytes_read: int
    tasks: int
    flops: int


def on_gram(chosen: Representation) -> bool:
    """Whether the n x n Gram matrix is made."""
    return chosen.name in ("gram", "tiles")


def reads_chosen_chunks(dataset: Dataset) -> bool:
    """Whether the last pass reads the column chunks of the chosen columns alone: which they are is not known before."""
    return dataset.store is not None and bool(dataset.n_targets) and len(dataset.store.column_bounds) > 2


@dataclass(frozen=True)
class Saved:
    """What is saved already, and needs no pass: statistics, the eigendecomposition; and the bytes of what will be."""

    statistics: bool = False
    reduction: bool = False
    disk_bytes: int = 0

    @classmethod
    def find(
        cls, dataset: Dataset, checked: Checked, chosen: Representation, artefacts: StatisticsCache | None
    ) -> Saved:
        """Look for them."""
        if artefacts is None or dataset.fingerprint is None:
            return cls()
        settings, scored = checked.settings, checked.requirements.cross_validation
        if scored is not None and scored.folds:
            key, keys = fold_keys(dataset.fingerprint, settings.missing, scored.folds, scored.repeats, settings.seed)
            one = 8 * dataset.n * (5 + dataset.n_targets + dataset.n) + _HEADERS
            there = all(map(artefacts.has, (key, *keys.values())))
            return cls(there, disk_bytes=0 if there else (1 + len(keys)) * one)
        kind = "gram" if on_gram(chosen) else "columns"
        statistics = artefacts.has(
            StatisticsCache.key(dataset.fingerprint, kind=kind, missing=checked.settings.missing)
        )
        reduced = chosen.name in ("rows", "sketch")
        reduction = reduced and artefacts.has(reduction_key(dataset, checked.settings, chosen))
        numbers = dataset.n * (5 + dataset.n_targets + (dataset.n if on_gram(chosen) else 0))
        disk = 0 if statistics else 8 * numbers + _HEADERS
        disk += 8 * chosen.rank * (dataset.m + dataset.n) + _HEADERS if reduced and not reduction else 0
        return cls(statistics, reduction, disk)


def stages_of(
    dataset: Dataset, checked: Checked, chosen: Representation, tiling: Tiling | None, saved: Saved,
    state: dict[str, Any] | None, held_out: Dataset | None, every: int | None,
) -> Iterator[Stage]:  # fmt: skip
    """In their order, those that are still to be made. tiling: of the Gram matrix, if it is made by tiles; state: of an
    interrupted search; held_out: rows to test on; every: rounds between rewrites of a cache on disk, None without."""
    if not on_gram(chosen):
        yield from _columns(dataset, checked, chosen, saved)
    else:
        if not saved.statistics:
            yield from _statistics(dataset, checked, tiling)
        yield from _rounds(dataset, checked, state, every)
    if held_out is not None and _steps(dataset, checked):
        yield _held_out(held_out, checked)
    if on_gram(chosen) or dataset.n_targets:
        yield _check(dataset, checked)


def _pass(
    name: str, dataset: Dataset, partial: int, flops: int, columns: NDArray[np.int64] | None = None, share: bool = False
) -> Stage:
    return Stage(name, 1, dataset.bytes_of_pass(columns), tasks_of_pass(dataset, partial, share), flops)


def _together(name: str, passes: Sequence[Stage]) -> Stage:
    """Passes of one kind as one stage."""
    return Stage(
        name,
        sum(p.passes for p in passes),
        sum(p.bytes_read for p in passes),
        sum(p.tasks for p in passes),
        sum(p.flops for p in passes),
    )


def _statistics(dataset: Dataset, checked: Checked, tiling: Tiling | None) -> Iterator[Stage]:
    """The means that stand for missing values, and the Gram matrices."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    if checked.settings.missing == "mean":
        yield _pass("means", without_targets(dataset), 16 * n, m * n)
    flops = m * n * (n + 2 * N)
    if tiling is None:
        sums, scored = checked.requirements.gram_sums, checked.requirements.cross_validation
        repeats = 1 if scored is None else scored.repeats
        yield _pass("folds" if sums > 1 else "Gram matrix", dataset, sums * partial_bytes(dataset), repeats * flops)
        return
    passes = [
        _pass(
            "", dataset if i == 0 else without_targets(dataset), sum(strip.nbytes for strip in read),
            2 * m * sum(strip.nbytes // 8 for strip in read), columns_of_read(dataset, read),
        )
        for i, read in enumerate(tiling.reads)
    ]  # fmt: skip
    yield _together("Gram matrix by tiles", passes)


def _columns(dataset: Dataset, checked: Checked, chosen: Representation, saved: Saved) -> Iterator[Stage]:
    """Passes over column blocks. Where workers keep them, the stored data are read by the first alone."""
    cells, unread = groups_of_columns(dataset), True
    groups, of_rows = len(cells), by_rows(cells)

    def passes(name: str, count: int, flops: int, *, targets: bool = False, sums: str = "rows") -> Stage:
        """sums: over what a pass sums ("rows": over those alone, "columns", or "" where it stacks both)."""
        nonlocal unread
        reads = int(unread and count > 0) if chosen.in_memory else count
        additive = sums == ("rows" if of_rows else "columns")
        tasks = 0 if dataset.in_memory else count * tasks_of_columns(groups, additive)
        tasks += groups if chosen.in_memory and reads else 0
        unread = unread and not count
        return Stage(name, reads, reads * dataset.x_bytes + dataset.y_bytes * (count if targets else 0), tasks, flops)

    m, n, k = dataset.m, dataset.n, checked.settings.k
    if not saved.statistics:
        if checked.settings.missing == "mean":
            yield passes("means", 1, m * n)
        yield passes("columns", 1, 2 * m * n * (2 + dataset.n_targets), targets=True)
    if chosen.name == "shards":
        if not dataset.n_targets:
            both = (passes("", 1, m * m * n, sums="columns"), passes("", 1, 2 * m * m * n))
            yield _together("row Gram matrix", both)
        if chosen.bound_rows:
            yield passes("rows for bounds", 1, 0, sums="")
        rows = math.ceil(k / chosen.rows_a_pass)
        yield passes("Gram rows", rows, 2 * m * n * rows * chosen.rows_a_pass)
    elif not saved.reduction:
        others = chosen.passes - 2  # without the norms and the check
        right = 1 if chosen.name == "rows" else (others + 1) // 2
        halves = (passes("", right, chosen.flops, sums="columns"), passes("", others - right, 0))
        yield _together("eigendecomposition", halves)
    if not dataset.n_targets:
        last = passes("check", 1, 2 * m * n * k)
        blocks = 1 if dataset.store is None else len(dataset.store.column_bounds) - 1
        fetched = dataset.x_bytes * min(k, blocks) // blocks  # the chosen columns come first
        yield replace(last, bytes_read=last.bytes_read + fetched)


def _steps(dataset: Dataset, checked: Checked) -> int:
    """Rounds that the method makes at least: columns to insert, or to take away."""
    base, scored = checked.include.size, checked.requirements.cross_validation
    if scored is None or checked.settings.k == base:
        return 0
    if scored.direction == "backward":
        return max(0, dataset.n - checked.exclude.size - checked.settings.k)
    return min(checked.settings.k, dataset.n - checked.exclude.size) - base


def _rounds(dataset: Dataset, checked: Checked, state: dict[str, Any] | None, every: int | None) -> Iterator[Stage]:
    """Passes of methods that value subsets on the rows of the data."""
    scored, steps = checked.requirements.cross_validation, _steps(dataset, checked)
    if scored is None or scored.folds or not steps:
        return
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    if scored.penalties and state is None:
        lams = scored.penalties
        yield _pass("lam", dataset, 8 * lams, 2 * m * n * (n + lams * N), share=True)
    direction = scored.direction
    if direction == "forward" and would_cache(dataset):
        return
    done = 0 if state is None else len(state["path"])
    first = n - checked.exclude.size if direction == "backward" else checked.include.size
    passes = []
    for step in range(done, steps):
        size = first - step if direction == "backward" else first + step
        one = _pass("", dataset, 8 * (1 + n + size), m * n * (2 * size + 8 * N), share=True)
        if every is not None and step > every:  # of the cache, which may be lost
            recomputed = m * n * (2 * (step % every) + 8 * N)
            one = replace(one, passes=0, bytes_read=8 * m * (n + N + 1), flops=recomputed)
        passes.append(one)
    yield _together("rounds of leave-one-out", passes)


def _held_out(held_out: Dataset, checked: Checked) -> Stage:
    """One pass over other rows, all columns of them at most."""
    k = checked.settings.k
    flops = 2 * held_out.m * k * k * max(1, held_out.n_targets)
    return _pass("held-out rows", held_out, 8 * (k + 1), flops, share=True)


def _check(dataset: Dataset, checked: Checked) -> Stage:
    """The final pass on the chosen columns: of chunked columns the widest chunks that k columns can touch."""
    k, N = checked.settings.k, dataset.n_targets or dataset.n
    columns = None
    if dataset.store is not None and dataset.n_targets:
        widths = np.diff(dataset.store.column_bounds)
        widest = np.sort(np.argsort(-widths, kind="stable")[:k])
        columns = np.asarray(dataset.store.column_bounds)[:-1][widest]
    return _pass("check", dataset, 8 * k * (k + N), 2 * dataset.m * k * (k + 2 * N), columns)
