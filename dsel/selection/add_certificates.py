"""Put certificates into a selection, and a better subset that a proof found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dsel.data.column_groups import Items
from dsel.objective.objective_interface import Objective
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.search.exact.guarantee import limit_notes
from dsel.selection.assembly import answer_fields, explained_share
from dsel.selection.candidates import answer_of
from dsel.selection.context import SelectionRun
from dsel.selection.record import FrontRow
from dsel.selection.result import Selection
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


def with_better_subset(run: SelectionRun, selection: Selection) -> Selection:
    """Return the selection with the new and better subsets of its certificates in the front, the best as the answer.

    A better answer takes one pass over the data.
    """
    certificates = [Certificate.from_dict(values) for values in selection.certificate]
    known = {row.size for row in selection.front}
    if not any(certificate.better or certificate.size not in known for certificate in certificates):
        return selection
    front = _better_front(selection, certificates, run.whole, run.validated.items)
    best = min((row for row in front if row.size <= selection.k), key=lambda row: (row.error, row.size))
    labels = {j: str(run.dataset.features[j]) for row in front for j in row.indices}
    selection = replace(selection, front=front, column_labels={**selection.column_labels, **labels})
    if set(best.indices) == set(selection.indices):
        return selection
    if not best.error < selection.error - _BETTER * run.objective.total:
        return selection
    chosen, dependent = answer_of(run, best.indices)
    fit = run.prepared.fit(chosen, run.validated.request.lam)
    kept = dependent if run.validated.items.keeps_dependent else dependent[:0]
    fields = answer_fields(run, fit, chosen, kept)
    shares = f"they explain {fields['r2']:.4%}, those of {selection.method} {selection.r2:.4%}"
    note = f"the proof found these columns: {shares}"
    return replace(selection, **fields, notes=(*selection.notes, note), passes=selection.passes + 1)


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


def with_submodularity(selection: Selection, objective: Objective) -> Selection:
    """Return the selection with its submodularity ratio, where that is known. objective: over the candidates."""
    if selection.groups:
        return selection
    local = {int(j): i for i, j in enumerate(objective.columns)}
    path = dict.fromkeys(j for row in selection.forward for j in row.indices)  # in order: each row has the one before
    chains = [[local[j] for j in chain if j in local] for chain in (selection.indices, path)]
    k = selection.k - len(objective.included)
    return replace(selection, submodularity=submodularity(objective, k, chains))
