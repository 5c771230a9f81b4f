"""Data frames with columns of different types give the same matrix and labels as plain numbers, or name the column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.errors import DataError

M = 40
RNG = np.random.default_rng(0)
BASE = pd.DataFrame(
    {
        "size": RNG.standard_normal(M),
        "rooms": RNG.integers(1, 6, M),
        "garden": RNG.random(M) > 0.5,
        "colour": RNG.choice(["red", "blue"], M),
    }
)
Y = BASE["size"] * 2 + BASE["garden"]
DUMMIES = pd.get_dummies(BASE)  # float, int and bool
PLAIN = DUMMIES.astype(float)


def dask_frame(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)


KINDS: dict[str, Callable[[], Any]] = {
    "get_dummies": lambda: DUMMIES,
    "nullable": lambda: DUMMIES.convert_dtypes(),
    "pyarrow": lambda: DUMMIES.convert_dtypes(dtype_backend="pyarrow"),
    "objects that are numbers": lambda: DUMMIES.astype(object),
    "sparse columns": lambda: pd.get_dummies(BASE, sparse=True),
    "polars": lambda: pl.DataFrame({name: DUMMIES[name].tolist() for name in DUMMIES}),
    "arrow": lambda: pa.Table.from_pandas(DUMMIES, preserve_index=False),
    "dask": lambda: dask_frame(DUMMIES),
    "dask nullable": lambda: dask_frame(DUMMIES.convert_dtypes()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_different_types_are_numbers_with_labels(kind: str) -> None:
    found = dsel.select(KINDS[kind](), Y.to_numpy(), k=2, method="forward")
    expected = dsel.select(PLAIN, Y, k=2, method="forward")
    assert found.labels == expected.labels
    assert found.indices == expected.indices
    np.testing.assert_allclose(found.r2, expected.r2, rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f.convert_dtypes(),
        lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
        lambda f: pl.from_arrow(pa.Table.from_pandas(f)),
    ],
)
def test_missing_values_of_any_type_are_nan(make: Any) -> None:
    frame = pd.DataFrame({"a": pd.array([1, None, 3], "Int64"), "b": [True, False, True]})
    block = as_dataset(make(frame), np.arange(3.0)).blocks[0]
    np.testing.assert_array_equal(np.asarray(block.x, float), [[1, 1], [np.nan, 0], [3, 1]])


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array, lambda y: pa.chunked_array([y[:9], y[9:]])])
def test_a_target_may_be_a_column_of_any_library(make: Any) -> None:
    y = as_dataset(PLAIN, make(Y.to_numpy())).blocks[0].y
    np.testing.assert_array_equal(np.asarray(y)[:, 0], Y)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dask"])
def test_columns_that_are_not_numbers_are_named_together_with_the_remedy(kind: str) -> None:
    note = [f"{i:04}x" for i in range(M)]
    frame = BASE.assign(colour=BASE["colour"].astype("category"), when=pd.Timestamp("2020-01-01"), note=note)
    make: dict[str, Any] = {
        "pandas": lambda: frame,
        "polars": lambda: pl.from_arrow(pa.Table.from_pandas(frame, preserve_index=False)),
        "arrow": lambda: pa.Table.from_pandas(frame),
        "dask": lambda: dask_frame(frame),
    }
    with pytest.raises(DataError, match=r"column 'when' holds dates or times .*Ask for numbers with dates"):
        as_dataset(make[kind](), Y.to_numpy())
    with pytest.raises(DataError, match="2 columns of X hold text or categories: 'colour', 'note'"):
        as_dataset(make[kind](), Y.to_numpy(), categories="refuse", dates="days")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dask"])
def test_targets_are_columns_of_the_frame_by_name(kind: str) -> None:
    frame = PLAIN.assign(price=Y)
    makers: dict[str, Callable[[pd.DataFrame], Any]] = {
        "pandas": lambda frame: frame, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas, "dask": dask_frame,
    }  # fmt: skip
    expected = dsel.select(PLAIN, Y, k=2)
    for names in ("price", ["price"]):
        found = dsel.select(makers[kind](frame), names, k=2)
        assert (found.labels, found.targets) == (expected.labels, ("price",))
        assert found.r2 == pytest.approx(expected.r2)


def test_a_name_that_is_no_column_is_refused() -> None:
    with pytest.raises(DataError, match="X has no column 'cost'"):
        dsel.select(PLAIN, "cost", k=2)
    with pytest.raises(DataError, match="X is no frame with a column"):
        dsel.select(PLAIN.to_numpy(), "price", k=2)


@pytest.mark.parametrize("text", [{}, {"colour": ["red", "blue"] * 60}])
@pytest.mark.parametrize("exclude", [["seq", "zip", "big", "one"], [0, 1, 2, 3]])
def test_no_note_advises_on_excluded_columns(text: dict[str, Any], exclude: list[Any]) -> None:
    seq = np.arange(120)
    frame = pd.DataFrame(
        {"seq": seq, "zip": seq % 7, "big": seq % 2 + 2**60, "one": 1, "a": np.sin(seq), "b": seq**0.5}
    )
    frame = frame.assign(y=frame["a"] + frame["b"], **text)
    notes = " ".join(dsel.select(frame, "y", k=1).notes)
    assert all(what in notes for what in ("'seq' out", "'zip' a category", "2^53", "constant"))
    for kind in (frame, pl.from_pandas(frame)):
        notes = " ".join(dsel.select(kind, "y", k=1, exclude=exclude).notes)
        assert not any(name in notes for name in ("seq", "zip", "big", "one column", "constant"))


def test_a_selection_is_one_line() -> None:
    assert repr(dsel.select(PLAIN, Y, k=2)).startswith("<Selection: 2 of 5 columns, R2 ")
