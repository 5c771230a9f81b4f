"""The work that is disturbed: jobs of every method, stage and representation, and an ingest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS = 3000, 24
#: How often searches are saved.
CHECKPOINT_SECONDS = 0.2


@dataclass(frozen=True)
class Case:
    """One command, which is repeated until it has done its work.

    Parameters
    ----------
    name : str
        What the report calls it.
    job : dict
        Keys of the job file. Empty: an ingest.
    store : {"data", "wide"}
        The data.
    cold : bool
        A new interpreter and a local cluster, in place of a forked process and a running scheduler.
    bucket : bool
        Data and results are in object storage that fails.
    """

    name: str
    job: dict[str, Any] = field(default_factory=dict)
    store: str = "data"
    cold: bool = False
    bucket: bool = False


def slow_closeness(S: Sequence[int], data: Any) -> float:
    """A criterion that takes a while."""
    from time import sleep

    sleep(0.002)
    return float(abs(data.Y[:, 0] - data.columns(S).mean(axis=1)).mean())


_POSS = {"iterations": 4_000_000, "exchange_every": 50_000}
_PPOSS = {"iterations": 1600, "processors": 8}
_CRITERION = {"criterion": "pipelines.chaos.cases:slow_closeness"}
_PROOF = {"certify": {"time": "60s", "sizes": "all"}}

CASES = (
    Case("poss", {"method": "poss", "options": _POSS}),
    Case("poss, certified", {"method": "poss", "options": {"iterations": 200_000}, **_PROOF}),
    Case("poss of a criterion", {"method": "poss", "options": {"iterations": 600}, **_CRITERION}),
    Case("poss, k=auto", {"method": "poss", "k": "auto", "options": {"iterations": 100_000}}),
    Case("pposs", {"method": "pposs", "options": {"iterations": 400_000, "processors": 8}}),
    Case(
        "pposs of a criterion",
        {"method": "pposs", "options": _PPOSS, "checkpoint_evaluations": 50, **_CRITERION},
    ),
    Case("pposs-asy", {"method": "pposs-asy", "options": {"iterations": 40_000}}),
    *(
        Case(name, {"method": name})
        for name in ("forward", "omp", "foba", "backward", "rfe", "exchange", "greedy-rls", "kfold", "astar")
    ),
    Case("branch-and-bound", {"method": "branch-and-bound"}),
    Case("unsupervised poss", {"method": "poss", "unsupervised": True, "options": {"iterations": 300_000}}),
    Case("two-stage", {"method": "two-stage", "unsupervised": True}),
    Case("approx-svd", {"method": "approx-svd", "unsupervised": True}),
    Case("wide forward", {"method": "forward", "preprocess": "none"}, store="wide"),
    Case("ingest"),
    Case("cold poss", {"method": "poss", "options": _POSS}, cold=True),
    Case("cold forward, certified", {"method": "forward", **_PROOF}, cold=True),
    Case(
        "cold pposs of a criterion", {"method": "pposs", "options": _PPOSS, **_CRITERION},
        cold=True,
    ),
    Case("bucket poss", {"method": "poss", "options": _POSS}, bucket=True),
    Case("bucket kfold", {"method": "kfold"}, bucket=True),
    Case("bucket ingest", bucket=True),
)  # fmt: skip


def arrays(store: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X and Y of a store: 3000 x 24, or 60 x 3000."""
    rng = np.random.default_rng(5)
    rows, columns = (ROWS, COLUMNS) if store == "data" else (COLUMNS * 2, ROWS)
    X = rng.integers(-512, 512, size=(rows, columns)) / 256
    Y = X[:, 1:12:3].sum(axis=1) + rng.integers(-512, 512, size=rows) / 64
    return X, Y[:, None]


def write_table(path: Path) -> None:
    """Write the table that is ingested."""
    X, Y = arrays("data")
    names = ",".join([*(f"c{j}" for j in range(COLUMNS)), "y"])
    np.savetxt(path, np.hstack([X, Y]), "%.17g", ",", header=names, comments="")


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


def digest_of_store(store: Any) -> str:
    """Return a digest of the values and the labels of a store."""
    from dsel.data.store.reader import open_store

    found = open_store(store)
    x = found.x.read(0, found.shape[0])
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes() + repr(list(found.features)).encode()).hexdigest()
