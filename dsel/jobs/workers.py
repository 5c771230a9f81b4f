"""The engine of a job or a command: threads of this process, or the workers of a cluster section.

Predict all rows of a store from a saved selection, on threads of this process or on a cluster.

Run stability selection from a store, on threads of this process or on a cluster.

Decompose a store and write the result to a Zarr group; an interrupted run continues from its last checkpoint.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dsel.config.cluster import ClusterSection
from dsel.config.request import SelectionRequest
from dsel.data.requested import dataset_of
from dsel.engine.clusters.cluster import Cluster
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.dask_config import dask_logging
from dsel.engine.dask_engine import DaskEngine, WorkersOnDemand
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import OutputError
from dsel.jobs.reporting import Reporter, output_errors
from dsel.passes.execution.pass_checkpoints import PassCheckpoints, checkpoint_passes
from dsel.planning.decompose import decompose, plan_lines
from dsel.planning.eigh import Eigendecomposition, EighMethod
from dsel.planning.plan import available_resources
from dsel.planning.validation import validate
from dsel.selection.context import RunContext
from dsel.selection.result import open_selection
from dsel.selection.results.apply import Kind
from dsel.selection.results.predict_store import PredictionReport, predict_store
from dsel.selection.stability.result import Stability
from dsel.selection.stability.run import run_stability
from dsel.storage.paths import AnyPath


@contextmanager
def engine_on(section: ClusterSection | None, reporter: Reporter, stage: str) -> Iterator[Engine]:
    """Start the workers of a section, show the progress of one stage on them, and yield their engine.

    Without a section the engine is that of this process. The workers end with the block.
    """
    with reporter.showing():
        if section is None:
            reporter.stage(stage)
            yield THREADS
            return
        cluster = cluster_of(section)
        with dask_logging(), cluster.open(f"dsel-{reporter.run}") as client:
            reporter.stage(stage)
            yield DaskEngine(client, reporter.tasks, cluster.no_worker_limit)


@contextmanager
def engine_of_job(
    cluster: Cluster[Any], reporter: Reporter, logs: Path | None, on_tasks: Callable[[int, int], None], *,
    on_demand: bool,
) -> Iterator[DaskEngine | WorkersOnDemand]:  # fmt: skip
    """Provide the engine of a job's cluster, whose workers end with the block.

    on_demand: start workers only when they are needed, if their memory is known before.
    """
    from dsel.engine.scheduler_plugins import progress_metrics

    with ExitStack() as stack:

        def start() -> DaskEngine:
            client = stack.enter_context(cluster.open(f"dsel-{reporter.run}", logs))
            reporter.publish = stack.enter_context(progress_metrics(client, reporter.run))
            return DaskEngine(client, on_tasks, cluster.no_worker_limit)

        workers, memory = cluster.promised()
        if on_demand and cluster.starts_workers and memory is not None:
            yield WorkersOnDemand(start, workers, memory)
        else:
            yield start()


log = logging.getLogger("dsel")


def predict_run(
    folder: AnyPath, store: AnyPath, out: AnyPath, *, offset: str | None = None, kind: Kind = "mean",
    cluster: ClusterSection | None = None, overwrite: bool = False, reporter: Reporter | None = None,
) -> PredictionReport:  # fmt: skip
    """Write the predictions of a saved selection for all rows of a store.

    Parameters
    ----------
    folder : Path or ObjectPath
        The result of a job, or a saved selection.
    store, out : Path or ObjectPath
        The data, and the Zarr group to write.
    offset : str, optional
        The variable of the store that is added to the linear predictors. By default that of the selection, if any.
    kind : {"mean", "link"}
        The expected targets, or the linear predictors.
    cluster : ClusterSection, optional
        The workers. By default threads of this process.
    overwrite : bool
        Whether to replace a Zarr group at `out`.
    reporter : Reporter, optional
        Progress and logs. Default: bars in a terminal, log lines elsewhere.

    Returns
    -------
    PredictionReport
        Shape, bytes and time.

    Raises
    ------
    DselError
        As `dsel.selection.results.predict_store.predict_store` and the cluster raise them.
    """
    selection = open_selection(folder)
    reporter = reporter or Reporter.for_terminal()
    with engine_on(cluster, reporter, "predictions") as engine:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", UserWarning)
            found = predict_store(selection, store, out, offset=offset, kind=kind, engine=engine, overwrite=overwrite)
        for warning in heard:
            log.warning("%s", warning.message)
        log.info("predictions in %s", out)
    return found


def stability_run(
    store: AnyPath, request: SelectionRequest, *, out: AnyPath | None = None, cluster: ClusterSection | None = None,
    reporter: Reporter | None = None, **sampling: Any,
) -> Stability:  # fmt: skip
    """Return how often each column of a store is chosen on subsamples, and save the result.

    Parameters
    ----------
    store : Path or ObjectPath
        The data.
    request : SelectionRequest
        What to select on each subsample.
    out : Path or ObjectPath, optional
        The folder for the result.
    cluster : ClusterSection, optional
        The workers. By default threads of this process.
    reporter : Reporter, optional
        Progress and logs. Default: bars in a terminal, log lines elsewhere.
    **sampling
        `resample`, `samples`, `parts`, `split` and `row_groups`, as for `dsel.stability`.

    Returns
    -------
    Stability
        The frequencies.

    Raises
    ------
    DselError
        As `dsel.stability` and the cluster raise them.
    """
    dataset = dataset_of(request, str(store))
    reporter = reporter or Reporter.for_terminal()
    with engine_on(cluster, reporter, "stability") as engine:
        found = run_stability(dataset, request, RunContext(engine), **sampling)
        if out is not None:
            found.save(out)
            log.info("result in %s", out)
    return found


def eigh_run(
    store: str, request: SelectionRequest, out: Path | None, *, method: EighMethod, overwrite: bool,
    checkpoint_seconds: float, on_plan: Callable[[str], None],
) -> Eigendecomposition:  # fmt: skip
    """Return the eigendecomposition of a store, and write it to `out` if that is given.

    request: see `dsel.planning.decompose.eigh_request`. on_plan: called with each line of the plan before the first
    pass. Passes are saved next to `out` while they run, and the files are removed at the end.

    Raises
    ------
    OutputError
        `out` exists and may not be replaced.
    OptionError, CapacityError, DataError
        As for `dsel.eigh`.
    """
    if out is not None and out.exists() and not overwrite:
        raise OutputError(f"{out} exists.", "Choose another place, or replace it with --overwrite.")
    validated = validate(dataset_of(request, store), request)
    available = available_resources(THREADS.workers, THREADS.worker_memory, keeps_values=False)
    for line in plan_lines(validated, method, available):
        on_plan(line)
    if out is None:
        return decompose(validated, method, THREADS, available)
    saved = PassCheckpoints(out.with_name(f"{out.name}.passes"), checkpoint_seconds, keep=True)
    with checkpoint_passes(saved):
        found = decompose(validated, method, THREADS, available)
    labels = found.features.astype(np.dtypes.StringDType())
    with output_errors(f"{out} cannot be written", "Choose another place."):
        found.to_xarray().assign_coords(feature=labels).to_zarr(out, mode="w", consolidated=False)
    saved.clear()
    return found
