"""PPOSS in rounds: the paper's Algorithm 2, whoever values the offspring, in whatever order and parts."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel._lib.rng import binomial_cdf
from dsel.search.pareto.archive import ParetoArchive
from dsel.search.pareto.compiled import Poss
from dsel.search.pareto.criterion import draw_columns
from tests.oracles.literal_pposs import LiteralPposs, merged_in_parallel, merged_one_by_one
from tests.search.cases import random_data, regression
from tests.search.pareto.by_hand import N_COLUMNS, K, advance, again, all_of, answer, cover, search_of, tied


def test_with_one_processor_it_is_poss_step_by_step() -> None:
    search, poss = search_of(processors=1, seed=3), search_of(seed=3)
    for until in range(1, 800):
        advance(search, until)
        advance(poss, until)
        assert search.archived == poss.archived
    assert search.trace == poss.trace


@pytest.mark.parametrize("f", [cover, tied])
def test_every_round_is_that_of_algorithm_2(f) -> None:
    N, seed = 6, 5
    search, oracle = search_of(processors=N, seed=seed), LiteralPposs(lambda s: f(tuple(sorted(s))), K)
    cdf, flips = binomial_cdf(N_COLUMNS, 1.0 / N_COLUMNS), np.zeros(N_COLUMNS, np.int64)
    for t in range(250):
        drawn = [flips[: draw_columns(seed, t, slot, cdf, flips)].tolist() for slot in range(N)]
        oracle.round(search._parent(t), [flip for flip in drawn if flip])  # what flips nothing is no offspring here
        advance(search, (t + 1) * N, f)
        assert {(frozenset(z.members), z.value) for z in search.archived} == set(oracle.P)


_subsets = st.lists(st.frozensets(st.integers(0, 5), min_size=1, max_size=5), max_size=8)


def few_values(s: frozenset[int]) -> float:
    """Many subsets are equal."""
    return float(sum(3**j for j in s) % 5)


@settings(max_examples=100, deadline=None)
@given(_subsets, _subsets)
def test_the_merging_of_section_3_4_is_that_of_the_lines_it_replaces(old, offspring) -> None:
    """Up to solutions equal in both objectives: the lines keep the last of them, the section does not say."""
    P = merged_one_by_one([(frozenset(), math.inf)], [(s, few_values(s)) for s in old])
    new = [(s, few_values(s)) for s in offspring]
    literal = merged_one_by_one(P, new)
    parallel = merged_in_parallel(P, new)
    assert {(v, len(s)) for s, v in literal} == {(v, len(s)) for s, v in parallel}
    assert set(literal) <= set(parallel) | set(P)

    archive = ParetoArchive(3)
    for s, v in P[1:]:
        archive.offer(s, v)
    R = [(tuple(sorted(s)), v) for s, v in new if archive.admits(tuple(sorted(s)), v)]
    for s, v in R:
        archive.offer(s, v)
    assert {(frozenset(z.members), z.value) for z in archive.points} == set(literal)


def test_how_a_round_is_parted_and_answered_changes_nothing() -> None:
    whole = search_of(processors=16, seed=8)
    asked = advance(whole, 1600, most=10**6, workers=1)
    assert len(asked) == len(set(asked)) == whole.counts()["evaluated"]
    parted = search_of(processors=16, seed=8, T=1600)
    rng = random.Random(1)
    out = []
    while parted.iteration < 1600:
        task = parted.ask(rng.randint(1, 5), rng.randint(1, 20))
        if task is not None:
            out.append(task)
        if out and (task is None or rng.random() < 0.5):
            back = out.pop(rng.randrange(len(out)))
            fate = rng.random()
            if fate < 0.2:
                parted.requeue(back, suspect=fate < 0.1)
            else:  # sometimes the last ones are missing
                answer(parted, back, [cover(S) for S in back.payload][: len(back.payload) - (fate > 0.9)])
    assert all_of(parted) == all_of(whole)


def test_what_a_worker_broke_under_is_asked_alone() -> None:
    search = search_of(processors=32, seed=2)
    task = search.ask(10, 1)
    assert task is not None
    assert len(task.payload) > 3
    search.requeue(task, suspect=True)
    for S in task.payload:
        again = search.ask(10, 1)
        assert again is not None
        assert again.payload == (S,)


def test_saved_in_the_middle_of_a_round_it_continues_as_it_was() -> None:
    whole = search_of(processors=8, seed=4)
    advance(whole, 800)
    search, asked = search_of(processors=8, seed=4, T=800), []
    rng = random.Random(0)
    while search.iteration < 800:
        task = search.ask(2, 1)
        if task is not None:
            asked += task.payload
            answer(search, task, [cover(S) for S in task.payload])
        if rng.random() < 0.2:
            search = again(search, json.loads(json.dumps(search.state(), allow_nan=False)))
    assert all_of(search) == all_of(whole)
    assert len(asked) == len(set(asked))


def test_what_is_recalled_is_not_asked() -> None:
    whole = search_of(processors=8, seed=4)
    advance(whole, 400)
    again = search_of(processors=8, seed=4)
    again.recall({S: cover(S) for S in whole.values})
    assert advance(again, 400) == []
    assert all_of(again) == all_of(whole)


@pytest.mark.parametrize(("T", "iterations"), [(3, 8), (15, 8), (16, 16)])
def test_rounds_never_go_beyond_the_limit_but_for_the_first(T: int, iterations: int) -> None:
    search = search_of(processors=8, T=T)
    while not search.finished():
        task = search.ask(10, 1)
        if task is not None:
            answer(search, task, [cover(S) for S in task.payload])
    assert search.iteration == iterations


@pytest.mark.parametrize("isolation", ["min-index", max])
def test_with_an_isolation_function_too(isolation) -> None:
    search = search_of(processors=1, seed=3, isolation=isolation)
    poss = search_of(seed=3, isolation=isolation)
    own = isolation if callable(isolation) else None
    for until in range(50, 800, 50):
        advance(search, until)
        advance(poss, until)
        assert search.archived == poss.archived
        search = again(search, json.loads(json.dumps(search.state())), own)


class TestCompiled:
    X, Y = random_data(3, m=100, n=30)
    objective = regression(X, Y)

    def test_with_one_processor_it_is_poss(self) -> None:
        rounds, poss = Poss(self.objective, 5, processors=1, seed=3), Poss(self.objective, 5, seed=3)
        for until in (1, 2, 3, 50, 5000, 20_000):
            rounds.advance(until)
            poss.advance(until)
            assert rounds.archived == poss.archived
            assert rounds.trace == poss.trace

    def test_with_an_isolation_too(self) -> None:
        of = {"seed": 3, "isolation": "min-index"}
        rounds, poss = Poss(self.objective, 3, processors=1, **of), Poss(self.objective, 3, **of)
        rounds.advance(8000)
        poss.advance(8000)
        assert rounds.archived == poss.archived
        rounds, search = Poss(self.objective, 3, processors=32, **of), search_of(30, 3, processors=32, **of)
        rounds.advance(9600)
        advance(search, 9600, self.objective.value)
        assert [z.members for z in rounds.archived] == [z.members for z in search.archived]

    @pytest.mark.parametrize("N", [2, 7, 32])
    def test_its_rounds_are_those_of_ask_and_tell(self, N: int) -> None:
        rounds, search = Poss(self.objective, 5, processors=N, seed=6), search_of(30, 5, processors=N, seed=6)
        for until in range(N, 300 * N, N):
            rounds.advance(until)
            advance(search, until, self.objective.value)
            assert [(z.members, z.value) for z in rounds.archived[1:]] == [
                (z.members, z.value) for z in search.archived[1:]
            ]
        assert rounds.iteration == search.iteration
        assert rounds.last_gain == search.last_gain

    def test_a_parent_whose_table_went_to_another_subset_in_the_round_is_no_parent_any_more(self) -> None:
        rounds, search = Poss(self.objective, 5, processors=2000, seed=1), search_of(30, 5, processors=2000, seed=1)
        for until in range(2000, 12000, 2000):
            rounds.advance(until)
            advance(search, until, self.objective.value, most=2000, workers=1)
            assert [z.members for z in rounds.archived] == [z.members for z in search.archived]

    def test_a_round_may_hold_more_offspring_than_the_trace_has_rows(self) -> None:
        rounds = Poss(self.objective, 5, processors=10_000, seed=1)
        rounds.advance(20_000)
        assert rounds.iteration == 20_000

    def test_it_stops_at_the_target(self) -> None:
        search = Poss(self.objective, 5, processors=7, seed=1)
        search.advance(7000)
        again = Poss(self.objective, 5, processors=7, seed=1)
        assert again.advance(7000, target=search.best_value)
        assert again.iteration == search.trace[-1].iteration + 7
