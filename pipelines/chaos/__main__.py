"""Kill jobs at random moments: `python -m pipelines.chaos --kills 1000`.

The last line is JSON: how many kills there were, and how often a result differed, a process or a file was left behind,
a command did not end in time, an exit code was none of those documented, or more work was lost than one interval of
checkpoints. All but the first must be 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

from pipelines.chaos.cases import CASES, Case, arrays  # noqa: E402
from pipelines.chaos.forks import Child, fork  # noqa: E402
from pipelines.chaos.lane import COUNTS, Lane, run_lane, start_s3_server  # noqa: E402

BUCKET = "s3://chaos"
_MODULES = (
    "dsel.cli", "dsel.jobs.runner", "dsel.jobs.certify", "dsel.data.ingest", "distributed", "zarr", "obstore",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign and return 0 if it found no defect."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=50, help="how many kills")
    parser.add_argument("--lanes", type=int, default=4, help="how many jobs at the same time")
    parser.add_argument("--seed", type=int, default=0, help="for what is drawn")
    parser.add_argument("--seconds", type=float, default=7200.0, help="stop after this time")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--folder", type=Path, help="work here, and keep it")
    asked = parser.parse_args(arguments)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="dsel-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if asked.only in case.name]
    counts, kinds, lines = campaign(folder.absolute(), cases, asked.kills, asked.lanes, asked.seed, asked.seconds)
    print("kinds of kills:", ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    for line in lines:
        print(line)
    clean = not any(count for name, count in counts.items() if name != "kills")
    if clean and asked.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"logs are in {folder}")
    print(json.dumps(counts))
    return 0 if clean else 1


def campaign(
    folder: Path, cases: list[Case], kills: int, lanes: int, seed: int, seconds: float
) -> tuple[dict[str, int], Counter[str], list[str]]:
    """Disturb cases in several lanes; return the counts, the kinds of kills, and a line for each defect."""
    data = folder / "data"
    server = None
    if any(case.bucket for case in cases):
        server, environment = start_s3_server(folder)
        os.environ.update(environment)
    try:
        _import_everything(sorted({str(case.job["method"]) for case in cases if case.job and not case.cold}))
        _in_child(partial(_make_stores, data, server is not None), folder)
        running = []
        for number in range(lanes):
            mine = cases[number::lanes] if len(cases) >= lanes else cases
            lane = Lane(folder / f"lane-{number}", data, mine, 1000 * seed + number, BUCKET)
            file = folder / f"lane-{number}.json"
            share = kills // lanes + (number < kills % lanes)
            output = folder / f"lane-{number}.log"
            running.append((fork(partial(run_lane, lane, share, seconds, file), output, {}, folder=folder), file))
        return _gather(running)
    finally:
        if server is not None:
            server.kill()
            server.wait()


def _gather(running: list[tuple[Child, Path]]) -> tuple[dict[str, int], Counter[str], list[str]]:
    counts, kinds = Counter(dict.fromkeys(COUNTS, 0)), Counter[str]()
    lines: list[str] = []
    for child, file in running:
        while child.poll() is None:
            time.sleep(0.2)
        if not file.exists():
            counts["unlisted_exit_codes"] += 1
            lines.append(f"a lane ended with {child.code}: see {file.with_suffix('.log')}")
            continue
        found = json.loads(file.read_text())
        counts.update(found["counts"])
        kinds.update(found["kinds"])
        lines += found["lines"]
    return dict(counts), kinds, lines


def _import_everything(methods: list[str]) -> None:
    """Import what commands use, and load the compiled kernels of methods, without starting a thread that stays."""
    from importlib import import_module

    from dsel.jobs.warm import warm

    for name in (
        "dsel.cli",
        "dsel.jobs.runner",
        "dsel.jobs.certify",
        "dsel.data.ingest",
        "distributed",
        "zarr",
        "obstore",
    ):
        import_module(name)
    if methods:
        warm(methods)


def _in_child(target: partial[None], folder: Path) -> None:
    child = fork(target, folder / "setup.log", {}, folder=folder)
    if child.wait(300) != 0:
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
