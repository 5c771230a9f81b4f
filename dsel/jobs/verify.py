"""Check the proofs of a result against the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from dsel.data.dataset import Dataset, as_dataset
from dsel.data.labels import resolve_labels
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import engine_for
from dsel.errors import DataError, MissingInputError, OptionError
from dsel.jobs.locations import job_dataset
from dsel.jobs.run_folder import RunFolder, proof_logs
from dsel.passes.execution.accounting import log_passes
from dsel.selection.saved import open_selection
from dsel.storage.paths import AnyPath, as_path
from dsel.verification.check import TOLERANCE, Progress, check_log
from dsel.verification.problem import EPSILON, extended_sums
from dsel.verification.report import ProofCheck, Verification


def verify(
    folder: str | AnyPath, *, store: Any = None, sample: int | None = None, seed: int = 0,
    tolerance: float = TOLERANCE, workers: int = 1, progress: Progress | None = None,
) -> Verification:  # fmt: skip
    """Check the proofs of a result against the data, without any code of the search.

    Parameters
    ----------
    folder : str, Path or ObjectPath
        The folder of a finished job that was certified with a log.
    store : str, Path or ObjectPath, optional
        The data. By default the store that the job names, which must be unchanged.
    sample : int, optional
        Recompute a random sample of this many leaves of each log. By default all leaves are recomputed.
    seed : int
        The seed of the sample.
    tolerance : float
        What the check allows for rounding, as a share of ||Y||^2.
    workers : int
        Processes on this machine that work on the check.
    progress : callable, optional
        Called with the numbers of checked files and of all files of a log.

    Returns
    -------
    Verification
        What was checked, and what is wrong. Print it, or read `accepted`.

    Raises
    ------
    MissingInputError
        The folder holds no finished job, or no proof log.
    DataError
        The data have changed since.
    OptionError
        An argument is wrong.

    Notes
    -----
    Two passes over the data sum the Gram matrix in extended precision. Each leaf then costs one elimination of at most
    n columns, O(n^3). A check that is interrupted continues where it was.
    """
    if sample is not None and sample < 1:
        raise OptionError(f"sample is {sample}.", "It is a number of leaves >= 1.")
    if not 0.0 < tolerance < 1.0:
        raise OptionError(f"tolerance is {tolerance}.", "It is a share of ||Y||^2 between 0 and 1, such as 1e-9.")
    path = as_path(folder)
    logs = proof_logs(path)
    selection, (identity, job) = open_selection(path), RunFolder(path).job()
    if not logs:
        raise MissingInputError(
            f"{path} holds no complete proof log.", f"Prove with a log first: dsel certify {path} --log"
        )
    request = job.request()
    if store is None:
        dataset = job_dataset(job)
        if dataset.fingerprint != identity["fingerprint"]:
            raise DataError(f"The store {job.store} was written to since {path} was made.", "Run the job again.")
    else:
        dataset = as_dataset(store, targets=job.targets, unsupervised=job.unsupervised, sample_weight=job.sample_weight)
    include, exclude = (_indices(dataset, columns) for columns in (request.include, request.exclude))
    with log_passes() as made, local_cluster(workers) if workers > 1 else nullcontext() as client:
        engine = engine_for(client)
        sums = extended_sums(dataset, request.preprocess, request.missing, engine)
        checks = tuple(
            check_log(
                log, sums, engine, lam=request.lam, included=include, excluded=exclude, sample=sample, seed=seed,
                tolerance=tolerance, progress=progress,
            )
            for log in logs.values()
        )  # fmt: skip
    precision = f"extended precision, eps {EPSILON:.1g}"
    return Verification(checks, tuple(_unverified(selection.certificate, checks)), made.passes, precision)


def _indices(dataset: Dataset, columns: Sequence[str | int]) -> list[int]:
    return [int(j) for j in resolve_labels(columns, dataset.features, "feature", "columns")]


def _unverified(certificates: Iterable[dict[str, Any]], checks: Sequence[ProofCheck]) -> Iterable[str]:
    """Yield the certificates that no log proves: that of as many or more columns has the same bound or a better one."""
    for one in certificates:
        slack = 2.0 * TOLERANCE * one["total"]
        if not any(c.accepted and c.size >= one["size"] and c.bound >= one["bound"] - slack for c in checks):
            yield f"the bound {one['bound']:.10g} for {one['size']} columns ({one['method']}) has no valid log"
