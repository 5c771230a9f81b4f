"""Pareto searches with subsets of any size: T = e k n (n + 1) in place of 2 e k^2 n, and no cut at 2k columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.errors import CapacityError, OptionError
from dsel.objective.dense import DenseObjective
from dsel.search.pareto.compiled import Poss, paper_iterations
from tests.oracles.literal_pocss import LiteralPocss
from tests.oracles.literal_poss import LiteralPoss, least_squares
from tests.search.pareto.test_poss import draw

N, K = 12, 2
rng = np.random.default_rng(0)
X = rng.standard_normal((40, N)) @ (np.eye(N) + 0.4 * rng.standard_normal((N, N)))
X = X / np.linalg.norm(X, axis=0)
Y = X[:, :5] @ rng.standard_normal((5, 1)) + 0.2 * rng.standard_normal((40, 1))
OBJECTIVES = {
    "Y": DenseObjective(X.T @ X, X.T @ Y, float(np.sum(Y**2))),
    "Y = X": DenseObjective(X.T @ X, None, float(np.sum(X**2))),
}  # fmt: skip
#: As published, and in the units of the data.
PUBLISHED: dict[str, Any] = {"warm_start": "none", "exchange_every": 0, "max_in_flight": 1, "preprocess": "none"}


@pytest.mark.parametrize("targets", OBJECTIVES)
def test_with_the_same_flips_the_archive_is_that_of_the_literal_algorithm_without_the_cut(targets: str) -> None:
    search = Poss(OBJECTIVES[targets], K, any_size=True)
    literal: Any = LiteralPocss(X, K, any_size=True)
    if targets == "Y":
        literal = LiteralPoss(least_squares(X, Y), N, K, any_size=True)
    draws, sizes = np.random.default_rng(1), set()
    for _ in range(800):
        parent, flips = draw(draws, search)
        literal.step(literal.index(search.archived[parent].members), flips)
        search.advance(search.iteration + 1)
        assert {frozenset(point.members) for point in search.archived} == {frozenset(z[0]) for z in literal.P}
        sizes |= {point.size for point in search.archived}
    assert max(sizes) > 2 * K


@pytest.mark.parametrize("targets", OBJECTIVES)
def test_the_method_makes_the_iterations_of_the_theorem_on_this_archive(targets: str) -> None:
    T = math.floor(math.e * K * N * (N + 1))
    asked: dict[str, Any] = {"k": K, "method": "poss", "seed": 5, "any_size": True, **PUBLISHED}
    data = X, Y if targets == "Y" else None
    plan, found = dsel.plan(*data, calibrate=False, **asked), dsel.select(*data, **asked)
    assert plan.iterations == found.iterations == T
    assert any(f"{T:,} iterations, e k n (n + 1)" in note for note in plan.notes)
    search = Poss(OBJECTIVES[targets], K, seed=5, any_size=True)
    search.advance(T)
    assert [point.indices for point in found.front] == [point.members for point in search.front()]
    assert max(point.size for point in found.front) > 2 * K
    assert dsel.select(*data, **{**asked, "any_size": False}).iterations == paper_iterations(K, N)


@pytest.mark.parametrize("targets", OBJECTIVES)
@pytest.mark.parametrize("method", ["poss", "pposs", "pposs-asy"])
def test_with_warm_start_and_exchanges_it_finds_subsets_of_all_sizes_in_slices(method: str, targets: str) -> None:
    data = X, Y if targets == "Y" else None
    found = dsel.select(*data, k=K, method=method, any_size=True)
    assert found.error <= dsel.select(*data, k=K, method="forward").error * (1.0 + 1e-12)
    assert max(point.size for point in found.front) > 2 * K


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"criterion": sum}, OptionError, "any_size cannot be combined with a custom criterion"),
        ({"groups": [[0, 1], [2, 3]]}, OptionError, "any_size cannot be used for groups"),
        ({"isolation": "min-index"}, OptionError, "any_size cannot be combined with isolation=min-index"),
        ({"memory": 1000}, CapacityError, "leave out any_size"),
    ],
)
def test_what_cannot_have_it_is_refused(more: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dsel.select(X, Y, k=K, method="poss", any_size=True, **more)
