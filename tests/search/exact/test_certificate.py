"""Certificates are true and never become worse; proofs can be saved and continued."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from dsel.errors import OptionError
from dsel.search.exact.bounds import BoundProblem
from dsel.search.exact.certificate import Certificate, across_sizes
from dsel.search.exact.proof import Proof
from tests.search.exact.cases import data, exhaustive, hard_case, problems, regression, self_expression


def certify(objective, k, incumbent=(), *, nodes=None):
    proof = Proof.begin(objective, k, incumbent)
    proof.run(nodes=nodes)
    return proof.certificate()


@given(problems())
@settings(max_examples=40, deadline=None)
def test_a_certificate_is_true(case):
    objective, k = case
    best = exhaustive(objective, k)
    slack = 1e-8 * objective.c
    short = certify(objective, k, nodes=1)
    assert short.bound - slack <= best <= short.value + slack
    whole = short.merged(certify(objective, k))
    assert whole.proven
    assert whole.gap <= slack + whole.rounding_error * objective.c
    assert whole.value == pytest.approx(best, abs=slack)
    assert whole.bound >= short.bound - slack
    assert whole.value == objective.value(whole.indices) or not whole.indices


def test_a_better_subset_than_the_one_certified_is_named():
    X, Y = data(8, "plain", 1)
    objective = regression(X, Y)
    worst = max(((i,) for i in range(objective.n)), key=objective.value)
    found = certify(objective, 1, worst)
    assert found.better
    assert found.value < objective.value(worst)
    assert not certify(objective, 1, found.indices).better


def test_an_older_certificate_makes_a_newer_one_no_worse():
    objective = hard_case(4)
    good = certify(objective, 6, nodes=400)
    assert not good.proven
    quick = good.merged(certify(objective, 6, nodes=2))
    assert quick == good
    with pytest.raises(OptionError, match="cannot be merged"):
        good.merged(certify(objective, 2))


def test_a_list_that_proves_a_finished_proof_once_more_leaves_it_as_it_is():
    proof = Certificate(2, 50.0, 50.0 - 2e-8, 100.0, (3, 4), nodes=0, leaves_checked=10, dependent_gap=1e-3)
    proof = replace(proof, rounding_error=1e-12)
    again = replace(proof, bound=50.0 - 1e-10, nodes=7, leaves_checked=0, began_again="because", ended_by="nodes")
    assert proof.merged(again, of_list=True) == proof
    assert proof.merged(replace(again, bound=20.0), of_list=True) == proof  # it was interrupted
    as_good = replace(again, value=50.0 - 1e-10, indices=(3, 5))
    assert proof.merged(as_good, of_list=True) == replace(proof, value=as_good.value, indices=(3, 5))


@pytest.mark.parametrize(
    ("proved", "more"),
    [
        ({}, {"dependent_gap": 0.0}), ({}, {"dependent_gap": 1e-4}), ({"represented": 2}, {"represented": 0}),
        ({"rounding_error": 1e-3, "bound": 49.9}, {}),
        ({"bound": 49.0}, {}),  # it is not finished
        ({}, {"value": 49.0, "bound": 49.0}),  # the bound was wrong
    ],
)  # fmt: skip
def test_a_list_that_says_more_than_a_proof_takes_its_place(proved, more):
    proof = replace(Certificate(2, 50.0, 50.0, 100.0, dependent_gap=1e-3), **proved)
    again = replace(Certificate(2, 50.0, 50.0, 100.0, nodes=7, dependent_gap=1e-3), **more)
    assert proof.merged(again, of_list=True) == again


def test_a_state_that_is_saved_during_a_run_has_the_time_so_far():
    states = []
    proof = Proof.begin(hard_case(4), 6)
    proof.run(nodes=400, on_slice=lambda _: states.append(proof.state()))
    states.append(proof.state())
    for name in ("seconds", "cpu"):
        times = [state[name] for state in states]
        assert times[0] > 0.0
        assert times == sorted(times)


def test_a_proof_continues_from_its_state():
    objective = hard_case(4)
    proof = Proof.begin(objective, 6)
    bounds = []
    while not proof.run(nodes=100):
        bounds.append(proof.certificate().bound)
        proof = Proof.resume(objective, json.loads(json.dumps(proof.state())))
    assert len(bounds) > 2
    assert bounds == sorted(bounds)
    whole = certify(objective, 6)
    assert proof.certificate().value == whole.value
    assert proof.certificate().bound == pytest.approx(whole.bound)
    assert proof.certificate().proven


def test_sizes_share_what_is_proved():
    objective = hard_case(4)
    found = across_sizes({size: certify(objective, size, nodes=40) for size in range(1, 6)})
    bounds = [found[size].bound for size in sorted(found)]
    assert bounds == sorted(bounds, reverse=True)
    assert found[1].proven
    weak = Certificate(2, 5.0, 0.0, 9.0)
    strong = Certificate(3, 4.0, 3.5, 9.0)
    assert across_sizes({2: weak, 3: strong})[2].bound == 3.5


def test_it_is_written_and_read():
    found = certify(hard_case(4), 3)
    again = Certificate.from_dict(json.loads(json.dumps(found.as_dict())))
    assert (again.value, again.bound, again.proven, again.indices) == (found.value, found.bound, True, found.indices)
    assert Certificate(1, 0.0, 0.0, 0.0).relative_gap == 0.0


@pytest.mark.parametrize(("N", "lam"), [(1, 0.0), (3, 0.5), (0, 0.0)])
def test_the_bound_of_the_whole_problem_replaces_branch_and_bound_that_does_not_fit(N, lam):
    X, Y = data(6, "dependent", max(N, 1))
    objective = regression(X, Y, lam) if N else self_expression(X)
    proof = Proof.begin(objective, 2, memory_limit=1)
    assert proof.run(nodes=10) == proof.certificate().proven
    found = Proof.resume(objective, json.loads(json.dumps(proof.state())), (0,)).certificate()
    assert found.method in ("root, combined bound", "perspective relaxation")
    assert found.bound == proof.certificate().bound
    assert found.bound <= exhaustive(objective, 2) + 1e-9 * objective.c
    whole = BoundProblem.of(objective).bound((), range(objective.n), 2)
    assert found.bound >= min(whole, found.value) - 1e-7 * objective.c
    assert found.value < objective.value((0,))
    assert found.better
