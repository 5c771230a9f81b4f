"""Any method's answer can be polished by exchanges of one column; it never gets worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dsel
from dsel.errors import OptionError


def data(targets: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 24)) + rng.normal(size=(50, 1))
    return X, X[:, :7] @ rng.normal(size=(7, targets)) + rng.normal(size=(50, targets))


def r2(X: np.ndarray, Y: np.ndarray, S: Any) -> float:
    X, Y = X - X.mean(0), Y - Y.mean(0)
    Y = Y / Y.std(0)
    rest = Y - X[:, S] @ np.linalg.lstsq(X[:, S], Y, rcond=None)[0]
    return float(1 - np.square(rest).sum() / np.square(Y).sum())


@pytest.mark.parametrize(
    "method", ["forward", "omp", "foba", "backward", "rfe", "exchange", "poss", "branch-and-bound"]
)
@pytest.mark.parametrize("targets", [1, 3])
def test_no_exchange_of_one_column_improves_a_polished_answer(method: str, targets: int) -> None:
    X, Y = data(targets)
    plain, polished = (dsel.select(X, Y, k=5, method=method, polish=polish) for polish in ("none", "exchange"))
    assert polished.r2 >= plain.r2 - 1e-12
    S = list(polished.indices)
    for i in S:
        rest = [j for j in S if j != i]
        assert max(r2(X, Y, [*rest, j]) for j in range(24) if j not in rest) <= polished.r2 + 1e-9
    best = {row.size: row.r2 for row in plain.front}
    assert all(row.r2 >= best.get(row.size, 0.0) - 1e-12 for row in polished.front)


def test_it_improves_forward_selection_and_says_how_often() -> None:
    X, Y = data()
    plain, polished = (dsel.select(X, Y, k=5, method="forward", polish=polish) for polish in ("none", "exchange"))
    assert polished.r2 > plain.r2 + 1e-3
    assert polished.counts["polished"] > 0
    assert polished.trace[-1].error == pytest.approx(polished.error)
    assert polished.request.polish == "exchange"


def test_groups_are_exchanged_as_a_whole() -> None:
    X, Y = data()
    groups = [[2 * g, 2 * g + 1] for g in range(12)]
    of: dict[str, Any] = {"k": 3, "method": "forward", "groups": groups}
    plain, polished = dsel.select(X, Y, **of), dsel.select(X, Y, **of, polish="exchange")
    assert polished.r2 >= plain.r2
    assert len(polished.groups) == 3
    exchanged = dsel.select(X, Y, k=3, method="exchange", groups=groups, start="forward")
    assert polished.r2 == pytest.approx(exchanged.r2)


def test_included_columns_stay() -> None:
    X, Y = data()
    assert 20 in dsel.select(X, Y, k=4, method="omp", include=[20], polish="exchange").indices


@pytest.mark.parametrize("options", [{"method": "kfold"}, {"method": "greedy-rls"}, {"criterion": len}])
def test_it_is_refused_where_another_error_is_minimized(options: dict[str, Any]) -> None:
    X, Y = data()
    with pytest.raises(OptionError, match="polish: exchange lowers the error of the fit"):
        dsel.plan(X, Y, k=3, polish="exchange", **options)
