"""Waiting for workers, with a limit, and what was asked for and what came."""

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


def wait_for_workers(
    client: Any, asked: int, seconds: float, place: str, account: Callable[[], str] | None = None
) -> None:
    """Until `asked` workers have come, or `seconds` are over and at least one has; both numbers are logged.

    account: what the site itself says of those that are missing. Errors: ClusterError when none came in time.
    """
    start = time.monotonic()
    came = 0
    while came < asked and time.monotonic() - start < seconds:
        came = len(_workers(client))
        if came < asked:
            time.sleep(_LOOK_SECONDS)
    took = time.monotonic() - start
    limits = {worker["memory_limit"] for worker in _workers(client).values()}
    each = " or ".join(format_bytes(limit) if limit else "unlimited memory" for limit in sorted(limits))
    if came >= asked:
        log.info("asked for %d workers (%s): %d came in %.1f s, %s each", asked, place, came, took, each)
        return
    said = "" if account is None else account()
    if not came:
        raise ClusterError(
            f"Asked for {asked} workers ({place}): none came in {seconds:.0f} s.{said and f' {said}'}",
            "See the site's own account of them, or allow more time (cluster: wait).",
        )
    log.warning(
        "asked for %d workers (%s): %d came in %.0f s, %s each; going on with them%s",
        asked, place, came, took, each, said and f" ({said})",
    )  # fmt: skip


def _workers(client: Any) -> dict[str, Any]:
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def check_same_software(client: Any) -> None:
    """dsel must be installed, in the same version, where the tasks run. Errors: ClusterError."""
    try:
        here = version("dsel")
    except PackageNotFoundError:
        return  # run from its source tree: the others may do so, too
    found = client.get_versions(packages=["dsel"])
    places = {"the scheduler": found["scheduler"], **{f"worker {a}": v for a, v in found["workers"].items()}}
    for place, versions in places.items():
        there = (versions or {}).get("packages", {}).get("dsel")
        if there != here:
            raise ClusterError(
                f"{place} has dsel {there or 'not installed'}, and here it is {here}.",
                "Install the same version there, or start the cluster from the same environment or image.",
            )
