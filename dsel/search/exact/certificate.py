"""How far a subset can be from the best one: a proved lower bound beside its value."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dsel.errors import CapacityError, OptionError
from dsel.objective.base import Objective
from dsel.search.anytime import AnytimeSearch, Stop, drive
from dsel.search.exact.base import held
from dsel.search.exact.bounds import BoundName, BoundProblem
from dsel.search.exact.branch_and_bound import MARGIN, BranchAndBound, starting_subset
from dsel.search.exact.perspective import perspective_bound
from dsel.search.exact.root_bound import RootBound
from dsel.search.greedy.forward import forward

log = logging.getLogger("dsel")

_NO_LIMIT = 2**62

#: What goes on with a proof until its stop: `drive` here, or `dsel.engine.branch_and_bound.Workers` on a cluster.
Runner = Callable[[BranchAndBound, Stop, Callable[[AnytimeSearch], None] | None], str]


#: Proves for one size: (columns to choose, incumbent, seconds, nodes) -> certificate.
ProveSize = Callable[[int, Sequence[int], float | None, int | None], "Certificate | None"]


@dataclass(frozen=True)
class Certificate:
    """What is proved about the best subset of at most `size` columns (columns that are always included count).

    value: f of the best subset known, `members` (local indices; `indices` in the data). bound: no subset is below it
    (where columns are nearly dependent, to the share of ||Y||^2 that dsel.objective.conditioning.missed gives).
    total: ||Y||^2. better: whether `value` is below that of the subset that was to be certified. nodes, seconds: what
    the proof took, in all its runs.
    """

    size: int
    value: float
    bound: float
    total: float
    members: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    nodes: int = 0
    seconds: float = 0.0
    method: str = "branch-and-bound"
    better: bool = False

    @property
    def gap(self) -> float:
        """value - bound: the best subset is at most so much better."""
        return max(self.value - self.bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the value, 0 where that is 0."""
        return self.gap / self.value if self.value > 0.0 else 0.0

    @property
    def relative_to_total(self) -> float:
        """The gap as a share of ||Y||^2: so much R^2 may be missing."""
        return self.gap / self.total if self.total > 0.0 else 0.0

    @property
    def proven(self) -> bool:
        """Whether the subset is the best of its size, to 1e-10 of ||Y||^2 (see branch_and_bound.MARGIN)."""
        return self.gap <= 2.0 * MARGIN * self.total

    def merged(self, other: Certificate) -> Certificate:
        """The better of both values and of both bounds. It is never worse than either, but a bound that the other's
        value contradicts is dropped."""
        if other.size != self.size:
            raise OptionError(f"Certificates of {self.size} and {other.size} columns cannot be merged.")
        best = other if other.value < self.value else self
        bounds = (held(bound, best.value, best.total) for bound in (self.bound, other.bound))
        return replace(
            best, bound=max(bounds), nodes=self.nodes + other.nodes,
            seconds=self.seconds + other.seconds, better=self.better or other.better,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it, with what follows from it."""
        return {
            "size": self.size, "value": self.value, "bound": self.bound, "gap": self.gap,
            "relative_gap": self.relative_gap, "relative_to_total": self.relative_to_total, "proven": self.proven,
            "r2": 1.0 - self.value / self.total if self.total else 0.0,
            "r2_bound": 1.0 - self.bound / self.total if self.total else 0.0,
            "total": self.total, "indices": list(self.indices), "nodes": self.nodes, "seconds": self.seconds,
            "method": self.method, "better": self.better,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """From `as_dict`; the local members are not kept."""
        names = ("size", "value", "bound", "total", "nodes", "seconds", "method", "better")
        return cls(**{name: values[name] for name in names}, indices=tuple(values["indices"]))


@dataclass
class Proof:
    """A proof that can be interrupted: `run` goes on with it, `state` is what `resume` needs.

    Where branch and bound does not fit into memory, the search is the bound of the whole problem, and stays that. A
    proof that its first run does not finish takes the bound of `perspective_bound` too, kept in `relaxed`.
    """

    search: BranchAndBound | RootBound
    value: float
    seconds: float = 0.0
    relaxed: float | None = None
    _clock: list[float] = field(default_factory=list, repr=False)

    @classmethod
    def begin(
        cls, objective: Objective, k: int, incumbent: Iterable[int] = (), *, seed: int = 0,
        bound: BoundName = "combined", problem: BoundProblem | None = None, memory_limit: int = 8 << 30,
    ) -> Proof:  # fmt: skip
        """Begin with the incumbent, or a better subset that is found quickly."""
        known = tuple(incumbent)
        search: BranchAndBound | RootBound
        try:
            search = BranchAndBound(
                objective, k, incumbent=known, bound=bound, problem=problem, memory_limit=memory_limit
            )
        except CapacityError as error:
            log.info("%s The certificate is the bound of the whole problem.", error)
            found = known or forward(objective, k).best(k).members
            search = RootBound(objective, k, incumbent=found)
            return cls(search, objective.value(known) if known else float("inf"))
        value = search.best_value if known else float("inf")
        search.offer(starting_subset(objective, k, seed))
        return cls(search, value)

    @classmethod
    def resume(cls, objective: Objective, state: Mapping[str, Any], incumbent: Iterable[int] = ()) -> Proof:
        """Go on with a saved proof; a better incumbent found since then is used."""
        kind = RootBound if state["search"]["kind"] == RootBound.kind else BranchAndBound
        search: BranchAndBound | RootBound = kind.restore(objective, dict(state["search"]))
        known = tuple(incumbent)
        value = objective.value(known) if known else state["value"]
        search.offer(known)
        return cls(search, float("inf") if value is None else value, state["seconds"], state.get("relaxed"))

    def state(self) -> dict[str, Any]:
        """As JSON holds it."""
        value = None if self.value == float("inf") else self.value
        return {"search": self.search.state(), "value": value, "seconds": self.seconds, "relaxed": self.relaxed}

    def run(
        self, seconds: float | None = None, nodes: int | None = None,
        on_slice: Callable[[AnytimeSearch], None] | None = None, runner: Runner | None = None,
    ) -> bool:  # fmt: skip
        """Go on for so many seconds or nodes; True when the best subset is proved. runner: who does the work."""
        import time

        search = self.search
        if isinstance(search, RootBound):
            self._relax()
            return search.proven
        limit = _NO_LIMIT if nodes is None else search.iteration + nodes
        search.warm_up()
        start = time.monotonic()
        try:
            if not search.done:
                (runner or drive)(search, Stop(iterations=limit, seconds=seconds), on_slice)
        finally:
            self.seconds += time.monotonic() - start
        if not search.done:
            self._relax()
        return search.proven

    def _relax(self) -> None:
        if self.relaxed is None:
            self.relaxed = perspective_bound(BoundProblem.of(self.search.objective), self.search.k)

    def certificate(self) -> Certificate:
        """What is proved so far."""
        search, objective = self.search, self.search.objective
        base = len(objective.included)
        relaxation = held(self.relaxed or 0.0, search.best_value, objective.c)
        relaxed = relaxation > search.lower
        return Certificate(
            size=base + search.k,
            value=search.best_value,
            bound=max(search.lower, relaxation),
            total=objective.total,
            members=search.best,
            indices=tuple(objective.in_data(search.best)),
            nodes=search.iteration,
            seconds=self.seconds,
            method="perspective relaxation" if relaxed else f"{search.kind}, {search.bound_name} bound",
            better=search.best_value < self.value - MARGIN * objective.total and self.value < float("inf"),
        )


def certify(
    objective: Objective, k: int, incumbent: Iterable[int] = (), *, seconds: float | None = None,
    nodes: int | None = None, before: Certificate | None = None, seed: int = 0,
    on_slice: Callable[[AnytimeSearch], None] | None = None,
) -> Certificate:  # fmt: skip
    """Prove what can be proved in so many seconds or nodes (neither: until it is done) about at most k columns.

    objective: over the columns that may be chosen, with included ones taken out by `condition`; k counts the others.
    incumbent: the subset to certify (local indices). before: an older certificate, whose bound is kept where it is
    better. A better subset than the incumbent, where one is found, is the certificate's own, and `better` says so.
    """
    if k == 0:
        return _nothing_to_choose(objective)
    proof = Proof.begin(objective, k, incumbent, seed=seed)
    proof.run(seconds, nodes, on_slice)
    found = proof.certificate()
    return found if before is None else before.merged(found)


def certify_sizes(
    objective: Objective, incumbents: Mapping[int, Sequence[int]], *, seconds: float | None = None,
    nodes: int | None = None, seed: int = 0, prove: ProveSize | None = None,
) -> dict[int, Certificate]:  # fmt: skip
    """A certificate for every size among `incumbents`, the small ones first; a size leaves the time it did not need to
    the larger ones. What is proved for more columns holds for fewer.

    prove: does it for one size, given its seconds and nodes; it ends the proofs by None. By default `certify`.
    """
    import time

    start = time.monotonic()
    found: dict[int, Certificate] = {}
    sizes = sorted(incumbents)
    for place, size in enumerate(sizes):
        waiting = len(sizes) - place
        left = None if seconds is None else max(seconds - (time.monotonic() - start), 0.001) / waiting
        share = None if nodes is None else max(nodes // len(sizes), 1)
        if prove is None:
            found[size] = certify(objective, size, incumbents[size], seconds=left, nodes=share, seed=seed)
            continue
        certificate = prove(size, incumbents[size], left, share)
        if certificate is None:
            break
        found[size] = certificate
    return spread(found)


def spread(found: Mapping[int, Certificate]) -> dict[int, Certificate]:
    """A subset of few columns is also one of at most more columns: bounds go down in size, values go up."""
    result: dict[int, Certificate] = {}
    bound = -float("inf")
    for size in sorted(found, reverse=True):
        bound = max(bound, found[size].bound)
        result[size] = replace(found[size], bound=held(bound, found[size].value, found[size].total))
    return dict(sorted(result.items()))


def _nothing_to_choose(objective: Objective) -> Certificate:
    size = len(objective.included)
    return Certificate(
        size, objective.c, objective.c, objective.total, (), tuple(objective.included), method="nothing to choose"
    )
