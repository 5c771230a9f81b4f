"""The `Cluster` interface: what each kind of cluster implements, one file per kind."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from dsel.config.cluster import SiteSection
from dsel.engine.dask_engine import NO_WORKER_LIMIT

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
    shares_files : bool
        Whether workers see the folders of this process.
    own_hosts : bool
        Whether workers are known to run on other hosts.
    starts_workers : bool
        Whether `open` starts workers, rather than using those of a scheduler that runs already.
    """

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
