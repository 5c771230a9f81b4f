"""The search for the best columns by a loss: quadratic models that any method searches, and true fits of the best.

At a fit, the loss has a quadratic model, which is a weighted least-squares problem. A method searches it as it searches
the squared error: with its Gram matrix, without a pass over the data. The true F of the best subsets follows by Newton
steps for all of them together. The next model is about the best fit that had none. After a few models, the search ends
when the last one found nothing better. Lawless and Singhal (1978) did this once, at the model with all columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.data.dataset import Dataset
from dsel.objective.column_objective import independent_columns
from dsel.objective.dense import DenseObjective
from dsel.objective.losses.multinomial import class_name
from dsel.passes.class_tables import class_tables
from dsel.passes.loss_data import (
    LossData,
    Targets,
    loss_targets,
    most_kept,
    on_rows,
    without_scale_of_targets,
)
from dsel.passes.loss_fits import LossFit, deviances, fit_subsets
from dsel.passes.loss_models import (
    FEWEST_MODELS,
    MOST_MODELLED,
    MOST_MODELS,
    ORDERED_BY_FITS,
    model_moments,
    rows_at,
    score_columns,
)
from dsel.passes.refit import Fit
from dsel.passes.statistics import Statistics
from dsel.search.anytime import AnytimeSearch, SavedAs
from dsel.search.exact.alternatives import swap_values
from dsel.search.exact.certificate import NOTHING
from dsel.search.method import OnSlice
from dsel.search.outcome import FrontPoint, Improvement, SearchOutcome, improving
from dsel.selection.candidates import by_gain
from dsel.selection.class_figures import ClassFigures, class_names
from dsel.selection.context import SelectionRun
from dsel.selection.result import Selection
from dsel.selection.run_method import greedy_references, run_method

log = logging.getLogger("dsel")

#: Swaps of the best subset whose true fit is computed in each round.
_SWAPS = 60
#: A model is about the fit of up to this number of columns, divided by the outputs of the loss.
_WIDE = 60
#: A fit is better only if F is less by this share: below it is rounding.
_BETTER = 1e-10
#: Columns that nearly depend on others are in the answer if they lower F by this share.
_NOT_DEPENDENT = 1e-7
#: Rows whose deviance without columns is a smaller share of that of a fit, as rows of one class, have none to explain.
_NO_DEVIANCE = 1e-7


@dataclass(frozen=True)
class _Model:
    """A quadratic model: the statistics of its weighted rows over some columns, about a fit with this loss."""

    found: Statistics
    columns: Ints
    problem: LossData

    @cached_property
    def moments(self) -> tuple[Floats, Floats, float]:
        """The Gram matrix and the cross products of the scaled columns, and the squared norm of the target."""
        found, scale = self.found, self.problem.scaling.scale_x[self.columns]
        K, cross, c = found.K, found.B, float(found.yy.sum())
        if not self.problem.intercept:
            K = K + found.weight * np.outer(found.mean_x, found.mean_x)
            cross = cross + found.weight * np.outer(found.mean_x, found.mean_y)
            c += found.weight * float(found.mean_y @ found.mean_y)
        return K / np.outer(scale, scale), cross / scale[:, None], c

    def start(self, S: tuple[int, ...]) -> Floats | None:
        """Return the coefficients of the model for a subset, and the intercept; None if it lacks a column."""
        columns = np.array(S, np.int64)
        at = np.searchsorted(self.columns, columns)
        if not len(S) or at.max() >= self.columns.size or (self.columns[at] != columns).any():
            return None
        K, cross, _ = self.moments
        A = K[np.ix_(at, at)] + self.problem.lam * np.eye(len(S))
        b = np.linalg.lstsq(A, cross[at], rcond=1e-10)[0]
        b0 = np.zeros(b.shape[1])
        if self.problem.intercept:
            scaling = self.problem.scaling
            centered = (self.found.mean_x[at] - scaling.center_x[columns]) / scaling.scale_x[columns]
            b0 = self.found.mean_y - centered @ b
        start = np.vstack([b, b0])
        return start if self.problem.loss.outputs > 1 else start[:, 0]


@dataclass
class LossSearch:
    """The subsets that were fitted, and the best ones.

    Parameters
    ----------
    run : SelectionRun
        The selection. Its objective is the squared error.
    problem : LossData
        The loss on the data.
    of_part : bool
        Whether the loss is that of some rows only, of which the objective of the selection knows nothing.
    exact : bool
        Whether the method proved the best subset of a model.
    answer : tuple of int
        The columns of the answer, once it has its final fit.
    """

    run: SelectionRun
    problem: LossData
    known: dict[tuple[int, ...], LossFit] = field(default_factory=dict)
    sizes: dict[tuple[int, ...], int] = field(default_factory=dict)
    trace: list[Improvement] = field(default_factory=list)
    iterations: int = 0
    rounds: int = 0
    modelled: set[tuple[int, ...]] = field(default_factory=set)
    model: _Model | None = None
    of_part: bool = False
    exact: bool = False
    answer: tuple[int, ...] = ()

    @property
    def best(self) -> tuple[int, ...]:
        """Return the best subset of at most k columns or groups; of equal ones the smallest."""
        return self._least(S for S, size in self.sizes.items() if size <= self.run.most)

    def _least(self, subsets: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the subset of least F; of equal ones the smallest. Errors: ValueError if there are none."""
        return min(subsets, key=lambda S: (self.known[S].value, self.sizes[S], S))

    def consider(self, points: list[tuple[int, tuple[int, ...]]]) -> None:
        """Fit subsets, given by their size and columns of the data, that were not fitted before."""
        new = {S: size for size, members in points if (S := tuple(sorted(members))) not in self.known}
        starts = [None if self.model is None else self.model.start(S) for S in new]
        subsets, sizes = [np.array(S, np.int64) for S in new], list(new.values())
        fits = fit_subsets(self.problem, subsets, starts, sizes)
        # Where infinite fits stop depends on their start. From a bad one, others do not become better than no columns.
        none = min((fit.value for S, fit in self.known.items() if not self.sizes[S]), default=np.inf)
        unsettled = [fit.columns for fit in fits if fit.infinite or not fit.converged or fit.value > none]
        settled = {tuple(fit.columns.tolist()): fit for fit in fit_subsets(self.problem, unsettled)}
        for S, fit in zip(new, fits, strict=True):
            again = settled.get(S, fit)
            self.known[S], self.sizes[S] = again if fit.infinite or again.value < fit.value else fit, new[S]
        best = self.best
        fit = self.known[best]
        if not self.trace or fit.value < self.trace[-1].value:
            self.trace.append(Improvement(self.iterations, self.sizes[best], fit.value))

    def search(self) -> SelectionRun:
        """Search model after model; return the run with the objective of the last one."""
        run = self.run
        base = tuple(sorted(run.always))
        self.consider([(0, base)])
        saved = (run.context.state or {}).get("loss")
        if saved is not None:
            self._restore(saved)
            wide = saved.get("wide")
            return self._later_models(replace(run, context=replace(run.context, state=None)), wide and tuple(wide))
        first = run  # without offsets and weights of classes, the model about the intercept is the squared error
        if self._begins_elsewhere:
            first = replace(run, objective=self._model(self.known[base]))
        if run.most == 0:
            return first
        points, run = self._searched(first)
        self.consider(points)
        return self._later_models(run, self._wide(run))

    def _wide(self, run: SelectionRun) -> tuple[int, ...] | None:
        """Return more columns than are asked for: all, or the best by a model; None where their fit would cost much."""
        problem, columns = self.problem, candidate_columns(self.run)
        most = min(_WIDE // problem.loss.outputs, most_kept(problem.dataset))
        if columns.size > most:
            points = self._in_data(run, greedy_references(run.subject, min(most, run.subject.n)))
            columns = np.array(max((S for _, S in points if len(S) <= most), key=len, default=()), np.int64)
        wide = tuple(sorted(columns.tolist()))
        return wide if len(wide) > max((len(S) for S in self.known), default=0) else None

    def _later_models(self, run: SelectionRun, wide: tuple[int, ...] | None) -> SelectionRun:
        """Search the models after the first one; return the run with the objective of the last one.

        wide: the columns that the next model is about, more than are asked for. Columns that explain much together, but
        little alone, have a model about them that no search would come to otherwise.
        """
        while self.rounds < MOST_MODELS:
            before = self.known[self.best].value
            fit = self._next(wide)
            if fit is None:
                break
            run, wide = replace(run, objective=self._model(fit)), None
            points, run = self._searched(run, tuple(fit.columns.tolist()))
            self.consider(points)
            after = self.known[self.best].value
            log.info("loss: model %d, F %.8g", self.rounds, after)
            if self.rounds >= FEWEST_MODELS and not after < before - _BETTER * abs(before):
                break
        return run

    @property
    def _begins_elsewhere(self) -> bool:
        """Return whether the model about the intercept is not the squared error of the targets."""
        loss, targets = self.problem.loss, self.problem.targets
        weighted = loss.row_weights(loss.encode(targets.y[:1]), None) is not None
        known = not (self.of_part or weighted or targets.offset is not None) and loss.by_rows
        return not known or loss.outputs != max(self.run.dataset.n_targets - 1, 1)

    def _next(self, wide: tuple[int, ...] | None) -> LossFit | None:
        """Return the fit of more columns, or of the best subset of at most k columns that had no model yet, or None."""
        if wide:
            fit = fit_subsets(self.problem, [np.array(wide, np.int64)])[0]
            if fit.converged and not fit.infinite:
                return fit
        waiting = [S for S, size in self.sizes.items() if size <= self.run.most and S not in self.modelled]
        return self.known[self._least(waiting)] if waiting else None

    def every_size(self, run: SelectionRun) -> None:
        """Fit swaps of the best subset of each size, by a model about each."""
        for S in self.front():
            if not 0 < self.sizes[S] <= run.most:
                continue
            about = replace(run, objective=self._model(self.known[S]))
            points = greedy_references(about.subject, run.most)
            if run.validated.groups is None:
                points += tuple(self._swaps(about, S))
            self.consider(self._in_data(about, points))

    def _in_data(self, run: SelectionRun, points: Iterable[FrontPoint]) -> list[tuple[int, tuple[int, ...]]]:
        """Return the sizes and the columns of the data of some points."""
        return [(p.size, tuple({*run.always, *run.objective.in_data(p.members)})) for p in points]

    def _model(self, fit: LossFit, *, conditioned: bool = True) -> Any:
        """Return the objective of the quadratic model about a fit, over the columns that may be chosen.

        conditioned: whether included columns are always in its subsets. Those that depend on others there add nothing.
        """
        run, problem = self.run, self.problem
        candidates = candidate_columns(self.run)
        if candidates.size > MOST_MODELLED and run.validated.groups is None:
            scores = np.full(problem.dataset.n, -1.0)
            scores[candidates] = score_columns(problem, fit)[candidates]
            known = {j for S in self.front() for j in S}
            scores[[*fit.columns, *run.always, *known]] = np.inf
            columns = np.sort(np.argsort(-scores, kind="stable")[:MOST_MODELLED])
        else:
            columns = np.union1d(candidates, fit.columns)
        found = Statistics.from_moments(model_moments(problem, fit, columns))
        self.model = _Model(found, columns.astype(np.int64), problem)
        self.modelled.add(tuple(np.sort(fit.columns).tolist()))
        K, cross, c = self.model.moments
        model = DenseObjective(K, cross, c, problem.lam, columns=self.model.columns)
        if not conditioned:
            return model
        include = np.flatnonzero(np.isin(columns, run.always))
        independent = independent_columns(model, include)
        kept = np.setdiff1d(np.arange(model.n), np.setdiff1d(include, independent))
        return model.restrict(kept).condition(np.searchsorted(kept, independent).tolist())

    def _searched(
        self, run: SelectionRun, about: tuple[int, ...] | None = None
    ) -> tuple[list[tuple[int, tuple[int, ...]]], SelectionRun]:
        """Return the best subsets of a model by their sizes, and the run that searched it.

        about: the subset that the model is about; None for the first one.
        """
        self.rounds += 1
        context, near = run.context, about if about in self.known else self.best
        if about is not None:  # a job continues from the beginning of a later model
            start = (near, *context.start)
            context = replace(context, state=None, on_slice=self._on_slice(about), journal=None, start=start)
        run = replace(run, context=context)
        outcome = run_method(self._with_share_of_time(run, first=about is None))
        self.iterations += outcome.iterations
        self.exact = self.exact or any(
            proof.proven and not proof.method.startswith(NOTHING) for proof in outcome.certificates
        )
        points = [*outcome.front, *greedy_references(run.subject, run.most)]
        if about is not None and self.sizes[near] and run.validated.groups is None:
            points += self._swaps(run, near)
        return self._in_data(run, points), run

    def _on_slice(self, about: tuple[int, ...]) -> OnSlice | None:
        """Return what is called between slices of a later model: what it saves is what was known before it."""
        outer = self.run.context.on_slice
        if outer is None:
            return None
        known = [[self.sizes[S], list(S)] for S in self.known]
        modelled = [list(S) for S in self.modelled if about != S]
        trace = [[t.iteration, t.size, t.value] for t in self.trace]
        state = {"points": known, "modelled": modelled, "trace": trace, "counts": [self.iterations, self.rounds - 1]}
        state["wide"] = None if about in self.known else list(about)

        def on_slice(search: AnytimeSearch) -> None:
            between: Any = SavedAs(search, lambda: {"loss": state})
            outer(between)

        return on_slice

    def _restore(self, saved: dict[str, Any]) -> None:
        """Fit the subsets again that were known at the beginning of a later model."""
        self.consider([(size, tuple(S)) for size, S in saved["points"]])
        self.modelled = {tuple(S) for S in saved["modelled"]}
        self.trace = [Improvement(*values) for values in saved["trace"]]
        self.iterations, self.rounds = saved["counts"]

    def _with_share_of_time(self, run: SelectionRun, *, first: bool) -> SelectionRun:
        """Return the run with its share of a time limit: half for the first model, and the rest for all others."""
        options = run.validated.options
        limit = getattr(options, "seconds", None)
        if limit is None:
            return run
        share = 0.5 if first else 0.5 / (MOST_MODELS - 1)
        shared = options.model_copy(update={"seconds": share * limit})
        return replace(run, validated=replace(run.validated, options=shared))

    def _swaps(self, run: SelectionRun, best: tuple[int, ...]) -> list[FrontPoint]:
        """Return the subsets with one column of `best` replaced, or one more, that the model finds best."""
        objective = run.objective
        place = {int(j): i for i, j in enumerate(objective.columns)}
        S = [place[j] for j in best if j in place]
        if not S or not objective.has_gram:
            return []
        values = swap_values(objective, S)
        order = np.argsort(values, axis=None, kind="stable")[:_SWAPS]
        points = []
        for flat in order[np.isfinite(values.ravel()[order])].tolist():
            row, new = divmod(flat, objective.n)
            members = (*S[:row], *S[row + 1 :], new)
            points.append(FrontPoint(len(members), float(values[row, new]), members))
        if len(S) < run.most:
            state = objective.subset(len(S) + 1)
            if all([state.insert(j) for j in S]):
                gains = state.gains()
                added = np.argsort(-gains, kind="stable")[: _SWAPS // 2]
                points += [FrontPoint(len(S) + 1, 0.0, (*S, int(j))) for j in added if gains[j] > 0.0]
        return points

    def front(self) -> list[tuple[int, ...]]:
        """Return the best subset of each size that is better than all smaller ones."""
        points = improving([FrontPoint(self.sizes[S], fit.value, S) for S, fit in self.known.items()])
        return [point.members for point in points]

    def front_with_answer(self) -> list[tuple[int, ...]]:
        """Return the front with the answer in the row of its size, and without larger subsets that are no better."""
        size, enough = self.sizes[self.answer], self.known[self.answer].value * (1.0 - _BETTER)
        front = self.front()
        smaller = [S for S in front if self.sizes[S] < size]
        return [*smaller, self.answer, *(S for S in front if self.sizes[S] > size and self.known[S].value < enough)]

    def outcome(self, run: SelectionRun) -> tuple[SearchOutcome, dict[tuple[int, ...], tuple[float, float]]]:
        """Return the outcome in local columns of the run's objective, and F and the deviance of its subsets."""
        place = {int(j): i for i, j in enumerate(run.objective.columns)}
        included = set(run.objective.included) | set(run.always)
        sets = self.front_with_answer()
        local = ((S, tuple(place[j] for j in S if j not in included)) for S in sets)
        front = [FrontPoint(self.sizes[S], self.known[S].value, members) for S, members in local]
        errors = {S: (self.known[S].value, self.known[S].deviance) for S in sets}
        counts = {"loss": self.problem.loss.name, "models": self.rounds, "fits": len(self.known), **self.figures()}
        return SearchOutcome(tuple(front), tuple(self.trace), self.iterations, "complete", counts), errors

    def final_fit(self, run: SelectionRun) -> tuple[Ints, Ints, Fit]:
        """Return the chosen columns in order of gain, those without a part in the fit, and their fit."""
        best, problem = self.best, self.problem
        base = [j for j in run.always if j in best]
        chosen, dependent = by_gain(run.whole, base, [j for j in best if j not in base])
        if dependent.size:
            without, whole = fit_subsets(problem, [chosen, np.array(best, np.int64)])
            if whole.value < without.value * (1.0 - _NOT_DEPENDENT):
                chosen, dependent = np.concatenate([chosen, dependent]), dependent[:0]
        chosen = self._by_gain([j for j in chosen if j in base], [j for j in chosen if j not in base])
        prefixes = [chosen[:i] for i in range(chosen.size + 1)]
        fits = fit_subsets(problem, prefixes)
        known = self.known[best]
        if known.columns.size == chosen.size:
            order = np.argsort(chosen)
            if known.infinite or known.value < fits[-1].value * (1.0 - _BETTER):  # where the search stopped it counts
                fits[-1] = replace(known, columns=chosen, coefficients=known.coefficients[np.argsort(order)])
            last = fits[-1]
            self.known[best] = replace(last, columns=chosen[order], coefficients=last.coefficients[order])
        last, empty = fits[-1], fits[0]
        self.answer = best if run.validated.items.keeps_dependent else tuple(np.sort(chosen).tolist())
        if self.answer not in self.known:  # without columns that depend on others
            self.consider([(len(self.answer) - len(base), self.answer)])
        gains = np.array([a.value - b.value for a, b in pairwise(fits)])
        gram = run.prepared.fit(chosen, problem.lam).gram  # with a penalty they may depend on others
        contrasts = problem.loss.contrasts
        to_scores = np.ones((1, 1)) if contrasts is None else contrasts.T
        b = last.coefficients.reshape(chosen.size, problem.loss.outputs) @ to_scores
        b0 = np.atleast_1d(last.intercept) @ to_scores
        fit = Fit(last.value, last.deviance, empty.value, b, gains, gram, intercept=b0)
        return chosen, dependent, fit

    def _by_gain(self, base: list[int], others: list[int]) -> Ints:
        """Return the base, then the other columns, in order of gain: each next one lowers F most after those before."""
        if len(base) + len(others) > ORDERED_BY_FITS:
            model = self._model(self.known[self.best], conditioned=False)
            place = {int(j): i for i, j in enumerate(model.columns)}
            places = by_gain(model, [place[j] for j in base], [place[j] for j in others])
            return np.asarray(model.columns[np.concatenate(places)], np.int64)
        order: list[int] = []
        fit = self.known.get(())
        for waiting in (list(base), list(others)):
            while len(waiting) > 1:
                subsets = [np.array(sorted([*order, j]), np.int64) for j in waiting]
                starts = [None if fit is None else fit.with_column(j) for j in waiting]
                fits = fit_subsets(self.problem, subsets, starts, [len(order) + 1] * len(subsets))
                i = min(range(len(waiting)), key=lambda i: (fits[i].value, waiting[i]))
                fit = fits[i]
                order.append(waiting.pop(i))
            if waiting:
                fit = None  # of all base columns there is none
            order += waiting
        return np.array(order, np.int64)

    def fit_on(self, members: Iterable[int]) -> LossFit:
        """Return the fit on columns of the data."""
        return fit_subsets(self.problem, [np.array(sorted(members), np.int64)])[0]

    def fit_of(self, old: Selection, members: list[int]) -> LossFit:
        """Return the fit that a selection has, with its F on these data.

        members: its columns, in the order of its coefficients.
        """
        problem, contrasts = self.problem, self.problem.loss.contrasts
        to_eta = np.ones((1, 1)) if contrasts is None else contrasts
        order, scaling = np.argsort(members), problem.scaling
        S = np.array(members, np.int64)[order]
        b = old.coefficients[order] @ to_eta
        b, b0 = b * scaling.scale_x[S][:, None], old.intercept @ to_eta + scaling.center_x[S] @ b
        fit = LossFit(S, 0.0, 0.0, b[:, 0], float(b0[0])) if contrasts is None else LossFit(S, 0.0, 0.0, b, b0)
        deviance = deviances(problem, [fit])[0]
        return replace(fit, value=deviance + problem.lam * float(np.square(b).sum()), deviance=deviance)

    def on_new_rows(self, old: Selection, members: list[int]) -> dict[str, Any] | None:
        """Return the deviance and D2 of an older selection, with its coefficients, on the rows that it had not.

        members: its columns, in the order of its coefficients.
        """
        new = on_rows(self.problem, np.arange(self.problem.dataset.m) >= old.shape[0])
        value = replace(self, problem=new).fit_of(old, members).deviance
        total = fit_subsets(new, [np.empty(0, np.int64)])[0].deviance
        return {"error": value, "r2": 1.0 - value / total if total > _NO_DEVIANCE * value else None}

    @property
    def numbered_classes(self) -> dict[str, list[str]]:
        """Return the classes of a target that holds them as numbers, and has a target for each in the answer."""
        loss, dataset = self.problem.loss, self.run.dataset
        if loss.contrasts is None or dataset.n_targets == len(loss.contrasts):
            return {}
        name = "y" if dataset.flat_target and dataset.targets[0] == "y0" else str(dataset.targets[0])
        return {name: [class_name(value) for value in loss.parameters()["classes"]]}

    def figures(self) -> dict[str, float]:
        """Return further figures of the best fit on the rows, such as the concordance."""
        if self.problem.loss.by_rows:
            return {}
        rows, eta = rows_at(self.problem, self.known[self.best])
        return rows.figures(eta)

    def class_figures(self) -> ClassFigures | None:
        """Return how well the best fit tells the classes apart on the rows; None for a loss without classes."""
        problem = self.problem
        if not problem.loss.classifies:
            return None
        return ClassFigures.of(class_tables(problem, [self.known[self.best]])[0], class_names(problem))


def candidate_columns(run: SelectionRun) -> Ints:
    """Return the ascending columns that may be chosen, with those that always are."""
    return np.union1d(run.objective.columns, run.always).astype(np.int64)


def loss_data(run: SelectionRun, targets: Targets | None = None, rows: Dataset | None = None) -> LossData:
    """Return the loss of a request on its data. Reads the targets, unless they are given, and no X.

    rows: a copy of the data to read in place of them.

    Errors: DataError where the loss cannot be used for the targets.
    """
    validated, statistics = run.validated, run.prepared.statistics
    request = validated.request
    assert validated.loss is not None
    targets = targets or loss_targets(run.dataset)
    scaling = without_scale_of_targets(statistics.scaling(request.preprocess))
    centered = request.preprocess in ("standardize", "center") or not validated.loss.has_intercept
    if centered:  # a constant changes nothing where there is no intercept, and means that are large do
        scaling = replace(scaling, center_x=statistics.mean_x)
    return LossData(
        rows or run.dataset, validated.loss.fitted_to(targets.y, targets.w), scaling, targets, request.lam,
        centered,
        statistics.mean_x if request.missing == "mean" else None,
        run.context.engine,
        deviations=np.sqrt(np.maximum(statistics.squares, 0.0) / statistics.weight) / scaling.scale_x,
    )  # fmt: skip
