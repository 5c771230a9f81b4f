"""Log lines have a run id, no secret is written anywhere, and nothing is unpickled or evaluated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dsel
from dsel.config.job import read_cluster, read_job
from dsel.data.formats.registry import open_source
from dsel.data.ingest import ingest_arrays
from dsel.errors import DselError, OptionError
from tests.cli_runner import call, run
from tests.stores import make_store, regression

ROOT = Path(__file__).parents[1]
X, Y = regression(m=500)
PLANTED = "hunter2-Planted"
SECRETS = {"AWS_SECRET_ACCESS_KEY": PLANTED, "AWS_SESSION_TOKEN": PLANTED, "AZURE_STORAGE_KEY": PLANTED,
           "MY_OWN_PASSWORD": PLANTED}  # fmt: skip


def job_file(folder: Path, **keys: Any) -> Path:
    job = folder / "job.yaml"
    values = {"store": "data.zarr", "k": 3, "cluster": {"local": {"workers": 1, "memory": "600MB"}}, **keys}
    job.write_text(yaml.safe_dump(values))
    return job


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.slow
def test_json_lines_carry_the_run_and_its_stages_and_no_secret_is_written_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 24))
    ids, said = [], ""
    for again, how in ((False, run), (True, call)):
        code, out, err = how("run", job_file(tmp_path), "--log-format", "json")
        assert code == 0, err
        said += out + err
        lines = [json.loads(line) for line in err.splitlines()]
        assert all({"time", "level", "run", "message"} <= line.keys() for line in lines)
        (run_id,) = {line["run"] for line in lines}
        ids.append(run_id)
        header = lines[0]
        if not again:
            assert {"host", "pid", "versions"} <= header.keys()
            assert run_id in header["message"]
        stages = [line["stage"] for line in lines if line["message"] == line.get("stage")]
        assert stages == ([] if again else ["statistics", "search", "check"])
    assert ids[0] != ids[1]
    in_file = [json.loads(line) for line in (tmp_path / "job.result" / "run.log").read_text().splitlines()]
    assert {line["run"] for line in in_file} == {ids[0]}  # the second run has nothing to do, and only says so

    code, out, err = call("run", job_file(tmp_path, k=99), "--log-format", "json", "--out", tmp_path / "other")
    assert code == 64
    last = json.loads(err.splitlines()[-1])
    assert (last["kind"], last["exit_code"]) == ("option", 64)

    assert len(everything_in(tmp_path)) > 10_000
    for secret in (PLANTED, "AWS_SECRET"):
        assert secret.encode() not in everything_in(tmp_path)
        assert secret not in said + out + err


SLURM = {"workers": 1, "memory": "1GiB"}


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"slurm": {**SLURM, "prologue": [f"export AWS_SECRET_ACCESS_KEY={PLANTED}"]}}, "cluster.slurm.prologue"),
        ({"slurm": {**SLURM, "prologue": [f"login --password {PLANTED}"]}}, "cluster.slurm.prologue"),
        ({"slurm": {**SLURM, "directives": [f"--export=MY_TOKEN={PLANTED}"]}}, "cluster.slurm.directives"),
        ({"slurm": {**SLURM, "environment": {"DB_PASSWORD": PLANTED}}}, "cluster.slurm.environment.DB_PASSWORD"),
        ({"slurm": {**SLURM, "account": "AKIA1234567890ABCDEF"}}, "cluster.slurm.account"),
        ({"gateway": {"workers": 1, "options": {"token": PLANTED}}}, "cluster.gateway.options.token"),
        ({"gateway": {"workers": 1, "options": {"auth": f"Bearer {PLANTED}"}}}, "cluster.gateway.options.auth"),
    ],
)
def test_a_secret_is_refused_in_every_key_that_takes_text(tmp_path: Path, section: dict[str, Any], where: str) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"cluster": section}))
    for read in (lambda: read_job(job_file(tmp_path, cluster=section)), lambda: read_cluster(tmp_path / "c.yaml")):
        with pytest.raises(OptionError, match=where) as error:
            read()
        assert PLANTED not in str(error.value)
        assert "environment of dsel" in error.value.remedy


def test_text_may_name_variables_files_and_secrets_of_kubernetes(tmp_path: Path) -> None:
    prologue = ["export MY_TOKEN=$TOKEN", "source /site/credentials.sh", "module load tokenizer"]
    read_job(job_file(tmp_path, cluster={"slurm": {**SLURM, "prologue": prologue}}))
    pods = {**SLURM, "image": "dsel:1", "secrets": ["bucket-credentials"]}
    read_job(job_file(tmp_path, cluster={"kubernetes": pods}, include=["token=abc"]))


@pytest.mark.parametrize(
    "keys",
    [
        {"store": f"s3://me:{PLANTED}@bucket/data.zarr"},
        {"out": f"https://account.blob/x?sv=1&sig={PLANTED}"},
        {"options": {"held_out": f"s3://me:{PLANTED}@bucket/test.zarr"}},
        {"cluster": {"gateway": {"workers": 1, "options": {"data": f"s3://me:{PLANTED}@bucket"}}}},
    ],
)
def test_a_url_with_a_password_is_refused_and_not_repeated(tmp_path: Path, keys: dict[str, Any]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"store": "s", "k": 1, **keys}))
    with pytest.raises(OptionError, match="a password or a signature") as error:
        read_job(job)
    assert PLANTED not in str(error.value)
    job.write_text(yaml.safe_dump({"store": "s", "k": 1, "targets": ["a:b@c", "http://x/y?design=1"]}))
    read_job(job)


def test_nothing_in_a_source_is_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "exploded").touch, ())

    bombs = np.empty((3, 2), object)
    bombs[:] = Bomb()
    np.savez(tmp_path / "x.npz", X=bombs)
    np.save(tmp_path / "x.npy", bombs)
    for name in ("x.npz", "x.npy"):
        with pytest.raises((DselError, ValueError)):
            open_source(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


def test_the_code_reads_no_pickles_and_runs_no_text() -> None:
    risky = re.compile(
        r"pickle\.loads?\b|allow_pickle=True|import (cloud)?pickle|joblib\.load|yaml\.(unsafe_)?load\(|"
        r"\beval\(|\bexec\("
    )
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "dsel").rglob("*.py")
        if path.name != "process_pool.py"  # what it unpickles comes from the process that started it, by no file
        and path.name not in ("parcel.py",)  # what it unpickles comes from the client
        and path.parent.name != "testing"  # it opens what it has pickled itself
        and path.name != "pass_checkpoints.py"  # it only writes pickles, to digest them
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if risky.search(line)
    }
    assert found == set()
    assert "pickle.load" not in (ROOT / "dsel" / "passes" / "execution" / "pass_checkpoints.py").read_text()


@pytest.mark.parametrize("folder", ["slurm", "kubernetes"])
def test_nothing_that_operators_copy_contains_a_secret(folder: str) -> None:
    files = [path for path in (ROOT / "deploy" / folder).rglob("*") if path.is_file()]
    assert files
    for path in files:
        text = path.read_text()
        assert not re.search(r"(?i)(secret|password|token|access_?key)\w*\s*[:=]\s*[\"']?[A-Za-z0-9/+]{12,}", text), (
            path
        )
        assert "kind: Secret" not in text


#: It would set the title of the terminal, forge a line of a log or a job file, reverse the text, and run in a browser.
HOSTILE = "bad\x1b]0;title\x07\nout: /elsewhere\u202e<script>"


def test_no_command_prints_a_label_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ingest_arrays(X[:40, :3], "data.zarr", y=2 * X[:40, [0]], features=[HOSTILE, "b", "c"], targets=[HOSTILE])
    dsel.select("data.zarr", k=2, method="forward").save("result")
    subsamples = ("stability", "data.zarr", "--k", 1, "--samples", 4)
    for command in (
        ("info", "data.zarr"), ("info", "data.zarr", "--json"), ("init", "data.zarr", "--out", "job.yaml"),
        ("plan", "job.yaml"), ("plan", "job.yaml", "--k", 9), ("show", "result"), ("show", "result", "--details"),
        ("compare", "result", "result"), subsamples, ("predict", "result", "data.zarr", "predicted"),
    ):  # fmt: skip
        _, out, err = call(*command)
        assert (out + err).replace("\n", "").isprintable(), command
        assert "\nout: /elsewhere" not in out + err
    assert yaml.safe_load(Path("job.yaml").read_text())["out"] != "/elsewhere"
