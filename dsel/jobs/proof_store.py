"""The file of a proof: saved while it runs, so that it continues after an interruption, and its tree for a later run.

A proof for a loss saves its leaves in place of its tree.

A run of a series keeps the tree of its proof next to its result. The proof of the next run continues from it. Whatever
the file holds, bounds are computed from the new data: so a file that fits in size can only cost time.
"""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
from pydantic import Field, model_validator

from dsel._lib.damage import DamagedFileError, digest_of, warn_of_damage
from dsel._lib.npz import pack_npz, read_npz
from dsel._lib.tolerances import MARGIN
from dsel.config.job import ListLimits, ProofLimits
from dsel.config.types import Float
from dsel.errors import DselError, Interrupted
from dsel.jobs.run_folder import TREE, proof_log_name
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.search.anytime import SLICE_SECONDS, AnytimeSearch, Deadline, OutOfTime
from dsel.search.exact.carried_bound import CarriedBound, can_carry
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.choose_tree import takes_part
from dsel.search.exact.exact_search import FAILURES, CommonSetup
from dsel.search.exact.losses.tree import LossTree
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from dsel.search.exact.proof_log import ProofLog
from dsel.search.exact.tree import Runner
from dsel.search.method import OnSlice
from dsel.storage.json_files import read_json, write_json
from dsel.storage.paths import AnyPath, write_bytes

log = logging.getLogger("dsel")

#: A tree with another number is not read.
TREE_FORMAT = 3
#: The most bytes of a tree. What is far from the root is left out.
MOST_TREE_BYTES = 64 << 20


class ProofBudget(ProofLimits):
    """Limits of a proof.

    Parameters
    ----------
    seconds : float, optional
        Wall time for all sizes together.
    save_seconds : float
        Time between two saves of the state of the proof.
    keep_partial : bool
        If the proof is interrupted, return what is proved so far. By default, Interrupted is raised.
    near_best : ListLimits, optional
        List near-best subsets, not only the best one.
    """

    seconds: Float | None = Field(None, gt=0)
    save_seconds: float = 30.0
    keep_partial: bool = False
    near_best: ListLimits | None = None

    @model_validator(mode="after")
    def _sizes_have_a_use(self) -> Self:
        if self.near_best is not None:
            self.near_best.check_sizes(self.sizes)
        return self

    @property
    def list_rule(self) -> ListRule | None:
        """Which subsets are listed, None for only the best one."""
        if self.near_best is None:
            return None
        asked = self.near_best
        return ListRule(asked.within, asked.limit) if asked.nbest is None else ListRule(None, asked.nbest)

    def shares(self, sizes: Sequence[int]) -> Iterator[tuple[int, float | None, int | None]]:
        """Yield each size with its seconds and nodes, when its turn comes.

        The time that a size does not need is left for those after it. The last sizes have the rest of the nodes.
        """
        start = time.monotonic()
        for place, size in enumerate(sizes):
            seconds = self.seconds
            if seconds is not None:
                seconds = max(seconds - (time.monotonic() - start), 0.001) / (len(sizes) - place)
            yield size, seconds, None if self.nodes is None else (self.nodes + place) // len(sizes)


#: The best subsets that are found after a proof whose tree is not kept, for a bound on all others. That takes at
#: most this many times as many nodes, as much time as the proof or `_LEAST_SECONDS`, and `_MOST_SECONDS`.
_LISTED, _MORE_NODES, _FEW_NODES = 10, 4, 1000
_LEAST_SECONDS, _MOST_SECONDS = 3.0, 60.0
_TOO_LONG = "because the ten best subsets of the run before took too long"
#: Why a proof with a log does not continue another one.
_OF_A_LOG = "because the log of each proof is checked alone"
#: What holds the reason in a file that has no tree.
_NO_TREE = "why there is none"
#: A proof is not saved if its open nodes hold more numbers than this.
_MAX_NUMBERS = 20_000_000


@dataclass(frozen=True)
class SeriesOfProofs:
    """The trees of the proofs of a series of runs: that of the run before is read, and that of this run is written.

    folder: of this run. last: of the runs before, that of an unfinished one first; none for the first run. problem:
    what all must have in common besides the size, by a name for people.
    """

    folder: AnyPath
    last: Sequence[AnyPath]
    problem: Mapping[str, Any]

    def _identity(self, size: int, budget: ProofBudget) -> dict[str, str]:
        rule = budget.list_rule
        listed = None if rule is None else [rule.within, rule.limit]
        values = {**self.problem, "size": size, "list of near-best subsets": listed, "format of trees": TREE_FORMAT}
        return {name: digest_of(json.dumps(value).encode()) for name, value in values.items()}

    def last_tree(self, size: int, budget: ProofBudget) -> tuple[dict[str, Any] | None, str]:
        """Return the tree of the run before; None with the reason if there is none that suits."""
        why = ""
        for folder in self.last:
            tree, why = self._tree_in(folder, size, budget)
            if tree is not None:
                return tree, ""
        return None, why

    def own_tree(self, size: int, budget: ProofBudget) -> dict[str, Any] | None:
        """Return the tree that this run has written before it was interrupted, None if there is none."""
        return self._tree_in(self.folder, size, budget)[0]

    def _tree_in(self, folder: AnyPath, size: int, budget: ProofBudget) -> tuple[dict[str, Any] | None, str]:
        file = folder / tree_name(size, budget)
        try:
            saved = read_npz(io.BytesIO(file.read_bytes()))
            identity = json.loads(bytes(saved.pop("identity")))
        except DamagedFileError as error:
            warn_of_damage(file, "the proof begins again", error)
            return None, "because the tree of the run before is damaged"
        except (OSError, DselError, LookupError, ValueError):
            return None, "because the run before left no tree of this size"
        now = self._identity(size, budget)
        other = [name for name in now if identity.get(name) != now[name]]
        if other:
            return None, f"because the run before had another {' and another '.join(other)}"
        if (why := saved.get(_NO_TREE)) is not None:
            return None, bytes(why).decode()
        return saved, ""

    def write_reason(self, size: int, budget: ProofBudget, why: str) -> None:
        """Write why there is no tree, for the next run."""
        self.write(size, budget, {_NO_TREE: np.frombuffer(why.encode(), np.uint8)})

    def write(self, size: int, budget: ProofBudget, tree: Mapping[str, Any]) -> None:
        """Write a tree. Readers see all of it or nothing."""
        identity = np.frombuffer(json.dumps(self._identity(size, budget)).encode(), np.uint8)
        write_bytes(self.folder / tree_name(size, budget), pack_npz({**tree, "identity": identity}))


def tree_name(size: int, budget: ProofBudget) -> str:
    """Return the name of the file with the tree of a proof. size: without included columns."""
    return f"{TREE}{_kind(budget).removeprefix('proof-')}-{size}.npz"


def _kind(budget: ProofBudget) -> str:
    """Return what files of a proof are called. A proof within a limit does not replace one about all fits."""
    return "proof-near-best" if budget.near_best is not None else "proof" if budget.limit is None else "proof-limited"


def files_of_proof(
    folder: AnyPath | None, budget: ProofBudget, size: int, counted: int, *, last: bool
) -> tuple[AnyPath | None, AnyPath | None]:  # fmt: skip
    """Return the file of the proof for a size, and the folder of its log. counted: the size with included columns."""
    if folder is None:
        return None, None
    name, near_best = _kind(budget), budget.near_best is not None
    log_folder = folder / proof_log_name(counted, near_best) if budget.log else None
    return folder / (f"{name}.json" if last else f"{name}-{size}.json"), log_folder


@dataclass(frozen=True)
class ProofStore:
    """The file of the proof for one size.

    size: number of columns to choose, without included ones. fingerprint: of the data. setup: what the proofs for other
    sizes share. series: of the run, if there is one. path: the file; None: the proof is not saved. log: the folder of
    the proof log; None: the proof keeps none. certified: whether the selection has a certificate of this size.
    """

    objective: ItemObjective
    size: int
    fingerprint: str | None
    budget: ProofBudget
    setup: CommonSetup
    series: SeriesOfProofs | None
    path: AnyPath | None
    log: AnyPath | None
    certified: bool = False

    def _identity(self) -> dict[str, Any]:
        objective, groups = self.objective.columns_of, self.objective.groups
        grouped = {} if groups is None else {"groups": [group.tolist() for group in groups]}
        limits = {"coefficients": self.budget.coefficient_limit, "largest": self.budget.largest_coefficient}
        limit = {name: value for name, value in limits.items() if value is not None}
        rule = self.budget.list_rule
        share_of = ["||Y||^2"] if objective.included else []  # earlier versions: of what the included columns leave
        listed = {} if rule is None else {"near_best": [rule.within, rule.limit, *share_of]}
        return {
            **grouped, **limit, **listed,
            "fingerprint": self.fingerprint, "k": self.size, "n": objective.n, "c": objective.c, "lam": objective.lam,
            "columns": objective.columns.tolist(), "included": list(objective.included),
        }  # fmt: skip

    def prove(
        self, known: Sequence[int], grown: Sequence[int], seed: int, deadline: Deadline, nodes: int | None,
        on_slice: OnSlice | None, runner: Runner | None, data: dict[str, Any],
    ) -> tuple[Proof, bool]:  # fmt: skip
        """Run the saved proof, or a new one, and save it. Return it, and whether it was interrupted.

        known: the subset to certify. grown: another one that may be better. Each may be empty. data: what identifies
        the data in a log. It raises Interrupted unless the budget keeps a partial proof.
        """
        proof = self._open(known or grown, seed, deadline, nodes)
        if grown:
            proof.search.offer(grown)
        try:
            proof.run(deadline.left, nodes, self._saving(proof, on_slice), runner)
        except Interrupted:
            if not self.budget.keep_partial:
                raise
            return proof, True
        finally:
            self._save(proof)
            self._keep_tree(proof)
            proof.finish_log(data)
            if self.log is not None and self._relaxes and not proof.search.proven:
                log.warning("A log cannot hold relaxations. They often prove more of a problem of this size: leave out "
                            "the log, and begin again.")  # fmt: skip
        return proof, False

    @property
    def _relaxes(self) -> bool:
        """Whether a proof without a log uses relaxations."""
        return self.objective.groups is None and takes_part(cast(Objective, self.objective), self.size)

    def _open(self, incumbent: Sequence[int], seed: int, deadline: Deadline, nodes: int | None) -> Proof:
        """Return the saved proof if it is about the same subsets, else a new one, which begins before the deadline."""
        saved = read_json(self.path, lost="the proof starts again") if self.path is not None else None
        if self.log is not None and isinstance(saved, dict) and "log" not in saved:
            log.info("the proof in %s has no log and starts again", self.path)
            saved = None
        if self._relaxes and self.log is None and isinstance(saved, dict) and "log" in saved:
            log.info("the proof in %s was made for a log and starts again by relaxations, which no log has", self.path)
            saved = None
        if isinstance(saved, dict) and saved.get("identity") == self._identity():
            try:
                proof = self._resume(saved, incumbent)
            except (LookupError, TypeError, ValueError, ArithmeticError, OSError, DselError) as error:
                of_log = isinstance(error, OSError | DamagedFileError)
                warn_of_damage(self.log if of_log else self.path, "the proof starts again", repr(error))
            else:
                text = "continuing the proof in %s" if proof.search.active else "the proof in %s is complete"
                log.info(text, self.path)
                return proof
        tree, why = (None, "") if self.series is None else self.series.last_tree(self.size, self.budget)
        if tree is not None and "above" in tree:
            tree, why = None, "because the bound of the run before no longer suffices"
        proof = Proof.begin(
            self.objective, self.size, incumbent, seed=seed, deadline=deadline,
            log=self._continued_log({}), coefficient_limit=self.budget.coefficient_limit,
            largest_coefficient=self.budget.largest_coefficient, setup=self.setup, near_best=self.budget.list_rule,
            kept=tree, nodes=nodes,
        )  # fmt: skip
        if tree is not None and not proof.search.follows:
            why = "because the new data need another tree"
        elif self.certified and self.log is not None:
            why = why or _OF_A_LOG
        if why:
            why = self._never_continues(follows=proof.search.can_be_followed) or why
            log.info("the proof for size %d begins again, %s", self.size, why)
        return replace(proof, began_again=why)

    def _never_continues(self, *, follows: bool) -> str:
        """Return why no run continues such a proof; empty if it may. follows: whether its tree could be followed."""
        if self.log is not None:
            return _OF_A_LOG
        if not self.objective.has_gram:
            return "because proofs in passes over the data keep no tree"
        if self.budget.limit:
            return "because proofs with a limit for coefficients keep no tree"
        if follows:
            return ""
        if self.budget.near_best is not None:
            return "because this list of near-best subsets keeps no tree"
        return (
            "" if can_carry(self.objective) else "because some columns depend on others, and no bound is carried over"
        )

    @property
    def why_together(self) -> str:
        """Why a search of all sizes together continues no proof of the run before; empty for a first run."""
        tree, why = (None, "") if self.series is None else self.series.last_tree(self.size, self.budget)
        if tree is not None:
            return "because the bounds of the run before no longer suffice for all sizes"
        return why and (self._never_continues(follows=False) or why)

    def carried(self, known: Sequence[int]) -> Certificate | None:
        """Return the certificate that follows from the bound of the run before, without a search; None if none does.

        known: the subset to certify, empty if there is none.
        """
        began = time.monotonic(), time.process_time()
        if self.series is None or self.log is not None or self.budget.near_best is not None:
            return None
        saved, _ = self.series.last_tree(self.size, self.budget)
        if saved is None or "above" not in saved:
            return None
        try:
            found = CarriedBound.from_arrays(saved).certificate(self.setup, self.size, known)
        except (LookupError, *FAILURES) as error:
            log.info("the bound of the run before is not used: %r", error)
            return None
        if found is None:
            return None
        self.series.write(self.size, self.budget, saved)
        return replace(found, seconds=time.monotonic() - began[0], cpu_seconds=time.process_time() - began[1])

    def _continued_log(self, saved: dict[str, Any]) -> ProofLog | None:
        if self.log is None:
            return None
        return ProofLog(self.log, self.objective, self.size, int(saved.get("log", 0)))

    def _resume(self, saved: dict[str, Any], incumbent: Sequence[int]) -> Proof:
        proof_log = self._continued_log(saved)
        if proof_log is not None:
            proof_log.require_whole()
        proof = Proof.resume(self.objective, saved["proof"], incumbent, proof_log, self.setup)
        tree = None if self.series is None else self.series.own_tree(self.size, self.budget)
        if tree is not None and "above" not in tree:
            proof.search.recall(tree)
        return proof

    def _save(self, proof: Proof) -> None:
        """Write the proof, unless it has no file or too many open nodes, and its tree for the next run."""
        if self.series is not None and not proof.search.proven and (kept := proof.search.kept(MOST_TREE_BYTES)):
            self.series.write(self.size, self.budget, kept)
        if self.path is None:
            return
        if proof.search.saved_numbers > _MAX_NUMBERS:
            log.info("the proof has too many open nodes to be saved; the next run starts it again")
            return
        values: dict[str, Any] = {"identity": self._identity(), "proof": proof.state()}
        if proof.log is not None:
            values["log"] = proof.log.flush()
        write_json(self.path, values)

    def _keep_tree(self, proof: Proof) -> None:
        """Write the tree of a proof for the next run of the series, if there is one, or else a bound."""
        if self.series is None:
            return
        if kept := proof.search.kept(MOST_TREE_BYTES):
            self.series.write(self.size, self.budget, kept)
        elif proof.search.proven and not (proof.search.follows or self.budget.limit):
            self.keep_bound(proof.search.best, proof.search.iteration, proof.cpu)

    def keep_bound(self, best: Sequence[int], nodes: int, seconds: float) -> None:
        """Find the best few subsets and a bound on all others for the next run, where that takes as long as the proof.

        best: the best one, which is proved. nodes, seconds: of its proof.
        """
        small = 8 * self.objective.n**2 < MOST_TREE_BYTES
        listed = self.log is None and self.budget.near_best is None
        if self.series is None or not (small and listed and can_carry(self.objective)):
            return
        deadline = Deadline(min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS))
        few, why = None, _TOO_LONG
        try:
            few = self._best_few(best, _MORE_NODES * nodes + _FEW_NODES, deadline)
        except OutOfTime:
            pass
        except FAILURES as error:
            why = f"because the search for the ten best subsets of the run before failed: {error!r}"
        if few is None:
            self.series.write_reason(self.size, self.budget, why)
            return
        subsets, least = few
        above = least - (self.setup.guarantee(self.size).error + MARGIN) * self.objective.total
        bound = CarriedBound.of(self.objective, subsets, above)
        self.series.write(self.size, self.budget, bound.as_arrays())

    def _best_few(
        self, best: Sequence[int], nodes: int, deadline: Deadline
    ) -> tuple[Sequence[tuple[int, ...]], float] | None:  # fmt: skip
        """Return the best few subsets, and the least f of others; None if that takes too long."""
        more = Proof.begin(
            self.objective, self.size, best, setup=self.setup, near_best=ListRule(None, _LISTED), deadline=deadline
        )  # fmt: skip
        more.run(deadline.left, nodes)
        near = more.search.near_best
        return ([S for S, _ in near.subsets], near.listed_below) if near is not None and more.search.proven else None

    def _saving(self, proof: Proof, on_slice: OnSlice | None) -> OnSlice:
        """Return a callback for each slice that saves the proof when it is time, then calls `on_slice`.

        A proof that makes passes over the data is saved after each one.
        """
        last, passes = time.monotonic(), proof.search.passes

        def save_and_call(search: AnytimeSearch) -> None:
            nonlocal last, passes
            made = getattr(search, "passes", 0)
            if made > passes or time.monotonic() - last >= self.budget.save_seconds:
                self._save(proof)
                last, passes = time.monotonic(), made
            if on_slice is not None:
                on_slice(search)

        return save_and_call


class LossWatcher:
    """The saved leaves of the proof for one size, and what is called between its nodes.

    Parameters
    ----------
    size : int
        Columns to choose, without included ones.
    budget : ProofBudget
        How often the leaves are saved, and what an interruption does.
    trees : SeriesOfProofs or None
        Where leaves are read and written. None: they are not kept.
    on_slice : callable or None
        Called with the tree a few times in a second. It raises Interrupted to end the proof.
    """

    def __init__(
        self, size: int, budget: ProofBudget, trees: SeriesOfProofs | None, on_slice: Callable[[Any], None] | None
    ) -> None:  # fmt: skip
        self._size, self._budget, self._trees, self._on_slice = size, budget, trees, on_slice
        self._saved = self._told = time.monotonic()
        self._followed: Mapping[str, Any] | None = None

    def begin(self, tree: LossTree) -> None:
        """Let the tree follow the leaves of this run, or those of the run before."""
        if self._trees is None:
            return
        tree.keeps = True
        own, why = self._trees.own_tree(self._size, self._budget), ""
        saved = own
        if saved is None:
            saved, why = self._trees.last_tree(self._size, self._budget)
        if saved is not None and not tree.follow(saved):
            saved, why = None, "because the saved tree does not fit"
        self._followed = saved
        if why and self._trees.last:
            log.info("the proof for size %d begins again, %s", self._size, why)
            tree.began_again = why
        elif saved is not None:
            log.info("continuing the proof for size %d%s", self._size, "" if own else " of the run before")

    def after_node(self, tree: LossTree) -> bool:
        """Save the leaves when it is time, and call `on_slice`. Return whether it interrupted a proof that may end."""
        now = time.monotonic()
        if now - self._saved >= self._budget.save_seconds:
            self.at_end(tree)
        if self._on_slice is None or now - self._told < SLICE_SECONDS:
            return False
        self._told = now
        try:
            self._on_slice(tree)
        except Interrupted:
            if not self._budget.keep_partial:
                self.at_end(tree)
                raise
            return True
        return False

    def at_end(self, tree: LossTree) -> None:
        """Save the leaves; before the first node those that the tree follows, for the next run."""
        if self._trees is not None and (kept := tree.kept(MOST_TREE_BYTES) or self._followed):
            self._trees.write(self._size, self._budget, kept)
            self._saved = time.monotonic()
