"""The rows behind greedy RLS: one stateless pass a round, or a cache where they are in memory; and held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from dsel._lib.types import Floats, Ints
from dsel.data.blocks import Block, load_block, load_weights
from dsel.data.dataset import Dataset, as_dataset
from dsel.data.store.array import StoredArray
from dsel.data.store.sparse import is_sparse
from dsel.engine.base import Engine
from dsel.engine.threads import THREADS
from dsel.errors import DataError, OptionError
from dsel.objective.leave_one_out.block_errors import THRESHOLD, Loss, RowView, block_errors, not_labels
from dsel.objective.leave_one_out.formulas import Intercept, LooProblem, LooRound
from dsel.objective.leave_one_out.memory_cache import LooCache, cache_bytes
from dsel.objective.leave_one_out.ridge_grid import LamSpectrum, block_lam_errors, lam_spectrum
from dsel.passes.reduce_blocks import RowPass
from dsel.passes.statistics import Preprocess, Statistics
from dsel.storage.paths import AnyPath, as_path

#: Share of the memory there is that the cache of rows in memory may take.
_CACHE_SHARE = 0.5


def add(a: Floats, b: Floats) -> Floats:
    """Sums of two blocks together."""
    return a + b


def _block_errors(x: Any, y: Any, block: Block, round: LooRound, view: RowView, where: str) -> Floats:
    return block_errors(x, y, round, view, f"{where}, rows {block.start} to {block.stop}", block.w)


def _block_penalty_errors(x: Any, y: Any, block: Block, spectrum: LamSpectrum, view: RowView, where: str) -> Floats:
    return block_lam_errors(x, y, spectrum, view, f"{where}, rows {block.start} to {block.stop}", block.w)


def loo_pass(dataset: Dataset, chosen: int) -> RowPass:
    """Return the pass of one round with so many columns chosen. Arguments: round, view, where."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    flops = m * n * (2 * chosen + 8 * N)
    return RowPass("leave-one-out", dataset, _block_errors, add, 8 * (1 + n + chosen), flops, share=True)


def penalty_pass(dataset: Dataset, penalties: int) -> RowPass:
    """Return the pass that compares so many ridge penalties. Arguments: spectrum, view, where."""
    m, n, N = dataset.m, dataset.n, dataset.n_targets
    flops = 2 * m * n * (n + penalties * N)
    return RowPass("lam", dataset, _block_penalty_errors, add, 8 * penalties, flops, share=True)


def held_out_pass(dataset: Dataset, subsets: int, size: int, columns: Ints | None = None) -> RowPass:
    """Return the pass that tests so many subsets of `size` columns on held-out rows. Arguments: W, intercepts, view."""
    flops = 2 * dataset.m * size * size * max(1, dataset.n_targets)
    return RowPass("held-out rows", dataset, _block_held_out, add, 8 * subsets, flops, columns, share=True)


def check_intercept(intercept: Intercept | None, preprocess: Preprocess) -> Intercept:
    """The intercept that goes with a preprocessing; by default "center" where that centres, else "none".

    Errors: OptionError for centring by means of all rows without the intercept that makes it exact, and the reverse.
    """
    centred = preprocess in ("standardize", "center")
    if intercept is None:
        return "center" if centred else "none"
    if centred != (intercept == "center"):
        raise OptionError(
            f"intercept {intercept} does not go with preprocess {preprocess}: leave-one-out would not be exact.",
            "center goes with standardize and center; column and none with unit and none.",
        )
    return intercept


class DatasetRows:
    """The rows of a dataset as `dsel.search.greedy.greedy_rls.LooRows`."""

    def __init__(
        self, dataset: Dataset, statistics: Statistics, preprocess: Preprocess, *, loss: Loss = "squared",
        intercept: Intercept | None = None, fill: Floats | None = None, engine: Engine = THREADS,
    ) -> None:  # fmt: skip
        if not dataset.n_targets:
            raise OptionError("Leave-one-out selection needs targets Y.", "Give Y, or choose another method.")
        self.intercept = check_intercept(intercept, preprocess)
        zero_coded = np.zeros(dataset.n_targets, bool)
        if loss == "zero-one":
            zero_coded = _zero_coded(statistics)
            statistics = _recoded(statistics, zero_coded)
        self._dataset, self._statistics, self._engine = dataset, statistics, engine
        self._preprocess = preprocess
        scaling = statistics.scaling(preprocess)
        self.view = RowView(
            scaling.center_x, scaling.scale_x, scaling.center_y, scaling.scale_y, loss, zero_coded, fill
        )
        self._cache: LooCache | None = None
        self.passes = 0

    @property
    def weight(self) -> float:
        """The sum of the rows' weights, their number without any."""
        return self._statistics.weight

    @property
    def recoded(self) -> bool:
        """Whether labels 0 and 1 count as -1 and +1."""
        return bool(self.view.zero_coded.any())

    def problem(self, lam: float) -> LooProblem:
        """What all rounds share."""
        statistics, view = self._statistics, self.view
        objective = statistics.objective(self._preprocess, lam)
        assert objective.cross is not None
        weight = statistics.weight
        sum_x = weight * (statistics.mean_x - view.center_x) / view.scale_x
        sum_y = weight * (statistics.mean_y - view.center_y) / view.scale_y
        return LooProblem(objective.K, objective.cross, sum_x, sum_y, statistics.m, weight, lam, self.intercept)

    def in_data_units(self, fit: tuple[Ints, Floats, Floats]) -> tuple[Floats, Floats]:
        """Coefficients (s, N) and intercept (N,) for X and Y as they are, from those in preprocessed units."""
        S, w, constant = fit
        view = self.view
        coefficients = w * view.scale_y / view.scale_x[S][:, None]
        intercept = constant * view.scale_y + view.center_y - view.center_x[S] @ coefficients
        half = view.zero_coded
        return np.where(half, coefficients / 2.0, coefficients), np.where(half, (intercept + 1.0) / 2.0, intercept)

    def errors(self, round: LooRound) -> Floats:
        """One pass, without one where the rows are in memory and so is the cache."""
        dataset = self._dataset
        forward = round.insert and not round.remove
        if forward and self._cache is None and would_cache(dataset):
            parts = [(b.x, load_block(b.y, dataset.target_columns), load_weights(b.w)) for b in dataset.blocks]
            self._cache = LooCache(parts, self.view, round.share)
        if forward and self._cache is not None:
            return self._cache.errors(round)
        return self._run(loo_pass(dataset, round.members.size), round=round)

    def counts(self) -> dict[str, Any]:
        """What it cost, beside passes over X."""
        return {}

    def close(self) -> None:
        """Nothing is left behind."""

    def lam_errors(self, lams: Floats, members: Ints) -> Floats:
        """One pass."""
        spectrum = lam_spectrum(self.problem(0.0), members, lams)
        return self._run(penalty_pass(self._dataset, lams.size), spectrum=spectrum)

    def _run(self, one: RowPass, **arguments: Any) -> Floats:
        self.passes += 1
        found: Floats = one.run(self._engine, view=self.view, where=self._dataset.name, **arguments)
        return found


def would_cache(dataset: Dataset) -> bool:
    """Whether rounds of insertions need no passes, the rows and what is kept of them being in memory."""
    return dataset.in_memory and cache_bytes(dataset.m, dataset.n) <= _room()


def _room() -> float:
    """Bytes that the cache may take."""
    return _CACHE_SHARE * float(psutil.virtual_memory().available)


def _zero_coded(statistics: Statistics) -> NDArray[np.bool_]:
    """(N,) targets whose labels are 0 and 1, not -1 and +1, by their sums. (Each block's labels are looked at, too.)"""
    mean = statistics.mean_y
    squares = statistics.yy / statistics.weight + mean**2
    zero_coded = np.abs(squares - mean) <= 1e-9
    both = ~zero_coded & (np.abs(squares - 1.0) > 1e-9)
    if both.any():
        raise not_labels(f"target {int(np.flatnonzero(both)[0])} has mean {mean[both][0]:.6g}")
    return np.asarray(zero_coded & ~statistics.constant_y)


def _recoded(statistics: Statistics, zero_coded: NDArray[np.bool_]) -> Statistics:
    """Statistics with 2 y - 1 in place of those targets."""
    from dataclasses import replace

    factor = np.where(zero_coded, 2.0, 1.0)
    return replace(
        statistics,
        mean_y=np.where(zero_coded, 2.0 * statistics.mean_y - 1.0, statistics.mean_y),
        B=statistics.B * factor,
        yy=statistics.yy * factor**2,
    )


def held_out_errors(
    dataset: Dataset, subsets: Sequence[tuple[Ints, Floats, Floats]], view: RowView,
    engine: Engine = THREADS,
) -> Floats:  # fmt: skip
    """(len(subsets),) errors per row (of weight 1) of held-out rows, one pass over the columns concerned.

    subsets: (members, coefficients (s, N), intercept (N,)) in preprocessed units. Errors: DataError for rows with NaN
    or infinite values in these columns or in Y, and for the zero-one loss for what is not a label.
    """
    if not subsets:
        return np.empty(0)
    columns = np.unique(np.concatenate([members for members, _, _ in subsets]))
    N = subsets[0][1].shape[1]
    W = np.zeros((columns.size, len(subsets), N))
    for i, (members, w, _) in enumerate(subsets):
        W[np.searchsorted(columns, members), i] = w
    intercepts = np.stack([intercept for _, _, intercept in subsets])
    narrow = RowView(
        view.center_x[columns], view.scale_x[columns], view.center_y, view.scale_y, view.loss, view.zero_coded,
        None if view.fill is None else view.fill[columns],
    )  # fmt: skip
    one = held_out_pass(dataset, len(subsets), columns.size, columns)
    total = one.run(engine, W=W, intercepts=intercepts, view=narrow)
    return np.asarray(total[:-1] / total[-1])


def _block_held_out(x: Any, y: Any, block: Block, W: Floats, intercepts: Floats, view: RowView) -> Floats:
    from dsel.objective.leave_one_out.block_errors import rows_of

    where = f"held-out rows {block.start} to {block.stop}"
    if not np.isfinite(np.asarray(y, np.float64)).all():
        raise DataError(f"Y of {where} has NaN or infinite values.", "Mend the held-out data.")
    targets, labels = view.targets(y, where)
    s, subsets, N = W.shape
    weights = np.ones(x.shape[0]) if block.w is None else block.w
    errors = np.zeros(subsets + 1)  # and the weight, last
    errors[-1] = weights.sum()
    step = max(16, (8 << 20) // (8 * max(s, subsets * N, 1)))
    for start in range(0, x.shape[0], step):
        w = weights[start : start + step]
        z = (rows_of(x[start : start + step], view) - view.center_x) / view.scale_x
        if not np.isfinite(z).all():
            raise DataError(
                f"X of {where} has NaN or infinite values in the chosen columns.",
                "Mend the held-out data, or set missing: mean to put the means of the data in place of NaN.",
            )
        e = targets[start : start + step, None, :] - (z @ W.reshape(s, -1)).reshape(-1, subsets, N) - intercepts
        if view.loss == "squared":
            errors[:-1] += w @ np.square(e).sum(axis=2)
        else:
            flip = labels[start : start + step, None, :] * view.scale_y * THRESHOLD
            errors[:-1] += w @ np.count_nonzero(flip * e >= 1.0, axis=2)
    return errors


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."


def held_out_store(dataset: Dataset, store: str | AnyPath) -> Dataset:
    """A store of further rows, with those targets and weights that have the names of the data's; data without weights
    are tested without any."""
    named = dataset.target_columns is not None or is_sparse(as_path(store))  # whose targets are columns of obs
    weights = dataset.weights
    stored = None if weights is None or not isinstance(weights.values, StoredArray) else weights.name
    return as_dataset(
        store, targets=dataset.targets.tolist() if named else None, sample_weight=False if weights is None else stored
    )


def held_out_dataset(dataset: Dataset, given: Any) -> Dataset:
    """Held-out rows: a store (see `held_out_store`), or a pair X, Y.

    Errors: OptionError for what is neither; DataError where columns or targets are not those of the data.
    """
    if isinstance(given, str | AnyPath):
        held_out = held_out_store(dataset, given)
    elif isinstance(given, tuple | list) and len(given) == 2:
        held_out = as_dataset(*given)
    else:
        raise OptionError(f"held_out is {type(given).__name__} {_shown(given)}.", "It is a store, or a pair X, Y.")
    if held_out.n != dataset.n or held_out.n_targets != dataset.n_targets:
        raise DataError(
            f"The held-out rows have {held_out.n} columns and {held_out.n_targets} targets, the data {dataset.n} and "
            f"{dataset.n_targets}.",
            "They must have the same ones.",
        )
    return held_out
