"""Groups of columns enter and leave together: every method is compared with least squares on the rows."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.column_groups import column_groups
from dsel.data.ingest import ingest_arrays
from dsel.errors import OptionError
from dsel.jobs.certify import ProofBudget, certify_selection, describe
from dsel.objective.groups import GroupedObjective
from dsel.passes.gram import gram_statistics
from dsel.planning.validation import validate
from dsel.search.anytime import Stop, drive
from dsel.search.exact.group_tree import GroupTree
from dsel.search.registry import METHODS as METHODS_OF_DSEL
from dsel.selection.pipeline import run_selection
from dsel.selection.render import render
from dsel.selection.results.compare import compare_selections
from tests.stores import make_store

GREEDY = ["forward", "omp", "exchange", "foba", "splicing", "backward", "random"]
METHODS = [*GREEDY, "poss", "branch-and-bound"]


def problem(seed: int = 0, m: int = 80, N: int = 1, sizes: tuple[int, ...] = (1, 3, 2, 1, 4, 2, 1)) -> Any:
    """X with a one-hot group that is dependent on itself after centering, Y, and the columns of each group."""
    rng = np.random.default_rng(seed)
    parts, groups, n = [], [], 0
    for i, size in enumerate(sizes):
        if size == 3:
            parts.append(np.eye(3)[rng.integers(0, 3, m)])
        else:
            parts.append(rng.normal(size=(m, size)) + (0.8 * parts[0][:, :1] if i % 3 == 1 else 0.0))
        groups.append(list(range(n, n + size)))
        n += size
    X = np.hstack(parts)
    Y = X @ (rng.normal(size=(n, N)) * (rng.random((n, 1)) < 0.5)) + 0.5 * rng.normal(size=(m, N))
    return X, Y, groups


def error(X: Any, Y: Any, S: list[int], lam: float = 0.0) -> float:
    """f of some columns on standardized data, by least squares on the rows."""
    Z, T = (X - X.mean(axis=0)) / X.std(axis=0), (Y - Y.mean(axis=0)) / Y.std(axis=0)
    Z = Z[:, S] if len(S) else np.zeros((len(X), 1))
    if lam:
        Z, T = np.vstack([Z, np.sqrt(lam) * np.eye(Z.shape[1])]), np.vstack([T, np.zeros((Z.shape[1], T.shape[1]))])
    return float(((T - Z @ np.linalg.lstsq(Z, T, rcond=None)[0]) ** 2).sum())


def columns_of(groups: list[list[int]], chosen: Any) -> list[int]:
    return [j for g in chosen for j in groups[g]]


def best(X: Any, Y: Any, groups: list[list[int]], k: int, lam: float = 0.0) -> float:
    return min(error(X, Y, columns_of(groups, S), lam) for S in combinations(range(len(groups)), k))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 4), N=st.sampled_from([1, 2, 12]), lam=st.sampled_from([0.0, 3.0]))
def test_branch_and_bound_finds_the_best_groups(seed: int, k: int, N: int, lam: float) -> None:
    X, Y, groups = problem(seed, N=N)
    found = dsel.select(X, Y, k=k, groups=groups, method="branch-and-bound", lam=lam)
    assert found.ended == "proven"
    assert found.error == pytest.approx(best(X, Y, groups, k, lam), rel=1e-8)
    assert found.certificate[-1]["bound"] == pytest.approx(found.error, rel=1e-6, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), N=st.sampled_from([1, 3]))
def test_each_step_of_forward_and_omp_is_the_best_one(seed: int, N: int) -> None:
    X, Y, groups = problem(seed, N=N)
    Z, T = (X - X.mean(axis=0)) / X.std(axis=0), (Y - Y.mean(axis=0)) / Y.std(axis=0)
    for method in ("forward", "omp"):
        found = dsel.select(X, Y, k=4, groups=groups, method=method)
        S: list[int] = []
        for row in found.front[1:]:
            (g,) = set(chosen_of(row.indices, groups)) - set(S)
            rest = [h for h in range(len(groups)) if h not in S]
            if method == "forward":
                after = {h: error(X, Y, columns_of(groups, [*S, h])) for h in rest}
            else:
                Z_S = Z[:, columns_of(groups, S)]
                R = T - (Z_S @ np.linalg.lstsq(Z_S, T, rcond=None)[0] if S else 0.0)
                after = {h: float(((R - fitted(Z[:, groups[h]], R)) ** 2).sum()) for h in rest}
            assert after[g] == pytest.approx(min(after.values()), rel=1e-9)
            S.append(g)
            assert row.size == len(S)
            assert row.error == pytest.approx(error(X, Y, columns_of(groups, S)), rel=1e-8)


PARETO = ["poss", "pposs", "pposs-asy"]


@pytest.mark.parametrize("method", [*PARETO, "forward", "exchange", "splicing", "foba", "branch-and-bound"])
def test_the_best_single_group_is_chosen_with_every_seed(method: str) -> None:
    for seed in range(12):
        X, Y, groups = problem(seed)
        found = dsel.select(X, Y, k=1, groups=groups, method=method, seed=seed)
        assert found.error == pytest.approx(best(X, Y, groups, 1), rel=1e-8), (seed, found.groups)


@pytest.mark.parametrize("excluded", [["site"], ["site=a", "site=b", "site=c"]])
def test_a_store_whose_categories_are_all_excluded_counts_columns_as_a_frame_does(
    tmp_path: Path, excluded: list[str]
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("pqrs")).assign(site=list("abc") * 20)
    y = frame.p - frame.r + 0.1 * rng.normal(size=60)
    dsel.ingest(frame.assign(y=y), tmp_path / "data.zarr", target="y", categorical=["site"])
    found = dsel.select(tmp_path / "data.zarr", k=2, exclude=excluded)
    expected = dsel.select(frame, y, k=2, exclude=["site"])
    assert (found.labels, found.groups, found.notes) == (expected.labels, expected.groups, expected.notes)
    assert str(found).startswith("2 of 7 columns explain")
    divided = dsel.select(tmp_path / "data.zarr", k=2, exclude=["site=a"])
    assert list(divided.groups) == list(found.labels)
    assert "the group site is never chosen: exclude names columns of it" in divided.notes


@pytest.mark.parametrize("start", ["forward", "exchange"])
@pytest.mark.parametrize("method", PARETO)
def test_a_pareto_search_is_never_below_its_start(method: str, start: str) -> None:
    for seed in range(3):
        X, Y, groups = problem(seed)
        for k in (1, 2, 3):
            found = dsel.select(X, Y, k=k, groups=groups, method=method, seed=seed, iterations=1, warm_start=start)
            greedy = dsel.select(X, Y, k=k, groups=groups, method=start, seed=seed)
            assert best(X, Y, groups, k) * (1 - 1e-8) <= found.error <= greedy.error * (1 + 1e-12)


def test_a_pareto_search_for_groups_starts_from_exchange_searches_too() -> None:
    rng = np.random.default_rng(28)
    X = rng.normal(size=(150, 22)) + rng.normal(size=(150, 1))
    Y, groups = X[:, ::3].sum(axis=1) + 3.0 * rng.normal(size=150), [[2 * j, 2 * j + 1] for j in range(11)]
    without, found = (dsel.select(X, Y, k=4, groups=groups, iterations=1, exchange_every=every) for every in (0, None))
    assert found.error == pytest.approx(best(X, Y[:, None], groups, 4), rel=1e-8)
    assert found.error < without.error


def test_without_a_start_the_search_is_the_published_one() -> None:
    X, Y, groups = problem()
    found = dsel.select(X, Y, k=2, groups=groups, iterations=1, warm_start="none")
    assert len(found.front) <= 2


@pytest.mark.parametrize("arguments", [{}, {"include": ["a"], "k": 2}, {"seconds": 1e-6}, {"isolation": "min-index"}])
def test_the_best_category_of_a_frame_is_chosen_with_every_seed(arguments: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 4)), columns=list("abcd"))
    frame["city"], frame["sex"] = rng.choice(["B", "K", "U"], 120), rng.choice(["f", "m"], 120)
    frame["y"] = 3.0 * (frame["city"] == "U") + 0.3 * frame["a"] + 0.5 * rng.normal(size=120)
    for seed in range(25):
        found = dsel.select(frame, "y", **{"k": 1, "seed": seed, **arguments})
        assert "city" in found.groups, seed


@pytest.mark.parametrize("seed", range(3))
def test_each_step_of_backward_deletes_the_group_that_costs_least(seed: int) -> None:
    X, Y, groups = problem(seed, N=2)
    found = dsel.select(X, Y, k=6, groups=groups, method="backward")
    chosen = [chosen_of(row.indices, groups) for row in found.front]
    assert [len(S) for S in chosen] == [0, 1, 2, 3, 4, 5, 6]
    for after, before in pairwise(chosen[1:]):
        costs = {g: error(X, Y, columns_of(groups, [h for h in before if h != g])) for g in before}
        (deleted,) = set(before) - set(after)
        assert costs[deleted] == pytest.approx(min(costs.values()), rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), N=st.sampled_from([1, 2, 12]), copy=st.booleans())
def test_a_subset_of_groups_knows_what_each_step_changes(seed: int, N: int, copy: bool) -> None:
    X, Y, groups = problem(seed, N=N)
    if copy:  # a group that depends on another one
        X[:, groups[6][0]] = X[:, groups[4]] @ [1.0, 2.0, -1.0, 0.5]
    objective = gram_statistics(as_dataset(X, Y)).objective("standardize")
    grouped = GroupedObjective(objective, [np.array(g) for g in groups])
    state = grouped.subset(5)
    for g in (4, 1, 6, 0):
        state.insert(g)
    f = error(X, Y, columns_of(groups, state.members))
    close = {"rel": 1e-6, "abs": 1e-7}
    assert state.value == pytest.approx(f, rel=1e-8)
    rest = [[h for h in state.members if h != g] for g in state.members]
    assert state.losses() == pytest.approx([error(X, Y, columns_of(groups, S)) - f for S in rest], **close)
    for g, gain in enumerate(state.gains()):
        after = f if g in state.members else error(X, Y, columns_of(groups, [*state.members, g]))
        assert gain == pytest.approx(f - after, **close)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    T = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    if not copy:
        S = [j for g in state.members for j in groups[g] if groups[g][2:] != [j] or len(groups[g]) != 3]
        w = np.linalg.lstsq(Z[:, S], T, rcond=None)[0]
        for g, cost in zip(state.members, state.zeroing_costs(), strict=True):
            w_0 = np.where(np.isin(S, groups[g])[:, None], 0.0, w)
            assert cost == pytest.approx(float(((T - Z[:, S] @ w_0) ** 2).sum()) - f, **close)
    state.delete(4)
    assert state.value == pytest.approx(error(X, Y, columns_of(groups, [1, 6, 0])), rel=1e-8)


def test_pivots_of_groups_are_what_the_chosen_ones_leave_most_of() -> None:
    X, _, groups = problem(4)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    found = dsel.select(X, k=3, groups=groups, method="pivoted-qr")
    S: list[int] = []
    for row in found.front[1:]:
        (g,) = set(chosen_of(row.indices, groups)) - set(S)
        independent = [columns[:2] if len(columns) == 3 else columns for columns in groups]
        Z_S = Z[:, columns_of(independent, S)]
        left = {h: float(((Z_h - (fitted(Z_S, Z_h) if S else 0.0)) ** 2).sum())
                for h, Z_h in ((h, Z[:, independent[h]]) for h in range(7) if h not in S)}  # fmt: skip
        assert left[g] == pytest.approx(max(left.values()))
        S.append(g)


def test_every_method_takes_groups_or_says_why_not() -> None:
    for method in METHODS_OF_DSEL.values():
        X, Y, groups = problem()
        Y = None if method.unsupervised_only else Y
        if method.takes_groups:
            assert len(dsel.select(X, Y, k=2, groups=groups, method=method.name).groups) <= 2
        else:
            with pytest.raises(OptionError, match=method.no_groups):
                dsel.select(X, Y, k=2, groups=groups, method=method.name)


def fitted(Z: Any, R: Any) -> Any:
    return Z @ np.linalg.lstsq(Z, R, rcond=None)[0]


def chosen_of(indices: Any, groups: list[list[int]]) -> list[int]:
    found = [g for g, columns in enumerate(groups) if set(columns) <= set(indices)]
    assert sorted(columns_of(groups, found)) == sorted(indices)  # whole groups only
    return found


@pytest.mark.parametrize("seed", range(4))
def test_exchange_ends_where_no_exchange_of_one_group_helps(seed: int) -> None:
    X, Y, groups = problem(seed)
    found = dsel.select(X, Y, k=3, groups=groups, method="exchange", seed=seed)
    S = chosen_of(found.indices, groups)
    assert len(S) == 3
    for g in S:
        for h in set(range(len(groups))) - set(S):
            other = error(X, Y, columns_of(groups, [*(s for s in S if s != g), h]))
            assert found.error <= other + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_poss_finds_the_best_groups_of_every_size(seed: int) -> None:
    X, Y, groups = problem(seed)
    found = dsel.select(X, Y, k=3, groups=groups, iterations=4000)
    for row in found.front[1:4]:
        assert row.error == pytest.approx(best(X, Y, groups, row.size), rel=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_the_answer_has_whole_groups_and_a_fit_of_the_rows(method: str) -> None:
    X, Y, groups = problem(3, N=2)
    found = dsel.select(X, Y, k=3, groups=groups, method=method)
    assert len(found.groups) == found.k == 3
    assert sorted(j for columns in found.groups.values() for j in columns) == sorted(found.indices)
    p = found.intercept + X[:, found.indices] @ found.coefficients
    Z = np.column_stack([np.ones(80), X[:, found.indices]])
    assert p == pytest.approx(Z @ np.linalg.lstsq(Z, Y, rcond=None)[0], abs=1e-8)
    assert found.error == pytest.approx(error(X, Y, list(found.indices)))
    assert "3 groups with" in render(found)


@pytest.mark.parametrize("method", METHODS)
def test_groups_of_one_column_are_columns(method: str) -> None:
    X, Y, _ = problem(1, sizes=(1, 1, 2, 2, 4))
    options: dict[str, Any] = {"k": 3, "method": method, "seed": 2}
    found, expected = dsel.select(X, Y, groups=[[0], [4]], **options), dsel.select(X, Y, **options)
    assert set(found.indices) == set(expected.indices)
    assert found.error == pytest.approx(expected.error)


def test_columns_for_x_itself() -> None:
    X, _, groups = problem(2)
    found = dsel.select(X, k=2, groups=groups, method="branch-and-bound")
    errors = {S: error(X, X, columns_of(groups, S)) for S in combinations(range(len(groups)), 2)}
    assert found.error == pytest.approx(min(errors.values()), rel=1e-8)


def test_included_and_excluded_groups() -> None:
    X, Y, groups = problem(5)
    names = {f"g{i}": columns for i, columns in enumerate(groups)}
    found = dsel.select(X, Y, k=3, groups=names, include=["g1"], exclude=[groups[4][2]], method="branch-and-bound")
    assert "g1" in found.groups
    assert "g4" not in found.groups
    assert "the group g4 is never chosen: exclude names columns of it" in found.notes
    whole = dsel.select(X, Y, k=1, groups=names, exclude=["g4", *groups[3]], method="forward")
    assert not any("exclude" in note for note in whole.notes)
    allowed = [S for S in combinations(range(7), 3) if 1 in S and 4 not in S]
    assert found.error == pytest.approx(min(error(X, Y, columns_of(groups, S)) for S in allowed), rel=1e-8)
    assert set(groups[1]) <= set(found.indices)  # the dependent one, too
    assert [row.size for row in found.front] == sorted(row.size for row in found.front)
    assert found.front[0].size == 1


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 12), N=st.sampled_from([1, 2]))
def test_a_certificate_holds_for_every_subset_of_groups(seed: int, nodes: int, N: int) -> None:
    X, Y, groups = problem(seed, N=N)
    dataset = as_dataset(X, Y)
    request = SelectionRequest(k=3, method="forward", groups=groups)
    found = run_selection(dataset, request)
    certified = certify_selection(dataset, request, found, ProofBudget(seconds=6000, nodes=nodes))
    least = best(X, Y, groups, 3)
    for row in certified.certificate:
        assert row["bound"] <= best(X, Y, groups, row["size"]) * (1 + 1e-9)
    whole = certify_selection(dataset, request, found, ProofBudget(seconds=6000, sizes="all"))
    for row in whole.certificate:
        assert row["proven"]
        assert row["value"] == pytest.approx(best(X, Y, groups, row["size"]), rel=1e-8)
    assert whole.error == pytest.approx(least, rel=1e-8)  # a better subset replaces the answer
    assert sorted(j for columns in whole.groups.values() for j in columns) == sorted(whole.indices)


def test_a_search_continues_from_its_state() -> None:
    X, Y, groups = problem(4, sizes=(1, 2, 2, 1, 3, 2, 1, 2, 2, 1, 1, 2))
    statistics = gram_statistics(as_dataset(X, Y))
    grouped = GroupedObjective(statistics.objective("standardize"), [np.array(g) for g in groups])
    whole, part = GroupTree(grouped, 4), GroupTree(grouped, 4)
    drive(whole, Stop(iterations=10**6))
    part.advance(3)
    again = GroupTree.restore(grouped, part.state())
    assert again.lower == part.lower <= whole.best_value
    drive(again, Stop(iterations=10**6))
    assert again.proven
    assert again.best == whole.best


def test_automatic_k_counts_groups() -> None:
    X, Y, groups = problem(6, m=200)
    found = dsel.select(X, Y, k="auto", max_k=5, groups=groups, method="forward", choose_k={"folds": 4})
    assert len(found.groups) == found.k
    assert found.size_curve is not None
    assert [point.size for point in found.size_curve.points] == list(range(6))
    by_bic = dsel.select(X, Y, k="auto", max_k=5, groups=groups, method="branch-and-bound", choose_k="bic")
    values = []
    for k in range(6):
        S = min(combinations(range(7), k), key=lambda S: error(X, Y, columns_of(groups, S)))
        rank = sum(len(groups[g]) - (len(groups[g]) == 3) for g in S)
        values.append(200 * np.log(error(X, Y, columns_of(groups, S)) / 200) + rank * np.log(200))
    assert by_bic.size_curve is not None
    assert [point.value for point in by_bic.size_curve.points] == pytest.approx(values)


def test_groups_by_a_coordinate_of_the_features(tmp_path: Path) -> None:
    X, Y, groups = problem(7)
    labels = [f"c{j}" for j in range(X.shape[1])]
    source = [f"g{next(g for g, columns in enumerate(groups) if j in columns)}" for j in range(X.shape[1])]
    expected = dsel.select(X, Y, k=2, groups={labels_of: g for labels_of, g in enumerate(source)}, method="forward")
    array = xr.DataArray(X, dims=("sample", "feature"), coords={"feature": labels, "source": ("feature", source)})
    found = dsel.select(array, Y, k=2, groups="source", method="forward")
    assert found.indices == expected.indices
    assert list(found.groups) == list(expected.groups)
    store = make_store(tmp_path / "s.zarr", X, Y)
    import zarr

    group = zarr.open_group(store, mode="r+")
    group.create_array("source", data=np.array(source, dtype=object).astype("T"), dimension_names=("feature",))
    stored = dsel.select(str(store), k=2, groups="source", method="forward")
    assert stored.indices == expected.indices
    stored.save(tmp_path / "answer")
    again = dsel.open_selection(tmp_path / "answer")
    assert again.groups == stored.groups
    assert again == stored


def test_groups_of_a_data_frame_by_label() -> None:
    X, Y, _ = problem(8, sizes=(1, 3, 1))
    frame = pd.DataFrame(X, columns=["age", "red", "green", "blue", "height"])
    colours = {"red": "colour", "green": "colour", "blue": "colour"}
    found = dsel.select(frame, Y, k=2, groups=colours, include=["colour"], method="forward")
    assert next(iter(found.groups)) == "colour"
    assert set(found.labels[:3]) == {"red", "green", "blue"}
    dataset = as_dataset(frame, Y)
    lists = column_groups(dataset, [["red", "green", "blue"]])
    assert lists.names == ("age", "red+green+blue", "height")
    assert column_groups(dataset, {"colour": ["red", 2, "blue"]}).of_column.tolist() == [0, 1, 1, 1, 2]


def test_a_list_of_groups_is_named_as_it_is_written_and_suggestions_name_categories() -> None:
    clinic, region = (pd.Series(list(levels) * 10) for levels in ("abcab", "dedde"))
    frame = pd.DataFrame({"dose, mg": np.arange(50.0), "clinic": clinic, "region": region})
    names = column_groups(as_dataset(frame, frame["dose, mg"]), [["clinic", "region"]]).names
    assert names == ("dose, mg", "clinic+region")
    with pytest.raises(OptionError, match="Known: clinic, region, 'dose, mg', clinic=a"):
        dsel.select(frame, frame["dose, mg"], k=1, method="forward", exclude=["klinik"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": [[0, 1], [1, 2]]}, "in two groups"),
        ({"groups": [[0, 99]]}, "no feature 99"),
        ({"groups": [[0], []]}, "group 2 has no columns"),
        ({"groups": "source"}, "no coordinate 'source'"),
        ({"groups": 3}, "mapping from names to lists of columns"),
        ({"groups": {"a": ["x0"], "x1": "b"}}, "map each column"),
        ({"groups": {"x5": ["x0", "x1"]}}, "x5 names a group and another column"),
        ({"groups": [[0, 1]], "method": "rfe"}, "the coefficients of single columns. Use one of poss, pposs"),
        ({"groups": [[0, 1]], "method": "kfold"}, "kfold cannot choose groups of columns: its left-out errors"),
        ({"groups": [[0, 1]], "method": "poss", "exchange_every": 50}, "exchange_every cannot be used"),
        ({"groups": [[0, 1]], "method": "poss", "warm_start": "forward", "isolation": len}, "cannot be combined"),
        ({"groups": [[0, 1]], "method": "branch-and-bound", "bound": "leaps"}, "bound leaps"),
        ({"groups": [list(range(13))], "k": 3}, "X has 2 groups"),
        ({"groups": {"a": [0, 1]}, "include": ["b"]}, "no feature or group 'b'"),
        ({"groups": {"a": [0, 1]}, "include": ["a"], "exclude": [1]}, "both included and excluded"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    X, Y, _ = problem()
    with pytest.raises(OptionError, match=message):
        dsel.select(X, Y, **{"k": 2, "method": "forward", **arguments})


def test_a_criterion_gets_the_columns_of_the_groups() -> None:
    X, Y, groups = problem(9)
    seen: list[tuple[int, ...]] = []

    def criterion(S: tuple[int, ...]) -> float:
        seen.append(S)
        return error(X, Y, list(S))

    found = dsel.select(X, Y, k=2, groups=groups, criterion=criterion, iterations=2000)
    assert all(chosen_of(S, groups) for S in seen)
    assert found.criterion == pytest.approx(best(X, Y, groups, 2))


def test_a_job_takes_groups(tmp_path: Path) -> None:
    X, Y, groups = problem(10)
    ingest_arrays(X, tmp_path / "data.zarr", y=Y)
    request = SelectionRequest(k=2, method="poss", groups=groups)
    validated = validate(as_dataset(str(tmp_path / "data.zarr")), request)
    assert validated.most_columns == 7
    assert validated.requirements.whole_gram


@pytest.mark.parametrize("seed", range(1, 25, 3))
def test_nearly_dependent_columns_make_no_contradiction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 14)) + 10.0 ** rng.uniform(-5, -2) * rng.normal(size=(20, 14))
    Y = X @ rng.normal(size=(14, 2)) * 0.3 + rng.normal(size=(20, 2))
    groups = [[0, 1, 2, 3], [4, 5], [6], [7, 8, 9], [10, 11, 12, 13]]
    objective = gram_statistics(as_dataset(X, Y)).objective("standardize")
    grouped = GroupedObjective(objective, [np.array(g) for g in groups])
    found = dsel.select(X, Y, k=2, groups=groups, method="branch-and-bound")
    least = min(grouped.value(S) for S in combinations(range(5), 2))
    assert found.ended in ("proven", "complete")  # complete: dependent groups may be better
    assert found.certificate[-1]["status"] in ("optimal", "optimal-except-near-copies", "bounded")
    assert found.error == pytest.approx(least, rel=1e-6, abs=1e-7)
    assert found.certificate[-1]["bound"] <= least + 1e-7
    assert len(found.indices) == len(found.coefficients) == sum(len(columns) for columns in found.groups.values())


@pytest.mark.parametrize("method", METHODS)
def test_groups_are_listed_in_order_of_their_gain(method: str) -> None:
    X, Y, groups = problem(11)
    found = dsel.select(X, Y, k=3, groups=groups, method=method)
    S: list[int] = []
    rest = [sorted(columns) for columns in found.groups.values()]
    for columns in list(rest):
        after = [error(X, Y, [*S, *other]) for other in rest]
        assert error(X, Y, [*S, *columns]) == pytest.approx(min(after))
        S += columns
        rest.remove(columns)


def test_categories_that_no_group_names_are_groups_too() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.normal(size=90), "weight": rng.normal(size=90)})
    frame = frame.assign(stage=rng.choice(["low", "mid", "high"], 90), clinic=rng.choice(["A", "B"], 90))
    y = frame["age"] + 2.0 * (frame["stage"] == "high") + (frame["clinic"] == "A")
    arguments: dict[str, Any] = {"k": 2, "groups": {"patient": ["age", "clinic"]}, "method": "branch-and-bound"}
    found = dsel.select(frame, y, **arguments)
    assert {name: len(columns) for name, columns in found.groups.items()} == {"patient": 3, "stage": 3}
    assert found.r2 == pytest.approx(1.0)
    named = dsel.select(frame, y, **{**arguments, "groups": {"high": ["stage=high"]}})
    assert "stage" not in named.groups
    single = dsel.select(frame, y, **arguments, categories="columns")
    assert {name: len(columns) for name, columns in single.groups.items()} == {"patient": 3, "stage=high": 1}


@pytest.mark.parametrize("choose", [{"k": 3}, {"k": "auto", "choose_k": "bic", "max_k": 4}])
@pytest.mark.parametrize("given", [None, {"ab": ["a", "b"], "de": ["d", "e"]}])
def test_the_sizes_of_certificates_count_included_groups(given: Any, choose: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 6)), columns=list("abcdef"))
    frame["city"] = rng.choice(["B", "K", "U"], 100)
    y = (frame.a + (frame.city == "K") + 0.5 * frame.f + 0.5 * rng.normal(size=100)).to_numpy()[:, None]
    groups = (
        {"ab": ["a", "b"], "de": ["d", "e"], "c": ["c"], "f": ["f"]} if given else {name: [name] for name in "abcdef"}
    )
    values = {name: frame[columns].to_numpy() for name, columns in groups.items()}
    values["city"] = np.column_stack([frame.city == city for city in "BKU"]).astype(float)
    rest = [name for name in values if name != "c"]

    def least(size: int) -> float:
        matrices = (np.hstack([values["c"], *(values[g] for g in S)]) for S in combinations(rest, size - 1))
        return min(error(X, y, list(range(X.shape[1]))) for X in matrices)

    selection = dsel.select(frame, y, method="branch-and-bound", include=["c"], groups=given, **choose)
    proved = dsel.certify(selection, frame, y, sizes="all")
    assert selection.certificate[-1]["size"] == len(selection.groups) == proved.certificate[-1]["size"]
    assert [row["size"] for row in proved.certificate] == list(range(2, len(selection.groups) + 1))
    for row in (*selection.certificate, *proved.certificate):
        assert row["status"] == "optimal"
        assert row["value"] == pytest.approx(least(row["size"]))
        assert row["value"] == pytest.approx({one.size: one.error for one in proved.front}[row["size"]])
    assert f"Certificate, {len(selection.groups)} groups of columns: proved optimal" in str(selection)


def test_the_certificate_of_included_groups_alone_counts_groups() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "city": rng.choice(["B", "K"], 60)})
    found = dsel.select(frame, rng.normal(size=60), k=2, include=["city", "a"])
    assert (len(found), [row["groups"] for row in found.certificate]) == (3, [True])
    assert "Certificate, 2 groups of columns: proved optimal" in str(found)
    words = "2 groups of columns: proved optimal (only one subset may be chosen)"
    assert describe(found.certificate[0], found) == words
    assert compare_selections(found, found).figures["error of the best is at least"] == (found.error, found.error)


def test_the_columns_of_a_certificate_are_all_those_of_an_included_category() -> None:
    """One of its indicators depends on the others, and was left out."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(["B", "K"], 60), "a": rng.normal(size=60), "b": rng.normal(size=60)})
    y = rng.normal(size=60)
    proved = dsel.certify(dsel.select(frame, y, k=2, include=["city"], method="forward"), frame, y)
    assert set(proved.certificate[-1]["indices"]) == set(proved.indices) >= {0, 1}
