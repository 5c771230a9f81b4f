"""The plan of a selection, before anything of it runs: representation, passes, bytes, tasks, memory, time.

Passes, bytes and tasks are those that will be counted (dsel.passes.accounting), not estimates, wherever the method says
beforehand how many rounds it makes; `exact` is False where it does not, and they are the least then.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from dask.utils import format_bytes

from dsel.config.request import Checked, problem_of
from dsel.data.dataset import Dataset
from dsel.errors import CapacityError, OptionError
from dsel.passes.accounting import PassLog
from dsel.passes.base import PassCost
from dsel.passes.cache import StatisticsCache
from dsel.passes.leave_one_out.disk_cache import bytes_on_disk, rounds_between_rewrites
from dsel.passes.tiles import Tiling, plan_tiles
from dsel.planning.representation import (
    FED,
    INTERPRETER,
    Problem,
    Representation,
    Resources,
    candidates,
    choose,
    gib,
    tile_budget,
)
from dsel.planning.stages import Saved, on_gram, reads_chosen_chunks, stages_of

#: What a worker holds more where rounds run compiled code (numba; measured 50 MiB).
COMPILED = 64 << 20


@dataclass(frozen=True)
class Plan:
    """What a selection will take.

    chosen: what the problem is searched as, and why (dsel.planning.representation); rejected: (name, why) of the
    others.
    worker_bytes: the limit that a worker needs (10 % of it are not filled); worker_limit: what it has, None without
    one. client_bytes of client_available: memory of this process. disk_bytes: of statistics that will be saved. exact:
    whether passes, bytes and tasks are known. iterations: of the search, where they are known and it is in this
    process; iteration_seconds: at most so long. seconds: of the passes, from a calibration, where there was one;
    search_seconds: of the search, likewise. lacks, remedy: why it cannot run. fold_every: rounds between rewrites of a
    cache on disk, None without one.
    """

    problem: Problem
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
    tiling: Tiling | None = None
    fold_every: int | None = None

    @property
    def representation(self) -> str:
        """What the problem is searched as."""
        return self.chosen.name

    @property
    def reason(self) -> str:
        """Why."""
        return self.chosen.reason

    @property
    def passes(self) -> int:
        """Passes over the data."""
        return sum(stage.passes for stage in self.stages)

    @property
    def bytes_read(self) -> int:
        """Bytes of all passes, uncompressed."""
        return sum(stage.bytes_read for stage in self.stages)

    @property
    def tasks(self) -> int:
        """Dask tasks of all passes."""
        return sum(stage.tasks for stage in self.stages)

    @property
    def flops(self) -> int:
        """Multiplications and additions of all passes."""
        return sum(stage.flops for stage in self.stages)

    def require(self) -> Plan:
        """This plan, if it can run. Errors: CapacityError with what is missing and what would do."""
        if self.lacks:
            raise CapacityError(self.lacks, self.remedy)
        return self

    def figures(self) -> dict[str, Any]:
        """What will be measured."""
        figures = {
            "passes": self.passes, "bytes_read": self.bytes_read, "tasks": self.tasks,
            "worker_memory": int(FED * self.worker_bytes), "seconds": self.seconds,
        }  # fmt: skip
        if self.chosen.rows_a_pass:
            figures |= {
                "columns_entered": self.problem.k,
                "row_passes": math.ceil(self.problem.k / self.chosen.rows_a_pass),
            }
        return figures

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        values = asdict(replace(self, tiling=None))
        for name in ("tiling", "problem", "chosen"):
            del values[name]
        values = {"representation": self.representation, "reason": self.reason, **values}
        totals = {"passes": self.passes, "bytes_read": self.bytes_read, "tasks": self.tasks, "flops": self.flops}
        return {**values, **totals, "fits": not self.lacks}

    def compare(self, log: PassLog, counts: dict[str, Any]) -> dict[str, Any]:
        """Planned against measured, for the result. counts: those of the search; where Gram rows come on demand, its
        columns are held against the k at least that were planned."""
        measured = {
            "passes": log.passes, "bytes_read": log.bytes_read, "tasks": log.tasks,
            "seconds": log.seconds,
        }  # fmt: skip
        if self.chosen.rows_a_pass:
            measured |= {name: counts.get(name, 0) for name in ("columns_entered", "rows_fetched", "row_passes")}
        return {
            "representation": self.representation, "reason": self.reason, "exact": self.exact,
            "planned": self.figures(), "measured": measured,
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Plain text, one line a fact."""
        about = "" if self.exact else "about "
        text = [f"representation: {self.representation}: {self.reason}"]
        text += [f"  not {name}: {why}" for name, why in self.rejected]
        for s in self.stages:
            text.append(
                f"{s.name}: {s.passes} {_plural('pass', s.passes)}, {format_bytes(s.bytes_read)} read, "
                f"{s.tasks} tasks, {s.flops:.3g} flops"
            )
        text.append(
            f"in all: {about}{self.passes} {_plural('pass', self.passes)}, {format_bytes(self.bytes_read)} read, "
            f"{self.tasks} tasks, {self.flops:.3g} flops"
        )
        limit = "no limit known" if self.worker_limit is None else f"a limit of {format_bytes(self.worker_limit)}"
        text.append(
            f"memory: {self.workers} {_plural('worker', self.workers)} of {format_bytes(int(FED * self.worker_bytes))} "
            f"at the peak ({limit}, {format_bytes(self.worker_bytes)} are enough); this process "
            f"{format_bytes(self.client_bytes)} ({format_bytes(self.client_available)} are available)"
        )
        text.append(f"disk: {format_bytes(self.disk_bytes)} of statistics" if self.disk_bytes else "disk: nothing")
        if self.seconds is not None:
            search = "the search is not estimated"
            if self.search_seconds is not None:
                search = f"about {self.search_seconds:.3g} s for {self.iterations:,} iterations of the search"
            text.append(f"time: {self.seconds:.3g} s for the passes; {search}")
        text += [f"note: {note}" for note in self.notes]
        if self.lacks:
            text.append(f"does not fit: {self.lacks} {self.remedy}")
        return text


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + ("es" if word.endswith("s") else "s")


def resources(workers: int = 1, worker_memory: int | None = None, keeps_values: bool = True) -> Resources:
    """Workers and their limit, and what this process can take now."""
    return Resources(workers, worker_memory, psutil.virtual_memory().available, keeps_values)


def make_plan(
    dataset: Dataset, checked: Checked, available: Resources, *, artefacts: StatisticsCache | None = None,
    state: dict[str, Any] | None = None, held_out: Dataset | None = None, certified: bool = False,
    scratch: Path | None = None, isolated_cluster: str = "",
) -> Plan:  # fmt: skip
    """The plan of one selection. artefacts: where statistics are saved or may be already; state: of an interrupted
    search; held_out: rows that the method tests its steps on; certified: whether a proof follows; scratch: a folder for
    the cache of greedy-rls; isolated_cluster: the kind of a cluster whose workers share no folder with this process.

    Nothing of the data is read. A plan that cannot run says so in `lacks`. Errors: OptionError where the cache of
    greedy-rls was asked for and cannot be had.
    """
    problem = problem_of(dataset, checked)
    found = candidates(problem, available)
    lacks = remedy = ""
    try:
        chosen = choose(problem, available)
    except CapacityError as error:
        chosen, lacks, remedy = found[0], error.what, error.remedy
    if dataset.in_memory or not available.keeps_values:
        chosen = replace(chosen, in_memory=False)
    tiling = None
    if chosen.name == "tiles" and not lacks:
        tiling = plan_tiles(dataset.n, min(tile_budget(problem, available), 8.0 * dataset.n**2))
    worker_bytes = _worker_bytes(chosen, dataset, checked)
    if not lacks and available.worker_memory is not None and worker_bytes > available.worker_memory:
        lacks = f"A worker needs {gib(worker_bytes)} for its rounds and is limited to {gib(available.worker_memory)}."
        remedy = f"Give each worker at least {math.ceil(10 * worker_bytes / 2**30) / 10} GiB, or smaller row blocks."
    every, cache, scored = None, 0, checked.requirements.cross_validation
    try:
        every = _fold_every(dataset, checked, scratch, isolated_cluster)
        cache = 0 if every is None or scored is None else bytes_on_disk(dataset, scored.loss)
    except CapacityError as error:
        lacks, remedy = lacks or error.what, remedy or error.remedy
    saved = Saved.find(dataset, checked, chosen, artefacts)
    stages = tuple(stages_of(dataset, checked, chosen, tiling, saved, state, held_out, every))
    return Plan(
        problem, chosen, tuple((c.name, c.lacks or _instead(c)) for c in found if c.name != chosen.name), stages,
        available.workers, worker_bytes, available.worker_memory, chosen.client_bytes, available.client_memory,
        saved.disk_bytes + 2 * cache, every is None and _is_exact(dataset, checked, chosen),
        tuple(_notes(dataset, checked, chosen, saved, certified, cache)),
        iterations=checked.requirements.iterations, iteration_seconds=checked.requirements.seconds,
        lacks=lacks, remedy=remedy, tiling=tiling, fold_every=every,
    )  # fmt: skip


def _fold_every(dataset: Dataset, checked: Checked, scratch: Path | None, isolated_cluster: str) -> int | None:
    """Rounds between rewrites of a cache on disk; None: there is none.

    Errors: CapacityError where it does not fit the disk, OptionError where it is asked for with weights, or for workers
    that would not see it.
    """
    scored = checked.requirements.cross_validation
    if scored is None or scored.folds:
        return None
    every = scored.rewrite_every
    if dataset.weights is not None and every != "never":
        if every != "auto":
            raise OptionError(
                f"fold_every is {every}, but the cache of greedy-rls has no weights.",
                "fold_every: never, or leave it or the weights out.",
            )
        return None
    if isinstance(every, int) and isolated_cluster:
        raise OptionError(
            f"fold_every: the workers ({isolated_cluster}) share no folder with this run for the cache.",
            "Leave it out (nothing is cached then), or use slurm with out on a file system that all nodes see.",
        )
    return rounds_between_rewrites(
        every, dataset, checked.include.size, checked.settings.k, scratch, loss=scored.loss,
        direction=scored.direction,
    )  # fmt: skip


def _is_exact(dataset: Dataset, checked: Checked, chosen: Representation) -> bool:
    """Whether passes, bytes and tasks are known."""
    return _is_forward(checked) and on_gram(chosen) and not reads_chosen_chunks(dataset)


def _is_forward(checked: Checked) -> bool:
    scored = checked.requirements.cross_validation
    return scored is None or scored.direction == "forward"


def _notes(
    dataset: Dataset, checked: Checked, chosen: Representation, saved: Saved, certified: bool, cache: int
) -> Iterator[str]:
    if saved.statistics:
        yield "statistics are saved: no pass for them"
    if saved.reduction:
        yield "the eigendecomposition is saved: no pass for it"
    yield from checked.requirements.notes
    if not _is_forward(checked):
        yield "how many rounds there are depends on the data"
    if cache:
        yield f"rounds read a cache of {format_bytes(cache)} on disk; while it is rewritten there are two"
    if chosen.rows_a_pass:
        yield (
            f"Gram rows come {chosen.rows_a_pass} a pass, once for every column that ever enters a solution: planned "
            f"for {checked.settings.k} of them, the least; one that is alone in its batch takes a pass of its own"
        )
    if reads_chosen_chunks(dataset):
        yield "the last pass reads the chunks of the columns chosen alone: fewer bytes than planned"
    if certified:
        yield "the proof reads no data, unless it finds a better subset: one more pass then"


def _instead(other: Representation) -> str:
    """What a representation that fits, and is not the chosen one, would take."""
    return (
        f"it would do too, in {other.passes} {_plural('pass', other.passes)}, {format_bytes(other.bytes_read)} read, "
        f"{format_bytes(other.worker_bytes)} a worker, {format_bytes(other.client_bytes)} in this process"
    )


def _worker_bytes(chosen: Representation, dataset: Dataset, checked: Checked) -> int:
    """The limit that a worker needs, for the rounds too."""
    if not checked.method.uses_rows:
        return chosen.worker_bytes
    arrays = 3 * 8 * dataset.n * (checked.settings.k + dataset.n_targets)
    block = dataset.nbytes // max(len(dataset.blocks), 1)
    return max(chosen.worker_bytes, math.ceil((INTERPRETER + COMPILED + arrays + 3 * block) / FED))
