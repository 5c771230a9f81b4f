"""Rank all columns of mnist5 by greedy selection on leave-one-out accuracy: 70 000 rows, out of core."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dsel.config.cluster import ClusterSection, LocalSection
from dsel.config.job import JobFile
from dsel.data.ingest import ingest_arrays
from dsel.jobs.runner import run_job
from pipelines.papers.datasets import load, missing


def run(folder: Path) -> None:
    """Write the store and run the job in `folder` on two workers; a second call continues both."""
    arrays = load("mnist")
    if arrays is None:
        print(missing("mnist"))
        return
    store = folder / "mnist5.zarr"
    X = arrays["X"].astype(np.uint8)
    if not store.exists():
        folder.mkdir(parents=True, exist_ok=True)
        ingest_arrays(X, store, y=np.where(arrays["Y"][:, :1] == 5.0, 1.0, -1.0), chunks=(5000, X.shape[1]))
    cluster = ClusterSection(local=LocalSection(workers=2, memory="1GiB"))
    job = JobFile(
        store=store.absolute(), k=X.shape[1], method="greedy-rls", cluster=cluster, out=(folder / "result").absolute(),
        options={"loss": "zero-one", "lam_grid": "auto"},
    )  # fmt: skip
    found = run_job(job)
    accuracy = [float(row.accuracy or 0.0) for row in found.path]
    best = int(np.argmax(accuracy))
    print(f"{len(found)} of {X.shape[1]} columns chosen (the others are constant), lam {found.lam:g}, {found.ended}")
    ends = f"{accuracy[0]:.4f} with 1, {accuracy[best]:.4f} with {best + 1}, {accuracy[-1]:.4f} with all"
    print(f"leave-one-out accuracy: {ends}")
    print(f"seconds of the last run: {found.seconds}; {found.counts}")
