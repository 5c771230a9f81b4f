"""Waiting for workers, with a time limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dask.utils import format_bytes

from dsel.errors import ClusterError

log = logging.getLogger("dsel")

_LOOK_SECONDS = 0.2
#: Seconds before the first line that says how many workers are missing, and at most between two of them.
_FIRST_LINE_SECONDS, _LONGEST_LINE_SECONDS = 10.0, 300.0


def wait_for_workers(
    client: Any, asked: int, seconds: float, place: str, status: Callable[[], str] | None = None
) -> None:
    """Wait until `asked` workers are ready, or until `seconds` have passed and at least one is ready.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    asked : int
        Number of workers.
    seconds : float
        Time limit.
    place : str
        Where the workers are, for the log.
    status : callable, optional
        Returns what the site reports about missing workers.

    Raises
    ------
    ClusterError
        If no worker is ready in time.
    """
    start = time.monotonic()
    ready, pause, last = 0, _FIRST_LINE_SECONDS, start
    while ready < asked and time.monotonic() - start < seconds:
        ready = len(_workers(client))
        if ready < asked:
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() - last >= pause:
                last, pause = time.monotonic(), min(2 * pause, _LONGEST_LINE_SECONDS)
                report = "" if status is None else f": {status()}"
                log.info("waiting for workers (%s): %d of %d after %.0f s%s", place, ready, asked, last - start, report)
    took = time.monotonic() - start
    limits = {worker["memory_limit"] for worker in _workers(client).values()}
    each = " or ".join(format_bytes(limit) if limit else "unlimited memory" for limit in sorted(limits))
    if ready >= asked:
        log.info("%d of %d workers are ready (%s) after %.1f s, %s each", ready, asked, place, took, each)
        return
    report = "" if status is None else status()
    if not ready:
        raise ClusterError(
            f"None of {asked} workers ({place}) was ready after {seconds:.0f} s.{report and f' {report}'}",
            "See what the site reports about them, or allow more time (cluster: wait).",
        )
    log.warning(
        "%d of %d workers are ready (%s) after %.0f s, %s each: the job starts with them%s",
        ready, asked, place, took, each, report and f" ({report})",
    )  # fmt: skip


def _workers(client: Any) -> dict[str, Any]:
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def check_same_software(client: Any) -> None:
    """Raise ClusterError unless the scheduler and all workers have the same version of dsel."""
    try:
        here = version("dsel")
    except PackageNotFoundError:
        return  # runs from its source tree, as the others may do
    found = client.get_versions(packages=["dsel"])
    places = {"the scheduler": found["scheduler"], **{f"worker {a}": v for a, v in found["workers"].items()}}
    for place, versions in places.items():
        there = (versions or {}).get("packages", {}).get("dsel")
        if there != here:
            raise ClusterError(
                f"{place} has dsel {there or 'not installed'}, but here it is {here}.",
                "Install the same version there, or start the cluster from the same environment or image.",
            )
