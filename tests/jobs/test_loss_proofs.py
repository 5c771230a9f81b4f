"""Proofs and alternatives by a loss in folders: interrupted, continued, and carried from run to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel._lib.byte_sizes import format_bytes
from dsel.config.job import JobFile
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.errors import Interrupted
from dsel.jobs.certify import certify_selection
from dsel.jobs.locations import identity_of
from dsel.jobs.proof_store import ProofBudget
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.runner import run_job
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.render import render
from dsel.selection.result import Selection, open_selection
from tests.cli_runner import call

pytestmark = pytest.mark.usefixtures("no_workers")

N = 12


def rows(seed: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated columns and two classes, which six of them tell apart."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, N)) + rng.standard_normal((m, 1))
    eta = X[:, :6] @ np.linspace(0.3, 0.6, 6) * np.array(1.0) - 1.5 * X[:, :6].mean(axis=1)
    return X, (rng.random(m) < 1.0 / (1.0 + np.exp(-eta))).astype(float)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    X, y = rows(0, 120)
    ingest_arrays(X, tmp_path / "store", y=y[:, None])
    return tmp_path / "store"


def job(store: Path, out: Any = None, **keys: Any) -> JobFile:
    values = {
        "store": str(store), "k": 5, "loss": "logistic", "lam": 0.5, "out": out or str(store.parent / "result"),
        "method": "forward", "cluster": {"local": {"workers": 1, "memory": "1GiB"}},
    }  # fmt: skip
    return JobFile.model_validate({**values, **keys})


def finished(job: JobFile) -> Selection:
    """The selection of the job, in its folder as the job would leave it: without workers."""
    dataset = as_dataset(str(job.store))
    selection = run_selection(dataset, job.request())
    out = Path(str(job.out))
    out.mkdir()
    RunFolder(out).claim(job, identity_of(job, dataset))
    selection.save(out)
    return selection


def test_a_proof_counts_its_pass_and_its_bytes(store: Path) -> None:
    selection = dsel.select(store, k=2, method="forward", loss="logistic", lam=0.5)
    whole = 8 * 120 * (N + 1)
    for proofs in (1, 2):
        before, selection = selection, dsel.certify(selection, store)
        # the statistics and the columns that may be chosen are passes, the fit of the chosen ones is none
        assert (selection.passes - before.passes, selection.bytes_read - before.bytes_read) == (2, 3 * whole)
        text = render(selection, details=True)
        assert f"passes ({2 * proofs} for proofs)" in text
        assert f"read ({format_bytes(3 * proofs * whole)} for proofs)" in text
        assert "planned and measured (without proofs): about 5 and 5 passes" in text


@pytest.mark.parametrize("kind", ["proof", "near-best"])
def test_an_interrupted_proof_continues_from_its_leaves(store: Path, kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("dsel.jobs.proof_store.SLICE_SECONDS", 0.0)
    asked = job(store)
    selection, dataset, out = finished(asked), as_dataset(str(store)), Path(str(asked.out))
    listed = {} if kind == "proof" else {"near_best": {"within": 0.03}}
    seen: list[int] = []

    def proved(most: int | None, **more: Any) -> Selection:
        def on_slice(tree: Any) -> None:
            seen.append(tree.iteration)
            if most is not None and tree.iteration >= most:
                raise Interrupted("stopped")

        budget = ProofBudget.of(seconds=6000.0, **listed, **more)
        context = RunContext(on_slice=on_slice)
        return certify_selection(dataset, asked.request(), selection, budget, context, out)

    with pytest.raises(Interrupted):
        proved(20)
    assert (out / f"tree-of-{kind}-5.npz").exists()
    stopped = seen[-1]
    partial = proved(stopped + 5, keep_partial=True)
    assert seen[-1] >= stopped + 5
    assert partial.certificate[-1]["status"] == "bounded"
    seen.clear()
    whole = proved(None)
    assert seen[0] >= stopped + 5
    assert whole.certificate[-1]["proven"]
    (out / f"tree-of-{kind}-5.npz").unlink()
    again = proved(None)
    assert whole.indices == again.indices
    assert whole.certificate[-1]["bound"] == pytest.approx(again.certificate[-1]["bound"], rel=1e-9)
    assert partial.certificate[-1]["bound"] <= whole.certificate[-1]["bound"]
    if kind == "near-best":
        assert whole.alternatives is not None
        assert again.alternatives is not None
        assert partial.alternatives is not None
        assert [row.indices for row in whole.alternatives.subsets] == [
            row.indices for row in again.alternatives.subsets
        ]
        assert whole.alternatives.verdicts == again.alternatives.verdicts
        for label, verdict in partial.alternatives.verdicts.items():
            assert verdict in ("undecided", whole.alternatives.verdicts[label])


def test_the_commands_continue(store: Path) -> None:
    asked = job(store)
    finished(asked)
    out = Path(str(asked.out))
    code, text, said = call("certify", out, "--nodes", 10, "--json")
    assert code == 0
    assert "of the deviance without columns from the best" in said
    first = json.loads(text)["certificate"][-1]
    assert 0 < first["nodes"] <= 10
    assert not first["proven"]
    code, text, _ = call("certify", out, "--json")
    last = json.loads(text)["certificate"][-1]
    assert last["proven"]
    assert last["nodes"] > first["nodes"]
    for options in ((), ("--largest-coefficient", 2), ("--all-sizes", "--time", "1ms")):
        code, text, said = call("certify", out, "--json", *options)
        assert json.loads(text)["certificate"][-1] == last  # nothing is left to do
        assert "finished proofs of 1 size are not repeated" in said
    code, text, _ = call("alternatives", out, "--within", "5%")
    assert code == 0
    kept = open_selection(out).alternatives
    assert kept is not None
    assert kept.complete
    assert "deviance + penalty" in text


def test_a_proof_within_a_limit_leaves_the_leaves_of_the_other_one(store: Path) -> None:
    asked = job(store)
    finished(asked)
    out = Path(str(asked.out))
    call("certify", out, "--nodes", 10)
    leaves = (out / "tree-of-proof-5.npz").read_bytes()
    call("certify", out, "--nodes", 10, "--largest-coefficient", 1)
    assert (out / "tree-of-proof-5.npz").read_bytes() == leaves
    assert (out / "tree-of-limited-5.npz").exists()


def test_without_a_penalty_a_finished_proof_is_not_repeated_either(store: Path) -> None:
    asked = job(store, k=2, lam=0.0)
    finished(asked)
    out = Path(str(asked.out))

    def certified(*options: Any) -> dict[str, Any]:
        row = json.loads(call("certify", out, "--json", *options)[1])["certificate"][-1]
        assert isinstance(row, dict)
        return row

    limited = certified("--largest-coefficient", 1.01)
    whole = certified()
    assert whole["largest_coefficient"] > limited["largest_coefficient"]  # that proof was about fewer fits
    assert certified() == certified("--largest-coefficient", 1.01) == whole


def test_a_job_lists_alternatives_and_each_night_continues(store: Path) -> None:
    runs = {"folder": str(store.parent / "runs"), "keep": 3}
    asked = {"certify": {"time": "1h"}, "alternatives": {"within": "5%", "time": "1h"}}
    run_job(job(store, runs, **asked))
    X, y = rows(1, 5)
    np.save(store.parent / "x.npy", X)
    np.save(store.parent / "y.npy", y[:, None])
    dsel.append(store.parent / "x.npy", store, y=store.parent / "y.npy")
    found = run_job(job(store, runs, **asked))
    whole = run_job(job(store, **asked))
    assert found.indices == whole.indices
    one, other = found.certificate[-1], whole.certificate[-1]
    assert (one["proven"], other["proven"]) == (True, True)
    assert one["bound"] == pytest.approx(other["bound"], rel=1e-9)
    assert (one["began_again"], other["leaves_checked"]) == ("", 0)
    assert one["leaves_checked"] > 0
    assert found.alternatives is not None
    assert whole.alternatives is not None
    assert found.alternatives.verdicts == whole.alternatives.verdicts
    assert [row.indices for row in found.alternatives.subsets] == [row.indices for row in whole.alternatives.subsets]


def test_a_night_without_time_for_a_node_leaves_the_tree_to_the_next_one(store: Path) -> None:
    runs = {"folder": str(store.parent / "runs"), "keep": 3}
    found = []
    for night, seconds in enumerate((3600.0, 1e-6, 3600.0)):
        if night:
            X, y = rows(night, 5)
            np.save(store.parent / "x.npy", X)
            np.save(store.parent / "y.npy", y[:, None])
            dsel.append(store.parent / "x.npy", store, y=store.parent / "y.npy", again=True)
        found.append(run_job(job(store, runs, k=2, certify={"time": seconds})).certificate[-1])
    assert [row["nodes"] > 0 for row in found] == [True, False, True]
    assert (found[-1]["began_again"], found[-1]["proven"]) == ("", True)
    assert found[-1]["leaves_checked"] > 0


def test_a_job_weights_classes(store: Path) -> None:
    found = run_selection(as_dataset(str(store)), job(store, k=2, class_weight="balanced").request())
    X, y = rows(0, 120)
    w = np.where(y == 1.0, 0.5 / y.mean(), 0.5 / (1.0 - y.mean()))
    direct = dsel.select(X, y, k=2, loss="logistic", lam=0.5, method="forward", class_weight={0: w.max(), 1: w.min()})
    swapped = dsel.select(X, y, k=2, loss="logistic", lam=0.5, method="forward", class_weight={0: w.min(), 1: w.max()})
    assert found.error == pytest.approx((direct if y.mean() > 0.5 else swapped).error, rel=1e-9)
    assert (w[y == 1.0].sum(), w[y == 0.0].sum()) == (pytest.approx(60.0), pytest.approx(60.0))
