"""Selections for survival times that may be cut off, compared with an independent Newton method in long double."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

import dsel
from dsel.errors import CapacityError, DataError, OptionError
from dsel.sklearn import SubsetRegressor
from tests.stores import make_store


def drawn(m: int = 150, n: int = 8, seed: int = 0, ties: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated columns, and times with events that follow three of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    X[:, 1:] += 0.5 * X[:, :-1]
    time = rng.exponential(np.exp(-X[:, [1, 4, 5]] @ [1.0, -0.7, 0.4]))
    cut = 1.5 * rng.exponential(size=m)
    y = np.column_stack([np.minimum(time, cut), time <= cut])
    if ties:
        y[:, 0] = np.ceil(10.0 * y[:, 0]) / 10.0
    return X, y


def test_events_that_no_row_outlives_are_refused() -> None:
    X, y = drawn()
    y[:, 1] = y[:, 0] == y[:, 0].max()
    with pytest.raises(DataError, match=r"rows of a later time, and there are none.*Give rows whose time is later"):
        dsel.select(X, y, k=2, loss="cox")


@pytest.mark.parametrize(
    ("preprocess", "lam"), [("standardize", 0.0), ("standardize", 1.0), ("center", 0.0), ("unit", 1.0), ("none", 0.0)]
)
def test_constant_columns_are_never_chosen_because_they_change_no_hazard_ratio(preprocess: Any, lam: float) -> None:
    X, y = drawn()
    with_constant = np.insert(X, 3, 7.0, axis=1)
    asked: dict[str, Any] = {"k": 3, "loss": "cox", "preprocess": preprocess, "lam": lam}
    plain, found = (dsel.certify(dsel.select(data, y, **asked), data, y) for data in (X, with_constant))
    assert found.constant == ("x3",)
    assert found.certificate[0]["status"] == "optimal"
    assert found.error == pytest.approx(plain.error)
    assert list(dsel.alternatives(found, with_constant, y).verdicts) == [f"x{j}" for j in range(9) if j != 3]
    often = dsel.stability(with_constant, y, samples=4, **asked).frequency()
    assert often[3] == 0.0
    with pytest.raises(OptionError, match="Included columns are constant: x3"):
        dsel.select(with_constant, y, include=["x3"], **asked)


def test_a_nearly_constant_column_does_not_spoil_a_proof() -> None:
    X, y = drawn()
    X[:, 3] = 1e6 + 1e-3 * X[:, 3]
    found = dsel.certify(dsel.select(X, y, k=3, loss="cox", preprocess="unit"), X, y)
    assert found.certificate[0]["status"] == "optimal"


@pytest.mark.parametrize("preprocess", ["unit", "none"])
def test_means_that_are_large_do_not_matter(preprocess: Any) -> None:
    X, y = drawn()
    moved = X.copy()
    moved[:, 4] += 1e7
    plain, found = (dsel.select(data, y, k=2, loss="cox", preprocess=preprocess) for data in (X, moved))
    assert set(found.indices) == set(plain.indices)
    assert found.error == pytest.approx(plain.error, rel=1e-6)
    assert dsel.certify(found, moved, y).certificate[0]["status"] == "optimal"


def likelihood(
    Z: np.ndarray, y: np.ndarray, b: np.ndarray, w: np.ndarray, o: np.ndarray
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the deviance and its derivatives, event after event, by Breslow's formula."""
    Z, eta = Z.astype(np.longdouble), (o + Z @ b).astype(np.longdouble)
    value, g, H = np.longdouble(0.0), np.zeros(b.size, np.longdouble), np.zeros((b.size, b.size), np.longdouble)
    for i in np.flatnonzero((y[:, 1] > 0.0) & (w > 0.0)):
        risk = y[:, 0] >= y[i, 0]
        tied = w[(y[:, 0] == y[i, 0]) & (y[:, 1] > 0.0)].sum()
        p = w[risk] * np.exp(eta[risk])
        total = p.sum()
        mean = p @ Z[risk] / total
        value += 2 * w[i] * (np.log(total) - eta[i] - np.log(np.longdouble(tied)))
        g += 2 * w[i] * (mean - Z[i])
        H += 2 * w[i] * ((Z[risk].T * (p / total)) @ Z[risk] - np.outer(mean, mean))
    return value, g, H


def least(
    X: np.ndarray, y: np.ndarray, S: Any, lam: float = 0.0, w: Any = None, o: Any = None
) -> tuple[float, np.ndarray]:
    """Return F(S) on standardized columns, and the coefficients of the columns as they are."""
    w = np.ones(len(y)) if w is None else w
    o = np.zeros(len(y)) if o is None else o
    mean = np.average(X, axis=0, weights=w)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    S = list(S)
    Z, b = ((X - mean) / scale)[:, S], np.zeros(len(S), np.longdouble)
    for _ in range(30):
        _, g, H = likelihood(Z, y, b, w, o)
        step = np.linalg.solve((H + 2 * lam * np.eye(len(S))).astype(float), (g + 2 * lam * b).astype(float))
        b = b - step
        if np.abs(step).max(initial=0.0) < 1e-13:
            break
    return float(likelihood(Z, y, b, w, o)[0] + lam * b @ b), np.asarray(b / scale[S], float)


@pytest.mark.parametrize(("method", "lam", "ties"), [("poss", 0.0, True), ("forward", 2.0, False)])
def test_finds_the_subset_of_least_deviance(method: str, lam: float, ties: bool) -> None:
    X, y = drawn(80, 6, seed=1, ties=ties)
    rng = np.random.default_rng(2)
    w, offset = rng.integers(0, 4, 80).astype(float), 0.3 * rng.normal(size=80)
    found = dsel.select(X, y, k=2, loss="cox", method=method, lam=lam, sample_weight=w, offset=offset)
    fits = {S: least(X, y, S, lam, w, offset) for S in combinations(range(6), 2)}
    best = min(fits, key=lambda S: fits[S][0])
    assert sorted(found.indices) == list(best)
    assert found.error == pytest.approx(fits[best][0], rel=1e-9)
    np.testing.assert_allclose(found.coefficients[np.argsort(found.indices), 0], fits[best][1], rtol=1e-6)


def test_predictions_are_hazard_ratios_to_a_row_of_means() -> None:
    X, y = drawn()
    found = dsel.select(X, y, k=3, loss="cox")
    link = found.predict(X, kind="link")
    expected = (X - X.mean(axis=0))[:, found.indices] @ found.coefficients[:, 0]
    np.testing.assert_allclose(link, expected, atol=1e-12)
    np.testing.assert_allclose(found.predict(X), np.exp(link))
    np.testing.assert_allclose(found.to_frame()["hazard_ratio"], np.exp(found.coefficients[:, 0]))
    assert found.to_xarray()["coefficients"].shape == (3, 1)
    assert "Hazard ratios, for one more unit of a column" in str(found)


def test_score_has_d2_and_the_concordance_of_all_pairs() -> None:
    X, y = drawn(90)
    found = dsel.select(X[:60], y[:60], k=2, loss="cox")
    new, target, w = X[60:].round(1), y[60:], np.tile([1.0, 2.0, 0.5], 10)
    scores, risk = found.score(new, target, sample_weight=w), found.predict(new)
    agree = pairs = 0.0
    for i in np.flatnonzero(target[:, 1] > 0.0):
        later = (target[:, 0] > target[i, 0]) | ((target[:, 0] == target[i, 0]) & (target[:, 1] == 0.0))
        pairs += w[i] * w[later].sum()
        agree += w[i] * (w[later] * ((risk[later] < risk[i]) + 0.5 * (risk[later] == risk[i]))).sum()
    assert scores["concordance"] == pytest.approx(agree / pairs)
    Z, one = np.log(risk)[:, None], np.ones(1)
    value, null = (float(likelihood(Z, target, b, w, np.zeros(30))[0]) for b in (one, 0.0 * one))
    assert scores["deviance"] == pytest.approx(value)
    assert scores["d2"] == pytest.approx(1.0 - value / null)
    assert found.concordance == pytest.approx(found.score(X[:60], y[:60])["concordance"])


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_a_certificate_is_about_all_subsets(lam: float) -> None:
    X, y = drawn(60, 7, seed=3)
    chosen = dsel.select(X, y, k=2, loss="cox", lam=lam)
    row = dsel.certify(chosen, X, y).certificate[-1]
    values = [least(X, y, S, lam)[0] for S in combinations(range(7), 2)]
    assert row["status"] == "optimal"
    assert row["bound"] <= min(values) * (1.0 + 1e-12)
    assert row["value"] == pytest.approx(min(values), rel=1e-8)


def test_a_certificate_of_wide_data_reads_few_columns_into_memory() -> None:
    X, y = drawn(60, 8, seed=3)
    wide = np.hstack([X, 0.1 * np.random.default_rng(0).normal(size=(60, 3100))])
    row = dsel.certify(dsel.select(wide, y, k=1, loss="cox", lam=50.0), wide, y).certificate[-1]
    scaled = wide / wide.std(axis=0)
    first = [np.abs(likelihood(scaled[:, [j]], y, np.zeros(1), np.ones(60), np.zeros(60))[1][0]) for j in range(300)]
    near = np.argsort(first)[-10:]
    assert row["status"] == "optimal"
    assert row["bound"] <= min(least(wide, y, [j], 50.0)[0] for j in near)


def test_alternatives_are_all_near_best_subsets() -> None:
    X, y = drawn(60, 7, seed=3)
    found = dsel.alternatives(dsel.select(X, y, k=2, loss="cox", lam=1.0), X, y, within=0.3)
    values = {S: least(X, y, S, 1.0)[0] for S in combinations(range(7), 2)}
    best = min(values.values())
    assert found.complete
    near = {S for S, value in values.items() if value <= best + 0.3 * (found.total - best)}
    assert {tuple(sorted(row.indices)) for row in found.subsets} == near


def test_arrays_frames_structured_arrays_and_stores_give_one_answer(tmp_path: Path) -> None:
    X, y = drawn()
    found = dsel.select(X, y, k=3, loss="cox", lam=1.0)
    surv = np.array([(bool(event), time) for time, event in y], dtype=[("event", bool), ("time", float)])
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)]).assign(event=y[:, 1] > 0.0, time=y[:, 0])
    store = make_store(tmp_path / "s.zarr", X, y, chunks=(33, 3))
    named = dsel.select(frame, ["time", "event"], k=3, loss="cox", lam=1.0)
    others = [dsel.select(X, surv, k=3, loss="cox", lam=1.0), named, dsel.select(store, k=3, loss="cox", lam=1.0)]
    for other in others:
        assert other.indices == found.indices
        assert other.error == pytest.approx(found.error, rel=1e-10)
        np.testing.assert_allclose(other.predict(X), found.predict(X), rtol=1e-8)
    assert named.targets == ("time", "event")
    assert dsel.certify(named, frame).certificate[-1]["status"] == "optimal"
    event_first = dsel.select(X, y[:, ::-1], k=3, loss="cox", lam=1.0)
    assert event_first.error == found.error
    assert "the first target is the event, and the second one the time" in event_first.notes
    assert event_first.score(X, y) == event_first.score(X, y[:, ::-1]) == found.score(X, y)
    assert found.score(X, surv) == pytest.approx(named.score(frame, frame[["time", "event"]]))
    found.save(tmp_path / "run")
    again = dsel.open_selection(tmp_path / "run")
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    assert again.concordance == found.concordance


def test_the_number_of_columns_follows_events_or_left_out_rows() -> None:
    X, y = drawn(200, seed=5)
    by_bic = dsel.select(X, y, k="auto", loss="cox", max_k=5)
    ties = np.unique(y[y[:, 1] > 0.0, 0], return_counts=True)[1]  # likelihoods do not have their saturated model
    front = {row.size: row.error + 2.0 * ties @ np.log(ties) for row in by_bic.front}
    for point in by_bic.size_curve.points:
        assert point.value == pytest.approx(front[point.size] + point.size * np.log(y[:, 1].sum()))
    by_folds = dsel.select(X, y, k="auto", loss="cox", choose_k="folds", max_k=5)
    assert {1, 4} <= set(by_folds.indices)


def test_folds_without_an_event_do_not_count() -> None:
    X, y = drawn(120, seed=5)
    y[90:, 1] = 0.0
    asked: dict[str, Any] = {"k": "auto", "loss": "cox", "max_k": 3}
    block = np.arange(120) // 30
    with_events = [(np.flatnonzero(block != i), np.flatnonzero(block == i)) for i in range(3)]
    rules: list[dict[str, Any]] = [{"folds": 4, "split": "blocks"}, {"split": with_events}]
    all_four, three = (dsel.select(X, y, choose_k=rule, **asked).size_curve for rule in rules)
    assert all_four is not None
    assert three is not None
    for found, expected in zip(all_four.points, three.points, strict=True):
        assert found.value == pytest.approx(expected.value)
        assert found.standard_error == pytest.approx(expected.standard_error)
    assert all_four.description.endswith(", without 1 fold in which no event comes before other rows")


def test_groups_and_wide_data_are_selected() -> None:
    X, y = drawn(60, 8, seed=3)
    groups = dsel.select(X, y, k=1, loss="cox", groups={"a": [0, 1], "b": [2, 3, 4], "c": [5, 6, 7]})
    values = {name: least(X, y, S)[0] for name, S in {"a": (0, 1), "b": (2, 3, 4), "c": (5, 6, 7)}.items()}
    assert list(groups.groups) == [min(values, key=values.__getitem__)]
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(60, 1800))])
    found = dsel.select(wide, y, k=1, loss="cox", lam=5.0)
    best = min(least(wide[:, [j]], y, [0], 5.0)[0] for j in range(8))
    assert found.error <= best * (1.0 + 1e-9)


def test_fits_hold_few_columns_at_a_time_and_too_many_rows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = drawn()
    store = make_store(tmp_path / "s.zarr", X, y, chunks=(33, 3))
    whole = dsel.select(store, k=2, loss="cox", lam=1.0)
    monkeypatch.setattr("dsel.passes.loss_data.KEPT_BYTES", 8 * 150 * 6)  # three columns and their targets
    found = dsel.select(store, k=2, loss="cox", lam=1.0)
    assert found.indices == whole.indices
    assert found.error == pytest.approx(whole.error, rel=1e-10)
    with pytest.raises(CapacityError, match="holds all rows of the columns of a fit: 150 rows of 4 columns"):
        dsel.plan(store, k=4, loss="cox")


def test_columns_that_order_the_events_are_named() -> None:
    X, _ = drawn(50, 6)
    found = dsel.select(X, np.column_stack([X[:, 2] - X[:, 2].min(), np.ones(50)]), k=1, loss="cox")
    assert found.labels == ["x2"]
    assert any("column x2 orders the events: without a penalty the fit is infinite" in note for note in found.notes)


@pytest.mark.parametrize("seed", [2, 3, 8])
def test_a_fit_without_an_end_has_one_deviance_and_one_note(seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(80, 8))
    found = dsel.select(X, np.column_stack([np.exp(-X[:, 2] - X[:, 5]), np.ones(80)]), k=2, loss="cox")
    assert set(found.labels) == {"x2", "x5"}
    assert found.r2 == pytest.approx(next(row.r2 for row in found.front if row.size == 2), rel=1e-9)
    assert len(found.notes) == 1
    assert "order the events: without a penalty the fit is infinite" in found.notes[0]


@pytest.mark.parametrize("lam", [1.0, 1e-3, 1e-6, 1e-8])
def test_a_small_penalty_gives_events_in_order_their_minimum(lam: float) -> None:
    X = np.random.default_rng(3).normal(size=(200, 8))
    found = dsel.select(X, np.column_stack([np.exp(-X[:, 0]), np.ones(200)]), k=1, loss="cox", lam=lam)
    z = np.sort((X[:, 0] - X[:, 0].mean()) / X[:, 0].std())

    def penalized(b: float) -> float:  # the risk set of a row are those with at most its value
        return float(2.0 * (np.logaddexp.accumulate(b * z) - b * z).sum() + lam * b * b)

    best = scipy.optimize.minimize_scalar(penalized, bounds=(0.0, 2e4), method="bounded", options={"xatol": 1e-7})
    assert found.error == pytest.approx(best.fun, rel=1e-9)
    assert found.coefficients[0, 0] * X[:, 0].std() == pytest.approx(best.x, rel=1e-5)
    assert not found.notes


def test_a_penalized_fit_that_digits_stop_says_so_and_a_small_penalty_has_a_proof() -> None:
    X = np.random.default_rng(3).normal(size=(200, 8))
    survival = np.column_stack([np.exp(-X[:, 0]), np.ones(200)])
    stopped = dsel.select(X, survival, k=1, loss="cox", lam=1e-12)
    assert [note.split(",")[0] for note in stopped.notes] == ["the fit stopped before its minimum"]
    certified = dsel.certify(dsel.select(X, survival, k=1, loss="cox", lam=1e-8), X, survival)
    assert certified.certificate[-1]["proven"]
    assert certified.certificate[-1]["bound"] == pytest.approx(certified.error, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((3, 0, -1.0), "times of at least 0, and row 3 has -1"),
        ((3, 0, np.nan), "NaN"),
        ((7, 1, 2.0), "1 for an event and 0 for a time that was cut off, and row 7 has 2"),
        ((slice(None), 1, 0.0), "No row with weight has an event"),
    ],
)
def test_wrong_targets_are_refused(change: tuple[Any, Any, float], message: str) -> None:
    X, y = drawn(40, 6)
    y[change[0], change[1]] = change[2]
    with pytest.raises(DataError, match=message):
        dsel.select(X, y, k=1, loss="cox")


def test_other_targets_are_refused_with_a_remedy() -> None:
    X, y = drawn(40, 6)
    with pytest.raises(OptionError, match="takes two targets, the time and the event, and there are 1"):
        dsel.select(X, y[:, 0], k=1, loss="cox")
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(time=y[:, 0], event=np.where(y[:, 1] > 0, "dead", "alive"))
    with pytest.raises(OptionError, match="Give 1 and 0, or booleans"):
        dsel.select(frame, ["time", "event"], k=1, loss="cox")
    with pytest.raises(OptionError, match="Use 'cox'"):
        dsel.select(X, y, k=1, loss="coxph")


def test_a_regressor_of_scikit_learn_predicts_hazard_ratios() -> None:
    X, y = drawn()
    surv = np.array([(bool(event), time) for time, event in y], dtype=[("event", bool), ("time", float)])
    found = dsel.select(X, y, k=2, loss="cox")
    for target in (y, surv, pd.DataFrame(y, columns=["time", "event"])):
        model = SubsetRegressor(2, loss="cox").fit(X, target)
        np.testing.assert_allclose(model.predict(X), found.predict(X))
        assert model.score(X, target) == pytest.approx(found.r2)


def test_a_fit_that_rounding_stopped_is_certified_on_its_data_alone() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(100, 5))
    y = np.column_stack([np.exp(-X[:, 2]), np.ones(100)])
    found = dsel.select(X, y, k=1, loss="cox", lam=1e-14)
    assert any("stopped before its minimum" in note for note in found.notes)
    assert dsel.certify(found, X, y, seconds=1).indices == found.indices
    with pytest.raises(DataError, match="These are not the data of the selection"):
        dsel.certify(found, X[::-1], y)


@pytest.mark.usefixtures("no_pictures")
def test_the_report_has_the_concordance(tmp_path: Path) -> None:
    X, y = drawn(60, 6)
    found = dsel.select(X, y, k=2, loss="cox")
    found.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Concordance" in page
    assert "Hazard ratio" in page


def test_no_note_promises_a_better_deviance_than_zero() -> None:
    x = np.array([-0.918, 0.855, -1.324, 0.729, 0.49, -0.152])
    others = [[-0.341, -0.779, 0.243, 1.299, 1.982, 0.689], [1.236, -0.875, 0.574, 0.025, -0.025, -1.056]]
    times = [0.06057007, 0.44890456, 0.31305932, 0.84365336, 0.52122484, 0.46204599]
    X, Y = np.column_stack([*others, x]), np.column_stack([times, [0, 1, 0, 1, 0, 0]])
    found = dsel.select(X, Y, k=1, loss="cox", method="exhaustive")
    assert found.r2 == pytest.approx(1.0)
    assert any("orders the events: without a penalty the fit is infinite" in note for note in found.notes)
    assert not any("better deviance" in note for note in found.notes)
