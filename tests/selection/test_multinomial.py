"""Selections for three or more classes: one set of columns for all of them, compared with scikit-learn's fits."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

import dsel
from dsel.errors import DataError, OptionError
from dsel.selection.results.predict_store import predict_store
from dsel.selection.results.score import confusion, scored_rows
from dsel.sklearn import SubsetClassifier
from tests.stores import make_store

NAMES = np.array(["ash", "elm", "fir", "oak"])


def drawn(q: int = 3, m: int = 120, n: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated columns, and classes 0, 1, ... that follow three of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    X[:, 1:] += 0.6 * X[:, :-1]
    scores = X[:, [1, 4, 6]] @ (1.5 * rng.normal(size=(3, q)))
    return X, (scores + rng.gumbel(size=(m, q))).argmax(axis=1)


def least(X: np.ndarray, y: np.ndarray, S: Any, lam: float, w: np.ndarray | None = None) -> tuple[float, Any, Any]:
    """Return F(S) by scikit-learn, its model, and the standardized columns."""
    w = np.ones(len(y)) if w is None else w
    mean = np.average(X, axis=0, weights=w)
    Z = ((X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w)))[:, list(S)]
    model = LogisticRegression(C=1.0 / lam, tol=1e-10, max_iter=5000).fit(Z, y, sample_weight=w)
    value = 2.0 * w.sum() * log_loss(y, model.predict_proba(Z), sample_weight=w) + lam * np.sum(model.coef_**2)
    return float(value), model, Z


@pytest.mark.parametrize(("method", "lam", "q"), [("poss", 0.5, 3), ("forward", 2.0, 4), ("splicing", 1.0, 4)])
def test_finds_the_subset_of_least_deviance(method: str, lam: float, q: int) -> None:
    X, y = drawn(q, seed=q)
    w = np.random.default_rng(1).integers(1, 4, 120).astype(float)
    found = dsel.select(X, y, k=3, loss="multinomial", method=method, lam=lam, sample_weight=w)
    fits = {S: least(X, y, S, lam, w) for S in combinations(range(8), 3)}
    best = min(fits, key=lambda S: fits[S][0])
    assert sorted(found.indices) == list(best)
    assert found.error == pytest.approx(fits[best][0], rel=1e-6)
    np.testing.assert_allclose(found.predict(X), fits[best][1].predict_proba(fits[best][2]), atol=1e-5)


def test_the_order_of_gain_is_that_of_the_loss_for_any_names_of_the_classes() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 9))
    z = X[:, 0] - X[:, 3] + 0.5 * X[:, 5] + rng.normal(size=120)
    codes = np.where(z > 1.0, 0, np.where(z < -1.0, 1, 2))  # not in their order on the line
    order: tuple[int, ...] = ()
    while len(order) < 3:
        order = min(((*order, j) for j in {0, 3, 5} - {*order}), key=lambda S: least(X, codes, S, 1.0)[0])
    for y in (codes, NAMES[codes], np.eye(3)[codes]):
        assert dsel.select(X, y, k=3, loss="multinomial", lam=1.0).indices == order
    assert tuple(SubsetClassifier(3).fit(X, codes).indices_) == order
    included = dsel.select(X, codes, k=3, loss="multinomial", lam=1.0, include=[order[2]]).indices
    assert included == (order[2], *order[:2])


def test_the_order_of_many_columns_is_the_same_for_any_names_of_the_classes() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 33))
    effects = np.linspace(2.0, 0.1, 33)
    codes = np.clip(np.rint(X @ effects / 4.0 + rng.normal(size=300)), -1, 1).astype(int)
    asked: dict[str, Any] = {"k": 32, "loss": "multinomial", "lam": 5.0, "method": "forward", "include": [20]}
    order = dsel.select(X, codes, **asked).indices
    assert dsel.select(X, NAMES[(codes + 2) % 3], **asked).indices == order
    assert order[0] == 20
    assert max(order[1:6]) < 12


@pytest.mark.parametrize("q", [3, 4])
def test_alternatives_are_all_near_best_subsets(q: int) -> None:
    X, y = drawn(q, seed=q)
    found = dsel.alternatives(dsel.select(X, y, k=2, loss="multinomial", lam=1.0), X, y, within=0.3)
    values = {S: least(X, y, S, 1.0)[0] for S in combinations(range(8), 2)}
    best = min(values.values())
    near = {S for S, value in values.items() if value <= best + 0.3 * (found.total - best)}
    assert found.complete
    assert {tuple(sorted(row.indices)) for row in found.subsets} == near
    for price in found.columns:
        having = [S for S in near if price.index in S]
        expected = "useless" if not having else "necessary" if len(having) == len(near) else "replaceable"
        assert price.verdict == expected


def test_alternatives_of_classes_that_many_columns_separate_are_all_near_best_subsets() -> None:
    wine, columns = load_wine(), [0, 1, 2, 3, 5, 6, 8, 11, 12]
    X, y = wine.data[1::2, columns], wine.target[1::2]
    found = dsel.alternatives(dsel.select(X, y, k=2, loss="multinomial"), X, y, within=0.1)
    values = {S: least(X, y, S, 1e-9)[0] for S in combinations(range(9), 2)}
    best = min(values.values())
    near = {S for S, value in values.items() if value <= best + 0.1 * (found.total - best)}
    assert found.complete
    assert found.proven
    assert {tuple(sorted(row.indices)) for row in found.subsets} == near


def test_without_a_penalty_the_deviance_is_that_of_regression_with_a_reference_class() -> None:
    X, y = drawn(3)
    found = dsel.select(X, y, k=3, loss="multinomial")
    assert found.error == pytest.approx(least(X, y, found.indices, 1e-9)[0], rel=1e-6)
    assert found.r2 == pytest.approx(1.0 - found.error / found.front[0].error)


def test_text_numbers_and_columns_of_0_and_1_are_the_same_classes() -> None:
    X, y = drawn(4, seed=1)
    codes = dsel.select(X, y, k=3, loss="multinomial", lam=1.0)
    text = dsel.select(X, NAMES[y], k=3, loss="multinomial", lam=1.0)
    columns = dsel.select(X, np.eye(4)[y], k=3, loss="multinomial", lam=1.0)
    assert codes.targets == ("y=0", "y=1", "y=2", "y=3")
    assert text.targets == ("y=ash", "y=elm", "y=fir", "y=oak")
    for found in (text, columns):
        assert found.indices == codes.indices
        np.testing.assert_allclose(found.coefficients, codes.coefficients)
        np.testing.assert_allclose(found.coefficients.sum(axis=1), 0.0, atol=1e-9)
    assert text.score(X, NAMES[y]) == pytest.approx(codes.score(X, y))


def test_scores_are_those_of_scikit_learn() -> None:
    X, y = drawn(3, m=200, seed=2)
    found = dsel.select(X[:100], NAMES[y[:100]], k=3, loss="multinomial", lam=1.0)
    new, names, w = X[100:], NAMES[y[100:]], np.tile([1.0, 2.0], 50)
    p = found.predict(new)
    scores = found.score(new, names, sample_weight=w)
    assert scores["log_loss"] == pytest.approx(log_loss(names, p, sample_weight=w), rel=1e-9)
    assert scores["accuracy"] == accuracy_score(names, NAMES[p.argmax(axis=1)], sample_weight=w)
    assert scores["auc"] == pytest.approx(roc_auc_score(names, p, multi_class="ovr", sample_weight=w), rel=1e-9)
    shares = np.tile([w[names == name].sum() / w.sum() for name in NAMES[:3]], (100, 1))
    null = 2.0 * w.sum() * log_loss(names, shares, sample_weight=w)
    assert scores["d2"] == pytest.approx(1.0 - scores["deviance"] / null)
    table = confusion(scored_rows(found, new, names, w))
    np.testing.assert_allclose(table, confusion_matrix(names, NAMES[p.argmax(axis=1)], sample_weight=w))
    with pytest.raises(DataError, match="y has the class oak, and the classes are ash, elm, fir"):
        found.score(new, np.full(100, "oak"))
    assert len(found.plot.roc(new, names).get_legend_handles_labels()[1]) == 3
    assert len(found.plot.calibration(new, names).get_lines()) == 4
    own = scored_rows(found, X[:100], NAMES[y[:100]])
    assert found.class_figures.names == ("ash", "elm", "fir")
    np.testing.assert_allclose(found.class_figures.confusion, confusion(own))
    area = found.score(X[:100], NAMES[y[:100]])["auc"]
    assert np.mean(found.class_figures.auc) == pytest.approx(area, rel=1e-9)


def test_a_store_gives_the_answer_of_the_arrays(tmp_path: Path) -> None:
    X, y = drawn(3)
    store = make_store(tmp_path / "s.zarr", X, y[:, None].astype(float), chunks=(33, 3))
    found, there = (dsel.select(*data, k=3, loss="multinomial", lam=1.0) for data in ((store,), (X, y)))
    assert found.indices == there.indices
    assert found.error == pytest.approx(there.error, rel=1e-10)
    predict_store(found, store, tmp_path / "p.zarr")
    written = xr.open_zarr(tmp_path / "p.zarr").prediction
    np.testing.assert_allclose(written.values, there.predict(X), rtol=1e-9)
    assert written.sizes["target"] == 3


def test_predictions_are_of_the_kind_of_the_data() -> None:
    import pandas as pd

    da, pl = pytest.importorskip("dask.array"), pytest.importorskip("polars")
    X, y = drawn(3)
    found = dsel.select(X, NAMES[y], k=2, loss="multinomial", lam=1.0)
    p, names = found.predict(X), [f"x{j}" for j in range(8)]
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(found.predict(da.from_array(X, chunks=(50, 8))).compute(), p)
    for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        table = found.predict(frame)
        assert list(table.columns) == list(found.targets)
        np.testing.assert_allclose(table.to_numpy(), p)


def test_a_saved_selection_predicts_and_prints_the_same(tmp_path: Path) -> None:
    X, y = drawn(3)
    found = dsel.select(X, NAMES[y], k=2, loss="multinomial")
    found.save(tmp_path / "result")
    again = dsel.open_selection(tmp_path / "result")
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    assert str(again) == str(found)
    assert "of the multinomial deviance" in str(found)


def test_k_groups_and_stability() -> None:
    X, y = drawn(3, m=300)
    chosen = dsel.select(X, y, k="auto", loss="multinomial")
    assert sorted(chosen.indices) == [1, 4, 6]
    assert chosen.size_curve is not None
    point = next(point for point in chosen.size_curve.points if point.size == 3)
    assert point.value == pytest.approx(chosen.error + 2 * 4 * np.log(300))  # two of a column and intercepts
    groups = dsel.select(X, y, k=2, loss="multinomial", groups=[[1, 2], [4, 5], [6, 7]])
    assert len(groups.groups) == 2
    stable = dsel.stability(X, y, k=3, loss="multinomial", samples=10)
    assert set(np.argsort(-stable.frequencies[-1])[:3].tolist()) == {1, 4, 6}


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(120), "one class only, 0"),
        (np.arange(120.0) % 2, 'has two classes. Use loss="logistic"'),
        (np.arange(120.0), "takes up to 100 classes, and the target has 120 values"),
        (np.ones((120, 3)), "row 0 is in no class or in several"),
    ],
)
def test_targets_that_are_no_classes_are_refused(y: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        dsel.select(drawn()[0], y, k=2, loss="multinomial")


def test_other_losses_name_the_one_for_many_classes() -> None:
    X, y = drawn(3)
    for classes in (y, NAMES[y]):
        with pytest.raises((DataError, OptionError), match='use loss="multinomial"'):
            dsel.select(X, classes, k=2, loss="logistic")
        notes = dsel.select(X, classes, k=2).notes
        assert any('loss="multinomial" fits their probabilities' in note for note in notes)
    with pytest.raises(OptionError, match="takes no offset"):
        dsel.select(X, y, k=2, loss="multinomial", offset=np.ones(120))


@pytest.mark.parametrize("kind", ["codes", "text"])
@pytest.mark.parametrize("asked", ["balanced", "stated"])
@pytest.mark.parametrize("q", [2, 3])
def test_weights_of_classes_multiply_those_of_rows(kind: str, asked: str, q: int) -> None:
    X, y = drawn(q, seed=4)
    labels = NAMES[y] if kind == "text" else y
    w = np.random.default_rng(1).uniform(0.5, 2.0, 120)
    sums = np.bincount(y, w)
    factors = w.sum() / (q * sums) if asked == "balanced" else np.array([1.0, 3.0, 1.0])[:q]
    given = "balanced" if asked == "balanced" else {labels[y == 1][0]: 3.0}
    loss = "logistic" if q == 2 else "multinomial"
    found = dsel.select(X, labels, k=3, loss=loss, lam=1.0, class_weight=given, sample_weight=w)
    mean = np.average(X, axis=0, weights=w)
    Z = ((X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w)))[:, list(found.indices)]
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(Z, y, sample_weight=w * factors[y])
    p = model.predict_proba(Z)
    np.testing.assert_allclose(found.predict(X).reshape(120, -1)[:, -1], p[:, -1], atol=1e-5)
    value = 2.0 * np.sum(w * factors[y]) * log_loss(y, p, sample_weight=w * factors[y]) + np.sum(model.coef_**2)
    assert found.error == pytest.approx(value, rel=1e-6)
    if q == 2:
        proof = dsel.certify(found, X, labels, sample_weight=w).certificate[-1]
        assert proof["proven"]
        assert proof["value"] == pytest.approx(value, rel=1e-6)


def test_weights_of_classes_are_those_of_a_store_and_a_saved_result(tmp_path: Path) -> None:
    X, y = drawn(3)
    store = make_store(tmp_path / "s.zarr", X, y[:, None].astype(float), chunks=(33, 3))
    found, there = (dsel.select(*data, k=2, loss="multinomial", class_weight={2: 5.0}) for data in ((store,), (X, y)))
    assert found.error == pytest.approx(there.error, rel=1e-9)
    assert found.error > dsel.select(X, y, k=2, loss="multinomial").error
    found.save(tmp_path / "result")
    again = dsel.open_selection(tmp_path / "result")
    assert again.loss == found.loss
    assert again.loss.factors == (1.0, 1.0, 5.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "multinomial", "class_weight": {7: 2.0}}, "class_weight has the class '7', and the classes are 0, 1"),
        ({"loss": "multinomial", "class_weight": "equal"}, 'must be "balanced", or a mapping'),
        ({"loss": "multinomial", "class_weight": {1: 0.0}}, "weights of classes are finite numbers above 0"),
        ({"class_weight": "balanced"}, 'class_weight is for classes, and the loss is "squared"'),
    ],
)
def test_weights_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    X, y = drawn(3)
    with pytest.raises((OptionError, DataError), match=message):
        dsel.select(X, y, k=2, **arguments)
    if arguments.get("class_weight") == {7: 2.0}:
        with pytest.raises(OptionError, match=r"class_weight has the class '7'\. The classes are ash, elm, fir"):
            dsel.select(X, NAMES[y], k=2, **arguments)


@pytest.mark.parametrize(("q", "lam"), [(3, 1.0), (4, 5.0), (3, 0.0)])
def test_the_certificate_proves_the_best_subset(q: int, lam: float) -> None:
    X, y = drawn(q, m=60, n=7, seed=q)
    found = dsel.certify(dsel.select(X, y, k=2, loss="multinomial", lam=lam), X, y)
    best = min(least(X, y, S, max(lam, 1e-9))[0] for S in combinations(range(7), 2))
    (row,) = found.certificate
    assert row["proven"]
    assert row["method"] == "branch-and-bound (multinomial loss)"
    assert row["bound"] <= best * (1.0 + 1e-9)
    assert row["value"] == pytest.approx(best, rel=1e-6)
    assert row["largest_coefficient"] == 0.0 if lam else row["largest_coefficient"] > 0.0


def test_a_proof_that_is_cut_short_has_a_bound_below_every_subset() -> None:
    X, y = drawn(3, seed=5)
    w = np.random.default_rng(2).uniform(0.5, 2.0, 120)
    found = dsel.select(X, NAMES[y], k=3, loss="multinomial", lam=1.0, sample_weight=w)
    cut = dsel.certify(found, X, NAMES[y], sample_weight=w, nodes=2)
    best = min(least(X, y, S, 1.0, w)[0] for S in combinations(range(8), 3))
    (row,) = cut.certificate
    assert not row["proven"]
    assert 0.0 < row["bound"] <= best
    proved = dsel.certify(found, X, NAMES[y], sample_weight=w, sizes="all").certificate
    assert [row["status"] for row in proved] == ["optimal"] * 3


@pytest.mark.parametrize("kind", ["numbers", "text", "columns"])
def test_folds_without_a_class_are_refused(kind: str) -> None:
    X, y = drawn(3)
    rare = np.where(np.arange(120) == 5, 3, np.sort(y))
    named = {"numbers": "3", "text": "oak", "columns": "y3"}[kind]

    def given(codes: np.ndarray) -> Any:
        return {"numbers": codes, "text": NAMES[codes], "columns": np.eye(codes.max() + 1)[codes]}[kind]

    auto = {"k": "auto", "loss": "multinomial", "lam": 1.0, "max_k": 2, "method": "forward"}
    with pytest.raises(DataError, match=rf"Model \d of the choice of k is trained on rows without the class {named}"):
        dsel.select(X, given(rare), choose_k="folds", **auto)
    blocks = {"split": "blocks", "folds": 5}
    with pytest.raises(DataError, match=r"Model 1 .* has no AUC: it is tested on rows without the class .*by log-loss"):
        dsel.select(X, given(np.sort(y)), choose_k={"by": "auc", **blocks}, **auto)
    assert dsel.select(X, given(np.sort(y)), choose_k={"by": "log-loss", **blocks}, **auto).k <= 2


def test_rows_without_weight_have_no_score() -> None:
    X, y = drawn(3)
    found = dsel.select(X, y, k=2, loss="multinomial", lam=1.0)
    with pytest.raises(DataError, match="the weights add up to 0"):
        found.score(X, y, sample_weight=np.zeros(120))


@pytest.mark.parametrize("k", [1, 2])
def test_where_one_class_is_separated_the_best_columns_are_those_that_tell_the_others_apart(k: int) -> None:
    X, target = load_iris(return_X_y=True)
    y, others = np.array(["setosa", "versicolor", "virginica"])[target], target > 0
    fits = {
        S: dsel.select(X[others][:, S], y[others], k=k, include=range(k), loss="logistic").error
        for S in combinations(range(4), k)
    }
    best = min(fits, key=lambda S: fits[S])
    for rows in (np.arange(150), np.random.default_rng(3).permutation(150)):
        selection = dsel.select(X[rows], y[rows], k=k, loss="multinomial")
        assert tuple(sorted(selection.indices)) == best
        assert selection.error == pytest.approx(fits[best], rel=1e-8)
        verb = "separates" if k == 1 else "separate"
        assert f" {verb} setosa from the other classes: without a penalty" in selection.notes[0]
        assert selection.score(X, y)["accuracy"] < 1.0
    assert dsel.certify(selection, X[rows], y[rows]).certificate[-1]["status"] == "optimal"


def test_columns_that_separate_all_classes_are_named() -> None:
    X, target = load_iris(return_X_y=True)
    apart = target[:, None] + 0.1 * X[:, :1] / X[:, 0].max()
    notes = dsel.select(apart, np.array(["a", "b", "c"])[target], k=1, loss="multinomial").notes
    assert any(note.startswith("column x0 separates the classes: without a penalty") for note in notes)


@pytest.mark.parametrize(("preprocess", "k"), [("standardize", 2), ("center", 1), ("center", 2)])
def test_a_class_that_exchanges_nothing_with_another_weakens_no_bound(preprocess: Any, k: int) -> None:
    X, target = load_iris(return_X_y=True)
    selection = dsel.select(X, target, k=k, loss="multinomial", lam=0.01, preprocess=preprocess)
    (proof,) = dsel.certify(selection, X, target).certificate
    assert proof["status"] == "optimal"
    assert proof["bound"] == pytest.approx(selection.error, rel=1e-8)
