"""Hand nodes of the tree of relaxations over to branch and bound, where that takes less time.

Branch and bound by the fit of all columns that are left visits a thousand nodes while relaxations bound one. It has
more nodes to visit: few where few columns are to be chosen, many near the root. Their number is not known before. So
its work is limited. If that does not suffice, the node is split by relaxations instead. Attempts that failed take at
most a fixed share of the whole time, and are made where others succeeded. All times are estimated by counts, so that
the tree does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsel._lib.kernel_loading import load_kernels
from dsel._lib.tolerances import MARGIN
from dsel._lib.types import Floats, Ints
from dsel.search.anytime import Deadline
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.branch_and_bound.explorer import Explorer, Subproblem
from dsel.search.exact.perspective.enumeration import ENUMERATION_KERNELS, Visited, enumerated
from dsel.search.exact.perspective.sparse_eigenvalues import (
    EIGENVALUE_SECONDS,
    MOST_ADDED,
    SPARSE_KERNELS,
    least_eigenvalues,
    none_better,
)

#: Most seconds to try all subsets with 1, 2 and more columns to add, about, and those that are never too long.
_ENUMERATION, _ALWAYS = (0.1, 0.02, 0.004), 1e-3
#: An attempt takes as long as a visit of a node by relaxations, or this share of the time so far, but not longer than
#: this many visits, and than this share of the visits that the node may need.
_SHARE, _MOST_VISITS, _EXPECTED = 0.05, 8, 0.5
#: Attempts that failed take this share of the time so far at most.
_WASTED = 0.15
#: After this many attempts that succeeded, as many may fail.
_MOST_SCORE = 3
#: Seconds of branch and bound, about: to begin, without and with a factor of t^2 for t columns left; of each node; and
#: of each unit of its work, of which the first node takes t^3 / 3 at least if it has children.
_START_SECONDS, _NODE_SECONDS, _WORK_SECONDS = (2e-4, 8e-9), 5e-6, 1.5e-10
#: Most seconds to exclude a node by eigenvalues, about, and those of an element.
_EXCLUSION, _ELEMENT_SECONDS = 0.02, 1e-9
#: Most subsets that an enumeration lists.
_MOST_LISTED = 256
#: With this many columns left or more, branch and bound takes too long for a node.
_MOST_LEFT = 1000


#: Nothing was visited.
NOTHING = Visited(False)


class SubtreeSolver:
    """Visits nodes below which there is little to do.

    Parameters
    ----------
    K, B, floor : arrays (n, n), (n,) or (n, N), (n,)
        See `BoundProblem`, for columns of norm 1.
    c : float
        f of the empty subset.
    k : int
        The most columns to choose.
    deadline : Deadline, optional
        Does not count compilation.
    listing : bool
        Find all subsets of k columns that are good enough, not only the best one.
    """

    def __init__(
        self, K: Floats, B: Floats, floor: Floats, c: float, k: int, deadline: Deadline | None = None,
        listing: bool = False,
    ) -> None:  # fmt: skip
        self._K, self._B, self._floor, self._c, self._k, self._listing = K, B, floor, c, k, listing
        self._deadline = deadline or Deadline(None)
        self._loaded = False
        self._eigenvalues: Floats | None = None
        #: Seconds of all nodes so far, how many were split, and the seconds of attempts that failed, about.
        self.seconds, self._visits, self._wasted = 0.0, 0, 0.0
        #: By how much the bounds of the children were better, in all.
        self._better = 0.0
        #: The fewest columns to add so far.
        self._least = k
        #: By the number of columns to add: attempts that closed a node, less those that did not.
        self._score = [0] * (k + 1)

    def learned(self) -> list[float]:
        """Return what decides the next attempts."""
        return [self.seconds, self._visits, self._wasted, self._better, self._least, *self._score]

    def restore(self, learned: Sequence[float]) -> None:
        """Continue as after `learned`."""
        self.seconds, self._visits, self._wasted = float(learned[0]), int(learned[1]), float(learned[2])
        self._better = float(learned[3])
        self._least, *self._score = (int(x) for x in learned[4:])

    def count(self, seconds: float, better: float) -> None:
        """Count the time that relaxations took to split a node, and by how much its children's bounds are better."""
        self.seconds += seconds
        self._visits += 1
        self._better += better

    @property
    def _visit(self) -> float:
        """The seconds of a node that was split, about."""
        return self.seconds / max(self._visits, 1)

    def _visits_below(self, gap: float) -> float:
        """Return about how many visits a node needs: 2^(gap / D) if the bounds of children are better by D."""
        levels = max(gap, 0.0) * self._visits / max(self._better, 1e-300)
        return float(2.0 ** min(levels, 10.0))

    def enumerate(
        self, fixed: Ints, free: Ints, q: int, base: float, g: Floats, enough: float
    ) -> Visited:  # fmt: skip
        """Try all subsets of a node if that does not take long, see `enumerated`.

        It does not know which subsets are dependent. If the best one is, it hides others, and nothing was visited.
        """
        with self._deadline.paused():
            load_kernels(*ENUMERATION_KERNELS)
        most = min(_ENUMERATION[min(q, len(_ENUMERATION)) - 1], max(_MOST_VISITS * self._visit, _ALWAYS))
        rows = _MOST_LISTED if self._listing else 1
        found = enumerated(self._K, self._B, fixed, free, q, base + float(g[fixed].sum()), g, enough, most, rows)
        self.seconds += found.seconds
        if not self._listing and found.subsets and not self._problem.independent(found.subsets[0].tolist()):
            return NOTHING
        return Visited(found.closed, found.subsets if found.closed else (), found.seconds)

    def excludes(self, fixed: Ints, free: Ints, q: int, enough: float) -> bool:
        """Return whether no subset of a node explains more than `enough`, if that does not take long to see.

        It is not known for several targets, and for many columns to add. See `none_better`.
        """
        if q > MOST_ADDED or self._B.ndim > 1 or self.seconds < EIGENVALUE_SECONDS * self._K.size:
            return False
        if self._eigenvalues is None:
            with self._deadline.paused():
                load_kernels(*SPARSE_KERNELS)
            self._eigenvalues = least_eigenvalues(self._K)
        if q > 1 and not self._eigenvalues[q]:
            return False
        most = min(_EXCLUSION, max(self._visit, _ALWAYS))
        excluded, work = none_better(
            self._K, self._B, fixed, free, q, enough, self._eigenvalues, int(most / _ELEMENT_SECONDS)
        )  # fmt: skip
        self.seconds += _START_SECONDS[0] + work * _ELEMENT_SECONDS
        return excluded

    @property
    def _problem(self) -> BoundProblem:
        """The problem of branch and bound, of all columns."""
        B = self._B if self._B.ndim == 2 else self._B[:, None]
        return BoundProblem(self._K, B, self._c, self._floor)

    def attempt(self, fixed: Ints, free: Ints, q: int, bound: float, enough: float) -> Visited:
        """Visit a node by branch and bound if that promises to close it.

        fixed: the columns that are in. free: those that may be added, q of them. Its subsets explain at most `bound`,
        those that are looked for more than `enough`.
        """
        visit = self._visit
        t = free.size
        start = _START_SECONDS[0] + _START_SECONDS[1] * t**2
        visits = min(_EXPECTED * self._visits_below(bound - enough), _MOST_VISITS)
        most = min(max(visit, _SHARE * self.seconds), visits * visit) - start
        least = _NODE_SECONDS + _WORK_SECONDS * (t**3 / 3.0 if q > 2 else t**2)
        near = q <= min(self._least + 1, max(self._k // 2, 3)) or self._score[q - 1] > 0
        self._least = min(self._least, q)
        promising = self._score[q] > 0 or (near and self._wasted + start + most <= _WASTED * self.seconds)
        if most <= least or t >= _MOST_LEFT or not promising:
            return NOTHING
        self._load_branch_and_bound()
        S = np.concatenate([fixed, free])
        whole = self._problem
        explorer = Explorer(
            BoundProblem(whole.K[np.ix_(S, S)], whole.B[S], whole.c, whole.floor[S]), self._k, listing=self._listing
        )
        places = np.arange(S.size, dtype=np.int32)
        explorer.start(Subproblem(self._c - bound, tuple(range(fixed.size)), places[fixed.size :]))
        explorer.limit_work(int(most / _WORK_SECONDS))
        cutoff = self._c - enough + (2.0 if self._listing else 1.0) * MARGIN * self._c
        explorer.list_below(cutoff, 0, 0)
        found = explorer.explore(int(most / _NODE_SECONDS), cutoff)
        taken = start + _NODE_SECONDS * explorer.nodes + _WORK_SECONDS * explorer.work
        self.seconds += taken
        if explorer.idle:
            self._score[q] = min(self._score[q] + 1, _MOST_SCORE)
        else:
            self._score[q] -= 1
            self._wasted += taken
        subsets = [T for T, _ in explorer.take_listed()] + ([] if found is None else [found])
        return Visited(explorer.idle, [S[list(T)] for T in subsets] if explorer.idle or not self._listing else ())

    def _load_branch_and_bound(self) -> None:
        """Compile branch and bound, the first time on a machine."""
        if self._loaded:
            return
        targets = 2 if self._B.ndim == 2 and self._B.shape[1] > 1 else 1
        small = BoundProblem(np.eye(2), np.zeros((2, targets)), 1.0, np.full(2, 1e-7))
        with self._deadline.paused():
            Explorer(small, self._k).warm_up()
        self._loaded = True
