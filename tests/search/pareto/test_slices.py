"""A search by slices: the same archive in whatever order, by whatever workers and after whatever interruptions."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from dsel.search.anytime import Stop
from dsel.search.ask_tell import SerialExecutor
from dsel.search.method import SearchTask
from dsel.search.pareto.archive import ParetoArchive
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.criterion import CriterionSearch, draw_parent
from dsel.search.pareto.options import default_interval
from dsel.search.pareto.slice_work import RunSlices, Slice, SliceRules, run_slice
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.registry import METHODS
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import (
    LEAST_IN_FLIGHT,
    LEAST_SLICES,
    LONGEST_SECONDS,
    MOST_IN_FLIGHT,
    SLICE_SECONDS,
    Division,
    Schedule,
    evaluations_at_a_time,
    iteration_seconds,
)
from tests.search.cases import random_data, regression, self_expression
from tests.search.runtime.test_dispatcher import Unreliable

X, Y = random_data(7, m=80, n=25)
OBJECTIVES = {"one target": regression(X, Y), "Y = X": self_expression(X)}
K, SEED, T = 4, 3, 6000
STOP = Stop(iterations=T)
RULES = {
    "poss": SliceRules(K, SEED), "exchange": SliceRules(K, SEED, exchange_every=200),
    "isolated": SliceRules(K, SEED, "min-index"), "pposs": SliceRules(K, SEED, processors=8),
}  # fmt: skip


def begun(objective, rules, slices=6, stop=STOP) -> SlicedSearch:
    return SlicedSearch(objective, rules, Schedule(slices, 96), stop)


def calm(search: SlicedSearch) -> SlicedSearch:
    work = RunSlices(search.objective, search.rules)
    Dispatcher(search, SerialExecutor(work), search.stop).run()
    return search


def outcome(search: SlicedSearch) -> tuple[object, ...]:
    return search.archived, search.trace, search.iteration, search.last_gain, search.counts()


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_one_slice_at_a_time_is_the_sequential_search(objective, rules) -> None:
    found = calm(begun(objective, rules, slices=1))
    sequential = rules.search(objective, 1 << 30)
    sequential.advance(T)
    assert found.archived == sequential.archived
    assert found.trace == sequential.trace
    assert found.iteration == sequential.iteration == T


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_workers_losses_and_interruptions_do_not_show(rules) -> None:
    objective = OBJECTIVES["one target"]
    expected = outcome(calm(begun(objective, rules)))
    for seed in range(3):
        search, looks = begun(objective, rules), 0

        def interrupt(_) -> None:
            nonlocal looks
            looks += 1
            if looks % 17 == 0:
                raise Interrupted

        work = RunSlices(objective, rules)
        while True:
            executor = Unreliable(work, seed)
            try:
                Dispatcher(search, executor, STOP).run(interrupt)
                break
            except Interrupted:
                search = SlicedSearch.restore(objective, json.loads(json.dumps(search.state())), STOP)
        assert looks > 34
        assert outcome(search) == expected


@pytest.mark.parametrize("rule", ["target", "patience", "bound"])
def test_a_rule_ends_every_run_at_the_same_slice(rule) -> None:
    objective = OBJECTIVES["one target"]
    values = [gain.value for gain in calm(begun(objective, RULES["poss"])).trace]
    level = {"target": values[-2], "bound": values[-2], "patience": 300}[rule]
    stop = replace(STOP, **{rule: level})
    expected = calm(begun(objective, RULES["poss"], stop=stop))
    assert expected.iteration < T
    for seed in range(3):
        search = begun(objective, RULES["poss"], stop=stop)
        assert Dispatcher(search, Unreliable(RunSlices(objective, RULES["poss"]), seed), stop).run() == rule
        assert outcome(search) == outcome(expected)


def test_each_slice_starts_from_the_archive_so_many_slices_before() -> None:
    search = begun(OBJECTIVES["one target"], RULES["poss"], slices=3)
    work = RunSlices(search.objective, search.rules)
    first = [search.ask(1, 1) for _ in range(3)]
    assert search.ask(1, 1) is None
    assert [task.payload.start for task in first] == [0, 96, 192]
    assert {task.payload.solutions for task in first} == {()}
    search.tell(first[2], work(first[2]))
    search.tell(first[1], work(first[1]))
    assert search.iteration == 0  # both wait for the first one
    assert search.ask(1, 1) is None
    alone = ParetoArchive(K)
    for S, f in work(first[0]).found.solutions:
        alone.offer(S, f)
    search.tell(first[0], work(first[0]))
    assert search.iteration == 288
    assert search.ask(1, 1).payload.solutions == tuple((z.members, z.value) for z in alone.points[1:])


def test_subsets_from_elsewhere_are_in_the_first_snapshot_unless_they_depend() -> None:
    search = begun(OBJECTIVES["one target"], RULES["poss"])
    assert search.offer((1, 0))
    assert search.ask(1, 1).payload.solutions == (((0, 1), search.objective.value((0, 1))),)
    twice = regression(X[:, [0, 0, 1]], Y)
    assert not begun(twice, SliceRules(2, SEED)).offer((0, 1))


@pytest.mark.parametrize("name", ["poss", "pposs"])
def test_the_method_runs_slices_where_they_are_asked_for(name) -> None:
    method = METHODS[name]
    options = {"iterations": T, "exchange_every": 0, "warm_start": "none"}
    sliced = method.run(
        SearchTask(OBJECTIVES["Y = X"], K, SEED, method.options(max_in_flight=4, task_iterations=96, **options))
    )
    rules = SliceRules(K, SEED, processors=32 if name == "pposs" else 0)
    found = calm(SlicedSearch(OBJECTIVES["Y = X"], rules, Schedule(4, 96), STOP))
    assert sliced.front == found.front()
    assert sliced.counts["slices"] == -(-found.limit // 96)
    published = method.run(SearchTask(OBJECTIVES["Y = X"], K, SEED, method.options(max_in_flight=1, **options)))
    sequential = Poss(OBJECTIVES["Y = X"], K, seed=SEED, processors=rules.processors)
    sequential.advance(T)
    assert published.front == sequential.front()


@pytest.mark.parametrize("processors", [0, 32])
def test_several_threads_of_a_worker_run_slices_at_the_same_time(processors: int) -> None:
    """Compiled iterations let other threads of Python run: another slice, or the worker's messages."""
    search = SliceRules(K, SEED, processors=processors).search(OBJECTIVES["Y = X"], 8 << 30)
    search.warm_up()
    turns, iterations = 0, 1_000_000
    while turns <= 10 and iterations <= 100_000_000:  # more, where other programs leave this one few turns
        slice_of_it = threading.Thread(target=search.advance, args=(iterations,))
        slice_of_it.start()
        turns, iterations = 0, 10 * iterations
        while slice_of_it.is_alive():
            time.sleep(0.001)
            turns += 1
    assert turns > 10  # a thread that held the lock of Python would leave one or two turns


def test_the_offspring_of_a_round_on_workers_are_those_of_algorithm_2() -> None:
    method, objective = METHODS["pposs"], OBJECTIVES["one target"]
    options = method.options(max_in_flight=1, search_on="workers", iterations=960)
    assert options.evaluates_subsets(criterion=False, grouped=False)
    divided = method.run(SearchTask(objective, K, SEED, options))
    rounds = Poss(objective, K, seed=SEED, processors=32)
    rounds.advance(960)
    assert [point.members for point in divided.front] == [point.members for point in rounds.front()]
    assert divided.iterations == 960
    assert "exchange_every" in method.options(max_in_flight=1, search_on="workers", exchange_every=9).conflict(False)


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_slices_that_are_cut_by_the_clock_find_the_same(rules) -> None:
    """A slice that takes too long comes back before its end, and continues, perhaps elsewhere."""
    objective, stop = OBJECTIVES["one target"], Stop(iterations=T // 3)
    expected, cut = calm(begun(objective, rules, stop=stop)), begun(objective, rules, stop=stop)
    work, pieces = RunSlices(objective, rules, seconds=0.0), 0
    while not cut.finished():
        task = cut.ask(1, 1)
        result = work(task)
        pieces += not result.found.complete
        cut.tell(task, result)
        if pieces % 7 == 0:
            cut = SlicedSearch.restore(objective, json.loads(json.dumps(cut.state())), stop)
    assert pieces > expected.counts()["slices"]
    assert outcome(cut) == outcome(expected)


def test_when_the_time_is_over_incomplete_slices_count() -> None:
    search = begun(OBJECTIVES["one target"], RULES["poss"])
    tasks = [search.ask(1, 1) for _ in range(2)]
    work = RunSlices(search.objective, search.rules, seconds=0.0)
    for task in tasks:
        search.tell(task, work(task))
    assert search.iteration == 0
    search.merge_rest()
    assert search.iteration == 2
    assert search.finished()


class TestTheDivision:
    @staticmethod
    def of(n=2500, k=50, every=1000, T=None, **more) -> tuple[Schedule, float]:
        division = Division(n, k, 1, every, T or paper_iterations(k, n), **more)
        return division.schedule(), division.each

    def test_a_short_search_has_a_few_slices_for_each_of_some_workers(self) -> None:
        size, _ = self.of(60, 8, T=20_876)
        assert size.in_flight == LEAST_IN_FLIGHT
        assert math.ceil(20_876 / size.length) == LEAST_SLICES
        assert self.of(60, 8, every=0, T=20_876)[0].in_flight == 1

    def test_the_longer_the_search_the_more_slices_at_a_time(self) -> None:
        sizes = [self.of(T=10**power)[0].in_flight for power in range(5, 11)]
        assert sizes == sorted(sizes)
        assert (sizes[0], sizes[-1]) == (LEAST_IN_FLIGHT, MOST_IN_FLIGHT)

    def test_a_search_of_half_a_minute_keeps_eight_workers_busy(self) -> None:
        assert self.of(every=default_interval(2500, 50))[0].in_flight == 8

    def test_a_cluster_costs_at_most_five_percent_or_a_third_of_a_second(self) -> None:
        """Sending and merging a task takes about 8 ms."""
        for power in range(3, 11):
            size, each = self.of(T=10**power)
            overhead = 0.008 * math.ceil(10**power / size.length)
            assert overhead <= max(0.05 * each * 10**power, 0.3)

    def test_the_longest_searches_have_longer_slices(self) -> None:
        found = [self.of(T=10**power) for power in range(6, 12)]
        lengths = [size.length for size, _ in found]
        assert lengths == sorted(lengths)
        assert lengths[-1] * found[-1][1] == pytest.approx(LONGEST_SECONDS, rel=0.1)

    def test_slices_take_long_compared_with_their_start(self) -> None:
        n, k = 10_000, 100
        size, each = self.of(n, k, default_interval(n, k))
        assert size.length * each > 1.0
        assert self.of()[0].length * self.of()[1] == pytest.approx(SLICE_SECONDS, rel=0.1)

    def test_searches_without_exchange_have_more_generations(self) -> None:
        assert self.of(every=0, T=10**9)[0].in_flight < self.of(T=10**9)[0].in_flight

    def test_a_time_limit_shortens_slices(self) -> None:
        size, each = self.of(T=10**12, seconds=2.0)
        assert size.length * each == pytest.approx(2.0 / 32, rel=0.1)

    def test_rounds_are_not_divided(self) -> None:
        assert self.of(T=10**6, processors=1000)[0].length % 1000 == 0

    def test_the_cost_model_is_within_a_factor_of_two_of_what_was_measured(self) -> None:
        """Microseconds on one core, with and without an exchange search every 1000 iterations."""
        measured = [
            (60, 8, 1, 0.06, 0.08), (500, 8, 1, 0.06, 0.09), (500, 20, 1, 0.14, 0.35), (2500, 20, 1, 0.19, 1.04),
            (2500, 50, 1, 0.63, 6.13), (500, 20, 0, 0.19, 0.65), (2500, 50, 0, 0.98, 21.4), (2500, 20, 5, 0.38, 1.64),
        ]  # fmt: skip
        for n, k, targets, alone, exchanging in measured:
            assert 0.5 < 1e6 * iteration_seconds(n, k, targets, 0) / alone < 2.0
            assert 0.5 < 1e6 * iteration_seconds(n, k, targets, 1000) / exchanging < 2.0

    def test_a_criterion_has_at_least_a_hundred_iterations_for_each_at_a_time(self) -> None:
        assert evaluations_at_a_time(880) == 8
        assert evaluations_at_a_time(10) == 1
        assert evaluations_at_a_time(10**6) == 128


class OfSomeSizes(CriterionSearch):
    """POSS that draws its parents from subsets of some sizes, in Python."""

    def __init__(self, objective, rules, solutions, sizes) -> None:
        super().__init__(objective.n, rules.k, Schedule(), STOP, seed=rules.seed)
        for S, f in solutions:
            self.archive.offer(S, f)
        self.sizes = sizes
        self.objective = objective

    def run(self, start: int, stop: int) -> None:
        for t in range(start, stop):
            allowed = [z for z in self.archive.points if len(z.members) in self.sizes] or self.archive.points
            S = self._offspring_of(allowed[int(draw_parent(self.seed, t, len(allowed)))].members, t)
            if S is not None and self.objective.rank(S) == len(S):
                self.archive.offer(S, self.objective.value(S))


@pytest.mark.parametrize("parents", [(2,), (6, 7, 0, 1), (0, 1), (5, 6, 7), (0, 7), tuple(range(8))])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_a_slice_draws_its_parents_from_some_sizes(objective, parents) -> None:
    rules = RULES["poss"]
    solutions = calm(begun(objective, rules, slices=1, stop=Stop(iterations=500))).archived
    pairs = tuple((z.members, z.value) for z in solutions if z.size and z.size != 5)
    expected = OfSomeSizes(objective, rules, pairs, parents)
    expected.run(500, 3000)
    search = rules.search(objective, 1 << 30)
    run_slice(search, Slice(500, 3000, pairs, parents=parents))
    assert [z.members for z in search.archived] == [z.members for z in expected.archive.points]


@pytest.mark.parametrize("slices", [2, 3, 8, 20])
def test_slices_at_the_same_time_have_parents_of_different_sizes(slices: int) -> None:
    size = Schedule(slices, 96)
    for generation in range(30):
        found = [size.parents(generation * slices + place, K) for place in range(slices)]
        sizes = [one for sizes in found for one in sizes]
        assert set(sizes) == set(range(2 * K))
        assert slices > 2 * K or len(sizes) == 2 * K
    assert len({size.parents(slices * generation, K) for generation in range(30)}) > 1


@pytest.mark.parametrize("slices", [8, 16])
def test_slices_at_the_same_time_take_about_equally_long(slices: int) -> None:
    """The time of an iteration grows about linearly with the size of the parent."""
    size = Schedule(slices, 960)
    means = [np.mean(size.parents(q, 64)) for q in range(10 * slices)]
    assert max(means) - min(means) < 0.3 * np.mean(means)


def test_short_slices_and_single_ones_have_all_parents() -> None:
    assert Schedule(1, 96).parents(5, K) is None
    assert Schedule(4, 1).parents(5, K) is None
    search = begun(OBJECTIVES["one target"], replace(RULES["pposs"], processors=48))
    assert search.ask(1, 1).payload.parents is None  # two rounds


def test_a_restart_computes_no_table_that_still_exists() -> None:
    objective, rules = OBJECTIVES["one target"], RULES["exchange"]
    search = rules.search(objective, 1 << 30)
    search.advance(300)
    search.restart(300, [point.members for point in search.archived if point.size])  # makes room for more tables
    before = search.archived
    search.advance(600)
    assert search.archived != before
    accepted = search.counts()["accepted"]
    search.restart(300, [point.members for point in before if point.size])
    assert search.archived == before
    assert search.counts()["accepted"] == accepted
    search.advance(T)
    again = rules.search(objective, 1 << 30)
    again.restart(300, [point.members for point in before if point.size])
    again.advance(T)
    assert search.archived == again.archived
