"""Errors on held-out rows: a store or arrays that the data do not contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dsel._lib.types import Floats, Ints
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.store.array import StoredArray
from dsel.data.store.sparse import is_sparse
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import DataError, OptionError
from dsel.objective.cross_validation.losses import THRESHOLD, RowTransform, rows_of
from dsel.passes.reduce_blocks import RowPass
from dsel.storage.paths import AnyPath, as_path


def held_out_pass(dataset: Dataset, subsets: int, size: int, columns: Ints | None = None) -> RowPass:
    """Return the pass that tests some subsets of `size` columns on held-out rows.

    Arguments: W, intercepts, transform.
    """
    flops = 2 * dataset.m * size * size * max(1, dataset.n_targets)
    return RowPass("held-out rows", dataset, _block_held_out, np.add, 24 * subsets, flops, columns, share=True)


def held_out_moments(
    dataset: Dataset, subsets: Sequence[tuple[Ints, Floats, Floats]], transform: RowTransform,
    engine: Engine = THREADS,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return (len(subsets),) the errors per row and their standard errors, in one pass over the columns of the subsets.

    subsets: (members, coefficients (s, N), intercept (N,)) in preprocessed units. Errors: DataError for NaN or infinite
    values in these columns or in Y, and with the zero-one loss for values that are not labels.
    """
    if not subsets:
        return np.empty(0), np.empty(0)
    columns = np.unique(np.concatenate([members for members, _, _ in subsets]))
    N = subsets[0][1].shape[1]
    W = np.zeros((columns.size, len(subsets), N))
    for i, (members, w, _) in enumerate(subsets):
        W[np.searchsorted(columns, members), i] = w
    intercepts = np.stack([intercept for _, _, intercept in subsets])
    narrow = replace(
        transform, center_x=transform.center_x[columns], scale_x=transform.scale_x[columns],
        fill=None if transform.fill is None else transform.fill[columns],
    )  # fmt: skip
    one = held_out_pass(dataset, len(subsets), columns.size, columns)
    total = one.run(engine, W=W, intercepts=intercepts, transform=narrow)
    return mean_and_error(total[:, :-1], total[0, -1], total[1, -1])


def mean_and_error(sums: Floats, weight: float, squares: float) -> tuple[Floats, Floats]:
    """Return weighted means of rows and their standard errors, which do not depend on the unit of the weights.

    sums: (3, s) those of w e, w^2 e and w^2 e^2. weight, squares: the sums of w and w^2.
    """
    mean = sums[0] / weight
    return mean, np.sqrt(np.maximum(sums[2] - 2.0 * mean * sums[1] + mean**2 * squares, 0.0)) / weight


def held_out_store(dataset: Dataset, store: str | AnyPath) -> Dataset:
    """Open a store of further rows, with the targets and weights that have the names of the data's.

    For data without weights, held-out rows have none either.
    """
    named = dataset.target_columns is not None or is_sparse(as_path(store))  # whose targets are columns of obs
    weights = dataset.weights
    stored = None if weights is None or not isinstance(weights.values, StoredArray) else weights.name
    return as_dataset(
        store, targets=dataset.targets.tolist() if named else None, sample_weight=False if weights is None else stored
    )


def held_out_dataset(dataset: Dataset, given: Any) -> Dataset:
    """Return held-out rows from a store (see `held_out_store`) or a pair X, Y.

    Errors: OptionError for anything else; DataError if columns or targets are not those of the data.
    """
    if isinstance(given, str | AnyPath):
        held_out = held_out_store(dataset, given)
    elif isinstance(given, tuple | list) and len(given) == 2:
        held_out = as_dataset(*given)
    else:
        raise OptionError(f"held_out is {type(given).__name__} {given!r:.40}.", "It must be a store, or a pair X, Y.")
    if held_out.n != dataset.n or held_out.n_targets != dataset.n_targets:
        raise DataError(
            f"The held-out rows have {held_out.n} columns and {held_out.n_targets} targets, the data {dataset.n} and "
            f"{dataset.n_targets}.",
            "They must have the same columns and targets.",
        )
    return held_out


def _block_held_out(x: Any, y: Any, block: Block, W: Floats, intercepts: Floats, transform: RowTransform) -> Floats:
    where = f"held-out rows {block.start} to {block.stop - 1}"
    if not np.isfinite(np.asarray(y, np.float64)).all():
        raise DataError(f"Y of {where} has NaN or infinite values.", "Correct the held-out data.")
    targets, labels = transform.targets(y, where)
    s, subsets, N = W.shape
    weights = np.ones(x.shape[0]) if block.w is None else block.w
    errors = np.zeros((3, subsets + 1))  # see `mean_and_error`; and of the weights, last
    errors[:2, -1] = weights.sum(), weights @ weights
    step = max(16, (8 << 20) // (8 * max(s, subsets * N, 1)))
    for start in range(0, x.shape[0], step):
        w = weights[start : start + step]
        z = (rows_of(x[start : start + step], transform) - transform.center_x) / transform.scale_x
        if not np.isfinite(z).all():
            raise DataError(
                f"X of {where} has NaN or infinite values in the chosen columns.",
                'Correct the held-out data, or set missing to "mean" to replace NaN by the means of the data.',
            )
        e = targets[start : start + step, None, :] - (z @ W.reshape(s, -1)).reshape(-1, subsets, N) - intercepts
        if transform.loss == "squared":
            row_errors = np.square(e).sum(axis=2)
        else:
            flip = labels[start : start + step, None, :] * transform.scale_y * THRESHOLD
            row_errors = np.count_nonzero(flip * e >= 1.0, axis=2).astype(np.float64)
        errors[:, :-1] += w @ row_errors, w**2 @ row_errors, w**2 @ np.square(row_errors)
    return errors
