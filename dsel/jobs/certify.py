"""Prove how far a selection can be from the best one: from its data and request, after the search or much later.

The submodularity ratio of a selection is computed here, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dsel._lib.events import emit, is_observed
from dsel._lib.text import percent, shorten
from dsel.config.job import ProofLimits
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.data.frames import collected, frame_labels, targets_in
from dsel.data.labels import is_a
from dsel.data.offset import in_memory, name_of, split_offset
from dsel.data.requested import dataset_of
from dsel.engine.connect import engine_for
from dsel.errors import CapacityError, DataError, OptionError
from dsel.jobs.locations import as_selected
from dsel.jobs.proof_store import LossWatcher, ProofBudget
from dsel.jobs.size_proofs import prove_sizes, trees_of
from dsel.objective.losses.registry import find_loss
from dsel.objective.objective_interface import MOST_DENSE, Objective
from dsel.passes.data_pass import log_passes
from dsel.planning.plan import available_resources
from dsel.planning.proof import PlannedProof
from dsel.planning.representations.choice import choose
from dsel.planning.representations.gram import GramMatrix
from dsel.planning.representations.representation import Prepared, ProblemShape
from dsel.planning.validation import ValidatedRequest, validate
from dsel.search.exact.certificate_words import caveat, claim, counted_size, covered, effort, whole_of
from dsel.search.exact.choose_tree import ProofProblem
from dsel.search.exact.tree import Runner
from dsel.search.method import Requirements
from dsel.selection.add_certificates import with_better_subset, with_passes, with_submodularity
from dsel.selection.candidates import run_over
from dsel.selection.certificates import FAILED, with_certificates
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_events, stage_events
from dsel.selection.represented import left_out
from dsel.selection.result import Selection
from dsel.selection.submodularity import MOST_EIGENVALUES
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

#: What the error of the same columns may differ by, as a share of ||Y||^2.
_SAME_ERROR = 1e-4


def certify_selection(
    dataset: Dataset, request: SelectionRequest, selection: Selection, budget: ProofBudget,
    context: RunContext | None = None, folder: AnyPath | None = None, runner: Runner | None = None,
    validated: ValidatedRequest | None = None,
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
    validated : ValidatedRequest, optional
        The request, if it was validated for these data before. It is validated again if k was chosen since.

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
    with stage_events("certificate" if budget.near_best is None else "alternatives"):
        found = _certified(dataset, request, selection, budget, context or RunContext(), folder, runner, validated)
        if found.alternatives is not None:
            listed = found.alternatives.with_proofs(found.certificate).listed_for(found.error, found.indices)
            found = replace(found, alternatives=listed)
        for row in found.certificate if budget.near_best is None else ():
            emit("certificate", **row)
    return found


@contextmanager
def proof_events(
    dataset: Dataset, request: SelectionRequest, selection: Selection, **values: Any
) -> Iterator[Callable[[Selection], None]]:  # fmt: skip
    """Tell observers that a proof begins and ends, as of a run. It yields a function that takes the selection.

    values: the id and the folder of the run, where it has them.
    """
    if not is_observed():
        yield lambda found: None
        return
    validated = validated_again(dataset, request, selection)
    asked = validated.request.model_copy(update={"method": selection.method})  # a proof needs none
    with run_events(replace(validated, request=asked), **values) as ended:
        yield ended


def _certified(
    dataset: Dataset, request: SelectionRequest, selection: Selection, budget: ProofBudget, context: RunContext,
    folder: AnyPath | None, runner: Runner | None, validated: ValidatedRequest | None,
) -> Selection:  # fmt: skip
    """Return the selection with certificates. See `certify_selection`."""
    if selection.criterion is not None:
        what = "certificate" if budget.near_best is None else "list of near-best subsets"
        raise OptionError(
            f"The selection minimizes a custom criterion, for which there is no {what}.",
            "Select by the squared error, or by a loss such as logistic, whose best subsets can be proved.",
        )
    if budget.log and folder is None:
        raise OptionError("A proof log needs a folder.", "Save the selection, and certify it there.")
    request = as_selected(request, selection)
    require_one_target(dataset, request, budget)
    if budget.near_best is not None and budget.limit is not None:
        raise OptionError("Near-best subsets are listed without a limit for coefficients.", "Leave the limit out.")
    if "copies" in selection.counts:  # the search left them out
        excluded = dict.fromkeys((*request.exclude, *left_out(selection.counts["copies"])))
        request = request.model_copy(update={"exclude": tuple(excluded)})
        validated = None
    if validated is None or selection.size_curve is not None:
        validated = validated_again(dataset, request, selection)
    require_listable(validated, budget)
    request, dataset = validated.request, validated.dataset
    if validated.loss is not None:
        return _certified_loss(validated, context, selection, budget, folder)
    with log_passes() as made:
        run = run_over(validated, context, _prepare(validated, context, budget))
        objective = run.objective
        _require_gram(objective, validated, budget)
        require_same_data(objective, selection)
        proved = prove_sizes(run, selection, budget, folder, runner)
    kept = tuple(note for note in selection.notes if not note.startswith(FAILED))
    selection = replace(with_passes(selection, made), notes=(*kept, *proved.notes))
    lists = budget.near_best is not None
    selection = with_certificates(selection, proved.certificates, dataset.features.item, of_list=lists)
    if proved.alternatives:
        *smaller, last = (proved.alternatives[size] for size in sorted(proved.alternatives))
        selection = replace(selection, alternatives=replace(last, smaller=tuple(smaller)))
    for values in selection.certificate:
        log.info("%s", describe(values, selection))
    selection = with_better_subset(run, selection)
    if objective.n > MOST_EIGENVALUES:  # `submodularity_ratio` takes its time when it is asked for
        return selection
    return with_submodularity(selection, objective)


def _certified_loss(
    validated: ValidatedRequest, context: RunContext, selection: Selection, budget: ProofBudget, folder: AnyPath | None
) -> Selection:
    """Return the selection by a loss with certificates."""
    from dsel.selection.loss_certificate import certify_loss

    with log_passes() as made:
        run = run_over(validated, context, _prepare(validated, context, budget))
        trees = None if folder is None else trees_of(run, folder)
        selection = certify_loss(
            run, selection, budget.shares, limit=budget.limit and budget.limit[1], all_sizes=budget.sizes == "all",
            listing=budget.list_rule, watcher=lambda size: LossWatcher(size, budget, trees, context.on_slice),
        )  # fmt: skip
    for values in selection.certificate:
        log.info("%s", describe(values, selection))
    return with_passes(selection, made)


def require_listable(validated: ValidatedRequest, budget: ProofBudget) -> None:
    """Raise OptionError for a log of a loss, or a rank by a criterion of a loss or of groups. Nothing is read."""
    by = budget.near_best is not None and budget.near_best.by
    for option, given in (("log", budget.log), ("by", by)):
        if given and validated.loss is not None:
            raise OptionError(
                f"{option}: there is none for the loss {validated.loss.name}, only for the squared error.",
                f"Leave {option} out.",
            )
    if by and validated.groups is not None:
        raise OptionError(
            "by: there is none for groups of columns, only for single columns.",
            'Leave by out, or select without groups (categories="columns" if they are those of categories).',
        )


def _prepare(validated: ValidatedRequest, context: RunContext, budget: ProofBudget) -> Prepared:
    """Make the passes for the statistics of a proof, unless they are saved."""
    dataset, engine, cache = validated.dataset, context.engine, context.cache
    resources = available_resources(engine.workers, engine.worker_memory, not engine.in_process)
    chosen = PlannedProof(validated, budget, resources, cache, lists=budget.near_best is not None).representation
    if isinstance(chosen, GramMatrix):
        return chosen.prepare(replace(validated, partition=None), engine, cache)  # a proof is about all rows
    if not chosen.exact:
        sizes = f"neither {dataset.n} x {dataset.n} nor {dataset.m} x {dataset.m} numbers"
        raise CapacityError(f"A proof needs all of the data, and {sizes} fit.", "Use a machine with more memory.")
    return chosen.prepare(validated, engine, cache)


def _require_gram(objective: Objective, validated: ValidatedRequest, budget: ProofBudget) -> None:
    """Raise OptionError for what needs the whole Gram matrix in memory, if it is not there."""
    wide = ProofProblem(
        objective, 1, coefficient_limit=budget.coefficient_limit, largest_coefficient=budget.largest_coefficient
    ).wide
    if budget.near_best is not None and wide:
        raise CapacityError(
            f"Near-best subsets of {objective.n} columns are not listed: the proof would make passes over the data.",
            f"Exclude columns until there are at most {MOST_DENSE}, or use a machine with more memory.",
        )
    if budget.log and validated.groups is None and wide:
        raise _without_log(objective.n, budget)


#: The options that say which rows a method by left-out rows holds out.
_OF_ROWS = ("held_out", "folds", "repeats", "split", "gap", "row_groups")


def data_again(
    selection: Selection, X: Any, Y: Any, sample_weight: Any, offset: Any = None
) -> tuple[Dataset, SelectionRequest]:
    """Return the data of a selection, and its request without how the columns were searched.

    That does not matter for a proof, and recorded options may conflict with each other. Errors: OptionError where an
    offset that is not in a store is missing.
    """
    X = collected(X)
    used = selection.request.sample_weight  # its name where the data have it, or False
    named = selection.source != "X" and isinstance(X, str | AnyPath)  # made from a store, and again from one
    if sample_weight is None and (named or used is False):
        sample_weight = used
    options, rows = selection.request.options, {}
    if isinstance(options.get("held_out"), float):  # its rows take no part in a proof either
        rows = {name: options[name] for name in _OF_ROWS if name in options}
        if in_memory(options.get("row_groups")):
            raise OptionError(
                "The selection held out groups of rows in memory, which a proof does not know.",
                "Select from the other rows, and give these as held_out=(X, Y).",
            )
    method = selection.method if rows else "forward"
    asked: dict[str, Any] = {"method": method, "options": rows, "criterion": None, "sample_weight": sample_weight}
    if selection.by_loss:
        asked["loss"] = selection.loss  # with its parameters, which a request only names
    if offset is not None:
        X, asked["offset"] = split_offset(X, offset, Y)
    elif in_memory(selection.request.offset):
        name = name_of(str(selection.request.offset))
        known = list(X) if is_a(X, "xarray", "Dataset") else frame_labels(getattr(X, "obs", X)) or ()
        again = f"offset={name!r}" if name in known else "one number for each row, as offset"
        made = f"the offset {name!r}" if name else "an offset in memory"
        raise OptionError(f"The selection was made with {made}.", f"Give it again: {again}.")
    request = selection.request.model_copy(update=asked)
    if Y is None and request.targets is None and selection.targets and not isinstance(X, str | AnyPath):
        Y = targets_in(X, selection.targets)
    kept = tuple(column for column in request.exclude if isinstance(column, int))
    names = tuple(column for column in request.exclude if isinstance(column, str))  # they are not in the dataset
    dataset = dataset_of(request.model_copy(update={"exclude": names}), X, Y)
    return dataset, request.model_copy(update={"exclude": kept})


def validated_again(dataset: Dataset, request: SelectionRequest, selection: Selection) -> ValidatedRequest:
    """Return the validated request of a selection, for the size that was chosen.

    Errors: OptionError where weights are missing, DataError for other data.
    """
    if selection.weights is not None and dataset.weights is None:
        raise OptionError(
            "The selection was made with weights.",
            'Give them again as sample_weight: the name of a column of a frame, such as sample_weight="w", or one '
            "number for each row.",
        )
    if dataset.n != selection.shape[1]:
        raise DataError(
            f"X has {dataset.n} columns, and the selection was made from {selection.shape[1]}.",
            "Give the data that the selection was made from.",
        )
    if selection.targets and not dataset.n_targets:
        what = f"There are no targets, and the selection was made for {shorten(selection.targets)}."
        raise DataError(what, "Give the Y that the selection was made from.")
    request = as_selected(request, selection)
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
            "Give the X, Y, rows and weights that the selection was made from.",
        )


def _without_log(columns: int, limits: ProofLimits) -> OptionError:
    what = f"about {columns} columns" if limits.limit is None else f"within {limits.limit[0]}"
    return OptionError(
        f"certify: log is asked for, and a proof {what} has none, because it makes passes over the data.",
        "Certify without a log. The certificate is the same.",
    )


def require_one_target(dataset: Dataset, request: SelectionRequest, limits: ProofLimits | None) -> None:
    """Raise OptionError for a limit for coefficients or a log that the proof cannot use. Nothing is read."""
    plain = dataset.n_targets == 1 and request.groups is None
    if limits is not None and limits.log and plain and request.lam > 0.0 and dataset.n > MOST_DENSE:
        raise _without_log(dataset.n, limits)
    limit = None if limits is None else limits.limit
    by_loss = find_loss(request.loss).name != "squared"
    if limit is None or by_loss or plain:
        return
    name, value = limit
    what = f"{dataset.n_targets} targets" if dataset.n_targets else "Y = X"
    what = what if request.groups is None else "groups of columns"
    raise OptionError(
        f"certify: {name} is {value:g}, and there is no such proof for {what}.",
        f"Leave {name} out, or select for one target and without groups.",
    )


def describe(row: dict[str, Any], selection: Selection) -> str:
    """Return one line for a log about a certificate of a selection. row: what `Certificate.as_dict` returns."""
    words = claim(row)
    if words is None:
        among = f" {covered(row)}".rstrip()
        useless = "no useful bound, " if row["status"] == "no-useful-bound" else ""
        words = f"{useless}at most {percent(row['relative_to_total'])} of {whole_of(row)} from the best{among}"
    left = caveat(row, selection.label, selection.counts, selection.indices)
    return f"{counted_size(row)}: {words} ({effort(row)}) {left}".rstrip()


def with_ratio(selection: Selection, X: Any, Y: Any, sample_weight: Any) -> Selection:
    """Return a selection with its submodularity ratio. See `dsel.submodularity_ratio`."""
    if selection.groups:
        raise OptionError("The submodularity ratio is for single columns, not for groups.", "Select without groups.")
    if selection.by_loss:
        raise OptionError(
            f"The submodularity ratio is that of the squared error, and the loss is {selection.request.loss}.",
            "Certify the selection in its place.",
        )
    dataset, request = data_again(selection, X, Y, sample_weight)
    validated = validated_again(dataset, request, selection)
    dataset = validated.dataset
    with engine_for(dataset) as engine:
        resources = available_resources(engine.workers, engine.worker_memory, not engine.in_process)
        shape = ProblemShape.of(dataset, validated.request.limit, Requirements(whole_gram=True))
        prepared = choose(shape, resources).prepare(validated, engine)
    objective = run_over(validated, RunContext(), prepared).objective
    require_same_data(objective, selection)
    return with_submodularity(selection, objective)
