"""Run a job once more on data that may have grown."""

from __future__ import annotations

import logging
from typing import Any

from dsel.config.job import JobFile, RunSeries
from dsel.data.dataset import Dataset
from dsel.errors import DselError, OutputError
from dsel.jobs.finished import is_complete
from dsel.jobs.locations import identity_of, job_dataset, require_separate, statistics_cache
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.runner import run_in_folder
from dsel.jobs.series.folders import RunFolders
from dsel.jobs.signals import Interrupts
from dsel.selection.changes.compare import PreviousRun
from dsel.selection.changes.runs import RunSummary
from dsel.selection.result import Selection, open_selection
from dsel.storage.locks import Lock, locked
from dsel.storage.paths import make_folder

log = logging.getLogger("dsel")


def run_series(job: JobFile, reporter: Reporter | None = None) -> Selection:
    """Run a job in a new folder, or continue its unfinished run, or return the last result if nothing changed.

    Parameters
    ----------
    job : JobFile
        A job whose `out` is a folder of runs.
    reporter : Reporter, optional
        Progress and logs.

    Returns
    -------
    Selection
        The result, with what changed since the previous run.

    Raises
    ------
    OutputError
        If another run of this folder works at the moment.
    DselError
        As `run_job` raises them.
    """
    series = job.out
    assert isinstance(series, RunSeries)
    reporter = reporter or Reporter.for_terminal()
    require_separate(job.model_copy(update={"out": series.folder}))
    try:
        make_folder(series.folder)
    except OSError as error:
        raise OutputError(
            f"The folder of runs {series.folder} cannot be written: {error.strerror}.", "Choose another out."
        ) from error
    with reporter.showing(), Interrupts(), locked(series.folder, reporter.run) as lock:
        return _Series(job, series, reporter, lock).run()


class _Series:
    """One call on a folder of runs, which holds its lock."""

    def __init__(self, job: JobFile, series: RunSeries, reporter: Reporter, lock: Lock) -> None:
        cache = statistics_cache(job.model_copy(update={"out": series.folder}))
        self._job = job.model_copy(update={"artefacts": job.artefacts or cache.folder})
        self._asked, self._series, self._reporter, self._lock = job, series, reporter, lock
        self._folders = RunFolders(series.folder)

    def run(self) -> Selection:
        self._folders.settle(self._series.keep)  # the last run may have been killed before it did
        dataset = job_dataset(self._job)
        name, previous = self._folders.unfinished(), self._previous()
        if name is not None and not self._is_of(name, self._identity(dataset, previous)):
            self._finish(name)
            name, previous = None, self._previous()
        if name is None and previous is not None and self._is_unchanged(previous.name, dataset):
            RunFolder(self._series.folder / previous.name).tidy(self._reporter)
            log.info("run %s has the same data and the same job: nothing to do", previous.name)
            return previous.selection
        name = name or self._folders.new()
        log.info("run %s in %s, after %s", name, self._series.folder, "none" if previous is None else previous.name)
        selection = run_in_folder(self._in(name), self._reporter, dataset, previous, in_series=True)
        self._publish(name, selection)
        return selection

    def _in(self, name: str) -> JobFile:
        return self._job.model_copy(update={"out": self._series.folder / name})

    def _identity(self, dataset: Dataset, previous: PreviousRun | None) -> dict[str, Any]:
        return identity_of(self._job, dataset, None if previous is None else previous.name)

    def _is_of(self, name: str, identity: dict[str, Any]) -> bool:
        """Return whether a run is of this job, these data and this previous run."""
        manifest = RunFolder(self._series.folder / name).read_manifest()
        return manifest is not None and bool(manifest["identity"] == identity)

    def _is_unchanged(self, name: str, dataset: Dataset) -> bool:
        """Return whether a good run is of this job and these data. It may have another previous run."""
        manifest = RunFolder(self._series.folder / name).read_manifest()
        before = None if manifest is None else manifest["identity"].get("previous")
        return self._is_of(name, identity_of(self._job, dataset, before))

    def _finish(self, name: str) -> None:
        """Publish an unfinished run of older data whose result is there; one without a result is left behind."""
        folder = RunFolder(self._series.folder / name)
        try:
            _, job = folder.job()
            selection = open_selection(folder.path)
        except DselError:
            log.warning("run %s was interrupted, and the job or the data have changed since: it is not continued", name)
            return
        if is_complete(job, folder, selection):
            self._publish(name, selection)

    def _previous(self) -> PreviousRun | None:
        name = self._folders.latest()
        if name is None:
            return None
        try:
            return PreviousRun.open(self._series.folder / name)
        except DselError as error:
            log.warning("run %s cannot be compared with: %s", name, error)
            return None

    def _publish(self, name: str, selection: Selection) -> None:
        self._lock.require()
        summary = RunSummary.of(name, selection)
        self._folders.publish(summary, self._series.keep)
        level = logging.WARNING if summary.changed else logging.INFO
        verb = "changed" if summary.changed else "unchanged"
        log.log(
            level, "run %s: selection %s", name, verb,
            extra={"fields": {"event": "run-finished", **summary.as_dict()}},
        )  # fmt: skip
