"""The `Cluster` interface: what each kind of cluster implements, one file per kind.

A cluster waits for its workers, with a time limit.

Packages that only some clusters need, imported when a job uses them.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from dsel._lib.byte_sizes import format_bytes
from dsel.config.cluster import SiteSection
from dsel.engine.scheduler_watch import NO_WORKER_LIMIT
from dsel.errors import ClusterError, MissingExtraError

log = logging.getLogger("dsel")

SectionType = TypeVar("SectionType")
SiteSectionType = TypeVar("SiteSectionType", bound=SiteSection)


class Cluster(ABC, Generic[SectionType]):
    """Workers as one section of a job file describes them.

    Parameters
    ----------
    section : pydantic model
        The section, validated (`dsel.config.cluster`).

    Attributes
    ----------
    section_type : type
        The class of the section.
    shares_files : bool
        Whether workers see the folders of this process.
    own_hosts : bool
        Whether workers are known to run on other hosts.
    starts_workers : bool
        Whether `open` starts workers, rather than using those of a scheduler that runs already.
    """

    section_type: ClassVar[type]
    shares_files: ClassVar[bool]
    own_hosts: ClassVar[bool]
    starts_workers: ClassVar[bool] = True

    def __init__(self, section: SectionType) -> None:
        self.section = section

    @abstractmethod
    def open(self, name: str, logs: Path | None = None) -> AbstractContextManager[Any]:
        """Return a context manager that provides a Dask client once workers are ready.

        Parameters
        ----------
        name : str
            Name of what is created, as an operator sees it.
        logs : Path, optional
            Folder for the logs of the workers, and for certificates if workers on other hosts read them.

        Raises
        ------
        ClusterError
            If no worker is ready in time.
        MissingExtraError
            If a package for this kind of cluster is not installed.
        """

    @abstractmethod
    def promised(self) -> tuple[int, int | None]:
        """Return the number of workers to wait for, and the memory of each in bytes (None: not known yet)."""

    def current(self) -> tuple[int, int | None]:
        """Return the same for the workers that exist now, or else those that are promised."""
        return self.promised()

    @property
    def no_worker_limit(self) -> float:
        """Seconds without any worker after which work fails."""
        return NO_WORKER_LIMIT


class RemoteCluster(Cluster[SiteSectionType]):
    """Workers that a site provides: the section says how many, and how long to wait for them."""

    def promised(self) -> tuple[int, int | None]:
        """Return the section's numbers."""
        return self.section.asked, self.section.worker_bytes

    @property
    def no_worker_limit(self) -> float:
        """Seconds without any worker: a site that is slow to start workers is slow to replace them."""
        return max(NO_WORKER_LIMIT, self.section.wait_seconds)


def close(cluster: Any) -> None:
    """Stop the workers of a cluster. What distributed raises then must not hide how the run ended."""
    try:
        cluster.close()
    except (AssertionError, KeyError) as error:  # about a worker that has not started, or left before it was noticed
        log.debug("the cluster closed with %r", error)


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
        ready = len(client.scheduler_info(n_workers=-1)["workers"])
        if ready < asked:
            time.sleep(_LOOK_SECONDS)
            if time.monotonic() - last >= pause:
                last, pause = time.monotonic(), min(2 * pause, _LONGEST_LINE_SECONDS)
                report = "" if status is None else f": {status()}"
                log.info("waiting for workers (%s): %d of %d after %.0f s%s", place, ready, asked, last - start, report)
    took = time.monotonic() - start
    workers = client.scheduler_info(n_workers=-1)["workers"]
    limits = {worker["memory_limit"] for worker in workers.values()}
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


def import_extra(module: str, package: str, extra: str) -> Any:
    """Import and return a module, or raise MissingExtraError with the extra that installs it.

    The handler of SIGINT is restored: dask-jobqueue replaces it on import.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"cluster: {extra} needs {package}, which is not installed ({error}).", f"pip install 'dsel[{extra}]'."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
