"""Put certificates into a selection, and a better subset that a proof found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.objective.base import DEPENDENCE_TOLERANCE, Objective
from dsel.objective.conditioning import bound_error, smallest_pivot_share
from dsel.passes.statistics import Statistics
from dsel.planning.representations.gram import prepare_gram
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.selection.assembly import explained_share, in_data_units
from dsel.selection.candidates import by_gain
from dsel.selection.chosen import chosen_statistics
from dsel.selection.context import RunContext
from dsel.selection.result import FrontRow, Selection

#: A subset replaces the selection if its f is lower by more than this share of ||Y||^2.
_BETTER = 1e-9


def with_certificates(selection: Selection, found: Mapping[int, Certificate], objective: Objective) -> Selection:
    """Return the selection with certificates by size, merged with those it has, and with notes on the columns."""
    merged = dict(found)
    for old in (Certificate.from_dict(values) for values in selection.certificate):
        new = merged.get(old.size)
        if new is None:
            merged[old.size] = old
        else:  # nodes and seconds of the new one include those of earlier runs
            nodes, seconds = max(old.nodes, new.nodes), max(old.seconds, new.seconds)
            merged[old.size] = replace(old.merged(new), nodes=nodes, seconds=seconds)
    notes = tuple(note for note in _limits(objective, selection.k) if note not in selection.notes)
    certificates = tuple(c.as_dict() for c in across_sizes(merged).values())
    return replace(selection, certificate=certificates, notes=(*selection.notes, *notes))


def _limits(objective: Objective, k: int) -> Iterator[str]:
    """Yield notes on what the certificates do not guarantee, because of near dependence."""
    share = smallest_pivot_share(objective.K, objective.lam) if objective.has_gram else None
    if share is None:
        return
    yield (
        f"columns are nearly dependent (others leave {share:.0e} of a column's square): the proof may miss a subset "
        f"with large coefficients of opposite signs that is better by at most {bound_error(share, k):.0e} of ||Y||^2"
    )
    if share <= DEPENDENCE_TOLERANCE:
        yield (
            f"subsets in which others leave at most {DEPENDENCE_TOLERANCE:.0e} of a column's square count as "
            "dependent: they are never chosen, and the proof does not cover them"
        )


def with_better_subset(
    dataset: Dataset, request: SelectionRequest, selection: Selection, statistics: Statistics, objective: Objective,
    context: RunContext,
) -> Selection:  # fmt: skip
    """Return the selection with the better subsets of its certificates in the front, and the best as the answer.

    A better answer takes one pass over the data.
    """
    certificates = [Certificate.from_dict(values) for values in selection.certificate]
    if not any(certificate.better for certificate in certificates):
        return selection
    whole = prepare_gram(dataset, request, statistics, context.engine).objective(request.lam)
    front = _better_front(selection, certificates, whole)
    best = min((row for row in front if row.size <= selection.k), key=lambda row: (row.error, row.size))
    labels = {j: str(dataset.features[j]) for row in front for j in row.indices}
    selection = replace(selection, front=front, column_labels={**selection.column_labels, **labels})
    if set(best.indices) == set(selection.indices):
        return selection
    if not best.error < selection.error - _BETTER * objective.total:
        return selection
    return _with_answer(dataset, request, selection, statistics, objective, best, context)


def _better_front(selection: Selection, certificates: list[Certificate], whole: Objective) -> tuple[FrontRow, ...]:
    front = {row.size: row for row in selection.front}
    for certificate in certificates:
        before = front.get(certificate.size)
        if certificate.better and (before is None or certificate.value < before.error):
            size, members = len(certificate.indices), certificate.indices
            front[size] = FrontRow(size, certificate.value, explained_share(whole, members, certificate.value), members)
    return tuple(front[size] for size in sorted(front))


def _with_answer(
    dataset: Dataset, request: SelectionRequest, selection: Selection, statistics: Statistics, objective: Objective,
    best: FrontRow, context: RunContext,
) -> Selection:  # fmt: skip
    """Return the selection with the columns of a front row as the answer, refitted on the data."""
    included = list(objective.included)
    ready = prepare_gram(dataset, request, statistics, context.engine)
    S, _ = by_gain(ready.objective(request.lam), included, [j for j in best.indices if j not in included])
    fit = ready.fit(S, request.lam)
    coefficients, intercept = in_data_units(statistics, request.preprocess, S, fit)
    r2 = 1.0 - fit.rss / fit.total
    note = f"the proof found these columns: they explain {r2:.4%}, those of {selection.method} {selection.r2:.4%}"
    return replace(
        selection,
        indices=tuple(int(j) for j in S),
        labels=[str(dataset.features[j]) for j in S],
        error=fit.error,
        r2=r2,
        coefficients=coefficients,
        intercept=intercept,
        notes=(*selection.notes, note),
        passes=selection.passes + 1,
        fill=statistics.mean_x[S] if request.missing == "mean" else None,
        statistics=chosen_statistics(statistics, request.preprocess, S, fit),
    )
