"""A search on a reduced problem answers for the data: errors are those of the data, and bounds hold for them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.errors import OptionError
from tests.stores import make_store

M, N, K = 60, 14, 3
CHUNKS = {"full rows": (16, N), "column blocks": (M, 5), "both": (16, 5)}


def data(targets: int) -> tuple[Any, Any]:
    """Return columns of decaying directions, and targets (X itself for 0) that some of the columns explain."""
    rng = np.random.default_rng(targets)
    X = rng.standard_normal((M, N)) * 0.7 ** np.arange(N) @ np.linalg.qr(rng.standard_normal((N, N)))[0]
    X -= X.mean(axis=0)
    if not targets:
        return X, X
    Y = X[:, :4] @ rng.standard_normal((4, targets)) + 0.3 * rng.standard_normal((M, targets))
    return X, Y - Y.mean(axis=0)


def best_error(X: Any, Y: Any, lam: float) -> float:
    """Return the least f of all subsets of K columns."""

    def f(S: tuple[int, ...]) -> float:
        Z = X[:, list(S)]
        return float(np.square(Y).sum() - np.vdot(Z.T @ Y, np.linalg.solve(Z.T @ Z + lam * np.eye(K), Z.T @ Y)))

    return min(f(S) for S in combinations(range(N), K))


@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("rule", [{"rank": 4}, {"rank": 9}, {"rank": N}, {"accuracy": 0.95}], ids=str)
@pytest.mark.parametrize("targets", [0, 1, 3, 20])
@pytest.mark.parametrize("method", ["astar", "branch-and-bound"])
def test_the_bound_holds_for_the_data(method: str, targets: int, rule: dict[str, Any], lam: float) -> None:
    X, Y = data(targets)
    arguments = (X, Y) if targets else (X,)
    found = dsel.select(*arguments, k=K, method=method, preprocess="none", reduce=rule, lam=lam)
    best = best_error(X, Y, lam)
    assert found.counts["representation"] == "sketch"
    assert found.certificate[-1]["bound"] <= best * (1 + 1e-9)
    assert found.error >= best * (1 - 1e-9)
    assert found.front[-1].error == pytest.approx(found.error)
    if rule == {"rank": N} and targets <= N:  # nothing is left out
        assert found.error == pytest.approx(best)
        assert found.certificate[-1]["bound"] == pytest.approx(best, rel=1e-3)  # less what rounding may be worth
        assert found.counts["left_out"] < 1e-9
    if rule == {"accuracy": 0.95}:
        assert found.counts["captured"] >= 0.95
    assert any("what it leaves out lowers a bound" in note for note in found.notes)


@pytest.mark.parametrize("targets", [0, 1, 3])
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_do_not_change_a_reduced_problem(tmp_path: Path, chunks: str, targets: int) -> None:
    X, Y = data(targets)
    store = str(make_store(tmp_path / "x.zarr", X, Y if targets else None, CHUNKS[chunks]))
    in_memory = dsel.select(*((X, Y) if targets else (X,)), k=K, method="astar", reduce={"rank": 6})
    found = dsel.select(store, k=K, method="astar", reduce={"rank": 6})
    assert found.indices == in_memory.indices
    assert found.error == pytest.approx(in_memory.error, rel=1e-9)
    assert found.certificate[-1]["bound"] == pytest.approx(in_memory.certificate[-1]["bound"], rel=1e-7)
    assert found.plan is not None
    assert found.plan["planned"]["passes"] == found.plan["measured"]["passes"]


def test_a_star_prunes_by_a_subset_of_the_reduced_problem() -> None:
    X, Y = data(1)
    pruned, plain = (dsel.select(X, Y, k=K, method="astar", reduce={"rank": 4}, prune=prune) for prune in (True, False))
    assert pruned.error == pytest.approx(plain.error)


@pytest.mark.parametrize("lam", [0.0, 0.5])
def test_an_automatic_k_has_the_criterion_of_the_data(lam: float) -> None:
    """The least BIC of a reduced problem was that of its own errors, which are smaller."""
    X, Y = data(1)
    found = dsel.select(X, Y, k="auto", max_k=K, choose_k="bic", reduce={"rank": 4}, preprocess="none", lam=lam)
    S = list(found.indices)
    A = np.linalg.solve(X[:, S].T @ X[:, S] + lam * np.eye(len(S)), X[:, S].T @ Y)
    values = np.linalg.eigvalsh(X[:, S].T @ X[:, S])
    bic = M * np.log(np.square(Y - X[:, S] @ A).sum() / M) + (values / (values + lam)).sum() * np.log(M)
    assert found.size_curve is not None
    assert any("bic has the degrees of freedom of the reduced problem" in note for note in found.notes) == (lam > 0.0)
    value = next(point.value for point in found.size_curve.points if point.size == found.k)
    assert value == pytest.approx(bic, rel=2e-3 if lam else 1e-9)  # degrees of freedom are those of the reduced problem


def test_cp_of_a_reduced_problem_is_refused() -> None:
    X, Y = data(1)
    with pytest.raises(OptionError, match=r"Cp needs all of the data, not reduced ones\. Choose by aicc or bic"):
        dsel.select(X, Y, k="auto", max_k=K, choose_k="cp", reduce={"rank": 4})


@pytest.mark.parametrize("rule", [{"rank": 3}, {"accuracy": 0.5}], ids=str)
def test_groups_with_more_columns_than_the_rank_are_refused(rule: Any) -> None:
    """Columns that depend on others in the reduced problem had coefficient 0, and the error was too large."""
    X, Y = data(1)
    asked: dict[str, Any] = {"k": 2, "groups": [[0, 1, 2, 3], [4, 5, 6]], "method": "forward"}
    with pytest.raises(OptionError, match=r"2 groups have up to 7 columns.*Give reduce a rank of at least 7"):
        dsel.select(X, Y, reduce=rule, **asked)
    selection = dsel.select(X, Y, reduce={"rank": 8}, **asked)
    assert selection.error == pytest.approx(next(row.error for row in selection.front if row.size == 2))
