"""`dsel verify` accepts a list of near-best subsets only if it follows from the log and the data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import dsel
from dsel.config.job import ListLimits
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.proof_store import ProofBudget
from dsel.search.exact.branch_and_bound import explorer
from tests.verification.logs import LogFolder, finished_run, noisy

N_COLUMNS, K = 14, 4
X, Y = noisy(6, 60, N_COLUMNS, 2)
X[:, 12], X[:, 13] = X[:, 2] + X[:, 4], X[:, 5] + 1e-5 * X[:, 6]  # dependent columns, and a near-copy
WITHIN = 0.05


def listed_run(folder, X=X, Y=Y, k=K, *, within=WITHIN, limit=1000, nodes=None, workers=1, **request):
    """Return the folder of a result with near-best subsets and their log."""
    out = finished_run(folder, X, Y, k, **request)
    limits = ListLimits.of(within=within, nbest=None, limit=limit)
    certify_run(out, ProofBudget(nodes=nodes, log=True, near_best=limits, save_seconds=3600.0), workers)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return listed_run(tmp_path_factory.mktemp("listed"))


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of a true result, which an attack changes."""
    out = tmp_path / "result"
    shutil.copytree(whole, out)
    return LogFolder(out / f"proof-log-near-best-{K}")


def verified(log):
    """Return the check of a changed log."""
    log.save()
    return dsel.verify(log.folder.parent)


def test_a_true_list_is_accepted(whole):
    found = dsel.open_selection(whole).alternatives
    check = dsel.verify(whole)
    assert check.accepted, check
    near = check.checks[-1].near_best
    assert len(near.listed) == len(found.subsets) > 2
    assert near.verdicts == [price.verdict for price in found.columns]
    assert "no others" in str(check)
    heads = [line.split(":")[0] for line in str(check).splitlines() if "accepted in" in line]
    assert len(set(heads)) == len(heads)
    assert heads[-1].endswith(", near-best subsets")
    assert json.loads(json.dumps(check.as_dict()))["checks"][-1]["near_best"]["verdicts"] == near.verdicts


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_subset_that_is_missing_is_refused(copied, place):
    subsets = copied.manifest["near_best"]["subsets"]
    del subsets[place]
    if place == 0:  # it is not missed as the best subset either
        copied.manifest.update(value=subsets[0][1], indices=subsets[0][0], bound=subsets[0][1])
    assert not verified(copied).accepted


def test_a_smaller_list_with_its_own_verdicts_is_refused(copied):
    near = copied.manifest["near_best"]
    near["subsets"] = near["subsets"][:-1]
    members = [set(S) for S, _ in near["subsets"]]
    for place, j in enumerate(copied.manifest["columns"]):
        having = sum(j in S for S in members)
        near["verdicts"][place] = "useless" if not having else "necessary" if having == len(members) else "replaceable"
    check = verified(copied)
    assert any("leaf" in failure for failure in check.checks[-1].failures), check


def test_a_raised_limit_is_refused(copied):
    near = copied.manifest["near_best"]
    best = near["subsets"][0][1]
    c = best + (near["threshold"] - best) / near["within"]
    within = 2.0 * near["within"]
    near.update(within=within, threshold=best + within * (c - best), complete_below=best + within * (c - best))
    assert not verified(copied).accepted


def test_a_limit_that_does_not_follow_from_the_best_subset_is_refused(copied):
    copied.manifest["near_best"]["threshold"] *= 1.001
    assert not verified(copied).accepted


def test_a_lowered_bound_of_the_list_refuses_the_verdicts(copied):
    near = copied.manifest["near_best"]
    near["complete_below"] = near["subsets"][0][1]
    failures = verified(copied).checks[-1].failures
    assert any("verdicts need a list of all" in failure for failure in failures)


@pytest.mark.parametrize("verdict", ["necessary", "useless", "replaceable", "undecided"])
def test_a_changed_verdict_is_refused(copied, verdict):
    verdicts = copied.manifest["near_best"]["verdicts"]
    verdicts[next(i for i, old in enumerate(verdicts) if old != verdict)] = verdict
    assert not verified(copied).accepted


@pytest.mark.parametrize(
    "change",
    [
        lambda near: near["subsets"].append(near["subsets"][0]),
        lambda near: near["subsets"][1].__setitem__(1, 0.99 * near["subsets"][1][1]),
        lambda near: near["subsets"][1][0].pop(),
        lambda near: near["subsets"][1][0].__setitem__(0, near["subsets"][1][0][1]),
        lambda near: near["verdicts"].pop(),
    ],
    ids=["twice", "error", "too few", "a column twice", "too few verdicts"],
)  # fmt: skip
def test_a_list_that_is_no_list_of_near_best_subsets_is_refused(copied, change):
    change(copied.manifest["near_best"])
    assert not verified(copied).accepted


def test_a_leaf_that_hides_a_subset_is_refused(copied):
    copied.bounds = [0.5 * bound for bound in copied.bounds]
    for start, end in copied.segments()[:1]:
        del copied.numbers[start:end]
    assert not verified(copied).accepted


def test_a_result_with_another_list_than_its_log_is_not_verified(whole, tmp_path):
    out = tmp_path / "result"
    shutil.copytree(whole, out)
    selection = dsel.open_selection(out)
    found = selection.alternatives
    other = replace(found.columns[0], verdict="necessary" if found.columns[0].verdict != "necessary" else "useless")
    for forged in (replace(found, subsets=found.subsets[1:]), replace(found, columns=(other, *found.columns[1:]))):
        replace(selection, alternatives=forged).save(out, overwrite=True)
        check = dsel.verify(out)
        assert check.verdict == "incomplete"
        assert any("near-best" in what for what in check.unverified)


def test_a_log_of_an_earlier_version_has_a_share_of_what_included_columns_leave(tmp_path):
    out = listed_run(tmp_path, include=[2])
    log = LogFolder(out / f"proof-log-near-best-{K}")
    near = log.manifest["near_best"]
    assert dsel.verify(out).accepted
    del near["share_of"]
    assert not verified(log).accepted  # the same share of less
    alone = dsel.select(X, Y, k=1, include=[2]).error
    best = near["subsets"][0][1]
    near["within"] = (near["threshold"] - best) / (alone - best)
    check = verified(log)
    assert check.accepted, check
    assert check.checks[-1].near_best.within == pytest.approx(WITHIN)


def test_a_list_is_verified_where_included_columns_explain_enough_for_all(tmp_path):
    out = listed_run(tmp_path, within=0.9, include=[2, 4])
    found = dsel.open_selection(out).alternatives
    assert found.labels("useless") == ["x12"]  # the sum of the included columns
    assert len(found.labels("replaceable")) == len(found.columns) - 1
    check = dsel.verify(out)
    assert check.accepted, check
    assert len(check.checks[-1].near_best.listed) == len(found.subsets)


def test_a_list_that_is_not_finished_or_longer_than_its_limit_is_verified_as_far_as_it_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "_LIST_ROOM", 2)  # the kernel's list is full again and again
    runs = {
        "stopped": {"nodes": 5}, "limited": {"limit": 2}, "ridge": {"lam": 5.0}, "included": {"include": [2]},
        "unsupervised": {"unsupervised": True},
    }  # fmt: skip
    for name, options in runs.items():
        (tmp_path / name).mkdir()
        out = listed_run(tmp_path / name, **options)
        check = dsel.verify(out)
        assert check.accepted, check
        near = check.checks[-1].near_best
        assert (near.verdicts is None) == (name in ("stopped", "limited"))
    log = LogFolder(tmp_path / "limited" / "result" / f"proof-log-near-best-{K}")
    assert len(log.manifest["near_best"]["subsets"]) == 2
    del log.manifest["near_best"]["subsets"][1]
    assert not verified(log).accepted
