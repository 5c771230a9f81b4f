"""A server that does not answer: the log does not wait for it, and a job ends with its exit code."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
import yaml

from dsel.data.ingest import ingest_arrays
from dsel.jobs import status
from dsel.storage import locks, log_handler, retries
from dsel.storage.log_handler import log_handler as handler_of
from dsel.storage.object_store import ObjectPath
from dsel.storage.paths import as_path
from pipelines.s3_faults import FaultProxy, Request
from tests.cli_runner import LIMIT, call
from tests.cloud.conftest import forget_connections
from tests.no_workers import run_here
from tests.stores import regression

X, Y = regression(m=60, n=20)


@pytest.fixture
def answers() -> Iterator[Event]:
    """Requests that hang are answered once it is set."""
    event = Event()
    yield event
    event.set()


def test_lines_of_a_log_do_not_wait_for_its_upload(url: str, proxy: FaultProxy, answers: Event) -> None:
    begun, uploaded = Event(), []

    def hang(request: Request) -> None:
        begun.set()
        answers.wait(LIMIT)
        uploaded.append(request)

    proxy.after = hang
    handler = handler_of(as_path(f"{url}/run.log"), is_new=True)
    handler.handle(logging.makeLogRecord({"msg": "first"}))
    assert begun.wait(LIMIT)
    handler.handle(logging.makeLogRecord({"msg": "second"}))
    assert not uploaded
    answers.set()
    handler.close()
    assert as_path(f"{url}/run.log").read_text() == "first\nsecond\n"


def test_a_job_whose_server_hangs_ends_with_74_and_waits_for_it_once(
    url: str, proxy: FaultProxy, answers: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_arrays(X, as_path(f"{url}/data.zarr"), y=Y)
    for module, name in (
        (locks, "BEAT_SECONDS"), (status, "OBJECT_BEAT_SECONDS"), (log_handler, "UPLOAD_SECONDS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 3600.0)
    run_here(monkeypatch)
    hanging: list[str] = []
    write = ObjectPath.write_bytes

    def soon_impatient(path: ObjectPath, data: bytes) -> None:
        if path.key == "out/selection.json":  # requests before this one are answered, however busy the machine is
            monkeypatch.setattr(retries, "READ_TIMEOUT", timedelta(seconds=0.1))
            monkeypatch.setattr(retries, "HURRIED_TIMEOUT", timedelta(seconds=0.2))
            forget_connections()
        write(path, data)

    def arrived(request: Request) -> None:
        key = request.key.partition("?")[0].partition("/")[2]
        if hanging or key == "out/selection.json":
            hanging.append(f"{request.method} {key}")

    def hang(request: Request) -> None:
        if hanging:
            answers.wait(LIMIT)

    monkeypatch.setattr(ObjectPath, "write_bytes", soon_impatient)
    proxy.rule, proxy.after = arrived, hang
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({"store": f"{url}/data.zarr", "k": 2, "method": "forward", "out": f"{url}/out"})
    )
    code, _, err = call("run", tmp_path / "job.yaml")
    assert code == 74, err
    assert "does not answer correctly: no answer in time" in err
    sent = Counter(hanging)
    assert 1 < sent.pop("PUT out/selection.json") <= 9
    assert set(sent.values()) <= {1}, sent  # the end of the log, and the lock
