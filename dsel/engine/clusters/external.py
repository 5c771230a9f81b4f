"""A scheduler that runs already: by its address, or by the file that it writes."""

from __future__ import annotations

import asyncio
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
from dsel.engine.clusters.cluster import RemoteCluster, SiteSectionType, check_same_software, wait_for_workers
from dsel.engine.clusters.tls import site_security
from dsel.engine.scheduler_watch import watched, workers_of
from dsel.errors import ClusterError

log = logging.getLogger("dsel")

_LOOK_SECONDS = 0.2
#: Time limit to ask a scheduler for its workers.
_QUERY_SECONDS = 5.0
#: Time limits of the first attempt to connect and of a later one: they double. The address may change between two.
_FIRST_ATTEMPT_SECONDS, _LONGEST_ATTEMPT_SECONDS = 5.0, 30.0
#: Seconds that a scheduler which takes the connection has in addition to answer.
_ANSWER_SECONDS = 5.0
#: Characters of a scheduler file. With thousands of workers it has some hundred thousands.
_MOST_CHARACTERS = 64 << 20
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
        with dask_settings.applied(dask_settings.SCHEDULER):
            client = self._connected(deadline)
            with client, watched(client):
                place = client.scheduler.address
                wait_for_workers(client, self.section.asked, _until(deadline), place)
                check_same_software(client)
                yield client

    def _connected(self, deadline: float) -> Any:
        """Return a client of the scheduler. It has until the deadline to answer."""
        address = self._address(deadline)
        try:
            return _client(address, _until(deadline))
        except _CONNECTION_ERRORS as error:
            raise _no_answer(address, error) from error

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

    section_type = AddressSection
    shares_files = False

    def _address(self, deadline: float) -> str:
        return self.section.address


class SchedulerFileCluster(ExistingCluster[SchedulerFileSection]):
    """A scheduler that runs already, by the file that it writes."""

    section_type = SchedulerFileSection
    shares_files = True

    def _address(self, deadline: float) -> str:
        return _address_in(Path(self.section.path), deadline)

    def _connected(self, deadline: float) -> Any:
        """Return a client of the scheduler. The file may be of an earlier one, so it is read before each attempt."""
        longest, told = _FIRST_ATTEMPT_SECONDS, False
        while True:
            address = self._address(deadline)
            place = f"{address}, the address in {self.section.path}"
            try:
                return _client(address, min(longest, _until(deadline)))
            except _CONNECTION_ERRORS as error:
                if _is_final(error) or time.monotonic() > deadline:
                    raise _no_answer(place, error) from error
                if not told:
                    log.info("waiting for a scheduler: none answers yet at %s (%s)", place, _short(error))
                    told = True
            longest = min(2 * longest, _LONGEST_ATTEMPT_SECONDS)
            time.sleep(_LOOK_SECONDS)


def _until(deadline: float) -> float:
    """Return the seconds that are left, at least one."""
    return max(deadline - time.monotonic(), 1.0)


def _is_final(error: BaseException) -> bool:
    """Return whether another attempt would end in the same way, as when one side lacks TLS."""
    from distributed.comm.core import FatalCommClosedError

    return isinstance(error, FatalCommClosedError) or not isinstance(error, OSError)


def _no_answer(place: str, error: BaseException) -> ClusterError:
    return ClusterError(
        f"No scheduler answers at {place}: {_short(error)}.",
        "Check that it runs and that this machine reaches it; tls:// needs Dask's TLS settings here, too.",
    )


def _client(address: str, timeout: float) -> Any:
    """Return a client, or close it if it does not connect.

    Python would close it at some later garbage collection. If that happens while another client starts, distributed
    deadlocks. Its own time limit does not hold for a scheduler that takes the connection and does not answer.
    """
    from distributed import Client

    client: Any = Client.__new__(Client)
    begin = client._start

    async def start(**options: Any) -> None:
        try:
            await asyncio.wait_for(begin(**options), timeout + _ANSWER_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(str(error) or "it takes the connection, but does not answer") from error

    client._start = start
    try:
        client.__init__(address, set_as_default=False, security=site_security(), timeout=timeout)
    except BaseException:
        with suppress(Exception):
            client.close()
        raise
    return client


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _content(path: Path) -> str:
    """Return the text of a scheduler file. Raises ClusterError if it is not a file, or far too large."""
    if path.exists() and not path.is_file():  # a device or a pipe might never end
        raise ClusterError(f"The scheduler file {path} is not a file.", "Name the file that `dask scheduler` writes.")
    with path.open() as file:
        text = file.read(_MOST_CHARACTERS + 1)
    if len(text) > _MOST_CHARACTERS:
        raise ClusterError(f"{path} is too large for a scheduler file.", "Name the file that `dask scheduler` writes.")
    return text


def _address_in(path: Path, deadline: float) -> str:
    """Return the address in a scheduler file, once the file is complete."""
    waiting = False
    while True:
        try:
            return str(json.loads(_content(path))["address"])
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
