"""One lane: jobs that are disturbed one after the other, with a separate cluster and folders."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from pipelines.chaos.cases import (
    CHECKPOINT_SECONDS,
    RUN,
    Case,
    Command,
    digest_of_result,
    digest_of_runs,
    digest_of_store,
    write_tables,
)
from pipelines.chaos.cluster import WORKERS, Cluster
from pipelines.chaos.commands import run_here, run_in_new_interpreter
from pipelines.chaos.disk import Disk
from pipelines.chaos.disturbances import DISK_LIMITS, DISTURBANCES, FILE_LIMITS
from pipelines.chaos.findings import Findings
from pipelines.chaos.forks import Child, answer_of, fork
from pipelines.chaos.left import left_behind
from pipelines.chaos.output import printed, seconds_of_search, size, stage
from pipelines.chaos.patience import Patience
from pipelines.chaos.place import Place
from pipelines.chaos.stops import CODES_OF_SECOND_RUN, drawn_seconds, stopped
from pipelines.chaos.storms import Storms, impatience

#: Within how many seconds a command must end that is not disturbed, on an idle machine.
_LONGEST = 60.0
#: A command waits for one of these lines before it is disturbed, or for nothing.
_TRIGGERS = ("", "", "dsel ", "INFO statistics", "INFO search", "INFO search", "INFO check", "INFO certificate")
#: After this number of kills a command is left alone.
_MOST_KILLS = 8
#: A checkpoint may be this much older than its interval when a search is killed.
_SLACK = 3.0


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
    patience : Patience
        How long commands may take.
    bucket : str
        The URL of a bucket that fails; empty if there is none.
    kinds : sequence of str
        What disturbs.
    storms : Storms, optional
        Faults of object storage.
    """

    def __init__(
        self, folder: Path, data: Path, cases: Sequence[Case], seed: int, patience: Patience, bucket: str = "",
        kinds: Sequence[str] = tuple(DISTURBANCES), storms: Storms | None = None,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True)
        self._folder, self._data, self._cases, self._bucket = folder, data, cases, bucket
        self._random, self._patience, self._kinds = random.Random(seed), patience, kinds
        self._cluster, self._disk = Cluster(folder), Disk(folder / "disk")
        self._storms = storms or Storms(folder / "storms")
        self._expected: dict[str, str] = {}
        self._typical: dict[Command, float] = {}
        self._triggers: dict[Command, list[str]] = {}
        self._number = 0
        self.findings = Findings()

    def run(self, kills: int, seconds: float, report: Callable[[Findings], None]) -> None:
        """Disturb cases until this number of kills is reached, or the seconds have passed. Report after each."""
        deadline = time.monotonic() + seconds
        order: list[Case] = []
        try:
            while self.findings.counts["kills"] < kills and time.monotonic() < deadline:
                if not order:  # all cases, in an order that is drawn
                    order = self._random.sample(list(self._cases), len(self._cases))
                self._one(order.pop(), kills)
                report(self.findings)
        finally:
            self._cluster.end()
            self._disk.close()

    def _one(self, case: Case, kills: int) -> None:
        """Disturb a case until it has done its work, and check what it leaves."""
        if case.name not in self._expected:
            place = self._prepare(case)
            if not self._undisturbed(case, place):
                return
            self._expected[case.name] = self._digest(case, place)
            self._remove(place)
        place, before = self._prepare(case), self.findings.counts["kills"]
        for command in case.commands:
            most = min(kills, before + _MOST_KILLS)
            if not self._until_done(case, place, command, most):
                return self._keep(place)
        self._check(case, place)

    def _undisturbed(self, case: Case, place: Place) -> bool:
        for command in case.commands:
            began, start = time.monotonic(), size(place.output)
            code = self._attempt(case, place, command, None)
            if code != 0:
                if code is not None:
                    text = f"{case.name}, undisturbed {command[0]}: {code}; see {place.output}"
                    self.findings.defect("unlisted_exit_codes", text)
                self._keep(place)
                return False
            self._typical[(case.name, *command)] = time.monotonic() - began
            self._triggers[(case.name, *command)] = [line for line in _TRIGGERS if line in printed(place.output, start)]
        return True

    def _until_done(self, case: Case, place: Place, command: Command, most: int) -> bool:
        """Repeat a command until it has done its work; return whether that worked."""
        for attempt in range(3 * _MOST_KILLS):
            disturb = attempt < 2 * _MOST_KILLS and self.findings.counts["kills"] < most
            disturbance = self._draw(case, command) if disturb else None
            code = self._attempt(case, place, command, disturbance)
            if code is None:
                return False
            # A certify that a signal stops saves what is proved, and has done that.
            partly = command[0] == "certify" and disturbance in ("term", "interrupt")
            # An ingest may have been stopped after the store had appeared.
            if (code == 0 and not partly) or (command[0] == "ingest" and "exists already" in printed(place.output, 0)):
                return True
        self.findings.defect("hangs", f"{case.name}: {command[0]} never finished; see {place.output}")
        return False

    def _check(self, case: Case, place: Place) -> None:
        """Compare what a case gives with what is expected, and look for what is left."""
        self.findings.finished[case.name] += 1
        found = self._digest(case, place)
        if found != self._expected[case.name]:
            self.findings.counts["silently_wrong"] += 1
            self.findings.defect("different", f"{case.name}: {found} in {place.out}; see {place.output}")
        elif left := self._in_child(partial(left_behind, place.top, place.out, place.store), place):
            self.findings.defect("leftovers", f"{case.name}: {left}; see {place.output}")
        elif f"{place.folder}/" not in "".join(self.findings.lines):
            return self._remove(place)
        self._keep(place)

    def _prepare(self, case: Case) -> Place:
        """Make the folder of one case, with its job file and tables."""
        self._number += 1
        name = f"{self._number:04d}-{case.name.replace(' ', '-').replace(',', '').replace('=', '-')}"
        folder = self._folder / name
        folder.mkdir()
        top = f"{self._bucket}/{name}-{self._folder.name}" if case.bucket else str(self._disk.folder / name)
        data = f"{self._bucket}/data.zarr" if case.bucket else str(self._data / f"{case.store}.zarr")
        place = Place(folder, top, data if case.store else f"{top}/store.zarr")
        (self._scratch(place)).mkdir(parents=True)
        if any(command[0] == "ingest" for command in case.commands):
            write_tables(folder)
        if case.job:
            (folder / "job.yaml").write_text(yaml.safe_dump(self._job(case, place)))
        return place

    def _job(self, case: Case, place: Place) -> dict[str, Any]:
        address = {"path": str(self._cluster.file), "workers": WORKERS, "wait": "10m"}
        cluster: dict[str, Any] = {"scheduler_file": address}
        if case.cold:
            cluster = {"local": {"workers": 1, "memory": "600MB"}}
        out: Any = {"folder": place.out, "keep": case.keep} if case.keep else place.out
        keys = {"store": place.data, "out": out, "statistics_folder": f"{place.top}/artefacts", "k": 4, "seed": 3}
        return {**keys, "cluster": cluster, "checkpoint_seconds": CHECKPOINT_SECONDS, **case.job}

    def _scratch(self, place: Place) -> Path:
        """Return the folder for temporary files of the commands."""
        return self._disk.folder / place.folder.name / "tmp"

    def _remove(self, place: Place) -> None:
        shutil.rmtree(place.folder, ignore_errors=True)
        shutil.rmtree(self._scratch(place).parent, ignore_errors=True)

    def _keep(self, place: Place) -> None:
        """Copy what a case wrote to the folder of the lane, which stays."""
        written = self._scratch(place).parent
        with suppress(OSError, shutil.Error):
            shutil.copytree(written, place.folder / "written", symlinks=True)
        shutil.rmtree(written, ignore_errors=True)

    def _draw(self, case: Case, command: Command) -> str | None:
        shared = command == RUN and not case.cold
        names = [
            name for name in self._kinds
            if (shared or not DISTURBANCES[name].of_cluster)
            and (case.bucket or not DISTURBANCES[name].of_bucket)
            and not (name == "second run" and command != RUN)
            and not (case.bucket and name in ("full", "disk full", "hung scheduler"))
            and not (name == "disk full" and not self._disk.mounted)
        ]  # fmt: skip
        return self._random.choices(names, [DISTURBANCES[name].weight for name in names])[0] if names else None

    def _attempt(self, case: Case, place: Place, command: Command, disturbance: str | None) -> int | None:
        """Run the command once; return its exit code, or None if it did not end in time."""
        shared = command == RUN and not case.cold
        if shared:
            self._cluster.heal()
        limit = self._random.choice(FILE_LIMITS) if disturbance == "full" else None
        start = size(place.output)
        child = self._start(case, place, command, limit, disturbance)
        hit = limit is not None
        try:
            if disturbance is not None and limit is None:
                hit = self._disturb(case, place, command, child, disturbance, start)
            began = time.monotonic()
            seconds = DISTURBANCES[disturbance].seconds if hit and disturbance is not None else _LONGEST
            code = self._patience.wait(child, seconds, self._cluster.heal if shared else _do_nothing)
            if code is None:
                self._report_hang(case, place, child, command, disturbance)
                return None
            if hit and limit is None:
                self.findings.ended(str(disturbance), time.monotonic() - began)
            if limit is not None and code != 0:
                self.findings.kill(case.name, "full", stage(place.output, start, command))
            self._check_end(case, place, child, code, command, disturbance if hit else None)
        finally:
            child.end()
            self._disk.free()
            self._storms.end(self._folder.name)
            if disturbance == "hung scheduler":
                self._cluster.end()
        return code

    def _report_hang(self, case: Case, place: Place, child: Child, command: Command, disturbance: str | None) -> None:
        if not case.cold:
            child.send(signal.SIGUSR2)  # it prints where its threads are
            child.wait(1)
        self.findings.defect("hangs", f"{case.name}, {command[0]}, {disturbance}: see {place.output}")

    def _start(
        self, case: Case, place: Place, command: Command, limit: int | None, disturbance: str | None = None,
        output: Path | None = None,
    ) -> Child:  # fmt: skip
        scratch = str(self._scratch(place))
        environment = {"TMPDIR": scratch, "DASK_TEMPORARY_DIRECTORY": scratch, **impatience(disturbance)}
        words = place.words(command)
        target: Callable[[], object] = partial(run_in_new_interpreter if case.cold else run_here, words)
        return fork(target, output or place.output, environment, folder=place.folder, most_bytes=limit)

    def _disturb(
        self, case: Case, place: Place, command: Command, child: Child, disturbance: str, start: int
    ) -> bool:  # fmt: skip
        """Wait for a moment and disturb the command; return whether it was still there."""
        while not (child.handles(signal.SIGTERM) and child.handles(signal.SIGINT)):
            time.sleep(0.002)
        self._wait_for_moment(place, child, (case.name, *command), start)
        if child.poll() is not None:
            return False
        self.findings.kill(case.name, disturbance, found := stage(place.output, start, command))
        searched = seconds_of_search(place.output, start) if disturbance == "kill" and found == "search" else 0.0
        if (number := DISTURBANCES[disturbance].signal) is not None:
            child.send(number)
        elif disturbance == "disk full":
            self._disk.fill(self._random.choice(DISK_LIMITS))
        elif disturbance == "worker" and self._cluster.workers:
            self._random.choice(self._cluster.workers).send(signal.SIGKILL)
            time.sleep(0.3)
            self._cluster.heal()
        elif disturbance == "scheduler":
            self._cluster.scheduler.send(signal.SIGKILL)
        elif disturbance == "hung scheduler":
            self._cluster.hang()
        elif disturbance == "stopped":
            self._stop([process.pid for process in child.session()] if self._random.random() < 0.5 else [child.pid])
        elif disturbance == "stopped worker" and self._cluster.workers:
            self._stop([self._random.choice(self._cluster.workers).pid])
        elif disturbance == "second run":
            self._run_twice(case, place, command, child)
        elif DISTURBANCES[disturbance].of_bucket:
            part = self._random.choice((place.folder.name, "data.zarr"))
            self._storms.begin(self._folder.name, disturbance, part, self._random)
        self._check_checkpoint(case, place, searched)
        return True

    def _stop(self, pids: list[int]) -> None:
        with stopped(pids):
            time.sleep(drawn_seconds(self._random))

    def _run_twice(self, case: Case, place: Place, command: Command, first: Child) -> None:
        """Start the same command while the first one is stopped, which may hold the lock."""
        output = place.folder / "second"
        with stopped([first.pid]):
            second = self._start(case, place, command, None, output=output)
            try:
                code = self._patience.wait(second, _LONGEST, _do_nothing if case.cold else self._cluster.heal)
            finally:
                second.end()
        if code is None:
            self.findings.defect("hangs", f"{case.name}, second run; see {output}")
        elif code not in CODES_OF_SECOND_RUN:
            self.findings.defect("unlisted_exit_codes", f"{case.name}, second run: {code}; see {output}")

    def _wait_for_moment(self, place: Place, child: Child, command: Command, start: int) -> None:
        trigger, longest = self._random.choice(self._triggers[command]), self._typical[command]
        delay = self._random.uniform(0, 0.8 * longest if not trigger else min(0.2, longest / 4))
        deadline = time.monotonic() + 2 * longest + 5
        while trigger and child.poll() is None and time.monotonic() < deadline:
            if trigger in printed(place.output, start):
                break
            time.sleep(0.005)
        child.wait(delay)

    def _check_checkpoint(self, case: Case, place: Place, searched: float) -> None:
        """A search that ran for longer than the interval must have been saved since."""
        most = self._patience.allowed(CHECKPOINT_SECONDS + _SLACK)
        if searched <= most or case.bucket or case.keep:
            return
        saved = Path(place.out) / "checkpoint.json"
        age = time.time() - saved.stat().st_mtime if saved.exists() else searched
        if age > most:
            self.findings.defect("work_lost", f"{case.name}: {age:.1f} s; see {place.output}")

    def _check_end(
        self, case: Case, place: Place, child: Child, code: int, command: Command, disturbance: str | None
    ) -> None:  # fmt: skip
        """Check the exit code, and that no process is left."""
        if code == 73 and command[0] == "ingest" and "exists already" in printed(place.output, 0):
            code = 0
        listed = (0, *(() if disturbance is None else DISTURBANCES[disturbance].codes))
        if code not in listed:
            text = f"{case.name}, {command[0]}, {disturbance}: {code}; see {place.output}"
            self.findings.defect("unlisted_exit_codes", text)
        deadline = time.monotonic() + self._patience.allowed(10.0)
        while (left := child.session()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            names = []
            for process in left:
                with suppress(Exception):
                    names.append(" ".join(process.cmdline())[:80])
            self.findings.defect("orphans", f"{case.name}, {disturbance}: {names}; see {place.output}")

    def _digest(self, case: Case, place: Place) -> str:
        """Return the digest of what a case gives."""
        if not case.job:
            work = partial(digest_of_store, place.store)
        else:
            work = partial(digest_of_runs if case.keep else digest_of_result, place.out)
        return str(self._in_child(work, place) or "no result")

    def _in_child(self, work: Callable[[], Any], place: Place) -> Any:
        """Return what a function returns in another process: this one must have no threads."""

        def wait(child: Child) -> None:
            self._patience.wait(child, _LONGEST)
            child.end()

        answer = answer_of(work, place.output, folder=place.folder, wait=wait)
        return ["the check failed"] if answer is None else answer


def _do_nothing() -> None:
    pass


def run_lane(lane: Lane, kills: int, seconds: float, file: Path) -> None:
    """Run a lane in a separate process, which writes what it finds to a file."""

    def report(findings: Findings) -> None:
        new = file.with_suffix(".new")
        new.write_text(json.dumps(vars(findings)))
        new.replace(file)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    report(lane.findings)
    try:
        lane.run(kills, seconds, report)
    except KeyboardInterrupt:
        report(lane.findings)
    except Exception as error:
        lane.findings.defect("unlisted_exit_codes", f"the campaign itself failed: {error!r}")
        report(lane.findings)
        raise
