"""A real S3 server on the loopback interface (moto), behind a proxy that makes requests fail."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from datetime import timedelta
from urllib.request import Request, urlopen

import dask
import pytest

from dsel.storage import retries as bucket_connection
from dsel.storage import retries as retry_settings
from dsel.storage import zarr_store as bucket_zarr
from pipelines.s3_faults import FaultProxy

#: In the environment of every test here, and nowhere else afterwards.
SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED01",
    "AWS_SECRET_ACCESS_KEY": "planted/secret/key/0123456789abcdefghijk",
    "AWS_SESSION_TOKEN": "planted-session-token-9876543210",
}


@pytest.fixture(scope="session")
def s3_server() -> Iterator[FaultProxy]:
    """The server behind its proxy."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = FaultProxy(server.get_host_and_port()[1])
    yield proxy
    proxy.close()
    server.stop()


@pytest.fixture
def proxy(s3_server: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """The proxy without faults; the environment points to it."""
    s3_server.reset()
    environment = {
        **SECRETS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_server.port}", "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(retry_settings, "FIRST_DELAY", timedelta(milliseconds=5))
    monkeypatch.setattr(retry_settings, "LONGEST_DELAY", timedelta(milliseconds=20))
    forget_connections()
    with dask.config.set({"distributed.nanny.environ": environment}):  # workers are forked from an older process
        yield s3_server
    forget_connections()
    s3_server.reset()


@pytest.fixture
def url(proxy: FaultProxy, request: pytest.FixtureRequest) -> str:
    """A new bucket; its name depends on the test only, so that the same faults are drawn."""
    name = f"b-{hashlib.blake2b(request.node.nodeid.encode(), digest_size=8).hexdigest()}"
    urlopen(Request(f"http://127.0.0.1:{proxy.target}/{name}", method="PUT")).close()
    return f"s3://{name}"


def forget_connections() -> None:
    """Close connections: they keep the environment that they were opened in."""
    bucket_connection.connection.cache_clear()
    bucket_zarr.object_zarr_store.cache_clear()
