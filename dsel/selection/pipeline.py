"""The order of a selection: check, plan, statistics, search, final check on the data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from dsel._lib.events import emit, is_observed
from dsel._lib.termination import Stopped
from dsel._lib.types import Ints
from dsel._lib.versions import now, provenance, versions
from dsel.config.job import ProofLimits
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import Interrupted
from dsel.objective.objective_interface import Objective
from dsel.passes.column_copy import copied
from dsel.passes.data_pass import log_passes
from dsel.passes.finite_values import naming_columns
from dsel.passes.loss_data import Targets, checked_targets
from dsel.passes.statistics import ColumnScales
from dsel.planning.calibration import calibrated
from dsel.planning.plan import Plan, available_resources, make_plan
from dsel.planning.representations.representation import Resources
from dsel.planning.validation import ValidatedRequest, validate
from dsel.search.outcome import SearchOutcome
from dsel.selection.answer import Answer
from dsel.selection.assembly import assemble, option_as_json
from dsel.selection.candidates import answer_of, candidates_of, require_variation
from dsel.selection.certificates import with_certificates
from dsel.selection.context import RunContext, SelectionRun
from dsel.selection.near_copies import judged, nearly_multiples, one_of_each
from dsel.selection.perfect_fit import perfect_only, stopped_at_perfect_fit
from dsel.selection.record_values import FrontRow
from dsel.selection.result import Selection
from dsel.selection.run_method import forward_reference, path_rows, recomputed_front, run_method, scored_rows
from dsel.selection.search_sizes import search_sizes

log = logging.getLogger("dsel")

#: A search that is expected to take more seconds is announced.
LONG_SECONDS = 30.0
#: Methods that take seconds where others take minutes, the better one first.
QUICK_METHODS = ("splicing", "forward")


class StageTimer:
    """The seconds of each stage. on_stage: called with its name when a stage begins."""

    def __init__(self, on_stage: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the block, without the stages inside."""
        if self._on_stage is not None:
            self._on_stage(name)
        with stage_events(name):
            start = time.perf_counter() - sum(self.seconds.values())
            yield
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - sum(self.seconds.values()) - start


@contextmanager
def stage_events(name: str) -> Iterator[None]:
    """Tell observers that a stage begins, and after the block that it has ended, unless an error has ended it."""
    began = time.perf_counter()
    emit("stage-begins", stage=name)
    yield
    emit("stage-ends", stage=name, seconds=time.perf_counter() - began)


@contextmanager
def run_events(validated: ValidatedRequest, **values: Any) -> Iterator[Callable[[Selection], None]]:
    """Tell observers that a run begins, and that it ends. It yields a function that takes the selection at the end.

    values: the id and the folder of the run, where it has them.
    """
    if not is_observed():
        yield lambda selection: None
        return
    request, dataset = validated.request, validated.dataset
    found: dict[str, Any] = {}
    emit(
        "run-begins", **values, data=dataset.name, rows=dataset.m, columns=dataset.n, targets=dataset.n_targets,
        **{name: getattr(request, name) for name in ("k", "method", "lam", "preprocess", "seed")},
        loss="squared" if validated.loss is None else validated.loss.name, criterion=option_as_json(request.criterion),
        options={name: option_as_json(value) for name, value in validated.options}, version=versions()["dsel"],
    )  # fmt: skip

    def answer(selection: Selection) -> None:
        front = [
            {"size": row.size, **_figures(row), "labels": [selection.label(j) for j in row.indices]}
            for row in selection.front
            if row.size <= selection.k
        ]
        found.update(
            labels=list(selection.labels), **_figures(selection), iterations=selection.iterations,
            stopped_by=selection.ended, front=front,
        )  # fmt: skip

    with log_passes() as made:  # of this run: the selection may have been made by an earlier one
        try:
            yield answer
        except BaseException as error:
            state = "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt | Stopped) else "failed"
            found = {"failure": f"{type(error).__name__}: {error}"}
            emit("run-ends", **values, state=state, passes=made.passes, bytes_read=made.bytes_read, **found)
            raise
    emit("run-ends", **values, state="finished", passes=made.passes, bytes_read=made.bytes_read, **found)


def _figures(found: Selection | FrontRow) -> dict[str, float]:
    """Return how good a selection or a row of a front is, for an event."""
    figures = {name: getattr(found, name) for name in ("r2", "error", "criterion")}
    return {name: value for name, value in figures.items() if value is not None}


def run_selection(dataset: Dataset, request: SelectionRequest, context: RunContext | None = None) -> Selection:
    """Validate a request and select columns."""
    return run_validated(validate(dataset, request), context or RunContext())


def run_validated(validated: ValidatedRequest, context: RunContext, plan: Plan | None = None) -> Selection:
    """Select columns. Errors that do not depend on the data are raised before the first pass.

    plan: what was planned before the workers started. It is made again if there are others than were planned for.
    """
    dataset = validated.dataset
    there = context.engine.workers, context.engine.worker_memory
    if plan is None or there != (plan.workers, plan.worker_limit):
        plan = plan_selection(validated, context)
    plan.require()
    announced = _long_search(validated, plan)
    if announced is not None:
        log.warning("%s", announced)
    validated = replace(validated, options=validated.options.model_copy(update=plan.placement.options))
    context = replace(
        context, engine=THREADS if dataset.in_memory else context.engine,
        search_engine=context.engine if plan.placement.on_workers else THREADS,
    )  # fmt: skip
    if validated.criterion is not None:
        context.search_engine.require(validated.criterion)
    with log_passes() as made, naming_columns(dataset):
        if plan.has_trial:
            plan = calibrated(plan, dataset)
        for line in plan.lines():
            log.debug("plan: %s", line)
        selection = _run(validated, plan, context)
    compared = plan.compare(made, selection.counts)
    return replace(selection, passes=made.passes, bytes_read=made.bytes_read, plan=compared)


def _long_search(validated: ValidatedRequest, plan: Plan) -> str | None:
    """Return a line about a search that is expected to take long, if no limit of time was asked for."""
    seconds, limited = plan.placement.seconds, validated.requirements.seconds is not None
    if seconds is None or limited or plan.placement.on_workers or seconds <= LONG_SECONDS:
        return None
    quick = next((name for name in QUICK_METHODS if name != validated.method.name), "forward")
    limit = ", and seconds=10 limits the time" if hasattr(validated.options, "seconds") else ""
    return (
        f"{validated.method.name} is expected to search for about {seconds:.0f} s; method={quick} takes seconds{limit}"
    )


def plan_selection(
    validated: ValidatedRequest,
    context: RunContext,
    *,
    available: Resources | None = None,
    proofs: Sequence[tuple[ProofLimits, bool]] = (),
) -> Plan:
    """Return the plan of what `run_selection` will do in this context.

    available: workers and memory to plan for, by default those of the engine. proofs: see `make_plan`.
    """
    if available is not None and available.keeps_values:
        search_workers = available.workers
    else:
        search_workers = 0 if context.engine.in_process else context.engine.workers
    if available is None:
        engine = THREADS if validated.dataset.in_memory else context.engine  # data in memory need no workers
        available = available_resources(engine.workers, engine.worker_memory, not engine.in_process)
    return make_plan(
        validated, available, cache=context.cache, state=context.state, proofs=proofs, scratch=context.scratch,
        isolated_cluster=context.isolated_cluster, search_workers=search_workers, shares_folder=context.shares_folder,
        copies=context.copies,
    )  # fmt: skip


def _run(validated: ValidatedRequest, plan: Plan, context: RunContext) -> Selection:
    dataset, timer, started = validated.dataset, StageTimer(context.on_stage), now()
    with timer.stage("statistics"):
        # before the pass over X
        targets = None if validated.loss is None else checked_targets(dataset, validated.loss)
        prepared = plan.chosen.prepare(validated, context.engine, context.cache)
        whole = prepared.objective(validated.request.lam)
    with timer.stage("search"):
        exclude = validated.exclude
        validated, copies = one_of_each(validated, prepared.statistics, whole, context.engine)
        objective, notes = candidates_of(dataset, validated, prepared.statistics, whole, exclude, copies.distances)
        notes = (*notes, *copies.notes)
        run = SelectionRun(dataset, validated, context, prepared, whole, objective, copies=copies)
        if targets is not None:
            with (
                copied(dataset, context.scratch, context.engine)
                if plan.copies_columns
                else nullcontext(dataset) as rows
            ):
                return _by_loss(run, rows, targets, notes, timer, started)
        run = replace(run, rows=scored_rows(run, plan))
        choice = None
        if validated.size_rule is None:
            outcome = run_method(run)
        else:
            choice = search_sizes(run)
            run, outcome = choice.run, choice.outcome
        if outcome.lam is not None and outcome.lam != validated.request.lam:
            run = run.asking(lam=outcome.lam)
            whole = prepared.objective(outcome.lam)
            objective, _ = candidates_of(dataset, run.validated, prepared.statistics, whole)
            run = replace(run, whole=whole, objective=objective)
            front = tuple(replace(point, value=objective.value(point.members)) for point in outcome.front)
            outcome = replace(outcome, front=front)
        outcome, errors = recomputed_front(run, outcome)
        outcome = stopped_at_perfect_fit(run, outcome, exact=not errors)
        chosen, dependent = _answer(run, outcome)
        path = () if choice is None else choice.path
        if run.rows is not None and choice is None:
            path = path_rows(run, outcome)
        outcome = replace(outcome, counts={**outcome.counts, **prepared.counts, **objective.counts()})
        outcome = _over_multiples(run, _over_representatives(run, outcome))
        if run.rows is not None:  # an interrupted run keeps its cache for the next one
            run.rows.close()
    with timer.stage("check"):
        fit = prepared.fit(chosen, run.validated.request.lam)
        require_variation(fit.total)
        reference = () if errors else perfect_only(run, forward_reference(run.subject, run.most))
    curve = None if choice is None else choice.curve
    weight = None if dataset.weights is None else float(prepared.statistics.weight)
    answer = Answer(run, outcome, chosen, dependent, fit, path, curve, reference, errors, weight_sum=weight)
    selection = assemble(answer, notes, timer.seconds, provenance(started))
    proofs = {proof.size: proof for proof in outcome.certificates}
    selection = with_certificates(selection, proofs, dataset.features.item)
    for row in selection.certificate:
        emit("certificate", **row)
    if context.compare is None:
        return selection
    with timer.stage("comparison"):
        selection = context.compare(run, fit, selection)
    return replace(selection, seconds=timer.seconds)


def _over_representatives(run: SelectionRun, outcome: SearchOutcome) -> SearchOutcome:
    """Return the outcome with the clusters of near-copies, of which a proof may cover the representatives alone."""
    if not run.clusters:
        return outcome
    counts = judged(run.clusters, run.copies.distances, *_columns_of(run))
    return _with_counts(outcome, counts)


def _over_multiples(run: SelectionRun, outcome: SearchOutcome) -> SearchOutcome:
    """Return the outcome with the pairs of columns that no subset has, and that are not multiples of each other."""
    if run.validated.groups is not None:  # a proof of groups covers dependent columns
        return outcome
    used = np.union1d(run.validated.include, run.objective.columns)
    return _with_counts(outcome, nearly_multiples(used, *_columns_of(run)))


def _columns_of(run: SelectionRun) -> tuple[Dataset, SelectionRequest, ColumnScales, Objective, Engine]:
    return run.dataset, run.validated.request, run.prepared.statistics, run.whole, run.context.engine


def _with_counts(outcome: SearchOutcome, counts: Mapping[str, Any]) -> SearchOutcome:
    """Return the outcome with counts of columns that a proof may not cover."""
    open_ = {"not_covered", "nearly_multiples"} & counts.keys()
    ended = "complete" if outcome.ended == "proven" and open_ else outcome.ended
    return replace(outcome, counts={**outcome.counts, **counts}, ended=ended)


def _by_loss(
    run: SelectionRun, rows: Dataset, targets: Targets, notes: tuple[str, ...], timer: StageTimer, started: str
) -> Selection:
    """Return the selection that minimizes a loss other than the squared error. rows: the data, or their copy."""
    from dsel.selection.loss_notes import loss_notes
    from dsel.selection.loss_search import LossSearch, loss_data
    from dsel.selection.loss_sizes import choose_size

    search = LossSearch(run, loss_data(run, targets, rows))
    run, curve = search.search(), None
    if run.validated.size_rule is not None:
        curve = choose_size(run, search)
        run = run.asking(k=curve.k)
        search.run = search.run.asking(k=curve.k)
    with timer.stage("check"):
        chosen, dependent, fit = search.final_fit(run)
        figures = search.class_figures()
    outcome, errors = search.outcome(run)
    outcome = _over_representatives(run, outcome)
    weighted = run.dataset.weights is not None or run.validated.request.class_weight is not None
    answer = Answer(
        run,
        outcome,
        chosen,
        dependent,
        fit,
        curve=curve,
        errors=errors,
        loss_parameters=search.problem.loss.parameters(),
        numbered_classes=search.numbered_classes,
        class_figures=figures,
        weight_sum=search.problem.weight_sum if weighted else None,
    )
    notes = (*notes, *loss_notes(search, run))
    selection = assemble(answer, notes, timer.seconds, provenance(started))
    if run.context.compare is None:
        return selection
    with timer.stage("comparison"):
        selection = run.context.compare(run, fit, selection, search)
    return replace(selection, seconds=timer.seconds)


def _answer(run: SelectionRun, outcome: SearchOutcome) -> tuple[Ints, Ints]:
    """Return the chosen columns of the data in their order, and apart those that depend on others."""
    if outcome.chosen is not None:
        return np.asarray(outcome.chosen, np.int64), np.empty(0, np.int64)
    members = [int(run.objective.columns[j]) for j in run.best(outcome).members]
    return answer_of(run, members)
