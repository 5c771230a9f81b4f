"""One answer through every representation, for data of many shapes; wide stores are read in blocks of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dsel
import dsel.objective.on_demand as on_demand
import dsel.planning.plan as planning
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import CapacityError, DataError, OptionError
from dsel.planning.calibration import measure
from dsel.planning.plan import make_plan
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.planning.validation import validate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from tests.oracles.literal_astar import literal_astar
from tests.stores import count_reads, make_store, reads_so_far

Force = Callable[..., None]
SHAPES = {
    "tall": (80, 12, 1), "wide": (20, 90, 1), "square": (25, 25, 2), "one column": (30, 1, 1),
    "more targets than rows": (12, 40, 15), "rank one": (20, 30, 1),
}  # fmt: skip


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Force:
    """Have a representation used, whatever fits."""
    monkeypatch.setattr(on_demand, "FEW_COLUMNS", 8)

    def to(name: str, memory: int | None = None) -> None:
        def choose(problem: ProblemShape, available: Resources) -> Representation:
            found = candidates(problem, replace(available, worker_memory=memory, client_memory=1 << 60))
            return next(c for c in found if c.name == name)

        monkeypatch.setattr(planning, "choose", choose)

    return to


def data(kind: str) -> tuple[Any, Any]:
    m, n, N = SHAPES[kind]
    rng = np.random.default_rng(len(kind))
    X = rng.standard_normal((m, n)) * 2 + 5
    if kind == "rank one":
        X = np.outer(rng.standard_normal(m), rng.standard_normal(n))
    Y = X[:, :3] @ rng.standard_normal((min(n, 3), N)) + rng.standard_normal((m, N))
    return X, Y


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("method", ["forward", "poss", "pposs", "pposs-asy", "astar"])
def test_every_representation_gives_the_same_answer(force: Force, kind: str, method: str) -> None:
    X, Y = data(kind)
    k = min(2 if method == "astar" else 4, X.shape[1])
    # Exchange searches need the whole Gram matrix.
    options = {"iterations": 4000, "exchange_every": 0} if method in ("poss", "pposs", "pposs-asy") else {}
    for args, names in (
        ((X, Y), ("tiled-gram", "column-blocks")),
        ((X,), ("tiled-gram", "column-blocks", "row-gram", "sketch")),
    ):
        if method == "astar" and len(args) == 1:
            names = tuple(name for name in names if name != "column-blocks")
        force("gram")
        expected = dsel.select(*args, k=k, method=method, **options)
        for name in names:
            force(name)
            found = dsel.select(*args, k=k, method=method, **options)
            assert found.plan is not None
            assert found.plan["representation"] == name
            planned, measured = found.plan["planned"], found.plan["measured"]
            assert name == "column-blocks" or planned["passes"] == measured["passes"]
            assert found.error == pytest.approx(expected.error, rel=1e-8, abs=1e-9 * X.size)
            if kind != "rank one":
                assert found.indices == expected.indices
                np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-7)
                np.testing.assert_allclose(found.intercept, expected.intercept, atol=1e-6)
                assert found.statistics is not None
                assert expected.statistics is not None
                np.testing.assert_allclose(found.statistics.gains, expected.statistics.gains, atol=1e-8)
                np.testing.assert_allclose(found.statistics.correlation, expected.statistics.correlation, atol=1e-7)
                assert [row.indices for row in found.front] == [row.indices for row in expected.front]


@pytest.mark.parametrize(
    "settings",
    [
        {"preprocess": "unit"}, {"preprocess": "none", "lam": 0.3}, {"include": [3, 9], "exclude": [11]},
        {"missing": "mean"}, {"sample_weight": np.arange(40) % 3}, {"unsupervised": True, "lam": 0.5, "include": [7]},
    ],
)  # fmt: skip
def test_column_blocks_do_what_the_gram_matrix_does(force: Force, tmp_path: Path, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 120)) * 3 + 10
    Y = X[:, :4] @ rng.standard_normal((4, 2)) + rng.standard_normal((40, 2))
    X[:, 5] = 2.0
    if "missing" in settings:
        X[3, 17] = X[8, 2] = np.nan
    force("gram")
    expected = dsel.select(X, Y, k=4, method="forward", **settings)
    force("column-blocks")
    places: list[tuple[Any, ...]] = [(X, Y), (da.from_array(X, chunks=(15, 50)), Y)]
    if "sample_weight" not in settings:
        for rows, columns in ((40, 37), (15, 37), (15, 120)):
            places.append((str(make_store(tmp_path / f"{rows}-{columns}.zarr", X, Y, chunks=(rows, columns))),))
    for place in places if "unsupervised" not in settings else places[:1] + places[2:4]:
        found = dsel.select(*place, k=4, method="forward", **settings)
        assert found.indices == expected.indices
        assert found.error == pytest.approx(expected.error, rel=1e-9)
        np.testing.assert_allclose(found.coefficients, expected.coefficients, atol=1e-8)
        assert found.constant == expected.constant


@pytest.mark.parametrize("seed", range(4))
def test_weighted_best_first_search_is_the_published_one_on_every_representation(force: Force, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((25, 8)) @ (np.eye(8) + 0.7 * rng.standard_normal((8, 8)))
    Y = X @ rng.standard_normal((8, 3)) + 3 * rng.standard_normal((25, 3))  # much of Y is outside the span of X
    force("gram")
    best = dsel.select(X, Y, k=3, method="branch-and-bound", preprocess="none").error
    for gamma in (0.4, 1.0, 3.0):
        expected = literal_astar(X, Y, 3, gamma)
        for name in ("gram", "tiled-gram", "column-blocks"):
            force(name)
            found = dsel.select(X, Y, k=3, method="astar", gamma=gamma, preprocess="none")
            assert tuple(sorted(found.indices)) == expected
            assert found.certificate[-1]["bound"] <= best * (1 + 1e-9)


def test_a_search_that_ends_early_is_not_worse_than_forward_selection(force: Force) -> None:
    X, Y = data("wide")
    for name in ("gram", "column-blocks"):
        force(name)
        greedy = dsel.select(X, Y, k=4, method="forward")
        found = dsel.select(X, Y, k=4, method="astar", nodes=1)
        assert found.ended == "iterations"
        assert len(found) == 4
        assert found.error <= greedy.error * (1 + 1e-12)
        assert not found.certificate[-1]["proven"]
        assert found.certificate[-1]["gap"] > 0.0


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_best_first_search_goes_by_the_reduced_matrix(force: Force, gamma: float, monkeypatch: Any) -> None:
    X = np.random.default_rng(1).standard_normal((12, 30)) * 0.8 ** np.arange(30)
    force("gram")
    expected = dsel.select(X, k=3, method="astar", gamma=gamma)
    monkeypatch.setattr("dsel.search.exact.astar.search._MAX_BITS", 8)
    force("row-gram")
    found = dsel.select(X, k=3, method="astar", gamma=gamma)
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-9)
    assert found.counts["row_passes"] <= 40


def test_what_does_not_fit_the_workers_is_searched_in_column_blocks_with_the_same_answer(tmp_path: Path) -> None:
    """Nothing is forced here but the workers' limit."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4000)).astype("float32")
    Y = X[:, :3] @ rng.standard_normal((3, 2)) + 0.5 * rng.standard_normal((60, 2))
    store = make_store(tmp_path / "x.zarr", X, Y, chunks=(60, 500))
    asked: dict[str, dict[str, Any]] = {"forward": {}, "poss": {"iterations": 2000}}
    with local_cluster(2, "350MiB") as client:
        context = RunContext(DaskEngine(client))
        found = {
            method: run_selection(
                as_dataset(str(store)), SelectionRequest(k=3, method=method, options=options), context
            )
            for method, options in {**asked, "astar": {"gamma": float("inf")}}.items()
        }
    for method, options in asked.items():
        expected = dsel.select(X, Y, k=3, method=method, **options)
        assert expected.plan is not None
        if method != "forward":  # its few steps take less time on the rows than the Gram matrix
            assert expected.plan["representation"] == "gram"
        assert found[method].indices == expected.indices
        assert found[method].error == pytest.approx(expected.error, rel=1e-9)
        assert [row.indices for row in found[method].front] == [row.indices for row in expected.front]
    assert sorted(found["astar"].indices) == sorted(found["forward"].indices)
    for selection in found.values():
        assert selection.plan is not None
        assert selection.plan["representation"] == "column-blocks"
        measured = selection.plan["measured"]
        assert 1 <= measured["row_passes"] <= measured["columns_entered"] <= measured["rows_fetched"]
        assert measured["rows_fetched"] >= 3


@pytest.mark.parametrize(
    ("method", "options"),
    [("backward", {}), ("rfe", {}), ("branch-and-bound", {}), ("astar", {"bound": "combined"}),
     ("poss", {"exchange_every": 50}), ("poss", {"isolation": sum}), ("astar", {"lam": 1.0})],
)  # fmt: skip
def test_what_wide_data_cannot_have_is_refused_before_the_first_pass(method: str, options: dict[str, Any]) -> None:
    X = da.random.default_rng(0).random((10, 400_000), chunks=(10, 400_000))
    X = X.map_blocks(_must_not_be_read, dtype=X.dtype)
    lam = options.get("lam", 0.0)
    Y = None if method == "astar" and "bound" not in options else np.arange(10.0)
    with pytest.raises(CapacityError, match="forward, omp, foba, splicing, exchange"):
        dsel.select(X, Y, k=2, method=method, lam=lam, **{k: v for k, v in options.items() if k != "lam"})


def _must_not_be_read(block: Any) -> Any:
    raise AssertionError("a pass was made")


def test_the_store_is_read_once_for_each_batch_of_columns_that_enter(force: Force, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 200)).astype("float32")
    store = make_store(
        tmp_path / "x.zarr", X, X[:, :2] @ np.ones((2, 1)) + rng.standard_normal((30, 1)), chunks=(30, 25)
    )
    force("column-blocks")
    count_reads()
    found = dsel.select(str(store), k=6, method="forward")
    read = [v for key, v in reads_so_far().items() if "X/c" in key or key.startswith("x.zarr/X")]
    counts = found.counts
    assert counts["columns_entered"] <= 6
    assert counts["row_passes"] <= counts["columns_entered"]
    # Each whole pass reads all 8 chunks; columns are fetched from the chunks they are in.
    assert found.passes == 1 + counts["row_passes"] + 1
    assert sum(read) >= 8 * (1 + counts["row_passes"])
    assert max(read) <= found.passes + 2 * counts["row_passes"] + 1
    found = dsel.select(str(store), k=6, method="poss", iterations=3000)
    assert found.counts["row_passes"] <= found.counts["columns_entered"] < 120


def test_the_trial_of_a_plan_reads_a_chunk_not_a_row_of_them(force: Force, tmp_path: Path) -> None:
    store = make_store(tmp_path / "x.zarr", np.ones((30, 200)), np.ones((30, 1)), chunks=(30, 25))
    dataset = as_dataset(str(store))
    force("column-blocks")
    plan = make_plan(validate(dataset, SelectionRequest(k=5)), Resources(1, None, 1 << 33))
    count_reads()
    assert measure(plan, dataset).read > 0.0
    assert sum(reads_so_far().values()) == 1
    assert plan.chosen.trial(dataset).cost().bytes_read == 8 * 30 * 25


def test_workers_keep_the_blocks_and_the_store_is_read_once(force: Force, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 200)).astype("float32")
    store = make_store(
        tmp_path / "x.zarr", X, X[:, :2] @ np.ones((2, 1)) + rng.standard_normal((30, 1)), chunks=(30, 25)
    )
    with local_cluster(2, "512MiB") as client:
        context = RunContext(DaskEngine(client))
        answers = []
        for memory in (None, 300 << 20):
            force("column-blocks", memory)
            found = run_selection(
                as_dataset(str(store)), SelectionRequest(k=5, method="poss", options={"iterations": 2000}), context
            )
            answers.append(found)
    kept, read = answers
    assert kept.indices == read.indices
    assert kept.error == read.error
    assert (kept.passes, kept.bytes_read < 3 * X.nbytes) == (2, True)
    assert read.passes > 2
    force("column-blocks")
    assert dsel.select(str(store), k=5, method="poss", iterations=2000).indices == kept.indices


def test_bad_values_are_named_with_their_column(force: Force, tmp_path: Path) -> None:
    X = np.ones((20, 60))
    X[4, 41] = np.inf
    store = make_store(tmp_path / "x.zarr", X, np.arange(20.0)[:, None], chunks=(20, 15))
    force("column-blocks")
    with pytest.raises(DataError, match=r"in column 'x41', row 4"):
        dsel.select(str(store), k=2, method="forward")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_near_copies_in_wide_data_are_told_by_signed_sums(force: Force, weighted: bool, chunked: bool) -> None:
    rng = np.random.default_rng(1)
    X = 3.0 + rng.standard_normal((60, 900))
    y = 2 * X[:, 4] + X[:, 7] + 1e-3 * rng.standard_normal(60)
    X[:, [899, 898]] = np.c_[5 - 2 * X[:, 4], X[:, 4] + 2e-4 * rng.standard_normal(60)]
    X[:, 500] = X[:, 7] + 2e-2 * rng.standard_normal(60)  # a correlation of about 1 - 2e-4
    w = rng.uniform(0.5, 2.0, 60) if weighted else None
    data = da.from_array(X, chunks=(17, 900)) if chunked else X
    wide = {"method": "omp", "k": 2, "sample_weight": w}
    force("column-blocks")
    found = dsel.select(data, y, **wide)
    assert found.plan is not None
    assert found.plan["representation"] == "column-blocks"
    assert found.counts["copies"] == [[4, 898, 899]]
    assert found.indices[0] == 4
    proved = dsel.certify(found, data, y, sample_weight=w, seconds=5)
    assert proved.certificate[-1]["represented"] == 1  # 899 is an exact multiple
    assert "copies" not in dsel.select(data, y, near_copies="keep", **wide).counts
    with pytest.raises(OptionError, match="x898, x899"):
        dsel.select(data, y, near_copies="refuse", **wide)
    force("gram")
    assert dsel.select(data, y, **wide).counts["copies"] == found.counts["copies"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("preprocess", ["none", "unit"])
def test_without_centering_near_copies_in_wide_data_are_multiples(
    force: Force, preprocess: str, weighted: bool
) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 900)) + 1e4 * (np.arange(900) % 2)  # large means hide what differs: cosines are 1
    X[:, [896, 897, 898, 899]] = np.c_[
        X[:, 4] + 5.0, -2.5 * X[:, 4], X[:, 5] * (1.0 - 1e-9), 3.0 * X[:, 4] + 1e-4 * rng.standard_normal(60)
    ]
    y = X[:, 4] + X[:, 6] + rng.standard_normal(60)
    w = rng.uniform(0.5, 2.0, 60) if weighted else None
    asked: dict[str, Any] = {"method": "omp", "k": 2, "preprocess": preprocess, "sample_weight": w}
    force("column-blocks")
    found = dsel.select(X, y, **asked)
    assert found.plan is not None
    assert found.plan["representation"] == "column-blocks"
    assert found.counts["copies"] == [[4, 897, 899], [5, 898]]
    assert found.counts["not_covered"] == [899]  # the others are exact multiples
    assert any("have means in the same proportion are one signal" in note for note in found.notes)
    with pytest.raises(OptionError, match="x897, x898, x899"):
        dsel.select(X, y, near_copies="refuse", **asked)
    scaled = dsel.select(X, y, lam=1.0, **asked).counts.get("copies")  # a penalty tells scales apart
    assert scaled == ([[5, 898]] if preprocess == "none" else [[4, 897, 899], [5, 898]])


def apart(column: np.ndarray, distance: float, rng: np.random.Generator) -> np.ndarray:
    """Return a column whose correlation with a given one is 1 - distance, to rounding."""
    z = (column - column.mean()) / np.linalg.norm(column - column.mean())
    e = rng.normal(size=z.size)
    e -= e.mean() + z * (z @ (e - e.mean()))
    return np.asarray((1.0 - distance) * z + np.sqrt(distance * (2.0 - distance)) * e / np.linalg.norm(e))


@pytest.mark.parametrize("distance", [0.0, 0.5, 0.9, 1 - 1e-4, 1 + 1e-4, 1.1, 1.2, 1.5, 2.5])
@pytest.mark.parametrize("seed", range(3))
def test_the_limit_of_near_copies_is_the_same_in_each_representation(force: Force, seed: int, distance: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 40))
    X[:, 7] = apart(X[:, 3], distance * 1e-6, rng)
    y = 30 * X[:, 7] + X[:, 11] + rng.normal(size=60)
    found = {}
    for name in ("column-blocks", "gram"):
        force(name)
        found[name] = dsel.select(X, y, k=2, method="forward")
    wide, gram = found["column-blocks"], found["gram"]
    assert wide.counts.get("copies") == gram.counts.get("copies") == ([[3, 7]] if distance < 1 else None)
    assert wide.plan["measured"]["of_copies"] == X.nbytes + y.nbytes  # one read, which tells multiples, too
    assert (wide.indices, wide.notes) == (gram.indices, gram.notes)


@pytest.mark.parametrize("lam", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(6))
def test_chains_of_near_copies_are_divided_the_same_way_in_each_representation(
    force: Force, seed: int, lam: float
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 40))
    for j in range(20, 40):  # of three columns, each near to some others
        X[:, j] = rng.choice([-2.0, 1.0]) * X[:, j % 3] + 10.0 ** rng.uniform(-3.6, -2.7) * rng.normal(size=60)
    difference = 1e3 * (X[:, 20] - X[:, 23])
    y = X[:, 1] + X[:, 2] + (3 * difference if seed % 2 else 0.0) + rng.normal(size=60)
    found = {}
    for name in ("column-blocks", "gram"):
        force(name)
        found[name] = dsel.select(X, y, k=3, lam=lam, preprocess="center" if lam else "standardize", method="forward")
    wide, gram = found["column-blocks"], found["gram"]
    assert wide.counts["copies"] == gram.counts["copies"]
    assert (wide.indices, wide.notes) == (gram.indices, gram.notes)


@pytest.mark.parametrize("preprocess", ["standardize", "center"])
def test_the_note_on_kept_multiples_is_the_same_in_each_representation(force: Force, preprocess: Any) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 40))
    X -= X.mean(axis=0)
    X[:, 7], X[:, 9], X[:, 12] = 2 * X[:, 3] + 1, X[:, 4], -X[:, 5]
    X[:, 15] = X[:, 6] + 1e-4 * rng.normal(size=60)  # a near-copy alone
    y = X[:, 3] + X[:, 4] + rng.normal(size=60)
    notes = []
    for name in ("column-blocks", "gram"):
        force(name)
        found = dsel.select(X, y, k=2, method="forward", near_copies="keep", preprocess=preprocess)
        notes.append(found.notes)
    assert notes[0] == notes[1]
    assert [note.rpartition(": ")[2] for note in notes[0]] == ["x4 and x9", "x3 and x7; x5 and x12"]


def test_crowds_that_only_look_alike_are_not_compared_pair_by_pair(force: Force) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=60)[:, None] + 1.7e-3 * rng.normal(size=(60, 300))  # 1 - correlation of about 3e-6
    X[:, 299] = -X[:, 0]
    force("column-blocks")
    found = dsel.select(X, X[:, 0] + rng.normal(size=60), k=1, method="forward")
    assert found.counts["copies"] == [[0, 299]]
    assert any("only where these are beyond doubt" in note for note in found.notes)


def test_columns_with_one_entry_each_are_no_near_copies(force: Force) -> None:
    X = np.eye(800)
    force("column-blocks")
    found = dsel.select(X, X[:, 4] + 0.5 * X[:, 7], method="omp", k=2)
    assert sorted(found.indices) == [4, 7]
    assert "copies" not in found.counts
