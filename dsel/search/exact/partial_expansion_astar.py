"""Best-first search where neither K nor W fits this process: rows of K come when a column enters an expanded node.

The bound is that of dsel.search.exact.astar, from the residual targets alone; all targets count, also what no column
sees of
them (nothing, where X has as many independent columns as rows). Of the children of a node, a million perhaps, only the
best are made; the others wait as one entry of the fringe that has their least l and f and is taken up again when its
turn comes (partial expansion: Yoshizumi, Miura, Ishida, "A* with partial expansion for large branching factor
problems", AAAI 2000), so that the nodes come in the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats, Ints
from dsel.errors import OptionError
from dsel.objective.kernels.elimination import STEEP_RATIO
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.astar import AStar, _Node
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.reduced_problem import Children, ReducedProblem

#: Children of a node that are made at once.
MADE_AT_ONCE = 256
_ROUNDING = 1e-13
#: What `allowed` is in an entry that stands for the children of a node which are not made yet.
_OTHERS: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class ReducedTargets(ReducedProblem):
    """D_y alone of the reduced problem, and B = X'U_y (n, r_y); what W would say is asked of the objective.

    A look at all children of S costs O(n s (s + r_y)), and their bounds as in `ReducedProblem`.
    """

    objective: OnDemandObjective = field(kw_only=True)
    B: Floats = field(kw_only=True)

    @classmethod
    def of_targets(cls, objective: OnDemandObjective) -> ReducedTargets:
        """From Y'Y and B. Errors: OptionError where there are no targets apart from X."""
        if objective.cross is None:
            raise OptionError("Best-first search for X itself needs W.", "Use data that the reduction fits.")
        values, V = scipy.linalg.eigh(objective.target_gram)
        kept = _ROUNDING * max(float(values[-1]), 0.0) < values
        D, V = values[kept][::-1], V[:, kept][:, ::-1]
        n = objective.n
        return cls(
            np.zeros((0, n)), D, np.zeros((D.size, 0)), max(objective.c - float(D.sum()), 0.0), objective.floor,
            objective=objective, B=objective.cross @ V,
        )  # fmt: skip

    def children(self, S: Sequence[int], q: int, problem: BoundProblem | None = None) -> Children:
        """Return the children as `ReducedProblem.children`, from the rows of S, which have to be in memory."""
        objective, chosen = self.objective, np.asarray(S, np.int64)
        d = objective.diagonal + objective.lam
        left = self.B
        explained_S = np.zeros((0, self.D.size))
        if chosen.size:
            K_S = objective.rows(chosen)
            L = np.linalg.cholesky(K_S[:, chosen] + objective.lam * np.eye(chosen.size))
            V = scipy.linalg.solve_triangular(L, K_S, lower=True)
            explained_S = scipy.linalg.solve_triangular(L, self.B[chosen], lower=True)
            d = d - np.einsum("sn,sn->n", V, V)
            left = self.B - V.T @ explained_S
        independent = d > self.floor
        independent[chosen] = False
        columns = np.flatnonzero(independent)
        Z = (left[columns] / np.sqrt(d[columns])[:, None]).T
        return self._bounded(columns, Z, explained_S, q, d[columns] <= STEEP_RATIO * self.floor[columns])


class WideAStar(AStar):
    """The search on an objective whose rows come on demand; everything else is as in AStar."""

    objective: OnDemandObjective

    def _reduce(self, target_gram: Floats | None) -> ReducedProblem:
        return ReducedTargets.of_targets(self.objective)

    def _children(self, node: _Node) -> list[_Node] | None:
        """The best children that are not made yet and, last, an entry for the others."""
        assert self._reduced is not None
        self.objective.fetch_rows(node.members, self._likely)
        found = self._reduced.children(node.members, self.k - len(node.members))
        if not found.columns.size:
            return None
        self._see(node.members, found.columns, found.u)
        lower = np.fmax(found.l, node.l)  # what is not a number says nothing
        may = np.flatnonzero(self._may_be_better(lower))
        order = may[np.argsort(self._weighted(lower, found.u, len(node.members) + 1)[may], kind="stable")]
        children: list[_Node] = []
        looked_at = 0
        for i in order:
            if len(children) == MADE_AT_ONCE:
                break
            looked_at += 1
            members = (*node.members, int(found.columns[i]))
            key = tuple(sorted(members))
            if key not in self._closed:
                self._closed.add(key)
                children.append(_Node(members, float(lower[i]), float(found.u[i]), None))
        rest = order[looked_at:]
        if rest.size:
            children.append(_Node(node.members, float(lower[rest].min()), float(found.u[rest].min()), _OTHERS))
        return children

    def _likely(self) -> Ints:
        """Columns of the nodes whose turn comes next."""
        first = heapq.nsmallest(4 * self.objective.batch, self._fringe)
        return np.asarray(list(dict.fromkeys(j for entry in first for j in entry[3].members)), np.int64)

    @property
    def u_max(self) -> float:
        """Largest u left in the fringe; of children that wait, at most that of their parent."""
        entries = (entry[3] for entry in self._fringe)
        return max((z.u if z.allowed is None else self.objective.value(z.members) for z in entries), default=0.0)
