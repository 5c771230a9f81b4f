"""``k="auto"`` for a loss: by an information criterion of the deviance, or on rows that a model has not seen."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import counted
from dsel._lib.types import Floats
from dsel.data.row_partition import Part
from dsel.errors import DataError
from dsel.passes.class_tables import class_tables
from dsel.passes.columns.column_statistics import ScalesOfParts
from dsel.passes.loss_data import LossData, on_rows
from dsel.passes.loss_fits import LossFit, deviances, mean_deviances
from dsel.selection.candidates import by_gain
from dsel.selection.class_figures import class_names
from dsel.selection.context import SelectionRun
from dsel.selection.information_criteria import NAMES, CriterionContext
from dsel.selection.loss_search import LossSearch
from dsel.selection.record_values import SizeCurve, SizePoint
from dsel.selection.search_sizes import error_of_mean

log = logging.getLogger("dsel")

#: What is compared on left-out rows, in words.
_WORDS = {"auc": "1 - AUC", "log-loss": "logarithmic loss"}


def choose_size(run: SelectionRun, search: LossSearch) -> SizeCurve:
    """Return the curve of an automatic k after a search on all rows."""
    rule, folds = run.validated.size_rule, run.validated.loss_folds
    assert rule is not None
    search.every_size(run)
    if folds is None:
        return _by_criterion(run, search)
    by: Any = rule.by
    points, unordered = _left_out(search, by)
    near = rule.one_standard_error
    words = "the smallest size within one standard error of the least" if near else "the size of least"
    what = _WORDS.get(by, f"{search.problem.loss.name} deviance")
    empty = f", without {counted(unordered, 'fold')} in which no event comes before other rows" if unordered else ""
    return SizeCurve.choose(by, f"{words} {what}, by {folds.description}{empty}", points, near)


def _by_criterion(run: SelectionRun, search: LossSearch) -> SizeCurve:
    """Return the curve of an information criterion along the sizes."""
    rule = run.validated.size_rule
    assert rule is not None
    by: Any = rule.by
    loss = search.problem.loss
    null = search.known[tuple(sorted(run.always))].deviance
    context = CriterionContext(loss.count(search.problem.weight_sum), loss.outputs, run.subject.n, null, rule.gamma)
    intercept = search.problem.intercept and loss.has_intercept
    base = run.validated.included

    def value(S: tuple[int, ...], size: int) -> float:
        df = by_gain(run.whole, [], S)[0].size  # all columns that count, also those of a group and included ones
        return context.value_by_loss(by, loss, search.known[S].deviance, df, size, intercept)

    points = [SizePoint(base + size, value(S, size)) for S in search.front() if (size := search.sizes[S]) <= run.most]
    return SizeCurve.choose(by, f"the size of least {NAMES[by]}", tuple(points))


def _left_out(search: LossSearch, by: str) -> tuple[tuple[SizePoint, ...], int]:
    """Return the values on left-out rows of the subsets that searches on the other rows find.

    And the number of folds whose rows have no order, as those of "cox" without an event: they say nothing.
    """
    run, data = search.run, search.problem
    folds = run.validated.loss_folds
    assert folds is not None
    request, statistics = run.validated.request, run.prepared.statistics
    scales = ScalesOfParts(run.dataset, folds, statistics.mean_x, request, run.context.engine)
    values, weights, errors, unordered = [], [], None, 0
    for number, model in enumerate(folds.tests()):
        log.info("choice of k: model %d", number + 1)
        trained, tested = (_rows_of(run, parts) for parts in (model.train, model.test))
        test = on_rows(replace(data, loss=data.loss.without_class_weights()), tested)
        assert test.targets.w is not None
        weight = float(test.targets.w.sum())
        if not weight > 0.0:
            continue
        if by == "auc":
            which = f"Model {number + 1} of the choice of k has no AUC: it is tested on rows"
            _require_classes(test, which, "Choose by log-loss, or on fewer or other folds.")
        scale = statistics.scaling(request.preprocess).scale_x
        if request.scales_matter:  # to a penalty only
            scale = scales.of(sum(scales.sums(repetition)[part] for repetition, part in model.train))
        unit = scale / data.scaling.scale_x
        test = test.in_units(unit)
        fits = _fits_of_fold(run, on_rows(data, trained).in_units(unit), number)
        found, errors = _compared(test, fits, by, weight)
        if not test.loss.by_rows and not found.any():
            unordered += 1
            continue
        weights.append(weight)
        values.append(found)
    if unordered and not values:
        raise DataError("No fold has an event before other rows.", "Choose fewer or other folds, or bic.")
    if not values:
        raise DataError("No fold has a row of weight above 0.", "Check the weights, or choose other folds.")
    table, weight_of = np.array(values), np.array(weights)
    mean = weight_of @ table / weight_of.sum()
    spread = error_of_mean(table) if len(table) > 1 else errors
    return SizePoint.along(run.validated.included, mean, spread), unordered


def _rows_of(run: SelectionRun, parts: tuple[Part, ...]) -> NDArray[np.bool_]:
    """Return which rows (m,) are in some parts."""
    folds = run.validated.loss_folds
    assert folds is not None
    return np.isin(folds.of_rows(0, run.dataset.m, parts[0][0]), [part for _, part in parts])


def _fits_of_fold(run: SelectionRun, data: LossData, number: int) -> list[LossFit]:
    """Return the best fit of at most s columns for s = 0, 1, ..., by a search on the rows with weight."""
    if data.loss.classifies:
        remedy = "Choose fewer or other folds, or an information criterion."
        _require_classes(data, f"Model {number + 1} of the choice of k is trained on rows", remedy)
    context = replace(run.context, state=None, on_slice=None, journal=None, compare=None, start=())
    try:
        data = replace(data, loss=data.loss.fitted_to(data.targets.y, data.targets.w))
    except DataError as error:
        what = f"Model {number + 1} of the choice of k is trained on some rows only. There: {error.what}"
        raise DataError(what, f"{error.remedy} Or choose fewer or other folds.".strip()) from error
    search = LossSearch(replace(run, dataset=data.dataset, context=context), data, of_part=True)
    search.every_size(search.search())
    best = [
        min((S for S, size in search.sizes.items() if size <= s), key=lambda S: (search.known[S].value, S))
        for s in range(run.reachable + 1)
    ]
    return [search.known[S] for S in best]


def _require_classes(data: LossData, which: str, remedy: str) -> None:
    """Raise an error if no row with weight is in some class."""
    targets = data.targets
    there = data.loss.encode(targets.y if targets.w is None else targets.y[targets.w > 0.0])
    missing = [name for code, name in enumerate(class_names(data)) if code not in there]
    if missing:
        raise DataError(f"{which} without the class {missing[0]}.", remedy)


def _compared(test: LossData, fits: list[LossFit], by: str, weight: float) -> tuple[Floats, Floats | None]:
    """Return the value of each fit on rows that it has not seen, less is better, and the standard errors of means."""
    if by == "auc":
        return np.array([1.0 - table.auc for table in class_tables(test, fits)]), None
    if not test.loss.by_rows:
        return np.array(deviances(test, fits)) / weight, None
    share = 0.5 if by == "log-loss" else 1.0
    mean, error = mean_deviances(test, fits)
    return share * mean, share * error
