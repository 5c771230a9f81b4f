"""Where a fit is perfect up to rounding: the search stops there, and the result says so.

Beyond that point, columns are chosen by rounding errors. As many columns as rows fit any Y.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dsel._lib.text import counted, counted_items
from dsel._lib.types import Ints
from dsel.data.labels import format_labels
from dsel.search.exact.certificate import up_to
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.selection.context import SelectionRun
from dsel.selection.run_method import forward_reference
from dsel.selection.search_sizes import residual_and_freedom

#: What a perfect fit leaves, as a share of ||Y||^2. Smaller errors are rounding errors of the Gram matrix.
PERFECT = 1e-12
#: From this share of the rows on, R2 says little about new rows.
_SATURATED = 0.8
#: Words of the note on it.
NEARLY_ANY = "nearly whatever Y is"


def stopped_at_perfect_fit(run: SelectionRun, outcome: SearchOutcome, exact: bool) -> SearchOutcome:
    """Return the outcome without subsets larger than the first one that fits perfectly, with a note on it.

    exact: whether the objective holds the errors of the data. Then one of many equally perfect subsets is taken that
    does not depend on rounding: a single column, or that of forward selection if it is not larger.
    """
    if run.validated.criterion is not None or outcome.chosen is not None or run.validated.request.lam > 0.0:
        return outcome
    point = next((p for p in outcome.front if p.size <= run.most and _is_perfect(run, p)), None)
    if point is None or not (point.members or run.validated.included):
        return outcome
    if point.members and exact and run.objective.has_gram and run.subject.groups is None:
        point = _single(run) or _settled(run, outcome.front, _without_redundant(run, point))
    front = (*(smaller for smaller in outcome.front if smaller.size < point.size), point)
    size, indices = run.validated.included + point.size, run.objective.in_data(point.members)
    kept = up_to(outcome.certificates, size, max(point.value, 0.0), indices)
    return replace(outcome, front=front, certificates=kept, notes=(*outcome.notes, _note(run, point)))


def perfect_only(run: SelectionRun, front: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Return a front up to its first perfect fit."""
    places = [i for i, point in enumerate(front) if run.validated.request.lam == 0.0 and _is_perfect(run, point)]
    return tuple(front[: places[0] + 1]) if places else tuple(front)


def saturation(run: SelectionRun, chosen: Ints) -> Iterator[str]:
    """Yield a note if the columns, as far as a ridge penalty leaves them free, are nearly as many as the rows."""
    size, lam = int(chosen.size), run.validated.request.lam
    if lam and run.validated.loss is not None:
        return
    rows = run.dataset.counting - (run.validated.request.preprocess in ("standardize", "center"))
    if size < _SATURATED * rows or run.whole.n < 2 or not run.dataset.n_targets:
        return
    if not lam or residual_and_freedom(run.whole, chosen.tolist())[1] >= _SATURATED * rows:
        fit = f"{counted(size, 'column')} {'fits' if size == 1 else 'fit'} {counted(run.dataset.counting, 'row')}"
        yield f"{fit} {NEARLY_ANY}, which says nothing about new rows; choose fewer"


def _is_perfect(run: SelectionRun, point: FrontPoint) -> bool:
    total = run.whole.total
    if point.value <= PERFECT * total:
        return True
    centered = run.validated.request.preprocess in ("standardize", "center")
    size = run.validated.included + len(point.members)
    return size >= run.dataset.counting - centered and point.value <= 1e-6 * total


def _single(run: SelectionRun) -> FrontPoint | None:
    """Return the first column that fits perfectly alone, if there is one."""
    left = run.objective.c - run.objective.subset(1).gains()
    perfect = np.flatnonzero(left <= PERFECT * run.whole.total)
    return FrontPoint(1, max(float(left[perfect[0]]), 0.0), (int(perfect[0]),)) if perfect.size else None


def _without_redundant(run: SelectionRun, point: FrontPoint) -> FrontPoint:
    """Return a perfect subset without the members that it does not need, the last ones first."""
    for j in sorted(point.members, reverse=True):
        rest = tuple(i for i in point.members if i != j)
        value = run.objective.value(rest)
        if rest and value <= PERFECT * run.whole.total:
            point = FrontPoint(len(rest), value, rest)
    return point


def _settled(run: SelectionRun, front: Sequence[FrontPoint], point: FrontPoint) -> FrontPoint:
    """Return the perfect subset on the path of forward selection, unless it is larger than this one."""
    path = forward_reference(run.subject, run.most)
    found = next((p for p in path if p.size <= point.size and _is_perfect(run, p)), None)
    return _first_of_equals(run, front, point) if found is None else _first_of_equals(run, path, found)


def _first_of_equals(run: SelectionRun, front: Sequence[FrontPoint], point: FrontPoint) -> FrontPoint:
    """Return the perfect subset that adds the first possible column to the best subset with one column less."""
    smaller = next((p for p in front if p.size == point.size - 1), None)
    if smaller is None:
        return point
    solution = run.objective.subset(point.size)
    for j in smaller.members:
        solution.insert(j)
    left = smaller.value - solution.gains()
    perfect = [int(j) for j in np.flatnonzero(left <= PERFECT * run.whole.total) if j not in smaller.members]
    return replace(point, members=tuple(sorted((*smaller.members, perfect[0])))) if perfect else point


def _note(run: SelectionRun, point: FrontPoint) -> str:
    labels = run.dataset.features
    columns = np.union1d(run.always, run.objective.in_data(point.members)).astype(np.int64)
    if len(columns) == 1 and run.dataset.n_targets:
        return (
            f"leave {format_labels(labels, columns)} out if it should not be there: this column is the target or a "
            "copy of it, and explains all of Y alone; the search stops there"
        )
    size = run.validated.included + point.size
    items = counted_items(size, run.validated.items.noun)
    verb = "explains" if size == 1 else "explain"
    what = "Y" if run.dataset.n_targets else "X"
    return f"{items} {verb} all of {what} up to rounding: the search stops there"
