"""Measure how PPOSS scales with a criterion that waits for 50 ms, and how good its answers are on many processors.

Speed is evaluations per second. Efficiency is the speed on W workers over W times the speed on one. The criterion
simulates a remote service, so its workers are threads of two processes. `cores` measures criteria that compute.

The synchronous search makes N offspring per round for any W, so its archive does not depend on W. N is several times W,
because a third of the offspring need no evaluation. The paper's setting, N = W, is shown as well.

R^2 as a function of N is measured for N offspring per round, and for the asynchronous search on N simulated workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsel.engine.dask_futures import DaskExecutor
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop
from dsel.search.ask_tell import ExecutorOptions, Work
from dsel.search.greedy.path import forward
from dsel.search.method import OnSlice
from dsel.search.pareto.archive import Subset
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.criterion import CriterionSearch
from dsel.search.pareto.evaluations import EvaluateSubsets
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import Schedule
from pipelines.benchmarks import scaling_report, slices
from pipelines.benchmarks.measured_run import Run
from pipelines.benchmarks.protocol import Benchmark, Figures
from pipelines.benchmarks.simulated_workers import least_found
from pipelines.benchmarks.synthetic import regression_data
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression, standardized
from pipelines.table import text_table

COST = 0.05
#: For the costly criteria: columns, k, and logical processors of the synchronous search.
N_COLUMNS, K, PROCESSORS = 200, 6, 96
WAITING, QUICK_WAITING = (1, 2, 8, 10, 32), (1, 8, 32)
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


def waiting(
    criterion: Costly, seconds: float, counts: Sequence[int]
) -> tuple[list[Run], list[Run], list[Run]]:  # fmt: skip
    """Return runs of the waiting criterion: asynchronous, synchronous with fixed N, synchronous with N = W."""
    asynchronous, synchronous, paper = [], [], []
    for workers in counts:
        processes = 1 if workers == 1 else 2
        with cluster(processes, workers // processes) as client:
            costly(client, criterion, workers, 0, 0.3)
            asynchronous.append(costly(client, criterion, workers, 0, 1.5 * seconds))
            synchronous.append(costly(client, criterion, workers, PROCESSORS, seconds))
            paper.append(costly(client, criterion, workers, workers, seconds / 2))
            print(f"waiting, {workers} workers: {asynchronous[-1].speed:.0f} evaluations per second", flush=True)
    return asynchronous, synchronous, paper


def efficiency(runs: list[Run], workers: int) -> float:
    """Return the speed on W workers over W times the speed on one."""
    speed = {run.workers: run.speed for run in runs}
    return speed[workers] / (workers * speed[1])


def quality(repeats: int, names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return R^2 of PPOSS and PPOSS-asy with k = 8 for N = 1 to 10, R^2 of forward selection, and notes.

    This is the right-hand part of Figure 1 of the paper.
    """
    rows, notes = [], []
    for name in names:
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
        print(f"{name}: measured", flush=True)
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


def _shown(title: str, runs: list[Run]) -> list[Run]:
    print(_table(title, runs) + "\n", flush=True)
    return runs


def _slices(quick: bool) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return slices.speeds(cluster, Path(folder), quick)


def _slices_waiting(quick: bool) -> Figures:
    return slices.simulated(cluster, quick)


def _criterion(computes: bool) -> Costly:
    return Costly(regression(*regression_data(1000, N_COLUMNS)), computes)


def _waiting(quick: bool) -> Figures:
    runs = waiting(_criterion(False), 0.5 if quick else 3.0, QUICK_WAITING if quick else WAITING)
    for title, found in zip(("async", "sync", "sync, N = workers"), runs, strict=True):
        _shown(f"waits 50 ms, {title}", found)
    model = scaling_report.fit(*runs, COST)
    print(model, flush=True)
    names = (f"wait_{form}_{W}" for form in ("async", "sync") for W in (8, 10, 32))
    figures = {}
    for name in names:
        found, W = runs["sync" in name.split("_")], int(name.split("_")[2])
        if any(run.workers == W for run in found):
            figures[name] = efficiency(found, W)
    points = {form: {run.workers: efficiency(found, run.workers) for run in found}
              for form, found in zip(("asynchronous", "synchronous"), runs[:2], strict=True)}  # fmt: skip
    return {**figures, "waiting": points, "model": asdict(model)}


def _quality(quick: bool) -> Figures:
    rows, notes = quality(1 if quick else 2, DATA_SETS[:2] if quick else DATA_SETS)
    print(_quality_table(rows) + "".join(f"\n{note}" for note in notes))
    return {
        "never_below_forward": all(row["never_below_forward"] for row in rows),
        "async_never_below_forward": all(row["async_never_below_forward"] for row in rows),
        "quality": rows,
    }  # fmt: skip


def _quality_table(rows: list[dict[str, Any]]) -> str:
    shown = (1, 2, 4, 6, 8, 10)
    header = ("R^2, k = 8", "", "forward", *(f"N = {N}" for N in shown))
    forms = (("sync", ""), ("async", "async_"))
    return text_table(header, [
        [row["data"], name, f"{row['forward']:.4f}", *(f"{row[f'{form}{N}'][0]:.4f}" for N in shown)]
        for row in rows for name, form in forms
    ])  # fmt: skip


BENCHMARK = Benchmark(
    "scaling",
    "Measure PPOSS on 1 to 32 workers, and R^2 against the number of processors.",
    {
        "slices": _slices, "slices-waiting": _slices_waiting, "slices-quality": slices.qualities,
        "waiting": _waiting, "quality": _quality,
    },
)  # fmt: skip
