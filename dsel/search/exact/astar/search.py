"""Best-first search over subsets: optimal, weighted or greedy (A*).

Source: Wan, Schweitzer, "Heuristic search algorithms for approximating one matrix in terms of another matrix", AAAI
2021, Figure 2. Each node S has an upper bound u = f(S) and a lower bound l on the best subset of k columns that holds
it. The node of least l + gamma u comes first, and the larger one of equal nodes. A child is closed when it is made.
gamma = 0 is optimal (Theorem 1), and gamma = inf takes f = u and is greedy (Theorem 2). In between, the answer is
within gamma (u_max - l**) of the optimum (Theorem 6). Y = X gives A* and weighted A* of Arai et al. (AAAI 2015, 2016).

With `epsilon`, f = l (1 + epsilon q / k) for q columns to choose, and the answer is at most 1 + epsilon times the
optimum. This is dynamic weighting (Pohl, "The avoidance of (relative) catastrophe, heuristic competence, genuine
dynamic weighting and computational issues in heuristic problem solving", IJCAI 1973). The proof: the fringe holds some
subset of a best one; its f is at most 1 + epsilon times its l; and the answer's f, which is its error, came first.

The bound "eigenvalue" is the l of the paper, on the graph of all subsets. The bound "combined" searches a tree: a node
also has the columns that may still be added, so that each subset is made once and its bound knows what is left.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Ints
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.astar.projection import project_out
from dsel.search.exact.astar.reduced_problem import Children, Node, ReducedProblem, tree_children
from dsel.search.exact.astar.secular_equation import downdated
from dsel.search.exact.bounds import BoundProblem, penalized
from dsel.search.exact.exact_search import ExactSearch, check_saved
from dsel.search.exact.guarantee import Guarantee, Limits

AStarBound = Literal["eigenvalue", "combined"]

#: Bytes of a node in the fringe and its entry in the closed list, about; plus one bit for each column.
_NODE_BYTES = 450
#: Up to this many columns, the closed list holds a subset as bits, else as its members.
_MAX_BITS = 2048
#: Elements of a Gram matrix of at least this many columns that an elimination of the tree's bound changes in a second.
_ELEMENTS_PER_SECOND, _MANY = 4e8, 1000
#: Seconds after the deadline in which the first node may be completed.
_COMPLETION_SECONDS = 0.5

#: f, minus the size (larger nodes first), number in the order of making, node.
_Entry = tuple[float, int, int, Node]


@dataclass(frozen=True)
class Expand:
    """Computes the children of a node: the bounds of all of them in the graph, or the nodes themselves in the tree.

    The result depends on the node alone, so any process may compute it.
    """

    reduced: ReducedProblem | None
    problem: BoundProblem | None

    def __call__(self, node: Node, q: int, deadline: Deadline | None = None) -> Children | list[Node]:
        """Return the children of a node with q columns to choose. Raises OutOfTime in the tree, at the deadline."""
        if self.reduced is not None:
            return self.reduced.children(node.members, q, self.problem)
        assert self.problem is not None
        return tree_children(self.problem, node, q, deadline)


class AStar(ExactSearch):
    """Best-first search, which can be read, saved and continued between two calls of `advance`.

    Parameters
    ----------
    objective : Objective
        f over n candidate columns.
    k : int
        How many columns to choose; fewer if fewer are independent.
    gamma : float
        Weight of u; inf means f = u.
    epsilon : float
        The answer may be above the optimum by this share. It replaces `gamma`.
    bound : {"eigenvalue", "combined"}
        The lower bound l.
    incumbent : iterable of int, optional
        A known subset. Nodes that cannot be better are pruned, which does not change the answer if gamma = 0.
    target_gram : (N, N) array, optional
        Y'Y. With it, l is the published bound. By default it is that of the objective if gamma is above 0 and finite,
        where the answer depends on l.
    memory_limit : int
        Bytes for the fringe and the closed list, at which the search stops.
    deadline : Deadline, optional
        OutOfTime is raised if the first bound would take longer. A node that takes longer stays open, and no other one
        is expanded.
    """

    kind = "astar"

    def __init__(
        self, objective: Objective, k: int, *, gamma: float = 0.0, epsilon: float = 0.0,
        bound: AStarBound = "eigenvalue", incumbent: Iterable[int] | None = None, target_gram: Floats | None = None,
        memory_limit: int = 4 << 30, deadline: Deadline | None = None,
    ) -> None:  # fmt: skip
        super().__init__(objective, k, bound, deadline)
        self.gamma, self.epsilon = gamma, epsilon
        self._reduced = self._reduce(target_gram) if bound == "eigenvalue" else None
        if self._reduced is None:
            self._problem: BoundProblem | None = BoundProblem.of(objective, deadline=self.deadline)
        else:
            self._problem = _without_targets(objective)
        self._max_nodes = max(memory_limit // (_NODE_BYTES + min(objective.n, _MAX_BITS) // 8), 1)
        self._margin = MARGIN * objective.c
        self._fringe: list[_Entry] = []
        self._closed: set[int | tuple[int, ...]] = set()
        self.made = 0
        self._expanded = 0
        self._sharpened = 0.0
        self._pruned = math.inf
        self._prune = incumbent is not None
        if incumbent is not None:
            self.offer(incumbent)
        self.goal: tuple[int, ...] | None = None
        self.memory_full = False
        #: Nodes that are expanded ahead of the search by their members, with the result once it is there.
        self.ahead: dict[tuple[int, ...], tuple[_Entry, Children | list[Node] | None]] | None = None
        self.unsent: list[_Entry] = []
        self.expand = Expand(self._reduced, self._problem)
        root = self._root()
        self._push(root)
        self._check_claim(root.l)
        self._know_guarantee()

    def _reduce(self, target_gram: Floats | None) -> ReducedProblem:
        if target_gram is None and 0.0 < self.gamma < math.inf and self.objective.cross is not None:
            target_gram = self.objective.target_gram
        return ReducedProblem.of(self.objective, target_gram, self.deadline)

    def _root(self) -> Node:
        if self._reduced is not None:
            return Node((), *self._reduced.root(self.k), None)
        assert self._problem is not None
        everything = tuple(range(self.objective.n))
        return Node((), self._problem.bound((), everything, self.k), self.objective.c, everything)

    def _weighted(self, l: Any, u: Any, size: int) -> Any:
        """Return f of one or several nodes of this size."""
        if self.gamma == math.inf:
            return u
        if self.epsilon > 0.0:
            l = l * (1.0 + self.epsilon * (self.k - size) / self.k)
        return l + self.gamma * u if self.gamma > 0.0 else l

    def _entry(self, node: Node, made: int) -> _Entry:
        size = len(node.members)
        return self._weighted(node.l, node.u, size), -size, made, node

    def _push(self, node: Node) -> None:
        self.made += 1
        heapq.heappush(self._fringe, entry := self._entry(node, self.made))
        if self.ahead is not None:
            heapq.heappush(self.unsent, entry)

    @property
    def iteration(self) -> int:
        """The number of expanded nodes."""
        return self._expanded

    @property
    def done(self) -> bool:
        """Whether the search has its answer."""
        return self.goal is not None or not self._fringe

    #: Why it has ended, once the goal is found.
    end = "goal"

    @property
    def answer(self) -> tuple[int, ...]:
        """The goal; the best subset so far if there is no goal yet, or pruning left none."""
        return self.best if self.goal is None else self.goal

    @property
    def answer_value(self) -> float:
        """f of the answer. By a weight, a subset on the way to the goal can be better."""
        return self.best_value if self.goal is None else float(self.objective.value(self.goal))

    @property
    def lower(self) -> float:
        """A proved lower bound on f of all subsets of at most k columns: by eq. (12), or what is sharper."""
        if self.contradicted:
            return 0.0
        waiting = min((entry[3].l for entry in self._fringe), default=math.inf)
        weighted = self.best_value - self.weighted_suboptimality - self._margin
        return max(min(max(waiting, weighted), self._pruned, self.best_value), self._sharpened, 0.0)

    @property
    def weighted_suboptimality(self) -> float:
        """What the weight of the search guarantees: f of the answer is above the optimum by at most this.

        gamma (u_max - l**) of Theorem 6, or the share epsilon. It is inf without an answer, and for gamma = inf.
        """
        if self.goal is None or math.isinf(self.gamma):
            return math.inf
        value = self.objective.value(self.goal)
        if self.epsilon > 0.0:
            return value * self.epsilon / (1.0 + self.epsilon)
        return self.gamma * max(self._most_waiting() - value, 0.0) if self.gamma > 0.0 else 0.0

    def _most_waiting(self) -> float:
        """Return the largest u of the fringe."""
        return max((entry[3].u for entry in self._fringe), default=0.0)

    def sharpen(self, most: int = 2000) -> None:
        """Raise `lower` by bounding first nodes of the fringe again, without the targets' part that no column explains.

        Nodes keep the published l, which decides on their order. O(r^3) for each of at most `most` nodes.
        """
        if self._reduced is None or not self._reduced.whole_targets or self.contradicted:
            return
        sharp = ReducedProblem.of(self.objective)
        least, left = math.inf, most
        for node in sorted((entry[3] for entry in self._fringe), key=lambda node: node.l):
            if node.l >= least or not left:
                least = min(least, node.l)
                break
            least = min(least, max(node.l, sharp.bound(node.members, self.k - len(node.members))))
            left -= 1
        self._sharpened = min(least, self._pruned, self.best_value)

    def complete(self, deadline: Deadline | None = None) -> None:
        """Add columns to the first node of the fringe one by one, each time the best one, and offer the result.

        Where a step takes long, nothing is offered once the deadline has passed by half a second.
        """
        if not self._fringe:
            return
        node = self._fringe[0][3]
        members, before = node.members, len(node.members) - 1
        while before < len(members) < self.k:
            before = len(members)
            members = self._with_best_column(members)
            if deadline is not None and deadline.overdue > _COMPLETION_SECONDS:
                return
        self.offer(members)

    def _with_best_column(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """Return the subset with the column that lowers f most, or as it is if none can be added."""
        q = self.k - len(members)
        if self._reduced is not None:
            node = Node(members, 0.0, 0.0, None)
            found = self._reliable(self._reduced.children(members, q, self._problem), node, q)
            return (*members, int(found.columns[int(found.u.argmin())])) if found.columns.size else members
        assert self._problem is not None
        free = tuple(j for j in range(self.objective.n) if j not in members)
        children = tree_children(self._problem, Node(members, 0.0, self.objective.value(members), free), 1)
        return min(children, key=lambda child: child.u).members if children else members

    @cached_property
    def guarantee(self) -> Guarantee:
        """What rounding, the dependence tolerance and directions that W lacks may hide.

        A subset may lie by a share of `error` outside the directions of W, and gain there at most twice the product of
        what it explains inside and outside, because the two parts of a unit vector add.
        """
        if self._reduced is None:
            return super().guarantee
        found = Limits(self.objective).guarantee(self.k, self.k + self._reduced.rank, self.deadline)
        lost = self._reduced.lost / self.total
        error = found.error + 2.0 * math.sqrt(self.k * found.error * lost) + lost
        return replace(found, error=min(error, 1.0))

    def node_seconds(self) -> float:
        """Return about how long the first node takes; 0 if that is no concern."""
        if self._reduced is not None or self._problem is None or self.objective.n < _MANY:
            return 0.0
        return self.objective.n**3 / 3.0 / _ELEMENTS_PER_SECOND

    @property
    def suboptimality(self) -> float:
        """b of eq. (12): f of the answer is above the optimum by at most this."""
        return max(self.answer_value - self.proved, 0.0)

    def warm_up(self) -> None:
        """Compile what `advance` needs, the first time on a machine."""
        downdated(np.ones(1), np.zeros((1, 1)), 1)
        one = np.ones((1, 1))
        project_out(one, one, one, np.zeros(1, np.int64), one[0], np.empty(1), np.empty((1, 1)), np.empty((1, 1)))
        if self._problem is not None:
            self._problem.value((0,))

    def advance(self, until: int, target: float | None = None) -> bool:
        """Continue until `until` nodes are expanded; return True if done, out of memory, or f <= target."""
        with one_blas_thread(self.objective.n):
            return self._advance(until, target)

    # Nodes that are expanded elsewhere.

    def look_ahead(self) -> None:
        """Let nodes be expanded elsewhere from now on, before the search takes them."""
        self.ahead, self.unsent = {}, list(self._fringe)

    def _needs_expansion(self, node: Node) -> bool:
        return len(node.members) < self.k and not node.terminal

    @property
    def waiting(self) -> bool:
        """Whether the first node of the fringe is being expanded elsewhere."""
        if self.ahead is None or not self._fringe or not self._needs_expansion(self._fringe[0][3]):
            return False
        sent = self.ahead.get(self._fringe[0][3].members)
        return sent is not None and sent[1] is None

    def next_nodes(self, most: int) -> list[Node]:
        """Return the first nodes of the fringe that are not expanded ahead yet. Each is for `expect` or `take_back`."""
        nodes: list[Node] = []
        assert self.ahead is not None
        while self.unsent and len(nodes) < most:
            entry = heapq.heappop(self.unsent)
            taken = not self._fringe or entry < self._fringe[0]  # by the search
            if not taken and self._needs_expansion(entry[3]):
                self.ahead[entry[3].members] = entry, None
                nodes.append(entry[3])
        return nodes

    def expect(self, node: Node, children: Children | list[Node]) -> None:
        """Keep what an expansion of `next_nodes` gave until the search takes the node."""
        if self.ahead is not None and node.members in self.ahead:
            self.ahead[node.members] = self.ahead[node.members][0], children

    def take_back(self, nodes: Iterable[Node]) -> None:
        """Forget that nodes of `next_nodes` are being expanded."""
        for node in nodes:
            if self.ahead is not None and node.members in self.ahead:
                heapq.heappush(self.unsent, self.ahead.pop(node.members)[0])

    def _expanded_node(self, node: Node, q: int) -> Children | list[Node]:
        """Return the children of a node, which may have been computed ahead."""
        if self.ahead:
            _, children = self.ahead.pop(node.members, (None, None))
            if children is not None:
                return children
        return self.expand(node, q, self.deadline)

    def _advance(self, until: int, target: float | None) -> bool:
        while not self.done and not self.memory_full:
            if self.waiting:
                return False
            if target is not None and self.best_value <= target:
                return True
            if self.iteration >= until or self.deadline.passed:
                return False
            self._step()
        return True

    def _step(self) -> None:
        """Take the first node of the fringe: lines 2 to 12 of Figure 2."""
        first = heapq.heappop(self._fringe)
        node = first[3]
        if self._cannot_be_better(node):
            return
        if len(node.members) == self.k or node.terminal:
            self._finish(node)
            return
        before = self.best_value
        try:
            children = self._children(node)
        except OutOfTime:
            heapq.heappush(self._fringe, first)
            return
        self._expanded += 1
        if self.best_value < before:
            self._check_claim(node.l)
        if children is None:
            self._push(Node(node.members, node.u, node.u, (), terminal=True))
            return
        for child in children:
            self._push(child)
        self.memory_full = max(len(self._closed), len(self._fringe)) > self._max_nodes

    def _finish(self, node: Node) -> None:
        self.goal = tuple(sorted(node.members))
        self.offer(self.goal)
        self._push(node)  # `lower` counts its l with the fringe's

    def _cannot_be_better(self, node: Node) -> bool:
        """Prune the node if its l allows no subset better than the best; only with an incumbent."""
        if not self._prune or not node.l >= self.best_value - self._margin:
            return False
        if self.ahead:
            self.ahead.pop(node.members, None)
        self._pruned = min(self._pruned, node.l)
        return True

    def _may_be_better(self, l: Floats) -> NDArray[np.bool_]:
        """Prune nodes (t,) as `_cannot_be_better`, and return which ones are left (t,)."""
        if not self._prune:
            return np.ones(l.size, np.bool_)
        better = ~(l >= self.best_value - self._margin)
        self._pruned = min(self._pruned, float(l[~better].min(initial=math.inf)))
        return np.asarray(better)

    def _offer_best(self, members: tuple[int, ...], columns: Ints, u: Floats) -> None:
        """Take the best of the subsets `members` + one of `columns` (t,), if it is better than the best."""
        best = int(u.argmin())
        if u[best] < self.best_value:
            self.offer((*members, int(columns[best])))

    def _children(self, node: Node) -> list[Node] | None:
        """Return the new children, or None if no column can be added."""
        q = self.k - len(node.members)
        found = self._expanded_node(node, q)
        if isinstance(found, Children):
            return self._graph_children(node, self._reliable(found, node, q))
        children = found
        if not children:
            return None
        best = min(children, key=lambda child: child.u)
        if best.u < self.best_value:
            self.offer(best.members)
        return [child for child in children if not self._cannot_be_better(child)]

    def _graph_children(self, node: Node, found: Children) -> list[Node] | None:
        """Close all children, and return those that were not closed before and are not pruned."""
        if not found.columns.size:
            return None
        members, closed = node.members, self._closed
        self._offer_best(members, found.columns, found.u)
        lower = np.fmax(found.l, node.l)  # a bound that is not a number is ignored
        may = self._may_be_better(lower)
        mask = sum(1 << j for j in members) if self.objective.n <= _MAX_BITS else None
        children = []
        values = (array.tolist() for array in (found.columns, lower, found.u, may))
        for j, l, u, make in zip(*values, strict=True):
            key = mask | 1 << j if mask is not None else tuple(sorted((*members, j)))
            if key not in closed:
                closed.add(key)
                if make:
                    children.append(Node((*members, j), l, u, None))
        return children

    def _reliable(self, found: Children, node: Node, q: int) -> Children:
        """Return the children with the bounds of Theorem 4; near dependence the errors are the objective's."""
        if self._problem is None:
            return found
        for x in np.flatnonzero(found.unreliable):
            found.u[x] = self.objective.value((*node.members, int(found.columns[x])))
            found.l[x] = found.u[x] if q == 1 else min(node.l, found.u[x])
        return found

    def state(self) -> dict[str, Any]:
        """Return all that `restore` needs, as JSON holds it."""
        fringe = [
            [node.l, node.u, list(node.members), node.allowed, made, node.terminal] for _, _, made, node in self._fringe
        ]
        return {
            **self._shared_state(), "gamma": "inf" if math.isinf(self.gamma) else self.gamma,
            "epsilon": self.epsilon, "expanded": self._expanded, "made": self.made, "prune": self._prune,
            "pruned": None if math.isinf(self._pruned) else self._pruned, "fringe": fringe,
            "goal": None if self.goal is None else list(self.goal),
            "closed": [format(key, "x") if isinstance(key, int) else list(key) for key in self._closed],
        }  # fmt: skip

    @classmethod
    def restore(cls, objective: Objective, state: dict[str, Any], *, memory_limit: int = 4 << 30) -> AStar:
        """Return the search as it was when `state` was taken; it continues with the same nodes."""
        check_saved(objective, state)
        search = cls(
            objective, state["k"], gamma=float(state["gamma"]), epsilon=state.get("epsilon", 0.0), bound=state["bound"],
            incumbent=state["best"] if state["prune"] else None, memory_limit=memory_limit,
        )  # fmt: skip
        search._restore_shared(state)
        search._fringe = []
        for l, u, members, allowed, made, terminal in state["fringe"]:
            node = Node(tuple(members), l, u, None if allowed is None else tuple(allowed), terminal)
            search._fringe.append(search._entry(node, made))
        heapq.heapify(search._fringe)
        search._closed = {int(key, 16) if isinstance(key, str) else tuple(key) for key in state["closed"]}
        search._expanded, search.made = state["expanded"], state["made"]
        search._pruned = math.inf if state["pruned"] is None else state["pruned"]
        search.goal = None if state["goal"] is None else tuple(state["goal"])
        return search


def _without_targets(objective: Objective) -> BoundProblem | None:
    """Return the problem whose rule decides on dependence, or None if rows of K come on demand and W decides."""
    if not objective.has_gram:
        return None
    return BoundProblem(penalized(objective), np.zeros((objective.n, 0)), objective.c, objective.floor)
