"""Run a job from its description to a saved result, with interruptions and restarts at any moment.

A job with a folder of runs is run once more on data that may have grown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dsel._lib.byte_sizes import format_bytes
from dsel.config.job import JobFile, RunSeries
from dsel.data.dataset import Dataset
from dsel.engine.clusters.connect import cluster_of
from dsel.engine.clusters.dask_config import dask_logging
from dsel.errors import ClusterError, CriterionError, DselError
from dsel.jobs.certify import require_listable, require_one_target
from dsel.jobs.certify_folder import certify_in_folder
from dsel.jobs.checkpoint import Checkpoints
from dsel.jobs.locations import (
    identity_of,
    is_complete,
    job_dataset,
    out_folder,
    pinned,
    require_separate,
    require_trusted_cluster,
    require_writable,
    statistics_cache,
    trusting,
    with_previous,
)
from dsel.jobs.proof_store import MOST_TREE_BYTES, ProofBudget
from dsel.jobs.reporting import Reporter, output_errors
from dsel.jobs.run_folder import RunFolder, RunFolders
from dsel.jobs.same_work import is_same_search, is_same_work
from dsel.jobs.signals import Interrupts
from dsel.jobs.workers import engine_of_job
from dsel.passes.execution.pass_checkpoints import checkpoint_passes
from dsel.planning.plan import Plan, available_resources
from dsel.planning.validation import ValidatedRequest, validate
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.journal import Journal
from dsel.selection.changes.compare import PreviousRun, comparing, with_bound, with_verdicts
from dsel.selection.changes.runs import RunSummary, is_series, read_history
from dsel.selection.context import RunContext
from dsel.selection.pipeline import plan_selection, run_events, run_validated
from dsel.selection.render import describe_changes, describe_cost
from dsel.selection.result import Selection, open_selection
from dsel.storage.locks import Lock, locked
from dsel.storage.object_store import ending
from dsel.storage.paths import AnyPath, ObjectPath, make_folder, resolve_run

log = logging.getLogger("dsel")


def run_job(job: JobFile, reporter: Reporter | None = None) -> Selection:
    """Run a job to its end and save the result in `job.out`, or open the result if it is there already.

    Parameters
    ----------
    job : JobFile
        What to select, from which data, where to run, and where to save. If `out` is a folder of runs, the job runs in
        a new folder there, or continues its unfinished run, or opens the last result if nothing changed.
    reporter : Reporter, optional
        Progress and logs. Default: bars in a terminal, log lines elsewhere.

    Returns
    -------
    Selection
        The selection that was saved. In a folder of runs it says what changed since the previous run.

    Raises
    ------
    OutputError
        If another run works in this folder.
    DselError
        Any error of `dsel.errors`. What is wrong with the job itself is reported before a worker starts.

    Notes
    -----
    After an interruption (`Interrupted`, exit code 75) or a kill, the same job continues from its last checkpoint. For
    a fixed seed it ends with the same selection as an undisturbed run. The selection is saved before its proof begins,
    so that an interrupted or failed proof does not lose it. The same job then only continues the proof.
    """
    job, reporter = pinned(job), reporter or Reporter.for_terminal()
    if isinstance(job.out, RunSeries):
        return _run_series(job, job.out, reporter)
    require_separate(job)
    dataset = job_dataset(job)
    return _run_in_folder(job, reporter, dataset, identity_of(job, dataset))


def resume_job(folder: AnyPath, reporter: Reporter | None = None, *, trust: bool = False) -> Selection:
    """Continue the job that `folder` was written by, or raise MissingInputError if there is none.

    trust: run the functions and the cluster that it names, also if it belongs to another user.
    """
    folder = resolve_run(folder)
    saved, job = RunFolder(folder).job()
    require_trusted_cluster(folder, job, trust)
    require_separate(job)
    runs, name = folder.absolute().parent, saved.get("previous")
    previous = None if name is None else PreviousRun.open(runs / name)
    in_series = is_series(runs) or previous is not None
    with trusting(folder, trust):
        dataset = job_dataset(job)
        identity = with_previous(identity_of(job, dataset), name)
        reporter = reporter or Reporter.for_terminal()
        return _run_in_folder(job, reporter, dataset, identity, previous, in_series=in_series)


def plan_job(job: JobFile) -> tuple[Plan, Dataset]:
    """Return the plan of a job, and its data. Nothing runs, and nothing stays written.

    Saved statistics and a checkpoint count. Workers are those of the cluster section, or those that a running scheduler
    has now. The errors are those of `run_job` before it starts; a plan that does not fit says so itself.
    """
    require_separate(job)
    require_writable(out_folder(job))
    job = pinned(job)
    dataset = job_dataset(job)
    workers, memory = cluster_of(job.cluster).current()
    plan = _OpenedJob.of(job, dataset, identity_of(job, dataset)).plan(workers, memory)
    if memory is None:
        note = "the memory of a worker is not known before the cluster starts; the job then plans again"
        plan = replace(plan, notes=(*plan.notes, note))
    proves = job.certify is not None or job.alternatives is not None
    if isinstance(job.out, RunSeries) and proves:
        note = (
            "the last run keeps the tree of each proof for the next one, if it can continue: at most "
            f"{format_bytes(MOST_TREE_BYTES)}"
        )
        plan = replace(plan, notes=(*plan.notes, note))
    return plan, dataset


def _run_in_folder(
    job: JobFile, reporter: Reporter, dataset: Dataset, identity: dict[str, Any], previous: PreviousRun | None = None,
    *, in_series: bool = False, left: str | None = None,
) -> Selection:  # fmt: skip
    """Run a job in its folder `job.out`, and compare its result with that of the previous run, if there is one.

    in_series: whether a later run may be compared with this one. left: the name of an unfinished run of older data.
    """
    opened = _OpenedJob.of(job, dataset, identity)
    folder = opened.folder
    plan = opened.plan(*cluster_of(job.cluster).promised()).require()
    reporter.expect(plan.iterations, plan.iteration_seconds)
    start = () if previous is None else previous.subsets(dataset.features)
    compare = comparing(folder.path, previous) if in_series else None
    runs = [name for name in (left, previous and previous.name) if name]
    last = tuple(folder.path.absolute().parent / name for name in runs)
    opened = replace(
        opened, context=replace(opened.context, start=start, compare=compare, keeps_trees=in_series, last_runs=last)
    )  # fmt: skip
    with folder.hold(reporter) as lock:
        saved = folder.finished(identity, is_same_search)
        if saved is not None and folder.is_for(identity) and is_complete(job, folder, saved):
            folder.settle(reporter)
            log.info("%s holds the result of this job already: nothing to do", job.out)
            return saved
        opened = replace(opened, spent=folder.spent(identity))
        folder.claim(job, identity)  # a run that is refused leaves the status as it is
        log.info("job: %s, k = %s, store %s (%d x %d)", job.method, job.k, job.store, dataset.m, dataset.n)
        before = None if previous is None else previous.selection
        with (
            folder.work(reporter, spent=opened.spent) as interrupts,
            run_events(opened.validated, run=reporter.run, folder=str(folder.path)) as ended,
        ):
            selection = _run(opened, plan, reporter, interrupts, lock, saved, before, on_demand=in_series)
            ended(selection)
        changes = describe_changes(selection.changes) if selection.changes else ()
        for line in (*describe_cost(selection), *changes):
            log.info("%s", line)
        log.info("result in %s", job.out)
        return selection


@dataclass(frozen=True)
class _OpenedJob:
    """A job whose data are open and whose request is validated: its plan, its run and its proof use the same.

    context: the job's folders, and the state of its search, before its workers start. spent: the seconds of each stage
    in earlier processes.
    """

    job: JobFile
    dataset: Dataset
    identity: dict[str, Any]
    validated: ValidatedRequest
    folder: RunFolder
    context: RunContext
    spent: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, job: JobFile, dataset: Dataset, identity: dict[str, Any]) -> _OpenedJob:
        """Validate the request of a job. Errors are those of `validate`."""
        request, out = job.request(), out_folder(job)
        require_one_target(dataset, request, job.certify)
        validated, folder, cluster = validate(dataset, request), RunFolder(out), cluster_of(job.cluster)
        for budget in _budgets(job):
            require_listable(validated, budget)
        scratch = out / "cache" if cluster.shares_files and isinstance(out, Path) else None
        isolated = cluster.own_hosts and scratch is None  # its workers share no folder with this process
        context = RunContext(
            cache=statistics_cache(job), state=folder.read_checkpoint(identity), shared_folder=out, scratch=scratch,
            isolated_cluster=job.cluster.chosen.kind if isolated else "",
        )  # fmt: skip
        return cls(job, dataset, identity, validated, folder, context)

    def plan(self, workers: int, memory: int | None) -> Plan:
        """Return the plan for these workers, with this much memory each."""
        return plan_selection(
            self.validated, self.context, available=available_resources(workers, memory),
            proofs=[(budget, budget.near_best is not None) for budget in _budgets(self.job)],
        )  # fmt: skip


def _run(
    opened: _OpenedJob, plan: Plan, reporter: Reporter, interrupts: Interrupts, lock: Lock,
    selection: Selection | None, before: Selection | None, *, on_demand: bool,
) -> Selection:  # fmt: skip
    """Search, unless a saved selection only needs its proof; then prove, if the job asks for it.

    before: the result of the previous run.
    on_demand: start workers only for what is not small.
    """
    job, folder = opened.job, opened.folder
    journal = Journal(folder.journal) if plan.placement.on_workers else None
    checkpoints = Checkpoints(job, folder, opened.identity, interrupts, reporter, lock, journal)

    def on_tasks(done: int, total: int) -> None:
        reporter.tasks(done, total)
        interrupts.raise_received()

    def saved(selection: Selection, *, proved: bool = False) -> Selection:
        """Save the selection in place of an earlier one and of the checkpoint."""
        selection = _with_peak(selection, engine.peak_memory(), proved)
        lock.require()
        selection.save(folder.path, overwrite=True)
        folder.remove_checkpoint()
        return selection

    logs = None if isinstance(folder.path, ObjectPath) else folder.path / "workers"
    with (
        dask_logging(),
        ending(journal.close) if journal is not None else nullcontext(),
        engine_of_job(
            cluster_of(job.cluster), reporter, logs, on_tasks, on_demand=on_demand and journal is None
        ) as engine,
    ):
        context = replace(
            opened.context, engine=engine, state=checkpoints.saved, on_slice=checkpoints.on_slice,
            on_stage=checkpoints.on_stage, journal=journal,
        )  # fmt: skip
        if selection is None:
            try:
                with engine.errors(interrupts.fail), checkpoint_passes(checkpoints.passes):
                    again = context.state != opened.context.state  # a search was saved since it was planned
                    selection = run_validated(opened.validated, context, None if again else plan)
            except (CriterionError, ClusterError):
                checkpoints.save_last()
                raise
            selection = saved(_with_spent(selection, opened.spent))
            checkpoints.passes.clear()
        for budget in _budgets(job):
            with engine.errors(interrupts.fail):
                runner = on_workers(engine.executor)
                selection = certify_in_folder(
                    folder.path, opened.dataset, job.request(), selection, budget, context, reporter, interrupts,
                    runner, opened.validated,
                )  # fmt: skip
            selection = saved(with_verdicts(with_bound(selection), before), proved=True)
    for address, (peak, limit) in selection.peak_memory.items():
        log.info("worker %s held at most %s of %s", address, format_bytes(peak), format_bytes(limit))
    return selection


def _budgets(job: JobFile) -> Iterator[ProofBudget]:
    """Yield the limits of the proofs that a job asks for."""
    every = job.checkpoint_seconds
    if (certify := job.certify) is not None:
        yield ProofBudget(seconds=certify.seconds, save_seconds=every, **certify.model_dump(exclude={"time"}))
    if (asked := job.alternatives) is not None:
        yield ProofBudget(seconds=asked.seconds, save_seconds=every, sizes=asked.sizes, near_best=asked)


def _with_spent(selection: Selection, spent: Mapping[str, float]) -> Selection:
    """Return the selection with the seconds of earlier processes added to those of each stage."""
    now, stages = selection.seconds, {**spent, **selection.seconds}
    return replace(selection, seconds={name: spent.get(name, 0.0) + now.get(name, 0.0) for name in stages})


def _with_peak(selection: Selection, peaks: dict[str, tuple[int, int]], proved: bool) -> Selection:
    """Return the selection with the workers' peak memory so far; before its proofs, also next to the planned one."""
    selection = replace(selection, peak_memory={**selection.peak_memory, **peaks})
    if selection.plan is None or proved:
        return selection
    most = max((peak for peak, _ in selection.peak_memory.values()), default=None)
    measured = {**selection.plan["measured"], "worker_memory": most}
    return replace(selection, plan={**selection.plan, "measured": measured})


def _run_series(job: JobFile, series: RunSeries, reporter: Reporter) -> Selection:
    require_separate(job)
    with output_errors(f"The folder of runs {series.folder} cannot be written", "Choose another out."):
        make_folder(series.folder)
    with reporter.showing(), Interrupts(), locked(series.folder, reporter.run) as lock:
        return _Series(job, series, reporter, lock).run()


class _Series:
    """One call on a folder of runs, which holds its lock."""

    def __init__(self, job: JobFile, series: RunSeries, reporter: Reporter, lock: Lock) -> None:
        self._job = job.model_copy(update={"statistics_folder": statistics_cache(job).folder})
        self._series, self._reporter, self._lock = series, reporter, lock
        self._folders = RunFolders(series.folder)

    def run(self) -> Selection:
        self._folders.settle(self._series.keep)  # the last run may have been killed before it did
        dataset = job_dataset(self._job)
        identity = identity_of(self._job, dataset)
        name, previous, left = self._folders.unfinished(), self._previous(), None
        if name is not None and not is_same_search(self._saved_identity(name), self._after(previous, identity)):
            self._finish(name)
            name, previous, left = None, self._previous(), name
        if name is None and previous is not None:
            saved = self._saved_identity(previous.name)
            # The same work after another previous run is as good.
            if is_same_work(saved, with_previous(identity, saved.get("previous"))):
                RunFolder(self._series.folder / previous.name).tidy(self._reporter)
                log.info("run %s has the same data and the same job: nothing to do", previous.name)
                return previous.selection
        name = name or self._folders.new()
        log.info("run %s in %s, after %s", name, self._series.folder, "none" if previous is None else previous.name)
        job = self._job.model_copy(update={"out": self._series.folder / name})
        identity = self._after(previous, identity)
        selection = _run_in_folder(job, self._reporter, dataset, identity, previous, in_series=True, left=left)
        self._publish(name, selection)
        return selection

    def _after(self, previous: PreviousRun | None, identity: dict[str, Any]) -> dict[str, Any]:
        return with_previous(identity, None if previous is None else previous.name)

    def _saved_identity(self, name: str) -> dict[str, Any]:
        manifest = RunFolder(self._series.folder / name).read_manifest()
        return {} if manifest is None else dict(manifest["identity"])

    def _finish(self, name: str) -> None:
        """Publish an unfinished run of older data whose result is there; one without a result is left behind."""
        folder = RunFolder(self._series.folder / name)
        try:
            _, job = folder.job()
            selection = open_selection(folder.path)
        except DselError:
            log.warning("run %s was interrupted, and the job or the data have changed since: it is not continued", name)
            return
        if is_complete(job, folder, selection):
            self._publish(name, selection)

    def _previous(self) -> PreviousRun | None:
        name = self._folders.latest()
        if name is None:
            return None
        try:
            return PreviousRun.open(self._series.folder / name)
        except DselError as error:
            log.warning("run %s cannot be compared with: %s", name, error)
            return None

    def _publish(self, name: str, selection: Selection) -> None:
        self._lock.require()
        summary = RunSummary.of(name, selection)
        self._folders.publish(summary, self._series.keep)
        level, verb = (logging.WARNING, "changed") if summary.changed else (logging.INFO, "unchanged")
        fields = {"event": "run-finished", **summary.as_dict()}
        what = f"selection {verb}"
        if selection.changes is None:
            runs = read_history(self._series.folder)
            what = "the first selection" if len(runs) == 1 else "selection not compared with an earlier one"
        log.log(level, "run %s: %s", name, what, extra={"fields": fields})
