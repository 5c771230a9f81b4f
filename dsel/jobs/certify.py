"""Prove how far a selection can be from the best one: from its data and request, after the search or much later.

The submodularity ratio of a selection, from its data.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from dsel.config.job import MOST_COEFFICIENTS
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset, as_dataset
from dsel.data.divide_rows import select_rows
from dsel.engine.clusters.connect import active_client, engine_of
from dsel.errors import CapacityError, DataError, Interrupted, OptionError
from dsel.jobs.checkpoint import ProofStore
from dsel.jobs.run_folder import proof_log_name
from dsel.objective.base import ItemObjective, Objective
from dsel.passes.base import log_passes
from dsel.planning.plan import available_resources
from dsel.planning.representations.base import Prepared, ProblemShape
from dsel.planning.representations.choice import choose, choose_for_proof, gram_proves_nothing
from dsel.planning.representations.gram import GramMatrix
from dsel.planning.validation import ValidatedRequest, validate
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.certificate import GROUPS, Certificate, caveat, claim, covered, effort, nothing_to_choose
from dsel.search.exact.choose_tree import ProofProblem
from dsel.search.exact.exact_search import FAILURES, CommonSetup
from dsel.search.exact.tree import Runner
from dsel.search.method import Requirements
from dsel.search.pareto.starting_subset import extended
from dsel.selection.add_certificates import with_better_subset, with_certificates, with_submodularity
from dsel.selection.candidates import candidates_of
from dsel.selection.context import RunContext, SelectionRun
from dsel.selection.result import Selection
from dsel.selection.submodularity import MOST_EIGENVALUES
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

Sizes = Literal["chosen", "all"]

#: How the note on a proof that failed begins. The next run of the job tries the proof again.
_FAILED = "the proof for"
#: What the error of the same columns may differ by, as a share of ||Y||^2.
_SAME_ERROR = 1e-4


@dataclass(frozen=True)
class ProofBudget:
    """Limits of a proof.

    Parameters
    ----------
    seconds : float, optional
        Wall time for all sizes together.
    nodes : int, optional
        Nodes of branch and bound for all sizes together.
    sizes : {"chosen", "all"}
        Prove for the chosen size only, or for every size up to k. The best subset of each size is where the proof for
        the next one begins.
    save_seconds : float
        Time between two saves of the state of the proof.
    keep_partial : bool
        If the proof is interrupted, return what is proved so far. By default, Interrupted is raised.
    log : bool
        Write the tree of the search to a folder for each size, so that `dsel verify` can check the proof.
    coefficients : float, optional
        Prove for subsets whose squared coefficients, for columns of norm 1, sum to at most this many times those of
        the selection. It is for one target. With fewer than 150 columns, the proof is about all subsets.
    """

    seconds: float | None = None
    nodes: int | None = None
    sizes: Sizes = "chosen"
    save_seconds: float = 30.0
    keep_partial: bool = False
    log: bool = False
    coefficients: float | None = None

    def __post_init__(self) -> None:
        """Raise OptionError for limits that make no sense."""
        if self.seconds is not None and not self.seconds > 0.0:
            raise OptionError(f"seconds is {self.seconds}.", "It is the time for the proof, above 0, or None.")
        if self.nodes is not None and self.nodes < 1:
            raise OptionError(f"nodes is {self.nodes}.", "It is a number of nodes >= 1, or None.")
        if self.sizes not in get_args(Sizes):
            raise OptionError(f"There is no choice of sizes {self.sizes!r}.", f"One of {', '.join(get_args(Sizes))}.")
        if self.coefficients is not None and not 1.0 <= self.coefficients <= MOST_COEFFICIENTS:
            raise OptionError(
                f"coefficients is {self.coefficients}.",
                f"It is a multiple of those of the selection, from 1 to {MOST_COEFFICIENTS:g}.",
            )

    def shares(self, sizes: Sequence[int]) -> Iterator[tuple[int, float | None, int | None]]:
        """Yield each size with its seconds and nodes, when its turn comes.

        The time that a size does not need is left for those after it.
        """
        start = time.monotonic()
        for place, size in enumerate(sizes):
            seconds = self.seconds
            if seconds is not None:
                seconds = max(seconds - (time.monotonic() - start), 0.001) / (len(sizes) - place)
            yield size, seconds, None if self.nodes is None else max(self.nodes // len(sizes), 1)


def certify_selection(
    dataset: Dataset, request: SelectionRequest, selection: Selection, budget: ProofBudget,
    context: RunContext | None = None, folder: AnyPath | None = None, runner: Runner | None = None,
) -> Selection:  # fmt: skip
    """Return the selection with certificates; a better subset that the proof found replaces its columns.

    Cached statistics are used if there are any, otherwise they take one pass. If the Gram matrix fits into memory, only
    a better subset reads the data again. If not, the proof makes a pass for each step.

    Parameters
    ----------
    dataset, request : Dataset, SelectionRequest
        What the selection was made from.
    selection : Selection
        The selection to certify.
    budget : ProofBudget
        Limits of the proof.
    context : RunContext, optional
        Engine, cache and callbacks.
    folder : Path or ObjectPath, optional
        Folder where an unfinished proof is saved and continued.
    runner : Runner, optional
        Runs the search of the proof, by default in this process.

    Raises
    ------
    OptionError
        If the method minimizes another criterion than the quadratic objective, if a log has no folder, or if a limit
        for coefficients is given for several targets or groups.
    DataError
        If the data are not those of the selection.
    Interrupted
        If a callback of the context raises it, unless `budget.keep_partial`.
    """
    if selection.criterion is not None:
        raise OptionError(
            f"{selection.method} minimizes a custom criterion, which has no certificate.",
            "Certificates are for methods that minimize ||Y - X_S A||^2 + lam ||A||^2.",
        )
    if budget.log and folder is None:
        raise OptionError("A proof log needs a folder.", "Save the selection, and certify it there.")
    require_one_target(dataset, request, budget.coefficients)
    context = context or RunContext()
    validated = validated_again(dataset, request, selection)
    request = validated.request
    dataset = validated.training or dataset
    with log_passes() as made:
        prepared = _prepare(dataset, validated, context, budget)
        whole = prepared.objective(request.lam)
        objective, _ = candidates_of(dataset, validated, prepared.statistics, whole)
        _require_gram(objective, validated, budget)
        require_same_data(objective, selection)
        found, notes = _prove(objective, validated, selection, budget, context, folder, runner)
    kept = tuple(note for note in selection.notes if not note.startswith(_FAILED))
    selection = replace(selection, passes=selection.passes + made.passes, notes=(*kept, *notes))
    selection = with_certificates(selection, found, dataset.features.tolist())
    for values in selection.certificate:
        log.info("%s", describe(values, selection.label))
    run = SelectionRun(dataset, validated, context, prepared, whole, objective)
    selection = with_better_subset(run, selection)
    if objective.n > MOST_EIGENVALUES:  # `submodularity_ratio` takes its time when it is asked for
        return selection
    return with_submodularity(selection, objective)


def _prepare(dataset: Dataset, validated: ValidatedRequest, context: RunContext, budget: ProofBudget) -> Prepared:
    """Make the passes for the statistics of a proof, unless they are saved."""
    request, engine, cache = validated.request, context.engine, context.cache
    shape = ProblemShape.of(dataset, request.limit, Requirements(whole_gram=validated.groups is not None))
    resources = available_resources(engine.workers, engine.worker_memory, engine.keeps_values)
    saved = cache is not None and GramMatrix(shape, resources).saved(dataset, validated, cache).statistics
    limited = budget.coefficients is not None
    relaxable = shape.N == 1 and (request.lam > 0.0 or limited)
    to_choose = 1 if budget.sizes == "all" else request.limit - validated.included
    chosen = choose_for_proof(
        shape, resources, saved=saved, quick_passes=limited and dataset.in_memory,
        in_passes=relaxable or gram_proves_nothing(shape, request.lam, to_choose),
    )  # fmt: skip
    if isinstance(chosen, GramMatrix):
        return chosen.prepare_whole(dataset, request, engine, cache)
    if not chosen.exact:
        raise CapacityError(
            f"A proof needs all of the data, and neither {shape.n} x {shape.n} nor {shape.m} x {shape.m} numbers fit.",
            "Use a machine with more memory.",
        )
    return chosen.prepare(dataset, validated, engine, cache)


def _require_gram(objective: Objective, validated: ValidatedRequest, budget: ProofBudget) -> None:
    """Raise OptionError for what needs the whole Gram matrix in memory, if it is not there."""
    wide = ProofProblem(objective, 1, coefficient_limit=budget.coefficients).wide
    if budget.log and validated.groups is None and wide:
        raise OptionError(
            f"There is no proof log for {objective.n} columns or with a limit for coefficients: it makes passes.",
            "Certify without a log. The certificate is the same.",
        )


def validated_again(dataset: Dataset, request: SelectionRequest, selection: Selection) -> ValidatedRequest:
    """Return the validated request of a selection, for the size that was chosen. Errors: DataError for other data."""
    if dataset.n != selection.shape[1]:
        raise DataError(
            f"X has {dataset.n} columns, and the selection was made from {selection.shape[1]}.",
            "Certify with the data that the selection was made from.",
        )
    if selection.size_curve is not None:
        request = request.model_copy(update={"k": max(selection.k, 1), "max_k": None, "choose_k": None})
    return validate(dataset, request)


def require_same_data(objective: Objective, selection: Selection) -> None:
    """Raise DataError if the error of the chosen columns is not that of the selection."""
    local = {int(j): place for place, j in enumerate(objective.columns)}
    error = objective.value([local[j] for j in selection.indices if j in local])
    if not abs(error - selection.error) <= _SAME_ERROR * max(objective.total, selection.error):
        raise DataError(
            f"These are not the data of the selection: its columns have the error {error:.6g} here, and "
            f"{selection.error:.6g} there.",
            "Certify with the X, Y, rows and weights that the selection was made from.",
        )


def require_one_target(dataset: Dataset, request: SelectionRequest, coefficients: float | None) -> None:
    """Raise OptionError for a limit for coefficients that the proof cannot use. Nothing is read."""
    if coefficients is None or (dataset.n_targets == 1 and request.groups is None):
        return
    what = f"{dataset.n_targets} targets" if dataset.n_targets else "Y = X"
    what = what if request.groups is None else "groups of columns"
    raise OptionError(
        f"certify: coefficients is {coefficients:g}, and there is no proof with limited coefficients for {what}.",
        "Leave coefficients out, or select for one target and without groups.",
    )


def describe(row: dict[str, Any], label: Callable[[int], str]) -> str:
    """Return one line for a log. row: what `Certificate.as_dict` returns. label: the label of a column."""
    size = f"{row['size']} {'groups of columns' if row['method'] == GROUPS else 'columns'}"
    words = claim(row)
    if words is None:
        among = f" {covered(row['coefficients'])}" if row["coefficients"] else ""
        useless = "no useful bound, " if row["status"] == "no-useful-bound" else ""
        words = f"{useless}at most {row['relative_to_total']:.2%} of ||Y||^2 from the best{among}"
    return " ".join([f"{size}: {words} ({effort(row)})", caveat(row, label)]).strip()


def _prove(
    objective: Objective, validated: ValidatedRequest, selection: Selection, budget: ProofBudget,
    context: RunContext, folder: AnyPath | None, runner: Runner | None,
) -> tuple[dict[int, Certificate], tuple[str, ...]]:  # fmt: skip
    """Return a certificate for each size, smallest first, until the proof is interrupted, and notes on failures."""
    base, subject, what = validated.included, validated.subject(objective), validated.items.noun
    k = min(selection.k - base, subject.n)
    if k == 0:
        return {base: replace(nothing_to_choose(objective), size=base)}, ()
    incumbents = _incumbents(subject, selection, k, budget.sizes)
    found: dict[int, Certificate] = {}
    failed: list[str] = []
    smaller: tuple[int, ...] = ()
    setup = CommonSetup(subject, guided=len(incumbents) > 1)
    for size, seconds, nodes in budget.shares(sorted(incumbents)):
        deadline = Deadline(seconds)
        path = None if folder is None else folder / ("proof.json" if size == k else f"proof-{size}.json")
        log_folder = folder / proof_log_name(base + size) if budget.log and folder is not None else None
        store = ProofStore(
            subject, size, path, selection.fingerprint, budget.save_seconds, log_folder, budget.coefficients, setup
        )  # fmt: skip
        if len(incumbents) > 1:
            log.info("certificate for %d %s", base + size, what)
        interrupted = False
        try:
            grown = extended(subject, smaller, size) if smaller else ()
            proof = store.open(incumbents[size] or grown, validated.request.seed, deadline)
            if grown:
                proof.search.offer(grown)
            try:
                proof.run(deadline.left, nodes, store.saving(proof, context.on_slice), runner)
            except Interrupted:
                if not budget.keep_partial:
                    raise
                interrupted = True
            finally:
                store.save(proof)
                proof.finish_log(_identified(selection))
        except OutOfTime as error:
            failed.append(f"{_FAILED} {base + size} columns has too little time: {error}")
            log.warning(failed[-1])
            continue
        except FAILURES as error:  # the selection is worth more than its proof
            log.warning("the proof for %d columns failed: %r", base + size, error)
            failed.append(f"{_FAILED} {base + size} columns failed ({type(error).__name__}: {error})")
            continue
        found[base + size] = proof.certificate()
        if objective.has_gram:
            smaller = proof.search.best
        if note := proof.search.limit_note():
            failed.append(f"{_FAILED} {base + size} columns {note}")
        if interrupted:
            break
    return found, tuple(failed)


def _identified(selection: Selection) -> dict[str, Any]:
    """Return what identifies the data of a proof log, and their preprocessing."""
    return {
        "source": selection.source, "fingerprint": selection.fingerprint, "preprocess": selection.preprocess,
        "weights": selection.weights, "targets": list(selection.targets), "versions": selection.versions,
    }  # fmt: skip


def _incumbents(subject: ItemObjective, selection: Selection, k: int, sizes: Sizes) -> dict[int, list[int]]:
    """Return the known subsets (local indices of columns or groups) by the number to choose, empty if there is none."""
    local = {int(j): place for place, j in enumerate(subject.columns_of.columns)}
    base = subject.included_size

    def members(indices: Sequence[int]) -> list[int]:
        return subject.within(local[j] for j in indices if j in local)

    incumbents = {k: members(selection.indices)}
    if sizes == "all":
        none: dict[int, list[int]] = {size: [] for size in range(1, k)}
        front = {row.size - base: members(row.indices) for row in selection.front if base < row.size < base + k}
        incumbents |= none | front
    return incumbents


def submodularity_ratio(selection: Selection, X: Any, Y: Any = None, *, sample_weight: Any = None) -> Selection:
    """Return a selection with an estimate and a proved bound of its submodularity ratio gamma.

    Parameters
    ----------
    selection : Selection
        What `select` returned.
    X, Y : array-like, store or dataset
        The data of the selection.
    sample_weight : (m,) array or str, optional
        The weights of the selection.

    Returns
    -------
    Selection
        The selection with `submodularity`. Forward selection and POSS explain at least the share 1 - e^-gamma of what
        the best k columns explain.

    Raises
    ------
    DataError
        The data are not those of the selection.
    CapacityError
        The Gram matrix does not fit in memory.
    OptionError
        The selection is one of groups.

    Notes
    -----
    It takes one pass. `certify` does the same for up to 2000 columns. With more, the bound is
    Gershgorin's, which is 0 unless all correlations are small.

    Source: Das and Kempe, "Submodular meets spectral", ICML 2011.

    Examples
    --------
    >>> import dsel
    >>> import numpy as np
    >>> X = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 20)))[0]
    >>> y = X[:, 3] - 2 * X[:, 7]
    >>> selection = dsel.select(X, y, k=2, preprocess="none")
    >>> round(dsel.submodularity_ratio(selection, X, y).submodularity.guarantee, 3)
    0.632
    """
    if selection.groups:
        raise OptionError("The submodularity ratio is for single columns, not for groups.", "Select without groups.")
    request = selection.request.model_copy(
        update={"method": "forward", "options": {}, "criterion": None, "sample_weight": sample_weight}
    )
    dataset = as_dataset(
        X, Y, targets=request.targets, unsupervised=request.unsupervised, sample_weight=sample_weight
    )  # fmt: skip
    dataset = select_rows(dataset, request.rows)
    validated = validated_again(dataset, request, selection)
    dataset = validated.training or dataset
    with engine_of(None if dataset.in_memory else active_client()) as engine:
        resources = available_resources(engine.workers, engine.worker_memory, engine.keeps_values)
        shape = ProblemShape.of(dataset, validated.request.limit, Requirements(whole_gram=True))
        prepared = choose(shape, resources).prepare(dataset, validated, engine, None)
    whole = prepared.objective(validated.request.lam)
    objective, _ = candidates_of(dataset, validated, prepared.statistics, whole)
    require_same_data(objective, selection)
    return with_submodularity(selection, objective)
