"""Targets in memory next to a store: the answers are those of a store that holds the same targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr

import dsel
from dsel import select
from dsel.api.run_select import select_from
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.engine.clusters.local import local_cluster
from dsel.errors import DataError, DselError, OptionError
from dsel.jobs.run_folder import RunFolder
from dsel.passes.data_pass import log_passes
from dsel.passes.statistics_cache import StatisticsCache
from tests.data.test_sparse import write
from tests.on_workers import hold_column_blocks
from tests.stores import append_rows, make_store, regression

RNG = np.random.default_rng(0)
M = 240
FRAME = pd.DataFrame(
    {"a": RNG.normal(size=M), "b": RNG.normal(size=M), "c": RNG.choice(["u", "v", "w"], size=M)},
    index=pd.Index([f"p{i}" for i in RNG.permutation(M)], name="patient"),
).assign(d=np.where(np.arange(M) % 7, RNG.normal(size=M), np.nan))
WEIGHTS = RNG.uniform(0.5, 2.0, size=M)
SCORE = (2 * FRAME.a - FRAME.b + (FRAME.c == "u") + RNG.normal(size=M)).rename("score")
RISK = SCORE.gt(0).map({True: "high", False: "low"}).rename("risk")
BOTH = pd.DataFrame({"score": SCORE, "other": FRAME.b + 0.3 * RNG.normal(size=M)})
LABELLED = xr.DataArray(SCORE.to_numpy(), dims="patient", coords={"patient": FRAME.index.to_numpy()}, name="score")
ASKED: dict[str, Any] = {"k": 2, "method": "forward", "missing": "mean"}


def ingested(path: Path, y: Any = None) -> Path:
    """Write a store with categories, missing values and weights, and with targets if they are given."""
    dsel.ingest(FRAME, path, y=y, weight=WEIGHTS, categorical=["c"], missing="keep")
    return path


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ingested(tmp_path_factory.mktemp("features") / "features.zarr")


def same(found: dsel.Selection, expected: dsel.Selection) -> None:
    for name in ("indices", "error", "groups", "weights", "targets", "classes", "r2", "loss_parameters"):
        assert getattr(found, name) == getattr(expected, name), name
    np.testing.assert_array_equal(found.coefficients, expected.coefficients)


def test_the_columns_of_another_store_are_targets(features: Path, tmp_path: Path) -> None:
    dsel.ingest(BOTH, tmp_path / "targets.zarr")
    y = xr.open_zarr(tmp_path / "targets.zarr", consolidated=False).X
    found = dsel.select(features, y, **ASKED)
    assert found.targets == ("score", "other")
    same(found, dsel.select(features, BOTH, **ASKED))


@pytest.mark.parametrize(
    ("y", "stored", "asked"),
    [
        (SCORE, SCORE, {}), (BOTH, BOTH, {}), (LABELLED, SCORE, {}), (LABELLED[::-1], SCORE, {}),
        (SCORE.to_numpy(), SCORE.rename("y0"), {}), (SCORE.tolist(), SCORE.rename("y0"), {}),
        (da.from_array(SCORE.to_numpy()), SCORE.rename("y0"), {}), (RISK, RISK, {}), (SCORE, SCORE, {"k": "auto"}),
        (RISK.astype("category"), RISK, {"loss": "logistic", "class_weight": {"high": 2.0}}),
        (SCORE, SCORE, {"groups": None, "sample_weight": False, "missing": "mean", "lam": 0.5}),
    ],
)  # fmt: skip
def test_the_answer_is_that_of_a_store_with_the_targets(
    features: Path, tmp_path: Path, y: Any, stored: Any, asked: dict[str, Any]
) -> None:
    asked = {**ASKED, **asked}
    expected = dsel.select(ingested(tmp_path / "whole.zarr", stored), **asked)
    found = dsel.select(features, y, **asked)
    same(found, expected)
    assert found.targets
    assert found.source == str(features)


def test_the_store_may_have_targets_of_its_own(tmp_path: Path) -> None:
    whole = ingested(tmp_path / "whole.zarr", RISK)
    found = dsel.select(whole, SCORE, **ASKED, class_weight=None)
    assert found.targets == ("score",)
    same(found, dsel.select(ingested(tmp_path / "other.zarr", SCORE), **ASKED))


def test_a_window_takes_the_same_rows_of_the_targets(tmp_path: Path) -> None:
    X, Y = regression(m=300)
    stores = [make_store(tmp_path / name, X[:200], y, chunks=(20, 7)) for name, y in (("a", Y[:200]), ("b", None))]
    for store, y in zip(stores, (Y, None), strict=True):
        append_rows(store, X, y)
    y = np.where(np.arange(300) < 200, np.nan, Y[:, 0])[:, None]  # what is outside of the window does not matter
    for method in ("forward", "greedy-rls", "kfold"):
        asked: dict[str, Any] = {"k": 3, "method": method, "lam": 1.0, "rows": {"last": 1}}
        same(dsel.select(stores[1], y, **asked), dsel.select(stores[0], **asked))


def test_a_sparse_store_takes_them_too(tmp_path: Path) -> None:
    X = scipy.sparse.random(60, 12, 0.4, format="csr", random_state=0)
    y = X.toarray()[:, 3] - 2 * X.toarray()[:, 7] + 0.1 * RNG.normal(size=60)
    found = dsel.select(write(tmp_path / "s.zarr", X), y, k=2, method="forward")
    expected = dsel.select(write(tmp_path / "y.zarr", X, y=y), k=2, method="forward", targets=["y"])
    assert (found.indices, found.error) == (expected.indices, expected.error)


def test_wide_data_and_workers_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = regression(m=200, n=60)
    whole = make_store(tmp_path / "whole.zarr", X, Y, chunks=(50, 20))
    alone = make_store(tmp_path / "alone.zarr", X, None, chunks=(50, 20))
    for held in (False, True):
        if held:
            hold_column_blocks(monkeypatch.setattr)
        expected = dsel.select(whole, k=3, method="forward")
        same(dsel.select(alone, Y, k=3, method="forward"), expected)
        assert expected.plan is not None
        assert expected.plan["representation"] == ("column-blocks" if held else "gram")
    with local_cluster(1, "1GiB"):
        same(dsel.select(alone, Y, k=3, method="forward"), expected)


def test_proofs_alternatives_stability_sums_and_scores_take_them(features: Path, tmp_path: Path) -> None:
    whole = ingested(tmp_path / "whole.zarr", SCORE)
    expected, found = dsel.select(whole, **ASKED), dsel.select(features, SCORE, **ASKED)
    a, b = dsel.certify(expected, whole).certificate[-1], dsel.certify(found, features, SCORE).certificate[-1]
    assert (a["value"], a["bound"], a["proven"]) == (b["value"], b["bound"], b["proven"])
    assert dsel.alternatives(found, features, SCORE).verdicts == dsel.alternatives(expected, whole).verdicts
    for y in (SCORE, LABELLED[::-1], SCORE.to_numpy()):
        assert found.score(features, y) == pytest.approx(expected.score(whole), rel=1e-9)
    with pytest.raises(DataError, match="indexes of X and Y differ"):
        found.score(features, SCORE[::-1])
    sampling: dict[str, Any] = {"k": 2, "samples": 10, "parts": 4, "missing": "mean"}
    frequencies = [dsel.stability(*data, **sampling).frequencies for data in ((whole,), (features, SCORE))]
    np.testing.assert_array_equal(*frequencies)


def test_sums_take_them(tmp_path: Path) -> None:
    X, Y = regression(m=300)
    store = make_store(tmp_path / "s.zarr", X[:200], None, chunks=(50, 12))
    append_rows(store, X)
    sums = dsel.sums(store, Y)
    assert dsel.select(sums, k=3, method="forward").indices == dsel.select(X, Y, k=3, method="forward").indices


def test_saved_statistics_are_those_of_the_targets(tmp_path: Path) -> None:
    X, Y = regression(m=300)
    store, cache = make_store(tmp_path / "s.zarr", X[:200], Y[:200], chunks=(50, 12)), StatisticsCache(tmp_path / "c")
    append_rows(store, X, Y)
    targets = [Y[:, 0], X[:, 3] - X[:, 9], Y[:, 0]]
    request = SelectionRequest(k=2, method="forward")
    own = select_from(as_dataset(store), request, cache)
    found, passes = [], []
    for y in targets:
        with log_passes() as made:
            found.append(select_from(as_dataset(store, y), request, cache))
        passes.append([one.name for one in made.records])
        assert found[-1].indices == dsel.select(X, y, k=2, method="forward").indices
    assert len({selection.fingerprint for selection in (own, *found)}) == 3
    assert ["Gram matrix" in names for names in passes] == [True, True, False]


def test_the_call_that_certifies_names_them(features: Path, tmp_path: Path) -> None:
    dsel.select(features, SCORE, **ASKED).save(tmp_path / "saved")
    with pytest.raises(DselError, match=r"certify\(.*features.zarr\", y\)"):
        RunFolder(tmp_path / "saved").job()


@pytest.mark.parametrize(
    ("call", "error", "what", "remedy"),
    [
        (lambda s: select(s, SCORE[:50], k=2), DataError, "X has 240 rows and Y has 50", "one row for each"),
        (lambda s: select(s, SCORE.where(SCORE < 2), **ASKED), DataError, "Y has NaN .*'score'", "a number for each"),
        (lambda s: select(s, SCORE[::-1], k=2), DataError, "indexes of X and Y differ", r"open_store\(X\).samples"),
        (lambda s: select(s, LABELLED[:50], k=2), DataError, "no rows for 190 of the 240", "the same samples"),
        (lambda s: select(s, "score", k=2), OptionError, "Y is text, and X is the store", "by targets"),
        (lambda s: select(s, RISK.tolist(), k=2), OptionError, "Y is text, and X is the store", r"numpy.array\(Y\)"),
        (lambda s: select(s, SCORE, targets=["score"], k=2), OptionError, "targets is given next to Y", "Leave Y out"),
        (lambda s: dsel.certify(select(s, SCORE, **ASKED), s), DataError, "no targets, and .* for score", "Give the Y"),
        (lambda s: dsel.certify(select(s, SCORE, **ASKED), s, -SCORE**2), DataError, "not the data", "Give the X, Y"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong_with_them(
    features: Path, call: Callable[[Path], Any], error: type[DselError], what: str, remedy: str
) -> None:
    with pytest.raises(error, match=f"(?s){what}.*{remedy}"):
        call(features)


DAYS = pd.date_range("2001-01-01", periods=60)
FIELD = xr.DataArray(
    RNG.normal(size=(60, 5)), coords={"time": DAYS, "lev": list("abcde")}, dims=("time", "lev"), name="T"
)
OF_DAYS = pd.Series(FIELD.values[:, 1] - FIELD.values[:, 3], index=DAYS, name="y")


def dated(kind: str, path: Path) -> str:
    """Write a store whose samples are days, and return the text of the first one."""
    if kind == "csv":
        pd.DataFrame(FIELD.values, index=DAYS, columns=list("abcde")).to_csv(path / "data.csv", index_label="day")
        dsel.ingest(path / "data.csv", path / "x.zarr", index="day")
        return "2001-01-01"
    if kind == "nanoseconds":  # as earlier versions wrote them
        ingest_arrays(FIELD.values, path / "x.zarr", samples=[str(day.value) for day in DAYS], features=list("abcde"))
        return "978307200000000000"
    if kind == "netcdf":
        FIELD.to_dataset().to_netcdf(path / "data.nc")
    if kind == "zarr":
        FIELD.to_dataset().chunk(time=7).to_zarr(path / "data.zarr", zarr_format=2)
    source = {"netcdf": path / "data.nc", "zarr": path / "data.zarr"}.get(kind, FIELD)
    dsel.ingest(source, path / "x.zarr", chunk_rows=8)
    return "2001-01-01 00:00:00"


@pytest.mark.parametrize("kind", ["zarr", "netcdf", "xarray", "csv", "nanoseconds"])
def test_moments_are_matched_with_the_text_of_a_store(kind: str, tmp_path: Path) -> None:
    first, store = dated(kind, tmp_path), tmp_path / "x.zarr"
    assert dsel.open_store(store).samples[0] == first
    labelled = xr.DataArray.from_series(OF_DAYS)
    for y in (OF_DAYS, labelled, labelled[::-1]):
        found = dsel.select(store, y, k=2)
        assert sorted(found.labels) == ["b", "d"]
    assert found.score(store, OF_DAYS)["r2"] == pytest.approx(1.0)
    with pytest.raises(DataError, match="row 0 is 2001-01-01 00:00:00 in X and 2001-03-01 00:00:00") as caught:
        dsel.select(store, OF_DAYS[::-1], k=2)
    advice = str(caught.value).split("same order (Y")[1].split("), or")[0]
    known = {"Y": OF_DAYS[::-1], "dsel": dsel, "pandas": pd, "X": store}
    assert sorted(dsel.select(store, eval(f"Y{advice}", known), k=2).labels) == ["b", "d"]
    with pytest.raises(DataError, match="Give them the same labels, or pass"):
        dsel.select(store, OF_DAYS.shift(1, freq="D"), k=2)


def test_dates_as_text_are_matched_with_moments(tmp_path: Path) -> None:
    dsel.ingest(FIELD, tmp_path / "x.zarr")
    frame, words = FIELD.to_pandas(), OF_DAYS.set_axis(DAYS.astype(str))
    labelled = xr.DataArray.from_series(words.rename_axis("time"))
    pairs: list[Any] = [(X, y) for X in (tmp_path / "x.zarr", frame, FIELD) for y in (words, labelled)]
    by_text = frame.set_axis(words.index)
    for X, y in [*pairs, (FIELD, labelled[::-1]), (by_text, OF_DAYS), (by_text, words.set_axis(DAYS.map(str)))]:
        assert sorted(dsel.select(X, y, k=2).labels) == ["b", "d"]
    for X, y in (tmp_path / "x.zarr", words), (frame, words), (by_text, OF_DAYS):
        with pytest.raises(DataError, match="row 0 is 2001-01-01 00:00:00 in X and 2001-03-01 00:00:00") as caught:
            dsel.select(X, y[::-1], k=2)
        advice = str(caught.value).split("same order (")[1].split("), or")[0]
        ordered = eval(advice, {"Y": y[::-1], "dsel": dsel, "pandas": pd, "X": X})
        assert sorted(dsel.select(X, ordered, k=2).labels) == ["b", "d"]
    with pytest.raises(DataError, match="Give them the same labels, or pass"):
        dsel.select(frame, words.set_axis((DAYS + pd.Timedelta(days=90)).astype(str)), k=2)


def test_offsets_and_groups_of_rows_are_matched_by_the_labels_of_a_store(features: Path) -> None:
    shift = pd.Series(RNG.uniform(size=M), FRAME.index, name="shift")
    groups = pd.Series(np.arange(M) % 7, FRAME.index, name="ward")
    counts = pd.Series(RNG.poisson(np.exp(FRAME.a + shift)), FRAME.index, name="counts")

    def by_offset(values: Any) -> dsel.Selection:
        return dsel.select(features, counts, **ASKED, loss="poisson", offset=values)

    def by_groups(values: Any) -> dsel.Selection:
        return dsel.select(features, SCORE, **{**ASKED, "method": "kfold"}, folds=4, row_groups=values)

    for call, values in (by_offset, shift), (by_groups, groups):
        labelled = xr.DataArray(values.to_numpy(), {"patient": FRAME.index.to_numpy()}, "patient", str(values.name))
        expected = call(values.to_numpy())
        for given in (values, labelled, labelled[::-1]):
            same(call(given), expected)
        with pytest.raises(DataError, match=r"indexes of X and (offset|row_groups) differ.*open_store\(X\).samples"):
            call(values[::-1])
        if call is by_offset:
            for given in (values, labelled[::-1]):
                predicted = expected.predict(features, offset=given)
                np.testing.assert_array_equal(predicted, expected.predict(features, offset=values.to_numpy()))


def test_an_order_is_advised_as_the_labels_are_written(tmp_path: Path) -> None:
    ingest_arrays(FIELD.values, tmp_path / "x.zarr", samples=[*map(str, range(60))])
    y = OF_DAYS.reset_index(drop=True)[::-1]
    with pytest.raises(DataError, match=r"Y.loc\[dsel.open_store\(X\).samples.astype\(int\)\]"):
        dsel.select(tmp_path / "x.zarr", y, k=2)
    ordered = y.loc[dsel.open_store(tmp_path / "x.zarr").samples.astype(int)]
    assert sorted(dsel.select(tmp_path / "x.zarr", ordered, k=2).labels) == ["x1", "x3"]
    with pytest.raises(DataError, match=r'Y.loc\[X.indexes\["time"\]\]'):
        dsel.select(FIELD, OF_DAYS[::-1], k=2)


def test_features_that_are_days_have_no_time(tmp_path: Path) -> None:
    coords = {"site": range(20), "day": DAYS[:3], "band": ["g", "r"]}
    cube = xr.DataArray(RNG.normal(size=(20, 3, 2)), coords=coords, dims=list(coords), name="cube")
    half_days = cube.assign_coords(day=pd.date_range("2001-01-01", periods=3, freq="12h"))
    for data, label in (cube, "2001-01-02"), (half_days, "2001-01-01 12:00:00"):
        found = dsel.select(data, data.values[:, 1, 0], k=1)
        assert found.labels == [f"day={label},band=g"]
        np.testing.assert_allclose(found.predict(data), data.values[:, 1, 0])
        dsel.ingest(data.to_dataset(), tmp_path / "x.zarr", dimension="site", overwrite=True)
        assert f"day={label},band=g" in dsel.open_store(tmp_path / "x.zarr").features
        matrix = data[..., 0]
        assert np.shape(found.transform(data)) == (20, 1)
        frame = matrix.to_pandas()
        for X in matrix, frame, frame.astype({frame.columns[2]: "float32"}), dd.from_pandas(frame, npartitions=2):
            chosen = dsel.select(X, matrix.values[:, 1], k=1)
            assert chosen.labels == [label]
            assert np.shape(chosen.transform(frame)) == (20, 1)
        assert dsel.select(frame, frame.columns[1], k=1).targets == (label,)
        first = dsel.select(matrix, matrix.values[:, 0], k=1)
        assert [first.transform(part).shape for part in (frame.iloc[:, :1], matrix[:, :1])] == [(20, 1)] * 2
