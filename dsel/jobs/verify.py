"""Check the proofs of a result against the data."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsel._lib.text import counted
from dsel.data.column_groups import Items, SingleColumns, column_groups, named_columns
from dsel.data.requested import dataset_of
from dsel.data.schema import SOURCE
from dsel.engine.connect import engine_of
from dsel.errors import MissingInputError, OptionError
from dsel.jobs.locations import unchanged_dataset
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder, proof_logs
from dsel.passes.data_pass import log_passes
from dsel.search.exact.certificate import NO_TIME, NOTHING
from dsel.search.exact.certificate_words import counted_size
from dsel.selection.alternatives import Alternatives
from dsel.selection.result import open_selection
from dsel.storage.paths import AnyPath, as_path, is_inside, resolve_run
from dsel.verification.check import TOLERANCE, Progress, check_log, check_only_subset
from dsel.verification.problem import EPSILON, extended_sums
from dsel.verification.report import ProofCheck, Verification
from dsel.verification.tree import read_manifest

#: Readers of JSON keep integers of this size.
_SEED_BITS = 53


def verify(
    folder: str | AnyPath, *, store: Any = None, sample: int | None = None, seed: int | None = None,
    tolerance: float = TOLERANCE, workers: int = 1, state: str | Path | None = None, progress: Progress | None = None,
    reporter: Reporter | None = None,
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
    seed : int, optional
        The seed of the sample. By default nobody can predict it; the result says what it was.
    tolerance : float
        What the check allows for rounding, as a share of ||Y||^2.
    workers : int
        Processes on this machine that work on the check.
    state : str or Path, optional
        A local folder for what is checked so far. It must belong to this user, and lie outside `folder`. By default
        dsel/verify in XDG_STATE_HOME, or in ~/.local/state.
    progress : callable, optional
        Called with the numbers of checked files and of all files of a log.
    reporter : Reporter, optional
        Shows the stages of the check and its progress. By default nothing is shown.

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
        An argument is wrong, or the selection minimizes a loss other than the squared error or a custom criterion,
        whose proofs have no log.

    Notes
    -----
    Two passes over the data sum the Gram matrix in extended precision. One more read of the columns that others
    represent shows which are multiples. Each leaf then costs one elimination of at most
    n columns, O(n^3). A check that is interrupted continues where it was. Files that changed since are checked again.
    """
    path, state = resolve_run(as_path(folder)), None if state is None else Path(state).expanduser()
    _require_sense(path, sample, seed, tolerance, state)
    seed = secrets.randbits(_SEED_BITS) if seed is None else seed
    logs = proof_logs(path)
    selection, (identity, job) = open_selection(path), RunFolder(path).job()
    if selection.by_loss or selection.criterion is not None:
        what = "a custom criterion" if selection.criterion is not None else f"the {selection.request.loss} deviance"
        raise OptionError(
            f"{path} minimizes {what}, and proofs have a log that can be checked for the squared error only.",
            "A certificate by a loss is what its proof has shown. To repeat it, certify the job with another out."
            if selection.by_loss else "Select by the squared error to prove a selection with a log.",
        )  # fmt: skip
    alone = [one for one in selection.certificate if one["method"].startswith(NOTHING)]
    if not logs and not alone:
        raise MissingInputError(f"{path} holds no complete proof log.", _how_to_log(path, selection.certificate))
    dataset = unchanged_dataset(job, identity, path) if store is None else dataset_of(job, store)
    request = job.request()
    by_groups = bool(selection.groups) or selection.request.groups is not None
    if not by_groups:  # as of a version that did not group categories by default
        request = request.model_copy(update={"categories": "columns"})
    elif request.groups is None and dataset.categories is not None:
        request = request.model_copy(update={"groups": SOURCE})
    items: Items = SingleColumns(dataset.n)
    if request.groups is not None:
        items = column_groups(dataset, request.groups, request.categories == "groups")
    asked = (request.include, request.exclude)
    include, exclude = (named_columns(dataset, items, columns, "columns").tolist() for columns in asked)
    shown = nullcontext() if reporter is None else reporter.showing()
    reporter = reporter or Reporter()

    files = max((len(read_manifest(log)["files"]) for log in logs), default=1)

    def checked(done: int, total: int) -> None:
        reporter.tasks(done, total, "files of the log")
        if progress is not None:
            progress(done, total)

    with shown, log_passes() as made, _processes(workers) as client, engine_of(client, reporter.tasks) as engine:
        reporter.stage("sums in extended precision")
        sums = extended_sums(dataset, request.preprocess, request.missing, engine, files)
        given = {"lam": request.lam, "included": include, "items": items, "tolerance": tolerance}
        found = [check_only_subset(one, sums, **given) for one in alone]
        for number, log in enumerate(logs, 1):
            reporter.stage(f"check of log {number} of {len(logs)}")
            found.append(
                check_log(
                    log, sums, engine, **given, excluded=exclude, sample=sample, seed=seed, state=state,
                    progress=checked, one_of_copies=request.near_copies == "first",
                )
            )  # fmt: skip

    def labels(columns: Sequence[int]) -> tuple[str, ...]:
        return tuple(dataset.features[list(columns)].tolist())

    checks = tuple(
        replace(one, labels=labels(one.indices), represented_labels=labels(one.represented)) for one in found
    )
    precision = f"extended precision, eps {EPSILON:.1g}"
    unverified = (*_unverified(selection.certificate, checks), *_unverified_lists(selection.alternatives, checks))
    return Verification(checks, unverified, made.passes, precision)


def _how_to_log(folder: AnyPath, certificates: Sequence[dict[str, Any]]) -> str:
    """Return how a result without a log gets one."""
    if any(one["method"] == NO_TIME for one in certificates):
        return f"The proof had too little time to begin: give it more, dsel certify {folder} --time 10m --log."
    return f"Prove with a log first: dsel certify {folder} --log. Proofs that make passes over the data have none."


def _processes(workers: int) -> AbstractContextManager[Any]:
    """Provide a client of processes on this machine, None for this process alone."""
    if workers <= 1:
        return nullcontext()
    from dsel.engine.clusters.local import local_cluster

    return local_cluster(workers)


def _require_sense(folder: AnyPath, sample: int | None, seed: int | None, tolerance: float, state: Path | None) -> None:
    """Raise OptionError for arguments that make no sense."""
    if sample is not None and sample < 1:
        raise OptionError(f"sample is {sample}.", "It is a number of leaves >= 1.")
    if seed is not None and seed < 0:
        raise OptionError(f"seed is {seed}.", "It is a whole number >= 0.")
    if not 0.0 < tolerance < 1.0:
        raise OptionError(f"tolerance is {tolerance}.", "It is a share of ||Y||^2 between 0 and 1, such as 1e-9.")
    if state is not None and is_inside(state, folder):
        raise OptionError(
            f"state ({state}) lies inside {folder}, whose proofs are checked.", "Choose a folder outside it."
        )


def _unverified(certificates: Sequence[dict[str, Any]], checks: Sequence[ProofCheck]) -> Iterable[str]:
    """Yield the certificates that no log proves: that of as many or more columns has the same bound or a better one.

    ||Y||^2 is that of the data, not that of the certificate.
    """
    largest = max((one["size"] for one in certificates), default=0)
    for one in certificates:
        proofs = (c.bound + 2.0 * TOLERANCE * c.total for c in checks if c.accepted and c.size >= one["size"])
        if not any(bound >= one["bound"] for bound in proofs):
            every = "--all-sizes " if one["size"] < largest else ""
            remedy = f"dsel certify {every}--log makes one"
            yield f"the bound {one['bound']:.10g} for {counted_size(one)} ({one['method']}) has no valid log: {remedy}"


def _unverified_lists(found: Alternatives | None, checks: Sequence[ProofCheck]) -> Iterable[str]:
    """Yield the lists of near-best subsets that differ from those of the logs for as many columns.

    A list without a log is not verified, if others have one.
    """
    logged = {check.size: check.near_best for check in checks if check.near_best is not None and check.accepted}
    if found is None or not any(check.near_best is not None for check in checks):
        return
    for size, one in found.by_size.items():
        near = logged.get(size)
        what = f"the list of near-best subsets of {counted(size, one.noun)}"
        if near is None:
            yield f"{what} has no valid log"
            continue
        listed = {tuple(sorted(near.columns[j] for j in S)) for S in near.listed}
        if {tuple(sorted(set(row.indices) & set(near.columns))) for row in one.subsets} != listed:
            yield f"{what} is not that of the log"
        proved = dict(zip(near.columns, near.verdicts or (), strict=False))
        wrong = [price.label for price in one.columns if price.verdict != proved.get(price.index, price.verdict)]
        if wrong or (near.verdicts is None and one.complete):
            named = ", ".join(map(str, wrong[:5])) or "it says that it is complete"
            yield f"{what} has other verdicts than the log: {named}"
