"""Put what proofs found into a selection: near-best subsets, and a better subset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dsel._lib.types import Ints
from dsel.config.size_rule import InformationCriterion
from dsel.objective.objective_interface import ItemObjective, Objective
from dsel.passes.data_pass import PassLog, log_passes
from dsel.search.exact.alternatives import NearBestAnswer, Verdict
from dsel.search.exact.certificate import Certificate
from dsel.selection.alternatives import Alternatives, Price
from dsel.selection.answer import answer_fields, explained_share
from dsel.selection.candidates import answer_of
from dsel.selection.changes.compare import compared_again
from dsel.selection.context import SelectionRun
from dsel.selection.notes import notes_of_proof
from dsel.selection.record_values import FrontRow
from dsel.selection.result import Selection
from dsel.selection.submodularity import submodularity

if TYPE_CHECKING:
    from dsel.search.exact.all_sizes import BestByCriterion

#: At most this many listed subsets are looked at for the reliance on each column.
_MOST_RELIANCE = 1000
#: A subset replaces the selection if its f is lower by more than this share of ||Y||^2.
_BETTER = 1e-9


def with_better_subset(run: SelectionRun, selection: Selection) -> Selection:
    """Return the selection with the new and better subsets of its certificates in the front, the best as the answer.

    A better answer takes one pass over the data, and in a folder of runs the comparison with the previous run again.
    """
    certificates = [Certificate.from_dict(values) for values in selection.certificate]
    known = {row.size for row in selection.front}
    if not any(certificate.better or certificate.size not in known for certificate in certificates):
        return selection
    front = _better_front(selection, certificates, run)
    best = min((row for row in front if row.size <= selection.k), key=lambda row: (row.error, row.size))
    labels = {j: str(run.dataset.features[j]) for row in front for j in row.indices}
    selection = replace(selection, front=front, column_labels={**selection.column_labels, **labels})
    if set(best.indices) == set(selection.indices):
        return selection
    if not best.error < selection.error - _BETTER * run.objective.total:
        return selection
    chosen, dependent = answer_of(run, best.indices)
    with log_passes() as made:
        fit = run.prepared.fit(chosen, run.validated.request.lam)
        kept = dependent if run.validated.items.keeps_dependent else dependent[:0]
        fields = answer_fields(run, fit, chosen, kept)
        notes = notes_of_proof(selection, run, fit, chosen, dependent, kept)
        found = replace(selection, **fields, notes=tuple(notes))
        found = compared_again(run, fit, found, selection)
    return with_passes(found, made)


def with_passes(selection: Selection, made: PassLog) -> Selection:
    """Return the selection with the passes of a proof added to its own."""
    return replace(selection, passes=selection.passes + made.passes, bytes_read=selection.bytes_read + made.bytes_read)


def _better_front(selection: Selection, certificates: list[Certificate], run: SelectionRun) -> tuple[FrontRow, ...]:
    whole, items = run.whole, run.validated.items
    front = {row.size: row for row in selection.front}
    for certificate in certificates:
        before = front.get(certificate.size)
        smaller = [row.error for row in front.values() if row.size < certificate.size]
        is_new = before is None and certificate.value < min(smaller, default=float("inf")) - _BETTER * whole.total
        if is_new or (before is not None and certificate.better and certificate.value < before.error):
            members = certificate.indices
            size = items.count(members)
            explained = explained_share(whole, members, certificate.value)
            front[size] = run.row(size, certificate.value, explained, members, rank=whole.rank(members))
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


@dataclass(frozen=True)
class Candidates:
    """The columns of the data, or groups of them, that near-best subsets are made of.

    items: the columns of each. included: the columns that are in every subset. c, total: the error of these, and of
    none.
    """

    items: Sequence[Sequence[int] | Ints]
    included: Sequence[int]
    c: float
    total: float

    @classmethod
    def of(cls, objective: ItemObjective, include: Iterable[int]) -> Candidates:
        """Return those of an objective. include: included columns, also those of a group that depend on others."""
        included = list(objective.in_data(()))
        items = [objective.in_data((i,))[len(included) :] for i in range(objective.n)]
        included += [int(j) for j in include if int(j) not in included]
        return cls(items, included, objective.c, objective.total)

    def in_data(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the included columns, and those of the candidates with these numbers."""
        return (*self.included, *(int(j) for i in S for j in self.items[i]))


def alternatives_in_data(
    answer: NearBestAnswer, candidates: Candidates, explained: Callable[[tuple[int, ...], float], float],
    reliance: Mapping[int, tuple[float, float]], run: SelectionRun, certificate: Certificate,
) -> Alternatives:  # fmt: skip
    """Return near-best subsets in terms of the data.

    answer: over the candidates. explained: returns what columns of the data with some f explain. reliance: of
    candidates, see `Price`. certificate: of the best subset.
    """
    c, total, best = candidates.c, candidates.total, answer.subsets[0][1] if answer.subsets else candidates.c
    kind, names = run.validated.items, run.dataset.names

    def row(S: Sequence[int], f: float) -> FrontRow:
        members = candidates.in_data(S)
        return run.row(kind.count(members), float(f), explained(members, f), members)

    def known(value: float) -> float | None:
        return float(value) if value < np.inf else None

    columns = tuple(
        Price(
            index=int(own[0]), label=kind.label(own[0], names), verdict=answer.verdicts[i],
            error_with=known(answer.value_with[i]), error_without=known(answer.value_without[i]),
            bound_with=float(min(answer.bound_with[i], c)), bound_without=float(min(answer.bound_without[i], c)),
            with_column=candidates.in_data(answer.example_with.get(i, ())),
            without_column=candidates.in_data(answer.example_without.get(i, ())), reliance=reliance.get(i),
            columns=() if run.validated.groups is None else tuple(int(j) for j in own),
        )
        for i, own in enumerate(candidates.items)
    )  # fmt: skip
    complete_within = (answer.complete_below - best) / (total - best) if total > best else 0.0
    return Alternatives(
        size=run.validated.included + answer.k, within=answer.within, best_error=float(best),
        limit_error=float(answer.threshold), total=total,
        subsets=tuple(row(S, f) for S, f in answer.subsets), complete=answer.complete,
        complete_within=float(min(max(complete_within, 0.0), 1.0)), more=answer.more,
        proven=certificate.status.startswith("optimal") or answer.complete_below >= best,
        columns=columns, nodes=certificate.nodes, seconds=certificate.seconds,
        largest_coefficient=certificate.largest_coefficient, dependent_gap=certificate.dependent_gap,
        included=_included(run), certificate=certificate.as_dict(),
    )  # fmt: skip


def _included(run: SelectionRun) -> tuple[str | int, ...]:
    """Return the labels of the columns or groups that are always chosen."""
    kind, names = run.validated.items, run.dataset.names
    return tuple(dict.fromkeys(kind.label(int(j), names) for j in run.validated.include))


def criterion_list_in_data(
    found: BestByCriterion, run: SelectionRun, by: InformationCriterion, value: Callable[[float, int], float],
    seconds: float,
) -> Alternatives:  # fmt: skip
    """Return the best subsets by a criterion in terms of the data. The verdicts are about the listed subsets."""
    objective, features = run.objective, run.dataset.names
    base = len(objective.included)

    def best(having: bool, j: int) -> tuple[float | None, tuple[int, ...]]:
        return next(((f, tuple(objective.in_data(S))) for S, f in found.subsets if (j in S) == having), (None, ()))

    columns = []
    for i, j in enumerate(objective.columns.tolist()):
        (error_with, with_column), (error_without, without_column) = best(True, i), best(False, i)
        verdict: Verdict = "useless" if error_with is None else "necessary"
        if error_with is not None and error_without is not None:
            verdict = "replaceable"
        sure = verdict if found.proven or verdict == "replaceable" else "undecided"
        values = (error_with, error_without, 0.0, 0.0, with_column, without_column)
        columns.append(Price(j, features[j], sure, *values))
    rows = tuple(
        run.row(
            base + len(S), f, explained_share(run.whole, objective.in_data(S), f), objective.in_data(S),
            criterion=value(f, len(S)),
        )
        for S, f in found.subsets
    )  # fmt: skip
    return Alternatives(
        size=rows[0].size, within=0.0, best_error=rows[0].error, limit_error=max(row.error for row in rows),
        total=objective.total, subsets=rows, complete=found.proven, complete_within=0.0, more=False,
        proven=found.proven, columns=tuple(columns), nodes=found.nodes, seconds=seconds, by=by,
        included=_included(run),
    )  # fmt: skip


def reliance_of(answer: NearBestAnswer, objective: ItemObjective) -> dict[int, tuple[float, float]]:
    """Return, for each item of a listed subset, the least and the largest loss as a share of ||Y||^2 without it."""
    ranges: dict[int, tuple[float, float]] = {}
    for S, _ in answer.subsets[:_MOST_RELIANCE]:
        state = objective.subset(len(S))
        for j in S:
            state.insert(j)
        for j, loss in zip(state.members, state.losses(), strict=True):
            share = max(float(loss) / objective.total, 0.0)
            low, high = ranges.get(j, (share, share))
            ranges[j] = min(low, share), max(high, share)
    return ranges
