"""Best-first search when neither K nor W fits in memory: rows of K are fetched when a column enters an expanded node.

The bound is that of dsel.search.exact.astar.search, from the residual targets alone. All targets count, also their part
outside the span of X. (There is none if X has as many independent columns as rows.)

A node may have a million children, of which only the best are made. One entry of the fringe represents the others, with
their least l and f. The search takes it up again when its turn comes, so that nodes come in the same order. This is
partial expansion (Yoshizumi, Miura, Ishida, "A* with partial expansion for large branching factor problems", AAAI
2000).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.kernels.elimination import BORDERLINE_RATIO
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.astar.reduced_problem import Children, Node, ReducedProblem, independent_with
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.bounds import BoundProblem

#: Children of a node that are made at a time.
CHILDREN_AT_A_TIME = 256
#: Eigenvalues of at most this share of the largest are rounding.
_ROUNDING = 1e-13
#: `allowed` of an entry that represents the children of a node that are not made yet.
_OTHER_CHILDREN: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class ReducedTargets(ReducedProblem):
    """D_y of the reduced problem without W, and B = X'U_y (n, r_y); rows of K replace W.

    The bounds are those of `ReducedProblem`. All children of S take O(n s (s + r_y)).
    """

    objective: OnDemandObjective = field(kw_only=True)
    B: Floats = field(kw_only=True)

    @classmethod
    def of_targets(cls, objective: OnDemandObjective) -> ReducedTargets:
        """Return the problem of Y'Y and B. Raises OptionError if Y = X."""
        if objective.cross is None:
            raise OptionError("Best-first search for X itself needs W.", "Use data that the reduction fits.")
        if objective.target_gram is None:
            raise OptionError("Best-first search on rows of K needs Y'Y.", "Make the objective with load_target_gram.")
        values, V = scipy.linalg.eigh(objective.target_gram)
        kept = _ROUNDING * max(float(values[-1]), 0.0) < values
        D, V = values[kept][::-1], V[:, kept][:, ::-1]
        n = objective.n
        return cls(
            np.zeros((0, n)), D, np.zeros((D.size, 0)), max(objective.c - float(D.sum()), 0.0), objective.floor,
            max(float(values.sum() - D.sum()), 0.0), objective=objective, B=objective.cross @ V,
        )  # fmt: skip

    def children(self, S: Sequence[int], q: int, problem: BoundProblem | None = None) -> Children:
        """Return the children as `ReducedProblem.children`, from the rows of S, which have to be in memory."""
        objective, chosen = self.objective, np.asarray(S, np.int64)
        d = objective.diagonal + objective.lam
        left = self.B
        explained_S = np.zeros((0, self.D.size))
        L: Floats = np.zeros((0, 0))
        V: Floats = np.zeros((0, self.B.shape[0]))
        if chosen.size:
            K_S = objective.rows(chosen)
            L = np.asarray(np.linalg.cholesky(K_S[:, chosen] + objective.lam * np.eye(chosen.size)), np.float64)
            V = scipy.linalg.solve_triangular(L, K_S, lower=True)
            explained_S = scipy.linalg.solve_triangular(L, self.B[chosen], lower=True)
            d = d - np.einsum("sn,sn->n", V, V)
            left = self.B - V.T @ explained_S
        independent = independent_with(L, V, d, self.floor[chosen], self.floor)
        independent[chosen] = False
        columns = np.flatnonzero(independent)
        Z = (left[columns] / np.sqrt(d[columns])[:, None]).T
        return self._bounded(columns, Z, explained_S, q, d[columns] <= BORDERLINE_RATIO * self.floor[columns])


class WideAStar(AStar):
    """`AStar` on an objective that fetches rows of K on demand."""

    objective: OnDemandObjective

    def _reduce(self, target_gram: Floats | None) -> ReducedProblem:
        return ReducedTargets.of_targets(self.objective)

    def _children(self, node: Node) -> list[Node] | None:
        """Return the best children that are not made yet and, last, an entry for the others."""
        assert self._reduced is not None
        self.objective.fetch_rows(node.members, self._likely)
        found = self._reduced.children(node.members, self.k - len(node.members))
        if not found.columns.size:
            return None
        self._offer_best(node.members, found.columns, found.u)
        lower = np.fmax(found.l, node.l)  # a bound that is not a number is ignored
        may = np.flatnonzero(self._may_be_better(lower))
        order = may[np.argsort(self._weighted(lower, found.u, len(node.members) + 1)[may], kind="stable")]
        children: list[Node] = []
        visited = 0
        for i in order:
            if len(children) == CHILDREN_AT_A_TIME:
                break
            visited += 1
            members = (*node.members, int(found.columns[i]))
            key = tuple(sorted(members))
            if key not in self._closed:
                self._closed.add(key)
                children.append(Node(members, float(lower[i]), float(found.u[i]), None))
        rest = order[visited:]
        if rest.size:
            children.append(Node(node.members, float(lower[rest].min()), float(found.u[rest].min()), _OTHER_CHILDREN))
        return children

    def _likely(self) -> Ints:
        """Return the columns of the nodes that come next."""
        first = heapq.nsmallest(4 * self.objective.batch, self._fringe)
        return np.asarray(list(dict.fromkeys(j for entry in first for j in entry[3].members)), np.int64)

    def _most_waiting(self) -> float:
        """Return an upper bound on u of all nodes: an entry knows only the least u of the children it represents."""
        return self.objective.c

    def _with_best_column(self, members: tuple[int, ...]) -> tuple[int, ...]:
        self.objective.fetch_rows(members)
        return super()._with_best_column(members)
