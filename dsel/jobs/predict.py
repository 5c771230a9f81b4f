"""Predictions of a saved selection for all rows of a store, on threads of this process or on a cluster."""

from __future__ import annotations

import logging

from dsel.config.cluster import ClusterSection
from dsel.jobs.reporting import Reporter
from dsel.jobs.workers import engine_on
from dsel.selection.saved import open_selection
from dsel.selection.use.predict_store import PredictionReport, predict_store
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")


def predict_run(
    folder: AnyPath, store: AnyPath, out: AnyPath, *, cluster: ClusterSection | None = None, overwrite: bool = False,
    reporter: Reporter | None = None,
) -> PredictionReport:  # fmt: skip
    """Write the predictions of a saved selection for all rows of a store.

    Parameters
    ----------
    folder : Path or ObjectPath
        The result of a job, or a saved selection.
    store, out : Path or ObjectPath
        The data, and the Zarr group to write.
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
        As `dsel.selection.use.predict_store.predict_store` and the cluster raise them.
    """
    selection = open_selection(folder)
    reporter = reporter or Reporter.for_terminal()
    with engine_on(cluster, reporter, "predictions") as engine:
        found = predict_store(selection, store, out, engine=engine, overwrite=overwrite)
        log.info("predictions in %s", out)
    return found
