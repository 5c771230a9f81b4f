"""A job with data, statistics, checkpoints and result in a bucket that fails; the job is killed repeatedly."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import dsel
from dsel.cli import app
from dsel.config.job import JobFile, read_job
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest, ingest_arrays
from dsel.data.store.reader import open_store
from dsel.errors import AccessError, MissingInputError, OptionError
from dsel.jobs.certify import ProofBudget
from dsel.jobs.certify_folder import certify_run
from dsel.jobs.locations import identity_of
from dsel.jobs.run_folder import RunFolder
from dsel.storage.object_store import ObjectPath
from dsel.storage.paths import as_path
from dsel.storage.retries import connection
from pipelines.s3_faults import KINDS, FaultProxy, Kind, Request, drawn
from tests.cli_runner import LIMIT, PLAIN, Forked, call
from tests.cloud.conftest import SECRETS

#: `dsel` whose job reads in its own process: starting a worker takes longer.
ALONE = f"from pytest import MonkeyPatch\nfrom tests.no_workers import run_here\nrun_here(MonkeyPatch())\n{PLAIN}"
ROUNDS, N = 12, 16
RNG = np.random.default_rng(8)
X = RNG.integers(-512, 512, size=(400, N)) / 256
Y = X[:, ::7].sum(axis=1) + RNG.integers(-512, 512, size=400) / 64


@dataclass
class Shell:
    """Runs commands and keeps their output. It may send a signal to one at a given request."""

    proxy: FaultProxy
    said: list[str] = field(default_factory=list)

    def run(self, program: str, *arguments: Any, cwd: Path | None = None) -> tuple[int | None, str]:
        process = Forked(program, *arguments, cwd=cwd)
        self.pid = process.pid
        out, err = process.communicate(LIMIT)
        self.said += [out, err]
        return process.returncode, out + err

    def call(self, *arguments: Any) -> tuple[int, str]:
        """Run a command in this process, without a signal."""
        code, out, err = call(*arguments)
        self.said += [out, err]
        return code, out + err

    def hit(self, number: signal.Signals, part: str, nth: int, done: bool, faults: int | None = None) -> None:
        """Send the signal at the nth PUT of a key that contains `part`, after it is `done` or instead of it."""
        others = drawn(faults, share=0.1) if faults is not None else lambda request: None
        count = 0

        def is_it(request: Request) -> bool:
            nonlocal count
            count += (counts := request.method == "PUT" and part in request.key)
            return counts and count == nth

        def rule(request: Request) -> Kind | None:
            if not done and is_it(request):
                os.kill(self.pid, number)
                return "dropped"
            return None if part in request.key else others(request)

        def after(request: Request) -> None:
            if is_it(request):
                os.kill(self.pid, number)

        self.proxy.rule, self.proxy.after = rule, after if done else None


@pytest.mark.slow
def test_no_round_is_computed_twice_after_any_kill(url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    shell = Shell(proxy)
    out = as_path(f"{url}/out")
    assert isinstance(out, ObjectPath)
    table = tmp_path / "table.csv"
    names = ",".join([*(f"c{j}" for j in range(N)), "y"])
    np.savetxt(table, np.column_stack([X, Y]), "%.17g", ",", header=names, comments="")
    as_path(f"{url}/table.csv").write_bytes(table.read_bytes())  # type: ignore[union-attr]
    ingestion = f"ingest('{url}/table.csv', '{url}/data.zarr', target=['y'], chunks=(50, {N}))"
    command = f"from dsel.data.ingest import ingest; {ingestion}"
    shell.hit(signal.SIGKILL, "data.zarr.ingesting/progress.json", 4, done=True, faults=1)
    assert shell.run(command)[0] == -signal.SIGKILL
    with pytest.raises(MissingInputError, match="was interrupted"):
        open_store(f"{url}/data.zarr")
    proxy.after = None
    code, said = shell.run(command)
    assert code == 0, said
    chunks = [request.key for request in proxy.done("PUT", "data.zarr/X/c/")]
    assert len(set(chunks)) == 8
    assert len(chunks) < 8 + 4  # it did not start from the beginning

    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({
        "store": f"{url}/data.zarr", "out": f"{url}/out", "k": ROUNDS, "method": "kfold", "options": {"folds": 5},
        "lam": 1.0, "cluster": {"local": {"workers": 1, "memory": "600MB"}},
    }))  # fmt: skip
    kills = (
        (signal.SIGKILL, "checkpoint.json", 1, True),
        (signal.SIGTERM, "checkpoint.json", 5, True),
        (signal.SIGKILL, "checkpoint.json", 5, False),
        (signal.SIGKILL, "selection.json", 1, False),
    )
    rounds = (1, 6, 10, 12)  # saved after each of them
    for (number, part, nth, done), reached in zip(kills, rounds, strict=True):
        shell.hit(number, part, nth, done, faults=reached)
        code, said = shell.run(ALONE, "run", job) if reached == 1 else shell.run(ALONE, "resume", out)
        assert code == (75 if number == signal.SIGTERM else -number), said
        proxy.rule, proxy.after = drawn(reached, share=0.1), None
        saved = json.loads((out / "checkpoint.json").read_bytes())
        assert len(saved["state"]["path"]) == reached
        with pytest.raises(MissingInputError, match=r"no selection\.json"):
            dsel.open_selection(f"{url}/out")
    code, said = shell.call("run", job)
    assert code == 0, said
    assert len(proxy.done("PUT", "checkpoint.json")) == ROUNDS  # no round was computed twice
    found = dsel.open_selection(f"{url}/out")
    assert found.counts["rounds_of_this_run"] == 0
    assert not (out / "checkpoint.json").is_file()
    assert len(set(proxy.faults()) & set(KINDS)) >= 4

    ingest(table, tmp_path / "data.zarr", target=["y"], chunks=(50, N))
    expected = dsel.select(tmp_path / "data.zarr", k=ROUNDS, method="kfold", folds=5, lam=1.0)
    assert found.path == expected.path  # to the last bit
    assert found.error == expected.error
    assert found.indices == expected.indices
    assert found.coefficients.tobytes() == expected.coefficients.tobytes()
    shown = CliRunner().invoke(app, ["show", f"{url}/out"])
    assert f"{found.r2:.4%}" in shown.output
    log = (out / "run.log").read_text()
    assert log.count(", process ") == 5  # each run said where it works, also those that were killed at once
    assert "result in" in log

    bucket = connection(out.scheme, out.bucket)
    objects = {meta["path"]: bytes(bucket.get(meta["path"]).bytes()) for meta in bucket.list().collect()}
    assert len(objects) > 20
    for secret in SECRETS.values():
        assert not [key for key, data in objects.items() if secret.encode() in data]
        assert not [text for text in shell.said if secret in text]


def test_a_result_in_a_bucket_is_certified(url: str) -> None:
    store, out = f"{url}/data.zarr", as_path(f"{url}/out")
    ingest_arrays(X[:60, :14], store, y=Y[:60])
    job = JobFile(store=store, k=3, method="forward", out=out)
    RunFolder(out).claim(job, identity_of(job, as_dataset(store)))
    dsel.select(store, k=3, method="forward").save(out)
    found = certify_run(out, ProofBudget(seconds=6000.0))
    assert found.certificate[-1]["proven"]
    assert dsel.open_selection(out).certificate == found.certificate
    assert (out / "proof.json").is_file()


OWN = """
def score(S, data):
    return float(abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).mean())
"""


@pytest.mark.slow
def test_a_search_on_workers_writes_journal_and_objective_to_the_bucket(
    url: str, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell, store, out = Shell(proxy), f"{url}/data.zarr", as_path(f"{url}/out")
    x, y = X[:200, :12], X[:200, :3].sum(axis=1)
    ingest_arrays(x, store, y=y, chunks=(100, 12))
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job = tmp_path / "job.yaml"
    keys = {"store": store, "k": 3, "seed": 5, "cluster": {"local": {"workers": 1, "memory": "600MB"}}}
    settings = {"processors": 8, "iterations": 640}
    job.write_text(yaml.safe_dump({
        **keys, "out": str(out), "method": "pposs", "criterion": "own:score", "options": settings,
        "checkpoint_evaluations": 50,
    }))  # fmt: skip
    shell.hit(signal.SIGTERM, "checkpoint.json", 2, done=True, faults=3)
    assert shell.run(PLAIN, "run", job, cwd=tmp_path)[0] == 75
    proxy.rule, proxy.after = drawn(4, share=0.05), None
    code, said = shell.call("resume", out)
    assert code == 0, said
    found = dsel.open_selection(out)
    scope: dict[str, Any] = {}
    exec(OWN, scope)
    expected = dsel.select(store, k=3, method="pposs", criterion=scope["score"], seed=5, **settings)
    assert (found.indices, found.front, found.criterion) == (expected.indices, expected.front, expected.criterion)
    events = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events if e["event"] in ("started", "resumed", "ended")] == [
        "started", "resumed", "ended",
    ]  # fmt: skip
    values = [tuple(S) for e in events if e["event"] == "merged" for S, _ in e["found"]]
    assert found.counts["evaluated"] == expected.counts["evaluated"]
    assert len(set(values)) >= expected.counts["evaluated"]

    sliced = f"{url}/sliced"
    job.write_text(yaml.safe_dump(
        {**keys, "out": sliced, "method": "pposs-asy", "options": {"iterations": 2000}}
    ))  # fmt: skip
    code, said = shell.call("run", job)
    assert code == 0, said
    assert sorted(dsel.open_selection(sliced).indices) == [0, 1, 2]
    assert len(proxy.done("PUT", "sliced/objective-")) == 1
    assert not [name for name in as_path(sliced).list_names() if name.startswith("objective-")]  # type: ignore[union-attr]
    assert not list(tmp_path.glob("dsel-journal-*"))


class TestAJobFile:
    def write(self, folder: Path, **keys: Any) -> Path:
        (path := folder / "job.yaml").write_text(yaml.safe_dump({"store": "s3://b/x.zarr", "k": 3, **keys}))
        return path

    def test_urls_are_kept_and_paths_are_relative_to_its_folder(self, tmp_path: Path) -> None:
        job = read_job(
            self.write(tmp_path, statistics_folder="gs://c/a", options={"held_out": "az://d/h.zarr"}, method="kfold")
        )
        assert (str(job.store), str(job.statistics_folder)) == ("s3://b/x.zarr", "gs://c/a")
        assert job.options["held_out"] == "az://d/h.zarr"
        assert job.out == tmp_path / "job.result"
        assert read_job(self.write(tmp_path), as_path("s3://b/out")).model_dump(mode="json")["out"] == "s3://b/out"

    def test_secrets_in_it_are_refused_and_not_repeated(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="environment") as caught:
            read_job(self.write(tmp_path, out="s3://AKIA:geheim@b/out"))
        assert "geheim" not in str(caught.value)

    def test_what_is_refused_ends_with_its_exit_code(self, url: str, proxy: FaultProxy) -> None:
        proxy.rule = lambda request: "403"
        for command in (["info", f"{url}/x"], ["show", f"{url}/x"], ["resume", f"{url}/x"]):
            found = CliRunner().invoke(app, command)
            assert isinstance(found.exception, AccessError)
