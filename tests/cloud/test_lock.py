"""The lock in a bucket: one of several contenders takes it, even if answers get lost."""

from __future__ import annotations

import time

import pytest

from dsel.errors import OutputError
from dsel.storage import locks as module
from dsel.storage.locks import locked
from dsel.storage.paths import ObjectPath, as_path
from pipelines.s3_faults import FaultProxy, Kind
from tests.storage.contenders import winners


@pytest.fixture
def folder(url: str) -> ObjectPath:
    found = as_path(f"{url}/out")
    assert isinstance(found, ObjectPath)
    return found


@pytest.mark.parametrize("left", [None, b"", b'{"run": "first", "host": "elsewhere"}'])
def test_of_several_contenders_one_gets_it(
    folder: ObjectPath, left: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is new, or an earlier release has freed it, or its owner is dead."""
    if left is not None:
        (folder / ".lock").write_bytes(left)
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(module, "SILENCE_SECONDS", 0.6)
    assert len(winners(folder, 6)) == 1


@pytest.mark.parametrize("kind", ["500", "reset", "reset-after"])
def test_a_lost_answer_is_not_another_run(folder: ObjectPath, proxy: FaultProxy, kind: Kind) -> None:
    proxy.rule = lambda r: kind if r.method == "PUT" and r.times % 2 == 0 else None
    assert (folder / ".lock").create(b"mine")
    assert not (folder / ".lock").create(b"another")
    (folder / ".lock").unlink()
    assert (folder / ".lock").create(b"another")


def test_a_second_run_is_refused_and_a_silent_one_is_taken_over(
    folder: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(module, "SILENCE_SECONDS", 0.6)
    with locked(folder, "first") as first:
        with pytest.raises(OutputError, match="Another run is writing"), locked(folder, "second"):
            pytest.fail("both hold it")
        first.require()
        first._stopped.set()  # its heart stops
        first._thread.join()
        monkeypatch.setattr(module, "machine", lambda: "another machine")
        began = time.monotonic()
        with locked(folder, "third") as third:
            assert time.monotonic() - began >= 0.6
            with pytest.raises(OutputError, match="lost its lock"):
                first.require()
            third.require()
    assert (folder / ".lock-1").read_bytes() == b"free"
