"""Damaged files in the folder of a job: a result is refused by name, and what can be computed again is."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dsel
from dsel.config.job import read_job
from dsel.data.as_dataset import as_dataset
from dsel.jobs.locations import identity_of
from dsel.jobs.run_folder import RunFolder
from dsel.objective.objective_on_workers import save_objective
from dsel.search.journal import Journal, journalled_values
from dsel.storage.json_files import read_json, write_json
from tests.cli_runner import call
from tests.search.cases import random_data, regression
from tests.stores import make_store
from tests.stores import regression as data

pytestmark = pytest.mark.usefixtures("no_workers")

X, Y = data(m=200, n=18)
CHUNK = "selection.zarr/coefficients/c/0/0"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    make_store(tmp_path / "data.zarr", X, Y)
    file = tmp_path / "job.yaml"
    store, out, sums = (str(tmp_path / name) for name in ("data.zarr", "out", "saved"))
    keys = {"store": store, "out": out, "statistics_folder": sums}
    cluster = {"local": {"workers": 1, "memory": "600MB"}}
    certify = {"time": "10m", "log": True}
    file.write_text(yaml.safe_dump({**keys, "k": 3, "method": "forward", "cluster": cluster, "certify": certify}))
    return file


@pytest.fixture
def out(job: Path) -> Path:
    code, _, err = call("run", job)
    assert code == 0, err
    return job.parent / "out"


def flip(file: Path, position: int) -> None:
    changed = bytearray(file.read_bytes())
    changed[position] ^= 1
    file.write_bytes(changed)


def test_every_command_names_a_lost_chunk_of_the_result_and_the_job_makes_it_again(job: Path, out: Path) -> None:
    whole, store = dsel.open_selection(out), str(job.parent / "data.zarr")
    (out / CHUNK).unlink()
    for command in (
        ("show", out), ("export", out), ("predict", out, store, job.parent / "p.zarr"), ("compare", out, out),
        ("report", out, "--out", job.parent / "r.html"), ("verify", out), ("certify", out),
    ):  # fmt: skip
        code, _, err = call(*command)
        assert code == 65, command
        assert CHUNK in err
        assert f"dsel resume {out}" in err
    code, _, err = call("run", job)
    assert code == 0, err
    assert err.count(CHUNK) == 1
    again = dsel.open_selection(out)
    assert (again.indices, again.error) == (whole.indices, whole.error)
    np.testing.assert_array_equal(again.coefficients, whole.coefficients)


def test_a_damaged_description_of_the_job_is_named(out: Path) -> None:
    text = (out / "job.json").read_text()
    (out / "job.json").write_text(text.replace('"k": 3', '"k": 2'))
    for command in ("resume", "certify", "verify"):
        code, _, err = call(command, out)
        assert code == 65, err
        assert "job.json is damaged" in err
        assert "dsel run" in err


def test_a_lost_file_of_a_proof_log_starts_the_proof_again(out: Path) -> None:
    log = next(out.glob("proof-log-*"))
    (log / "000000.npz").unlink()
    code, text, _ = call("verify", out)
    assert code == 1
    assert "certify with a log again" in text
    code, _, err = call("certify", out, "--log", "--time", "10m")
    assert code == 0, err
    assert err.count("the proof starts again") == 1
    assert call("verify", out)[0] == 0


def test_a_flipped_key_of_a_checkpoint_loses_the_checkpoint_alone(job: Path) -> None:
    asked = read_job(job)
    identity = identity_of(asked, as_dataset(str(asked.store)))
    folder = RunFolder(job.parent / "out")
    folder.path.mkdir()
    folder.write_checkpoint(identity, {"iteration": 3})
    assert folder.read_checkpoint(identity) == {"iteration": 3}
    folder.checkpoint.write_text(folder.checkpoint.read_text().replace("iteration", "iteratiom"))
    assert folder.read_checkpoint(identity) is None


def test_json_files_of_older_versions_have_no_digest_and_are_read(tmp_path: Path) -> None:
    write_json(tmp_path / "new.json", {"a": [1.5, None]})
    (tmp_path / "old.json").write_text('{"a": [1.5, null]}')
    assert read_json(tmp_path / "new.json") == read_json(tmp_path / "old.json") == {"a": [1.5, None]}


def test_a_journal_forgets_a_value_that_was_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("merged", key="a", found=[[[1], 3.5]])
    journal.write("merged", key="b", found=[[[2], 4.5]])
    journal.close()
    path.write_text(path.read_text().replace("3.5", "3.4"))
    assert journalled_values(path) == {(2,): 4.5}
    assert caplog.text.count("is damaged") == 1


def test_a_damaged_objective_of_a_killed_run_is_written_again(tmp_path: Path) -> None:
    objective = regression(*random_data(1, m=30, n=6))
    place = save_objective(objective, tmp_path).place
    assert isinstance(place, Path)
    whole, moment = place.read_bytes(), place.stat().st_mtime_ns
    save_objective(objective, tmp_path)
    assert place.stat().st_mtime_ns == moment  # a whole one stays
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], _with_other_numbers(whole)):
        place.write_bytes(damaged)
        np.testing.assert_array_equal(save_objective(objective, tmp_path).load().K, objective.K)
        assert place.read_bytes() == whole


def _with_other_numbers(whole: bytes) -> bytes:
    arrays: dict[str, Any] = dict(np.load(io.BytesIO(whole)))
    out = io.BytesIO()
    np.savez(out, **{**arrays, "K": 2.0 * arrays["K"]})
    return out.getvalue()


def test_a_damaged_gram_cache_is_read_again_from_the_data_with_one_warning(job: Path, out: Path) -> None:
    before = dsel.open_selection(out)
    for file in (job.parent / "saved").rglob("*.npz"):
        flip(file, len(file.read_bytes()) // 2)
    os.remove(out / "selection.json")
    code, _, err = call("run", job)
    assert code == 0, err
    assert err.count("is damaged") == 1
    assert dsel.open_selection(out).error == before.error


def test_a_damaged_pointer_to_a_proof_starts_it_again(out: Path) -> None:
    proof = json.loads((out / "proof.json").read_text())
    (out / "proof.json").write_text(json.dumps({**proof, "log": 7}))
    next(out.glob("proof-log-*/manifest.json")).unlink()  # else the proof is finished, with its log
    code, _, err = call("certify", out, "--log", "--time", "10m")
    assert code == 0, err
    assert err.count("the proof starts again") == 1
