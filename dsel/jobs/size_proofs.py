"""Prove the subsets of a selection, size by size: by the bounds of the run before, all at once, or each by its tree."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dsel._lib.damage import DamagedFileError
from dsel._lib.text import counted, counted_items, round_up
from dsel.config.size_rule import InformationCriterion
from dsel.errors import CapacityError, DselError, Interrupted, OptionError
from dsel.jobs.proof_store import ProofBudget, ProofStore, SeriesOfProofs, files_of_proof
from dsel.jobs.run_folder import proof_log_name
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.all_sizes import NearlyDependentError, best_by_criterion, best_of_sizes, traversal_seconds
from dsel.search.exact.certificate import Certificate, is_finished, nothing_to_choose, without_bound
from dsel.search.exact.exact_search import FAILURES, CommonSetup
from dsel.search.exact.guarantee import Limits
from dsel.search.exact.near_best import EQUAL
from dsel.search.exact.proof_log import MANIFEST, read_files
from dsel.search.exact.tree import Runner
from dsel.search.greedy.path import forward
from dsel.search.pareto.starting_subset import extended
from dsel.selection.add_certificates import Candidates, alternatives_in_data, criterion_list_in_data, reliance_of
from dsel.selection.alternatives import Alternatives
from dsel.selection.answer import explained_share
from dsel.selection.certificates import FAILED
from dsel.selection.context import SelectionRun
from dsel.selection.information_criteria import CriterionContext
from dsel.selection.represented import listed_over_copies
from dsel.selection.result import Selection
from dsel.selection.search_sizes import residual_and_freedom
from dsel.storage.json_files import read_json
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

#: A proof about at most this number of subsets has at least this number of seconds. It needs a small part of them.
_FEW_SUBSETS, _LEAST_SECONDS = 1000, 10.0
#: How much more time suffices for nodes, for each size, as a multiple of the seconds of a node.
_NODES_TIME = 2.0
#: How the note on a proof without time ends.
_MORE_TIME = "; give it more time"


@dataclass
class Proved:
    """What proofs found, by size with included columns: certificates, near-best subsets, and notes on failures."""

    certificates: dict[int, Certificate] = field(default_factory=dict)
    alternatives: dict[int, Alternatives] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def prove_sizes(
    run: SelectionRun, selection: Selection, budget: ProofBudget, folder: AnyPath | None, runner: Runner | None
) -> Proved:
    """Return what can be proved within the budget, until the proof is interrupted."""
    base = run.validated.included
    k = min(selection.k - base, run.subject.n)
    if k == 0:
        nothing = nothing_to_choose(run.objective, Limits(run.objective).guarantee(0).error)
        return Proved({base: replace(nothing, size=base)})
    if budget.near_best is not None and budget.near_best.by is not None:
        best = _best_by_criterion(run, selection, budget, budget.near_best.by)
        sure = best.limit_error + EQUAL * best.total
        return Proved(alternatives={best.size: _over_copies(best, selection, run, sure)})
    sizes = _SizeProofs(run, selection, budget, folder, k)
    if not sizes.carry() and not sizes.prove_together():
        sizes.prove_each(runner)
    if base + k not in sizes.proved.alternatives:
        sizes.proved.alternatives.clear()  # a list of fewer columns is not that of the selection
    return sizes.proved


def why_no_list(selection: Selection) -> DselError:
    """Return the error that says why the proof of a selection left no list of near-best subsets."""
    what, k = "There is no near-best subset:", selection.k
    failures = [note.removesuffix(_MORE_TIME) for note in selection.notes if note.startswith(FAILED)]
    if failures or len(selection) > len(selection.include):
        why = "; ".join(failures) or "the time did not suffice"
        return CapacityError(f"No near-best subset could be listed: {why}.", "Allow more time.")
    if (curve := selection.size_curve) is not None:
        others = " besides the included ones" if selection.include else ""
        why = f"no column is chosen{others}, because {k} is {curve.description}"
        return OptionError(f"{what} {why}.", f"Select with a number as k, such as {k + 1}.")
    if k > selection.front[-1].size:
        why = "no column can be chosen besides the included ones"
        return OptionError(f"{what} {why}.", "Include or exclude fewer columns.")
    items = "columns" if selection.request.groups is None else "groups of columns"
    return OptionError(f"{what} k is {k}, and as many {items} are included.", "Select for a larger k.")


class _SizeProofs:
    """The proofs of a selection by size. Sizes here count what is to choose, without included columns or groups.

    k: the largest size.
    """

    def __init__(
        self, run: SelectionRun, selection: Selection, budget: ProofBudget, folder: AnyPath | None, k: int
    ) -> None:  # fmt: skip
        self._run, self._selection, self._budget, self._k = run, selection, budget, k
        self._subject, self._base = run.subject, run.validated.included
        self._local = {int(j): place for place, j in enumerate(run.objective.columns)}
        series = None if folder is None or not run.context.keeps_trees else trees_of(run, folder)
        known = self._known_subsets()
        finished = set() if series is not None else _finished_sizes(selection, budget, folder)
        self._known = {size: S for size, S in known.items() if self._base + size not in finished}
        if len(self._known) < len(known):
            logged = ": their logs are complete" if budget.log else ""
            log.info("finished proofs of %s are not repeated%s", counted(len(known) - len(self._known), "size"), logged)
        self._setup = CommonSetup(self._subject, guided=len(self._known) > 1 or series is not None)
        self._stores = {
            size: ProofStore(
                self._subject, size, selection.fingerprint, budget, self._setup, series,
                *files_of_proof(folder, budget, size, self._base + size, last=size == k),
                certified=self._certificate_of(self._base + size) is not None,
            )
            for size in self._known
        }  # fmt: skip
        self._smaller: Sequence[int] = ()  # the best subset of the size before
        self.proved = Proved()

    def _known_subsets(self) -> dict[int, Sequence[int]]:
        """Return the known subset of each size (local indices of columns or groups), empty if there is none."""
        known: dict[int, Sequence[int]] = {self._k: self._members(self._selection.indices)}
        if self._budget.sizes == "all":
            front = {row.size - self._base: row for row in self._selection.front}
            for size in range(1, self._k):
                known[size] = self._members(front[size].indices) if size in front else ()
        return dict(sorted(known.items()))

    def _members(self, indices: Sequence[int]) -> Sequence[int]:
        return self._subject.within(self._local[j] for j in indices if j in self._local)

    def carry(self) -> bool:
        """Take the certificates that follow from bounds of the run before. Return whether no size is left."""
        for size, store in self._stores.items():
            if (certificate := store.carried(self._known[size])) is not None:
                self.proved.certificates[self._base + size] = certificate
        return len(self.proved.certificates) == len(self._stores)

    def prove_together(self) -> bool:
        """Prove all sizes in one traversal, where that is quick. Return whether it ended.

        If not, the subsets that it found are known to the proofs of each size.
        """
        subject, budget, start = self._setup.objective, self._budget, time.monotonic()
        deadline = Deadline(traversal_seconds(subject, self._k, budget.seconds))
        listed = budget.log or budget.nodes is not None or budget.near_best is not None
        if budget.sizes != "all" or listed or deadline.passed:
            return False
        try:
            path = [point.members for point in forward(subject, self._k).front]
            starts = [*self._known.values(), *path]
            found = best_of_sizes(subject, self._k, starts, deadline, self._run.context.on_slice)
        except Interrupted:  # the traversal is not saved; the proof of the first size keeps what it can
            if not budget.keep_partial:
                raise
            return False
        except ValueError as error:
            log.info("each size gets its own proof: %s", error)
            return False
        if not found.proven:
            self._known |= found.subsets
            return False
        seconds = time.monotonic() - start
        for size, store in self._stores.items():
            certificate = found.certificate(self._setup, size, self._known[size], seconds)
            self.proved.certificates[certificate.size] = replace(certificate, began_again=store.why_together)
            share = seconds / len(self._stores)
            store.keep_bound(self._members(certificate.indices), certificate.nodes // self._k, share)
        return True

    def prove_each(self, runner: Runner | None) -> None:
        """Prove the sizes that are left, the smallest first, until one is interrupted."""
        for size, seconds, nodes in self._budget.shares(list(self._stores)):
            if len(self._stores) > 1:
                log.info("certificate for %s", counted_items(self._base + size, self._run.validated.items.noun))
            if self._base + size in self.proved.certificates:
                continue
            if seconds is not None and math.comb(self._subject.n, size) <= _FEW_SUBSETS:
                seconds = max(seconds, _LEAST_SECONDS)
            try:
                interrupted = self._prove(size, Deadline(seconds), nodes, runner)
            except OutOfTime as error:
                words = ["has too little time"] if self._is_open(size) else []
                words += ["has no log"] if self._budget.log else []
                log.warning(self._note(size, f"{', and '.join(words)}: {error}{_MORE_TIME}"))
                if self._budget.near_best is None and self._known[size]:
                    bound = without_bound(self._subject, size, self._known[size])
                    self.proved.certificates[self._base + size] = bound
            except FAILURES as error:  # the selection is worth more than its proof
                log.warning(self._note(size, f"failed ({type(error).__name__}: {error})"))
            else:
                if interrupted:
                    return

    def _note(self, size: int, words: str) -> str:
        what, items = FAILED[self._budget.near_best is not None], self._run.validated.items
        self.proved.notes.append(f"{what} {counted_items(self._base + size, items.noun)} {words}")
        return self.proved.notes[-1]

    def _prove(self, size: int, deadline: Deadline, nodes: int | None, runner: Runner | None) -> bool:
        """Prove one size. Return whether the proof was interrupted."""
        run, counted = self._run, self._base + size
        grown = extended(self._subject, self._smaller, size) if self._smaller else ()
        proof, interrupted = self._stores[size].prove(
            self._known[size], grown, run.validated.request.seed, deadline, nodes, run.context.on_slice, runner,
            _identified(self._selection),
        )  # fmt: skip
        certificate = self._with_time_needed(proof.certificate())
        self.proved.certificates[counted] = certificate
        if self._budget.near_best is not None:
            answer = proof.near_best(deadline)
            listed = alternatives_in_data(
                answer, Candidates.of(self._subject, run.always), partial(explained_share, run.whole),
                reliance_of(answer, self._subject), run, certificate,
            )  # fmt: skip
            self.proved.alternatives[counted] = _over_copies(listed, self._selection, run, answer.sure)
        if run.objective.has_gram:
            self._smaller = proof.search.best
        if note := proof.search.limit_note():
            self._note(size, note)
        return interrupted

    def _certificate_of(self, size: int) -> Mapping[str, Any] | None:
        """Return the certificate of the selection for a size, included columns counted, or None."""
        return next((row for row in self._selection.certificate if row["size"] == size), None)

    def _is_open(self, size: int) -> bool:
        """Return whether there is no certificate yet that no proof improves, or a list is asked for."""
        row = self._certificate_of(self._base + size)
        return self._budget.near_best is not None or row is None or not is_finished(row, limited=False)

    def _with_time_needed(self, certificate: Certificate) -> Certificate:
        """Return a certificate with the time limit that suffices, if this one left too little time for a node."""
        limit = self._budget.seconds
        if limit is None or not certificate.node_seconds:
            return certificate
        needed = round_up(limit + _NODES_TIME * certificate.node_seconds * len(self._stores))
        return replace(certificate, time_limit=limit, time_needed=needed)


def _over_copies(found: Alternatives, selection: Selection, run: SelectionRun, sure: float) -> Alternatives:
    """Return near-best subsets whose verdicts and prices count near-copies. sure: see `NearBestAnswer`."""
    whole, grouped = run.whole, run.validated.groups is not None

    def errors_of(subsets: Sequence[tuple[int, ...]]) -> list[float]:
        kept = [whole.without_dependent(S) if grouped else S for S in subsets]
        return [whole.value(S) if whole.rank(S) == len(S) else math.inf for S in kept]

    return listed_over_copies(found, selection.counts, errors_of, sure, whole, run.objective)


def _finished_sizes(selection: Selection, budget: ProofBudget, folder: AnyPath | None) -> set[int]:
    """Return the sizes whose certificates no proof improves, and whose log is there if there must be one.

    None where a proof also leaves a list.
    """
    if budget.near_best is not None:
        return set()
    limited = budget.limit is not None
    finished = [row for row in selection.certificate if is_finished(row, limited=limited)]
    return {row["size"] for row in finished if not budget.log or _is_logged(selection, row, folder)}


def _is_logged(selection: Selection, row: Mapping[str, Any], folder: AnyPath | None) -> bool:
    """Return whether a complete log has the proof of a certificate, and each of its files can be read."""
    log_folder = None if folder is None else folder / proof_log_name(row["size"])
    manifest = None if log_folder is None else read_json(log_folder / MANIFEST)
    if log_folder is None or not isinstance(manifest, dict) or manifest.get("fingerprint") != selection.fingerprint:
        return False
    try:
        read_files(log_folder, manifest["files"])
    except (OSError, LookupError, TypeError, DamagedFileError):
        return False
    return bool(manifest.get("bound", 0.0) >= row["bound"])


def trees_of(run: SelectionRun, folder: AnyPath) -> SeriesOfProofs:
    """Return the trees of a run and of those before it in a series, if there is one."""
    request, objective, features = run.validated.request, run.objective, run.dataset.features
    groups = run.validated.subject(objective).groups
    problem = {
        "list of columns": [str(features[int(j)]) for j in (*objective.columns, -1, *objective.included) if j >= 0],
        "number of targets": run.dataset.n_targets, "preprocessing": request.preprocess,
        "penalty": request.lam,
        "list of groups": groups is not None and [group.tolist() for group in groups],  # of what a bound is about
    }  # fmt: skip
    if run.validated.loss is not None:
        problem["loss"] = run.validated.loss.name
    return SeriesOfProofs(folder, run.context.last_runs, problem)


def _best_by_criterion(
    run: SelectionRun, selection: Selection, budget: ProofBudget, by: InformationCriterion
) -> Alternatives:  # fmt: skip
    """Return the best subsets of any size by a criterion. Errors: OptionError where it is not known how."""
    objective, start = run.objective, time.monotonic()
    assert budget.near_best is not None
    if objective.lam or not run.dataset.n_targets or not objective.has_gram:
        raise OptionError(
            f"The best subsets by {by} are listed for targets, without a penalty, with the Gram matrix in memory.",
            "Leave by out.",
        )
    weight, N, included = run.prepared.statistics.weight, run.dataset.n_targets, run.whole.rank(objective.included)
    of_all = residual_and_freedom(run.whole, objective.in_data(range(objective.n))) if by == "cp" else None
    context = CriterionContext(weight, N, objective.n, objective.total, intercept=run.has_intercept, of_all=of_all)
    incumbent = [i for i, j in enumerate(objective.columns.tolist()) if j in selection.indices]

    def value(f: float, s: int) -> float:
        return context.value(by, f, included + s, s)

    def limit(at: float, s: int) -> float:
        return context.rss(by, at, included + s, s)

    try:
        found = best_by_criterion(
            objective, budget.near_best.nbest or 1, value, limit, [incumbent], Deadline(budget.seconds),
            run.context.on_slice,
        )  # fmt: skip
    except ValueError as error:
        remedy = "Leave by out."
        if isinstance(error, NearlyDependentError):
            column = run.dataset.features[int(objective.columns[error.column])]
            remedy = f"Select again without {column}, which depends on others, or leave by out."
        raise OptionError(f"Subsets by {by} cannot be listed: {error}.", remedy) from error
    seconds = time.monotonic() - start
    return criterion_list_in_data(found, run, by, value, seconds)


def _identified(selection: Selection) -> dict[str, Any]:
    """Return what identifies the data of a proof log, and their preprocessing."""
    return {
        "source": selection.source, "fingerprint": selection.fingerprint, "preprocess": selection.preprocess,
        "weights": selection.weights, "targets": list(selection.targets), "versions": selection.versions,
    }  # fmt: skip
