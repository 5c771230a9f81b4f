"""Storms over object storage and stopped processes do what they say, and stop doing it."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipelines.chaos.disturbances import DISTURBANCES
from pipelines.chaos.stops import stopped
from pipelines.chaos.storms import FAULTS, Storms
from pipelines.s3_faults import FaultProxy, Request, always

CONTENT = b"0123456789" * 10


class Answers(BaseHTTPRequestHandler):
    """Answers every request, and counts what it has carried out."""

    carried_out = itertools.count()

    def do_GET(self) -> None:
        next(self.carried_out)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    Answers.carried_out = itertools.count()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    found = FaultProxy(server.server_address[1], slow_seconds=0.1)
    yield found
    found.close()
    server.shutdown()
    server.server_close()


def get(proxy: FaultProxy, path: str = "/bucket/key") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    connection.request("GET", path)
    return connection.getresponse().read()


def test_a_slow_body_is_complete_and_takes_its_time(proxy: FaultProxy) -> None:
    proxy.rule = always("trickle")
    began = time.monotonic()
    assert get(proxy) == CONTENT
    assert time.monotonic() - began >= 4 * 0.1  # five pieces


def test_a_partial_body_ends_early(proxy: FaultProxy) -> None:
    proxy.rule = always("truncate")
    with pytest.raises(http.client.IncompleteRead):
        get(proxy)


@pytest.mark.parametrize("earlier", [0, 1])
def test_what_hangs_has_no_answer_until_the_storm_ends_and_may_be_carried_out(proxy: FaultProxy, earlier: int) -> None:
    for _ in range(earlier):
        get(proxy)
    over = threading.Event()
    proxy.rule = lambda request: None if over.is_set() else "hang"
    threading.Timer(0.3, over.set).start()
    began = time.monotonic()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        get(proxy)
    assert time.monotonic() - began >= 0.25
    assert next(Answers.carried_out) == 2 * earlier
    assert get(proxy) == CONTENT


@pytest.mark.parametrize("kind", FAULTS)
def test_a_storm_is_over_its_own_keys_and_ends(tmp_path: Path, kind: str) -> None:
    storms, mine, other = Storms(tmp_path / "storms"), Request("GET", "chaos/0001/x", 0), Request("GET", "chaos/2", 0)
    assert storms.fault(mine) is None
    storms.begin("lane-0", kind, "0001", random.Random(0))
    assert storms.fault(mine) == FAULTS[kind]
    assert storms.fault(other) is None
    storms.end("lane-0")
    assert storms.fault(mine) is None
    assert DISTURBANCES[kind].of_bucket


def test_a_storm_ends_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storms, request = Storms(tmp_path / "storms"), Request("GET", "chaos/0001", 0)
    storms.begin("lane-0", "5xx", "0001", random.Random(0))
    later = time.time() + 11.0
    monkeypatch.setattr(time, "time", lambda: later)
    assert storms.fault(request) is None


def test_a_stopped_process_does_nothing_and_continues() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"])
    try:
        with stopped([process.pid, os.getpid() + 10**7]):  # one of them has ended
            deadline = time.monotonic() + 60
            while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
                assert time.monotonic() < deadline
        assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED
    finally:
        process.kill()
        process.wait()
