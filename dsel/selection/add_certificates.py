"""Put certificates into a selection, and a better subset that a proof found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dsel.data.column_groups import Items
from dsel.data.dataset import Dataset
from dsel.objective.base import Objective
from dsel.planning.representations.base import Prepared
from dsel.planning.validation import ValidatedRequest
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.search.exact.guarantee import limit_notes
from dsel.selection.assembly import explained_share, in_data_units, with_dependent
from dsel.selection.candidates import answer_of
from dsel.selection.chosen import chosen_statistics
from dsel.selection.result import Selection
from dsel.selection.run_method import rank_error
from dsel.selection.size_curve import FrontRow
from dsel.selection.submodularity import submodularity

#: A subset replaces the selection if its f is lower by more than this share of ||Y||^2.
_BETTER = 1e-9


def with_certificates(selection: Selection, found: Mapping[int, Certificate], features: Sequence[str]) -> Selection:
    """Return the selection with certificates by size, merged with those it has, and with notes on their limits.

    features: the labels of all columns.
    """
    merged = dict(found)
    for old in (Certificate.from_dict(values) for values in selection.certificate):
        new = merged.get(old.size)
        if new is None:
            merged[old.size] = old
        else:  # nodes and seconds of the new one include those of earlier runs
            nodes, seconds = max(old.nodes, new.nodes), max(old.seconds, new.seconds)
            merged[old.size] = replace(old.merged(new), nodes=nodes, seconds=seconds)
    if not merged:
        return selection
    last = merged[max(merged)]
    limits = limit_notes(last.rounding_error)
    notes = tuple(note for note in limits if note not in selection.notes)
    certificates = tuple(c.as_dict() for c in across_sizes(merged).values())
    named = {j: str(features[j]) for c in merged.values() for columns in c.near_copies for j in columns}
    return replace(
        selection, certificate=certificates, notes=(*selection.notes, *notes),
        column_labels={**selection.column_labels, **named},
    )  # fmt: skip


def with_better_subset(
    dataset: Dataset, validated: ValidatedRequest, selection: Selection, prepared: Prepared, whole: Objective,
    objective: Objective,
) -> Selection:  # fmt: skip
    """Return the selection with the new and better subsets of its certificates in the front, the best as the answer.

    A better answer takes one pass over the data. whole: the objective over all columns.
    """
    certificates = [Certificate.from_dict(values) for values in selection.certificate]
    known = {row.size for row in selection.front}
    if not any(certificate.better or certificate.size not in known for certificate in certificates):
        return selection
    front = _better_front(selection, certificates, whole, validated.items)
    best = min((row for row in front if row.size <= selection.k), key=lambda row: (row.error, row.size))
    labels = {j: str(dataset.features[j]) for row in front for j in row.indices}
    selection = replace(selection, front=front, column_labels={**selection.column_labels, **labels})
    if set(best.indices) == set(selection.indices):
        return selection
    if not best.error < selection.error - _BETTER * objective.total:
        return selection
    return _with_answer(dataset, validated, selection, prepared, whole, objective, best)


def _better_front(
    selection: Selection, certificates: list[Certificate], whole: Objective, items: Items
) -> tuple[FrontRow, ...]:
    front = {row.size: row for row in selection.front}
    for certificate in certificates:
        before = front.get(certificate.size)
        smaller = [row.error for row in front.values() if row.size < certificate.size]
        is_new = before is None and certificate.value < min(smaller, default=float("inf")) - _BETTER * whole.total
        if is_new or (before is not None and certificate.better and certificate.value < before.error):
            members = certificate.indices
            size = items.count(members)
            front[size] = FrontRow(size, certificate.value, explained_share(whole, members, certificate.value), members)
    return tuple(front[size] for size in sorted(front))


def _with_answer(
    dataset: Dataset, validated: ValidatedRequest, selection: Selection, prepared: Prepared, whole: Objective,
    objective: Objective, best: FrontRow,
) -> Selection:  # fmt: skip
    """Return the selection with the columns of a front row as the answer, refitted on the data."""
    request, items, statistics = validated.request, validated.items, prepared.statistics
    S, dependent = answer_of(validated, statistics, objective, whole, best.indices)
    fit = prepared.fit(S, request.lam)
    coefficients, intercept = in_data_units(statistics, request.preprocess, S, fit)
    kept = dependent if items.keeps_dependent else dependent[:0]
    chosen = chosen_statistics(statistics, request.preprocess, S, fit, kept)
    chosen = chosen.reordered(items.order(np.concatenate([S, kept])))
    S, coefficients = with_dependent(S, coefficients, kept, items)
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
        groups=items.by_name(S),
        fill=statistics.mean_x[S] if request.missing == "mean" else None,
        statistics=chosen,
        rank_error=None if dataset.n_targets else rank_error(whole, len(S)),
    )


def with_submodularity(selection: Selection, objective: Objective) -> Selection:
    """Return the selection with its submodularity ratio, where that is known. objective: over the candidates."""
    if selection.groups:
        return selection
    local = {int(j): i for i, j in enumerate(objective.columns)}
    path = dict.fromkeys(j for row in selection.forward for j in row.indices)  # in order: each row has the one before
    chains = [[local[j] for j in chain if j in local] for chain in (selection.indices, path)]
    k = selection.k - len(objective.included)
    return replace(selection, submodularity=submodularity(objective, k, chains))
