"""`dsel.verify` and `dsel verify` accept true proofs, and name the leaf of a damaged one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import dsel
from dsel.cli import app
from dsel.config.job import CertifySection, read_job
from dsel.data.ingest import ingest_arrays
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.locations import is_complete
from dsel.jobs.proof_store import ProofBudget
from dsel.jobs.run_folder import RunFolder, proof_logs
from dsel.jobs.runner import run_job
from dsel.search.exact.certificate import Certificate
from dsel.storage.json_files import write_json
from dsel.verification.check import TOLERANCE
from tests.cli_runner import call
from tests.search.exact.cases import paper_data
from tests.verification.logs import (
    BRANCHED,
    COMPARED,
    CORES,
    DEPENDENT,
    PRUNED,
    LogFolder,
    certified_run,
    finished_run,
    noisy,
)

K = 5


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A result with the log of a finished proof."""
    return certified_run(tmp_path_factory.mktemp("proved"), *noisy(6, 60, 18, 2), K)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A result with the log of a proof that was stopped."""
    return certified_run(tmp_path_factory.mktemp("begun"), *noisy(4, 60, 24), 6, nodes=30)


@pytest.fixture
def log(proved, tmp_path):
    """A copy of the result with a finished proof, whose log may be changed."""
    shutil.copytree(proved, tmp_path / "result")
    return LogFolder(tmp_path / "result" / f"proof-log-{K}")


def failures(log):
    log.save()
    found = dsel.verify(log.folder.parent)
    assert not found.accepted
    return " ".join([*found.checks[0].failures, *found.unverified])


# True proofs.


def test_a_proof_is_accepted_and_the_result_says_what_was_checked(proved):
    found = dsel.verify(proved)
    assert found.accepted
    (check,) = found.checks
    certificate = dsel.open_selection(proved).certificate[-1]
    assert certificate["proven"]
    assert check.optimal
    assert check.size == K
    assert check.value == pytest.approx(certificate["value"], rel=1e-12)
    assert check.checked == sum(check.leaves.values()) > 20
    assert check.nodes == certificate["nodes"]
    assert found.passes == 2
    labels = [dsel.open_selection(proved).label(j) for j in check.indices]
    assert f"the error of columns {', '.join(labels)} is" in str(check)
    assert "the error of column x2 is" in str(replace(check, indices=(2,), labels=("x2",)))
    shown = CliRunner().invoke(app, ["verify", str(proved)])
    assert shown.exit_code == 0
    assert ": the best of these" in shown.output
    as_json = json.loads(CliRunner().invoke(app, ["verify", str(proved), "--json"]).stdout)
    assert as_json["accepted"]
    assert as_json["checks"][0]["optimal"]


def test_the_command_shows_what_is_checked(proved):
    shown = CliRunner().invoke(app, ["verify", str(proved)])
    nodes = dsel.open_selection(proved).certificate[-1]["nodes"]
    lines = [line.split(" INFO ")[1] for line in shown.stderr.splitlines() if " INFO " in line]
    assert lines[0] == "sums in extended precision"
    assert lines[1].startswith("18 x 20 products of columns over 60 rows: 1.2e+04 multiplications")
    assert lines[2] == "check of log 1 of 1"
    assert lines[3].startswith(f"proof-log-{K}: {nodes} nodes over 18 columns")


def test_wide_data_whose_pairs_are_compared_hide_nothing_in_a_ridge(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 300))
    y = X[:, [3]] - X[:, [290]] + 0.1 * rng.standard_normal((20, 1))
    (check,) = dsel.verify(certified_run(tmp_path, X, y, 2)).checks
    centered, y = X[:, check.indices] - X[:, check.indices].mean(axis=0), (y - y.mean()) / y.std()
    assert sorted(check.indices) == [3, 290]
    assert check.value == pytest.approx(np.linalg.lstsq(centered, y)[1][0], rel=1e-10)
    assert check.optimal
    assert set(check.leaves) == {"comparison"}
    assert check.error == TOLERANCE


@pytest.mark.parametrize(
    ("N", "request_"),
    [
        (1, {"lam": 3.0, "preprocess": "center", "include": [2], "exclude": [4, 5]}),
        (3, {"preprocess": "unit"}),
        (40, {"preprocess": "none"}),
        (0, {"unsupervised": True, "lam": 0.1}),
    ],
)
def test_proofs_of_every_kind_of_request_are_accepted(tmp_path, N, request_):
    X, Y = noisy(5, 50, 12, max(N, 1))
    X[:, 11] = 7.0
    X[:, 10] = X[:, 9]
    found = dsel.verify(certified_run(tmp_path, X, Y, 4, **request_))
    assert found.accepted, str(found)
    assert found.checks[0].represented == ((10,) if request_.get("lam") else ())
    assert found.checks[0].optimal == ("lam" not in request_)


def test_the_proof_of_a_paper_is_accepted(tmp_path):
    X, Y = paper_data("ionosphere")
    found = dsel.verify(certified_run(tmp_path, X, Y[:, :1], 8))
    assert found.accepted
    assert found.checks[0].optimal
    assert found.checks[0].leaves["comparison"] > 50


def test_more_columns_than_rows_and_near_duplicates_are_accepted(tmp_path):
    rng = np.random.default_rng(8)
    X = 0.9 * rng.standard_normal((15, 1)) + 0.3 * rng.standard_normal((15, 30))
    X[:, 20:] = X[:, :10] * 10.0 ** rng.uniform(-6, 6, 10) + 1e-4 * rng.standard_normal((15, 10))
    found = dsel.verify(certified_run(tmp_path, X, rng.standard_normal((15, 1)), 4))
    assert found.accepted, str(found)


def test_a_proof_that_was_stopped_proves_its_bound(begun):
    (certificate,) = dsel.open_selection(begun).certificate
    assert not certificate["proven"]
    found = dsel.verify(begun)
    assert all(check.accepted for check in found.checks)
    assert not found.checks[0].optimal


def test_the_bound_of_a_convex_relaxation_is_checked(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 20)), rng.standard_normal((200, 2))
    out = certified_run(tmp_path, X, Y, 6, nodes=1, include=[3])
    (certificate,) = dsel.open_selection(out).certificate
    assert certificate["method"] == "perspective relaxation"
    found = dsel.verify(out)
    assert found.accepted, str(found)
    assert found.checks[0].bound == pytest.approx(certificate["bound"], rel=1e-6)
    log = LogFolder(out / "proof-log-6", "open.npz")
    assert log.manifest["relaxation"]["bound"] > log.manifest["bound"]
    log.manifest["relaxation"]["bound"] += 0.01
    assert "manifest.json, relaxation: the bound is" in failures(log)
    log.manifest["relaxation"]["d"][0] = 5.0  # K - D is no longer positive
    assert "the bound is -inf" in failures(log)


def test_a_proof_continues_its_log_on_workers(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "result")
    before = LogFolder(tmp_path / "result" / "proof-log-6")
    certify_run(tmp_path / "result", ProofBudget(log=True), workers=2)
    after = LogFolder(before.folder)
    assert after.numbers == before.numbers
    assert len(after.manifest["files"]) > len(before.manifest["files"])
    found = dsel.verify(tmp_path / "result")
    assert found.accepted, str(found)
    assert found.checks[0].optimal


@pytest.mark.usefixtures("no_workers")
def test_a_job_writes_a_log_and_a_finished_job_gets_one_later(tmp_path):
    ingest_arrays(*noisy(3, 40, 10)[:1], tmp_path / "store", y=noisy(3, 40, 10)[1])
    job = {"store": str(tmp_path / "store"), "k": 3, "method": "omp", "cluster": {"local": {"workers": 1}}}
    for log, logs in ((False, 0), (True, 1), (False, 1)):
        (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "certify": {"time": "1h", "log": log}}))
        run_job(read_job(tmp_path / "job.yaml", tmp_path / "result"))
        assert len(proof_logs(tmp_path / "result")) == logs
    assert dsel.verify(tmp_path / "result").accepted


@pytest.mark.usefixtures("no_workers")
def test_data_named_by_hand_are_cut_to_the_rows_of_the_job(tmp_path):
    X, Y = noisy(3, 60, 10)
    ingest_arrays(X, tmp_path / "store", y=Y)
    job = {"store": str(tmp_path / "store"), "k": 3, "method": "omp", "rows": {"first": 0.5}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "certify": {"time": "1h", "log": True}}))
    run_job(read_job(tmp_path / "job.yaml", tmp_path / "result"))
    assert dsel.verify(tmp_path / "result").accepted
    assert dsel.verify(tmp_path / "result", store=tmp_path / "store").accepted


def test_the_logs_of_all_sizes_are_checked(tmp_path):
    out = certified_run(tmp_path, *noisy(3, 40, 10), 3, sizes="all")
    found = dsel.verify(out)
    assert found.accepted, str(found)
    assert [check.size for check in found.checks] == [1, 2, 3]


def test_a_sample_checks_some_leaves_and_says_so(proved):
    found = dsel.verify(proved, sample=10)
    assert found.accepted
    (check,) = found.checks
    assert check.sampled
    assert check.checked == 10
    assert not check.optimal
    assert "a random sample" in str(check)


def test_a_result_by_a_loss_or_a_criterion_has_no_log_to_check(tmp_path):
    X, Y = noisy(3, 40, 6)
    for name, request_, what in (
        ("loss", {"loss": "logistic", "method": "poss"}, "the logistic deviance"),
        ("criterion", {"criterion": "math:fsum", "method": "forward"}, "a custom criterion"),
    ):
        (tmp_path / name).mkdir()
        out = finished_run(tmp_path / name, X, (Y > 0.0).astype(float), 2, **request_)
        with pytest.raises(OptionError, match=f"minimizes {what}, and .* for the squared error only"):
            dsel.verify(out)


def test_a_certificate_without_a_log_is_not_verified(tmp_path):
    out = finished_run(tmp_path, *noisy(3, 40, 10), 3)
    with pytest.raises(MissingInputError, match="dsel certify"):
        dsel.verify(out)
    certify_run(out, ProofBudget())
    with pytest.raises(MissingInputError, match="no complete proof log"):
        dsel.verify(out)
    certify_run(out, ProofBudget(log=True))  # starts again, because the saved proof has no log
    assert dsel.verify(out).accepted
    certificate = dsel.open_selection(out).certificate[-1]
    better = {**certificate, "bound": certificate["bound"] + 1.0, "method": "perspective relaxation"}
    replace(dsel.open_selection(out), certificate=(better,)).save(out, overwrite=True)
    found = dsel.verify(out)
    assert found.verdict == "incomplete"
    assert "perspective relaxation) has no valid log: dsel certify --log makes one" in str(found)


def test_a_proof_that_had_no_time_to_begin_asks_for_more_time(tmp_path, monkeypatch):
    (tmp_path / "proved").mkdir()
    out, proved = (finished_run(folder, *noisy(3, 40, 12), 3) for folder in (tmp_path, tmp_path / "proved"))
    certify_run(proved, ProofBudget())
    monkeypatch.setattr("dsel.objective.few_targets._MULTIPLICATIONS_PER_SECOND", 1.0)  # a very slow machine
    certified = certify_run(out, ProofBudget.of(seconds=5.0, log=True))
    assert any("too little time, and has no log:" in note and "more time" in note for note in certified.notes)
    with pytest.raises(MissingInputError, match=r"too little time to begin: give it more, dsel certify .* --time"):
        dsel.verify(out)
    (note,) = certify_run(proved, ProofBudget.of(seconds=5.0, log=True)).notes
    assert note.startswith("the proof for 3 columns has no log: ")  # a proof without one is there


def test_logs_of_smaller_sizes_are_asked_for_by_name(tmp_path):
    out = finished_run(tmp_path, *noisy(3, 40, 10), 3)
    certify_run(out, ProofBudget(sizes="all"))
    certify_run(out, ProofBudget(log=True))
    missing = dsel.verify(out).unverified
    assert [what.count("has no valid log: dsel certify --all-sizes --log makes one") for what in missing] == [1, 1]
    certify_run(out, ProofBudget(sizes="all", log=True))
    assert dsel.verify(out).accepted


def test_wrong_arguments_and_other_data_are_refused(proved, tmp_path):
    with pytest.raises(OptionError, match="sample"):
        dsel.verify(proved, sample=0)
    with pytest.raises(OptionError, match="tolerance"):
        dsel.verify(proved, tolerance=2.0)
    X, Y = noisy(6, 60, 18, 2)
    ingest_arrays(X, tmp_path / "moved", y=Y)
    assert dsel.verify(proved, store=tmp_path / "moved").accepted
    ingest_arrays(X + 0.1 * noisy(4, 60, 18)[0], tmp_path / "other", y=Y)
    assert not dsel.verify(proved, store=tmp_path / "other").accepted
    shutil.copytree(proved.parent, tmp_path / "all")
    job = json.loads((tmp_path / "all" / "result" / "job.json").read_text())
    job["job"]["store"] = str(tmp_path / "other")
    del job["digest"]
    write_json(tmp_path / "all" / "result" / "job.json", job)
    with pytest.raises(DataError, match="was written to"):
        dsel.verify(tmp_path / "all" / "result")


# Damaged proofs.


def test_the_log_of_these_tests_has_every_record_that_they_change(log):
    assert {record.code for record in log.records()} >= {PRUNED, COMPARED, BRANCHED, CORES}
    assert len(log.segments()) > 10


def test_damage_1_a_file_is_missing(log):
    log.save()
    log.file.unlink()
    assert "000000.npz: the file is missing" in str(dsel.verify(log.folder.parent))


def test_damage_2_a_file_is_cut_off(log):
    log.save()
    log.file.write_bytes(log.file.read_bytes()[:-200])
    assert "000000.npz: the file is damaged" in str(dsel.verify(log.folder.parent))


def test_damage_3_a_stopped_proof_claims_the_optimum(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "result")
    log = LogFolder(tmp_path / "result" / "proof-log-6")
    log.manifest["bound"] = log.manifest["value"]
    log.save()
    (check,) = dsel.verify(tmp_path / "result").checks
    assert not check.accepted
    assert "open.npz, leaf" in check.failures[0]
    assert "the bound is" in check.failures[0]


def test_damage_4_a_child_is_another_column(log):
    record = log.records(BRANCHED)[0]
    used = log.numbers[record.start + 2 : record.start + 2 + log.numbers[record.start + 1]]
    log.numbers[record.start + 2] = next(j for j in range(18) if j not in used)
    found = failures(log)
    assert "leaf 0 (columns [] chosen" in found
    assert "the log says that f is at least" in found


def test_damage_5_an_open_node_is_closed_by_a_bound_that_does_not_hold(log):
    record = log.records(COMPARED)[0]
    log.numbers[record.start] = PRUNED
    log.bounds.insert(record.bound, 0.0)
    assert "the bound is" in failures(log)


def test_damage_6_independent_columns_are_called_dependent(log):
    record = log.records(COMPARED)[0]
    log.numbers[record.start] = DEPENDENT
    assert "its columns are not dependent" in failures(log)


def test_damage_7_a_bound_is_higher_than_it_is(log):
    record = log.records(PRUNED)[0]
    log.bounds[record.bound] += 1e-3
    found = failures(log)
    assert "the log says that f is at least" in found
    assert "leaf" in found


def test_damage_8_a_segment_begins_with_fewer_columns(log):
    start, end = next(segment for segment in log.segments()[1:] if log.numbers[segment[0] + 2] > 3)
    assert end > start
    s, t = log.numbers[start + 1], log.numbers[start + 2]
    del log.numbers[start + 2 + s + t]
    log.numbers[start + 2] -= 1
    found = failures(log)
    assert "no segment continues it" in found or "are not some of those" in found


def test_damage_9_a_column_is_missing_from_the_cores(log):
    record = next(r for r in log.records(CORES) if log.numbers[r.start + 2] > 1)
    log.numbers[record.start + 2] -= 1
    del log.numbers[record.start + 3]
    found = failures(log)
    assert "leaf" in found


def test_damage_10_a_segment_is_there_twice(log):
    codes = {record.start: record.code for record in log.records()}
    start, end = next((a, b) for a, b in log.segments() if [codes[p] for p in codes if a <= p < b] == [COMPARED])
    log.numbers += log.numbers[start:end]
    assert "no segment leaves it open" in failures(log)


def test_damage_11_the_proof_is_for_fewer_columns(log):
    log.manifest["k"] += 1
    assert "too many to compare all" in failures(log)


def test_damage_12_the_best_subset_is_another_one(log):
    S = log.manifest["indices"]
    S[0] = next(j for j in range(18) if j not in S)
    assert f"columns {S}: their error is" in failures(log)


def test_damage_13_a_column_is_left_out(log):
    log.manifest["columns"].pop()
    log.manifest["n"] -= 1
    assert "leaves out columns [17]" in failures(log)


@pytest.mark.parametrize("change", [{"bound": float("nan")}, {"files": ["../000000.npz"]}, {"k": None}])
def test_a_manifest_that_makes_no_sense_is_refused(log, change):
    log.manifest |= change
    log.save()
    with pytest.raises(DataError, match="is damaged"):
        dsel.verify(log.folder.parent)


def test_damage_14_the_penalty_is_another_one(log):
    log.manifest["lam"] = 100.0
    assert "lam is 100.0, in the request 0.0" in failures(log)


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ({"k": "auto", "choose_k": "ebic"}, "0 columns"),
        ({"k": "auto", "choose_k": "ebic", "groups": {"both": ["x0", "x1"], "x3": ["x3"]}}, "0 groups of columns"),
        ({"k": 2, "include": ["x0", "x3"]}, "2 columns"),
    ],
)
def test_where_only_one_subset_may_be_chosen_its_error_is_checked_without_a_log(tmp_path, asked, size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6))
    out = certified_run(tmp_path, X, rng.normal(size=(100, 1)), **{**asked, "method": "poss"})
    assert not proof_logs(out)
    code, text, _ = call("verify", out)
    k = dsel.open_selection(out).k
    assert (code, text.startswith(f"{size}: accepted in ")) == (0, True)
    assert "only one subset may be chosen, so there is nothing to verify but the error, which is " in text
    assert is_complete(read_job(tmp_path / "job.yaml", out).model_copy(update={"certify": CertifySection(log=True)}),
                       RunFolder(out), dsel.open_selection(out))  # fmt: skip
    (row,) = dsel.open_selection(out).certificate
    for wrong in ({"value": row["value"] - 0.1}, {"size": k + 1}, {"indices": [1]}):
        forged = Certificate.from_dict({**row, **wrong}).as_dict()
        replace(dsel.open_selection(out), certificate=(forged,)).save(out, overwrite=True)
        found = dsel.verify(out)
        assert (found.accepted, found.verdict) == (False, "rejected")
        assert "selection.json: " in str(found)
