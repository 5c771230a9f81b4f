"""Measure how PPOSS scales on a cheap objective, a criterion that computes for 50 ms, and one that waits for 50 ms.

Speed is evaluations per second (on the cheap objective: iterations per second). Efficiency is the speed on W workers
over W times the speed on one. The cheap objective and the computing criterion run in processes. The waiting criterion
simulates a remote service, so its workers are threads of two processes.

The synchronous search makes N offspring per round for any W, so its archive does not depend on W. N is several times W,
because a third of the offspring need no evaluation. The paper's setting, N = W, is shown as well.

R^2 as a function of N is measured for N offspring per round, and for the asynchronous search on N simulated workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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
from pipelines.benchmarks.protocol import Benchmark, Figures
from pipelines.benchmarks.simulated_workers import least_found
from pipelines.benchmarks.synthetic import low_rank_data, regression_data
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression, standardized
from pipelines.table import text_table

COST = 0.05
#: For the costly criteria: columns, k, and logical processors of the synchronous search.
N_COLUMNS, K, PROCESSORS = 200, 6, 96
CHEAP_N, CHEAP_K = 2500, 50
WAITING, QUICK_WAITING = (1, 2, 8, 10, 32), (1, 8, 32)
#: Shares of the iterations of the paper on the cheap objective.
_SHARE, _QUICK_SHARE = 0.5, 0.02
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


def cheap(folder: Path, share: float) -> tuple[list[Run], list[Run]]:
    """Return the runs of PPOSS-asy on the cheap objective with one and two processes: all of it, and its second half.

    Early on, nearly every iteration improves the archive, and every worker computes the tables of each new subset.
    """
    objective = cheap_objective()
    stored = save_objective(objective, folder)
    whole, second = [], []
    T = int(share * paper_iterations(CHEAP_K, CHEAP_N))
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
            print(f"cheap, {workers} workers: {run.seconds:.1f} s", flush=True)
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


def _cheap(quick: bool) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        whole, second = cheap(Path(folder), _QUICK_SHARE if quick else _SHARE)
        _shown(f"cheap objective, n = {CHEAP_N}, k = {CHEAP_K}, async", whole)
        _shown("second half of these iterations", second)
        most = ceiling(Path(folder), 300_000 if quick else 3_000_000)
    print(f"Two independent searches on this machine each reach {most:.3f} of the speed of one alone")
    return {
        "cheap_async_2": efficiency(whole, 2), "cheap_async_2_second_half": efficiency(second, 2),
        "cheap_ceiling_2": most,
    }  # fmt: skip


def _slices(quick: bool) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return slices.speeds(cluster, Path(folder), quick)


def _slices_waiting(quick: bool) -> Figures:
    return slices.simulated(cluster, quick)


def _criterion(computes: bool) -> Costly:
    return Costly(regression(*regression_data(1000, N_COLUMNS)), computes)


def _computing(quick: bool) -> Figures:
    asynchronous, synchronous = computing(_criterion(True), 1.0 if quick else 3.0)
    _shown("computes 50 ms, async", asynchronous)
    _shown("computes 50 ms, sync", synchronous)
    return {"cpu_async_2": efficiency(asynchronous, 2), "cpu_sync_2": efficiency(synchronous, 2)}


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
        "cheap": _cheap, "slices": _slices, "slices-waiting": _slices_waiting, "slices-quality": slices.qualities,
        "computing": _computing, "waiting": _waiting, "quality": _quality,
    },
)  # fmt: skip
