"""From what a search found to a Selection."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsel._lib.versions import versions
from dsel.config.import_path import import_path
from dsel.config.request import Preprocess, SelectionRequest
from dsel.data.dataset import Dataset
from dsel.data.offset import IN_MEMORY, with_name
from dsel.data.schema import ATTR_OPTIONS
from dsel.passes.sums import Sums
from dsel.search.cross_validation.rounds import subset_fit
from dsel.search.outcome import FrontPoint
from dsel.selection.answer import Answer, answer_fields, explained_share
from dsel.selection.context import SelectionRun
from dsel.selection.notes import notes_on
from dsel.selection.record_values import FrontRow, TraceRow
from dsel.selection.represented import left_out
from dsel.selection.result import Selection
from dsel.storage.paths import AnyPath

#: The number of excluded columns that the result names.
_EXCLUDED_LABELS = 100


def assemble(
    answer: Answer, notes: tuple[str, ...], seconds: dict[str, float], provenance: dict[str, str]
) -> Selection:
    """Return the Selection. notes: on the columns; seconds: by stage; provenance: when and where it was made."""
    run, outcome, best = answer.run, answer.outcome, answer.best
    dataset, base = run.dataset, run.validated.included
    unusable = run.validated.useless(run.prepared.statistics)
    return Selection(
        **answer_fields(run, answer.fit, answer.chosen, answer.kept),
        request=_resolved(run),
        front=tuple(_front_row(answer, point, point.value) for point in outcome.front if answer.is_asked(point)),
        trace=tuple(
            TraceRow(t.iteration, base + t.size, t.value if answer.by_criterion else max(t.value, 0.0))
            for t in outcome.trace
        ),
        ended=outcome.ended,
        iterations=outcome.iterations,
        shape=(dataset.m, dataset.n),
        numbered=dataset.numbered,
        targets=(
            tuple(f"{name}={level}" for name, levels in answer.numbered_classes.items() for level in levels)
            or tuple(str(t) for t in dataset.targets)
        ),
        classes=answer.numbered_classes or dataset.classes,
        approximated=() if len(dataset.targets) else tuple(str(name) for name in dataset.features),
        constant=tuple(str(dataset.features[j]) for j in np.flatnonzero(unusable)),
        counts={
            **outcome.counts,
            **_counts_of_sums(dataset, run.validated.request.preprocess),
            **_with_ones(answer),
            **({} if dataset.counting == dataset.m else {"rows_with_weight": dataset.counting}),
        },
        notes=tuple(dict.fromkeys((*notes, *outcome.notes, *notes_on(answer)))),
        source=dataset.name,
        fingerprint=dataset.fingerprint,
        seconds=seconds,
        versions=versions(),
        criterion=best.value if answer.by_criterion and np.isfinite(best.value) else None,
        path=answer.path,
        weights=None if dataset.weights is None else dataset.weights.name,
        flat_target=dataset.flat_target,
        size_curve=answer.curve,
        forward=tuple(_front_row(answer, point, None) for point in answer.forward),
        provenance=provenance,
        column_labels=_column_labels(answer),
        loss_parameters=answer.loss_parameters,
        class_figures=answer.class_figures,
        weight_sum=answer.weight_sum,
    )


def _with_ones(answer: Answer) -> dict[str, float]:
    """Return R2 of the model with its column of ones, if it has one."""
    rows, lam = answer.run.rows, answer.run.validated.request.lam
    if rows is None or rows.intercept != "column":
        return {}
    return {"r2_with_ones": rows.r2_with_ones(subset_fit(rows.problem(lam), answer.chosen.tolist()))}


def _counts_of_sums(dataset: Dataset, preprocess: Preprocess) -> dict[str, Any]:
    """Return what is known of the parts of sums and of their noise, with the share by which f may be lower."""
    if not isinstance(dataset, Sums):
        return {}
    noise = dataset.noise
    found: dict[str, Any] = {"parts": list(dataset.parts), "files": list(dataset.files)}
    if noise is not None:
        found["noise"] = {
            "epsilon": noise.epsilon, "delta": noise.delta, "sigma": noise.sigma, "norm": noise.norm,
            "share": noise.less(dataset.moments, preprocess),
        }  # fmt: skip
    return found


def _front_row(answer: Answer, point: FrontPoint, value: float | None) -> FrontRow:
    """Return a row of a front. value: of the criterion, if that was minimized."""
    run, objective, whole = answer.run, answer.run.objective, answer.run.whole
    f, rank = objective.value_and_rank(point.members)
    rank += len(objective.included)
    size = run.validated.included + point.size
    criterion = value if answer.by_criterion and value is not None and np.isfinite(value) else None
    members = objective.in_data(point.members)
    if run.validated.items.keeps_dependent:  # included columns that depend on others
        members = [*members, *(j for j in run.always if j not in objective.included)]
    recomputed = answer.errors.get(tuple(sorted(members)))
    if recomputed is not None:
        total = whole.total if run.validated.loss is None else answer.fit.total
        return run.row(size, recomputed[0], 1.0 - recomputed[1] / total, members, criterion=criterion, rank=rank)
    return run.row(size, f, explained_share(whole, members, f), members, criterion=criterion, rank=rank)


def _column_labels(answer: Answer) -> dict[int, str]:
    """Return the labels of the columns in the fronts, and of included and the first excluded ones."""
    objective, validated = answer.run.objective, answer.run.validated
    points = {j for point in (*answer.outcome.front, *answer.forward) for j in point.members}
    columns = [*objective.in_data(points), *validated.include, *validated.exclude[:_EXCLUDED_LABELS]]
    return {int(j): str(answer.run.dataset.features[j]) for j in sorted(columns)}


def _resolved(run: SelectionRun) -> SelectionRequest:
    """Return the request with all options, columns as indices, and nothing that JSON cannot hold."""
    dataset, validated = run.dataset, run.validated
    criterion, rule = validated.request.criterion, validated.size_rule
    represented = set(left_out(run.clusters))  # `counts` has them: nobody excluded them
    by_source = dataset.categories is not None  # a proof does not choose groups either
    ingested = {} if dataset.store is None else dataset.store.attributes.get(ATTR_OPTIONS, {})
    if rule is not None:
        plain = {name: option_as_json(getattr(rule, name)) for name in ("row_groups", "held_out", "split")}
        rule = rule.model_copy(update=plain)
    return validated.request.model_copy(
        update={
            "k": validated.request.k if rule is None else "auto",
            "choose_k": rule,
            "groups": None if validated.groups is None else validated.groups.as_mapping(dataset.features),
            "categories": "columns" if validated.groups is None and by_source else validated.request.categories,
            "dates": ingested.get("dates", validated.request.dates),
            "options": {name: option_as_json(value) for name, value in validated.options},
            "include": tuple(run.validated.include.tolist()),
            "exclude": (*(int(j) for j in validated.exclude if int(j) not in represented), *dataset.left_out),
            "sample_weight": False if dataset.weights is None else dataset.weights.name,
            "criterion": import_path(criterion) if callable(criterion) else criterion,
            "loss": "squared" if validated.loss is None else validated.loss.name,
            "offset": with_name(option_as_json(validated.request.offset), validated.request.offset),
        }
    )


def option_as_json(value: Any) -> Any:
    """Return an option as JSON types: functions by their import path, and data in memory by name only."""
    if callable(value):
        return import_path(value)
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no infinity
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple) and all(isinstance(number, int | float) for number in value):
        return list(value)
    named = isinstance(value, AnyPath) or callable(getattr(value, "split", None))  # a splitter of scikit-learn
    return str(value) if named else IN_MEMORY
