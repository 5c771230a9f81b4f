"""Bad arguments of the Python interface: an error of dsel that says what, where and the remedy, before any work."""

# ruff: noqa: E501

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import xarray as xr
from sklearn.linear_model import Ridge

import dsel
from dsel.errors import DselError
from tests.bad_inputs.conftest import LABELS, X, Y, names

OPTION, DATA, MISSING, CRITERION, OUTPUT = 64, 65, 66, 70, 73
WORDS = [f"w{i}" for i in range(60)]
FRAME = pd.DataFrame(X, columns=LABELS)
NUMBERED = pd.DataFrame(X)
LIKE_CATEGORY = FRAME.assign(d=np.where(X[:, 0] > 0, "red", "blue"), **{"d=red": 1.0})
DUPLICATES = pd.DataFrame(X[:, :2], columns=["a", "a"])
SPARSE = scipy.sparse.csr_matrix(X)
WRONG_SPARSE = SPARSE.copy()
WRONG_SPARSE.indices[3] = 99
NARROW = da.from_array(X, chunks=(20, 6)).map_blocks(lambda b: b[:, :3], chunks=((20,) * 3, (6,)), dtype=float)
TIMES = xr.DataArray(X, dims=("t", "f"), coords={"t": np.arange(60)})
LATER = xr.DataArray(Y, dims="t", coords={"t": np.arange(60) + 5})


def with_value(value: float, label: str = "c") -> pd.DataFrame:
    frame = FRAME.copy()
    frame.loc[5, label] = value
    return frame


def fails(S: Any) -> float:
    raise ZeroDivisionError


def select(*data: Any, **options: Any) -> Callable[[], Any]:
    return lambda: dsel.select(*data, **{"k": 1, **options})


def report() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return dsel.ingest(X, f"{folder}/made.zarr", y=Y)


def saved() -> dsel.Selection:
    return dsel.open_selection("result")


CASES: list[tuple[str, Callable[[], Any], int, str, str]] = [
    ("none", select(None), DATA, "X is one value of type NoneType", "the path of a store"),
    ("report", lambda: dsel.sums(report()), DATA, "X is one value of type IngestReport", "the path of a store"),
    ("a list", select([]), DATA, r"X has shape \(0,\)", "two dimensions"),
    ("no rows", select(np.empty((0, 5))), DATA, r"X is empty: its shape is \(0, 5\)", "rows and columns"),
    ("three dimensions", select(np.zeros((2, 2, 2))), DATA, r"X has shape \(2, 2, 2\)", "two dimensions"),
    ("text", select(np.array([["a", "b"]])), DATA, "X has dtype <U1", "real numbers"),
    ("complex", select(X + 1j, Y), DATA, "X has dtype complex128", "real numbers"),
    ("objects", select(X.astype(object), Y), DATA, "X has dtype object", r"astype\(float\)"),
    ("a missing class", select(X, np.array([None, "b"] * 30)), DATA, "the classes of .* in rows 0, 2,", "Leave such"),
    ("dates", select(FRAME.assign(d=pd.Timestamp("2020")), Y), DATA, "column 'd' holds dates", 'dates="days"'),
    ("words", select(FRAME.assign(d=WORDS), Y), DATA, "column 'd': 'w0' is text, and nearly all", "Leave it out"),
    ("many words", select(FRAME.assign(d=[f"w{i % 51}" for i in range(60)]), Y), DATA, "only up to 50 become", "category"),
    ("words refused", select(FRAME.assign(d="x"), Y, categories="refuse"), DATA, "1 column of X holds text", "groups"),
    ("nan", select(with_value(np.nan), Y), DATA, "NaN values: 1, in column 'c', row 5", 'missing to "mean"'),
    ("infinite", select(with_value(np.inf, "d"), Y), DATA, "infinite values: 1, in column 'd'", "Correct the data"),
    ("nan in Y", select(X, np.where(Y > 3, np.nan, Y)), DATA, "Y has NaN values: .* column 'y0'", "Correct the data"),
    ("short Y", select(X, Y[:5]), DATA, "X has 60 rows and Y has 5", "one row for each sample"),
    ("an array of names", select(FRAME, np.array(["a", "b"])), DATA, "Y has 2", r"give a list: \['a', 'b'\]"),
    ("an array of numbers", select(NUMBERED, np.array([3, 5])), DATA, "Y has 2", r"give a list: \[3, 5\]"),
    ("empty Y", select(X, np.empty((60, 0))), DATA, "Y has no columns", "Leave Y out"),
    ("deep Y", select(X, np.zeros((60, 1, 1))), DATA, r"Y has shape \(60, 1, 1\)", "samples x targets"),
    ("one class", select(X, np.array(["a"] * 60)), DATA, "y has 1 class", "Check the column"),
    ("constant Y", select(X, np.ones(60)), DATA, "targets are constant", "Check which column is Y"),
    ("negative weights", select(X, Y, sample_weight=-np.ones(60)), DATA, "negative values: 60", ">= 0"),
    ("nan weights", select(X, Y, sample_weight=np.full(60, np.nan)), DATA, "sample_weight has NaN values", ">= 0"),
    ("few weights", select(X, Y, sample_weight=np.ones(5)), DATA, r"sample_weight has shape \(5,\)", "each sample"),
    ("tiny weights", select(X, Y, sample_weight=np.full(60, 1e-200)), DATA, "largest weight is 1e-200", "Multiply"),
    ("huge weights", select(X, Y, sample_weight=np.full(60, 1e200)), DATA, r"largest weight is 1e\+200", "Multiply"),
    ("no weight", select(X, Y, sample_weight=np.zeros(60)), DATA, "weights add up to 0", "At least one"),
    ("weights by name", select(X, Y, sample_weight="w"), OPTION, "sample_weight is 'w'", "one number for each row"),
    ("large k", select(X, Y, k=7), OPTION, "k is 7, and X has 6 columns", "from 1 to 6"),
    ("k of two halves", select(X, Y, k=2.0), OPTION, "'k' is 2.0", "a whole number"),
    ("stepwise", select(X, Y, method="stepwise"), OPTION, "no method 'stepwise'", "Use 'forward', 'foba' or 'backward'"),
    ("no method", select(X, Y, method=None), OPTION, "'method' is None", "must be text"),
    ("a misspelled option", select(X, Y, iteration=5), OPTION, "no option 'iteration'", "Did you mean 'iterations'"),
    ("verbose", select(X, Y, verbose=1), OPTION, "no option 'verbose'", "logger 'dsel'"),
    ("cv", select(X, Y, cv=5), OPTION, "no option 'cv'", "method='kfold'"),
    ("alpha", select(X, Y, alpha=0.1), OPTION, "no option 'alpha'", "Did you mean 'lam'"),
    ("seconds as text", select(X, Y, seconds="5"), OPTION, "'seconds' is '5'", "a number .not text"),
    ("a scaler", select(X, Y, preprocess="zscore"), OPTION, "'preprocess' is 'zscore'", "'standardize', 'center'"),
    ("one label", select(FRAME, Y, include="a"), OPTION, "'include' is 'a'", "a list"),
    ("a label twice", select(FRAME, Y, k=2, include=["a", "a"]), OPTION, "include: .* named twice", "'a', 'a'"),
    ("from the end", select(FRAME, Y, include=[-1]), OPTION, "no feature -1 among 6", "from 0 to 5"),
    ("targets without Y", select(X, targets=[3]), OPTION, r"There is no Y to choose \[3\]", r"Y=V\[:, j\]"),
    ("a target by position", select(FRAME, 1), DATA, "X has no column 1: its labels are text", r"X.columns\[1\], 'b'"),
    ("the same as target", select(FRAME, target=1), DATA, "no column 1: its labels are text", r"X.columns\[1\], 'b'"),
    ("targets by position", select(FRAME, targets=[1, 2]), DATA, "no column 1: its labels", r"X.columns\[1\], 'b'"),
    ("targets by position", select(FRAME, [1, 2]), DATA, "no column 1: its labels are text", r"X.columns\[1\], 'b'"),
    ("the same of Arrow", select(pa.Table.from_pandas(FRAME), [1, 2]), DATA, "no column 1: its labels are text", r"X.column_names\[1\], 'b'"),
    ("text and a position", select(FRAME, ["a", 1]), DATA, "no column 1: its labels are text", r"X.columns\[1\], 'b'"),
    ("a target beyond", select(FRAME, 9), DATA, "X has no column 9: its labels are text", "by its label"),
    ("a truth value", select(FRAME, Y, include=[True]), OPTION, "True is not a column", "label as text"),
    ("no such target", select(FRAME, targets=["no"]), DATA, "X has no column 'no'", "Known"),
    ("groups of others", select(FRAME, Y, groups={"g": ["zz"]}), OPTION, "groups: there is no feature 'zz'", "Known: a"),
    ("two groups", select(FRAME, Y, groups={"g": ["a"], "h": ["a"]}), OPTION, "'a' is in two groups", "Name it once"),
    ("groups in A*", select(FRAME, Y, groups={"g": ["a"]}, method="astar"), OPTION, "astar cannot choose groups", "branch-and-bound, random"),
    ("a number as criterion", select(X, Y, criterion=5), OPTION, "'criterion' is 5", "a function"),
    ("a criterion that fails", select(X, Y, criterion=fails), CRITERION, r"failed on the columns \[\d\]", "ZeroDiv"),
    ("a criterion of text", select(X, Y, criterion=lambda S: "x"), CRITERION, "returned 'x' for", "a real number"),
    ("a criterion of nan", select(X, Y, criterion=lambda S: np.nan), CRITERION, "returned nan for", r"Return \+inf"),
    ("isolation of nan", select(X, Y, isolation=lambda S: np.nan), CRITERION, "isolation .*it returned nan", "Fix it"),
    ("isolation of lists", select(X, Y, isolation=lambda S: [1]), CRITERION, "isolation .*unhashable", "Fix it"),
    ("no estimator", lambda: dsel.CrossValidated(5), OPTION, "CrossValidated: 5 is no estimator", "such as Ridge"),
    ("folds by a splitter", lambda: dsel.CrossValidated(Ridge(), [], split="blocks"), OPTION, "split blocks", "a number"),
    ("equal labels", select(DUPLICATES, Y), DATA, r"X: .* 'a' \(2 times\)", "unique name"),
    ("equal labels next to a target", select(DUPLICATES.assign(c=Y), "c"), DATA, r"X: .* 'a' \(2 times\)", "unique"),
    ("another index", select(FRAME, pd.Series(Y)[::-1]), DATA, "indexes of X and Y differ: row 0", r"Y.loc\[X.index\]"),
    ("a label of a category", select(LIKE_CATEGORY, Y), DATA, "'red' of its category 'd' becomes .* 'd=red'", "Rename"),
    ("weights and target", select(FRAME, "a", sample_weight="a"), OPTION, "'a' is a target and the sample_weight", "Name"),
    ("offset and target", select(FRAME, ["a", "b"], offset="b"), OPTION, "'b' is a target and the offset", "Name"),
    ("the same", select(FRAME, target="b", offset="b"), OPTION, "'b' is a target and the offset", "Name"),
    ("codes", select(FRAME.assign(d=[f"{i:05d}" for i in range(60)]), Y), DATA, "with leading zeros as codes", "Make it"),
    ("fewer coordinates", select(TIMES, TIMES[:50, 0]), DATA, "Y has no rows for 10 of the 60 samples", "xarray.align"),
    ("other coordinates", select(TIMES, LATER), DATA, "Y has no rows for 5 of the 60 samples", "xarray.align"),
    ("sparse out of range", select(WRONG_SPARSE, Y), DATA, "no valid sparse matrix", "Build it again"),
    ("narrow Dask blocks", select(NARROW, Y), DATA, r"block of X has shape \(20, 3\).* \(20, 6\)", "Correct the chunks"),
    ("squares too large", select(X * 1e200, Y), DATA, "squares are out of float64's range: x0", "other units"),
    ("squares of squares", select(X * 1e80, preprocess="none"), DATA, "its square, which Y = X needs", "Rescale X"),
    ("negative workers", lambda: dsel.plan(FRAME, Y, k=1, workers=-3), OPTION, "workers is -3", ">= 1"),
    ("a word as memory", lambda: dsel.plan(FRAME, Y, k=1, worker_memory="lots"), OPTION, "memory is 'lots'", "1GiB"),
    ("save nowhere", lambda: saved().save(None), OPTION, "None is not a path", "Give a path"),
    ("save twice", lambda: saved().save("result"), OUTPUT, "result holds a selection already", "overwrite=True"),
    ("save to a file", lambda: saved().save("plain.txt"), OUTPUT, "cannot be written to .*plain.txt", "exists"),
    ("open nothing", lambda: dsel.open_selection("none"), MISSING, "no selection.json in none", "Name the folder"),
    ("no store", lambda: dsel.open_store("none"), MISSING, "no store .*none", "Check the path"),
    ("another index in score", lambda: saved().score(FRAME, pd.Series(Y)[::-1]), DATA, "indexes of X and Y differ", "loc"),
    ("few weights in score", lambda: saved().score(FRAME, Y, sample_weight=[1.0]), DATA, "has shape", "each sample"),
    ("columns that lack", lambda: saved().predict(FRAME[["f"]]), DATA, "X lacks 2 of the 2 chosen columns", "Add or rename"),
    ("few columns", lambda: saved().predict(X[:, :2]), DATA, "X has 2 columns without labels", "Give all"),
    ("names of a store", select("data.zarr", "a"), OPTION, "Y is text, and X is the store data.zarr", "by targets"),
    ("two stores", select("data.zarr", "data.zarr"), OPTION, "Y is text", r"open_zarr\(\"data.zarr\", .*\)\.Y\."),
    ("a store as Y", select(X, "data.zarr"), DATA, "Y is 'data.zarr'", r"open_zarr\(\"data.zarr\", .*\)\.Y\."),
    ("a store for a frame", select(FRAME, "data.zarr"), DATA, "no column 'data.zarr'", r"open_zarr\(\"data.zarr\", .*\)\.Y\."),
    ("an expression as Y", select(FRAME, pl.col("a")), DATA, "Y is an expression of polars", "Name the column: 'a'"),
    ("a number as Y", select(FRAME, 3.5), DATA, "Y is one value of type float", "the name of a column"),
    ("a misspelled rule", select(X, Y, k="auto", choose_k={"fold": 3}), OPTION, "'choose_k.fold'", "mean 'folds'"),
    ("few rows for folds", select(X[:3], Y[:3], k="auto"), OPTION, "3 rows are too few for 5 folds", "at least 4 rows"),
    ("a fold per row and one", select(X, Y, method="kfold", folds=61), OPTION, "too few for 61 folds", "fewer folds"),
    ("one group", select(X, Y, method="kfold", row_groups=np.zeros(60)), OPTION, "rows are in 1 groups", "fewer folds"),
    ("few groups", select(X, Y, method="kfold", row_groups=np.zeros(5)), DATA, r"row_groups has shape \(5,\)", "each row"),
    ("a large share", select(X, Y, method="greedy-rls", held_out=1.5), OPTION, "'held_out' is 1.5", "below 1"),
    ("other held-out rows", select(X, Y, method="greedy-rls", held_out=(X[:, :2], Y)), DATA, "have 2 columns", "same"),
    ("one subsample", lambda: dsel.stability(X, Y, k=2, samples=1), OPTION, "samples is 1", "at least 2"),
    ("three parts", lambda: dsel.stability(X, Y, k=2, parts=3), OPTION, "parts is 3", "at least 4, and even"),
    ("rows in stability", lambda: dsel.stability(X, Y, k=2, method="kfold"), OPTION, "kfold needs the rows", "poss"),
    ("ingest nothing", lambda: dsel.ingest(None, "o.zarr"), OPTION, "source is a NoneType", "Give a path"),
    ("no such target", lambda: dsel.ingest(FRAME, "o.zarr", target="zz"), OPTION, "target='zz'", "Known: a, b"),
    ("chunks of one number", lambda: dsel.ingest(FRAME, "o.zarr", chunks=5), OPTION, "chunks=5", "Leave it out"),
    ("empty chunks", lambda: dsel.ingest(FRAME, "o.zarr", chunks=(0, 1)), OPTION, r"chunks=\(0, 1\)", "Leave it out"),
    ("objects to ingest", lambda: dsel.ingest(FRAME.assign(d=[[1]] * 60), "o.zarr"), DATA, "column 'd' holds no numbers", "under drop"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("do", "code", "what", "remedy"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_bad_argument(folder: Path, do: Callable[[], Any], code: int, what: str, remedy: str) -> None:
    before = names(folder)
    with pytest.raises(DselError) as error:
        do()
    said = " ".join(str(error.value).split())
    assert error.value.exit_code == code, said
    assert re.search(what, said), said
    assert re.search(remedy, said), said
    assert names(folder) == before
