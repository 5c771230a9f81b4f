"""The submodularity ratio and the guarantee 1 - e^-gamma, and the error ratio to the best rank k, by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel._lib.types import Floats
from dsel.errors import DataError, OptionError
from dsel.objective.dense import DenseObjective
from dsel.selection.render import render
from dsel.selection.report.page import render_report
from dsel.selection.submodularity import ratio_bound


def explained(X: Floats, Y: Floats, lam: float, S: tuple[int, ...]) -> float:
    """Return ||Y||^2 less the ridge error of the columns S, by least squares on the rows."""
    A = np.vstack([X[:, S], np.sqrt(lam) * np.eye(len(S))])
    B = np.vstack([Y, np.zeros((len(S), Y.shape[1]))])
    left = B - A @ np.linalg.lstsq(A, B)[0]
    return float(np.square(Y).sum() - np.square(left).sum())


def true_ratio(X: Floats, Y: Floats, k: int, lam: float = 0.0) -> float:
    """Return gamma by all disjoint L of fewer than k columns and S of at most k."""
    n = X.shape[1]
    subsets = list(chain.from_iterable(combinations(range(n), size) for size in range(min(2 * k - 1, n) + 1)))
    g = {S: explained(X, Y, lam, S) for S in subsets}
    ratios = [1.0]
    for L in (L for L in subsets if len(L) < k):
        others = [j for j in range(n) if j not in L]
        for S in chain.from_iterable(combinations(others, size) for size in range(2, k + 1)):
            joint = g[tuple(sorted(L + S))] - g[L]
            if joint > 1e-9 * np.square(Y).sum():
                ratios.append(sum(g[tuple(sorted((*L, j)))] - g[L] for j in S) / joint)
    return min(ratios)


def problem(seed: int, targets: int = 1, n: int = 6) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, n)) @ (np.eye(n) + 0.3 * rng.normal(size=(n, n)))
    X -= X.mean(axis=0)
    Y = X @ rng.normal(size=(n, targets)) + rng.normal(size=(60, targets))
    return X, Y - Y.mean(axis=0)


@pytest.mark.parametrize("lam", [0.0, 20.0])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_below_and_the_estimate_above_the_true_ratio(seed: int, targets: int, lam: float) -> None:
    X, Y = problem(seed, targets)
    selection = dsel.select(X, Y, k=3, method="forward", preprocess="none", lam=lam)
    found = dsel.submodularity_ratio(selection, X, Y).submodularity
    assert found is not None
    gamma = true_ratio(X, Y, 3, lam)
    assert 0.0 < found.bound <= gamma <= found.estimate + 1e-9
    assert found.guarantee == pytest.approx(1.0 - np.exp(-found.bound))


def test_the_bound_holds_where_columns_are_selected_for_x_itself() -> None:
    X, _ = problem(5)
    found = dsel.submodularity_ratio(dsel.select(X, k=2, preprocess="none"), X).submodularity
    assert found is not None
    assert 0.0 < found.bound <= true_ratio(X, X, 2) <= found.estimate + 1e-9


def test_the_estimate_is_the_least_ratio_along_the_chosen_columns() -> None:
    """A pair of columns that explains only together: Y is their difference."""
    rng = np.random.default_rng(3)
    common, first, second = np.linalg.qr(rng.normal(size=(50, 3)))[0].T
    X = np.column_stack([common + 0.1 * first, common + 0.1 * second])
    y = X[:, 0] - X[:, 1]
    selection = dsel.select(X, y, k=2, preprocess="none")
    found = dsel.submodularity_ratio(selection, X, y).submodularity
    assert found is not None
    assert found.estimate == pytest.approx(true_ratio(X, y[:, None], 2))
    assert found.estimate < 0.05


def test_the_guarantee_holds_for_forward_selection() -> None:
    for seed in range(5):
        X, Y = problem(seed, n=8)
        greedy = dsel.submodularity_ratio(dsel.select(X, Y, k=3, method="forward"), X, Y)
        best = dsel.select(X, Y, k=3, method="branch-and-bound")
        assert greedy.submodularity is not None
        assert greedy.r2 >= greedy.submodularity.guarantee * best.r2


def test_orthogonal_columns_have_the_ratio_one_and_copies_zero() -> None:
    X = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 6)))[0]
    y = X @ np.arange(1.0, 7.0)
    found = dsel.submodularity_ratio(dsel.select(X, y, k=3, preprocess="none"), X, y).submodularity
    assert found is not None
    assert found.bound == pytest.approx(1.0)
    assert found.estimate == pytest.approx(1.0)
    copies = np.column_stack([X, X[:, 0]])
    found = dsel.submodularity_ratio(
        dsel.select(copies, y, k=3, preprocess="none", near_copies="keep"), copies, y
    ).submodularity
    assert found is not None
    assert found.bound == 0.0


def test_gershgorins_bound_is_positive_for_more_columns_than_rows() -> None:
    X = np.hstack([np.eye(40), np.full((40, 1), 40**-0.5)])
    objective = DenseObjective(X.T @ X, X.sum(axis=0)[:, None], 40.0)
    assert ratio_bound(objective, 2) == pytest.approx(1.0 - 2 * 40**-0.5)


def test_included_columns_are_removed_first() -> None:
    X, Y = problem(2)
    selection = dsel.select(X, Y, k=3, include=[1], preprocess="none")
    found = dsel.submodularity_ratio(selection, X, Y).submodularity
    assert found is not None
    basis = X[:, [1]] / np.linalg.norm(X[:, 1])
    rest = np.delete(X, 1, axis=1)
    gamma = true_ratio(rest - basis @ (basis.T @ rest), Y - basis @ (basis.T @ Y), 2)
    assert 0.0 < found.bound <= gamma <= found.estimate + 1e-9


@pytest.mark.usefixtures("no_pictures")
def test_a_certificate_brings_the_ratio_and_texts_show_it(tmp_path: Path) -> None:
    X, Y = problem(1)
    selection = dsel.select(X, Y, k=3)
    assert "ubmodularity" not in render(selection)
    proved = dsel.certify(selection, X, Y)
    assert proved.submodularity == dsel.submodularity_ratio(selection, X, Y).submodularity
    assert proved.submodularity is not None
    assert "ubmodularity" not in render(proved)  # the selection is proved optimal
    bounded = dsel.certify(selection, X, Y, nodes=1)
    assert bounded.certificate[-1]["status"] == "bounded"
    assert f"Submodularity ratio: at least {proved.submodularity.bound:.4f} (proved)" in render(bounded)
    assert f"{proved.submodularity.guarantee:.2%}" in render_report(bounded)
    assert dsel.open_selection(proved.save(tmp_path / "proved")) == proved


@pytest.mark.parametrize("options", [{"k": 1}, {"k": 2, "include": [1]}])
def test_for_one_column_forward_selection_is_exact(options: dict[str, Any]) -> None:
    X, Y = problem(1)
    selection = dsel.select(X, Y, **options)
    assert "where forward selection finds the best one" in render(dsel.submodularity_ratio(selection, X, Y))
    assert "ubmodularity" not in render(dsel.certify(selection, X, Y))


def test_a_certificate_that_leaves_a_gap_has_no_line_about_a_useless_ratio() -> None:
    X, Y = problem(1, n=30)
    X[:, 20:] = X[:, :10] + 0.1 * X[:, 20:]
    found = dsel.certify(dsel.select(X, Y, k=5), X, Y, nodes=1)
    assert found.submodularity is not None
    assert 0.0 < found.submodularity.guarantee < 0.01
    assert found.certificate[-1]["status"] != "optimal"
    assert "ubmodularity" not in render(found)


def test_the_certificate_of_a_choice_for_x_itself_has_no_line_on_forward_selection() -> None:
    X, _ = problem(1)
    proved = dsel.certify(dsel.select(X, k=3), X)
    assert proved.submodularity is not None
    assert "ubmodularity" not in render(proved)
    assert "Error ratio to the best approximation of rank 3" in render(proved)


@pytest.mark.usefixtures("no_pictures")
def test_texts_say_that_a_ratio_of_zero_gives_no_guarantee(tmp_path: Path) -> None:
    X, Y = problem(1)
    copies = np.column_stack([X, X[:, 0]])
    found = dsel.submodularity_ratio(dsel.select(copies, Y, k=2, near_copies="keep"), copies, Y)
    assert found.submodularity is not None
    for text in (render(found), render_report(found)):
        assert "no useful lower bound is proved, so the ratio gives no guarantee here" in text
        assert f"at most {found.submodularity.estimate:.4f}; no useful" in text
        assert "at least 0.00" not in text
    values = json.loads((found.save(tmp_path / "found") / "selection.json").read_text())
    assert values["submodularity"]["bound"] == 0.0


def test_a_result_without_the_ratio_has_no_key_for_it(tmp_path: Path) -> None:
    X, Y = problem(1)
    selection = dsel.select(X, Y, k=3)
    values = json.loads((selection.save(tmp_path / "plain") / "selection.json").read_text())
    assert not {"submodularity", "rank_error"} & set(values)
    assert dsel.open_selection(tmp_path / "plain").submodularity is None


def test_groups_and_other_data_are_refused() -> None:
    X, Y = problem(1)
    grouped = dsel.select(X, Y, k=1, groups=[[0, 1], [2, 3]])
    with pytest.raises(OptionError, match="groups"):
        dsel.submodularity_ratio(grouped, X, Y)
    selection = dsel.select(X, Y, k=2)
    with pytest.raises(DataError, match="not the data"):
        dsel.submodularity_ratio(selection, X**3, Y)
    with pytest.raises(DataError, match="5 columns"):
        dsel.submodularity_ratio(selection, X[:, :5], Y)


@pytest.mark.parametrize("lam", [0.0, 5.0])
@pytest.mark.usefixtures("no_pictures")
def test_the_error_ratio_is_that_to_the_singular_values(lam: float, tmp_path: Path) -> None:
    X, _ = problem(7, n=10)
    selection = dsel.select(X, k=3, preprocess="unit", lam=lam)
    A = X / np.linalg.norm(X, axis=0)
    S = A[:, selection.indices]
    left = A - S @ np.linalg.solve(S.T @ S + lam * np.eye(3), S.T @ A)
    ratio = np.square(left).sum() / np.square(np.linalg.svd(A, compute_uv=False)[3:]).sum()
    assert selection.error_ratio == pytest.approx(ratio)
    projection = (
        np.square(A - S @ np.linalg.pinv(S) @ A).sum() / np.square(np.linalg.svd(A, compute_uv=False)[3:]).sum()
    )
    assert projection == pytest.approx(ratio) if lam == 0.0 else projection < ratio
    ridge = " of the ridge fit, without its penalty," if lam else ""
    assert f"Error ratio{ridge} to the best approximation of rank 3: {ratio:.4f}" in render(selection)
    assert f"{ratio:.4f}" in render_report(selection)
    assert dsel.open_selection(selection.save(tmp_path / "saved")).error_ratio == selection.error_ratio


def test_there_is_no_error_ratio_for_targets_nor_where_nothing_is_left() -> None:
    X, Y = problem(7)
    assert dsel.select(X, Y, k=2).error_ratio is None
    low = X[:, :2] @ np.random.default_rng(0).normal(size=(2, 6))
    assert dsel.select(low, k=2).error_ratio is None


def test_the_guarantee_says_where_it_leaves_out_columns_that_others_represent() -> None:
    rng = np.random.default_rng(39)
    X = rng.normal(size=(60, 6))
    X -= X.mean(axis=0)
    noise = rng.normal(size=60)
    X[:, 3] = X[:, 0] + 1e-3 * X[:, 0].std() * (noise - noise.mean())
    y = rng.normal(size=60) + 0.25 * noise
    about_the_others = "of what the best columns without those that others represent explain (proved)"

    def guarantee(lam: float = 0.0) -> str:
        proved = dsel.certify(dsel.select(X, y, k=2, lam=lam, method="forward"), X, y)
        assert "explain (proved)" not in str(proved)  # the certificate says more
        return str(replace(proved, certificate=()))

    assert about_the_others in guarantee()
    X[:, 3] = 2.0 * X[:, 0]  # a multiple explains what its representative does, but less of the penalty
    for lam, restricted in ((0.0, False), (10.0, True)):
        assert (about_the_others in guarantee(lam)) == restricted
        assert "explain (proved)" in guarantee(lam)


def test_the_error_ratio_counts_no_column_that_depends_on_others() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90), "city": rng.choice(["x", "y", "z"], 90)})
    frame["c"] = frame["a"] + rng.normal(size=90)
    selection = dsel.select(frame, k=1, include=["city"])
    Z = pd.concat([frame[["a", "b", "c"]], pd.get_dummies(frame["city"]).astype(float)], axis=1).to_numpy()
    squares = np.linalg.svd((Z - Z.mean(axis=0)) / Z.std(axis=0), compute_uv=False) ** 2
    assert selection.error_ratio == pytest.approx(selection.error / squares[2:].sum())
    assert f"of rank 2: {selection.error_ratio:.4f}" in str(selection)
