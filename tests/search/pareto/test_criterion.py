"""POSS for any criterion: each subset is evaluated once, by ask and tell, and a criterion that fails harms nothing."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.errors import CriterionError, OptionError
from dsel.search.anytime import Stop
from dsel.search.ask_tell import SerialExecutor, TaskResult
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.criterion import CriterionSearch, swapped
from dsel.search.pareto.evaluations import EvaluateSubsets
from dsel.search.runtime.dispatcher import Dispatcher
from tests.search.pareto.by_hand import NO_LIMIT, again, all_of, search_of
from tests.search.pareto.by_hand import advance as answered

N, K = 8, 3
WEIGHTS = np.random.default_rng(0).uniform(1.0, 2.0, N)


def cover(S: Subset) -> float:
    """Less for heavier columns, with something lost between neighbours."""
    return 20.0 - sum(WEIGHTS[list(S)]) + 0.3 * sum(a + 1 == b for a, b in pairwise(S))


class Counting:
    """A criterion that counts how often it is asked about each subset, and may fail at given calls."""

    def __init__(self, f: Callable[[Subset], Any] = cover, fail_at: frozenset[int] = frozenset()) -> None:
        self.f, self.fail_at = f, fail_at
        self.calls: Counter[Subset] = Counter()

    def __call__(self, S: Subset) -> Any:
        self.calls[S] += 1
        if self.calls.total() in self.fail_at:
            raise ZeroDivisionError("no folds left")
        return self.f(S)


def poss(n: int = N, k: int = K, **more: Any) -> CriterionSearch:
    return search_of(n, k, **more)


def advance(search: CriterionSearch, f: Callable[[Subset], Any], until: int) -> str:
    """Continue to iteration `until` as `dsel.select` does without a cluster; return why it ended."""
    search.limit = until
    work = EvaluateSubsets(f, None, tuple((j,) for j in range(search.n)))
    return Dispatcher(search, SerialExecutor(work), search.stop).run()


def test_it_finds_the_best_subset() -> None:
    search = poss(seed=1)
    advance(search, cover, 2000)
    best = min((cover(S), S) for S in combinations(range(N), K))
    assert (search.archive.best().value, search.archive.best().members) == best
    assert search.best_value == best[0]


def test_a_subset_is_a_tuple_of_ascending_columns_evaluated_once() -> None:
    criterion = Counting()
    search = poss(seed=2)
    advance(search, criterion, 1500)
    assert set(criterion.calls.values()) == {1}
    assert search.counts()["evaluated"] == len(criterion.calls)
    assert search.counts()["recalled"] > len(criterion.calls)
    assert all(list(S) == sorted(set(S)) and 0 < len(S) < 2 * K for S in criterion.calls)
    assert all(type(j) is int and 0 <= j < N for S in criterion.calls for j in S)


def test_asking_and_telling_by_hand_is_the_same_as_selecting() -> None:
    alone, driven = poss(seed=3), poss(seed=3)
    advance(alone, cover, 800)
    answered(driven, 800, cover)
    assert all_of(driven) == all_of(alone)


def test_slices_do_not_matter() -> None:
    whole, sliced = poss(seed=5), poss(seed=5)
    advance(whole, cover, 700)
    for until in (1, 2, 50, 50, 333, 700):
        advance(sliced, cover, until)
    assert all_of(sliced) == all_of(whole)


def test_it_stops_at_the_target() -> None:
    whole = poss(seed=6)
    advance(whole, cover, 1000)
    goal = whole.trace[-1]
    search = poss(seed=6, stop=Stop(iterations=NO_LIMIT, target=goal.value))
    assert advance(search, cover, 1000) == "target"
    assert search.iteration == goal.iteration + 1
    assert advance(poss(seed=6, stop=Stop(iterations=NO_LIMIT, target=goal.value - 1.0)), cover, 1000) == "iterations"


def test_the_trace_holds_every_improvement_of_the_best() -> None:
    search = poss(seed=7)
    seen = [search.best_value]
    for until in range(1, 500):
        advance(search, cover, until)
        seen.append(search.best_value)
    gains = [t for t in range(1, 500) if seen[t] < seen[t - 1]]
    assert [t.iteration + 1 for t in search.trace] == gains
    assert [t.value for t in search.trace] == [seen[t] for t in gains]
    assert search.last_gain == search.trace[-1].iteration
    assert search.best_value == min(z.value for z in search.archived if z.size <= K)


def test_a_criterion_that_raises_is_named_with_its_subset_and_its_traceback() -> None:
    criterion = Counting(fail_at=frozenset({5}))
    search = poss(seed=8)
    with pytest.raises(CriterionError) as caught:
        advance(search, criterion, 500)
    failed = list(criterion.calls)[4]
    assert f"The criterion failed on the columns {list(failed)}" in str(caught.value)
    assert "ZeroDivisionError: no folds left" in str(caught.value)
    assert 'raise ZeroDivisionError("no folds left")' in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_after_a_failure_the_search_continues_as_if_nothing_had_been() -> None:
    criterion, search = Counting(fail_at=frozenset({1, 5, 9})), poss(seed=8)
    calm = poss(seed=8)
    advance(calm, cover, 500)
    failures = 0
    while search.iteration < 500:
        before = search.archived
        try:
            advance(search, criterion, 500)
        except CriterionError:
            failures += 1
            assert len(search.archived) >= len(before)
    assert failures == 3
    assert all_of(search) == all_of(calm)


@pytest.mark.parametrize(
    "value",
    [float("nan"), np.float64("nan"), -math.inf, None, "3.0", 1j, np.zeros(1), True, 10**400],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_not_a_number_is_refused(value: object) -> None:
    search = poss(seed=9)
    with pytest.raises(CriterionError, match=r"returned .* for the columns \[\d"):
        advance(search, lambda S: value, 500)
    assert len(search.archived) == 1
    assert search.counts()["evaluated"] == 0


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, int, np.int64, np.asarray], ids=lambda t: t.__name__)
def test_any_kind_of_real_number_will_do(kind: Callable[[int], Any]) -> None:
    search = poss(seed=9)
    advance(search, lambda S: kind(10 - len(S)), 500)
    assert search.best_value == 10 - K
    assert type(search.best_value) is float


def test_infinite_says_not_allowed() -> None:
    criterion = Counting(lambda S: math.inf if 3 in S else cover(S))
    search = poss(seed=10)
    advance(search, criterion, 1500)
    assert any(3 in S for S in criterion.calls)
    assert set(criterion.calls.values()) == {1}
    assert not any(3 in z.members for z in search.archived)
    assert search.archive.best().size == K


def test_while_nothing_is_allowed_there_is_only_the_empty_set() -> None:
    search = poss()
    advance(search, lambda S: math.inf, 100)
    assert [z.members for z in search.front()] == [()]
    assert search.best_value == math.inf
    assert search.total == 1.0


def test_differences_are_judged_against_the_first_value() -> None:
    values = iter([-4.0, *range(100)])
    search = poss()
    assert search.total == 1.0
    advance(search, lambda S: next(values), 20)
    assert search.total == 4.0


def test_a_function_may_isolate() -> None:
    """The least column by the user's function is the built-in "min-index"."""
    own = poss(seed=11, isolation=lambda S: f"from {S[0]}")
    built_in = poss(seed=11, isolation="min-index")
    plain = poss(seed=11)
    for search in (own, built_in, plain):
        advance(search, cover, 1500)
    assert all_of(own) == all_of(built_in)
    assert len(own.archived) > len(plain.archived)
    front = own.front()
    assert [p.size for p in front] == sorted({p.size for p in front})
    assert all(a.value > b.value for a, b in pairwise(front))


@pytest.mark.parametrize("isolation", [lambda S: S[99], lambda S: [S]], ids=["raises", "cannot be hashed"])
def test_an_isolation_function_that_fails_is_named(isolation: Callable[[Subset], Any]) -> None:
    search = poss(seed=12, isolation=isolation)
    with pytest.raises(CriterionError, match=r"The isolation function failed on the columns \[") as caught:
        advance(search, cover, 500)
    assert isinstance(caught.value.__cause__, (IndexError, TypeError))
    assert len(search.archived) == 1


@pytest.mark.parametrize("isolation", ["none", "min-index", lambda S: S[-1]], ids=["none", "min-index", "own"])
def test_a_saved_search_continues_as_it_was_and_evaluates_nothing_again(isolation: Any) -> None:
    def allowed(S: Subset) -> float:
        return math.inf if len(S) == 5 else cover(S)

    whole = poss(seed=13, isolation=isolation)
    advance(whole, allowed, 900)
    half = poss(seed=13, isolation=isolation)
    advance(half, allowed, 400)
    saved = json.loads(json.dumps(half.state(), allow_nan=False))
    criterion = Counting(allowed)
    rest = again(half, saved, isolation if callable(isolation) else None)
    assert all_of(rest) == all_of(half)
    advance(rest, criterion, 900)
    assert all_of(rest) == all_of(whole)
    assert rest.total == whole.total
    assert not set(criterion.calls) & {tuple(S) for S, _ in saved["values"]}


def test_a_search_with_its_own_isolation_is_not_resumed_without_it() -> None:
    search = poss(isolation=lambda S: 0)
    with pytest.raises(OptionError, match="has a custom isolation function"):
        again(search, search.state())
    search = poss()
    with pytest.raises(OptionError, match="has no isolation function"):
        again(search, search.state(), lambda S: 0)


def test_one_column_is_enough() -> None:
    search = poss(1, 1)
    advance(search, cover, 5)
    assert [z.members for z in search.archived] == [(), (0,)]


@pytest.mark.parametrize("k", [0, -1, N + 1])
def test_k_must_be_in_range(k: int) -> None:
    with pytest.raises(OptionError, match=f"k is {k}, but there are 8 columns"):
        poss(N, k)


def test_options_that_are_not_there_are_refused() -> None:
    with pytest.raises(OptionError, match="seed is -1"):
        poss(seed=-1)
    with pytest.raises(OptionError, match="isolation is 'all'"):
        poss(isolation="all")


# --- swaps ---


def test_a_swap_replaces_any_member_by_any_other_column_alike() -> None:
    rng = np.random.default_rng(0)
    seen = Counter(swapped((1, 4, 5), 7, *rng.random(2)) for _ in range(6000))
    assert len(seen) == 12
    assert all(len(S) == 3 and len({1, 4, 5} & set(S)) == 2 and list(S) == sorted(S) for S in seen)
    assert max(abs(count - 500) for count in seen.values()) < 110


def test_half_of_the_mutations_are_swaps_if_asked_and_the_search_resumes() -> None:
    values = np.random.default_rng(1).random(12)

    def f(S: tuple[int, ...]) -> float:
        return -float(values[list(S)].sum()) + 0.1 * len(S)

    whole, part, plain = (poss(12, 4, seed=3, swaps=swaps) for swaps in (0.5, 0.5, 0.0))
    kept = [whole._offspring_of((2, 5, 7), t) for t in range(4000)]
    flips = [plain._offspring_of((2, 5, 7), t) for t in range(4000)]
    same = sum(a == b for a, b in zip(kept, flips, strict=True))
    assert abs(same - 2000) < 200
    advance(whole, f, 900)
    advance(part, f, 333)
    part = CriterionSearch.restore(json.loads(json.dumps(part.state())), part.stop, swaps=0.5)
    advance(part, f, 900)
    assert part.archived == whole.archived


@pytest.mark.parametrize("method", ["poss", "pposs", "pposs-asy"])
def test_swaps_are_an_option_of_searches_of_a_criterion(method: str) -> None:
    X = np.random.default_rng(2).normal(size=(40, 9))
    of: dict[str, Any] = {"k": 3, "method": method, "iterations": 400, "seed": 1}
    found = dsel.select(X, X[:, 0], criterion=lambda S: -float(sum(S)), swaps=0.5, **of)
    assert set(found.indices) == {6, 7, 8}
    with pytest.raises(OptionError, match="swaps: only with a custom criterion"):
        dsel.plan(X, X[:, 0], swaps=0.5, **of)
    with pytest.raises(OptionError, match="swaps"):
        dsel.plan(X, X[:, 0], k=3, swaps=1.5, criterion=len)


def test_quick_evaluations_wait_for_others_and_the_archive_is_the_same() -> None:
    counts = {}
    for most in (1, 5000):
        search = poss(n=20, k=4, T=1200, seed=3, in_flight=24)
        out, tasks = [], 0
        while search.finished() is None:
            while len(out) < 4 and (task := search.ask(most, 2)) is not None:
                out.append(task)
            task, tasks = out.pop(0), tasks + 1
            search.tell(task, TaskResult(tuple(20.0 - sum(j % 7 for j in S) for S in task.payload), 0.0))
        counts[most] = tasks, search.values, search.front()
    assert counts[1][1:] == counts[5000][1:]
    assert 5 * counts[5000][0] < counts[1][0]
