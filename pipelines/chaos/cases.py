"""The work that is disturbed: jobs of every method, stage and representation, and what is done around them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dsel.search.registry import methods_with

ROWS, COLUMNS = 3000, 24
#: How often searches are saved.
CHECKPOINT_SECONDS = 0.2

#: The commands of a case, in order. In curly brackets: places that `Lane` fills in.
Command = tuple[str, ...]
RUN: Command = ("run", "{job}")
INGEST: Command = ("ingest", "{folder}/table-0.csv", "{store}", "--target", "y", "--memory", "1MiB")
APPENDS: tuple[Command, ...] = tuple(
    ("append", f"{{folder}}/table-{number}.csv", "{store}", "--time", f"2026-08-0{number}") for number in (1, 2)
)


@dataclass(frozen=True)
class Case:
    """Commands, each of which is repeated until it has done its work.

    Parameters
    ----------
    name : str
        What the report calls it.
    job : dict
        Keys of the job file. Empty: there is no job.
    store : {"data", "wide", ""}
        The data of the job. Empty: the store that the commands make.
    commands : tuple of tuples of str
        What is done.
    cold : bool
        A new interpreter and a local cluster, in place of a forked process and a running scheduler.
    bucket : bool
        Data and results are in object storage that fails.
    keep : int
        The job is repeated in a folder of runs, which keeps this many runs. 0: there is one folder.
    """

    name: str
    job: dict[str, Any] = field(default_factory=dict)
    store: str = "data"
    commands: tuple[Command, ...] = (RUN,)
    cold: bool = False
    bucket: bool = False
    keep: int = 0


def slow_closeness(S: Sequence[int], data: Any) -> float:
    """A criterion that takes a while."""
    from time import sleep

    sleep(0.002)
    return float(abs(data.Y[:, 0] - data.columns(S).mean(axis=1)).mean())


_POSS = {"iterations": 4_000_000, "exchange_every": 50_000}
_SLICES = {"iterations": 3_000_000, "max_in_flight": 4, "task_iterations": 50_000, "search_on": "workers"}
_PPOSS = {"iterations": 1600, "processors": 8}
_CRITERION = {"criterion": "pipelines.chaos.cases:slow_closeness"}
_PROOF = {"certify": {"time": "10m", "sizes": "all"}}
_GROUPS = {"groups": [[0, 1, 2], [3, 4], [5, 6, 7, 8]], "k": 3}
_CERTIFY: Command = ("certify", "{out}", "--time", "10m")
_UNSUPERVISED = ("two-stage", "approx-svd", "leverage", "arp", "rpcholesky", "pivoted-qr")
_OPTIONS_BELOW = ("poss", "pposs", "pposs-asy")
#: All other methods run with their defaults.
_PLAIN = tuple(name for name in methods_with("name") if name not in (*_UNSUPERVISED, *_OPTIONS_BELOW))

CASES = (
    Case("poss", {"method": "poss", "options": _POSS}),
    Case("poss by slices on workers", {"method": "poss", "options": _SLICES}),
    Case("poss, certified", {"method": "poss", "options": {"iterations": 200_000}, **_PROOF}),
    Case("poss of a criterion", {"method": "poss", "options": {"iterations": 600}, **_CRITERION}),
    Case("poss, k=auto", {"method": "poss", "k": "auto", "options": {"iterations": 100_000}}),
    Case("forward, k=auto by bic", {"method": "forward", "k": "auto", "choose_k": "bic"}),
    Case("poss of groups, certified", {"method": "poss", "options": {"iterations": 200_000}, **_GROUPS, **_PROOF}),
    Case("branch-and-bound of groups", {"method": "branch-and-bound", **_GROUPS}),
    Case("pposs", {"method": "pposs", "options": {"iterations": 400_000, "processors": 8}}),
    Case(
        "pposs of a criterion",
        {"method": "pposs", "options": _PPOSS, "checkpoint_evaluations": 50, **_CRITERION},
    ),
    Case("pposs-asy", {"method": "pposs-asy", "options": {"iterations": 40_000}}),
    *(Case(name, {"method": name}) for name in _PLAIN),
    *(Case(name, {"method": name, "unsupervised": True}) for name in _UNSUPERVISED),
    Case("unsupervised poss", {"method": "poss", "unsupervised": True, "options": {"iterations": 300_000}}),
    Case("wide forward", {"method": "forward", "preprocess": "none"}, store="wide"),
    Case("forward, logged proof", {"method": "forward", "certify": {"time": "10m", "log": True}}),
    Case("certify later", {"method": "omp"}, commands=(RUN, (*_CERTIFY, "--all-sizes"))),
    Case("certify later with a log", {"method": "omp"}, commands=(RUN, (*_CERTIFY, "--log"), ("verify", "{out}"))),
    Case("ingest", commands=(INGEST,)),
    Case("append", commands=(INGEST, *APPENDS)),
    Case(
        "runs on growing data", {"method": "poss", "options": {"iterations": 100_000}, **_PROOF}, store="", keep=2,
        commands=(INGEST, RUN, APPENDS[0], RUN, APPENDS[1], RUN),
    ),
    Case("cold poss", {"method": "poss", "options": _POSS}, cold=True),
    Case("cold forward, certified", {"method": "forward", **_PROOF}, cold=True),
    Case("cold pposs of a criterion", {"method": "pposs", "options": _PPOSS, **_CRITERION}, cold=True),
    Case("bucket poss", {"method": "poss", "options": _POSS}, bucket=True),
    Case("bucket poss by slices", {"method": "poss", "options": _SLICES}, bucket=True),
    Case("bucket kfold", {"method": "kfold"}, bucket=True),
    Case("bucket forward, logged proof", {"method": "forward", "certify": {"time": "10m", "log": True}}, bucket=True),
    Case("bucket ingest", commands=(INGEST,), bucket=True),
    Case(
        "bucket runs on growing data", {"method": "forward"}, store="", keep=1, bucket=True,
        commands=(INGEST, RUN, APPENDS[0], RUN),
    ),
)  # fmt: skip


def arrays(store: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X and Y of a store: 3000 x 24, or 60 x 3000."""
    rng = np.random.default_rng(5)
    rows, columns = (ROWS, COLUMNS) if store == "data" else (COLUMNS * 2, ROWS)
    X = rng.integers(-512, 512, size=(rows, columns)) / 256
    Y = X[:, 1:12:3].sum(axis=1) + rng.integers(-512, 512, size=rows) / 64
    return X, Y[:, None]


def write_tables(folder: Path) -> None:
    """Write the tables that are ingested and appended: 3000, 170 and 20 rows."""
    X, Y = arrays("data")
    names = ",".join([*(f"c{j}" for j in range(COLUMNS)), "y"])
    values = np.hstack([X, Y])
    for number, rows in enumerate((values, values[:170] + 0.25, values[:20] - 0.25)):
        np.savetxt(folder / f"table-{number}.csv", rows, "%.17g", ",", header=names, comments="")


def digest_of_result(folder: Any) -> str:
    """Return a digest of everything in a saved selection that does not tell the time."""
    import dsel

    found = dsel.open_selection(folder)
    proofs = [{key: row.get(key) for key in ("size", "proven")} for row in found.certificate or ()]
    values = [
        list(found.indices), found.error, found.criterion, found.iterations, repr(found.front), repr(found.path),
        found.coefficients.tobytes().hex(), proofs,
    ]  # fmt: skip
    return hashlib.blake2b(json.dumps(values).encode()).hexdigest()


def digest_of_runs(folder: Any) -> str:
    """Return a digest of the last run in a folder of runs, and how many there are."""
    from dsel.selection.changes.runs import run_names

    return f"{digest_of_result(folder)} {len(run_names(folder))}"


def digest_of_store(store: Any) -> str:
    """Return a digest of the values and the labels of a store."""
    from dsel.data.store.reader import open_store

    found = open_store(store)
    x = found.x.read(0, found.shape[0])
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes() + repr(list(found.features)).encode()).hexdigest()
