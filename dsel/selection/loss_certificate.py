"""Certify a selection that minimizes a loss: branch and bound on its rows in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Ints
from dsel.errors import CapacityError, DataError, OptionError
from dsel.passes.loss_fits import LossData, columns_of, fit_subsets
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.losses.proof import LossProblem, LossProof, prove_loss
from dsel.selection.add_certificates import with_certificates
from dsel.selection.assembly import answer_fields
from dsel.selection.context import SelectionRun
from dsel.selection.front_row import FrontRow
from dsel.selection.loss_search import LossSearch, candidate_columns, loss_data
from dsel.selection.result import Selection

#: The columns of a proof may take this many bytes of this process.
MOST_BYTES = 4 << 30
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
        If the columns do not fit into memory.
    OptionError
        If there are groups of columns.
    DataError
        If the data are not those of the selection.
    """
    validated = run.validated
    if validated.groups is not None:
        raise OptionError("There is no proof for groups of columns and a loss other than the squared error.")
    if validated.loss is not None and validated.loss.contrasts is not None:
        raise OptionError("There is no proof for three or more classes.", "Certify a selection for two classes.")
    data = loss_data(run)
    search = LossSearch(run, data)
    search.consider([(run.most, selection.indices)])
    known = search.known[tuple(sorted(selection.indices))]
    _require_same(known.value, selection)
    largest = None if limit is None else limit * float(np.abs(known.coefficients).max(initial=0.0))
    problem, columns = _problem(run, data, selection.front, largest or None)
    place = {int(j): i for i, j in enumerate(columns)}
    total = fit_subsets(data, [np.empty(0, np.int64)])[0].value
    include = [place[j] for j in run.base]
    sizes = range(max(len(include), 1), selection.k + 1) if all_sizes else [selection.k]
    found = {}
    for size, seconds, nodes in shares(sizes):
        best = min((row for row in selection.front if row.size <= size), key=lambda row: row.error)
        incumbent = (tuple(sorted(place[j] for j in best.indices)), best.error)
        proof = prove_loss(problem, size, include=include, incumbent=incumbent, seconds=seconds, nodes=nodes)
        members = tuple(int(columns[j]) for j in proof.members)
        better = proof.value < best.error - _SAME * total
        found[size] = _certificate(
            size, proof, members, best, total, better, data.loss.name, min(proof.limit, problem.largest)
        )
        if better:
            search.consider([(size - len(include), members)])
    selection = with_certificates(selection, found, run.dataset.features.tolist())
    return _with_better(search, selection, found, total)


def _problem(
    run: SelectionRun, data: LossData, front: Sequence[FrontRow], limit: float | None
) -> tuple[LossProblem, Ints]:
    """Return the problem of the proof, and the columns of the data that it has."""
    columns = np.union1d(candidate_columns(run), [j for row in front for j in row.indices]).astype(np.int64)
    size = 16 * run.dataset.m * columns.size
    if size > MOST_BYTES:
        raise CapacityError(
            f"A proof for the loss {data.loss.name} holds {columns.size} columns of {run.dataset.m} rows in memory: "
            f"{format_bytes(size)}, and the limit is {format_bytes(MOST_BYTES)}.",
            "Exclude columns, or certify a selection on fewer rows.",
        )
    Z = (columns_of(data, columns) - data.scaling.center_x[columns]) / data.scaling.scale_x[columns]
    targets, m = data.targets, run.dataset.m
    y = data.loss.encode(targets.y)
    w = data.loss.row_weights(y, targets.w)
    problem = LossProblem(
        Z, y, np.ones(m) if w is None else w,
        np.zeros(m) if targets.offset is None else targets.offset, data.loss, data.lam, data.intercept, limit,
    )  # fmt: skip
    return problem, columns


def _require_same(value: float, selection: Selection) -> None:
    if not abs(value - selection.error) <= _SAME * max(abs(value), 1e-300):
        raise DataError(
            f"These are not the data of the selection: its columns have the deviance {value:.6g} here, and "
            f"{selection.error:.6g} there.",
            "Certify with the X, Y, rows, weights and offset that the selection was made from.",
        )


def _certificate(
    size: int,
    proof: LossProof,
    members: tuple[int, ...],
    best: FrontRow,
    total: float,
    better: bool,
    loss: str,
    limit: float,
) -> Certificate:
    """Return what a proof shows. A gap that counts as rounding is named as such."""
    value = proof.value if better else best.error
    rounding = max(value - proof.bound, 0.0) / total if proof.proven and total > 0.0 else 0.0
    return Certificate(
        size, value, max(min(proof.bound, value), 0.0), total, members if better else best.indices, proof.nodes,
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
    return replace(selection, **fields, notes=(*selection.notes, note))
