"""A new tree of proofs is a class and an entry. It is chosen, saved, continued and certified as the others are."""

from __future__ import annotations

import math

import pytest

from dsel.search.exact import choose_tree
from dsel.search.exact.choose_tree import TREES
from dsel.search.exact.proof import Proof
from dsel.testing import check_tree
from tests.search.exact.cases import data, exhaustive, regression
from tests.search.exact.plain_tree import PlainTree, entry_of


def test_it_keeps_the_contract():
    check_tree(entry_of(PlainTree))


def test_it_is_chosen_where_it_suits():
    objective = regression(*data(9, "plain", 1))
    with TREES.including(entry_of(PlainTree)):
        assert Proof.begin(objective, 3).search.kind == "plain"
        assert Proof.begin(objective, 4).search.kind == "branch-and-bound"


def test_its_certificate_names_it():
    objective = regression(*data(9, "plain", 1))
    with TREES.including(entry_of(PlainTree)):
        proof = Proof.begin(objective, 3)
        assert proof.run()
        certificate = proof.certificate()
    assert certificate.proven
    assert math.isclose(certificate.value, exhaustive(objective, 3), rel_tol=1e-9)
    assert "plain" in certificate.method


def test_without_a_tree_there_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(choose_tree.TREES, "own", {})
    with pytest.raises(Exception, match="No tree can prove anything"):
        Proof.begin(regression(*data(9, "plain", 1)), 3)
