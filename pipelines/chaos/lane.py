"""One lane: jobs that are disturbed one after the other, with a separate cluster and folders."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pipelines.chaos.cases import CHECKPOINT_SECONDS, Case, digest_of_result, digest_of_store, write_table
from pipelines.chaos.cluster import WORKERS, Cluster
from pipelines.chaos.forks import Child, fork

#: What disturbs a command, and the exit codes that it may then have. It may also have finished before.
DISTURBANCES: dict[str, tuple[int, ...]] = {
    "kill": (-signal.SIGKILL,), "term": (75,), "interrupt": (75,), "worker": (), "scheduler": (69,),
    "hung scheduler": (69,), "full": (71, 73, 74),
}  # fmt: skip
#: How often each is drawn. A scheduler that hangs costs half a minute.
_WEIGHTS = {"kill": 30, "term": 22, "interrupt": 8, "worker": 16, "scheduler": 10, "hung scheduler": 0.5, "full": 12}
#: Within how many seconds a command must end after each; any other command, after it began.
_LIMITS = {"kill": 5.0, "term": 10.0, "interrupt": 10.0, "scheduler": 30.0, "hung scheduler": 40.0}
_LONGEST = 240.0
#: A command waits for one of these lines before it is disturbed, or for nothing.
_TRIGGERS = ("", "", "dsel ", "INFO statistics", "INFO search", "INFO search", "INFO check", "INFO certificate")
_STAGES = ("INFO statistics", "INFO search", "INFO check", "INFO certificate")
#: After this number of kills a command is left alone.
_MOST_KILLS = 8
#: A checkpoint may be this much older than its interval when a search is killed.
_SLACK = 3.0

COUNTS = ("kills", "different", "orphans", "hangs", "leftovers", "unlisted_exit_codes", "work_lost")


@dataclass
class Findings:
    """What a lane has counted, and a line for each defect."""

    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def defect(self, count: str, line: str) -> None:
        """Count a defect, and describe it."""
        self.counts[count] += 1
        self.lines.append(f"{count}: {line}")
        print(f"DEFECT {self.lines[-1]}", file=sys.stderr, flush=True)


class Lane:
    """Disturb cases until there were enough kills.

    Parameters
    ----------
    folder : Path
        The lane works here.
    data : Path
        The stores.
    cases : sequence of Case
        The work, drawn at random.
    seed : int
        For all draws.
    bucket : str
        The URL of a bucket that fails; empty if there is none.
    """

    def __init__(self, folder: Path, data: Path, cases: Sequence[Case], seed: int, bucket: str = "") -> None:
        folder.mkdir(parents=True)
        self._folder, self._data, self._cases, self._bucket = folder, data, cases, bucket
        self._random = random.Random(seed)
        self._cluster = Cluster(folder)
        self._expected: dict[str, str] = {}
        self._typical: dict[str, float] = {}
        self._attempts = 0
        self.findings = Findings()

    def run(self, kills: int, seconds: float) -> Findings:
        """Disturb cases until this number of kills is reached, or the seconds have passed."""
        deadline = time.monotonic() + seconds
        try:
            while self.findings.counts["kills"] < kills and time.monotonic() < deadline:
                self._one(self._random.choice(self._cases), kills)
        finally:
            self._cluster.end()
        return self.findings

    def _one(self, case: Case, kills: int) -> None:
        """Disturb one command until it has done its work, and check what it leaves."""
        if case.name not in self._expected:
            place = self._prepare(case)
            began = time.monotonic()
            code, _ = self._attempt(case, place, None)
            if code != 0:
                self.findings.defect("unlisted_exit_codes", f"{case.name}, undisturbed: {code}; see {place.output}")
                return
            self._typical[case.name] = time.monotonic() - began
            self._expected[case.name] = self._digest(case, place)
        place, done, before = self._prepare(case), False, self.findings.counts["kills"]
        for attempt in range(3 * _MOST_KILLS):
            few = self.findings.counts["kills"] - before < _MOST_KILLS and self.findings.counts["kills"] < kills
            disturb = attempt < 2 * _MOST_KILLS and few
            code, ended = self._attempt(case, place, self._draw(case) if disturb else None)
            # An ingest may have been stopped after the store had appeared.
            done = code == 0 or (not case.job and "exists already" in _new(place, 0))
            if done or ended:
                break
        if not done:
            self.findings.defect("hangs", f"{case.name}: never finished; see {place.output}")
            return
        if (found := self._digest(case, place)) != self._expected[case.name]:
            self.findings.defect("different", f"{case.name}: {found} in {place.out}; see {place.output}")
            return
        for name in self._left(place):
            self.findings.defect("leftovers", f"{case.name}: {name}; see {place.output}")
            return
        if str(place.folder) not in "".join(self.findings.lines):
            shutil.rmtree(place.folder, ignore_errors=True)

    def _prepare(self, case: Case) -> Place:
        """Make the folder of one command, with its job file."""
        self._attempts += 1
        folder = self._folder / f"{self._attempts:04d}-{case.name.replace(' ', '-').replace(',', '')}"
        (folder / "tmp").mkdir(parents=True)
        top = f"{self._bucket}/{folder.name}-{self._folder.name}" if case.bucket else str(folder)
        place = Place(folder, f"{top}/out" if case.job else f"{top}/store.zarr", folder / "output")
        if not case.job:
            write_table(folder / "table.csv")
            return place
        store = f"{self._bucket}/data.zarr" if case.bucket else str(self._data / f"{case.store}.zarr")
        cluster: dict[str, Any] = {
            "scheduler_file": {"path": str(self._cluster.file), "workers": WORKERS, "wait": "60s"}
        }
        if case.cold:
            cluster = {"local": {"workers": 1, "memory": "600MB"}}
        artefacts = f"{top}/artefacts"
        keys = {"store": store, "out": place.out, "artefacts": artefacts, "k": 4, "seed": 3, "cluster": cluster}
        keys = {**keys, "checkpoint_seconds": CHECKPOINT_SECONDS, **case.job}
        (folder / "job.yaml").write_text(yaml.safe_dump(keys))
        return place

    def _draw(self, case: Case) -> str:
        names = [
            name for name in DISTURBANCES
            if not (case.cold and "scheduler" in name)
            and not (not case.job and name in ("worker", "scheduler", "hung scheduler"))
            and not (case.bucket and name in ("full", "hung scheduler"))
            and not (case.cold and name == "worker")
        ]  # fmt: skip
        return self._random.choices(names, [_WEIGHTS[name] for name in names])[0]

    def _attempt(self, case: Case, place: Place, disturbance: str | None) -> tuple[int | None, bool]:
        """Run the command once; return its exit code, and whether it should not be tried again."""
        if case.job and not case.cold:
            self._cluster.heal()
        limit = self._random.choice([300, 1000, 3000, 10_000, 30_000, 100_000]) if disturbance == "full" else None
        start = place.output.stat().st_size if place.output.exists() else 0
        child = self._start(case, place, limit)
        hit = False
        try:
            if disturbance is not None:
                hit = self._disturb(case, place, child, disturbance, start)
            code = child.wait(_LIMITS[disturbance] if hit and disturbance in _LIMITS else _LONGEST)
            if code is None:
                if not case.cold:
                    child.send(signal.SIGUSR2)  # it prints where its threads are
                    child.wait(1)
                self.findings.defect("hangs", f"{case.name}, {disturbance}: {_LONGEST} s; see {place.output}")
                return None, True
            self._check_end(case, place, child, code, disturbance if hit or limit else None)
        finally:
            child.end()
            if disturbance == "hung scheduler":
                self._cluster.end()
        return code, False

    def _start(self, case: Case, place: Place, limit: int | None) -> Child:
        words = ["run", str(place.folder / "job.yaml")]
        if not case.job:
            words = ["ingest", str(place.folder / "table.csv"), place.out, "--target", "y", "--memory", "1MiB"]
        environment = {"TMPDIR": str(place.folder / "tmp"), "DASK_TEMPORARY_DIRECTORY": str(place.folder / "tmp")}
        target: Callable[[], object] = partial(_execute if case.cold else _command, words)
        return fork(target, place.output, environment, folder=place.folder, most_bytes=limit)

    def _disturb(self, case: Case, place: Place, child: Child, disturbance: str, start: int) -> bool:
        """Wait for a moment and disturb the command; return whether it was still there."""
        while not (child.handles(signal.SIGTERM) and child.handles(signal.SIGINT)):
            time.sleep(0.002)
        trigger = self._random.choice(_TRIGGERS)
        longest = self._typical[case.name]
        delay = self._random.uniform(0, longest if not trigger else min(0.3, longest))
        deadline = time.monotonic() + 2 * longest + 5
        while trigger and child.poll() is None and time.monotonic() < deadline and trigger not in _new(place, start):
            time.sleep(0.005)
        if child.wait(delay) is not None or disturbance == "full":
            return disturbance == "full"
        self.findings.kinds[disturbance] += 1
        self.findings.counts["kills"] += 1
        searched = _seconds_of_search(place, start) if disturbance == "kill" else 0.0
        if disturbance in ("kill", "term", "interrupt"):
            number = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}[disturbance]
            child.send(number)
        elif disturbance == "worker" and self._cluster.workers:
            self._random.choice(self._cluster.workers).send(signal.SIGKILL)
            time.sleep(0.3)
            self._cluster.heal()
        elif disturbance == "scheduler":
            self._cluster.scheduler.send(signal.SIGKILL)
        elif disturbance == "hung scheduler":
            self._cluster.scheduler.send(signal.SIGSTOP)
        self._check_checkpoint(case, place, searched)
        return True

    def _check_checkpoint(self, case: Case, place: Place, searched: float) -> None:
        """A search that ran for longer than the interval must have been saved since."""
        if searched <= CHECKPOINT_SECONDS + _SLACK or case.bucket:
            return
        saved = Path(place.out) / "checkpoint.json"
        age = time.time() - saved.stat().st_mtime if saved.exists() else searched
        if age > CHECKPOINT_SECONDS + _SLACK:
            self.findings.defect("work_lost", f"{case.name}: {age:.1f} s; see {place.output}")

    def _check_end(self, case: Case, place: Place, child: Child, code: int, disturbance: str | None) -> None:
        """Check the exit code, what was printed, and that no process is left."""
        if disturbance == "full" and code != 0:
            self.findings.kinds["full"] += 1
            self.findings.counts["kills"] += 1
        if code == 73 and not case.job and "exists already" in _new(place, 0):
            code = 0
        listed = (0, *(() if disturbance is None else DISTURBANCES[disturbance]))
        if code not in listed:
            self.findings.defect("unlisted_exit_codes", f"{case.name}, {disturbance}: {code}; see {place.output}")
        deadline = time.monotonic() + 10
        while (left := child.session()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            names = []
            for process in left:
                with suppress(Exception):
                    names.append(" ".join(process.cmdline())[:80])
            self.findings.defect("orphans", f"{case.name}, {disturbance}: {names}; see {place.output}")

    def _digest(self, case: Case, place: Place) -> str:
        """Return the digest of the result, from another process: this one must have no threads."""
        file = place.folder / "digest"
        child = fork(partial(_write_digest, case, place.out, file), place.output, {}, folder=place.folder)
        child.wait(60)
        return file.read_text() if file.exists() else "no result"

    def _left(self, place: Place) -> list[str]:
        """Return the files that should not be there after the work is done."""
        found = [str(path) for path in (place.folder / "tmp").glob("dsel-*")]
        if not place.out.startswith("s3://"):
            for folder in (Path(place.out), place.folder / "artefacts", place.folder):
                found += [str(path) for path in folder.glob("*") if _is_left(path)]
        return found


@dataclass(frozen=True)
class Place:
    """Where one command works: its folder, its result, and what it prints."""

    folder: Path
    out: str
    output: Path


def _is_left(path: Path) -> bool:
    name = path.name
    if name.startswith(".lock-"):  # the number shows that a run was taken for dead; its file says that it is free
        return path.read_text() != "free"
    return name.startswith((".", "cache", "objective-", "checkpoint")) or name.endswith((".ingesting", ".new"))


def _new(place: Place, start: int) -> str:
    """Return what the current attempt has printed."""
    with suppress(OSError), place.output.open() as file:
        file.seek(start)
        return file.read()
    return ""


def _seconds_of_search(place: Place, start: int) -> float:
    """Return for how long the current attempt has searched; 0 if it does not."""
    lines = _new(place, start).splitlines()
    stages = [
        line for line in lines if line.endswith(("INFO statistics", "INFO search", "INFO check", "INFO certificate"))
    ]
    if not stages or not stages[-1].endswith("INFO search"):
        return 0.0
    moment = time.mktime(time.strptime(stages[-1][:19], "%Y-%m-%d %H:%M:%S"))
    return max(time.time() - moment - 1.0, 0.0)


def _command(words: list[str]) -> None:
    """Run the command line in this process."""
    sys.argv = ["dsel", *words]
    faulthandler.register(signal.SIGUSR2)
    from dsel.__main__ import main

    main()


def _execute(words: list[str]) -> None:
    """Become a new interpreter that runs the command line."""
    os.execv(sys.executable, [sys.executable, "-m", "dsel", *words])


def _write_digest(case: Case, out: str, file: Path) -> None:
    file.write_text((digest_of_result if case.job else digest_of_store)(out))


def run_lane(lane: Lane, kills: int, seconds: float, file: Path) -> None:
    """Run a lane in a separate process, which writes what it found to a file."""
    findings = lane.run(kills, seconds)
    values = {"counts": findings.counts, "kinds": findings.kinds, "lines": findings.lines}
    file.write_text(json.dumps(values))


def start_s3_server(folder: Path) -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Start an S3 server that fails now and then; return it, and the variables that lead to it."""
    process = subprocess.Popen([sys.executable, "-m", "pipelines.chaos.s3_server"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    return process, {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "chaos", "AWS_SECRET_ACCESS_KEY": "chaos",
    }  # fmt: skip
