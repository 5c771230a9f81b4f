"""The folder of one run: its small files, what it belongs to, and the lock that keeps other runs out.

`job.json` says what was asked and of which data. `passes/` exists while a pass over the data runs
(`dsel.passes.execution.pass_checkpoints`), and `checkpoint.json` while the search runs. `run.log` has the log lines,
`status.json` what `dsel status` prints, and `journal.jsonl` the events of a search on workers
(`dsel.search.journal`). At the end come `selection.json` and `selection.zarr`.

A job that is repeated has a folder of such folders, of which the latest good one and some before it are kept.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dsel._lib.versions import versions
from dsel.config.job import JobFile
from dsel.errors import DataError, DselError, Interrupted, MissingInputError, OutputError
from dsel.jobs.observers.registry import observed
from dsel.jobs.reporting import Reporter, output_errors
from dsel.jobs.same_work import is_same_search, is_same_work
from dsel.jobs.signals import Interrupts
from dsel.jobs.status import STATUS, Command, StatusFile
from dsel.selection.changes.runs import SUMMARY, RunSummary, run_names
from dsel.selection.result import Selection, open_selection
from dsel.selection.saved import SELECTION, certify_call, is_from_sums
from dsel.storage.json_files import read_json, write_json
from dsel.storage.leftovers import is_temporary, remove_leftovers
from dsel.storage.locks import Lock, is_free, locked
from dsel.storage.paths import AnyPath, ObjectPath, discard_tree, latest_name, list_names, make_folder, point_to

log = logging.getLogger("dsel")

MANIFEST = "job.json"
CHECKPOINT_FORMAT = 1
#: Variables in which batch systems tell the id of a job.
_BATCH_JOBS = {
    "SLURM_JOB_ID": "Slurm job", "DSEL_JOB_NAME": "Kubernetes job", "PBS_JOBID": "PBS job", "LSB_JOBID": "LSF job",
}  # fmt: skip
#: Trees of proofs that are kept for the next run are called so.
TREE = "tree-of-"
#: Folders of proof logs are called so, with the number of columns at the end.
_PROOF_LOG, _NEAR_BEST = "proof-log-", "near-best-"


class RunFolder:
    """The folder of one run, on disk or in object storage.

    Parameters
    ----------
    path : Path or ObjectPath
        The folder. It need not exist yet.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.json"
        self.journal = path / "journal.jsonl"
        self.log = path / "run.log"
        self.passes = path / "passes"
        self._names: frozenset[str] | None = None

    @contextmanager
    def hold(self, reporter: Reporter) -> Iterator[Lock]:
        """Create the folder, lock it and log into it, for the duration of a run.

        Raises
        ------
        OutputError
            If the folder cannot be written, or another run holds it.
        """
        with output_errors(f"The result folder {self.path} cannot be written", "Choose another --out."):
            make_folder(self.path)
        with (
            reporter.showing(),
            Interrupts(),  # while it waits for another run, and until it works
            locked(self.path, reporter.run) as lock,
            self._known(lock.names),
            reporter.logging_to(self.log, is_new=self.is_absent(self.log)),
        ):
            _log_header(reporter.run)
            if isinstance(self.path, Path):
                _remove_leftovers(self.path)
            yield lock

    @contextmanager
    def work(
        self, reporter: Reporter, command: Command = "run", spent: Mapping[str, float] | None = None
    ) -> Iterator[Interrupts]:
        """Tell the status of the folder and observers what a run does there, and handle signals. The run holds it.

        spent: what `spent` returned.
        """
        with (
            StatusFile(self.path, reporter.run, command, spent) as reporter.status,
            Interrupts() as interrupts,
            observed(reporter.events, self.path, reporter.run),
        ):
            yield interrupts

    @contextmanager
    def _known(self, names: frozenset[str]) -> Iterator[None]:
        """Rely on what was in the folder when this run locked it, in object storage: that saves requests."""
        self._names = names if isinstance(self.path, ObjectPath) else None
        try:
            yield
        finally:
            self._names = None

    def is_absent(self, file: AnyPath) -> bool:
        """Return whether a file of the folder is known not to exist. Only the run that holds the lock writes there."""
        return self._names is not None and file.name not in self._names

    def _write(self, file: AnyPath, value: Any) -> None:
        if self._names is not None:
            self._names |= {file.name}
        write_json(file, value)

    def read_manifest(self, lost: str = "") -> dict[str, Any] | None:
        """Return the content of `job.json`, or None if it is missing or damaged. lost: as for `read_json`."""
        value = None if self.is_absent(self.path / MANIFEST) else read_json(self.path / MANIFEST, lost)
        identity = value.get("identity") if isinstance(value, dict) else None
        return value if isinstance(identity, dict) and isinstance(identity.get("job"), dict) else None

    def job(self) -> tuple[dict[str, Any], JobFile]:
        """Return the identity of the work in the folder, and its job.

        Raises
        ------
        MissingInputError
            If the folder holds no job.
        DataError
            If the description of the job is damaged.
        """
        manifest = self.read_manifest()
        if manifest is not None:
            with suppress(ValidationError):
                job = JobFile.model_validate(manifest.get("job"))
                return manifest["identity"], job.model_copy(update={"out": self.path.absolute()})
        if (self.path / MANIFEST).is_file() and read_json(self.path / MANIFEST) is None:
            raise DataError(f"{self.path / MANIFEST} is damaged.", "Run the job from its file again: dsel run job.yaml")
        if (self.path / SELECTION).is_file():
            selection = open_selection(self.path)
            if is_from_sums(selection):
                made = "is from sums of rows"
                remedy = f"dsel certify {self.path} proves it, and dsel check-part {self.path} STORE checks it on rows."
            elif selection.criterion is not None:
                made = "was saved from Python, and there is no certificate for its custom criterion"
                remedy = "Selections by the squared error, or by a loss such as logistic, can be proved."
            else:
                made, call = "was saved from Python", certify_call(selection, self.path)
                remedy = f"Prove it in Python: {call}. For this command, run a job: dsel init STORE, then dsel run."
            raise MissingInputError(f"{self.path} holds no job: its selection {made}.", remedy)
        raise MissingInputError(
            f"{self.path} holds no job: it has no complete {MANIFEST}.",
            "Name the folder that dsel run wrote to, or use dsel run. A job that ended before its data were open has "
            "saved nothing: start it again with dsel run.",
        )

    def claim(self, job: JobFile, identity: dict[str, Any]) -> None:
        """Record what the folder is for.

        Raises
        ------
        OutputError
            If it holds the work of another job, or of other data, or files that no job wrote and this one would
            replace.
        """
        before = self.read_manifest(lost="it is written again")
        if before is None and (own := self._file_of_user()) is not None:
            raise OutputError(
                f"{own} was not written by a job, and this job would replace it.",
                "Choose another folder with --out, or move the file.",
            )
        if before is not None and not is_same_search(before["identity"], identity) and self._has_work():
            what = "other data" if before["identity"]["job"] == identity["job"] else "another job"
            raise OutputError(
                f"{self.path} holds the work of {what}: {_difference(before['identity'], identity)}.",
                "Choose another folder with --out, or remove this one.",
            )
        self._write(self.path / MANIFEST, {"identity": identity, "job": job.model_dump(mode="json")})

    def _file_of_user(self) -> AnyPath | None:
        """Return a file that no job wrote, where a job has its description or its result. None if there is none."""
        manifest, selection = self.path / MANIFEST, self.path / SELECTION
        if not self.is_absent(manifest) and manifest.is_file():
            content = manifest.read_bytes()
            return None if not content or b'"identity"' in content else manifest
        return selection if not self.is_absent(selection) and selection.is_file() else None

    def _has_work(self) -> bool:
        """Return whether the folder has anything that took time: a result, a saved search or proof, or a cache."""
        from dsel.search.journal import read_journal  # here: a finished job imports little

        names = list_names(self.path)
        return (
            not names.isdisjoint({SELECTION, self.checkpoint.name})
            or any(name.startswith(("proof", "cache")) for name in names)
            or next(read_journal(self.journal), None) is not None
        )

    def is_for(self, identity: dict[str, Any], same: Callable[..., bool] = is_same_work) -> bool:
        """Return whether the folder is for this work. same: whether two identities are of the same."""
        manifest = self.read_manifest()
        return manifest is not None and same(manifest["identity"], identity)

    def finished(self, identity: dict[str, Any], same: Callable[..., bool] = is_same_work) -> Selection | None:
        """Return the result of this work if it is complete, else None. same: whether it is that of the folder."""
        if not self.is_for(identity, same) or not (self.path / SELECTION).is_file():
            return None
        try:
            return open_selection(self.path)
        except DataError as error:
            log.warning("the job runs again: %s", error.what)
            return None

    def tidy(self, reporter: Reporter) -> None:
        """Remove what a killed run has left next to a complete result: its lock, its checkpoints and parts of files.

        Where another run works in the folder, or where it cannot be written, nothing is removed.
        """
        try:
            if self._has_traces():
                with self.hold(reporter):
                    self.settle(reporter)
        except Interrupted:
            raise
        except (OSError, DselError) as error:
            log.info("%s is not tidied: %s", self.path, error)

    def settle(self, reporter: Reporter) -> None:
        """Remove checkpoints that a complete result has made useless. Its status stays, unless a run was killed."""
        self.remove_checkpoints()
        if self.status().get("state") != "finished":
            with self.work(reporter):
                pass

    def status(self) -> dict[str, Any]:
        """Return what `status.json` says; empty if it is missing or damaged."""
        found = read_json(self.path / STATUS)
        return found if isinstance(found, dict) else {}

    def spent(self, identity: dict[str, Any]) -> dict[str, float]:
        """Return the seconds of each stage in processes that did not finish this work, as the status has them."""
        if not self.is_for(identity, is_same_search):
            return {}
        status = self.status()
        return {} if status.get("state") == "finished" else status.get("spent", {})  # older versions wrote none

    def _has_traces(self) -> bool:
        names = list_names(self.path)
        unfinished = {self.checkpoint.name, self.passes.name} & names
        return bool(unfinished) or any(map(is_temporary, names)) or not is_free(self.path)

    def remove_checkpoints(self) -> None:
        """Remove checkpoints that a complete result has made useless."""
        self.remove_checkpoint()
        self.passes.remove_tree() if isinstance(self.passes, ObjectPath) else discard_tree(self.passes)

    def remove_checkpoint(self) -> None:
        """Remove the checkpoint of the search, if there is one."""
        if not self.is_absent(self.checkpoint):
            self.checkpoint.unlink(missing_ok=True)

    def read_checkpoint(self, identity: dict[str, Any]) -> dict[str, Any] | None:
        """Return the state that this work saved, or None if there is no complete one."""
        if self.is_absent(self.checkpoint):
            return None
        saved = read_json(self.checkpoint)
        if not isinstance(saved, dict) or saved.get("format") != CHECKPOINT_FORMAT:
            return None
        if not isinstance(saved.get("identity"), dict) or not is_same_search(saved["identity"], identity):
            return None
        state = saved.get("state")
        return state if isinstance(state, dict) and state else None

    def write_checkpoint(self, identity: dict[str, Any], state: dict[str, Any]) -> None:
        """Save the state of the search."""
        self._write(self.checkpoint, {**checkpoint_header(identity), "state": state})


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary files of runs that were killed."""
    if removed := remove_leftovers(folder, owned=True):
        log.info("removed what a killed run left: %s", ", ".join(removed))


def _log_header(run: str) -> None:
    """Log what an operator asks first: which run this is, where it works, for which batch job, and with what."""
    numbers, host, job = versions(), socket.gethostname(), _batch_job()
    libraries = ", ".join(f"{name} {number}" for name, number in numbers.items() if name != "dsel")
    fields = {"host": host, "pid": os.getpid(), "batch_job": job, "versions": numbers}
    log.info(
        "dsel %s, run %s, process %d on %s%s; %s", numbers["dsel"], run, os.getpid(), host, job and f", {job}",
        libraries, extra={"fields": fields},
    )  # fmt: skip


def _batch_job() -> str:
    """Return the job of a batch system that this process belongs to; empty if there is none."""
    found = next((f"{title} {os.environ[name]}" for name, title in _BATCH_JOBS.items() if os.environ.get(name)), "")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    return f"{found} (restart {restarts})" if found and restarts != "0" else found


def proof_log_name(size: int, near_best: bool = False) -> str:
    """Return the name of the proof log for `size` columns, or of that of the near-best subsets."""
    return f"{_PROOF_LOG}{_NEAR_BEST if near_best else ''}{size}"


def proof_logs(folder: AnyPath) -> list[AnyPath]:
    """Return the complete proof logs of a run by their number of columns, those of near-best subsets last."""
    sizes = (name.removeprefix(_PROOF_LOG) for name in list_names(folder) if name.startswith(_PROOF_LOG))
    known = {(size.startswith(_NEAR_BEST), size.removeprefix(_NEAR_BEST)) for size in sizes}
    found = sorted((near_best, int(size)) for near_best, size in known if size.isdecimal())
    logs = (folder / proof_log_name(size, near_best) for near_best, size in found)
    return [log for log in logs if (log / "manifest.json").is_file()]


def checkpoint_header(identity: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint says before the state: its format, and the work it belongs to."""
    return {"format": CHECKPOINT_FORMAT, "identity": identity}


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    old, new = before["job"], now["job"]
    changed = [key for key in {**new, **old} if old.get(key) != new.get(key)]
    if changed:
        return "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in changed[:3])
    if now["fingerprint"] == before["fingerprint"]:
        return "the held-out store was written to since"
    return "the store was written to since"


class RunFolders:
    """The folders of runs in one folder, on disk or in object storage.

    Parameters
    ----------
    folder : Path or ObjectPath
        The folder.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder

    def latest(self) -> str | None:
        """Return the name of the last good run."""
        good = (name for name in reversed(run_names(self.folder)) if self._is_good(name))
        return next(good, None)

    def unfinished(self) -> str | None:
        """Return the name of the newest run if it is not complete."""
        newest = next(reversed(run_names(self.folder)), None)
        return None if newest is None or self._is_good(newest) else newest

    def new(self, now: datetime | None = None) -> str:
        """Return the name for a new run: the time, UTC. It comes after all others, even if the clock was set back."""
        name = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        names = run_names(self.folder)
        if not names or name > names[-1].partition("-")[0]:
            return name
        time, _, number = names[-1].partition("-")
        return f"{time}-{int(number or 0) + 1}"

    def publish(self, summary: RunSummary, keep: int) -> None:
        """Record that a run is complete, point to it, and remove what is older than the `keep` newest good runs."""
        summary.save(self.folder / summary.run)
        self.settle(keep)

    def settle(self, keep: int) -> None:
        """Point to the last good run, and remove what is older than the `keep` newest ones. It may have been done."""
        names = run_names(self.folder)
        good = [name for name in names if self._is_good(name)]
        if not good:
            return
        if latest_name(self.folder) != good[-1]:
            point_to(self.folder, good[-1])
        for name in names[: names.index(good[-1])]:
            if name not in good[-keep:]:
                self._remove(name)
        for name in good[-keep:][-2:-1]:  # the next run continues from the trees of the last one
            self._remove_trees(self.folder / name)

    def _is_good(self, name: str) -> bool:
        return (self.folder / name / SUMMARY).is_file()

    def _remove_trees(self, run: AnyPath) -> None:
        try:
            for name in list_names(run):
                if name.startswith(TREE):
                    (run / name).unlink(missing_ok=True)
        except (OSError, DselError) as error:
            log.warning("the old trees in %s could not be removed: %s", run, error)

    def _remove(self, name: str) -> None:
        """Remove a run. Its summary goes first, so that a part of a run never counts as one."""
        path = self.folder / name
        try:
            (path / SUMMARY).unlink(missing_ok=True)
            if isinstance(path, ObjectPath):
                path.remove_tree()
            else:
                shutil.rmtree(path)
        except (OSError, DselError) as error:
            log.warning("the old run %s could not be removed: %s", path, error)
