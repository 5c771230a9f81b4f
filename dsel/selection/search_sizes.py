"""Search for subsets of every size, and choose the number of columns (``k="auto"``).

The information criteria are those of `dsel.selection.information_criteria`. The degrees of freedom of a subset are
tr(K_SS (K_SS + lam I)^-1), which is the rank of X_S without a penalty.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.blas import one_blas_thread
from dsel._lib.positive_definite import solve
from dsel._lib.types import Floats
from dsel.data.dataset import Dataset
from dsel.errors import DataError, OptionError
from dsel.objective.cross_validation.losses import RowTransform
from dsel.objective.objective_interface import Objective
from dsel.passes.columns.column_statistics import target_gram
from dsel.passes.cross_validation.held_out import held_out_moments
from dsel.passes.cross_validation.rows import SubsetErrors
from dsel.passes.statistics import Statistics, combined
from dsel.planning.representations.representation import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.anytime import AnytimeSearch, SavedAs
from dsel.search.cross_validation.rounds import members_along
from dsel.search.exact.certificate import up_to
from dsel.search.outcome import FrontPoint, SearchOutcome, best_of_sizes
from dsel.selection.candidates import by_gain, candidates_of
from dsel.selection.context import RunContext, SelectionRun
from dsel.selection.information_criteria import NAMES, CriterionContext
from dsel.selection.record_values import PathRow, SizeCurve, SizePoint
from dsel.selection.run_method import path_rows, run_method


def residual_and_freedom(whole: Objective, members: Sequence[int]) -> tuple[float, float]:
    """Return RSS, without the penalty, and the effective degrees of freedom. O(s^3)."""
    if whole.lam == 0.0 or not len(members):
        return whole.value(members), float(whole.rank(members))
    S = np.asarray(members, np.int64)
    whole.fetch_rows(S.tolist())
    K = whole.rows(S)[:, S]
    M = whole.moment_rows(S)[:, S] if whole.cross is None else whole.cross[S] @ whole.cross[S].T
    values, V = np.linalg.eigh(K)
    values = np.maximum(values, 0.0)
    shrunk = 1.0 / (values + whole.lam)
    explained = np.einsum("si,st,ti->i", V, M, V)
    rss = whole.total - float((explained * (2.0 * shrunk - values * shrunk**2)).sum())
    return rss, float((values * shrunk).sum())


log = logging.getLogger("dsel")

#: Subsets by size: the columns of the data, without those that are always included.
Subsets = list[tuple[int, ...]]


@dataclass(frozen=True)
class SizeChoice:
    """The run with the chosen k, what the search found for it, the curve, and the path of methods that have one."""

    run: SelectionRun
    outcome: SearchOutcome
    curve: SizeCurve
    path: tuple[PathRow, ...] = ()


def search_sizes(run: SelectionRun) -> SizeChoice:
    """Choose the number of columns, and return the subset of this size.

    By folds, or a held-out share of the rows, the search runs on each training set first, and then on all rows for the
    chosen size. By another rule it runs once, and the size is chosen along its front or path.
    """
    validated = run.validated
    if run.rows is not None:
        return _along_path(run)
    if validated.partition is not None:
        errors = _FoldErrors(run)
        curve = _chosen(validated, errors.points(), validated.partition.description)
        run = _with_size(run, curve.k)
        return SizeChoice(run, run_method(replace(run, context=errors.context(True))), curve)
    context = None if validated.held_out is not None else _criterion_context(run)
    outcome, subsets = every_size(run)
    if context is None:
        curve = _chosen(validated, _held_out_points(run, subsets), "held-out rows")
    else:
        curve = _by_criterion(run, subsets, context)
    run = _with_size(run, curve.k)
    best = run.best(outcome)
    proofs = up_to(outcome.certificates, curve.k, best.value, run.objective.in_data(best.members))
    if run.most == 0:
        proofs = run_method(run).certificates
    return SizeChoice(run, replace(outcome, certificates=proofs), curve)


def _with_size(run: SelectionRun, k: int) -> SelectionRun:
    log.info("k = %d is chosen", k)
    return run.asking(k=k)


def _chosen(validated: ValidatedRequest, points: Sequence[SizePoint], description: str) -> SizeCurve:
    rule = validated.size_rule
    assert rule is not None
    assert rule.by is not None
    near = rule.one_standard_error
    words = "the smallest size within one standard error of the least error" if near else "the size of least error"
    return SizeCurve.choose(rule.by, f"{words}, by {description}", tuple(points), near)


def every_size(run: SelectionRun) -> tuple[SearchOutcome, Subsets]:
    """Return what the search finds, and the best subset of at most s columns for s = 0, ..., the limit."""
    base, objective = run.validated.included, run.objective
    most = run.reachable
    outcome = run_method(run.asking(k=base + most))
    if most and not run.validated.method.every_size:
        found = [*(run_method(run.asking(k=base + size)) for size in range(1, most)), outcome]
        points = [FrontPoint(0, objective.c, ()), *(point for one in found for point in one.front)]
        proofs = tuple(proof for one in found for proof in one.certificates)
        outcome = replace(outcome, front=tuple(best_of_sizes(points)), certificates=proofs)
    best = [outcome.best(size).members if outcome.front[0].size <= size else () for size in range(most + 1)]
    return outcome, [tuple(int(objective.columns[j]) for j in members) for members in best]


def subsets_of_part(
    dataset: Dataset, validated: ValidatedRequest, context: RunContext, prepared: Prepared, part: Statistics,
    where: str, remedy: str, load_target_gram: Callable[..., Any] | None = None,
) -> Subsets:  # fmt: skip
    """Return the best subset of at most s columns for s = 0, ..., the limit, by the statistics of a part of the rows.

    where, remedy: what errors say of the part.
    """
    try:
        whole = part.objective(validated.request.preprocess, validated.request.lam)
        if load_target_gram is not None:
            whole = replace(whole, load_target_gram=load_target_gram)
        objective, _ = candidates_of(dataset, validated, part, whole)
    except (DataError, OptionError) as error:
        what = f"{where} {part.m} rows. There: {error.what}"
        raise type(error)(what, f"{error.remedy} Or {remedy}.".strip()) from error
    return every_size(SelectionRun(dataset, validated, context, prepared, whole, objective))[1]


def error_of_mean(table: Floats) -> Floats | None:
    """Return (s,) the standard errors of the means over folds of errors (folds, s); None for one fold."""
    return np.asarray(table.std(axis=0, ddof=1) / np.sqrt(len(table))) if len(table) > 1 else None


class _FoldErrors:
    """The errors on each part of the rows of the subsets that the search finds without it."""

    def __init__(self, run: SelectionRun) -> None:
        assert isinstance(run.prepared.statistics, Statistics)
        assert run.prepared.folds is not None
        self._run, self._validated = run, run.validated
        self._whole, self._parts = run.prepared.statistics, run.prepared.folds
        state = run.context.state or {}
        #: For each finished model the errors of every size on each of its tested parts.
        self._found: list[list[list[float]]] = state.get("folds", [])
        self._state: dict[str, Any] | None = state.get("search")

    def points(self) -> list[SizePoint]:
        """Return the curve. The standard error is that of the mean over the parts."""
        partition = self._validated.partition
        assert partition is not None
        errors, weights = [], []
        for number, model in enumerate(partition.tests()):
            tested = [part for part in model.test if part in self._parts]
            if number >= len(self._found):
                log.info("choice of k: model %d", number + 1)
                self._found.append(self._errors(number, model.train, tested))
                self._state = None
            found, weight_of = self._found[number], [self._parts[part].weight for part in tested]
            if len(partition.models) > 1 and found:  # a split of scikit-learn is one fold, of however many parts
                found, weight_of = [np.sum(found, axis=0).tolist()], [sum(weight_of)]
            errors += found
            weights += weight_of
        if not errors:
            raise DataError("No fold has a row of weight above 0.", "Check the weights, or choose other folds.")
        table, weight = np.array(errors), np.array(weights)
        values = table.sum(axis=0) / weight.sum()
        return list(SizePoint.along(self._validated.included, values, error_of_mean(table / weight[:, None])))

    def _errors(self, number: int, train: Sequence[Any], tested: Sequence[Any]) -> list[list[float]]:
        run, validated, request = self._run, self._validated, self._validated.request
        parts = [self._parts[part] for part in train if part in self._parts]
        if not parts:
            raise DataError(f"The rows that model {number + 1} is trained on have no weight.", "Choose other folds.")
        trained = combined(parts)
        load = partial(target_gram, run.dataset, trained, request.preprocess, self._rows_of(train))
        subsets = subsets_of_part(
            run.dataset, validated, self.context(validated.method.every_size), run.prepared, trained,
            f"Model {number + 1} of the choice of k is trained on", "choose fewer or other folds",
            load_target_gram=None if trained.unsupervised else load,
        )  # fmt: skip
        members = [[*run.always, *subsets[min(size, len(subsets) - 1)]] for size in range(run.reachable + 1)]
        with one_blas_thread():  # the matrices are small: threads would wait for each other
            errors = SubsetErrors(trained, self._whole, request.preprocess, request.lam)
            return [errors.errors(self._parts[part], members).tolist() for part in tested]

    def _rows_of(self, train: Sequence[Any]) -> Callable[[int, int], NDArray[np.bool_]]:
        """Return the function that tells which rows a model is trained on."""
        partition = self._validated.partition
        assert partition is not None
        repetition, parts = train[0][0], [part for _, part in train]
        return lambda start, stop: np.isin(partition.of_rows(start, stop, repetition), parts)

    def context(self, resumable: bool) -> RunContext:
        """Return the context of a search, whose saved states include the errors that are known.

        resumable: whether they include the state of the search, too.
        """
        context = self._run.context
        outer = context.on_slice

        def on_slice(search: AnytimeSearch) -> None:
            assert outer is not None
            inside: Any = SavedAs(
                search, lambda: {"folds": self._found, "search": search.state() if resumable else None}
            )
            outer(inside)

        return replace(context, state=self._state, on_slice=None if outer is None else on_slice)


def _held_out_points(run: SelectionRun, subsets: Subsets) -> list[SizePoint]:
    """Return the errors on other rows, from one pass over the columns of all subsets."""
    validated, statistics, request = run.validated, run.prepared.statistics, run.validated.request
    whole = run.prepared.objective(request.lam)
    assert validated.held_out is not None
    scaling = statistics.scaling(request.preprocess)
    fill = statistics.mean_x if request.missing == "mean" else None
    transform = RowTransform(
        scaling.center_x, scaling.scale_x, scaling.center_y, scaling.scale_y, "squared",
        np.zeros(scaling.center_y.size, bool), fill,
    )  # fmt: skip
    fits = []
    for members in subsets:
        S = np.sort(by_gain(whole, [], [*run.always, *members])[0])
        whole.fetch_rows(S.tolist())
        assert whole.cross is not None
        w = solve(whole.rows(S)[:, S] + request.lam * np.eye(S.size), whole.cross[S])
        fits.append((S, w, np.zeros(w.shape[1])))
    values, errors = held_out_moments(validated.held_out, fits, transform, run.context.engine)
    return list(SizePoint.along(validated.included, values, errors))


def _criterion_context(run: SelectionRun) -> CriterionContext:
    """Return what an information criterion needs. Errors: OptionError where Cp has no variance of the errors."""
    validated, rule = run.validated, run.validated.size_rule
    whole, weight = run.prepared.objective(validated.request.lam), run.prepared.statistics.weight
    assert rule is not None
    of_all = None
    if rule.by == "cp":
        if not whole.has_gram or run.prepared.errors is not None:
            what = "the Gram matrix in memory" if run.prepared.errors is None else "all of the data, not reduced ones"
            raise OptionError(f"Cp needs {what}.", "Choose by aicc or bic.")
        of_all = residual_and_freedom(whole, run.objective.in_data(range(run.objective.n)))
    context = CriterionContext(
        weight, run.dataset.n_targets, run.subject.n, whole.total, rule.gamma, run.has_intercept, of_all
    )
    if of_all is not None:
        context.value("cp", *of_all, run.subject.n)  # refuses a rank that leaves no rows before the search
    return context


def _by_criterion(run: SelectionRun, subsets: Subsets, context: CriterionContext) -> SizeCurve:
    """Return the curve of an information criterion."""
    validated, rule = run.validated, run.validated.size_rule
    whole = run.prepared.objective(validated.request.lam)
    assert rule is not None
    by: Any = rule.by
    chosen = [[*run.always, *members] for members in subsets]
    of_data = (
        [None] * len(chosen)
        if run.prepared.errors is None
        else run.prepared.errors([np.sort(np.asarray(S, np.int64)) for S in chosen], validated.request.lam)
    )
    points: dict[int, SizePoint] = {}  # where columns depend on others, the last subsets are of one size
    for members, S, error in zip(subsets, chosen, of_data, strict=True):
        if (s := validated.items.count(members)) in points:
            continue
        rss, freedom = residual_and_freedom(whole, S)
        rss = rss if error is None else error[1]  # of a reduced problem, the errors of the data
        points[s] = SizePoint(validated.included + s, context.value(by, rss, freedom, s))
    name = NAMES[by] + (f" (gamma {rule.gamma:g})" if by == "ebic" else "")
    largest = "the size of largest adjusted R2 (value: minus the adjusted R2)"
    return SizeCurve.choose(by, largest if by == "adjusted-r2" else f"the size of least {name}", tuple(points.values()))


def _along_path(run: SelectionRun) -> SizeChoice:
    """Choose the size along the path of a method that scores subsets on left-out rows."""
    rule = run.validated.size_rule
    assert rule is not None
    outcome = run_method(run)
    at_lam = run if outcome.lam is None else run.asking(lam=outcome.lam)
    path = path_rows(at_lam, outcome)
    start = run.always
    best: dict[int, tuple[float, list[int]]] = {}
    for row, members in zip(path, members_along(outcome.path, start), strict=True):
        error = row.test_error if rule.by == "held-out" else row.error
        assert error is not None
        if row.size not in best or error < best[row.size][0]:
            best[row.size] = error, members
    if rule.by in NAMES or not best:
        best.setdefault(len(start), (np.inf, start))
        subsets = [tuple(j for j in best[size][1] if j not in start) for size in sorted(best)]
        curve = _by_criterion(at_lam, subsets, _criterion_context(at_lam))
    else:
        points = [SizePoint(size, best[size][0]) for size in sorted(best)]
        words = "left-out rows along the path" if rule.by == "path" else "held-out rows"
        curve = _chosen(run.validated, points, words)
    outcome = _ending_with(outcome, run.objective, best[curve.k][1])
    return SizeChoice(_with_size(run, curve.k), outcome, curve, path)


def _ending_with(outcome: SearchOutcome, objective: Objective, chosen: list[int]) -> SearchOutcome:
    """Return the outcome of a path with another subset of it as the answer."""
    local = {int(column): place for place, column in enumerate(objective.columns)}
    members = tuple(local[j] for j in chosen if j in local)
    point = FrontPoint(len(members), objective.value(members), members)
    return replace(outcome, front=(point,), chosen=tuple(chosen))
