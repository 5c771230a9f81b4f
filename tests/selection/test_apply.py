"""Using a selection: the columns it takes and the targets it predicts, for every kind of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import xarray as xr

import dsel
from dsel.errors import DataError
from dsel.selection.results.compare import compare_selections
from tests.stores import make_store, regression

X, Y = regression(m=200, n=20)
TWO = np.column_stack([Y[:, 0], X[:, 3] - 2 * X[:, 8] + 4])
NAMES = [f"gene {j}" for j in range(20)]
NEW = np.random.default_rng(5).normal(size=(30, 20)) * 3 + 1
FORWARD: dict[str, Any] = {"k": 4, "method": "forward"}


def least_squares(
    x: Any, y: Any, S: tuple[int, ...], preprocess: str, lam: float = 0.0, w: Any = None
) -> tuple[Any, Any]:
    """Coefficients and intercept in the units of the data, by ridge regression on augmented rows."""
    w = np.ones(len(x)) if w is None else w
    mean_x, mean_y = np.average(x, axis=0, weights=w), np.average(y, axis=0, weights=w)
    if preprocess == "standardize":
        scale_x = np.sqrt(np.average((x - mean_x) ** 2, axis=0, weights=w))
        scale_y = np.sqrt(np.average((y - mean_y) ** 2, axis=0, weights=w))
    elif preprocess == "unit":
        scale_x, scale_y = np.sqrt((w[:, None] * x**2).sum(0)), np.sqrt((w[:, None] * y**2).sum(0))
    else:
        scale_x, scale_y = np.ones(x.shape[1]), np.ones(y.shape[1])
    if preprocess in ("unit", "none"):
        mean_x, mean_y = 0 * mean_x, 0 * mean_y
    root, columns = np.sqrt(w)[:, None], list(S)
    z, t = root * ((x - mean_x) / scale_x)[:, columns], root * (y - mean_y) / scale_y
    z = np.vstack([z, np.sqrt(lam) * np.eye(len(S))])
    t = np.vstack([t, np.zeros((len(S), y.shape[1]))])
    A = np.linalg.lstsq(z, t, rcond=None)[0] * scale_y / scale_x[columns][:, None]
    return A, mean_y - mean_x[columns] @ A


@pytest.mark.parametrize("preprocess", ["standardize", "center", "unit", "none"])
@pytest.mark.parametrize("lam", [0.0, 2.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_are_those_of_least_squares_in_the_units_of_the_data(
    preprocess: Any, lam: float, weighted: bool
) -> None:
    w = np.random.default_rng(1).integers(0, 4, size=200).astype(float) if weighted else None
    x = X * np.linspace(0.01, 100, 20) + 7
    s = dsel.select(x, TWO, preprocess=preprocess, lam=lam, sample_weight=w, **FORWARD)
    A, b = least_squares(x, TWO, s.indices, preprocess, lam, w)
    np.testing.assert_allclose(s.predict(NEW), NEW[:, s.indices] @ A + b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("intercept", ["center", "column", "none"])
def test_every_intercept_of_greedy_rls_is_in_the_units_of_the_data(intercept: str) -> None:
    x, preprocess = X + 3, "center" if intercept == "center" else "none"
    s = dsel.select(x, TWO, k=4, method="greedy-rls", lam=2.5, preprocess=preprocess, intercept=intercept)  # type: ignore[arg-type]
    if intercept == "column":  # penalized like a column of X
        z = np.column_stack([np.ones(200), x[:, s.indices]])
        w = np.linalg.solve(z.T @ z + 2.5 * np.eye(5), z.T @ TWO)
        A, b = w[1:], w[0]
    else:
        A, b = least_squares(x, TWO, s.indices, preprocess, 2.5)
    np.testing.assert_allclose(s.predict(NEW), NEW[:, s.indices] @ A + b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("preprocess", ["none", "unit"])
@pytest.mark.parametrize("loss", ["squared", "zero-one"])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_a_column_of_ones_the_headline_has_r2_of_the_model_that_predicts(
    preprocess: str, loss: str, weighted: bool
) -> None:
    y = TWO if loss == "squared" else np.column_stack([TWO[:, 0] > 0.0, np.where(TWO[:, 1] > 1.0, 1.0, -1.0)]) * 1.0
    w = np.random.default_rng(3).uniform(0.5, 2.0, 200) if weighted else None
    s = dsel.select(
        X + 3,
        y,
        k=4,
        method="greedy-rls",
        lam=0.5,
        preprocess=preprocess,
        loss=loss,
        intercept="column",
        sample_weight=w,
    )
    r2 = s.score(X + 3, y, sample_weight=w)["r2"]
    assert s.counts["r2_with_ones"] == pytest.approx(r2, rel=1e-9)
    assert f"of Y, and {r2:.4%} with the column of ones (200 rows" in str(s)
    assert "r2_with_ones" not in dsel.select(X, y, k=2, method="greedy-rls", lam=0.5, loss=loss).counts


def test_missing_values_are_replaced_by_the_means_of_the_data_of_the_selection() -> None:
    x = X.copy()
    x[::7, 3] = np.nan
    s = dsel.select(x, TWO, missing="mean", **FORWARD)
    assert 3 in s.indices
    filled, new = np.where(np.isnan(x), np.nanmean(x, axis=0), x), NEW.copy()
    A, b = least_squares(filled, TWO, s.indices, "standardize")
    new[4] = np.nan
    expected = np.where(np.isnan(new), np.nanmean(x, axis=0), new)[:, s.indices] @ A + b
    np.testing.assert_allclose(s.predict(new), expected, rtol=1e-9)
    refusing = dsel.select(X, TWO, **FORWARD).predict(new)
    assert np.isnan(refusing[4]).all()
    assert not np.isnan(np.delete(refusing, 4, axis=0)).any()


def test_targets_of_one_dimension_are_predicted_with_one() -> None:
    assert dsel.select(X, Y[:, 0], **FORWARD).predict(NEW).shape == (30,)
    assert dsel.select(X, Y, **FORWARD).predict(NEW).shape == (30, 1)
    assert dsel.select(X, list(Y[:, 0]), **FORWARD).predict(NEW).shape == (30,)
    series = dsel.select(X, pd.Series(Y[:, 0], name="yield"), **FORWARD)
    assert series.predict(NEW).shape == (30,)


def test_where_y_is_x_all_columns_are_approximated() -> None:
    s = dsel.select(X, **FORWARD)
    A, b = least_squares(X, X, s.indices, "standardize")
    np.testing.assert_allclose(s.predict(NEW), NEW[:, s.indices] @ A + b, rtol=1e-9, atol=1e-9)
    frame = dsel.select(pd.DataFrame(X, columns=NAMES), **FORWARD).predict(pd.DataFrame(NEW, columns=NAMES))
    assert list(frame.columns) == NAMES


SELECTION = dsel.select(pd.DataFrame(X, columns=NAMES), pd.DataFrame(TWO, columns=["u", "v"]), **FORWARD)
FRAME = pd.DataFrame(NEW, columns=NAMES, index=[f"row {i}" for i in range(30)])
ARRAY = xr.DataArray(NEW, {"feature": NAMES, "sample": FRAME.index}, dims=("sample", "feature"))

KINDS: dict[str, tuple[Any, Any]] = {
    "numpy": (NEW, np.asarray),
    "list": (NEW.tolist(), np.asarray),
    "sparse": (scipy.sparse.csr_array(NEW), lambda x: x.toarray() if hasattr(x, "toarray") else x),
    "coo": (scipy.sparse.coo_matrix(NEW), lambda x: x.toarray() if hasattr(x, "toarray") else x),
    "pandas": (FRAME, lambda x: x.to_numpy()),
    "pandas, other order": (FRAME[NAMES[::-1]].assign(more="text"), lambda x: x.to_numpy()),
    "polars": (pl.from_pandas(FRAME), lambda x: x.to_numpy()),
    "dask": (da.from_array(NEW, chunks=(7, 5)), lambda x: x.compute()),
    "dask frame": (dd.from_pandas(FRAME, npartitions=3, sort=False), lambda x: x.compute().to_numpy()),
    "xarray": (ARRAY, lambda x: x.values),
    "xarray of dask": (ARRAY.chunk({"sample": 8}), lambda x: x.compute().values),
    "transposed": (ARRAY.T, lambda x: x.values),
    "xarray dataset": (xr.Dataset({"X": ARRAY}), lambda x: x.values),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_columns_and_predictions(kind: str) -> None:
    data, values = KINDS[kind]
    chosen, found = SELECTION.transform(data), SELECTION.predict(data)
    expected = NEW[:, SELECTION.indices]
    np.testing.assert_array_equal(values(chosen), expected)
    np.testing.assert_allclose(values(found), expected @ SELECTION.coefficients + SELECTION.intercept, rtol=1e-12)


def test_labels_and_laziness_of_the_data_are_kept() -> None:
    frame = SELECTION.predict(FRAME)
    assert list(frame.columns) == ["u", "v"]
    assert frame.index.equals(FRAME.index)
    assert list(SELECTION.transform(FRAME).columns) == SELECTION.labels
    assert list(FRAME[SELECTION.labels].columns) == SELECTION.labels
    assert SELECTION.predict(pl.from_pandas(FRAME)).columns == ["u", "v"]
    lazy = SELECTION.predict(ARRAY.chunk({"sample": 8}))
    assert isinstance(lazy.data, da.Array)
    assert lazy.dims == ("sample", "target")
    assert lazy.target.values.tolist() == ["u", "v"]
    assert lazy.sample.values.tolist() == FRAME.index.tolist()
    assert isinstance(SELECTION.predict(da.from_array(NEW)), da.Array)
    assert hasattr(SELECTION.predict(dd.from_pandas(FRAME, npartitions=2)), "dask")
    one = dsel.select(pd.DataFrame(X, columns=NAMES), pd.Series(Y[:, 0], name="yield"), **FORWARD).predict(FRAME)
    assert isinstance(one, pd.Series)


def test_sparse_blocks_and_masked_values_are_taken() -> None:
    lazy = da.from_array(NEW, chunks=(7, -1)).map_blocks(scipy.sparse.csr_matrix)
    np.testing.assert_allclose(SELECTION.predict(lazy).compute(), SELECTION.predict(NEW))
    masked = np.ma.masked_array(NEW, mask=False)
    masked[3] = np.ma.masked
    assert np.isnan(SELECTION.predict(masked)[3]).all()
    nullable = FRAME.convert_dtypes()
    nullable.iloc[3, SELECTION.indices[0]] = pd.NA
    assert SELECTION.predict(nullable).isna().sum().tolist() == [1, 1]


def test_a_frame_without_a_header_is_renamed_to_predict(tmp_path: Path) -> None:
    x = np.column_stack([X[:, :4], 2 * X[:, 1] - X[:, 3], X[:, 4:7]])
    np.savetxt(tmp_path / "plain.csv", x, delimiter=",")
    dsel.ingest(tmp_path / "plain.csv", tmp_path / "s.zarr", target="x4", header=False)
    s = dsel.select(tmp_path / "s.zarr", k=2, method="forward", include=["x6"])
    assert set(s.labels) == {"x6", "x1"}
    assert s.labels[0] == dsel.select(tmp_path / "s.zarr", k=1, method="forward", include=[5]).labels[0]  # a position
    frame = pd.read_csv(tmp_path / "plain.csv", header=None)
    with pytest.raises(DataError, match=r"lacks 2 of the 2 .* It has 0, 1, .* rename the columns, by X.add_prefix"):
        s.predict(frame)
    named, expected = frame.add_prefix("x"), s.predict(tmp_path / "s.zarr").values
    assert expected.shape == (200, 1)
    for rows in (named, named.drop(columns="x7")):  # x0 to x6 are as many as the features, and other ones
        np.testing.assert_allclose(s.predict(rows), expected, rtol=1e-12)


@pytest.mark.parametrize("Y", [[8, 3], 8])
def test_whole_numbers_that_name_columns_name_predictions(tmp_path: Path, Y: list[int] | int) -> None:
    frame = pd.DataFrame(X[:, :10])  # as read_csv(header=None)
    rest = frame.drop(columns=Y)
    for s in (dsel.select(frame, Y, k=2, method="forward"), dsel.select(rest, frame[Y], k=2, method="forward")):
        s.save(tmp_path / "r", overwrite=True)
        for selection in (s, dsel.open_selection(tmp_path / "r")):
            found = selection.predict(frame)
            A, b = least_squares(X, X[:, np.atleast_1d(Y)], tuple(selection.labels), "center")
            np.testing.assert_allclose(
                (frame[Y] - found).T, frame[Y].T - (X[:, selection.labels] @ A + b).T.squeeze(), atol=1e-12
            )
            assert (found.name if Y == 8 else list(found.columns)) == Y
    by_text = s.predict(pl.DataFrame(X[:, :10], schema=[str(j) for j in range(10)]))
    assert (by_text.name if Y == 8 else by_text.columns) == ("8" if Y == 8 else ["8", "3"])


def test_labels_that_are_whole_numbers_are_compared_as_such() -> None:
    frame = pd.DataFrame(X[:, :10])
    first, second = (dsel.select(frame, 8, k=2, method="forward", include=[j]) for j in (5, 6))
    found = compare_selections(first, second)
    assert str(found) == found.render()
    assert {*found.in_common, *found.only_first} == set(first.labels)
    assert set(found.only_second) == set(second.labels) - set(first.labels)


def test_a_store_is_read_when_the_values_are_computed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, TWO, chunks=(64, 5))
    s = dsel.select(store, **FORWARD)
    found = s.predict(store)
    assert isinstance(found.data, da.Array)
    np.testing.assert_allclose(found.values, s.predict(X), rtol=1e-12)
    assert s.transform(str(store)).feature.values.tolist() == s.labels


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (FRAME.drop(columns=[SELECTION.labels[0], SELECTION.labels[2]]), "lacks 2 of the 4 chosen columns: gene"),
        (NEW[:, :5], "X has 5 columns without labels, and the selection was made from 20"),
        (NEW[0], "two dimensions"),
        (FRAME.assign(**{SELECTION.labels[1]: "text"}), f"Column {SELECTION.labels[1]} does not hold numbers"),
        (FRAME.astype(object).assign(**{SELECTION.labels[1]: "text"}).to_numpy(), SELECTION.labels[1]),
        (FRAME.assign(**{SELECTION.labels[1]: FRAME[SELECTION.labels[1]].astype(str)}), "hold numbers: '.*' is text"),
        (FRAME.to_numpy().astype(str), f"{SELECTION.labels[0]} does not hold numbers: '.*' is text"),
        (FRAME.astype(object).assign(**{SELECTION.labels[1]: "1.5"}).to_numpy(), "hold numbers: '1.5' is text"),
        (pd.concat([FRAME, FRAME[[SELECTION.labels[1]]]], axis=1), "several columns called"),
        (xr.Dataset({"data": ARRAY, "more": ARRAY}), "2 variables that may be X"),
    ],
)
def test_what_does_not_fit_is_named(data: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        SELECTION.predict(data)


def test_a_selection_from_data_without_labels_says_so() -> None:
    with pytest.raises(DataError, match=r"without labels: pass X without them, such as X.to_numpy\(\)"):
        dsel.select(X, Y, **FORWARD).predict(FRAME)


def test_a_selection_without_columns_predicts_the_mean() -> None:
    s = dsel.select(X, Y[:, 0], k=2, lam=1e300, iterations=100)
    np.testing.assert_allclose(s.predict(NEW), Y.mean())
    assert s.transform(NEW).shape == (30, 0)


class TestOneRSquared:
    """The front, the answer and what is printed tell the same share, without the penalty."""

    @pytest.mark.parametrize("include", [(), (2,)])
    @pytest.mark.parametrize("lam", [0.0, 30.0])
    def test_of_every_size(self, lam: float, include: tuple[int, ...]) -> None:
        s = dsel.select(X, TWO, k=4, lam=lam, include=include, iterations=3000)
        for row in s.front:
            if row.size:
                A, b = least_squares(X, TWO, row.indices, "standardize", lam)
                left = (TWO - X[:, row.indices] @ A - b) / TWO.std(axis=0)
                assert row.r2 == pytest.approx(1 - (left**2).sum() / TWO.size, abs=1e-9)
        assert s.front[-1].r2 >= 0
        assert next(row.r2 for row in s.front if set(row.indices) == set(s.indices)) == pytest.approx(s.r2, abs=1e-9)

    def test_where_y_is_x(self) -> None:
        s = dsel.select(X, k=3, lam=40.0, iterations=3000)
        assert next(row.r2 for row in s.front if row.size == 3) == pytest.approx(s.r2, abs=1e-9)

    def test_of_groups_with_a_total_and_a_tiny_penalty(self) -> None:
        rng = np.random.default_rng(0)
        A = rng.integers(-9, 10, size=(60, 4)).astype(float)
        A, y = np.column_stack([A, A[:, 0] + A[:, 1]]), A[:, 0] + A[:, 2] + rng.normal(size=60)
        s = dsel.select(A, y, k=2, lam=1e-12, preprocess="none", groups={"sums": [0, 1, 4]}, method="forward")
        assert s.front[-1].r2 == pytest.approx(s.r2, abs=1e-9)

    def test_a_grid_of_penalties_gives_no_false_alarm(self) -> None:
        s = dsel.select(X, Y, k=3, method="greedy-rls", lam_grid=[0.1, 100.0, 10_000.0])
        assert not any("recomputed from the data" in note for note in s.notes)
        assert s.front[0].r2 == pytest.approx(s.r2, abs=1e-9)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_score_of_rows_with_missing_values_is_refused_unless_the_selection_has_means(targets: int) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 4))
    Y = X[:, :targets] + 0.1 * rng.normal(size=(60, targets))
    gaps = X.copy()
    gaps[[5, 9], 0] = np.nan
    with pytest.raises(DataError, match=r"missing values in chosen columns of 2 rows, such as row 5.*missing=.mean"):
        dsel.select(X, Y, k=2).score(gaps, Y)
    filled = np.where(np.isnan(gaps), np.nanmean(gaps, axis=0), gaps)
    means = dsel.select(gaps, Y, k=2, missing="mean")
    assert means.score(gaps, Y) == pytest.approx(means.score(filled, Y))
