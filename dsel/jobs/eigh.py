"""Decompose a store and write the result to a Zarr group; an interrupted run continues from its last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dsel.config.request import Missing, Preprocess, SketchRule
from dsel.data.dataset import as_dataset
from dsel.engine.thread_engine import THREADS
from dsel.errors import OutputError
from dsel.passes.execution.pass_checkpoints import PassCheckpoints, checkpoint_passes
from dsel.planning.eigh import Eigendecomposition, EighMethod, decompose, plan_lines
from dsel.planning.plan import available_resources


def eigh_run(
    store: str, rule: SketchRule | None, out: Path | None, *, method: EighMethod, preprocess: Preprocess,
    missing: Missing, seed: int, overwrite: bool, checkpoint_seconds: float, on_plan: Callable[[str], None],
) -> Eigendecomposition:  # fmt: skip
    """Return the eigendecomposition of a store, and write it to `out` if that is given.

    on_plan: called with each line of the plan before the first pass. Passes are saved next to `out` while they run, and
    the files are removed at the end.

    Raises
    ------
    OutputError
        `out` exists and may not be replaced.
    OptionError, CapacityError, DataError
        As for `dsel.eigh`.
    """
    if out is not None and out.exists() and not overwrite:
        raise OutputError(f"{out} exists.", "Choose another place, or replace it with --overwrite.")
    dataset = as_dataset(store, None, unsupervised=True)
    available = available_resources(THREADS.workers, THREADS.worker_memory, THREADS.keeps_values)
    for line in plan_lines(dataset, rule, method, available):
        on_plan(line)

    def run() -> Eigendecomposition:
        return decompose(
            dataset, rule, method, THREADS, available, preprocess=preprocess, missing=missing, seed=seed
        )  # fmt: skip

    if out is None:
        return run()
    saved = PassCheckpoints(out.with_name(f"{out.name}.passes"), checkpoint_seconds, keep=True)
    with checkpoint_passes(saved):
        found = run()
    try:
        labels = found.features.astype(np.dtypes.StringDType())
        table = found.to_xarray().assign_coords(feature=labels)
        table.to_zarr(out, mode="w", consolidated=False)
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error}", "Choose another place.") from error
    saved.clear()
    return found
