"""What an ingest did, and what the data are like.

A `ColumnProfile` gathers what the columns of X hold while they are written: missing values, constants, equal columns.
"""

from __future__ import annotations

import base64
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.npz import pack_npz, read_npz
from dsel._lib.text import counted, noun, shorten
from dsel.data.dataset import Dataset
from dsel.data.formats.source import Source, SparseSource
from dsel.data.labels import by_source, column_of, default_labels
from dsel.data.schema import ATTR_MISSING_TARGETS

#: Lines of an IngestReport in its short form.
_REPR_LINES: Final = 20
_ONE: Final = {"categories": "category", "dates as text": "date as text", "numbers as text": "number as text"}
_AGAIN: Final = "ingest again with missing=rows (--missing rows), which leaves these rows out"
#: What helps where targets are missing.
WITHOUT_TARGETS: Final = f"no selection takes them: {_AGAIN}"
WITHOUT_SOME_TARGETS: Final = f"no selection of such a target takes them: {_AGAIN}"


@dataclass(frozen=True, kw_only=True)
class WriteReport:
    """What the reports of an ingest and of an append have in common."""

    shape: tuple[int, int]
    bytes_written: int = 0
    seconds: float = 0.0
    resumed_rows: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    missing_targets: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)
    constant: Sequence[str] = ()
    categories: Mapping[str, int] = field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def _missing_values(self, of: str = "") -> str:
        """Return in how many columns of the source values are missing, and how many."""
        return f"missing values in {counted(len(self.missing), 'column')}{of}: {shown_counts(self.missing)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON has."""
        report: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return report


@dataclass(frozen=True, kw_only=True, repr=False)
class IngestReport(WriteReport):
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
    types, target_types : dict of str to int
        How many columns of the source have each type: those of X, and targets of a table.
    missing : dict of str to int
        The missing values of each column of the source that has any. They are stored as NaN, those of a category in
        each of its columns of X.
    missing_targets : dict of str to int
        The missing values of each target that has any. No selection takes them.
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

    targets: int
    dtype: str
    chunks: tuple[int, ...]
    types: Mapping[str, int] = field(default_factory=dict)
    target_types: Mapping[str, int] = field(default_factory=dict)
    duplicates: Sequence[Sequence[str]] = ()
    stored: int | None = None

    def __repr__(self) -> str:
        lines = self.lines()
        more = [f"and {len(lines) - _REPR_LINES + 1} more lines, which lines() returns"]
        return "\n".join(lines if len(lines) <= _REPR_LINES else [*lines[: _REPR_LINES - 1], *more])

    def lines(self) -> list[str]:
        """Return the report as text, one fact per line."""
        m, n = self.shape
        chunks = " x ".join(map(str, self.chunks))
        share = "" if self.stored is None else f", {self.stored:,} stored {noun(self.stored, 'value')}"
        text = [
            f"{m:,} samples x {n:,} {noun(n, 'feature')} and {self._counted_targets()}, {self.dtype}{share}, "
            f"chunks {chunks}, {format_bytes(self.bytes_written)} in {self.seconds:.1f} s"
        ]
        if self.resumed_rows:
            text.append(f"continued after row {self.resumed_rows:,} of an interrupted ingest")
        if self.types:
            targets = f"; targets: {_kinds(self.target_types)}" if self.target_types else ""
            text.append(f"columns: {_kinds(self.types)}{targets}")
        text += [
            f"{name} became {counted(count, 'column')} of zeros and ones" for name, count in self.categories.items()
        ]
        text += [f"target {name} has the classes {shorten(found, 20)}" for name, found in self.classes.items()]
        if self.missing:
            text.append(f"{self._missing_values()}; select with missing=mean, or {_AGAIN}")
        if self.missing_targets:
            text.append(self._without_targets())
        if self.infinite:
            text.append(f"infinite values, which no selection takes: {shorten(self.infinite, 8)}")
        if self.constant:
            explains = "it explains" if len(self.constant) == 1 else "they explain"
            text.append(f"constant: {shorten(self.constant, 8)}; {explains} nothing next to an intercept")
        if self.duplicates:
            shown = shorten((" = ".join(group) for group in self.duplicates), 8)
            text.append(f"equal columns: {shown}; one of each group is enough")
        return [*text, *self.notes]

    def _counted_targets(self) -> str:
        """Return how many targets of the source there are, and of how many classes, or in how many columns of Y."""
        text = counted(self._count, "target")
        if not self.classes:
            return text
        return f"{text} of {self.targets} classes" if self._count == 1 else f"{text} in {self.targets} columns"

    @property
    def _count(self) -> int:
        """The number of targets of the source."""
        return self.targets - sum(len(found) - 1 for found in self.classes.values())

    def _without_targets(self) -> str:
        missing, remedy = self.missing_targets, WITHOUT_TARGETS
        if self._count > len(missing):
            remedy = f"no selection of {shorten(missing, 8)} takes them: select other targets, or {_AGAIN}"
        return f"missing values in {counted(len(missing), 'target')}: {shown_counts(missing)}; {remedy}"


def missing_targets(dataset: Dataset) -> str:
    """Return how many targets were missing when a store was written, and what helps; "" if there are none."""
    count = dataset.recorded(ATTR_MISSING_TARGETS) if dataset.n_targets and not dataset.has_given_targets else 0
    verb = "is" if count == 1 else "are"
    all_used = dataset.n_targets < 2 and dataset.target_columns is None
    remedy = WITHOUT_TARGETS if all_used else WITHOUT_SOME_TARGETS
    return f"{counted(count, 'value')} of the targets {verb} missing; {remedy}" if count else ""


def _kinds(types: Mapping[str, int]) -> str:
    """Return how many columns have each type, in words."""
    return ", ".join(f"{count} {_ONE.get(kind, kind) if count == 1 else kind}" for kind, count in types.items())


def shown_counts(missing: Mapping[str, int]) -> str:
    """Return counts by name as text."""
    return shorten((f"{name} ({count})" for name, count in missing.items()), 8)


def report_of(
    source: Source | SparseSource, profile: ColumnProfile | None, chunks: tuple[int, ...], size: int, seconds: float,
    resumed_rows: int,
) -> IngestReport:  # fmt: skip
    """Return the report about a source that was written. profile: what the columns of a dense X hold."""
    names = list(source.features) if source.features is not None else default_labels("x", source.shape[1])
    pairs = zip(names, source.sources or (), strict=False)
    details: dict[str, Any] = {}
    if profile is not None:
        duplicates = [[names[j] for j in group] for group in profile.duplicates()]
        of_profile = profile_of(profile, names, source.sources, source.targets, source.classes)
        details = {**of_profile, "duplicates": duplicates}
    notes, targets, stored = list(source.notes), len(source.targets or ()), None
    if isinstance(source, Source):
        targets = source.n_targets
    else:
        stored = source.stored
        notes += [f"targets are {', '.join(source.targets)}"] if source.targets else []
    return IngestReport(
        shape=source.shape, targets=targets, dtype=str(source.dtype), chunks=chunks, bytes_written=size,
        seconds=seconds, resumed_rows=resumed_rows, types=dict(source.types) or {str(source.dtype): source.shape[1]},
        target_types=dict(source.target_types),
        categories=dict(Counter(column for label, column in pairs if label != column)), stored=stored, notes=notes,
        classes={name: list(found) for name, found in source.classes.items()}, **details,
    )  # fmt: skip


def profile_of(
    profile: ColumnProfile, labels: Any, sources: Any, targets: Any, classes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return which columns and targets have missing and infinite values, and how many, and which are constant.

    sources: for each column of X the column of the source, or None if these are the labels. classes: the targets that
    became several columns.
    """
    missing = profile.missing_targets.tolist()
    names = default_labels("y", len(missing)) if targets is None else targets
    return {
        "missing_targets": by_source(missing, names, [column_of(str(name), classes) for name in names]),
        "missing": by_source(profile.missing.tolist(), labels, sources),
        "infinite": {str(labels[j]): int(profile.infinite[j]) for j in profile.infinite.nonzero()[0].tolist()},
        "constant": [str(labels[j]) for j in profile.constant().tolist()],
    }


Array = NDArray[Any]

_PIECE_BYTES: Final = 500_000  # the copies of a piece fit into the cache
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class ColumnProfile:
    """Counts and extremes of each column, and a digest by which equal columns are found.

    Attributes
    ----------
    missing, infinite : ndarray of int, shape (n,)
        How many values are NaN, and how many are infinite.
    low, high : ndarray of float, shape (n,)
        The smallest and the largest value that is not NaN.
    digest : ndarray of uint64, shape (n,)
        A sum over the rows that is the same for equal columns, and for others with probability 2**-64.
    missing_targets : ndarray of int, shape (N,)
        How many values of each target are NaN.
    """

    missing: NDArray[np.int64]
    infinite: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    digest: NDArray[np.uint64]
    missing_targets: NDArray[np.int64]

    def missing_once(self, sources: Iterable[str] | None) -> int:
        """Return how many values of X were missing. Those of the columns that were made of a category count once."""
        return sum(by_source(self.missing.tolist(), range(self.missing.size), sources).values())

    @classmethod
    def empty(cls, n: int, n_targets: int = 0) -> ColumnProfile:
        """Return the profile of n columns and some targets without rows."""
        zeros = np.zeros(n, np.int64)
        return cls(
            zeros,
            zeros.copy(),
            np.full(n, np.inf),
            np.full(n, -np.inf),
            np.zeros(n, np.uint64),
            np.zeros(n_targets, np.int64),
        )

    @classmethod
    def from_text(cls, text: str) -> ColumnProfile:
        """Return the profile that `to_text` has written."""
        found = read_npz(io.BytesIO(base64.b85decode(text)))
        return cls(**{field.name: found[field.name] for field in fields(cls)})

    def to_text(self) -> str:
        """Return the profile as text, for the progress file."""
        return base64.b85encode(pack_npz(vars(self), compressed=True)).decode()

    def add(self, x: Array, first_row: int, y: Array | None = None) -> None:
        """Add rows of X, the first of which is row `first_row`, and those of the targets."""
        if y is not None and y.dtype.kind == "f":
            self.missing_targets += np.isnan(y).sum(axis=0)
        step = max(1, _PIECE_BYTES // max(1, x.shape[1] * 8))
        for start in range(0, len(x), step):
            self._add_piece(np.asarray(x[start : start + step]), first_row + start)

    def constant(self) -> NDArray[np.int64]:
        """Return the columns without two different values."""
        return np.flatnonzero((self.low == self.high) | (self.low > self.high))

    def duplicates(self) -> list[list[int]]:
        """Return groups of columns that are equal in every row; constant columns are left out."""
        groups: defaultdict[tuple[int, float, float, int], list[int]] = defaultdict(list)
        keys = zip(self.digest.tolist(), self.low.tolist(), self.high.tolist(), self.missing.tolist(), strict=True)
        for j, key in enumerate(keys):
            if key[1] < key[2]:
                groups[key].append(j)
        return [group for group in groups.values() if len(group) > 1]

    def _add_piece(self, x: Array, first_row: int) -> None:
        bits = _bits(x)
        rows = _mixed(np.arange(first_row + 1, first_row + 1 + len(x), dtype=np.uint64)) | np.uint64(1)
        self.digest += (_mixed(bits) * rows[:, None]).sum(axis=0, dtype=np.uint64)
        is_nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros((), bool)
        if is_nan.any():
            self.missing += is_nan.sum(axis=0)
            low, high = np.where(is_nan, np.inf, x).min(axis=0), np.where(is_nan, -np.inf, x).max(axis=0)
        else:
            low, high = x.min(axis=0), x.max(axis=0)
        if np.isinf(low).any() or np.isinf(high).any():
            self.infinite += np.isinf(x).sum(axis=0)
        np.minimum(self.low, low, out=self.low)
        np.maximum(self.high, high, out=self.high)


def _bits(x: Array) -> NDArray[np.uint64]:
    """Return 64 bits for each value: equal numbers of one array have equal bits, and all NaN have the same."""
    if x.dtype.kind != "f":
        return x.astype(np.int64 if x.dtype.kind == "i" else np.uint64).view(np.uint64)
    values = x.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return bits of which each depends on all of the given ones, as in SplitMix64."""
    bits = bits * _MIX
    bits ^= bits >> np.uint64(32)
    bits *= _MIX
    bits ^= bits >> np.uint64(29)
    return bits
