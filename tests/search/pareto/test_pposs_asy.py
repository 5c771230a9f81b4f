"""PPOSS-asy by ask and tell: with one answer at a time it is POSS; with many out, nothing is asked twice or lost."""

from __future__ import annotations

import json
import random

import pytest

from dsel.search.anytime import Stop
from dsel.search.pareto.compiled import Poss
from dsel.search.pareto.slice_work import RunSlices, SliceRules
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.schedule import Schedule
from tests.search.cases import random_data, regression, self_expression
from tests.search.pareto.by_hand import K, advance, again, answer, cover, search_of, tied

T = 2000


@pytest.mark.parametrize("f", [cover, tied])
def test_one_subset_at_a_time_it_is_poss(f) -> None:
    search, poss = search_of(T=T, order="arrival", seed=3), search_of(seed=3)
    while not search.finished():
        task = search.ask(1, 1)
        if task is not None:
            answer(search, task, [f(S) for S in task.payload])
    advance(poss, T, f)
    assert search.archived == poss.archived
    assert search.counts() == poss.counts()


@pytest.mark.parametrize("isolation", ["min-index", max])
def test_with_an_isolation_function_too(isolation) -> None:
    search = search_of(T=T, order="arrival", seed=3, isolation=isolation)
    poss = search_of(seed=3, isolation=isolation)
    own = isolation if callable(isolation) else None
    while not search.finished():
        task = search.ask(1, 1)
        if task is not None:
            answer(search, task, [cover(S) for S in task.payload])
            search = again(search, search.state(), own)
    advance(poss, T)
    assert search.archived == poss.archived


@pytest.mark.parametrize("f", [cover, tied])
def test_out_of_order_lost_and_resumed_nothing_is_asked_twice_and_the_events_tell_the_archive(f) -> None:
    rng, search = random.Random(2), search_of(T=T, order="arrival", seed=5)
    out, answered, events = [], [], []
    while not search.finished():
        task = search.ask(rng.randint(1, 6), 3)
        events += search.drain_events()
        if task is not None:
            out.append(task)
            assert not set(task.payload) & {S for p in out[:-1] for S in p.payload}
        if out and (task is None or rng.random() < 0.4):
            back = out.pop(rng.randrange(len(out)))
            if rng.random() < 0.2:
                search.requeue(back, suspect=False)
            else:
                answer(search, back, [f(S) for S in back.payload])
                answered += back.payload
                events += search.drain_events()
        if rng.random() < 0.02:
            search = again(search, json.loads(json.dumps(search.state(), allow_nan=False)))
            out = []
    assert search.iteration == T
    assert len(answered) == len(set(answered)) == search.evaluations
    replayed = type(search.archive)(K)
    for S, value in events:
        replayed.offer(S, value)
    assert replayed.points == search.archived


def test_values_recalled_come_in_for_what_was_out() -> None:
    search = search_of(T=T, order="arrival", seed=5)
    task = search.ask(4, 1)
    assert task is not None
    later = again(search, search.state())
    later.recall({S: cover(S) for S in task.payload[:2]})
    rest = later.ask(4, 1)
    assert rest is not None
    assert not set(rest.payload) & set(task.payload[:2])
    assert set(task.payload[2:]) <= set(rest.payload)
    assert len(later.archive) > 1


X, Y = random_data(7, m=80, n=25)


def begun(objective, isolation="none", T=6000) -> SlicedSearch:
    rules = SliceRules(4, 2, isolation)
    return SlicedSearch(objective, rules, Schedule(length=350, order="arrival"), Stop(iterations=T))


@pytest.mark.parametrize("isolation", ["none", "min-index"])
@pytest.mark.parametrize("objective", [regression(X, Y), self_expression(X)], ids=["y", "Y = X"])
def test_slices_one_after_another_are_poss(objective, isolation) -> None:
    search, poss = begun(objective, isolation), Poss(objective, 4, seed=2, isolation=isolation)
    work = RunSlices(objective, search.rules)
    while not search.finished():
        task = search.ask(1, 1)
        search.tell(task, work(task))
        search = SlicedSearch.restore(objective, json.loads(json.dumps(search.state())), search.stop)
    poss.advance(6000)
    assert {(z.members, z.value) for z in search.archived} == {(z.members, z.value) for z in poss.archived}
    assert (search.best_value, search.front(), search.iteration) == (poss.best_value, poss.front(), 6000)


def test_a_slice_starts_from_the_newest_archive() -> None:
    search = begun(regression(X, Y))
    work = RunSlices(search.objective, search.rules)
    first, second = search.ask(1, 2), search.ask(1, 2)
    search.tell(second, work(second))  # the first one is still out
    assert search.ask(1, 2).payload.solutions == tuple((z.members, z.value) for z in search.archived[1:]) != ()
    search.tell(first, work(first))
    assert search.iteration == 700


def test_every_iteration_is_made_once_whatever_is_lost() -> None:
    rng, search, out, made = random.Random(4), begun(regression(X, Y), T=5000), [], []
    work = RunSlices(search.objective, search.rules)
    while not search.finished():
        task = search.ask(1, 2)
        if task is not None:
            out.append(task)
        if out and (task is None or rng.random() < 0.5):
            back = out.pop(rng.randrange(len(out)))
            if rng.random() < 0.3:
                search.requeue(back, suspect=False)
            else:
                made += range(back.payload.start, back.payload.stop)
                search.tell(back, work(back))
        if rng.random() < 0.05:
            saved, out = json.loads(json.dumps(search.state())), []
            search = SlicedSearch.restore(search.objective, saved, search.stop)
    assert sorted(made) == list(range(5000))
    assert search.evaluations == 5000
