"""What a run found, in terms of the data: coefficients in its units, and the substitutes of each column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dsel._lib.positive_definite import inverse
from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess
from dsel.objective.column_objective import independent_columns
from dsel.objective.objective_interface import Objective
from dsel.passes.refit import Fit
from dsel.passes.statistics import ColumnScales, Scaling
from dsel.search.cross_validation.rounds import subset_fit
from dsel.search.exact.alternatives import swap_values
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.selection.alternatives import Substitute, few_to_substitute
from dsel.selection.class_figures import ClassFigures
from dsel.selection.context import SelectionRun
from dsel.selection.record_values import ChosenStatistics, PathRow, SizeCurve
from dsel.selection.run_method import Errors, rank_error, threads_for

#: Substitutes of a column.
_SUBSTITUTES = 5


@dataclass(frozen=True)
class Answer:
    """What a run found.

    run: with the k and the penalty that were used. outcome: of the search. chosen: columns of the data in their order;
    dependent: those that depend on others, which have no part in the fit. fit: on the chosen columns, from the data.
    curve: along which k was chosen. forward: the path of forward selection, for comparison. errors: of subsets of the
    front, from the data, where the objective approximates them. loss_parameters: what a loss took from the targets.
    numbered_classes: of a target with classes as numbers, which has a column of coefficients for each.
    class_figures: how well the fit tells classes apart. weight_sum: of the rows, times the weights of their classes.
    """

    run: SelectionRun
    outcome: SearchOutcome
    chosen: Ints
    dependent: Ints
    fit: Fit
    path: tuple[PathRow, ...] = ()
    curve: SizeCurve | None = None
    forward: tuple[FrontPoint, ...] = ()
    errors: Errors = field(default_factory=dict)
    loss_parameters: dict[str, Any] = field(default_factory=dict)
    numbered_classes: dict[str, list[str]] = field(default_factory=dict)
    class_figures: ClassFigures | None = None
    weight_sum: float | None = None

    @property
    def best(self) -> FrontPoint:
        """Return the best subset of at most k columns."""
        return self.run.best(self.outcome)

    def is_asked(self, point: FrontPoint) -> bool:
        """Return whether a subset is not larger than `max_k`. With a given k, a front has larger ones, too."""
        request = self.run.validated.request
        return self.curve is None or self.run.validated.included + point.size <= (request.max_k or request.limit)

    @property
    def by_criterion(self) -> bool:
        """Return whether the user's criterion was minimized in place of f."""
        return self.run.validated.request.criterion is not None

    @property
    def by_loss(self) -> bool:
        """Return whether a loss other than the squared error was minimized."""
        return self.run.validated.loss is not None

    @property
    def kept(self) -> Ints:
        """Return the dependent columns that the answer has: all if it is what was chosen, to the last column."""
        return self.dependent if self.by_criterion or self.run.validated.items.keeps_dependent else self.dependent[:0]


def answer_fields(run: SelectionRun, fit: Fit, chosen: Ints, dependent: Ints) -> dict[str, Any]:
    """Return the fields of a Selection that follow from its columns and their fit.

    dependent: columns that depend on those chosen, and are in the answer with coefficient 0.
    """
    dataset, statistics = run.dataset, run.prepared.statistics
    request, items = run.validated.request, run.validated.items
    coefficients, intercept = in_data_units(statistics, request.preprocess, chosen, fit)
    if run.rows is not None and run.rows.intercept == "column":
        fitted = subset_fit(run.rows.problem(request.lam), chosen.tolist())
        coefficients, intercept = run.rows.in_data_units(fitted)
    S = np.concatenate([chosen, dependent])
    figures = ChosenStatistics.of(statistics, request.preprocess, chosen, fit, dependent)
    if dependent.size:
        figures = replace(figures, correlation=_with_dependent(run, S, figures.correlation))
    order = items.order(S)
    S = S[order]
    zeros = np.zeros((dependent.size, coefficients.shape[1]))
    return {
        "indices": tuple(int(j) for j in S),
        "labels": [dataset.names[j] for j in S],
        "error": max(fit.error, 0.0),
        "r2": 1.0 - max(fit.rss, 0.0) / fit.total,
        "coefficients": np.vstack([coefficients, zeros])[order],
        "intercept": intercept,
        "groups": items.by_name(S),
        "categories": dataset.whole_categories(S.tolist()),
        "fill": statistics.mean_x[S] if request.missing == "mean" else None,
        "statistics": figures.reordered(order),
        "swaps": _substitutes(run, chosen),
        "rank_error": None if dataset.n_targets else rank_error(run.whole, len(chosen)),
    }


def explained_share(whole: Objective, members: Sequence[int], f: float) -> float:
    """Return the share of ||Y||^2 that columns explain, without the penalty of f, their error. O(s^3).

    With A = (K_SS + lam I)^-1 the coefficients have the squared norm tr(A M_SS A), and the residual sum of squares is
    f - lam tr(A M_SS A). Dependent columns have no part in f.
    """
    penalty = 0.0
    if whole.lam > 0.0 and members:
        part = whole.restrict(sorted(members))  # without the Gram matrix, this saves a pass for rows of the whole
        part = part.restrict(independent_columns(part, range(part.n)))
        A = inverse(part.K + whole.lam * np.eye(part.n))
        penalty = whole.lam * float(np.vdot(A, A @ part.M))
    return 1.0 - max(f - penalty, 0.0) / whole.total


def in_data_units(statistics: ColumnScales, preprocess: Preprocess, S: Ints, fit: Fit) -> tuple[Floats, Floats]:
    """Return coefficients and intercept for X and Y as they are; where Y = X for all n columns, constant ones too."""
    scaling = statistics.scaling(preprocess)
    found = fit.coefficients
    if fit.intercept is not None:
        scaling = replace(scaling, center_y=fit.intercept, scale_y=np.ones(fit.intercept.size))
    if statistics.unsupervised:
        usable = ~statistics.unusable(preprocess)
        found = np.zeros((S.size, usable.size))
        found[:, usable] = fit.coefficients
    coefficients = found * scaling.scale_y / scaling.scale_x[S][:, None]
    intercept = scaling.center_y - scaling.center_x[S] @ coefficients
    return coefficients, intercept


def _substitutes(run: SelectionRun, chosen: Ints) -> tuple[Substitute, ...] | None:
    """Return the best substitutes of each chosen column, or None where they are not cheap or there are none.

    They take the tables of the search, and O(s^2 n) operations.
    """
    objective, whole, request = run.objective, run.whole, run.validated.request
    S = [int(place) for place in np.flatnonzero(np.isin(objective.columns, chosen))]
    exact = objective.has_gram and objective.eigen_factor is None and run.prepared.errors is None
    validated = run.validated
    if not exact or validated.groups is not None or validated.criterion is not None or validated.loss is not None:
        return None
    if not few_to_substitute(objective.n, len(S)):
        return None
    with threads_for(objective):
        values = swap_values(objective, S)
    place = {int(j): i for i, j in enumerate(whole.columns)}
    names = run.dataset.names
    statistics, found = run.prepared.statistics, []
    scaling = statistics.scaling(request.preprocess)

    def add(old: int, new: int, members: Sequence[int], error: float) -> None:
        correlation = _correlation_of(statistics, scaling, whole, place[old], place[new])
        found.append(Substitute(old, new, names[new], error, explained_share(whole, members, error), correlation))

    for old, *others in run.clusters:  # the near-copies that a chosen column represents come first
        for new in others[:_SUBSTITUTES] if old in chosen else ():
            members = [place[new if j == old else int(j)] for j in chosen]
            add(old, new, members, max(whole.value(members), 0.0))
    for row, i in enumerate(S):
        for l in np.argsort(values[row], kind="stable")[:_SUBSTITUTES]:
            if not np.isfinite(values[row, l]):
                break
            members = objective.in_data([*S[:row], *S[row + 1 :], int(l)])
            add(int(objective.columns[i]), int(objective.columns[l]), members, float(values[row, l]))
    return tuple(found)


def _with_dependent(run: SelectionRun, S: Ints, correlation: Floats) -> Floats:
    """Return the correlations of the columns S with those of the dependent columns, which the fit lacks."""
    if run.prepared.errors is not None or run.whole.eigen_factor is not None:
        return correlation  # its products are approximate
    place = {int(j): i for i, j in enumerate(run.whole.columns)}
    if not set(S.tolist()) <= set(place):
        return correlation
    few, found = run.whole.restrict([place[int(j)] for j in S]), correlation.copy()
    scaling = run.prepared.statistics.scaling(run.validated.request.preprocess)
    for i, j in np.argwhere(np.isnan(correlation)).tolist():
        value = _correlation_of(run.prepared.statistics, scaling, few, i, j)
        found[i, j] = np.nan if value is None else 1.0 if i == j else value
    return found


def _correlation_of(
    statistics: ColumnScales, scaling: Scaling, whole: Objective, i: int, j: int
) -> float | None:  # fmt: skip
    """Return the correlation of two columns of an objective, or None if one of them does not vary."""
    x, y = (float((statistics.mean_x[l] - scaling.center_x[l]) / scaling.scale_x[l]) for l in whole.columns[[i, j]])
    weight = float(statistics.weight)
    squares = float(whole.K[i, i]) - weight * (x * x), float(whole.K[j, j]) - weight * (y * y)
    if not min(squares) > 0.0:
        return None
    value = (float(whole.K[i, j]) - weight * (x * y)) / (math.sqrt(squares[0]) * math.sqrt(squares[1]))
    return min(max(value, -1.0), 1.0) if math.isfinite(value) else None
