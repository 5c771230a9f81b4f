"""What a tree of relaxations leaves to the same proof on other data, as arrays of bounded size.

It is the advice of `dsel.search.exact.perspective.node` for each node. All nodes are bounded again on the new data
(`dsel.search.exact.perspective.rebound`), whatever changed: only how long the proof takes depends on that. Columns of
norm 1 are other columns when rows are added, so coefficients are saved with the norms, and rescaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.search.exact.perspective.node import CachedRelaxation, Node, Path, WarmStart
from dsel.search.exact.perspective.rebound import GONE, INNER, rebound
from dsel.search.exact.perspective.relaxation import SMALLEST, Problem

#: Of the largest diagonal that keeps K - D positive semidefinite, the share that is used.
_INSIDE = 1.0 - 1e-6
#: Bytes of a node besides its coefficients.
_NODE_BYTES = 16
#: Open nodes that the kernel returns at a time.
_ROWS = 1024
_NO_COLUMNS = np.zeros(0, np.int64)


def as_arrays(
    advice: WarmStart, norms: Floats, most_bytes: int, seconds: float, learned: list[float], *, finished: bool = True
) -> dict[str, Any]:  # fmt: skip
    """Return the advice of a tree as arrays.

    seconds: about how long the last tree took that followed none. finished: whether it was. norms (n,): of the columns,
    whose coefficients are for norm 1. most_bytes: nodes far from the root are left out if there would be more.
    learned: by its subtree solver.
    """
    known = _whole(advice)
    sizes = np.cumsum([_NODE_BYTES + 4 * (found.support.size + found.b.size) for _, found in known])
    known = known[: int(np.searchsorted(sizes, most_bytes - 24 * norms.size, side="right"))]
    known.sort(key=lambda item: item[0])  # a node comes after its parent, and before its siblings
    targets = next((found.b.reshape(found.support.size, -1).shape[1] for _, found in known if found.support.size), 1)
    rows = [found.b.reshape(found.support.size, targets) for _, found in known]
    with np.errstate(over="ignore"):  # what is infinite is not used
        b = np.concatenate([np.zeros((0, targets)), *rows]).astype(np.float32)
    return {
        "k": np.int64(advice.k), "seconds": np.float64(seconds), "d": advice.d, "norms": norms,
        "learned": np.asarray(learned, np.float64), "finished": np.bool_(finished),
        "depth": np.asarray([len(path) for path, _ in known], np.int32),
        "step": np.asarray([path[-1] if path else 0 for path, _ in known], np.int32),
        "column": np.asarray([advice.column(path) for path, _ in known], np.int32),
        "support_sizes": np.asarray([found.support.size for _, found in known], np.int32),
        "support": np.concatenate([_NO_COLUMNS, *(found.support for _, found in known)]).astype(np.int32),
        "b": b,
    }  # fmt: skip


def _whole(advice: WarmStart) -> list[tuple[tuple[int, ...], CachedRelaxation]]:
    """Return the nodes below a node that was split at their column, and the root, those near the root first."""
    found: dict[Path, CachedRelaxation] = {}
    for path in sorted((path for path in advice.known if path is not None), key=len):
        if not path or (path[:-1] in found and advice.column(path[:-1]) == abs(path[-1]) - 1):
            found[path] = advice.known[path]
    return [(path, known) for path, known in found.items() if path is not None]


def nodes_of(saved: Mapping[str, Any], dimensions: int) -> Iterator[tuple[Path, int, CachedRelaxation]]:
    """Yield the path of each node, the column that it was split at or -1, and its coefficients.

    dimensions: of the coefficients, 1 for one target.
    """
    path, ends, k = list[int](), np.cumsum(saved["support_sizes"]).tolist(), int(saved["k"])
    numbers = (saved[name].tolist() for name in ("depth", "step", "column", "support_sizes"))
    for depth, step, column, size, end in zip(*numbers, ends, strict=True):
        del path[max(depth - 1, 0) :]
        path += [step] * (depth > 0)
        b = saved["b"][end - size : end].astype(np.float64)
        support = saved["support"][end - size : end].astype(np.int64)
        yield tuple(path), column, CachedRelaxation(k, support, b[:, 0] if dimensions == 1 else b)


@dataclass
class KeptTree:
    """The tree that `as_arrays` wrote, for other columns.

    d (n,): the diagonal of its relaxations. seconds: about how long the last tree took that followed none, or so far,
    if that is not finished. learned: see
    `SubtreeSolver`. nodes, support, values: see `rebound`. checked: how many leaves were bounded again. searched: how
    many of these are no leaves any more.
    """

    k: int
    d: Floats
    seconds: float
    learned: list[float]
    nodes: Ints
    support: Ints
    values: Floats
    finished: bool = True
    checked: int = 0
    searched: int = 0
    _open: set[Path] = field(default_factory=set)

    @classmethod
    def of(cls, saved: Mapping[str, Any], k: int, K: Floats, c: Floats, norms: Floats) -> KeptTree:
        """Return the tree for other columns. Raises ValueError if nothing can follow it.

        k: the most columns. K (n, n), c (n,) or (n, N): see `Problem`. norms (n,): of the columns,
        which have norm 1 in K.
        """
        if saved["b"].shape[1] != c.reshape(norms.size, -1).shape[1]:
            raise ValueError("the saved tree has another number of targets")
        support, ends = saved["support"].astype(np.int64), np.cumsum(saved["support_sizes"], dtype=np.int64)
        children = _kept_children(*(saved[name].tolist() for name in ("depth", "step", "column")))
        inside = all(((x >= 0) & (x < norms.size)).all() for x in (support, np.abs(saved["step"][1:]) - 1))
        if not (inside and int(saved["support_sizes"].min(initial=0)) >= 0 and int(saved["k"]) == k):
            raise ValueError("the saved tree does not fit the columns")
        if ends.size and not support.size == saved["b"].shape[0] == int(ends[-1]):
            raise ValueError("the saved tree does not fit its coefficients")
        columns = (saved["depth"], saved["step"], saved["column"], children, ends - saved["support_sizes"], ends)
        values = saved["b"].astype(np.float64) * (norms / saved["norms"])[support][:, None]
        values[~np.isfinite(values)] = 0.0  # too large for single precision; a bound of them would be no number
        return cls(
            k, feasible(K, np.asarray(saved["d"], np.float64)), float(saved["seconds"]),
            saved["learned"].tolist(), np.ascontiguousarray(np.stack(columns, axis=1), np.int64), support,
            values, bool(saved["finished"]),
        )  # fmt: skip

    @property
    def known_root(self) -> bool:
        """Whether it has more than a diagonal."""
        return bool(self.nodes.shape[0])

    def open_nodes(self, problem: Problem, enough: float, record: WarmStart) -> Iterator[tuple[float, Node]]:
        """Bound all nodes, and yield those that must be searched, each with what its subsets explain at most.

        enough: nodes that explain at most this are excluded. record: gets the advice of the nodes that are left.
        """
        n, c = problem.n, np.ascontiguousarray(problem.c.reshape(problem.n, -1))
        nodes, count = self.nodes.copy(), self.nodes.shape[0]
        bounds, states = np.empty(count), np.empty(count, np.int64)
        support = np.zeros(2 * self.support.size + 100 * n, np.int64)  # of improved coefficients
        support[0] = 1
        values = np.empty((support.size, c.shape[1]))
        opened, masks, opened_bounds = (
            np.zeros((_ROWS, 2), np.int64),
            np.zeros((2, _ROWS, n), np.bool_),
            np.empty(_ROWS),
        )
        by_depth = np.zeros((2, int(nodes[:, 0].max()) + 1, n), np.bool_)
        done, path = 0, list[int]()
        while done < count:
            first, paths = done, list[Path]()
            done = rebound(
                np.ascontiguousarray(problem.K), c, problem.d, self.k, enough, nodes, self.support, self.values,
                by_depth, bounds, states, support, values, opened, masks, opened_bounds, first,
            )  # fmt: skip
            for i, (depth, step, column, _, begin, end) in enumerate(nodes[first:done].tolist(), first):
                del path[max(depth - 1, 0) :]
                path += [step] * (depth > 0)
                paths.append(tuple(path))
                self.checked += column < 0
                if states[i] == GONE:
                    continue
                own = slice(begin, end) if begin >= 0 else slice(-begin, -end)
                S, b = (self.support[own], self.values[own]) if begin >= 0 else (support[own], values[own])
                record.keep(paths[-1], CachedRelaxation(self.k, S, b[:, 0] if problem.c.ndim == 1 else b))
                if states[i] == INNER:
                    record.branched(paths[-1], column)
            for row in range(1, int(opened[0, 0])):
                i, step = opened[row].tolist()
                parent = paths[i - first]
                path_to = parent if step == 0 else (*(parent or ()), step)
                known = record.known[parent]
                fixed, out = np.packbits(masks[0, row]).tobytes(), np.packbits(masks[1, row]).tobytes()
                if step == 0 and nodes[i, 2] < 0:
                    self._open.add(path_to)
                record.keep(path_to, known)
                yield float(opened_bounds[row]), Node(fixed, out, known.support, known.b, path=path_to)

    def split(self, path: Path) -> None:
        """Count a node that is split: it may be a leaf of this tree."""
        self.searched += path in self._open


def _kept_children(depths: Sequence[int], steps: Sequence[int], columns: Sequence[int]) -> Ints:
    """Return which children each node has: 1 for that with its column, 2 for that without, 3 for both.

    Raises ValueError if the nodes are not those of one tree in the order of a walk: the children of a node hold all of
    its subsets only if they are split at its column.
    """
    children, above = np.zeros(len(depths), np.int64), list[int]()
    for i, (depth, step) in enumerate(zip(depths, steps, strict=True)):
        fits = depth == 0 if i == 0 else 0 < depth <= len(above)
        if not (fits and (depth == 0 or abs(step) - 1 == columns[above[depth - 1]])):
            raise ValueError("the nodes of the saved tree are not those of a tree")
        del above[depth:]
        above.append(i)
        if depth:
            children[above[depth - 1]] |= 1 if step > 0 else 2
    return children


def feasible(K: Floats, d: Floats) -> Floats:
    """Return the largest multiple of a diagonal (n,) for which K - D is positive semidefinite. O(n^3)."""
    if d.shape != K.shape[:1] or not (np.isfinite(d).all() and d.min() > 0.0):
        raise ValueError("the diagonal of the saved tree does not fit the columns")
    root = np.sqrt(d)
    M = K / np.outer(root, root)
    most = scipy.linalg.eigh(M, eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0]
    rounding = d.size * np.finfo(np.float64).eps * np.linalg.norm(M)  # of the least eigenvalue, by the largest one
    found = np.asarray(_INSIDE * float(most - rounding) * d)
    if not found.min() >= SMALLEST:
        raise ValueError("columns are nearly dependent")
    return found
