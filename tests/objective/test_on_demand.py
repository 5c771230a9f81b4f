"""Searches on demand find what they find on a whole Gram matrix, and fetch few rows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dsel.errors import CapacityError, OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.astar import partial_expansion
from dsel.search.exact.astar.partial_expansion import WideAStar
from dsel.search.exact.astar.search import AStar
from dsel.search.greedy.exchange import exchange
from dsel.search.greedy.path import foba, forward
from dsel.search.pareto.compiled import Poss
from tests.search.cases import continued

M, N_COLUMNS = 40, 1200


class Counting(InMemoryFactor):
    """A factor that records how it is used."""

    passes: list[int]

    def products(self, V: Any) -> Any:
        """Record the width of V."""
        self.__dict__.setdefault("passes", []).append(V.shape[1])
        return super().products(V)


def problem(N: int | None, lam: float, leading: int = 12) -> tuple[DenseObjective, OnDemandObjective, Counting]:
    """The same problem, dense and on demand. N None: Y = X."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((M, N_COLUMNS)) + 0.4 * rng.standard_normal((M, 1))
    X[:, 7] = X[:, 3] + 0.01 * rng.standard_normal(M)
    Y = X if N is None else X[:, :5] @ rng.standard_normal((5, N)) + rng.standard_normal((M, N))
    cross, c = None if N is None else X.T @ Y, float(np.vdot(Y, Y))
    whole = DenseObjective(X.T @ X, cross, c, lam)
    factor = Counting(X)
    target_operator = X @ X.T if N is None else None
    moment_diagonal = np.diag(whole.M).copy() if N is None else np.empty(0)
    diagonal = np.square(X).sum(axis=0)
    return whole, OnDemandObjective(
        factor, diagonal, cross, c, lam, target_operator=target_operator, moment_diagonal=moment_diagonal,
        leading_rows=leading,
    ), factor  # fmt: skip


@pytest.mark.parametrize("N", [1, 3, 12, None])
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_greedy_searches_take_the_same_path(N: int | None, lam: float) -> None:
    whole, on_demand, _ = problem(N, lam)
    for search in (forward, exchange, foba):
        expected, found = search(whole, 5), search(on_demand, 5)
        assert [p.members for p in found.front] == [p.members for p in expected.front]
        np.testing.assert_allclose([p.value for p in found.front], [p.value for p in expected.front], rtol=1e-10)


@pytest.mark.parametrize("N", [1, 12, None])
@pytest.mark.parametrize("leading", [0, 12, M])
def test_poss_keeps_the_same_archive(N: int | None, leading: int) -> None:
    whole, on_demand, _ = problem(N, 0.0, leading)
    expected, found = Poss(whole, 4, seed=5), Poss(on_demand, 4, seed=5)
    for until in (500, 8_000):
        expected.advance(until)
        found.advance(until)
        assert [z.members for z in found.archived] == [z.members for z in expected.archived]
    assert found.counts()["accepted"] == expected.counts()["accepted"]
    assert found.counts()["looked_up"] == expected.counts()["looked_up"]
    again = continued(found, problem(N, 0.0, leading)[1], seed=5)
    again.advance(10_000)
    expected.advance(10_000)
    assert [z.members for z in again.archived] == [z.members for z in expected.archived]


@pytest.mark.parametrize(("N", "processors"), [(1, 1), (12, 7), (None, 96)])
def test_pposs_keeps_the_same_archive(N: int | None, processors: int) -> None:
    whole, on_demand, _ = problem(N, 0.0)
    expected, found = (Poss(f, 4, processors=processors, seed=5) for f in (whole, on_demand))
    for until in (500, 8_000):
        expected.advance(until)
        found.advance(until)
        assert [z.members for z in found.archived] == [z.members for z in expected.archived]
    for name in ("accepted", "looked_up", "valued"):
        assert found.counts()[name] == expected.counts()[name]
    again = continued(found, problem(N, 0.0)[1], seed=5)
    again.advance(10_000)
    expected.advance(10_000)
    assert [z.members for z in again.archived] == [z.members for z in expected.archived]


def test_rows_beyond_the_memory_limit_are_on_disk_and_change_nothing() -> None:
    whole, on_demand, _ = problem(12, 0.0)
    small = OnDemandObjective(
        on_demand.factor, on_demand.diagonal, on_demand.cross, on_demand.c, row_cache_bytes=5 * 8 * N_COLUMNS
    )
    expected, found = Poss(whole, 4, seed=5), Poss(small, 4, seed=5)
    expected.advance(8_000)
    found.advance(8_000)
    assert [z.members for z in found.archived] == [z.members for z in expected.archived]
    counts = small.counts()
    assert counts["row_bytes_on_disk"] == 8 * N_COLUMNS * (2 * counts["rows_fetched"] - 5)
    assert counts["columns_entered"] <= counts["rows_fetched"]


def test_a_single_value_reads_columns_and_needs_no_pass() -> None:
    whole, on_demand, _ = problem(3, 0.2)
    assert on_demand.value([4, 9, 1100]) == pytest.approx(whole.value([4, 9, 1100]), rel=1e-12)
    assert on_demand.rank([3, 7]) == 2
    assert on_demand.counts()["row_passes"] == 0
    with pytest.raises(OptionError, match="not all among"):
        on_demand.value([N_COLUMNS])


def test_look_ahead_saves_passes_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for work in (1 << 40, 1):  # never looks ahead; always does
        monkeypatch.setattr("dsel.search.pareto.compiled._NUMBERS_PER_ITERATION", work)
        monkeypatch.setattr("dsel.search.pareto.compiled._MIN_AHEAD", 1)
        _, objective, _ = problem(1, 0.0)
        objective.batch = 32
        search = Poss(objective, 4, seed=1)
        search.advance(10_000)
        found.append(search)
    without, with_look = (search.objective.counts()["row_passes"] for search in found)
    assert with_look < 0.6 * without
    assert found[0].archived == found[1].archived


@pytest.mark.parametrize(("N", "gamma"), [(3, 0.0), (3, 1.0), (12, 0.0), (12, float("inf")), (1, 1.0)])
@pytest.mark.parametrize("lam", [0.0, 0.4])
def test_best_first_search_finds_the_same(N: int, gamma: float, lam: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """X spans the targets, so that the bounds are the same, too; children are made in batches of three."""
    rng = np.random.default_rng(N)
    X = rng.standard_normal((12, 40)) * 0.85 ** np.arange(40)
    Y = X[:, :6] @ rng.standard_normal((6, N)) + 0.1 * rng.standard_normal((12, N))
    B, c = X.T @ Y, float(np.vdot(Y, Y))
    monkeypatch.setattr(partial_expansion, "CHILDREN_AT_A_TIME", 3)
    whole = DenseObjective(X.T @ X, B, c, lam)
    wide = OnDemandObjective(
        InMemoryFactor(X), np.square(X).sum(axis=0), B, c, lam, load_target_gram=lambda: np.asarray(Y.T @ Y), batch=2
    )
    for include in ((), (5, 30)):
        a, b = whole.condition(include), wide.condition(include)
        assert isinstance(b, OnDemandObjective)
        settings: dict[str, Any] = {"gamma": gamma, "incumbent": (1, 2)} if gamma == 0.0 else {"gamma": gamma}
        expected = AStar(a, 3, target_gram=b.target_gram, **settings)
        found = WideAStar(b, 3, **settings)
        found.advance(2)
        found = WideAStar.restore(b, json.loads(json.dumps(found.state())))
        assert expected.advance(100_000)
        assert found.advance(100_000)
        assert found.answer == expected.answer
        assert found.best_value == pytest.approx(expected.best_value, rel=1e-9)
        assert found.lower == pytest.approx(expected.lower, abs=1e-9 * c)
        assert len(found.state()["fringe"]) <= expected.made
    assert wide.counts()["columns_entered"] <= 40


def test_best_first_search_for_x_itself_needs_w() -> None:
    with pytest.raises(OptionError, match="needs W"):
        WideAStar(problem(None, 0.0)[1], 3)


def test_reads_depend_on_the_inserted_columns_not_on_the_iterations() -> None:
    _, objective, factor = problem(1, 0.0)
    search = Poss(objective, 4, seed=5)
    search.advance(8_000)
    after = len(factor.passes)
    entered = len(objective.columns_entered)
    assert objective.counts()["row_passes"] == after <= entered <= search.counts()["accepted"] + 3
    again = Poss(objective, 4, seed=5)
    again.advance(8_000)  # the same columns: their rows are kept
    assert len(factor.passes) == after
    assert len(objective.columns_entered) == entered
    forward(problem(1, 0.0)[1], 8)


def test_a_batch_is_filled_with_the_most_promising_columns() -> None:
    _, objective, factor = problem(1, 0.0)
    found = forward(objective, 8).best(8)
    assert len(found.members) == 8
    assert len(factor.passes) < 8
    assert set(factor.passes) == {8}


@pytest.mark.parametrize("N", [1, 12, None])
def test_included_and_excluded_columns(N: int | None) -> None:
    whole, on_demand, _ = problem(N, 0.3)
    keep = np.setdiff1d(np.arange(N_COLUMNS), [2, 5])
    a, b = whole.restrict(keep).condition([4, 9]), on_demand.restrict(keep).condition([4, 9])
    assert not b.has_gram
    expected, found = Poss(a, 3, seed=1), Poss(b, 3, seed=1)
    expected.advance(8000)
    found.advance(8000)
    assert [z.members for z in found.archived] == [z.members for z in expected.archived]
    assert b.c == pytest.approx(a.c, rel=1e-10)
    assert a.in_data([0, 1]) == b.in_data([0, 1])


def test_the_gram_matrix_is_computed_only_if_it_is_small() -> None:
    whole, on_demand, _ = problem(3, 0.0)
    np.testing.assert_allclose(on_demand.K, whole.K, atol=1e-9)
    refused = OnDemandObjective(on_demand.factor, on_demand.diagonal, on_demand.cross, 1.0, gram_limit=1 << 20)
    with pytest.raises(CapacityError, match="1200 x 1200"):
        _ = refused.K
    with pytest.raises(OptionError, match="exchange_every"):
        Poss(refused, 3, exchange_every=10)
