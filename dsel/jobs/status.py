"""The status of a run: written by the run into its folder, and read by `dsel status` on any machine."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

import psutil

from dsel._lib.text import printable
from dsel.errors import AccessError, DselError, MissingInputError, StorageError
from dsel.selection.changes.runs import run_names
from dsel.storage.json_files import read_json, valid_json, write_json
from dsel.storage.locks import is_free
from dsel.storage.paths import AnyPath, ObjectPath, resolve_run

log = logging.getLogger("dsel")

STATUS = "status.json"
#: Seconds between two writes, on disk and in object storage.
BEAT_SECONDS, OBJECT_BEAT_SECONDS = 5.0, 15.0
#: A run without a sign of life for this long is taken for dead.
SILENCE_SECONDS = 60.0

State = Literal["starting", "running", "finished", "interrupted", "failed", "silent", "not started"]
#: What works in the folder of a run.
Command = Literal["run", "certify", "alternatives"]
#: What is kept of the run when a proof is made later.
_OF_RUN = ("run", "host", "pid", "started", "ended")


class StatusFile:
    """Context manager that keeps `status.json` up to date while a run works, and says how the run ended.

    A thread writes the file, so that storage that does not answer never delays the run.

    Parameters
    ----------
    folder : Path or ObjectPath
        The folder of the run.
    run : str
        The id of the run.
    command : {"run", "certify", "alternatives"}
        What works. A proof keeps what the file says of the run before.
    spent : dict of str to float, optional
        The seconds of each stage in earlier processes, to which the file adds those of this one.
    """

    def __init__(
        self, folder: AnyPath, run: str, command: Command = "run", spent: Mapping[str, float] | None = None
    ) -> None:
        self._path = folder / STATUS
        self._seconds = OBJECT_BEAT_SECONDS if isinstance(folder, ObjectPath) else BEAT_SECONDS
        me = psutil.Process()
        self._values: dict[str, Any] = {
            "state": "running", "command": command, "run": run, "host": socket.gethostname(), "pid": me.pid,
            "process_started": me.create_time(), "started": time.time(),
        }  # fmt: skip
        self._spent, self._since = dict(spent or {}), time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, name="dsel-status", daemon=True)

    def update(self, progress: dict[str, Any]) -> None:
        """Take the progress of the run; the next write contains it."""
        if "stage" in progress:
            self._spent, self._since = self._seconds_of_stages(), time.monotonic()
        self._values = {**self._values, **progress}

    def _seconds_of_stages(self) -> dict[str, float]:
        stage, spent = self._values.get("stage"), self._spent
        return spent if stage is None else {**spent, stage: spent.get(stage, 0.0) + time.monotonic() - self._since}

    def __enter__(self) -> StatusFile:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stopped.set()
        self._thread.join(self._seconds)
        self.update(_ending(error))
        if not isinstance(error, StorageError | AccessError):  # the folder itself may be what failed
            self._write()

    def _keep_alive(self) -> None:
        if self._values["command"] != "run":
            self.update({"selected": self._run_before()})
        self._write()
        while not self._stopped.wait(self._seconds):
            self._write()

    def _run_before(self) -> dict[str, Any] | None:
        """Return what the file says of the run that a proof follows."""
        with suppress(OSError, DselError):
            if isinstance(found := read_json(self._path), dict):
                is_run = found.get("command", "run") == "run"
                return {name: found.get(name) for name in _OF_RUN} if is_run else found.get("selected")
        return None

    def _write(self) -> None:
        with suppress(OSError, DselError):  # the run itself reports storage that fails
            values = {**self._values, "spent": self._seconds_of_stages(), "updated": time.time()}
            write_json(self._path, valid_json(values))


def _ending(error: BaseException | None) -> dict[str, Any]:
    """Return how a run ended."""
    ended = {"seconds_left": None, "ended": time.time()}
    if error is None:
        return {**ended, "state": "finished"}
    if isinstance(error, DselError):
        state = "interrupted" if error.kind == "interrupted" else "failed"
        return {**ended, "state": state, "message": str(error), "kind": error.kind, "exit_code": error.exit_code}
    if isinstance(error, Exception):
        return {**ended, "state": "failed", "message": f"unexpected error: {type(error).__name__}: {error}"}
    return {**ended, "state": "interrupted", "message": f"stopped by {type(error).__name__}"}


@dataclass(frozen=True)
class RunStatus:
    """What is known about the run in a folder.

    Parameters
    ----------
    folder : str
        The folder.
    state : {"starting", "running", "finished", "interrupted", "failed", "silent", "not started"}
        "starting": a run holds the folder and has written nothing yet. "silent": it should be running, but its process
        on this machine is gone, or on another machine it gave no sign of life for a minute.
    job : dict
        The store, k and the method.
    command : {"run", "certify", "alternatives"}
        What the other fields are about: the run of the job, or a proof after it.
    run, host : str, optional
        The id of the last run or proof, and the machine.
    pid : int, optional
        Its process.
    started, updated, checkpoint, ended : float, optional
        When it began, when it last wrote its status, when it last saved the search, and when it ended: seconds since
        1970.
    selected : dict, optional
        Of the run before a proof: `run`, `host`, `pid`, `started` and `ended`.
    stage : str, optional
        What it does: statistics, search, check or certificate.
    done, total : int, optional
        Tasks or iterations of the stage.
    note : str
        The progress of the stage in words.
    best : float, optional
        The smallest error, or criterion, so far.
    seconds_left : float, optional
        About how long the stage still takes.
    message : str
        How the last run ended, where it did not finish.
    r2 : float, optional
        Share of the variance that the saved result explains.
    has_checkpoint : bool
        Whether a saved search can be continued.
    """

    folder: str
    state: State
    job: dict[str, Any]
    command: Command = "run"
    run: str | None = None
    host: str | None = None
    pid: int | None = None
    started: float | None = None
    updated: float | None = None
    checkpoint: float | None = None
    ended: float | None = None
    selected: dict[str, Any] | None = None
    stage: str | None = None
    done: int | None = None
    total: int | None = None
    note: str = ""
    best: float | None = None
    seconds_left: float | None = None
    message: str = ""
    r2: float | None = None
    has_checkpoint: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the status, ready for JSON."""
        return asdict(self)

    def render(self, now: float | None = None) -> str:
        """Return the status as text."""
        now = time.time() if now is None else now
        job = self.job
        lines = [f"{self.folder}: {self._headline()}"]
        if job:
            lines.append(f"job: {job.get('method')}, k = {job.get('k')}, store {job.get('store')}")
        if self.selected:
            lines.append(_of_run("run", **self.selected))
        if self.run is not None:
            signs = f", last sign of life {_ago(now, self.updated)}" if self.state in ("running", "silent") else ""
            found = _of_run(self.command, self.run, self.host, self.pid, self.started, self.ended)
            lines.append(f"{found}{signs}")
        if self.state in ("running", "silent", "interrupted", "failed") and self.stage:
            lines.append(f"stage: {self.stage}" + (f", {self._progress()}" if self._progress() else ""))
        if self.state != "finished" and self.checkpoint is not None and self.has_checkpoint:
            lines.append(f"checkpoint: saved {_ago(now, self.checkpoint)}")
        if self.message:
            lines.append(f"message: {self.message}")
        if self.r2 is not None:
            share = "R2" if self.job.get("loss", "squared") == "squared" else "D2"
            lines.append(f"result: {share} {self.r2:.6f}; print it with: dsel show {self.folder}")
        return "\n".join(printable(line) for line in lines)

    def _headline(self) -> str:
        proof = {"certificate": "certify", "alternatives": "alternatives"}.get(self.stage or "", "")
        is_alone = proof and self.r2 is not None and self.job.get(proof) is None  # the job does not ask for it
        command = f"dsel {proof if is_alone else 'resume'} {self.folder}"
        return {
            "starting": "starting: a run holds this folder and has written nothing yet, or was killed before it did",
            "running": "running",
            "finished": "finished",
            "interrupted": f"interrupted; continue it with: {command}",
            "failed": f"failed; after the remedy, continue it with: {command}",
            "silent": f"killed: its process is gone; continue it with: {command}"
            if self.host == socket.gethostname()
            else "no sign of life: it was killed, its machine is down, or its storage does not answer; "
            f"once it has ended, continue it with: {command}",
            "not started": f"it never ran to a checkpoint; start it with: dsel resume {self.folder}",
        }[self.state]

    def _progress(self) -> str:
        share = f"{self.done / self.total:.0%}" if self.done is not None and self.total else ""
        left = "" if self.seconds_left is None else f"about {describe_seconds(self.seconds_left)} left"
        return ", ".join(part for part in (share, self.note, left) if part)


def read_status(folder: AnyPath) -> RunStatus:
    """Return what is known about the run in a folder, which may work on another machine.

    Parameters
    ----------
    folder : Path or ObjectPath
        The result folder of a job. A folder of runs stands for the newest one, `latest` in it for the last good one.

    Returns
    -------
    RunStatus
        Whether it runs, on which host, and how far it is.

    Raises
    ------
    MissingInputError
        The folder holds no job.
    """
    names = [] if (folder / "job.json").is_file() else run_names(folder)
    folder = folder / names[-1] if names else resolve_run(folder)
    manifest = read_json(folder / "job.json")
    found = read_json(folder / STATUS)
    result = read_json(folder / "selection.json")
    job = (manifest or {}).get("job") if isinstance(manifest, dict) else None
    if not isinstance(job, dict) and not isinstance(found, dict):
        if not is_free(folder):
            return RunStatus(str(folder), "starting", {})
        raise MissingInputError(
            f"{folder} holds no job: it has neither job.json nor {STATUS}.",
            "Name the folder that dsel run writes to. A job writes there once its data are open. If it ended "
            "before, start it again with dsel run.",
        )
    values = found if isinstance(found, dict) else {}
    kept = {field.name for field in fields(RunStatus)}
    known: dict[str, Any] = {name: value for name, value in values.items() if name in kept and value is not None}
    known |= {
        "folder": str(folder), "state": _state(values, isinstance(result, dict)),
        "job": job if isinstance(job, dict) else {}, "has_checkpoint": (folder / "checkpoint.json").is_file(),
        "r2": result.get("r2") if isinstance(result, dict) else None,
    }  # fmt: skip
    return RunStatus(**known)


def _state(values: dict[str, Any], has_result: bool) -> State:
    state = values.get("state")
    if state == "running":
        return "running" if _is_alive(values) else "silent"
    if state in ("finished", "interrupted", "failed"):
        found: State = state
        return found
    return "finished" if has_result else "not started"


def _is_alive(values: dict[str, Any]) -> bool:
    """Return whether a run is alive: its process on this machine, its last sign of life on another one."""
    if values.get("host") == socket.gethostname():
        with suppress(psutil.Error, TypeError, ValueError):
            process = psutil.Process(values["pid"])
            started: float = process.create_time()
            return process.status() != psutil.STATUS_ZOMBIE and abs(started - float(values["process_started"])) < 1.0
        return False
    return time.time() - float(values.get("updated", 0.0)) < SILENCE_SECONDS


def describe_seconds(seconds: float) -> str:
    """Return a duration in words, such as 40 s, 5 min or 3 h."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _of_run(
    command: str, run: str | None, host: str | None, pid: int | None, started: float | None, ended: float | None
) -> str:
    end = "" if ended is None else f", ended {_moment(ended)}"
    return f"{command}: {run}, process {pid} on {host}, started {_moment(started)}{end}"


def _ago(now: float, moment: float | None) -> str:
    return "never" if moment is None else f"{describe_seconds(max(now - moment, 0.0))} ago"


def _moment(seconds: float | None) -> str:
    return "unknown" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
