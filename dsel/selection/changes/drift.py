"""How far means and scales of the columns of new rows are from those of the previous run.

Each run saves the means and scales of all columns for the next one. They are those of the values that are there. The
mean of a column changes neither if it replaces missing values; the weight and the scale must leave them out.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.damage import DamagedFileError, digest_of, warn_of_damage
from dsel._lib.npz import pack_npz, read_npz
from dsel._lib.types import Floats
from dsel.config.request import Missing
from dsel.data.blocks import missing_values
from dsel.data.dataset import Dataset
from dsel.data.schema import ATTR_MISSING
from dsel.data.store.reader import Store
from dsel.errors import DselError
from dsel.passes.gram import mean_sums, means_pass
from dsel.passes.moments import merge_present
from dsel.passes.statistics import ColumnScales
from dsel.selection.context import RunContext
from dsel.selection.render import LARGE_SHIFT
from dsel.storage.paths import AnyPath, write_bytes

#: The file of a run with the means and scales of its columns.
COLUMNS = "columns.npz"
#: The number of columns with the largest drift that are listed next to the chosen ones.
_LISTED = 5
#: Less weight than this share of all is the rounding of a difference.
_ROUNDING = 1e-12
#: The mean of a constant column, and its deviation, change by this share of the mean at most because of rounding.
_SAME = 1e-7


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """Weights, means and squares of the columns of X about their means.

    Parameters
    ----------
    weight : float
        The sum of the weights of the rows.
    mean_x, squares_x : ndarray of shape (n,)
        Of the columns.
    present : ndarray of shape (n,)
        The weight of the values of each column that are not missing; NaN where it is not known.
    labels : str
        A digest of the labels of the columns; empty if it is not known.
    appends : tuple of str
        The rows and the time of each append to the store; empty if they are not known.
    """

    weight: float
    mean_x: Floats
    squares_x: Floats
    present: Floats
    labels: str = ""
    appends: tuple[str, ...] = ()

    @classmethod
    def of(cls, statistics: ColumnScales, present: Floats, dataset: Dataset) -> ColumnSummary:
        """Return the summary of the statistics of a run on the data."""
        labels = digest_of("\0".join(map(str, dataset.features)).encode())
        squares = np.asarray(statistics.squares)
        return cls(statistics.weight, statistics.mean_x, squares, present, labels, appends_of(dataset))

    def save(self, file: AnyPath) -> None:
        """Write the summary; readers see all of it or nothing."""
        write_bytes(file, pack_npz({name: np.asarray(value) for name, value in self.__dict__.items()}))

    @classmethod
    def open(cls, file: AnyPath, missing: Missing) -> ColumnSummary | None:
        """Return a saved summary, or None if there is none or it is damaged. missing: the option of its run."""
        try:
            values: dict[str, Any] = read_npz(io.BytesIO(file.read_bytes()))
            weight, mean, squares = float(values["weight"]), values["mean_x"], values["squares_x"]
        except (OSError, LookupError, DselError):
            return None
        except DamagedFileError as error:
            warn_of_damage(file, "the columns are not compared with those of that run", error)
            return None
        older = np.full(mean.size, weight if missing == "refuse" else np.nan)  # earlier versions saved no such weights
        labels, appends = str(values.get("labels", "")), tuple(map(str, values.get("appends", ())))  # nor these
        return cls(weight, mean, squares, values.get("present", older), labels, appends)

    def has_columns_of(self, other: ColumnSummary) -> bool:
        """Return whether both are of the same columns in the same order."""
        return self.mean_x.size == other.mean_x.size and self.labels in ("", other.labels)

    @property
    def deviations(self) -> Floats:
        """Return (n,) the standard deviations of the values that are there; 0 without any."""
        there = self.present > 0.0
        variances = np.divide(self.squares_x, self.present, out=np.zeros(self.mean_x.shape), where=there)
        return np.asarray(np.sqrt(variances))

    def without(self, before: ColumnSummary) -> ColumnSummary:
        """Return the summary of the rows that came after `before`.

        Sums of squares about means merge as in Chan, Golub and LeVeque (1979). This takes a part out again. O(n).
        """
        present = self.present - before.present
        present[np.abs(present) <= _ROUNDING * self.weight] = 0.0
        some = np.where(present > 0.0, present, 1.0)
        mean = (self.present * self.mean_x - before.present * before.mean_x) / some
        share = np.divide(before.present * present, self.present, out=np.zeros(mean.size), where=self.present > 0.0)
        squares = self.squares_x - before.squares_x - share * (mean - before.mean_x) ** 2
        return ColumnSummary(self.weight - before.weight, mean, np.maximum(squares, 0.0), present)


def appends_of(dataset: Dataset) -> tuple[str, ...]:
    """Return the rows and the time of each append to a store, in order; empty where they are not recorded."""
    segments = () if dataset.store is None else dataset.store.segments
    appends = [one for segment in segments for one in segment.appends or ((segment.rows, segment.time),)]
    return tuple(f"{rows} {time}" for rows, time in appends) if all(time for _, time in appends) else ()


def weight_of_values(dataset: Dataset, missing: Missing, weight: float, context: RunContext) -> Floats:
    """Return (n,) the weight of the values of each column that are not missing; NaN where nothing tells it.

    The pass for the means that replace missing values has summed it, and the cache has these sums. weight: of all rows.
    """
    if missing == "refuse" or _is_complete(dataset):
        return np.full(dataset.n, weight)
    sums = mean_sums(dataset, context.cache)
    if not sums.missing:
        found = sums.total(lambda ranges: means_pass(dataset, ranges).run_ranges(context.engine), merge_present)
        return np.asarray(found.weight)
    counts = missing_values(dataset.blocks, dataset.n) if dataset.weights is None else None
    return np.full(dataset.n, np.nan) if counts is None else np.asarray(weight - counts)


def _is_complete(dataset: Dataset) -> bool:
    store = dataset.store
    return isinstance(store, Store) and store.attributes.get(ATTR_MISSING) == 0 and not store.unwritten_chunks()[0]


def drift(
    before: ColumnSummary, now: ColumnSummary, labels: Sequence[Any], chosen: Sequence[int], appended: bool
) -> dict[str, Any]:
    """Return the drift of the chosen columns and of those with the largest one.

    Parameters
    ----------
    before, now : ColumnSummary
        Means and scales of the previous run and of this one.
    labels : sequence
        The labels of the columns.
    chosen : sequence of int
        The chosen columns.
    appended : bool
        Whether the rows of this run are those of the previous one, with the same weights, and new ones. Then the new
        rows are compared with the old ones, else all rows with all rows.

    Returns
    -------
    dict
        rows: what is compared, "new" or "all". columns: for each listed column its label, the shift of its mean in
        standard deviations, and the ratio of its standard deviations. largest_shift: over all columns; None if it is
        known of none. moved: the number of columns that moved by LARGE_SHIFT or more. unknown: the number of columns
        whose drift is not known. why_unknown: why, in words.
    """
    new = appended and now.weight > before.weight
    later = now.without(before) if new else now
    counted = np.isfinite(before.present) & np.isfinite(now.present)
    there = counted & (later.present > 0.0) & (before.present > 0.0)
    old = before.deviations
    constant = there & (old <= _ROUNDING * np.abs(before.mean_x))
    distance = np.maximum(np.abs(later.mean_x - before.mean_x), later.deviations)
    varies, known = there & ~constant, there & (~constant | (distance <= _SAME * np.abs(before.mean_x)))
    scale = np.where(varies, old, 1.0)
    shift = np.where(varies, (later.mean_x - before.mean_x) / scale, 0.0)
    ratio = np.where(varies, later.deviations / scale, 1.0)
    largest = np.argsort(-np.abs(shift), kind="stable")[:_LISTED]
    listed = [j for j in dict.fromkeys([*(int(j) for j in chosen), *(int(j) for j in largest)]) if known[j]]
    return {
        "rows": "new" if new else "all",
        "columns": [
            {"label": str(labels[j]), "shift": float(shift[j]), "scale_ratio": float(ratio[j]), "chosen": j in chosen}
            for j in listed
        ],
        "largest_shift": float(np.abs(shift).max(initial=0.0)) if known.any() else None,
        "moved": int((np.abs(shift) >= LARGE_SHIFT).sum()),
        "unknown": int((~known).sum()),
        "why_unknown": " or ".join(_why_unknown(counted, there, known, new)) or None,
    }


def _why_unknown(
    counted: NDArray[np.bool_], there: NDArray[np.bool_], known: NDArray[np.bool_], new: bool
) -> Iterator[str]:
    if not counted.all():
        yield "with missing: mean it needs the number of values that are there, which is not saved for both runs"
    if (counted & ~there).any():
        yield f"{'the new or the earlier' if new else 'these or the earlier'} rows have no value"
    if (there & ~known).any():
        yield "it was constant in the earlier rows"
