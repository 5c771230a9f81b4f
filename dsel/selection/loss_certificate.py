"""Certify a selection that minimizes a loss: branch and bound on its columns, or on a pool of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Ints
from dsel.errors import CapacityError, DataError, OptionError
from dsel.passes.loss_fits import LossData, fit_subsets
from dsel.passes.loss_products import LossColumns
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.losses.outputs import lengths
from dsel.search.exact.losses.proof import LossProblem, LossProof, prove_loss
from dsel.search.exact.losses.wide_tree import prove_wide_loss
from dsel.selection.add_certificates import with_certificates
from dsel.selection.assembly import answer_fields
from dsel.selection.context import SelectionRun
from dsel.selection.front_row import FrontRow
from dsel.selection.loss_search import LossSearch, candidate_columns, loss_data
from dsel.selection.result import Selection

#: The columns of a proof may take this many bytes of this process.
MOST_BYTES = 4 << 30
#: The most columns among all of which nodes are relaxed, and the least size of a pool of more columns.
MOST_RELAXED, LEAST_POOL = 3000, 2000
Prover = Callable[[int, FrontRow, float | None, int | None], LossProof]
Shares = Callable[[Sequence[int]], Iterable[tuple[int, float | None, int | None]]]
#: F of the selection is the same again up to this share of F.
_SAME = 1e-6


def certify_loss(
    run: SelectionRun, selection: Selection, shares: Shares, *, limit: float | None, all_sizes: bool
) -> Selection:
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
        The proof is about coefficients of scaled columns up to so many times the largest one of the selection.
    all_sizes : bool
        Prove the best subset of each size.

    Raises
    ------
    CapacityError
        If the columns do not fit into memory, and neither does a pool of them.
    OptionError
        If there are groups of columns, or wide data without a penalty.
    DataError
        If the data are not those of the selection.
    """
    validated = run.validated
    if validated.groups is not None:
        raise OptionError(
            "There is no proof for groups of columns and a loss other than the squared error.",
            'Select without groups; for indicator columns of categories that is categories="columns".',
        )
    data = loss_data(run)
    search = LossSearch(run, data)
    search.consider([(run.most, selection.indices)])
    known = search.known[tuple(sorted(selection.indices))]
    _require_same(known.value, selection)
    largest = None if limit is None else limit * float(lengths(known.coefficients).max(initial=0.0))
    prove = _prover(run, data, selection.front, largest or None)
    total = fit_subsets(data, [np.empty(0, np.int64)])[0].value
    sizes = range(max(len(run.base), 1), selection.k + 1) if all_sizes else [selection.k]
    found = {}
    for size, seconds, nodes in shares(sizes):
        best = min((row for row in selection.front if row.size <= size), key=lambda row: row.error)
        proof = prove(size, best, seconds, nodes)
        better = proof.value < best.error - _SAME * total
        if better:
            search.consider([(size - len(run.base), proof.members)])
            fit = search.known[tuple(sorted(proof.members))]
            if fit.infinite:  # the proof stopped at other coefficients than the answer has: its bound alone counts
                proof = replace(proof, value=fit.value, proven=False)
                better = fit.value < best.error - _SAME * total
        limit_of_proof = min(proof.limit, largest or np.inf)
        found[size] = _certificate(size, proof, best, total, better, data.loss.name, limit_of_proof)
    selection = with_certificates(selection, found, run.dataset.features.tolist())
    return _with_better(search, selection, found, total)


def _prover(run: SelectionRun, data: LossData, front: Sequence[FrontRow], limit: float | None) -> Prover:
    """Return what proves a size, with columns of the data: a tree over all columns in memory, or over a pool."""
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
        return _in_memory(replace(problem, Z=every.read(columns)), columns, run.base)
    _require_wide(problem, columns.size)
    if problem.loss.outputs > 1:
        raise CapacityError(
            f"A proof for three or more classes holds all columns in memory, and {columns.size} are too many.",
            f"Exclude columns, so that at most {MOST_RELAXED} are left.",
        )

    def prove(size: int, best: FrontRow, seconds: float | None, nodes: int | None) -> LossProof:
        return prove_wide_loss(problem, every, size, best.indices, include=list(run.base), seconds=seconds, nodes=nodes)

    return prove


def _in_memory(problem: LossProblem, columns: Ints, base: Iterable[int]) -> Prover:
    """Return what proves a size by a tree whose nodes are relaxed among all columns."""
    place = {int(j): i for i, j in enumerate(columns)}
    include = [place[j] for j in base]

    def prove(size: int, best: FrontRow, seconds: float | None, nodes: int | None) -> LossProof:
        incumbent = (tuple(sorted(place[j] for j in best.indices)), best.error)
        proof = prove_loss(problem, size, include=include, incumbent=incumbent, seconds=seconds, nodes=nodes)
        return replace(proof, members=tuple(int(columns[j]) for j in proof.members))

    return prove


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


def _require_same(value: float, selection: Selection) -> None:
    if not abs(value - selection.error) <= _SAME * max(abs(value), 1e-300):
        raise DataError(
            f"These are not the data of the selection: its columns have the deviance {value:.6g} here, and "
            f"{selection.error:.6g} there.",
            "Certify with the X, Y, rows, weights and offset that the selection was made from.",
        )


def _certificate(
    size: int, proof: LossProof, best: FrontRow, total: float, better: bool, loss: str, limit: float
) -> Certificate:
    """Return what a proof shows. A gap that counts as rounding is named as such."""
    value = proof.value if better else best.error
    rounding = max(value - proof.bound, 0.0) / total if proof.proven and total > 0.0 else 0.0
    return Certificate(
        size, value, max(min(proof.bound, value), 0.0), total, proof.members if better else best.indices, proof.nodes,
        proof.seconds, f"branch-and-bound ({loss} loss)", better, rounding_error=rounding,
        largest_coefficient=limit if np.isfinite(limit) else 0.0,
    )  # fmt: skip


def _with_better(search: LossSearch, selection: Selection, found: dict[int, Certificate], total: float) -> Selection:
    """Return the selection with the better subsets of its certificates in the front, the best as the answer."""
    new = [certificate for certificate in found.values() if certificate.better]
    if not new:
        return selection
    front = {row.size: row for row in selection.front}
    for certificate in new:
        fit = search.known[tuple(sorted(certificate.indices))]
        size = len(certificate.indices)
        row = FrontRow(size, fit.value, 1.0 - fit.deviance / total, certificate.indices)
        if size not in front or row.error < front[size].error:
            front[size] = row
    features = search.run.dataset.features
    labels = {int(j): str(features[j]) for row in front.values() for j in row.indices}
    selection = replace(
        selection, front=tuple(front[size] for size in sorted(front)),
        column_labels={**selection.column_labels, **labels},
    )  # fmt: skip
    if not search.known[search.best].value < selection.error - _SAME * total:
        return selection
    chosen, dependent, last = search.final_fit(search.run)
    fields = answer_fields(search.run, last, chosen, dependent[:0])
    shares = f"they explain {fields['r2']:.4%}, those of {selection.method} {selection.r2:.4%}"
    note = f"the proof found these columns: {shares}"
    figures = search.class_figures()
    return replace(selection, **fields, class_figures=figures, notes=(*selection.notes, note))
