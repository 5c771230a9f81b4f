"""The previous run, as the next one needs it: its selection, and the means and scales of all columns."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel._lib.npz import pack_npz, read_npz
from dsel._lib.types import Floats
from dsel.data.labels import Labels
from dsel.errors import DselError
from dsel.passes.statistics import ColumnScales
from dsel.selection.result import Selection, open_selection
from dsel.storage.paths import AnyPath, write_bytes

#: The file of a run with the means and scales of its columns.
COLUMNS = "columns.npz"


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """Means and squares of the columns of X and Y about their means, with the rows that they are from.

    Parameters
    ----------
    m : int
        The number of rows.
    weight : float
        The sum of their weights.
    mean_x, squares_x : ndarray of shape (n,)
        Of the columns of X.
    mean_y, squares_y : ndarray of shape (N,)
        Of the targets.
    """

    m: int
    weight: float
    mean_x: Floats
    squares_x: Floats
    mean_y: Floats
    squares_y: Floats

    @classmethod
    def of(cls, statistics: ColumnScales) -> ColumnSummary:
        """Return the summary of the statistics of a run."""
        return cls(
            statistics.m, statistics.weight, statistics.mean_x, np.asarray(statistics.squares), statistics.mean_y,
            statistics.yy,
        )  # fmt: skip

    def save(self, file: AnyPath) -> None:
        """Write the summary; readers see all of it or nothing."""
        write_bytes(file, pack_npz({name: np.asarray(value) for name, value in self.__dict__.items()}))

    @classmethod
    def open(cls, file: AnyPath) -> ColumnSummary | None:
        """Return a saved summary, or None if there is none or it is damaged."""
        try:
            values: dict[str, Any] = read_npz(io.BytesIO(file.read_bytes()), tuple(cls.__dataclass_fields__))
        except (OSError, DselError):
            return None
        except DamagedFileError as error:
            warn_of_damage(file, "the columns are not compared with those of that run", error)
            return None
        return cls(**{**values, "m": int(values["m"]), "weight": float(values["weight"])})


@dataclass(frozen=True, eq=False)
class PreviousRun:
    """The last good run of the same job.

    Parameters
    ----------
    name : str
        The name of its folder.
    selection : Selection
        Its result.
    columns : ColumnSummary, optional
        Means and scales of its columns.
    """

    name: str
    selection: Selection
    columns: ColumnSummary | None = None

    @classmethod
    def open(cls, folder: AnyPath) -> PreviousRun:
        """Return the run in a folder. Raises the errors of `open_selection`."""
        return cls(folder.name, open_selection(folder), ColumnSummary.open(folder / COLUMNS))

    def subsets(self, features: Labels) -> tuple[tuple[int, ...], ...]:
        """Return the subsets of its front and its answer as columns of data with these labels, found by label.

        A subset with a column that the data do not have is left out.
        """
        selection = self.selection
        place = {str(label): j for j, label in enumerate(features)}
        rows = [row.indices for row in selection.front if row.indices]
        found = []
        for indices in (*rows, selection.indices):
            members = [place.get(selection.label(j), -1) for j in indices]
            if members and min(members) >= 0:
                found.append(tuple(sorted(members)))
        return tuple(dict.fromkeys(found))
