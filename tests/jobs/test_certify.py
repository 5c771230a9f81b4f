"""`dsel certify RUN` and `certify:` in a job file: certificates, and a better subset where there is one."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from itertools import combinations

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dsel.cli import app
from dsel.config.job import ListLimits, read_job
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import CapacityError, DataError, Interrupted, MissingInputError, OptionError, OutputError
from dsel.jobs import runner
from dsel.jobs.certify import certify_selection
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.locations import identity_of
from dsel.jobs.proof_store import ProofBudget
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.runner import plan_job, run_job
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import OutOfTime
from dsel.search.exact.proof import Proof
from dsel.search.pareto import starting_subset
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import open_selection
from dsel.storage.json_files import read_json, write_json
from tests.cli_runner import call

RNG = np.random.default_rng(21)
X = RNG.standard_normal((60, 14)) @ (np.eye(14) + RNG.standard_normal((14, 14)) / 2)
Y = X[:, :6] @ RNG.standard_normal((6, 1)) + 4 * RNG.standard_normal((60, 1))


def job_file(folder, **more):
    store = folder / "store"
    if not store.exists():
        ingest_arrays(X, store, y=Y)
    path = folder / "job.yaml"
    values = {"store": str(store), "k": 5, "method": "omp", "cluster": {"local": {"workers": 1}}, **more}
    path.write_text(yaml.safe_dump(values))
    return read_job(path, folder / "result")


def finished(job):
    """The selection of the job, and its folder as the job would leave it: without workers."""
    dataset = as_dataset(str(job.store))
    selection = run_selection(dataset, job.request())
    job.out.mkdir()
    RunFolder(job.out).claim(job, identity_of(job, dataset))
    selection.save(job.out)
    return selection


def test_a_run_is_certified_and_its_answer_replaced_by_a_better_one(tmp_path):
    job = job_file(tmp_path, include=[2], exclude=[3])
    first = run_job(job)
    assert first.certificate == ()
    quick = certify_run(job.out, ProofBudget(nodes=1))
    shown = CliRunner().invoke(app, ["certify", str(job.out), "--time", "1h", "--all-sizes"])
    assert shown.exit_code == 0, shown.output
    assert "proved optimal" in shown.output
    last = open_selection(job.out)
    assert last.certificate[-1]["proven"]
    assert last.certificate[-1]["bound"] >= quick.certificate[-1]["bound"]
    assert last.error <= first.error
    assert 2 in last.indices
    assert 3 not in last.indices
    assert last.error == pytest.approx(last.certificate[-1]["value"])
    assert [row["size"] for row in last.certificate] == [2, 3, 4, 5]
    (job.out / "proof.json").unlink()
    two = certify_run(job.out, ProofBudget(seconds=6000.0), workers=2)
    assert two.certificate[-1]["proven"]
    assert two.indices == last.indices
    again = certify_run(job.out, ProofBudget(nodes=1))
    assert again.certificate[-1]["bound"] == two.certificate[-1]["bound"]
    assert again.certificate[-1]["proven"]


def test_a_proof_over_nearly_dependent_columns_notes_its_limits():
    x = X.copy()
    x[:, 9] = x[:, 4] + 1e-3 * RNG.standard_normal(60)
    for data, notes in ((X, 0), (x, 1)):
        dataset, settings = as_dataset(data, Y), SelectionRequest(k=3, method="forward", near_copies="keep")
        selection = run_selection(dataset, settings)
        for _ in range(2):  # said once, however often it is proved
            selection = certify_selection(dataset, settings, selection, ProofBudget(seconds=6000.0))
            assert sum("nearly dependent" in note for note in selection.notes) == notes


def test_stopped_by_a_signal_it_saves_its_proof_and_ends_with_75(tmp_path, monkeypatch):
    job = job_file(tmp_path)
    finished(job)
    with monkeypatch.context() as patched:
        patched.setattr(Reporter, "search", lambda self, search: signal.raise_signal(signal.SIGTERM))
        code, _, said = call("certify", job.out, "--time", "1h")
    assert (code, "Stopped by SIGTERM" in said) == (75, True)
    assert open_selection(job.out).certificate[-1]["size"] == 5
    assert f"interrupted; continue it with: dsel certify {job.out}" in call("status", job.out)[1]
    assert call("certify", job.out)[0] == 0
    assert open_selection(job.out).certificate[-1]["proven"]


@pytest.mark.parametrize("damage", ["list", "no proof", "no search", "of another kind"])
def test_a_damaged_proof_starts_again(tmp_path, damage):
    job = job_file(tmp_path)
    finished(job)
    certify_run(job.out, ProofBudget(nodes=2))
    saved = read_json(job.out / "proof.json")
    if damage == "of another kind":
        saved["proof"]["search"]["open"] = [["?"]]
    else:
        saved = {"list": [], "no proof": {**saved, "proof": None}, "no search": {**saved, "proof": {}}}[damage]
    write_json(job.out / "proof.json", saved)
    assert certify_run(job.out, ProofBudget(seconds=6000.0)).certificate[-1]["proven"]


@pytest.fixture
def _a_proof_for_each_size(monkeypatch):
    """Leave out the traversal that proves all sizes of few columns together."""
    monkeypatch.setattr("dsel.search.exact.all_sizes.MOST_COLUMNS", 0)


@pytest.mark.usefixtures("_a_proof_for_each_size")
def test_proofs_of_all_sizes_continue(tmp_path):
    job = job_file(tmp_path)
    selection, dataset = finished(job), as_dataset(str(job.store))
    seen = []

    def signalled(search):
        seen.append(search.k)
        if search.k == 4:
            raise Interrupted("stopped")

    def certified(on_slice, keep_partial=False):
        budget = ProofBudget(seconds=6000.0, sizes="all", keep_partial=keep_partial, save_seconds=0.0)
        return certify_selection(dataset, job.request(), selection, budget, RunContext(on_slice=on_slice), job.out)

    with pytest.raises(Interrupted):
        certified(signalled)
    assert {4} < set(seen) <= {1, 2, 3, 4}
    proofs = {size: read_json(job.out / f"proof-{size}.json") for size in (3, 4)}
    assert proofs[3]["proof"]["search"]["open"] == []
    part = certified(signalled, keep_partial=True)
    assert [row["size"] for row in part.certificate] == [1, 2, 3, 4]
    seen.clear()
    whole = certified(lambda search: seen.append(search.k))
    assert set(seen) <= {4, 5}
    assert all(row["proven"] for row in whole.certificate)
    assert whole.certificate[2]["nodes"] == proofs[3]["proof"]["search"]["visited"]


@pytest.mark.usefixtures("_a_proof_for_each_size")
def test_proofs_of_all_sizes_begin_with_the_best_subset_of_the_size_before(monkeypatch):
    searches, quick_search = [], starting_subset._pareto_front
    monkeypatch.setattr(starting_subset, "_pareto_front", lambda *a: searches.append(a[1]) or quick_search(*a))
    dataset, request = as_dataset(X, Y), SelectionRequest(k=4, method="branch-and-bound")
    selection = run_selection(dataset, request)
    assert [row.size for row in selection.front] == [0, 4]
    searches.clear()
    whole = certify_selection(dataset, request, selection, ProofBudget(seconds=6000.0, sizes="all"))
    assert searches == [1]  # no other size needs a Pareto search before its proof
    assert [(row["size"], row["proven"]) for row in whole.certificate] == [(size, True) for size in (1, 2, 3, 4)]
    assert [row.size for row in whole.front] == [0, 1, 2, 3, 4]
    x, y = (X - X.mean(axis=0)) / X.std(axis=0), Y - Y.mean(axis=0)
    for row in whole.front[1:]:
        least = min(
            float(np.linalg.lstsq(x[:, S], y, rcond=None)[1][0]) for S in combinations(range(14), row.size)
        )  # fmt: skip
        assert 1.0 - row.r2 == pytest.approx(least / float((y**2).sum()))
    shown = str(whole)
    assert "gap" in shown
    assert shown.count("  optimal  ") == 4
    assert "gap" not in str(selection)


@pytest.mark.parametrize("error", [Interrupted("stopped"), np.linalg.LinAlgError("not positive definite")])
@pytest.mark.usefixtures("no_workers")
def test_a_proof_that_fails_does_not_lose_the_selection(tmp_path, monkeypatch, error):
    job = job_file(tmp_path, method="forward", certify={"time": "1h"})

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Proof, "run", fail)
        with pytest.raises(Interrupted) if isinstance(error, Interrupted) else nullcontext():
            run_job(job)
    found = open_selection(job.out)
    assert len(found) == 5
    assert found.certificate == ()
    assert any("the proof for 5 columns failed" in note for note in found.notes) != isinstance(error, Interrupted)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_validated", fail)  # the search is not repeated
        proven = run_job(job)
        assert run_job(job).certificate == proven.certificate
    assert proven.certificate[0]["proven"]
    assert proven.trace == found.trace


@pytest.mark.usefixtures("no_workers")
def test_a_job_can_request_it(tmp_path):
    job = job_file(tmp_path, method="forward", certify={"time": "1h"})
    found = run_job(job)
    assert found.certificate[0]["proven"]
    exact = run_job(job_file(tmp_path, method="branch-and-bound").model_copy(update={"out": tmp_path / "exact"}))
    assert exact.ended == "proven"
    assert exact.error == pytest.approx(found.error)
    assert set(exact.indices) == set(found.indices)
    assert exact.certificate[0]["proven"]


@pytest.mark.usefixtures("no_workers")
def test_a_job_that_asks_for_another_proof_keeps_its_search(tmp_path, monkeypatch):
    bounded = run_job(job_file(tmp_path, method="forward", certify={"time": "1m", "nodes": 1}))
    assert bounded.certificate[0]["status"] == "bounded"
    monkeypatch.setattr(runner, "run_validated", None)  # a search would fail
    for asked in ({"certify": {"time": "1h"}}, {"certify": {}, "alternatives": {"time": "1h"}}, {}):
        found = run_job(job_file(tmp_path, method="forward", **asked))
        assert found.certificate[0]["status"] == "optimal"
    assert found.alternatives is not None
    with pytest.raises(OutputError, match=r"another job: lam was 0.0, now 1.0"):
        run_job(job_file(tmp_path, method="forward", lam=1.0))


@pytest.mark.usefixtures("no_workers")
def test_a_job_does_not_prove_again_what_its_method_has_proved(tmp_path):
    job = job_file(tmp_path, method="branch-and-bound", certify={"time": "1h"})
    found = run_job(job)
    assert [(row["size"], row["status"], row["nodes"]) for row in found.certificate] == [
        (5, "optimal", found.iterations)
    ]
    assert not (job.out / "proof.json").exists()
    assert certify_run(job.out, ProofBudget(seconds=600.0)).certificate == found.certificate


def test_a_selection_that_python_saved_says_how_to_prove_it(tmp_path):
    request = SelectionRequest.of(k=2, method="forward")
    run_selection(as_dataset(X, Y), request).save(tmp_path / "saved")
    with pytest.raises(MissingInputError, match=r"saved from Python.*certify\(dsel\.open_selection\(.*\), X, y\)"):
        certify_run(tmp_path / "saved", ProofBudget(nodes=1))
    request = SelectionRequest.of(k=2, method="forward", criterion=lambda S: float(S[0]))
    run_selection(as_dataset(X, Y), request).save(tmp_path / "criterion")
    with pytest.raises(MissingInputError, match="there is no certificate for its custom criterion") as error:
        certify_run(tmp_path / "criterion", ProofBudget(nodes=1))
    assert "dsel.certify" not in error.value.remedy


def test_what_cannot_be_certified_is_refused(tmp_path):
    job = job_file(tmp_path)
    with pytest.raises(MissingInputError, match="holds no job"):
        certify_run(tmp_path, ProofBudget(nodes=1))
    finished(job)
    ingest_arrays(X + 1.0, tmp_path / "store", y=Y, overwrite=True)
    with pytest.raises(DataError, match=r"was written to since .* out: {folder: runs}"):
        certify_run(job.out, ProofBudget(nodes=1))
    with pytest.raises(OptionError, match="duration"):
        job_file(tmp_path, certify={"time": "soon"})


def test_a_custom_criterion_has_no_certificate(tmp_path):
    with pytest.raises(OptionError, match="no certificate for a custom criterion"):
        job_file(tmp_path, method="poss", criterion="math:fsum", certify={"time": "1s"})


@pytest.fixture
def few_dense(monkeypatch):
    """Treat more than ten columns as too many for a Gram matrix, if passes can prove something."""
    monkeypatch.setattr("dsel.search.exact.choose_tree.MOST_DENSE", 10)
    monkeypatch.setattr("dsel.planning.representations.choice.MOST_DENSE", 10)
    monkeypatch.setattr("dsel.search.exact.out_of_core.out_of_core_tree._FIRST", 3)
    monkeypatch.setattr("dsel.search.exact.out_of_core.out_of_core_tree._CLOSED", 0)


@pytest.mark.parametrize("included", [[], [2]])
def test_a_wide_store_is_certified_in_passes_and_continues_after_each(tmp_path, few_dense, included):
    x = RNG.standard_normal((30, 40))
    y = x[:, [3, 8, 20]] @ np.array([[2.0], [-1.5], [1.0]]) + RNG.standard_normal((30, 1))
    store = tmp_path / "store"
    ingest_arrays(x, store, y=y, chunks=(15, 7))
    request = SelectionRequest(k=3, method="forward", lam=5.0, include=included)
    dataset = as_dataset(str(store))
    selection = run_selection(dataset, request)
    budget = ProofBudget(nodes=1)
    partly = certify_selection(dataset, request, selection, budget, folder=tmp_path)
    first = partly.certificate[-1]
    assert (first["columns"], first["passes"]) == (40 - len(included), 1)
    if not included:  # the rows of included columns take passes, too
        assert partly.passes == selection.passes + 2  # the statistics of the columns, and one step
    saved = read_json(tmp_path / "proof.json")["proof"]["search"]
    assert (saved["kind"], saved["passes"]) == ("wide-tree", 1)
    last = certify_selection(dataset, request, partly, ProofBudget(), folder=tmp_path)
    found = last.certificate[-1]
    assert found["proven"]
    assert 1 < found["passes"] < 15
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    t = (y - y.mean()) / y.std()
    whole = DenseObjective(z.T @ z, z.T @ t, float(np.square(t).sum()), 5.0)
    best = min(whole.value(S) for S in combinations(range(40), 3) if set(included) <= set(S))
    assert found["value"] == pytest.approx(best)
    assert last.error == pytest.approx(best)
    assert f"of {first['columns']} columns searched" in str(last)


def test_a_wide_store_has_no_proof_log(tmp_path, few_dense):
    dataset = as_dataset(X, Y)
    request = SelectionRequest(k=3, method="forward", lam=5.0)
    selection = run_selection(dataset, request)
    with pytest.raises(
        OptionError, match="log is asked for, and a proof about 14 columns has none, because it makes passes"
    ):
        certify_selection(dataset, request, selection, ProofBudget(log=True), folder=tmp_path)
    with pytest.raises(CapacityError, match="Near-best subsets of 14 columns are not listed"):  # also without a log
        certify_selection(dataset, request, selection, ProofBudget(log=True, near_best=ListLimits()), folder=tmp_path)


def test_the_log_of_a_wide_job_is_refused_before_data_are_read(tmp_path):
    ingest_arrays(np.random.default_rng(0).standard_normal((20, 5001)), tmp_path / "store", y=Y[:20])
    job = job_file(tmp_path, lam=5.0, certify={"log": True})
    with pytest.raises(OptionError, match="a proof about 5001 columns has none"):
        run_job(job)


@pytest.fixture
def no_gram(monkeypatch):
    """The Gram matrix fits nowhere."""
    for name in ("GramMatrix", "TiledGram"):
        monkeypatch.setattr(f"dsel.planning.representations.gram.{name}.client_bytes", 1 << 60)


def proof_notes(job):
    return [note for note in plan_job(job)[0].notes if "proof" in note]


def test_a_log_whose_gram_matrix_does_not_fit_is_refused_before_data_are_read(tmp_path, no_gram):
    job = job_file(tmp_path, method="forward", certify={"log": True})
    wanted = "log is asked for, and a proof about 14 columns has none: their Gram matrix does not fit. "
    assert wanted in str(plan_job(job)[0])
    with pytest.raises(CapacityError, match=wanted) as error:
        run_job(job)
    assert error.value.remedy == "Use a machine with more memory, or leave the log out."
    assert not (job.out / "selection.json").exists()
    unlogged = job_file(tmp_path, method="forward", certify={})
    assert proof_notes(unlogged) == [
        "the proof is about columns whose Gram matrix does not fit: it proves little without one target and lam > 0"
    ]
    penalized = job_file(tmp_path, method="forward", certify={}, lam=1.0)
    assert "does not fit: it makes passes" in proof_notes(penalized)[0]


def test_a_proof_whose_gram_matrix_fits_counts_it_where_the_search_does_without(tmp_path, monkeypatch):
    beats = "dsel.planning.representations.representation.ProblemShape.rows_beat_gram"
    monkeypatch.setattr(beats, property(lambda shape: shape.needs.few_columns))
    job = job_file(tmp_path, method="forward", certify={"log": True})
    plan, _ = plan_job(job)
    assert plan.representation == "column-blocks"
    assert plan.proof_bytes > 0
    assert proof_notes(job) == ["the proof takes 1 pass for the Gram matrix, and one more if it finds a better subset"]
    found = run_job(job)
    assert found.passes == found.plan["measured"]["passes"] + 1


def test_measured_memory_leaves_the_proof_out_as_planned_memory_does(tmp_path, monkeypatch):
    peaks = iter([1000, 5000])
    monkeypatch.setattr(DaskEngine, "peak_memory", lambda engine: {"worker": (next(peaks), 1 << 30)})
    found = run_job(job_file(tmp_path, certify={"nodes": 5}))
    assert found.plan["measured"]["worker_memory"] == 1000
    assert found.peak_memory == {"worker": (5000, 1 << 30)}


def test_without_a_penalty_the_note_says_what_would_bound_a_wide_store(no_gram):
    dataset = as_dataset(X, Y)
    request = SelectionRequest(k=3, method="forward")
    selection = run_selection(dataset, request)
    assert selection.counts["representation"] == "column-blocks"
    found = certify_selection(dataset, request, selection, ProofBudget(seconds=6000.0))
    assert found.certificate[-1]["bound"] == 0.0
    assert any("for one target and lam > 0" in note for note in found.notes)
    unsupervised = as_dataset(X, unsupervised=True)
    selection = run_selection(unsupervised, request)
    assert selection.counts["representation"] == "row-gram"
    found = certify_selection(unsupervised, request, selection, ProofBudget(seconds=6000.0))
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert found.certificate[-1]["bound"] == pytest.approx(np.sort(np.linalg.eigvalsh(z.T @ z))[:-3].sum())


@pytest.mark.parametrize(
    ("y", "more", "what"),
    [(X[:, :2], {}, "2 targets"), (None, {}, "Y = X"), (Y, {"groups": [list(range(5))]}, "groups of columns")],
)
def test_a_limit_for_coefficients_that_no_proof_can_use_is_refused(tmp_path, y, more, what):
    ingest_arrays(X, tmp_path / "store", y=y)
    job = job_file(tmp_path, certify={"coefficient_limit": 2}, method="forward", k=3, **more)
    with pytest.raises(OptionError, match=f"coefficient_limit is 2, .* for {what}"):
        plan_job(job)
    with pytest.raises(OptionError, match=f"coefficient_limit is 2, .* for {what}"):
        run_job(job)


@pytest.mark.parametrize(("m", "more", "is_limited"), [(400, -1, False), (400, 0, False), (100, 0, True)])
def test_a_limit_for_coefficients_is_for_many_columns_that_depend_on_each_other(m, more, is_limited):
    wide = np.random.default_rng(6).standard_normal((m, starting_subset.MANY_COLUMNS + more))
    y = wide[:, [3, 8, 20]].sum(axis=1, keepdims=True) + 0.1 * np.random.default_rng(7).standard_normal((m, 1))
    dataset, request = as_dataset(wide, y), SelectionRequest(k=3, method="forward")
    found = certify_selection(dataset, request, run_selection(dataset, request), ProofBudget(coefficient_limit=1.5))
    assert found.certificate[-1]["proven"]
    assert found.certificate[-1]["indices"] == [3, 8, 20]
    assert (found.certificate[-1]["coefficients"] > 0.0) == is_limited


def test_a_finished_proof_within_a_limit_does_not_continue_and_replaces_no_other_one(tmp_path):
    wide = np.random.default_rng(0).standard_normal((100, starting_subset.MANY_COLUMNS))
    ingest_arrays(wide, tmp_path / "store", y=wide[:, :3] @ [[3.0], [2.0], [1.0]] + wide[:, 3:4])
    job = job_file(tmp_path, k=3, method="forward")
    finished(job)
    call("certify", job.out, "--nodes", 1)
    saved = (job.out / "proof.json").read_bytes()
    for _ in range(2):
        code, out, said = call("certify", job.out, "--largest-coefficient", 1)
        assert code == 0
        assert "proved optimal among fits" in out
        assert "continuing the proof" not in said
    assert (job.out / "proof.json").read_bytes() == saved


def with_log(folder, **budget):
    """The certificate of k columns, from a proof that leaves a log."""
    return certify_run(folder, ProofBudget(**{"seconds": 6000.0, "log": True, **budget})).certificate[-1]


def test_a_proof_that_continues_with_its_log_has_not_begun_again(tmp_path):
    job = job_file(tmp_path)
    finished(job)
    assert not with_log(job.out, nodes=2)["status"].startswith("optimal")
    found = with_log(job.out)
    assert (found["status"], found["began_again"]) == ("optimal", "")
    assert f"{found['nodes']} nodes" in call("verify", job.out)[1]


def test_a_finished_proof_with_a_complete_log_is_not_repeated(tmp_path):
    job = job_file(tmp_path)
    finished(job)
    assert certify_run(job.out, ProofBudget(seconds=6000.0)).certificate[-1]["proven"]
    repeated = with_log(job.out)
    assert "log" in repeated["began_again"]
    manifest = job.out / "proof-log-5" / "manifest.json"
    written = manifest.stat().st_mtime_ns
    assert with_log(job.out) == repeated
    assert manifest.stat().st_mtime_ns == written
    manifest.unlink()
    assert with_log(job.out)["status"] == "optimal"
    assert manifest.is_file()


def test_a_list_keeps_the_nodes_of_a_finished_proof(tmp_path):
    job = job_file(tmp_path)
    finished(job)
    proof = with_log(job.out)
    listed = certify_run(job.out, ProofBudget(seconds=6000.0, near_best=ListLimits(within=0.3)))
    assert listed.alternatives.nodes > proof["nodes"]
    assert listed.certificate[-1]["nodes"] == proof["nodes"]


def test_a_proof_without_a_log_does_not_continue_one_for_a_log_that_lacks_relaxations(tmp_path, caplog):
    caplog.set_level("INFO", "dsel")
    rng = np.random.default_rng(2)
    wide = rng.standard_normal((200, 8)) @ rng.standard_normal((8, 150)) + 1.2 * rng.standard_normal((200, 150))
    dataset = as_dataset(wide, wide[:, :6].sum(axis=1) + 3 * rng.standard_normal(200))
    request = SelectionRequest(k=4, method="forward")
    selection = run_selection(dataset, request)
    logged = certify_selection(dataset, request, selection, ProofBudget(nodes=1, log=True), folder=tmp_path)
    assert any("leave out the log" in record.getMessage() for record in caplog.records)
    found = certify_selection(dataset, request, logged, ProofBudget(), folder=tmp_path)
    assert any("starts again by relaxations" in record.getMessage() for record in caplog.records)
    assert found.certificate[-1]["status"] == "optimal"


def test_a_proof_with_a_log_is_described_by_its_own_method_after_one_of_all_sizes(tmp_path):
    dataset, request = as_dataset(X, Y), SelectionRequest(k=4, method="forward")
    first = certify_selection(dataset, request, run_selection(dataset, request), ProofBudget(sizes="all"))
    found = certify_selection(dataset, request, first, ProofBudget(log=True), folder=tmp_path)
    before, after = first.certificate[-1], found.certificate[-1]
    assert before["method"].startswith("leaps and bounds")
    assert after["method"].startswith("branch-and-bound")
    assert found.certificate[0]["method"] == first.certificate[0]["method"]


def test_a_whole_proof_is_described_by_its_own_method_after_one_that_a_relaxation_bounded(tmp_path):
    job = job_file(tmp_path)
    finished(job)
    assert with_log(job.out, nodes=1)["method"] == "perspective relaxation"
    assert with_log(job.out)["method"].startswith("branch-and-bound")


def test_a_list_without_time_does_not_say_that_the_proof_had_none(tmp_path, monkeypatch):
    monkeypatch.setattr(Proof, "begin", classmethod(lambda *_, **__: (_ for _ in ()).throw(OutOfTime("too late"))))
    job = job_file(tmp_path)
    selection = finished(job)
    certify_run(job.out, ProofBudget(seconds=1.0, near_best=ListLimits()))
    assert selection.certificate == open_selection(job.out).certificate
    assert "the list of near-best subsets for 5 columns has too little time" in call("show", job.out)[1]
