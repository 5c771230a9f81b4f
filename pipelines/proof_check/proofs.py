"""What the exact searches prove about a problem: in memory, in passes, by groups, on workers, stopped and resumed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.linalg import LinAlgWarning

from dsel.engine.dask_engine import DaskEngine
from dsel.objective.dense import DenseObjective
from dsel.objective.groups import GroupedObjective
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.objective_interface import Objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.bounds import BOUNDS
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.carried_bound import CarriedBound
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.choose_tree import relaxable
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.out_of_core.out_of_core_tree import OutOfCoreTree
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.proof import Proof
from dsel.search.exact.root_bound import RootBound
from dsel.search.exact.trees_on_workers import on_workers
from pipelines.proof_check.families import Problem
from pipelines.proof_check.stated import certificate_of

#: Problems with at least this many columns count as large. Limits of the searches, in nodes.
LARGE = 300
_MANY, _NODES, _NODES_OF_LARGE = 40, 20_000, 30
#: Which share of the problems is also proved on workers.
_ON_WORKERS = 0.03


#: Problems with more targets are not continued. Nodes of the proofs that are, at most.
_FEW_TARGETS, _NODES_BEFORE = 8, 400


def proofs_of(problem: Problem, rng: Generator) -> Iterator[Certificate]:
    """Yield what every exact search proves about all subsets of at most k columns, included ones apart."""
    objective = problem.objective
    k, n = min(problem.k, objective.n), objective.n
    nodes = _NODES if n < _MANY else _NODES_OF_LARGE
    for search in _searches(objective, k):
        if not isinstance(search, RootBound):
            search.advance(nodes if isinstance(search, BranchAndBound) else min(nodes, 400 if n < LARGE else 5))
        if getattr(search, "not_finite", 0):
            raise ArithmeticError(f"{search.kind}: bounds are not finite")
        yield certificate_of(search)
    if n >= LARGE:
        return
    yield from _stopped_and_resumed(objective, k, nodes, rng)
    if objective.has_gram and objective.cross is not None and objective.cross.shape[1] <= _FEW_TARGETS:
        yield from _continued(objective, k, min(nodes, _NODES_BEFORE), rng)
    if rng.random() < _ON_WORKERS:
        proof = Proof.begin(objective, k)
        proof.run(nodes=nodes, runner=on_workers(DaskEngine(_client()).executor))
        yield replace(proof.certificate(), method="on workers")
    if relaxable(objective):
        yield _in_passes(problem, k, min(nodes, 200))


def _searches(objective: Objective, k: int) -> Iterator[Any]:
    """Yield every search and bound, without a known subset."""
    for bound in BOUNDS:
        yield BranchAndBound(objective, k, bound=bound, most_open=0)
    if objective.n < LARGE:
        yield BranchAndBound(objective, k, pairs=False)
        yield AStar(objective, k, bound="combined")
    yield AStar(objective, k)
    yield RootBound(objective, k)
    for after, hands_over in ((None, False), (0.0, False), (None, True)):
        with contextlib.suppress(ValueError):
            yield PerspectiveTree(objective, k, diagonal_after=after, hands_over=hands_over)


def _stopped_and_resumed(objective: Objective, k: int, nodes: int, rng: Generator) -> Iterator[Certificate]:
    """Yield a proof after its first node, and at its end, before which it was saved and resumed."""
    proof = Proof.begin(objective, k)
    limit = 1
    while limit <= nodes:
        done = proof.run(nodes=limit)
        found = proof.certificate()
        json.dumps(found.as_dict(), allow_nan=False)
        if limit == 1:
            yield found
        if done:
            break
        limit *= int(rng.integers(5, 50))
        proof = Proof.resume(objective, json.loads(json.dumps(proof.state(), allow_nan=False)))
    yield replace(found, method=f"resumed {found.method}")


def _in_passes(problem: Problem, k: int, nodes: int) -> Certificate:
    """Return a proof that reads the columns in passes."""
    X, Y = problem.X, problem.Y
    whole = OnDemandObjective(
        InMemoryFactor(X), np.square(X).sum(axis=0), X.T @ Y, float(np.square(Y).sum()), problem.lam, batch=2
    )  # fmt: skip
    objective = whole.condition(problem.include)
    tree = OutOfCoreTree(objective, k)
    tree.advance(nodes)
    return replace(certificate_of(tree), method="in passes")


def limited(problem: Problem, incumbent: tuple[int, ...]) -> Iterator[Certificate]:
    """Yield proofs about subsets within limits for coefficients, if the incumbent explains something.

    incumbent: columns of the data, besides the included ones.
    """
    objective = problem.objective
    place, k = {int(j): i for i, j in enumerate(objective.columns)}, min(problem.k, objective.n)
    start = [place[j] for j in incumbent]
    kinds: tuple[dict[str, Any], ...] = ({"coefficient_limit": 2.0}, {"largest_coefficient": 1.2})
    for limits in kinds:
        tree: Any = OutOfCoreTree(objective, k, incumbent=start, **limits)
        if tree.limited and (problem.lam == 0.0 or "largest_coefficient" in limits):
            tree.advance(200)
            yield replace(certificate_of(tree), method=f"in passes within {min(limits)}")
    if not (objective.has_gram and tree.limited):
        return
    for times, hands_over in ((0.6, False), (1.0, True), (3.0, False)):
        largest = times * tree.certificate().largest_coefficient
        with contextlib.suppress(ValueError):
            search = PerspectiveTree(objective, k, incumbent=start, largest=largest, hands_over=hands_over)
            search.advance(400 if objective.n < _MANY else 30)
            yield replace(certificate_of(search), method=f"largest coefficient {times}, {hands_over}")


def by_groups(problem: Problem, groups: list[tuple[int, ...]], k: int) -> Certificate:
    """Return a proof about k groups of columns. groups: columns of the data."""
    objective = problem.objective
    place = {int(j): i for i, j in enumerate(objective.columns)}
    grouped = GroupedObjective(objective, [np.array([place[j] for j in g]) for g in groups])
    proof = Proof.begin(grouped, k)
    proof.run(nodes=5)
    proof = Proof.resume(grouped, json.loads(json.dumps(proof.state(), allow_nan=False)))
    proof.run(nodes=_NODES)
    return proof.certificate()


@lru_cache(maxsize=1)
def _client() -> Any:
    """Return a client of two workers in this process, which ends with it."""
    from distributed import Client, LocalCluster

    make: Any = LocalCluster
    connect: Any = Client
    return connect(make(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"))


def _continued(objective: Objective, k: int, nodes: int, rng: Generator) -> Iterator[Certificate]:
    """Yield what follows from the proof of an earlier problem: from its tree, and from the bound that it leaves."""
    cross = np.asarray(objective.cross)
    added = rng.standard_normal((objective.n + cross.shape[1], int(rng.integers(1, 9))))
    added *= (
        rng.choice([1e-3, 0.03, 0.3])
        * np.sqrt(np.append(np.diag(objective.K), np.full(cross.shape[1], objective.c)))[:, None]
    )
    X, Y = added[: objective.n], added[objective.n :]
    before = DenseObjective(
        objective.K + X @ X.T, cross + X @ Y.T, objective.c + float(np.square(Y).sum()), objective.lam
    )  # fmt: skip
    with contextlib.suppress(ValueError, LinAlgWarning):  # nearly dependent columns
        tree = PerspectiveTree(before, k, setup=CommonSetup(before, guided=True))
        tree.advance(nodes)
        if kept := tree.kept(1 << 20):
            follows = PerspectiveTree(objective, k, kept=kept, setup=CommonSetup(objective, guided=True))
            follows.advance(nodes)
            yield replace(certificate_of(follows), method="continued from a kept tree")
    proof = Proof.begin(before, k, near_best=ListRule(None, 5))
    proof.run(nodes=nodes)
    near = proof.search.near_best
    if near is not None and proof.search.proven:
        least = near.listed_below - proof.search.guarantee.error * before.total
        carried = CarriedBound.of(before, [S for S, _ in near.subsets], least)
        certificate = carried.certificate(CommonSetup(objective), k) if near.subsets else None
        if certificate is not None:
            yield certificate
