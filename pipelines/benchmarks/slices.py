"""Measure POSS by slices: speed on two workers, quality at equal numbers of iterations, and many simulated workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dsel.engine.dask_futures import DaskExecutor
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_on_workers import ObjectiveFile, save_objective
from dsel.search.anytime import Stop
from dsel.search.ask_tell import Cleanup, ExecutorOptions, Task, TaskResult
from dsel.search.greedy.path import forward
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.options import default_interval
from dsel.search.pareto.slice_work import RunSlices, SliceResult, SliceRules, run_slice
from dsel.search.pareto.sliced import SlicedSearch
from dsel.search.runtime.dispatcher import Dispatcher
from dsel.search.runtime.schedule import MOST_IN_FLIGHT, Division, Schedule
from pipelines.benchmarks.synthetic import regression_data
from pipelines.papers.datasets import load
from pipelines.papers.preprocess import regression, standardized

#: Columns, columns to choose, and the seconds on the reference core to which the published search is cut. The first one
#: takes 30 s. Its parts differ, since slices of the beginning find the same improvements.
CASES, QUICK_CASES = ((2500, 50, 12.0), (10_000, 100, 12.0)), ((2500, 50, 4.0),)
#: Data sets and columns to choose for the comparison of quality, and the slices at a time.
QUALITY, QUALITY_SLICES = (("sonar", 8), ("ionosphere", 8), ("clean1", 16)), (4, 16, 64)
#: Simulated workers, and the seconds that a simulated slice takes.
SIMULATED, SLICE = (1, 8, 32), 0.2
_WAITING_K = 50


class Cluster(Protocol):
    """Starts a local cluster of some processes with some threads each."""

    def __call__(self, processes: int, threads: int = 1) -> AbstractContextManager[Any]: ...


@dataclass(frozen=True)
class Speed:
    """The speed of a search by slices.

    seconds: for 0 (POSS in this process), 1 and 2 workers, from the path of forward selection. later: the same from the
    archive that an earlier search has left, when few improvements remain. busy: share of the time of 2 workers.
    together: the speed of each of two independent searches at the same time, over that of one alone.
    """

    n: int
    k: int
    seconds: dict[int, float]
    later: dict[int, float]
    busy: float
    together: float

    @property
    def speedup(self) -> float:
        """Return the time in this process over that on two workers."""
        return self.seconds[0] / self.seconds[2]

    @property
    def later_speedup(self) -> float:
        """Return the same for the search that begins later."""
        return self.later[0] / self.later[2]


def _warm(objective: DenseObjective, k: int) -> list[tuple[int, ...]]:
    return [point.members for point in forward(objective, min(2 * k - 1, objective.n)).front if point.size]


def speed(cluster: Cluster, folder: Path, n: int, k: int, seconds: float) -> Speed:
    """Return the speed of POSS with its default options, from the path of forward selection."""
    X, y = regression_data(n // 5, n)
    objective = regression(X, y)
    every = default_interval(n, k)
    stored, rules = save_objective(objective, folder), SliceRules(k, 1, exchange_every=every)
    division = Division(n, k, 1, every, paper_iterations(k, n))
    size = replace(division.schedule(), in_flight=8)
    iterations = min(int(seconds / division.each), division.iterations)
    path = _warm(objective, k)
    earlier = _searched(objective, replace(rules, seed=2), path, iterations)
    later = [point.members for point in earlier.archived if point.size]
    taken: dict[str, dict[int, float]] = {"whole": {0: 0.0}, "later": {0: 0.0}}
    busy = available = 0.0
    starts = (("whole", path, iterations), ("later", later, iterations // 2))
    # The clock of a virtual machine drifts, so the search in this process is measured before and after.
    for name, subsets, number in starts:
        taken[name][0] += 0.5 * _alone(objective, rules, subsets, number)
    for workers in (1, 2):
        with cluster(workers) as client:
            _sliced(client, objective, stored, rules, size, path, 8 * workers * size.length, workers)  # compiles
            busy = available = 0.0
            for name, subsets, number in starts:
                found = _sliced(client, objective, stored, rules, size, subsets, number, workers)
                taken[name][workers], busy, available = found[0], busy + found[1], available + found[2]
    for name, subsets, number in starts:
        taken[name][0] += 0.5 * _alone(objective, rules, subsets, number)
    with cluster(2) as client:
        futures = [client.submit(_from_file, stored, rules, later, iterations // 4, pure=False) for _ in range(2)]
        both = max(client.gather(futures))
        single = client.submit(_from_file, stored, rules, later, iterations // 4, pure=False).result()
    stored.place.unlink()
    return Speed(n, k, taken["whole"], taken["later"], busy / available, single / both)


def _from_file(
    stored: ObjectiveFile, rules: SliceRules, subsets: Sequence[tuple[int, ...]], iterations: int
) -> float:  # fmt: skip
    return _alone(stored.load(), rules, subsets, iterations)


def _alone(objective: DenseObjective, rules: SliceRules, subsets: Sequence[tuple[int, ...]], iterations: int) -> float:
    search = _searched(objective, rules, subsets, 0)
    start = time.perf_counter()
    search.advance(iterations)
    return time.perf_counter() - start


def _searched(
    objective: DenseObjective, rules: SliceRules, subsets: Sequence[tuple[int, ...]], iterations: int
) -> Poss:  # fmt: skip
    """Return a search after some iterations from these subsets."""
    search = rules.search(objective, 8 << 30)
    search.warm_up()
    for members in subsets:
        search.offer(members)
    search.advance(iterations)
    return search


def _sliced(
    client: Any, objective: DenseObjective, stored: ObjectiveFile, rules: SliceRules, size: Schedule,
    subsets: Sequence[tuple[int, ...]], iterations: int, workers: int,
) -> tuple[float, float, float]:  # fmt: skip
    """Return the seconds of all iterations once each worker has read the data, and the workers' busy and whole time."""
    stop = Stop(iterations=iterations)
    search = SlicedSearch(objective, rules, size, stop)
    for members in subsets:
        search.offer(members)
    first: list[tuple[int, float, float, float]] = []
    dispatcher = Dispatcher(search, DaskExecutor(client, RunSlices(stored, rules), ExecutorOptions()), stop)

    def at_first(_: Any) -> None:
        stats = dispatcher.stats
        if not first and stats.tasks >= 2 * workers:
            first.append((stats.evaluations, time.perf_counter(), stats.busy, stats.available))

    dispatcher.run(at_first)
    done, then, busy, available = first[0]
    seconds = (time.perf_counter() - then) * iterations / (iterations - done)
    return seconds, dispatcher.stats.busy - busy, dispatcher.stats.available - available


def quality(seeds: int, cases: Sequence[tuple[str, int]]) -> dict[str, dict[str, list[float]]]:
    """Return the mean difference of R^2 between slices and sequential POSS at equal iterations, and its standard error.

    Published POSS and the default options; as many generations of slices as the shortest divided search has.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for name, k in cases:
        arrays = load(name)
        if arrays is None:
            continue
        objective = regression(standardized(arrays["X"]), standardized(arrays["Y"][:, :1]))
        for every, subsets in ((0, []), (default_interval(objective.n, k), _warm(objective, k))):
            ends = {W: np.array([_end(objective, k, seed, every, subsets, W) for seed in range(seeds)])
                    for W in (1, *QUALITY_SLICES)}  # fmt: skip
            differences = {W: (ends[1] - ends[W]) / objective.total for W in QUALITY_SLICES}
            found[f"{name}, k = {k}, {'default' if every else 'published'}"] = {
                str(W): [float(d.mean()), float(d.std(ddof=1) / np.sqrt(seeds))] for W, d in differences.items()
            }
    return found


def _end(
    objective: DenseObjective, k: int, seed: int, every: int, subsets: Sequence[tuple[int, ...]], slices: int
) -> float:
    """Return the least f of a search with some slices at a time; 1: sequential POSS."""
    iterations = paper_iterations(k, objective.n)
    rules, stop = SliceRules(k, seed, exchange_every=every), Stop(iterations=iterations)
    generations = Division(objective.n, k, 1, every, iterations).generations(slices)
    length = iterations if slices == 1 else max(1, iterations // (slices * generations))
    search = SlicedSearch(objective, rules, Schedule(slices, length), stop)
    for members in subsets:
        search.offer(members)
    worker = rules.search(objective, 8 << 30)
    while not search.finished():
        out = []
        while (task := search.ask(1, 1)) is not None:
            out.append(task)
        for task in out:
            search.tell(task, TaskResult(run_slice(worker, task.payload), 0.0))
    return search.best_value


def not_worse(found: dict[str, dict[str, list[float]]]) -> bool:
    """Return whether no mean difference is below 0 by more than two standard errors."""
    return all(mean >= -2.0 * error for row in found.values() for mean, error in row.values())


@dataclass(frozen=True)
class WaitingSlices:
    """Work that waits as long as a slice computes, and finds nothing.

    It takes `SLICE` seconds on average, and as in a search longer for large parents than for small ones.
    """

    def __call__(self, task: Task) -> TaskResult:
        start = time.perf_counter()
        part: Any = task.payload
        size = np.mean(part.parents) / (2 * _WAITING_K)
        time.sleep(SLICE * (0.4 + 1.2 * size) * np.random.default_rng(part.start).uniform(0.85, 1.15))
        counts = {"looked_up": 0, "valued": 0, "evaluated": 0, "accepted": 0}
        result = SliceResult((), (), part.stop, counts)
        return TaskResult(result, time.perf_counter() - start)

    def cleanup(self) -> tuple[Cleanup, ...]:
        """Return nothing to release."""
        return ()


def waiting(cluster: Cluster, counts: Sequence[int]) -> dict[int, float]:
    """Return the efficiency on simulated workers, threads of two processes that wait for a slice's time.

    The archive has a subset of each size up to 2k - 1, as snapshots do.
    """
    X, y = regression_data(400, 200)
    objective = regression(X, y)
    subsets, speeds = _warm(objective, _WAITING_K), {}
    for workers in counts:
        processes = 1 if workers == 1 else 2
        with cluster(processes, workers // processes) as client:
            number = MOST_IN_FLIGHT * workers  # 32 generations for each of the most workers, as the shortest search has
            stop = Stop(iterations=1000 * number)
            search = SlicedSearch(objective, SliceRules(_WAITING_K, 1), Schedule(MOST_IN_FLIGHT, 1000), stop)
            for members in subsets:
                search.offer(members)
            start = time.perf_counter()
            Dispatcher(search, DaskExecutor(client, WaitingSlices(), ExecutorOptions()), stop).run()
            speeds[workers] = number / (time.perf_counter() - start)
            print(f"{workers} simulated workers: {speeds[workers]:.1f} slices per second", flush=True)
    return {workers: speeds[workers] / (workers * speeds[1]) for workers in counts}


def speeds(cluster: Cluster, folder: Path, quick: bool) -> dict[str, Any]:
    """Print and return the speeds of two workers."""
    measured = []
    for n, k, seconds in QUICK_CASES if quick else CASES:
        one = speed(cluster, folder, n, k, seconds)
        measured.append(one)
        print(f"slices, n = {one.n}, k = {one.k}: {one.seconds[0]:.1f} s in one process, {one.seconds[1]:.1f} s on 1 "
              f"worker, {one.seconds[2]:.1f} s on 2 (x {one.speedup:.2f}; from an earlier archive x "
              f"{one.later_speedup:.2f}; two independent searches reach x {2.0 * one.together:.2f}; workers "
              f"{one.busy:.1%} busy)", flush=True)  # fmt: skip
    return {
        "slices_2": {f"n={one.n},k={one.k}": one.speedup for one in measured},
        "slices_1": {f"n={one.n},k={one.k}": one.seconds[0] / one.seconds[1] for one in measured},
        "slices_2_later": {f"n={one.n},k={one.k}": one.later_speedup for one in measured},
        "two_searches": {f"n={one.n},k={one.k}": 2.0 * one.together for one in measured},
        "overhead": max(1.0 - one.busy for one in measured),
    }


def simulated(cluster: Cluster, quick: bool) -> dict[str, Any]:
    """Print and return the efficiency on simulated workers."""
    efficiency = waiting(cluster, (1, 32) if quick else SIMULATED)
    print("efficiency on simulated workers:", {workers: round(share, 3) for workers, share in efficiency.items()})
    return {"wait_slices_32": efficiency[32]}


def qualities(quick: bool) -> dict[str, Any]:
    """Print and return the quality at equal numbers of iterations."""
    compared = quality(3 if quick else 8, QUALITY[:1] if quick else QUALITY)
    for name, row in compared.items():
        print(f"R^2 by slices less sequential, {name}:", {W: f"{m:+.6f} +- {e:.6f}" for W, (m, e) in row.items()})
    return {"quality_at_equal_iterations": compared, "quality_not_worse": not_worse(compared)}
