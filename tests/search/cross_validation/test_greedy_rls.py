"""Greedy RLS against the paper's three algorithms as they are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.errors import DataError, OptionError
from dsel.objective.cross_validation.leave_one_out import extend_round, prepare, split_errors
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.gram import gram_statistics
from dsel.search.cross_validation.rounds import GreedyRls, nested_fits, subset_fit
from tests.oracles import greedy_rls as oracle
from tests.search.cross_validation.without_gram import select_without_gram


def problem(m: int, n: int, N: int, seed: int, labels: bool = False) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n)) + rng.normal(size=n)
    Y = X @ (rng.normal(size=(n, N)) * (rng.random((n, 1)) < 0.5)) + 2.0 * rng.normal(size=(m, N)) + 1.0
    return X, np.where(np.median(Y, axis=0) < Y, 1.0, -1.0) if labels else Y


def compare(found: dsel.Selection, expected: oracle.Answer, per_row: float) -> None:
    """Errors of every round are equal; so are the selections, except where the oracle's two best are a tie."""
    S, rounds = expected
    for i, (row, errors) in enumerate(zip(found.path, rounds, strict=True)):
        assert row.error == pytest.approx(errors.min() / per_row, rel=1e-9)
        assert errors[row.index] == pytest.approx(errors.min(), rel=1e-9)
        if row.index != S[i]:
            assert row.index < S[i] or np.isclose(errors[S[i]], errors[row.index], rtol=1e-9)
            return  # another, equal, subset: what follows cannot be compared


DATA = Path(__file__).resolve().parents[2] / "data"


def rlscore_runs() -> list[dict[str, Any]]:
    """Selections of RLScore; see tests/data/SOURCES.md."""
    runs: list[dict[str, Any]] = json.loads((DATA / "rlscore.json").read_text())["runs"]
    return runs


SHAPES = {
    "m": st.integers(6, 30), "n": st.integers(2, 9), "N": st.integers(1, 3), "seed": st.integers(0, 10**6),
    "lam": st.sampled_from([0.01, 0.3, 1.0, 20.0]), "loss": st.sampled_from(["squared", "zero-one"]),
    "chunk": st.integers(1, 30), "data": st.data(),
}  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(**SHAPES)
def test_selections_and_errors_are_those_of_the_papers_algorithms(
    m: int, n: int, N: int, seed: int, lam: float, loss: str, chunk: int, data: Any
) -> None:
    k = data.draw(st.integers(1, n))
    X, Y = problem(m, n, N, seed, loss == "zero-one")
    measure = oracle.squared if loss == "squared" else oracle.zero_one
    per_row = m if loss == "squared" else m * N
    in_memory = dsel.select(X, Y, k=k, method="greedy-rls", lam=lam, preprocess="none", loss=loss)
    chunked = da.from_array(X, chunks=(min(chunk, m), n))
    streamed = dsel.select(chunked, Y, k=k, method="greedy-rls", lam=lam, preprocess="none", loss=loss)
    assert streamed.indices == in_memory.indices
    assert len(in_memory.indices) == k
    for algorithm in (oracle.algorithm_2, oracle.algorithm_3):
        compare(in_memory, algorithm(X, Y, k, lam, measure), per_row)
    for rows in (X, chunked):
        wide = select_without_gram(rows, Y, k=k, method="greedy-rls", lam=lam, preprocess="none", loss=loss)
        compare(wide, oracle.algorithm_3(X, Y, k, lam, measure), per_row)
    compare(streamed, oracle.algorithm_3(X, Y, k, lam, measure), per_row)


@settings(max_examples=12, deadline=None)
@given(
    m=st.integers(6, 15), n=st.integers(2, 5), N=st.integers(1, 2), seed=st.integers(0, 10**6),
    lam=st.sampled_from([0.01, 1.0, 20.0]), loss=st.sampled_from(["squared", "zero-one"]),
    intercept=st.sampled_from(["none", "center", "column"]),
)  # fmt: skip
def test_the_wrapper_gives_the_same_whatever_the_intercept(
    m: int, n: int, N: int, seed: int, lam: float, loss: str, intercept: str
) -> None:
    X, Y = problem(m, n, N, seed, loss == "zero-one")
    measure = oracle.squared if loss == "squared" else oracle.zero_one
    train = {"none": oracle.ridge, "center": oracle.ridge_with_intercept, "column": oracle.ridge_with_ones}[intercept]
    preprocess = "center" if intercept == "center" else "none"
    for data in (X, da.from_array(X, chunks=(4, n))):
        found = dsel.select(
            data, Y, k=min(n, 3), method="greedy-rls", lam=lam, preprocess=preprocess, loss=loss, intercept=intercept
        )
        expected = oracle.algorithm_1(X, Y, min(n, 3), lam, measure, train)
        compare(found, expected, m if loss == "squared" else m * N)
        wide = select_without_gram(
            data, Y, k=min(n, 3), method="greedy-rls", lam=lam, preprocess=preprocess, loss=loss, intercept=intercept
        )
        compare(wide, expected, m if loss == "squared" else m * N)


@pytest.mark.parametrize("run", rlscore_runs(), ids=lambda run: f"{run['data']}-lam-{run['lam']}")
def test_selections_and_errors_are_those_of_rlscore(run: dict[str, Any]) -> None:
    with np.load(DATA / f"{run['data']}.npz") as arrays:
        X, Y = arrays["X"].astype(float), arrays["Y"].astype(float)
    X, Y = np.delete(X, run["targets"], axis=1), np.hstack([Y, X[:, run["targets"]]])
    X = np.hstack([X, X[:, run["repeated"]]])
    options = {"k": len(run["selected"]), "method": "greedy-rls", "lam": run["lam"], "preprocess": "none"}
    chunked = da.from_array(X, chunks=(100, X.shape[1]))
    for data, rewrite_every in ((X, "never"), (chunked, 4)):
        found = dsel.select(data, Y, intercept="column", rewrite_every=rewrite_every, **options)
        assert [row.index for row in found.path] == run["selected"]
        assert [row.error / Y.shape[1] for row in found.path] == pytest.approx(run["errors"], rel=1e-8)
        found = select_without_gram(data, Y, intercept="column", rewrite_every=rewrite_every, **options)
        assert [row.index for row in found.path] == run["selected"]
        assert [row.error / Y.shape[1] for row in found.path] == pytest.approx(run["errors"], rel=1e-8)


def test_without_a_penalty_it_is_leave_one_out_of_least_squares() -> None:
    X, Y = problem(25, 5, 1, 3)
    found = dsel.select(X, Y, k=3, method="greedy-rls", preprocess="center")
    compare(found, oracle.algorithm_1(X, Y, 3, 0.0, oracle.squared, oracle.ridge_with_intercept), 25)


def test_labels_0_and_1_count_as_minus_1_and_1() -> None:
    X, Y = problem(60, 6, 1, 0, labels=True)
    for preprocess in ("none", "standardize"):
        options = {"k": 4, "method": "greedy-rls", "lam": 1.0, "preprocess": preprocess, "loss": "zero-one"}
        signed, zero = dsel.select(X, Y, **options), dsel.select(X, (Y + 1) / 2, **options)
        assert signed.path == zero.path
    with pytest.raises(DataError, match="labels -1 and"):
        dsel.select(X, Y * 2, **options)
    odd = Y.copy()
    odd[[3, 5, 7]] = np.sqrt([[2.0], [0.5], [0.5]])  # the sum of squares of labels
    with pytest.raises(DataError, match="labels -1 and"):
        dsel.select(X, odd, **options)


def test_duplicates_and_ties_go_to_the_lowest_index() -> None:
    X, Y = problem(50, 5, 1, 1)
    doubled = np.hstack([X, X])
    found = dsel.select(doubled, Y, k=1, method="greedy-rls", lam=0.5, preprocess="none")
    assert found.indices == dsel.select(X, Y, k=1, method="greedy-rls", lam=0.5, preprocess="none").indices
    with_penalty = dsel.select(doubled, Y, k=10, method="greedy-rls", lam=0.5, preprocess="none", near_copies="keep")
    assert sorted(with_penalty.indices) == list(range(10))
    without = dsel.select(doubled, Y, k=10, method="greedy-rls", preprocess="none", near_copies="keep")
    assert len(without.indices) == 5
    assert without.ended == "no column left"


@pytest.mark.parametrize("intercept", ["none", "center", "column"])
@pytest.mark.parametrize("loss", ["squared", "zero-one"])
def test_lam_is_the_best_of_the_grid_with_all_columns(intercept: str, loss: str) -> None:
    X, Y = problem(30, 6, 2, 5, loss == "zero-one")
    measure = oracle.squared if loss == "squared" else oracle.zero_one
    train = {"none": oracle.ridge, "center": oracle.ridge_with_intercept, "column": oracle.ridge_with_ones}[intercept]
    grid = (0.1, 3.0, 50.0)
    expected = []
    for lam in grid:
        left = [np.delete(np.arange(30), j) for j in range(30)]
        expected.append(sum(measure(Y[j], train(X[L], Y[L], X[j], lam)).sum() for j, L in enumerate(left)))
    preprocess = "center" if intercept == "center" else "none"
    found = dsel.select(
        X, Y, k=2, method="greedy-rls", preprocess=preprocess, intercept=intercept, loss=loss, lam_grid=grid
    )
    assert [error for _, error in found.counts["lam_grid"]] == pytest.approx(expected)
    assert found.lam == grid[int(np.argmin(expected))]
    again = dsel.select(X, Y, k=2, method="greedy-rls", lam=found.lam, preprocess=preprocess, intercept=intercept,
                        loss=loss)  # fmt: skip
    assert again.path == found.path
    assert again.error == found.error


@pytest.mark.parametrize("loss", ["squared", "zero-one"])
def test_held_out_errors_are_those_of_the_model_after_each_step(loss: str) -> None:
    X, Y = problem(80, 6, 1, 2, loss == "zero-one")
    for preprocess, intercept in (("none", "none"), ("none", "column"), ("standardize", "center")):
        options = {"method": "greedy-rls", "lam": 1.0, "preprocess": preprocess, "loss": loss, "intercept": intercept}
        found = dsel.select(X[:50], Y[:50], k=4, held_out=(X[50:], Y[50:]), **options)
        for row in found.path:
            step = dsel.select(X[:50], Y[:50], k=row.size, **options)
            p = step.intercept + X[50:, step.indices] @ step.coefficients
            if loss == "zero-one":
                expected = oracle.zero_one(Y[50:], p).mean()
                assert row.test_accuracy == pytest.approx(1.0 - expected)
            else:
                scale = Y[:50].std() if preprocess == "standardize" else 1.0
                expected = oracle.squared(Y[50:], p).mean() / scale**2
            assert row.test_error == pytest.approx(expected)


def rows_and_problem(lam: float = 0.7, m: int = 30, n: int = 6, seed: int = 4) -> tuple[Any, Any, DatasetRows]:
    X, Y = problem(m, n, 1, seed)
    dataset = as_dataset(da.from_array(X, chunks=(11, n)), Y)
    statistics = gram_statistics(dataset)
    return X, Y, DatasetRows(dataset, statistics, "none")


def wrapper_error(X: Any, Y: Any, S: list[int], lam: float) -> float:
    m = len(X)
    left = [np.delete(np.arange(m), j) for j in range(m)]
    return float(sum(((Y[j] - oracle.ridge(X[np.ix_(L, S)], Y[L], X[j, S], lam)) ** 2).sum()
                     for j, L in enumerate(left)))  # fmt: skip


def test_one_pass_values_the_subset_all_insertions_and_all_deletions() -> None:
    X, Y, rows = rows_and_problem()
    S = [4, 1, 2]
    round = prepare(rows.problem(0.7), np.array(S), insert=True, remove=True)
    base, inserted, removed = split_errors(round, rows.errors(round))
    assert base == pytest.approx(wrapper_error(X, Y, S, 0.7))
    for j in (0, 3, 5):
        assert inserted[j] == pytest.approx(wrapper_error(X, Y, [*S, j], 0.7))
    for place, i in enumerate(S):
        assert removed[place] == pytest.approx(wrapper_error(X, Y, [j for j in S if j != i], 0.7))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), loss=st.sampled_from(["squared", "zero-one"]), chunked=st.booleans())
def test_backward_elimination_deletes_what_costs_least(seed: int, loss: str, chunked: bool) -> None:
    X, Y = problem(20, 5, 1, seed)
    if loss == "zero-one":
        Y = np.where(np.median(Y) < Y, 1.0, -1.0)
    measure = oracle.squared if loss == "squared" else oracle.zero_one
    data = da.from_array(X, chunks=(7, 5)) if chunked else X
    found = dsel.select(data, Y, k=2, method="greedy-rls", lam=0.5, preprocess="none", direction="backward", loss=loss)
    members = list(range(5))
    for row in found.path:
        costs = {}
        for i in members:
            S = [j for j in members if j != i]
            left = [np.delete(np.arange(20), j) for j in range(20)]
            costs[i] = sum(
                measure(Y[j], oracle.ridge(X[np.ix_(L, S)], Y[L], X[j, S], 0.5)).sum() for j, L in enumerate(left)
            )
        assert row.action == "remove"
        assert costs[row.index] == pytest.approx(min(costs.values()))
        assert row.error * 20 == pytest.approx(costs[row.index])
        members.remove(row.index)
    assert sorted(found.indices) == members


def test_floating_search_is_never_worse_than_forward_and_deletes_when_that_pays() -> None:
    deleted = 0
    for seed in range(10):
        X, Y = problem(25, 10, 1, seed)
        X = X @ np.random.default_rng(seed).normal(size=(10, 10))  # correlated columns, where greed goes wrong
        options = {"k": 5, "method": "greedy-rls", "lam": 0.1, "preprocess": "none"}
        forward, floating = dsel.select(X, Y, **options), dsel.select(X, Y, direction="floating", **options)
        streamed = dsel.select(da.from_array(X, chunks=(10, 10)), Y, direction="floating", **options)
        assert [(p.action, p.index) for p in streamed.path] == [(p.action, p.index) for p in floating.path]
        deleted += sum(p.action == "remove" for p in floating.path)
        least: dict[int, float] = {}
        for p in floating.path:
            assert p.action == "insert" or p.error < least[p.size]
            least[p.size] = min(p.error, least.get(p.size, np.inf))
        assert len(floating.indices) == 5
        found = wrapper_error(X, Y, list(floating.indices), 0.1) / 25
        assert found == pytest.approx(least[5])
        assert least[2] <= forward.path[1].error * (1 + 1e-9)
    assert deleted > 0


def test_included_and_excluded_columns_are_honoured() -> None:
    X, Y = problem(40, 8, 1, 9)
    for direction in ("forward", "backward", "floating"):
        found = dsel.select(
            X, Y, k=4, method="greedy-rls", lam=1.0, include=[5, 2], exclude=[0, 1], direction=direction
        )
        assert found.indices[:2] == (5, 2)
        assert len(found.indices) == 4
        assert not {0, 1} & set(found.indices)


def test_sparse_integer_and_incomplete_data() -> None:
    import scipy.sparse

    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(60, 7))
    Y = (X[:, 2] - X[:, 4] + rng.normal(size=60))[:, None]
    options = {"k": 3, "method": "greedy-rls", "lam": 1.0}
    plain = dsel.select(X.astype(float), Y, **options)
    for data in (X, X.astype(np.uint8), scipy.sparse.csr_matrix(X), X.astype(np.float32)):
        assert dsel.select(data, Y, **options).path == plain.path
    holes = X.astype(float)
    holes[::9, 2] = np.nan
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    for data in (holes, da.from_array(holes, chunks=(20, 7))):
        found = dsel.select(data, Y, missing="mean", **options)
        expected = dsel.select(filled, Y, **options)
        assert found.indices == expected.indices
        assert [p.error for p in found.path] == pytest.approx([p.error for p in expected.path])


def test_a_search_continues_from_its_state_after_any_round() -> None:
    _, _, rows = rows_and_problem()
    for direction in ("forward", "backward", "floating"):
        whole = GreedyRls(rows.problem(0.7), 3, range(6), direction=direction)
        while (round := whole.ask()) is not None:
            whole.tell(rows.errors(round))
        for rounds in range(whole.iteration + 1):
            part = GreedyRls(rows.problem(0.7), 3, range(6), direction=direction)
            for _ in range(rounds):
                asked = part.ask()
                assert asked is not None
                part.tell(rows.errors(asked))
            rest = GreedyRls(rows.problem(0.7), 3, range(6), direction=direction)
            rest.restore(part.state())
            while (round := rest.ask()) is not None:
                rest.tell(rows.errors(round))
            assert rest.path == whole.path
            assert rest.answer() == whole.answer()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"intercept": "column"}, "does not go with preprocess standardize"),
        ({"intercept": "center", "preprocess": "none"}, "does not go with preprocess none"),
        ({"loss": "zero"}, "Did you mean 'zero-one'"),
        ({"lam_grid": (1.0, -1.0)}, "numbers > 0"),
        ({"direction": "backward"}, "Set lam > 0"),
        ({"rewrite_every": True}, "'rewrite_every' is True: it must be a whole number of rounds from 1, auto or never"),
        ({"rewrite_every": 0}, "'rewrite_every' is 0: it must be a whole number"),
        ({"rewrite_every": 1.5}, "'rewrite_every' is 1.5: it must be a whole number"),
        ({"lam_grid": "some"}, "'lam_grid' is 'some': it must be auto or numbers > 0"),
        ({"held_out": (np.zeros((3, 4)), np.zeros(3))}, "held-out rows have 4 columns"),
        ({"held_out": 5}, "5 is not a share of the rows"),
        ({"held_out": (np.zeros((3, 9)), [[np.nan], [0.0], [0.0]]), "lam": 1.0}, "Y of held-out rows 0 to 2 has NaN"),
        ({"held_out": (np.full((3, 9), np.nan), np.zeros(3)), "lam": 1.0}, "X of held-out rows 0 to 2 has NaN"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    X, Y = problem(8, 9, 1, 0)
    with pytest.raises((OptionError, DataError), match=message):
        dsel.select(X, Y, k=2, method="greedy-rls", **options)
    with pytest.raises(OptionError, match="needs targets"):
        dsel.select(X, k=2, method="greedy-rls")


def test_columns_to_start_with_that_depend_on_each_other_are_refused() -> None:
    X, Y = problem(30, 5, 1, 0)
    X = np.hstack([X, X.sum(axis=1, keepdims=True), np.ones((30, 1))])
    plain = {"k": 2, "method": "greedy-rls", "preprocess": "none"}
    for lam in (0.0, 1e-12):
        with pytest.raises(OptionError, match="depend on each other, to rounding"):
            dsel.select(X, Y, lam=lam, direction="backward", **plain)
    with pytest.raises(OptionError, match="or on the column of ones"):
        dsel.select(X, Y, include=[6], intercept="column", **plain)
    assert len(dsel.select(X, Y, lam=0.1, direction="backward", include=[6], intercept="column", **plain)) == 2


def test_the_path_is_saved_and_opened(tmp_path: Any) -> None:
    X, Y = problem(40, 5, 1, 0, labels=True)
    found = dsel.select(X, Y, k=3, method="greedy-rls", lam=1.0, loss="zero-one", held_out=(X, Y))
    found.save(tmp_path)
    opened = dsel.open_selection(tmp_path)
    assert opened.path == found.path
    from dsel.selection.render import render

    assert "test accuracy" in render(opened)


@pytest.mark.parametrize("preprocess", ["none", "center"])
@pytest.mark.parametrize("m", [3, 5])
def test_without_a_penalty_it_ends_where_the_rows_do_not_determine_a_model(m: int, preprocess: str) -> None:
    X, Y = problem(m, 8, 2, 0)
    data = da.from_array(X, chunks=(2, 8))
    most = m - 1 - (preprocess == "center")
    train = oracle.ridge_with_intercept if preprocess == "center" else oracle.ridge
    for rows, options in ((X, {}), (data, {}), (data, {"rewrite_every": 2}), (X, {"direction": "floating"})):
        found = dsel.select(rows, Y, k=7, method="greedy-rls", preprocess=preprocess, **options)
        assert len(found.indices) == most
        assert found.ended == "too few rows"
        if not options:
            compare(found, oracle.algorithm_1(X, Y, most, 0.0, oracle.squared, train), m)
    with pytest.raises(DataError, match="too few for least squares"):
        dsel.select(X[:2] if preprocess == "center" else X[:1], Y[: 2 - (preprocess != "center")], k=1,
                    method="greedy-rls", preprocess=preprocess)  # fmt: skip


def test_with_a_penalty_there_may_be_more_columns_than_rows_and_constant_ones_are_left_out() -> None:
    X, Y = problem(7, 12, 2, 1)
    X[:, 4] = 3.0
    data = da.from_array(X, chunks=(2, 12))
    for lam in (1e-3, 1.0):
        for rows, rewrite_every in ((X, "never"), (data, "never"), (data, 3)):
            options = {
                "k": 11,
                "method": "greedy-rls",
                "lam": lam,
                "preprocess": "center",
                "rewrite_every": rewrite_every,
            }
            found = dsel.select(rows, Y, **options)
            assert sorted(found.indices) == [j for j in range(12) if j != 4]
            kept = np.delete(X, 4, axis=1)
            S, rounds = oracle.algorithm_1(kept, Y, 11, lam, oracle.squared, oracle.ridge_with_intercept)
            assert [row.error for row in found.path] == pytest.approx([e.min() / 7 for e in rounds], rel=1e-6)
            assert [row.index - (row.index > 4) for row in found.path][:6] == S[:6]


def test_equal_counts_of_wrong_labels_go_to_the_lowest_index() -> None:
    X, Y = problem(40, 3, 1, 2, labels=True)
    tied = np.hstack([X[:, [2]], -2.0 * X[:, [2]], X])  # three columns of one meaning
    for rows in (tied, da.from_array(tied, chunks=(9, 5))):
        found = dsel.select(rows, Y, k=5, method="greedy-rls", lam=0.5, loss="zero-one", near_copies="keep")
        order = [row.index for row in found.path]
        assert order.index(0) < order.index(4)
        assert order.index(0) < order.index(1)


@pytest.mark.parametrize("intercept", ["none", "center", "column"])
def test_an_extended_round_equals_a_new_one(intercept: str) -> None:
    X, Y = problem(30, 9, 2, 3)
    dataset = as_dataset(X, Y)
    statistics = gram_statistics(dataset)
    rows = DatasetRows(dataset, statistics, "center" if intercept == "center" else "none", intercept=intercept)
    whole = rows.problem(0.3)
    grown = prepare(whole, np.array([4]))
    for b in (7, 0, 3):
        grown = extend_round(whole, grown, b)
    new = prepare(whole, np.array([4, 7, 0, 3]))
    for part in ("members", "F", "Q", "q", "delta", "T"):
        np.testing.assert_allclose(getattr(grown, part), getattr(new, part), rtol=1e-9, atol=1e-12)
    fits = nested_fits(whole, [4, 7, 0, 3], (1, 3, 4))
    for fit, size in zip(fits, (1, 3, 4), strict=True):
        for part, expected in zip(fit, subset_fit(whole, [4, 7, 0, 3][:size]), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("lam", [0.5, 1e-4])
def test_a_prediction_of_exactly_0_is_wrong_wherever_the_rows_are(lam: float) -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = np.hstack([np.eye(4)[rng.integers(0, 4, 24)] for _ in range(3)])
        Y = np.where(rng.random((24, 1)) < 0.5, 1.0, -1.0)
        options = {"k": 9, "method": "greedy-rls", "lam": lam, "preprocess": "none", "loss": "zero-one"}
        path = dsel.select(X, Y, **options).path
        for rows, rewrite_every in ((3, "never"), (24, 2)):
            found = dsel.select(da.from_array(X, chunks=(rows, 12)), Y, rewrite_every=rewrite_every, **options)
            assert found.path == path


def test_a_penalty_near_nothing_ends_no_search_early_where_columns_outnumber_rows() -> None:
    for seed in range(3):
        X, Y = problem(10, 20, 1, seed)
        options = {"k": 15, "method": "greedy-rls", "lam": 1e-8}
        whole = dsel.select(X, Y, **options)
        chunked = dsel.select(da.from_array(X, chunks=(3, 20)), Y, **options)
        assert len(whole.path) == len(chunked.path) == 15
        for a, b in list(zip(whole.path, chunked.path, strict=True))[:8]:
            assert a.index == b.index
            assert a.error == pytest.approx(b.error, rel=1e-6)


ONE_HOT = [1, 4, 6]


def with_one_hot(loss: str, seed: int) -> tuple[Any, Any, Any]:
    """Rows, targets and weights; columns ONE_HOT are nonzero in one row each, in two of them where |y| is largest."""
    rng = np.random.default_rng(seed)
    X, Y = problem(21, 8, 2, seed, loss == "zero-one")
    far = np.argsort(-np.abs(Y[:, 0]))
    X[:, ONE_HOT] = 0.0
    X[[far[0], far[1], 20], ONE_HOT] = [10.0, -25.0, 10.0]
    return X, Y, np.where(rng.random(21) < 0.2, 0.0, rng.uniform(0.5, 2.0, 21))


def refitted(X: Any, Y: Any, w: Any, S: list[int], lam: float, loss: str) -> float:
    """Leave-one-out error by new fits, inf (wrong) for a row without which a column of S is 0."""
    error, root = 0.0, np.sqrt(w)[:, None]
    for i in np.flatnonzero(w):
        L = np.setdiff1d(np.flatnonzero(w), i)
        if not X[np.ix_(L, S)].any(axis=0).all() and X[i, S].any():
            error += np.inf if loss == "squared" else w[i] * Y.shape[1]
            continue
        p = oracle.ridge((root * X)[np.ix_(L, S)], (root * Y)[L], X[i, S], lam)
        error += w[i] * (((Y[i] - p) ** 2).sum() if loss == "squared" else (Y[i] * p <= 0).sum())
    return float(error)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [0.0, 1e-12])
@pytest.mark.parametrize("loss", ["squared", "zero-one"])
def test_a_row_that_alone_determines_a_coefficient_is_inf_or_wrong(loss: str, lam: float, weighted: bool) -> None:
    seed = int(weighted)
    X, Y, w = with_one_hot(loss, seed)
    w = w if weighted else np.ones(21)
    w[np.abs(X[:, ONE_HOT]).any(axis=1)] = 1.0
    options = {"method": "greedy-rls", "lam": lam, "preprocess": "none", "loss": loss, "k": 6}
    if weighted:
        options["sample_weight"] = w
    total = w.sum() * (1 if loss == "squared" else 2)
    S: list[int] = []
    found = dsel.select(X, Y, **options)
    for row in found.path:
        errors = {j: refitted(X, Y, w, [*S, j], lam, loss) for j in range(8) if j not in S}
        assert row.error == pytest.approx(errors[row.index] / total, rel=1e-6)
        assert errors[row.index] == pytest.approx(min(errors.values()), rel=1e-6)
        S.append(row.index)
    if loss == "squared":
        assert sorted(S) == [0, 2, 3, 5, 7]
        assert found.ended == "no finite error"
    order = np.random.default_rng(seed).permutation(8)
    for more in ({},) if weighted else ({}, {"rewrite_every": 2}):  # rows on disk have no weights
        assert dsel.select(da.from_array(X, chunks=(4, 8)), Y, **options, **more).indices == found.indices
    if loss == "squared":
        permuted = dsel.select(X[:, order], Y, **options)
        assert [order[j] for j in permuted.indices] == list(found.indices)


@pytest.mark.parametrize("lam", [0.0, 1e-12])
def test_nothing_but_columns_of_one_row_each_is_an_error(lam: float) -> None:
    X, Y = 10.0 * np.eye(9)[:, :4], problem(9, 2, 1, 0)[1]
    for rows in (X, da.from_array(X, chunks=(4, 4))):
        for direction in ("forward", "backward"):
            with pytest.raises(DataError, match=r"not finite.*lam"):
                dsel.select(rows, Y, k=2, method="greedy-rls", lam=lam, preprocess="none", direction=direction)
