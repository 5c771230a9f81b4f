"""Data frames and AnnData in memory: the names of their columns, and which of these are targets and weights.

The optional libraries are recognised by the name of a type, so that none of them is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from dsel._lib.text import shorten, suggest
from dsel.config.ingest_request import SourceOptions
from dsel.data.classes import class_labels, with_plain_columns
from dsel.data.formats.annotated import is_annotated
from dsel.data.formats.tables import arrow
from dsel.data.formats.tables.scan import (
    has_levels,
    is_date_type,
)
from dsel.data.labels import (
    Labels,
    as_labels,
    column_of,
    coordinate_values,
    index_words,
    is_a,
    is_frame,
    require_unique,
)
from dsel.errors import DataError, DselError, OptionError
from dsel.storage.paths import as_path


def frame_labels(data: Any) -> list[str] | None:
    """Return the labels of the columns of a DataFrame or an Arrow table; None for anything else."""
    if is_frame(data):
        return index_words(data.columns)
    if type(data).__name__ == "Table" and hasattr(data, "column_names"):
        return [str(name) for name in data.column_names]
    return None


def without_blanks(frame: Any, wanted: Iterable[str]) -> Any:
    """Return a frame without outer blanks around names of columns, where only so they are wanted, as in a text file.

    wanted: labels of columns, or `column=value` of categories.
    """
    known = {label[:i] for label in wanted for i in (*(i for i, mark in enumerate(label) if mark == "="), len(label))}
    own = {str(name) for name in frame.columns}
    blank = [name for name in frame.columns if isinstance(name, str) and name != name.strip() and name not in known]
    names = {name: name.strip() for name in blank if name.strip() in known - own}
    if not names:
        return frame
    return frame.rename(names) if is_a(frame, "polars", "DataFrame") else frame.rename(columns=names)


def target_labels(Y: Any) -> list[str] | None:
    """Return the labels of targets: those of the columns of a frame, or the name of a Series; None without."""
    name = Y.name if is_series(Y) else None
    return frame_labels(Y) if name in (None, "") else [str(name)]


def collected(data: Any) -> Any:
    """Return a LazyFrame of polars as a DataFrame, and record batches of Arrow as a Table; anything else as it is."""
    if is_a(data, "polars", "LazyFrame"):
        return data.collect()
    if is_a(data, "pyarrow", "RecordBatchReader"):
        return data.read_all()
    return arrow.arrow_table(data)[0] if is_a(data, "pyarrow", "RecordBatch") else data


def numbered(data: Any) -> bool:
    """Return whether whole numbers name all columns of a frame or an xarray array."""
    names: Any = ()
    if frame_labels(data) is not None and hasattr(data, "columns"):
        names = data.columns
    elif is_a(data, "xarray", "DataArray") and data.ndim == 2 and data.dims[1] in data.coords:
        names = coordinate_values(data.coords[data.dims[1]])
    return bool(len(names)) and all(map(_is_whole, names))


def _is_whole(name: Any) -> bool:
    return isinstance(name, int | np.integer) and not isinstance(name, bool)


def _mixes(names: Any) -> bool:
    """Return whether a list has text and whole numbers, and nothing else."""
    if not isinstance(names, list | tuple):
        return False
    kinds = [_is_whole(name) for name in names if _is_whole(name) or isinstance(name, str)]
    return len(kinds) == len(names) and any(kinds) and not all(kinds)


def label_of(X: Any, name: Any) -> Any:
    """Return a whole number as text if it is the label of a column of a frame whose labels are whole numbers."""
    return str(name) if _is_whole(name) and numbered(X) and str(name) in (frame_labels(X) or ()) else name


def named_targets(targets: Sequence[str | int], Y: Any, classes: Mapping[str, list[str]]) -> list[str | int]:
    """Return targets with whole numbers as labels where these name Y, and all columns of a target that holds classes.

    classes: those of the targets that became columns (`Targets`).
    """
    if numbered(Y) or (is_series(Y) and _is_whole(Y.name)):
        targets = [str(name) for name in targets]
    labels: list[str | int] = []
    for name in targets:
        levels = classes.get(str(name), [])
        labels += [f"{name}={level}" for level in (levels[1:] if len(levels) == 2 else levels)] or [name]
    return labels


def is_series(data: Any) -> bool:
    """Return whether `data` is a Series of pandas, polars or Dask."""
    return type(data).__name__ == "Series" and hasattr(data, "dtype") and hasattr(data, "name")


def one_column(data: Any, what: str) -> Any:
    """Return a Series as a frame of one column; anything else as it is."""
    return data.to_frame(name=f"{what.lower()}0" if data.name is None else str(data.name)) if is_series(data) else data


def names_columns(Y: Any) -> bool:
    """Return whether Y is the name of a column, or a list of names."""
    return isinstance(Y, str) or (isinstance(Y, list | tuple) and bool(Y) and all(isinstance(y, str) for y in Y))


def targets_of_store(Y: Any) -> str:
    """Return how to give the targets of a store whose path Y is; empty where Y is no path of a Zarr group.

    A store without the array Y has the targets as X.
    """
    if not isinstance(Y, str):
        return ""
    try:
        path = as_path(Y)
        if not any((path / name).is_file() for name in ("zarr.json", ".zgroup")):
            return ""
        array = "Y" if (path / "Y").exists() else "X"
    except (DselError, OSError, ValueError):
        return ""
    opened_store = f"xarray.open_zarr({json.dumps(Y)}, consolidated=False)"  # without it, xarray may warn
    return f"Give the targets of this store as an array: {opened_store}.{array}."


def named_in(X: Any, Y: Any) -> list[str]:
    """Return the labels of the columns that Y names in X; none where Y holds values."""
    if names_columns(Y):
        return [Y] if isinstance(Y, str) else list(Y)
    names = [Y] if _is_whole(Y) else Y
    known = isinstance(names, list | tuple) and all(map(_is_whole, names)) and numbered(X) and len(names) != len(X)
    return [str(name) for name in names] if known else []


def require_no_target(column: str, names: Sequence[str], option: str) -> None:
    """Raise OptionError if a column is named by an option and as a target."""
    if column in names:
        raise OptionError(f"{column!r} is a target and the {option}.", f"Name another column as {option} or target.")


def may_name(X: Any, targets: Sequence[Any]) -> bool:
    """Return whether targets without Y name columns of X: of a frame, of AnnData, or variables of a Dataset."""
    if is_a(X, "xarray", "Dataset"):
        return all(name in X for name in targets)
    return frame_labels(X) is not None or is_annotated(X)


def targets_in(X: Any, targets: Sequence[str]) -> list[str] | None:
    """Return the columns of a frame X that became the targets of a selection; None where X does not have them all.

    Targets that were made of classes have the name of their column before the sign =.
    """
    labels = frame_labels(X)
    if labels is None:
        return None
    found = dict.fromkeys(name if name in labels else column_of(name, labels) for name in targets)
    return list(found) if set(found) <= set(labels) else None


def opened(X: Any, Y: Any, weights: Any) -> tuple[Any, Any, Any, Labels | None]:
    """Return X, Y and the weights with the columns that they name, and the labels of X where it holds none.

    All are `collected`. Of AnnData, X is the matrix, and targets and weights are columns of obs.
    Errors: DataError for a name that does not exist.
    """
    X, Y, weights = map(collected, (X, Y, weights))
    features, Y = None, with_plain_columns(Y)
    if is_annotated(X):
        if getattr(X, "isbacked", False):
            raise OptionError(
                "X is an AnnData object in a file.",
                "Read it: X.to_memory(). Or ingest the file: dsel.ingest(path, store).",
            )
        features = as_labels(X.var_names)
        X, rest = X.X, X.obs
        Y = columns_of(rest, Y, "obs of the AnnData object") if names_columns(Y) else Y
        weights = columns_of(rest, weights, "obs of the AnnData object") if isinstance(weights, str) else weights
        return X, Y, weights, features
    weights = label_of(X, weights)
    if isinstance(weights, str):
        require_no_target(weights, named_in(X, Y), "sample_weight")
    if frame_labels(X) is not None and isinstance(weights, str):
        X, weights = split_targets(X, weights)
    if is_a(Y, "polars", "Expr"):
        names = Y.meta.root_names()
        raise DataError("Y is an expression of polars.", f"Name the column: {names[0] if names else 'y'!r}.")
    if isinstance(Y, bool):
        raise DataError(f"Y is {Y}.", "Give the targets as an array, or the name of a column.")
    refuse_positions(X, [Y])
    own = list(getattr(X, "columns", ())) if isinstance(Y, tuple | float | date) else []
    if _is_whole(Y) or Y in own:
        # the name of a column that is no text, as of a file without a header
        Y = index_words(X.columns)[own.index(Y)] if own else str(Y)
    elif _mixes(Y) and frame_labels(X) is not None and len(Y) != len(X):
        refuse_positions(X, Y)
        Y = [str(name) for name in Y]
    elif isinstance(Y, list | tuple) and Y and all(map(_is_whole, Y)):
        named = numbered(X) or (not is_a(X, "pyarrow", "Table") and set(Y) <= set(getattr(X, "columns", ())))
        if len(Y) <= len(frame_labels(X) or ()) and len(Y) != len(X):
            refuse_positions(X, Y)  # they are too few for the values of one target
        Y = Y if not named or len(Y) == len(X) else [str(name) for name in Y]  # as many as rows are one target's values
    if names_columns(Y):
        X, Y = split_targets(X, Y)
    return X, Y, weights, None


def as_list(frame: Any, Y: Any) -> str:
    """Return a sentence for a Y whose entries name columns of a frame but are no list of names; empty for others."""
    values = np.asarray(Y).tolist()
    if frame_labels(frame) is None or not isinstance(values, list) or isinstance(Y, list):
        return ""
    if not values or not set(map(str, values)) <= set(frame_labels(frame) or ()):
        return ""
    return f" If its entries name columns, give a list: {values}."


def refuse_positions(X: Any, targets: Sequence[Any]) -> None:
    """Raise DataError where a whole number stands for a target, and X is a frame whose labels are text."""
    labels = frame_labels(X)
    if labels is None or numbered(X):
        return
    for place in targets:
        if _is_whole(place) and str(place) not in labels:
            names = "columns" if hasattr(X, "columns") and not is_a(X, "pyarrow", "Table") else "column_names"
            known = 0 <= place < len(labels)
            at = (
                f"position {place} is X.{names}[{place}], {labels[place]!r}"
                if known
                else (f"positions go from 0 to {len(labels) - 1}, as in X.{names}[0]")
            )
            raise DataError(f"X has no column {place}: its labels are text.", f"Name each target by its label: {at}.")


def columns_of(frame: Any, names: Any, where: str) -> Any:
    """Return columns of a frame by name, one as a Series. Errors: DataError for a name that does not exist."""
    labels = frame_labels(frame) or []
    if missing := [name for name in ([names] if isinstance(names, str) else names) if name not in labels]:
        raise DataError(
            f"{where} has no column {shorten(map(repr, missing))}, only {shorten(labels)}.", "Check the name."
        )
    return frame[names if isinstance(names, str) else list(names)]


def split_targets(frame: Any, names: str | Sequence[str]) -> tuple[Any, Any]:
    """Return a frame without the columns of these names, and these columns: one as a Series.

    One column of an Arrow table is a Series of pandas if it holds numbers, classes or dates, else a table. Errors:
    DataError if `frame` has no labels, or no such column.
    """
    labels = frame_labels(frame)
    wanted = [names] if isinstance(names, str) else list(names)
    if labels is None:
        raise DataError(
            f"Y is {_quoted(names)}, and X is no frame with a column of this name.",
            targets_of_store(names) or "Give a frame, or Y as an array, such as xarray.open_zarr(STORE).Y of a store.",
        )
    require_unique(labels, "feature", "X", "Give every column a unique name.")
    if missing := [name for name in wanted if name not in labels]:
        remedy = targets_of_store(names) or suggest(missing[0], labels, listed=8)
        shown = map(_quoted if numbered(frame) else repr, missing)
        raise DataError(f"X has no column {shorten(shown)}.", remedy)
    if type(frame).__name__ == "Table":
        kept = frame.select([name for name in labels if name not in wanted])
        return kept, _series(frame, names) if isinstance(names, str) else frame.select(wanted)
    own = dict(zip(labels, frame.columns, strict=True))  # whole numbers may name columns
    kept = [own[name] for name in labels if name not in wanted]
    found = frame[own[names] if isinstance(names, str) else [own[name] for name in wanted]]
    return frame[kept], found.rename(names) if isinstance(getattr(found, "name", None), date) else found


def _quoted(name: Any) -> str:
    """Return a name with quotes, unless it may have been a whole number."""
    return name if isinstance(name, str) and name.lstrip("-").isdecimal() else repr(name)


def _series(table: Any, name: str) -> Any:
    """Return a column of an Arrow table as a Series of pandas if it holds numbers, classes or dates, else a table."""
    from pyarrow import types

    column = table.column(name)
    plain = types.is_integer, types.is_floating, types.is_boolean, has_levels, is_date_type
    return column.to_pandas().rename(name) if any(is_plain(column.type) for is_plain in plain) else table.select([name])


def joined(frame: Any, Y: Any, weights: Any, options: SourceOptions) -> tuple[Any, SourceOptions]:
    """Return a frame in memory as a table with targets and weights as its last columns, and options that name these.

    Labels are those that `dsel.select` gives. Errors: DataError for a label that the frame has already, and for another
    number of rows.
    """
    (table, index), named = arrow.arrow_table(frame, keep_index=options.index is None), []
    for values, label in ((Y, "y"), (weights, "weight")):
        extra = {} if values is None else _labelled_columns(values, label)
        for name, column in extra.items():
            if name in table.column_names:
                raise DataError(f"The frame has a column {name!r} already.", f"Name {label} otherwise, as a Series.")
            if len(column) != table.num_rows:
                raise DataError(f"{label} has {len(column)} rows, and the frame has {table.num_rows}.")
            table = table.append_column(name, column)
        named.append(tuple(extra))
    (targets, weight), kept = named, options.weight
    return table, replace(
        options, target=targets or options.target, weight=weight[0] if weight else kept, index=options.index or index
    )


def _labelled_columns(values: Any, label: str) -> dict[str, Any]:
    """Return targets or weights as columns of Arrow by label."""
    import pyarrow as pa

    values = with_plain_columns(values.compute() if hasattr(values, "compute") else values)
    values = values.toarray() if hasattr(values, "tocsr") else values
    default = "y0" if label == "y" and np.ndim(values) == 1 and class_labels(values) is None else label
    if is_series(values):
        values = values.rename(default if values.name is None or values.name == "" else str(values.name)).to_frame()
    if frame_labels(values) is not None or hasattr(values, "collect"):
        table = arrow.arrow_table(values, keep_index=False)[0]
        return dict(zip(table.column_names, table.columns, strict=True))
    array = np.asarray(values)
    if array.ndim > 2 or not array.size or array.dtype.kind == "c":
        raise DataError(
            f"{label} has shape {array.shape} and dtype {array.dtype}.",
            "Give real numbers or classes, in one column or several.",
        )
    if array.ndim < 2:
        return {default: pa.array(np.atleast_1d(array))}
    return {f"{label}{j}": pa.array(array[:, j]) for j in range(array.shape[1])}
