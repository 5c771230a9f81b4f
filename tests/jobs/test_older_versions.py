"""What earlier versions saved still works: stores, results, proofs, their logs, statistics and interrupted runs.

`tests/data/older_version.py` says what the archives hold and how one is written. That of version 0.1 has no proof log.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
import zarr

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.errors import DataError
from tests.cli_runner import call

pytestmark = pytest.mark.usefixtures("no_workers")

DATA = Path(__file__).parents[1] / "data"
VERSIONS = ("v0_1", "v0_2")


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The archive, with the paths and the fingerprint that a store has here."""
    with tarfile.open(DATA / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    fingerprint = as_dataset(str(tmp_path / "data.zarr")).fingerprint
    assert fingerprint is not None
    old = json.loads((tmp_path / "finished" / "job.json").read_text())["identity"]["fingerprint"]
    for path in tmp_path.rglob("*.json"):
        text = path.read_text()
        path.write_text(text.replace("/tmp/compat", str(tmp_path)).replace(old, fingerprint))
    return tmp_path


def test_a_result_opens_is_shown_and_predicts(folder: Path) -> None:
    selection = dsel.open_selection(folder / "finished")
    assert (selection.k, selection.method, len(selection)) == (3, "poss", 3)
    assert selection.source.endswith("data.zarr")
    code, out, err = call("show", folder / "finished")
    assert code == 0, err
    assert "Certificate" in out
    store = zarr.open_group(folder / "data.zarr", mode="r")
    columns, target = np.asarray(store["X"]), np.asarray(store["Y"])
    left = target - np.asarray(selection.predict(columns)).reshape(target.shape)
    assert np.sum(left**2) == pytest.approx(np.sum((target - target.mean(0)) ** 2) * (1.0 - selection.r2))


def test_a_finished_job_is_not_run_again(folder: Path) -> None:
    code, _, err = call("run", folder / "job.yaml")
    assert code == 0, err
    assert "nothing to do" in err


def test_a_proof_continues(folder: Path) -> None:
    saved = folder / "finished" / "selection.json"
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "certificate": []}))  # a finished one is not repeated
    code, out, err = call("certify", folder / "finished", "--time", "1h")
    assert code == 0, err
    assert re.search(r"continuing the proof in|the proof in .* is complete", err)
    assert "proved optimal" in out


def test_an_interrupted_search_starts_again_with_a_message_and_finds_the_same_subsets(folder: Path) -> None:
    code, _, err = call("resume", folder / "interrupted")
    assert code == 0, err
    assert "the search starts again: its checkpoint is of another version" in err
    calm = json.loads((folder / "calm.json").read_text())
    resumed = json.loads((folder / "interrupted" / "selection.json").read_text())
    assert resumed["indices"] == calm["indices"]
    assert resumed["error"] == pytest.approx(calm["error"], rel=1e-12)
    assert [row["indices"] for row in resumed["front"]] == [row["indices"] for row in calm["front"]]
    errors = [row["error"] for row in calm["front"]]
    assert [row["error"] for row in resumed["front"]] == pytest.approx(errors, rel=1e-12)


@pytest.mark.parametrize("folder", VERSIONS[1:], indirect=True)
def test_a_proof_log_is_checked(folder: Path) -> None:
    code, out, err = call("verify", folder / "finished")
    assert code == 0, out + err


@pytest.mark.parametrize("name", ["coefficients/c/0/0", "intercept/c/0", "indices/c/0", "front_error/c/0"])
def test_a_lost_chunk_of_an_old_result_is_noticed(folder: Path, name: str) -> None:
    (folder / "finished" / "selection.zarr" / name).unlink()
    with pytest.raises(DataError, match=name.partition("/")[0]):
        dsel.open_selection(folder / "finished")
