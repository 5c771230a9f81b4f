"""A scheduler that somebody else has started: by its address, or by the file that it writes."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask

from dsel.config.cluster import AddressSection, SchedulerFileSection
from dsel.engine.clusters import dask_config as dask_settings
from dsel.engine.clusters.readiness import check_same_software, wait_for_workers
from dsel.engine.dask import workers_of
from dsel.errors import ClusterError

log = logging.getLogger("dsel")

_LOOK_SECONDS = 0.2
#: For a scheduler that is only asked what it has.
_ASK_SECONDS = 5.0


@contextmanager
def running_cluster(section: AddressSection | SchedulerFileSection) -> Iterator[Any]:
    """A client of that scheduler; the cluster is left as it is at the end.

    Errors: ClusterError where there is no scheduler, or no worker, in the time that the section allows.
    """
    from distributed import Client

    deadline = time.monotonic() + section.wait_seconds
    if isinstance(section, SchedulerFileSection):
        address = _address_in(Path(section.path), deadline)
    else:
        address = section.address
    with dask.config.set(dask_settings.SCHEDULER):
        try:
            client = Client(  # type: ignore[no-untyped-call]
                address, set_as_default=False, security=dask_settings.security(),
                timeout=max(deadline - time.monotonic(), 1.0),
            )  # fmt: skip
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            raise ClusterError(
                f"No scheduler answers at {address}: {_short(error)}.",
                "See that it runs and that this machine reaches it; tls:// needs Dask's TLS settings here too.",
            ) from error
        with client:
            wait_for_workers(client, section.asked, max(deadline - time.monotonic(), 1.0), address)
            check_same_software(client)
            yield client


def workers_of_running(section: AddressSection | SchedulerFileSection) -> tuple[int, int | None] | None:
    """How many workers that scheduler has at this moment, and the least memory limit among them; None where it has
    none, or does not answer within some seconds."""
    from distributed import Client

    try:
        address = _address_in(Path(section.path), 0.0) if isinstance(section, SchedulerFileSection) else section.address
        with (
            dask.config.set(dask_settings.SCHEDULER),
            Client(  # type: ignore[no-untyped-call]
                address, set_as_default=False, security=dask_settings.security(), timeout=_ASK_SECONDS
            ) as client,
        ):
            return workers_of(client) if client.scheduler_info(n_workers=-1)["workers"] else None
    except (ClusterError, OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        log.info("the scheduler does not answer yet: %s", _short(error))
        return None


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _address_in(path: Path, deadline: float) -> str:
    """The address in a scheduler file, once it is there and whole."""
    waiting = False
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"The scheduler file {path} did not come: {_short(error)}.",
                    "Start `dask scheduler --scheduler-file` on a file system that this machine sees, or wait longer.",
                ) from error
        if not waiting:
            log.info("waiting for the scheduler file %s", path)
            waiting = True
        time.sleep(_LOOK_SECONDS)
