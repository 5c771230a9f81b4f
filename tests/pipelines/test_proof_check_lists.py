"""The check of near-best subsets finds lists, verdicts and bounds that are wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import typer

from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from dsel.selection.alternatives import Alternatives
from pipelines.proof_check.__main__ import main
from pipelines.proof_check.alternatives import AllSubsets, Faults, check_answer, check_lists
from pipelines.proof_check.copies import faults_with_copies, random_copies
from tests.search.exact.cases import hard_case

RULE = ListRule(0.05, 1000)


def faults_with(**changes: Any) -> Faults:
    """Return what is found when an answer is changed. changes: a value, or a function of the answer."""
    objective, faults = hard_case(1, n=9), Faults()
    members = list(combinations(range(9), 3))
    f = np.array([objective.value(S) for S in members])
    everything = AllSubsets(9, members, f, np.ones(f.size, np.bool_), objective.total, 1e-9 * objective.total)
    proof = Proof.begin(objective, 3, near_best=RULE)
    assert proof.run()
    answer = proof.near_best()
    check_answer(replace(answer, **{k: v(answer) for k, v in changes.items()}), RULE, everything, True, "", faults)
    return faults


def test_a_true_answer_has_no_faults() -> None:
    assert faults_with().any == []


@pytest.mark.parametrize("place", [0, -1])
def test_a_missing_subset_is_found(place: int) -> None:
    assert faults_with(subsets=lambda a: [s for s in a.subsets if s is not a.subsets[place]]).wrong_lists


def test_a_changed_verdict_is_found() -> None:
    for verdict in ("useless", "necessary", "undecided"):
        assert faults_with(verdicts=lambda a, v=verdict: [v] * len(a.verdicts)).wrong_verdicts


def test_a_bound_that_is_too_high_is_found() -> None:
    assert faults_with(bound_with=lambda a: a.value_with + 1e-6 * a.threshold).false_bounds


def test_random_problems_have_no_faults() -> None:
    for index in (0, 1, 5, 7, 13, 23):  # in the last two, groups have columns that nearly depend on those of others
        assert check_lists(0, index).any == []


def test_bounds_and_verdicts_that_ignore_copies_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignored(self: Alternatives, *about: Any) -> Alternatives:
        return self

    problems = [random_copies(0, index) for index in range(12)]
    assert not any(any(faults_with_copies(problem, 0.1)) for problem in problems)
    monkeypatch.setattr(Alternatives, "over_representatives", ignored)
    assert any(faults_with_copies(problem, 0.1)[2] for problem in problems)


def test_the_last_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        main(problems=2, alternatives=True)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["problems"], last["wrong_verdicts"], last["wrong_lists"], last["false_bounds"]) == (2, 0, 0, 0)
