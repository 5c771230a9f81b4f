"""A few of the random problems on which proofs are compared with errors from the data; a long run checks thousands."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from dsel.search.exact.certificate import Certificate
from pipelines.proof_check.checks import Findings, _compare, check, measured
from pipelines.proof_check.families import FAMILIES, random_problem
from tests.search.exact.cases import exhaustive


# Problems 67, 121, 202 and 256 had bounds that were too high by up to 1e-3 of ||Y||^2.
@pytest.mark.parametrize("index", [*range(2 * len(FAMILIES)), 19, 67, 121, 202, 256])
def test_no_proof_is_false(index):
    findings = check(random_problem(0, index))
    assert findings.proofs >= 8
    assert findings == Findings(findings.proofs, findings.finished)


@pytest.mark.parametrize("index", [517, 3109])
def test_what_a_dependent_subset_may_explain_counts_rounding(index):
    findings = check(random_problem(1, index))
    assert findings == Findings(findings.proofs, findings.finished)


@pytest.mark.parametrize("index", [4765, 8852, 9176])
def test_dependent_subsets_count_where_other_columns_are_dependent_too(index):
    """There are more columns than rows: the columns that are eliminated first say nothing about other subsets."""
    findings = check(random_problem(3, index))
    assert findings == Findings(findings.proofs, findings.finished)


def test_the_data_give_the_f_of_the_objective():
    problem = random_problem(0, 0)
    n, k = problem.X.shape[1], problem.k
    found = measured(problem, [tuple(range(min(k, n)))])
    assert found.f[0] == pytest.approx(problem.objective.value(range(min(k, n))), rel=1e-6)
    assert np.all(found.tolerance <= 1.0 + 1e-12)
    assert exhaustive(problem.objective, k) <= found.f[0] * (1.0 + 1e-6)


def test_a_bound_that_is_too_high_is_found():
    problem, findings = random_problem(0, 0), Findings()
    total = float(np.square(problem.Y).sum())
    known = measured(problem, [(), (0,)])
    _compare(problem, Certificate(1, total, known.f.min() + 1e-9 * total, total, ()), known, findings)
    assert len(findings.false_bounds) == 1


def test_the_last_line_is_json():
    command = [sys.executable, "-m", "pipelines.proof_check", "--problems", "2"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    last = json.loads(printed.splitlines()[-1])
    assert (last["problems"], last["false_bounds"], last["not_finite"]) == (2, 0, 0)
