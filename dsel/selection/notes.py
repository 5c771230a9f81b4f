"""The notes on an answer: one function for each. A new note is a function with `@_note`, in the order of the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dsel._lib.text import counted, counted_items, noun, shorten
from dsel._lib.types import Ints
from dsel.config.size_rule import INFORMATION
from dsel.data.blocks import load_block
from dsel.data.column_groups import grouped_categories
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels
from dsel.passes.noise import CHANCE
from dsel.passes.refit import Fit
from dsel.passes.sums import Sums
from dsel.planning.validation import MOST_GROUPED
from dsel.selection.alternatives import FROM_PROOF
from dsel.selection.answer import Answer, in_data_units
from dsel.selection.context import SelectionRun
from dsel.selection.information_criteria import NAMES, unit_of_weights
from dsel.selection.perfect_fit import NEARLY_ANY, saturation
from dsel.selection.record import SelectionRecord

#: How the note on noisy sums begins.
FROM_NOISE = "made from noisy sums"
#: Largest difference, as a share of ||Y||^2, between the search's error and that recomputed from the data.
_AGREEMENT = 1e-6
#: Up to this many different whole numbers may be classes.
_MOST_CLASSES = 10
#: Words of the notes on the chosen columns, which other columns do not have.
_OF_CHOSEN = (FROM_NOISE, "as the intercept, which", NEARLY_ANY, "differs by rounding from", "on the others ")

_NOTES: list[Callable[[Answer], Iterator[str]]] = []


def notes_on(answer: Answer) -> Iterator[str]:
    """Yield the notes on an answer, in the order of the functions below."""
    for note in _NOTES:
        yield from note(answer)


def _note(function: Callable[[Answer], Iterator[str]]) -> Callable[[Answer], Iterator[str]]:
    _NOTES.append(function)
    return function


@_note
def _numbers_as_classes(answer: Answer) -> Iterator[str]:
    """Say that the numbers of a target may stand for classes."""
    dataset, takes_loss = answer.run.dataset, answer.run.validated.method.takes_loss
    classes = None if answer.by_loss else _class_count(dataset)
    if classes == 2 and takes_loss and not dataset.classes and not answer.by_criterion:
        yield f"the target has two values, and its squared error is minimized: if they are classes, {_instead(2)}"
    if classes is not None and classes > 2:
        instead = _instead(classes) if takes_loss else "give them as text or a category"
        yield f"Y has {classes} different whole numbers, and they were used as numbers: if they are classes, {instead}"


@_note
def _of_the_data(answer: Answer) -> Iterator[str]:
    yield from answer.run.dataset.notes


@_note
def _classes_as_numbers(answer: Answer) -> Iterator[str]:
    """Say which numbers the classes of a target became."""
    dataset, squared = answer.run.dataset, not (answer.by_criterion or answer.by_loss)
    for name, levels in dataset.classes.items():
        two = len(levels) == 2
        alone = dataset.n_targets == (1 if two else len(levels))
        instead = f", and {_instead(len(levels))}" if alone and answer.run.validated.method.takes_loss else ""
        numbers = f"1 stands for {levels[1]!r}, 0 for {levels[0]!r}" if two else "a column of 0 and 1 for each"
        yield (
            f"target {name!r} has {len(levels)} classes ({shorten(levels, 8)}): {numbers}"
            + f"; their squared error is minimized{instead}" * squared
        )


@_note
def _categories(answer: Answer) -> Iterator[str]:
    """Say whether the indicator columns of a category are chosen one by one, or together."""
    dataset, validated = answer.run.dataset, answer.run.validated
    if validated.request.categories != "groups":
        return
    if isinstance(dataset, Sums) and dataset.categories is None and validated.groups is None:
        yield from _alike(dataset.features.tolist())
    if validated.groups is None and grouped_categories(dataset, validated.request.exclude):
        why = validated.method.name if dataset.n < MOST_GROUPED else f"a search of {MOST_GROUPED:,} or more columns"
        yield f"{why} chooses the indicator columns of categories one by one, not as groups"
    groups, categories = validated.groups, dataset.categories
    if groups is None or categories is None or not grouped_categories(dataset, validated.request.exclude):
        return
    if groups.keep_together(categories):
        yield (
            "the indicator columns of a category are chosen together and count as one "
            '(categories="columns": one by one)'
        )


def _alike(labels: Sequence[str]) -> Iterator[str]:
    """Say that sums that know no categories, such as files of older versions, choose their columns one by one."""
    named = Counter(label.partition("=")[0] for label in labels if "=" in label)
    names = [name for name, count in named.items() if count > 1]
    if names:
        yield (
            f"columns such as {names[0]}=... are chosen one by one, as the sums do not say whether they are of one "
            "category: name them in groups, or write the sums again from a store or frame with that category"
        )


@_note
def _limit_of_size(answer: Answer) -> Iterator[str]:
    """Say that the best size is the largest that was compared, where there are more columns, or Y = X."""
    run, curve, limit = answer.run, answer.curve, answer.run.validated.request.max_k
    if curve is None or limit is None or not curve.ends_at_least(limit):
        return
    if not run.dataset.n_targets:
        yield curve.note_on_x_itself()
    elif run.validated.included + run.subject.n > limit and not _others_depend(run, _largest(answer)):
        words = "k is the limit" if curve.k == limit else "the least value is at the limit"
        yield f"{words} max_k: {limit:,}, so a larger subset may be better: raise max_k"


def _largest(answer: Answer) -> Ints:
    """Return the columns of the largest subset that was compared."""
    run = answer.run
    points = (point for point in answer.outcome.front if answer.is_asked(point))
    largest = max(points, key=lambda point: point.size)
    return np.union1d(run.always, run.objective.in_data(largest.members)).astype(np.int64)


def _candidates(run: SelectionRun) -> Ints:
    """Return the columns that may be chosen, with those that always are."""
    allowed = ~run.validated.useless(run.prepared.statistics)
    allowed[run.validated.exclude] = False
    return np.union1d(run.always, np.flatnonzero(allowed)).astype(np.int64)


def _others_depend(run: SelectionRun, S: Ints) -> bool:
    """Return whether all other candidates depend on columns S. O(n s^2)."""
    state = run.whole.subset(S.size)
    for place in np.flatnonzero(np.isin(run.whole.columns, S)):
        state.insert(int(place))
    return not np.isin(run.whole.columns[state.residual_norms() > 0.0], np.setdiff1d(_candidates(run), S)).any()


@_note
def _fewer_than_asked(answer: Answer) -> Iterator[str]:
    """Say why fewer columns than k are chosen: there are no more, or the others depend on them."""
    if answer.curve is not None:
        return
    run, S = answer.run, np.concatenate([answer.chosen, answer.kept])
    k, items = run.validated.request.limit, run.validated.items
    chosen, left = items.count(S), items.count(_candidates(run))
    if 0 < chosen < min(k, left) and not answer.by_criterion and _others_depend(run, S):
        be = "is" if chosen == 1 else "are"
        yield f"k is {k}; {counted_items(chosen, items.noun)} {be} chosen, because the other candidates depend on them"
    elif left < k:
        yield f"k is {k}, but only {counted_items(left, items.noun)} can be chosen"


@_note
def _sizes_of_groups(answer: Answer) -> Iterator[str]:
    """Say that an information criterion compares groups with different numbers of columns."""
    rule = "" if answer.curve is None else answer.curve.rule
    if rule in INFORMATION and len({len(group) for group in answer.run.subject.groups or ()}) > 1:
        yield (
            f"{NAMES[rule]} compares the subset of least error of each number of groups: groups of fewer columns "
            "may have a better value"
        )


@_note
def _weights_as_rows(answer: Answer) -> Iterator[str]:
    if answer.curve is not None and answer.weight_sum is not None:
        yield from unit_of_weights(answer.curve.rule, answer.run.dataset.counting, answer.weight_sum)


@_note
def _reduced_problem(answer: Answer) -> Iterator[str]:
    """Say what a reduced problem captures, and what that costs a bound."""
    counts, proofs = answer.outcome.counts, answer.outcome.certificates
    if "captured" not in counts:
        return
    chance = f", except with probability {counts['chance']:.0e}" if counts["chance"] else ""
    bound = f"; f is at least {proofs[-1].bound:.6g} for all subsets{chance}" if proofs else ""
    yield (
        f"the search ran on a reduced problem of rank {counts['rank']}, which captures {counts['captured']:.2%} of "
        f"||X||^2; what it leaves out lowers a bound by {counts['left_out']:.2g} of ||Y||^2{bound}; the errors of the "
        "front are those of the data"
    )
    by = "" if answer.curve is None else answer.curve.rule
    if by in INFORMATION and answer.run.validated.request.lam > 0.0:
        yield f"{by} has the degrees of freedom of the reduced problem, which are at most those of the data"


@_note
def _left_out_rows(answer: Answer) -> Iterator[str]:
    """Say how errors on left-out rows count labels and the column of ones."""
    rows = answer.run.rows
    if rows is not None and rows.recoded:
        yield "labels 0 and 1 count as -1 and +1 in the errors of the path; the coefficients are for Y as it is"
    if rows is not None and rows.intercept == "column":
        yield (
            "error and r2 are those of the chosen columns without the column of ones, compared with Y = 0; the share "
            "with it is R2 of the model that predicts, compared with the mean of Y"
        )


@_note
def _as_many_as_rows(answer: Answer) -> Iterator[str]:
    yield from saturation(answer.run, answer.chosen)


@_note
def _constant_columns(answer: Answer) -> Iterator[str]:
    yield from _as_intercept(answer.run, answer.chosen)


def _as_intercept(run: SelectionRun, chosen: Ints) -> Iterator[str]:
    """Say that a constant column acts as the intercept."""
    constant = chosen[run.prepared.statistics.constant[chosen]]
    if constant.size:
        which = counted(constant.size, "constant column acts", "constant columns act")
        without = f"preprocess {run.validated.request.preprocess} does not have"
        yield f"{which} as the intercept, which {without}: {format_labels(run.dataset.features, constant)}"


@_note
def _disagreement(answer: Answer) -> Iterator[str]:
    """Say that the errors of the search and of the data differ, with the cause."""
    fit, run = answer.fit, answer.run
    if answer.by_criterion or not abs(fit.error - answer.best.value) > _AGREEMENT * fit.total:
        return
    x, y = run.prepared.statistics.hardly_varying()
    large = [str(run.dataset.features[j]) for j in answer.chosen if x[j]] + run.dataset.targets[y].tolist()
    cause = "nearly dependent columns can do that; leave some of them out, or report the case if there are none"
    if large:
        cause = (
            f"{shorten(large)} {'is' if len(large) == 1 else 'are'} more than a million times as large as the spread; "
            "subtract a constant before"
        )
    yield (
        "the error, which is recomputed from the data, differs by rounding from the search's by more than "
        f"{_AGREEMENT:g} of {'the deviance without columns' if answer.by_loss else '||Y||^2'}: {cause}"
    )


@_note
def _from_sums(answer: Answer) -> Iterator[str]:
    """Say how private noisy sums are, or what the answer lacks if there were only sums of rows."""
    dataset = answer.run.dataset
    if isinstance(dataset, Sums):
        parts = counted(len(dataset.parts), "part")
        yield noise_note(answer.run, answer.fit, answer.chosen) or (
            f"made from the sums of {parts}: error, R2 and coefficients are not checked on rows; each part can add its "
            "share of the check (dsel check-part)"
        )


@_note
def _row_part(answer: Answer) -> Iterator[str]:
    part = answer.run.dataset.row_part
    if part is not None:
        yield f"{part.description}: they take no part in the selection and in the fit"


@_note
def _infinite_criterion(answer: Answer) -> Iterator[str]:
    """Say that no subset has a finite criterion, and which methods try smaller subsets if this one does not."""
    if not answer.by_criterion or np.isfinite(answer.best.value):
        return
    validated, note = answer.run.validated, "the criterion is +inf for every subset that was evaluated"
    one_by_one = validated.method.every_size and not hasattr(validated.options, "iterations")  # not a Pareto search
    if one_by_one or getattr(validated.options, "start", "random") == "forward":
        larger = validated.request.limit > validated.included + 1
        why = "adds one column at a time. Larger subsets may be allowed: poss and exchange from random subsets try some"
        yield f"{note}: {validated.method.name} {why}" if larger else note
        return
    if validated.method.every_size or answer.curve is not None:
        yield note
        return
    size = counted_items(validated.request.limit, validated.items.noun)
    others = "others may be allowed. Forward and poss also try smaller ones, and another seed tries other ones"
    yield f"{note}: {validated.method.name} tries some subsets of exactly {size}, and {others}"


@_note
def _nothing_chosen(answer: Answer) -> Iterator[str]:
    if not answer.chosen.size and not answer.dependent.size:
        what = "criterion" if answer.by_criterion else "error"
        why = f"no subset that was evaluated has a smaller {what} than the empty one"
        yield f"no column is chosen: {why if answer.curve is None else f'0 is {answer.curve.description}'}"


@_note
def _dependent_columns(answer: Answer) -> Iterator[str]:
    yield from _on_others(answer.run, answer.dependent, answer.kept)


def _on_others(run: SelectionRun, dependent: Ints, kept: Ints) -> Iterator[str]:
    """Say which columns depend on others, and whether they have coefficient 0 or were left out."""
    count = dependent.size
    if count:
        which = counted(count, "column that depends", "columns that depend")
        what = noun(count, "has", "have") + " coefficient 0"
        if not kept.size:
            what = noun(count, "was", "were") + " left out"
        yield f"{which} on the others {what}: {format_labels(run.dataset.features, dependent)}"


def notes_of_proof(
    selection: SelectionRecord, run: SelectionRun, fit: Fit, chosen: Ints, dependent: Ints, kept: Ints
) -> list[str]:
    """Return the notes of a selection whose columns a proof replaced by better ones, and one that says so.

    fit, chosen, dependent, kept: of the new columns, as an `Answer` has them.
    """
    first = next((note for note in selection.notes if note.startswith(FROM_PROOF)), "")
    now, before = (f"{1.0 - error / fit.total:.4%}" for error in (fit.error, selection.error))
    before = first.partition(", those of ")[2] or f"{selection.method} {before}{selection.less_penalty}"
    about = (*_OF_CHOSEN, FROM_PROOF)
    return [
        *(note for note in selection.notes if not any(words in note for words in about)),
        *filter(None, [noise_note(run, fit, chosen)]), *_as_intercept(run, chosen), *saturation(run, chosen),
        *_on_others(run, dependent, kept), f"{FROM_PROOF}: they explain {now}, those of {before}",
    ]  # fmt: skip


def noise_note(run: SelectionRun, fit: Fit, chosen: Ints) -> str:
    """Return how private noisy sums are, and what their noise may be worth in the residuals; "" without noise."""
    dataset = run.dataset
    if not isinstance(dataset, Sums) or (noise := dataset.noise) is None:
        return ""
    statistics, preprocess = run.prepared.statistics, run.validated.request.preprocess
    b, b0 = in_data_units(statistics, preprocess, chosen, fit)
    more = noise.more(dataset.moments, preprocess, chosen, b, b0)
    return (
        f"{FROM_NOISE} (epsilon {noise.epsilon:g} and delta {noise.delta:g} for each row): error, R2, bounds "
        "and the number of rows are those of the noisy sums; with probability "
        f"1 - {CHANCE:g}, these coefficients leave at most {max(fit.rss, 0.0) / fit.total + more:.4g} of the noisy "
        "||Y||^2 on the rows, scaled down to their stated norm"
    )


def _instead(classes: int) -> str:
    """Return which loss fits classes; it follows a note on them."""
    return f'loss="{"logistic" if classes == 2 else "multinomial"}" fits their probabilities'


def _class_count(dataset: Dataset) -> int | None:
    """Return how many classes a single target in memory may hold; None if it does not look like classes."""
    if not dataset.in_memory or dataset.n_targets != 1 or dataset.m <= 2 * _MOST_CLASSES:
        return None
    found = np.empty(0)
    for block in dataset.blocks:
        values = np.asarray(load_block(block.y, dataset.target_columns), np.float64)
        found = np.union1d(found, values)
        if found.size > _MOST_CLASSES or not (found == np.round(found)).all():
            return None
    return int(found.size) if found.size > 1 else None
