"""PPOSS-asy by ask and tell: with one answer at a time it is POSS; with many out, nothing is asked twice or lost."""

from __future__ import annotations

import json
import random

import pytest

import dsel
from dsel.errors import CapacityError
from dsel.objective.objective_file import objective_digest, save_objective
from dsel.search.parallel.asynchronous import AsyncPposs, SlicedPposs
from dsel.search.parallel.executor import Slice
from dsel.search.parallel.iteration_slices import SliceRunner
from dsel.search.pareto.criterion import CriterionPoss
from dsel.search.pareto.search import Poss
from tests.search.cases import random_data, regression, self_expression
from tests.search.parallel.test_synchronous import N_COLUMNS, K, cover, tied

T = 2000


@pytest.mark.parametrize("f", [cover, tied])
def test_one_subset_at_a_time_it_is_poss(f) -> None:
    search, poss = AsyncPposs(N_COLUMNS, K, seed=3), CriterionPoss(f, N_COLUMNS, K, seed=3)
    while not search.finished(T):
        task = search.ask(1, 1, T)
        if task is not None:
            search.tell(task, [f(S) for S in task.payload])
    poss.advance(T)
    assert search.archived == poss.archived
    assert search.counts() == poss.counts()


@pytest.mark.parametrize("isolation", ["min-index", max])
def test_with_an_isolation_function_too(isolation) -> None:
    search = AsyncPposs(N_COLUMNS, K, seed=3, isolation=isolation)
    poss = CriterionPoss(cover, N_COLUMNS, K, seed=3, isolation=isolation)
    own = isolation if callable(isolation) else None
    while not search.finished(T):
        task = search.ask(1, 1, T)
        if task is not None:
            search.tell(task, [cover(S) for S in task.payload])
            search = AsyncPposs.restore(search.state(), own)
    poss.advance(T)
    assert search.archived == poss.archived


@pytest.mark.parametrize("f", [cover, tied])
def test_out_of_order_lost_and_resumed_nothing_is_asked_twice_and_the_events_tell_the_archive(f) -> None:
    rng, search = random.Random(2), AsyncPposs(N_COLUMNS, K, seed=5)
    out, answered, events = [], [], []
    while not search.finished(T):
        task = search.ask(rng.randint(1, 6), 3, T)
        events += search.drain_events()
        if task is not None:
            out.append(task)
            assert not set(task.payload) & {S for p in out[:-1] for S in p.payload}
        if out and (task is None or rng.random() < 0.4):
            back = out.pop(rng.randrange(len(out)))
            if rng.random() < 0.2:
                search.requeue(back, suspect=False)
            else:
                search.tell(back, [f(S) for S in back.payload])
                answered += back.payload
                events += search.drain_events()
        if rng.random() < 0.02:
            search = AsyncPposs.restore(json.loads(json.dumps(search.state(), allow_nan=False)))
            out = []
    assert search.iteration == T
    assert len(answered) == len(set(answered)) == search.evaluations
    replayed = type(search.archive)(K)
    for S, value in events:
        replayed.offer(S, value)
    assert replayed.points == search.archived


def test_values_recalled_come_in_for_what_was_out() -> None:
    search = AsyncPposs(N_COLUMNS, K, seed=5)
    task = search.ask(4, 1, T)
    assert task is not None
    again = AsyncPposs.restore(search.state())
    again.recall({S: cover(S) for S in task.payload[:2]})
    rest = again.ask(4, 1, T)
    assert rest is not None
    assert not set(rest.payload) & set(task.payload[:2])
    assert set(task.payload[2:]) <= set(rest.payload)
    assert len(again.archive) > 1


class TestSlices:
    X, Y = random_data(7, m=80, n=25)

    @pytest.mark.parametrize("objective", [regression(X, Y), self_expression(X)], ids=["y", "Y = X"])
    def test_slices_one_after_another_are_poss(self, objective) -> None:
        search, poss = SlicedPposs(objective, 4, seed=2), Poss(objective, 4, seed=2)
        engine = SliceRunner(objective, 4, 2)
        while not search.finished(6000):
            task = search.ask(350, 1, 6000)
            search.tell(task, engine.run(task.payload))
        poss.advance(6000)
        assert {(z.members, z.value) for z in search.archived} == {(z.members, z.value) for z in poss.archived}
        assert search.best_value == poss.best_value
        assert search.front() == poss.front()

    @pytest.mark.parametrize("objective", [regression(X, Y), self_expression(X)], ids=["y", "Y = X"])
    def test_with_an_isolation_too(self, objective) -> None:
        search = SlicedPposs(objective, 4, seed=2, isolation="min-index")
        poss, engine = Poss(objective, 4, seed=2, isolation="min-index"), SliceRunner(objective, 4, 2, "min-index")
        while not search.finished(6000):
            task = search.ask(350, 1, 6000)
            search.tell(task, engine.run(task.payload))
            search = SlicedPposs.restore(objective, json.loads(json.dumps(search.state())))
        poss.advance(6000)
        assert {(z.members, z.value) for z in search.archived} == {(z.members, z.value) for z in poss.archived}
        assert len(search.archived) > 8

    def test_an_engine_takes_in_what_is_better_and_tells_all_that_the_snapshot_lacks(self) -> None:
        """Two engines in turns, each seeing the other's finds only through the archive."""
        objective = regression(self.X, self.Y)
        search, engines = SlicedPposs(objective, 4, seed=2), [SliceRunner(objective, 4, 2) for _ in range(2)]
        while not search.finished(9000):
            task = search.ask(300, 1, 9000)
            engine = engines[task.payload.start // 300 % 2]
            found = engine.run(task.payload)
            snapshot = dict(task.payload.solutions)
            assert not snapshot.keys() & {S for S, _ in found}
            here = {z.members: z.value for z in engine._poss.archived[1:]}
            assert all(here[S] == f for S, f in found)
            for S, f in task.payload.solutions:  # it is here, or what weakly dominates it
                assert any(len(z) <= len(S) and v <= f for z, v in here.items())
            search.tell(task, found)
            assert {z.members: z.value for z in search.archived[1:]} == here
            for S, f in here.items():
                assert f == pytest.approx(objective.value(S))

    def test_tables_heed_the_memory_that_they_are_given(self, tmp_path) -> None:
        objective = regression(self.X, self.Y)
        with pytest.raises(CapacityError, match="raise the option memory"):
            SliceRunner(objective, 4, 2, memory=10_000)
        asked = {"k": 4, "method": "pposs-asy", "isolation": "min-index", "seed": 2}
        enough = dsel.select(self.X, self.Y, **asked)
        assert dsel.select(self.X, self.Y, memory=1 << 20, **asked).front == enough.front
        with pytest.raises(CapacityError, match="raise the option memory"):
            dsel.select(self.X, self.Y, memory=100_000, **asked)

    def test_a_fresh_engine_does_the_same_with_the_same_snapshot(self) -> None:
        objective = regression(self.X, self.Y)
        poss = Poss(objective, 4, seed=9)
        poss.advance(400)
        part = Slice(400, 3000, tuple((z.members, z.value) for z in poss.archived[1:]))
        assert SliceRunner(objective, 4, 2).run(part) == SliceRunner(objective, 4, 2).run(part)

    def test_every_iteration_is_made_once_whatever_is_lost(self) -> None:
        objective = regression(self.X, self.Y)
        rng, search, out, made = random.Random(4), SlicedPposs(objective, 4, seed=2), [], []
        while not search.finished(5000):
            task = search.ask(rng.randint(50, 400), 2, 5000)
            if task is not None:
                out.append(task)
            if out and (task is None or rng.random() < 0.5):
                back = out.pop(rng.randrange(len(out)))
                if rng.random() < 0.3:
                    search.requeue(back, suspect=False)
                else:
                    made += range(back.payload.start, back.payload.stop)
                    search.tell(back, ())
            if rng.random() < 0.05:
                search, out = SlicedPposs.restore(objective, json.loads(json.dumps(search.state()))), []
        assert sorted(made) == list(range(5000))
        assert search.evaluations == 5000

    def test_an_objective_is_stored_once_and_opened_as_it_was(self, tmp_path) -> None:
        plain = regression(self.X, self.Y)
        for objective in (plain, plain.condition([3]), self_expression(self.X)):
            stored = save_objective(objective, tmp_path)
            assert save_objective(objective, tmp_path) == stored
            opened = stored.load()
            assert opened is stored.load()
            part = Slice(0, 3000, ())
            assert SliceRunner(opened, 4, 1).run(part) == SliceRunner(objective, 4, 1).run(part)
            assert objective_digest(opened) == stored.digest
        assert len(list(tmp_path.iterdir())) == 3
