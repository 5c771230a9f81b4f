"""Passes over blocks of rows: a task per group of blocks, and a tree of merges.

The shape of the tree depends only on the row blocks, so the workers do not change a bit of the result. Results of
groups are merged as soon as their neighbours are there, so a worker holds few partial results however many blocks there
are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

from dsel._lib.blas import one_blas_thread
from dsel._lib.types import Ints
from dsel.data.blocks import Block, load_block, load_weights, part_bytes
from dsel.data.dataset import Dataset
from dsel.engine.base import Engine
from dsel.engine.thread_engine import THREADS
from dsel.passes.accounting import PassRecord, record_pass
from dsel.passes.base import FAN_IN, Pass, PassCost, merge_tasks, own_tasks

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

    Examples
    --------
    >>> import numpy as np
    >>> from dsel.data.dataset import as_dataset
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

    def cost(self) -> PassCost:
        """Return the cost of this pass. Nothing is read."""
        tasks = 0
        if not self.dataset.in_memory:
            leaves = len(self._groups())
            tasks = leaves + self.share + merge_tasks(leaves)
        read = self.dataset.bytes_of_pass(self.columns)
        return PassCost(self.name, int(self.whole), read, tasks, self.flops, self.partial_bytes)

    def run(self, engine: Engine = THREADS, **arguments: Any) -> Any:
        """Make the pass and return its merged result. `arguments` are those of `per_block`."""
        began = time.perf_counter()
        per_block = partial(self.per_block, **arguments)
        if self.dataset.in_memory:
            found, tasks = self._in_process(per_block), 0
        else:
            found, tasks = self._as_graph(per_block, engine)
        self.dataset.require_unchanged()
        record_pass(PassRecord(self.name, tasks, found.bytes_read, time.perf_counter() - began, self.whole))
        return found.value

    def _groups(self) -> list[tuple[Block, ...]]:
        """Return the blocks of each task: GROUP_BYTES and 4 partial results at least, yet 32 groups if possible."""
        blocks = self.dataset.blocks
        size = self.dataset.nbytes / max(len(blocks), 1)
        most = max(1, len(blocks) // 32)
        step = int(min(max(1, -(-max(GROUP_BYTES, 4 * self.partial_bytes) // max(size, 1))), most))
        return [blocks[i : i + step] for i in range(0, len(blocks), step)]

    def _in_process(self, per_block: PerBlock) -> PartialResult:
        """Run the tree of tasks on threads of this process, one per core."""
        groups, targets = self._groups(), self.dataset.target_columns

        def leaf(blocks: tuple[Block, ...]) -> PartialResult:
            parts = [(b.x, b.y, b.w) for b in blocks]
            return _reduce_group(blocks, parts, per_block, self.merge, self.columns, targets)

        if len(groups) == 1:
            with one_blas_thread():
                return leaf(groups[0])
        with one_blas_thread(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return merge_stream(pool.map(leaf, groups), self.merge)

    def _as_graph(self, per_block: PerBlock, engine: Engine) -> tuple[PartialResult, int]:
        """Run a Dask graph on the engine; return the result and the number of tasks."""
        from dask.delayed import delayed

        key, token = self.key, uuid4().hex[:8]
        leaf = delayed(_reduce_group if engine.in_process else _reduce_group_on_worker, pure=False)
        join = delayed(merge_partials, pure=False)
        function = delayed(per_block, name=f"{key}-arguments-{token}", traverse=False) if self.share else per_block
        level: list[Any] = []
        for i, group in enumerate(self._groups()):
            rows = tuple(Block(b.start, b.stop, None, None) for b in group)
            parts = [(b.x, b.y, b.w) for b in group]
            level.append(
                leaf(
                    rows, parts, function, self.merge, self.columns, self.dataset.target_columns,
                    dask_key_name=f"{key}-{token}-{i}",
                )
            )  # fmt: skip
        depth = 0
        while len(level) > 1:
            depth += 1
            level = [
                join(level[i : i + FAN_IN], self.merge, dask_key_name=f"{key}-merge-{token}-{depth}-{i}")
                for i in range(0, len(level), FAN_IN)
            ]
        return engine.run(level[0]), own_tasks(level[0].__dask_graph__(), key, token)


@dataclass
class PartialResult:
    """A partial result, and the bytes that were read for it."""

    value: Any
    bytes_read: int


def _reduce_group(
    blocks: Sequence[Block], parts: Sequence[Any], per_block: PerBlock, merge: Merge, columns: Any, target_columns: Any
) -> PartialResult:
    """Load, reduce and merge the blocks of one task, one after the other."""
    read = sum(part_bytes(x, columns) + part_bytes(y, target_columns) + part_bytes(w) for x, y, w in parts)
    result = None
    for block, (x, y, w) in zip(blocks, parts, strict=True):
        rows = load_block(x, columns)
        targets = None if y is None else load_block(y, target_columns)
        found = per_block(rows, targets, replace(block, w=load_weights(w)))
        del rows, targets
        result = found if result is None else merge(result, found)
    return PartialResult(result, read)


def _reduce_group_on_worker(*arguments: Any) -> PartialResult:
    with one_blas_thread():
        return _reduce_group(*arguments)


def merge_partials(parts: Sequence[PartialResult], merge: Merge) -> PartialResult:
    """Merge partial results from left to right."""
    result = parts[0]
    for part in parts[1:]:
        result = PartialResult(merge(result.value, part.value), result.bytes_read + part.bytes_read)
    return result


def merge_stream(parts: Iterable[PartialResult], merge: Merge) -> PartialResult:
    """Merge partial results as they arrive, in the tree of the tasks, holding at most FAN_IN of each level."""
    levels: list[list[PartialResult]] = [[]]
    for part in parts:
        levels[0].append(part)
        for i, level in enumerate(levels):
            if len(level) < FAN_IN:
                break
            if i + 1 == len(levels):
                levels.append([])
            levels[i + 1].append(merge_partials(level, merge))
            level.clear()
    rest: list[PartialResult] = []
    for level in levels:
        rest = [*level, *rest]
        rest = [merge_partials(rest, merge)] if rest else []
    return rest[0]
