"""A proof log leaves out near-copies of other columns, and the check computes their correlations itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dsel
from dsel.config.job import ListLimits
from dsel.data.ingest import ingest_arrays
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.proof_store import ProofBudget
from tests.verification.logs import finished_run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 12))
Y = X[:, :4] @ np.array([1.0, -1.0, 0.5, 0.5]) + RNG.standard_normal(300)
NOISE = RNG.standard_normal((300, 2))


def with_copies(noise: float) -> np.ndarray:
    return np.column_stack([X, X[:, [1, 3]] + noise * NOISE])


def test_a_log_over_one_column_of_each_cluster_is_accepted(tmp_path: Path) -> None:
    out = finished_run(tmp_path, with_copies(1e-5), Y, 3)
    proved = certify_run(out, ProofBudget(log=True))
    assert proved.counts["copies"] == [[1, 12], [3, 13]]
    assert proved.certificate[-1]["status"] == "optimal-except-near-copies"
    found = dsel.verify(out)
    assert found.accepted
    assert found.checks[0].represented == (12, 13)
    assert not found.as_dict()["checks"][0]["optimal"]
    assert "every independent subset without the 2 columns x12, x13, which others represent, has" in str(found)


@pytest.mark.parametrize(("lam", "represented"), [(0.0, (13,)), (0.5, (12, 13))])
def test_a_multiple_is_covered_without_a_penalty(tmp_path: Path, lam: float, represented: tuple[int, ...]) -> None:
    columns = np.column_stack([X, -2.5 * X[:, 1], X[:, 3] + 1e-5 * NOISE[:, 0]])
    out = finished_run(tmp_path, columns, Y, 3, lam=lam)
    certify_run(out, ProofBudget(log=True, sizes="all"))
    assert [check.represented for check in dsel.verify(out).checks] == [represented] * 3


def test_a_log_of_near_best_subsets_has_the_verdicts_of_the_list(tmp_path: Path) -> None:
    out = finished_run(tmp_path, np.column_stack([with_copies(1e-5), X[:, 0]]), Y, 4)
    limits = ListLimits.of(within=0.01, nbest=None, limit=100)
    listed = certify_run(out, ProofBudget(log=True, near_best=limits)).alternatives
    assert listed is not None
    assert list(listed.verdicts.values())[:4] == ["replaceable", "replaceable", "necessary", "replaceable"]
    found = dsel.verify(out)
    assert found.accepted, found
    assert found.checks[0].near_best.verdicts == list(listed.verdicts.values())


def test_a_gap_of_rounding_alone_is_decided_by_the_check_of_a_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    near = rng.normal(size=(60, 12)).round(3)
    near[:, 5] = near[:, 2] + 3e-4 * rng.normal(size=60)
    near[:, 9] = -2 * near[:, 4] + 6e-4 * rng.normal(size=60)
    y = near[:, 2] + near[:, 4] + 0.7 * near[:, 7] + 1.5 * rng.normal(size=60)
    out = finished_run(tmp_path, near, y, 3, near_copies="keep")
    proved = certify_run(out, ProofBudget(log=True))
    assert proved.certificate[-1]["status"] == "bounded"
    assert "The gap is rounding alone: dsel verify decides it in more digits, with the log of a job" in str(proved)
    found = dsel.verify(out)
    assert found.accepted
    assert found.checks[0].optimal


def test_a_log_that_leaves_out_other_columns_is_refused(tmp_path: Path) -> None:
    out = finished_run(tmp_path, with_copies(1e-5), Y, 3)
    certify_run(out, ProofBudget(log=True))
    ingest_arrays(with_copies(1e-2), tmp_path / "other", y=Y)
    found = dsel.verify(out, store=tmp_path / "other")
    assert not found.accepted
    assert "the log leaves out columns [12, 13], which may be chosen" in str(found)


def test_a_job_that_keeps_near_copies_proves_them_too(tmp_path: Path) -> None:
    out = finished_run(tmp_path, with_copies(1e-5), Y, 3, near_copies="keep")
    certify_run(out, ProofBudget(log=True))
    assert dsel.verify(out).accepted


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-7])
def test_the_check_tells_a_multiple_by_the_columns(tmp_path: Path, distance: float) -> None:
    residual = Y - X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    out = finished_run(tmp_path, np.column_stack([X, 5 * (X[:, 1] + distance * residual)]), Y, 3)
    certify_run(out, ProofBudget(log=True))
    (check,) = dsel.verify(out).checks
    assert check.accepted
    assert check.represented == ((12,) if distance else ())
    assert check.optimal == (not distance)
    assert check.error > 1e-9
