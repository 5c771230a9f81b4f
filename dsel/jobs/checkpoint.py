"""Checkpoints: the state of passes and of a search, saved so that an interrupted job continues.

Save an unfinished proof in the folder of a run, and continue it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel.config.job import JobFile
from dsel.errors import DselError
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.signals import Interrupts
from dsel.objective.objective_interface import ItemObjective
from dsel.passes.execution.pass_checkpoints import PassCheckpoints
from dsel.search.anytime import AnytimeSearch, Deadline
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.near_best import ListRule
from dsel.search.exact.proof import Proof
from dsel.search.exact.proof_log import ProofLog
from dsel.search.journal import Journal
from dsel.search.registry import METHODS
from dsel.storage.json_files import read_json, write_json
from dsel.storage.locks import Lock
from dsel.storage.paths import AnyPath

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
        self._resumable = method.resumable
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


#: A proof is not saved if its open nodes hold more numbers than this.
_MAX_NUMBERS = 20_000_000


@dataclass(frozen=True)
class ProofStore:
    """The file of the proof for one size.

    size: number of columns to choose, without included ones. path: the file; None: the proof is not saved. fingerprint:
    of the data. save_seconds: time between two saves while the proof runs. log: the folder of the proof log; None: the
    proof keeps none. coefficient_limit: as in `dsel.search.exact.out_of_core.out_of_core_tree.OutOfCoreTree`. setup:
    what the proofs for other sizes share. near_best: which subsets are listed, if not only the best one is looked for.
    """

    objective: ItemObjective
    size: int
    path: AnyPath | None
    fingerprint: str | None
    save_seconds: float
    log: AnyPath | None = None
    coefficient_limit: float | None = None
    setup: CommonSetup | None = None
    near_best: ListRule | None = None

    def _identity(self) -> dict[str, Any]:
        objective, groups = self.objective.columns_of, self.objective.groups
        grouped = {} if groups is None else {"groups": [group.tolist() for group in groups]}
        limit = {} if self.coefficient_limit is None else {"coefficients": self.coefficient_limit}
        listed = {} if self.near_best is None else {"near_best": [self.near_best.within, self.near_best.limit]}
        return {
            **grouped, **limit, **listed,
            "fingerprint": self.fingerprint, "k": self.size, "n": objective.n, "c": objective.c, "lam": objective.lam,
            "columns": objective.columns.tolist(), "included": list(objective.included),
        }  # fmt: skip

    def open(self, incumbent: Sequence[int], seed: int, deadline: Deadline | None = None) -> Proof:
        """Return the saved proof if it is about the same subsets, else a new one, which begins before the deadline."""
        saved = read_json(self.path, lost="the proof starts again") if self.path is not None else None
        if self.log is not None and isinstance(saved, dict) and "log" not in saved:
            log.info("the proof in %s has no log and starts again", self.path)
            saved = None
        if isinstance(saved, dict) and saved.get("identity") == self._identity():
            try:
                proof = self._resume(saved, incumbent)
            except (LookupError, TypeError, ValueError, ArithmeticError, OSError, DselError) as error:
                of_log = isinstance(error, OSError | DamagedFileError)
                warn_of_damage(self.log if of_log else self.path, "the proof starts again", repr(error))
            else:
                log.info("continuing the proof in %s", self.path)
                return proof
        return Proof.begin(
            self.objective, self.size, incumbent, seed=seed, deadline=deadline or Deadline(None),
            log=self._continued_log({}), coefficient_limit=self.coefficient_limit, setup=self.setup,
            near_best=self.near_best,
        )  # fmt: skip

    def _continued_log(self, saved: dict[str, Any]) -> ProofLog | None:
        if self.log is None:
            return None
        return ProofLog(self.log, self.objective, self.size, int(saved.get("log", 0)))

    def _resume(self, saved: dict[str, Any], incumbent: Sequence[int]) -> Proof:
        proof_log = self._continued_log(saved)
        if proof_log is not None:
            proof_log.require_whole()
        return Proof.resume(self.objective, saved["proof"], incumbent, proof_log, self.setup)

    def save(self, proof: Proof) -> None:
        """Write the proof, unless it has no file or too many open nodes."""
        if self.path is None:
            return
        if proof.search.saved_numbers > _MAX_NUMBERS:
            log.info("the proof has too many open nodes to be saved; the next run starts it again")
            return
        values: dict[str, Any] = {"identity": self._identity(), "proof": proof.state()}
        if proof.log is not None:
            values["log"] = proof.log.flush()
        write_json(self.path, values)

    def saving(self, proof: Proof, on_slice: Callable[[AnytimeSearch], None] | None) -> Callable[[AnytimeSearch], None]:
        """Return a callback for each slice that saves the proof when it is time, then calls `on_slice`.

        A proof that makes passes over the data is saved after each one.
        """
        last, passes = time.monotonic(), proof.search.passes

        def save_and_call(search: AnytimeSearch) -> None:
            nonlocal last, passes
            made = getattr(search, "passes", 0)
            if made > passes or time.monotonic() - last >= self.save_seconds:
                self.save(proof)
                last, passes = time.monotonic(), made
            if on_slice is not None:
                on_slice(search)

        return save_and_call
