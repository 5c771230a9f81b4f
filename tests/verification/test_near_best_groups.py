"""`dsel verify` accepts a list of near-best sets of groups only if it follows from the log and the data."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import dsel
from dsel.config.job import ListLimits
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.proof_store import ProofBudget
from tests.search.grouped.test_groups import problem
from tests.verification.logs import LogFolder
from tests.verification.test_near_best import listed_run

SIZES, K = (1, 3, 2, 1, 4, 2, 1, 2, 3, 1), 3


def data(N=1):
    """X with a group that depends on another one, and one-hot columns; Y; and the groups."""
    X, Y, groups = problem(1, sizes=SIZES, N=N)
    X[:, groups[6][0]] = X[:, groups[4]] @ [1.0, 2.0, -1.0, 0.5]
    return X, Y + 3.0 * np.random.default_rng(0).normal(size=Y.shape), groups


def grouped_run(folder, N=1, **options):
    X, Y, groups = data(N)
    return listed_run(folder, X=X, Y=Y, k=K, groups=groups, **{"method": "forward", "within": 0.25, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return grouped_run(tmp_path_factory.mktemp("listed"))


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of a true result, which an attack changes."""
    shutil.copytree(whole, tmp_path / "result")
    return LogFolder(tmp_path / "result" / f"proof-log-near-best-{K}")


def refusal(log):
    """Return what is wrong with a changed log."""
    log.save()
    check = dsel.verify(log.folder.parent)
    assert not check.accepted
    return str(check.checks[-1].failures)


def test_a_true_list_is_accepted(whole):
    found = dsel.open_selection(whole).alternatives
    check = dsel.verify(whole)
    assert check.verdict == "accepted", check
    near = check.checks[-1].near_best
    assert len(near.listed) == len(found.subsets) > 3
    assert near.verdicts == [price.verdict for price in found.columns]
    assert set(near.verdicts) == {"necessary", "replaceable"}
    assert "no others; groups: " in str(check)


@pytest.mark.parametrize(
    "options",
    [
        {"N": 3, "include": [0], "exclude": [4]}, {"include": [1, 2, 3], "lam": 2.0}, {"nodes": 3}, {"limit": 2},
        {"N": 20, "preprocess": "center"},
    ],
    ids=lambda options: ",".join(options),
)  # fmt: skip
def test_lists_of_other_problems_are_accepted_as_far_as_they_go(tmp_path, options):
    check = dsel.verify(grouped_run(tmp_path, **options))
    assert check.accepted, check
    near = check.checks[-1].near_best
    assert near.listed
    assert (near.verdicts is None) == (not {"nodes", "limit"}.isdisjoint(options))


def test_a_set_with_a_group_that_follows_from_another_one_counts(tmp_path):
    out = grouped_run(tmp_path, within=0.9)
    _, _, groups = data()
    sets = [set(row.indices) for row in dsel.open_selection(out).alternatives.subsets]
    assert any(set(groups[4]) | set(groups[6]) <= S for S in sets)
    assert dsel.verify(out).accepted


def test_a_list_that_was_stopped_and_continued_is_accepted(tmp_path):
    out = grouped_run(tmp_path, within=0.5, nodes=4)
    assert not dsel.open_selection(out).alternatives.complete
    certify_run(out, ProofBudget(log=True, near_best=ListLimits.of(within=0.5)))
    found = dsel.open_selection(out).alternatives
    check = dsel.verify(out)
    assert found.complete
    assert check.verdict == "accepted", check
    assert check.checks[-1].near_best.verdicts == [price.verdict for price in found.columns]


def test_a_list_of_all_groups_of_which_some_follow_from_others_is_accepted(tmp_path):
    X, Y, groups = data()
    few = [[0], [1], [2, 3], [4]]
    X = np.column_stack([X[:, groups[4][:2]].sum(axis=1), X[:, groups[6]], X[:, groups[4][:2]], X[:, groups[7][:1]]])
    out = listed_run(tmp_path, X=X, Y=Y, k=4, groups=few, method="forward")
    check = dsel.verify(out)
    assert check.accepted, check
    near = check.checks[-1].near_best
    assert near.listed == frozenset([(0, 1, 2, 3)])
    assert near.verdicts == [price.verdict for price in dsel.open_selection(out).alternatives.columns]
    assert (near.verdicts[0], near.verdicts[3]) == ("replaceable", "necessary")


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_set_that_is_missing_is_refused(copied, place):
    subsets = copied.manifest["near_best"]["subsets"]
    del subsets[place]
    if place == 0:  # it is not missed as the best one either
        copied.manifest.update(value=subsets[0][1], indices=subsets[0][0], bound=subsets[0][1])
    refusal(copied)


def test_a_smaller_list_with_its_own_verdicts_is_refused(copied):
    near = copied.manifest["near_best"]
    near["subsets"] = near["subsets"][:-1]
    members = [set(S) for S, _ in near["subsets"]]
    for place, group in enumerate(copied.manifest["groups"]):
        having = sum(group[0] in S for S in members)
        near["verdicts"][place] = "useless" if not having else "necessary" if having == len(members) else "replaceable"
    assert "leaf" in refusal(copied)


@pytest.mark.parametrize("verdict", ["necessary", "useless", "replaceable", "undecided"])
def test_a_changed_verdict_is_refused(copied, verdict):
    verdicts = copied.manifest["near_best"]["verdicts"]
    verdicts[next(i for i, old in enumerate(verdicts) if old != verdict)] = verdict
    assert f"not {verdict}" in refusal(copied)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda subsets: subsets.append(subsets[0]), "twice"),
        (lambda subsets: subsets[1].__setitem__(1, 0.99 * subsets[1][1]), "the error of"),
        (lambda subsets: subsets[0][0].pop(), "of the groups that may be chosen"),
    ],
)  # fmt: skip
def test_a_list_that_is_no_list_of_near_best_sets_is_refused(copied, change, says):
    change(copied.manifest["near_best"]["subsets"])
    assert says in refusal(copied)


def test_a_raised_limit_is_refused(copied):
    near = copied.manifest["near_best"]
    best = near["subsets"][0][1]
    c = best + (near["threshold"] - best) / near["within"]
    near["within"] *= 2.0
    near["threshold"] = near["complete_below"] = best + near["within"] * (c - best)
    refusal(copied)


@pytest.mark.parametrize("apart", [0.0, 1e-5])
def test_a_copy_of_a_group_of_one_column_replaces_it(tmp_path, apart):
    X, _, groups = data()
    Y = 3.0 * X[:, groups[0]] + X[:, groups[1]].sum(axis=1, keepdims=True)
    Y += np.random.default_rng(0).normal(size=Y.shape)
    copy = X[:, groups[0]] + apart * np.random.default_rng(1).normal(size=Y.shape)
    out = listed_run(
        tmp_path, X=np.column_stack([X, copy]), Y=Y, k=K, groups=[*groups, [X.shape[1]]], method="forward", within=0.05
    )
    found = dsel.open_selection(out).alternatives
    price = next(price for price in found.columns if price.index == groups[0][0])
    assert price.verdict == "replaceable"
    assert X.shape[1] in price.without_column
    assert price.error_without == pytest.approx(price.error_with, rel=1e-4)
    check = dsel.verify(out)
    assert check.verdict == "accepted", check
    assert check.checks[-1].near_best.verdicts == [price.verdict for price in found.columns]
