"""Run a job from its description to a saved result, with interruptions and restarts at any moment."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from dask.utils import format_bytes

from dsel.config.job import JobFile, RunSeries
from dsel.data.dataset import Dataset
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.dask_config import dask_logging
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.errors import ClusterError, CriterionError, DataError
from dsel.jobs.certify import ProofBudget, certify_selection, require_one_target
from dsel.jobs.checkpoint import Checkpoints
from dsel.jobs.finished import is_complete
from dsel.jobs.locations import (
    identity_of,
    isolated_cluster,
    job_dataset,
    out_folder,
    require_separate,
    require_trusted_cluster,
    scratch_folder,
    statistics_cache,
    trusting,
)
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import RunFolder
from dsel.jobs.signals import Interrupts
from dsel.jobs.workers import engine_of_job
from dsel.passes.execution.pass_checkpoints import checkpoint_passes
from dsel.planning.plan import Plan, available_resources
from dsel.planning.validation import validate
from dsel.search.anytime import AnytimeSearch
from dsel.search.exact.tree import Runner
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.journal import Journal
from dsel.selection.changes.compare import PreviousRun, comparing, with_bound
from dsel.selection.changes.runs import is_series
from dsel.selection.context import RunContext
from dsel.selection.pipeline import plan_selection, run_selection
from dsel.selection.render import describe_changes, describe_cost
from dsel.selection.result import Selection, open_selection
from dsel.storage.locks import Lock
from dsel.storage.object_store import ending
from dsel.storage.paths import AnyPath, ObjectPath, resolve_run

log = logging.getLogger("dsel")


def run_job(job: JobFile, reporter: Reporter | None = None) -> Selection:
    """Run a job to its end and save the result in `job.out`, or open the result if it is there already.

    Parameters
    ----------
    job : JobFile
        What to select, from which data, where to run, and where to save.
    reporter : Reporter, optional
        Progress and logs. Default: bars in a terminal, log lines elsewhere.

    Returns
    -------
    Selection
        The selection that was saved.

    Raises
    ------
    DselError
        Any error of `dsel.errors`. What is wrong with the job itself is reported before a worker starts.

    Notes
    -----
    After an interruption (`Interrupted`, exit code 75) or a kill, the same job continues from its last checkpoint. For
    a fixed seed it ends with the same selection as an undisturbed run. The selection is saved before its proof begins,
    so that an interrupted or failed proof does not lose it. The same job then only continues the proof.
    """
    if isinstance(job.out, RunSeries):
        from dsel.jobs.series.run import run_series  # it calls this module

        return run_series(job, reporter)
    require_separate(job)
    return run_in_folder(job, reporter or Reporter.for_terminal(), job_dataset(job))


def run_in_folder(
    job: JobFile, reporter: Reporter, dataset: Dataset, previous: PreviousRun | None = None, *, in_series: bool = False
) -> Selection:
    """Run a job in its folder `job.out`, and compare its result with that of the previous run, if there is one.

    in_series: whether a later run may be compared with this one.
    """
    folder, identity = (
        RunFolder(out_folder(job)),
        identity_of(job, dataset, None if previous is None else previous.name),
    )
    plan = _plan(job, dataset, identity, *cluster_of(job.cluster).promised())
    plan.require()
    reporter.expect(plan.iterations, plan.iteration_seconds)
    compare = comparing(folder.path, previous) if in_series else None
    start = () if previous is None else previous.subsets(dataset.features)
    with folder.hold(reporter) as (lock, interrupts):
        saved = folder.finished(identity)
        if saved is not None and is_complete(job, folder, saved):
            folder.remove_checkpoints()
            log.info("%s holds the result of this job already: nothing to do", job.out)
            return saved
        folder.claim(job, identity)
        log.info("job: %s, k = %s, store %s (%d x %d)", job.method, job.k, job.store, dataset.m, dataset.n)
        extra = RunContext(start=start, compare=compare)
        selection = _run(
            job, dataset, folder, identity, extra, reporter, interrupts, lock, saved,
            journalled=plan.placement.on_workers, on_demand=in_series,
        )  # fmt: skip
        for line in describe_cost(selection):
            log.info("%s", line)
        for line in describe_changes(selection.changes) if selection.changes else ():
            log.info("%s", line)
        log.info("result in %s", job.out)
        return selection


def resume_job(folder: AnyPath, reporter: Reporter | None = None, *, trust: bool = False) -> Selection:
    """Continue the job that `folder` was written by, or raise MissingInputError if there is none.

    trust: run the functions and the cluster that it names, also if it belongs to another user.
    """
    folder = resolve_run(folder)
    identity, job = RunFolder(folder).job()
    require_trusted_cluster(folder, job, trust)
    require_separate(job)
    name, previous = identity.get("previous"), None
    if name is not None:
        previous = PreviousRun.open(folder.absolute().parent / name)
    in_series = is_series(folder.absolute().parent) or previous is not None
    with trusting(folder, trust):
        return run_in_folder(
            job, reporter or Reporter.for_terminal(), job_dataset(job), previous, in_series=in_series
        )  # fmt: skip


def plan_job(job: JobFile) -> tuple[Plan, Dataset]:
    """Return the plan of a job, and its data. Nothing runs and nothing is written.

    Saved statistics and a checkpoint count. Workers are those of the cluster section, or those that a running scheduler
    has now. The errors are those of `run_job` before it starts; a plan that does not fit says so itself.
    """
    require_separate(job)
    dataset = job_dataset(job)
    workers, memory = cluster_of(job.cluster).current()
    plan = _plan(job, dataset, identity_of(job, dataset), workers, memory)
    if memory is None:
        note = "the memory of a worker is not known before the cluster starts; the job then plans again"
        plan = replace(plan, notes=(*plan.notes, note))
    return plan, dataset


def _plan(job: JobFile, dataset: Dataset, identity: dict[str, Any], workers: int, memory: int | None) -> Plan:
    require_one_target(dataset, job.request(), None if job.certify is None else job.certify.coefficients)
    validated = validate(dataset, job.request())
    context = RunContext(
        cache=statistics_cache(job), state=RunFolder(out_folder(job)).read_checkpoint(identity),
        shared_folder=out_folder(job), scratch=scratch_folder(job), isolated_cluster=isolated_cluster(job),
    )  # fmt: skip
    return plan_selection(
        dataset, validated, context, available=available_resources(workers, memory),
        certified=job.certify is not None,
    )  # fmt: skip


def _run(
    job: JobFile, dataset: Dataset, folder: RunFolder, identity: dict[str, Any], extra: RunContext,
    reporter: Reporter, interrupts: Interrupts, lock: Lock, selection: Selection | None, *, journalled: bool,
    on_demand: bool,
) -> Selection:  # fmt: skip
    """Search, unless a saved selection only needs its proof; then prove, if the job asks for it.

    on_demand: start workers only for what is not small.
    """
    journal = Journal(folder.journal) if journalled else None
    checkpoints = Checkpoints(job, folder, identity, interrupts, reporter, lock, journal)

    def on_tasks(done: int, total: int) -> None:
        reporter.tasks(done, total)
        interrupts.raise_received()

    cluster = cluster_of(job.cluster)
    logs = None if isinstance(folder.path, ObjectPath) else folder.path / "workers"
    with (
        dask_logging(),
        ending(journal.close) if journal is not None else nullcontext(),
        engine_of_job(cluster, reporter, logs, on_tasks, on_demand=on_demand and not journalled) as engine,
    ):
        context = RunContext(
            engine, statistics_cache(job), state=checkpoints.saved, on_slice=checkpoints.on_slice,
            on_stage=checkpoints.on_stage, journal=journal, shared_folder=folder.path, scratch=scratch_folder(job),
            isolated_cluster=isolated_cluster(job), start=extra.start, compare=extra.compare,
        )  # fmt: skip
        if selection is None:
            try:
                with engine.errors(interrupts.fail), checkpoint_passes(checkpoints.passes):
                    selection = run_selection(dataset, job.request(), context)
            except (CriterionError, ClusterError):
                checkpoints.save_last()
                raise
            selection = _save(folder, _with_peak(selection, engine.peak_memory()), lock)
            checkpoints.passes.clear()
        if job.certify is not None:
            with engine.errors(interrupts.fail):
                runner = on_workers(engine.executor)
                selection = _certified(job, dataset, selection, context, reporter, interrupts, runner)
            selection = _save(folder, with_bound(_with_peak(selection, engine.peak_memory())), lock)
    for address, (peak, limit) in selection.peak_memory.items():
        log.info("worker %s held at most %s of %s", address, format_bytes(peak), format_bytes(limit))
    return selection


def _save(folder: RunFolder, selection: Selection, lock: Lock) -> Selection:
    """Save the selection in place of an earlier one and of the checkpoint."""
    lock.require()
    selection.save(folder.path, overwrite=True)
    folder.remove_checkpoint()
    return selection


def _with_peak(selection: Selection, peaks: dict[str, tuple[int, int]]) -> Selection:
    """Return the selection with the workers' peak memory next to the planned one."""
    selection = replace(selection, peak_memory={**selection.peak_memory, **peaks})
    if selection.plan is None:
        return selection
    most = max((peak for peak, _ in selection.peak_memory.values()), default=None)
    measured = {**selection.plan["measured"], "worker_memory": most}
    return replace(selection, plan={**selection.plan, "measured": measured})


def _certified(
    job: JobFile, dataset: Dataset, selection: Selection, context: RunContext, reporter: Reporter,
    interrupts: Interrupts, runner: Runner,
) -> Selection:  # fmt: skip
    assert job.certify is not None
    certify = job.certify
    budget = ProofBudget(certify.seconds, certify.nodes, certify.sizes, job.checkpoint_seconds, log=certify.log,
                         coefficients=certify.coefficients)  # fmt: skip
    reporter.stage("certificate")
    interrupts.deferred = True
    context = replace(context, on_slice=_proof_slice(reporter, interrupts))
    return certify_selection(dataset, job.request(), selection, budget, context, out_folder(job), runner)


def _proof_slice(reporter: Reporter, interrupts: Interrupts) -> Callable[[AnytimeSearch], None]:
    def on_slice(search: AnytimeSearch) -> None:
        reporter.search(search)
        interrupts.raise_received()

    return on_slice


def certify_run(
    folder: AnyPath, budget: ProofBudget, workers: int = 1, reporter: Reporter | None = None, *, trust: bool = False
) -> Selection:
    """Add certificates to the result in `folder`, or improve them. An unfinished proof continues.

    Parameters
    ----------
    folder : Path or ObjectPath
        Folder of a finished job.
    budget : ProofBudget
        How long to prove, and for which sizes.
    workers : int
        Processes on this machine that work on the proof.
    reporter : Reporter, optional
        Progress and logs.
    trust : bool
        Import the functions that the job names, also if it belongs to another user.

    Returns
    -------
    Selection
        The selection with its certificates, as saved. An interruption saves what is proved so far.

    Raises
    ------
    MissingInputError
        If the folder holds no finished job.
    DataError
        If the data have changed since.
    OptionError
        If the job belongs to another user and names functions, and is not trusted.
    """
    identity, job = RunFolder(folder).job()
    selection = open_selection(folder)
    dataset = job_dataset(job)
    if dataset.fingerprint != identity["fingerprint"]:
        raise DataError(f"The store {job.store} was written to since {folder} was made.", "Run the job again.")
    reporter = reporter or Reporter.for_terminal()
    with trusting(folder, trust), RunFolder(folder).hold(reporter) as (lock, interrupts):
        context = RunContext(cache=statistics_cache(job), on_stage=reporter.stage)
        reporter.stage("certificate")
        interrupts.deferred = True
        context = replace(context, on_slice=_proof_slice(reporter, interrupts))
        budget = replace(budget, keep_partial=True)
        with dask_logging(), local_cluster(workers) if workers > 1 else nullcontext() as client:
            certified = certify_selection(
                dataset, job.request(), selection, budget, context, folder.absolute(),
                None if client is None else on_workers(DaskEngine(client).executor),
            )  # fmt: skip
        lock.require()
        certified.save(folder, overwrite=True)
        return certified
