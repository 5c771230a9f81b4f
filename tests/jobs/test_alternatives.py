"""`dsel alternatives RESULT` and `alternatives:` in a job file: lists of a job, interrupted and continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import dsel
from dsel.config.job import JobFile, ListLimits, read_job
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.errors import Interrupted, OptionError
from dsel.jobs import runner
from dsel.jobs.certify import ProofBudget, certify_selection
from dsel.jobs.locations import identity_of
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.runner import run_job
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.result import Selection, open_selection
from dsel.storage.json_files import read_json
from tests.cli_runner import call

RNG = np.random.default_rng(21)
X = RNG.standard_normal((60, 14)) @ (np.eye(14) + RNG.standard_normal((14, 14)) / 2)
Y = X[:, :6] @ RNG.standard_normal((6, 1)) + 4 * RNG.standard_normal((60, 1))


def job_file(folder: Path, **more: Any) -> JobFile:
    """A job on a small store."""
    if not (folder / "store").exists():
        ingest_arrays(X, folder / "store", y=Y)
    values = {"store": str(folder / "store"), "k": 5, "method": "omp", "cluster": {"local": {"workers": 1}}, **more}
    (folder / "job.yaml").write_text(yaml.safe_dump(values))
    return read_job(folder / "job.yaml", folder / "result")


def finished(job: JobFile) -> Selection:
    """The selection of the job, in its folder as the job would leave it: without workers."""
    dataset = as_dataset(str(job.store))
    selection = run_selection(dataset, job.request())
    job.out.mkdir()
    RunFolder(job.out).claim(job, identity_of(job, dataset))
    selection.save(job.out)
    return selection


def test_a_command_lists_them_and_the_result_keeps_them(tmp_path: Path) -> None:
    job = job_file(tmp_path)
    finished(job)
    code, text, _ = call("alternatives", job.out, "--within", "2%", "--time", "1h")
    assert code == 0
    kept = open_selection(job.out).alternatives
    assert kept is not None
    assert (kept.within, kept.complete) == (0.02, True)
    assert f"{len(kept.subsets)} subsets of 5 columns within 2.00% of the best, no others (proved)" in text
    for label in kept.labels("necessary"):
        assert any(line.split()[:2] == [label, "necessary"] for line in text.splitlines())
    assert ("In no near-best subset: " in text) == bool(kept.labels("useless"))
    code, text, _ = call("alternatives", job.out, "--within", "0.02", "--json", "--all-sizes")
    assert code == 0
    values = json.loads(text)
    assert values["subsets"][0]["indices"] == list(kept.subsets[0].indices)
    assert [one["size"] for one in values["smaller"]] == [1, 2, 3, 4]
    code, text, _ = call("alternatives", job.out, "--nbest", 3)
    assert "3 subsets of 5 columns" in text
    assert "Alternatives: 3 subsets" in call("show", job.out)[1]


def test_a_command_says_that_it_replaced_the_columns_of_the_result(tmp_path: Path) -> None:
    job = job_file(tmp_path)
    searched = finished(job)
    text, found = call("alternatives", job.out)[1], open_selection(job.out)
    assert found.alternatives is not None
    assert found.alternatives.selected_error is None
    assert found.r2 > searched.r2
    shares = f"they explain {found.r2:.4%}, those of omp {searched.r2:.4%}"
    assert text.splitlines()[-1] == f"The result now has the best known columns: {shares}"


def test_the_saved_proof_of_an_earlier_version_begins_again_with_included_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    job = job_file(tmp_path, include=[2, 3])
    selection = finished(job)
    whole = dsel.alternatives(selection, str(job.store), within=0.9)
    with monkeypatch.context() as earlier:  # the limit was lower
        earlier.setattr(ListRule, "threshold", lambda rule, best, total: best)
        call("alternatives", job.out, "--within", "90%")
    saved = json.loads((job.out / "proof-near-best.json").read_text())
    assert len(saved["proof"]["search"]["near_best"]["subsets"]) < len(whole.subsets)
    saved["identity"]["near_best"] = [0.9, 1000]
    (job.out / "proof-near-best.json").write_text(json.dumps(saved))
    call("alternatives", job.out, "--within", "90%")
    found = open_selection(job.out).alternatives
    assert found is not None
    assert [row.indices for row in found.subsets] == [row.indices for row in whole.subsets]


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--within", "much"], "'much' is not a share"), (["--within", "150%"], "'within' is 1.5")]
)
def test_what_the_command_refuses(tmp_path: Path, arguments: list[str], says: str) -> None:
    job = job_file(tmp_path)
    finished(job)
    code, _, said = call("alternatives", job.out, *arguments)
    assert code == 64
    assert says in said


@pytest.mark.usefixtures("no_workers")
def test_a_job_can_ask_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_file(tmp_path, method="forward", certify={"time": "1h"}, alternatives={"within": "1%", "time": "1h"})

    def interrupted(*_: Any, **__: Any) -> None:
        raise Interrupted("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(Proof, "near_best", interrupted)
        with pytest.raises(Interrupted):
            run_job(job)
    assert open_selection(job.out).alternatives is None
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_validated", interrupted)  # the search is not repeated
        found = run_job(job)
    assert found.alternatives is not None
    assert found.alternatives.complete
    assert found.certificate[-1]["proven"]
    status = json.loads(call("status", job.out, "--json")[1])
    assert status["state"] == "finished"
    code, _, said = call("run", tmp_path / "job.yaml", "--out", job.out)
    assert code == 0
    assert "nothing to do" in said


def grouped_job(folder: Path, **more: Any) -> JobFile:
    """A job on a store of numbers and a category, whose columns are a group by default."""
    frame = pd.DataFrame(X[:, :5], columns=list("abcde")).assign(city=np.where(X[:, 5] > 0.5, "ulm", "kiel"))
    frame["city"] = frame["city"].where(X[:, 6] > 0.0, "bonn")
    frame.assign(y=Y[:, 0]).to_csv(folder / "data.csv", index=False)
    dsel.ingest(str(folder / "data.csv"), folder / "store", target=["y"], categorical=["city"])
    return job_file(folder, k=3, method="forward", **more)


@pytest.mark.usefixtures("no_workers")
def test_a_job_lists_groups_of_categories(tmp_path: Path) -> None:
    job = grouped_job(tmp_path, alternatives={"within": "5%", "time": "1h"})
    found = run_job(job).alternatives
    assert found is not None
    assert (found.complete, found.size, len(found.prices["city"].columns)) == (True, 3, 3)
    assert call("alternatives", job.out, "--log")[0] == 0
    assert call("verify", job.out)[0] == 0
    code, text, _ = call("alternatives", job.out, "--within", "30%", "--all-sizes")
    assert code == 0
    assert "subsets of 3 groups of columns within 30.00% of the best, no others (proved)" in text
    assert any(line.split()[:2] == ["city", "replaceable"] for line in text.splitlines())


def test_a_rank_of_groups_is_refused_before_the_job_begins(tmp_path: Path) -> None:
    job = grouped_job(tmp_path, alternatives={"nbest": 3, "by": "bic"})
    with pytest.raises(OptionError, match=r"by: there is none for groups of columns.*Leave by out"):
        run_job(job)
    assert not job.out.exists()


@pytest.mark.parametrize("more", [{"certify": {"log": True}}, {"alternatives": {"nbest": 3, "by": "bic"}}])
def test_what_there_is_not_for_a_loss_is_refused_before_the_job_begins(tmp_path: Path, more: dict[str, Any]) -> None:
    job = job_file(tmp_path, loss="huber", **more)
    with pytest.raises(OptionError, match="there is none for the loss huber"):
        run_job(job)
    assert not job.out.exists()


def test_an_interrupted_list_continues(tmp_path: Path) -> None:
    job = job_file(tmp_path)
    selection, dataset = finished(job), as_dataset(str(job.store))
    visited: list[int] = []

    def stop(search: Any) -> None:
        visited.append(search.iteration)
        raise Interrupted("stopped")

    def listed(**context: Any) -> Selection:
        budget = ProofBudget(seconds=6000.0, near_best=ListLimits(within=0.1), save_seconds=0.0)
        return certify_selection(dataset, job.request(), selection, budget, RunContext(**context), job.out)

    with pytest.raises(Interrupted):
        listed(on_slice=stop)
    saved = read_json(job.out / "proof-near-best.json")
    assert saved["proof"]["search"]["visited"] == visited[-1]
    whole = listed()
    (job.out / "proof-near-best.json").unlink()
    again = listed()
    assert whole.alternatives is not None
    assert again.alternatives is not None
    assert whole.alternatives.subsets == again.alternatives.subsets
    assert whole.alternatives.verdicts == again.alternatives.verdicts
    assert not (job.out / "proof.json").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"alternatives": {"within": "150%"}}, "within"), ({"alternatives": {"within": "some"}}, "within"),
        ({"alternatives": {"nbest": 0}}, "nbest"), ({"alternatives": {"sizes": "few"}}, "sizes"),
        ({"alternatives": {}, "method": "poss", "criterion": "os:getcwd"}, "no list for a custom criterion"),
    ],
)  # fmt: skip
def test_what_a_job_file_refuses(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        job_file(tmp_path, **more)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"k": "auto", "choose_k": "ebic", "exclude": [0, 1, 2, 3, 4, 5]},
            "no column is chosen, because 0 is the size of least EBIC (gamma 1). Select with a number as k, such as 1.",
        ),
        ({"k": 2, "include": [0, 1]}, "k is 2, and as many columns are included. Select for a larger k."),
        (
            {"k": 3, "include": [0, 1], "exclude": list(range(2, 14))},
            "no column can be chosen besides the included ones. Include or exclude fewer columns.",
        ),
    ],
)
def test_the_command_and_python_say_why_there_is_no_list(tmp_path: Path, asked: dict[str, Any], says: str) -> None:
    noise = np.random.default_rng(5).normal(size=60)
    with pytest.raises(OptionError) as error:
        dsel.alternatives(dsel.select(X, noise, **asked), X, noise)
    assert str(error.value) == f"There is no near-best subset: {says}"
    ingest_arrays(X, tmp_path / "store", y=noise[:, None])
    job = job_file(tmp_path, method="poss", **asked)
    finished(job)
    code, text, _ = call("alternatives", job.out)
    assert (code, text) == (0, f"{error.value}\n")
