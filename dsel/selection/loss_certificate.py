"""Certify a selection that minimizes a loss: branch and bound on its columns, or on a pool of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import counted
from dsel._lib.types import Floats, Ints
from dsel.errors import CapacityError, DataError, OptionError
from dsel.passes.column_copy import copied, copy_that_saves
from dsel.passes.loss_data import LossData
from dsel.passes.loss_fits import LossFit, fit_subsets
from dsel.passes.loss_products import LossColumns
from dsel.search.exact.alternatives import NearBestAnswer
from dsel.search.exact.certificate import GROUPS, NOTHING, Certificate
from dsel.search.exact.losses.grouping import Grouping
from dsel.search.exact.losses.problem import lengths
from dsel.search.exact.losses.proof import LossProblem, LossProof, Watcher, limit_of_proof, prove_loss
from dsel.search.exact.losses.wide_tree import prove_wide_loss
from dsel.search.exact.near_best import ListRule
from dsel.selection.add_certificates import Candidates, alternatives_in_data
from dsel.selection.alternatives import Alternatives
from dsel.selection.answer import answer_fields
from dsel.selection.certificates import with_certificates
from dsel.selection.changes.compare import compared_again
from dsel.selection.context import SelectionRun
from dsel.selection.loss_notes import OF_MODELS, loss_notes, of_fit
from dsel.selection.loss_search import LossSearch, candidate_columns, loss_data
from dsel.selection.notes import notes_of_proof
from dsel.selection.record_values import FrontRow
from dsel.selection.represented import listed_over_copies
from dsel.selection.result import Selection

log = logging.getLogger("dsel")

#: The columns of a proof may take this many bytes of this process.
MOST_BYTES = 4 << 30
#: The most columns among all of which nodes are relaxed, and the least size of a pool of more columns.
MOST_RELAXED, LEAST_POOL = 3000, 2000
Shares = Callable[[Sequence[int]], Iterable[tuple[int, float | None, int | None]]]
#: F of the selection is the same again up to this share of F.
_SAME = 1e-6
#: At most this many listed subsets are looked at for the reliance on each column, and fitted at a time.
_MOST_RELIANCE, _FITS = 100, 200


def certify_loss(
    run: SelectionRun, selection: Selection, shares: Shares, *, limit: float | None, all_sizes: bool,
    listing: ListRule | None = None, watcher: Callable[[int], Watcher | None] = lambda size: None,
) -> Selection:  # fmt: skip
    """Return the selection with a certificate for its loss; a better subset that the proof found replaces its columns.

    Parameters
    ----------
    run : SelectionRun
        The data and the request, prepared.
    selection : Selection
        What to certify.
    shares : callable
        ``shares(sizes)`` yields each size with the seconds and the nodes that its proof may take.
    limit : float, optional
        The proof is about coefficients up to this factor times the largest one of the selection, see `_units`.
    all_sizes : bool
        Prove the best subset of each size.
    listing : ListRule, optional
        List the near-best subsets, too.
    watcher : callable, optional
        ``watcher(size)`` returns what follows the proof of a size.

    Raises
    ------
    CapacityError
        If the columns do not fit into memory, and neither does a pool of them.
    OptionError
        If the data are wide, without a penalty.
    DataError
        If the data are not those of the selection.
    """
    base = run.validated.included
    data = loss_data(run)
    search = LossSearch(run, data)
    search.consider([(run.most, selection.indices)])
    known = search.known[tuple(sorted(selection.indices))]
    _require_same(search, known, selection)
    unit = _units(run, data)
    in_units = float(lengths((known.coefficients.T * unit[known.columns]).T).max(initial=0.0))
    largest = None if limit is None else limit * in_units
    prover = _Prover.of(run, data.in_units(unit), selection.front, largest or None)
    if listing is not None and prover.items is None:
        raise CapacityError(
            "Near-best subsets are not listed: the columns do not fit, and the proof would make passes over the data.",
            f"Exclude columns until there are at most {MOST_RELAXED}.",
        )
    total = fit_subsets(data, [np.empty(0, np.int64)])[0].value
    k = selection.k if prover.items is None else min(selection.k, len(prover.items))
    sizes: Sequence[int] = range(min(base + 1, k), k + 1) if all_sizes else [k]
    if listing is None and not run.context.keeps_trees:
        sizes = prover.unfinished(sizes, selection.certificate)
    found: dict[int, Certificate] = {}
    proved = all_sizes or selection.size_curve is None
    notes = [note for note in selection.notes if not (proved and OF_MODELS in note)]
    listed: dict[int, NearBestAnswer] = {}
    with prover.reading() as prover:
        for size, seconds, nodes in shares(sizes):
            best = min((row for row in selection.front if row.size <= size), key=lambda row: row.error)
            proof = prover.prove(size, best, seconds, nodes, listing, watcher(size - base))
            better = proof.value < best.error - _SAME * total
            if better:
                search.consider([(size - base, proof.members)])
                fit = search.known[tuple(sorted(proof.members))]
                if fit.infinite:  # the proof stopped at other coefficients than the answer has: its bound alone counts
                    proof = replace(proof, value=fit.value, proven=False)
                    better = fit.value < best.error - _SAME * total
                elif fit.value < proof.value:  # the answer has coefficients beyond the limit
                    proof = replace(proof, value=fit.value)
            limit_of_proof = min(proof.limit, largest or np.inf)
            how = NOTHING if size == base else "branch-and-bound" if run.validated.groups is None else GROUPS
            method = f"{how} ({data.loss.name} loss)"
            if size == base and largest is None and known.converged and in_units < limit_of_proof:
                limit_of_proof = np.inf  # F is convex: its minimum within the limit is that without
            found[size] = _certificate(size, proof, best, total, better, method, limit_of_proof)
            if proof.near_best is not None and size > base:
                listed[size] = proof.near_best
            if proof.ended == "interrupted":
                break
    if k in listed:
        *smaller, last = (
            listed_over_copies(
                prover.in_data(answer, found[size], total), selection.counts, prover.errors_of, answer.sure
            ) for size, answer in listed.items()
        )  # fmt: skip
        selection = replace(selection, alternatives=replace(last, smaller=tuple(smaller)))
    selection = replace(selection, notes=tuple(notes))
    selection = with_certificates(selection, found, run.dataset.features.item, of_list=listing is not None)
    return _with_better(search, selection, found, total)


@dataclass(frozen=True)
class _Prover:
    """What proves sizes, with columns of the data: a tree over all columns in memory, or over a pool.

    problem: with the columns of the data of its items, or without any if these are None.
    """

    run: SelectionRun
    data: LossData
    problem: LossProblem
    every: LossColumns
    items: list[Ints] | None

    @classmethod
    def of(cls, run: SelectionRun, data: LossData, front: Sequence[FrontRow], limit: float | None) -> _Prover:
        """Return the prover of a selection. Its columns are read if all of them are held."""
        columns = np.union1d(candidate_columns(run), [j for row in front for j in row.indices]).astype(np.int64)
        targets, m = data.targets, run.dataset.m
        y = data.loss.encode(targets.y)
        w = data.loss.row_weights(y, targets.w)
        problem = LossProblem(
            np.empty((m, 0)), y, np.ones(m) if w is None else w,
            np.zeros(m) if targets.offset is None else targets.offset, data.loss, data.lam, data.intercept, limit,
        )  # fmt: skip
        allowed = np.zeros(run.dataset.n, np.bool_)
        allowed[columns] = True
        every = LossColumns(data, allowed)
        if columns.size <= MOST_RELAXED and 16 * m * columns.size <= MOST_BYTES:
            groups, Z = run.validated.groups, every.read(columns)
            if groups is None:
                return cls(run, data, replace(problem, Z=Z), every, list(columns[:, None]))
            local = groups.local(columns)
            problem = replace(problem, groups=Grouping.of_sizes([places.size for places in local]))
            return cls(run, data, replace(problem, Z=Z[:, np.concatenate(local)]), every, [columns[i] for i in local])
        _require_wide(problem, columns.size)
        grouped = run.validated.groups is not None
        if problem.loss.outputs > 1 or grouped:
            what = "groups of columns" if grouped else "three or more classes"
            raise CapacityError(
                f"A proof for {what} holds all columns in memory, and {columns.size} are too many.",
                f"Exclude columns, so that at most {MOST_RELAXED} are left.",
            )
        return cls(run, data, problem, every, None)

    def unfinished(self, sizes: Sequence[int], certificates: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the sizes without a proof of the best subset, among all fits that a proof would be about."""
        ended = [row for row in certificates if row["size"] in sizes and row["status"].startswith("optimal")]
        limited = any(row["largest_coefficient"] for row in ended)
        reach = limit_of_proof(self.problem) * (1.0 - _SAME) if limited else np.inf
        finished = {row["size"] for row in ended if (row["largest_coefficient"] or np.inf) >= reach}
        if finished:
            log.info("finished proofs of %s are not repeated", counted(len(finished), "size"))
        return [size for size in sizes if size not in finished]

    @contextmanager
    def reading(self) -> Iterator[_Prover]:
        """Provide the prover, which reads columns of a copy where the chunks of the store are full rows."""
        dataset, context = self.run.dataset, self.run.context
        copy, note = (
            (None, "") if self.items is not None else copy_that_saves(dataset, context.copies, self.every.reads)
        )
        if note:
            log.info("%s", note)
        if copy is None:
            yield self
            return
        with copied(dataset, context.scratch, context.engine) as rows:
            yield replace(self, every=replace(self.every, copy=rows))

    def prove(
        self, size: int, best: FrontRow, seconds: float | None, nodes: int | None, listing: ListRule | None,
        watcher: Watcher | None,
    ) -> LossProof:  # fmt: skip
        """Return the proof of a size. best: the best known subset."""
        items, base = self.items, self.run.always
        if items is None:
            return prove_wide_loss(
                self.problem, self.every, size, best.indices, include=list(base), seconds=seconds, nodes=nodes,
                watcher=watcher,
            )  # fmt: skip
        include, incumbent = (
            [i for i, columns in enumerate(items) if not S.isdisjoint(columns.tolist())]
            for S in (set(base), set(best.indices))
        )
        proof = prove_loss(
            self.problem, min(size, len(items)), include=include, incumbent=(tuple(incumbent), best.error),
            seconds=seconds, nodes=nodes, listing=listing if len(items) > len(include) else None, watcher=watcher,
        )  # fmt: skip
        return replace(proof, members=tuple(int(j) for i in proof.members for j in items[i]))

    def in_data(self, answer: NearBestAnswer, certificate: Certificate, total: float) -> Alternatives:
        """Return near-best subsets in terms of the data. total: F without columns."""
        assert self.items is not None
        base, fits = sorted(self.run.always), partial(fit_subsets, self.data)
        free = [columns for columns in self.items if np.isin(columns, base, invert=True).all()]
        candidates = Candidates(free, base, fits([np.array(base, np.int64)])[0].value, total)
        sets = [candidates.in_data(S) for S, _ in answer.subsets]
        deviances = {S: fit.deviance for S, fit in zip(sets, self._fitted(sets), strict=True)}
        near = answer.subsets[:_MOST_RELIANCE]
        pairs = [(S, value, j) for S, value in near for j in S]
        without = self._fitted([candidates.in_data(i for i in S if i != j) for S, _, j in pairs])
        reliance: dict[int, tuple[float, float]] = {}
        for (_, value, j), fit in zip(pairs, without, strict=True):
            share = max(fit.value - value, 0.0) / total
            low, high = reliance.get(j, (share, share))
            reliance[j] = min(low, share), max(high, share)

        def explained(members: tuple[int, ...], f: float) -> float:
            return 1.0 - deviances[members] / total

        if answer.subsets and self._is_dependent(certificate.indices):
            gap = max(answer.subsets[0][1] - certificate.value, 0.0) / total
            certificate = replace(certificate, dependent_gap=gap if gap > _SAME else 0.0)
        return alternatives_in_data(answer, candidates, explained, reliance, self.run, certificate)

    def errors_of(self, subsets: Sequence[Sequence[int]]) -> list[float]:
        """Return F of subsets of columns of the data, infinity where they are dependent."""
        fits = zip(subsets, self._fitted(subsets), strict=True)
        return [np.inf if self._is_dependent(S) else fit.value for S, fit in fits]

    def _is_dependent(self, S: Sequence[int]) -> bool:
        return self.run.validated.groups is None and self.run.whole.rank(S) < len(S)

    def _fitted(self, subsets: Sequence[Sequence[int]]) -> list[LossFit]:
        """Return the fits of subsets, some at a time."""
        sets = [np.array(sorted(S), np.int64) for S in subsets]
        return [fit for i in range(0, len(sets), _FITS) for fit in fit_subsets(self.data, sets[i : i + _FITS])]


def _units(run: SelectionRun, data: LossData) -> Floats:
    """Return (n,) the units of the scaled columns in a proof: their root mean squares, if a penalty has no others.

    Where there is an intercept, the squares are those about the means.
    """
    statistics, preprocess = run.prepared.statistics, run.validated.request.preprocess
    if data.lam > 0.0:
        return np.ones(run.dataset.n)
    squares = statistics.preprocessed_squares(preprocess)
    if data.intercept:
        squares = statistics.squares / statistics.scaling(preprocess).scale_x ** 2
    return np.sqrt(np.where(squares > 0.0, squares / statistics.weight, 1.0))


def _require_wide(problem: LossProblem, columns: int) -> None:
    """Raise an error where a pool of columns proves nothing, or does not fit."""
    m = problem.y.size
    if 16 * m * LEAST_POOL > MOST_BYTES:
        raise CapacityError(
            f"A proof for the loss {problem.loss.name} holds columns of {m} rows in memory. All {columns} of them take "
            f"{format_bytes(16 * m * columns)}, a pool of {LEAST_POOL} takes {format_bytes(16 * m * LEAST_POOL)}, and "
            f"the limit is {format_bytes(MOST_BYTES)}.",
            "Exclude columns, or certify a selection on fewer rows.",
        )
    if problem.lam == 0.0 and problem.limit is None:
        raise OptionError(
            f"A proof among {columns} columns by a loss needs a penalty: without it, columns that are more than the "
            "rows fit everything.",
            "Set lam, or coefficient_limit.",
        )


def _require_same(search: LossSearch, known: LossFit, selection: Selection) -> None:
    """Raise DataError unless the columns have the F of the selection here: fitted again, or by its coefficients.

    A fit that rounding stops before its minimum stops elsewhere when it begins elsewhere.
    """

    def same(value: float) -> bool:
        return abs(value - selection.error) <= _SAME * max(abs(value), 1e-300)

    if same(known.value) or same(search.fit_of(selection, list(selection.indices)).value):
        return
    raise DataError(
        f"These are not the data of the selection: its columns have the deviance {known.value:.6g} here, and "
        f"{selection.error:.6g} there.",
        "Certify with the X, Y, rows, weights and offset that the selection was made from.",
    )


def _certificate(
    size: int, proof: LossProof, best: FrontRow, total: float, better: bool, method: str, limit: float
) -> Certificate:
    """Return what a proof shows. A gap that counts as rounding is named as such."""
    value = proof.value if better else best.error
    rounding = max(value - proof.bound, 0.0) / total if proof.proven and total > 0.0 else 0.0
    return Certificate(
        size, value, max(min(proof.bound, value), 0.0), total, proof.members if better else best.indices, proof.nodes,
        proof.seconds, method, better, rounding_error=rounding,
        largest_coefficient=limit if np.isfinite(limit) else 0.0, leaves_checked=proof.checked,
        leaves_searched=proof.searched, began_again=proof.began_again, cpu_seconds=proof.cpu_seconds,
        closed=proof.ended in ("proven", "rounding"), ended_by="nodes" if proof.ended == "nodes" else "",
    )  # fmt: skip


def _with_better(search: LossSearch, selection: Selection, found: dict[int, Certificate], total: float) -> Selection:
    """Return the selection with the better subsets of its certificates in the front, the best as the answer."""
    new = [certificate for certificate in found.values() if certificate.better]
    if not new:
        return selection
    front = {row.size: row for row in selection.front}
    for certificate in new:
        row = _row(search, certificate.indices, total)
        if row.size not in front or row.error < front[row.size].error:
            front[row.size] = row
    if not search.known[search.best].value < selection.error - _SAME * total:
        return _with_front(search, selection, front)
    chosen, dependent, last = search.final_fit(search.run)
    row = _row(search, search.answer, total)  # of several that are as good, the front has the answer
    front = {size: other for size, other in front.items() if size < row.size or other.error < row.error - _SAME * total}
    selection = _with_front(search, selection, front | {row.size: row})
    kept = dependent if search.run.validated.items.keeps_dependent else dependent[:0]
    fields = answer_fields(search.run, last, chosen, kept)
    figures = search.class_figures()
    counts = {**selection.counts, **search.figures()}
    notes = [note for note in selection.notes if not of_fit(note)]
    notes += [note for note in loss_notes(search, search.run) if of_fit(note)]
    notes = notes_of_proof(replace(selection, notes=tuple(notes)), search.run, last, chosen, dependent, kept)
    answer = replace(selection, **fields, class_figures=figures, counts=counts, notes=tuple(notes))
    return compared_again(search.run, last, answer, selection, search)


def _row(search: LossSearch, S: Sequence[int], total: float) -> FrontRow:
    """Return the row of columns that were fitted."""
    run, fit = search.run, search.known[tuple(sorted(S))]
    return run.row(run.validated.items.count(S), fit.value, 1.0 - fit.deviance / total, S, rank=run.whole.rank(S))


def _with_front(search: LossSearch, selection: Selection, front: Mapping[int, FrontRow]) -> Selection:
    """Return the selection with these rows, and the labels of their columns."""
    labels = {int(j): str(search.run.dataset.features[j]) for row in front.values() for j in row.indices}
    return replace(
        selection, front=tuple(front[size] for size in sorted(front)),
        column_labels={**selection.column_labels, **labels},
    )  # fmt: skip
