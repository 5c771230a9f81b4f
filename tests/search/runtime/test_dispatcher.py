"""The loop between a search and workers: sizes by the clock, lost tasks, errors, the journal."""

from __future__ import annotations

import errno
import math
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsel.errors import ClusterError, CriterionError, Interrupted, OutputError
from dsel.search.anytime import Stop
from dsel.search.ask_tell import LostTask, SerialExecutor, Task, TaskResult
from dsel.search.journal import Journal, journalled_values, read_journal
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.compiled import Poss
from dsel.search.pareto.evaluations import EvaluateSubsets, bind, takes_data
from dsel.search.pareto.slice_work import RunSlices, SliceRules
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import TASK_SECONDS, Dispatcher
from dsel.search.runtime.schedule import Schedule
from tests.search.cases import random_data, regression
from tests.search.pareto.by_hand import N_COLUMNS, K, again, all_of, cover, search_of, tied
from tests.search.runtime.replay import replayed

COLUMNS = tuple((j,) for j in range(N_COLUMNS))


class Unreliable:
    """Some workers that answer in any order, lose tasks, and say how long they took."""

    def __init__(self, work, seed=0, workers=3, losses=0.2, suspect=False, unit_seconds=0.05) -> None:
        self.work, self.workers, self.losses, self.suspect = work, workers, losses, suspect
        self.rng, self.unit_seconds = random.Random(seed), unit_seconds
        self.out: list[Task] = []
        self.sizes: list[int] = []
        self.closed = False

    @property
    def target_parallelism(self) -> int:
        return self.workers

    @property
    def free_slots(self) -> int:
        return 2 * self.workers - len(self.out)

    def use(self, work) -> None:
        self.work = work

    def submit(self, task: Task) -> None:
        assert self.free_slots > 0
        self.out.append(task)
        self.sizes.append(task.units)

    def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
        task = self.out.pop(self.rng.randrange(len(self.out)))
        self.workers = self.rng.randint(1, 6)  # they come and go
        if self.rng.random() < self.losses:
            return [(task, LostTask("it went away", self.suspect))]
        answer = self.work(task)
        return [(task, TaskResult(answer.found, self.unit_seconds * task.units, answer.error, answer.units))]

    def close(self) -> None:
        self.closed = True


def counting(f, calls: Counter[Subset]):
    def criterion(S: Subset) -> float:
        calls[S] += 1
        return f(S)

    return criterion


@pytest.mark.parametrize("f", [cover, tied])
def test_in_rounds_no_worker_and_no_loss_shows(f) -> None:
    calm = search_of(processors=16, seed=3, T=1600)
    executor = SerialExecutor(EvaluateSubsets(f, None, COLUMNS))
    assert Dispatcher(calm, executor, Stop(iterations=1600)).run() == "iterations"
    for seed in range(4):
        calls: Counter[Subset] = Counter()
        search = search_of(processors=16, seed=3, T=1600)
        executor = Unreliable(EvaluateSubsets(counting(f, calls), None, COLUMNS), seed)
        dispatcher = Dispatcher(search, executor, Stop(iterations=1600))
        dispatcher.run()
        assert all_of(search) == all_of(calm)
        assert executor.closed
        assert dispatcher.stats.lost_tasks > 0
        assert set(calls.values()) == {1}  # lost here is lost before it was begun
        assert dispatcher.stats.evaluations == len(calls)


def test_packages_take_about_half_a_second() -> None:
    search = search_of(60, 6, seed=1, order="arrival", T=20_000)
    executor = Unreliable(EvaluateSubsets(lambda S: 1.0 + sum(S), None, tuple((j,) for j in range(60))), losses=0.0)
    Dispatcher(search, executor, Stop(iterations=20_000)).run()
    assert executor.sizes[0] == 1  # nothing is known of the time
    assert max(executor.sizes) == TASK_SECONDS / 0.05
    slow = Unreliable(EvaluateSubsets(cover, None, COLUMNS), losses=0.0, unit_seconds=3.0)
    Dispatcher(search_of(order="arrival", T=500), slow, Stop(iterations=500)).run()
    assert max(slow.sizes) == 1


def test_a_round_is_shared_evenly_but_not_into_crumbs() -> None:
    def sizes(most: int) -> list[int]:
        search = search_of(300, 5, processors=64, seed=1)
        tasks = iter(lambda: search.ask(most, 4), None)
        return [task.units for task in tasks]

    assert sum(sizes(100)) == 39
    assert sizes(100) == [10, 10, 10, 9]
    assert max(sizes(3)) == 3
    assert sizes(1_000_000) == [39]


def test_a_subset_that_breaks_worker_after_worker_is_named() -> None:
    work = EvaluateSubsets(cover, None, tuple((j + 100,) for j in range(N_COLUMNS)))
    search = search_of(processors=16, seed=3, T=1600)

    def in_data(S):
        return [j + 100 for j in S]

    executor = Unreliable(work, losses=1.0, suspect=True)
    with pytest.raises(ClusterError, match=r"The columns \[1\d\d.*\] made 4 workers fail .*: it went away"):
        Dispatcher(search, executor, Stop(iterations=1600), in_data=in_data).run()
    assert executor.closed
    assert search.evaluations == 0


def test_a_criterion_that_raises_loses_nothing_that_was_valued(tmp_path: Path) -> None:
    calls: Counter[Subset] = Counter()

    def moody(S: Subset) -> float:
        if calls.total() == 40 and S not in calls:
            calls[S] += 1
            raise ZeroDivisionError("no folds left")
        calls[S] += 1
        return cover(S)

    calm = search_of(processors=16, seed=3, T=1600)
    Dispatcher(calm, SerialExecutor(EvaluateSubsets(cover, None, COLUMNS)), Stop(iterations=1600)).run()
    search, journal = search_of(processors=16, seed=3, T=1600), Journal(tmp_path / "journal")
    work = EvaluateSubsets(moody, None, COLUMNS)
    with pytest.raises(CriterionError, match=r"failed on the columns \[.*\n(.*\n)*ZeroDivisionError: no folds left"):
        Dispatcher(search, SerialExecutor(work), Stop(iterations=1600), journal).run()
    assert search.evaluations == 40
    assert len(journalled_values(journal.path)) == 40
    assert [e["event"] for e in read_journal(journal.path)][-1] == "failed"
    Dispatcher(again(search, search.state()), SerialExecutor(work), Stop(iterations=1600), journal).run()
    later = search_of(processors=16, seed=3, T=1600)
    later.recall(journalled_values(journal.path))
    Dispatcher(later, SerialExecutor(EvaluateSubsets(moody, None, COLUMNS)), Stop(iterations=1600)).run()
    assert all_of(later) == all_of(calm)
    assert sorted(calls.values())[-2:] == [1, 2]  # the one that failed


class TestStopping:
    def search(self, **rules):
        stop = Stop(**{"iterations": 3000, **rules})
        search = search_of(processors=10, seed=3, stop=stop)
        return search, Dispatcher(search, SerialExecutor(EvaluateSubsets(cover, None, COLUMNS)), stop).run()

    def test_rules_are_asked_after_every_round(self) -> None:
        whole, ended = self.search()
        assert ended == "iterations"
        assert whole.iteration == 3000
        search, ended = self.search(target=whole.best_value)
        assert (ended, search.iteration) == ("target", whole.trace[-1].iteration + 10)
        search, ended = self.search(patience=200)
        assert ended == "patience"
        assert 200 <= search.iteration - search.last_gain < 210
        _, ended = self.search(bound=whole.best_value)
        assert ended == "bound"
        _, ended = self.search(seconds=1e-9)
        assert ended == "seconds"


@pytest.mark.parametrize("fields", [{"processors": 16}, {"order": "arrival"}])
def test_interrupted_it_keeps_the_values_of_the_tasks_that_are_out(fields) -> None:
    calls: Counter[Subset] = Counter()
    states = []

    def interrupt(search) -> None:
        states.append(search.state())
        if search.evaluations > 60 and executor.out:
            raise Interrupted("Stopped by SIGTERM.")

    work = EvaluateSubsets(counting(cover, calls), None, COLUMNS)
    search = search_of(seed=3, T=1600, **fields)
    executor = Unreliable(work, losses=0.0)
    with pytest.raises(Interrupted):
        Dispatcher(search, executor, Stop(iterations=1600)).run(interrupt)
    assert executor.closed
    assert not executor.out
    before, after = (len(state["values"]) for state in states[-2:])  # it is called again when they have arrived
    assert before < after == len(calls)
    later = again(search, states[-1])
    Dispatcher(later, Unreliable(work, losses=0.0), Stop(iterations=1600)).run()
    assert later.evaluations == len(calls)
    assert set(calls.values()) == {1}


def test_interrupted_it_does_not_wait_for_a_slow_evaluation() -> None:
    class Slow(Unreliable):
        def poll(self, seconds: float) -> list[tuple[Task, TaskResult | LostTask]]:
            now[0] += seconds
            return []

    def interrupt(search) -> None:
        if executor.out:
            raise Interrupted("Stopped by SIGTERM.")

    now, executor = [0.0], Slow(None)
    search = search_of(seed=3, T=1600, order="arrival")
    with pytest.raises(Interrupted):
        Dispatcher(search, executor, Stop(iterations=1600), clock=lambda: now[0]).run(interrupt)
    assert now[0] <= 3 * TASK_SECONDS
    assert search.evaluations == 0


def test_patience_is_not_lost_on_what_is_still_out() -> None:
    search = search_of(seed=2, order="arrival", T=10_000)
    executor = SerialExecutor(EvaluateSubsets(cover, None, COLUMNS))
    ended = Dispatcher(search, executor, Stop(iterations=10_000, patience=1)).run()
    assert ended == "patience"
    assert search.evaluations > 0


def test_it_says_how_it_gets_on() -> None:
    said = []
    search = search_of(seed=2, order="arrival", T=600)
    executor = Unreliable(EvaluateSubsets(cover, None, COLUMNS), losses=0.0)
    ticks = iter(range(10**6))
    dispatcher = Dispatcher(search, executor, Stop(iterations=600), clock=lambda: float(next(ticks)))
    dispatcher.run(lambda search: said.append(search.progress))  # type: ignore[attr-defined]
    first, last = said[0], said[-1]
    assert first.seconds_left is None
    assert (last.iterations, last.limit, last.evaluations) == (600, 600, search.evaluations)
    assert (last.best, last.archive, last.seconds_left) == (search.best_value, len(search.archive), 0.0)
    assert 0.0 < last.utilisation < 1.0
    text = f"{search.evaluations} evaluations, best {search.best_value:.6g}, archive {len(search.archive)}"
    assert str(last).startswith(text)
    assert str(last).endswith("busy")
    assert any(progress.seconds_left for progress in said)
    nothing = replace(last, iterations=0, evaluations=0, archive=0, per_second=0.0, workers=1)
    assert str(nothing).startswith(f"best {search.best_value:.6g}, 1 worker ")


def test_the_time_until_the_first_result_tells_nothing_of_the_speed() -> None:
    said, now = [], [0.0]
    search = search_of(seed=2, order="arrival", T=600)

    class LateExecutor(SerialExecutor):
        def poll(self, seconds: float) -> Any:
            now[0] += 1.0 if now[0] else 10_000.0  # workers start, then each task takes a second
            return super().poll(seconds)

    executor = LateExecutor(EvaluateSubsets(cover, None, COLUMNS))
    dispatcher = Dispatcher(search, executor, Stop(iterations=600), clock=lambda: now[0])
    dispatcher.run(lambda search: said.append(search.progress))  # type: ignore[attr-defined]
    assert said[1].seconds_left is None
    assert 0.0 < max(progress.seconds_left or 0.0 for progress in said) < 1000.0
    assert said[-1].per_second > 0.5


class TestJournal:
    @pytest.mark.parametrize("f", [cover, tied])
    def test_it_replays_an_asynchronous_run(self, tmp_path: Path, f) -> None:
        search, journal = search_of(seed=2, order="arrival", T=3000), Journal(tmp_path / "journal")
        journal.write("started", solutions=[])
        Dispatcher(search, Unreliable(EvaluateSubsets(f, None, COLUMNS), 1), Stop(iterations=3000), journal).run()
        assert replayed(journal.path, K).points == search.archived
        kinds = {event["event"] for event in read_journal(journal.path)}
        assert kinds == {"started", "sent", "merged", "lost", "workers", "ended"}

    @pytest.mark.parametrize("order", ["index", "arrival"])
    def test_it_replays_slices(self, tmp_path: Path, order) -> None:
        X, Y = random_data(7, m=80, n=25)
        objective = regression(X, Y)
        rules, stop = SliceRules(4, 2), Stop(iterations=12_000)
        search = SlicedSearch(objective, rules, Schedule(length=700, order=order), stop)
        journal = Journal(tmp_path / "journal")
        journal.write("started", solutions=[])
        Dispatcher(search, Unreliable(RunSlices(objective, rules), 1, unit_seconds=1e-3), stop, journal).run()
        assert [(z.members, z.value) for z in replayed(journal.path, 4).points[1:]] == [
            (z.members, z.value) for z in search.archived[1:]
        ]
        poss = Poss(objective, 4, seed=2)
        poss.advance(12_000)
        assert search.best_value == pytest.approx(poss.best_value)

    def test_a_disk_that_takes_half_a_line_is_an_error(self, tmp_path: Path, monkeypatch) -> None:
        journal, write = Journal(tmp_path / "journal.jsonl"), os.write
        room = [10]

        def full(file: int, line: bytes) -> int:
            if not room:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(file, line[: room.pop()])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OutputError, match="No space left"):
            journal.write("sent", key="a")
        monkeypatch.undo()
        journal.close()

    def test_killed_in_the_middle_of_a_line_it_continues(self, tmp_path: Path) -> None:
        path = tmp_path / "journal"
        journal = Journal(path)
        journal.write("started", solutions=[])
        journal.write("merged", key="a", found=[[[1, 2], 3.0], [[4], None]])
        journal.close()
        whole = path.read_bytes()
        for cut in range(1, 30):
            path.write_bytes(whole + b'{"event": "merged", "found": [[[0], 1.0]]}'[:cut])
            assert journalled_values(path) == {(1, 2): 3.0, (4,): math.inf}
            again = Journal(path)
            again.write("resumed", solutions=[[[1, 2], 3.0]])
            again.close()
            assert [event["event"] for event in read_journal(path)] == ["started", "merged", "resumed"]
            assert [z.members for z in replayed(path, K).points] == [(), (1, 2)]


def test_the_signature_says_whether_a_criterion_wants_the_data() -> None:
    class Callable:
        def __call__(self, S, data):
            return data

    assert not takes_data(lambda S: 1)
    assert not takes_data(lambda S, folds=3: 1)
    assert not takes_data(sum)
    assert not takes_data(lambda *S: 1)
    assert takes_data(lambda S, data: 1)
    assert takes_data(Callable())
    assert bind(Callable(), "the data")((1,)) == "the data"
    assert bind(len, None)((1, 2)) == 2


def test_a_subset_is_given_in_the_data_s_columns_with_the_included_ones() -> None:
    seen = []
    work = EvaluateSubsets(lambda S: seen.append(S) or 1.0, None, ((2,), (5,), (7, 8)), (3,))
    assert work(Task("a", ((0, 2), (1,)))).found == (1.0, 1.0)
    assert seen == [(2, 3, 7, 8), (3, 5)]
