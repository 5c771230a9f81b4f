"""Best-first search over subsets, optimal, weighted or greedy.

Source: Wan, Schweitzer, "Heuristic search algorithms for approximating one matrix in terms of another matrix", AAAI
2021, Figure 2. Each node S has an upper bound u = f(S) and a lower bound l on the best subset of k columns that holds
it; the node of least l + gamma u comes first, of equal ones the larger, and a child is closed as soon as it is made.
gamma = 0 is optimal (Theorem 1), gamma = inf takes f = u and is greedy (Theorem 2), what lies between ends within
gamma (u_max - l**) of the optimum (Theorem 6). Y = X gives the A* and weighted A* of Arai et al. (AAAI 2015 and 2016).

With `epsilon` f = l (1 + epsilon q / k), q columns being to go, and the answer is at most 1 + epsilon times the
optimum: dynamic weighting (Pohl, "The avoidance of (relative) catastrophe, heuristic competence, genuine dynamic
weighting and computational issues in heuristic problem solving", IJCAI 1973). Some subset of a best one waits in the
fringe; its f is at most 1 + epsilon times its l, and the answer's f, which is its error, came first.

bound "eigenvalue" is the paper's l. "combined" is a search tree instead of a graph: a node also has
the columns that may still be added, so that each subset is made once and its bound knows what is left.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.blas import one_blas_thread
from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.objective.kernels.elimination import STEEP_RATIO
from dsel.search.exact.base import CONTRADICTION, ExactSearch, check_saved
from dsel.search.exact.bounds import BoundProblem, orthonormalised
from dsel.search.exact.branch_and_bound import MARGIN
from dsel.search.exact.projection import project_out
from dsel.search.exact.reduced_problem import Children, ReducedProblem
from dsel.search.exact.secular_equation import downdated

log = logging.getLogger("dsel")

AStarBound = Literal["eigenvalue", "combined"]

#: A node in the fringe with its place in the closed list takes about so many bytes, and one for every column.
_NODE_BYTES = 450
#: Up to so many columns a closed subset is kept as bits, else as its members.
_MOST_BITS = 2048
#: With so many columns at most several threads cost more than they bring.
_SMALL = 512

_Allowed = tuple[int, ...] | None


@dataclass(slots=True)
class _Node:
    members: tuple[int, ...]
    l: float
    u: float
    allowed: _Allowed
    terminal: bool = False  # no column is left to add: l = u, like a node of k columns


#: f, the larger the first, the sooner made the first.
_Entry = tuple[float, int, int, _Node]


class AStar(ExactSearch):
    """The search; `advance` goes on, everything can be read between two calls.

    objective: over n candidate columns. k: so many of them, or fewer where fewer are independent. gamma: weight of
    u; math.inf means f = u. epsilon: how far above the optimum the answer may be, as a share of it, instead.
    incumbent: a subset found elsewhere: nodes that cannot be better leave the fringe (which changes nothing of the
    answer for gamma = 0). target_gram: Y'Y, see dsel.search.exact.reduced_problem. memory_limit: bytes for the fringe
    and the closed list, at which the search stops.

    contradicted: a subset was found that is better than the l of a node that holds it: nothing is proved then.
    """

    kind = "astar"

    def __init__(
        self,
        objective: Objective,
        k: int,
        *,
        gamma: float = 0.0,
        epsilon: float = 0.0,
        bound: AStarBound = "eigenvalue",
        incumbent: Iterable[int] | None = None,
        target_gram: Floats | None = None,
        memory_limit: int = 4 << 30,
    ) -> None:
        super().__init__(objective, k, bound)
        if not gamma >= 0.0:
            raise OptionError(f"gamma is {gamma}; the weight of u is a number >= 0, or inf for f = u.")
        if not 0.0 <= epsilon < math.inf:
            raise OptionError(f"epsilon is {epsilon}; the answer's share above the optimum is a finite number >= 0.")
        if gamma > 0.0 and epsilon > 0.0:
            raise OptionError("gamma and epsilon are two ways to weight the search.", "Leave one of them out.")
        if bound not in ("eigenvalue", "combined"):
            raise OptionError(f"There is no bound {bound!r}.", "eigenvalue or combined.")
        self.gamma, self.epsilon = gamma, epsilon
        self._reduced = self._reduce(target_gram) if bound == "eigenvalue" else None
        self._problem = BoundProblem.of(objective) if self._reduced is None else _without_targets(objective)
        self._most_nodes = max(memory_limit // (_NODE_BYTES + min(objective.n, _MOST_BITS) // 8), 1)
        self._margin = MARGIN * objective.c
        self._fringe: list[_Entry] = []
        self._closed: set[int | tuple[int, ...]] = set()
        self._made = 0
        self._expanded = 0
        self._pruned = math.inf
        self._prune = incumbent is not None
        self.contradicted = False
        if incumbent is not None:
            self.offer(incumbent)
        self.goal: tuple[int, ...] | None = None
        self.memory_full = False
        if self._reduced is not None:
            l, u = self._reduced.root(k)
            root = _Node((), l, u, None)
        else:
            assert self._problem is not None
            everything = tuple(range(objective.n))
            root = _Node((), self._problem.bound((), everything, k), objective.c, everything)
        self._push(root)
        self._compare(root)

    def _reduce(self, target_gram: Floats | None) -> ReducedProblem:
        return ReducedProblem.of(self.objective, target_gram)

    def _weighted(self, l: Any, u: Any, size: int) -> Any:
        """f of a node of so many members, or of some."""
        if self.gamma == math.inf:
            return u
        if self.epsilon > 0.0:
            l = l * (1.0 + self.epsilon * (self.k - size) / self.k)
        return l + self.gamma * u if self.gamma > 0.0 else l

    def _entry(self, node: _Node, made: int) -> _Entry:
        size = len(node.members)
        return self._weighted(node.l, node.u, size), -size, made, node

    def _push(self, node: _Node) -> None:
        self._made += 1
        heapq.heappush(self._fringe, self._entry(node, self._made))

    def _children_of(self, node: _Node, q: int, reduced: ReducedProblem) -> Children:
        """Return the children with the bounds of Theorem 4; near dependence the errors are the objective's."""
        found = reduced.children(node.members, q, self._problem)
        if self._problem is None:
            return found
        for x in np.flatnonzero(found.unreliable):
            found.u[x] = self.objective.value((*node.members, int(found.columns[x])))
            found.l[x] = found.u[x] if q == 1 else min(node.l, found.u[x])
        return found

    @property
    def iteration(self) -> int:
        """Nodes expanded."""
        return self._expanded

    @property
    def done(self) -> bool:
        """Whether the search has its answer."""
        return self.goal is not None or not self._fringe

    @property
    def answer(self) -> tuple[int, ...]:
        """The subset the search stopped at; while it has not, and where pruning left none, the best one seen."""
        return self.best if self.goal is None else self.goal

    @property
    def lower(self) -> float:
        """No subset of at most k columns has an f below this: the least l of the fringe (eq. 12), or the best value."""
        if self.contradicted:
            return 0.0
        waiting = min((entry[3].l for entry in self._fringe), default=math.inf)
        return max(min(waiting, self._pruned, self.best_value), 0.0)

    @property
    def suboptimality(self) -> float:
        """b of eq. (12): the answer's f is at most so much above the optimum."""
        return max(self.objective.value(self.answer) - self.lower, 0.0)

    @property
    def u_max(self) -> float:
        """Largest u left in the fringe (Theorem 6)."""
        return max((entry[3].u for entry in self._fringe), default=0.0)

    @property
    def made(self) -> int:
        """Nodes put into the fringe."""
        return self._made

    def warm_up(self) -> None:
        """Compile what `advance` needs, the first time on a machine."""
        downdated(np.ones(1), np.zeros((1, 1)), 1)
        one = np.ones((1, 1))
        project_out(one, one, one, np.zeros(1, np.int64), one[0], np.empty(1), np.empty((1, 1)), np.empty((1, 1)))
        if self._problem is not None:
            self._problem.value((0,))

    def advance(self, until: int, target: float | None = None) -> bool:
        """Go on until so many nodes were expanded; True when done, out of memory, or f <= target."""
        with one_blas_thread() if self.objective.n <= _SMALL else nullcontext():
            return self._advance(until, target)

    def _advance(self, until: int, target: float | None) -> bool:
        while not self.done and not self.memory_full:
            if target is not None and self.best_value <= target:
                return True
            if self.iteration >= until:
                return False
            self._step()
        return True

    def _step(self) -> None:
        """Lines 2 to 12 of Figure 2."""
        node = heapq.heappop(self._fringe)[3]
        if self._cannot_be_better(node):
            return
        if len(node.members) == self.k or node.terminal:
            self._finish(node)
            return
        self._expanded += 1
        before = self.best_value
        children = self._children(node)
        if self.best_value < before:
            self._compare(node)
        if children is None:
            self._push(_Node(node.members, node.u, node.u, (), terminal=True))
            return
        for child in children:
            self._push(child)
        self.memory_full = max(len(self._closed), len(self._fringe)) > self._most_nodes

    def _compare(self, node: _Node) -> None:
        """Note where the best subset, which this node holds, is better than the node's l allows."""
        if self.best_value < node.l - CONTRADICTION * self.objective.c and not self.contradicted:
            self.contradicted = True
            log.warning("a subset is better than the bound allows (%g, not %g): no proof", self.best_value, node.l)

    def _cannot_be_better(self, node: _Node) -> bool:
        """With an incumbent: whether nothing below this node beats the best subset seen."""
        if not self._prune or not node.l >= self.best_value - self._margin:
            return False
        self._pruned = min(self._pruned, node.l)
        return True

    def _may_be_better(self, l: Floats) -> NDArray[np.bool_]:
        """(t,) with an incumbent: below which of nodes of these l there may be better than the best subset seen."""
        if not self._prune:
            return np.ones(l.size, np.bool_)
        better = ~(l >= self.best_value - self._margin)
        self._pruned = min(self._pruned, float(l[~better].min(initial=math.inf)))
        return np.asarray(better)

    def _see(self, members: tuple[int, ...], columns: Ints, u: Floats) -> None:
        """Take the best child of a node with these members as the best subset, if it is."""
        best = int(u.argmin())
        if u[best] < self.best_value:
            self.offer((*members, int(columns[best])))

    def _finish(self, node: _Node) -> None:
        self.goal = tuple(sorted(node.members))
        self.offer(self.goal)
        self._push(node)  # its own l counts among the fringe's

    def _children(self, node: _Node) -> list[_Node] | None:
        """The new children, None where no column can be added."""
        q = self.k - len(node.members)
        if self._reduced is not None:
            return self._in_the_graph(node, q, self._reduced)
        assert self._problem is not None
        children = in_the_tree(self._problem, node, q)
        if not children:
            return None
        best = min(children, key=lambda child: child.u)
        if best.u < self.best_value:
            self.offer(best.members)
        return [child for child in children if not self._cannot_be_better(child)]

    def _in_the_graph(self, node: _Node, q: int, reduced: ReducedProblem) -> list[_Node] | None:
        """Children that are not closed yet; they are closed now, those that cannot be better, too."""
        found = self._children_of(node, q, reduced)
        if not found.columns.size:
            return None
        members, closed = node.members, self._closed
        self._see(members, found.columns, found.u)
        lower = np.fmax(found.l, node.l)  # what is not a number says nothing
        may = self._may_be_better(lower)
        mask = sum(1 << j for j in members) if self.objective.n <= _MOST_BITS else None
        children = []
        values = (array.tolist() for array in (found.columns, lower, found.u, may))
        for j, l, u, make in zip(*values, strict=True):
            key = mask | 1 << j if mask is not None else tuple(sorted((*members, j)))
            if key not in closed:
                closed.add(key)
                if make:
                    children.append(_Node((*members, j), l, u, None))
        return children

    def state(self) -> dict[str, Any]:
        """All that `restore` needs, as JSON would hold it. The closed list is made of the fringe's ancestors and kept
        whole."""
        fringe = [
            [node.l, node.u, list(node.members), node.allowed, made, node.terminal] for _, _, made, node in self._fringe
        ]
        return {
            **self._shared_state(), "gamma": "inf" if math.isinf(self.gamma) else self.gamma,
            "epsilon": self.epsilon, "expanded": self._expanded, "made": self._made, "prune": self._prune,
            "pruned": None if math.isinf(self._pruned) else self._pruned, "fringe": fringe,
            "contradicted": self.contradicted,
            "goal": None if self.goal is None else list(self.goal),
            "closed": [format(key, "x") if isinstance(key, int) else list(key) for key in self._closed],
        }  # fmt: skip

    @classmethod
    def restore(
        cls,
        objective: Objective,
        state: dict[str, Any],
        *,
        target_gram: Floats | None = None,
        memory_limit: int = 4 << 30,
    ) -> AStar:
        """The search as it was when `state` was taken: it goes on with the same nodes."""
        check_saved(objective, state)
        search = cls(
            objective, state["k"], gamma=float(state["gamma"]), epsilon=state.get("epsilon", 0.0), bound=state["bound"],
            target_gram=target_gram, incumbent=state["best"] if state["prune"] else None,
            memory_limit=memory_limit,
        )  # fmt: skip
        search._take_shared(state)
        search._fringe = []
        for l, u, members, allowed, made, terminal in state["fringe"]:
            node = _Node(tuple(members), l, u, None if allowed is None else tuple(allowed), terminal)
            search._fringe.append(search._entry(node, made))
        heapq.heapify(search._fringe)
        search._closed = {int(key, 16) if isinstance(key, str) else tuple(key) for key in state["closed"]}
        search._expanded, search._made = state["expanded"], state["made"]
        search.contradicted = search.contradicted or state.get("contradicted", False)
        search._pruned = math.inf if state["pruned"] is None else state["pruned"]
        search.goal = None if state["goal"] is None else tuple(state["goal"])
        return search


def _without_targets(objective: Objective) -> BoundProblem | None:
    """What dependence is judged by; None where rows of K come on demand, and W does it."""
    if not objective.has_gram:
        return None
    K = objective.K + objective.lam * np.eye(objective.n)
    return BoundProblem(K, np.zeros((objective.n, 0)), objective.c, objective.floor)


def in_the_tree(problem: BoundProblem, node: _Node, q: int) -> list[_Node]:
    """Each column that may be added, with those after it left to add: the child's own combined bound."""
    assert node.allowed is not None
    R = np.asarray(node.allowed, np.int64)
    if not R.size:
        return []
    G, B, f = problem.residual(node.members, R)
    d = np.diag(G)
    independent = problem.free(node.members, R)
    steep = independent & (d <= STEEP_RATIO * problem.floor[R])  # d may be rounding
    sound = independent & ~steep
    gain = np.where(sound, np.square(B).sum(axis=1) / np.where(sound, d, 1.0), 0.0)
    for x in np.flatnonzero(steep):
        gain[x] = f - problem.value((*node.members, int(R[x])))
    order = np.argsort(-gain, kind="stable")
    R, gain = R[order], gain[order]
    independent, steep, sound = independent[order], steep[order], sound[order]
    G, B = G[np.ix_(order, order)], B[order]
    lower = f - gain
    if q > 1:
        Z = orthonormalised(G, B, problem.floor[R])
        A = np.cumsum((Z[:, :, None] * Z[:, None, :])[::-1], axis=0)[::-1]
        trace = np.einsum("tii->t", A)
        after = min(q - 1, problem.N)
        if problem.N == 1 or after >= problem.N or not np.isfinite(trace).all():
            explained = trace
        else:
            w = B / np.sqrt(np.where(sound, d[order], 1.0))[:, None]
            values = np.linalg.eigvalsh(A - w[:, :, None] * w[:, None, :])[:, problem.N - after :]
            explained = np.minimum(trace, gain + np.maximum(values, 0.0).sum(axis=1))
        lower = np.where(steep | ~np.isfinite(explained), node.l, f - explained)
    return [
        _Node((*node.members, int(R[i])), max(float(lower[i]), node.l), float(f - gain[i]), tuple(R[i + 1 :].tolist()))
        for i in np.flatnonzero(independent)
    ]
