"""What an ingest did, and what the data are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes

from dsel._lib.text import shorten
from dsel.data.formats.base import Source
from dsel.data.labels import default_labels

if TYPE_CHECKING:
    from dsel.data.store.column_profile import ColumnProfile


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did, and what the columns hold.

    Attributes
    ----------
    shape : tuple of int
        The shape of X, (m, n).
    targets : int
        The number of columns of Y.
    dtype : str
        The dtype of X.
    chunks : tuple of int
        Rows and columns of a chunk of X; of a sparse store, the values of a chunk.
    bytes_written : int
        The size of the store on disk.
    seconds : float
        The time that the call took.
    resumed_rows : int
        The rows that an interrupted call had written before.
    types : dict of str to int
        How many columns of the source have each type.
    missing : dict of str to int
        The missing values of each column of X that has any. They are stored as NaN.
    infinite : dict of str to int
        The infinite values of each column of X that has any.
    constant : list of str
        The columns of X that have one value only, or none.
    duplicates : list of list of str
        Groups of columns of X that are equal.
    categories : dict of str to int
        For each column that became several, their number.
    classes : dict of str to list of str
        The classes of each target that became several columns.
    stored : int, optional
        The stored values of a sparse X.
    notes : list of str
        What else was done.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from dsel.data.ingest import ingest_arrays
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = ingest_arrays(np.array([[1.0, 5.0], [np.nan, 5.0]]), f"{folder}/data.zarr", features=["a", "b"])
    >>> report.missing, report.constant
    ({'a': 1}, ['a', 'b'])
    """

    shape: tuple[int, int]
    targets: int
    dtype: str
    chunks: tuple[int, ...]
    bytes_written: int
    seconds: float
    resumed_rows: int
    types: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)
    constant: Sequence[str] = ()
    duplicates: Sequence[Sequence[str]] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stored: int | None = None
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON has."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def lines(self) -> list[str]:
        """Return the report as text, one fact per line."""
        m, n = self.shape
        chunks = " x ".join(map(str, self.chunks))
        share = "" if self.stored is None else f", {self.stored:,} stored values"
        text = [
            f"{m:,} samples x {n:,} features and {self.targets} targets, {self.dtype}{share}, chunks {chunks}, "
            f"{format_bytes(self.bytes_written)} in {self.seconds:.1f} s"
        ]
        if self.resumed_rows:
            text.append(f"continued after row {self.resumed_rows:,} of an interrupted ingest")
        if self.types:
            text.append("columns: " + ", ".join(f"{count} {kind}" for kind, count in self.types.items()))
        text += [f"{name} became {count} columns of zeros and ones" for name, count in self.categories.items()]
        text += [f"target {name} has the classes {shorten(found, 20)}" for name, found in self.classes.items()]
        if self.missing:
            shown = shorten((f"{name} ({count})" for name, count in self.missing.items()), 8)
            text.append(
                f"missing values in {len(self.missing)} columns: {shown}; select with missing=mean, or ingest again "
                "with missing"
            )
        if self.infinite:
            text.append(f"infinite values, which no selection takes: {shorten(self.infinite, 8)}")
        if self.constant:
            text.append(f"constant: {shorten(self.constant, 8)}; they explain nothing")
        if self.duplicates:
            shown = shorten((" = ".join(group) for group in self.duplicates), 8)
            text.append(f"equal columns: {shown}; one of each group is enough")
        return [*text, *self.notes]


def report_of(
    source: Source, profile: ColumnProfile, chunks: tuple[int, int], size: int, seconds: float, *, resumed_rows: int
) -> IngestReport:
    """Return the report about a source that was written."""
    names = list(source.features) if source.features is not None else default_labels("x", source.shape[1])
    categories: dict[str, int] = {}
    for label, column in zip(names, source.sources or (), strict=False):
        if label != column:
            categories[column] = categories.get(column, 0) + 1
    return IngestReport(
        source.shape, source.n_targets, str(source.dtype), chunks, size, seconds, resumed_rows,
        types=dict(source.types) or {str(source.dtype): source.shape[1]},
        **profile_of(profile, names),
        duplicates=[[names[j] for j in group] for group in profile.duplicates()],
        categories=categories, classes={name: list(found) for name, found in source.classes.items()},
        notes=list(source.notes),
    )  # fmt: skip


def profile_of(profile: ColumnProfile, labels: Any) -> dict[str, Any]:
    """Return which columns have missing and infinite values, and how many, and which are constant."""
    return {
        "missing": {str(labels[j]): int(profile.missing[j]) for j in profile.missing.nonzero()[0].tolist()},
        "infinite": {str(labels[j]): int(profile.infinite[j]) for j in profile.infinite.nonzero()[0].tolist()},
        "constant": [str(labels[j]) for j in profile.constant().tolist()],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
