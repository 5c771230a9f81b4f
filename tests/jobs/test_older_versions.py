"""What version 0.1 saved still opens: results, proofs, statistics and interrupted runs.

`tests/data/v0_1.tar.gz` has a store, its statistics, a finished and certified job, an interrupted job, and in
`calm.json` the result of the second job without an interruption.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

import dsel
from dsel.data.dataset import as_dataset
from tests.cli_runner import call

ARCHIVE = Path(__file__).parents[1] / "data" / "v0_1.tar.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The archive, with the paths and the fingerprint that a store has here."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    fingerprint = as_dataset(str(tmp_path / "data.zarr")).fingerprint
    assert fingerprint is not None
    old = json.loads((tmp_path / "finished" / "job.json").read_text())["identity"]["fingerprint"]
    for path in tmp_path.rglob("*.json"):
        text = path.read_text()
        path.write_text(text.replace("/tmp/compat", str(tmp_path)).replace(old, fingerprint))
    return tmp_path


def test_a_result_opens_and_is_shown(folder: Path) -> None:
    selection = dsel.open_selection(folder / "finished")
    assert (selection.k, selection.method, len(selection)) == (3, "poss", 3)
    assert selection.source.endswith("data.zarr")
    code, out, err = call("show", folder / "finished")
    assert code == 0, err
    assert "Certificate" in out


def test_a_finished_job_is_not_run_again(folder: Path) -> None:
    code, _, err = call("run", folder / "job.yaml")
    assert code == 0, err
    assert "nothing to do" in err


def test_a_proof_continues(folder: Path) -> None:
    code, out, err = call("certify", folder / "finished", "--time", "1h")
    assert code == 0, err
    assert "continuing the proof in" in err
    assert "proved optimal" in out


def test_an_interrupted_search_starts_again_with_a_message_and_finds_the_same_subsets(folder: Path) -> None:
    code, _, err = call("resume", folder / "interrupted")
    assert code == 0, err
    assert "the search starts again: its checkpoint is of another version" in err
    calm = json.loads((folder / "calm.json").read_text())
    found = json.loads((folder / "interrupted" / "selection.json").read_text())
    assert found["indices"] == calm["indices"]
    assert found["error"] == pytest.approx(calm["error"])
    assert [point["indices"] for point in found["front"]] == [point["indices"] for point in calm["front"]]
