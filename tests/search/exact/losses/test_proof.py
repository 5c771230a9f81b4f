"""Proofs for losses: the best subset by enumeration, bounds that hold for any dual vector, limits of time."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from dsel._lib.types import Floats, Ints
from dsel.objective.losses.cox import Cox
from dsel.objective.losses.gamma import Gamma
from dsel.objective.losses.huber import Huber
from dsel.objective.losses.logistic import Logistic
from dsel.objective.losses.loss import Loss
from dsel.objective.losses.poisson import Poisson
from dsel.objective.losses.quantile import Quantile
from dsel.objective.losses.squared import Squared
from dsel.search.exact.losses.proof import LossProblem, LossProof, dual_bound, prove_loss
from dsel.search.exact.losses.tree import LossTree
from dsel.search.exact.losses.wide_tree import prove_wide_loss
from dsel.search.exact.near_best import ListRule

LOSSES: list[Loss] = [Squared(), Logistic(), Poisson(), Gamma(), Huber(1.0), Quantile(0.7, 0.5), Cox()]
by_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
#: What the tree does, whatever the loss: one is smooth, one has corners, and one is no sum over rows.
by_kind_of_loss = pytest.mark.parametrize("loss", [Logistic(), Quantile(0.7, 0.5), Cox()], ids=lambda loss: loss.name)


def problem_for(loss: Loss, seed: int = 0, m: int = 40, n: int = 7, **changes: Any) -> LossProblem:
    """Return a random problem with weights, offsets, an intercept and a penalty."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((m, n)) + 0.5 * rng.standard_normal((m, 1))
    signal = Z[:, 0] - 0.7 * Z[:, 2]
    y = signal + rng.standard_t(3, m)
    if loss.name == "logistic":
        y = (rng.random(m) < 1.0 / (1.0 + np.exp(-signal))).astype(np.float64)
    elif loss.name == "poisson":
        y = rng.poisson(np.exp(0.5 * signal)).astype(np.float64)
    elif loss.name == "gamma":
        y = rng.gamma(2.0, np.exp(0.5 * signal)) + 1e-3
    elif loss.name == "cox":
        y = np.ceil(3.0 * rng.exponential(np.exp(-signal))) * rng.choice([1.0, 1.0, -1.0], m)
    made = LossProblem(Z, y, rng.uniform(0.5, 2.0, m), 0.3 * rng.standard_normal(m), loss, 1.0, True)
    return replace(made, **changes)


def fitted(problem: LossProblem, S: tuple[int, ...]) -> float:
    """Return F(S) by a general optimizer."""
    s = len(S)

    def value(b: Floats) -> float:
        eta = problem.offset + problem.Z[:, S] @ b[:s] + b[s]
        return float(problem.rows.value(eta) + problem.lam * b[:s] @ b[:s])

    limit = (None, None) if problem.limit is None else (-problem.limit, problem.limit)
    bounds = [limit] * s + [(None, None) if problem.intercept else (0.0, 0.0)]
    options = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(value, np.zeros(s + 1), method="L-BFGS-B", bounds=bounds, options=options).fun)


def best_of_all(
    problem: LossProblem, k: int, include: tuple[int, ...] = (), exclude: tuple[int, ...] = ()
) -> tuple[float, tuple[int, ...]]:  # fmt: skip
    """Return the least F and its subset by enumeration."""
    others = [j for j in range(problem.Z.shape[1]) if j not in include + exclude]
    subsets = [tuple(sorted(include + S)) for S in combinations(others, k - len(include))]
    return min((fitted(problem, S), S) for S in subsets)


@by_loss
@pytest.mark.parametrize(
    "changes",
    [{}, {"intercept": False}, {"lam": 0.0, "limit": 0.4}, {"limit": 0.2}],
    ids=["penalty", "no intercept", "limit", "both"],
)
def test_a_proof_finds_the_best_of_all_subsets(loss: Loss, changes: dict[str, Any]) -> None:
    problem = problem_for(loss, **changes)
    value, members = best_of_all(problem, 3)
    found = prove_loss(problem, 3)
    assert found.proven
    assert found.ended == "proven"
    assert found.members == members
    assert found.value == pytest.approx(value, rel=1e-6)
    assert found.root_bound <= found.bound <= found.value
    assert found.bound == pytest.approx(found.value, rel=1e-7)


@by_loss
def test_included_columns_are_in_the_best_subset_and_excluded_ones_are_not(loss: Loss) -> None:
    problem = problem_for(loss, seed=1)
    value, members = best_of_all(problem, 3, include=(4,), exclude=(0,))
    found = prove_loss(problem, 3, include=(4,), exclude=(0,))
    assert found.members == members
    assert found.value == pytest.approx(value, rel=1e-6)


@by_loss
@pytest.mark.parametrize("limited", [False, True], ids=["penalty", "limit"])
def test_any_dual_vector_gives_a_bound_below_every_subset(loss: Loss, limited: bool) -> None:
    problem = problem_for(loss, seed=2)
    if limited:
        problem = replace(problem, lam=0.0, limit=0.5)
    best, _ = best_of_all(problem, 2)
    rng = np.random.default_rng(3)
    useful = 0
    for size in (0.0, 0.1, 0.3, 1.0, 3.0):
        for _ in range(10):
            eta = problem.offset + size * problem.Z @ rng.standard_normal(7)
            a = problem.rows.slope(eta) if loss.by_rows else eta
            for vector in (a, 0.5 * a, 0.05 * a, a + rng.standard_normal(a.size)):
                bound = dual_bound(problem, vector, 2)
                assert bound <= best
                useful += bound > 0.0
    assert useful


def test_hazards_that_differ_by_more_than_float64_holds_have_a_tight_bound() -> None:
    problem = problem_for(Cox(), intercept=False, lam=1e-7)
    Z = problem.Z.copy()
    Z[:, 0] = -np.abs(problem.y) + 1e-3 * Z[:, 0]
    found = prove_loss(replace(problem, Z=Z, offset=np.zeros(40)), 1)
    assert found.bound == pytest.approx(found.value, rel=1e-3)
    rows, rng = problem.rows, np.random.default_rng(0)
    for size in (1.0, 1e3, 1e5):
        eta, other = size * rng.standard_normal((2, 40))
        a, constant, _, _ = rows.dual(eta, problem.offset)
        assert rows.value(problem.offset + other) >= constant + a @ other
        assert rows.value(eta) == pytest.approx(constant + a @ (eta - problem.offset), rel=1e-9)


def test_a_vector_outside_the_domain_of_the_conjugate_proves_nothing() -> None:
    problem = problem_for(Logistic(), intercept=False)
    assert dual_bound(problem, np.full(40, 100.0), 2) == -np.inf


@by_loss
def test_the_order_of_columns_does_not_matter(loss: Loss) -> None:
    problem, order = problem_for(loss, seed=4), np.random.default_rng(0).permutation(7)
    first, second = prove_loss(problem, 3), prove_loss(replace(problem, Z=problem.Z[:, order]), 3)
    assert tuple(sorted(order[list(second.members)].tolist())) == first.members
    assert second.value == pytest.approx(first.value, rel=1e-9)


@by_loss
def test_weights_and_penalty_times_a_constant_scale_the_error(loss: Loss) -> None:
    problem = problem_for(loss, seed=5)
    first = prove_loss(problem, 3)
    scaled = prove_loss(replace(problem, w=1000.0 * problem.w, lam=1000.0 * problem.lam), 3)
    assert scaled.members == first.members
    assert scaled.proven
    assert scaled.value == pytest.approx(1000.0 * first.value, rel=1e-9)


def test_rows_of_weight_0_do_not_count() -> None:
    problem = problem_for(Poisson(), seed=6)
    w = problem.w.copy()
    w[:5] = 0.0
    without = LossProblem(problem.Z[5:], problem.y[5:], w[5:], problem.offset[5:], Poisson(), 1.0, True)
    assert prove_loss(replace(problem, w=w), 2).value == pytest.approx(prove_loss(without, 2).value, rel=1e-12)


def test_a_constant_that_is_added_to_columns_changes_nothing_with_an_intercept() -> None:
    problem = problem_for(Logistic(), seed=7)
    first, moved = prove_loss(problem, 3), prove_loss(replace(problem, Z=problem.Z + 1000.0), 3)
    assert moved.members == first.members
    assert moved.proven
    assert moved.value == pytest.approx(first.value, rel=1e-9)


@pytest.mark.parametrize("limits", [{"seconds": 0.0}, {"nodes": 1}, {"nodes": 4}], ids=str)
def test_a_stopped_proof_has_a_valid_bound_and_subset(limits: dict[str, Any]) -> None:
    problem = problem_for(Logistic(), seed=8, m=60, n=12, lam=0.05)
    whole, stopped = prove_loss(problem, 4), prove_loss(problem, 4, **limits)
    assert whole.proven
    assert not stopped.proven
    assert stopped.ended in ("time", "nodes")
    assert stopped.bound <= whole.value <= stopped.value


def test_a_list_that_ends_early_proves_the_best_subset_where_no_open_node_can_hold_a_better_one() -> None:
    problem = problem_for(Logistic(), n=9)
    found = prove_loss(problem, 3, listing=ListRule(0.5, 1000), nodes=12)
    assert found.ended == "nodes"
    assert found.proven
    assert found.members == best_of_all(problem, 3)[1]
    assert found.near_best is not None
    assert found.near_best.complete_below < found.near_best.threshold


def test_a_known_subset_is_kept_if_it_is_the_best() -> None:
    problem = problem_for(Gamma(), seed=9)
    best = prove_loss(problem, 3)
    assert prove_loss(problem, 3, incumbent=(best.members, best.value), seconds=0.0).members == best.members


def test_a_gap_ends_the_proof_sooner() -> None:
    problem = problem_for(Logistic(), seed=8, m=60, n=12, lam=0.05)
    exact, rough = prove_loss(problem, 4), prove_loss(problem, 4, gap=0.05)
    assert rough.proven
    assert rough.nodes < exact.nodes
    assert 0.95 * rough.value <= rough.bound <= exact.value


def test_bounds_and_errors_are_reported_after_each_node() -> None:
    watcher = Keeper()
    found = prove_loss(problem_for(Logistic(), seed=8, m=60, n=12, lam=0.05), 4, watcher=watcher)
    nodes, bounds, values = zip(*watcher.seen, strict=True)
    assert list(nodes) == sorted(nodes)
    assert list(values) == sorted(values, reverse=True)
    assert max(bounds) <= found.value


def test_without_penalty_and_limit_the_bound_says_how_large_coefficients_may_be() -> None:
    problem = problem_for(Poisson(), seed=10, lam=0.0)
    value, members = best_of_all(problem, 2)
    found = prove_loss(problem, 2)
    assert found.members == members
    assert found.value == pytest.approx(value, rel=1e-6)
    assert np.isfinite(found.limit)
    assert found.bound <= found.value
    assert prove_loss(replace(problem, lam=1.0), 2).limit == np.inf


def test_more_columns_than_rows_are_proved() -> None:
    rng = np.random.default_rng(11)
    Z = rng.standard_normal((60, 300))
    y = (Z[:, 10] - Z[:, 200] + 0.1 * rng.standard_normal(60) > 0.0).astype(np.float64)
    problem = LossProblem(Z, y, np.ones(60), np.zeros(60), Logistic(), 6.0, True)
    found = prove_loss(problem, 2)
    assert found.proven
    assert found.members == (10, 200)
    best = min(prove_loss(problem, 2, include=(j,), nodes=1).value for j in range(0, 300, 10))
    assert found.value <= best + 1e-9


@by_kind_of_loss
@pytest.mark.parametrize("changes", [{}, {"lam": 0.0, "limit": 0.4}], ids=["penalty", "limit"])
class TestNearBest:
    """The near-best subsets and the verdicts are those of enumeration."""

    def check(self, problem: LossProblem, found: LossProof, include: tuple[int, ...] = ()) -> None:
        """Compare with fits of all subsets by a general optimizer."""
        near = found.near_best
        assert near is not None
        columns = [j for j in range(problem.Z.shape[1]) if j not in include]
        values = {S: fitted(problem, include + tuple(columns[j] for j in S)) for S in combinations(range(6), near.k)}
        best, without = min(values.values()), fitted(problem, ())
        limit = best + near.within * (without - best)
        assert near.threshold == pytest.approx(limit, rel=1e-6)
        expected = sorted((S for S, value in values.items() if value <= limit), key=values.__getitem__)
        assert [S for S, _ in near.subsets] == expected
        assert near.complete
        np.testing.assert_allclose([value for _, value in near.subsets], [values[S] for S in expected], rtol=1e-6)
        for j in range(6):
            having = [S for S in expected if j in S]
            verdict = "useless" if not having else "necessary" if len(having) == len(expected) else "replaceable"
            assert near.verdicts[j] == verdict
            for bound, value, subset, inside in (
                (near.bound_with[j], near.value_with[j], near.example_with.get(j), True),
                (near.bound_without[j], near.value_without[j], near.example_without.get(j), False),
            ):
                least = min(value for S, value in values.items() if (j in S) == inside)
                assert bound <= least * (1.0 + 1e-6)
                assert bound >= near.threshold * (1.0 - 1e-6) or bound == pytest.approx(least, rel=1e-6)
                assert value >= least * (1.0 - 1e-6)
                if subset is not None:
                    assert value == pytest.approx(values[subset], rel=1e-6)

    @pytest.mark.parametrize("within", [0.0, 0.02, 0.3])
    def test_they_are_listed_with_a_verdict_for_each_column(
        self, loss: Loss, changes: dict[str, Any], within: float
    ) -> None:  # fmt: skip
        problem = problem_for(loss, n=6, seed=5, **changes)
        self.check(problem, prove_loss(problem, 3, listing=ListRule(within, 100)))

    def test_included_columns_have_no_verdict(self, loss: Loss, changes: dict[str, Any]) -> None:
        problem = problem_for(loss, n=7, seed=6, **changes)
        self.check(problem, prove_loss(problem, 3, include=(2,), listing=ListRule(0.2, 100)), (2,))

    def test_a_short_list_does_not_change_the_verdicts(self, loss: Loss, changes: dict[str, Any]) -> None:
        problem = problem_for(loss, n=6, seed=5, **changes)
        whole, short = (prove_loss(problem, 3, listing=ListRule(0.3, limit)).near_best for limit in (100, 2))
        assert whole is not None
        assert short is not None
        assert short.subsets == whole.subsets[:2]
        assert short.more == (len(whole.subsets) > 2)
        assert short.verdicts == whole.verdicts

    def test_a_number_of_best_subsets(self, loss: Loss, changes: dict[str, Any]) -> None:
        problem = problem_for(loss, n=6, seed=7, **changes)
        near = prove_loss(problem, 2, listing=ListRule(None, 4)).near_best
        assert near is not None
        values = {S: fitted(problem, S) for S in combinations(range(6), 2)}
        assert [S for S, _ in near.subsets] == sorted(values, key=values.__getitem__)[:4]
        assert near.complete

    @pytest.mark.parametrize("nodes", [1, 4])
    def test_an_unfinished_list_decides_only_what_is_proved(
        self, loss: Loss, changes: dict[str, Any], nodes: int
    ) -> None:  # fmt: skip
        problem = problem_for(loss, n=6, seed=5, **changes)
        near = prove_loss(problem, 3, listing=ListRule(0.1, 100), nodes=nodes).near_best
        whole = prove_loss(problem, 3, listing=ListRule(0.1, 100)).near_best
        assert near is not None
        assert whole is not None
        assert all(one in ("undecided", known) for one, known in zip(near.verdicts, whole.verdicts, strict=True))
        assert (near.bound_with <= whole.value_with * (1.0 + 1e-9)).all()
        assert (near.bound_without <= whole.value_without * (1.0 + 1e-9)).all()


class TestKeptLeaves:
    """A proof continues from the leaves of an earlier one, of the same problem or of another."""

    @by_loss
    def test_an_interrupted_proof_continues_where_it_was(self, loss: Loss) -> None:
        problem = problem_for(loss, seed=8, m=60, n=12, lam=0.05)
        whole = prove_loss(problem, 4)
        stopped = Keeper(most=whole.nodes // 2)
        assert prove_loss(problem, 4, watcher=stopped).ended == "interrupted"
        continued = prove_loss(problem, 4, watcher=Keeper(stopped.kept))
        assert continued.proven
        assert (continued.members, continued.value) == (whole.members, pytest.approx(whole.value, rel=1e-12))
        assert continued.bound == pytest.approx(whole.bound, rel=1e-9)
        assert continued.nodes <= 1.5 * whole.nodes + 5

    @by_loss
    def test_a_finished_proof_needs_no_more_nodes(self, loss: Loss) -> None:
        problem = problem_for(loss, seed=8, m=60, n=12, lam=0.05)
        first = Keeper()
        whole = prove_loss(problem, 4, watcher=first)
        again = prove_loss(problem, 4, watcher=Keeper(first.kept))
        assert again.proven
        assert again.nodes == whole.nodes
        assert again.seconds >= whole.seconds

    @by_kind_of_loss
    @pytest.mark.parametrize("listed", [False, True], ids=["best", "near-best"])
    def test_leaves_of_another_problem_prove_the_same_as_none(self, loss: Loss, listed: bool) -> None:
        problem = problem_for(loss, seed=8, m=60, n=9, lam=0.2)
        first, rule = Keeper(), ListRule(0.05, 100) if listed else None
        prove_loss(problem, 3, watcher=first, listing=rule)
        other = replace(problem, Z=problem.Z + 0.3 * problem_for(loss, seed=9, m=60, n=9).Z, w=problem.w[::-1])
        expected, found = (prove_loss(other, 3, listing=rule, watcher=w) for w in (None, Keeper(first.kept)))
        assert found.proven
        assert found.members == expected.members
        assert found.value == pytest.approx(expected.value, rel=1e-9)
        assert found.bound == pytest.approx(expected.bound, rel=1e-9)
        if listed:
            assert found.near_best is not None
            assert expected.near_best is not None
            assert [S for S, _ in found.near_best.subsets] == [S for S, _ in expected.near_best.subsets]
            assert found.near_best.verdicts == expected.near_best.verdicts

    def test_leaves_that_were_left_out_are_searched_again(self) -> None:
        problem = problem_for(Logistic(), seed=8, m=60, n=12, lam=0.05)
        few = Keeper(most_bytes=700)
        whole = prove_loss(problem, 4, watcher=few)
        again = prove_loss(problem, 4, watcher=Keeper(few.kept))
        assert 0 < few.kept["depth"].size < whole.nodes // 2
        assert (again.proven, again.members) == (True, whole.members)

    @pytest.mark.parametrize("wrong", ["n", "steps", "depth", "members"])
    def test_leaves_that_do_not_fit_are_not_used(self, wrong: str) -> None:
        problem = problem_for(Logistic(), seed=8, m=60, n=12, lam=0.05)
        first = Keeper()
        whole = prove_loss(problem, 4, watcher=first)
        kept = dict(first.kept)
        if wrong == "n":
            problem = replace(problem, Z=problem.Z[:, :5])
        elif wrong == "steps":
            kept["steps"] = np.where(np.arange(kept["steps"].size) == 0, 4, kept["steps"])
        elif wrong == "depth":
            kept["depth"] = kept["depth"][::-1] + 1
        else:
            kept["members"] = np.array([3, 99])
        watcher = Keeper(kept)
        again = prove_loss(problem, 4, watcher=watcher)
        assert not watcher.follows
        assert again.proven
        assert wrong == "n" or again.nodes == whole.nodes


class Keeper:
    """A watcher that keeps the leaves, follows others, and may end the proof."""

    def __init__(self, kept: dict[str, Any] | None = None, most: int | None = None, most_bytes: int = 1 << 20) -> None:
        self.kept, self._most, self._most_bytes = kept or {}, most, most_bytes
        self.seen: list[tuple[int, float, float]] = []
        self.follows = False

    def begin(self, tree: LossTree) -> None:
        tree.keeps = True
        self.follows = bool(self.kept) and tree.follow(self.kept)

    def after_node(self, tree: LossTree) -> bool:
        self.seen.append((tree.nodes, tree.bound, tree.value))
        return self._most is not None and tree.nodes >= self._most

    def at_end(self, tree: LossTree) -> None:
        self.kept = tree.kept(self._most_bytes)


class TestPool:
    """A tree that relaxes few columns at a time proves the same, with few passes over all of them."""

    @by_loss
    def test_it_finds_the_best_of_all_subsets(self, loss: Loss) -> None:
        problem = problem_for(loss, n=30)
        columns = Columns(problem.Z)
        found = prove_wide_loss(replace(problem, Z=problem.Z[:, :0]), columns, 3, (27, 28, 29), first=4)
        expected = prove_loss(problem, 3)
        assert found.proven
        assert found.members == expected.members
        assert found.value == pytest.approx(expected.value, rel=1e-7)
        assert found.bound == pytest.approx(expected.value, rel=1e-6)
        assert columns.passes < found.nodes

    def test_included_columns_and_those_that_are_not_allowed(self) -> None:
        problem = problem_for(Logistic(), n=30)
        columns = Columns(problem.Z, (0, 4))
        found = prove_wide_loss(replace(problem, Z=problem.Z[:, :0]), columns, 3, (7, 9), include=(9,), first=4)
        expected = prove_loss(problem, 3, include=(9,), exclude=(0, 4))
        assert found.proven
        assert found.members == expected.members

    @pytest.mark.parametrize("nodes", [1, 3, 9])
    def test_a_proof_that_ends_early_has_a_valid_bound(self, nodes: int) -> None:
        problem = problem_for(Logistic(), n=30)
        found = prove_wide_loss(
            replace(problem, Z=problem.Z[:, :0]), Columns(problem.Z), 3, (1, 5, 6), first=4, nodes=nodes
        )
        assert found.root_bound <= found.bound <= prove_loss(problem, 3).value
        assert not found.proven

    @by_kind_of_loss
    @pytest.mark.parametrize("changed", [False, True], ids=["same", "other rows"])
    def test_it_continues_from_the_leaves_of_an_earlier_proof(self, loss: Loss, changed: bool) -> None:
        problem = problem_for(loss, n=30, lam=0.3)
        stopped = Keeper(most=6)
        empty = replace(problem, Z=problem.Z[:, :0])
        first = prove_wide_loss(empty, Columns(problem.Z), 3, (27, 28, 29), first=4, watcher=stopped)
        assert stopped.kept["depth"].size > 1 or first.proven
        if changed:
            problem = replace(problem, Z=problem.Z + 0.2 * problem_for(loss, seed=9, n=30).Z)
            empty = replace(problem, Z=problem.Z[:, :0])
        follower = Keeper(stopped.kept)
        found = prove_wide_loss(empty, Columns(problem.Z), 3, (27, 28, 29), first=4, watcher=follower)
        expected = prove_loss(problem, 3)
        assert follower.follows
        assert found.proven
        assert found.members == expected.members
        assert found.bound == pytest.approx(expected.value, rel=1e-6)


class Columns:
    """The columns of a problem in memory."""

    def __init__(self, Z: Floats, left_out: tuple[int, ...] = ()) -> None:
        self.Z, self.passes = Z, 0
        self.allowed = ~np.isin(np.arange(Z.shape[1]), left_out)

    def products(self, duals: Floats, errors: Floats) -> Floats:
        self.passes += 1
        return np.asarray(np.abs(self.Z.T @ duals) + 1e-12)

    def read(self, columns: Ints) -> Floats:
        return self.Z[:, columns]
