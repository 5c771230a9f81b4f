"""Information criteria count degrees of freedom: the rank of the columns, and the intercept where there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.errors import OptionError
from dsel.selection.information_criteria import CriterionContext

RULES = ("aic", "aicc", "bic", "ebic", "cp", "adjusted-r2")


def problem(seed: int) -> tuple[pd.DataFrame, np.ndarray, dict[str, Any]]:
    """Return rows with two categories, whose indicators depend on each other, targets, and options of a selection."""
    rng = np.random.default_rng(seed)
    m = 45
    frame = pd.DataFrame(
        {"mill": rng.choice(list("ABCDE"), m), "crew": rng.choice(list("xyz"), m), "heat": rng.normal(size=m) + 1.0}
    ).assign(acid=rng.normal(size=m), ash=lambda d: d.heat + rng.normal(size=m))
    Y = np.c_[frame.heat + (frame.mill == "B") + rng.normal(size=m), frame.acid + rng.normal(size=m)]
    options: dict[str, Any] = {
        "preprocess": ("standardize", "center", "unit", "none")[seed % 4],
        "categories": ("groups", "columns")[seed // 4 % 2],
        "include": (None, ["acid"])[seed // 8 % 2],
        "sample_weight": (None, rng.uniform(0.5, 2.5, m))[seed // 16 % 2],
    }
    return frame, Y[:, : 1 + seed % 3 // 2], {name: value for name, value in options.items() if value is not None}


def expected(X: np.ndarray, Y: np.ndarray, subset: list[int], s: int, p: int, options: dict[str, Any]) -> Any:
    """Return the criteria of a subset of s of p items, from residuals and ranks of the rows."""
    w = options.get("sample_weight", np.ones(len(X)))
    m, N, root = w.sum(), Y.shape[1], np.sqrt(w)[:, None]
    c = options["preprocess"] in ("standardize", "center")
    origin = np.average(Y, axis=0, weights=w) if c else 0.0
    if options["preprocess"] in ("standardize", "unit"):
        weight = m if c else 1.0  # standard deviations, or norms
        Y = Y / np.sqrt(w @ (Y - origin) ** 2 / weight)

    def fit(S: list[int]) -> tuple[float, int]:
        A = root * np.c_[np.ones((len(X), int(c))), X[:, S]]
        left = root * Y - (A @ np.linalg.lstsq(A, root * Y, rcond=None)[0] if A.shape[1] else 0.0)
        return float((left**2).sum()), int(np.linalg.matrix_rank(A)) if A.shape[1] else 0

    (rss, rank), (null, _), (full, rank_of_all) = fit(subset), fit([]), fit(list(range(X.shape[1])))
    fit_term, K, df = m * N * np.log(rss / (m * N)), N * rank + 1, rank - c
    choices = np.log(float(np.prod([(p - i) / (i + 1) for i in range(s)])))
    return {
        "aic": fit_term + 2 * N * df, "aicc": fit_term + 2 * N * df + 2 * K * (K + 1) / (m * N - K - 1),
        "bic": fit_term + N * df * np.log(m), "ebic": fit_term + N * df * np.log(m) + 2.0 * choices,
        "cp": rss / (full / (N * (m - rank_of_all))) - m * N + 2 * N * rank,
        "adjusted-r2": (rss / (m - rank)) / (null / (m - c)) - 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_criteria_are_those_of_residuals_and_ranks(seed: int) -> None:
    frame, Y, options = problem(seed)
    X = pd.get_dummies(frame[["mill", "crew"]], prefix_sep="=").astype(float)
    X = pd.concat([X, frame[["heat", "acid", "ash"]]], axis=1)
    included = len(options.get("include", ()))
    p = (5 if options["categories"] == "groups" else X.shape[1]) - included
    for rule in RULES if seed < 8 else (RULES[seed % 6], "cp"):
        found = dsel.select(frame, Y, k="auto", choose_k=rule, max_k=included + p, method="forward", **options)
        assert found.size_curve is not None
        rows = {row.size: [X.columns.get_loc(found.label(j)) for j in row.indices] for row in found.front}
        rows.setdefault(included, [X.columns.get_loc(name) for name in options.get("include", ())])
        for point in found.size_curve.points:
            size = max(size for size in rows if size <= point.size)
            value = expected(X.to_numpy(), Y, rows[size], size - included, p, options)[rule]
            assert point.value == pytest.approx(value, rel=1e-7, abs=1e-7)


def test_cp_of_all_columns_is_the_number_of_parameters() -> None:
    frame, Y, _ = problem(0)
    for preprocess, parameters in (("standardize", 10), ("none", 10)):  # 1 + 4 + 2 + 3: without an intercept, 5 + 2 + 3
        found = dsel.select(frame, Y, k="auto", choose_k="cp", max_k=5, method="forward", preprocess=preprocess)
        assert found.size_curve is not None
        assert found.size_curve.points[5].value == pytest.approx(parameters)


@pytest.mark.parametrize("context", [
    CriterionContext(40.0, 2, 9, 80.0, intercept=False, of_all=(20.0, 7.0)),
    CriterionContext(40.0, 1, 9, 40.0, of_all=(20.0, 7.0)),
])  # fmt: skip
def test_the_residual_of_a_value_has_that_value(context: CriterionContext) -> None:
    for rule in RULES:
        assert context.rss(rule, context.value(rule, 30.0, 4.0, 5), 4.0, 5) == pytest.approx(30.0)  # type: ignore[arg-type]


def test_cp_needs_more_rows_than_the_rank() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(20, 5))
    X, y = np.c_[Z, Z @ rng.normal(size=(5, 25))], Z[:, 0] + rng.normal(size=20)
    found = dsel.select(X, y, k="auto", choose_k="cp", max_k=5, method="forward")  # 30 columns of rank 5, and 20 rows
    few = dsel.select(Z, y, k="auto", choose_k="cp", max_k=5, method="forward")
    assert found.size_curve is not None
    assert few.size_curve is not None
    assert found.size_curve.points[5].value == pytest.approx(6.0) == few.size_curve.points[5].value
    assert any("Cp needs more rows" in note for note in dsel.plan(X, y, k="auto", choose_k="cp").notes)
    with pytest.raises(OptionError, match=r"more rows than independent .*: there are 20 rows, and 19 independent"):
        dsel.select(rng.normal(size=(20, 30)), y, k="auto", choose_k="cp", method="forward")


def test_the_preferred_size_counts_dependent_columns_once() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 6))
    X[:, 2] = X[:, 0] + X[:, 1]
    y = X[:, 0] + 2.0 * X[:, 1] + X[:, 3] + X[:, 4] + 0.5 * rng.normal(size=60)
    found = dsel.select(X, y, k=5, method="rfe")
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    for row in found.front:
        assert row.rank == (np.linalg.matrix_rank(Z[:, row.indices]) if row.size else 0)
        assert row.labels == tuple(f"x{j}" for j in row.indices)
    best = next(row for row in found.information_criteria() if row.criterion == "bic")
    row = next(row for row in found.front if row.size == best.size)
    assert row.rank is not None
    assert row.rank < row.size
    rss = row.error * y.var()
    log_likelihood = -30.0 * (np.log(2.0 * np.pi * rss / 60.0) + 1.0)
    assert best.value == pytest.approx(-2.0 * log_likelihood + np.log(60.0) * (row.rank + 2))


@pytest.mark.parametrize("rule", ["bic", {"folds": 4}, {"held_out": 0.25}])
def test_a_front_ends_at_the_limit_of_an_automatic_k(rule: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 10))
    found = dsel.select(X, X[:, 0] + X[:, 3] + rng.normal(size=80), k="auto", max_k=3, choose_k=rule, method="poss")
    assert max(row.size for row in found.front) == 3
    assert [row.labels for row in found.front if row.size == 2] == [("x0", "x3")]


@pytest.mark.parametrize("options", [{}, {"preprocess": "none"}, {"include": [1]}])
def test_listed_subsets_have_the_cp_of_the_choice_of_k(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 6))
    y = X[:, 1] - 0.7 * X[:, 4] + 0.5 * rng.normal(size=40) + 1.0
    found = dsel.select(X, y, k="auto", choose_k="cp", max_k=6, method="branch-and-bound", **options)
    listed = dsel.alternatives(found, X, y, nbest=3, by="cp")
    assert found.size_curve is not None
    assert listed.subsets[0].indices == tuple(sorted(found.indices))
    assert listed.subsets[0].criterion == pytest.approx(min(point.value for point in found.size_curve.points))


def test_a_refused_list_names_the_reason() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 5))
    X[:, 4] = X[:, 0] + X[:, 1] + 1e-7 * rng.normal(size=40)
    Y = rng.normal(size=(40, 9))
    found = dsel.select(X, Y[:, 0], k=2, method="forward")
    with pytest.raises(OptionError, match=r"nearly dependent\. Select again without x4, which depends on others"):
        dsel.alternatives(found, X, Y[:, 0], nbest=3, by="cp")
    found = dsel.select(X, Y[:, 0], k=2, method="forward", exclude=["x4"])
    assert dsel.alternatives(found, X, Y[:, 0], nbest=3, by="cp").complete
    X = rng.normal(size=(40, 10))
    found = dsel.select(X, Y, k=2, method="forward")
    with pytest.raises(OptionError, match=r"cannot be listed: there are more than 8 independent targets\."):
        dsel.alternatives(found, X, Y, nbest=3, by="cp")


def notes_on_limits(found: dsel.Selection) -> list[str]:
    return [note for note in found.notes if "max_k" in note]


@pytest.mark.parametrize("rule", ["folds", "bic", {"held_out": 0.25, "split": "blocks"}])
def test_a_note_says_that_the_limit_of_k_binds(rule: Any) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 6))
    y = X[:, :4].sum(axis=1) + 0.1 * rng.normal(size=120)
    found = dsel.select(X, y, k="auto", choose_k=rule, max_k=3, method="forward")
    assert notes_on_limits(found) == ["k is the limit max_k: 3, so a larger subset may be better: raise max_k"]
    assert notes_on_limits(dsel.select(X[:, :3], y, k="auto", choose_k=rule, max_k=3, method="forward")) == []
    assert notes_on_limits(dsel.select(X[:, :5], y, k="auto", choose_k="bic", max_k=5, method="forward")) == []
    X[:, 3] = X[:, :3].sum(axis=1)
    assert notes_on_limits(dsel.select(X[:, :4], y, k="auto", choose_k=rule, max_k=3, method="forward")) == []


def test_a_note_says_that_criteria_compare_groups_of_different_sizes_by_error_first() -> None:
    frame, Y, _ = problem(0)
    notes = dsel.select(frame, Y, k="auto", choose_k="cp", max_k=3, method="forward").notes
    assert sum("groups of fewer columns" in note for note in notes) == 1
    by_folds = dsel.select(frame, Y, k="auto", choose_k={"folds": 3}, max_k=3, method="forward").notes
    assert not any("groups of fewer columns" in note for note in by_folds)


def test_a_share_that_is_held_out_is_in_percent() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 3))
    for split, words in (
        ("blocks", "by the last 25 % of the rows, held out"),
        ("random", "by 25 % of the rows, held out"),
    ):
        rule = {"held_out": 0.25, "split": split}
        found = dsel.select(X, X[:, 0], k="auto", choose_k=rule, method="forward")
        assert found.size_curve is not None
        assert found.size_curve.description.endswith(words)
