"""A proof for one size that can be interrupted, saved and continued."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dsel._lib.tolerances import MARGIN
from dsel.errors import CapacityError
from dsel.objective.base import Objective
from dsel.objective.subset_state import DELETION_KERNELS
from dsel.search.anytime import AnytimeSearch, Deadline, Stop, drive
from dsel.search.exact.base import consistent_bound
from dsel.search.exact.branch_and_bound.search import BranchAndBound
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.common_setup import CommonSetup
from dsel.search.exact.perspective import Relaxation, affordable, quick, relaxation_of
from dsel.search.exact.perspective_tree.choice import better_tree, takes_part
from dsel.search.exact.perspective_tree.search import PerspectiveTree
from dsel.search.exact.proof_log import OpenNode, ProofLog
from dsel.search.exact.root_bound import RootBound
from dsel.search.exact.shared_tree import SharedTree
from dsel.search.exact.starting_subset import is_small, starting_subset
from dsel.search.exact.wide.choice import is_wide, wide_proof
from dsel.search.exact.wide.search import WideTree
from dsel.search.exact.wide.target_bound import TargetBound
from dsel.search.greedy.forward import forward

logger = logging.getLogger("dsel")

_NO_LIMIT = 2**62
#: Most of the time that the quick search takes, and what is kept for the relaxation.
_START, _RELAXATION = 0.2, 0.1

#: Runs a search until its stop: `drive` in this process, `dsel.search.exact.shared_tree.on_workers` on a cluster.
Runner = Callable[[SharedTree, Stop, Callable[[AnytimeSearch], None] | None], str]


@dataclass
class Proof:
    """A proof about the subsets of at most k columns: `run` continues it, `state` returns what `resume` needs.

    search: branch and bound, with the bound that promises more; or, if that does not fit into memory, the bound of the
    whole problem alone. value: f of the
    subset to certify, inf if there is none. seconds: wall time so far. relaxation: the convex relaxation,
    which is computed when a run ends without a proof, or before if it is quick. log: where the tree is written.
    """

    search: BranchAndBound | PerspectiveTree | WideTree | RootBound
    value: float
    seconds: float = 0.0
    relaxation: Relaxation | None = None
    log: ProofLog | None = None

    @classmethod
    def begin(
        cls, objective: Objective, k: int, incumbent: Iterable[int] = (), *, seed: int = 0, memory_limit: int = 8 << 30,
        deadline: Deadline | None = None, log: ProofLog | None = None, coefficients: float | None = None,
        setup: CommonSetup | None = None,
    ) -> Proof:  # fmt: skip
        """Begin a proof, from the incumbent or from a better subset that a quick search finds.

        deadline: of the proof. The quick search takes a part of the time. Raises OutOfTime if the first bound would
        take longer. log: where to write the tree, so that it can be checked. coefficients: see `WideTree`. setup: what
        proofs for other sizes share.
        """
        deadline, setup = deadline or Deadline(None), setup or CommonSetup(objective)
        known = tuple(incumbent)
        value = objective.value(known) if known else float("inf")
        if is_wide(objective, coefficients):
            start = known or forward(objective, k).best(k).members
            return cls(wide_proof(objective, k, start, memory_limit, coefficients), value)

        def usual(start: Iterable[int]) -> BranchAndBound:
            return BranchAndBound(
                objective, k, incumbent=start, memory_limit=memory_limit, log=log, deadline=deadline, setup=setup
            )  # fmt: skip

        try:
            if log is None and takes_part(objective):
                start = starting_subset(objective, k, seed, deadline.share(_START), known)
                start = min((one for one in (start, known) if one), key=objective.value)
                limits: dict[str, Any] = {"memory_limit": memory_limit, "deadline": deadline, "setup": setup}
                return cls(better_tree(objective, k, usual, incumbent=start, **limits), value)
            search = usual(known)
        except CapacityError as error:
            logger.info("%s The certificate is the bound of the whole problem.", error)
            found = known or forward(objective, k).best(k).members
            return cls(RootBound(objective, k, incumbent=found, deadline=deadline, setup=setup), value, log=log)
        if len(known) == k and is_small(objective, k) and not search.done:
            with deadline.paused():
                search.warm_up(DELETION_KERNELS)  # all at once: a process that helps takes long to start
        search.offer(starting_subset(objective, k, seed, deadline.share(_START), known))
        return cls(search, value, log=log)

    @classmethod
    def resume(
        cls, objective: Objective, state: Mapping[str, Any], incumbent: Iterable[int] = (),
        log: ProofLog | None = None, setup: CommonSetup | None = None,
    ) -> Proof:  # fmt: skip
        """Return a saved proof; it uses the incumbent if that is better. setup: what proofs for other sizes share."""
        search: BranchAndBound | PerspectiveTree | WideTree | RootBound
        saved = dict(state["search"])
        kinds = {kind.kind: kind for kind in (RootBound, TargetBound, WideTree)}
        if saved["kind"] == PerspectiveTree.kind:
            search = PerspectiveTree.restore(objective, saved, setup=setup)
        elif saved["kind"] in kinds:
            search = kinds[saved["kind"]].restore(objective, saved)
        else:
            search = BranchAndBound.restore(objective, saved, log=log, setup=setup)
        known = tuple(incumbent)
        value = objective.value(known) if known else state["value"]
        search.offer(known)
        return cls(search, float("inf") if value is None else value, state["seconds"], _restored(state), log)

    def state(self) -> dict[str, Any]:
        """Return all that `resume` needs, as JSON holds it."""
        value = None if self.value == float("inf") else self.value
        return {"search": self.search.state(), "value": value, "seconds": self.seconds, **_saved(self.relaxation)}

    def run(
        self, seconds: float | None = None, nodes: int | None = None,
        on_slice: Callable[[AnytimeSearch], None] | None = None, runner: Runner | None = None,
    ) -> bool:  # fmt: skip
        """Continue for at most `seconds` or `nodes`, and return whether the best subset is proved.

        runner: runs the search, by default in this process. The relaxation gets a part of the time.
        """
        search, deadline = self.search, Deadline(seconds)
        if not (isinstance(search, RootBound) or search.done):
            with deadline.paused():
                search.warm_up()
            if self.relaxation is None and isinstance(search, BranchAndBound) and quick(search.problem):
                self.relaxation = self._relax(deadline)
            relaxed = self.relaxation is None and self._relaxable
            share = deadline.share(1.0 - _RELAXATION if relaxed else 1.0)
            self._search(search, share.seconds, nodes, on_slice, runner)
        if self.relaxation is None and (isinstance(search, RootBound) or not search.done):
            self.relaxation = self._relax(deadline)
        return search.proven

    @property
    def _relaxable(self) -> bool:
        """Whether the relaxation of all columns in memory may be worth its time."""
        search = self.search
        return not isinstance(search, WideTree | TargetBound) and affordable(search.objective.n, search.k)

    def _relax(self, deadline: Deadline) -> Relaxation:
        search, start = self.search, time.monotonic()
        if not self._relaxable:
            return Relaxation(0.0)
        problem = search.problem if isinstance(search, BranchAndBound) else search.setup.problem()
        found = relaxation_of(problem, search.k, deadline)
        self.seconds += time.monotonic() - start
        return found

    def _search(
        self, search: BranchAndBound | PerspectiveTree | WideTree, seconds: float | None, nodes: int | None,
        on_slice: Callable[[AnytimeSearch], None] | None, runner: Runner | None,
    ) -> None:  # fmt: skip
        limit = _NO_LIMIT if nodes is None else search.iteration + nodes
        if seconds is not None and search.node_seconds() > seconds:
            logger.info("a node of the proof would take longer than the time left: only the first bound is used")
            return
        start = time.monotonic()
        try:
            with search.time_limit(seconds):
                stop = Stop(iterations=limit, seconds=seconds)
                if runner is None or isinstance(search, WideTree):
                    drive(search, stop, on_slice)
                else:
                    runner(search, stop, on_slice)
        finally:
            self.seconds += time.monotonic() - start

    def certificate(self) -> Certificate:
        """Return what is proved so far."""
        search, objective = self.search, self.search.objective
        error = search.guarantee.error
        found = 0.0 if self.relaxation is None else self.relaxation.bound
        relaxation = consistent_bound(found, search.best_value, objective.total, error)
        relaxed = relaxation > search.lower
        return Certificate(
            size=len(objective.included) + search.k,
            value=float(search.best_value),
            bound=float(max(search.proved, relaxation - error * objective.total)),
            total=objective.total,
            indices=tuple(objective.in_data(search.best)),
            nodes=search.iteration,
            seconds=self.seconds,
            method="perspective relaxation" if relaxed else f"{search.kind}, {search.bound_name} bound",
            better=search.best_value < self.value - MARGIN * objective.total and self.value < float("inf"),
            error=error,
            excluded=search.guarantee.hidden(search.best_value, objective),
            coefficients=search.limit / objective.total if isinstance(search, WideTree) else 0.0,
            **(search.screening if isinstance(search, WideTree) else {}),
        )

    def finish_log(self, problem: Mapping[str, Any]) -> None:
        """Complete the log with the nodes that are open, and with what it proves.

        problem: what identifies the data and their preprocessing.
        """
        if self.log is None:
            return
        search = self.search
        if isinstance(search, RootBound):
            nodes = [OpenNode((), range(search.objective.n), search.lower)]
        else:
            assert isinstance(search, BranchAndBound), "a log is written by this tree only"
            nodes = [sub.logged for sub in search.open_subproblems()]
        best = search.objective.in_data(search.best)
        claim = {"bound": search.lower, "value": search.best_value, "indices": best, "nodes": search.iteration}
        if self.relaxation is not None and self.relaxation.bound > search.lower:
            claim["relaxation"] = asdict(self.relaxation)
        self.log.finish(nodes, claim, problem)


def _saved(relaxation: Relaxation | None) -> dict[str, Any]:
    """Return a relaxation as the state of a proof holds it. Older versions only held the bound."""
    if relaxation is None:
        return {"relaxed": None}
    return {"relaxed": relaxation.bound, "relaxation": asdict(relaxation)}


def _restored(state: Mapping[str, Any]) -> Relaxation | None:
    if "relaxation" in state:
        values = state["relaxation"]
        return Relaxation(values["bound"], tuple(values["d"]), tuple(values["z"]))
    return None if state.get("relaxed") is None else Relaxation(state["relaxed"])
