"""The columns that may be chosen, and the order in which chosen columns are listed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import counted, noun, shorten
from dsel._lib.types import Ints
from dsel.config.size_rule import INFORMATION, is_share
from dsel.data.blocks import missing_values
from dsel.data.column_groups import divided_groups
from dsel.data.dataset import Dataset
from dsel.data.formats.source import EXACT_INTEGERS
from dsel.data.formats.tables.scan import rounding_note
from dsel.data.labels import Labels, by_source, format_labels, of_means
from dsel.data.schema import ATTR_FORMAT
from dsel.data.store.reader import Store
from dsel.errors import DataError, OptionError
from dsel.objective.column_objective import independent_columns
from dsel.objective.groups import GroupedObjective
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.passes.columns.column_statistics import ColumnStatistics
from dsel.passes.statistics import MOST_DUPLICATES, ColumnScales, duplicates
from dsel.planning.representations.representation import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.selection.context import RunContext, SelectionRun

#: The square of a smaller ||X||^2 has lost digits, since float64 ends at 2e-308.
_SMALLEST = 1e-140
#: Where Y = X, the least square of a column, as a share of the largest one.
_LEAST_RATIO = 1e-200


def candidates_of(
    dataset: Dataset, validated: ValidatedRequest, statistics: ColumnScales, whole: Objective,
    asked: Ints | None = None, distances: Mapping[tuple[int, int], float] | None = None,
) -> tuple[Objective, tuple[str, ...]]:  # fmt: skip
    """Return the objective over the columns that may be chosen, given the included ones, and notes for the user.

    whole: the objective over all columns. asked: the columns that the user excludes, where others are, too. distances:
    how far columns are from multiples of others, which tells multiples where there is no Gram matrix.
    Errors: OptionError where no column is left, or an included one is constant; DataError where the targets are out of
    range.
    """
    request, labels = validated.request, dataset.features
    require_variation(whole.total, squared=not dataset.n_targets)
    _require_range(dataset, validated, statistics)
    unusable = validated.useless(statistics)
    lost, include, dropped = _included(validated, unusable, whole)
    if lost.size:
        raise OptionError(f"Included columns are constant: {format_labels(labels, lost)}.", "Leave them out.")
    notes = _notes_on_columns(dataset, validated, statistics, validated.exclude if asked is None else asked)
    allowed = ~unusable
    allowed[validated.exclude] = False
    allowed[dropped] = False
    used = np.union1d(include, np.flatnonzero(allowed))  # the others are excluded, or represented by one of these
    pairs = [] if request.lam else _multiples(whole, used, distances or {})
    pairs = [pair for pair in pairs if validated.items.count(pair) > 1]  # a group is chosen as a whole
    equal = {pair for pair in pairs if _same_sign(whole, statistics, *pair) and statistics.equally_spread(*pair)}
    notes += _on_copies(validated, used, pairs, equal)
    keep = np.flatnonzero(allowed)
    if not keep.size:
        why = "".join(f" {note[0].upper()}{note[1:]}." for note in dict.fromkeys((*notes, *dataset.notes)))
        raise OptionError(f"No column is left to choose from: all are constant or excluded.{why}")
    if whole.has_gram and whole.cross is None and include.size:  # M follows from a whole K, without subtraction
        others = np.setdiff1d(np.arange(whole.n), include)
        chosen_from = np.searchsorted(others, np.setdiff1d(keep, include))
        return _conditioned(whole, include, include, labels).restrict(chosen_from), tuple(notes)
    objective = whole if not whole.has_gram and keep.size == whole.n else whole.restrict(keep)
    return _conditioned(objective, np.searchsorted(keep, include), include, labels), tuple(notes)


def run_over(validated: ValidatedRequest, context: RunContext, prepared: Prepared) -> SelectionRun:
    """Return a run over the columns that may be chosen. Errors: see `candidates_of`."""
    whole = prepared.objective(validated.request.lam)
    objective, _ = candidates_of(validated.dataset, validated, prepared.statistics, whole)
    return SelectionRun(validated.dataset, validated, context, prepared, whole, objective)


def _conditioned(objective: Objective, places: Ints, include: Ints, labels: Labels) -> Objective:
    """Return the objective given the included columns. Errors: OptionError that names them where they are dependent."""
    try:
        return objective.condition(places.tolist())
    except OptionError as error:
        named, kept = format_labels(labels, include), set(objective.without_dependent(places.tolist()))
        repeat = [j for place, j in zip(places.tolist(), include.tolist(), strict=True) if place not in kept]
        raise OptionError(
            f"The included columns depend on each other: {named}.",
            f"Include the others without {format_labels(labels, repeat)}, one by one: they explain as much.",
        ) from error


def _multiples(whole: Objective, used: Ints, distances: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Return pairs of candidates that are multiples to 1e-6 of their norm."""
    if whole.has_gram:
        return duplicates(whole.K, used)
    near = [pair for pair, apart in distances.items() if apart**2 <= 2e-12 and np.isin(pair, used).all()]
    return sorted(near)[:MOST_DUPLICATES]


def _same_sign(whole: Objective, statistics: ColumnScales, i: int, j: int) -> bool:
    """Return whether two multiples have a positive correlation."""
    if isinstance(statistics, ColumnStatistics) and not whole.has_gram:
        return bool(statistics.sums[i] @ statistics.sums[j] > 0.0)
    return bool(whole.K[i, j] > 0.0)


def _on_copies(
    validated: ValidatedRequest, used: Ints, pairs: Sequence[tuple[int, int]], equal: Container[tuple[int, int]]
) -> Iterator[str]:
    """Yield notes on pairs of columns of different groups that are multiples of each other.

    used: the candidates. equal: the pairs of equal columns. A criterion may prefer one of them, or choose several.
    """
    groups, labels, by_criterion = validated.groups, validated.dataset.features, validated.criterion is not None
    more = " (and more)" if len(pairs) == MOST_DUPLICATES else ""

    def named(sets: Sequence[Sequence[int]], names: Sequence[object]) -> str:
        return "; ".join(" and ".join(str(names[j]) for j in members) for members in sets) + more

    most = ", of which at most one is chosen; a proof is optimal-except-near-copies if subsets with two may be better"
    most = "" if by_criterion else most
    sets = _sets(pairs)
    if groups is not None:
        sizes, most = np.bincount(groups.of_column[used], minlength=groups.size), " in different groups"
        copied: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for pair in pairs:
            copied[tuple(sorted(groups.of(pair)))].update(pair)
        same = [both for both, columns in sorted(copied.items()) if len(columns) == sizes[list(both)].sum()]
        same = [] if by_criterion else same
        if same:
            which = named(_sets(same), groups.names)
            yield f"columns or groups that explain the same, so that it does not matter which is chosen: {which}"
        sets = [columns for columns in sets if not set(combinations(sorted(groups.of(columns)), 2)) <= set(same)]
    same_values = [columns for columns in sets if all(pair in equal for pair in combinations(sorted(columns), 2))]
    for what, some in (
        ("equal", same_values), ("multiples of each other", [one for one in sets if one not in same_values])
    ):  # fmt: skip
        if some:
            yield f"columns that are {what} to 1e-6 of their norm{most}: {named(some, labels.tolist())}"


def _sets(pairs: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return sets of columns of which all pairs are given."""
    sets: dict[int, list[int]] = {}
    for i, j in pairs:
        if not any(i in columns[1:] for columns in sets.values()):
            sets.setdefault(i, [i]).append(j)
    return list(sets.values())


def _included(validated: ValidatedRequest, unusable: NDArray[np.bool_], whole: Objective) -> tuple[Ints, Ints, Ints]:
    """Return which included columns are lost, those to condition on, and those that depend on them.

    Of a group of columns only all can be lost, and dependent ones are dropped. Without groups they are an error later.
    """
    include, groups = validated.include, validated.groups
    none = np.empty(0, np.int64)
    if groups is None:
        return include[unusable[include]], include, none
    usable = include[~unusable[include]]
    gone = [group for group in groups.of(include) if group not in groups.of(usable)]
    order, dependent = by_gain(whole, usable.tolist(), []) if usable.size else (none, none)
    return groups.columns(gone), np.sort(order), dependent


def _notes_on_columns(
    dataset: Dataset, validated: ValidatedRequest, statistics: ColumnScales, exclude: Ints
) -> list[str]:
    """Return notes on columns that explain nothing and are not excluded, and on values that nobody wrote."""
    is_asked = np.ones(dataset.n, bool)
    is_asked[exclude] = False
    labels, notes = dataset.features, [*_on_rounded(dataset, statistics, is_asked)]
    divided = divided_groups(dataset, validated.items, validated.request.exclude)
    if divided:
        groups, are, them = ("group", "is", "it") if len(divided) == 1 else ("groups", "are", "them")
        notes.append(f"the {groups} {shorten(divided)} {are} never chosen: exclude names columns of {them}")
    unusable = validated.useless(statistics) & is_asked
    nearly = unusable & (statistics.squares > 0.0)
    filled = validated.request.missing == "mean"
    empty = unusable & ~nearly & filled & (statistics.mean_x == 0.0)
    constant = "constant column is", "constant columns are"
    there = "" if dataset.counting == dataset.m else " in the rows that have a weight"
    if there:
        constant = f"column is constant{there}, and", f"columns are constant{there}, and"
    for which, one, several in (
        (unusable & ~nearly & ~empty, *constant),
        (nearly, "column is constant up to rounding and", "columns are constant up to rounding and"),
    ):
        if which.any():
            named = format_labels(labels, np.flatnonzero(which))
            notes.append(f"{counted(int(which.sum()), one, several)} never chosen: {named}")
    if empty.any():  # the statistics do not tell the two apart
        have = counted(int(empty.sum()), "column that is never chosen has", "columns that are never chosen have")
        named = format_labels(labels, np.flatnonzero(empty))
        notes.append(f"{have} no value at all, or only zeros{there and ','}{there}: {named}")
    of_fit = "" if validated.criterion is None else "; that holds for R2 and coefficients: a criterion gets NaN"
    on_means = list(_on_means(dataset, unusable | ~is_asked)) if filled else []
    rule = validated.size_rule
    if on_means and rule is not None and rule.by not in (*INFORMATION, "path") and _is_part(rule.held_out):
        on_means.append("the means are those of all rows, so the left-out rows that choose k count in them")
    return [*notes, *(f"{note}{of_fit}" for note in on_means)]


def _is_part(held_out: Any) -> bool:
    """Return whether the rows that are left out are some of the data's own."""
    return held_out is None or is_share(held_out)


def _on_means(dataset: Dataset, useless: NDArray[np.bool_]) -> Iterator[str]:
    """Yield notes on missing values that the means of their columns replace. useless: columns that do not count."""
    counts = missing_values(dataset.blocks, dataset.n)
    if counts is not None:
        counts[useless] = 0
        yield from of_means(by_source(counts, dataset.features, dataset.categories), dataset.m, dataset.features)
    elif dataset.store is None or ATTR_FORMAT not in dataset.store.attributes:
        yield (
            "missing values of X, if there are any, became the mean of their column: they are counted only in data in "
            "memory and by an ingest"
        )
    if had := dataset.missing_when_written():
        yield f"the mean of its column replaced each missing value; X had {had} when the store was written"
    if isinstance(dataset.store, Store):
        absent, chunks = dataset.store.unwritten_chunks()
        if absent:
            yield (
                f"{absent} of {chunks} chunks of X {noun(absent, 'does', 'do')} not exist in {dataset.name}: their "
                "values count as missing, and became the means of their columns; if they are lost, restore them and "
                "run again"
            )


def _on_rounded(dataset: Dataset, statistics: ColumnScales, is_asked: NDArray[np.bool_]) -> Iterator[str]:
    """Yield notes on columns and targets of integers so large that float64 does not hold all of their size."""
    x = ("column", dataset.features, statistics.mean_x, statistics.squares, is_asked)
    y = ("target", dataset.targets, statistics.mean_y, statistics.yy, np.ones(len(dataset.targets), bool))
    for is_long, (word, labels, mean, squares, is_used) in zip(dataset.long_integers, (x, y), strict=True):
        with np.errstate(over="ignore"):
            size = np.sqrt(mean**2 + squares / statistics.weight)
        yield from rounding_note(labels[is_long & is_used & (size > EXACT_INTEGERS)].tolist(), word)


def require_variation(total: float, *, squared: bool = False) -> None:
    """Raise DataError unless ||Y||^2 is positive and finite, and so is its square where it is needed (Y = X)."""
    if not 0.0 < total < math.inf:
        raise DataError(
            f"||Y||^2 is {total}: the squares of the targets are out of float64's range.", "Rescale Y (X where Y = X)."
        )
    if squared and not _SMALLEST < total < 1.0 / _SMALLEST:
        raise DataError(
            f"||X||^2 is {total:.3g}: its square, which Y = X needs, is out of float64's range.",
            "Rescale X, or use preprocess: standardize.",
        )


def _require_range(dataset: Dataset, validated: ValidatedRequest, statistics: ColumnScales) -> None:
    """Raise DataError for columns that are divided by a power of two if there is a penalty, which is in their units."""
    beyond = np.flatnonzero(statistics.beyond_range(validated.request.preprocess))
    if beyond.size and dataset.n_targets and validated.request.lam > 0.0:
        raise DataError(
            f"{beyond.size} columns are too large or too small for a penalty: "
            f"{format_labels(dataset.features, beyond)} (a norm below 1e-60 or above 1e60, or products with Y out of "
            "float64's range).",
            "Use preprocess: standardize or unit, store them in other units, or set lam: 0.",
        )
    if dataset.n_targets:
        return
    squares = statistics.preprocessed_squares(validated.request.preprocess)
    lost = np.flatnonzero((squares < _LEAST_RATIO * squares.max()) & ~statistics.unusable(validated.request.preprocess))
    if lost.size:
        raise DataError(
            f"{lost.size} columns are smaller than the largest one by more than 1e100, and their products are out of "
            f"float64's range: {format_labels(dataset.features, lost)}.",
            "Use preprocess: standardize or unit, or exclude them.",
        )


def answer_of(run: SelectionRun, members: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the included columns and some chosen ones in their order, and apart those that depend on others."""
    validated, objective, whole = run.validated, run.objective, run.whole
    chosen = [j for j in members if j not in validated.include]
    if validated.groups is None:
        return by_gain(whole, objective.included, chosen)
    # The same columns count as dependent as in the search, so that the error is the same.
    place = {int(j): i for i, j in enumerate(objective.columns)}
    kept = objective.columns[independent_columns(objective, [place[j] for j in chosen])]
    groups = validated.groups.local(kept)
    part = GroupedObjective(objective.restrict([place[int(j)] for j in kept]), groups)
    by_groups, _ = _in_order(part, range(part.n))
    order = np.concatenate([*by_gain(whole, objective.included, []), *(kept[groups[g]] for g in by_groups)])
    return order, np.array([j for j in sorted([*run.always, *chosen]) if j not in order], np.int64)


def by_gain(whole: Objective, included: Sequence[int], chosen: Sequence[int]) -> tuple[Ints, Ints]:
    """Return the included, then the other columns, in order of gain; and apart the columns that depend on others.

    Each next column has the largest gain after those before it. rfe or a criterion may choose dependent columns.
    """
    order, dependent = _in_order(whole.restrict(list(included)), included) if included else ([], [])
    if chosen:  # the included columns count as given, as in the search, when the others are judged
        few = whole.restrict([*order, *chosen])
        rest = _in_order(few.condition(range(len(order))) if order else few, chosen)
        order, dependent = [*order, *rest[0]], [*dependent, *rest[1]]
    return np.asarray(order, np.int64), np.asarray(sorted(dependent), np.int64)


def _in_order(objective: ItemObjective, members: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the members, which are all items of the objective, in order of gain; and apart the dependent ones."""
    solution = objective.subset(len(members))
    order: list[int] = []
    dependent: list[int] = []
    waiting = set(range(len(members)))
    while waiting:
        gains = solution.gains()
        j = max(waiting, key=lambda j: (gains[j], -members[j]))
        (order if solution.insert(j) else dependent).append(members[j])
        waiting.discard(j)
    return order, dependent
