"""`dsel.select`: the same answer from every kind of data, and clear refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr

import dsel
from dsel.errors import CapacityError, DataError, DselError, MissingInputError, OptionError
from tests.stores import count_reads, make_store, reads_so_far, regression

X, Y = regression()
TRUE = {2, 5, 7, 11, 13, 17}
FAST = {"iterations": 4000}


def test_a_selection_says_what_was_chosen_and_how_good_it_is() -> None:
    s = dsel.select(X, Y, k=6)
    assert set(s.indices) == TRUE
    assert s.k == len(s) == 6
    assert s.labels == [f"x{j}" for j in s.indices]
    fitted = s.intercept + X[:, s.indices] @ s.coefficients
    residual = ((Y - fitted) ** 2).sum()
    total = ((Y - Y.mean()) ** 2).sum()
    assert s.r2 == pytest.approx(1 - residual / total, rel=1e-12)
    assert s.error == pytest.approx(len(Y) * residual / total, rel=1e-12)  # standardized: ||y||^2 = m
    assert [row.size for row in s.front] == list(range(len(s.front)))
    assert s.front[6].indices == tuple(sorted(s.indices))
    assert s.front[6].error == pytest.approx(s.error, rel=1e-10)
    assert len(s.front) <= 12
    assert [t.error for t in s.trace] == sorted((t.error for t in s.trace), reverse=True)
    assert s.iterations == int(2 * np.e * 36 * 24)


def test_columns_come_in_order_of_gain() -> None:
    s = dsel.select(X, Y, k=6)
    z, y = (X - X.mean(0)) / X.std(0), (Y - Y.mean()) / Y.std()

    def error(S: list[int]) -> float:
        return float(((y - z[:, S] @ np.linalg.lstsq(z[:, S], y, rcond=None)[0]) ** 2).sum())

    for i in range(len(s) - 1):
        before, rest = list(s.indices[:i]), s.indices[i:]
        assert s.indices[i] == min(rest, key=lambda j: error([*before, j]))


KINDS = {
    "numpy": lambda: (X, Y),
    "one-dimensional y": lambda: (X, Y[:, 0]),
    "float32": lambda: (X.astype("float32"), Y),
    "fortran order": lambda: (np.asfortranarray(X), Y),
    "scipy sparse": lambda: (scipy.sparse.csc_matrix(X), Y),
    "pandas": lambda: (pd.DataFrame(X), pd.Series(Y[:, 0])),
    "dask, chunks of rows": lambda: (da.from_array(X, chunks=(100, -1)), da.from_array(Y, chunks=(100, 1))),
    "dask, chunks of both": lambda: (da.from_array(X, chunks=(130, 7)), Y),
    "dask, empty chunks": lambda: (da.from_array(X, chunks=((0, 200, 0, 400, 0), -1)), Y),
    "dask, sparse blocks": lambda: (da.from_array(X, chunks=(100, -1)).map_blocks(scipy.sparse.csr_matrix), Y),
    "dask, masked but nowhere": lambda: (da.ma.masked_array(da.from_array(X, chunks=(100, 7)), mask=False), Y),
    "sparse Y": lambda: (X, scipy.sparse.csr_matrix(Y)),
    "one-dimensional sparse Y": lambda: (X, scipy.sparse.coo_array(Y[:, 0])),
    "xarray": lambda: (xr.DataArray(X, dims=("sample", "feature")), xr.DataArray(Y, dims=("sample", "target"))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_selection(kind: str) -> None:
    expected = dsel.select(X, Y, k=5, **FAST)
    found = dsel.select(*KINDS[kind](), k=5, **FAST)
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-10)
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-9)


@pytest.mark.parametrize("chunks", [(150, 24), (37, 24), (50, 5), (150, 1), (1, 24)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_chunks_and_dtype_of_a_store_do_not_change_the_selection(
    tmp_path: Path, chunks: tuple[int, int], dtype: str
) -> None:
    x, y = X[:150], Y[:150]
    expected = dsel.select(x, y, k=5, **FAST)
    found = dsel.select(make_store(tmp_path / "s.zarr", x.astype(dtype), y, chunks), k=5, **FAST)
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-10)
    assert [row.indices for row in found.front] == [row.indices for row in expected.front]


def test_a_store_is_read_once_and_then_once_more_for_the_chosen_columns(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, Y, chunks=(100, 6))
    count_reads()
    s = dsel.select(store, k=3, **FAST)
    reads = reads_so_far()
    of_x = {key: times for key, times in reads.items() if key.startswith("X/c/")}
    assert len(of_x) == 6 * 4
    column_chunks = {j // 6 for j in s.indices}
    for key, times in of_x.items():
        assert times == 1 + (int(key.split("/")[-1]) in column_chunks), key
    assert s.passes == 2
    x_bytes, y_bytes = X.nbytes, Y.nbytes
    assert s.bytes_read == int(x_bytes * (1 + len(column_chunks) / 4)) + 2 * y_bytes


def test_without_targets_columns_are_chosen_for_the_matrix_itself(tmp_path: Path) -> None:
    s = dsel.select(X, k=4, preprocess="unit", **FAST)
    z = X / np.linalg.norm(X, axis=0)
    Q = np.linalg.qr(z[:, s.indices])[0]
    assert s.error == pytest.approx(((z - Q @ (Q.T @ z)) ** 2).sum(), rel=1e-12)
    assert s.coefficients.shape == (4, 24)
    np.testing.assert_allclose(s.coefficients[:, s.indices], np.eye(4), atol=1e-10)
    store = make_store(tmp_path / "s.zarr", X, Y)
    assert dsel.select(store, k=4, preprocess="unit", unsupervised=True, **FAST).indices == s.indices


def test_a_dataset_brings_its_targets_and_some_may_be_picked(tmp_path: Path) -> None:
    both = np.hstack([np.random.default_rng(0).normal(size=(600, 1)), Y])
    store = make_store(tmp_path / "s.zarr", X, both, chunks=(200, 24))
    expected = dsel.select(X, Y, k=4, **FAST).indices
    assert dsel.select(store, k=4, targets=["y1"], **FAST).indices == expected
    assert dsel.select(store, k=4, targets=[1], **FAST).indices == expected
    assert (
        dsel.select(xr.open_zarr(store, consolidated=False, chunks={}), k=4, targets=["y1"], **FAST).indices == expected
    )
    assert dsel.select(X, both, k=4, targets=[1], **FAST).targets == ("y1",)


def test_targets_stay_in_the_order_of_y(tmp_path: Path) -> None:
    both = np.hstack([X[:, [3]] - X[:, [9]], Y])
    store = make_store(tmp_path / "s.zarr", X, both, chunks=(200, 24))
    expected = dsel.select(X, both, k=4, **FAST)
    for data, wanted in (((store,), ["y1", "y0"]), ((X, both), [1, 0])):
        found = dsel.select(*data, k=4, targets=wanted, **FAST)
        assert found.targets == ("y0", "y1")
        assert found.indices == expected.indices
        np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-9, atol=1e-12)
    with pytest.raises(OptionError, match="name at least one target"):
        dsel.select(store, k=4, targets=[])


class TestIncludeAndExclude:
    def test_included_columns_are_always_there_and_excluded_ones_never(self) -> None:
        s = dsel.select(X, Y, k=6, include=["x0", 3], exclude=[5, "x7"], **FAST)
        assert set(s.indices[:2]) == {0, 3}
        assert not {5, 7} & set(s.indices)
        assert all({0, 3} <= set(row.indices) for row in s.front)
        assert s.front[0].size == 2

    def test_all_of_k_may_be_included(self) -> None:
        s = dsel.select(X, Y, k=2, include=[4, 9])
        assert set(s.indices) == {4, 9}
        assert s.error == pytest.approx(dsel.select(X[:, [4, 9]], Y, k=2).error)


def test_dependent_and_constant_columns_are_named_and_bring_nothing() -> None:
    Z = np.column_stack([X, X[:, 2] * 3, np.full(600, 7.0), X[:, 5] + X[:, 7]])
    s = dsel.select(Z, Y, k=8)
    assert s.constant == ("x25",)
    assert 25 not in s.indices
    assert not {2, 24} <= set(s.indices)
    assert not {5, 7, 26} <= set(s.indices)
    assert any("x25" in note for note in s.notes)
    assert any("x2 for x24" in note for note in s.notes)


@pytest.mark.parametrize("preprocess", ["none", "unit"])
def test_without_centering_a_chosen_constant_column_is_the_intercept_and_a_note_says_so(preprocess: str) -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 6)) + 1.0
    Z[:, 2] = 3.0
    y = 10.0 + Z[:, 0] + 0.1 * rng.normal(size=60)
    found = dsel.select(Z, y, k=2, preprocess=preprocess, method="exhaustive")
    assert set(found.labels) == {"x0", "x2"}
    said = f"1 constant column acts as the intercept, which preprocess {preprocess} does not have: x2"
    assert found.notes == (said,)
    assert found.constant == ()
    np.testing.assert_allclose(found.intercept, 0.0)
    centered = dsel.select(Z, y, k=2, method="exhaustive")
    assert (centered.notes, centered.constant) == (("1 constant column is never chosen: x2",), ("x2",))
    assert dsel.select(Z, y, k=2, preprocess=preprocess, exclude=[2]).notes == ()


def test_ridge_and_scaling_do_what_they_say() -> None:
    z, y = X - X.mean(0), Y - Y.mean(0)
    s = dsel.select(X, Y, k=3, lam=50.0, preprocess="center", **FAST)
    S = list(s.indices)
    A = np.linalg.solve(z[:, S].T @ z[:, S] + 50 * np.eye(3), z[:, S].T @ y)
    assert s.error == pytest.approx(((y - z[:, S] @ A) ** 2).sum() + 50 * (A**2).sum(), rel=1e-10)
    np.testing.assert_allclose(s.coefficients, A, rtol=1e-9)


def test_scaling_a_column_does_not_matter_when_standardized_and_order_only_renames() -> None:
    s = dsel.select(X, Y, k=5, method="forward")
    order = np.random.default_rng(3).permutation(24)
    scaled = dsel.select(X[:, order] * np.linspace(0.1, 9, 24), Y * 5 + 2, k=5, method="forward")
    assert tuple(int(order[j]) for j in scaled.indices) == s.indices
    assert scaled.error == pytest.approx(s.error, rel=1e-9)


def test_a_saved_selection_opens_as_it_was(tmp_path: Path) -> None:
    s = dsel.select(X, Y, k=4, seed=3, **FAST)
    found = dsel.open_selection(s.save(tmp_path / "answer"))
    for name, value in vars(s).items():
        np.testing.assert_equal(getattr(found, name), value, err_msg=name)
    group = xr.open_zarr(tmp_path / "answer" / "selection.zarr", consolidated=False)
    assert group["coefficients"].dims == ("selected", "target")
    with pytest.raises(DselError, match="holds a selection already"):
        s.save(tmp_path / "answer")
    assert not list((tmp_path / "answer").glob(".*"))


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"k": 0}, "'k' is 0: it must be at least 1"),
        ({"k": 25}, "k is 25, and X has 24 columns"),
        ({"k": 2.5}, "'k' is 2.5"),
        ({"k": True}, "'k' is True"),
        ({"method": "pos"}, "Did you mean 'poss'"),
        ({"method": "POSS"}, "Did you mean 'poss'"),
        ({"method": "zzz"}, "Known: poss, pposs, .*, approx-svd"),
        ({"preprocess": "standard"}, "Did you mean 'standardize'"),
        ({"lam": -1}, "'lam' is -1"),
        ({"lam": float("nan")}, "'lam' is nan"),
        ({"seed": -1}, "'seed' is -1"),
        ({"missing": "median"}, "'missing' is 'median'"),
        ({"iteration": 9}, "Did you mean 'iterations'"),
        ({"random_state": 0}, "Did you mean 'seed'"),
        ({"n_features_to_select": 3}, "Did you mean 'k'"),
        ({"verbose": True}, "logger 'dsel'"),
        ({"recombination": 0.5}, "recombination was removed: exchange_every"),
        ({"options": {"iterations": 9}}, "as keyword arguments"),
        ({"iterations": 0}, "'iterations' is 0"),
        ({"isolation": "min"}, "'isolation' is 'min'"),
        ({"include": ["x99"]}, "no feature 'x99'"),
        ({"include": [24]}, "no feature 24"),
        ({"include": [1, "x1"]}, "named twice"),
        ({"include": [1], "exclude": [1]}, "Column x1 is both included and excluded"),
        ({"include": [1, 2, 3, 4]}, "4 columns are included, and k is 3"),
        ({"method": "two-stage"}, "Y = X"),
        ({"targets": ["z"]}, "no target 'z'"),
        ({"targets": []}, "name at least one target"),
        ({"targets": "z0"}, "no target 'z0'"),
        ({"include": "x1"}, r"'include' is 'x1'.*\['x1'\]"),
        ({"include": 1}, "'include' is 1"),
        ({"include": [1.7]}, "there is no feature '1.7'"),
        ({"exclude": [None]}, "None is neither a label nor an index"),
        ({"exclude": [float("nan")]}, "nan is neither a label nor an index"),
        ({"include": [True]}, "True is not a column"),
        ({"include": [-1]}, "no feature -1"),
        ({"seed": 1.5}, "'seed' is 1.5"),
        ({"seed": None}, "'seed' is None"),
        ({"seed": "a"}, "'seed' is 'a'"),
        ({"seed": True}, "'seed' is True"),
        ({"k": "3"}, "'k' is '3'"),
        ({"lam": None}, "'lam' is None"),
        ({"lam": "a"}, "'lam' is 'a'"),
        ({"lam": True}, "'lam' is True"),
        ({"lam": float("inf")}, "'lam' is inf"),
        ({"method": None}, "'method' is None"),
        ({"method": ["poss"]}, r"'method' is \['poss'\]"),
        ({"preprocess": None}, "'preprocess' is None"),
        ({"criterion": "f"}, "'criterion' is 'f'"),
    ],
)
def test_wrong_arguments_are_named_before_any_work(wrong: dict[str, object], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        dsel.select(X, Y, **{"k": 3, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ((X, Y[:-1]), "X has 600 rows and Y has 599"),
        ((X[:, :0], Y), "empty"),
        ((X[0], Y), "two dimensions"),
        ((X.astype(str), Y), "dtype"),
        ((X.astype(complex), Y), "dtype"),
        ((X, np.ones(600)), "targets are constant"),
        ((np.ones((600, 3)), None), "constant"),
        ((X, Y * 1e-170), "range"),
    ],
)
def test_wrong_data_are_named(data: tuple[object, object], match: str) -> None:
    with pytest.raises(DataError, match=match):
        dsel.select(*data, k=1)


def test_targets_whose_squares_vanish_are_refused() -> None:
    with pytest.raises(DataError, match=r"\|\|Y\|\|\^2 is 0.0.*Rescale"):
        dsel.select(X, np.full(600, 1e-200), k=1, preprocess="none")


@pytest.mark.parametrize("scale", [1e-100, 1e-81, 1e77, 1e100])
@pytest.mark.parametrize("preprocess", ["none", "center"])
def test_y_equal_to_x_is_refused_where_its_fourth_powers_are_out_of_range(scale: float, preprocess: str) -> None:
    with pytest.raises(DataError, match=r"\|\|X\|\|\^2 is .*out of float64's range.*standardize"):
        dsel.select(scale * X, k=2, preprocess=preprocess)


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_y_equal_to_x_does_not_depend_on_the_unit(scale: float) -> None:
    x = X[:, :8]
    assert dsel.select(scale * x, k=2, preprocess="none").indices == dsel.select(x, k=2, preprocess="none").indices


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no store"):
        dsel.select(tmp_path / "none.zarr", k=1)


def test_a_corrupt_chunk_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", X, Y, chunks=(100, 24))
    chunk = store / "X" / "c" / "3" / "0"
    data = bytearray(chunk.read_bytes())
    data[100] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(DataError, match=r"\(3, 0\).*X.*rows 300 to 399"):
        dsel.select(store, k=3)


def test_small_data_need_no_cluster_and_importing_is_light() -> None:
    code = (
        "import sys, dsel, numpy as np\n"
        "assert 'numba' not in sys.modules and 'dask' not in sys.modules\n"
        "X = np.random.default_rng(0).normal(size=(100, 10))\n"
        "dsel.select(X, X[:, 0], k=2)\n"
        "assert 'distributed' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


class TestACustomCriterion:
    def test_it_is_minimized_in_place_of_the_error_and_called_once_a_subset(self) -> None:
        seen: list[tuple[int, ...]] = []

        def distance(S: tuple[int, ...]) -> float:
            seen.append(S)
            return float(len(set(S) ^ {1, 4, 9}))

        s = dsel.select(X, Y, k=4, criterion=distance, iterations=20_000)
        assert set(s.indices) == {1, 4, 9}
        assert s.criterion == 0.0
        assert len(seen) == len(set(seen))
        assert all(tuple(sorted(S)) == S for S in seen)
        assert s.front[0].criterion is None
        assert s.r2 == pytest.approx(dsel.select(X[:, [1, 4, 9]], Y, k=3).r2)
        assert s.options["isolation"] == "none"

    def test_it_sees_included_columns_and_those_of_the_data(self) -> None:
        Z = np.column_stack([np.ones(600), X])

        def must_include(S: tuple[int, ...]) -> float:
            assert 3 in S
            assert 0 not in S  # constant
            return float(abs(sum(S) - 20))

        s = dsel.select(Z, Y, k=3, include=[3], criterion=must_include, iterations=2000)
        assert sum(s.indices) == 20

    def test_it_has_a_value_where_all_columns_are_included(self) -> None:
        seen: list[tuple[int, ...]] = []

        def asked(S: tuple[int, ...]) -> float:
            seen.append(S)
            return 42.0

        assert dsel.select(X, Y, k=2, include=[9, 4], criterion=asked).criterion == 42.0
        assert seen == [(4, 9)]

    @pytest.mark.parametrize("lam", [0.0, 2.0])
    def test_dependent_columns_that_it_chooses_stay(self, lam: float) -> None:
        Z = np.column_stack([X, X[:, 2] + X[:, 3], X[:, 4] * 2])
        wanted = {2, 3, 4, 24, 25}
        s = dsel.select(Z, Y, k=5, lam=lam, criterion=lambda S: len(set(S) ^ wanted), iterations=40_000)
        assert set(s.indices) == wanted
        assert s.criterion == 0.0
        assert len(s.labels) == len(s.coefficients) == 5
        if lam == 0.0:
            assert (s.coefficients[3:] == 0).all()
            assert s.r2 == pytest.approx(dsel.select(Z[:, [2, 3, 4]], Y, k=3).r2)
            assert any("2 columns that depend on the others have coefficient 0" in note for note in s.notes)

    @pytest.mark.parametrize("include", [[], [1, 2, 3]])
    def test_infinity_is_not_written(self, include: list[int], tmp_path: Path) -> None:
        s = dsel.select(X, Y, k=3, include=include, criterion=lambda S: float("inf"), iterations=200)
        assert s.criterion is None
        assert any("+inf" in note for note in s.notes)
        s.save(tmp_path)
        json.loads((tmp_path / "selection.json").read_text(), parse_constant=pytest.fail)

    def test_a_custom_isolation_function(self) -> None:
        s = dsel.select(X, Y, k=4, isolation=_parity, iterations=3000)
        assert s.options["isolation"].endswith(":_parity")
        assert s.r2 <= dsel.select(X, Y, k=4).r2 + 1e-12

    @pytest.mark.parametrize("isolation", [max, "min-index"])
    def test_an_isolation_function_in_rounds_and_without(self, isolation: object) -> None:
        of = {"k": 4, "isolation": isolation, "iterations": 3000}
        published = {"max_in_flight": 1} if callable(isolation) else {}
        poss = dsel.select(X, Y, **of, **published)  # type: ignore[arg-type]
        rounds = dsel.select(X, Y, method="pposs", processors=1, **of)  # type: ignore[arg-type]
        assert (rounds.indices, rounds.front) == (poss.indices, poss.front)
        free = dsel.select(X, Y, method="pposs-asy", **{**of, "iterations": 9000})  # type: ignore[arg-type]
        assert free.iterations == 9000
        assert free.r2 > poss.r2 - 1e-9

    @pytest.mark.parametrize(
        "wrong",
        [
            {"method": "backward"}, {"any_size": True}, {"exchange_every": 5}, {"target_r2": 0.5},
            {"method": "pposs", "target_r2": 0.5},
        ],
    )  # fmt: skip
    def test_what_does_not_go_with_it_is_refused_before_the_data_are_read(self, wrong: dict[str, object]) -> None:
        with pytest.raises(OptionError):
            dsel.plan(X, Y, k=4, criterion=len, **wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize("only", [{"evaluation_limit": 1.0}, {"processes": 2}])
    def test_what_goes_with_it_alone_is_refused_without(self, only: dict[str, object]) -> None:
        dsel.plan(X, Y, k=4, method="pposs", criterion=len, **only)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=f"pposs: {next(iter(only))}: only with a custom"):
            dsel.plan(X, Y, k=4, method="pposs", **only)  # type: ignore[arg-type]

    def test_a_criterion_that_fails_names_the_subset(self) -> None:
        with pytest.raises(DselError, match=r"(?s)failed on the columns \[.*ZeroDivisionError"):
            dsel.select(X, Y, k=4, criterion=lambda S: 1 / 0)


def _parity(S: tuple[int, ...]) -> int:
    return sum(S) % 2


def test_rows_of_different_lengths_are_no_matrix() -> None:
    with pytest.raises(DataError, match="X is no matrix"):
        dsel.select([[1.0, 2.0], [3.0]], [1.0, 2.0], k=1)


def test_an_answer_without_columns_says_so() -> None:
    s = dsel.select(X, Y, k=2, lam=1e300, **FAST)
    assert s.indices == ()
    assert any("no column is chosen" in note for note in s.notes)


def test_printed_it_is_what_the_shell_shows() -> None:
    assert str(dsel.select(X, Y, k=2, method="forward")).startswith("2 of 24 columns explain")


def test_too_little_memory_for_the_archive_is_refused_by_the_plan_too() -> None:
    with pytest.raises(CapacityError, match=r"for 11 subsets of up to 7 of 23 columns.* raise the option memory"):
        dsel.plan(X, Y, k=5, include=[3], memory=10_000)
    dsel.plan(X, Y, k=5, include=[3, 4, 5, 6, 7], memory=10_000)


def test_more_folds_than_rows_are_refused_by_the_plan_too() -> None:
    with pytest.raises(OptionError, match="too few for 7 folds"):
        dsel.plan(X[:6], Y[:6], k=2, method="kfold", folds=7)
