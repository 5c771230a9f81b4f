"""Disturb jobs at random moments: `python -m pipelines.chaos --kills 1000`.

Processes are killed, or stopped for some seconds. Disks are filled up. Object storage answers with errors, slowly, in
part, or not at all.

The last line is JSON: how many disturbances there were (kills), and how often a result differed (silently_wrong: all
commands ended with 0), a process or a file was left behind, a command did not end in time, an exit code was none of
those documented, or more work was lost than one interval of checkpoints. All but the first must be 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

from pipelines.chaos.cases import CASES, Case, arrays  # noqa: E402
from pipelines.chaos.commands import import_everything  # noqa: E402
from pipelines.chaos.damage import run_damages  # noqa: E402
from pipelines.chaos.disturbances import DISTURBANCES  # noqa: E402
from pipelines.chaos.findings import COUNTS, Findings  # noqa: E402
from pipelines.chaos.forks import Child, fork  # noqa: E402
from pipelines.chaos.lane import Lane, run_lane  # noqa: E402
from pipelines.chaos.patience import Patience  # noqa: E402
from pipelines.chaos.s3_server import STORMS, start_s3_server  # noqa: E402
from pipelines.chaos.storms import Storms  # noqa: E402

BUCKET = "s3://chaos"
#: Seconds between two lines of progress.
_PROGRESS_SECONDS = 60.0


@dataclass(frozen=True)
class Campaign:
    """What is disturbed, and for how long.

    Parameters
    ----------
    folder : Path
        Where it works.
    cases : list of Case
        The work.
    kills, lanes, seed : int
        How many kills, how many jobs at the same time, and the seed of what is drawn.
    seconds : float
        It stops after this time.
    patience : float
        The factor of all time limits.
    kinds : list of str
        What disturbs.
    """

    folder: Path
    cases: list[Case]
    kills: int
    lanes: int
    seed: int
    seconds: float
    patience: float
    kinds: list[str]

    def run(self) -> Findings:
        """Disturb cases in several lanes, and return what was found."""
        server = None
        if any(case.bucket for case in self.cases):
            server, environment = start_s3_server(self.folder)
            os.environ.update(environment)
        running: list[tuple[Child, Path]] = []
        try:
            import_everything(sorted({str(case.job["method"]) for case in self.cases if case.job and not case.cold}))
            _in_child(partial(_make_stores, self.folder / "data", server is not None), self.folder)
            running += [self._start(number) for number in range(self.lanes)]
            _wait([child for child, _ in running], [file for _, file in running])
        finally:
            for child, _ in running:
                child.stop()
            if server is not None:
                server.terminate()
                server.wait()
        return _sum([(child.code, file) for child, file in running])

    def _start(self, number: int) -> tuple[Child, Path]:
        mine = self.cases[number :: self.lanes] if len(self.cases) >= self.lanes else self.cases
        seed = 1000 * self.seed + number
        lane = Lane(
            self.folder / f"lane-{number}", self.folder / "data", mine, seed, Patience(self.patience), BUCKET,
            self.kinds, Storms(self.folder / STORMS),
        )  # fmt: skip
        file = self.folder / f"lane-{number}.json"
        share = self.kills // self.lanes + (number < self.kills % self.lanes)
        work = partial(run_lane, lane, share, self.seconds, file)
        return fork(work, self.folder / f"lane-{number}.log", {}, folder=self.folder), file


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign and return 0 if it found no defect."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="how many kills")
    parser.add_argument("--lanes", type=int, default=4, help="how many jobs at the same time")
    parser.add_argument("--seed", type=int, default=0, help="for what is drawn")
    parser.add_argument("--seconds", type=float, default=7200.0, help="stop after this time")
    parser.add_argument("--patience", type=float, default=4.0, help="the factor of all time limits")
    parser.add_argument("--only", default="", help="only cases whose name contains this; several after commas")
    parser.add_argument("--kinds", default=",".join(DISTURBANCES), help="what disturbs; several after commas")
    parser.add_argument("--folder", type=Path, help="work here, and keep it")
    parser.add_argument("--damages", type=int, default=0, help="damage this number of files instead; see damage.py")
    asked = parser.parse_args(arguments)
    if asked.damages:
        return run_damages(
            asked.damages, asked.folder, only=asked.only, seed=asked.seed, seconds=asked.seconds,
            patience=asked.patience,
        )  # fmt: skip
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="dsel-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if any(part in case.name for part in asked.only.split(","))]
    signal.signal(signal.SIGTERM, _stop)
    kinds = [kind for kind in DISTURBANCES if kind in asked.kinds.split(",")]
    found = Campaign(
        folder.absolute(), cases, asked.kills, asked.lanes, asked.seed, asked.seconds, asked.patience, kinds
    ).run()
    for line in _report(found, cases, folder):
        print(line)
    clean = not found.lines
    if clean and asked.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"logs are in {folder}")
    print(json.dumps({name: found.counts[name] for name in COUNTS}))
    return 0 if clean else 1


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _report(found: Findings, cases: list[Case], folder: Path) -> list[str]:
    """Return the lines that tell which kills hit what, what took how long, and the defects."""
    lines = ["kills by case, and the stages that they hit:"]
    for case in cases:
        stages = found.stages.get(case.name, Counter())
        hit = ", ".join(f"{stage} {count}" for stage, count in sorted(stages.items()))
        total = sum(stages.values())
        lines.append(f"  {case.name}: done {found.finished[case.name]} times, {total} kills ({hit})")
    lines.append("kinds of kills: " + ", ".join(f"{kind} {count}" for kind, count in sorted(found.kinds.items())))
    slowest = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in sorted(found.slowest.items()))
    lines.append(f"longest time to end after: {slowest}")
    with suppress(OSError):
        faults = json.loads((folder / "faults.json").read_text())
        lines.append("requests to object storage by fault: " + ", ".join(f"{kind} {n}" for kind, n in faults.items()))
    return lines + found.lines


def _wait(children: list[Child], files: list[Path]) -> None:
    """Wait for the lanes, and print how far they are. A signal ends the wait."""
    last = time.monotonic()
    with suppress(KeyboardInterrupt):
        while any(child.poll() is None for child in children):
            time.sleep(0.2)
            if time.monotonic() - last >= _PROGRESS_SECONDS:
                last = time.monotonic()
                found = _sum([(0, file) for file in files])
                print(f"{time.strftime('%H:%M:%S')} {json.dumps({n: found.counts[n] for n in COUNTS})}", flush=True)


def _sum(lanes: list[tuple[int | None, Path]]) -> Findings:
    """Return the findings of all lanes."""
    total = Findings()
    for code, file in lanes:
        if code != 0:
            total.defect("unlisted_exit_codes", f"a lane ended with {code}: see {file.with_suffix('.log')}")
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        total.lines += found["lines"]
        for name in ("counts", "kinds", "finished"):
            getattr(total, name).update(found[name])
        for case, stages in found["stages"].items():
            total.stages.setdefault(case, Counter()).update(stages)
        for kind, seconds in found["slowest"].items():
            total.ended(kind, seconds)
    return total


def _in_child(target: partial[None], folder: Path) -> None:
    child = fork(target, folder / "setup.log", {}, folder=folder)
    if child.wait(3000) != 0:
        sys.exit(f"the data could not be made: see {folder / 'setup.log'}")


def _make_stores(data: Path, bucket: bool) -> None:
    from dsel.data.ingest import ingest_arrays

    data.mkdir()
    for store, chunks in (("data", (100, 24)), ("wide", (48, 300))):
        X, Y = arrays(store)
        ingest_arrays(X, data / f"{store}.zarr", y=Y, chunks=chunks)
        if bucket and store == "data":
            ingest_arrays(X, f"{BUCKET}/data.zarr", y=Y, chunks=(600, 24))


if __name__ == "__main__":
    sys.exit(main())
