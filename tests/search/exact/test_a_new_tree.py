"""A new tree of proofs is a class and an entry. It is chosen, saved, continued and certified as the others are."""

from __future__ import annotations

import json
import math

import pytest

from dsel.search.exact import choose_tree
from dsel.search.exact.choose_tree import TREES, TreeEntry
from dsel.search.exact.proof import Proof
from dsel.search.exact.tree import BestFirstTree
from tests.search.exact.cases import data, exhaustive, regression


class PlainTree(BestFirstTree):
    """Branch and bound by f of all columns that are left: a node is (chosen, columns that may follow)."""

    kind = "plain"

    def __init__(self, objective, k, incumbent=()):
        super().__init__(objective, k, "all columns")
        self._push(0.0, ((), tuple(range(objective.n))))
        self.offer(incumbent)

    @property
    def lower(self):
        return min([self.best_value, *(key for key, _, _ in self._heap[:1])])

    def _prunes(self, key):
        return key >= self.best_value

    def _visit(self, until):
        key, (chosen, allowed) = self._pop()
        self._visited += 1
        if self._prunes(key):
            self._prune_all(key, (chosen, allowed))
            return
        for i, j in enumerate(allowed if len(chosen) < self.k else ()):
            self._accept((*chosen, j), key)
            self._push(self.objective.value((*chosen, *allowed[i:])), ((*chosen, j), allowed[i + 1 :]))

    def state(self):
        return {**self._shared_state(), "nodes": [[key, *node] for key, _, node in self._entries()]}

    @classmethod
    def _restored(cls, objective, state, memory_limit, log, setup):
        tree = cls(objective, state["k"])
        tree._restore_shared(state)
        tree._clear()
        for key, chosen, allowed in state["nodes"]:
            tree._push(key, (tuple(chosen), tuple(allowed)))
        return tree


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    entry = TreeEntry(PlainTree, lambda problem: problem.k < 4, lambda p: PlainTree(p.objective, p.k, p.incumbent))
    monkeypatch.setattr(TREES, "own", {"plain": entry, **TREES.own})


def test_it_is_chosen_where_it_suits():
    objective = regression(*data(9, "plain", 1))
    assert Proof.begin(objective, 3).search.kind == "plain"
    assert Proof.begin(objective, 4).search.kind == "branch-and-bound"


def test_its_certificate_is_true():
    objective = regression(*data(9, "plain", 1))
    proof = Proof.begin(objective, 3)
    assert proof.run()
    certificate = proof.certificate()
    assert certificate.proven
    assert math.isclose(certificate.value, exhaustive(objective, 3), rel_tol=1e-9)
    assert "plain" in certificate.method


def test_a_saved_proof_continues():
    objective = regression(*data(9, "plain", 1))
    proof = Proof.begin(objective, 3, (0, 1, 2))
    proof.run(nodes=2)
    assert not proof.certificate().proven
    again = Proof.resume(objective, json.loads(json.dumps(proof.state())))
    assert again.search.iteration == proof.search.iteration
    assert again.run()
    assert math.isclose(again.certificate().value, exhaustive(objective, 3), rel_tol=1e-9)


def test_without_a_tree_there_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(choose_tree.TREES, "own", {})
    with pytest.raises(Exception, match="No tree can prove anything"):
        Proof.begin(regression(*data(9, "plain", 1)), 3)
