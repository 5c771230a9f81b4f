"""A Pareto search starts from forward selection and makes exchange searches, but the published one does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dsel
import dsel.planning.plan as planning
from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.search.greedy.path import forward
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.options import default_interval
from dsel.search.runtime.schedule import iteration_seconds
from tests.search.cases import continued

FORMS: tuple[dict[str, Any], ...] = ({"method": "poss"}, {"method": "pposs", "processors": 3}, {"method": "pposs-asy"})
PUBLISHED: dict[str, Any] = {"warm_start": "none", "exchange_every": 0}


def data(seed: int = 0, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, n)) + rng.normal(size=(60, 1))
    return X, X[:, :8] @ rng.normal(size=8) + rng.normal(size=60)


def objective(seed: int = 0) -> DenseObjective:
    X, y = data(seed)
    return DenseObjective(X.T @ X, (X.T @ y)[:, None], float(y @ y))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("limit", [{"iterations": 3}, {"seconds": 1e-6}], ids=str)
def test_the_shortest_search_is_not_below_forward_selection(form: dict[str, Any], limit: dict[str, Any]) -> None:
    X, y = data()
    greedy = dsel.select(X, y, k=6, method="forward")
    found = dsel.select(X, y, k=6, **form, **limit, exchange_every=0)
    assert found.indices == greedy.indices
    assert [set(row.indices) for row in found.front[:7]] == [set(row.indices) for row in greedy.front]
    assert dsel.select(X, y, k=6, **form, iterations=3, **PUBLISHED).r2 < greedy.r2


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_improvements_of_the_start_are_those_of_iteration_0(form: dict[str, Any]) -> None:
    X, y = data()
    trace = dsel.select(X, y, k=4, **form, iterations=3, exchange_every=0).trace
    assert [(t.iteration, t.size) for t in trace[:4]] == [(0, 1), (0, 2), (0, 3), (0, 4)]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_where_columns_take_passes_a_limited_search_is_not_below_it_and_says_what_it_left_out(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def column_blocks(problem: ProblemShape, available: Resources) -> Representation:
        found = candidates(problem, replace(available, client_memory=1 << 60))
        return next(c for c in found if c.name == "column-blocks")

    X, y = data(n=90)
    greedy = dsel.select(X, y, k=6, method="forward")
    assert not dsel.select(X, y, k=6, **form, iterations=3).notes
    monkeypatch.setattr(planning, "choose", column_blocks)
    found = dsel.select(X, y, k=6, **form, seconds=1e-6)
    assert found.indices == greedy.indices
    assert any("no exchange searches" in note for note in found.notes)
    assert not dsel.select(X, y, k=6, **form, seconds=1e-6, exchange_every=0).notes


def test_the_published_algorithm_is_the_search_without_both() -> None:
    X, y = data()
    asked = dsel.select(X, y, k=4, preprocess="none", **PUBLISHED, seed=3)
    literal = Poss(objective(), 4, seed=3)
    literal.advance(asked.iterations)
    assert [(p.size, set(p.indices)) for p in asked.front] == [(p.size, set(p.members)) for p in literal.front()]
    assert [(t.iteration, t.size) for t in asked.trace] == [(t.iteration, t.size) for t in literal.trace]


@pytest.mark.parametrize(("n", "k", "interval"), [(60, 8, 1000), (166, 8, 1000), (500, 50, 16_666), (2000, 8, 9078)])
def test_exchange_searches_are_rarer_where_they_take_longer(n: int, k: int, interval: int) -> None:
    assert default_interval(n, k) == interval
    searches = paper_iterations(k, n) / interval
    assert searches > 20
    seconds = [iteration_seconds(n, k, 1, every) for every in (0, interval)]
    assert 1 - seconds[0] / seconds[1] < 0.2


def test_by_default_the_archive_starts_with_the_path_of_forward_selection() -> None:
    X, y = data()
    search = Poss(objective(), 4, seed=5, exchange_every=1000)
    for point in forward(search.objective, 7).front[1:]:
        search.offer(point.members)
    search.advance(3500)
    found = dsel.select(X, y, k=4, preprocess="none", seed=5, iterations=3500, exchange_every=1000, max_in_flight=1)
    assert [(p.size, set(p.indices)) for p in found.front] == [(p.size, set(p.members)) for p in search.front()]
    assert found.counts["looked_up"] == search.counts()["looked_up"]  # the start itself is not counted in slices


@pytest.mark.parametrize("every", [1, 7, 64, 1000])
def test_with_one_processor_rounds_make_the_exchange_searches_of_poss(every: int) -> None:
    poss, rounds = (
        Poss(objective(1), 4, exchange_every=every),
        Poss(objective(1), 4, processors=1, exchange_every=every),
    )
    poss.advance(1500)
    rounds.advance(1500)
    assert rounds.archived == poss.archived
    assert rounds.trace == poss.trace


@pytest.mark.parametrize(("processors", "every"), [(5, 7), (32, 1000), (50, 3)])
@pytest.mark.parametrize("isolation", ["none", "min-index"])
def test_rounds_with_exchange_searches_resume_bit_for_bit(processors: int, every: int, isolation: Any) -> None:
    options = {"processors": processors, "exchange_every": every, "isolation": isolation, "seed": 2}
    whole, part = Poss(objective(2), 4, **options), Poss(objective(2), 4, **options)
    whole.advance(4000)
    part.advance(1300)
    before = part.trace
    part = continued(part, objective(2), seed=2, exchange_every=every)
    part.advance(4000)
    assert part.archived == whole.archived
    assert (*before, *part.trace) == whole.trace
    without = Poss(objective(2), 4, **{**options, "exchange_every": 0})
    without.advance(4000)
    assert without.trace != whole.trace


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_with_a_criterion_the_search_is_the_published_one_by_default(form: dict[str, Any]) -> None:
    X, y = data(n=12)
    for options in ({"exchange_every": 9}, {"any_size": True}):
        with pytest.raises(OptionError, match=f"{next(iter(options))} cannot be combined with a custom criterion"):
            dsel.select(X, y, k=2, criterion=len, **form, **options)
    for options in (PUBLISHED, {}):
        assert dsel.select(X, y, k=2, criterion=sum, iterations=300, **form, **options).indices == (0,)


def test_restarts_belong_to_a_start_by_exchange_search() -> None:
    X, y = data()
    with pytest.raises(OptionError, match="restarts: only with warm_start=exchange"):
        dsel.plan(X, y, k=3, restarts=3)
    found = dsel.select(X, y, k=6, warm_start="exchange", restarts=3, iterations=1, exchange_every=0)
    assert found.r2 >= dsel.select(X, y, k=6, method="exchange", restarts=3).r2
