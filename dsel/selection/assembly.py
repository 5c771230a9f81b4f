"""From what a search found to a Selection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsel._lib.positive_definite import inverse
from dsel._lib.types import Floats, Ints
from dsel._lib.versions import versions
from dsel.config.import_path import import_path
from dsel.config.request import Preprocess, SelectionRequest
from dsel.data.blocks import load_block
from dsel.data.column_groups import Items
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels
from dsel.objective.base import Objective
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.refit import Fit
from dsel.passes.statistics import ColumnScales
from dsel.planning.validation import ValidatedRequest
from dsel.search.cross_validation.rounds import subset_fit
from dsel.search.exact.certificate import dependence
from dsel.search.method import Options
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.selection.chosen import ChosenStatistics, chosen_statistics
from dsel.selection.result import Selection
from dsel.selection.run_method import Errors, rank_error
from dsel.selection.size_curve import FrontRow, PathRow, SizeCurve, TraceRow
from dsel.storage.paths import AnyPath

#: Largest difference, as a share of ||Y||^2, between the search's error and that recomputed from the data.
_AGREEMENT = 1e-6
#: The number of excluded columns that the result names.
_EXCLUDED_LABELS = 100

#: From three up to this many different whole numbers may be classes. Two classes are the same problem as two numbers.
MOST_CLASSES = 10


@dataclass(frozen=True)
class Found:
    """What a run found.

    validated: the request, with the k and the penalty that were used. statistics: of the columns. objective: over the
    columns that could be chosen. outcome: of the search. chosen: columns of the data in their order; dependent: those
    that depend on others, which have no part in the fit. fit: on the chosen columns, from the data. rows: that the
    method scored subsets on. whole: the objective over all columns. curve: along which k was chosen.
    forward: the path of forward selection, for comparison. errors: of subsets of the front, from the data, where the
    objective approximates them.
    """

    validated: ValidatedRequest
    statistics: ColumnScales
    objective: Objective
    outcome: SearchOutcome
    chosen: Ints
    dependent: Ints
    fit: Fit
    whole: Objective
    path: tuple[PathRow, ...] = ()
    rows: DatasetRows | None = None
    curve: SizeCurve | None = None
    forward: tuple[FrontPoint, ...] = ()
    errors: Errors = field(default_factory=dict)

    @property
    def best(self) -> FrontPoint:
        """Return the best subset of at most k columns."""
        return self.outcome.best(self.validated.request.limit - self.validated.included)

    @property
    def by_criterion(self) -> bool:
        """Return whether the user's criterion was minimized in place of f."""
        return self.validated.request.criterion is not None

    @property
    def kept(self) -> Ints:
        """Return the dependent columns that the answer has: all if it is what was chosen, to the last column."""
        return self.dependent if self.by_criterion or self.validated.items.keeps_dependent else self.dependent[:0]


def assemble(
    dataset: Dataset, found: Found, notes: tuple[str, ...], seconds: dict[str, float], provenance: dict[str, str]
) -> Selection:
    """Return the Selection. notes: on the columns; seconds: by stage; provenance: when and where it was made."""
    request, outcome, fit = found.validated.request, found.outcome, found.fit
    S, coefficients, intercept = _coefficients(found)
    base, best = found.validated.included, found.best
    unusable = found.statistics.unusable(request.preprocess)
    return Selection(
        indices=tuple(int(j) for j in S),
        labels=[str(dataset.features[j]) for j in S],
        request=_resolved(dataset, found),
        error=fit.error,
        r2=1.0 - fit.rss / fit.total,
        coefficients=coefficients,
        intercept=intercept,
        front=tuple(_front_row(found, point, point.value) for point in outcome.front),
        trace=tuple(TraceRow(t.iteration, base + t.size, t.value) for t in outcome.trace),
        ended=outcome.ended,
        iterations=outcome.iterations,
        shape=(dataset.m, dataset.n),
        targets=tuple(str(t) for t in dataset.targets),
        constant=tuple(str(dataset.features[j]) for j in np.flatnonzero(unusable)),
        counts=outcome.counts,
        notes=(*notes, *outcome.notes, *outcome.bound_notes, *_notes(dataset, found)),
        certificate=tuple(certificate.as_dict() for certificate in outcome.certificates),
        source=dataset.name,
        fingerprint=dataset.fingerprint,
        seconds=seconds,
        versions=versions(),
        criterion=best.value if found.by_criterion and np.isfinite(best.value) else None,
        path=found.path,
        weights=None if dataset.weights is None else dataset.weights.name,
        fill=found.statistics.mean_x[S] if request.missing == "mean" else None,
        flat_target=dataset.flat_target,
        size_curve=found.curve,
        statistics=_chosen_statistics(found),
        forward=tuple(_front_row(found, point, None) for point in found.forward),
        provenance=provenance,
        column_labels=_column_labels(dataset, found),
        groups=found.validated.items.by_name(S),
        rank_error=None if dataset.n_targets else rank_error(found.whole, len(S)),
    )


def _coefficients(found: Found) -> tuple[Ints, Floats, Floats]:
    """Return the columns of the answer, and coefficients and intercept for the data as they are."""
    request, S, rows = found.validated.request, found.chosen, found.rows
    coefficients, intercept = in_data_units(found.statistics, request.preprocess, S, found.fit)
    if rows is not None and rows.intercept == "column":
        coefficients, intercept = rows.in_data_units(subset_fit(rows.problem(request.lam), S.tolist()))
    S, coefficients = with_dependent(S, coefficients, found.kept, found.validated.items)
    return S, coefficients, intercept


def _chosen_statistics(found: Found) -> ChosenStatistics:
    """Return the statistics of the columns of the answer, in their order."""
    order = found.validated.items.order(np.concatenate([found.chosen, found.kept]))
    preprocess = found.validated.request.preprocess
    return chosen_statistics(found.statistics, preprocess, found.chosen, found.fit, found.kept).reordered(order)


def with_dependent(S: Ints, coefficients: Floats, dependent: Ints, items: Items) -> tuple[Ints, Floats]:
    """Return columns and coefficients with those of dependent columns, which are 0; by groups, if there are any."""
    S = np.concatenate([S, dependent])
    coefficients = np.vstack([coefficients, np.zeros((dependent.size, coefficients.shape[1]))])
    order = items.order(S)
    return S[order], coefficients[order]


def _notes(dataset: Dataset, found: Found) -> Iterator[str]:
    """Yield notes on the answer."""
    rows, fit, dependent = found.rows, found.fit, found.dependent
    classes = _class_count(dataset)
    if classes is not None:
        yield (
            f"Y has {classes} different whole numbers, and they were used as numbers: if they are classes, give a "
            "column of 0 and 1 for each"
        )
    if "captured" in found.outcome.counts:
        yield _reduction(found.outcome.counts)
    if found.outcome.counts.get("dependent_gap"):
        counts, label = found.outcome.counts, dataset.features
        chosen = [int(j) for j in found.chosen]
        yield dependence(counts["near_copies"], chosen, counts["dependent_gap"], lambda j: str(label[j]))
    if rows is not None and rows.recoded:
        yield "labels 0 and 1 count as -1 and +1 in the errors of the path; the coefficients are for Y as it is"
    if rows is not None and rows.intercept == "column":
        yield "error and r2 are those of the chosen columns without the column of ones"
    if not found.by_criterion and abs(fit.error - found.best.value) > _AGREEMENT * fit.total:
        yield f"the error recomputed from the data differs from the search's by more than {_AGREEMENT:g} of ||Y||^2"
    if dataset.row_part is not None:
        yield f"{dataset.row_part.description}: they take no part in the selection and in the fit"
    if found.by_criterion and not np.isfinite(found.best.value):
        yield "the criterion is +inf for every subset that was evaluated"
    if not found.chosen.size and not dependent.size:
        yield "no column is chosen: no subset that was evaluated has a smaller error than the empty one"
    if dependent.size:
        what = "have coefficient 0" if found.kept.size else "were left out"
        yield f"{dependent.size} columns that depend on the others {what}: {format_labels(dataset.features, dependent)}"


def _reduction(counts: dict[str, Any]) -> str:
    """Return what a reduced problem captures, and what that costs a bound."""
    chance = f", except with probability {counts['chance']:.0e}" if counts["chance"] else ""
    bound = f"; f is at least {counts['bound']:.6g} for all subsets{chance}" if "bound" in counts else ""
    return (
        f"the search ran on a reduced problem of rank {counts['rank']}, which captures {counts['captured']:.2%} of "
        f"||X||^2; what it leaves out lowers a bound by {counts['left_out']:.2g} of ||Y||^2{bound}; the errors of the "
        "front are those of the data"
    )


def _front_row(found: Found, point: FrontPoint, value: float | None) -> FrontRow:
    """Return a row of a front. value: of the criterion, if that was minimized."""
    objective = found.objective
    f = objective.value(point.members)
    size = found.validated.included + point.size
    criterion = value if found.by_criterion and value is not None and np.isfinite(value) else None
    members = objective.in_data(point.members)
    if found.validated.items.keeps_dependent:  # included columns that depend on others
        unusable = found.statistics.unusable(found.validated.request.preprocess)
        more = [int(j) for j in found.validated.include if not unusable[j] and int(j) not in objective.included]
        members = [*members, *more]
    recomputed = found.errors.get(tuple(sorted(members)))
    if recomputed is not None:
        return FrontRow(size, recomputed[0], 1.0 - recomputed[1] / found.whole.total, tuple(members), criterion)
    return FrontRow(size, f, explained_share(found.whole, members, f), tuple(members), criterion)


def explained_share(whole: Objective, members: Sequence[int], f: float) -> float:
    """Return the share of ||Y||^2 that columns explain, without the penalty of f, their error. O(s^3).

    With A = (K_SS + lam I)^-1 the coefficients have the squared norm tr(A M_SS A), and the residual sum of squares is
    f - lam tr(A M_SS A).
    """
    penalty = 0.0
    if whole.lam > 0.0 and members:
        part = whole.restrict(members)
        A = inverse(part.K + whole.lam * np.eye(part.n))
        penalty = whole.lam * float(np.vdot(A, A @ part.M))
    return 1.0 - (f - penalty) / whole.total


def _column_labels(dataset: Dataset, found: Found) -> dict[int, str]:
    """Return the labels of the columns in the fronts, and of included and the first excluded ones."""
    objective, validated = found.objective, found.validated
    points = {j for point in (*found.outcome.front, *found.forward) for j in point.members}
    columns = [*objective.in_data(points), *validated.include, *validated.exclude[:_EXCLUDED_LABELS]]
    outcome = found.outcome
    for near in (outcome.counts.get("near_copies", ()), *(c.near_copies for c in outcome.certificates)):
        columns += [j for members in near for j in members]
    return {int(j): str(dataset.features[j]) for j in sorted(columns)}


def _resolved(dataset: Dataset, found: Found) -> SelectionRequest:
    """Return the request with all options, columns as indices, and nothing that JSON cannot hold."""
    validated = found.validated
    criterion, rule = validated.request.criterion, validated.size_rule
    if rule is not None:
        plain = {name: _as_json(getattr(rule, name)) for name in ("row_groups", "held_out")}
        rule = rule.model_copy(update=plain)
    return validated.request.model_copy(
        update={
            "k": validated.request.k if rule is None else "auto",
            "choose_k": rule,
            "groups": None if validated.groups is None else validated.groups.as_mapping(dataset.features),
            "options": _as_text(validated.options),
            "include": tuple(int(j) for j in validated.include),
            "exclude": tuple(int(j) for j in validated.exclude),
            "sample_weight": False if dataset.weights is None else dataset.weights.name,
            "criterion": import_path(criterion) if callable(criterion) else criterion,
        }
    )


def _as_text(options: Options) -> dict[str, Any]:
    """Return options as JSON types: functions by their import path."""
    return {name: _as_json(value) for name, value in options}


def _as_json(value: Any) -> Any:
    if callable(value):
        return import_path(value)
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no infinity
    return value if value is None or isinstance(value, str | int | float) else _plain(value)


def _plain(value: Any) -> Any:
    """Return tuples of numbers as lists, and data in memory by name only."""
    if isinstance(value, list | tuple) and all(isinstance(one, int | float) for one in value):
        return list(value)
    return str(value) if isinstance(value, AnyPath) else "data in memory"


def in_data_units(statistics: ColumnScales, preprocess: Preprocess, S: Ints, fit: Fit) -> tuple[Floats, Floats]:
    """Return coefficients and intercept for X and Y as they are; where Y = X for all n columns, constant ones too."""
    scaling = statistics.scaling(preprocess)
    found = fit.coefficients
    if statistics.unsupervised:
        usable = ~statistics.unusable(preprocess)
        found = np.zeros((S.size, usable.size))
        found[:, usable] = fit.coefficients
    coefficients = found * scaling.scale_y / scaling.scale_x[S][:, None]
    intercept = scaling.center_y - scaling.center_x[S] @ coefficients
    return coefficients, intercept


def _class_count(dataset: Dataset) -> int | None:
    """Return how many classes a single target in memory may hold; None if it does not look like classes."""
    if not dataset.in_memory or dataset.n_targets != 1 or dataset.m <= 2 * MOST_CLASSES:
        return None
    found = np.empty(0)
    for block in dataset.blocks:
        values = np.asarray(load_block(block.y, dataset.target_columns), np.float64)
        found = np.union1d(found, values)
        if found.size > MOST_CLASSES or not (found == np.round(found)).all():
            return None
    return int(found.size) if found.size > 2 else None
