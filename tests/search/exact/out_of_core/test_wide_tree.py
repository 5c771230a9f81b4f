"""Proofs in passes over the data: the answer of enumeration, bounds that hold after every pass, few passes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.on_demand import OnDemandObjective
from dsel.search import anytime
from dsel.search.exact import choose_tree
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.search.exact.certificate_words import claim, effort
from dsel.search.exact.out_of_core import out_of_core_tree as wide_search
from dsel.search.exact.out_of_core.out_of_core_tree import OutOfCoreTree
from dsel.search.exact.proof import Proof
from dsel.search.exact.root_bound import TargetBound
from tests.search.exact.cases import KINDS, data, exhaustive, regression, self_expression

ALL = 10**9


class CountedFactor(InMemoryFactor):
    """A factor that counts its passes."""

    passes = 0

    def products(self, V):
        CountedFactor.passes += 1
        return super().products(V)


def on_demand(X, y, lam):
    return OnDemandObjective(
        CountedFactor(X), np.square(X).sum(axis=0), X.T @ y, float(np.square(y).sum()), lam, batch=2
    )  # fmt: skip


@pytest.fixture(scope="class")
def small_steps():
    """A pool that begins and grows with few columns, so that small problems take many passes."""
    values = {"_FIRST": 2, "_ENTERING": 2, "_ENTERING_NODE": 1, "_CLOSED": 3, "_PASS_NODES": 3}
    with mock.patch.multiple(wide_search, **values):
        yield


@st.composite
def problems(draw):
    """An objective without its Gram matrix, the same one with it, and k."""
    seed, kind = draw(st.integers(0, 10_000)), draw(st.sampled_from(KINDS))
    X, y = data(seed, kind, 1)
    lam = draw(st.sampled_from((1e-3, 0.01, 0.5, 5.0)))
    dense, wide = regression(X, y, lam), on_demand(X, y, lam)
    if draw(st.booleans()) and np.square(X[:, 0]).sum() > 0:
        dense, wide = dense.condition([0]), wide.condition([0])
    return dense, wide, draw(st.integers(1, min(4, dense.n)))


@pytest.mark.usefixtures("small_steps")
@given(problems(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_bound_holds_and_the_answer_is_that_of_enumeration(case, known):
    dense, wide, k = case
    best = exhaustive(dense, k)
    search = OutOfCoreTree(wide, k, incumbent=range(k) if known else ())
    ended = False
    for _ in range(60):
        assert search.lower <= best + 1e-9 * dense.total
        assert search.best_value >= best - 1e-9 * dense.total
        ended = search.advance(search.iteration + 1)
        if ended:
            break
    if ended and not search._stuck:
        assert search.proven
        assert search.best_value == pytest.approx(best, abs=1e-7 * dense.total)


@pytest.mark.usefixtures("small_steps")
@given(st.integers(0, 1000), st.integers(1, 12))
@example(124, 2)
@settings(max_examples=10, deadline=None)
def test_it_resumes_with_the_same_nodes(seed, steps):
    X, y = data(seed, "more columns than rows", 1)
    wide = on_demand(X, y, 0.3)
    search = OutOfCoreTree(wide, 3, incumbent=(0, 1))
    for _ in range(steps):
        search.advance(search.iteration + 1)
    again = OutOfCoreTree.restore(wide, json.loads(json.dumps(search.state())))
    assert (again.lower, again.best, again.iteration) == (search.lower, search.best, search.iteration)
    assert (again.screened, again.passes) == (search.screened, search.passes)
    search.advance(ALL)
    again.advance(ALL)
    assert (again.best, again.iteration, again.passes) == (search.best, search.iteration, search.passes)


def planted(m, n, k, lam, noise=0.5):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n))
    X /= np.linalg.norm(X, axis=0)
    y = X[:, : 7 * k : 7].sum(axis=1, keepdims=True)
    y = y + noise * y.std() * rng.standard_normal((m, 1))
    return X, y, tuple(range(0, 7 * k, 7))


def test_thousands_of_columns_are_proved_in_few_passes(caplog):
    X, y, true = planted(300, 3000, 4, 0.5)
    wide = on_demand(X, y, 0.5)
    CountedFactor.passes = 0
    proof = Proof.begin(wide, 4, true)
    assert isinstance(proof.search, OutOfCoreTree)
    with caplog.at_level(logging.INFO, "dsel"):
        assert proof.run()
    found = proof.certificate()
    assert found.indices == true
    assert (found.proven, found.columns, found.passes) == (True, 3000, CountedFactor.passes)
    assert found.passes <= 8
    assert found.bound == pytest.approx(wide.value(true))
    lines = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert [line["passes"] for line in lines] == list(range(1, found.passes + 1))
    assert (lines[-1]["screened"], lines[-1]["best"]) == (found.screened, pytest.approx(found.value))
    bounds = [line["bound"] for line in lines]
    assert bounds == sorted(bounds)


def test_columns_that_are_in_no_better_subset_are_screened():
    X, y, true = planted(300, 3000, 4, 2.0, noise=0.1)
    proof = Proof.begin(on_demand(X, y, 2.0), 4, true)
    assert proof.run()
    assert proof.certificate().screened >= 2990
    row = proof.certificate().as_dict()
    assert effort(row).endswith(f"; {row['screened']:,} columns screened, {row['read']:,} of 3,000 columns searched")
    assert effort({**row, "screened": 0}).endswith(f"pass; {row['read']:,} of 3,000 columns searched")


def test_a_better_subset_than_the_known_one_is_found():
    X, y, true = planted(300, 2000, 4, 0.5)
    proof = Proof.begin(on_demand(X, y, 0.5), 4, (1, 2, 3, 4))
    assert proof.run()
    assert proof.certificate().better
    assert proof.certificate().indices == true


def test_a_gram_matrix_in_memory_needs_no_pass():
    X, y, true = planted(200, 500, 4, 0.5)
    search = OutOfCoreTree(regression(X, y, 0.5), 4, incumbent=true)
    assert search.advance(ALL)
    assert search.proven
    assert search.passes == 0


@pytest.mark.parametrize("included", [(), (1, 4)])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_without_a_penalty_the_targets_bound_the_error(included, k):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 8)) @ np.diag(2.0 ** -np.arange(8.0))
    Y = rng.standard_normal((12, 5)) @ np.diag([4.0, 2.0, 1.0, 0.5, 0.1])
    G = X @ X.T
    for wide, dense in (
        (
            OnDemandObjective(
                InMemoryFactor(X), np.square(X).sum(axis=0), X.T @ Y, float(np.square(Y).sum()),
                load_target_gram=lambda: Y.T @ Y,
            ),
            regression(X, Y),
        ),
        (
            OnDemandObjective(
                InMemoryFactor(X), np.square(X).sum(axis=0), None, float(np.square(X).sum()), target_operator=G,
                moment_diagonal=np.einsum("ij,ij->j", X, G @ X),
            ),
            self_expression(X),
        ),
    ):  # fmt: skip
        left, same = wide.condition(included), dense.condition(included)
        proof = Proof.begin(left, k, tuple(range(k)))
        assert isinstance(proof.search, TargetBound)
        proof.run()
        assert 0.0 < proof.certificate().bound <= exhaustive(same, k)
        again = Proof.resume(left, json.loads(json.dumps(proof.state())))
        assert again.certificate().bound == proof.certificate().bound


def bounded(X, y, k, lam, limit):
    """The least f of at most k columns whose squared coefficients, for columns of norm 1, sum to the limit."""
    norms, best = np.linalg.norm(X, axis=0), float(np.square(y).sum())
    for size in range(1, k + 1):
        for S in map(list, combinations(range(X.shape[1]), size)):
            A = np.vstack([X[:, S], np.sqrt(lam) * np.eye(size)])
            z = np.append(y[:, 0], np.zeros(size))
            b = np.linalg.lstsq(A, z, rcond=None)[0]
            if np.square(b * norms[S]).sum() <= limit * (1.0 + 1e-9):
                best = min(best, float(np.square(z - A @ b).sum()))
    return best


@pytest.mark.usefixtures("small_steps")
@given(
    st.integers(0, 10_000), st.sampled_from(KINDS[:2] + KINDS[4:]), st.sampled_from((1.0, 1.5, 4.0)),
    st.sampled_from((0.0, 1e-3, 1.0)),
)  # fmt: skip
@example(607, "whole numbers", 1.0, 0.0)  # the first columns explain nothing
@settings(max_examples=30, deadline=None)
def test_the_bound_holds_for_coefficients_up_to_the_limit(seed, kind, times, lam):
    X, y = data(seed, kind, 1)
    X = X[:, np.square(X).sum(axis=0) > 0.0]
    total, k = float(np.square(y).sum()), min(3, X.shape[1])
    search = OutOfCoreTree(on_demand(X, y, lam), k, incumbent=range(min(2, X.shape[1])), coefficient_limit=times)
    assume(search.limit > 0.0)
    best = bounded(X, y, k, lam, search.limit)
    for _ in range(30):
        assert search.lower <= best + 1e-9 * total
        if search.advance(search.iteration + 1):
            break
    again = OutOfCoreTree.restore(on_demand(X, y, lam), json.loads(json.dumps(search.state())))
    assert (again.lower, again.limit) == (search.lower, search.limit)


def test_without_a_penalty_more_columns_than_rows_are_proved_for_limited_coefficients():
    X, y, true = planted(300, 1500, 3, 0.0, noise=0.2)
    proof = Proof.begin(on_demand(X, y, 0.0), 3, true, coefficient_limit=1.5)
    assert proof.run()
    found = proof.certificate()
    assert (found.proven, found.indices) == (True, true)
    assert found.coefficients == pytest.approx(1.5 * np.square(np.linalg.lstsq(X[:, true], y)[0]).sum() / (y**2).sum())
    assert "among subsets whose squared coefficients" in (claim(found.as_dict()) or "")
    unlimited = Proof.begin(on_demand(X, y, 0.0), 3, true).certificate()
    assert unlimited.bound == 0.0
    assert found.merged(unlimited) == found
    assert Certificate.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    assert across_sizes({3: found, 2: replace(unlimited, size=2)})[2].bound == 0.0


@pytest.mark.parametrize(("lam", "times", "kind"), [(2e-4, 1.1, "wide-tree"), (0.3, 1e4, "perspective-tree")])
def test_of_the_trees_with_and_without_the_limit_the_better_one_proves(monkeypatch, lam, times, kind):
    monkeypatch.setattr(choose_tree, "_FIRST_TURN", 0.02)
    X, y, true = planted(200, 800, 6, lam, noise=0.2)
    objective = regression(X, y, lam)
    proof = Proof.begin(objective, 6, true, coefficient_limit=times)
    proof.run(nodes=2000)
    assert proof.search.kind == kind
    assert proof.search.lower <= objective.value(true)


def test_if_no_column_explains_anything_coefficients_are_not_limited():
    X, y, _ = planted(60, 40, 3, 0.0)
    nothing = OnDemandObjective(InMemoryFactor(X), np.square(X).sum(axis=0), 0.0 * X.T @ y, 1.0)
    proof = Proof.begin(nothing, 3, (), coefficient_limit=1.5)
    proof.run()
    found = proof.certificate()
    assert (found.value, found.bound, found.coefficients) == (1.0, 0.0, 0.0)


def test_time_that_passes_while_nodes_are_split_loses_none_of_them(monkeypatch):
    X, y, _ = planted(60, 80, 4, 0.1, noise=4.0)
    now = [0.0]

    def split(search, *node):
        now[0] += 100.0
        return usual(search, *node)

    usual = OutOfCoreTree._split
    with mock.patch.multiple(wide_search, _CLOSED=3, _FIRST=10):
        search = OutOfCoreTree(on_demand(X, y, 0.1), 4)
        while not search.open_nodes:
            assert not search.advance(search.iteration + 1)
        lower, passes = search.lower, search.passes
        monkeypatch.setattr(OutOfCoreTree, "_split", split)
        monkeypatch.setattr(anytime, "default_clock", lambda: now[0])
        with search.time_limit(10.0):
            search.advance(ALL)
        assert now == [100.0]
        assert (search.lower, search.passes) == (lower, passes)
        assert search.open_nodes > 0


def test_a_contradiction_in_the_tree_in_memory_proves_nothing():
    X, y, _ = planted(60, 40, 3, 0.1, noise=3.0)
    wide = on_demand(X, y, 0.1)
    search = OutOfCoreTree(wide, 3, incumbent=(0, 1, 2))
    while search.state()["inner"] is None:
        assert not search.advance(search.iteration + 1)
    state = search.state()
    state["inner"]["contradicted"] = True
    again = OutOfCoreTree.restore(wide, state)
    search.advance(ALL)
    again.advance(ALL)
    assert (search.done, search.proven) == (True, True)
    assert (again.done, again.proven, again.lower) == (True, False, 0.0)
