"""From what a search found to a Selection."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dsel._lib.positive_definite import inverse
from dsel._lib.text import counted, counted_items, shorten
from dsel._lib.types import Floats, Ints
from dsel._lib.versions import versions
from dsel.config.import_path import import_path
from dsel.config.request import Preprocess, SelectionRequest
from dsel.config.size_rule import INFORMATION
from dsel.data.blocks import load_block
from dsel.data.column_groups import grouped_categories
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels
from dsel.data.offset import IN_MEMORY, with_name
from dsel.data.schema import ATTR_OPTIONS
from dsel.objective.objective_interface import Objective
from dsel.passes.noise import CHANCE
from dsel.passes.refit import Fit
from dsel.passes.statistics import ColumnScales, Scaling
from dsel.passes.sums import Sums
from dsel.planning.validation import MOST_GROUPED
from dsel.search.cross_validation.rounds import subset_fit
from dsel.search.exact.alternatives import swap_values
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.selection.alternatives import Substitute
from dsel.selection.class_figures import ClassFigures
from dsel.selection.context import SelectionRun
from dsel.selection.information_criteria import NAMES, unit_of_weights
from dsel.selection.perfect_fit import saturation
from dsel.selection.record_values import ChosenStatistics, FrontRow, PathRow, SizeCurve, TraceRow
from dsel.selection.represented import left_out
from dsel.selection.result import Selection
from dsel.selection.run_method import Errors, rank_error, threads_for
from dsel.storage.paths import AnyPath

#: How the note on noisy sums begins.
FROM_NOISE = "made from noisy sums"
#: Largest difference, as a share of ||Y||^2, between the search's error and that recomputed from the data.
_AGREEMENT = 1e-6
#: The number of excluded columns that the result names.
_EXCLUDED_LABELS = 100

#: Substitutes of a column, and the largest number of columns and of elementary steps for which they are looked up.
_SUBSTITUTES, _MOST_SUBSTITUTED, _MOST_STEPS = 5, 100, 1e8

#: Up to this many different whole numbers may be classes.
MOST_CLASSES = 10


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
    def kept(self) -> Ints:
        """Return the dependent columns that the answer has: all if it is what was chosen, to the last column."""
        return self.dependent if self.by_criterion or self.run.validated.items.keeps_dependent else self.dependent[:0]


def answer_fields(run: SelectionRun, fit: Fit, chosen: Ints, dependent: Ints) -> dict[str, Any]:
    """Return the fields of a Selection that follow from its columns and their fit.

    dependent: columns that depend on those chosen, and are in the answer with coefficient 0.
    """
    dataset, statistics = run.dataset, run.prepared.statistics
    request, items = run.validated.request, run.validated.items
    coefficients, intercept = _in_data_units(statistics, request.preprocess, chosen, fit)
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
        },
        notes=tuple(dict.fromkeys((*notes, *outcome.notes, *_notes(answer)))),
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


def _limit_of_size(run: SelectionRun, curve: SizeCurve) -> Iterator[str]:
    """Yield a note where the best size is the largest that was compared, and there are more columns, or Y = X."""
    limit = run.validated.request.max_k
    if limit is None or not curve.ends_at_least(limit):
        return
    if not run.dataset.n_targets:
        yield curve.note_on_x_itself()
    elif run.validated.included + run.subject.n > limit:
        words = "k is the limit" if curve.k == limit else "the least value is at the limit"
        yield f"{words} max_k: {limit:,}, so a larger subset may be better: raise max_k"


def _sizes_of_groups(run: SelectionRun, curve: SizeCurve) -> Iterator[str]:
    """Yield a note where an information criterion compares groups with different numbers of columns."""
    if curve.rule in INFORMATION and len({len(group) for group in run.subject.groups or ()}) > 1:
        yield (
            f"{NAMES[curve.rule]} compares the subset of least error of each number of groups: groups of fewer columns "
            "may have a better value"
        )


def _notes(answer: Answer) -> Iterator[str]:
    """Yield notes on the answer."""
    dataset, rows, fit, dependent = answer.run.dataset, answer.run.rows, answer.fit, answer.dependent
    counts = answer.outcome.counts
    classes = None if answer.run.validated.loss is not None else _class_count(dataset)
    takes_loss = answer.run.validated.method.takes_loss
    if classes == 2 and takes_loss and not dataset.classes and not answer.by_criterion:
        yield f"the target has two values, and its squared error is minimized: if they are classes, {_instead(2)}"
    if classes is not None and classes > 2:
        yield (
            f"Y has {classes} different whole numbers, and they were used as numbers: if they are classes, "
            f"{_instead(classes) if takes_loss else 'give them as text or a category'}"
        )
    yield from dataset.notes
    for name, levels in dataset.classes.items():
        squared = not answer.by_criterion and answer.run.validated.loss is None
        alone = dataset.n_targets == (1 if len(levels) == 2 else len(levels))
        instead = f", and {_instead(len(levels))}" if alone and takes_loss else ""
        yield _on_classes(name, levels) + (f"; their squared error is minimized{instead}" if squared else "")
    validated = answer.run.validated
    request, by_name = validated.request, grouped_categories(dataset, validated.request.exclude)
    if by_name and request.categories == "groups" and validated.groups is None:
        why = validated.method.name if dataset.n < MOST_GROUPED else f"a search of {MOST_GROUPED:,} or more columns"
        yield f"{why} chooses the indicator columns of categories one by one, not as groups"
    groups, categories = validated.groups, dataset.categories
    kept = groups is not None and categories is not None and groups.keep_together(categories)
    if kept and validated.request.categories == "groups":
        yield (
            "the indicator columns of a category are chosen together and count as one "
            '(categories="columns": one by one)'
        )
    if answer.curve is not None:
        yield from _limit_of_size(answer.run, answer.curve)
        yield from _sizes_of_groups(answer.run, answer.curve)
    if answer.curve is not None and answer.weight_sum is not None:
        yield from unit_of_weights(answer.curve.rule, dataset.m, answer.weight_sum)
    if "captured" in counts:
        yield _reduction(answer.outcome)
    if rows is not None and rows.recoded:
        yield "labels 0 and 1 count as -1 and +1 in the errors of the path; the coefficients are for Y as it is"
    if rows is not None and rows.intercept == "column":
        yield (
            "error and r2 are those of the chosen columns without the column of ones, compared with Y = 0; the share "
            "with it is R2 of the model that predicts, compared with the mean of Y"
        )
    crowded = saturation(answer.run, int(answer.chosen.size))
    if crowded is not None:
        yield crowded
    constant = answer.chosen[answer.run.prepared.statistics.constant[answer.chosen]]
    if constant.size:
        which = counted(constant.size, "constant column acts", "constant columns act")
        without = f"preprocess {validated.request.preprocess} does not have"
        yield f"{which} as the intercept, which {without}: {format_labels(dataset.features, constant)}"
    if not answer.by_criterion and abs(fit.error - answer.best.value) > _AGREEMENT * fit.total:
        yield _disagreement(answer)
    if isinstance(dataset, Sums):
        yield noise_note(answer.run, fit, answer.chosen) or _not_on_rows(len(dataset.parts))
    if dataset.row_part is not None:
        yield f"{dataset.row_part.description}: they take no part in the selection and in the fit"
    if answer.by_criterion and not np.isfinite(answer.best.value):
        yield "the criterion is +inf for every subset that was evaluated" + _only_largest(answer)
    if not answer.chosen.size and not dependent.size:
        why = "no subset that was evaluated has a smaller error than the empty one"
        yield f"no column is chosen: {why if answer.curve is None else f'0 is {answer.curve.description}'}"
    if dependent.size:
        one = dependent.size == 1
        what = ("has" if one else "have") + " coefficient 0"
        if not answer.kept.size:
            what = "was left out" if one else "were left out"
        which = counted(dependent.size, "column that depends", "columns that depend")
        yield f"{which} on the others {what}: {format_labels(dataset.features, dependent)}"


def _only_largest(answer: Answer) -> str:
    """Return that a method tries subsets of the size asked for alone; empty for one that tries smaller ones, too."""
    validated = answer.run.validated
    from_smaller = getattr(validated.options, "start", "random") == "forward"
    if validated.method.every_size or from_smaller or answer.curve is not None:
        return ""
    size = counted_items(validated.request.limit, validated.items.noun)
    return f": {validated.method.name} tries subsets of exactly {size}, and forward and poss also try smaller ones"


def _with_ones(answer: Answer) -> dict[str, float]:
    """Return R2 of the model with its column of ones, if it has one."""
    rows, lam = answer.run.rows, answer.run.validated.request.lam
    if rows is None or rows.intercept != "column":
        return {}
    return {"r2_with_ones": rows.r2_with_ones(subset_fit(rows.problem(lam), answer.chosen.tolist()))}


def _instead(classes: int) -> str:
    """Return which loss fits classes; it follows a note on them."""
    return f'loss="{"logistic" if classes == 2 else "multinomial"}" fits their probabilities'


def _on_classes(name: str, levels: Sequence[str]) -> str:
    """Return the numbers that the classes of a target became."""
    numbers = f"1 stands for {levels[1]!r}, 0 for {levels[0]!r}" if len(levels) == 2 else "a column of 0 and 1 for each"
    return f"target {name!r} has {len(levels)} classes ({shorten(levels, 8)}): {numbers}"


def _counts_of_sums(dataset: Dataset, preprocess: Preprocess) -> dict[str, Any]:
    """Return what is known of the parts of sums and of their noise, with the share by which f may be lower."""
    if not isinstance(dataset, Sums):
        return {}
    noise = dataset.noise
    found: dict[str, Any] = {"parts": list(dataset.parts)}
    if noise is not None:
        found["noise"] = {
            "epsilon": noise.epsilon, "delta": noise.delta, "sigma": noise.sigma, "norm": noise.norm,
            "share": noise.less(dataset.moments, preprocess),
        }  # fmt: skip
    return found


def noise_note(run: SelectionRun, fit: Fit, chosen: Ints) -> str:
    """Return how private noisy sums are, and what their noise may be worth in the residuals; "" without noise."""
    dataset = run.dataset
    if not isinstance(dataset, Sums) or (noise := dataset.noise) is None:
        return ""
    statistics, preprocess = run.prepared.statistics, run.validated.request.preprocess
    b, b0 = _in_data_units(statistics, preprocess, chosen, fit)
    more = noise.more(dataset.moments, preprocess, chosen, b, b0)
    return (
        f"{FROM_NOISE} (epsilon {noise.epsilon:g} and delta {noise.delta:g} for each row): error, R2, bounds "
        "and the number of rows are those of the noisy sums; with probability "
        f"1 - {CHANCE:g}, these coefficients leave at most {max(fit.rss, 0.0) / fit.total + more:.4g} of the noisy "
        "||Y||^2 on the rows, scaled down to their stated norm"
    )


def _not_on_rows(parts: int) -> str:
    """Return what the answer lacks if there were only sums of rows."""
    of = "1 part" if parts == 1 else f"{parts} parts"
    return (
        f"made from the sums of {of}: error, R2 and coefficients are not checked on rows; each part can add its share "
        "of the check (dsel check-part)"
    )


def _reduction(outcome: SearchOutcome) -> str:
    """Return what a reduced problem captures, and what that costs a bound."""
    counts, proofs = outcome.counts, outcome.certificates
    chance = f", except with probability {counts['chance']:.0e}" if counts["chance"] else ""
    bound = f"; f is at least {proofs[-1].bound:.6g} for all subsets{chance}" if proofs else ""
    return (
        f"the search ran on a reduced problem of rank {counts['rank']}, which captures {counts['captured']:.2%} of "
        f"||X||^2; what it leaves out lowers a bound by {counts['left_out']:.2g} of ||Y||^2{bound}; the errors of the "
        "front are those of the data"
    )


def _front_row(answer: Answer, point: FrontPoint, value: float | None) -> FrontRow:
    """Return a row of a front. value: of the criterion, if that was minimized."""
    run, objective, whole = answer.run, answer.run.objective, answer.run.whole
    f, rank = objective.value_and_rank(point.members)
    rank += len(objective.included)
    size = run.validated.included + point.size
    criterion = value if answer.by_criterion and value is not None and np.isfinite(value) else None
    members = objective.in_data(point.members)
    if run.validated.items.keeps_dependent:  # included columns that depend on others
        unusable = run.validated.useless(run.prepared.statistics)
        members = [*members, *(j for j in run.base if not unusable[j] and j not in objective.included)]
    recomputed = answer.errors.get(tuple(sorted(members)))
    if recomputed is not None:
        total = whole.total if run.validated.loss is None else answer.fit.total
        return run.row(size, recomputed[0], 1.0 - recomputed[1] / total, members, criterion=criterion, rank=rank)
    return run.row(size, f, explained_share(whole, members, f), members, criterion=criterion, rank=rank)


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
    return 1.0 - max(f - penalty, 0.0) / whole.total


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
            "include": tuple(run.base),
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


def _in_data_units(statistics: ColumnScales, preprocess: Preprocess, S: Ints, fit: Fit) -> tuple[Floats, Floats]:
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


def _disagreement(answer: Answer) -> str:
    """Return a note on the errors of the search and of the data, which differ, with the cause."""
    run, x, y = answer.run, *answer.run.prepared.statistics.hardly_varying()
    whole = "||Y||^2" if run.validated.loss is None else "the deviance without columns"
    large = [str(run.dataset.features[j]) for j in answer.chosen if x[j]] + run.dataset.targets[y].tolist()
    cause = "nearly dependent columns can do that; leave some of them out, or report the case if there are none"
    if large:
        cause = (
            f"{shorten(large)} {'is' if len(large) == 1 else 'are'} more than a million times as large as the spread; "
            "subtract a constant before"
        )
    return (
        "the error, which is recomputed from the data, differs by rounding from the search's by more than "
        f"{_AGREEMENT:g} of {whole}: {cause}"
    )


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
    if len(S) > _MOST_SUBSTITUTED or objective.n * len(S) ** 2 > _MOST_STEPS:
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
    return int(found.size) if found.size > 1 else None
