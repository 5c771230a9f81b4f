"""Measure how PPOSS scales on a cheap objective, a criterion that computes for 50 ms, and one that waits for 50 ms.

Speed is evaluations per second (on the cheap objective: iterations per second). Efficiency is the speed on W workers
over W times the speed on one. The cheap objective and the computing criterion run in processes. The waiting criterion
simulates a remote service, so its workers are threads of two processes.

The synchronous search makes N offspring per round for any W, so its archive does not depend on W. N is several times W,
because a third of the offspring need no evaluation. The paper's setting, N = W, is shown as well.

R^2 as a function of N is measured for N offspring per round, and for the asynchronous search on N simulated workers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dsel.engine.clusters.local import usable_cores
from dsel.engine.dask_futures import DaskExecutor
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_on_workers import ObjectiveFile, save_objective
from dsel.search.anytime import Stop
from dsel.search.ask_tell import ExecutorOptions, Work
from dsel.search.greedy.path import forward
from dsel.search.method import OnSlice
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.evaluations import EvaluateSubsets
from dsel.search.pareto.slice_work import RunSlices, SliceRules
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import Division, Schedule
from pipelines.benchmarks import scaling_report, slices
from pipelines.benchmarks.measured_run import Run
from pipelines.benchmarks.simulated_workers import least_found
from pipelines.benchmarks.synthetic import low_rank_data, regression_data
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression, standardized
from pipelines.table import json_line, text_table

COST = 0.05
#: For the costly criteria: columns, k, and logical processors of the synchronous search.
N_COLUMNS, K, PROCESSORS = 200, 6, 96
CHEAP_N, CHEAP_K = 2500, 50
WAITING = (1, 2, 4, 8, 10, 16, 32)
DATA_SETS = ("housing", "eunite2001", "ionosphere", "sonar", "coil2000", "mushrooms", "clean1")


@dataclass(frozen=True)
class Costly:
    """A criterion that returns f of a regression after `COST` seconds of computing or waiting."""

    objective: DenseObjective
    computes: bool

    def __call__(self, S: Subset) -> float:
        if self.computes:
            start = time.thread_time()
            while time.thread_time() - start < COST:
                pass
        else:
            time.sleep(COST)
        return self.objective.value(S)


@contextmanager
def cluster(processes: int, threads: int = 1) -> Iterator[Any]:
    """Yield a client of a local cluster whose workers are ready."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(  # type: ignore[no-untyped-call]

            n_workers=processes, threads_per_worker=threads, processes=True, dashboard_address=None, memory_limit=None
        ) as workers,
        Client(workers) as client,  # type: ignore[no-untyped-call]
    ):  # fmt: skip
        client.wait_for_workers(processes)
        yield client


def timed(
    client: Any, search: SlicedSearch | CriterionSearch, work: Work, iterations: int, workers: int,
    on_slice: OnSlice | None = None,
) -> Run:  # fmt: skip
    """Run a search on the workers of a client and return its measurements."""
    dispatcher = Dispatcher(search, DaskExecutor(client, work, ExecutorOptions()), Stop(iterations=iterations))
    before = search.evaluations
    start, busy = time.perf_counter(), time.process_time()
    dispatcher.run(on_slice)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    N = search.schedule.processors
    return Run(
        workers, N, search.evaluations - before, seconds, dispatcher.stats.tasks, busy,
        search.iteration // N if N else 0,
    )  # fmt: skip


def costly(client: Any, criterion: Costly, workers: int, processors: int, seconds: float) -> Run:
    """Run PPOSS with `processors` offspring per round (0: PPOSS-asy) on a costly criterion for about `seconds`."""
    n = criterion.objective.n
    work = EvaluateSubsets(criterion, None, tuple((j,) for j in range(n)))
    evaluations = seconds / COST * workers
    if processors:
        rounds = max(round(evaluations / (0.55 * processors)), 4)
        schedule, iterations = Schedule(processors=processors), rounds * processors
    else:
        schedule, iterations = Schedule(order="arrival"), int(evaluations / 0.55)
    search = CriterionSearch(n, K, schedule, Stop(iterations=iterations), seed=1)
    return timed(client, search, work, iterations, workers)


def cheap_objective() -> DenseObjective:
    """Return a column subset selection objective (Y = X) of nearly full rank."""
    X = low_rank_data(CHEAP_N + 100, CHEAP_N, 200)
    return DenseObjective(X.T @ X, None, float(np.square(X).sum()))


def cheap(folder: Path) -> tuple[list[Run], list[Run]]:
    """Return the runs of PPOSS-asy on the cheap objective with one and two processes: all of it, and its second half.

    Early on, nearly every iteration improves the archive, and every worker computes the tables of each new subset.
    """
    objective = cheap_objective()
    stored = save_objective(objective, folder)
    whole, second = [], []
    T = paper_iterations(CHEAP_K, CHEAP_N)
    for workers in (1, 2):
        with cluster(workers) as client:
            half: list[tuple[int, float]] = []

            def at_half(search: Any, half: list[tuple[int, float]] = half) -> None:
                if not half and search.evaluations >= T // 2:
                    half.append((search.evaluations, time.perf_counter()))

            warm = RunSlices(stored, SliceRules(CHEAP_K, 7))
            timed(client, _newest_first(objective, 7, 50_000 * workers), warm, 50_000 * workers, workers)
            work = RunSlices(stored, SliceRules(CHEAP_K, 1))
            run = timed(client, _newest_first(objective, 1, T), work, T, workers, at_half)
            done, then = half[0]
            whole.append(run)
            second.append(replace(run, evaluations=T - done, seconds=time.perf_counter() - then))
    return whole, second


def _newest_first(objective: DenseObjective, seed: int, iterations: int) -> SlicedSearch:
    """Return PPOSS-asy with the slices of its default."""
    division = Division(CHEAP_N, CHEAP_K, 0, 0, paper_iterations(CHEAP_K, CHEAP_N))
    schedule = replace(division.schedule(), order="arrival")
    return SlicedSearch(objective, SliceRules(CHEAP_K, seed), schedule, Stop(iterations=iterations))


def _alone(stored: ObjectiveFile, iterations: int) -> float:
    """Return the iterations per second of POSS alone."""
    search = Poss(stored.load(), CHEAP_K, seed=1)
    start = time.perf_counter()
    search.advance(iterations)
    return iterations / (time.perf_counter() - start)


def ceiling(folder: Path, iterations: int) -> float:
    """Return the mean speed of two independent searches at the same time over the speed of one alone."""
    stored = save_objective(cheap_objective(), folder)
    with cluster(2) as client:
        first, second = client.scheduler_info(n_workers=-1)["workers"]
        runs = [client.submit(_alone, stored, 50_000, workers=[w], pure=False) for w in (first, second)]
        client.gather(runs)
        one = client.submit(_alone, stored, iterations, workers=[first], pure=False).result()
        both = [client.submit(_alone, stored, iterations, workers=[w], pure=False) for w in (first, second)]
        return float(np.mean(client.gather(both))) / float(one)


def computing(criterion: Costly, seconds: float) -> tuple[list[Run], list[Run]]:
    """Return asynchronous and synchronous runs of the computing criterion, on one and two processes."""
    asynchronous, synchronous = [], []
    for workers in (1, 2):
        with cluster(workers) as client:
            costly(client, criterion, workers, 0, 0.5)
            asynchronous.append(costly(client, criterion, workers, 0, seconds))
            synchronous.append(costly(client, criterion, workers, PROCESSORS, seconds))
    return asynchronous, synchronous


def waiting(criterion: Costly, seconds: float) -> tuple[list[Run], list[Run], list[Run]]:
    """Return runs of the waiting criterion: asynchronous, synchronous with fixed N, synchronous with N = W."""
    asynchronous, synchronous, paper = [], [], []
    for workers in WAITING:
        processes = 1 if workers == 1 else 2
        with cluster(processes, workers // processes) as client:
            costly(client, criterion, workers, 0, 0.3)
            asynchronous.append(costly(client, criterion, workers, 0, 1.5 * seconds))
            synchronous.append(costly(client, criterion, workers, PROCESSORS, seconds))
            paper.append(costly(client, criterion, workers, workers, seconds / 2))
    return asynchronous, synchronous, paper


def efficiency(runs: list[Run], workers: int) -> float:
    """Return the speed on W workers over W times the speed on one."""
    speed = {run.workers: run.speed for run in runs}
    return speed[workers] / (workers * speed[1])


def quality(repeats: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return R^2 of PPOSS and PPOSS-asy with k = 8 for N = 1 to 10, R^2 of forward selection, and notes.

    This is the right-hand part of Figure 1 of the paper.
    """
    rows, notes = [], []
    for name in DATA_SETS:
        arrays = load(name)
        if arrays is None:
            notes.append(missing(name))
            continue
        objective = regression(standardized(arrays["X"]), standardized(arrays["Y"][:, :1]))
        row: dict[str, Any] = {"data": name, "forward": 1.0 - forward(objective, 8).best(8).value / objective.total}
        T = paper_iterations(8, objective.n)
        for N in range(1, 11):
            row[str(N)] = _spread(objective, [_rounds(objective, N, T, seed) for seed in range(repeats)])
            ends = [least_found(objective, 8, N, T, seed) for seed in range(repeats)]
            row[f"async_{N}"] = _spread(objective, ends)
        row["never_below_forward"] = _never_below_forward(row, "")
        row["async_never_below_forward"] = _never_below_forward(row, "async_")
        rows.append(row)
    return rows, notes


def _rounds(objective: DenseObjective, N: int, iterations: int, seed: int) -> float:
    search = Poss(objective, 8, processors=N, seed=seed)
    search.advance(iterations)
    return search.best_value


def _spread(objective: DenseObjective, values: list[float]) -> list[float]:
    """Return the mean and standard deviation of R^2."""
    found = 1.0 - np.array(values) / objective.total
    return [float(found.mean()), float(found.std())]


def _never_below_forward(row: dict[str, Any], form: str) -> bool:
    return all(row[f"{form}{N}"][0] >= row["forward"] - 1e-12 for N in range(1, 11))


def _table(title: str, runs: list[Run]) -> str:
    header = (title, "N", "speed (1/s)", "speedup", "efficiency", "tasks", "client CPU")
    alone = next(run for run in runs if run.workers == 1)
    return text_table(header, [
        [
            f"{run.workers} workers", str(run.processors or "-"), f"{run.speed:,.1f}", f"{run.speed / alone.speed:.2f}",
            f"{run.speed / alone.speed / run.workers:.3f}", str(run.tasks), f"{run.client:.2f} s",
        ]
        for run in runs
    ])  # fmt: skip


def run(out: Path, full: bool) -> None:
    """Print the tables and, as the last line, the figures as JSON; write the report into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    seconds = 12.0 if full else 3.0
    X, y = regression_data(1000, N_COLUMNS)
    objective = regression(X, y)
    sections: list[str] = []

    def show(text: str) -> None:
        print(text + "\n", flush=True)
        sections.append(text)

    show(f"PPOSS on {usable_cores()} cores; costly criteria take {COST * 1000:.0f} ms\n\n{__doc__}")
    cheap_runs, cheap_second = cheap(out)
    show(_table(f"cheap objective, n = {CHEAP_N}, k = {CHEAP_K}, async", cheap_runs))
    show(_table("second half of these iterations", cheap_second))
    most = ceiling(out, 3_000_000)
    show(f"Two independent searches on this machine each reach {most:.3f} of the speed of one alone")
    sliced = slices.run(cluster, out)
    cpu_async, cpu_sync = computing(Costly(objective, True), seconds)
    show(_table("computes 50 ms, async", cpu_async))
    show(_table("computes 50 ms, sync", cpu_sync))
    wait_async, wait_sync, wait_paper = waiting(Costly(objective, False), seconds)
    show(_table("waits 50 ms, async", wait_async))
    show(_table("waits 50 ms, sync", wait_sync))
    show(_table("waits 50 ms, sync, N = workers", wait_paper))
    model = scaling_report.fit(wait_async, wait_sync, wait_paper, COST)
    show(str(model))
    rows, notes = quality(10 if full else 4)
    show(_quality_table(rows) + "".join(f"\n{note}" for note in notes))
    scaling_report.write(out, sections, wait_async, wait_sync, model, rows)
    print(f"report: {out / 'scaling.html'}")
    print(json_line({
        "benchmark": "scaling",
        "cheap_async_2": efficiency(cheap_runs, 2),
        "cheap_async_2_second_half": efficiency(cheap_second, 2),
        "cheap_ceiling_2": most,
        **sliced,
        "cpu_async_2": efficiency(cpu_async, 2),
        "cpu_sync_2": efficiency(cpu_sync, 2),
        "wait_async_32": efficiency(wait_async, 32),
        "wait_sync_8": efficiency(wait_sync, 8),
        "wait_sync_10": efficiency(wait_sync, 10),
        "never_below_forward": all(row["never_below_forward"] for row in rows),
        "async_never_below_forward": all(row["async_never_below_forward"] for row in rows),
        "quality": rows,
    }))  # fmt: skip


def _quality_table(rows: list[dict[str, Any]]) -> str:
    shown = (1, 2, 4, 6, 8, 10)
    header = ("R^2, k = 8", "", "forward", *(f"N = {N}" for N in shown))
    forms = (("sync", ""), ("async", "async_"))
    return text_table(header, [
        [row["data"], name, f"{row['forward']:.4f}", *(f"{row[f'{form}{N}'][0]:.4f}" for N in shown)]
        for row in rows for name, form in forms
    ])  # fmt: skip
