"""An S3 server on loopback whose requests fail now and then: `python -m pipelines.chaos.s3_server FILE`.

It prints its port. When it is ended, it writes how often requests failed to the file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.request import Request, urlopen

from pipelines.chaos.storms import Storms
from pipelines.s3_faults import Kind, drawn
from pipelines.s3_faults import Request as Arrived

BUCKET, SHARE = "chaos", 0.03
#: The folder of the storms, next to the file.
STORMS = "storms"


def main() -> None:
    """Serve until the process is ended."""
    from moto.server import ThreadedMotoServer

    from pipelines.s3_faults import FaultProxy

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in all threads
    server.start()
    target = server.get_host_and_port()[1]
    urlopen(Request(f"http://127.0.0.1:{target}/{BUCKET}", method="PUT")).close()
    seed = hashlib.blake2b(str(target).encode()).hexdigest()
    now_and_then, storms = drawn(int(seed[:6], 16), share=SHARE), Storms(Path(sys.argv[1]).parent / STORMS)

    def rule(request: Arrived) -> Kind | None:
        return storms.fault(request) or now_and_then(request)

    proxy = FaultProxy(target, rule)
    proxy.record = record = _Counts()
    print(proxy.port, flush=True)
    signal.sigwait({signal.SIGTERM})
    Path(sys.argv[1]).write_text(json.dumps(record.counts))


def start_s3_server(folder: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Start an S3 server that fails now and then; return it, and the variables that lead to it.

    When it is ended, it writes how often it failed to `faults.json` in the folder.
    """
    command = [sys.executable, "-m", "pipelines.chaos.s3_server", str(folder / "faults.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    return process, {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "chaos", "AWS_SECRET_ACCESS_KEY": "chaos",
    }  # fmt: skip


class _Counts(list[tuple[Arrived, str]]):
    """A record of requests that only counts their faults: there are too many."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def append(self, value: tuple[Arrived, str]) -> None:
        """Count the request."""
        self.counts[value[1] or "none"] += 1


if __name__ == "__main__":
    main()
