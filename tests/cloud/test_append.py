"""A store in a bucket grows: its readers see the old rows or all, whichever write is the last that succeeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import dsel
from dsel.data.store.array import StoredArray
from dsel.data.store.reader import open_store
from dsel.data.store.staging import ObjectStaging
from dsel.errors import AccessError
from dsel.jobs.run_folder import RunFolders
from dsel.selection.changes.runs import read_history, run_names
from dsel.storage.paths import as_path, latest_name, walk
from pipelines.s3_faults import FaultProxy, drawn
from tests.cloud.test_publication import writes_through
from tests.jobs.test_series import NOWHERE, Job, answer, from_the_beginning, night
from tests.no_workers import run_here

M, NIGHTS = 37, 6
X = np.random.default_rng(7).normal(size=(M, 5))
Y = X[:, 1] + 1.0


def write_rows(file: Path, start: int, stop: int) -> Path:
    np.savez(file, X=X[start:stop], Y=Y[start:stop])
    return file


def rows_seen(store: str) -> int:
    found = open_store(store)
    m = found.shape[0]
    np.testing.assert_array_equal(found.x.read(0, m), X[:m])
    assert found.y is not None
    np.testing.assert_array_equal(found.y.read(0, m)[:, 0], Y[:m])
    return m


def test_rows_are_appended_to_a_store_whose_ingest_was_killed_at_its_end(url: str, tmp_path: Path) -> None:
    def killed(self: ObjectStaging) -> None:
        raise KeyboardInterrupt

    store, first = f"{url}/s.zarr", write_rows(tmp_path / "0.npz", 0, 10)
    with patch.object(ObjectStaging, "forget", killed), pytest.raises(KeyboardInterrupt):
        dsel.ingest(first, store, chunks=(8, 3))
    left = as_path(f"{store}.ingesting")
    assert (left / "progress.json").is_file()
    dsel.append(write_rows(tmp_path / "1.npz", 10, M), store)
    assert rows_seen(store) == M
    assert not left.exists()


def test_an_append_that_ends_at_any_write_leaves_the_old_rows_and_continues(
    url: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    store, new = f"{url}/s.zarr", write_rows(tmp_path / "1.npz", 10, M)
    dsel.ingest(write_rows(tmp_path / "0.npz", 0, 10), store, chunks=(8, 3))
    seen, allowed = [], 0
    while True:
        proxy.rule = writes_through(allowed)
        try:
            dsel.append(new, store)
        except AccessError:
            proxy.reset()
            seen.append(rows_seen(store))
            allowed += 2
        else:
            proxy.reset()
            break
    assert set(seen) <= {10, M}
    assert seen[0] == 10
    assert len(seen) > 3
    assert rows_seen(store) == M
    dsel.ingest(write_rows(tmp_path / "all.npz", 0, M), f"{url}/all.zarr", chunks=(8, 3))
    one, other = as_path(store), as_path(f"{url}/all.zarr")
    assert {e.key: (one / e.key).read_bytes() for e in walk(one) if e.key != "zarr.json"} == {
        e.key: (other / e.key).read_bytes() for e in walk(other) if e.key != "zarr.json"
    }


def test_a_process_that_has_read_the_store_reads_the_new_rows_at_once(url: str, tmp_path: Path) -> None:
    store = f"{url}/s.zarr"
    dsel.ingest(write_rows(tmp_path / "0.npz", 0, 10), store, chunks=(8, 3))
    assert rows_seen(store) == 10
    dsel.append(write_rows(tmp_path / "1.npz", 10, 12), store)
    assert StoredArray(store, "X").read(0, 12).shape == (12, 5)
    assert rows_seen(store) == 12


@pytest.mark.slow
def test_nights_in_a_bucket_give_what_runs_from_the_beginning_give(
    url: str, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(monkeypatch)
    job, rng = Job(url, NOWHERE), random.Random(3)
    dsel.ingest(night(0, 100), job.store, target="y", chunk_rows=40)
    interrupted = 0

    def attempt(allowed: int, work: Callable[[], Any]) -> bool:
        nonlocal interrupted
        proxy.rule = writes_through(allowed)
        try:
            work()
        except AccessError:
            interrupted += 1
            return False
        finally:
            proxy.reset()
        return True

    for number in range(1, NIGHTS + 1):
        file = tmp_path / f"{number}.csv"
        night(number, 5 + number % 7).to_csv(file, index=False)
        if number % 2 == 0:
            attempt(rng.randrange(12), lambda: dsel.append(file, job.store))  # noqa: B023
        dsel.append(file, job.store)
        if number % (NIGHTS // 3):
            continue
        name = RunFolders(job.runs).latest()
        expected = from_the_beginning(job.store, None if name is None else job.runs / name)
        attempt(rng.randrange(25), lambda: job.run(keep=2))
        proxy.rule = drawn(number, share=0.05)
        found = job.run(keep=2)
        proxy.reset()
        assert answer(found) == answer(expected)
        assert dsel.open_selection(f"{url}/runs/latest") == found == dsel.open_selection(f"{url}/runs")
    assert len(open_store(job.store).segments) == NIGHTS + 1
    assert interrupted > 2
    assert len(read_history(job.runs)) == 2
    assert latest_name(job.runs) == run_names(job.runs)[-1]
    assert (job.runs / "latest").is_file()
    assert len(run_names(job.runs)) == 2
