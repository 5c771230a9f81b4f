"""One pass over the row blocks of a dataset: a task a group of blocks, and a tree of merges that follows the data.

The shape of the tree depends on the row blocks alone, so that not a bit of the result depends on the workers; results
of groups are merged as soon as their neighbours are there, so that a worker holds a few partial results, however many
blocks there are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

from dsel._lib.blas import one_blas_thread
from dsel.data.dataset import Block, Dataset, load_block, load_weights, part_bytes
from dsel.engine.base import Engine
from dsel.engine.threads import THREADS
from dsel.passes.accounting import Counted, note

#: Partial results merged by one task.
FAN_IN = 4

#: A task works through blocks of at least this many bytes, so that its partial result is small beside its input.
GROUP_BYTES = 32 << 20

#: Called with the blocks of one group, loaded one at a time (x, y, and the weights in the Block), returns their partial
#: result.
PerBlock = Callable[[Any, Any, Block], Any]

Merge = Callable[[Any, Any], Any]


def groups(dataset: Dataset, partial_bytes: int) -> list[tuple[Block, ...]]:
    """Consecutive row blocks by tasks: GROUP_BYTES and 4 partial results each at least, yet 32 groups if possible."""
    blocks = dataset.blocks
    size = dataset.nbytes / max(len(blocks), 1)
    most = max(1, len(blocks) // 32)
    step = int(min(max(1, -(-max(GROUP_BYTES, 4 * partial_bytes) // max(size, 1))), most))
    return [blocks[i : i + step] for i in range(0, len(blocks), step)]


def work_through(
    blocks: Sequence[Block], parts: Sequence[Any], per_block: PerBlock, merge: Merge,
    columns: Any = None, target_columns: Any = None,
) -> Any:  # fmt: skip
    """Partial result of one group: load, reduce, merge, block after block."""
    result = None
    for block, (x, y, w) in zip(blocks, parts, strict=True):
        rows = load_block(x, columns)
        targets = None if y is None else load_block(y, target_columns)
        found = per_block(rows, targets, replace(block, w=load_weights(w)))
        del rows, targets
        result = found if result is None else merge(result, found)
    return result


def _counting(
    blocks: Sequence[Block], parts: Sequence[Any], per_block: PerBlock, merge: Any, columns: Any, target_columns: Any
) -> Counted:
    """The same, and the bytes it read."""
    read = sum(part_bytes(x, columns) + part_bytes(y, target_columns) + part_bytes(w) for x, y, w in parts)
    return Counted(work_through(blocks, parts, per_block, merge, columns, target_columns), read)


def _on_worker(
    blocks: Sequence[Block], parts: Sequence[Any], per_block: PerBlock, merge: Any, columns: Any, target_columns: Any
) -> Counted:
    with one_blas_thread():
        return _counting(blocks, parts, per_block, merge, columns, target_columns)


def merge_all(parts: Sequence[Counted], merge: Merge) -> Counted:
    """Merge from left to right."""
    result = parts[0]
    for part in parts[1:]:
        result = Counted(merge(result.value, part.value), result.bytes_read + part.bytes_read)
    return result


def tasks_of_pass(dataset: Dataset, partial_bytes: int, share: bool = False) -> int:
    """Tasks that `reduce_blocks` makes of its own."""
    if dataset.in_memory:
        return 0
    level = len(groups(dataset, partial_bytes))
    tasks = level + share
    while level > 1:
        level = -(-level // FAN_IN)
        tasks += level
    return tasks


def _here(
    by_task: Sequence[tuple[Block, ...]], per_block: PerBlock, merge: Merge, columns: Any, target_columns: Any
) -> Counted:
    """The same tree on threads of this process, one a core."""

    def leaf(blocks: tuple[Block, ...]) -> Counted:
        return _counting(blocks, [(b.x, b.y, b.w) for b in blocks], per_block, merge, columns, target_columns)

    if len(by_task) == 1:
        with one_blas_thread():
            return leaf(by_task[0])
    with one_blas_thread(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return merge_as_they_come(pool.map(leaf, by_task), merge)


def merge_as_they_come(parts: Iterable[Counted], merge: Merge) -> Counted:
    """What the tree of tasks gives, holding at most FAN_IN results of each of its levels."""
    levels: list[list[Counted]] = [[]]
    for part in parts:
        levels[0].append(part)
        for i, level in enumerate(levels):
            if len(level) < FAN_IN:
                break
            if i + 1 == len(levels):
                levels.append([])
            levels[i + 1].append(merge_all(level, merge))
            level.clear()
    rest: list[Counted] = []
    for level in levels:
        rest = [*level, *rest]
        rest = [merge_all(rest, merge)] if rest else []
    return rest[0]


def reduce_blocks(
    dataset: Dataset,
    per_block: PerBlock,
    merge: Merge,
    *,
    name: str,
    partial_bytes: int,
    columns: Any = None,
    engine: Engine = THREADS,
    share: bool = False,
    whole: bool = True,
) -> Any:
    """Result of one pass over `dataset`: in this process for data in memory, else as a Dask graph that `engine` runs.

    per_block(x, y, block) reduces the rows of one block; `columns` (ascending) limits X to some columns. share:
    per_block carries arrays, so that each worker gets it once and not with every task. whole: whether the ledger is to
    count it as a pass over the data.
    """
    began = time.perf_counter()
    targets = dataset.target_columns
    by_task = groups(dataset, partial_bytes)
    if dataset.in_memory:
        found = _here(by_task, per_block, merge, columns, targets)
        note(name, 0, found.bytes_read, time.perf_counter() - began, whole)
        return found.value
    from dask.delayed import delayed

    token = uuid4().hex[:8]
    leaf, join = delayed(_counting if engine.in_process else _on_worker, pure=False), delayed(merge_all, pure=False)
    level: list[Any] = []
    function: Any = delayed(per_block, name=f"{name}-arguments-{token}", traverse=False) if share else per_block
    for i, group in enumerate(by_task):
        bare = tuple(Block(b.start, b.stop, None, None) for b in group)
        parts = [(b.x, b.y, b.w) for b in group]
        key = f"{name}-{token}-{i}"
        level.append(leaf(bare, parts, function, merge, columns, targets, dask_key_name=key))
    depth = 0
    while len(level) > 1:
        depth += 1
        level = [
            join(level[i : i + FAN_IN], merge, dask_key_name=f"{name}-merge-{token}-{depth}-{i}")
            for i in range(0, len(level), FAN_IN)
        ]
    own = sum(str(key).startswith(f"{name}-") and token in str(key) for key in level[0].__dask_graph__())
    found = engine.run(level[0])
    note(name, own, found.bytes_read, time.perf_counter() - began, whole)
    return found.value
