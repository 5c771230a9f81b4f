"""Certificates for groups of columns by a loss: indicator columns of categories, included groups, a better answer."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.errors import CapacityError, OptionError
from dsel.jobs.certify import describe


def frame(m: int = 150, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return numbers and categories, and counts that two of each explain."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.normal(size=(m, 4)), columns=list("abcd"))
    data["city"] = rng.choice(["ulm", "kiel", "bonn", "jena"], m)
    data["color"] = rng.choice(["red", "blue", "green"], m)
    data["day"] = rng.choice(["mo", "tu", "we", "th", "fr"], m)
    eta = 0.3 * data["a"] + data["city"].map({"ulm": 0.5, "kiel": -0.5, "bonn": 0.2, "jena": 0.0})
    eta += data["day"].map({"mo": 0.4, "tu": 0.0, "we": -0.4, "th": 0.3, "fr": 0.0})
    return data, rng.poisson(np.exp(eta)).astype(float)


def deviance(data: pd.DataFrame, y: np.ndarray, names: tuple[str, ...], lam: float) -> float:
    """Return F of some columns of the frame, as `dsel.select` fits them."""
    return dsel.select(
        data[list(names)], y, k=len(names), include=list(names), method="forward", loss="poisson", lam=lam
    ).error


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_categories_are_proved_as_groups(lam: float) -> None:
    data, y = frame()
    found = dsel.certify(dsel.select(data, y, k=3, loss="poisson", lam=lam), data, y, sizes="all")
    for row in found.certificate:
        values = {S: deviance(data, y, S, lam) for S in combinations(data.columns, row["size"])}
        assert row["status"] == "optimal"
        assert row["value"] == pytest.approx(min(values.values()), rel=1e-6)
        assert row["bound"] <= min(values.values()) * (1.0 + 1e-9)
    assert [row["size"] for row in found.certificate] == [1, 2, 3]
    assert "Certificate, 3 groups of columns: proved optimal" in str(found)
    assert describe(found.certificate[-1], found).startswith("3 groups of columns: proved optimal")


def test_a_group_that_is_included_is_in_every_subset_and_an_excluded_one_in_none() -> None:
    data, y = frame(seed=1)
    found = dsel.certify(dsel.select(data, y, k=3, loss="poisson", lam=1.0, include=["color"], exclude=["a"]), data, y)
    allowed = [("color", *S) for S in combinations([name for name in data.columns if name not in ("color", "a")], 2)]
    best = min(deviance(data, y, S, 1.0) for S in allowed)
    assert found.certificate[-1]["proven"]
    assert found.certificate[-1]["value"] == pytest.approx(best, rel=1e-6)
    assert "color" in found.groups


@pytest.mark.parametrize("lam", [0.0, 1e-9])
@pytest.mark.parametrize("loss", ["logistic", "multinomial", "poisson", "gamma", "huber", "quantile", "cox"])
def test_a_category_is_included_without_a_penalty(loss: str, lam: float) -> None:
    data, y = frame()
    data = data[["a", "b", "c", "color"]]
    targets = {
        "logistic": np.where(y > 1.0, "many", "few"), "multinomial": np.minimum(y, 2.0), "gamma": y + 0.5,
        "cox": pd.DataFrame({"time": 1.0 / (y + 1.0), "event": True}),
    }  # fmt: skip
    target = targets.get(loss, y)
    found = dsel.certify(dsel.select(data, target, k=2, loss=loss, lam=lam, include=["color"]), data, target)
    errors = {}
    for name in "abc":  # the same columns without one that depends on the others
        plain = pd.get_dummies(data[[name, "color"]], dtype=float).drop(columns="color_red")
        errors[name] = dsel.select(plain, target, k=3, loss=loss, include=list(plain)).error
    assert found.groups.keys() == {"color", min(errors, key=errors.__getitem__)}
    assert found.error == pytest.approx(min(errors.values()), rel=1e-6)
    assert found.certificate[-1]["proven"]
    assert np.isfinite(np.asarray(found.predict(data))).all()
    if not lam:
        assert sum(not np.any(b) for b in found.coefficients) == 1
        listed = dsel.alternatives(found, data, target, within=0.99)
        assert [one.error for one in listed.subsets] == pytest.approx(sorted(errors.values()), rel=1e-5)


def test_better_groups_replace_the_answer(tmp_path: Path) -> None:
    data, y = frame(seed=2)
    worse = dsel.select(data, y, k=2, loss="poisson", lam=1.0, include=["c", "color"])
    worse = worse.__class__(**{**vars(worse), "request": worse.request.model_copy(update={"include": ()})})
    found = dsel.certify(worse, data, y)
    best = min((deviance(data, y, S, 1.0), S) for S in combinations(data.columns, 2))
    assert found.error == pytest.approx(best[0], rel=1e-6)
    assert set(found.groups) == set(best[1])
    assert found.front[-1].size == 2
    assert any("the proof found these columns" in note for note in found.notes)
    found.report(tmp_path / "report.html")
    found.save(tmp_path / "result")
    assert dsel.open_selection(tmp_path / "result").certificate == found.certificate


def test_a_limit_of_coefficients_holds_for_those_of_all_columns() -> None:
    data, y = frame(seed=3)
    found = dsel.certify(dsel.select(data, y, k=2, loss="poisson"), data, y, largest_coefficient=1.5)
    best = min(deviance(data, y, S, 0.0) for S in combinations(data.columns, 2))
    assert found.certificate[-1]["proven"]
    assert found.certificate[-1]["value"] == pytest.approx(best, rel=1e-6)
    assert found.certificate[-1]["largest_coefficient"] > 0.0


@pytest.mark.parametrize("include", [(), ("color",)])
def test_near_best_sets_of_groups_are_listed(include: tuple[str, ...]) -> None:
    data, y = frame(seed=4)
    selection = dsel.select(data, y, k=2, loss="poisson", lam=1.0, include=list(include))
    found = dsel.alternatives(selection, data, y, within=0.5)
    others = [name for name in data.columns if name not in include]
    values = {(*include, *S): deviance(data, y, (*include, *S), 1.0) for S in combinations(others, 2 - len(include))}
    near = {S: f for S, f in values.items() if f <= found.limit_error}
    assert 1 < len(near) < len(values)
    assert [row.error for row in found.subsets] == pytest.approx(sorted(near.values()), rel=1e-6)
    assert found.complete
    assert list(found.verdicts) == others
    for name, price in found.prices.items():
        has = {name in S for S in near}
        assert price.verdict == {(True,): "necessary", (False,): "useless"}.get(tuple(has), "replaceable")
        assert price.bound_without <= min(f for S, f in values.items() if name not in S) * (1.0 + 1e-9)
        assert len(price.columns) == (1 if name in "abcd" else data[name].nunique())
    assert "of 2 groups of columns within 50.00% of the best" in str(selection.with_alternatives(found))


def test_what_there_is_for_columns_only_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data, y = frame()
    found = dsel.select(data, y, k=2, loss="poisson", lam=1.0)
    with pytest.raises(OptionError, match="by: there is none for the loss poisson"):
        dsel.alternatives(found, data, y, nbest=3, by="bic")
    monkeypatch.setattr("dsel.selection.loss_certificate.MOST_RELAXED", 5)
    with pytest.raises(CapacityError, match=r"groups of columns holds all columns.*at most 5 are left"):
        dsel.certify(found, data, y)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_no_subset_has_the_constant_column_of_an_included_group(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([np.zeros(30), rng.standard_normal((30, 3))])
    y = (X[:, 1] + X[:, 2] + rng.standard_normal(30) > 0).astype(int)
    chosen = dsel.select(X, y, k=2, groups=[[0, 2], [1]], include=[2], loss=loss, method="forward", progress=False)
    assert chosen.indices == chosen.front[-1].indices == (2, 1)
    assert chosen.front[-1].error == pytest.approx(chosen.error)
    assert dsel.alternatives(chosen, X, y, progress=False).subsets[0].indices == (2, 1)
