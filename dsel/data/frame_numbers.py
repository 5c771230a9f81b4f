"""Data frames in memory as matrices of numbers, with the same columns as in a store of `dsel.ingest`.

Frames of numbers of one kind are used as they are; all others are read as Arrow tables by the code that ingests tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.console import warn_caller
from dsel._lib.text import counted, shorten
from dsel.config.ingest_request import Dates, SourceOptions
from dsel.config.request import Categories, Missing
from dsel.data.classes import CLASS_DTYPES, class_labels, one_hot
from dsel.data.formats.source import Rows
from dsel.data.formats.tables import arrow
from dsel.data.formats.tables.encoders import indicators, rounded_names
from dsel.data.formats.tables.scan import (
    IDENTIFIER_ROWS,
    as_words,
    beyond_floats,
    has_levels,
    is_date_type,
    is_number_type,
    likely_mistake,
    number_values,
    rounding_note,
)
from dsel.data.formats.tables.source import TableSource
from dsel.data.formats.tables.table import AUTO, TRUTH_WORDS, as_days
from dsel.data.frames import frame_labels, is_series, one_column
from dsel.data.labels import Labels, as_labels, column_of, index_words, is_a
from dsel.data.schema import SOURCE
from dsel.errors import DataError

#: Columns of more frames than this are not examined for likely mistakes.
_MOST_EXAMINED: Final = 1000


@dataclass(frozen=True)
class Numbers:
    """A frame as numbers.

    Parameters
    ----------
    values : ndarray or Dask array, shape (m, n)
        The numbers, NaN where a value is missing.
    labels : list of str, optional
        The labels of the columns; None if they are those of the frame.
    coordinates : dict of str to ndarray of str
        For each column that of the frame that it comes from (`source`), if some became several.
    notes : tuple of str
        What the user should know.
    left_out : tuple of str
        Columns of the frame that are not converted, because they are excluded and hold no numbers.
    whole : tuple of str
        Columns of integers of 8 bytes whose values are not known yet.
    """

    values: Any
    labels: list[str] | None = None
    coordinates: dict[str, Labels] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


def numbers_of(
    data: Any, what: str, categories: Categories = "columns", dates: Dates = "refuse",
    exclude: Sequence[str | int] = (), missing: Missing = "refuse",
) -> Numbers:  # fmt: skip
    """Return X as numbers, if it is a frame or a Series; anything else as it is.

    Booleans count as 0 and 1. Text and categories become a column of zeros and ones for each value. A Dask frame is
    read once for the lengths of its partitions, and once more for its text and categories. Columns that `exclude` names
    are left out if they hold no numbers. missing: with "refuse", errors list missing values, too. Errors: DataError
    that names the columns that cannot be used.
    """
    data = one_column(data, what)
    if frame_labels(data) is None:
        return Numbers(data)
    is_pandas, is_x = is_a(data, "pandas", "DataFrame"), what == "X"
    plain = (is_pandas or arrow.is_dask_frame(data)) and _is_plain(set(data.dtypes))
    if plain and is_pandas:
        values = np.asarray(data.to_numpy())
        if not is_x:
            return Numbers(values, notes=_rounded(data, "target"))
        excluded = _named(exclude, frame_labels(data) or [])
        judged = data.loc[:, [str(name) not in excluded for name in data.columns]]
        return Numbers(values, notes=_rounded(judged, "column") + _mistakes(judged))
    if plain:
        whole = tuple(str(data.columns[j]) for j in _long_integers(data))
        return Numbers(data.to_dask_array(lengths=True), whole=whole)
    table = arrow.frame_table(data, what)
    kinds = dict(zip(table.names, table.types, strict=True))
    unwanted = {table.names[j] if isinstance(j, int) and 0 <= j < len(table.names) else j for j in exclude}
    left_out = tuple(name for name, kind in kinds.items() if name in unwanted and not is_number_type(kind))
    named = [name for name, kind in kinds.items() if has_levels(kind) and name not in left_out]
    named = [name for name in named if name not in getattr(table, "unusable", ())]
    if categories == "refuse" and dates != "days":
        _refuse_categories(named, what)
    options = SourceOptions(categorical=(AUTO,), dates=dates, drop=left_out)
    source = TableSource(table, replace(options, missing="mean") if missing == "mean" else options)
    if categories == "refuse":
        _refuse_categories([e.scan.name for e in source.encoders.features if e.levels is not None], what)
    coordinates = {} if source.sources is None else {SOURCE: as_labels(source.sources)}
    values = _lazily(data, source) if arrow.is_dask_frame(data) else _values(source)
    notes = rounding_note(rounded_names(source.encoders.features), "target")
    if is_x:
        notes = source.notes_without(_named(exclude, source.features))
    return Numbers(values, source.features, coordinates, notes, left_out)


def _named(columns: Sequence[str | int], labels: Sequence[str]) -> set[str]:
    """Return columns as labels, where whole numbers are positions among these."""
    known = {j: label for i, label in enumerate(labels) for j in (i, i - len(labels))}
    return {column if isinstance(column, str) else known.get(column, "") for column in columns}


def _refuse_categories(named: Sequence[str], what: str) -> None:
    if named:
        count = counted(len(named), "column")
        raise DataError(
            f"{count} of {what} {'holds' if len(named) == 1 else 'hold'} text or categories: "
            f"{shorten(map(repr, named))}.",
            'Leave them out, or use categories="groups".',
        )


def _is_plain(dtypes: set[Any]) -> bool:
    """Return whether columns of these dtypes together are an array of numbers in NumPy."""
    numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "fiu" for dtype in dtypes)
    return numbers or dtypes == {np.dtype(bool)}


def _rounded(frame: Any, word: str) -> tuple[str, ...]:
    """Return a note on columns or targets of whole numbers that floats cannot hold."""
    large = [j for j in _long_integers(frame) if beyond_floats(frame.iloc[:, j].to_numpy())]
    return rounding_note([str(frame.columns[j]) for j in large], word)


def _long_integers(frame: Any) -> list[int]:
    return [j for j, dtype in enumerate(frame.dtypes) if dtype.kind in "iu" and dtype.itemsize == 8]


def _mistakes(frame: Any) -> tuple[str, ...]:
    """Return what to do with columns of whole numbers that look like codes or identifiers."""
    if frame.shape[1] > _MOST_EXAMINED:
        return ()
    head = frame.head(IDENTIFIER_ROWS)
    found = (likely_mistake(str(head.columns[j]), head.iloc[:, j].to_numpy()) for j in range(head.shape[1]))
    return tuple(note for note in found if note)


def _values(source: TableSource) -> NDArray[Any]:
    """Return all rows of X of a source."""
    rows = Rows.of(source, source.shape[0])
    reader = source.open(0, Path())
    reader.fill(rows)
    reader.close()
    return rows.x


def _lazily(frame: Any, source: TableSource) -> Any:
    """Return a Dask frame as a Dask array of the columns that its source has."""
    import pandas as pd

    where, rowless = source.table.where, source.of_table(arrow.ArrowFrame(arrow.arrow_table(frame.head(0))[0]))
    meta = pd.DataFrame(np.empty((0, source.shape[1]), source.dtype), columns=source.features)
    return frame.map_partitions(_encoded, rowless, where, meta=meta).to_dask_array(lengths=True)


def _encoded(part: Any, source: TableSource, where: str) -> Any:
    """Return a partition of a Dask frame as numbers, in the columns of a source."""
    table = arrow.ArrowFrame(arrow.arrow_table(part, keep_index=False)[0], where=where)
    values = _values(source.of_table(table))
    return type(part)(values, index=part.index, columns=source.features)


def with_columns(frame: Any, wanted: Sequence[str], dates: Dates, complete: Mapping[str, str] | None = None) -> Any:
    """Return a frame with its columns of these labels as `numbers_of` makes them: indicators of categories, and days.

    An indicator `column=value` is 0 in rows of any other value, and NaN where the value is missing. Labels that the
    frame cannot give are left out. complete: columns all of whose known values are wanted, each with the value that
    stands for others, which give a warning.
    Errors: DataError for dates that are not days, and numbers in place of categories.
    """
    if arrow.is_dask_frame(frame):
        meta = with_columns(frame._meta, wanted, dates)
        return frame if meta is frame._meta else frame.map_partitions(with_columns, wanted, dates, complete, meta=meta)
    own = dict(zip(index_words(frame.columns), frame.columns, strict=True))
    made: dict[str, NDArray[Any]] = {}
    levels: dict[str, list[str]] = {}
    for label in wanted:
        source = column_of(label, own)
        if label in own and not _holds_numbers(frame[own[label]]):
            column = _arrow_column(frame, own[label])
            days = _days(column, label, dates)
            numbers = _truth_values(column) if days is None else days
            made |= {} if numbers is None else {label: numbers}
        elif label not in own and source != label:
            levels.setdefault(source, []).append(label[len(source) + 1 :])
    for name, values in levels.items():
        column = _as_categories(_arrow_column(frame, own[name]), values)
        if not (has_levels(column.type) or str(column.type) == "null"):
            raise DataError(
                f"Column {name!r} of X is of type {column.type}, and the selection has its values as categories.",
                "Make it text or a category.",
            )
        found = np.asarray(indicators(column, values), np.float64)
        made |= {f"{name}={value}": found[:, i] for i, value in enumerate(values)}
        unknown = np.flatnonzero(found.sum(axis=1) == 0.0)
        if complete and name in complete and unknown.size:
            warn_of_new_value(name, column[int(unknown[0])].as_py(), complete[name])
    if not made:
        return frame
    if is_a(frame, "polars", "DataFrame"):
        return frame.with_columns(**made)
    import pandas as pd

    kept = frame.drop(columns=[own[label] for label in made if label in own])
    return pd.concat([kept, pd.DataFrame(made, index=frame.index)], axis=1)


def _as_categories(column: Any, levels: Sequence[str]) -> Any:
    """Return whole numbers as text if they are the values of a category, whose numbers a text file has as numbers.

    They are if each is a level, or if all of both are whole numbers.
    """
    if not is_number_type(column.type) or str(column.type) in ("null", "bool"):
        return column
    words = as_words(column)
    found = set(words.drop_null().to_pylist())
    fits = found <= set(levels) or all(word.lstrip("-").isdigit() for word in {*found, *levels})
    return words if fits else column


def warn_of_new_value(name: str, value: Any, reference: str) -> None:
    """Warn that a column holds a value of a category that no row of the selection had.

    reference: the value whose coefficient is 0; empty if there is none.
    """
    stands = f"{reference!r}, whose coefficient is 0" if reference else "a value of coefficient 0"
    warn_caller(
        f"Column {name!r} has values that the selection was not made from, such as {value!r}: they predict as {stands}."
    )


def _holds_numbers(column: Any) -> bool:
    """Return whether a column has a dtype of numbers; several columns of one name count, too."""
    return getattr(column, "ndim", 1) != 1 or getattr(column.dtype, "kind", "O") in "fiub"


def _arrow_column(frame: Any, name: Any) -> Any:
    return arrow.arrow_table(frame[[name]], keep_index=False)[0].column(0).combine_chunks()


def _days(column: Any, name: str, dates: Dates) -> NDArray[Any] | None:
    """Return dates as days, also those in text; None for anything else. Errors: DataError if dates are refused."""
    if has_levels(column.type) and dates == "days":
        days, bad = as_days(as_words(column))
        return None if bad.any() else days
    if not is_date_type(column.type):
        return None
    if dates != "days":
        raise DataError(
            f"Column {name!r} of X holds dates or times ({column.type}), and the selection was made from numbers.",
            'Convert it as those were, or select with dates="days".',
        )
    return number_values(column)


def _truth_values(column: Any) -> NDArray[Any] | None:
    """Return text that consists of words for true and false as 1 and 0; None for anything else."""
    import pyarrow.compute as pc

    if not has_levels(column.type):
        return None
    words = pc.utf8_lower(as_words(column))
    if not set(pc.unique(words).drop_null().to_pylist()) <= TRUTH_WORDS:
        return None
    return np.asarray(pc.equal(words, "true").cast("float64").to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Targets:
    """Targets as numbers.

    Parameters
    ----------
    Y : array-like
        The targets: what was given, or columns of 0 and 1 for classes.
    labels : list of str, optional
        The names of these columns; None if they are those of Y.
    classes : dict of str to list of str
        The classes of each target that holds classes.
    """

    Y: Any
    labels: list[str] | None = None
    classes: dict[str, list[str]] = field(default_factory=dict)


def with_days(Y: Any) -> Any:
    """Return targets with dates, times and durations as days since 1970, as a frame or Series of pandas.

    Others, and those of Dask, are returned as they are.
    """
    frame = Y.to_frame() if is_series(Y) else Y
    if frame_labels(frame) is None or arrow.is_dask_frame(frame):
        return Y
    table = arrow.arrow_table(frame, keep_index=False)[0]
    if not any(map(is_date_type, table.schema.types)):
        return Y
    import pandas as pd

    parts = {
        name: number_values(column.combine_chunks()) if is_date_type(column.type) else column.to_pandas()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    found = pd.DataFrame(parts)
    return found.iloc[:, 0] if is_series(Y) else found


def targets_of(Y: Any, dates: Dates = "refuse") -> Targets:
    """Return targets as numbers: text, booleans of text and categories are classes (`one_hot`).

    Errors: DataError where a class is missing, or there is only one.
    """
    if Y is None or not _holds_classes(Y):
        return Targets(Y)
    Y = Y.compute() if hasattr(Y, "compute") else Y
    if is_a(Y, "pyarrow", "Table"):
        Y = Y.to_pandas()
    labels = frame_labels(Y)
    if labels is not None:
        columns = [(name, Y[name]) for name in Y.columns]
    elif np.ndim(Y) > 1:
        values = np.asarray(Y)
        columns = [(f"y{j}", values[:, j]) for j in range(values.shape[1])]
    else:
        columns = [(getattr(Y, "name", None) or "y", Y)]
    parts: dict[str, NDArray[Any]] = {}
    classes: dict[str, list[str]] = {}
    for name, column in columns:
        found = class_labels(column)
        if found is None:
            parts[str(name)] = np.asarray(numbers_of(column, "Y", dates=dates).values).reshape(len(column))
            continue
        indicators, levels = one_hot(found, f"{name}=")
        parts |= indicators
        classes[str(name)] = [str(level) for level in levels.tolist()]
    stacked = np.column_stack(list(parts.values()))
    flat = labels is None and stacked.shape[1] == 1
    return Targets(stacked[:, 0] if flat else stacked, list(parts), classes)


def _holds_classes(Y: Any) -> bool:
    """Return whether a column of Y holds text or categories."""
    if is_a(Y, "pyarrow", "Table"):
        return any(has_levels(kind) for kind in Y.schema.types)
    dtypes: Any = Y.dtypes if frame_labels(Y) is not None else [getattr(Y, "dtype", None)]
    names = [str(dtype).split("(")[0].split("[")[0] for dtype in dtypes]
    if any(name in (*CLASS_DTYPES, "string", "str", "large_string", "String", "Utf8") for name in names):
        return True
    if all(isinstance(dtype, np.dtype) and dtype.kind in "fiubcmM" for dtype in dtypes):
        return False
    if hasattr(Y, "dask") and not hasattr(Y, "columns"):
        return getattr(Y.dtype, "kind", "O") in "OUST"
    try:
        return class_labels(np.asarray(Y)) is not None
    except ValueError:  # rows of several lengths
        return False
