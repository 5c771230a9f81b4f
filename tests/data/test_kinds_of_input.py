"""Every kind of input gives the same columns and R2 to `dsel.select`, to a selector, and through a store."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import anndata
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import xarray as xr
import zarr

import dsel
from dsel.errors import DataError, OptionError
from dsel.sklearn import ForwardSelector
from tests.cli_runner import call

M, K = 120, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((M, 6))
NUMBERS = pd.DataFrame(X, columns=list("abcdef"))
COLOUR = RNG.choice(["red", "green", "blue"], M)
MIXED = NUMBERS.assign(colour=COLOUR, open=RNG.random(M) > 0.5)
Y = pd.Series(2 * X[:, 1] - X[:, 4] + 3 * (COLOUR == "red") + 0.1 * RNG.standard_normal(M), name="y")
CLASSES = pd.Series(np.where(Y > 2, "high", np.where(Y > 0, "mid", "low")), name="y")
DAYS = NUMBERS.assign(when=pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, M), unit="D"))
DAY_NUMBERS = (DAYS["when"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
CUBE = xr.DataArray(X.reshape(M, 3, 2), dims=("time", "lat", "lon"))
ANNOTATED = anndata.AnnData(X, obs=pd.DataFrame({"y": Y.to_numpy()}, index=[f"s{i}" for i in range(M)]))
ANNOTATED.var_names = list(NUMBERS.columns)
SPARSE = ANNOTATED.copy()
SPARSE.X = scipy.sparse.csr_matrix(X)


def dask_frame(frame: pd.DataFrame) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)


def polars_frame(frame: pd.DataFrame) -> pl.DataFrame:
    return pl.DataFrame({name: frame[name].tolist() for name in frame})


@dataclass
class Kind:
    """An input: features, targets, a source for `dsel.ingest`, and the same as a frame of pandas.

    Without a source, X and Y are ingested as they are.
    """

    X: Any
    Y: Any
    source: Any = None
    reference: pd.DataFrame = field(default_factory=lambda: NUMBERS)
    expected_y: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    labels: bool = True


def array(x: Any, source: Any = None) -> Kind:
    return Kind(x, Y.to_numpy(), source, labels=False)


def frame(make: Callable[[pd.DataFrame], Any], of: pd.DataFrame = MIXED, y: pd.Series = Y) -> Kind:
    whole = of.assign(y=y.to_numpy())
    return Kind(make(whole), "y", make(whole), of, y)


KINDS: dict[str, Callable[[], Kind]] = {
    "array": lambda: array(X),
    "array in Fortran order": lambda: array(np.asfortranarray(X)),
    "sparse matrix": lambda: array(scipy.sparse.csr_matrix(X)),
    "sparse matrix by columns": lambda: array(scipy.sparse.csc_matrix(X)),
    "lists": lambda: array(X.tolist()),
    "Dask array": lambda: array(da.from_array(X, chunks=(50, 6))),
    "DataArray": lambda: array(
        xr.DataArray(X, dims=("sample", "feature")),
        source=xr.Dataset({"X": (("sample", "feature"), X), "Y": (("sample", "target"), Y.to_numpy()[:, None])}),
    ),
    "DataArray of three dimensions": lambda: array(CUBE, source=xr.Dataset({"X": CUBE, "y": ("time", Y)})),
    "lazy DataArray of three dimensions": lambda: array(
        CUBE.chunk({"time": 40}), source=xr.Dataset({"X": CUBE.chunk({"time": 40}), "y": ("time", Y)})
    ),
    "Dataset with X": lambda: array(
        xr.Dataset({"X": (("sample", "feature"), X)}),
        source=xr.Dataset({"X": (("sample", "feature"), X), "y": ("sample", Y)}),
    ),
    "Dataset with a cube": lambda: Kind(
        xr.Dataset({"field": CUBE, "y": ("time", Y)}), "y", xr.Dataset({"field": CUBE, "y": ("time", Y)}), labels=False
    ),
    "Dataset of variables": lambda: Kind(
        *(lambda d: (d, "y", d))(xr.Dataset({name: ("sample", column) for name, column in NUMBERS.assign(y=Y).items()}))
    ),
    "AnnData": lambda: Kind(ANNOTATED, "y", ANNOTATED),
    "AnnData with a sparse X": lambda: Kind(SPARSE, "y", SPARSE),
    "view of AnnData": lambda: Kind(ANNOTATED[:M], "y", ANNOTATED[:M]),
    "view of AnnData with a sparse X": lambda: Kind(SPARSE[:M], "y", SPARSE[:M]),
    "pandas": lambda: frame(lambda f: f, NUMBERS),
    "pandas with nullable types": lambda: frame(lambda f: f.convert_dtypes()),
    "pandas with Arrow types": lambda: frame(lambda f: f.convert_dtypes(dtype_backend="pyarrow")),
    "pandas with text": lambda: frame(lambda f: f),
    "pandas with categories": lambda: frame(lambda f: f.assign(colour=f["colour"].astype("category"))),
    "pandas with dates": lambda: Kind(
        DAYS.assign(y=Y), "y", DAYS.assign(y=Y), DAYS.assign(when=DAY_NUMBERS), Y, {"dates": "days"}
    ),
    "polars": lambda: frame(polars_frame),
    "polars LazyFrame": lambda: frame(lambda f: polars_frame(f).lazy()),
    "polars with categories": lambda: frame(
        lambda f: polars_frame(f).with_columns(pl.col("colour").cast(pl.Categorical))
    ),
    "Arrow": lambda: frame(lambda f: pa.Table.from_pandas(f, preserve_index=False)),
    "Arrow with a dictionary": lambda: frame(
        lambda f: pa.Table.from_pandas(f.assign(colour=f["colour"].astype("category")), preserve_index=False)
    ),
    "Dask frame": lambda: frame(dask_frame, NUMBERS),
    "Dask frame with text": lambda: frame(dask_frame),
    "two classes": lambda: frame(lambda f: f, y=CLASSES.replace("mid", "low")),
    "three classes": lambda: frame(lambda f: f, y=CLASSES),
    "categories as a target": lambda: frame(lambda f: f.assign(y=f["y"].astype("category")), y=CLASSES),
    "classes in polars": lambda: frame(polars_frame, y=CLASSES),
    "whole numbers as a target": lambda: frame(lambda f: f, y=CLASSES.map({"low": 0, "mid": 1, "high": 2})),
}


def reference(kind: Kind) -> tuple[list[str], float]:
    """Return the columns and R2 by dummies made by pandas, with the groups given by hand."""
    dummies = pd.get_dummies(kind.reference).astype(float)
    groups = {name: name.partition("_")[0] for name in dummies}
    y = Y if kind.expected_y is None else kind.expected_y
    target = pd.get_dummies(y).astype(float) if y.dtype == object else y
    found = dsel.select(dummies, target, k=K, method="forward", groups=groups)
    return sources(found.labels, "_"), found.r2


def sources(labels: list[str], mark: str = "=") -> list[str]:
    """Return the columns of the frame that labels come from, each once."""
    return list(dict.fromkeys(label.partition(mark)[0] for label in labels))


def positions(names: list[str], kind: Kind, labels: list[str]) -> list[Any]:
    return names if kind.labels else [labels.index(name) for name in names]


@pytest.mark.parametrize("name", KINDS)
def test_three_ways_give_the_same_columns_and_r2(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]()
    columns, r2 = reference(kind)
    numbers = [list(kind.reference).index(column) for column in columns]

    selected = dsel.select(kind.X, kind.Y, k=K, method="forward", **kind.options)
    if kind.labels:
        assert sources(selected.labels) == columns
    else:
        assert list(selected.indices) == numbers
    assert selected.r2 == pytest.approx(r2, abs=1e-10)

    store = tmp_path / "store.zarr"
    if kind.source is None:
        dsel.ingest(kind.X, store, y=kind.Y)
    else:
        takes = {"categorical": "auto"} if isinstance(kind.reference.dtypes.get("colour"), np.dtype) else {}
        is_table = not hasattr(kind.source, "obs") and not isinstance(kind.source, xr.Dataset)
        has_y = isinstance(kind.source, xr.Dataset) and "Y" in kind.source
        dsel.ingest(
            kind.source, store, **({} if has_y else {"target": "y"}), **(takes if is_table else {}), **kind.options
        )
    stored = dsel.select(store, k=K, method="forward")
    assert sources(stored.labels) == columns if kind.labels else list(stored.indices) == numbers
    assert stored.r2 == pytest.approx(r2, abs=1e-10)

    features, target = without_target(kind)
    selector = ForwardSelector(K, dates=kind.options.get("dates", "refuse")).fit(features, target)
    assert selector.indices_.tolist() == numbers
    assert selector.selection_.r2 == pytest.approx(r2, abs=1e-10)


def test_a_target_has_three_ways_of_being_named() -> None:
    frame = MIXED.assign(y=Y)
    by_position, by_target, by_targets = (
        dsel.select(frame, "y", k=2), dsel.select(frame, target="y", k=2), dsel.select(frame, targets=["y"], k=2)
    )  # fmt: skip
    assert by_position.labels == by_target.labels == by_targets.labels
    assert dsel.certify(by_target, frame).certificate[-1]["proven"]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (X, Y.to_numpy()),
        (X, CLASSES),
        (X.astype(np.float32), np.column_stack([Y, -(Y**2)])),
        (scipy.sparse.csr_matrix(X), CLASSES.to_numpy()),
        (da.from_array(X, chunks=(50, 2)), da.from_array(Y.to_numpy(), chunks=33)),
        (CUBE, Y.to_numpy()),
        (NUMBERS, Y.rename("yield")),
        (NUMBERS, CLASSES.to_numpy()),
        (NUMBERS.set_axis([f"r{i}" for i in range(M)]), Y.to_numpy()),
        (polars_frame(NUMBERS), pl.Series("yield", Y.to_numpy())),
        (polars_frame(NUMBERS).lazy(), Y),
        (pa.Table.from_pandas(NUMBERS), Y),
        (ANNOTATED, Y.to_numpy()),
        (xr.Dataset({"X": (("sample", "feature"), X)}), Y.to_numpy()),
    ],
    ids=lambda one: type(one).__name__,
)
def test_ingest_and_append_take_targets_and_weights_in_memory_as_select_does(x: Any, y: Any, tmp_path: Path) -> None:
    weight, store = RNG.random(M), tmp_path / "store.zarr"
    expected = dsel.select(x, y, k=2, method="forward", sample_weight=weight)
    dsel.ingest(x, store, y=y, weight=weight)
    found = dsel.select(store, k=2, method="forward")
    assert (found.labels, found.targets) == (expected.labels, expected.targets)
    assert found.r2 == pytest.approx(expected.r2, abs=1e-10)
    assert dsel.append(x, store, y=y, weight=weight).shape == (2 * M, 6)
    assert dsel.select(store, k=2, method="forward").r2 == pytest.approx(expected.r2, abs=1e-10)


def test_a_dask_frame_with_targets_in_memory_is_ingested(tmp_path: Path) -> None:
    dsel.ingest(dask_frame(NUMBERS), tmp_path / "store.zarr", y=Y)
    assert dsel.select(tmp_path / "store.zarr", k=2).labels == dsel.select(NUMBERS, Y, k=2).labels


def test_a_frame_with_targets_in_memory_keeps_the_options_of_a_table(tmp_path: Path) -> None:
    frame = MIXED.assign(name=[f"r{i}" for i in range(M)])
    dsel.ingest(frame, tmp_path / "store.zarr", y=Y, categorical="colour", drop="open", index="name")
    store = dsel.open_store(tmp_path / "store.zarr")
    assert store.features.tolist() == [*"abcdef", "colour=blue", "colour=green", "colour=red"]
    assert store.samples is not None
    assert store.samples[:2].tolist() == ["r0", "r1"]


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("data.csv", {"y": Y}, "y is data in memory, and the source is the file data.csv. Name a column"),
        (NUMBERS, {"y": Y, "target": "a"}, "target='a' and y both give targets"),
        (NUMBERS.assign(y=1.0), {"y": Y}, "The frame has a column 'y' already. Name y otherwise"),
        (NUMBERS, {"y": Y.to_numpy()[:9]}, "y has 9 rows, and the frame has 120"),
        (NUMBERS[::-1], {"y": Y}, "The indexes of X and Y differ"),
        (X, {"y": Y[:9]}, "X has 120 rows and Y has 9"),
        (X, {"target": "y"}, "data of type ndarray do not take the option target. Give the targets as an array"),
        (X, {"y": "y.npy"}, "data of type ndarray do not take the option y"),
        (5, {}, "source is a int. Give a path"),
    ],
)
def test_targets_in_memory_that_do_not_fit_are_refused(
    source: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((DataError, OptionError), match=re.escape(message)):
        dsel.ingest(source, tmp_path / "store.zarr", **options)
    assert not (tmp_path / "store.zarr").exists()


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_error_about_targets_of_a_single_zarr_array_says_how_to_give_them(tmp_path: Path, zarr_format: Any) -> None:
    path = tmp_path / "x.zarr"
    zarr.save_array(path, X, zarr_format=zarr_format)
    np.save(tmp_path / "y.npy", Y)
    for y in (Y.to_numpy(), tmp_path / "y.npy"):
        with pytest.raises(OptionError, match=r"dsel.ingest\(zarr.open_array\(PATH\), STORE, y=Y\)"):
            dsel.ingest(path, tmp_path / "store.zarr", y=y)
    dsel.ingest(zarr.open_array(path), tmp_path / "store.zarr", y=Y)
    assert dsel.select(tmp_path / "store.zarr", k=2).indices == dsel.select(X, Y, k=2).indices


def test_labels_of_samples_of_a_data_array_are_kept_next_to_targets(tmp_path: Path) -> None:
    names = [f"r{i}" for i in range(M)]
    data = xr.DataArray(X, dims=("sample", "feature"), coords={"sample": names})
    dsel.ingest(data.chunk(sample=50), tmp_path / "store.zarr", y=Y.to_numpy())
    samples = dsel.open_store(tmp_path / "store.zarr").samples
    assert samples is not None
    assert samples.tolist() == names


def test_classes_are_mapped_and_named_in_the_result() -> None:
    found = dsel.select(MIXED.assign(y=CLASSES), "y", k=2)
    assert found.targets == ("y=high", "y=low", "y=mid")
    assert any(
        note.startswith("target 'y' has 3 classes (high, low, mid): a column of 0 and 1 for each; their squared error")
        for note in found.notes
    )
    two = dsel.select(MIXED, CLASSES.replace("mid", "low"), k=2)
    assert two.targets == ("y=low",)
    assert any("1 stands for 'low', 0 for 'high'" in note for note in two.notes)


def test_the_columns_of_a_category_are_one_group_unless_asked_otherwise() -> None:
    grouped = dsel.select(MIXED, Y, k=2, method="forward")
    assert set(grouped.groups["colour"]) == {6, 7, 8}
    assert not dsel.select(MIXED, Y, k=2, method="forward", categories="columns").groups
    note = "astar chooses the indicator columns of categories one by one, not as groups"
    alone = dsel.select(MIXED, Y, k=2, method="astar")
    assert note in alone.notes
    assert dsel.certify(alone, MIXED, Y).certificate[-1]["proven"]


def test_a_store_groups_the_columns_of_a_category_by_the_same_rule(tmp_path: Path) -> None:
    frame, store = MIXED.assign(y=Y), tmp_path / "store.zarr"
    dsel.ingest(frame, store, target="y", categorical="auto")
    together, note = dsel.select(frame, "y", k=2), "the indicator columns of a category are chosen together"
    found = dsel.select(store, k=2)
    assert found.groups == together.groups
    assert any(one.startswith(note) for one in found.notes)
    assert found.notes == together.notes
    of_text, pairs = NUMBERS.assign(land="north", side=np.where(Y > 0, "left", "right")), [[0, 1], [2, 3]]
    assert not any(note in one for one in dsel.select(of_text, "side", k=2, groups=pairs).notes)
    assert not any(note in one for one in dsel.select(store, k=2, groups=pairs, exclude=["colour"]).notes)
    assert any(note in one for one in dsel.select(store, k=2, groups=pairs).notes)
    one_by_one = dsel.select(store, k=2, categories="columns")
    assert one_by_one.labels == dsel.select(frame, "y", k=2, categories="columns").labels
    assert not one_by_one.groups
    assert dsel.certify(found, store).certificate[-1]["proven"]
    assert dsel.certify(one_by_one, store).certificate[-1]["proven"]
    with pytest.raises(OptionError, match="1 column became indicator columns of categories: 'colour'"):
        dsel.select(store, k=2, categories="refuse")
    with pytest.raises(OptionError, match="k is 9, and X has 8 groups of columns"):
        dsel.select(store, k=9)


def test_a_coordinate_named_source_of_other_programs_makes_no_groups() -> None:
    other = xr.DataArray(
        X, dims=("sample", "feature"), coords={"feature": list("abcdef"), "source": ("feature", list("uuuvvv"))}
    )
    assert not dsel.select(other, Y, k=2).groups
    assert dsel.select(other, Y, k=2, groups="source").groups


@pytest.mark.usefixtures("no_workers")
def test_a_proof_log_of_grouped_categories_is_verified(tmp_path: Path) -> None:
    dsel.ingest(MIXED.assign(y=Y), tmp_path / "store.zarr", target="y", categorical="auto")
    job = tmp_path / "job.yaml"
    job.write_text("store: store.zarr\nk: 2\nout: out\nmethod: forward\ncertify: {log: true}\n")
    assert call("run", job)[0] == 0
    assert set(dsel.open_selection(tmp_path / "out").groups) == {"b", "colour"}
    assert dsel.verify(tmp_path / "out").accepted
    assert call("certify", tmp_path / "out", "--log")[0] == 0
    assert dsel.verify(tmp_path / "out").accepted


def test_whole_numbers_that_name_columns_stay_numbers(tmp_path: Path) -> None:
    numbered = pd.DataFrame(X, columns=range(2000, 2006))
    cube = xr.DataArray(X, {"feature": range(2000, 2006)}, dims=("sample", "feature"))
    for data in (numbered, numbered.astype(object), cube, dask_frame(numbered)):
        found = dsel.select(data, Y.to_numpy(), k=2, method="forward")
        assert found.labels == [2001, 2004]
        assert list(found.substitutes()) == [2001, 2004]
        assert found.substitutes()[2001][0].label in range(2000, 2006)
    assert numbered[found.labels].shape == (M, 2)
    found = found.with_alternatives(dsel.alternatives(found, numbered, Y.to_numpy(), within=0.01))
    assert found.alternatives.verdicts[2001] == "necessary"
    assert 2000 in found.alternatives.labels("useless")
    found.save(tmp_path / "answer")
    again = dsel.open_selection(tmp_path / "answer")
    assert again.labels == [2001, 2004]
    assert again == found
    assert again.predict(numbered).shape == (M,)
    assert again.to_frame().index.tolist() == [2001, 2004]


def test_a_number_is_a_name_where_numbers_name_columns() -> None:
    numbered = pd.DataFrame(X, columns=range(2000, 2006))
    included = dsel.select(numbered, Y.to_numpy(), k=2, include=[2005])
    assert included.labels[0] == 2005
    assert dsel.certify(included, numbered, Y.to_numpy()).certificate[-1]["proven"]
    grouped = dsel.select(numbered, Y.to_numpy(), k=1, groups={"pair": [2001, 2004]}, method="forward")
    assert grouped.labels == [2001, 2004]
    with pytest.raises(OptionError, match="include: there is no feature '5' among 6"):
        dsel.select(numbered, Y.to_numpy(), k=2, include=[5])
    with_target = pd.DataFrame(np.column_stack([X, Y]))
    for target in ({"Y": 6}, {"target": 6}, {"targets": [6]}):
        by_name = dsel.select(with_target, **target, k=2)
        assert by_name.labels == [1, 4]
        assert by_name.targets == ("6",)


@pytest.mark.parametrize(
    "names",
    [
        [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5],
        pd.MultiIndex.from_product([["h"], range(7)]),
        pd.date_range("2020-01-01", periods=7),
    ],
    ids=["numbers", "tuples", "dates"],
)
def test_labels_that_are_no_text_name_columns(names: Any) -> None:
    frame = pd.DataFrame(np.column_stack([X, Y]), columns=names)
    found = dsel.select(frame, frame.columns[6], k=2, include=[frame.columns[5]], exclude=None)
    assert found.labels == [str(list(frame)[j]).removesuffix(" 00:00:00") for j in (5, 1)]
    with pytest.raises(OptionError, match=r"there is no feature '9.5'"):
        dsel.select(frame, frame.columns[6], k=2, include=[9.5])


def test_intervals_and_periods_of_pandas_are_categories_and_times() -> None:
    bins = pd.cut(NUMBERS["a"], 3)
    frame = NUMBERS.assign(a=bins)
    target = 2.0 * (bins.cat.codes == 1) + X[:, 1]
    text = NUMBERS.assign(a=bins.astype(str))
    found = dsel.select(frame, target, k=2, method="forward")
    assert set(found.groups) == {"a", "b"}
    assert set(found.labels) == set(dsel.select(text, target, k=2, method="forward").labels)
    np.testing.assert_allclose(found.predict(frame), target)
    months = pd.period_range("2020-01", periods=M, freq="M")
    days = (months.to_timestamp() - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    by_period = dsel.select(NUMBERS.assign(month=months), days.to_numpy() + X[:, 1], k=2, dates="days")
    assert by_period.labels == ["month", "b"]


def test_a_category_that_is_missing_from_new_rows_is_named_by_its_column() -> None:
    found = dsel.select(MIXED, Y, k=3, method="forward")
    with pytest.raises(DataError, match=r"X lacks 1 of the 3 chosen columns: colour. It has"):
        found.predict(MIXED.drop(columns="colour"))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"customer_id": RNG.permutation(10 * M)[:M]}, "leave 'customer_id' out if it is an identifier"),
        ({"zip": RNG.integers(10000, 10050, M)}, "make 'zip' a category, or leave it out"),
        ({"plan": RNG.choice(["pro", "Pro ", "basic"], M)}, "write the values of 'plan' in one way: 'Pro ' and 'pro'"),
        ({"copy": 3 * X[:, 1] + 5}, "the first represents the others: b for copy"),
    ],
)
def test_likely_mistakes_are_named_with_the_remedy(change: dict[str, Any], note: str, tmp_path: Path) -> None:
    frame = MIXED.assign(**change)
    assert any(note in found for found in dsel.select(frame, Y, k=2).notes)
    if "copy" in change:
        assert sum("copy" in found for found in dsel.select(frame, Y, k=2).notes) == 1
        kept = dsel.select(frame, Y, k=2, near_copies="keep").notes
        assert [note for note in kept if "copy" in note] == [
            "columns or groups that explain the same, so that it does not matter which is chosen: b and copy"
        ]
    else:
        report = dsel.ingest(frame, tmp_path / "store.zarr", categorical="auto")
        assert any(note in found for found in report.notes)


def test_indicators_of_one_category_do_not_exclude_each_other() -> None:
    frame = pd.DataFrame({"a": RNG.normal(size=60), "sex": RNG.choice(["f", "m"], 60)})
    y = (frame["sex"] == "f") + 0.1 * RNG.normal(size=60)
    found = dsel.select(frame, y, k=1)
    assert (tuple(found.groups), sorted(found.labels)) == (("sex",), ["sex=f", "sex=m"])
    assert not any("multiples" in note for note in found.notes)
    both = dsel.select(frame.assign(gender=frame["sex"]), y, k=1).notes
    assert "columns or groups that explain the same, so that it does not matter which is chosen: sex and gender" in both
    assert not any("multiples" in note for note in both)
    part = dsel.select(frame.assign(kind=frame["sex"].where(frame["a"] < 1, "x")), y, k=1).notes
    assert not any("the same" in note or "multiples" in note for note in part)
    single = dsel.select(frame, y, k=1, categories="columns", near_copies="keep").notes
    assert any("subsets with two may be better: sex=f and sex=m" in note for note in single)


def test_few_rows_that_are_counted_have_an_identifier() -> None:
    note = "leave 'id' out if it is an identifier"
    few, y = NUMBERS[:30].assign(id=RNG.permutation(30)), Y[:30]
    assert any(note in found for found in dsel.select(few, y, k=1).notes)
    assert not any(note in found for found in dsel.select(few.assign(id=few["id"] ** 2), y, k=1).notes)


def test_an_identifier_of_text_is_refused_in_one_sentence() -> None:
    with pytest.raises(DataError) as caught:
        dsel.select(MIXED.assign(uuid=[f"u{i:07d}" for i in range(M)]), Y, k=2)
    assert str(caught.value) == (
        "X: row 0, column 'uuid': 'u0000000' is text, and nearly all of its values differ, as those of an identifier. "
        "Leave it out, or make it the index if it labels the samples."
    )


def without_target(kind: Kind) -> tuple[Any, Any]:
    """Return X and y as scikit-learn takes them."""
    if not isinstance(kind.Y, str):
        return kind.X, kind.Y
    if hasattr(kind.X, "obs"):
        return kind.X, kind.X.obs["y"]
    if isinstance(kind.X, xr.Dataset):
        return kind.X.drop_vars("y"), kind.X["y"]
    if isinstance(kind.X, pa.Table):
        return kind.X.drop_columns("y"), kind.X["y"].to_pandas()
    if isinstance(kind.X, pl.LazyFrame):
        whole = kind.X.collect()
        return whole.drop("y").lazy(), whole["y"]
    if isinstance(kind.X, pl.DataFrame):
        return kind.X.drop("y"), kind.X["y"]
    return kind.X.drop(columns="y"), kind.X["y"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "nullable", "objects", "dask", "csv", "parquet"])
def test_whole_numbers_that_floats_cannot_hold_are_named(kind: str, tmp_path: Path) -> None:
    note = "1 column has numbers beyond 2^53, which float64 may round (subtract a constant before): count"
    large = NUMBERS[["a", "b"]].assign(count=2**60 + np.arange(M), y=Y)
    if kind in ("csv", "parquet"):
        getattr(large, f"to_{kind}")(tmp_path / f"data.{kind}", index=False)
        assert note in dsel.ingest(tmp_path / f"data.{kind}", tmp_path / "store.zarr", target="y").notes
        return
    frames = {
        "pandas": large, "polars": polars_frame(large), "nullable": large.convert_dtypes(),
        "objects": large.astype({"count": object}), "dask": dd.from_pandas(large, npartitions=3),
    }  # fmt: skip
    assert note in dsel.select(frames[kind], "y", k=1).notes
    small = large.assign(count=2**50 + np.arange(M))
    small = dd.from_pandas(small, npartitions=3) if kind == "dask" else small
    assert not any("2^53" in found for found in dsel.select(small, "y", k=1).notes)


@pytest.mark.parametrize("kind", ["frame", "csv"])
@pytest.mark.parametrize("first", [2**70, 2**64, Decimal("9007199254740992.5"), 2**300])
def test_numbers_beyond_the_types_of_integers_are_named(kind: str, first: Any, tmp_path: Path) -> None:
    frame = NUMBERS[["a", "b"]].assign(count=[first + 200 * i for i in range(M)], y=Y)
    if kind == "csv":
        frame.to_csv(tmp_path / "data.csv", index=False)
        notes = dsel.ingest(tmp_path / "data.csv", tmp_path / "store.zarr", target="y").notes
    else:
        notes = dsel.select(frame, "y", k=1).notes
    assert any("numbers beyond 2^53, which float64 may round" in note and note.endswith("count") for note in notes)
    frame.assign(count=[1e30 + 1e20 * i for i in range(M)]).to_csv(tmp_path / "floats.csv", index=False)
    assert dsel.ingest(tmp_path / "floats.csv", tmp_path / "floats.zarr", target="y").notes == []


@pytest.mark.parametrize("dtype", ["int64", "Int64", object])
def test_targets_that_float64_may_round_are_named(dtype: Any, tmp_path: Path) -> None:
    frame = NUMBERS[["a", "b"]].assign(y=pd.Series(2**60 + 1000 * np.arange(M)).astype(dtype))
    note = "1 target has numbers beyond 2^53, which float64 may round (subtract a constant before): y"
    dsel.ingest(frame, tmp_path / "store.zarr", target="y")
    notes = [dsel.ingest(frame, tmp_path / "again.zarr", target="y").notes]
    for args in ((frame, "y"), (frame[["a", "b"]], frame["y"]), (tmp_path / "store.zarr",)):
        notes.append(list(dsel.select(*args, k=1).notes))
    assert [found.count(note) for found in notes] == [1, 1, 1, 1]
    assert not any("identifier" in found for found in notes[0])
    unnamed = dsel.select(frame[["a", "b"]].to_numpy(), frame["y"].to_numpy("int64"), k=1).notes
    assert note.replace(": y", ": y0") in unnamed


def test_columns_whose_values_differ_by_rounding_are_not_just_called_constant(tmp_path: Path) -> None:
    frame = NUMBERS[["a", "b"]].assign(same=0.1, near=2.0**60 + 256.0 * (np.arange(M) % 3), y=Y)
    dsel.ingest(frame, tmp_path / "store.zarr", target="y", chunks=(7, 2))
    for args in ((frame, "y"), (tmp_path / "store.zarr",)):
        notes = dsel.select(*args, k=1).notes
        assert "1 constant column is never chosen: same" in notes
        assert "1 column is constant up to rounding and never chosen: near" in notes


def test_the_note_on_an_error_that_differs_by_rounding_names_the_column() -> None:
    frame = NUMBERS[["a", "b"]].assign(large=2.0**54 + 4 * np.arange(M), y=np.arange(M) + Y)
    (note,) = (note for note in dsel.select(frame, "y", k=2).notes if "recomputed" in note)
    assert note.endswith("large is more than a million times as large as the spread; subtract a constant before")


def test_a_target_of_a_frame_with_levels_of_names_has_its_name() -> None:
    frame = NUMBERS[["a", "b"]].assign(y=Y)
    frame.columns = pd.MultiIndex.from_product([["all"], frame.columns])
    assert dsel.select(frame, ("all", "y"), k=1).targets == ("('all', 'y')",)


@pytest.mark.parametrize("kind", ["batch", "reader", "targets"])
def test_record_batches_are_tables(kind: str) -> None:
    batch = pa.RecordBatch.from_pandas(NUMBERS[["a", "b"]].assign(y=Y))
    data = pa.RecordBatchReader.from_batches(batch.schema, [batch]) if kind == "reader" else batch
    found = dsel.select(data, k=1, targets=["y"]) if kind == "targets" else dsel.select(data, "y", k=1)
    assert found.labels == ["b"]
    assert len(found.predict(batch)) == M


def test_a_list_of_whole_names_gives_targets_unless_it_has_a_value_for_each_row() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((30, 10)))
    assert dsel.select(frame, [8, 3], k=2).targets == ("8", "3")
    square = frame.iloc[:10]
    assert dsel.select(square, [*range(10)], k=2).targets == ("y0",)


def test_an_unknown_name_is_quoted_and_spaces_around_it_do_not_matter() -> None:
    with pytest.raises(DataError, match=r"X has no column ' y'\. Did you mean 'y'"):
        dsel.select(NUMBERS.assign(y=Y), " y", k=1)


def test_numbers_that_no_integer_type_holds_become_floats_with_their_name_in_errors() -> None:
    huge = NUMBERS.assign(count=[10**25 + 10**22 * i for i in range(M)], y=Y)
    assert dsel.select(huge, "y", k=1).labels == ["b"]
    with pytest.raises(DataError, match=r"The targets are constant up to the rounding.* subtract a constant"):
        dsel.select(X, 2**60 + np.arange(M), k=1)


@pytest.mark.parametrize("given", ["column", "series", "array"])
@pytest.mark.parametrize("k_classes", [2, 3])
def test_classes_in_a_store_are_those_of_a_frame(tmp_path: Path, given: str, k_classes: int) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("abcd"))
    y = pd.Series(np.array(["ill", "well", "dead"])[:k_classes][rng.integers(0, k_classes, 60)], name="y")
    direct = dsel.select(frame.assign(y=y), target="y", k=2)
    if given == "column":
        dsel.ingest(frame.assign(y=y), tmp_path / "data.zarr", target="y")
    else:
        dsel.ingest(frame, tmp_path / "data.zarr", y=y if given == "series" else y.to_numpy())
    stored = dsel.select(tmp_path / "data.zarr", k=2)
    assert (stored.targets, stored.notes) == (direct.targets, direct.notes)
    assert (stored.labels, stored.error) == (direct.labels, pytest.approx(direct.error))
    predicted = [
        np.asarray(found.predict(data)).ravel() for found, data in ((stored, tmp_path / "data.zarr"), (direct, frame))
    ]
    np.testing.assert_allclose(*predicted)
    assert stored.score(frame, y) == pytest.approx(direct.score(frame, y))


def test_a_target_of_numbers_with_one_that_is_none_is_no_class(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    with pytest.raises(DataError, match=r"holds numbers.*Convert them"):
        dsel.select(frame, frame["a"].astype(str), k=2)
    with pytest.raises(DataError, match=r"holds numbers only\. Convert"):
        dsel.ingest(frame, tmp_path / "refused", y=frame["a"].astype(str).rename("t"))
    codes = dsel.ingest(frame, tmp_path / "codes", y=frame["a"].astype(str).rename("t"), categorical="t")
    assert len(codes.classes["t"]) == 60
    bad = frame["a"].astype(str)
    bad[7] = "oops"
    with pytest.raises(DataError, match="but row 7 is 'oops'"):
        dsel.select(frame, bad, k=2)


def test_misspelt_names_get_a_suggestion(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=["a", "b", "stay"])
    with pytest.raises(DataError, match=r"no column 'Stay'.*Did you mean 'stay'"):
        dsel.select(frame, target="Stay", k=1)
    with pytest.raises(OptionError, match=r"sample_weight is no option of ingestion.*weight"):
        dsel.ingest(frame, tmp_path / "data.zarr", **{"sample_weight": np.ones(20)})


@pytest.mark.parametrize(
    "column", [NUMBERS["b"], NUMBERS["b"].rename(None), pl.Series("b", X[:, 1])], ids=["named", "unnamed", "polars"]
)
def test_a_series_is_one_column_in_new_rows_too(column: Any) -> None:
    found = dsel.select(column, Y, k=1)
    assert found.score(column, Y)["r2"] == pytest.approx(found.r2)
    assert np.asarray(found.predict(column)).shape == (M,)


def test_the_remedy_for_text_in_a_dask_frame_works(tmp_path: Path) -> None:
    frame = dask_frame(MIXED[["a", "colour"]])
    with pytest.raises(DataError, match=r"text or categories: 'colour'.*X\.compute\(\)"):
        dsel.ingest(frame, tmp_path / "data.zarr", y=Y)
    dsel.ingest(frame.compute(), tmp_path / "data.zarr", y=Y, categorical=["colour"])


def test_integers_of_128_bits_are_refused_by_name(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": X[:, 0], "b": pl.Series(range(M), dtype=pl.Int128)})
    with pytest.raises(DataError, match=r"cannot hold the columns 'b'.*Cast them, such as to Int64"):
        dsel.select(frame, Y, k=1)
    assert dsel.select(frame.cast({"b": pl.Int64}), Y, k=1).k == 1


def test_a_masked_target_is_missing(tmp_path: Path) -> None:
    y = np.ma.masked_greater(Y.to_numpy(), 4.0)
    with pytest.raises(DataError, match="Y has NaN"):
        dsel.select(NUMBERS, y, k=2)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ForwardSelector(2).fit(NUMBERS, y)
    dsel.ingest(NUMBERS, tmp_path / "data.zarr", y=y)
    with pytest.raises(DataError, match=r"Y of .* has NaN"):
        dsel.select(tmp_path / "data.zarr", k=2)


def test_a_selector_takes_numbers_next_to_classes_as_select_does() -> None:
    y = pd.DataFrame({"n": Y, "c": CLASSES})
    expected = dsel.select(NUMBERS, y, k=2, method="forward")
    for given in (y, pl.DataFrame(y.to_dict("list")).lazy()):
        found = ForwardSelector(2).fit(NUMBERS, given).selection_
        assert (found.labels, found.targets) == (expected.labels, expected.targets)


@pytest.mark.parametrize("y", [X[:, 1] + 1j, X[:, :1, None], np.zeros((M, 0))], ids=["complex", "3-D", "none"])
def test_targets_that_are_no_columns_of_numbers_are_refused_next_to_a_frame(tmp_path: Path, y: Any) -> None:
    with pytest.raises(DataError, match=r"y has shape .* Give real numbers or classes"):
        dsel.ingest(NUMBERS, tmp_path / "data.zarr", y=y)


@pytest.mark.parametrize("y", [scipy.sparse.csr_matrix(X[:, :1]), np.rec.fromarrays([X[:, 0]], names="t")])
def test_sparse_and_structured_targets_go_next_to_a_frame(tmp_path: Path, y: Any) -> None:
    dsel.ingest(NUMBERS, tmp_path / "data.zarr", y=y)
    assert dsel.select(tmp_path / "data.zarr", k=1).labels == ["a"]
