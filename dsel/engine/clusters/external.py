"""A scheduler that runs already: by its address, or by the file that it writes."""

from __future__ import annotations

import json
import logging
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dsel.config.cluster import AddressSection, SchedulerFileSection
from dsel.engine.clusters import dask_config as dask_settings
from dsel.engine.clusters.base import RemoteCluster, SiteSectionType
from dsel.engine.clusters.readiness import check_same_software, wait_for_workers
from dsel.engine.clusters.tls import site_security
from dsel.engine.dask_engine import workers_of
from dsel.engine.scheduler_watch import watched
from dsel.errors import ClusterError

log = logging.getLogger("dsel")

_LOOK_SECONDS = 0.2
#: Time limit to ask a scheduler for its workers.
_QUERY_SECONDS = 5.0
_CONNECTION_ERRORS = (OSError, TimeoutError, ValueError, TypeError, RuntimeError)


class ExistingCluster(RemoteCluster[SiteSectionType]):
    """A scheduler that runs already."""

    own_hosts = False
    starts_workers = False

    @abstractmethod
    def _address(self, deadline: float) -> str:
        """Return the scheduler's address, known before the deadline (time.monotonic)."""

    @contextmanager
    def open(self, name: str, logs: Path | None = None) -> Iterator[Any]:
        """Provide a client. The cluster keeps running at the end."""
        deadline = time.monotonic() + self.section.wait_seconds
        address = self._address(deadline)
        with dask_settings.applied(dask_settings.SCHEDULER):
            try:
                client = _client(address, max(deadline - time.monotonic(), 1.0))
            except _CONNECTION_ERRORS as error:
                raise ClusterError(
                    f"No scheduler answers at {address}: {_short(error)}.",
                    "Check that it runs and that this machine reaches it; tls:// needs Dask's TLS settings here, too.",
                ) from error
            with client, watched(client):
                wait_for_workers(client, self.section.asked, max(deadline - time.monotonic(), 1.0), address)
                check_same_software(client)
                yield client

    def current(self) -> tuple[int, int | None]:
        """Return the number of workers that the scheduler has now and their smallest memory limit.

        If it has none, or does not answer within some seconds, the section's numbers are returned.
        """
        try:
            with dask_settings.applied(dask_settings.SCHEDULER), _client(self._address(0.0), _QUERY_SECONDS) as client:
                if client.scheduler_info(n_workers=-1)["workers"]:
                    return workers_of(client)
        except (ClusterError, *_CONNECTION_ERRORS) as error:
            log.info("the scheduler does not answer yet: %s", _short(error))
        return self.promised()


class AddressCluster(ExistingCluster[AddressSection]):
    """A scheduler that runs already, by its address."""

    shares_files = False

    def _address(self, deadline: float) -> str:
        return self.section.address


class SchedulerFileCluster(ExistingCluster[SchedulerFileSection]):
    """A scheduler that runs already, by the file that it writes."""

    shares_files = True

    def _address(self, deadline: float) -> str:
        return _address_in(Path(self.section.path), deadline)


def _client(address: str, timeout: float) -> Any:
    """Return a client, or close it if it does not connect.

    Python would close it at some later garbage collection. If that happens while another client starts, distributed
    deadlocks.
    """
    from distributed import Client

    client = Client.__new__(Client)
    try:
        Client.__init__(client, address, set_as_default=False, security=site_security(), timeout=timeout)  # type: ignore[no-untyped-call]
    except BaseException:
        with suppress(Exception):
            client.close()  # type: ignore[no-untyped-call]
        raise
    return client


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _address_in(path: Path, deadline: float) -> str:
    """Return the address in a scheduler file, once the file is complete."""
    waiting = False
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"The scheduler file {path} did not appear: {_short(error)}.",
                    "Start `dask scheduler --scheduler-file` on a shared file system, or allow more time.",
                ) from error
        if not waiting:
            log.info("waiting for the scheduler file %s", path)
            waiting = True
        time.sleep(_LOOK_SECONDS)
