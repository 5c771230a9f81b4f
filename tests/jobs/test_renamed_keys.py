"""Earlier names of keys of a job: `coefficients` of `certify`, and `artefacts`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import dsel
from dsel.config.job import JobFile, read_job
from dsel.data.ingest import ingest_arrays
from dsel.errors import OptionError
from dsel.jobs.locations import finished_job
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.runner import run_job
from dsel.storage.json_files import read_json, write_json
from tests.cli_runner import call
from tests.search.cases import random_data

pytestmark = pytest.mark.usefixtures("no_workers")

X, Y = random_data(0, m=40, n=12)
Y = Y[:, :1]


def read(folder: Path, keys: dict[str, Any]) -> JobFile:
    values = {"store": str(folder / "data.zarr"), "k": 2, "method": "omp", "cluster": {"local": {"workers": 1}}}
    (folder / "job.yaml").write_text(yaml.safe_dump({**values, **keys}))
    return read_job(folder / "job.yaml")


def old(folder: Path) -> dict[str, Any]:
    return {"artefacts": str(folder / "sums"), "certify": {"nodes": 50, "coefficients": 2.0}}


def new(folder: Path) -> dict[str, Any]:
    return {"statistics_folder": str(folder / "sums"), "certify": {"nodes": 50, "coefficient_limit": 2.0}}


def test_a_job_file_may_have_earlier_names(tmp_path: Path) -> None:
    job = read(tmp_path, old(tmp_path))
    assert job == read(tmp_path, new(tmp_path))
    assert job.certify is not None
    assert job.certify.coefficient_limit == 2.0
    assert job.statistics_folder == tmp_path / "sums"


def test_both_names_must_agree(tmp_path: Path) -> None:
    assert read(tmp_path, {**old(tmp_path), **new(tmp_path)}) == read(tmp_path, new(tmp_path))
    with pytest.raises(OptionError, match="artefacts is the earlier name of statistics_folder: leave it out"):
        read(tmp_path, {**new(tmp_path), "artefacts": "elsewhere"})
    with pytest.raises(OptionError, match="coefficients is the earlier name of coefficient_limit: leave it out"):
        read(tmp_path, {"certify": {"coefficient_limit": 2, "coefficients": 3}})


def test_a_call_may_have_the_earlier_name() -> None:
    selection = dsel.select(X, Y, k=2, method="omp", progress=False)
    before, after = (dsel.certify(selection, X, Y, **{name: 2.0}) for name in ("coefficients", "coefficient_limit"))
    assert before.certificate[-1]["bound"] == after.certificate[-1]["bound"]
    with pytest.raises(OptionError, match=r"'coefficient_limit' is 0\.5"):
        dsel.certify(selection, X, Y, coefficients=0.5)
    with pytest.raises(OptionError, match="coefficients is the earlier name of coefficient_limit: leave it out"):
        dsel.certify(selection, X, Y, coefficients=2.0, coefficient_limit=3.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'coefficient'"):
        dsel.certify(selection, X, Y, coefficient=2.0)


def test_a_result_with_earlier_names_is_that_of_the_same_job_and_its_proof_continues(tmp_path: Path) -> None:
    ingest_arrays(X, tmp_path / "data.zarr", y=Y)
    job = read(tmp_path, new(tmp_path))
    made = run_job(job)
    folder = RunFolder(tmp_path / "job.result")
    manifest = read_json(folder.path / "job.json")
    assert manifest["identity"]["job"]["certify"] == {"time": "1m", "sizes": "chosen", **old(tmp_path)["certify"]}
    recorded = {name: value for name, value in manifest["job"].items() if name != "statistics_folder"}
    write_json(folder.path / "job.json", {**manifest, "job": {**recorded, **old(tmp_path)}})
    assert folder.job()[1] == job.model_copy(update={"out": folder.path})
    assert finished_job(job, Reporter.for_terminal()) == made
    code, _, err = call("certify", folder.path, "--coefficients", "2", "--nodes", "50")
    assert code == 0, err
    code, _, err = call("certify", folder.path, "--coefficients", "0.5")
    assert code == 2, err
