"""Branch and bound finds what enumeration finds, says truly how far it is before, and can be interrupted anywhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.errors import CapacityError, OptionError
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.bounds import BOUNDS, BoundProblem
from dsel.search.exact.branch_and_bound import explorer
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.pareto.starting_subset import starting_subset
from tests.search.cases import random_data
from tests.search.exact.cases import (
    data,
    exhaustive,
    halves,
    hard_case,
    nearly_dependent,
    paper_data,
    problems,
    regression,
    self_expression,
    standardized,
)

ALL = 10**9


@given(problems(), st.sampled_from(BOUNDS), st.sampled_from((0, 3, 20_000)), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_answer_is_that_of_enumeration(case, bound, most_open, pairs):
    objective, k = case
    search = BranchAndBound(objective, k, bound=bound, most_open=most_open, pairs=pairs)
    assert search.advance(ALL)
    best = exhaustive(objective, k)
    assert search.done
    assert search.best_value == objective.value(search.best)
    assert search.best_value == pytest.approx(best, abs=1e-8 * objective.c)
    assert best - 1e-8 * objective.c <= search.lower <= search.best_value


@given(nearly_dependent(), st.sampled_from(BOUNDS), st.booleans())
@settings(max_examples=150, deadline=None)
def test_near_dependence_is_judged_as_enumeration_does(case, bound, pairs):
    objective, k, incumbent = case
    search = BranchAndBound(objective, k, incumbent=incumbent, bound=bound, most_open=0, pairs=pairs)
    assert search.advance(ALL)
    assert search.best_value == pytest.approx(exhaustive(objective, k), abs=1e-6 * objective.c)


@pytest.mark.parametrize("many", [False, True], ids=["Y = X", "many targets"])
def test_all_targets_decide_where_the_leading_ones_cannot(monkeypatch, many):
    X, _ = random_data(2, n=16)
    Y = np.random.default_rng(3).standard_normal((X.shape[0], 24))
    objective = regression(X, Y) if many else self_expression(X)
    best = proved(objective, 5).best
    assert objective.value(best) == pytest.approx(exhaustive(objective, 5), rel=1e-9)
    nodes = set()
    for leading in (1, 3, 100):
        monkeypatch.setattr(explorer, "_LEADING", leading)
        search = BranchAndBound(objective, 5, incumbent=best, most_open=0, pairs=False)
        assert search.advance(ALL)
        nodes.add(search.iteration)
    assert len(nodes) == 1
    assert nodes.pop() > 20


@given(problems(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_one_leading_target_is_as_good_as_all(case, careful):
    objective, k = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer, "_LEADING", 1)
        search = BranchAndBound(objective, k, most_open=20_000 if careful else 0, pairs=False)
    assert search.advance(ALL)
    assert search.best_value == pytest.approx(exhaustive(objective, k), abs=1e-8 * objective.c)


@pytest.mark.parametrize("d", [4e-4, 7e-4, 1e-3, 1e-2])
def test_near_dependence_in_a_chain_of_columns_is_no_reason_to_miss_a_subset(d):
    v, w, x, u, _ = np.eye(5)
    X = np.stack([v, v + d * w, w + d * x, u, u + v], axis=1)
    objective = regression(X, (x + 0.3 * u)[:, None])
    best = exhaustive(objective, 3)
    for bound in BOUNDS:
        search = BranchAndBound(objective, 3, bound=bound)
        search.advance(ALL)
        assert search.best_value == pytest.approx(best, abs=1e-9 * objective.c)
    tree = AStar(objective, 3, bound="combined", incumbent=())
    tree.advance(ALL)
    assert tree.best_value == pytest.approx(best, abs=1e-9 * objective.c)


@given(problems(), st.integers(1, 60))
@settings(max_examples=80, deadline=None)
def test_stopped_early_the_bound_is_below_the_optimum_and_the_value_above(case, nodes):
    objective, k = case
    search = BranchAndBound(objective, k)
    lower = search.lower
    for until in range(1, nodes, 3):
        search.advance(until)
        assert search.lower >= lower - 1e-12 * objective.c
        lower = search.lower
    best = exhaustive(objective, k)
    assert search.lower - 1e-8 * objective.c <= best <= search.best_value + 1e-8 * objective.c


@given(problems(), st.integers(0, 2000))
@settings(max_examples=50, deadline=None)
def test_limited_work_leaves_nodes_open_which_can_be_visited_later(case, most):
    objective, k = case
    worker = explorer.Explorer(BoundProblem.of(objective), k)
    worker.start(explorer.Subproblem(0.0, (), np.arange(objective.n, dtype=np.int32)))
    worker.limit_work(most)
    found = [worker.explore(ALL, np.inf)]
    assert worker.idle or worker.work >= most
    worker.limit_work(ALL)
    incumbent = np.inf if found[0] is None else objective.value(found[0])
    found.append(worker.explore(ALL, incumbent))
    assert worker.idle
    values = [objective.value(one) for one in found if one is not None]
    assert min(values) == pytest.approx(exhaustive(objective, k), abs=1e-8 * objective.c)


@pytest.mark.parametrize("N", [1, 4])
@pytest.mark.parametrize(("most_open", "pairs"), [(0, True), (20_000, True), (20_000, False)])
def test_resumed_from_its_state_it_ends_with_the_same(N, most_open, pairs):
    objective = hard_case(N)
    whole = BranchAndBound(objective, 6, most_open=most_open, pairs=pairs)
    whole.advance(ALL)
    search = BranchAndBound(objective, 6, most_open=most_open, pairs=pairs)
    stops = 0
    while not search.advance(search.iteration + 40):
        search = BranchAndBound.restore(objective, json.loads(json.dumps(search.state())))
        stops += 1
    assert stops > 1
    assert search.state()["pairs"] == pairs
    assert search.best == whole.best
    assert search.lower == pytest.approx(whole.lower)
    assert search.trace[-1].value == whole.trace[-1].value


def test_included_and_excluded_columns_are_respected():
    whole = hard_case(2, n=9)
    n = whole.n
    objective = whole.restrict([j for j in range(n) if j != 1]).condition([0])
    search = BranchAndBound(objective, 2)
    search.advance(ALL)
    allowed = [j for j in range(2, n)]
    assert search.best_value == pytest.approx(exhaustive(whole, 3, (0,), allowed), abs=1e-9 * whole.c)
    assert 0 in objective.in_data(search.best)
    assert 1 not in objective.in_data(search.best)


def test_self_expression_given_included_columns():
    whole = self_expression(np.random.default_rng(2).standard_normal((12, 8)))
    search = BranchAndBound(whole.condition([1]), 2)
    assert search.objective.moments is not None
    search.advance(ALL)
    assert search.best_value == pytest.approx(exhaustive(whole, 3, (1,)), abs=1e-8 * whole.c)


def test_a_table_that_does_not_fit_is_refused():
    X, Y = data(1, "plain", 1)
    with pytest.raises(CapacityError, match="1 targets needs"):
        BranchAndBound(regression(X, Y), 3, memory_limit=100)
    with pytest.raises(OptionError, match="k is 99"):
        BranchAndBound(regression(X, Y), 99)


def proved(objective, k, **options):
    search = BranchAndBound(objective, k, incumbent=starting_subset(objective, k), **options)
    search.advance(ALL)
    assert search.done
    return search


@pytest.mark.parametrize(
    ("name", "r2", "most_nodes"),
    [
        ("housing", 0.726608, 100),
        ("ionosphere", 0.554481, 2000),
        ("sonar", 0.438258, 200_000),
        ("mushrooms", 0.992112, 5000),
    ],
)
def test_optima_on_full_standardized_data(name, r2, most_nodes):
    X, Y = paper_data(name)
    objective = regression(standardized(X), standardized(Y))
    search = proved(objective, 8)
    assert 1.0 - search.best_value / objective.c == pytest.approx(r2, abs=5e-7)
    assert search.iteration < most_nodes
    if name == "sonar":
        assert search.best == (3, 11, 29, 30, 31, 35, 43, 48)


@pytest.mark.parametrize(
    ("name", "k", "error", "digits"),
    [
        ("eunite2001", 5, 1.154e6, 1e3),
        ("eunite2001", 10, 0.920e6, 1e3),
        ("spectf", 5, 38.64, 0.01),
        ("spectf", 7, 37.73, 0.01),
        ("libras", 3, 5192.12, 0.01),
        ("libras", 5, 4723.07, 0.01),
    ],
)
def test_one_target_of_table_1(name, k, error, digits):
    assert proved(regression(*paper_data(name)), k).best_value == pytest.approx(error, abs=digits)


@pytest.mark.parametrize(
    ("name", "columns", "k", "error"),
    [("libras", 45, 3, 6010), ("libras", 45, 5, 5587), ("spectf", 22, 5, 423909), ("spectf", 22, 10, 374453)],
)
def test_several_targets_of_table_2(name, columns, k, error):
    X, Y = halves(name, columns)
    objective = regression(X, Y)
    search = proved(objective, k)
    assert search.best_value == pytest.approx(error, abs=1.0)
    others = proved(objective, k, bound="leaps")
    assert others.best == search.best
    assert search.iteration <= others.iteration
    if k == 5:
        paper = proved(objective, k, bound="eigenvalue", problem=BoundProblem.of(objective, Y.T @ Y))
        assert paper.best == search.best
        assert search.iteration < paper.iteration
