"""Checkpoints: the state of passes and of a search, saved so that an interrupted job continues."""

from __future__ import annotations

import logging
import time
from typing import Any

from dsel.config.job import JobFile
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.signals import Interrupts
from dsel.passes.execution.pass_checkpoints import PassCheckpoints
from dsel.search.anytime import AnytimeSearch
from dsel.search.journal import Journal
from dsel.search.registry import METHODS
from dsel.storage.locks import Lock

log = logging.getLogger("dsel")

#: Statistics that took so long were computed, not read from a cache: they are progress.
_COMPUTED_SECONDS = 1.0


class Checkpoints:
    """Save the search between its slices: at intervals, and when a signal arrives.

    Parameters
    ----------
    job : JobFile
        It says how often to save.
    folder : RunFolder
        Where to save.
    identity : dict
        What the state belongs to, see `dsel.jobs.locations.identity_of`.
    interrupts : Interrupts
        Signals that have arrived.
    reporter : Reporter
        It is told about stages, slices and checkpoints.
    lock : Lock
        It must still be held when a checkpoint is written.
    journal : Journal, optional
        It records each checkpoint.
    """

    def __init__(
        self, job: JobFile, folder: RunFolder, identity: dict[str, Any], interrupts: Interrupts, reporter: Reporter,
        lock: Lock, journal: Journal | None = None,
    ) -> None:  # fmt: skip
        self._folder, self._identity = folder, identity
        self._lock, self._interrupts, self._reporter, self._journal = lock, interrupts, reporter, journal
        method = METHODS[job.method]
        self._every = 0.0 if method.uses_rows else job.checkpoint_seconds
        self._every_evaluations = job.checkpoint_evaluations
        self._resumable = method.resumable or (job.criterion is not None and method.takes_criterion)
        self._last, self._last_evaluations = time.monotonic(), 0
        self.passes = PassCheckpoints(
            folder.passes, job.checkpoint_seconds, lock.require, on_save=reporter.saved,
            is_clear=folder.is_absent(folder.passes),
        )  # fmt: skip
        self._search: AnytimeSearch | None = None
        self.saved = folder.read_checkpoint(identity)
        if self.saved is not None:
            log.info("continuing from the checkpoint in %s", folder.checkpoint)
        elif not folder.is_absent(folder.checkpoint) and folder.checkpoint.is_file():
            log.warning("the search starts again: %s is damaged or belongs to another job", folder.checkpoint)

    def on_stage(self, stage: str) -> None:
        """Report a new stage. During a search that can be resumed, signals wait for the end of a slice."""
        self._reporter.stage(stage)
        if self.passes.keep:  # the statistics are saved elsewhere by now
            self.passes.clear()
            if time.monotonic() - self._last >= _COMPUTED_SECONDS:
                self._reporter.saved()
        self.passes.keep = stage == "statistics"
        self._interrupts.deferred = stage == "search" and self._resumable
        self._interrupts.raise_received()

    def on_slice(self, search: AnytimeSearch) -> None:
        """Report the search, save it if it is time to, and raise Interrupted if a signal has arrived."""
        self._reporter.search(search)
        evaluations = getattr(search, "evaluations", search.iteration)
        if self._search is None:
            self._last_evaluations = evaluations
        self._search = search
        if self._interrupts.received is not None or self._is_due(evaluations):
            self._save(search)
            self._last, self._last_evaluations = time.monotonic(), evaluations
        self._interrupts.raise_received()

    def save_last(self) -> None:
        """Save the search as it is, after an error that it did not cause."""
        if self._search is not None:
            self._save(self._search)

    def _is_due(self, evaluations: int) -> bool:
        most = self._every_evaluations
        if most is not None and evaluations - self._last_evaluations >= most:
            return True
        return time.monotonic() - self._last >= self._every

    def _save(self, search: AnytimeSearch) -> None:
        self._lock.require()
        self._folder.write_checkpoint(self._identity, search.state())
        if self._journal is not None:
            self._journal.write("checkpoint", iterations=search.iteration)
            self._journal.publish()
        self._reporter.saved()
