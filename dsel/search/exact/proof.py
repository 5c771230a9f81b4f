"""A proof for one size that can be interrupted, saved and continued."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.tolerances import MARGIN
from dsel.errors import CapacityError
from dsel.objective.objective_interface import ItemObjective
from dsel.search.anytime import AnytimeSearch, Deadline, Stop
from dsel.search.exact.alternatives import NearBestAnswer, search_prices, summarize, take_swaps
from dsel.search.exact.certificate import Certificate, consistent_bound
from dsel.search.exact.choose_tree import ProofProblem, Tree, choose_tree, restore_tree
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import NearBest, OpenBounds
from dsel.search.exact.perspective.semidefinite import QUICK, Relaxation, affordable, relaxation_of, seconds_of
from dsel.search.exact.proof_log import ProofLog
from dsel.search.exact.tree import Runner

_NO_LIMIT = 2**62
#: The share of the time that is kept for the relaxation.
_RELAXATION = 0.1

#: The share of the time that swaps of near-best subsets may take before the tree begins.
_SWAPS = 0.1


@dataclass
class Proof:
    """A proof about the subsets of at most k columns or groups: `run` continues it, `state` is what `resume` needs.

    search: the tree, see `dsel.search.exact.choose_tree`. value: f of the subset to certify, inf if there is none.
    seconds, cpu: wall time and processor time of this process so far. ended: why the last run ended. relaxation: the
    convex relaxation, which is computed when a run ends without a proof, or before if it is quick. log: where the tree
    is written. began_again: see `Certificate`. head_start: the nodes that count towards the limit of the first run.
    """

    search: Tree
    value: float
    seconds: float = 0.0
    relaxation: Relaxation | None = None
    log: ProofLog | None = None
    cpu: float = 0.0
    began_again: str = ""
    ended: str = ""
    head_start: int = 0

    @classmethod
    def begin(
        cls, objective: ItemObjective, k: int, incumbent: Iterable[int] = (), **options: Any
    ) -> Proof:  # fmt: skip
        """Begin a proof, from the incumbent or from a better subset that a quick search finds.

        options: fields of `ProofProblem`. Raises OutOfTime if the first bound would be there after the deadline.
        """
        known, began, start = tuple(incumbent), time.process_time(), time.monotonic()
        problem = ProofProblem(objective, k, known, **options)
        value = objective.value(known) if known else float("inf")
        search = choose_tree(problem)
        if search.near_best is not None:
            with one_blas_thread():
                take_swaps(search.near_best, objective, problem.deadline.share(_SWAPS), [search.best])
        log, cpu = problem.log if search.can_log else None, time.process_time() - began
        head_start = 0 if problem.nodes is None else search.iteration
        return cls(search, value, time.monotonic() - start, log=log, cpu=cpu, head_start=head_start)

    @classmethod
    def resume(
        cls, objective: ItemObjective, state: Mapping[str, Any], incumbent: Iterable[int] = (),
        log: ProofLog | None = None, setup: CommonSetup | None = None,
    ) -> Proof:  # fmt: skip
        """Return a saved proof; it uses the incumbent if that is better. setup: what proofs for other sizes share."""
        search = restore_tree(objective, state["search"], log=log, setup=setup)
        known = tuple(incumbent)
        value = objective.value(known) if known else state["value"]
        search.offer(known)
        return cls(search, float("inf") if value is None else value, state["seconds"], _restored(state), log,
                   state.get("cpu", 0.0), state.get("began_again", ""))  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return all that `resume` needs, as JSON holds it."""
        value, relaxation = None if self.value == float("inf") else self.value, self.relaxation
        relaxed = {} if relaxation is None else {"relaxation": asdict(relaxation)}
        return {
            "search": self.search.state(), "value": value, "seconds": self.seconds, "cpu": self.cpu,
            "began_again": self.began_again,
            "relaxed": None if relaxation is None else relaxation.bound, **relaxed,
        }  # fmt: skip

    def run(
        self, seconds: float | None = None, nodes: int | None = None,
        on_slice: Callable[[AnytimeSearch], None] | None = None, runner: Runner | None = None,
    ) -> bool:  # fmt: skip
        """Continue for at most `seconds` or `nodes`, and return whether the best subset is proved.

        runner: runs the search, by default in this process. The relaxation gets a part of the time.
        """
        began, cpu = time.process_time(), self.cpu

        def told(search: AnytimeSearch) -> None:  # what is saved here has the time of a run that is killed later
            self.cpu = cpu + time.process_time() - began
            if on_slice is not None:
                on_slice(search)

        try:
            return self._run(Deadline(seconds), nodes, told, runner)
        finally:
            self.cpu = cpu + time.process_time() - began

    def _run(
        self, deadline: Deadline, nodes: int | None, on_slice: Callable[[AnytimeSearch], None], runner: Runner | None
    ) -> bool:
        search = self.search
        if search.active:
            with deadline.paused():
                search.warm_up()
            quick = seconds_of(search.objective.n) <= QUICK
            if self.relaxation is None and self._relaxable and search.relaxation_first and quick:
                self.relaxation = self._relax(deadline)
            relaxed = self.relaxation is None and self._relaxable
            share = deadline.share(1.0 - _RELAXATION if relaxed else 1.0)
            limit = _NO_LIMIT if nodes is None else search.iteration - self.head_start + nodes
            self.head_start = 0
            start = time.monotonic() - self.seconds

            def told(search: AnytimeSearch) -> None:
                self.seconds = time.monotonic() - start
                on_slice(search)

            try:
                self.ended = search.run_until(Stop(iterations=limit, seconds=share.seconds), told, runner)
            finally:
                self.seconds = time.monotonic() - start
        if self.relaxation is None and not search.done:
            self.relaxation = self._relax(deadline)
        return search.proven

    @property
    def _relaxable(self) -> bool:
        """Whether the relaxation of all columns in memory may be worth its time."""
        if self.search.near_best is not None:  # the tree itself lists the subsets
            return False
        return self.search.needs_relaxation and affordable(self.search.objective.n, self.search.k)

    def _relax(self, deadline: Deadline) -> Relaxation:
        search, start = self.search, time.monotonic()
        if not self._relaxable:
            return Relaxation(0.0)
        with one_blas_thread(search.objective.n):
            relaxation = relaxation_of(search.problem, search.k, deadline)
        self.seconds += time.monotonic() - start
        return relaxation

    def certificate(self) -> Certificate:
        """Return what is proved so far."""
        search, objective = self.search, self.search.objective
        error = search.guarantee.error
        found = 0.0 if self.relaxation is None else self.relaxation.bound
        relaxation = consistent_bound(found, search.best_value, objective.total, error)
        relaxed = relaxation > search.lower
        certificate = search.certificate()
        return replace(
            certificate,
            bound=float(max(search.proved, relaxation - error * objective.total)),
            seconds=self.seconds,
            cpu_seconds=self.cpu,
            began_again=self.began_again,
            method="perspective relaxation" if relaxed else certificate.method,
            better=search.best_value < self.value - MARGIN * objective.total and self.value < float("inf"),
        )

    def near_best(self, deadline: Deadline | None = None) -> NearBestAnswer:
        """Return the near-best subsets so far, and what is known about each column.

        deadline: of a search for the prices of columns. Raises CapacityError if the tree cannot list subsets.
        """
        search = self.search
        if search.near_best is None:
            raise CapacityError(
                f"Near-best subsets cannot be listed by {search.method}.", "Allow more memory, or exclude columns."
            )
        with one_blas_thread():
            search_prices(search.near_best, search.objective, deadline or Deadline(None))
        return self._known_so_far(search.near_best)

    def _known_so_far(self, near: NearBest) -> NearBestAnswer:
        search = self.search
        near.take_smaller(search.objective)
        opened = None if search.done else search.open_bounds()
        if search.contradicted:  # the bounds prove nothing
            opened = OpenBounds(np.zeros(near.n), np.zeros(near.n))
        return summarize(near, opened, search.proved, search.proven)

    def finish_log(self, problem: Mapping[str, Any]) -> None:
        """Complete the log with the nodes that are open, and with what it proves.

        problem: what identifies the data and their preprocessing.
        """
        if self.log is None:
            return
        search = self.search
        best = search.objective.in_data(search.best)
        claim = {"bound": search.lower, "value": search.best_value, "indices": best, "nodes": search.iteration}
        if self.relaxation is not None and self.relaxation.bound > search.lower:
            claim["relaxation"] = asdict(self.relaxation)
        if search.near_best is not None:
            claim["near_best"] = self._claimed_list(search.near_best)
        self.log.finish(search.logged_nodes(), claim, problem)

    def _claimed_list(self, near: NearBest) -> dict[str, Any]:
        """Return what a log claims about near-best subsets: verdicts only if the list decides them all."""
        answer, objective = self._known_so_far(near), self.search.objective
        decided = answer.complete and not (answer.subsets and "undecided" in answer.verdicts)
        return {
            "within": answer.within, "share_of": "||Y||^2",
            "threshold": answer.threshold, "complete_below": answer.complete_below,
            "subsets": [[list(objective.in_data(S)), f] for S, f in answer.subsets],
            "verdicts": answer.verdicts if decided else None,
        }  # fmt: skip


def _restored(state: Mapping[str, Any]) -> Relaxation | None:
    """Return the relaxation of a saved proof. Older versions only held the bound."""
    if "relaxation" in state:
        values = state["relaxation"]
        return Relaxation(values["bound"], tuple(values["d"]), tuple(values["z"]))
    return None if state.get("relaxed") is None else Relaxation(state["relaxed"])
