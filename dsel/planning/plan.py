"""The plan of a selection, before any of it runs: representation, passes, bytes, tasks, memory, time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import counted, passes_over_data
from dsel.config.job import ProofLimits
from dsel.data.dataset import Dataset
from dsel.data.ingest_report import missing_targets
from dsel.errors import CapacityError
from dsel.passes.column_copy import ColumnCopy, copy_that_saves
from dsel.passes.columns.column_statistics import part_squares_pass
from dsel.passes.cross_validation.held_out import held_out_pass
from dsel.passes.data_pass import PassCost, PassLog
from dsel.passes.loss_models import FEWEST_MODELS, MOST_MODELS, loss_costs
from dsel.passes.multiples import COPIES
from dsel.passes.refit import grows
from dsel.passes.statistics_cache import StatisticsCache
from dsel.passes.trial import TrialRead
from dsel.planning.proof import PlannedProof
from dsel.planning.representations import memory
from dsel.planning.representations.choice import candidates, choose
from dsel.planning.representations.column_blocks import GRAM_ROWS
from dsel.planning.representations.gram import GramMatrix
from dsel.planning.representations.representation import ProblemShape, Representation, Resources, Saved
from dsel.planning.rounds import number_of_rounds, rewrite_interval, round_costs, round_worker_bytes, rounds_are_known
from dsel.planning.validation import ValidatedRequest
from dsel.search.placement import HERE, Placement, Site

#: The time of passes over this many bytes is estimated before they begin: one more second does not matter then.
CALIBRATED_BYTES = 1 << 30
#: The speed of a search on a worker, over that in this process: sending and merging take time, and slices that run at
#: the same time find some improvements twice.
_WORKER_SPEED = 0.9
#: Seconds that a search on new workers takes at least: they load its functions, and its slices are sent and merged.
_WORKER_START = 1.0
#: Passes for Gram rows of a Pareto search, for each column to choose. Runs with k = 5 to 20 made 0.2 to 12, in the
#: middle 1.5: more where sizes beyond the true one fit noise.
_ROW_PASSES_PER_COLUMN = 1.5


@dataclass(frozen=True)
class Plan:
    """What a selection will take.

    Passes, bytes and tasks are the sums of the costs of the passes that will run, so they are what will be counted.
    Where the search decides how many passes there are, `exact` is False, and they are estimates.

    Parameters
    ----------
    chosen : Representation
        How the Gram matrix is held.
    rejected : tuple of (str, str)
        The names of the other representations, and why each is not chosen.
    stages : tuple of PassCost
        The cost of each kind of pass, in their order.
    workers : int
        The number of workers.
    worker_bytes : int
        The memory limit that a worker needs. Tasks fill at most 90 % of it.
    worker_limit : int or None
        The memory limit that it has; None without a limit.
    client_bytes, client_available : int
        The memory that this process needs, also for the proofs, and has.
    disk_bytes : int
        Bytes of statistics and caches on disk.
    exact : bool
        Whether passes, bytes and tasks are known.
    notes : tuple of str
        Remarks for the user.
    iterations : int, optional
        The iterations of a Pareto search in this process, where they are known.
    iteration_seconds : float, optional
        The time limit of the search.
    seconds, search_seconds : float, optional
        Estimates of the duration of the passes and of the search, from a calibration.
    lacks, remedy : str
        Why the selection cannot run, and what would help. Empty if it can.
    rewrite_every : int, optional
        Rounds between rewrites of a cache on disk.
    copies_columns : bool
        Whether the passes of a loss read a copy of X by columns on disk.
    placement : Placement
        Where the search runs, and why.
    search_workers : int
        The number of workers that the search may use; 0 without a cluster.
    proof_bytes : int
        The memory limit that a worker needs for the proofs, next to `worker_bytes` for the selection.
    """

    chosen: Representation
    rejected: tuple[tuple[str, str], ...]
    stages: tuple[PassCost, ...]
    workers: int
    worker_bytes: int
    worker_limit: int | None
    client_bytes: int
    client_available: int
    disk_bytes: int
    exact: bool
    notes: tuple[str, ...] = ()
    iterations: int | None = None
    iteration_seconds: float | None = None
    seconds: float | None = None
    search_seconds: float | None = None
    lacks: str = ""
    remedy: str = ""
    rewrite_every: int | None = None
    copies_columns: bool = False
    placement: Placement = HERE
    search_workers: int = 0
    proof_bytes: int = 0

    @property
    def representation(self) -> str:
        """Return the name of the representation."""
        return self.chosen.name

    @property
    def reason(self) -> str:
        """Return why it was chosen, or why it cannot be used."""
        return self.chosen.obstacle or self.chosen.reason

    @property
    def total(self) -> PassCost:
        """Return the cost of all passes."""
        return PassCost.total("in all", self.stages)

    @property
    def has_trial(self) -> bool:
        """Return whether the run reads a block first, to estimate its time."""
        return any(stage.name == TrialRead.name for stage in self.stages)

    @property
    def expected(self) -> PassCost:
        """Return the cost of all passes, with those that a Pareto search probably makes for more Gram rows."""
        least = next((stage for stage in self.stages if stage.name == GRAM_ROWS), None)
        if least is None or not least.passes or self.placement.seconds is None:
            return self.total
        times = max(_ROW_PASSES_PER_COLUMN * self.chosen.shape.k / least.passes - 1.0, 0.0)
        more = (int(times * count) for count in (least.passes, least.bytes_read, least.tasks, least.flops))
        return PassCost.total("with the Gram rows that the search fetches", (self.total, PassCost(GRAM_ROWS, *more)))

    @property
    def _peak_bytes(self) -> int:
        """Memory of a worker at the peak."""
        return int(memory.TASK_SHARE * self.worker_bytes)

    @property
    def evaluations(self) -> int:
        """Return how many subsets a Pareto search evaluates, about: of its offspring, 1 / e are their parents."""
        return int((1.0 - math.exp(-1.0)) * (self.iterations or 0))

    @property
    def passes(self) -> int:
        """Return the number of passes over the data."""
        return self.total.passes

    @property
    def bytes_read(self) -> int:
        """Return the bytes of all passes, uncompressed."""
        return self.total.bytes_read

    @property
    def tasks(self) -> int:
        """Return the Dask tasks of all passes."""
        return self.total.tasks

    @property
    def flops(self) -> int:
        """Return the multiplications and additions of all passes."""
        return self.total.flops

    @property
    def worker_search_seconds(self) -> float | None:
        """Return the estimated duration of the search on the workers, where that of one core is known."""
        seconds = self.placement.seconds if self.search_seconds is None else self.search_seconds
        if seconds is None or self.placement.tasks < 2 or not self.search_workers:
            return None
        limit = self.iteration_seconds
        if limit is not None and seconds >= limit:
            return seconds
        return _WORKER_START + seconds / (_WORKER_SPEED * min(self.search_workers, self.placement.tasks))

    def require(self) -> Plan:
        """Return this plan if it can run.

        Raises
        ------
        CapacityError
            If it cannot, with what is missing and what would help.
        """
        if self.lacks:
            raise CapacityError(self.lacks, self.remedy)
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "chosen"}
        values["placement"] = {**asdict(self.placement), "worker_seconds": self.worker_search_seconds}
        values["stages"] = [asdict(stage) for stage in self.stages]
        totals = {"passes": self.passes, "bytes_read": self.bytes_read, "tasks": self.tasks, "flops": self.flops}
        return {"representation": self.representation, "reason": self.reason, **values, **totals,
                "fits": not self.lacks}  # fmt: skip

    def compare(self, log: PassLog, counts: dict[str, Any]) -> dict[str, Any]:
        """Return the planned and the measured numbers, for the result. counts: those of the search."""
        planned = {
            "passes": self.passes, "bytes_read": self.bytes_read, "tasks": self.tasks,
            "worker_memory": self._peak_bytes, "seconds": self.seconds, **self.chosen.planned_counts,
            "search_seconds": self.search_seconds, "search_seconds_on_workers": self.worker_search_seconds,
        }  # fmt: skip
        measured = {
            "passes": log.passes, "bytes_read": log.bytes_read, "tasks": log.tasks, "seconds": log.seconds,
            "of_copies": sum(record.bytes_read for record in log.records if record.name == COPIES),
            **{name: counts.get(name, 0) for name in self.chosen.measured_counts},
        }  # fmt: skip
        return {
            "representation": self.representation, "reason": self.reason, "exact": self.exact, "planned": planned,
            "measured": measured, "search_on": self.placement.where, "search_reason": self.placement.why,
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the plan as plain text, one fact per line."""
        text = [f"representation: {self.representation}: {self.reason}"]
        text += [f"  not {name}: {why}" for name, why in self.rejected]
        text += [_cost_line(stage) for stage in self.stages]
        text.append(_cost_line(self.total, "" if self.exact else "about " if self.passes else "at least "))
        text += [_cost_line(self.expected, "about ")] if self.expected.passes > self.passes else []
        text.append(self._memory_line())
        text.append(f"disk: {format_bytes(self.disk_bytes)} of statistics" if self.disk_bytes else "disk: nothing")
        if self.seconds is not None:
            here = self.placement.seconds
            search = "the search is not estimated" if here is None else f"{_time(here)} for the search"
            if self.iterations is not None:
                evaluations = f"an estimate of {self.evaluations:,} evaluations, fewer where subsets repeat"
                search = (
                    f"that of the search is not estimated: at most {self.iterations:,} iterations, with {evaluations}"
                )
            if self.search_seconds is not None:
                search = f"{_time(self.search_seconds)} for at most {self.iterations:,} iterations of the search"
            text.append(f"time: {_time(self.seconds)} for the passes; {search}")
        text.append(self._placement_line())
        text += [f"note: {note}" for note in self.notes]
        if self.lacks:
            text.append(f"does not fit: {self.lacks} {self.remedy}")
        return text

    def _placement_line(self) -> str:
        """Return where the search runs, why, and the estimated time in this process and on the workers."""
        workers = counted(self.search_workers, "worker")
        where = f"on {workers}" if self.placement.on_workers else "in this process"
        why = f": {self.placement.why}" if self.placement.why else ""
        here = self.placement.seconds if self.search_seconds is None else self.search_seconds
        there = self.worker_search_seconds
        times = "" if here is None else f"; {_time(here)} in this process"
        times += "" if there is None else f", {_time(there)} on {workers}"
        return f"search: {where}{why}{times}"

    def _memory_line(self) -> str:
        more = self.proof_bytes > self.worker_bytes
        proof = f", and {format_bytes(self.proof_bytes)} for the proof" if more else ""
        limit = "no limit known" if self.worker_limit is None else f"a limit of {format_bytes(self.worker_limit)}"
        return (
            f"memory: {counted(self.workers, 'worker')} of {format_bytes(self._peak_bytes)} at the "
            f"peak ({limit}, {format_bytes(self.worker_bytes, up=True)} are enough{proof}); this process "
            f"{format_bytes(self.client_bytes)} ({format_bytes(self.client_available)} are available)"
        )


def _time(seconds: float) -> str:
    """Return an estimated time in words. Below a second, what is not estimated takes longer."""
    return "below 1 s" if seconds < 1.0 else f"about {seconds:.3g} s"


def _cost_line(cost: PassCost, about: str = "") -> str:
    return (
        f"{cost.name}: {about}{passes_over_data(cost.passes, cost.bytes_read)}, {format_bytes(cost.bytes_read)} read, "
        f"{counted(cost.tasks, 'task')}, {cost.flops:.3g} flops"
    )


def available_resources(workers: int = 1, worker_memory: int | None = None, keeps_values: bool = True) -> Resources:
    """Return workers, their memory limit, and the memory that this process can use now."""
    return Resources(workers, worker_memory, psutil.virtual_memory().available, keeps_values)


def make_plan(
    validated: ValidatedRequest, available: Resources, *, cache: StatisticsCache | None = None,
    state: dict[str, Any] | None = None, proofs: Sequence[tuple[ProofLimits, bool]] = (), scratch: Path | None = None,
    isolated_cluster: str = "", search_workers: int = 0, shares_folder: bool = True, copies: Path | None = None,
) -> Plan:  # fmt: skip
    """Return the plan of one selection. No data are read.

    Parameters
    ----------
    validated : ValidatedRequest
        The data and the request.
    available : Resources
        Workers and memory.
    cache : StatisticsCache, optional
        Where statistics may be saved already, and will be.
    state : dict, optional
        The state of an interrupted search.
    proofs : sequence of (ProofLimits, bool)
        The limits of each proof that follows, and whether it lists near-best subsets.
    scratch : Path, optional
        A folder for a cache of rows on disk.
    isolated_cluster : str
        The kind of a cluster whose workers share no folder with this process.
    search_workers : int
        The number of workers that the search may use; 0 without a cluster.
    shares_folder : bool
        Whether the workers can read a folder of this process.
    copies : Path, optional
        A folder for a copy of X by columns, which the workers read.

    Returns
    -------
    Plan
        A plan that cannot run says so in `lacks`.

    Raises
    ------
    OptionError
        If a cache of rows is requested and the workers share no folder for it.
    """
    dataset, needs = validated.dataset, validated.requirements
    shape = ProblemShape.of(dataset, validated.request.limit, needs, validated.request.reduce)
    if shape.rows_beat_gram and cache and GramMatrix(shape, available).saved(validated, cache).statistics:
        shape = replace(shape, needs=replace(needs, few_columns=False, seconds=None))  # the Gram matrix costs nothing
    found = candidates(shape, available)
    lack, rewrite_every, row_cache_bytes = ("", ""), None, 0
    try:
        chosen = choose(shape, available)
    except CapacityError as error:
        chosen, lack = found[0], (error.what, error.remedy)
    placement = validated.placed(Site(search_workers > 0, chosen.holds_gram, shares_folder))
    copy, copy_note = None, ""
    if validated.loss is not None:
        copy, copy_note = copy_that_saves(dataset, copies, partial(_loss_costs, validated))
    copy_bytes = 0 if copy is None else chosen.worker_limit(4 * shape.row_block_bytes + memory.COMPILED)
    if available.worker_memory is not None and copy_bytes > available.worker_memory:
        copy, copy_note, copy_bytes = None, "", 0
    worker_bytes = max(chosen.worker_bytes, round_worker_bytes(validated, chosen), copy_bytes)
    placement, worker_bytes = _with_search(placement, worker_bytes, chosen, available)
    lack, planned = _with_proofs(lack, validated, proofs, available, cache)
    proof_bytes = max((proof.worker_bytes for proof in planned if search_workers), default=0)
    proof_client_bytes = max((proof.representation.client_bytes for proof in planned), default=0)
    lack = lack if lack[0] else _worker_shortage(max(worker_bytes, proof_bytes), available)
    try:
        rewrite_every, row_cache_bytes = rewrite_interval(validated, scratch, isolated_cluster, chosen)
    except CapacityError as error:
        lack = lack if lack[0] else (error.what, error.remedy)
    saved = Saved() if cache is None else chosen.saved(validated, cache)
    disk_bytes = saved.disk_bytes if cache is not None and cache.on_disk else 0
    saves_check = cache is not None and cache.on_disk and grows(dataset)
    by_rounds = (chosen.holds_gram or shape.rounds) and rounds_are_known(validated) and rewrite_every is None
    known = by_rounds and validated.loss is None and not saves_check and not _reads_chosen_chunks(dataset)
    disk_bytes += 2 * row_cache_bytes + (0 if copy is None else dataset.x_bytes)
    stages = list(_stages(validated, chosen, saved, state, rewrite_every, cache, copy))
    read = PassCost.total("in all", stages).bytes_read
    trial = [chosen.trial(dataset).cost()] if read >= CALIBRATED_BYTES else []  # of one block, for the estimate
    return Plan(
        chosen, tuple((one.name, one.obstacle or _alternative(one)) for one in found if one.name != chosen.name),
        (*trial, *stages), available.workers, worker_bytes, available.worker_memory,
        max(chosen.client_bytes, proof_client_bytes), available.client_memory, disk_bytes, known,
        (*_notes(validated, chosen, saved, planned, row_cache_bytes, saves_check, copy_note), *placement.notes),
        iterations=placement.iterations or needs.iterations, iteration_seconds=needs.seconds,
        lacks=lack[0], remedy=lack[1], rewrite_every=rewrite_every, placement=placement, search_workers=search_workers,
        copies_columns=copy is not None, proof_bytes=proof_bytes,
    )  # fmt: skip


def _with_proofs(
    lack: tuple[str, str], validated: ValidatedRequest, proofs: Sequence[tuple[ProofLimits, bool]],
    available: Resources, cache: StatisticsCache | None,
) -> tuple[tuple[str, str], list[PlannedProof]]:  # fmt: skip
    """Return what is missing for a selection and its proofs, and the proofs."""
    if lack[0]:
        return lack, []
    try:
        planned = [PlannedProof(validated, limits, available, cache, lists=lists) for limits, lists in proofs]
    except CapacityError as error:
        return (error.what, error.remedy), []
    return next((proof.lacks for proof in planned if proof.lacks[0]), lack), planned


def _with_search(
    placement: Placement, worker_bytes: int, chosen: Representation, available: Resources
) -> tuple[Placement, int]:
    """Return the placement and the memory limit of a worker with what it needs for the search.

    Where workers have too little memory, this process runs the same tasks.
    """
    if not placement.on_workers or not placement.tables:
        return placement, worker_bytes
    need = chosen.worker_bytes_of_search(placement.tables)
    if available.worker_memory is None or need <= available.worker_memory:
        return placement, max(worker_bytes, need)
    why = (
        f"a worker needs {format_bytes(need)} for the search and is limited to {format_bytes(available.worker_memory)}"
    )
    return replace(placement, where="client", why=why), worker_bytes


def _worker_shortage(worker_bytes: int, available: Resources) -> tuple[str, str]:
    """Return which memory a worker lacks for rounds or proofs, and what would help; empty if none."""
    if available.worker_memory is None or worker_bytes <= available.worker_memory:
        return "", ""
    limit = format_bytes(available.worker_memory)
    return (
        f"A worker needs {format_bytes(worker_bytes)} for its rounds or proofs and is limited to {limit}.",
        f"Give each worker {format_bytes(worker_bytes, up=True)}, or use smaller row blocks (dsel ingest --memory).",
    )


def _stages(
    validated: ValidatedRequest, chosen: Representation, saved: Saved, state: dict[str, Any] | None,
    rewrite_every: int | None, cache: StatisticsCache | None, copy: ColumnCopy | None,
) -> Iterator[PassCost]:  # fmt: skip
    """Yield the costs of the passes that are still to be made, in their order."""
    yield from chosen.costs(validated, saved)
    yield from round_costs(validated, state, rewrite_every, chosen)
    if validated.held_out is not None and (validated.size_rule is not None or number_of_rounds(validated)):
        k = validated.request.limit  # the pass reads all columns
        yield held_out_pass(validated.held_out, k + 1, k).cost()
    if copy is not None:
        yield copy.writing.cost()
    if validated.loss is not None:
        yield from _loss_costs(validated, validated.dataset if copy is None else copy.rows)
    yield chosen.check_cost(validated, cache)


def _loss_costs(validated: ValidatedRequest, rows: Dataset) -> list[PassCost]:
    """Return the costs of the passes that a loss takes typically over the data, or over their copy."""
    loss, folds, k = validated.loss, validated.loss_folds, validated.request.limit
    assert loss is not None
    elsewhere = rows.blocks[0].offset is not None or getattr(loss, "class_weight", None) is not None
    scales = []
    if folds is not None and validated.request.scales_matter:
        repetitions = {repetition for model in folds.tests() for repetition, _ in model.train}
        scales = [part_squares_pass(validated.dataset, folds, repetition).cost() for repetition in repetitions]
    return scales + loss_costs(
        rows, k, loss, searches=1 + (0 if folds is None else sum(1 for _ in folds.tests())),
        sizes=0 if validated.size_rule is None else k - validated.included,
        begins_elsewhere=elsewhere or not loss.by_rows or (loss.outputs > 1 and rows.n_targets == 1),
    )  # fmt: skip


def _reads_chosen_chunks(dataset: Dataset) -> bool:
    """Return whether the last pass reads only the column chunks of the chosen columns, which are not known before."""
    return dataset.store is not None and bool(dataset.n_targets) and len(dataset.store.column_bounds) > 2


def _notes(
    validated: ValidatedRequest, chosen: Representation, saved: Saved, proofs: Sequence[PlannedProof],
    row_cache_bytes: int, saves_check: bool, copy_note: str,
) -> Iterator[str]:  # fmt: skip
    if saved.statistics:
        yield "statistics are saved: no pass for them"
    if saved.eigendecomposition:
        yield "the eigendecomposition is saved: no pass for it"
    yield from validated.requirements.notes
    yield from filter(None, [missing_targets(validated.dataset)])
    if not rounds_are_known(validated):
        yield "the number of rounds depends on the data"
    if row_cache_bytes:
        yield f"rounds read a cache of {format_bytes(row_cache_bytes)} on disk; while it is rewritten there are two"
    if copy_note:
        yield copy_note
    yield from chosen.notes()
    if validated.loss is not None:
        yield (
            f"the loss {validated.loss.name} takes {FEWEST_MODELS} to {MOST_MODELS} models, each after the first one "
            "in one pass, and reads few columns for fits, which counts bytes and tasks but no pass; the plan has the "
            "fewest models, and the reads that are usual with them"
        )
    if _reads_chosen_chunks(validated.dataset):
        yield "the last pass reads only the chunks of the chosen columns: fewer bytes than planned"
    if saves_check:
        yield "the last pass reads only new segments if the same columns are chosen as before, else all rows of them"
    yield from dict.fromkeys(note for proof in proofs for note in proof.notes(chosen))


def _alternative(other: Representation) -> str:
    """Return what a representation that could be used, but is not chosen, would take."""
    return (
        f"it could be used too, with {counted(other.passes, 'pass', 'passes')}, {format_bytes(other.bytes_read)} read, "
        f"{format_bytes(other.worker_bytes)} per worker, {format_bytes(other.client_bytes)} in this process"
    )
