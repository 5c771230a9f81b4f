"""Run the tasks of passes: all at once, or as many at a time as fit between two checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from dsel.engine.engine_protocol import Engine
from dsel.passes.data_pass import FAN_IN, Combine, MergeTree, complete_subtrees, merge_tasks
from dsel.passes.execution.pass_checkpoints import CURRENT, PassCheckpoints, SavedTree

#: Leaves per worker before the speed of a pass is known, and the largest growth from one wave to the next.
_FIRST_LEAVES, _GROWTH = 2, 8
#: The results that one wave returns take at most this many bytes, or there is one.
_RESULT_BYTES = 256 << 20


@dataclass(frozen=True)
class Reduction:
    """The leaves of one tree of merges, and how they become tasks.

    Parameters
    ----------
    leaves : int
        How many leaves there are.
    leaf : callable
        ``leaf(i)`` returns the delayed result of leaf i.
    combine : callable, optional
        ``combine(parts)`` returns the result of a node from those of its children. It must be picklable. Without it the
        results of all leaves are kept.
    name : str
        The names of the tasks that merge begin with it.
    identity : callable
        ``identity()`` returns bytes that identify the result, for checkpoints.
    result_bytes : int
        Bytes of a result.
    """

    leaves: int
    leaf: Callable[[int], Any]
    combine: Combine | None
    name: str
    identity: Callable[[], bytes]
    result_bytes: int
    _numbers: Iterator[int] = field(default_factory=count)

    def tasks(self, leaves: int) -> int:
        """Return the tasks of a node with this number of leaves, as plans count them."""
        return leaves + (0 if self.combine is None else merge_tasks(leaves))

    def nodes(self, first: int, last: int, whole: bool) -> list[tuple[int, Any]]:
        """Return level and delayed result of the nodes that cover the leaves [first, last).

        whole: whether the leaves are all, and their merged result is wanted.
        """
        if self.combine is None:
            return [(0, self.leaf(i)) for i in range(first, last)]
        if whole:
            return [(0, self._node(first, last))]
        return [(level, self._node(a, a + FAN_IN**level)) for level, a in complete_subtrees(first, last)]

    def _node(self, first: int, last: int) -> Any:
        from dask.delayed import delayed

        merge = delayed(self.combine, pure=False)

        def join(children: list[Any]) -> Any:
            return merge(children, dask_key_name=f"{self.name}-merge-{next(self._numbers)}")

        return MergeTree(join, ((0, i, self.leaf(i)) for i in range(first, last))).finish()[0]


@dataclass
class Executed:
    """The tasks that `run_reductions` has run so far, merges in this process included.

    Leaves that an earlier run has saved do not count.
    """

    tasks: int = 0


class _Open:
    """A reduction whose leaves are being computed."""

    def __init__(self, reduction: Reduction, checkpoints: PassCheckpoints | None) -> None:
        self.reduction, self.began = reduction, time.monotonic()
        self.saved: SavedTree | None = None
        if checkpoints is not None:
            self.saved = checkpoints.open(reduction.identity(), reduction.combine)
        self.tree = MergeTree(reduction.combine) if self.saved is None else self.saved.tree
        self.next = self.done = self.tree.leaves  # done: tasks, with those of earlier runs

    def finish(self) -> list[Any]:
        """Return the result, as a list of one or of all leaves, and settle the checkpoint."""
        if self.saved is None:
            return self.tree.finish()
        self.saved.keep_result(time.monotonic() - self.began)
        found = self.tree.finish()
        self.saved.close()
        return found


def run_reductions(reductions: Sequence[Reduction], engine: Engine, executed: Executed) -> Iterator[list[Any]]:
    """Yield the result of each reduction in order: its merged result as a list of one, or those of all leaves.

    Parameters
    ----------
    reductions : sequence of Reduction
        What to compute. Several may be computed together.
    engine : Engine
        Where the tasks run.
    executed : Executed
        It is told what was done.
    """
    checkpoints = CURRENT.get()
    left = sum(one.tasks(one.leaves) for one in reductions)
    size, finished = math.inf if checkpoints is None else _FIRST_LEAVES * max(1, engine.workers), 0
    opened: _Open | None = None
    position = 0
    while position < len(reductions):
        wave: list[tuple[_Open, int, int]] = []
        free, room = size, _RESULT_BYTES
        while position < len(reductions) and free > 0 and (room > 0 or not wave):
            opened = opened or _Open(reductions[position], checkpoints)
            first, last = opened.next, _wave_end(opened, free, checkpoints)
            wave.append((opened, first, last))
            opened.next, free, room = last, free - (last - first), room - opened.reduction.result_bytes
            if last < opened.reduction.leaves:
                break
            position, opened = position + 1, None
        began, done = time.monotonic(), sum(last - first for _, first, last in wave)
        executed.tasks += done
        _run_wave(wave, engine, executed, finished, left)
        if checkpoints is not None and done:  # as many leaves as take about the time between checkpoints
            fitting = done / max(time.monotonic() - began, 1e-6) * checkpoints.seconds
            size = max(1.0, min(fitting, _GROWTH * max(done, size)))
        for one, _, last in wave:
            if last == one.reduction.leaves:
                tasks = one.reduction.tasks(last)
                finished, left = finished + tasks, left - tasks
                yield one.finish()
            elif one.saved is not None and one.saved.is_due():
                one.saved.save()


def _wave_end(opened: _Open, free: float, checkpoints: PassCheckpoints | None) -> int:
    """Return where the wave ends in a reduction: at the end of a large node, so that it returns few results."""
    leaves, first = opened.reduction.leaves, opened.next
    if checkpoints is None or free >= leaves - first:
        return leaves
    width = 1
    while width * FAN_IN <= free:
        width *= FAN_IN
    return int(min(leaves, (first // width + 1) * width))


def _run_wave(wave: list[tuple[_Open, int, int]], engine: Engine, executed: Executed, finished: int, left: int) -> None:
    """Compute the nodes of a wave as one graph, and add them to their trees.

    finished, left: the tasks of the reductions that are finished, and of all others.
    """
    done, tasks = sum(one.done for one, _, _ in wave), 0
    wanted: list[tuple[_Open, int, bool]] = []
    graphs: list[Any] = []
    for one, first, last in wave:
        whole = one.saved is None and (first, last) == (0, one.reduction.leaves)
        for level, graph in one.reduction.nodes(first, last, whole):
            wanted.append((one, level, whole))
            graphs.append(graph)
            merged = last - first if whole and one.reduction.combine is not None else FAN_IN**level
            one.done += one.reduction.tasks(merged)
            tasks += one.reduction.tasks(merged)
        if one.reduction.combine is not None and last == one.reduction.leaves:
            executed.tasks += merge_tasks(one.reduction.leaves)
    values = engine.run(graphs, before=finished + done, after=left - done - tasks) if graphs else []
    for (one, level, whole), value in zip(wanted, values, strict=True):
        one.tree.add_whole(value) if whole and one.reduction.combine is not None else one.tree.add(level, value)
