"""Add certificates to a result in a folder: that of a finished job, or of a selection from sums of rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from dsel._lib.text import shorten
from dsel.config.request import SelectionRequest
from dsel.data.dataset import Dataset
from dsel.engine.clusters.dask_config import dask_logging
from dsel.engine.clusters.local import local_cluster
from dsel.engine.connect import engine_of
from dsel.errors import DselError, MissingInputError, OptionError
from dsel.jobs.certify import certify_selection, data_again, proof_events
from dsel.jobs.locations import (
    statistics_cache,
    trusting,
    unchanged_dataset,
)
from dsel.jobs.proof_store import ProofBudget
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.signals import Interrupts
from dsel.jobs.status import Command
from dsel.passes.statistics_cache import StatisticsCache
from dsel.passes.sums import pooled, read_sums
from dsel.planning.validation import ValidatedRequest
from dsel.search.anytime import AnytimeSearch
from dsel.search.exact.tree import Runner
from dsel.search.exact.trees_on_workers import on_workers
from dsel.selection.changes.compare import PreviousRun, comparing, with_bound, with_verdicts
from dsel.selection.changes.runs import RunSummary
from dsel.selection.context import RunContext
from dsel.selection.result import Selection, open_selection
from dsel.selection.saved import SELECTION, is_from_sums
from dsel.storage.paths import AnyPath, as_path, resolve_run

log = logging.getLogger("dsel")


def certify_run(
    folder: AnyPath, budget: ProofBudget, workers: int = 1, reporter: Reporter | None = None, *, trust: bool = False,
    parts: Sequence[str] = (),
) -> Selection:  # fmt: skip
    """Add certificates to the result in `folder`, or improve them. An unfinished proof continues.

    Parameters
    ----------
    folder : Path or ObjectPath
        Folder of a finished job, or of a selection from sums of rows.
    budget : ProofBudget
        How long to prove, and for which sizes.
    workers : int
        Processes on this machine that work on the proof.
    reporter : Reporter, optional
        Progress and logs.
    trust : bool
        Import the functions that the job names, also if it belongs to another user.
    parts : sequence of str
        The files of the sums; by default those that the selection names.

    Returns
    -------
    Selection
        The selection with its certificates, as saved. An interruption saves what is proved so far.

    Raises
    ------
    MissingInputError
        If the folder holds no finished job and no selection from sums, or if the sums are not there.
    DataError
        If the data have changed since.
    OptionError
        If the job belongs to another user and names functions, and is not trusted. If the sums are not known.
    Interrupted
        If a signal arrives.
    """
    folder = resolve_run(folder)
    if not (folder / SELECTION).is_file():
        RunFolder(folder).job()  # it says what is missing
    selection = open_selection(folder)
    dataset, request, cache, previous = _asked(folder, selection, parts, budget)
    reporter = reporter or Reporter.for_terminal()
    command: Command = "certify" if budget.near_best is None else "alternatives"
    with (
        trusting(folder, trust),
        RunFolder(folder).hold(reporter) as lock,
        RunFolder(folder).work(reporter, command) as interrupts,
        proof_events(dataset, request, selection, run=reporter.run, folder=str(folder)) as ended,
    ):
        context = RunContext(cache=cache, compare=None if previous is None else comparing(folder, previous))
        budget = budget.model_copy(update={"keep_partial": True})
        started = local_cluster(workers) if workers > 1 else nullcontext()
        with dask_logging(), started as client, engine_of(client) as engine:
            runner = None if client is None else on_workers(engine.executor)
            certified = certify_in_folder(
                folder, dataset, request, selection, budget, context, reporter, interrupts, runner
            )  # fmt: skip
        lock.require()
        certified = with_verdicts(with_bound(certified), None if previous is None else previous.selection)
        certified.save(folder, overwrite=True)
        if (summary := RunSummary.open(folder)) is not None:  # of a folder of runs
            RunSummary.of(summary.run, certified).save(folder)
        interrupts.raise_received()  # what is proved so far is saved
        ended(certified)
        return certified


def _asked(
    folder: AnyPath, selection: Selection, parts: Sequence[str], budget: ProofBudget
) -> tuple[Dataset, SelectionRequest, StatisticsCache | None, PreviousRun | None]:
    """Return the data and the request of the selection in a folder, its saved statistics, and the run before it."""
    if not is_from_sums(selection):
        identity, job = RunFolder(folder).job()
        if parts:
            raise OptionError(f"{folder} holds a job, which names its store.", f"Leave out {shorten(parts)}.")
        dataset = unchanged_dataset(job, identity, folder)
        return dataset, job.request(), statistics_cache(job), _run_before(folder, identity.get("previous"))
    if budget.log:
        raise OptionError(
            f"{folder} is from sums of rows, and dsel verify checks a log against rows.", "Leave --log out."
        )
    files = parts or [file for file in selection.counts["files"] if as_path(file).is_file()]
    if not parts and len(files) < max(1, len(selection.counts["files"])):
        raise MissingInputError(
            f"The files with the sums of {folder} are not known, or not where they were.",
            "Name them after the folder, in their order.",
        )
    return *data_again(selection, pooled([read_sums(file) for file in files]), None, None), None, None


def _run_before(folder: AnyPath, name: str | None) -> PreviousRun | None:
    """Return the run that the one in `folder` was compared with, or None if there is none or it was removed."""
    try:
        return None if name is None else PreviousRun.open(folder.absolute().parent / name)
    except DselError:
        return None


def certify_in_folder(
    folder: AnyPath, dataset: Dataset, request: SelectionRequest, selection: Selection, budget: ProofBudget,
    context: RunContext, reporter: Reporter, interrupts: Interrupts, runner: Runner | None,
    validated: ValidatedRequest | None = None,
) -> Selection:  # fmt: skip
    """Return a selection with certificates. Signals wait for the end of a slice of the proof."""

    def on_slice(search: AnytimeSearch) -> None:
        reporter.search(search)
        interrupts.raise_received()

    reporter.stage("certificate" if budget.near_best is None else "alternatives")
    interrupts.deferred = True
    context = replace(context, on_slice=on_slice)
    return certify_selection(dataset, request, selection, budget, context, folder, runner, validated)
