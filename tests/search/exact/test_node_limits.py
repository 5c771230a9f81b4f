"""No proof visits more nodes than its limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dsel
from dsel.search.anytime import Stop
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.out_of_core import out_of_core_tree
from dsel.search.exact.perspective.perspective_tree import PerspectiveTree
from dsel.search.exact.proof import Proof
from dsel.search.exact.trees_on_workers import on_workers
from tests.search.exact.cases import regression
from tests.search.exact.out_of_core.test_wide_tree import on_demand
from tests.search.shuffled_executor import ShuffledExecutor

RNG = np.random.default_rng(6)
X = RNG.normal(size=(300, 160))
NOISY = X[:, 0] - X[:, 1] + 0.5 * X[:, 2] + 1.5 * RNG.normal(size=300)


@pytest.mark.parametrize("nodes", [1, 2, 20])
def test_a_head_start_of_relaxations_counts(nodes: int) -> None:
    chosen = dsel.select(X, NOISY, k=6)
    for proved in (
        dsel.certify(chosen, X, NOISY, nodes=nodes),
        dsel.select(X, NOISY, k=6, method="branch-and-bound", nodes=nodes),
    ):
        assert (proved.certificate[-1]["nodes"], proved.certificate[-1]["status"]) == (nodes, "bounded")


@pytest.mark.parametrize(
    "how",
    [{}, {"loss": "logistic"}, {"loss": "multinomial"}, {"groups": {f"g{j}": [2 * j, 2 * j + 1] for j in range(15)}}],
    ids=["squared", "logistic", "multinomial", "groups"],
)
@pytest.mark.parametrize("nodes", [1, 2, 5, 30])
def test_all_sizes_share_a_limit(how: dict[str, Any], nodes: int) -> None:
    few, y = X[:, :30], np.digitize(NOISY, [-1.0, 1.0]) if how.get("loss") == "multinomial" else NOISY
    y = NOISY > 0 if how.get("loss") == "logistic" else y
    found = dsel.certify(dsel.select(few, y, k=3, **how), few, y, nodes=nodes, sizes="all").certificate
    assert [row["size"] for row in found] == [1, 2, 3]
    assert sum(row["nodes"] for row in found) <= nodes


@pytest.mark.parametrize(
    ("how", "because", "helps"),
    [
        ({"memory": 200_000}, ", because its memory of 195.31 kiB was full.", "More memory"),
        ({"nodes": 50}, ", because 50 nodes were allowed.", "More nodes"),
        ({"gamma": np.inf}, ", because gamma=inf let it end early.", "A smaller gamma"),
        ({"method": "branch-and-bound", "nodes": 5}, ", because 5 nodes were allowed.", "More nodes"),
        ({"seconds": 0.2}, ".", "More time"),
    ],
)
def test_a_useless_bound_says_what_ended_its_proof(how: dict[str, Any], because: str, helps: str) -> None:
    wide = np.random.default_rng(77).normal(size=(50, 200))
    text = str(dsel.select(wide, NOISY[:50], k=8, **{"method": "astar", **how}))
    assert f"The proof ended before its bound was of use{because}" in text
    assert [more for more in ("More memory", "More nodes", "A smaller gamma", "More time") if more in text] == [helps]


@pytest.mark.parametrize("nodes", [1, 2, 12, 31])
def test_a_pass_bounds_no_more_nodes(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_core_tree, "_CLOSED", 3)  # then nodes are bounded by passes
    proof = Proof.begin(on_demand(X[:, :80], NOISY[:, None], 5.0), 4)
    proof.run(nodes=nodes)
    assert nodes - 1 <= proof.certificate().nodes <= nodes


@pytest.mark.parametrize("kind", [BranchAndBound, PerspectiveTree])
def test_tasks_on_workers_share_a_limit(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsel.search.exact.perspective.perspective_tree._ALONE_SECONDS", 0.0)
    monkeypatch.setattr("dsel.search.exact.branch_and_bound.subproblem_tree._ALONE", 3)
    tree = kind(regression(X[:, :60], NOISY[:, None]), 6)
    assert on_workers(ShuffledExecutor)(tree, Stop(iterations=20)) == "iterations"
    assert tree.iteration == 20
