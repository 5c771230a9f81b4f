"""Passes over blocks of columns, for wide data: each task takes the rows of its columns, from the store or from the
shards that the workers keep.

What a pass returns is joined in the order of the columns, and within a block of columns summed in the order of the
rows: which worker does what shows in no bit of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import compress, pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dsel._lib.blas import one_blas_thread
from dsel.data.dataset import Block, Dataset, StoredRows, load_block, load_weights
from dsel.data.store.array import StoredArray
from dsel.engine.base import Engine
from dsel.engine.threads import THREADS
from dsel.passes.accounting import note
from dsel.passes.reduce_blocks import FAN_IN

#: A task takes consecutive column chunks, one at a time: so many tasks a pass are enough for any cluster.
MOST_TASKS = 64
#: Columns of data in memory that a task takes.
_COLUMNS_IN_MEMORY = 4096


@dataclass(frozen=True)
class Arguments:
    """What a cell's function gets beside the numbers: of its columns, of its rows (square roots of their weights, None
    where all are 1), and of all."""

    columns: Any
    root: NDArray[np.float64] | None
    shared: Any


#: Called with a cell of X (rows of one row block, some columns), the targets of these rows, where it is, and the
#: arguments of its columns; returns a partial result.
PerCell = Callable[[Any, Any, "Cell", Arguments], Any]


@dataclass(frozen=True)
class Cell:
    """Rows [start, stop) and columns [left, right)."""

    start: int
    stop: int
    left: int
    right: int


@dataclass(frozen=True)
class StoredCell:
    """A cell of a stored array, read where it is needed."""

    array: StoredArray
    cell: Cell

    def read(self) -> NDArray[Any]:
        """The numbers, fresh and in C order."""
        c = self.cell
        return self.array.read_tile((c.start, c.stop), (c.left, c.right))


def load_cell(part: Any) -> Any:
    """The numbers of a cell: read now, or there already."""
    return part.read() if isinstance(part, StoredCell | Stack) else load_block(part)


def _load_group(parts: Sequence[Any]) -> list[Any]:
    """All cells of a group, to be kept."""
    return [load_cell(part) for part in parts]


def _work_through(
    cells: Sequence[Cell], parts: Sequence[Any], ys: Sequence[Any], per_cell: PerCell, merge: Any, argument: Any,
    sent: tuple[Any, Any], target_columns: Any, full_height: bool, total: Any = None,
) -> list[tuple[int, Any]]:  # fmt: skip
    """First column and partial result of each column block of one group, merged over the rows; with `total`, which
    sums a list of results, of all of them together."""
    found: list[tuple[int, Any]] = []
    if full_height:
        cells, parts, ys = _stacked(cells, parts)
    for cell, part, y in zip(cells, parts, ys, strict=True):
        x = load_cell(part)
        targets = None if y is None else load_block(y, target_columns)
        per_column = None if argument is None else argument[:, cell.left - cells[0].left : cell.right - cells[0].left]
        root = None if sent[0] is None else sent[0][cell.start : cell.stop]
        partial = per_cell(x, targets, cell, Arguments(per_column, root, sent[1]))
        del x
        _add(found, cell.left, partial, merge)
        if total is not None and len(found) == 3:  # the first is a sum, the second whole, the third begun
            found[:2] = [(found[0][0], total([found[0][1], found[1][1]]))]
    if total is not None and len(found) > 1:
        found = [(found[0][0], total([partial for _, partial in found]))]
    return found


def _stacked(cells: Sequence[Cell], parts: Sequence[Any]) -> tuple[list[Cell], list[Any], list[Any]]:
    """Cells one below the other as one, read when its turn comes; without targets."""
    columns: dict[int, list[int]] = {}
    for i, cell in enumerate(cells):
        columns.setdefault(cell.left, []).append(i)
    tall = [
        Cell(cells[rows[0]].start, cells[rows[-1]].stop, left, cells[rows[0]].right) for left, rows in columns.items()
    ]
    return tall, [Stack([parts[i] for i in rows]) for rows in columns.values()], [None] * len(tall)


@dataclass(frozen=True)
class Stack:
    """Cells one below the other."""

    parts: list[Any]

    def read(self) -> Any:
        """The numbers of all of them."""
        read = [load_cell(part) for part in self.parts]
        if len(read) == 1:
            return read[0]
        return np.concatenate([part.toarray() if hasattr(part, "toarray") else part for part in read])


def _add(found: list[tuple[int, Any]], left: int, partial: Any, merge: Callable[[Any, Any], Any]) -> None:
    if found and found[-1][0] == left:
        found[-1] = (left, merge(found[-1][1], partial))
    else:
        found.append((left, partial))


def _on_worker(*arguments: Any) -> list[tuple[int, Any]]:
    with one_blas_thread():
        return _work_through(*arguments)


def stack_rows(a: Any, b: Any) -> Any:
    """Merges results of rows one below the other by keeping both."""
    return np.concatenate([a, b], axis=0)


def stack_columns(a: Any, b: Any) -> Any:
    """Likewise, where a result has its rows along the last axis."""
    return np.concatenate([a, b], axis=1)


def _joined(
    parts: Sequence[list[tuple[int, Any]]], merge: Any, join: Callable[[list[Any]], Any], more: bool = False
) -> Any:
    """The results of consecutive groups joined; with `more` to be joined again."""
    found: dict[int, list[Any]] = {}
    for part in parts:
        for left, partial in part:
            found.setdefault(left, []).append(partial)
    whole = join([_merged(partials, merge) for partials in found.values()])
    return [(next(iter(found)), whole)] if more else whole


def _merged(partials: list[Any], merge: Any) -> Any:
    if merge in (stack_rows, stack_columns) and len(partials) > 1:
        return np.concatenate(partials, axis=0 if merge is stack_rows else 1)
    return reduce(merge, partials)


class ColumnBlocks:
    """A dataset by column blocks. keep: where the engine can, workers keep the blocks, and X is read once.

    Stores are cut where their chunks are, data in memory anywhere; where chunks are full rows (Dask arrays have been
    made so), tasks are row blocks, and their results are summed.
    """

    def __init__(self, dataset: Dataset, engine: Engine = THREADS, keep: bool = False) -> None:
        self.dataset, self._engine = dataset, engine
        self._keeps = keep and engine.keeps_values and not dataset.in_memory
        self._groups = groups_of_columns(dataset)
        self._by_rows = by_rows(self._groups)
        self._kept: list[Any] | None = None
        self.reads = 0  # passes over the stored data, all columns
        self.bytes_read = 0

    def run(
        self, per_cell: PerCell, merge: Callable[[Any, Any], Any], join: Callable[[list[Any]], Any], *, name: str,
        argument: NDArray[np.float64] | None = None, shared: Any = None, targets: bool = False,
        only: NDArray[np.int64] | None = None, additive: bool = False, full_height: bool = False,
    ) -> Any:  # fmt: skip
        """join([...]) of the column blocks' results, made in this process, so that no worker holds more than its part.
        argument (a, n): each task gets its columns of it; shared: sent to each worker once. targets: whether per_cell
        wants those of its rows. only: blocks that hold none of these ascending columns are left out. additive: join
        sums. Sums (of row blocks whatever merge does not stack) are made by the workers, a few results at a time, and
        one comes here. full_height: cells that are one below the other come as one, without targets."""
        dataset = self.dataset
        if self._by_rows:
            additive = merge not in (stack_rows, stack_columns)
        began, reads, read = time.perf_counter(), self.reads, self.bytes_read
        groups = self._wanted(only)
        self._count(groups, only is None)

        def made(result: Any, tasks: int) -> Any:
            of_targets = dataset.y_bytes if targets else 0
            loads = len(self._groups) if self._keeps and self.reads > reads else 0
            took = time.perf_counter() - began
            note(name, tasks + loads, self.bytes_read - read + of_targets, took, whole=self.reads > reads)
            return result

        no_targets = not targets or not dataset.n_targets
        ys = [[None if no_targets else _targets_of(dataset, cell) for cell in cells] for cells, _ in groups]
        chosen, both, total = dataset.target_columns, (self._root, shared), join if additive else None
        if dataset.in_memory:
            with one_blas_thread():
                done = [
                    _work_through(
                        cells, parts, y, per_cell, merge, _slice(argument, cells), both, chosen, full_height, total
                    )
                    for (cells, parts), y in zip(groups, ys, strict=True)
                ]
            return made(_joined(done, merge, join), 0)
        from dask.delayed import delayed

        token = uuid4().hex[:8]
        work = delayed(_work_through if self._engine.in_process else _on_worker, pure=False)
        sent = delayed(both, name=f"{name}-shared-{token}", traverse=False)
        level = [
            work(
                cells, parts, y, per_cell, merge, _slice(argument, cells), sent, chosen, full_height, total,
                dask_key_name=f"{name}-{token}-{i}",
            )
            for i, ((cells, parts), y) in enumerate(zip(groups, ys, strict=True))
        ]  # fmt: skip
        joined = delayed(_joined, pure=False)
        while additive and len(level) > 1:
            depth = len(level)
            level = [
                joined(level[i : i + FAN_IN], merge, join, True, dask_key_name=f"{name}-sum-{token}-{depth}-{i}")
                for i in range(0, depth, FAN_IN)
            ]
        keys = {str(key) for one in level for key in one.__dask_graph__()}
        own = sum(key.startswith(f"{name}-") and token in key for key in keys)
        return made(_joined(self._engine.run(level), merge, join), own)

    @cached_property
    def _root(self) -> NDArray[np.float64] | None:
        """(m,) square roots of the weights."""
        if self.dataset.weights is None:
            return None
        self.bytes_read += self.dataset.w_bytes
        found = ((load_weights(b.w), b.stop - b.start) for b in self.dataset.blocks)
        return np.asarray(np.sqrt(np.concatenate([np.ones(rows) if w is None else w for w, rows in found])))

    def _wanted(self, only: NDArray[np.int64] | None) -> list[tuple[list[Cell], Any]]:
        """Cells by task, and names to read them by or what the workers keep."""
        groups: list[tuple[list[Cell], Any]] = list(self._groups)
        if self._keeps:
            if self._kept is None:
                self._kept = self._engine.keep(_loads(self._groups))
                self._count(self._groups, True)
            groups = [(cells, kept) for (cells, _), kept in zip(groups, self._kept, strict=True)]
        if only is None:
            return groups
        found: list[tuple[list[Cell], Any]] = []
        for cells, parts in groups:
            held = [bool(np.searchsorted(only, c.right) > np.searchsorted(only, c.left)) for c in cells]
            if self._kept is not None:
                found += [(cells, parts)] if any(held) else []
            elif any(held):
                found.append(([c for c, h in zip(cells, held, strict=True) if h], list(compress(parts, held))))
        return found

    def _count(self, groups: list[tuple[list[Cell], Any]], whole: bool) -> None:
        if self._kept is not None and self.reads:
            return
        share = sum((c.stop - c.start) * (c.right - c.left) for cells, _ in groups for c in cells)
        self.bytes_read += int(self.dataset.x_bytes * share / (self.dataset.m * self.dataset.n))
        self.reads += whole


def by_rows(groups: Sequence[tuple[list[Cell], Any]]) -> bool:
    """Whether tasks take blocks of full rows."""
    return not any(cell.left for cells, _ in groups for cell in cells)


def tasks_of_columns(groups: int, additive: bool = False) -> int:
    """Tasks of one pass over so many groups: theirs, what they share, and the sums."""
    tasks = groups + 1
    while additive and groups > 1:
        groups = -(-groups // FAN_IN)
        tasks += groups
    return tasks


def _loads(groups: list[tuple[list[Cell], list[Any]]]) -> list[Any]:
    from dask.delayed import delayed

    token = uuid4().hex[:8]
    load = delayed(_load_group, pure=False)
    return [load(parts, dask_key_name=f"shard-{token}-{i}") for i, (_, parts) in enumerate(groups)]


def groups_of_columns(dataset: Dataset) -> list[tuple[list[Cell], list[Any]]]:
    """Cells by task: consecutive column blocks, each from its first rows to its last."""
    columns = _column_edges(dataset)
    blocks = list(pairwise(columns))
    if len(blocks) == 1 and not dataset.in_memory:
        step = max(1, -(-len(dataset.blocks) // MOST_TASKS))
        full = [Cell(b.start, b.stop, 0, dataset.n) for b in dataset.blocks]
        parts = [_part(dataset, cell, b) for cell, b in zip(full, dataset.blocks, strict=True)]
        return [(full[i : i + step], parts[i : i + step]) for i in range(0, len(full), step)]
    step = max(1, -(-len(blocks) // MOST_TASKS))
    found = []
    for i in range(0, len(blocks), step):
        cells = [Cell(b.start, b.stop, left, right) for left, right in blocks[i : i + step] for b in dataset.blocks]
        rows = [b for _ in blocks[i : i + step] for b in dataset.blocks]
        found.append((cells, [_part(dataset, cell, block) for cell, block in zip(cells, rows, strict=True)]))
    return found


def _column_edges(dataset: Dataset) -> list[int]:
    if dataset.store is not None:
        return dataset.store.column_bounds
    if dataset.in_memory:
        return [*range(0, dataset.n, _COLUMNS_IN_MEMORY), dataset.n]
    return [0, dataset.n]


def _part(dataset: Dataset, cell: Cell, block: Block) -> Any:
    if isinstance(block.x, StoredRows):
        return StoredCell(block.x.array, cell)
    if block.lazy or (cell.left, cell.right) == (0, dataset.n):
        return block.x
    return block.x[:, cell.left : cell.right]


def _targets_of(dataset: Dataset, cell: Cell) -> Any:
    return next(b.y for b in dataset.blocks if b.start == cell.start)


def _slice(argument: NDArray[np.float64] | None, cells: Sequence[Cell]) -> NDArray[np.float64] | None:
    return None if argument is None else np.ascontiguousarray(argument[:, cells[0].left : cells[-1].right])
