"""Put the certificates of proofs into a selection, next to those that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from dsel._lib.tolerances import MARGIN
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.search.exact.guarantee import limit_notes
from dsel.selection.alternatives import Alternatives
from dsel.selection.record import SelectionRecord
from dsel.selection.represented import over_copies

#: How the note on a proof, or on a list, begins that failed. The next run of the job tries it again.
FAILED = ("the proof for", "the list of near-best subsets for")

_Record = TypeVar("_Record", bound=SelectionRecord)


def with_certificates(
    selection: _Record, found: Mapping[int, Certificate], label: Callable[[int], str], *, of_list: bool = False
) -> _Record:  # fmt: skip
    """Return the selection with certificates by size, merged with those it has, and with notes on their limits.

    label: returns the label of a column. of_list: whether lists of near-best subsets were what was asked for.
    """
    counts = selection.counts
    noise = float(counts.get("noise", {}).get("share", 0.0))
    groups = selection.request.groups is not None
    always = {j for j in selection.indices if groups and j in selection.request.include}
    merged = {
        size: replace(
            over_copies(one, counts, selection.k), noise=noise, groups=groups,
            indices=(*one.indices, *sorted(always - set(one.indices))),  # those that depend on other included ones
        )
        for size, one in found.items()
    }  # fmt: skip
    for old in (Certificate.from_dict(values) for values in selection.certificate):
        new = merged.get(old.size)
        merged[old.size] = old if new is None else old.merged(new, of_list=of_list)
    if not merged:
        return selection
    last = merged[max(merged)]
    limits = limit_notes(last.rounding_error, last.undecided)
    notes = tuple(note for note in limits if note not in selection.notes)
    certificates = tuple(c.as_dict() for c in across_sizes(merged).values())
    named = {j: str(label(j)) for c in merged.values() for columns in c.near_copies for j in columns}
    return replace(
        selection, certificate=certificates, notes=(*selection.notes, *notes),
        column_labels={**selection.column_labels, **named},
    )  # fmt: skip


def with_list(selection: _Record, alternatives: Alternatives) -> _Record:
    """Return the selection with near-best subsets, and with what their trees prove about its subset of each size."""
    found = {}
    for size, one in alternatives.by_size.items():
        own = min((row for row in selection.front if row.size <= size), key=lambda row: row.error, default=None)
        if own is not None and one.certificate:
            proof = Certificate.from_dict(one.certificate)
            is_best = own.error <= proof.value + MARGIN * proof.total
            found[size] = replace(proof, better=False) if is_best else proof.about(size, own.error, own.indices)
    if found:  # these were proved after what failed
        selection = replace(selection, notes=tuple(note for note in selection.notes if not note.startswith(FAILED)))
    selection = with_certificates(selection, found, selection.label, of_list=True)
    listed = alternatives.with_proofs(selection.certificate).listed_for(selection.error, selection.indices)
    return replace(selection, alternatives=listed)
