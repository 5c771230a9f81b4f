"""Passes over blocks of rows: a task per group of blocks, and a tree of merges.

The shape of the tree depends only on the row blocks, so the workers do not change a bit of the result. Results of
groups are merged as soon as their neighbours are there, so a worker holds few partial results however many blocks there
are.

A pass over several ranges of rows, such as the segments of a store, has a tree for each range. The results of the
ranges are merged from the first to the last. So the result of a range does not depend on the other ranges, and can be
saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any
from uuid import uuid4

from dsel._lib.blas import one_blas_thread, usable_cores
from dsel._lib.types import Ints
from dsel.data.blocks import Block, StoredRows, load_block, load_weights, part_bytes
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.passes.data_pass import MergeTree, Pass, PassCost, PassRecord, merge_tasks, record_pass
from dsel.passes.execution.pass_checkpoints import identity_of_pass, storable
from dsel.passes.execution.waves import Executed, Reduction, run_reductions

#: A task processes blocks of at least this many bytes, so that its partial result is small compared with its input.
GROUP_BYTES = 32 << 20

#: Called with a loaded block (x, y, and the weights in the Block) and the arguments of the run; returns its partial
#: result.
PerBlock = Callable[..., Any]

Merge = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class RowPass(Pass):
    """One read of the rows of a dataset.

    Parameters
    ----------
    name : str
        What the pass computes.
    dataset : Dataset
        The data.
    per_block : callable
        ``per_block(x, y, block, **arguments)`` returns the partial result of the rows of one block. It must be
        picklable.
    merge : callable
        ``merge(a, b)`` merges the partial results of consecutive rows. It may overwrite `a`.
    partial_bytes : int
        Bytes of one partial result.
    flops : int
        Multiplications and additions of the whole pass.
    columns : ndarray of int, optional
        The ascending columns of X to read. None: all.
    share : bool
        Send the arguments to each worker once, not with every task. For arguments that hold arrays.
    whole : bool
        Whether this counts as a pass over the data.
    ranges : tuple of (int, int), optional
        The ranges of rows [start, stop) to read, each with a separate tree. None: all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dsel.data.as_dataset import as_dataset
    >>> def column_sums(x, y, block):
    ...     return x.sum(axis=0)
    >>> data = as_dataset(np.ones((30, 2)))
    >>> sums = RowPass("column sums", data, column_sums, np.add, partial_bytes=16)
    >>> sums.cost().bytes_read
    480
    >>> sums.run()
    array([30., 30.])
    """

    name: str
    dataset: Dataset
    per_block: PerBlock
    merge: Merge
    partial_bytes: int
    flops: int = 0
    columns: Ints | None = None
    share: bool = False
    whole: bool = True
    ranges: tuple[tuple[int, int], ...] | None = None

    def cost(self) -> PassCost:
        """Return the cost of this pass. Nothing is read."""
        tasks = 0
        ranges = self._ranges
        if not self.dataset.in_memory and ranges:
            tasks = self.share
            for leaves in (len(self._groups(start, stop)) for start, stop in ranges):
                tasks += leaves + merge_tasks(leaves)
        rows = sum(stop - start for start, stop in ranges)
        flops = self.flops * rows // max(self.dataset.m, 1)
        return PassCost(self.name, int(self._is_whole), self._bytes(), tasks, flops, self.partial_bytes)

    def run(self, engine: Engine = THREADS, **arguments: Any) -> Any:
        """Make the pass and return its merged result. `arguments` are those of `per_block`."""
        return reduce(self.merge, self.run_ranges(engine, **arguments))

    def run_ranges(self, engine: Engine = THREADS, **arguments: Any) -> Iterator[Any]:
        """Make the pass and yield the merged result of each range of rows, in order.

        Parameters
        ----------
        engine : Engine
            Where the tasks run.
        **arguments
            Those of `per_block`.

        Notes
        -----
        The pass is complete when all results were taken. A result may be overwritten.
        """
        began, read, executed = time.perf_counter(), 0, Executed()
        per_block = partial(self.per_block, **arguments)
        if self.dataset.in_memory:
            results: Iterator[PartialResult] = iter([self._in_process(per_block)])
        else:
            cost = self.cost()
            engine = engine.for_pass(cost.bytes_read, cost.flops, cost.partial_bytes)
            results = self._as_graphs(per_block, engine, executed)
        for found in results:
            read += found.bytes_read
            yield found.value
        self.dataset.require_unchanged()
        tasks = executed.tasks + (self.share if executed.tasks else 0)
        record_pass(PassRecord(self.name, tasks, read, time.perf_counter() - began, self._is_whole))

    @property
    def _ranges(self) -> tuple[tuple[int, int], ...]:
        return ((0, self.dataset.m),) if self.ranges is None else self.ranges

    @property
    def _is_whole(self) -> bool:
        """Return whether this is a pass over all of the data."""
        return self.whole and sum(stop - start for start, stop in self._ranges) == self.dataset.m

    def _bytes(self) -> int:
        if self._is_whole and len(self._ranges) == 1:
            return self.dataset.bytes_of_pass(self.columns)
        blocks = [block for start, stop in self._ranges for block in self.dataset.rows(start, stop)]
        return replace(self.dataset, blocks=tuple(blocks)).bytes_of_pass(self.columns)

    def _groups(self, start: int, stop: int) -> list[tuple[Block, ...]]:
        """Return the blocks of each task: GROUP_BYTES and 4 partial results at least, yet 32 groups if possible.

        They depend on the rows [start, stop) alone.
        """
        blocks = self.dataset.rows(start, stop)
        size = self.dataset.nbytes * ((stop - start) / self.dataset.m) / max(len(blocks), 1)
        most = max(1, len(blocks) // 32)
        step = int(min(max(1, -(-max(GROUP_BYTES, 4 * self.partial_bytes) // max(size, 1))), most))
        return [blocks[i : i + step] for i in range(0, len(blocks), step)]

    def _in_process(self, per_block: PerBlock) -> PartialResult:
        """Run the tree of tasks on threads of this process, one per core."""
        groups, targets = self._groups(0, self.dataset.m), self.dataset.target_columns

        def leaf(blocks: tuple[Block, ...]) -> PartialResult:
            parts = [(b.x, b.y, b.w, b.offset) for b in blocks]
            return _reduce_group(per_block, parts, blocks, self.merge, self.columns, targets)

        if len(groups) == 1:
            with one_blas_thread():
                return leaf(groups[0])
        with one_blas_thread(), ThreadPoolExecutor(usable_cores()) as pool:
            return merge_stream(pool.map(leaf, groups), self.merge)

    def _as_graphs(self, per_block: PerBlock, engine: Engine, executed: Executed) -> Iterator[PartialResult]:
        """Run Dask graphs on the engine; yield the result of each range."""
        key, token = self.key, uuid4().hex[:8]
        kept: list[Any] = []  # until the pass is complete
        function = engine.share(per_block, f"{key}-arguments-{token}", kept) if self.share else per_block
        ranges = self._ranges
        reductions = [self._reduction(i, per_block, function, engine, f"{key}-{token}") for i in range(len(ranges))]
        for (found,) in run_reductions(reductions, engine, executed):
            yield found

    def _reduction(self, number: int, per_block: PerBlock, function: Any, engine: Engine, name: str) -> Reduction:
        """Return how one range of rows is reduced."""
        from dask.delayed import delayed

        start, stop = self._ranges[number]
        groups = self._groups(start, stop)
        leaf = _reduce_group if engine.in_process else _reduce_group_on_worker
        name = name if len(self._ranges) == 1 else f"{name}-{start}"
        targets = self.dataset.target_columns

        def task(i: int) -> Any:
            rows = tuple(Block(b.start, b.stop, None, None) for b in groups[i])
            parts: tuple[Any, ...] = ([(b.x, b.y, b.w, b.offset) for b in groups[i]],)
            work = partial(leaf, merge=self.merge, columns=self.columns, target_columns=targets, blocks=rows)
            if not any(b.lazy for b in groups[i]):  # Dask would look for its own objects in each field
                work, parts = partial(work, parts=parts[0]), ()
            return delayed(work, pure=False)(function, *parts, dask_key_name=f"{name}-{i}")

        def identity() -> bytes:
            data = (self.dataset.fingerprint, start, stop, len(groups))
            return identity_of_pass(self.name, data, self.columns, per_block, self.merge)

        combine = partial(merge_partials, merge=self.merge)
        return Reduction(len(groups), task, combine, name, identity, self.partial_bytes)


@storable
@dataclass
class PartialResult:
    """A partial result, and the bytes that were read for it in this run."""

    value: Any
    bytes_read: int

    def stored_parts(self) -> dict[str, Any]:
        """Return what a checkpoint keeps. What an earlier run has read does not count."""
        return {"value": self.value, "bytes_read": 0}


def _reduce_group(
    per_block: PerBlock, parts: Sequence[Any], blocks: Sequence[Block], merge: Merge, columns: Any, target_columns: Any
) -> PartialResult:
    """Load, reduce and merge the blocks of one task, one after the other."""
    read = sum(part_bytes(x, columns) + part_bytes(y, target_columns) + part_bytes(w) for x, y, w, _ in parts)
    result = None
    for block, (x, y, w, offset) in zip(blocks, parts, strict=True):
        rows = load_block(x, columns)
        targets = None if y is None else load_block(y, target_columns)
        loaded = offset.read() if isinstance(offset, StoredRows) else offset
        found = per_block(rows, targets, replace(block, w=load_weights(w), offset=loaded))
        del rows, targets
        result = found if result is None else merge(result, found)
    return PartialResult(result, read)


def _reduce_group_on_worker(*arguments: Any, **options: Any) -> PartialResult:
    with one_blas_thread():
        return _reduce_group(*arguments, **options)


def merge_partials(parts: Sequence[PartialResult], merge: Merge) -> PartialResult:
    """Merge partial results from left to right."""
    result = parts[0]
    for part in parts[1:]:
        result = PartialResult(merge(result.value, part.value), result.bytes_read + part.bytes_read)
    return result


def merge_stream(parts: Iterable[PartialResult], merge: Merge) -> PartialResult:
    """Merge partial results as they arrive, in the tree of the tasks."""
    tree = MergeTree(partial(merge_partials, merge=merge), ((0, i, part) for i, part in enumerate(parts)))
    result: PartialResult = tree.finish()[0]
    return result
