"""Nodes of best-first search, and their children in the search tree of the combined bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.objective.kernels.elimination import BORDERLINE_RATIO
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundProblem, orthonormalised

_Mask = NDArray[np.bool_]

#: Eigendecompositions between two looks at the clock.
_AT_A_TIME = 256


@dataclass(slots=True)
class Node:
    """A subset with l <= f <= u for the best subset of k columns that holds it.

    allowed: in the search tree, the columns that may still be added; None in the graph. terminal: no column can be
    added, so that l = u, as for a node of k columns.
    """

    members: tuple[int, ...]
    l: float
    u: float
    allowed: tuple[int, ...] | None
    terminal: bool = False


def tree_children(problem: BoundProblem, node: Node, q: int, deadline: Deadline | None = None) -> list[Node]:
    """Return a child for each independent column that may be added, largest gain first, with its combined bound.

    A child may only add the columns after its own, so that the tree makes each subset once. q: columns to choose, the
    child's included. Raises OutOfTime at the deadline.
    """
    assert node.allowed is not None
    R = np.asarray(node.allowed, np.int64)
    if not R.size:
        return []
    G, B, f = problem.residual(node.members, R)
    independent = problem.free(node.members, R)
    unreliable = independent & (np.diag(G) <= BORDERLINE_RATIO * problem.floor[R])  # pivots may be rounding
    gain = _gains(problem, node, R, np.diag(G), B, f, independent & ~unreliable, unreliable)
    order = np.argsort(-gain, kind="stable")
    R, gain, G, B = R[order], gain[order], G[np.ix_(order, order)], B[order]
    independent, unreliable = independent[order], unreliable[order]
    lower = f - gain
    if q > 1:
        explained = _explained(problem, R, G, B, gain, q, independent & ~unreliable, deadline)
        lower = np.where(unreliable | ~np.isfinite(explained), node.l, f - explained)
    return [
        Node((*node.members, int(R[i])), max(float(lower[i]), node.l), float(f - gain[i]), tuple(R[i + 1 :].tolist()))
        for i in np.flatnonzero(independent)
    ]


def _gains(
    problem: BoundProblem, node: Node, R: Ints, d: Floats, B: Floats, f: float, reliable: _Mask, unreliable: _Mask
) -> Floats:
    """Return what each column of R (t,) with pivot d (t,) explains alone; 0 if it is dependent."""
    gain = np.where(reliable, np.square(B).sum(axis=1) / np.where(reliable, d, 1.0), 0.0)
    for x in np.flatnonzero(unreliable):
        gain[x] = f - problem.value((*node.members, int(R[x])))
    return gain


def _explained(
    problem: BoundProblem, R: Ints, G: Floats, B: Floats, gain: Floats, q: int, reliable: _Mask,
    deadline: Deadline | None,
) -> Floats:  # fmt: skip
    """Return an upper bound (t,) on what column i of R and q - 1 later columns explain together."""
    Z = orthonormalised(G, B, problem.floor[R], deadline)
    A = np.cumsum((Z[:, :, None] * Z[:, None, :])[::-1], axis=0)[::-1]
    trace: Floats = np.einsum("tii->t", A)
    after = min(q - 1, problem.N)
    if problem.N == 1 or after >= problem.N or not np.isfinite(trace).all():
        return trace
    w = B / np.sqrt(np.where(reliable, np.diag(G), 1.0))[:, None]
    explained = np.empty(R.size)
    for start in range(0, R.size, _AT_A_TIME):
        if deadline is not None:
            deadline.require()
        part = slice(start, start + _AT_A_TIME)
        values = np.linalg.eigvalsh(A[part] - w[part, :, None] * w[part, None, :])[:, problem.N - after :]
        explained[part] = np.maximum(values, 0.0).sum(axis=1)
    return np.asarray(np.minimum(trace, gain + explained))
