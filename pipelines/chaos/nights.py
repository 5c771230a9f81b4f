"""Kill nightly runs on a growing store at random moments: `python -m pipelines.chaos.nights --nights 30`.

Each night appends a file to a store and runs a job on it, on disk or on an S3 server that fails now and then. Both
commands are killed at random moments and started again. A night's run works in its own process, or on 1, 2 or 4 workers
of a scheduler, one of which may be killed. Its answer must have the bits of a run from the beginning in one process.

The last line is JSON: the nights and kills, how many answers differed, how many runs read chunks of rows that were
saved, how many proofs followed the tree of the night before, and how many commands failed. All but the nights, kills
and followed proofs must be 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import yaml  # noqa: E402

from pipelines.chaos.cluster import Cluster  # noqa: E402
from pipelines.chaos.commands import import_everything, run_here  # noqa: E402
from pipelines.chaos.forks import Child, answer_of, fork  # noqa: E402
from pipelines.chaos.s3_server import start_s3_server  # noqa: E402

#: As many columns as this are proved by a tree that the next night follows.
COLUMNS, FIRST_ROWS, CHUNK_ROWS = 150, 400, 40
PROOF_NODES = 100_000
#: A command is killed at most this often.
_MOST_KILLS = 3
_LONGEST = 300.0


def main(arguments: list[str] | None = None) -> int:
    """Run the nights and return 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.chaos.nights", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--nights", type=int, default=30, help="how many nights at each place")
    parser.add_argument("--places", default="disk,bucket", help="where the store and the runs are")
    parser.add_argument("--workers", default="0,1,2,4", help="numbers of workers to draw from; 0: no cluster")
    parser.add_argument("--seed", type=int, default=0, help="for what is drawn")
    parser.add_argument("--folder", type=Path, help="work here, and keep it")
    asked = parser.parse_args(arguments)
    folder = (asked.folder or Path(tempfile.mkdtemp(prefix="dsel-nights-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    import_everything(["poss"])
    counts, lines, server = Counter[str](), list[str](), None
    try:
        for place in asked.places.split(","):
            url = ""
            if place == "bucket":
                server, environment = start_s3_server(folder)
                os.environ.update(environment)
                url = "s3://chaos/nights"
            nights = Nights(folder / place, url, [int(one) for one in asked.workers.split(",")], asked.seed)
            nights.run(asked.nights)
            counts.update(nights.counts)
            lines += nights.lines
    finally:
        if server is not None:
            server.kill()
            server.wait()
    for line in lines:
        print(line)
    found = {name: counts[name] for name in ("nights", "kills", "followed", "different", "read_again", "failures")}
    if lines or asked.folder is not None:
        print(f"logs are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))
    return int(bool(lines))


class Nights:
    """Nights at one place.

    Parameters
    ----------
    folder : Path
        For logs and files to append; also for the store and the runs without a URL.
    url : str
        Where the store and the runs are; empty: in the folder.
    workers : list of int
        Numbers of workers to draw from.
    seed : int
        For what is drawn.
    """

    def __init__(self, folder: Path, url: str, workers: list[int], seed: int) -> None:
        folder.mkdir(parents=True)
        self._folder, self._top = folder, url or str(folder)
        self._random, self._typical = random.Random(seed), dict[str, float]()
        self._clusters = {count: Cluster(folder / f"workers-{count}", count) for count in workers if count}
        self._workers, self._output = workers, folder / "output"
        self.counts, self.lines = Counter[str](), list[str]()

    def run(self, count: int) -> None:
        """Append and run for this many nights."""
        self._do("first", partial(run_here, ["ingest", str(self._write(0, FIRST_ROWS)), self._store, *_INGEST]))
        try:
            for number in range(1, count + 1):
                self._night(number)
        finally:
            for cluster in self._clusters.values():
                cluster.end()

    def _night(self, number: int) -> None:
        file, rows = self._write(number, 5 + number % 7), self._rows
        self._do("append", partial(run_here, ["append", str(file), self._store]), disturbed=True)
        expected = self._answer("expected", partial(_from_the_beginning, self._job(0), self._runs))
        workers = self._random.choice(self._workers)
        cluster = self._clusters.get(workers)
        reads = self._folder / f"reads-{number}"
        job = self._job(workers)
        self._do(f"run on {workers}", partial(_counted, ["run", str(job)], reads), disturbed=True, cluster=cluster)
        found = self._answer("found", partial(_saved, self._runs))
        self.counts["nights"] += 1
        self.counts["followed"] += found["followed"]
        if found["answer"] != expected["answer"]:
            self._wrong("different", f"night {number} on {workers} workers; see {self._output}")
        first = rows // CHUNK_ROWS  # the first row of chunks that has new rows
        old = {chunk for chunk in _chunks(reads) if chunk < first}
        if old and number > 1 and not found["changed"]:  # the first check reads all rows of the chosen columns
            self._wrong("read_again", f"night {number}: rows of chunks {sorted(old)} of those before {first}")
        self._rows = rows + 5 + number % 7

    _rows = FIRST_ROWS

    @property
    def _store(self) -> str:
        return f"{self._top}/data.zarr"

    @property
    def _runs(self) -> str:
        return f"{self._top}/runs"

    def _write(self, number: int, rows: int) -> Path:
        """Write the rows of a night. From night 20 on, another column explains most of the target."""
        rng = np.random.default_rng(number)
        X = rng.normal(size=(rows, COLUMNS))
        beta = np.zeros(COLUMNS)
        beta[[1, 4, 7]] = 3.0, 2.0, 1.0
        beta[9] = 12.0 if number >= 20 else 0.0
        file = self._folder / f"{number}.csv"
        names = ",".join([*(f"c{j}" for j in range(COLUMNS)), "y"])
        np.savetxt(
            file, np.column_stack([X, X @ beta + rng.normal(size=rows)]), "%.17g", ",", header=names, comments=""
        )
        return file

    def _job(self, workers: int) -> Path:
        """Write the job file. The section of the cluster is no part of what a run is known by."""
        cluster: dict[str, Any] = {"local": {"workers": 1, "memory": "1GiB"}}
        if workers:
            cluster = {"scheduler_file": {"path": str(self._clusters[workers].file), "workers": workers, "wait": "60s"}}
        values = {
            "store": self._store, "k": 3, "seed": 5, "out": {"folder": self._runs, "keep": 3}, "cluster": cluster,
            "statistics_folder": f"{self._top}/sums", "certify": {"nodes": PROOF_NODES},
        }  # fmt: skip
        file = self._folder / f"job-{workers}.yaml"
        file.write_text(yaml.safe_dump(values))
        return file

    def _do(
        self, name: str, work: Callable[[], object], *, disturbed: bool = False, cluster: Cluster | None = None
    ) -> None:
        """Run a command in a new process until it is done, and kill it some times before."""
        kills = self._random.randrange(_MOST_KILLS + 1) if disturbed and name in self._typical else 0
        for attempt in range(kills + 1):
            if cluster is not None:
                cluster.heal()
            began = time.monotonic()
            child = fork(work, self._output, {}, folder=self._folder)
            if attempt < kills:
                self._kill(child, self._random.uniform(0.0, self._typical[name]), cluster)
            code = child.wait(_LONGEST)
            child.end()
            if code == 0:
                self._typical.setdefault(name, time.monotonic() - began)
            elif code != -signal.SIGKILL or attempt == kills:
                self._wrong("failures", f"{name} ended with {code}; see {self._output}")
                return

    def _kill(self, child: Child, delay: float, cluster: Cluster | None) -> None:
        """Kill the process after a delay, or sometimes a worker in its place."""
        if child.wait(delay) is not None:
            return
        self.counts["kills"] += 1
        workers = [] if cluster is None else cluster.workers
        if len(workers) > 1 and self._random.random() < 0.5:
            self._random.choice(workers).send(signal.SIGKILL)
        else:
            child.send(signal.SIGKILL)

    def _answer(self, name: str, work: Callable[[], object]) -> dict[str, Any]:
        """Return the answer that a function returns in another process: this one must have no threads."""
        wait = partial(Child.wait, seconds=_LONGEST)
        found = answer_of(work, self._output, folder=self._folder, wait=wait)
        if found is None:
            self._wrong("failures", f"{name}: no answer; see {self._output}")
            return {"answer": name, "changed": True, "followed": False}
        return dict(found)

    def _wrong(self, kind: str, line: str) -> None:
        self.counts[kind] += 1
        self.lines.append(f"{kind}: {line}")


_INGEST = ("--target", "y", "--chunk-rows", str(CHUNK_ROWS))


def _counted(words: list[str], reads: Path) -> None:
    """Run the command line, and write the key of every chunk that this process reads to a file."""
    from dsel.storage.zarr_store import complete_store

    plain, out = complete_store().get, os.open(reads, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def get(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        if "c/" in key:
            os.write(out, f"{key}\n".encode())
        return await plain(self, key, *args, **kwargs)

    complete_store().get = get
    run_here(words)


def _chunks(reads: Path) -> set[int]:
    """Return the rows of chunks of X and Y that were read. Labels have one dimension."""
    if not reads.exists():
        return set()
    places = [line.partition("c/")[2].split("/") for line in reads.read_text().splitlines()]
    return {int(place[0]) for place in places if len(place) == 2}


def _from_the_beginning(job: Path, runs: str) -> dict[str, Any]:
    """Return the answer of a run that uses nothing that is saved but the front of the previous run."""
    from dsel.config.job import read_job
    from dsel.data.as_dataset import as_dataset
    from dsel.jobs.certify import certify_selection
    from dsel.jobs.proof_store import ProofBudget
    from dsel.selection.changes.compare import PreviousRun
    from dsel.selection.context import RunContext
    from dsel.selection.pipeline import run_selection
    from dsel.storage.paths import as_path, latest_name

    asked = read_job(job)
    dataset, name = as_dataset(str(asked.store)), latest_name(as_path(runs))
    start = () if name is None else PreviousRun.open(as_path(runs) / name).subsets(dataset.features)
    found = run_selection(dataset, asked.request(), RunContext(start=start))
    return _answer(certify_selection(dataset, asked.request(), found, ProofBudget(nodes=PROOF_NODES)))


def _saved(runs: str) -> dict[str, Any]:
    import dsel

    return _answer(dsel.open_selection(runs))


def _answer(found: Any) -> dict[str, Any]:
    """Return everything in a selection that must have the same bits, and whether its columns are new."""
    values = [
        list(found.indices),
        found.error.hex(),
        found.r2.hex(),
        repr(found.front),
        found.coefficients.tobytes().hex(),
        [[row["size"], row["status"], row["value"].hex(), row["indices"]] for row in found.certificate],
    ]
    followed = any(row["leaves_checked"] or (found.changes and not row["began_again"]) for row in found.certificate)
    return {
        "answer": json.dumps(values), "changed": bool((found.changes or {"changed": True})["changed"]),
        "followed": followed,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
