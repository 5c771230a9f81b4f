"""Proof logs about groups of columns: true ones are accepted, and forged ones are not."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import dsel
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.proof_store import ProofBudget
from tests.search.grouped.test_groups import best, problem
from tests.verification.logs import (
    BRANCHED,
    COMPARED,
    DEPENDENT,
    END,
    PRUNED,
    SPLIT,
    LogFolder,
    certified_run,
    finished_run,
)

SIZES = (1, 3, 2, 1, 4, 2, 1, 2, 3, 1)


@pytest.mark.parametrize(
    ("N", "request_"),
    [
        (1, {}),
        (3, {"include": [0], "exclude": [4]}),
        (1, {"include": [1, 2, 3], "lam": 2.0}),  # the included group depends on itself
        (20, {"sizes": "all", "preprocess": "center"}),
        (0, {"unsupervised": True}),
    ],
)
def test_proofs_about_groups_are_accepted(tmp_path, N, request_):
    X, Y, groups = problem(1, sizes=SIZES, N=max(N, 1))
    X[:, groups[6][0]] = X[:, groups[4]] @ [1.0, 2.0, -1.0, 0.5]  # a group that depends on another one
    if not N:
        X = X[:, :14]
        groups = [group for group in groups if group[-1] < 14]
    out = certified_run(tmp_path, X, Y, 4, groups=groups, **{"method": "forward", **request_})
    found = dsel.verify(out)
    assert found.accepted, str(found)
    assert all(check.optimal for check in found.checks)
    assert found.checks[-1].size == 4
    assert found.checks[-1].nodes > 1
    assert "4 groups of columns: accepted" in str(found)


def test_the_bound_that_is_accepted_is_that_of_the_best_groups(tmp_path):
    X, Y, groups = problem(3, sizes=SIZES)
    found = dsel.verify(certified_run(tmp_path, X, Y, 3, groups=groups, method="forward"))
    assert found.checks[0].bound == pytest.approx(best(X, Y, groups, 3), rel=1e-8)


def test_a_proof_that_was_stopped_and_continued_is_accepted(tmp_path):
    X, Y, groups = hard()
    out = finished_run(tmp_path, X, Y, 4, groups=groups, method="forward")
    bounds = []
    for nodes in (20, 60, None):
        certify_run(out, ProofBudget(nodes=nodes, log=True))
        found = dsel.verify(out)
        assert found.accepted, str(found)
        bounds.append(found.checks[0].bound)
    assert bounds[0] < bounds[2]
    assert found.checks[0].optimal


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
def test_nearly_dependent_columns_are_accepted(tmp_path, noise):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 14)) + noise * rng.normal(size=(40, 14))
    Y = X @ rng.normal(size=(14, 2)) * 0.3 + rng.normal(size=(40, 2))
    groups = [[0, 1, 2, 3], [4, 5], [6], [7, 8, 9], [10, 11, 12, 13]]
    found = dsel.verify(certified_run(tmp_path, X, Y, 2, groups=groups, method="forward"))
    assert found.accepted, str(found)


def test_all_groups_of_which_one_depends_on_others_are_accepted(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 8))
    X[:, 0] = X[:, 4:7] @ rng.normal(size=3)
    groups = [[0], [1, 2], [3], [4, 5, 6], [7]]
    out = certified_run(tmp_path, X, X @ rng.normal(size=(8, 1)), 5, groups=groups, method="forward")
    assert dsel.verify(out).accepted


def hard():
    """Return a problem whose proof takes some hundred nodes."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 28)) @ (np.eye(28) + rng.normal(size=(28, 28)) / 3)
    return X, X[:, :8] @ rng.normal(size=(8, 1)) + 8 * rng.normal(size=(60, 1)), [[2 * g, 2 * g + 1] for g in range(14)]


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    X, Y, groups = hard()
    return certified_run(tmp_path_factory.mktemp("groups"), X, Y, 4, groups=groups, method="forward")


@pytest.fixture
def log(proved, tmp_path):
    """Return the log of a copy of the result."""
    shutil.copytree(proved, tmp_path / "result")
    return LogFolder(next((tmp_path / "result").glob("proof-log-*")))


def rejected(log):
    log.save()
    found = dsel.verify(log.folder.parent)
    assert found.verdict == "rejected", str(found)
    return str(found)


def test_a_log_with_every_leaf_is_accepted(log):
    log.save()
    found = dsel.verify(log.folder.parent)
    assert found.accepted
    assert found.checks[0].nodes > 50
    assert set(found.checks[0].leaves) == {"bound", "comparison"}


def test_a_higher_bound_is_rejected(log):
    log.manifest["bound"] *= 1.001
    assert "not all of its subsets are at least" in rejected(log)


def test_a_leaf_that_claims_too_much_is_rejected(log):
    log.bounds[len(log.bounds) // 2] = 0.9999
    assert "the log says that f is at least" in rejected(log)


@pytest.mark.parametrize(
    ("code", "bounds", "why"),
    [
        (PRUNED, [0.1], "the bound is"),
        (COMPARED, [], "not all of its subsets"),
        (DEPENDENT, [], "not dependent"),
    ],
)
def test_a_false_claim_whose_tree_is_closed_at_once_is_rejected(log, code, bounds, why):
    n = log.manifest["n"]
    log.numbers, log.bounds = [1, 0, n, *range(n), code, END], bounds
    log.manifest["bound"] *= 1.0001
    assert why in rejected(log)


def test_a_group_that_no_leaf_covers_is_rejected(log):
    first, last = log.segments()[-1]
    dropped = [record for record in log.records(PRUNED) if first <= record.start < last]
    del log.numbers[first:last]
    del log.bounds[dropped[0].bound : dropped[0].bound + len(dropped)]
    assert "no segment continues it" in rejected(log)


def test_a_branch_without_its_other_half_is_rejected(log):
    """The record of a branch on columns closes all subsets without the column."""
    (split, *_) = log.records(SPLIT)
    log.numbers[split.start : split.end] = [BRANCHED, 1, log.numbers[split.start + 1], 0]
    log.bounds.insert(split.bound, 0.0)
    rejected(log)


def test_a_group_that_may_not_be_added_is_rejected(log):
    split = log.records(SPLIT)[-1]
    log.numbers[split.start + 1] = log.manifest["n"]
    assert "cannot be added" in rejected(log)


def test_other_groups_than_those_of_the_request_are_rejected(log):
    first, second, *rest = log.manifest["groups"]
    log.manifest["groups"] = [[*first, second[0]], second[1:], *rest]
    assert "not about the groups" in rejected(log)


def test_a_group_without_one_of_its_columns_is_rejected(log):
    lost = log.manifest["groups"][3].pop()
    log.manifest["columns"].remove(lost)
    assert f"leaves out columns [{lost}]" in rejected(log)


def test_indices_that_are_no_whole_groups_are_rejected(log):
    log.manifest["indices"] = log.manifest["indices"][:-1]
    assert "of the groups that may be chosen" in rejected(log)


def test_a_log_about_groups_proves_nothing_about_columns(log):
    file = log.folder.parent / "job.json"
    values = json.loads(file.read_text())
    values["job"]["groups"] = None
    del values["digest"]  # as an older version wrote it
    file.write_text(json.dumps(values))
    assert "not about the groups or columns" in rejected(log)


def test_an_independent_column_of_an_included_group_must_be_included(tmp_path):
    X, Y, groups = problem(1, sizes=SIZES)
    out = certified_run(tmp_path, X, Y, 3, groups=groups, include=[4, 5], method="forward")
    assert dsel.verify(out).accepted
    log = LogFolder(next(out.glob("proof-log-*")))
    log.manifest["included"].remove(5)
    log.manifest["indices"].remove(5)
    assert "the log includes [4]" in rejected(log)
