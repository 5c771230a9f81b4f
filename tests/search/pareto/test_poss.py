"""POSS and POCSS on look-up tables are Algorithm 2 and Algorithm 1 of the papers, at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import scipy.stats

from dsel._lib.rng import binomial_cdf
from dsel._lib.types import Floats
from dsel.errors import CapacityError, OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.subset_state import SubsetState
from dsel.search.outcome import FrontPoint
from dsel.search.pareto import archive_layout as archive
from dsel.search.pareto import compiled
from dsel.search.pareto.archive import Isolation
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.criterion import draw_columns, draw_parent
from tests.datasets import load, standardized
from tests.oracles.brute_force import best_subsets
from tests.oracles.literal_pocss import LiteralPocss
from tests.oracles.literal_poss import LiteralPoss, least_squares
from tests.search.cases import continued
from tests.search.pareto.by_hand import advance, search_of


def data(seed: int, N: int | None, m: int = 40, n: int = 16) -> tuple[Floats, Floats]:
    """Correlated columns (m, n); N targets that five of them explain in part, or Y = X."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) @ (np.eye(n) + 0.4 * rng.standard_normal((n, n)))
    if N is None:
        return X, X
    return X, X[:, :5] @ rng.standard_normal((5, N)) + 2.0 * rng.standard_normal((m, N))


def objective(X: Floats, Y: Floats, lam: float = 0.0) -> DenseObjective:
    return DenseObjective(X.T @ X, None if Y is X else X.T @ Y, float(np.sum(Y**2)), lam)


def problem(seed: int, N: int | None, n: int = 16) -> DenseObjective:
    return objective(*data(seed, N, n=n))


def subsets(points: Sequence[FrontPoint]) -> set[frozenset[int]]:
    return {frozenset(p.members) for p in points}


def draw(rng: np.random.Generator, search: Poss) -> tuple[int, list[int]]:
    """The parent (its place in `archived`) and the flips of the next iteration.

    Now and then there are more flips than the paper's rate gives, up to more than tables are for.
    """
    n = search.objective.n
    cdf, flips = binomial_cdf(n, rng.choice([1.0, 1.0, 1.0, 3.0, 8.0]) / n), np.zeros(n, np.int64)
    search._memory.put(archive.CDF, cdf)
    search._survivors = np.zeros((1, 4 * n), np.int64)
    parent = draw_parent(0, search.iteration, len(search.archived))
    return int(parent), flips[: draw_columns(0, search.iteration, 0, cdf, flips)].tolist()


def all_of(search: Poss) -> tuple[object, ...]:
    return search.archived, search.trace, search.iteration, search.last_gain, search.best_value


# --- the same archive as the papers' algorithms, at every step ---


@pytest.mark.parametrize("lam", [0.0, 0.9615])
@pytest.mark.parametrize("seed", range(4))
def test_with_the_same_flips_the_archive_is_that_of_the_literal_poss(seed: int, lam: float) -> None:
    X, Y = data(seed, 1)
    search, literal = Poss(objective(X, Y, lam), 5), LiteralPoss(least_squares(X, Y, lam), 16, 5)
    rng = np.random.default_rng(seed)
    for _ in range(600):
        parent, flips = draw(rng, search)
        literal.step(literal.index(search.archived[parent].members), flips)
        search.advance(search.iteration + 1)
        assert subsets(search.archived) == {s for s, _ in literal.P}
    assert search.best_value == pytest.approx(literal.best()[1], abs=1e-10 * search.total)
    assert search.iteration == 600
    assert search.counts()["accepted"] > 30


@pytest.mark.parametrize("seed", range(4))
def test_with_the_same_flips_the_archive_is_that_of_the_literal_pocss(seed: int) -> None:
    A, _ = data(seed, None)
    A = A / np.linalg.norm(A, axis=0)
    search, literal = Poss(objective(A, A), 5), LiteralPocss(A, 5)
    rng = np.random.default_rng(seed)
    for _ in range(600):
        parent, flips = draw(rng, search)
        literal.step(literal.index(search.archived[parent].members), flips)
        search.advance(search.iteration + 1)
        assert subsets(search.archived) == {frozenset(S) for S, _, _ in literal.P}
    values = {frozenset(S): f for S, f, _ in literal.P}
    for point in search.archived:
        assert point.value == pytest.approx(values[frozenset(point.members)], abs=1e-9 * search.total)


@pytest.mark.parametrize("seed", range(3))
def test_with_isolation_too(seed: int) -> None:
    """With 2k > n, for the literal algorithm keeps a subset of 2k columns where nothing is there to compete with it."""
    X, Y = data(seed, 1, n=9)
    f = least_squares(X, Y)
    search, literal = Poss(objective(X, Y), 5, isolation="min-index"), LiteralPoss(f, 9, 5, lambda s: min(s, default=9))
    rng = np.random.default_rng(seed)
    for _ in range(600):
        parent, flips = draw(rng, search)
        literal.step(literal.index(search.archived[parent].members), flips)
        search.advance(search.iteration + 1)
        assert subsets(search.archived) == {s for s, _ in literal.P}
    assert len(search.archived) > 15


@pytest.mark.parametrize("seed", range(3))
def test_of_equal_subsets_the_later_one_stays(seed: int) -> None:
    """Orthonormal columns that explain 0, 1 or 4: many subsets have the very same f and size, or f alone."""
    b = np.repeat([0.0, 1.0, 2.0], 4)
    obj = DenseObjective(np.eye(12), b[:, None], 30.0)
    search, literal = Poss(obj, 4), LiteralPoss(lambda s: 30.0 - float(np.sum(b[list(s)] ** 2)), 12, 4)
    rng = np.random.default_rng(seed)
    for _ in range(400):
        parent, flips = draw(rng, search)
        literal.step(literal.index(search.archived[parent].members), flips)
        search.advance(search.iteration + 1)
        assert subsets(search.archived) == {s for s, _ in literal.P}


@pytest.mark.parametrize("isolation", ["none", "min-index"])
@pytest.mark.parametrize(("N", "k"), [(1, 5), (3, 5), (12, 4), (None, 5)])
def test_with_the_same_seed_the_archive_has_the_bits_of_the_uncompiled_search(
    N: int | None, k: int, isolation: Isolation
) -> None:
    obj = problem(7, N)
    search = Poss(obj, k, seed=11, isolation=isolation)
    plain = search_of(obj.n, k, seed=11, isolation=isolation)
    for until in [*range(1, 200), 1000, 4000]:
        search.advance(until)
        advance(plain, until, obj.value)
        assert search.archived[1:] == plain.archived[1:]
        assert search.trace == plain.trace
        assert (search.iteration, search.last_gain) == (plain.iteration, plain.last_gain)


@pytest.mark.parametrize(("m", "k"), [(40, 6), (5, 2)])
def test_it_finds_the_best_subset_of_every_size(m: int, k: int) -> None:
    X, Y = data(3, 1, m=m, n=10)
    search = Poss(objective(X, Y), k, seed=0)
    search.advance(20_000)
    best = best_subsets(X, Y, k)
    for size in range(1, k + 1):
        found = min(p.value for p in search.front() if p.size <= size)
        assert found == pytest.approx(best[size][0], abs=1e-8 * search.total)


# --- randomness ---


@pytest.mark.parametrize("n", [1, 2, 10, 300])
def test_every_column_is_flipped_with_probability_one_in_n(n: int) -> None:
    """As many flips as Binomial(n, 1/n) has, all different, at places and from parents chosen alike."""
    cdf, flips, draws, parents = binomial_cdf(n, 1.0 / n), np.zeros(n, np.int64), 30_000, 7
    counts, places, chosen = np.zeros(n + 1, int), np.zeros(n, int), np.zeros(parents, int)
    for iteration in range(draws):
        parent, count = draw_parent(5, iteration, parents), draw_columns(5, iteration, 0, cdf, flips)
        assert len(set(flips[:count].tolist())) == count
        counts[count] += 1
        places[flips[:count]] += 1
        chosen[parent] += 1
    expected = scipy.stats.binom.pmf(np.arange(n + 1), n, 1.0 / n) * draws
    common = expected > 5
    assert counts[expected < 1e-6].sum() == 0
    observed, expected = [np.append(x[common], x[~common].sum()) for x in (counts, expected)]
    kept = expected > 1e-6
    if kept.sum() > 1:
        assert scipy.stats.chisquare(observed[kept], expected[kept] * draws / expected[kept].sum()).pvalue > 1e-3
    assert counts.sum() == draws
    if n > 1:
        assert scipy.stats.chisquare(places).pvalue > 1e-3
    assert scipy.stats.chisquare(chosen).pvalue > 1e-3


def test_one_column_is_always_flipped_and_two_are_as_two_coins() -> None:
    assert binomial_cdf(1, 1.0).tolist() == [0.0]
    assert binomial_cdf(2, 0.5).tolist() == [0.25, 0.75, 1.0]
    search = Poss(DenseObjective(np.eye(1), np.ones((1, 1)), 2.0), 1)
    search.advance(1)
    assert [p.members for p in search.archived] == [(), (0,)]


@pytest.mark.parametrize("N", [None, 1, 3])
def test_a_short_search_that_compiles_less_archives_the_same(N: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, short = (Poss(problem(5, N), 4, seed=1, exchange_every=200) for _ in range(2))
    usual.advance(4000)
    monkeypatch.setattr(compiled, "is_compiled", lambda kernel: False)
    short.warm_up(4000)
    short.advance(4000)
    assert all_of(short) == all_of(usual)
    assert short.counts()["valued"] == 0 < usual.counts()["valued"]
    short.warm_up(10**12)
    short.advance(8000)
    usual.advance(8000)
    assert all_of(short) == all_of(usual)
    assert short.counts()["valued"] > 0


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    obj = problem(0, 1)
    runs = []
    for seed in (1, 1, 2, 2**63 - 1):
        search = Poss(obj, 5, seed=seed)
        search.advance(3000)
        runs.append(all_of(search))
    assert runs[0] == runs[1]
    assert len({str(run) for run in runs}) == 3


# --- any time, in any slices, saved and resumed ---

VARIANTS: list[dict[str, Any]] = [
    {},
    {"isolation": "min-index"},
    {"exchange_every": 7},
    {"isolation": "min-index", "exchange_every": 20},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("N", [1, None])
def test_slices_do_not_matter(N: int | None, options: dict[str, Any]) -> None:
    obj = problem(1, N)
    whole, sliced = Poss(obj, 4, seed=3, **options), Poss(obj, 4, seed=3, **options)
    whole.advance(3000)
    for until in [*range(1, 100), 100, 90, 777, 3000]:
        sliced.advance(until)
    assert all_of(sliced) == all_of(whole)
    assert sliced.counts() == whole.counts()


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("N", [1, 3, None])
def test_a_saved_search_continues_with_the_same_bits(N: int | None, options: dict[str, Any]) -> None:
    obj = problem(2, N)
    whole = Poss(obj, 4, seed=4, **options)
    whole.advance(3000)
    for cut in (0, 1, 40, 400, 2000):
        search = Poss(obj, 4, seed=4, **options)
        search.advance(cut)
        more = {name: value for name, value in options.items() if name != "isolation"}
        again = continued(search, obj, seed=4, **more)
        assert again.archived == search.archived
        again.advance(3000)
        assert again.archived == whole.archived
        assert (*search.trace, *again.trace) == whole.trace


def test_it_stops_at_the_target() -> None:
    obj = problem(0, 1)
    whole = Poss(obj, 5, seed=5)
    whole.advance(3000)
    goal = whole.trace[-2]
    search = Poss(obj, 5, seed=5)
    assert search.advance(3000, goal.value)
    assert search.iteration == goal.iteration + 1
    assert search.best_value == goal.value
    assert search.advance(3000, goal.value)
    assert search.iteration == goal.iteration + 1
    assert not search.advance(3000)
    assert all_of(search) == all_of(whole)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_what_is_archived_does_not_dominate_itself(options: dict[str, Any]) -> None:
    search = Poss(problem(3, 1), 4, seed=6, **options)
    isolated = search.isolation == "min-index"
    for until in range(20, 3000, 60):
        search.advance(until)
        points = search.archived[1:]
        for z in points:
            for s in points:
                if z is not s and not (isolated and z.members[0] != s.members[0]):
                    assert not (z.value <= s.value and z.size <= s.size)
        front = search.front()
        assert front[0].members == ()
        assert all(a.size < b.size and a.value > b.value for a, b in pairwise(front))
        assert search.best_value == min(p.value for p in front if p.size <= 4)
        assert all(p.size < 8 and list(p.members) == sorted(set(p.members)) for p in points)
        assert all(p.value == search.objective.value(p.members) for p in points)


@pytest.mark.parametrize("N", [None, 1])
def test_with_isolation_exchange_searches_have_room_for_what_they_add(N: int | None) -> None:
    obj = problem(3, N, n=30)
    search = Poss(obj, 3, seed=3, isolation="min-index", exchange_every=1)
    for until in range(1, 400, 7):
        search.advance(until)
        points = search.archived
        assert len(subsets(points)) == len(points) == search.counts()["archive"]
    assert all(p.value == obj.value(p.members) for p in points)


def test_exchange_searches_find_the_optimum_that_single_flips_take_long_to() -> None:
    obj = problem(4, None, n=16)
    optimum = brute_force(obj, 5)
    assert optimum == pytest.approx(_after(obj, exchange_every=10), rel=1e-9)
    assert _after(obj, exchange_every=0) > optimum * (1 + 1e-9)


def _after(obj: DenseObjective, exchange_every: int) -> float:
    search = Poss(obj, 5, seed=0, exchange_every=exchange_every)
    search.advance(300)
    return search.best_value


def brute_force(obj: DenseObjective, k: int) -> float:
    return min(obj.value(S) for S in combinations(range(obj.n), k))


def test_subsets_found_elsewhere_can_be_offered() -> None:
    obj = problem(5, 1)
    search = Poss(obj, 3)
    assert search.offer([4, 2, 4])
    assert not search.offer([2, 4])
    assert search.archived[1:] == [FrontPoint(2, obj.value([2, 4]), (2, 4))]
    search.advance(4000)
    assert search.best_value <= obj.value([2, 4])
    with pytest.raises(OptionError, match="6 columns cannot be archived: 1 to 5"):
        search.offer(range(6))
    for S in ([16], [-1]):
        with pytest.raises(OptionError, match="not all among 0 to 15"):
            search.offer(S)


# --- figures are those of the data, whatever the data ---


def awkward(kind: str, N: int | None) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(8)
    if kind == "more columns than rows":
        X = rng.standard_normal((15, 40))
    else:
        X = rng.standard_normal((60, 12)) @ (np.eye(12) + 0.3 * rng.standard_normal((12, 12)))
    if kind == "repeated columns":
        X = np.hstack([X, X[:, :6], -2.0 * X[:, 3:9], np.zeros((60, 1))])
    if kind.startswith("equal up to"):
        X = np.hstack([X, X[:, :8] + float(kind.split()[-1]) * rng.standard_normal((60, 8))])
    if kind == "units far apart":
        X = X * 10.0 ** rng.uniform(-6, 6, X.shape[1])
    if N is None:
        return X, X
    signal = (X / X.std(axis=0).clip(1e-9))[:, :5] @ rng.standard_normal((5, N))
    return X, signal + 0.3 * rng.standard_normal((X.shape[0], N))


@pytest.mark.parametrize("N", [1, 3, 12, None])
@pytest.mark.parametrize(
    "kind",
    [
        "well-behaved",
        "more columns than rows",
        "repeated columns",
        "equal up to 1e-2",
        "equal up to 1e-3",
        "equal up to 1e-4",
        "units far apart",
    ],
)
def test_every_archived_error_is_that_of_a_qr_of_the_columns(kind: str, N: int | None) -> None:
    X, Y = awkward(kind, N)
    search = Poss(objective(X, Y), 6, seed=9)
    search.advance(15_000)
    assert len(search.archived) >= 8
    for point in search.archived:
        Q = np.linalg.qr(X[:, point.members] / np.linalg.norm(X[:, point.members], axis=0))[0]
        error = float(np.sum((Y - Q @ (Q.T @ Y)) ** 2))
        assert point.value == pytest.approx(error, abs=1e-8 * search.total)


@pytest.mark.parametrize("kind", ["equal up to 1e-2", "equal up to 1e-3"])
def test_nearly_equal_columns_do_not_hide_offspring(kind: str) -> None:
    """Swapping near twins is where tables lose most digits; the archive is still that of exact values."""
    X, Y = awkward(kind, 1)
    obj = objective(X, Y)
    search, plain = Poss(obj, 5, seed=10), search_of(obj.n, 5, seed=10)
    search.advance(20_000)
    advance(plain, 20_000, obj.value)
    assert search.archived[1:] == plain.archived[1:]


# --- the figures of the paper ---


def r_squared(name: str, k: int, seeds: range) -> list[float]:
    X, Y, _ = load(name)
    assert Y is not None
    obj = objective(standardized(X), standardized(Y))
    found = []
    for seed in seeds:
        search = Poss(obj, k, seed=seed)
        search.advance(paper_iterations(k, obj.n))
        found.append(1.0 - search.best_value / obj.c)
    return found


def test_the_number_of_iterations_is_the_papers() -> None:
    assert paper_iterations(8, 60) == 20_876
    assert paper_iterations(8, 500) == math.floor(2 * math.e * 64 * 500)


def test_sonar_is_solved_as_well_as_by_the_literal_algorithm() -> None:
    """Full data, k = 8, T = 20 876.

    Literal figures: tests/oracles/literal_poss.py with `normal_equations`, numpy.random.default_rng(seed) for the
    seeds 1000 to 1199: mean of R^2 0.4363393, standard deviation 0.0022572, over 200 runs. The optimum is 0.438258.
    """
    found = r_squared("sonar", 8, range(50))
    mean, deviation, runs = 0.4363393, 0.0022572, 200
    assert abs(np.mean(found) - mean) < 2.0 * deviation * math.sqrt(1 / runs + 1 / len(found))
    assert np.std(found, ddof=1) == pytest.approx(deviation, rel=0.4)
    assert max(found) == pytest.approx(0.438258, abs=5e-7)


def test_housing_is_solved_by_every_seed() -> None:
    assert r_squared("housing", 8, range(30)) == pytest.approx([0.726608] * 30, abs=5e-7)


def test_example_1_of_the_paper_defeats_forward_selection_and_not_isolated_poss() -> None:
    """Proposition 1: r_2 = 0.03, r_3 = 0.5, Cov(Y_1, Z) = Cov(Y_2, Z) = delta, Cov(Y_3, Z) = 0.505 delta; k = 2."""
    delta, r2, r3 = 0.1, 0.03, 0.5
    C = np.array([[1.0, r2, r2 * r3], [r2, 1.0, r3], [r2 * r3, r3, 1.0]])
    b = delta * np.array([1.0, r2 + 1.0, r3 * (r2 + 1.0) + 0.505])
    obj = DenseObjective(C, b[:, None], 1.0)

    forward = SubsetState(obj, 2)
    for _ in range(2):
        forward.insert(int(np.argmax(forward.gains())))
    assert sorted(forward.members) == [0, 1]
    assert 1.0 - forward.value == pytest.approx(2.0009 * delta**2, abs=5e-5 * delta**2)

    for seed in range(10):
        search = Poss(obj, 2, seed=seed, isolation="min-index")
        search.advance(500)
        best = min(search.archived, key=lambda p: p.value if p.size <= 2 else math.inf)
        assert best.members == (0, 2)
        assert 1.0 - best.value == pytest.approx(2.0103 * delta**2, abs=5e-5 * delta**2)


# --- what cannot be is refused ---


@pytest.mark.parametrize("k", [0, -1, 17])
def test_k_must_be_in_range(k: int) -> None:
    with pytest.raises(OptionError, match=f"k is {k}, but there are 16 columns"):
        Poss(problem(0, 1), k)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_the_seed_must_be_in_range(seed: int) -> None:
    with pytest.raises(OptionError, match=f"seed is {seed}"):
        Poss(problem(0, 1), 3, seed=seed)


def test_tables_that_do_not_fit_are_refused_with_their_size() -> None:
    with pytest.raises(CapacityError, match=r"The archive's tables need .* bytes for 13 subsets of up to 9 of 16"):
        Poss(problem(0, 1), 5, memory_limit=1000)


def test_where_isolation_outgrows_the_memory_the_search_stands_whole() -> None:
    obj = problem(0, 1)
    search, free = Poss(obj, 4, isolation="min-index", memory_limit=60_000), Poss(obj, 4, isolation="min-index")
    with pytest.raises(CapacityError, match="smaller k, isolation 'none'"):
        search.advance(3000)
    free.advance(search.iteration)
    assert 0 < search.iteration < 3000
    assert all_of(search) == all_of(free)


@pytest.mark.parametrize("noise", [1e-2, 1e-3])
@pytest.mark.parametrize("N", [None, 1])
@pytest.mark.parametrize("seed", range(4))
def test_on_nearly_dependent_columns_it_is_still_the_literal_search_and_resumes(
    noise: float, N: int | None, seed: int
) -> None:
    """Four directions and a little noise: the tables lose their digits there, and must say so."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 20)) + noise * rng.normal(size=(60, 20))
    Y = X if N is None else rng.normal(size=(60, 1)) + X[:, :1]
    obj = DenseObjective(X.T @ X, None if N is None else X.T @ Y, float((Y**2).sum()))
    whole = Poss(obj, 6, seed=seed)
    whole.advance(3000)
    part = Poss(obj, 6, seed=seed)
    part.advance(1100)
    part = continued(part, obj, seed=seed)
    part.advance(3000)
    literal = search_of(20, 6, seed=seed)
    advance(literal, 3000, lambda S: obj.value(S) if obj.rank(S) == len(S) else math.inf)
    assert whole.archived == part.archived
    assert [(p.members, p.value) for p in whole.archived[1:]] == [(p.members, p.value) for p in literal.archived[1:]]


@pytest.mark.parametrize("seed", range(6))
def test_exchange_searches_resume_bit_for_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 15))
    X[:, 3] = X[:, 4]
    obj = DenseObjective(X.T @ X, None, float((X**2).sum()))
    whole = Poss(obj, 5, seed=seed, exchange_every=5)
    whole.advance(900)
    part = Poss(obj, 5, seed=seed, exchange_every=5)
    part.advance(333)
    before = part.trace
    part = continued(part, obj, seed=seed, exchange_every=5)
    part.advance(900)
    assert whole.archived == part.archived
    assert whole.trace == (*before, *part.trace)
