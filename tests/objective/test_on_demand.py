"""Rows on demand: the searches do what they do on a whole Gram matrix, and ask for few columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsel.errors import CapacityError, OptionError
from dsel.objective.on_demand import InMemoryFactor, OnDemandObjective
from dsel.objective.quadratic import QuadraticObjective
from dsel.search.exchange import exchange
from dsel.search.foba import foba
from dsel.search.forward import forward
from dsel.search.poss import Poss

M, N_COLUMNS = 40, 1200


class Counting(InMemoryFactor):
    """A factor that notes how it is used."""

    passes: list[int]

    def products(self, V: Any) -> Any:
        """Counted."""
        self.__dict__.setdefault("passes", []).append(V.shape[1])
        return super().products(V)


def problem(N: int | None, lam: float, leading: int = 12) -> tuple[QuadraticObjective, OnDemandObjective, Counting]:
    """The same problem whole and on demand. N None: Y = X."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((M, N_COLUMNS)) + 0.4 * rng.standard_normal((M, 1))
    X[:, 7] = X[:, 3] + 0.01 * rng.standard_normal(M)
    Y = X if N is None else X[:, :5] @ rng.standard_normal((5, N)) + rng.standard_normal((M, N))
    cross, c = None if N is None else X.T @ Y, float(np.vdot(Y, Y))
    whole = QuadraticObjective(X.T @ X, cross, c, lam)
    factor = Counting(X)
    through = X @ X.T if N is None else None
    seen = np.diag(whole.M).copy() if N is None else None
    diagonal = np.square(X).sum(axis=0)
    return whole, OnDemandObjective(
        factor, diagonal, cross, c, lam, through=through, seen=seen, leading_rows=leading
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
    for until in (500, 20_000):
        expected.advance(until)
        found.advance(until)
        assert [z.members for z in found.archived] == [z.members for z in expected.archived]
    assert found.counts()["accepted"] == expected.counts()["accepted"]
    assert found.counts()["looked_up"] == expected.counts()["looked_up"]
    again = Poss.restore(problem(N, 0.0, leading)[1], found.state())
    again.advance(25_000)
    expected.advance(25_000)
    assert [z.members for z in again.archived] == [z.members for z in expected.archived]


def test_reads_are_counted_in_columns_that_enter_not_in_iterations() -> None:
    _, objective, factor = problem(1, 0.0)
    search = Poss(objective, 4, seed=5)
    search.advance(20_000)
    after = len(factor.passes)
    assert objective.counts()["row_passes"] == after <= len(objective.entered) <= search.counts()["accepted"] + 3
    entered = len(objective.entered)
    again = Poss(objective, 4, seed=5)
    again.advance(20_000)  # the same columns: their rows are kept
    assert len(factor.passes) == after
    assert len(objective.entered) == entered
    forward(problem(1, 0.0)[1], 8)


def test_a_batch_takes_the_most_promising_columns_along() -> None:
    _, objective, factor = problem(1, 0.0)
    found = forward(objective, 8).best(8)
    assert len(found.members) == 8
    assert len(factor.passes) < 8
    assert set(factor.passes) == {8}


@pytest.mark.parametrize("N", [1, 12, None])
def test_included_and_left_out_columns(N: int | None) -> None:
    whole, on_demand, _ = problem(N, 0.3)
    keep = np.setdiff1d(np.arange(N_COLUMNS), [2, 5])
    a, b = whole.restrict(keep).condition([4, 9]), on_demand.restrict(keep).condition([4, 9])
    assert b.on_demand
    expected, found = Poss(a, 3, seed=1), Poss(b, 3, seed=1)
    expected.advance(8000)
    found.advance(8000)
    assert [z.members for z in found.archived] == [z.members for z in expected.archived]
    assert b.c == pytest.approx(a.c, rel=1e-10)
    assert a.in_data([0, 1]) == b.in_data([0, 1])


def test_the_whole_matrix_is_made_only_where_it_is_small() -> None:
    whole, on_demand, _ = problem(3, 0.0)
    np.testing.assert_allclose(on_demand.K, whole.K, atol=1e-9)
    refused = OnDemandObjective(on_demand.factor, on_demand.diagonal, on_demand.cross, 1.0, most_bytes=1 << 20)
    with pytest.raises(CapacityError, match="1200 x 1200"):
        _ = refused.K
    with pytest.raises(OptionError, match="exchange_every"):
        Poss(refused, 3, exchange_every=10)
