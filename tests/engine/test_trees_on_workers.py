"""A proof on workers gives the same answer as in one process, also if workers are lost."""

from __future__ import annotations

import json
import os
import signal

import pytest

from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_futures import DaskExecutor
from dsel.search.anytime import Stop
from dsel.search.exact.branch_and_bound.explorer import Explorer
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.proof import Proof
from dsel.search.exact.trees_on_workers import SubtreeEstimate, on_workers
from tests.search.exact.cases import hard_case

NO_LIMIT = 2**62


def runner_of(client):
    """Return what runs a tree on the workers of a client, and the tasks that it has sent."""
    sent = []

    class Counted(DaskExecutor):
        def submit(self, task):
            sent.append(task.key)
            super().submit(task)

    return on_workers(lambda work, options: Counted(client, work, options)), sent


@pytest.fixture(scope="module")
def client():
    with local_cluster(2, "1GiB") as client:
        yield client


@pytest.fixture(scope="module")
def here():
    search = BranchAndBound(hard_case(3, n=40), 7)
    search.advance(NO_LIMIT)
    assert search.iteration > 10_000
    return search


def nodes_of_a_task(monkeypatch, number):
    """Have tasks visit at most this many nodes, however fast the workers are."""
    monkeypatch.setattr(SubtreeEstimate, "budget", lambda self, workers: number)


@pytest.fixture
def tree(monkeypatch):
    """A tree of 220 relaxations whose nodes go to workers at once, a few at a time."""
    monkeypatch.setattr("dsel.search.exact.perspective.perspective_tree._ALONE_SECONDS", 0.0)
    nodes_of_a_task(monkeypatch, 8)
    objective = hard_case(1, n=24)
    return PerspectiveTree(objective, 3, diagonal_after=1e9)


def test_two_workers_prove_what_one_process_proves(client, here, monkeypatch):
    nodes_of_a_task(monkeypatch, 1000)
    proof = Proof(BranchAndBound(here.objective, 7), float("inf"))
    runner, sent = runner_of(client)
    assert proof.run(runner=runner)
    assert proof.search.best == here.best
    assert proof.search.lower == pytest.approx(here.lower)
    assert len(set(sent)) == len(sent) > 4


def test_a_stopped_proof_can_be_saved_and_continued(client, here, monkeypatch):
    nodes_of_a_task(monkeypatch, 300)
    search = BranchAndBound(here.objective, 7)
    saved = []
    ended = runner_of(client)[0](search, Stop(iterations=5000), lambda s: saved.append(json.dumps(s.state())))
    assert ended == "iterations"
    assert not search.done
    assert saved
    for state in (saved[0], saved[-1], json.dumps(search.state())):
        again = BranchAndBound.restore(here.objective, json.loads(state))
        assert again.lower <= here.best_value
        again.advance(NO_LIMIT)
        assert again.best == here.best
        assert again.done


def test_relaxations_on_two_workers_prove_what_one_process_proves(client, tree):
    here = PerspectiveTree.restore(tree.objective, tree.state())
    assert here.advance(NO_LIMIT)
    proof, (runner, sent) = Proof(tree, float("inf")), runner_of(client)
    assert proof.run(runner=runner)
    assert (tree.best, tree.lower, tree.proved) == (here.best, here.lower, here.proved)
    assert len(set(sent)) == len(sent) > 4


def test_relaxations_on_workers_that_are_stopped_can_be_saved_and_continued(client, tree):
    here = PerspectiveTree.restore(tree.objective, tree.state())
    assert here.advance(NO_LIMIT)
    saved = []
    limit = here.iteration // 2
    ended = runner_of(client)[0](tree, Stop(iterations=limit), lambda s: saved.append(json.dumps(s.state())))
    assert ended == "iterations"
    for state in (saved[0], saved[-1], json.dumps(tree.state())):
        again = PerspectiveTree.restore(tree.objective, json.loads(state))
        assert again.lower <= here.best_value
        assert again.advance(NO_LIMIT)
        assert again.best == here.best


def test_workers_get_a_better_diagonal_when_it_is_found(client, tree):
    search = PerspectiveTree(tree.objective, 3, diagonal_after=tree.seconds)
    (runner, _), first = runner_of(client), search.work()
    assert runner(search, Stop(iterations=NO_LIMIT)) == "proven"
    assert search.work() is not first
    here = PerspectiveTree.restore(tree.objective, tree.state())
    here.advance(NO_LIMIT)
    assert (search.best, search.lower) == (here.best, here.lower)


def test_the_subtrees_of_a_lost_worker_are_explored_again(here, tree, monkeypatch):
    expected = PerspectiveTree.restore(tree.objective, tree.state())
    expected.advance(NO_LIMIT)
    with local_cluster(2, "1GiB") as client:
        for search, found, nodes in ((BranchAndBound(here.objective, 7), here, 1000), (tree, expected, 8)):
            nodes_of_a_task(monkeypatch, nodes)
            killed: list[int] = []

            def kill_one(search, killed=killed):
                if not killed and search._leased:
                    pids = client.run(os.getpid)
                    killed.append(next(iter(pids.values())))
                    os.kill(killed[0], signal.SIGKILL)

            assert runner_of(client)[0](search, Stop(iterations=NO_LIMIT), kill_one) == "proven"
            assert killed
            assert search.best == found.best
            assert search.lower == pytest.approx(found.lower)


def test_a_task_is_a_pure_function(here):
    search = BranchAndBound(here.objective, 7)
    search.advance(50)
    _, subs = search.checkout(5, 1e9, lambda sub: 1.0)
    lower = search.lower
    explorer = Explorer(search.problem, 7)
    first = explorer.explore_all(subs, search.best_value, 300)
    second = explorer.explore_all(subs, search.best_value, 300)
    assert (first.nodes, first.best, first.pruned) == (second.nodes, second.best, second.pruned)
    assert [s.as_list() for s in first.left] == [s.as_list() for s in second.left]
    assert search.lower == lower
    assert not search.done


def test_sizes_are_estimated_from_results():
    estimate = SubtreeEstimate()
    search = BranchAndBound(hard_case(), 5)
    sub = search.open_subproblems()[0]
    assert search.subtree_size(sub) == 30 * 29 * 28 / 6
    before = estimate.budget(2)
    estimate.learn(1000.0, Explorer(search.problem, 5).explore_all([sub], 1e9, 10**6), 1e-4)
    assert estimate.budget(2) > before


def test_tasks_grow_with_the_time_of_the_proof_and_shrink_with_the_workers():
    assert SubtreeEstimate(speed=1e4).budget(2) == 3000
    assert SubtreeEstimate(speed=1e4, seconds=100.0).budget(1) == 10_000
    assert SubtreeEstimate(speed=1e4, seconds=100.0).budget(2) == 5000
    assert SubtreeEstimate(speed=1e4, seconds=1e6).budget(2) == 30_000


def test_leases_are_limited_by_number_and_by_size():
    search = BranchAndBound(hard_case(), 7)
    search.advance(50)
    bounds = [sub.lower for sub in search.open_subproblems()]
    lease_id, subs = search.checkout(4, 1e9, lambda sub: 1.0)
    assert [sub.lower for sub in subs] == sorted(bounds)[:4]
    search.requeue(lease_id)
    _, subs = search.checkout(4, 3.0, lambda sub: 2.0)
    assert len(subs) == 2
