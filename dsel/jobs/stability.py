"""Stability selection from a store, on threads of this process or on a cluster."""

from __future__ import annotations

import logging
from typing import Any

from dsel.config.cluster import ClusterSection
from dsel.config.request import SelectionRequest
from dsel.data.dataset import as_dataset
from dsel.data.row_window import select_rows
from dsel.jobs.reporting import Reporter
from dsel.jobs.workers import engine_on
from dsel.selection.context import RunContext
from dsel.selection.stability.result import Stability
from dsel.selection.stability.run import run_stability
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")


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
    dataset = as_dataset(
        str(store), targets=request.targets, unsupervised=request.unsupervised, sample_weight=request.sample_weight
    )
    dataset = select_rows(dataset, request.rows)
    reporter = reporter or Reporter.for_terminal()
    with engine_on(cluster, reporter, "stability") as engine:
        found = run_stability(dataset, request, RunContext(engine), **sampling)
        if out is not None:
            found.save(out)
            log.info("result in %s", out)
    return found
