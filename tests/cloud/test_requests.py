"""How many requests a plan and a run send: one for each chunk that is read, and a number that does not grow."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml
import zarr

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.ingest import ingest_arrays
from dsel.data.store import array
from dsel.data.store.reader import open_store
from dsel.errors import DataError
from dsel.jobs import status
from dsel.passes.execution import pass_checkpoints
from dsel.storage import locks, log_handler
from dsel.storage.paths import as_path, open_for_writing, zarr_store
from pipelines.s3_faults import FaultProxy
from tests.cli_runner import call
from tests.cloud.conftest import forget_connections
from tests.stores import regression

X, Y = regression(m=400, n=20)


@pytest.fixture
def store(url: str) -> str:
    """A store of 40 row blocks."""
    ingest_arrays(X, as_path(f"{url}/data.zarr"), y=Y, chunks=(10, 20))
    return f"{url}/data.zarr"


@pytest.fixture
def job(store: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job with its result in the bucket. What it writes from time to time, it writes once here."""
    for module, name in (
        (locks, "BEAT_SECONDS"), (status, "OBJECT_BEAT_SECONDS"), (log_handler, "UPLOAD_SECONDS"),
        (array, "TAG_SECONDS"), (pass_checkpoints, "_SHORT_OBJECT_SECONDS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 3600.0)
    file = tmp_path / "job.yaml"
    values: dict[str, Any] = {"store": store, "k": 3, "method": "forward", "out": f"{url}/out"}
    values |= {"checkpoint_seconds": 3600, "cluster": {"local": {"workers": 1, "memory": "600MB"}}}
    file.write_text(yaml.safe_dump(values))
    return file


def requests(proxy: FaultProxy, *command: Any) -> list[str]:
    """Return the requests of a command: method and key below the bucket."""
    forget_connections()
    proxy.record.clear()
    code, out, err = call(*command)
    assert code == 0, out + err
    return [f"{r.method} {r.key.partition('/')[2]}" for r, _ in proxy.record]


@pytest.mark.slow
def test_a_plan_and_a_run_request_nothing_per_chunk_but_the_chunk(proxy: FaultProxy, job: Path) -> None:
    sent = requests(proxy, "plan", job)
    trial = {f"GET data.zarr/{name}/c/{i}/0" for i in range(40) for name in "XY"}
    assert any(request in trial for request in sent)
    assert len(sent) <= 10, sent
    sent = requests(proxy, "run", job)
    chunks = [request for request in sent if request.startswith(("GET data.zarr/X/c/", "GET data.zarr/Y/c/"))]
    assert len(chunks) == 160  # X and Y, for the statistics and for the final check
    arrays = [request for request in sent if "out/selection-" in request]
    assert len(arrays) == len(set(arrays)) <= 30  # each file of the result is written once, and none is asked for
    assert all(request.startswith("PUT ") for request in arrays)
    assert len(sent) <= len(chunks) + len(arrays) + 34, Counter(sent) - Counter(chunks)


def test_a_result_in_a_bucket_is_opened_by_zarr_and_xarray(url: str) -> None:
    selection = dsel.select(X, Y, k=3)
    selection.save(f"{url}/out")
    name = json.loads((as_path(f"{url}/out") / "selection.json").read_text())["arrays"]
    place = zarr_store(as_path(f"{url}/out") / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(xr.open_zarr(place)["coefficients"], selection.coefficients)
    np.testing.assert_array_equal(zarr.open_group(place, mode="r")["indices"], selection.indices)
    assert dsel.open_selection(f"{url}/out") == selection


def test_a_chunk_lost_after_the_store_was_opened_is_named(store: str) -> None:
    opened = open_store(store)
    as_path(f"{store}/X/c/7/0").unlink()
    assert opened.x.read(60, 70).shape == (10, 20)
    with pytest.raises(DataError, match=r"Chunk \(7, 0\) of X .*rows 70 to 79\) is lost"):
        opened.x.read(65, 85)
    with pytest.raises(DataError, match="has lost 1 chunk: X/c/7/0"):
        open_store(store)


def test_a_small_object_is_read_by_one_request_after_its_size(url: str, proxy: FaultProxy) -> None:
    file = as_path(f"{url}/arrays.npz")
    with open_for_writing(file) as out:
        np.savez(out, a=np.arange(3), b=np.eye(2))
    proxy.record.clear()
    with file.open("rb") as stream, np.load(stream) as arrays:
        assert arrays["a"].tolist() == [0, 1, 2]
        assert arrays["b"].tolist() == [[1, 0], [0, 1]]
    assert [request.method for request, _ in proxy.record] == ["HEAD", "GET"]


def test_a_lock_that_is_held_is_confirmed_by_a_listing_and_its_file(
    url: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "BEAT_SECONDS", 3600.0)
    with locks.locked(as_path(f"{url}/out"), "run") as lock:
        proxy.record.clear()
        lock.require()
        assert len(proxy.record) == 2


def test_an_unchanged_icechunk_snapshot_takes_one_request_after_the_first_use(proxy: FaultProxy, url: str) -> None:
    icechunk = pytest.importorskip("icechunk")
    bucket = url.removeprefix("s3://")
    storage = icechunk.s3_storage(
        bucket=bucket, prefix="data", endpoint_url=f"http://127.0.0.1:{proxy.port}", force_path_style=True,
        allow_http=True, from_env=True, region="us-east-1",
    )  # fmt: skip
    repository = icechunk.Repository.create(storage)
    session = repository.writable_session("main")
    X = np.random.default_rng(0).normal(size=(60, 4))
    xr.Dataset({"X": (("sample", "feature"), X)}).to_zarr(session.store, consolidated=False)
    session.commit("first")
    place = f"icechunk://{url}/data"
    counts, fingerprints = [], []
    for _ in range(3):
        before = len(proxy.record)
        fingerprints.append(as_dataset(place).fingerprint)
        counts.append(len(proxy.record) - before)
    assert counts[0] <= 5
    assert counts[1:] == [1, 1]
    assert len(set(fingerprints)) == 1
    later = repository.writable_session("main")
    xr.Dataset({"X": (("sample", "feature"), -X)}).to_zarr(later.store, consolidated=False, mode="a")
    later.commit("second")
    assert as_dataset(place).fingerprint not in fingerprints
