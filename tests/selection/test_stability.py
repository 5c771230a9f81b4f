"""Stability selection: frequencies are those of selections on the rows of each subsample, and the bounds hold."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.divide_rows import partition_rows
from dsel.errors import CapacityError, DataError, OptionError
from dsel.selection.context import RunContext
from dsel.selection.stability.result import error_bound, unimodal_factor
from dsel.selection.stability.run import _draws, run_stability
from tests.cli_runner import call
from tests.stores import make_store


def problem(m: int = 160, n: int = 10, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    X[:, 1] += 0.9 * X[:, 0]
    return X, (1.5 * X[:, 4] - X[:, 6] + 0.4 * X[:, 1] + rng.normal(size=m))[:, None]


def expected(X: Any, Y: Any, k: int, resample: Any, samples: int, parts: int, **options: Any) -> Any:
    """The frequencies by selections on the rows of each subsample, repeated as often as their part is drawn."""
    part = partition_rows(as_dataset(X, Y), folds=parts).of_rows(0, len(X))
    found, draws = np.zeros((k, X.shape[1])), list(_draws(resample, samples, parts, 0))
    for times in draws:
        rows = np.repeat(np.arange(len(X)), times[part])
        for size in range(1, k + 1):
            found[size - 1, list(dsel.select(X[rows], Y[rows], k=size, **options).indices)] += 1.0 / len(draws)
    return found


@pytest.mark.parametrize("resample", ["pairs", "halves", "bootstrap"])
@pytest.mark.parametrize("method", ["forward", "exchange"])
def test_frequencies_are_those_of_selections_on_the_rows(resample: Any, method: str) -> None:
    X, Y = problem()
    found = dsel.stability(X, Y, k=3, method=method, resample=resample, samples=8, parts=8)
    assert found.frequencies == pytest.approx(expected(X, Y, 3, resample, 8, 8, method=method))
    assert found.passes == 1


@pytest.mark.parametrize("loss", ["logistic", "poisson", "cox", "multinomial"])
@pytest.mark.parametrize("preprocess", ["standardize", "unit", "center"])
def test_by_a_loss_the_best_subsets_of_its_model_have_the_scales_of_their_rows(loss: str, preprocess: str) -> None:
    rng = np.random.default_rng(5)
    X = np.exp(0.9 * rng.normal(size=(160, 5))) * [1.0, 30.0, 0.02, 5.0, 1.0]
    eta, w = X @ [0.3, 0.01, 10.0, 0.0, -0.1], rng.uniform(0.2, 3.0, 160)
    targets: dict[str, Any] = {
        "logistic": rng.random(160) < 1.0 / (1.0 + np.exp(1.0 - eta)), "poisson": rng.poisson(np.exp(eta)),
        "cox": np.column_stack([rng.exponential(np.exp(-eta)), rng.random(160) < 0.7]),
        "multinomial": np.argmax(np.column_stack([eta, 0.2 * X[:, 3], 0.0 * eta]) + rng.gumbel(size=(160, 3)), axis=1),
    }  # fmt: skip
    y = np.asarray(targets[loss], float)
    asked: dict[str, Any] = {"loss": loss, "preprocess": preprocess, "lam": 15.0, "sample_weight": w}
    found = dsel.stability(X, y, k=2, method="exhaustive", samples=8, parts=8, **asked)

    best = dsel.select(X, y, k=2, method="exhaustive", **asked)
    contrasts = best.loss.contrasts
    scores = X[:, list(best.indices)] @ best.coefficients + best.intercept
    at = scores[:, 0] if contrasts is None else scores @ contrasts
    mean: Any = np.average(y if contrasts is None else y[:, None] == [0.0, 1.0, 2.0], axis=0, weights=w)
    null = 0.0 if loss == "cox" else np.log(mean)
    null = null - np.log(1.0 - mean) if loss == "logistic" else null if contrasts is None else null @ contrasts
    weight, step = best.loss.of_rows(best.loss.encode(y), w).model_to_null(at, null + 0.0 * at)
    target = (at - step).reshape(160, -1)
    part = partition_rows(as_dataset(X, y), folds=8).of_rows(0, 160)
    expected = np.zeros(5)
    for times in _draws("pairs", 8, 8, 0):
        rows = times[part] > 0
        Z = X[rows]
        means = np.average(Z, axis=0, weights=w[rows])
        squares = w[rows] @ (Z - means if preprocess == "standardize" else Z) ** 2
        Z = Z / {"standardize": np.sqrt(squares / w[rows].sum()), "unit": np.sqrt(squares), "center": 1.0}[preprocess]

        def value(S: tuple[int, ...], Z: Any = Z, rows: Any = rows) -> float:
            constant = np.full((len(Z), int(loss == "cox" or preprocess != "unit")), 1.0)
            A = np.hstack([constant, Z[:, S]]) * np.sqrt(weight[rows])[:, None]
            t = target[rows] * np.sqrt(weight[rows])[:, None]
            penalty = np.diag(np.sqrt([0.0] * constant.shape[1] + [15.0] * len(S)))
            A, t = np.vstack([A, penalty]), np.vstack([t, np.zeros((len(penalty), t.shape[1]))])
            return float(np.square(t - A @ np.linalg.lstsq(A, t, rcond=None)[0]).sum())

        expected[list(min(combinations(range(5), 2), key=value))] += 1.0 / 8.0
    assert found.frequency() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("loss", "exceptions"),
    [("logistic", 0), ("logistic", 2), ("poisson", 0), ("cox", 2), ("multinomial", 0)],
)
def test_a_column_without_a_finite_coefficient_is_chosen_as_on_the_rows(loss: str, exceptions: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    vip = rng.random(300) < 0.25
    X[:, 5] = vip
    eta = X @ [0.5, 0.3, 0.0, 0.0, 0.0, 0.0]
    told = vip & (np.cumsum(vip) > exceptions)  # of the other rows of the column, nothing is known
    targets: dict[str, Any] = {
        "logistic": told | (rng.random(300) < 1.0 / (1.0 + np.exp(0.6 - eta))),
        "poisson": np.where(told, 0, rng.poisson(np.exp(eta))),
        "cox": np.column_stack([rng.exponential(np.exp(-eta)), (rng.random(300) < 0.7) & ~told]),
        "multinomial": np.where(told, 0, np.argmax(rng.gumbel(size=(300, 3)) + eta[:, None] * [1, 0, -1], axis=1)),
    }
    y = np.asarray(targets[loss], float)
    found = dsel.stability(X, y, k=2, loss=loss, samples=4, parts=8)
    of_rows = expected(X, y, 2, "pairs", 4, 8, method="forward", loss=loss)
    assert of_rows[1, 5] == found.frequency()[5] == 1.0
    assert np.abs(found.frequency() - of_rows[1]).max() <= 0.25
    assert any("no finite coefficient" in note for note in found.notes) == (not exceptions)
    assert ("Note: on all rows, no finite" in str(found)) == (not exceptions)


def test_weights_of_classes_are_weights_of_their_rows() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 6))
    y = rng.random(200) < 1.0 / (1.0 + np.exp(2.0 - X[:, 0] - 0.5 * X[:, 1]))
    asked: dict[str, Any] = {"k": 3, "loss": "logistic", "samples": 10, "parts": 10}
    by_class = dsel.stability(X, y, class_weight={1: 4.0}, **asked)
    by_row = dsel.stability(X, y, sample_weight=np.where(y, 4.0, 1.0), **asked)
    assert by_class.frequencies == pytest.approx(by_row.frequencies)
    assert by_class.frequencies != pytest.approx(dsel.stability(X, y, **asked).frequencies)
    assert by_class.request["class_weight"] == {"1": 4.0}


def test_pairs_are_complementary_halves() -> None:
    draws = list(_draws("pairs", 40, 10, 3))
    assert len(draws) == 40
    for one, other in zip(draws[::2], draws[1::2], strict=True):
        assert (one + other == 1).all()
        assert one.sum() == 5
    assert len({tuple(one) for one in draws}) > 30
    assert all(times.sum() == 10 for times in _draws("bootstrap", 5, 10, 0))


def test_a_store_takes_one_pass_on_any_chunks(tmp_path: Path) -> None:
    X, Y = problem()
    arguments: dict[str, Any] = {"k": 3, "samples": 10, "parts": 10}
    whole = dsel.stability(X, Y, **arguments)
    for chunk in (23, 160):
        store = make_store(tmp_path / f"{chunk}.zarr", X, Y, (chunk, 10))
        found = dsel.stability(str(store), **arguments)
        assert found.passes == 1
        assert found.bytes_read == 8 * 160 * 11
        assert np.array_equal(found.frequencies, whole.frequencies)


def test_true_columns_are_stable_and_noise_is_not() -> None:
    X, Y = problem(m=400, n=30)
    found = dsel.stability(X, Y, k=4, samples=50)
    assert {"x4", "x6"} <= set(found.stable(0.9)) <= {"x4", "x6", "x1", "x0"}
    assert found.frequency(1).sum() == pytest.approx(1.0)
    frame = found.to_frame()
    assert frame.shape == (30, 4)
    assert frame.loc["x4", 4] == found.frequency()[4]
    assert frame[4].is_monotonic_decreasing


def test_groups_and_included_columns() -> None:
    X, Y = problem()
    found = dsel.stability(X, Y, k=2, samples=10, groups={"pair": [4, 5]}, include=["x2"])
    assert found.names == ("x0", "x1", "x2", "x3", "pair", "x6", "x7", "x8", "x9")
    assert found.frequencies[:, 2].tolist() == [1.0, 1.0]
    assert found.frequency()[4] > 0.9
    assert found.included == (2,)
    assert found.candidates == 8
    assert found.chosen.tolist() == [0.0, 1.0]


def test_the_bound_of_meinshausen_and_buehlmann() -> None:
    X, Y = problem()
    found = dsel.stability(X, Y, k=3, samples=20)
    assert found.error_bound(0.75) == pytest.approx(3**2 / (0.5 * 10))
    assert found.threshold(2.0) == pytest.approx((1 + 9 / (10 * 2.0)) / 2, abs=1e-3)
    assert found.stable(max_errors=2.0) == found.stable(found.threshold(2.0))
    assert found.error_bound(0.75, size=1) < found.error_bound(0.75)
    with pytest.raises(OptionError, match="choose fewer columns"):
        found.stable(max_errors=0.01)
    with pytest.raises(OptionError, match=r"above 0\.5"):
        found.error_bound(0.5)


@pytest.mark.parametrize(("pairs", "theta"), [(10, 0.1), (10, 0.3), (15, 0.05), (15, 0.4), (18, 0.2)])
def test_the_unimodal_bound_holds_for_every_unimodal_distribution(pairs: int, theta: float) -> None:
    """The largest tail of a unimodal distribution on 0, 1/B, ..., 1 of mean theta^2, by linear programming."""
    x = np.arange(pairs + 1) / pairs
    for tau in np.arange(pairs + 2, 2 * pairs + 1) / (2 * pairs):
        factor, worst = unimodal_factor(float(tau), theta, pairs), 0.0
        if not np.isfinite(factor):
            continue
        for mode in range(pairs + 1):
            steps = np.zeros((pairs, pairs + 1))
            for i in range(pairs):
                steps[i, i], steps[i, i + 1] = (1.0, -1.0) if i < mode else (-1.0, 1.0)
            found = linprog(
                -(x >= 2 * tau - 1 - 1e-9).astype(float), A_ub=steps, b_ub=np.zeros(pairs),
                A_eq=np.stack([np.ones(pairs + 1), x]), b_eq=[1.0, theta**2],
            )  # fmt: skip
            worst = max(worst, -found.fun if found.status == 0 else 0.0)
        assert worst <= factor * theta**2 * (1 + 1e-6)
    assert error_bound(0.9, 3.0, 100, pairs, "unimodal") <= error_bound(0.9, 3.0, 100, pairs)


def test_noise_stays_below_the_bound() -> None:
    rng = np.random.default_rng(0)
    mistakes = []
    for _ in range(20):
        X, Y = rng.normal(size=(80, 20)), rng.normal(size=80)
        mistakes.append(len(dsel.stability(X, Y, k=3, samples=20, parts=10).stable(0.8)))
    assert np.mean(mistakes) <= error_bound(0.8, 3.0, 20)


def test_a_result_is_saved_printed_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    X, Y = problem()
    found = dsel.stability(X, Y, k=3, samples=10)
    again = dsel.Stability.open(found.save(tmp_path / "stable"))
    assert again.as_dict() == found.as_dict()
    assert str(again) == str(found)
    ax = found.plot(threshold=0.75, most=5)
    assert [bar.get_width() for bar in ax.patches] == sorted(found.frequency()[found.frequency() > 0])[::-1][:5]
    (tmp_path / "stable" / "stability.json").write_text("{}")
    with pytest.raises(DataError, match="damaged"):
        dsel.Stability.open(tmp_path / "stable")


def test_the_command_line(tmp_path: Path) -> None:
    X, Y = problem()
    store = make_store(tmp_path / "s.zarr", X, Y)
    code, out, err = call(
        "stability", store, "--k", "3", "--samples", "10", "--threshold", "0.9", "--out", tmp_path / "o"
    )
    assert code == 0, err
    assert "10 halves in complementary pairs of 20 random parts of the rows" in out
    assert "Stable, on 90.0% or more: x1, x4, x6" in out
    assert (tmp_path / "o" / "stability.json").is_file()
    code, out, _ = call("stability", store, "--k", "3", "--samples", "10", "--json")
    assert json.loads(out)["frequencies"] == dsel.Stability.open(tmp_path / "o").frequencies.tolist()
    code, _, err = call("stability", store, "--k", "3", "--samples", "9")
    assert code == 64
    assert "even for pairs" in err


def test_the_command_takes_a_loss(tmp_path: Path) -> None:
    X, Y = problem()
    y = (Y[:, :1] > 0).astype(float)
    store = make_store(tmp_path / "s.zarr", X, y)
    code, out, err = call("stability", store, "--k", "2", "--samples", "4", "--loss", "logistic", "--json")
    assert code == 0, err
    expected = dsel.stability(X, y, k=2, samples=4, loss="logistic")
    assert json.loads(out)["frequencies"] == expected.frequencies.tolist()


def test_the_command_fills_missing_values(tmp_path: Path) -> None:
    X, Y = problem()
    X[3, 2] = np.nan
    store = make_store(tmp_path / "s.zarr", X, Y)
    code, _, err = call("stability", store, "--k", "3", "--samples", "4")
    assert (code, "NaN values: 1, in column 'x2', row 3 (" in err) == (65, True)
    code, out, err = call("stability", store, "--k", "3", "--samples", "4", "--missing", "mean", "--json")
    assert code == 0, err
    filled = dsel.stability(X, Y, k=3, samples=4, missing="mean")
    assert json.loads(out)["frequencies"] == filled.frequencies.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"resample": "jackknife"}, "One of pairs, halves, bootstrap"),
        ({"samples": 7}, "even for pairs"),
        ({"parts": 5}, "even: half of the parts"),
        ({"parts": 200}, r"160 rows are too few for 200 parts\. Take fewer parts\.$"),
        ({"k": "auto"}, "needs a number"),
        ({"method": "kfold"}, "needs the rows of a subsample"),
        ({"criterion": sum}, "cannot use a criterion"),
        ({"split": "forward"}, "One of random, blocks"),
        ({"split": "blocks", "row_groups": np.arange(160)}, "exclude each other"),
        ({"row_groups": np.arange(160) // 40}, r"4 groups, too few for 20 parts\. Take fewer parts"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    X, Y = problem()
    with pytest.raises(OptionError, match=message):
        dsel.stability(X, Y, **{"k": 3, **arguments})


def test_there_is_no_bound_for_the_bootstrap() -> None:
    X, Y = problem()
    found = dsel.stability(X, Y, k=2, resample="bootstrap", samples=5, parts=7)
    with pytest.raises(OptionError, match="no error bound"):
        found.error_bound(0.9)
    assert "by mistake" not in str(found)


def test_a_plan_of_the_parts(caplog: Any) -> None:
    X, Y = problem()
    with caplog.at_level("DEBUG", "dsel"):
        run_stability(as_dataset(X, Y), SelectionRequest(k=2, method="forward"), RunContext(), samples=4)
    assert "the Gram matrices of 20 parts of the rows take one pass" in caplog.text


def test_its_short_form_is_one_line_and_its_table_in_a_notebook_has_the_frequencies() -> None:
    X, Y = problem()
    found = dsel.stability(dict_frame(X), Y, k=3, samples=10, parts=10)
    assert repr(found).startswith("<Stability: 10 candidates, k = 3, ")
    assert "\n" not in repr(found)
    assert all("chosen on 75% or more" in text for text in (repr(found), str(found)))
    table = found._repr_html_()
    assert table.count("<tr>") == 1 + len(found.ranked())
    assert "<b>4</b>" not in table
    assert "&lt;b&gt;4&lt;/b&gt;</th><td>100.0%" in table
    assert "to be there by mistake" in table


def dict_frame(X: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame({f"<b>{j}</b>": X[:, j] for j in range(X.shape[1])})


def test_the_sentence_on_mistakes_fits_the_number_of_columns() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 40))
    y = 2.0 * X[:, 0] + 2.0 * X[:, 1] + rng.normal(size=200)
    assert "2 are chosen on 75% or more. At most 0.2 of them are" in str(dsel.stability(X, y, k=2, samples=10))
    one = str(dsel.stability(X, X[:, 0], k=1, samples=10))
    two = dsel.stability(X, y, k=2, samples=10)
    assert "2 are chosen on 90% or more. At most 0.125 of" in two.render(threshold=0.9)
    assert two.render(threshold=0.5).endswith("on 50% or more.")
    assert "1 is chosen on 75% or more. The expected number of mistakes is at most 0.05," in one
    few = str(dsel.stability(X[:, :3], y, k=2, samples=10))
    assert "2 are chosen on 75% or more. The bound on mistakes, 2.67, tells nothing about them." in few
    all_but_one = str(dsel.stability(X[:, :3], y, k=3, include=[2], samples=10))  # which is no finding
    assert "3 are chosen on 75% or more. The bound on mistakes, 2, tells nothing about them." in all_but_one


@pytest.mark.parametrize(
    ("how", "assumed"),
    [
        ({}, "if rows are independent."),
        ({"row_groups": np.arange(200) // 5}, "if groups of rows are independent."),
        ({"split": "blocks"}, "if blocks of rows are independent."),
        ({"resample": "halves"}, "if rows are independent and columns of noise exchangeable."),
    ],
)
def test_the_sentence_on_mistakes_states_the_assumption_of_the_subsamples(how: dict[str, Any], assumed: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20))
    y = X[:, 3] - 2.0 * X[:, 7] + rng.normal(size=200)
    assert str(dsel.stability(X, y, k=3, samples=20, **how)).endswith(f"by mistake, {assumed}")


def test_the_default_threshold_is_that_of_the_text() -> None:
    found = dsel.stability(*problem(m=40, n=30), k=6, samples=20)
    assert found.stable() == found.stable(0.75) != found.stable(0.6)
    assert "\n1 is chosen on 75% or more." in str(found)


def test_where_no_column_is_frequent_no_mistakes_are_told_of() -> None:
    rng = np.random.default_rng(2)
    found = dsel.stability(rng.normal(size=(60, 40)), rng.normal(size=60), k=2, samples=12)
    assert not found.stable(0.75)
    assert str(found).endswith("\nNone are chosen on 75% or more.")
    assert found.render(threshold=0.999).endswith("\nNone are chosen on 99.9% or more.")


def test_long_stability_is_announced_after_the_first_subsample(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dsel.selection.stability.run.LONG_SECONDS", 1e-9)
    dsel.stability(*problem(), k=2, samples=4)
    assert "the other 3 subsamples are expected to take about " in caplog.text


def test_where_the_gram_matrices_of_parts_do_not_fit_fewer_parts_are_the_remedy(monkeypatch: Any) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=20_000))
    with pytest.raises(CapacityError, match="Gram matrices of 20 parts") as error:
        dsel.stability(*problem(), k=2)
    assert "fewer parts, at least 4 and even (the Gram matrices of " in error.value.remedy
    assert "ebic" not in error.value.remedy
    assert dsel.stability(*problem(), k=2, parts=4).parts == 4
