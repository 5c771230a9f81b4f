"""An S3 server on loopback whose requests fail now and then: `python -m pipelines.chaos.s3_server` prints its port."""

from __future__ import annotations

import hashlib
import logging
import signal
from urllib.request import Request, urlopen

from pipelines.s3_faults import Kind, drawn
from pipelines.s3_faults import Request as Arrived

BUCKET, SHARE = "chaos", 0.03


def main() -> None:
    """Serve until the process is ended."""
    from moto.server import ThreadedMotoServer

    from pipelines.s3_faults import FaultProxy

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    target = server.get_host_and_port()[1]
    urlopen(Request(f"http://127.0.0.1:{target}/{BUCKET}", method="PUT")).close()
    seed = hashlib.blake2b(str(target).encode()).hexdigest()
    rules = [drawn(int(seed[:6], 16), share=SHARE)]

    def rule(request: Arrived) -> Kind | None:
        return rules[0](request)

    proxy = FaultProxy(target, rule)
    proxy.record = _Forgetful()
    print(proxy.port, flush=True)
    signal.pause()


class _Forgetful(list[tuple[Arrived, str]]):
    """A record of requests that stays empty: there are too many."""

    def append(self, value: tuple[Arrived, str]) -> None:
        """Forget it."""


if __name__ == "__main__":
    main()
