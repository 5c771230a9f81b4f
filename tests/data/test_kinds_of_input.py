"""Every kind of input gives the same columns and R2 to `dsel.select`, to a selector, and through a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anndata
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import xarray as xr

import dsel
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError
from dsel.sklearn import ForwardSelector

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
    """An input: features, targets, a source for `dsel.ingest`, and the same as a frame of pandas."""

    X: Any
    Y: Any
    source: Any
    reference: pd.DataFrame = field(default_factory=lambda: NUMBERS)
    expected_y: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    labels: bool = True


def array(x: Any, source: Any = None) -> Kind:
    return Kind(x, Y.to_numpy(), source if source is not None else ("arrays", np.asarray(x)), labels=False)


def frame(make: Callable[[pd.DataFrame], Any], of: pd.DataFrame = MIXED, y: pd.Series = Y) -> Kind:
    whole = of.assign(y=y.to_numpy())
    return Kind(make(whole), "y", make(whole), of, y)


KINDS: dict[str, Callable[[], Kind]] = {
    "array": lambda: array(X),
    "array in Fortran order": lambda: array(np.asfortranarray(X)),
    "sparse matrix": lambda: array(scipy.sparse.csr_matrix(X), source=SPARSE),
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
    if isinstance(kind.source, tuple):
        ingest_arrays(kind.source[1], store, y=Y.to_numpy())
    else:
        takes = {"categorical": "auto"} if isinstance(kind.reference.dtypes.get("colour"), np.dtype) else {}
        is_table = not hasattr(kind.source, "obs") and not isinstance(kind.source, xr.Dataset)
        has_y = isinstance(kind.source, xr.Dataset) and "Y" in kind.source
        dsel.ingest(
            kind.source, store, **({} if has_y else {"target": "y"}), **(takes if is_table else {}), **kind.options
        )
    opened = dsel.open_store(store) if name != "AnnData with a sparse X" and name != "sparse matrix" else None
    grouped = {"groups": "source"} if opened is not None and opened.sources is not None else {}
    stored = dsel.select(store, k=K, method="forward", **grouped)
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


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"customer_id": RNG.permutation(10 * M)[:M]}, "leave 'customer_id' out if it is an identifier"),
        ({"zip": RNG.integers(10000, 10050, M)}, "make 'zip' text or a category, or leave it out"),
        ({"plan": RNG.choice(["pro", "Pro ", "basic"], M)}, "write the values of 'plan' in one way: 'Pro ' and 'pro'"),
        ({"copy": 3 * X[:, 1] + 5}, "multiples of each other, of which at most one is chosen: b and copy"),
    ],
)
def test_likely_mistakes_are_named_with_the_remedy(change: dict[str, Any], note: str, tmp_path: Path) -> None:
    frame = MIXED.assign(**change)
    assert any(note in found for found in dsel.select(frame, Y, k=2).notes)
    if "copy" not in change:
        report = dsel.ingest(frame, tmp_path / "store.zarr", categorical="auto")
        assert any(note in found for found in report.notes)


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
