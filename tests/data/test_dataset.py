"""What X and Y may be, and how they are converted: nothing in them is dropped silently."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import load_block
from dsel.data.labels import resolve_labels
from dsel.errors import DataError, OptionError
from dsel.passes.gram import gram_statistics

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
Y = RNG.normal(size=(60, 2))
MASK = np.zeros(X.shape, bool)
MASK[7, 3] = True


KINDS: dict[str, Any] = {
    "numpy": lambda x: np.ma.masked_array(x, MASK),
    "dask": lambda x: da.ma.masked_array(da.from_array(x, chunks=(20, 2)), mask=MASK),
    "dask that does not say so": lambda x: da.from_array(x, chunks=(20, -1)).map_blocks(
        lambda b, block_info=None: np.ma.masked_array(b, MASK[slice(*block_info[0]["array-location"][0])]),
        meta=np.empty((0, 0), x.dtype),
    ),
}


class TestMaskedValuesAreMissing:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
    def test_they_are_refused_or_filled_as_nan_is(self, kind: str, dtype: str) -> None:
        x = (X * 100).astype(dtype)
        masked = KINDS[kind](x)
        with pytest.raises(DataError, match=r"NaN values.*: 1, in column 'x3', row 7"):
            dsel.select(masked, Y, k=2)
        with_nan = np.where(MASK, np.nan, x)
        found = gram_statistics(as_dataset(masked, Y), missing="mean")
        expected = gram_statistics(as_dataset(with_nan, Y), missing="mean")
        np.testing.assert_allclose(found.K, expected.K, rtol=1e-12)

    def test_in_y_they_are_refused(self) -> None:
        with pytest.raises(DataError, match=r"Y.* has NaN"):
            dsel.select(X, np.ma.masked_greater(Y, 1.0), k=2)


def _column_out_of_range() -> Any:
    matrix = scipy.sparse.csr_array(X)
    matrix.indices[7] = 99
    return matrix


def _delayed_frame() -> Any:
    frames = pytest.importorskip("dask.dataframe")
    return frames.from_pandas(pd.DataFrame(X), npartitions=2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: (scipy.sparse.csr_array(X.astype(complex)), Y), "X has dtype complex128"),
        (lambda: (X, scipy.sparse.csr_matrix(Y.astype(complex))), "Y has dtype complex128"),
        (lambda: (scipy.sparse.csr_array(X.astype(np.longdouble)), Y), "at most 8 bytes"),
        (lambda: (_column_out_of_range(), Y), "X is no valid sparse matrix: indices must be < 5"),
        (lambda: (scipy.sparse.coo_array(X[:, 0]), Y), "X has shape .*two dimensions"),
        (lambda: (np.ma.masked_array(X.astype(complex), MASK), Y), "X has dtype complex128"),
        (lambda: (_delayed_frame().to_dask_array(), Y), r"X is a Dask .*unknown.*compute_chunk_sizes\(\)"),
        (
            lambda: (pd.DataFrame(X), pd.DataFrame(Y).iloc[::-1]),
            "indexes of X and Y differ: row 0 is 0 in X and 59 in Y",
        ),
        (lambda: (pd.DataFrame(X), pd.Series(Y[:, 0], index=range(1, 61))), "indexes of X and Y differ"),
        (lambda: (pd.DataFrame(X, columns=list("abcab")), Y), r"X: 2 feature labels .*'a' \(2 times\)"),
        (lambda: (X, pd.DataFrame(Y, columns=["u", "u"])), "Y: 1 target label occurs more than once"),
        (
            lambda: (xr.Dataset({"a": (("sample", "i"), X), "b": (("sample", "i"), X)}), None),
            "2 variables that may be X",
        ),
    ],
)
def test_unusable_input_is_named_with_a_remedy(make: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        as_dataset(*make())


def test_integers_are_positions_even_if_labels_are_integers() -> None:
    dataset = as_dataset(pd.DataFrame(X, columns=[4, 3, 2, 1, 0]), Y)
    assert resolve_labels([0, np.int64(1)], dataset.features, "feature", "include").tolist() == [0, 1]
    assert resolve_labels(["0"], dataset.features, "feature", "include").tolist() == [4]
    with pytest.raises(OptionError, match="names no feature"):
        resolve_labels([np.float64(1)], dataset.features, "feature", "include")  # type: ignore[list-item]


def test_frames_with_one_index_and_a_frame_with_an_array_are_taken() -> None:
    index = pd.date_range("2020-01-01", periods=60)
    assert as_dataset(pd.DataFrame(X, index), pd.DataFrame(Y, index)).n_targets == 2
    assert as_dataset(pd.DataFrame(X, index), Y).n_targets == 2


FRAME = pd.DataFrame(X, columns=list("abcde"))
FRAMES: dict[str, Any] = {
    "pandas": lambda x: x,
    "object": lambda x: x.astype(object),
    "nullable": lambda x: x.convert_dtypes(),
    "of Arrow": lambda x: x.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda x: pytest.importorskip("polars").from_pandas(x),
    "Dask": lambda x: pytest.importorskip("dask.dataframe").from_pandas(x, npartitions=3),
    "Arrow": lambda x: pytest.importorskip("pyarrow").table(x),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_numbers_and_booleans_keep_values_and_labels(kind: str) -> None:
    mixed = FRAME.assign(a=X[:, 0] > 0, b=(X[:, 1] * 50).astype("int16"), c=X[:, 2].astype("float32"))
    dataset = as_dataset(FRAMES[kind](mixed), FRAMES[kind](FRAME[["d"]]))
    assert (dataset.features.tolist(), dataset.targets.tolist()) == (list("abcde"), ["d"])
    blocks = [load_block(b.x.compute() if b.lazy else b.x) for b in dataset.blocks]
    np.testing.assert_array_equal(np.vstack(blocks), mixed.astype(float))


@pytest.mark.parametrize("kind", ["nullable", "of Arrow", "object", "polars"])
def test_missing_values_of_frames_are_nan(kind: str) -> None:
    holes = FRAME.assign(a=np.where(X[:, 0] > 0, X[:, 0], np.nan), b=X[:, 1] > 0)
    dataset = as_dataset(FRAMES[kind](holes), Y)
    np.testing.assert_array_equal(load_block(dataset.blocks[0].x), holes.astype(float))


def test_booleans_alone_stay_bytes_and_float32_stays_float32() -> None:
    assert as_dataset(FRAME > 0, Y).blocks[0].x.dtype == bool
    assert as_dataset(FRAME.astype("f4").assign(a=X[:, 0] > 0), Y).blocks[0].x.dtype == np.float32


@pytest.mark.parametrize("kind", ["pandas", "nullable", "polars", "Dask"])
def test_columns_that_do_not_hold_numbers_are_named(kind: str) -> None:
    wrong = FRAME.assign(e=[f"text {i}" for i in range(60)], d=pd.Timestamp("2020-01-01"))
    with pytest.raises(DataError) as caught:
        as_dataset(FRAMES[kind](wrong), Y)
    assert "X has 2 problems:" in str(caught.value)
    assert "column 'd' holds dates or times" in str(caught.value)
    assert 'Ask for numbers with dates="days", or leave the column out.' in str(caught.value)
    assert (
        "column 'e': 'text 0' is text, and nearly all of its values differ, as those of an identifier. Leave it"
        in str(caught.value)
    )
    with pytest.raises(DataError, match="y has 1 class"):
        as_dataset(X, FRAMES[kind](wrong.assign(e="one"))["e"])
    with pytest.raises(DataError, match=r"1 column of X holds text or categories: 'a'\. Leave them out"):
        as_dataset(FRAMES[kind](FRAME.assign(a=["u", "v"] * 30)), Y, categories="refuse")


def test_empty_chunks_make_no_blocks() -> None:
    dataset = as_dataset(da.from_array(X, chunks=((0, 20, 0, 40, 0), (5, 0))), da.from_array(Y, chunks=((60, 0), 2)))
    assert [(b.start, b.stop) for b in dataset.blocks] == [(0, 20), (20, 60)]
    np.testing.assert_array_equal(np.vstack([load_block(b.x.compute()) for b in dataset.blocks]), X)


def test_columns_without_a_value_are_noted() -> None:
    x = X.copy()
    x[:, 2] = np.nan
    s = dsel.select(x, Y, k=2, missing="mean")
    notes = [note for note in s.notes if "x2" in note]
    assert notes == ["1 column that is never chosen has no value at all, or only zeros: x2"]
