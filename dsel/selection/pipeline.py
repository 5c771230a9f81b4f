"""From a dataset and settings to a Selection: check, one pass, search, final check on the data."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.versions import versions
from dsel.config.import_path import import_path
from dsel.config.request import Checked, Settings, check
from dsel.data.criterion_data import ColumnData
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels
from dsel.engine.threads import THREADS
from dsel.errors import DataError, OptionError
from dsel.objective.base import Objective
from dsel.objective.subset_state import SubsetState
from dsel.passes.accounting import log_passes
from dsel.passes.folds import FoldStatistics, RowsOfFolds, cached_fold_statistics, require_rows
from dsel.passes.leave_one_out.disk_cache import RowsWithCache
from dsel.passes.leave_one_out.rows import DatasetRows, check_intercept, held_out_dataset, held_out_errors
from dsel.passes.refit import Fit
from dsel.passes.statistics import ColumnScales, Preprocess, Statistics, duplicates
from dsel.passes.tiles import Tiling
from dsel.planning.calibration import calibrated
from dsel.planning.plan import Plan, make_plan, resources
from dsel.planning.prepared import cached_gram_statistics, in_shards, of_gram, reduced
from dsel.planning.representation import Resources
from dsel.search.base import FrontPoint, PathPoint, SearchOutcome
from dsel.search.greedy.rounds import fits_along, subset_fit
from dsel.search.method import SearchTask
from dsel.search.options import Options
from dsel.search.parallel.worker_tasks import bind, takes_data
from dsel.search.pareto.criterion import CriterionPoss
from dsel.selection.context import RunContext
from dsel.selection.result import FrontRow, PathRow, Selection, TraceRow
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

#: The time of passes over so many bytes is estimated before they begin: a second more is nothing to them.
CALIBRATED_BYTES = 1 << 30


class _Clock:
    def __init__(self, on_stage: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self._on_stage is not None:
            self._on_stage(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run_selection(dataset: Dataset, settings: Settings, context: RunContext | None = None) -> Selection:
    """Select columns. Errors are raised before the pass over the data wherever they can be seen there."""
    context = context or RunContext()
    checked = check(dataset, settings)
    held_out = held_out_rows(dataset, checked)
    plan = plan_selection(dataset, checked, context, held_out).require()
    if plan.seconds is None and plan.bytes_read >= CALIBRATED_BYTES:
        plan = calibrated(plan, dataset)
    for line in plan.lines():
        log.info("plan: %s", line)
    with log_passes() as passes:
        selection = _planned(dataset, checked, plan, held_out, context)
    held = plan.compare(passes, selection.counts)
    return replace(selection, passes=passes.passes, bytes_read=passes.bytes_read, plan=held)


def plan_selection(
    dataset: Dataset, checked: Checked, context: RunContext, held_out: Dataset | None, *,
    available: Resources | None = None, certified: bool = False,
) -> Plan:  # fmt: skip
    """Return the plan of what `run_selection` will do in this context.

    available: workers and memory to plan for, by default those of the engine. certified: whether a proof follows.
    """
    if available is None:
        engine = THREADS if dataset.in_memory else context.engine  # data in memory need no workers
        available = resources(engine.workers, engine.worker_memory, engine.keeps_values)
    return make_plan(
        dataset, checked, available, artefacts=context.artefacts, state=context.state, held_out=held_out,
        certified=certified, scratch=context.scratch, isolated_cluster=context.isolated_cluster,
    )  # fmt: skip


def _planned(
    dataset: Dataset, checked: Checked, plan: Plan, held_out: Dataset | None, context: RunContext
) -> Selection:
    settings = checked.settings
    clock = _Clock(context.on_stage)
    folds = None
    with clock.stage("statistics"):
        if plan.chosen.name in ("gram", "tiles"):
            statistics, folds = _with_folds(dataset, checked, context, plan.tiling)
            ready = of_gram(dataset, settings, statistics, context.engine)
        elif plan.chosen.name in ("rows", "sketch"):
            ready = reduced(dataset, settings, plan.chosen, context.artefacts, context.engine)
        else:
            ready = in_shards(dataset, settings, plan.chosen, context.artefacts, context.engine)
        whole = ready.objective(settings.lam)
    with clock.stage("search"):
        objective, notes = candidates_of(dataset, checked, ready.statistics, whole)
        rows = None
        if checked.method.uses_rows:
            rows = _rows(dataset, checked, ready.statistics, folds, plan.fold_every, context)
        outcome = _search(dataset, objective, checked, context, rows)
        if outcome.lam is not None and outcome.lam != settings.lam:
            settings = replace(settings, lam=outcome.lam)
            checked = replace(checked, settings=settings)
            whole = ready.objective(settings.lam)
            objective, _ = candidates_of(dataset, checked, ready.statistics, whole)
        if outcome.chosen is not None:
            independent, dependent = np.asarray(outcome.chosen, np.int64), np.empty(0, np.int64)
        else:
            best = outcome.best(settings.k - len(checked.include))
            members = [int(objective.columns[j]) for j in best.members]
            independent, dependent = by_gain(whole, objective.included, members)
        path = () if rows is None else _path(dataset, checked, rows, outcome, held_out, context)
        outcome = replace(outcome, counts={**outcome.counts, **ready.counts, **objective.counts()})
        if rows is not None:
            rows.close()
    with clock.stage("check"):
        fit = ready.fit(independent, settings.lam)
        _require_variation(fit.total)
    return _selection(
        dataset, checked, ready.statistics, objective, outcome, independent, dependent, fit,
        notes=notes, seconds=clock.seconds, path=path, rows=rows,
    )  # fmt: skip


def _with_folds(
    dataset: Dataset, checked: Checked, context: RunContext, tiling: Tiling | None
) -> tuple[Statistics, FoldStatistics | None]:
    """Statistics, and those of the folds for methods that have them (from the same pass)."""
    settings, scored = checked.settings, checked.requirements.cross_validation
    if scored is None or not scored.folds:
        return statistics_of(dataset, settings, context, tiling), None
    statistics, folds = cached_fold_statistics(
        dataset, scored.folds, scored.repeats, settings.seed, context.artefacts, missing=settings.missing,
        engine=context.engine,
    )  # fmt: skip
    return statistics, folds


def statistics_of(
    dataset: Dataset, settings: Settings, context: RunContext, tiling: Tiling | None = None
) -> Statistics:
    """Return the statistics, from the cache if they are saved there."""
    return cached_gram_statistics(dataset, settings, context.artefacts, context.engine, tiling)


def candidates_of(
    dataset: Dataset, checked: Checked, statistics: ColumnScales, whole: Objective
) -> tuple[Objective, tuple[str, ...]]:
    """The objective over the columns that may be chosen, given those that always are; and notes for the user. whole:
    over all columns."""
    settings, labels = checked.settings, dataset.features
    _require_variation(whole.total)
    unusable = statistics.unusable(settings.preprocess)
    notes = []
    if unusable.any():
        where = np.flatnonzero(unusable)
        notes.append(f"{where.size} constant columns are never chosen: {format_labels(labels, where)}")
    empty = np.flatnonzero(unusable & (statistics.mean_x == 0.0))
    if settings.missing == "mean" and empty.size:  # which of the two, the statistics do not say
        notes.append(f"{empty.size} columns hold no value at all, or zeros alone: {format_labels(labels, empty)}")
    lost = checked.include[unusable[checked.include]]
    if lost.size:
        raise OptionError(f"Included columns are constant: {format_labels(labels, lost)}.", "Leave them out.")
    allowed = ~unusable
    allowed[checked.exclude] = False
    pairs = duplicates(whole.K) if whole.has_gram else []
    if pairs:
        named = "; ".join(f"{labels[i]} and {labels[j]}" for i, j in pairs[:3])
        more = " (and more)" if len(pairs) > 3 else ""
        notes.append(f"columns that are multiples of each other, of which at most one is chosen: {named}{more}")
    keep = np.flatnonzero(allowed)
    if not keep.size:
        raise OptionError("No column is left to choose from: all are constant or excluded.")
    if keep.size < settings.k:
        notes.append(f"k is {settings.k}, but only {keep.size} columns can be chosen")
    objective = whole if not whole.has_gram and keep.size == whole.n else whole.restrict(keep)
    return objective.condition(np.searchsorted(keep, checked.include).tolist()), tuple(notes)


def _require_variation(total: float) -> None:
    if not 0.0 < total < math.inf:
        raise DataError(
            f"||Y||^2 is {total}: the squares of the targets are out of float64's range.", "Rescale Y (X where Y = X)."
        )


def _rows(
    dataset: Dataset, checked: Checked, statistics: ColumnScales, folds: FoldStatistics | None, every: int | None,
    context: RunContext,
) -> DatasetRows:  # fmt: skip
    """The rows, for methods that value subsets on them; with moments of folds, those stand for them."""
    assert isinstance(statistics, Statistics)
    settings, scored = checked.settings, checked.requirements.cross_validation
    fill = statistics.mean_x if settings.missing == "mean" else None
    if folds is not None:
        return RowsOfFolds(dataset, statistics, settings.preprocess, folds, fill=fill, engine=context.engine)
    assert scored is not None
    if every is None:
        return DatasetRows(
            dataset, statistics, settings.preprocess, loss=scored.loss, intercept=scored.intercept, fill=fill,
            engine=context.engine,
        )  # fmt: skip
    log.info("greedy-rls: the cache on disk is rewritten every %d rounds", every)
    return RowsWithCache(
        dataset, statistics, settings.preprocess, every=every, start=checked.include.size, folder=context.scratch,
        yielding=scored.rewrite_every == "auto", loss=scored.loss, intercept=scored.intercept, fill=fill,
        engine=context.engine,
    )  # fmt: skip


def held_out_rows(dataset: Dataset, checked: Checked) -> Dataset | None:
    """The held-out rows that the options name; options that do not fit each other are refused here too."""
    scored = checked.requirements.cross_validation
    if scored is None:
        return None
    if not dataset.n_targets:
        raise OptionError(f"{checked.settings.method} needs targets Y.", "Give Y, or choose another method.")
    check_intercept(scored.intercept, checked.settings.preprocess)
    if scored.folds:
        require_rows(dataset, scored.folds)
    return None if scored.held_out is None else held_out_dataset(dataset, scored.held_out)


def _path(
    dataset: Dataset, checked: Checked, rows: DatasetRows, outcome: SearchOutcome, held_out: Dataset | None,
    context: RunContext,
) -> tuple[PathRow, ...]:  # fmt: skip
    """The steps, with their errors on held-out rows where there are any (one pass over those)."""
    tests: list[float | None] = [None] * len(outcome.path)
    if held_out is not None:
        start = [int(j) for j in checked.include]
        if outcome.path and outcome.path[0].action == "remove":
            start = sorted({*start, *(p.column for p in outcome.path), *(outcome.chosen or ())})
        problem = rows.problem(checked.settings.lam)
        tests = held_out_errors(held_out, fits_along(problem, outcome.path, start), rows.view, context.engine).tolist()
    labelled = rows.view.loss == "zero-one"
    N = dataset.n_targets

    def row(point: PathPoint, test: float | None) -> PathRow:
        error = point.error / rows.weight
        return PathRow(
            point.action, point.column, str(dataset.features[point.column]), point.size,
            error / N if labelled else error, 1.0 - error / N if labelled else None,
            test if test is None or not labelled else test / N,
            1.0 - test / N if labelled and test is not None else None,
        )  # fmt: skip

    return tuple(row(point, test) for point, test in zip(outcome.path, tests, strict=True))


def _search(
    dataset: Dataset, objective: Objective, checked: Checked, context: RunContext, rows: DatasetRows | None
) -> SearchOutcome:
    criterion = checked.settings.criterion
    data = ColumnData(dataset) if criterion is not None and takes_data(criterion) else None
    k = min(checked.settings.k - checked.include.size, objective.n)
    if k == 0:
        included = tuple(sorted(objective.included))
        value = objective.c if criterion is None else CriterionPoss(bind(criterion, data), 1, 1).evaluate(included)
        return SearchOutcome((FrontPoint(0, value, ()),))
    return checked.method.run(
        SearchTask(
            objective,
            k,
            checked.settings.seed,
            checked.options,
            context.state,
            context.on_slice,
            criterion,
            rows,
            data,
            context.engine.executor,
            context.journal,
            context.shared_folder,
        )
    )


def by_gain(
    whole: Objective, included: Sequence[int], chosen: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Included columns, then the others, each next one being that of the largest gain after those before it; and those
    that depend on others, which rfe or a criterion may choose."""
    members = [*included, *chosen]
    solution = SubsetState(whole.restrict(members), len(members))
    order: list[int] = []
    dependent: list[int] = []
    for group in (range(len(included)), range(len(included), len(members))):
        waiting = set(group)
        while waiting:
            gains = solution.gains()
            j = max(waiting, key=lambda j: (gains[j], -members[j]))
            (order if solution.insert(j) else dependent).append(members[j])
            waiting.discard(j)
    return np.asarray(order, np.int64), np.asarray(sorted(dependent), np.int64)


def _selection(
    dataset: Dataset, checked: Checked, statistics: ColumnScales, objective: Objective,
    outcome: SearchOutcome, S: NDArray[np.int64], dependent: NDArray[np.int64], fit: Fit, *,
    notes: tuple[str, ...], seconds: dict[str, float],
    path: tuple[PathRow, ...] = (), rows: DatasetRows | None = None,
) -> Selection:  # fmt: skip
    settings, base = checked.settings, len(objective.included)
    coefficients, intercept = in_data_units(statistics, settings.preprocess, S, fit)
    notes += outcome.notes
    if rows is not None and rows.recoded:
        notes += ("labels 0 and 1 count as -1 and +1 in the errors of the path; the coefficients are for Y as it is",)
    if rows is not None and rows.intercept == "column":
        notes += ("error and r2 are those of the chosen columns without the column of ones",)
        fitted = subset_fit(rows.problem(settings.lam), S.tolist())
        coefficients, intercept = rows.in_data_units(fitted)
    best = outcome.best(settings.k - base)
    by_criterion = settings.criterion is not None
    if not by_criterion and abs(fit.error - best.value) > 1e-6 * fit.total:
        notes += ("the error recomputed from the data differs from the search's by more than 1e-6 of ||Y||^2",)
    if by_criterion and not np.isfinite(best.value):
        notes += ("the criterion is +inf for every subset met",)
    if not S.size and not dependent.size:
        notes += ("no column is chosen: no subset that was met has a smaller error than none",)
    if dependent.size:
        fate = "have coefficient 0" if by_criterion else "were left out"
        notes += (
            f"{dependent.size} columns that depend on the others {fate}: {format_labels(dataset.features, dependent)}",
        )
    if by_criterion:  # the answer is what it chose, to the last column
        S = np.concatenate([S, dependent])
        coefficients = np.vstack([coefficients, np.zeros((dependent.size, coefficients.shape[1]))])
    front = tuple(_front_row(objective, point, by_criterion) for point in outcome.front)
    return Selection(
        indices=tuple(int(j) for j in S),
        labels=tuple(str(dataset.features[j]) for j in S),
        k=int(settings.k),
        error=fit.error,
        r2=1.0 - fit.rss / fit.total,
        method=settings.method,
        preprocess=settings.preprocess,
        lam=float(settings.lam),
        seed=int(settings.seed),
        options=_as_text(checked.options),
        coefficients=coefficients,
        intercept=intercept,
        front=front,
        trace=tuple(TraceRow(t.iteration, base + t.size, t.value) for t in outcome.trace),
        ended=outcome.ended,
        iterations=outcome.iterations,
        shape=(dataset.m, dataset.n),
        targets=tuple(str(t) for t in dataset.targets),
        include=tuple(int(j) for j in checked.include),
        exclude=tuple(int(j) for j in checked.exclude),
        constant=tuple(str(dataset.features[j]) for j in np.flatnonzero(statistics.unusable(settings.preprocess))),
        counts=outcome.counts,
        notes=notes,
        source=dataset.name,
        fingerprint=dataset.fingerprint,
        seconds=seconds,
        versions=versions(),
        criterion=best.value if by_criterion and np.isfinite(best.value) else None,
        path=path,
        weights=None if dataset.weights is None else dataset.weights.name,
    )


def _front_row(objective: Objective, point: FrontPoint, by_criterion: bool) -> FrontRow:
    f = objective.value(point.members)
    size = len(objective.included) + point.size
    criterion = point.value if by_criterion and np.isfinite(point.value) else None
    return FrontRow(size, f, 1.0 - f / objective.total, tuple(objective.in_data(point.members)), criterion)


def _as_text(options: Options) -> dict[str, Any]:
    def text(value: Any) -> Any:
        if callable(value):
            return import_path(value)
        return value if value is None or isinstance(value, str | int | float) else _plain(value)

    return {name: text(value) for name, value in options}


def _plain(value: Any) -> Any:
    """Tuples of numbers as lists; data in memory by name only."""
    if isinstance(value, list | tuple) and all(isinstance(one, int | float) for one in value):
        return list(value)
    return str(value) if isinstance(value, AnyPath) else "data in memory"


def in_data_units(
    statistics: ColumnScales, preprocess: Preprocess, S: NDArray[np.int64], fit: Fit
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and intercept for X and Y as they are. Where Y = X, for all n columns, constant ones too."""
    scaling = statistics.scaling(preprocess)
    found = fit.coefficients
    if statistics.unsupervised:
        usable = ~statistics.unusable(preprocess)
        found = np.zeros((S.size, usable.size))
        found[:, usable] = fit.coefficients
    coefficients = found * scaling.scale_y / scaling.scale_x[S][:, None]
    intercept = scaling.center_y - scaling.center_x[S] @ coefficients
    return coefficients, intercept
