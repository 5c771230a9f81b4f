"""A loss on the rows of a dataset: its targets, and the columns that this process reads and keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import shorten
from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, StoredRows, TransposedRows, dense_rows, fill_missing, load_block, load_weights
from dsel.data.dataset import Dataset
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import CapacityError, DataError
from dsel.objective.losses.loss import Loss
from dsel.passes.finite_values import require_finite
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Scaling

#: Columns of at most this many bytes are read once, and all Newton steps run in this process.
KEPT_BYTES = 512 << 20
#: Rows of columns that are read into this process are merged on workers up to this size.
_RANGE_BYTES = 16 << 20


@dataclass(frozen=True)
class Targets:
    """The targets of all rows as they are in the data, and the weights and offsets where there are any.

    y: (m,), or (m, q) for classes that are a column of 0 and 1 each, and for a target of several columns.
    """

    y: Floats
    w: Floats | None
    offset: Floats | None


@dataclass(frozen=True)
class LossData:
    """A loss on the rows of a dataset.

    Parameters
    ----------
    dataset : Dataset
        The data, with one target or a column of 0 and 1 for each class.
    loss : Loss
        The loss, fitted to the targets.
    scaling : Scaling
        Centers and scales of the columns: coefficients and `lam` are those of the scaled columns.
    targets : Targets
        The targets, weights and offsets of all rows.
    lam : float
        The ridge penalty.
    intercept : bool
        Whether fits have an intercept, which is not penalized, or a constant that changes nothing.
    fill : (n,) array, optional
        Values that replace NaN.
    engine : Engine
        Where the passes run.
    columns : dict
        The columns that were read into this process, by their numbers.
    deviations : (n,) array, optional
        Standard deviations of the scaled columns; by default 1.
    """

    dataset: Dataset
    loss: Loss
    scaling: Scaling
    targets: Targets
    lam: float = 0.0
    intercept: bool = True
    fill: Floats | None = None
    engine: Engine = THREADS
    columns: dict[int, Floats] = field(default_factory=dict)
    deviations: Floats | None = None

    @property
    def weight_sum(self) -> float:
        """The sum of the weights of the rows, times those of their classes."""
        w = self.loss.row_weights(self.loss.encode(self.targets.y), self.targets.w)
        return float(self.dataset.m if w is None else w.sum())

    @property
    def first_constant(self) -> float:
        """The constant where fits begin."""
        m, y, w = self.dataset.m, self.loss.encode(self.targets.y), self.targets.w
        offset = np.zeros(m) if self.targets.offset is None else self.targets.offset
        return self.loss.first_constant(y, offset, np.ones(m) if w is None else w)

    def in_units(self, unit: Floats) -> LossData:
        """Return the loss with the scaled columns divided by units (n,), which matter to a penalty only."""
        deviations = None if self.deviations is None else self.deviations / unit
        return replace(self, scaling=replace(self.scaling, scale_x=self.scaling.scale_x * unit), deviations=deviations)


def loss_targets(dataset: Dataset) -> Targets:
    """Return the targets, weights and offsets of all rows. Reads no X."""
    blocks = dataset.blocks
    ys = [load_block(b.y.compute() if b.lazy else b.y, dataset.target_columns) for b in blocks]
    y = np.concatenate([one_target(dense_rows(part, 0, part.shape[0])) for part in ys])
    w = None
    if dataset.weighted:
        parts = [(load_weights(b.w), b.stop - b.start) for b in blocks]
        w = np.concatenate([np.ones(rows) if part is None else part for part, rows in parts])
    offsets = [b.offset.read() if isinstance(b.offset, StoredRows) else b.offset for b in blocks]
    return Targets(y, w, None if offsets[0] is None else np.concatenate(offsets))


def one_target(y: Floats) -> Floats:
    """Return one target (r,) of a block, or its columns of 0 and 1 for classes (r, q) as they are."""
    return y[:, 0] if y.shape[1] == 1 else y


def checked_targets(dataset: Dataset, loss: Loss) -> Targets:
    """Return the targets of all rows. Reads no X. Errors: DataError where the loss cannot take them."""
    targets = loss_targets(dataset)
    require_finite(targets.y.reshape(dataset.m, -1), dataset.name, "Y", 0)
    if loss.contrasts is not None and targets.y.ndim == 2 and targets.w is not None:
        empty = dataset.targets[~targets.y[targets.w > 0.0].any(axis=0)]
        if empty.size:
            raise DataError(f"No row of {shorten(empty)} has a weight.", "Leave out these rows: they do not count.")
    fitted = loss.fitted_to(targets.y, targets.w)
    if not loss.by_rows:
        rows = fitted.of_rows(fitted.encode(targets.y), np.ones(dataset.m) if targets.w is None else targets.w)
        if not rows.value(np.zeros(dataset.m)) > 0.0:
            raise DataError(
                f'loss="{loss.name}" compares each event with rows of a later time, and there are none: the deviance '
                "without columns is 0.",
                "Give rows whose time is later than that of an event.",
            )
    return targets


def on_rows(problem: LossData, there: NDArray[np.bool_]) -> LossData:
    """Return the loss on some of the rows (m,): others have the weight 0."""
    dataset, w = problem.dataset, problem.targets.w
    weight = there.astype(np.float64) if w is None else w * there
    dataset = dataset.with_rows("fold", weight)
    return replace(problem, dataset=dataset, targets=replace(problem.targets, w=weight))


def columns_of(problem: LossData, columns: Ints) -> Floats:
    """Return (m, s) some ascending columns as they are in the data, in one pass over those not read before."""
    dataset, known = problem.dataset, problem.columns
    missing = np.array([j for j in columns if int(j) not in known], np.int64)
    if missing.size:
        read = read_columns(dataset, missing, problem.fill, problem.engine)
        known.update({int(j): np.ascontiguousarray(read[:, i]) for i, j in enumerate(missing)})
    return np.stack([known[int(j)] for j in columns], axis=1) if columns.size else np.empty((dataset.m, 0))


def read_columns(
    dataset: Dataset, columns: Ints, fill: Floats | None, engine: Engine = THREADS, *, whole: bool = False
) -> Floats:  # fmt: skip
    """Return (m, s) some ascending columns as they are in the data, with `fill` (n,) in place of NaN, in one read.

    whole: whether the read counts as a pass over the data, because it takes all columns that may be chosen.
    """
    parts = replace(read_pass(dataset, columns), whole=whole).run(engine)
    read = np.concatenate([x for _, x in sorted(parts, key=lambda part: part[0])])
    fill_missing(read, None if fill is None else fill[columns])
    return read


def most_kept(dataset: Dataset) -> int:
    """Return how many columns KEPT_BYTES hold, next to the target, the weights and the offsets."""
    return KEPT_BYTES // (8 * dataset.m) - 3


def keeps(dataset: Dataset, columns: int, loss: Loss) -> bool:
    """Return whether this number of columns is read once and kept in this process: not those of a copy."""
    # of a copy, workers read little for a step, and share the work, if a loss is a sum over rows
    by_columns = isinstance(dataset.blocks[0].x, TransposedRows) and loss.by_rows
    return dataset.in_memory or (not by_columns and columns <= most_kept(dataset))


def fits_in_place(dataset: Dataset, loss: Loss) -> bool:
    """Return whether each step of a fit reads the data where they are in memory, without a copy of its columns."""
    return dataset.in_memory and loss.by_rows


def too_many_rows(loss: Loss, dataset: Dataset, columns: int) -> CapacityError:
    """Return the error for a loss whose rows depend on each other, and of which this process cannot hold the rows."""
    return CapacityError(
        f'loss="{loss.name}" compares each row with others, so this process holds all rows of the columns of a fit: '
        f"{dataset.m:,} rows of {columns} columns are more than {format_bytes(KEPT_BYTES)}.",
        "Select fewer columns, or from a part of the rows (rows).",
    )


def read_pass(dataset: Dataset, columns: Ints) -> RowPass:
    """Return the pass that reads some columns into this process, few rows at a time, so that workers hold little."""
    row_bytes, ranges = 8 * (columns.size + 3), [(0, 0)]
    for b in dataset.blocks:
        first = ranges[-1][0]
        if b.start > first and (b.stop - first) * row_bytes > _RANGE_BYTES:
            ranges.append((b.start, b.stop))
        else:
            ranges[-1] = (first, b.stop)
    size = row_bytes * max(stop - start for start, stop in ranges)
    return RowPass("columns", dataset, _block_rows, _join, size, 0, columns, whole=False, ranges=tuple(ranges))


_Rows = list[tuple[int, Floats]]


def _block_rows(x: Any, y: Any, block: Block) -> _Rows:
    """Return the rows of a block as an array, with the number of the first one."""
    return [(block.start, dense_rows(x, 0, x.shape[0]))]


def _join(a: _Rows, b: _Rows) -> _Rows:
    return [*a, *b]


def without_scale_of_targets(scaling: Scaling) -> Scaling:
    """Return the scaling of the columns, with targets as they are."""
    return replace(scaling, center_y=np.zeros(1), scale_y=np.ones(1))
