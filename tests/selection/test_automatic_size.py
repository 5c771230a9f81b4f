"""``k="auto"``: the curve is that of models fitted by scikit-learn on the rows, and the rule chooses along it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, ShuffleSplit, StratifiedKFold, TimeSeriesSplit
from sklearn.preprocessing import StandardScaler

import dsel
from dsel.config.job import read_job
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.divide_rows import partition_rows
from dsel.data.ingest import ingest_arrays
from dsel.data.row_partition import folds_of
from dsel.errors import DataError, Interrupted, OptionError
from dsel.jobs.runner import run_job
from dsel.search.exact.astar.reduced_problem import ReducedProblem
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.record_values import SizeCurve, SizePoint
from dsel.selection.render import render
from dsel.sklearn import ColumnSubsetSelector
from tests.cli_runner import call
from tests.stores import make_store


def problem(m: int = 120, n: int = 9, noise: float = 1.0, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n)) * rng.uniform(0.5, 3.0, n) + rng.normal(size=n)
    X[:, 1] += 0.7 * X[:, 0]
    y = 2.0 * X[:, 1] - X[:, 4] + 0.6 * X[:, 6] + noise * rng.normal(size=m)
    return X, y[:, None]


def forward_path(X: Any, y: Any, most: int) -> list[list[int]]:
    """Forward selection by least squares on the rows."""
    S: list[int] = []
    path: list[list[int]] = [[]]
    for _ in range(most):
        errors = {}
        for j in set(range(X.shape[1])) - set(S):
            Z = X[:, [*S, j]] - X[:, [*S, j]].mean(axis=0)
            t = y - y.mean(axis=0)
            errors[j] = float(((t - Z @ np.linalg.lstsq(Z, t, rcond=None)[0]) ** 2).sum())
        S = [*S, min(errors, key=lambda j: errors[j])]
        path.append(S)
    return path


def fold_curve(X: Any, y: Any, splits: Any, most: int) -> tuple[Any, Any]:
    """The curve and its standard errors by models of scikit-learn, one for each fold and size."""
    errors, rows = [], []
    for train, test in splits:
        found = []
        for S in forward_path(X[train], y[train], most):
            if S:
                p = LinearRegression().fit(X[np.ix_(train, S)], y[train]).predict(X[np.ix_(test, S)])
            else:
                p = y[train].mean(axis=0)
            found.append(float(((y[test] - p) ** 2 / y.var(axis=0)).sum()))
        errors.append(found)
        rows.append(len(test))
    table, count = np.array(errors), np.array(rows)
    each = table / count[:, None]
    return table.sum(axis=0) / count.sum(), each.std(axis=0, ddof=1) / np.sqrt(len(rows))


def random_splits(m: int, folds: int, seed: int = 0) -> list[tuple[Any, Any]]:
    fold = folds_of(0, m, folds, seed, 0)
    return [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(folds)]


def agrees(selection: dsel.Selection, values: Any, errors: Any) -> None:
    curve = selection.size_curve
    assert curve is not None
    assert [point.size for point in curve.points] == list(range(len(values)))
    assert [point.value for point in curve.points] == pytest.approx(list(values), rel=1e-8)
    assert [point.standard_error for point in curve.points] == pytest.approx(list(errors), rel=1e-7)
    assert selection.k == len(selection) == int(np.argmin(values))


@pytest.mark.parametrize("chunk", [17, 120])
def test_random_folds(tmp_path: Path, chunk: int) -> None:
    X, y = problem()
    store = make_store(tmp_path / "s.zarr", X, y, (chunk, 9))
    found = dsel.select(str(store), k="auto", max_k=6, method="forward", choose_k={"folds": 4})
    agrees(found, *fold_curve(X, y, random_splits(120, 4), 6))
    assert found.passes == 2  # the Gram matrices of the folds, and the check
    assert found.indices == dsel.select(X, y, k=found.k, method="forward").indices
    assert found.plan is not None
    assert found.plan["planned"]["passes"] == 2


def test_best_first_search_outside_a_fold_takes_the_targets_of_these_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problem(m=60, n=7)
    Y = np.hstack([y, y**2])
    found: list[Any] = []

    def spied(objective: Any, target_gram: Any = None, deadline: Any = None) -> Any:
        found.extend([] if target_gram is None else [target_gram])  # a bound uses the part in the span of X
        return real(objective, target_gram, deadline)

    real = ReducedProblem.of
    monkeypatch.setattr(ReducedProblem, "of", spied)
    dsel.select(X, Y, k="auto", max_k=2, method="astar", gamma=1.0, choose_k={"folds": 3})
    expected = []
    for train, _ in random_splits(60, 3):
        T = (Y[train] - Y[train].mean(axis=0)) / Y[train].std(axis=0)
        expected += 2 * [T.T @ T]  # a search for each size
    assert len(found) == len(expected) + 1  # and one on all rows
    np.testing.assert_allclose(found[:-1], expected, rtol=1e-9)


def test_folds_of_whole_groups() -> None:
    X, y = problem()
    groups = np.array([f"patient {i}" for i in np.random.default_rng(1).integers(0, 15, 120)])
    partition = partition_rows(as_dataset(X, y), folds=5, row_groups=groups)
    part = partition.of_rows(0, 120)
    assert all(np.unique(part[groups == name]).size == 1 for name in np.unique(groups))
    sizes = [
        np.sort(np.bincount([f for f, (_, test) in enumerate(GroupKFold(5).split(X, groups=groups)) for _ in test]))
    ]
    assert np.ptp(np.bincount(part)) <= np.ptp(sizes) + 1  # as balanced as scikit-learn's
    splits = [(np.flatnonzero(part != f), np.flatnonzero(part == f)) for f in range(5)]
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k={"row_groups": groups})
    agrees(found, *fold_curve(X, y, splits, 5))


def test_blocks_and_forward_chaining() -> None:
    X, y = problem()
    rule = {"split": "forward", "folds": 4}
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k=rule)
    agrees(found, *fold_curve(X, y, TimeSeriesSplit(4).split(X), 5))
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k={"split": "blocks", "folds": 4})
    blocks = [(np.r_[: 30 * f, 30 * f + 30 : 120], np.arange(30 * f, 30 * f + 30)) for f in range(4)]
    agrees(found, *fold_curve(X, y, blocks, 5))


def test_a_held_out_share_and_held_out_rows() -> None:
    X, y = problem(m=200)
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k={"held_out": 0.25, "split": "blocks"})
    values, _ = fold_curve(X, y, [(np.arange(150), np.arange(150, 200))] * 2, 5)
    assert found.size_curve is not None
    assert [point.value for point in found.size_curve.points] == pytest.approx(values, rel=1e-8)
    other = dsel.select(
        X[:150], y[:150], k="auto", max_k=5, method="forward", choose_k={"held_out": (X[150:], y[150:])}
    )
    assert other.size_curve is not None
    assert other.size_curve.description == "the size of least error, by held-out rows"
    values = values * y.var() / y[:150].var()
    assert [point.value for point in other.size_curve.points] == pytest.approx(values, rel=1e-8)
    squares = (y[150:, 0] - other.intercept - X[150:][:, other.indices] @ other.coefficients[:, 0]) ** 2 / y[:150].var()
    assert other.size_curve.points[other.k].standard_error == pytest.approx(squares.std() / np.sqrt(50))


def test_one_given_split_is_chosen_by_as_the_same_share_is() -> None:
    X, y = problem(m=200)
    split = [(np.arange(150), np.arange(150, 200))]
    share, given = (
        dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k={**rule, "one_standard_error": True}).size_curve
        for rule in ({"held_out": 0.25, "split": "blocks"}, {"split": split})
    )
    assert share is not None
    assert given is not None
    assert [p.standard_error for p in given.points] == pytest.approx([p.standard_error for p in share.points])
    assert given.k == share.k
    assert given.description.endswith("by 1 given split")
    with pytest.raises(DataError, match="too few for a standard error"):
        dsel.select(X, y, k="auto", choose_k={"split": [(np.arange(150), [160])], "one_standard_error": True})


def test_the_standard_error_of_held_out_rows_does_not_depend_on_the_unit_of_their_weights(tmp_path: Path) -> None:
    X, y = problem()
    frame = pd.DataFrame(X).add_prefix("x").assign(y=y[:, 0], w=np.random.default_rng(0).uniform(0.5, 2.0, 120))
    found = []
    for unit in (1.0, 9.0):
        for name, rows in (("train", frame[:90]), ("test", frame[90:].assign(w=unit * frame.w[90:]))):
            dsel.ingest(rows, tmp_path / f"{name}{unit}.zarr", target="y", weight="w")
        rule = {"held_out": str(tmp_path / f"test{unit}.zarr")}
        found.append(dsel.select(tmp_path / f"train{unit}.zarr", k="auto", choose_k=rule).size_curve)
    assert found[0] is not None
    assert found[0].points[3].standard_error == pytest.approx(found[1].points[3].standard_error)


def test_a_random_share_is_as_large_as_asked_for() -> None:
    for share, m in ((0.2, 60), (0.25, 1000), (0.5, 999)):
        part = partition_rows(as_dataset(np.ones((m, 1))), held_out=share).of_rows(0, m)
        assert abs((part > 0).mean() - share) < 0.02
        assert np.unique(part).size == 6


def test_ridge_with_its_own_scales_in_each_fold() -> None:
    X, y = problem()
    found = dsel.select(X, y, k="auto", max_k=1, method="forward", lam=7.0, include=[1], choose_k={"folds": 3})
    total, count = 0.0, 0
    for train, test in random_splits(120, 3):
        scaler = StandardScaler().fit(X[np.ix_(train, [1])])
        model = Ridge(7.0).fit(scaler.transform(X[np.ix_(train, [1])]), y[train] / y[train].std())
        p = model.predict(scaler.transform(X[np.ix_(test, [1])])).reshape(-1, 1) * y[train].std()
        total, count = total + float(((y[test] - p) ** 2 / y.var()).sum()), count + len(test)
    assert found.size_curve is not None
    assert found.size_curve.points[0].value == pytest.approx(total / count, rel=1e-9)


@pytest.mark.parametrize("rule", ["aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"])
def test_information_criteria_choose_the_best_of_all_subsets(rule: Any) -> None:
    X, y = problem(m=60, n=7, noise=2.0)
    found = dsel.select(X, y, k="auto", max_k=7, method="branch-and-bound", choose_k=rule)
    m, t = 60, (y - y.mean()) / y.std()
    centred = X - X.mean(axis=0)
    full = float(((t - centred @ np.linalg.lstsq(centred, t, rcond=None)[0]) ** 2).sum())
    best: dict[int, float] = {}
    for s in range(8):
        for S in combinations(range(7), s):
            Z = (X[:, S] - X[:, S].mean(axis=0)) if S else np.zeros((m, 1))
            rss = float(((t - Z @ np.linalg.lstsq(Z, t, rcond=None)[0]) ** 2).sum())
            fit, K = m * np.log(rss / m), s + 2
            value = {
                "aic": fit + 2 * s,
                "aicc": fit + 2 * s + 2 * K * (K + 1) / (m - K - 1),
                "bic": fit + s * np.log(m),
                "ebic": fit + s * np.log(m) + 2.0 * np.log(comb(7, s)),
                "cp": rss / (full / (m - 8)) - m + 2 * (s + 1),
                "adjusted-r2": (rss / (m - s - 1)) / (float((t**2).sum()) / (m - 1)) - 1,
            }[rule]
            best[s] = min(best.get(s, np.inf), value)
    assert found.size_curve is not None
    assert {p.size: pytest.approx(p.value, rel=1e-9) for p in found.size_curve.points} == best
    assert found.k == min(best, key=lambda s: best[s])


def test_without_columns_an_information_criterion_of_standardized_targets_is_0() -> None:
    X, y = problem(m=60, n=7, noise=2.0)
    for scale in (1.0, 3.7, 1e5 + 1 / 3):
        found = dsel.select(X, scale * y, k="auto", max_k=3, choose_k="ebic")
        assert found.size_curve is not None
        assert found.size_curve.points[0].value == 0.0


def test_included_columns_alone_are_no_choice_that_needs_a_proof() -> None:
    X, y = problem(m=40, n=7, noise=2.0)
    selection = dsel.select(X, y, k=4, include=[2, 5])
    assert not any(row.proved for row in selection.information_criteria())
    certified = dsel.certify(selection, X, y, sizes="all")
    assert [row["size"] for row in certified.certificate] == [3, 4]
    assert all(row.proved for row in certified.information_criteria())
    one = replace(certified, certificate=certified.certificate[1:])
    assert not all(row.proved for row in one.information_criteria())


@pytest.mark.parametrize("include", [[], [2]], ids=["all columns", "one included"])
def test_a_proved_preference_is_that_of_all_subsets(include: list[int]) -> None:
    proved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        m, n, k = 30, 6, 4
        X = rng.normal(size=(m, n))
        X[:, 1] = X[:, 0] + rng.choice([0.5, 0.05, 0.005, 0.0001]) * rng.normal(size=m)
        y = rng.choice([0.0, 0.3, 1.0]) * (X[:, 0] + X[:, 3]) + rng.normal(size=m)
        found = dsel.certify(
            dsel.select(X, y, k=k, include=include, method="forward", near_copies="keep"), X, y, sizes="all"
        )
        rows = {row.criterion: row for row in found.information_criteria() if row.proved}
        proved += len(rows)
        for by, row in rows.items():
            least = np.inf if by != "adjusted-r2" else -np.inf
            for s in range(len(include), k + 1):
                for S in combinations(range(n), s):
                    if not {*include} <= {*S} or (include and s == len(include) and row.size != s):
                        continue
                    value = criterion(by, X, y, S, len(include))
                    least = max(least, value) if by == "adjusted-r2" else min(least, value)
            assert row.value == pytest.approx(least, rel=1e-7)
    assert proved >= 70  # of 100; near-copies leave the others open


@pytest.mark.parametrize("by", ["aic", "aicc", "bic", "ebic", "cp", "adjusted-r2"])
def test_always_included_columns_are_no_choice_but_count_as_degrees_of_freedom(by: Any) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 6))
    y = X[:, 0] + 0.6 * X[:, 1] + 0.3 * X[:, 2] + rng.normal(size=60)
    asked: dict[str, Any] = {"include": [0, 3], "method": "exhaustive"}
    curve = dsel.select(X, y, k="auto", max_k=6, choose_k=by, **asked).size_curve
    assert curve is not None
    least = [
        min((1 - 2 * (by == "adjusted-r2")) * criterion(by, X, y, (0, 3, *S), 2) for S in combinations([1, 2, 4, 5], s))
        for s in range(5)
    ]
    values = np.array([point.value for point in curve.points])
    assert [point.size for point in curve.points] == [2, 3, 4, 5, 6]
    assert values - values[0] == pytest.approx(np.array(least) - least[0], abs=1e-8)

    selection = dsel.select(X, y, k=6, **asked)
    listed = dsel.alternatives(selection, X, y, by=by, nbest=11).subsets
    ours = sorted((1 - 2 * (by == "adjusted-r2")) * criterion(by, X, y, subset.indices, 2) for subset in listed)
    every = [(0, 3, *S) for s in range(5) for S in combinations([1, 2, 4, 5], s)]
    assert ours == pytest.approx(
        sorted((1 - 2 * (by == "adjusted-r2")) * criterion(by, X, y, S, 2) for S in every)[:11]
    )
    if by != "cp":
        preferred = {row.criterion: row for row in selection.information_criteria()}[by]
        assert (1 - 2 * (by == "adjusted-r2")) * preferred.value == pytest.approx(min(least))


def criterion(by: str, X: np.ndarray, y: np.ndarray, S: tuple[int, ...], included: int = 0) -> float:
    """An information criterion in the units of R."""
    (m, n), s = X.shape, len(S)
    design = np.column_stack([np.ones(m), X[:, S]])
    rss = float(((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum())
    if by == "adjusted-r2":
        return 1.0 - rss / (m - s - 1) / (float(((y - y.mean()) ** 2).sum()) / (m - 1))
    if by == "cp":
        design = np.column_stack([np.ones(m), X])
        full = float(((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum())
        return rss / (full / (m - n - 1)) - m + 2 * (s + 1)
    fit, K = m * (np.log(2.0 * np.pi) + np.log(rss / m) + 1.0), s + 2
    aic = fit + 2.0 * K
    return {
        "aic": aic, "aicc": aic + 2.0 * K * (K + 1) / (m - K - 1), "bic": fit + K * np.log(m),
        "ebic": fit + K * np.log(m) + 2.0 * np.log(comb(n - included, s - included)),
    }[by]  # fmt: skip


def test_a_preference_is_proved_although_rounding_leaves_a_gap() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=400)
    X = np.column_stack([a, a + 0.05 * rng.normal(size=400), rng.normal(size=(400, 6))])
    y = X[:, 0] + 0.8 * X[:, 3] + 0.5 * X[:, 5] + rng.normal(size=400)
    X[:, 1] = a + 0.005 * rng.normal(size=400)
    found = dsel.certify(dsel.select(X, y, k=8), X, y, sizes="all")
    assert {row["status"] for row in found.certificate} == {"optimal"}
    assert all(row.proved for row in found.information_criteria())
    other = next(row.size for row in found.information_criteria()) - 1  # a bound there leaves the preference open
    lower = [{**row, "bound": 0.5 * row["bound"]} if row["size"] == other else row for row in found.certificate]
    assert not replace(found, certificate=tuple(lower)).information_criteria()[0].proved


def test_the_sizes_that_criteria_prefer_have_the_values_of_r_and_are_proved() -> None:
    X, y = problem(m=40, n=7, noise=2.0)
    selection = dsel.select(X, 3.0 * y, k=7)
    rows = {row.criterion: row for row in selection.information_criteria()}
    assert not any(row.proved for row in rows.values())  # no size is certified
    certified = dsel.certify(selection, X, 3.0 * y, sizes="all")
    for row in certified.information_criteria():
        assert row.proved
        assert (row.size, row.indices) == (rows[row.criterion].size, rows[row.criterion].indices)
    S = rows["bic"].indices
    design = np.column_stack([np.ones(40), X[:, S]])
    rss = float(((3.0 * y - design @ np.linalg.lstsq(design, 3.0 * y, rcond=None)[0]) ** 2).sum())
    log_likelihood = -20.0 * (np.log(2.0 * np.pi) + np.log(rss / 40) + 1.0)  # logLik() of lm()
    assert rows["bic"].value == pytest.approx(-2.0 * log_likelihood + np.log(40) * (len(S) + 2), rel=1e-9)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"lam": 1.0, "k": 1}, 'Choose the size by k="auto" and choose_k="bic"'),
        ({"groups": [[0, 1], [2, 3]], "k": 1}, 'Choose the size by k="auto" and choose_k="bic"'),
        ({"lam": 1.0, "k": "auto", "max_k": 2, "choose_k": "bic"}, "BIC of each size is in size_curve"),
        ({"criterion": lambda S, data: -float(len(S)), "k": 1}, "Its values for each size are in front"),
    ],
)
def test_information_criteria_are_for_plain_least_squares(option: dict[str, Any], remedy: str) -> None:
    X, y = problem(m=40, n=7, noise=2.0)
    with pytest.raises(OptionError, match=f"Information criteria are for targets.*{remedy}"):
        dsel.select(X, y, method="forward", **option).information_criteria()
    with pytest.raises(OptionError, match="Without targets, give k as a number"):
        dsel.select(X, k=1).information_criteria()


def test_information_criteria_count_a_row_of_weight_two_twice(tmp_path: Path) -> None:
    X, y = problem(m=40, n=7, noise=2.0)
    times = np.arange(40) % 3 + 1
    dsel.select(X, y, k=4, sample_weight=times).save(tmp_path / "weighted")
    weighted = dsel.open_selection(tmp_path / "weighted")
    repeated = dsel.select(np.repeat(X, times, axis=0), np.repeat(y, times), k=4)
    assert weighted.weight_sum == times.sum()
    for row, same in zip(weighted.information_criteria(), repeated.information_criteria(), strict=True):
        assert row.indices == same.indices
        assert row.value == pytest.approx(same.value, rel=1e-9)
    with pytest.raises(OptionError, match="did not keep the sum of the weights"):
        replace(weighted, weight_sum=None).information_criteria()


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_an_information_criterion_counts_the_sum_of_the_weights_as_rows(loss: str) -> None:
    X, y = problem()
    asked: dict[str, Any] = {"k": "auto", "max_k": 6, "choose_k": "bic", "method": "forward", "loss": loss}
    thrice = dsel.select(X, y, sample_weight=np.full(120, 3.0), **asked)
    repeated = dsel.select(np.tile(X, (3, 1)), np.tile(y, (3, 1)), **asked)
    assert [p.value for p in thrice.size_curve.points] == pytest.approx([p.value for p in repeated.size_curve.points])
    assert [note for note in thrice.notes if "BIC counts" in note] == [
        "BIC counts a row of weight 2 as two rows, and the weights of 120 rows sum to 360: scale weights that are no "
        "numbers of rows so that they sum to 120"
    ]
    assert not any("BIC counts" in note for note in dsel.select(X, y, sample_weight=np.ones(120), **asked).notes)


def test_cp_needs_more_rows_than_columns() -> None:
    X, y = problem(m=12, n=11, noise=2.0)
    with pytest.raises(OptionError, match=r"needs more rows than .*: there are 12 rows, and 11 independent columns"):
        dsel.select(X, y, k="auto", max_k=3, choose_k="cp")


def test_the_one_standard_error_rule_takes_the_smallest_size_near_the_best() -> None:
    points = tuple(SizePoint(s, v, 0.3) for s, v in enumerate([4.0, 2.0, 1.25, 1.0, 1.1]))
    assert SizeCurve.choose("folds", "", points).k == 3
    assert SizeCurve.choose("folds", "", points, one_standard_error=True).k == 2
    X, y = problem(noise=3.0)
    rule = dsel.SizeRule(folds=6, one_standard_error=True)
    near, best = (dsel.select(X, y, k="auto", method="forward", choose_k=r) for r in (rule, {"folds": 6}))
    assert near.size_curve is not None
    least = min(near.size_curve.points, key=lambda p: p.value)
    assert near.k <= best.k == least.size
    assert near.size_curve.points[near.k].value <= least.value + (least.standard_error or 0.0)


@pytest.mark.parametrize(
    "method", ["poss", "forward", "omp", "foba", "backward", "rfe", "exchange", "branch-and-bound"]
)
def test_every_method_finds_the_true_columns(method: str) -> None:
    X, y = problem(m=300, n=7, noise=0.3)
    found = dsel.select(X, y, k="auto", max_k=5, method=method, choose_k={"folds": 3, "one_standard_error": True})
    assert {1, 4, 6} <= set(found.indices)
    assert found.k == len(found) <= 4


@pytest.mark.parametrize("asked", [{}, {"choose_k": {"held_out": 0.3}}, {"choose_k": {"one_standard_error": True}}])
def test_no_rule_chooses_k_for_x_itself_and_a_note_names_sizes(asked: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 8)) + 0.5 * rng.normal(size=(200, 8))
    found = dsel.select(X, k="auto", method="forward", **asked)
    curve = found.size_curve
    assert curve is not None
    assert found.k == 8  # the error of left-out rows is 0 with all columns
    (note,) = [note for note in found.notes if note.startswith("no rule can choose k for X itself")]
    sizes = re.findall(r"k=(\d) explains at least (\d\d)%", note)
    assert sizes
    assert note.endswith("% of the variation of left-out rows)")
    error = [point.value / curve.points[0].value for point in curve.points]
    for size, share in sizes:
        assert error[int(size)] <= 1.0 - int(share) / 100.0 < error[int(size) - 1]
    limited = dsel.select(X, k="auto", max_k=2, method="forward", **asked)
    assert any("no rule can choose k" in note for note in limited.notes)
    assert not any("raise max_k" in note for note in limited.notes)
    with pytest.warns(UserWarning, match="no rule can choose k for X itself"):
        ColumnSubsetSelector("auto", method="forward").fit(X)


def test_the_number_of_independent_columns_of_x_is_chosen() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 8))
    found = dsel.select(X, k="auto", method="forward")
    assert found.k == 3
    assert not any("no rule" in note for note in found.notes)


def test_columns_for_x_itself() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)) @ rng.normal(size=(3, 8)) + 0.05 * rng.normal(size=(90, 8))
    found = dsel.select(X, k="auto", max_k=6, method="forward", preprocess="center", choose_k={"folds": 3})
    assert found.size_curve is not None
    values = []
    for size in range(1, 3):
        total = 0.0
        for train, test in random_splits(90, 3):
            S = list(dsel.select(X[train], k=size, method="forward", preprocess="center").indices)
            p = LinearRegression().fit(X[np.ix_(train, S)], X[train]).predict(X[np.ix_(test, S)])
            total += float(((X[test] - p) ** 2).sum())
        values.append(total / 90)
    assert [found.size_curve.points[s].value for s in (1, 2)] == pytest.approx(values)
    assert found.k >= 3


@pytest.mark.parametrize("method", ["kfold", "greedy-rls"])
def test_a_path_of_errors_on_left_out_rows(method: str) -> None:
    X, y = problem()
    options: dict[str, Any] = {"method": method, "lam": 1.0}
    found = dsel.select(X, y, k="auto", max_k=8, **options)
    whole = dsel.select(X, y, k=8, **options)
    assert found.path == whole.path
    assert found.k == len(found) == min(whole.path, key=lambda row: row.error).size
    assert found.indices == dsel.select(X, y, k=found.k, **options).indices
    assert found.size_curve is not None
    assert [p.value for p in found.size_curve.points] == [row.error for row in whole.path]
    by_test = dsel.select(X, y, k="auto", max_k=8, choose_k={"held_out": 0.3}, **options)
    assert by_test.k == min(by_test.path, key=lambda row: row.test_error or np.inf).size
    assert dsel.select(X, y, k="auto", max_k=8, choose_k="bic", **options).k <= 8


def test_the_method_kfold_by_groups_and_by_time() -> None:
    X, y = problem()
    groups = np.arange(120) // 8
    for options, splits in (
        ({"split": "forward", "folds": 3}, list(TimeSeriesSplit(3).split(X))),
        ({"row_groups": groups, "folds": 3}, None),
    ):
        found = dsel.select(X, y, k=2, method="kfold", lam=2.0, preprocess="center", **options)
        if splits is None:
            part = partition_rows(as_dataset(X, y), folds=3, row_groups=groups).of_rows(0, 120)
            splits = [(np.flatnonzero(part != f), np.flatnonzero(part == f)) for f in range(3)]
        first, S = found.path[0], [found.path[0].index]
        errors = [
            (y[b] - Ridge(2.0).fit(X[np.ix_(a, S)], y[a]).predict(X[np.ix_(b, S)]).reshape(-1, 1)) ** 2
            for a, b in splits
        ]
        assert first.error == pytest.approx(float(np.concatenate(errors).mean()))


SPLITTERS = {
    "folds": KFold(4, shuffle=True, random_state=3),
    "a time series with a gap": TimeSeriesSplit(4, gap=7),
    "repeated folds": RepeatedKFold(n_splits=3, n_repeats=2, random_state=1),
    "random tests": ShuffleSplit(5, test_size=0.3, train_size=0.5, random_state=2),
    "a window": TimeSeriesSplit(5, max_train_size=30),
    "pairs": [(np.arange(60), np.arange(60, 80)), (np.arange(20, 80), np.arange(85, 120))],
}


@pytest.mark.parametrize("name", SPLITTERS)
def test_splitters_of_scikit_learn_divide_the_rows(name: str) -> None:
    X, y = problem()
    splitter: Any = SPLITTERS[name]
    splits = splitter if isinstance(splitter, list) else list(splitter.split(X))
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k={"split": splitter})
    agrees(found, *fold_curve(X, y, splits, 5))
    found = dsel.select(X, y, k=2, method="kfold", lam=2.0, preprocess="center", split=splitter)
    S = [found.path[0].index]
    errors = [
        (y[b] - Ridge(2.0).fit(X[np.ix_(a, S)], y[a]).predict(X[np.ix_(b, S)]).reshape(-1, 1)) ** 2 for a, b in splits
    ]
    assert found.path[0].error == pytest.approx(float(np.concatenate(errors).mean()))


def test_a_splitter_gets_the_classes_and_the_groups_of_rows() -> None:
    X, y = problem()
    labels = (y > 1.0).astype(float)
    groups = np.arange(120) // 8
    for splitter in (StratifiedKFold(3), GroupKFold(3)):
        of_rows = groups if isinstance(splitter, GroupKFold) else None
        splits = splitter.split(X, labels[:, 0], of_rows)
        rule = {"split": splitter, "row_groups": of_rows}
        found = dsel.select(X, labels, k="auto", max_k=4, method="forward", choose_k=rule)
        agrees(found, *fold_curve(X, labels, splits, 4))


def test_no_model_is_trained_on_rows_in_the_gap() -> None:
    X, y = problem()
    rule: dict[str, Any] = {"split": "forward", "folds": 4, "gap": 7}
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k=rule)
    agrees(found, *fold_curve(X, y, TimeSeriesSplit(4, gap=7).split(X), 5))
    assert found.size_curve is not None
    assert "with a gap of 7 rows" in found.size_curve.description
    blocks = [(np.r_[: max(30 * f - 5, 0), 30 * f + 35 : 120], np.arange(30 * f, 30 * f + 30)) for f in range(4)]
    rule = {"split": "blocks", "folds": 4, "gap": 5}
    found = dsel.select(X, y, k="auto", max_k=5, method="forward", choose_k=rule)
    agrees(found, *fold_curve(X, y, blocks, 5))


def test_a_selection_by_a_splitter_is_saved_with_its_name(tmp_path: Path) -> None:
    X, y = problem()
    found = dsel.select(X, y, k=2, method="kfold", lam=2.0, split=TimeSeriesSplit(4, gap=7))
    found.save(tmp_path)
    chosen = dsel.select(X, y, k="auto", method="forward", choose_k={"split": TimeSeriesSplit(4, gap=7)})
    chosen.save(tmp_path / "chosen")
    assert dsel.open_selection(tmp_path / "chosen") == chosen
    assert (
        dsel.open_selection(tmp_path).options["split"]
        == "TimeSeriesSplit(gap=7, max_train_size=None, n_splits=4, test_size=None)"
    )


def test_a_share_of_the_rows_takes_no_part_in_the_selection() -> None:
    X, y = problem()
    found = dsel.select(X, y, k=3, method="kfold", lam=1.0, folds=4, held_out=0.25)
    there = partition_rows(as_dataset(X, y), held_out=0.25).of_rows(0, 120) == 0
    expected = dsel.select(X, y, k=3, method="kfold", lam=1.0, folds=4, sample_weight=there.astype(float))
    assert found.indices == expected.indices
    assert found.coefficients == pytest.approx(expected.coefficients)
    p = found.intercept + X[~there][:, found.indices] @ found.coefficients
    assert found.path[-1].test_error == pytest.approx(float(((y[~there] - p) ** 2).mean() / y[there].var()))
    assert any("held out" in note for note in found.notes)


def test_noise_alone_selects_nothing_or_little() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(200, 10)), rng.normal(size=200)
    found = dsel.select(X, y, k="auto", method="forward", choose_k={"folds": 10, "one_standard_error": True})
    assert found.k == len(found) == 0
    assert found.coefficients.shape == (0, 1)


@pytest.mark.parametrize("stop", [2, 5, 9])
def test_an_interrupted_search_continues_at_its_fold(stop: int) -> None:
    dataset = as_dataset(*problem())
    request = SelectionRequest(k="auto", max_k=5, choose_k={"folds": 3}, options={"iterations": 3000})
    whole = run_selection(dataset, request)
    states: list[dict[str, Any]] = []

    def interrupt(search: Any) -> None:
        states.append(json.loads(json.dumps(search.state())))
        if len(states) == stop:
            raise Interrupted("stopped", "Start it again.")

    context = RunContext(on_slice=interrupt)
    while True:
        try:
            found = run_selection(dataset, request, context)
            break
        except Interrupted:
            context = RunContext(state=states[-1])
    assert found.size_curve == whole.size_curve
    assert found.indices == whole.indices
    assert len(states) >= stop


@pytest.mark.usefixtures("no_workers")
def test_a_job_saves_the_curve(tmp_path: Path) -> None:
    X, y = problem()
    store = tmp_path / "data.zarr"
    ingest_arrays(X, store, y=y, chunks=(40, 9))
    import zarr

    labels = np.arange(120) // 10
    array = zarr.open_group(store, mode="r+").create_array("patient", data=labels, dimension_names=("sample",))
    assert array.shape == (120,)
    text = "store: data.zarr\nk: auto\nmax_k: 5\nmethod: poss\noptions: {iterations: 400}\n"
    (tmp_path / "job.yaml").write_text(
        text + "choose_k: {folds: 3, row_groups: patient}\ncluster: {local: {workers: 1}}\n"
    )
    job = read_job(tmp_path / "job.yaml")
    found = run_job(job)
    saved = dsel.open_selection(job.out)
    assert saved.size_curve is not None
    assert saved.size_curve == found.size_curve
    assert saved.k == found.k == len(saved)
    assert saved.request.k == "auto"
    rule = json.loads((tmp_path / "job.result" / "selection.json").read_text())["size_curve"]
    assert rule["rule"] == "folds"
    assert "random folds of whole groups" in render(saved)
    assert "standard error" in render(saved)
    expected = dsel.select(
        X, y, k="auto", max_k=5, iterations=400, choose_k={"folds": 3, "row_groups": labels}
    )  # fmt: skip
    assert expected.size_curve is not None
    values = [point.value for point in expected.size_curve.points]
    assert [point.value for point in saved.size_curve.points] == pytest.approx(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": "automatic"}, "whole number, or auto"),
        ({"k": 3, "max_k": 4}, "max_k cannot be used with k 3"),
        ({"choose_k": "hqc"}, "choose_k.by"),
        ({"choose_k": "held-out"}, r"by held-out needs held_out: .*\{'held_out': 0.2\}"),
        ({"choose_k": {"by": "bic", "folds": 3}}, "folds cannot be used by bic"),
        ({"choose_k": {"by": "bic", "one_standard_error": True}}, "no standard error by bic"),
        ({"choose_k": {"gap": 3}}, "gap goes with split blocks or forward"),
        ({"choose_k": {"split": "forward", "gap": 100}}, "gap is 100: split 1 has no rows to train"),
        ({"choose_k": {"split": KFold(3, shuffle=True)}}, "give it a whole number as random_state"),
        ({"choose_k": {"split": [([0, 1], [1, 2])]}}, "tests on rows that it is trained on"),
        ({"choose_k": {"split": [([0, 1], [120])]}}, "others than 0 to 119"),
        ({"choose_k": {"split": "KFold(3)"}}, "Give the splitter"),
        ({"choose_k": {"split": "sideways"}}, "a splitter of scikit-learn, or a name"),
        ({"choose_k": {"split": "blocks", "row_groups": np.arange(120)}}, "exclude each other"),
        ({"choose_k": {"held_out": 0.001}}, r"for held_out 0\.001\. Hold out at least 2 rows, and at most 118\."),
        ({"choose_k": {"split": "forward", "row_groups": pd.Series(np.arange(120))}}, r"\A[^\n]*exclude[^\n]*\Z"),
        ({"choose_k": {"held_out": 1.5}}, "share of the rows"),
        ({"choose_k": {"folds": 121}}, "too few"),
        ({"choose_k": {"row_groups": np.zeros(120)}}, "1 groups, too few for 5 folds"),
        ({"choose_k": {"row_groups": np.zeros(119)}}, "120 rows"),
        ({"choose_k": {"row_groups": "patient"}}, "one label for each row"),
        ({"choose_k": "path"}, "scores no subset"),
        ({"choose_k": "folds", "method": "kfold"}, "Choose by path"),
        ({"method": "greedy-rls", "direction": "backward", "lam": 1.0}, "direction backward"),
        ({"criterion": sum}, "give the largest size as k"),
        ({"max_k": 2, "include": [1, 2, 3]}, "3 columns are included, and max_k is 2"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    X, y = problem()
    with pytest.raises((OptionError, DataError), match=message):
        dsel.select(X, y, **{"k": "auto", "method": "forward", **arguments})


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")
def test_cross_validated_criterion_by_groups_and_by_time() -> None:
    from sklearn.model_selection import cross_val_score

    X, y = problem(n=7)
    groups = np.array([f"{i // 8:02d}" for i in range(120)])
    for arguments, cv in (
        ({"folds": 4, "row_groups": groups}, GroupKFold(4)),
        ({"folds": 4, "split": "forward"}, TimeSeriesSplit(4)),
    ):
        criterion = dsel.CrossValidated(LinearRegression(), **arguments)
        found = dsel.select(X, y, k=2, criterion=criterion, iterations=60)
        S = sorted(found.indices)
        scores = cross_val_score(LinearRegression(), X[:, S], y[:, 0], cv=list(cv.split(X, y, groups)))
        assert found.criterion == pytest.approx(-scores.mean())
    with pytest.raises(OptionError, match="exclude"):
        dsel.CrossValidated(LinearRegression(), split="forward", row_groups=groups)


def test_the_command_line_takes_the_place_of_the_job_files_keys(tmp_path: Path) -> None:
    X, y = problem()
    make_store(tmp_path / "data.zarr", X, y)
    (tmp_path / "job.yaml").write_text("store: data.zarr\nk: 3\nmethod: forward\n")
    _, out, _ = call("plan", tmp_path / "job.yaml", "--k", "auto", "--max-k", "4")
    assert "k is chosen by 5 random folds: their errors take no further pass" in out
    assert "in all: 2 passes" in out
    code, _, err = call("plan", tmp_path / "job.yaml", "--k", "auto", "--choose-k", "hqc")
    assert code == 64
    assert "choose_k.by" in err
    _, out, _ = call("plan", tmp_path / "job.yaml", "--k", "auto", "--choose-k", "{held_out: 0.2}")
    assert "k is chosen by 20 % of the rows, held out" in out
    code, _, err = call("plan", tmp_path / "job.yaml", "--k", "auto", "--choose-k", "held-out")
    assert code == 64
    assert "{'held_out': 0.2}" in err


@pytest.mark.parametrize("by", ["aic", "bic"])
def test_an_information_criterion_has_each_size_once(by: str) -> None:
    X, y = problem()
    X = np.column_stack([X, X[:, 0] + X[:, 1], X[:, 2] - X[:, 3]])
    curve = dsel.select(X, y, k="auto", choose_k=by, near_copies="keep").size_curve
    assert curve is not None
    assert [point.size for point in curve.points] == list(range(10))


@pytest.mark.parametrize("rule", [{"by": "folds"}, {"held_out": 0.25}, {"by": "bic"}])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_curve_ends_at_the_number_of_columns_that_can_be_used(rule: dict[str, Any], loss: Any) -> None:
    X, y = problem()
    X[:, 3] = 2.0
    y = (y > y.mean()).astype(int) if loss == "logistic" else y
    curve = dsel.select(X, y[:, 0], k="auto", method="forward", loss=loss, choose_k=rule).size_curve
    assert curve is not None
    assert [point.size for point in curve.points] == list(range(X.shape[1]))  # without the constant column
