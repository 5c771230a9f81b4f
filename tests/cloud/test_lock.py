"""The lock file in a bucket: one of many takes it, whatever answers get lost."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from dsel.errors import OutputError
from dsel.storage import locks as lock
from dsel.storage.bucket_lock import BucketLockFile
from dsel.storage.locks import locked
from dsel.storage.paths import Remote, as_place
from tests.cloud.faults import FaultProxy, Kind


@pytest.fixture
def folder(url: str) -> Remote:
    found = as_place(f"{url}/out")
    assert isinstance(found, Remote)
    return found


def test_of_many_that_create_it_or_take_it_over_one_succeeds(folder: Remote) -> None:
    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(lambda i: BucketLockFile(folder).create(f"run {i}"), range(6))) == 1
        files = [BucketLockFile(folder) for _ in range(6)]
        dead = {file.read() for file in files}
        assert len(dead) == 1

        def take_over(i: int) -> bool:
            files[i].remove()
            return files[i].create(f"new {i}")

        assert sum(pool.map(take_over, range(6))) == 1
    assert str(files[0].read()).startswith("new")


@pytest.mark.parametrize("kind", ["500", "reset", "reset-after"])
def test_a_lost_answer_is_not_another_run(folder: Remote, proxy: FaultProxy, kind: Kind) -> None:
    proxy.rule = lambda r: kind if r.method == "PUT" and r.times % 2 == 0 else None
    file = BucketLockFile(folder)
    assert file.create("mine")
    file.replace("mine 2")
    assert not BucketLockFile(folder).create("other")
    file.remove()
    assert file.read() is None
    assert BucketLockFile(folder).create("other")
    with pytest.raises(OutputError, match="taken over"):
        file.replace("mine 3")


def test_a_second_run_is_refused_and_a_silent_one_is_taken_over(
    folder: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(lock, "SILENCE_SECONDS", 0.6)
    with locked(BucketLockFile(folder), "first", str(folder)) as first:
        with pytest.raises(OutputError, match="Another run is writing"), locked(BucketLockFile(folder), "2", "it"):
            pytest.fail("both hold it")
        first.require()
        first._over.set()  # its heart stops
        first._thread.join()
        monkeypatch.setattr(lock, "_host", lambda: "another machine")
        began = time.monotonic()
        with locked(BucketLockFile(folder), "third", str(folder)) as third:
            assert time.monotonic() - began >= 0.6
            with pytest.raises(OutputError, match="lost its hold"):
                first.require()
            third.require()
    assert BucketLockFile(folder).read() is None
