"""How many requests a plan and a run send: one for each chunk that is read, and a number that does not grow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsel.data.ingest import ingest_arrays
from dsel.data.store.reader import open_store
from dsel.errors import DataError
from dsel.storage.paths import as_path
from pipelines.s3_faults import FaultProxy
from tests.cli_runner import call
from tests.cloud.conftest import forget_connections
from tests.stores import regression

X, Y = regression(m=1000, n=20)


@pytest.fixture
def store(url: str) -> str:
    """A store of 100 row blocks."""
    ingest_arrays(X, as_path(f"{url}/data.zarr"), y=Y, chunks=(10, 20))
    return f"{url}/data.zarr"


@pytest.fixture
def job(store: str, tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({"store": store, "k": 3, "method": "forward", "out": str(tmp_path / "out")}))
    return file


def requests(proxy: FaultProxy, *command: Any) -> list[str]:
    """Return the requests of a command: method and key below the bucket."""
    forget_connections()
    proxy.record.clear()
    code, out, err = call(*command)
    assert code == 0, out + err
    return [f"{r.method} {r.key.partition('/')[2]}" for r, _ in proxy.record]


def test_a_plan_and_a_run_request_nothing_per_chunk_but_the_chunk(proxy: FaultProxy, job: Path) -> None:
    sent = requests(proxy, "plan", job)
    trial = {f"GET data.zarr/{name}/c/{i}/0" for i in range(100) for name in "XY"}
    assert sum(request in trial for request in sent) <= 8
    other = Counter(request for request in sent if request not in trial)
    assert other.total() <= 12, other
    sent = requests(proxy, "run", job)
    chunks = [request for request in sent if request.startswith(("GET data.zarr/X/c/", "GET data.zarr/Y/c/"))]
    assert len(chunks) == 400  # X and Y, for the statistics and for the final check
    assert len(sent) <= len(chunks) + 50, Counter(sent) - Counter(chunks)


def test_a_chunk_lost_after_the_store_was_opened_is_named(store: str) -> None:
    opened = open_store(store)
    as_path(f"{store}/X/c/7/0").unlink()
    assert opened.x.read(60, 70).shape == (10, 20)
    with pytest.raises(DataError, match=r"Chunk \(7, 0\) of X .*rows 70 to 80\) is lost"):
        opened.x.read(65, 85)
    with pytest.raises(DataError, match="has lost 1 chunks: X/c/7/0"):
        open_store(store)
