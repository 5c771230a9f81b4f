"""A job from its description to a result, that may be interrupted and started again at any moment."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask.utils import format_bytes

from dsel.config.job import JobFile
from dsel.config.request import Checked, check
from dsel.data.dataset import Dataset
from dsel.engine.branch_and_bound import Workers
from dsel.engine.clusters.connect import connect, patience, workers_now, workers_promised
from dsel.engine.clusters.local import LocalSpec, local_cluster
from dsel.engine.dask import DaskEngine
from dsel.errors import ClusterError, CriterionError, DataError, OutputError
from dsel.jobs.certify import Effort, certify_selection
from dsel.jobs.reporting import Reporter
from dsel.jobs.run_folder import CHECKPOINT, JOB, JOURNAL, LOG, described, head, job_of, read_checkpoint
from dsel.jobs.signals import Interrupts
from dsel.passes.cache import StatisticsCache
from dsel.passes.leave_one_out.rows import held_out_store
from dsel.planning.plan import Plan, resources
from dsel.search.anytime import AnytimeSearch
from dsel.search.parallel.journal import Journal
from dsel.search.registry import METHODS
from dsel.selection.context import RunContext
from dsel.selection.pipeline import held_out_rows, plan_selection, run_selection
from dsel.selection.result import SELECTION, Selection, open_selection
from dsel.storage.bucket_lock import BucketLockFile
from dsel.storage.json_files import write_json
from dsel.storage.locks import FolderLockFile, Lock, LockFile, locked
from dsel.storage.paths import Place, Remote, inside, make_folder

log = logging.getLogger("dsel")


def run_job(job: JobFile, reporter: Reporter | None = None) -> Selection:
    """Run a job to its end and save the result in `job.out`; where that holds it already, open it.

    Interrupted (Interrupted, exit code 75) or killed, the same job goes on from its last checkpoint and, for a fixed
    seed, ends with the same selection as if nothing had happened.

    Errors: all of dsel.errors; what is wrong with the job itself is said before any worker is started.
    """
    assert job.out is not None
    _check_places(job)
    dataset = job.dataset()
    _plan(job, dataset, *workers_promised(job.cluster)).require()
    reporter = reporter or Reporter.for_terminal()
    with _held(job.out, reporter) as (lock, interrupts):
        done = _already_done(job, dataset)
        if done is not None:
            log.info("%s holds the result of this job already: nothing to do", job.out)
            return done
        _describe(job, dataset)
        selection = _run(job, dataset, reporter, interrupts, lock)
        lock.require()
        selection.save(job.out, overwrite=True)
        (job.out / CHECKPOINT).unlink(missing_ok=True)
        log.info("result in %s", job.out)
        return selection


def plan_job(job: JobFile) -> tuple[Plan, Dataset]:
    """The plan of a job as it stands (saved statistics and a checkpoint are reckoned with), and its data; nothing is
    run or written. Workers are those that the cluster section promises; of a scheduler that runs already, those that it
    has now. Errors: those of `run_job` that show before it begins, but a plan that does not fit says so itself.
    """
    _check_places(job)
    dataset = job.dataset()
    workers, memory = workers_now(job.cluster)
    plan = _plan(job, dataset, workers, memory)
    if memory is None:
        note = "the memory of a worker is not known before the cluster is there: the job plans again with it then"
        plan = replace(plan, notes=(*plan.notes, note))
    return plan, dataset


def _plan(job: JobFile, dataset: Dataset, workers: int, memory: int | None) -> Plan:
    assert job.out is not None
    checked: Checked = check(dataset, job.settings())
    state = read_checkpoint(job.out, head(_identity(job, dataset)))
    context = RunContext(artefacts=_artefacts(job), state=state, scratch=_scratch(job), isolated_cluster=_isolated(job))
    return plan_selection(
        dataset, checked, context, held_out_rows(dataset, checked), available=resources(workers, memory),
        certified=job.certify is not None,
    )  # fmt: skip


def _run(job: JobFile, dataset: Dataset, reporter: Reporter, interrupts: Interrupts, lock: Lock) -> Selection:
    from dsel.engine.metrics import progress_metrics

    assert job.out is not None
    journal = Journal(job.out / JOURNAL) if METHODS[job.method].on_workers else None
    checkpoints = _Checkpoints(job, _identity(job, dataset), interrupts, reporter, lock, journal)

    def on_tasks(done: int, total: int) -> None:
        reporter.tasks(done, total)
        interrupts.raise_received()

    name = f"dsel-{reporter.run}"
    logs = None if isinstance(job.out, Remote) else job.out / "workers"
    with (
        closing(journal) if journal is not None else nullcontext(),
        connect(job.cluster, name=name, logs=logs) as client,
        progress_metrics(client, reporter.run) as reporter.publish,
    ):
        reporter.adopt("distributed")
        engine = DaskEngine(client, on_tasks, patience(job.cluster))
        context = RunContext(
            engine, _artefacts(job), state=checkpoints.saved, on_slice=checkpoints.on_slice,
            on_stage=checkpoints.on_stage, journal=journal, shared_folder=job.out, scratch=_scratch(job),
            isolated_cluster=_isolated(job),
        )  # fmt: skip
        try:
            selection = run_selection(dataset, job.settings(), context)
        except (CriterionError, ClusterError):
            checkpoints.save_last()
            raise
        if job.certify is not None:
            selection = _certified(job, dataset, selection, context, reporter, interrupts, Workers(client))
        peaks = engine.peak_memory()
    for address, (peak, limit) in peaks.items():
        log.info("worker %s held at most %s of %s", address, format_bytes(peak), format_bytes(limit))
    return with_peak(replace(selection, peak_memory=peaks))


def with_peak(selection: Selection) -> Selection:
    """The selection with the workers' peak memory held against the plan."""
    if selection.plan is None:
        return selection
    most = max((peak for peak, _ in selection.peak_memory.values()), default=None)
    measured = {**selection.plan["measured"], "worker_memory": most}
    return replace(selection, plan={**selection.plan, "measured": measured})


def _certified(
    job: JobFile, dataset: Dataset, selection: Selection, context: RunContext, reporter: Reporter,
    interrupts: Interrupts, workers: Workers,
) -> Selection:  # fmt: skip
    assert job.certify is not None
    certify = job.certify
    effort = Effort(certify.seconds, certify.nodes, certify.sizes, job.checkpoint_seconds)
    reporter.stage("certificate")
    interrupts.deferred = True
    on_slice = _proof_slice(reporter, interrupts)
    return certify_selection(dataset, job.settings(), selection, effort, context, job.out, on_slice, workers)


def _proof_slice(reporter: Reporter, interrupts: Interrupts) -> Callable[[AnytimeSearch], None]:
    def on_slice(search: AnytimeSearch) -> None:
        reporter.search(search)
        interrupts.raise_received()

    return on_slice


def certify_run(folder: Place, effort: Effort, workers: int = 1, reporter: Reporter | None = None) -> Selection:
    """Attach certificates to the result in `folder`, or better ones than it has; an unfinished proof is gone on with.

    workers: processes on this machine that prove together. Interrupted, what is proved so far is saved. Errors:
    MissingInputError where there is no finished job, DataError where its data have changed since.
    """
    about, job = job_of(folder)
    selection = open_selection(folder)
    dataset = job.dataset()
    if dataset.fingerprint != about["identity"]["fingerprint"]:
        raise DataError(f"The store {job.store} was written to since {folder} was made.", "Run the job again.")
    reporter = reporter or Reporter.for_terminal()
    with _held(folder, reporter) as (lock, interrupts):
        context = RunContext(artefacts=_artefacts(job), on_stage=reporter.stage)
        reporter.stage("certificate")
        interrupts.deferred = True
        on_slice = _proof_slice(reporter, interrupts)
        effort = replace(effort, finish=True)
        with local_cluster(LocalSpec(workers)) if workers > 1 else nullcontext() as client:
            certified = certify_selection(
                dataset, job.settings(), selection, effort, context, folder.absolute(), on_slice,
                None if client is None else Workers(client),
            )  # fmt: skip
        lock.require()
        certified.save(folder, overwrite=True)
        return certified


class _Checkpoints:
    """Saves the search between its slices: every so often, and when a signal came."""

    def __init__(
        self, job: JobFile, identity: dict[str, Any], interrupts: Interrupts, reporter: Reporter, lock: Lock,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        assert job.out is not None
        self._lock = lock
        self._path = job.out / CHECKPOINT
        self._head = head(identity)
        self._every = 0.0 if METHODS[job.method].rounds else job.checkpoint_seconds
        self._every_evaluations = job.checkpoint_evaluations
        self._anytime = METHODS[job.method].anytime
        self._interrupts = interrupts
        self._reporter = reporter
        self._journal = journal
        self._last, self._last_evaluations = time.monotonic(), 0
        self._search: AnytimeSearch | None = None
        self.saved = read_checkpoint(job.out, self._head)
        if self.saved is not None:
            log.info("going on from the checkpoint in %s", self._path)
        elif self._path.exists():
            log.warning("the checkpoint in %s is damaged or of another job: the search starts anew", self._path)

    def on_stage(self, stage: str) -> None:
        self._reporter.stage(stage)
        self._interrupts.deferred = stage == "search" and self._anytime
        self._interrupts.raise_received()

    def on_slice(self, search: AnytimeSearch) -> None:
        self._reporter.search(search)
        now = time.monotonic()
        evaluations = getattr(search, "evaluations", search.iteration)
        if self._search is None:
            self._last_evaluations = evaluations
        self._search = search
        most = self._every_evaluations
        enough = most is not None and evaluations - self._last_evaluations >= most
        if self._interrupts.received is not None or enough or now - self._last >= self._every:
            self._save(search)
            self._last, self._last_evaluations = now, evaluations
        self._interrupts.raise_received()

    def save_last(self) -> None:
        """The search as it stands, after an error that is not its own."""
        if self._search is not None:
            self._save(self._search)

    def _save(self, search: AnytimeSearch) -> None:
        self._lock.require()
        write_json(self._path, {**self._head, "state": search.state()})
        if self._journal is not None:
            self._journal.write("checkpoint", iterations=search.iteration)
            self._journal.publish()
        self._reporter.saved()


def _scratch(job: JobFile) -> Path | None:
    """Where a cache may lie: in the folder of the result, if that is one and the workers see it."""
    shared = job.cluster.chosen.kind in ("local", "slurm", "scheduler_file")
    return job.out / "cache" if shared and isinstance(job.out, Path) else None


def _isolated(job: JobFile) -> str:
    """The kind of cluster, where its workers are on machines of their own and share no folder with this run."""
    kind = job.cluster.chosen.kind
    return kind if kind in ("slurm", "kubernetes", "gateway") and _scratch(job) is None else ""


def _artefacts(job: JobFile) -> StatisticsCache:
    """Saved statistics: where the job says, else beside the store, else (a store nobody may write beside) in `out`."""
    assert job.out is not None
    if job.artefacts is not None:
        return StatisticsCache(job.artefacts)
    beside = job.store.with_name(job.store.name + ".artefacts")
    if isinstance(beside, Remote):  # data are often in a bucket that is read only
        writable = isinstance(job.out, Remote) and (job.out.scheme, job.out.bucket) == (beside.scheme, beside.bucket)
    else:
        writable = os.access(beside if beside.exists() else beside.parent, os.W_OK)
    return StatisticsCache(beside if writable else job.out / "artefacts")


def _check_places(job: JobFile) -> None:
    """Refuse to write into the store that is read. Errors: OutputError."""
    assert job.out is not None
    for name, place in (("out", job.out), ("artefacts", job.artefacts)):
        if place is not None and inside(place, job.store):
            raise OutputError(f"{name} ({place}) lies inside the store {job.store}.", "Choose a folder outside it.")
    if inside(job.store, job.out / "selection.zarr"):
        raise OutputError(f"The result in {job.out} would replace the store {job.store}.", "Choose another out.")


def _identity(job: JobFile, dataset: Dataset) -> dict[str, Any]:
    identity = {"job": job.identity(), "fingerprint": dataset.fingerprint}
    held_out = job.options.get("held_out")
    if isinstance(held_out, str):
        identity["held_out"] = held_out_store(dataset, held_out).fingerprint
    return identity


def _describe(job: JobFile, dataset: Dataset) -> None:
    """Note what the folder is for; refuse one that is for something else."""
    assert job.out is not None
    identity = _identity(job, dataset)
    before = described(job.out)
    if before is not None and before["identity"] != identity:
        what = "other data" if before["identity"]["job"] == identity["job"] else "another job"
        raise OutputError(
            f"{job.out} holds the work of {what}: {_difference(before['identity'], identity)}.",
            "Choose another folder with --out, or remove this one.",
        )
    write_json(job.out / JOB, {"identity": identity, "job": job.model_dump(mode="json")})


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    changed = [key for key in now["job"] if before["job"].get(key) != now["job"][key]]
    if not changed and now["fingerprint"] == before["fingerprint"]:
        return "the held-out store was written to since"
    if not changed:
        return "the store was written to since"
    return "; ".join(f"{key} was {before['job'].get(key)!r}, now {now['job'][key]!r}" for key in changed[:3])


def _already_done(job: JobFile, dataset: Dataset) -> Selection | None:
    assert job.out is not None
    before = described(job.out)
    if before is None or not (job.out / SELECTION).is_file():
        return None
    if before["identity"] != _identity(job, dataset):
        return None
    try:
        return open_selection(job.out)
    except DataError as error:
        log.warning("the job runs again: %s", error.what)
        return None


def resume_job(folder: Place, reporter: Reporter | None = None) -> Selection:
    """Go on with the job that `folder` was written by. Errors: MissingInputError where there is none."""
    _, job = job_of(folder)
    return run_job(job, reporter)


def _lock_file(folder: Place) -> LockFile:
    return BucketLockFile(folder) if isinstance(folder, Remote) else FolderLockFile(folder)


@contextmanager
def _held(folder: Place, reporter: Reporter) -> Iterator[tuple[Lock, Interrupts]]:
    """Make the folder, hold it for this run alone, log into it, and obey signals. Errors: OutputError."""
    try:
        make_folder(folder)
    except OSError as error:
        raise OutputError(f"The result folder {folder} cannot be written: {error.strerror}.") from error
    with (
        reporter.showing(),
        Interrupts(),  # while another run is watched
        locked(_lock_file(folder), reporter.run, str(folder)) as lock,
        reporter.logging_to(folder / LOG),
        Interrupts() as interrupts,
    ):
        yield lock, interrupts
