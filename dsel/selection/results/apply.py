"""Use a selection on other rows: take its columns, and predict its targets.

The optional libraries are recognised by the name of a type, so that none of them is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dsel._lib.console import warn_caller
from dsel._lib.text import shorten
from dsel._lib.types import Floats, Ints
from dsel.data import schema
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import StoredRows, fill_missing, load_block
from dsel.data.dataset import Dataset
from dsel.data.formats.annotated import is_annotated
from dsel.data.formats.labelled import flattened, matrix_variable
from dsel.data.frame_numbers import warn_of_new_value, with_columns
from dsel.data.frames import collected, one_column, without_blanks
from dsel.data.icechunk_snapshot import is_snapshot, open_snapshot
from dsel.data.in_memory import matched
from dsel.data.labels import MIDNIGHT, column_of, coordinate_values, default_labels, index_words, is_a, is_frame
from dsel.data.offset import in_memory, name_of, split_offset, unnamed, with_offset
from dsel.data.store.reader import Store
from dsel.errors import DataError, OptionError
from dsel.selection.record import SelectionRecord
from dsel.storage.paths import AnyPath


@dataclass(frozen=True)
class LinearModel:
    """The function from the chosen columns to the targets: x (r, s) to intercept + x @ coefficients.

    Parameters
    ----------
    labels : list of str
        Labels of the chosen columns, for messages.
    coefficients : (s, N) array
        Coefficients for the data in their own units.
    intercept : (N,) array
        Intercept.
    fill : (s,) array, optional
        The values that replace NaN.
    flat : bool
        Whether the result has one dimension.
    """

    labels: list[str]
    coefficients: Floats
    intercept: Floats
    fill: Floats | None = None
    flat: bool = False

    @classmethod
    def of(cls, selection: SelectionRecord) -> LinearModel:
        """Return the model of a selection."""
        flat = selection.coefficients.shape[1] == 1 and (selection.flat_target or len(selection.targets) > 1)
        return cls(selection.names, selection.coefficients, selection.intercept, selection.fill, flat)

    def __call__(self, x: Any) -> Floats:
        """Return predictions (r,) or (r, N) for rows of the chosen columns."""
        z = _as_float(x, self.labels)
        fill_missing(z, self.fill)
        found = z @ self.coefficients + self.intercept
        return found[:, 0] if self.flat else found


def transform(selection: SelectionRecord, X: Any) -> Any:
    """Return the chosen columns of X. See `Selection.transform`."""
    X = opened(selection, X)
    if isinstance(X, Dataset):
        return _lazily(X, StoredColumns.of(selection, X))
    return take_columns(X, column_positions(selection, _labels(X, selection.names), X.shape[1], named=is_frame(X)))


def take_columns(X: Any, places: Ints) -> Any:
    """Return columns of a DataArray with samples first, of a DataFrame, or of a matrix."""
    if is_a(X, "xarray", "DataArray"):
        return X.isel({X.dims[1]: places})
    if is_frame(X):
        names = [X.columns[i] for i in places]
        return X.iloc[:, places] if hasattr(X, "iloc") else X.select(names) if hasattr(X, "select") else X[names]
    return X.tocsc()[:, places].asformat(X.format) if hasattr(X, "tocsc") else X[:, places]


#: What a prediction is: the expected target, or the linear predictor.
Kind = Literal["mean", "link"]


def predict(selection: SelectionRecord, X: Any, offset: Any = None, kind: Kind = "mean") -> Any:
    """Return the targets that the chosen columns of X predict. See `Selection.predict`."""
    require_kind(kind)
    X, offset = split_offset(X, offset)
    X = opened(selection, X)
    eta = _linear_predictor(selection, X)
    shift = offset_of_rows(selection, X, offset)
    if shift is not None:
        eta = _shifted(eta, shift)
    return eta if kind == "link" or not selection.by_loss else _elementwise(selection.loss.mean, eta)


def require_kind(kind: str) -> None:
    """Raise OptionError unless there is such a kind of predictions."""
    if kind not in get_args(Kind):
        raise OptionError(f"kind is {kind!r}.", "Use 'mean' for expected targets, or 'link' for the linear predictor.")


def chosen_offset(selection: SelectionRecord, offset: Any, *, stored: bool) -> Any:
    """Return the offset to predict with: a given one, or in a store that of the selection by its name.

    Errors: DataError where the selection was made with one, and there is none here; OptionError where it had none.
    """
    known = selection.request.offset
    if offset is not None and known is None and not selection.by_loss:
        raise OptionError("offset needs a loss other than the squared error.", "Add it to the predictions.")
    if offset is not None or known is None:
        return offset
    if stored and not in_memory(known):
        return known
    name = name_of(known)
    made = f"the offset {name!r}" if name else "an offset"
    raise DataError(
        f"The selection was made with {made}, and there is none for these rows.",
        f"Give offset{f'={name!r} or' if name else ','} one number for each row; 0 stands for an exposure of 1.",
    )


def offset_of_rows(selection: SelectionRecord, X: Any, offset: Any) -> Any:
    """Return what to add to the linear predictors of what `opened` returned: a number, an array, or None."""
    offset = chosen_offset(selection, offset, stored=isinstance(X, Dataset))
    if offset is None or isinstance(offset, int | float):
        return offset
    if isinstance(X, Dataset):
        blocks = with_offset(X, offset).blocks
        return np.concatenate([b.offset.read() if isinstance(b.offset, StoredRows) else b.offset for b in blocks])
    if isinstance(offset, str):
        raise unnamed(offset)
    values = np.asarray(matched(X, offset, "offset"), np.float64)
    rows = X.shape[0]
    if values.ndim != 1 or (isinstance(rows, int) and values.size != rows):
        raise DataError(f"offset has shape {values.shape}, and X has {rows} rows.", "Give one number for each row.")
    return values


def _shifted(eta: Any, shift: Any) -> Any:
    """Return linear predictors with an offset for each row."""
    table = is_a(eta, "polars", "DataFrame")
    by_row = isinstance(shift, np.ndarray) and (table or getattr(eta, "ndim", 1) == 2)
    shift = shift[:, None] if by_row else shift
    return _elementwise(partial(np.add, shift), eta) if table or is_a(eta, "polars", "Series") else eta + shift


def _elementwise(function: Callable[[Floats], Floats], values: Any) -> Any:
    """Return a function of each number or row of an array, a series, or a Dask or xarray object, as the same kind."""
    if is_a(values, "xarray", "DataArray"):
        return values.copy(data=_elementwise(function, values.data))
    if is_a(values, "dask", "Array"):
        return values.map_blocks(function, dtype=np.float64)
    if hasattr(values, "map_partitions"):
        return values.map_partitions(partial(_elementwise, function), meta=values._meta)
    if is_a(values, "polars", "Series"):
        return type(values)(values.name, function(values.to_numpy()))
    if is_a(values, "polars", "DataFrame"):
        return type(values)(function(values.to_numpy()), schema=values.columns)
    found = function(np.asarray(values, np.float64))
    if is_a(values, "pandas", "DataFrame"):
        return type(values)(found, index=values.index, columns=values.columns)
    return type(values)(found, index=values.index, name=values.name) if is_a(values, "pandas", "Series") else found


def _linear_predictor(selection: SelectionRecord, X: Any) -> Any:
    """Return the linear predictors of the rows of what `opened` returned, as its kind."""
    model = LinearModel.of(selection)
    x = transform(selection, X)
    names = list(selection.predicted)
    targets = selection.as_in_data(names)
    if is_a(x, "xarray", "DataArray"):
        return _as_data_array(x, _predict_matrix(x.data, model), targets, model.flat)
    if is_a(x, "polars", "DataFrame"):
        import polars as pl

        values = model(x.to_numpy() if model.labels else np.empty((len(X), 0)))  # no column has no rows in polars
        return pl.Series(names[0], values) if model.flat else pl.DataFrame(values, schema=names)
    if is_frame(x) and hasattr(x, "to_dask_array"):
        return x.map_partitions(_predict_frame, model, targets, meta=_predict_frame(x._meta, model, targets))
    if is_frame(x):
        return _predict_frame(x, model, targets)
    return _predict_matrix(x, model)


def column_positions(
    selection: SelectionRecord, labels: Sequence[Any] | None, count: int, *, named: bool = False,
    instead: Mapping[str, str] | None = None,
) -> Ints:  # fmt: skip
    """Return the places of the chosen columns among `count` columns, in their order.

    labels: of those columns. Without labels, or with the default ones (x0, x1, ...), there must be as many columns as
    the selection was made from. The default ones count as labels where they are the names of the chosen columns, and
    these are not at their places, or the columns are `named` by the user. instead: labels that take the place of chosen
    ones. Errors: DataError naming the columns that are missing or occur twice.
    """
    n, chosen = selection.shape[1], [(instead or {}).get(name, name) for name in selection.names]
    unlabelled = chosen == [f"x{j}" for j in selection.indices]
    names = None if labels is None else [str(label) for label in labels]
    by_label = names is not None and set(chosen) <= set(names) and (named or not unlabelled)
    if names is None or (names == default_labels("x", count) and not by_label):
        if count != n:
            raise DataError(
                f"X has {count} columns without labels, and the selection was made from {n}.",
                "Give all of these columns in their order, or give the columns their labels.",
            )
        return np.asarray(selection.indices, np.int64)
    place = {name: i for i, name in enumerate(names)}
    missing = [label for label in chosen if label not in place]
    if missing:
        known = selection.categories
        missing, of = (list(dict.fromkeys(column_of(one, known) for one in some)) for some in (missing, chosen))
        remedy = "Add or rename them."
        if unlabelled and count == n:
            remedy = "The selection was made from data without labels: pass X without them, such as X.to_numpy()."
        elif {f"x{name}" for name in names} >= set(chosen):  # numbers name the columns, as pandas does without a header
            remedy = 'The selection was made from a file without a header: rename the columns, by X.add_prefix("x").'
        given = [name for name in names if column_of(name, place) == name]  # no indicators
        raise DataError(
            f"X lacks {len(missing)} of the {len(of)} chosen columns: {shorten(missing)}. It has {shorten(given, 8)}.",
            remedy,
        )
    twice = [label for label in dict.fromkeys(chosen) if names.count(label) > 1] if len(place) < len(names) else []
    if twice:
        raise DataError(f"X has several columns called {shorten(twice)}.", "Give every column a unique name.")
    numbers = [str(j) for j in range(n)]
    plain = selection.numbered and selection.request.groups is None  # `n` counts columns of the data, not of categories
    if plain and names == numbers and (targets := set(selection.targets) & set(numbers)):
        _warn_of_new_numbers(sorted(targets))
    return np.array([place[label] for label in chosen], np.int64)


def opened(selection: SelectionRecord, X: Any) -> Any:
    """Return X as a Dataset of a store, a DataArray (samples first), a DataFrame, or a matrix of two dimensions.

    Frames have the columns that `select` made of theirs, and cubes are stacked as there.
    """
    if is_snapshot(X):
        X = open_snapshot(X).dataset()
    if isinstance(X, str | AnyPath):
        return as_dataset(X, unsupervised=True, sample_weight=False)
    if isinstance(X, Dataset):
        return X
    X = one_column(collected(X), "X")
    X = X.to_pandas() if is_a(X, "pyarrow", "Table") else X
    if is_annotated(X):  # of a wide one, only the chosen columns become dense
        import pandas as pd

        X = X.to_memory() if X.isbacked and X.is_view else X  # a view in a file has no views
        chosen = [name for name in selection.names if name in X.var_names]
        X = X[:, chosen].to_df() if len(chosen) == len(selection.names) else pd.DataFrame(columns=X.var_names)
    if is_frame(X):
        X = without_blanks(X, selection.names)
        return with_columns(X, selection.names, selection.request.dates, _references(selection))
    if is_a(X, "xarray", "Dataset"):
        X = matrix_variable(X, {"Y", "weight", *selection.targets})
    if is_a(X, "xarray", "DataArray") and X.ndim > 2:
        return _stacked(X, selection.names)
    if not (hasattr(X, "tocsr") or is_a(X, "dask", "Array") or is_a(X, "xarray", "DataArray")):
        X = np.asanyarray(X)
    if X.ndim != 2:
        raise DataError(f"X has shape {X.shape}.", "It must have two dimensions: samples x features.")
    return X.transpose() if is_a(X, "xarray", "DataArray") and X.dims[0] == "feature" else X


def _references(selection: SelectionRecord) -> dict[str, str]:
    """Return for each chosen category the value whose coefficients are 0, so that it stands for new ones, or ""."""
    zero = [name for name, b in zip(selection.names, selection.coefficients, strict=True) if not b.any()]
    return {
        name: next((label[len(name) + 1 :] for label in zero if column_of(label, selection.categories) == name), "")
        for name in selection.categories
    }


def _stacked(cube: Any, names: list[str]) -> Any:
    """Return a DataArray of three or more dimensions as a matrix, with the dimensions in the order of the labels."""
    order = [part.split("=")[0] for part in names[0].split(",")] if names else []
    samples = [str(dim) for dim in cube.dims if dim not in order]
    if len(samples) == 1 and set(order) < set(cube.dims):
        cube = cube.transpose(*samples, *order)
    return flattened(cube, samples if len(samples) == 1 else ())


def _labels(X: Any, chosen: Sequence[str]) -> list[str] | None:
    """Return the labels of the columns of what `opened` returned, None if it has none.

    Days have a time where a chosen label has one at midnight.
    """
    whole = not any(name.endswith(MIDNIGHT) for name in chosen)
    if isinstance(X, Dataset):
        return [str(label) for label in X.features]
    if is_a(X, "xarray", "DataArray"):
        return [*map(str, coordinate_values(X.coords[X.dims[1]], whole=whole))] if X.dims[1] in X.coords else None
    return index_words(X.columns, whole=whole) if is_frame(X) else None


@dataclass(frozen=True)
class StoredColumns:
    """Where a store has the chosen columns.

    A store of few rows may lack values of a category. Its columns of zeros are made of another column of the category,
    which is NaN where the category is missing.

    Parameters
    ----------
    labels : list of str
        The labels of the s chosen columns.
    read : (r,) array of int
        The ascending columns to read.
    order : (s,) array of int
        The place among these of each chosen column.
    absent : (s,) array of bool
        Whether no row of the store has this value of a category.
    """

    labels: list[str]
    read: Ints
    order: Ints
    absent: NDArray[np.bool_]

    @classmethod
    def of(cls, selection: SelectionRecord, dataset: Dataset) -> StoredColumns:
        """Return those of a selection. Warn of new values of a category. Errors: as `column_positions` raises them."""
        labels, chosen = [str(label) for label in dataset.features], selection.names
        made: dict[str, list[str]] = {}
        for label, source in zip(labels, () if dataset.categories is None else dataset.categories, strict=False):
            if label != source:
                made.setdefault(str(source), []).append(label)
        for name, reference in _references(selection).items():
            if new := [label for label in made.get(name, ()) if label not in chosen]:
                warn_of_new_value(name, new[0][len(name) + 1 :], reference)
        lacking = set(chosen) - set(labels)
        instead = {label: made[name][0] for label in lacking if (name := column_of(label, made)) in made}
        places = column_positions(selection, labels, dataset.n, instead=instead)
        read, order = np.unique(places, return_inverse=True)
        names = [labels[j] if label not in instead else label for j, label in zip(places, chosen, strict=True)]
        return cls(names, read, order, np.array([label in instead for label in chosen], bool))

    def take(self, rows: Any) -> Any:
        """Return the chosen columns (m, s) of rows of the columns that were read, as a dense array."""
        x = (rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows))[:, self.order]
        if self.absent.any():
            x[:, self.absent] *= 0
        return x


def _lazily(dataset: Dataset, columns: StoredColumns) -> Any:
    """Return columns of a store as a DataArray whose row blocks are read when they are computed."""
    import dask.array as da
    import xarray as xr
    from dask.delayed import delayed

    assert dataset.store is not None
    dtype = schema.stored_dtype(dataset.store.dtype)
    load = delayed(_load_columns, pure=True)
    blocks = [
        da.from_delayed(load(block.x, columns), (block.stop - block.start, columns.order.size), dtype=dtype)  # type: ignore[no-untyped-call]
        for block in dataset.blocks
    ]
    coords: dict[str, Any] = {"feature": np.array(columns.labels, dtype=object)}
    samples = dataset.store.samples if isinstance(dataset.store, Store) else None
    if samples is not None:
        coords["sample"] = samples
    values = da.concatenate(blocks)  # type: ignore[no-untyped-call]
    return xr.DataArray(values, dims=("sample", "feature"), coords=coords, name="X")


def _load_columns(part: Any, columns: StoredColumns) -> Any:
    """Return columns of a block of a store as a dense array."""
    return columns.take(load_block(part, columns.read))


def _predict_matrix(x: Any, model: LinearModel) -> Any:
    """Return predictions for the chosen columns as an array or a Dask array."""
    if not is_a(x, "dask", "Array"):
        return model(x)
    x = x.rechunk({1: -1})
    if model.flat:
        return x.map_blocks(model, drop_axis=1, dtype=np.float64, meta=np.empty(0))
    width = model.coefficients.shape[1]
    return x.map_blocks(model, chunks=(x.chunks[0], (width,)), dtype=np.float64, meta=np.empty((0, 0)))


def _as_data_array(x: Any, values: Any, targets: list[str | int], flat: bool) -> Any:
    import xarray as xr

    sample = x.dims[0]
    coords = {name: coord for name, coord in x.coords.items() if coord.dims in ((sample,), ())}
    if flat:
        return xr.DataArray(values, coords, dims=(sample,), name=targets[0])
    return xr.DataArray(values, {**coords, "target": targets}, dims=(sample, "target"), name="prediction")


def _predict_frame(x: Any, model: LinearModel, targets: list[str | int]) -> Any:
    import pandas as pd

    def column(j: int) -> Floats:
        values = x.iloc[:, j]
        if getattr(values.dtype, "kind", "O") not in "fiub":
            _require_no_text(values)
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))

    values = model(_by_column(x.shape, x.columns, column))
    if model.flat:
        return pd.Series(values, index=x.index, name=targets[0])
    return pd.DataFrame(values, index=x.index, columns=targets)


def _as_float(x: Any, labels: Sequence[str]) -> Floats:
    """Return rows as a new float64 array, NaN where they were masked. Errors: DataError naming the column."""
    x = x.toarray() if hasattr(x, "toarray") else x
    if isinstance(x, np.ma.MaskedArray):
        x = np.ma.filled(x.astype(np.float64), np.nan)
    if getattr(x, "dtype", np.dtype(object)).kind in "fiub":
        return np.array(x, dtype=np.float64)
    objects = np.asarray(x, dtype=object)
    return _by_column(objects.shape, labels, lambda j: _require_no_text(objects[:, j]))


def _require_no_text(values: Any) -> Any:
    """Return the values of a column. Errors: ValueError for text, also that of a number, as `select` refuses it."""
    word = next((value for value in values if isinstance(value, str | bytes)), None)
    if word is not None:
        raise ValueError(f"{word!r} is text")
    return values


def _by_column(shape: tuple[int, int], labels: Sequence[Any], column: Callable[[int], Any]) -> Floats:
    """Return columns as a float64 array. Errors: DataError naming the first one that does not hold numbers."""
    values = np.empty(shape)
    for j, name in enumerate(labels):
        try:
            values[:, j] = column(j)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"Column {name} does not hold numbers: {error}.", "Convert it as the data of the selection were."
            ) from error
    return values


def _warn_of_new_numbers(targets: Sequence[str]) -> None:
    """Warn that columns may have been numbered again without the targets, as in a file without a header."""
    warn_caller(
        f"The columns of X are numbered without a gap, and in the selection's data {shorten(targets)} was a target. "
        "Columns are found by label: if X was numbered without it, give its columns their numbers in those data."
    )
