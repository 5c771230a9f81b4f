"""Passes over blocks of columns, for wide data.

A task takes some columns of all rows, from the store or from blocks that the workers keep. Results are joined in the
order of the columns, and within a column block merged in the order of the rows, so the workers do not change a bit of
the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import compress, pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from dsel._lib.blas import one_blas_thread
from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, StoredRows, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.data.store.array import StoredArray
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.engine.parcel import MOST_WITH_GRAPH
from dsel.passes.data_pass import Pass, PassCost, PassRecord, merge_tasks, record_pass
from dsel.passes.execution.pass_checkpoints import identity_of_pass
from dsel.passes.execution.waves import Executed, Reduction, run_reductions

#: A task takes consecutive column chunks, one at a time. More tasks per pass are never needed.
MOST_TASKS = 64
#: Columns of data in memory per task.
_COLUMNS_IN_MEMORY = 4096

Merge = Callable[[Any, Any], Any]
Join = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Cell:
    """Rows [start, stop) and columns [left, right) of X."""

    start: int
    stop: int
    left: int
    right: int


@dataclass(frozen=True)
class Arguments:
    """What the function of a cell gets besides the data.

    columns: (a, w) numbers per column of the cell; root: square roots of the weights of its rows, None where all are 1;
    shared: the same for all cells.
    """

    columns: Any
    root: Floats | None
    shared: Any


#: Called with a cell of X, the targets of its rows, its place, and its arguments; returns a partial result.
PerCell = Callable[[Any, Any, Cell, Arguments], Any]

#: The cells of one task, and for each what to load it from (or one Dask object with the values of all).
Group = tuple[list[Cell], Any]


class ColumnBlocks:
    """A dataset cut into blocks of columns.

    Stores are cut where their chunks are, data in memory anywhere. Where chunks are full rows (as Dask arrays are made
    to be), tasks take blocks of rows, and their results are merged.

    Parameters
    ----------
    dataset : Dataset
        The data.
    keep : bool, default False
        Whether workers keep the blocks, so that X is read once. It needs an engine that keeps values.
    edges : list of int, optional
        Where to cut, by default as above.
    """

    def __init__(self, dataset: Dataset, keep: bool = False, edges: list[int] | None = None) -> None:
        self.dataset = dataset
        self.keeps = keep and not dataset.in_memory
        self.edges = edges or _column_edges(dataset)
        self.groups = _column_groups(dataset, self.edges)
        self.by_rows = not any(cell.left for cells, _ in self.groups for cell in cells)
        self._kept: list[Any] | None = None

    @property
    def of_rows(self) -> int:
        """Return the number of blocks of rows whose results are merged."""
        return len({cell.start for cells, _ in self.groups for cell in cells})

    @property
    def cut_in_rows(self) -> bool:
        """Return whether tasks get blocks of full rows, so that none has a column of full height."""
        return self.by_rows and self.of_rows > 1 and not self.dataset.in_memory

    def load_cost(self) -> PassCost:
        """Return the cost of loading the blocks that workers keep: one pass, or nothing."""
        if not self.keeps:
            return PassCost("column blocks")
        return PassCost("column blocks", 1, self.dataset.x_bytes, len(self.groups))

    def load(self, engine: Engine, only: Ints | None = None) -> tuple[list[Group], int]:
        """Return the groups that hold one of the ascending columns `only`, and the bytes of X that they will read.

        Blocks that workers keep are loaded by the first call, and read nothing later.
        """
        groups, held = list(self.groups), _wanted(self.groups, only)
        if not self.keeps:
            chosen = [([c for c, h in zip(cells, has, strict=True) if h], list(compress(parts, has)))
                      for (cells, parts), has in zip(groups, held, strict=True) if any(has)]  # fmt: skip
            return chosen, self._bytes(chosen)
        if self._kept is None:
            began = time.perf_counter()
            self._kept = engine.keep(_load_tasks(groups))
            cost = self.load_cost()
            record_pass(PassRecord(cost.name, cost.tasks, cost.bytes_read, time.perf_counter() - began))
        kept = zip(groups, self._kept, held, strict=True)
        return [(cells, values) for (cells, _), values, has in kept if any(has)], 0

    @cached_property
    def root(self) -> Floats | None:
        """Return (m,) the square roots of the weights, None without weights. They are read once."""
        if not self.dataset.weighted:
            return None
        began = time.perf_counter()
        found = ((load_weights(b.w), b.stop - b.start) for b in self.dataset.blocks)
        root = np.asarray(np.sqrt(np.concatenate([np.ones(rows) if w is None else w for w, rows in found])))
        record_pass(PassRecord("weights", 0, self.dataset.w_bytes, time.perf_counter() - began, whole=False))
        return root

    def _bytes(self, groups: list[Group]) -> int:
        share = sum((c.stop - c.start) * (c.right - c.left) for cells, _ in groups for c in cells)
        return int(self.dataset.x_bytes * share / (self.dataset.m * self.dataset.n))


@dataclass(frozen=True)
class ColumnPass(Pass):
    """One read of the column blocks of a dataset.

    Parameters
    ----------
    name : str
        What the pass computes.
    blocks : ColumnBlocks
        The data.
    per_cell : callable
        ``per_cell(x, y, cell, arguments)`` returns the partial result of one cell. It must be picklable.
    merge : callable
        ``merge(a, b)`` merges the results of consecutive rows of the same columns.
    join : callable
        ``join([...])`` joins the results of consecutive columns.
    work : int
        Multiplications and additions for each entry of X.
    partial_bytes : int
        Bytes of one partial result.
    targets : bool
        Whether `per_cell` gets the targets of its rows.
    additive : bool
        Whether `join` sums. Then the workers sum, a few results at a time, and one result arrives here. Without it, and
        where `merge` stacks, results are joined in this process, so that no worker holds more than its part.
    full_height : bool
        Whether `per_cell` gets columns of all rows at once, without targets.
    whole : bool
        Whether this counts as a pass over the data.
    """

    name: str
    blocks: ColumnBlocks
    per_cell: PerCell
    merge: Merge
    join: Join
    work: int = 0
    partial_bytes: int = 0
    targets: bool = False
    additive: bool = False
    full_height: bool = False
    whole: bool = True

    def cost(self) -> PassCost:
        """Return the cost of this pass, without that of loading blocks that workers keep. Nothing is read."""
        blocks, dataset = self.blocks, self.blocks.dataset
        read = (0 if blocks.keeps else dataset.x_bytes) + (dataset.y_bytes if self.targets else 0)
        tasks, leaves = 0, len(blocks.groups)
        if not dataset.in_memory:
            tasks = leaves + 1 + (merge_tasks(leaves) if self._sums else 0)
        whole, flops = int(self.whole and not blocks.keeps), self.work * dataset.m * dataset.n
        return PassCost(self.name, whole, read, tasks, flops, self.partial_bytes)

    def run(
        self, engine: Engine = THREADS, *, per_column: Floats | None = None, shared: Any = None,
        only: Ints | None = None,
    ) -> Any:  # fmt: skip
        """Make the pass and return its joined result.

        Parameters
        ----------
        engine : Engine
            Where the tasks run.
        per_column : ndarray of shape (a, n), optional
            Each task gets its columns of it.
        shared : Any
            Sent to each worker once.
        only : ndarray of int, optional
            Cells that hold none of these ascending columns are left out. Of data in memory only they count as read.
        """
        blocks, dataset = self.blocks, self.blocks.dataset
        groups, read = blocks.load(engine, only)
        if dataset.in_memory and only is not None:
            read = dataset.x_bytes * only.size // dataset.n
        common = (blocks.root, shared)
        began = time.perf_counter()
        arguments = [(cells, parts, self._targets(cells), _columns(per_column, cells)) for cells, parts in groups]
        if dataset.in_memory:
            with one_blas_thread():
                found = [_process_group(*some, common, self._options()) for some in arguments]
            tasks = 0
        else:
            found, tasks = self._as_graphs(arguments, common, engine)
        dataset.require_unchanged()
        result = _join_groups(found, self.merge, self.join)
        read += dataset.y_bytes if self.targets else 0
        whole = self.whole and not blocks.keeps and only is None
        record_pass(PassRecord(self.name, tasks, read, time.perf_counter() - began, whole))
        return result

    def _as_graphs(self, arguments: list[tuple[Any, ...]], common: Any, engine: Engine) -> tuple[list[Any], int]:
        """Run Dask graphs on the engine; return the results of the groups, or their sum, and the number of tasks."""
        from dask.delayed import delayed

        key, token = self.key, uuid4().hex[:8]
        work = delayed(_process_group if engine.in_process else _process_group_on_worker, pure=False)
        kept: list[Any] = []  # until this method returns
        sent = engine.share(common, f"{key}-shared-{token}", kept)

        def leaf(i: int) -> Any:
            cells, parts, ys, columns = arguments[i]
            if columns is not None and columns.nbytes * len(arguments) > MOST_WITH_GRAPH:
                columns = engine.share(columns, f"{key}-columns-{token}-{i}", kept, len(arguments))
            return work(cells, parts, ys, columns, sent, self._options(), dask_key_name=f"{key}-{token}-{i}")

        combine = partial(_join_groups, merge=self.merge, join=self.join, again=True)
        places = [(cells, columns) for cells, _, _, columns in arguments]

        def identity() -> bytes:
            return identity_of_pass(self.name, self.blocks.dataset.fingerprint, places, common, *self._options())

        whole = Reduction(
            len(arguments), leaf, combine if self._sums else None, f"{key}-{token}", identity, self.partial_bytes
        )
        executed = Executed()
        (found,) = run_reductions([whole], engine, executed)
        return found, executed.tasks + (1 if executed.tasks else 0)

    def _options(self) -> tuple[Any, ...]:
        total = self.join if self._sums else None
        return self.per_cell, self.merge, self.blocks.dataset.target_columns, self.full_height, total

    def _targets(self, cells: Sequence[Cell]) -> list[Any]:
        dataset = self.blocks.dataset
        if not self.targets or not dataset.n_targets:
            return [None] * len(cells)
        return [next(b.y for b in dataset.blocks if b.start == cell.start) for cell in cells]

    @property
    def _sums(self) -> bool:
        """Whether workers sum: where join sums, or of row blocks whatever merge does not stack."""
        return self.merge not in (stack_rows, stack_columns) if self.blocks.by_rows else self.additive


def stack_rows(a: Any, b: Any) -> Any:
    """Merge results with one row per row of X: keep both, one below the other."""
    return np.concatenate([a, b], axis=0)


def stack_columns(a: Any, b: Any) -> Any:
    """Merge results with one column per row of X: keep both, side by side."""
    return np.concatenate([a, b], axis=1)


def load_cell(part: Any) -> Any:
    """Return the numbers of a cell, read now if they are not in memory."""
    return part.read() if isinstance(part, _StoredCell | _TallCell) else load_block(part)


def stored_cells(dataset: Dataset) -> Iterator[Any]:
    """Yield what each cell is loaded from, in the order of the tasks."""
    return (part for _, parts in _column_groups(dataset, _column_edges(dataset)) for part in parts)


@dataclass(frozen=True)
class _StoredCell:
    """A cell of a stored array, read where it is needed. first_row: the row of the array that is row 0 of the data."""

    array: StoredArray
    cell: Cell
    first_row: int

    def read(self) -> NDArray[Any]:
        c = self.cell
        return self.array.read(self.first_row + c.start, self.first_row + c.stop, np.arange(c.left, c.right))

    def bytes_read(self, columns: Ints | None = None) -> int:
        """Return the uncompressed bytes of the chunks that this reads."""
        c = self.cell
        return self.array.bytes_read(self.first_row + c.start, self.first_row + c.stop, np.arange(c.left, c.right))


@dataclass(frozen=True)
class _TallCell:
    """Cells one below the other."""

    parts: list[Any]

    def read(self) -> Any:
        read = [load_cell(part) for part in self.parts]
        if len(read) == 1:
            return read[0]
        return np.concatenate([part.toarray() if hasattr(part, "toarray") else part for part in read])


def _process_group(
    cells: Sequence[Cell], parts: Sequence[Any], ys: Sequence[Any], per_column: Any, common: tuple[Any, Any],
    options: tuple[Any, ...],
) -> list[tuple[int, Any]]:  # fmt: skip
    """Return the first column and the result of each column block of one task, merged over the rows.

    With `total`, which sums results, the blocks are summed as well, into one.
    """
    per_cell, merge, target_columns, full_height, total = options
    found: list[tuple[int, Any]] = []
    if full_height:
        cells, parts, ys = _full_height(cells, parts)
    for cell, part, y in zip(cells, parts, ys, strict=True):
        x = load_cell(part)
        targets = None if y is None else load_block(y, target_columns)
        columns = None if per_column is None else per_column[:, cell.left - cells[0].left : cell.right - cells[0].left]
        root = None if common[0] is None else common[0][cell.start : cell.stop]
        result = per_cell(x, targets, cell, Arguments(columns, root, common[1]))
        del x
        if found and found[-1][0] == cell.left:
            found[-1] = (cell.left, merge(found[-1][1], result))
        else:
            found.append((cell.left, result))
        if total is not None and len(found) == 3:  # the first is a sum, the second complete, the third begun
            found[:2] = [(found[0][0], total([found[0][1], found[1][1]]))]
    if total is not None and len(found) > 1:
        found = [(found[0][0], total([result for _, result in found]))]
    return found


def _process_group_on_worker(*arguments: Any) -> list[tuple[int, Any]]:
    with one_blas_thread():
        return _process_group(*arguments)


def _full_height(cells: Sequence[Cell], parts: Sequence[Any]) -> tuple[list[Cell], list[Any], list[Any]]:
    """Return cells of all rows, in place of those that are one below the other; without targets."""
    columns: dict[int, list[int]] = {}
    for i, cell in enumerate(cells):
        columns.setdefault(cell.left, []).append(i)
    tall = [
        Cell(cells[rows[0]].start, cells[rows[-1]].stop, left, cells[rows[0]].right) for left, rows in columns.items()
    ]
    return tall, [_TallCell([parts[i] for i in rows]) for rows in columns.values()], [None] * len(tall)


def _join_groups(parts: Sequence[list[tuple[int, Any]]], merge: Merge, join: Join, again: bool = False) -> Any:
    """Return the joined results of consecutive groups; with `again` in the form in which they are joined again."""
    found: dict[int, list[Any]] = {}
    for part in parts:
        for left, result in part:
            found.setdefault(left, []).append(result)
    whole = join([_merge_all(results, merge) for results in found.values()])
    return [(next(iter(found)), whole)] if again else whole


def _merge_all(results: list[Any], merge: Merge) -> Any:
    if merge in (stack_rows, stack_columns) and len(results) > 1:
        return np.concatenate(results, axis=0 if merge is stack_rows else 1)
    return reduce(merge, results)


def _load_group(parts: Sequence[Any]) -> list[Any]:
    return [load_cell(part) for part in parts]


def _load_tasks(groups: list[Group]) -> list[Any]:
    """Return Dask objects that load the cells of each group."""
    from dask.delayed import delayed

    token = uuid4().hex[:8]
    load = delayed(_load_group, pure=False)
    return [load(parts, dask_key_name=f"column-block-{token}-{i}") for i, (_, parts) in enumerate(groups)]


def _wanted(groups: list[Group], only: Ints | None) -> list[list[bool]]:
    """Return which cells hold one of the ascending columns `only`."""
    if only is None:
        return [[True] * len(cells) for cells, _ in groups]
    return [
        [bool(np.searchsorted(only, c.right) > np.searchsorted(only, c.left)) for c in cells] for cells, _ in groups
    ]


def _column_groups(dataset: Dataset, edges: list[int]) -> list[Group]:
    """Return the cells of each task: consecutive column blocks, each from its first rows to its last."""
    blocks = list(pairwise(edges))
    if len(blocks) == 1 and not dataset.in_memory:
        cells = [Cell(b.start, b.stop, 0, dataset.n) for b in dataset.blocks]
        parts = [_part(dataset, cell, b) for cell, b in zip(cells, dataset.blocks, strict=True)]
        step = max(1, -(-len(cells) // MOST_TASKS))
        return [(cells[i : i + step], parts[i : i + step]) for i in range(0, len(cells), step)]
    step = max(1, -(-len(blocks) // MOST_TASKS))
    found: list[Group] = []
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
        return _StoredCell(block.x.array, cell, block.x.start - block.start)
    if block.lazy or (cell.left, cell.right) == (0, dataset.n):
        return block.x
    return block.x[:, cell.left : cell.right]


def _columns(per_column: Floats | None, cells: Sequence[Cell]) -> Floats | None:
    return None if per_column is None else np.ascontiguousarray(per_column[:, cells[0].left : cells[-1].right])
