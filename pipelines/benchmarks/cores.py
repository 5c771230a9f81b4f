"""Measure how dsel scales on 1, 2, 4, ... workers, up to the cores of this machine.

Every part compares the speed on W workers with that on one worker, and with what the machine allows: the speed of W
independent processes that do the same work at the same time (`allowed`). Cores share caches, memory and the power of
the processor, so that this is less than W.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dsel._lib.blas import one_blas_thread, usable_cores
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.blocks import load_block
from dsel.data.dataset import Dataset
from dsel.data.generate import generate_regression
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_on_workers import ObjectiveFile, save_objective
from dsel.passes.gram import gram_statistics
from dsel.search.anytime import Stop
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.pareto.compiled import Poss, paper_iterations
from dsel.search.pareto.starting_subset import starting_subset
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from pipelines.benchmarks.certificate import SPEEDUP_K, SPEEDUP_K_QUICK, one_target
from pipelines.benchmarks.out_of_core import multiply_block
from pipelines.benchmarks.protocol import Benchmark, Figures
from pipelines.benchmarks.scaling import Costly, costly
from pipelines.benchmarks.synthetic import regression_data
from pipelines.papers.datasets import missing
from pipelines.papers.preprocess import regression
from pipelines.table import text_table

#: Columns and columns to choose by POSS.
N, K = 2500, 50
#: The shape of the store, and of the quick one. Float32.
SHAPE, QUICK_SHAPE = (500_000, 1000), (50_000, 300)
#: Columns and columns to choose with a criterion, and offspring per round of the synchronous search.
CRITERION_N, CRITERION_K, PROCESSORS = 200, 6, 96

Measured = dict[int, float]


def counts() -> list[int]:
    """Return 1, 2, 4, ... up to the cores of this machine, and the number of cores."""
    cores = usable_cores()
    return sorted({1 << i for i in range(cores.bit_length()) if 1 << i <= cores} | {cores})


@contextmanager
def workers(count: int) -> Iterator[Any]:
    """Yield a client of `count` workers that are ready."""
    with local_cluster(count) as client:
        client.wait_for_workers(count)
        yield client


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def at_once(client: Any, work: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds until every worker has done the same work, each alone in its process."""
    names = list(client.scheduler_info(n_workers=-1)["workers"])

    def run() -> None:
        client.gather([client.submit(work, *arguments, workers=[name], pure=False) for name in names])

    run()  # loads what it needs
    return timed(run)


def shown(what: str, seconds: Mapping[str, Measured], allowed: Measured) -> Figures:
    """Print and return the speedup of each work on W workers, and what the machine allows.

    seconds: of the same work on W workers. allowed: of W independent processes, each with as much work for any W.
    """
    figures: Figures = {name: {} for name in seconds}
    rows = []
    for name, times in seconds.items():
        for W, taken in times.items():
            speedup, possible = times[1] / taken, W * allowed[1] / allowed[W]
            figures[name][W] = {"seconds": taken, "speedup": speedup, "allowed": possible}
            rows.append([name, str(W), *(f"{value:.2f}" for value in (taken, speedup, possible, speedup / possible))])
    print(text_table([what, "workers", "seconds", "speedup", "allowed", "share of it"], rows), flush=True)
    return figures


def searched(objective: ObjectiveFile, iterations: int) -> None:
    """Make some iterations of POSS in this process."""
    Poss(objective.load(), K, seed=1).advance(iterations)


def poss(quick: bool) -> Figures:
    """Measure POSS with its default options, by slices of iterations on workers."""
    X, y = regression_data(N // 5, N)
    data, iterations = as_dataset(X, y), int((0.05 if quick else 0.5) * paper_iterations(K, N))
    seconds: Measured = {}
    allowed: Measured = {}
    with tempfile.TemporaryDirectory() as folder:
        stored = save_objective(regression(X, y), Path(folder))
        for W in counts():
            with workers(W) as client:
                context = RunContext(DaskEngine(client), shared_folder=Path(folder))
                for length in (20_000 * W, iterations):  # the first call compiles
                    request = SelectionRequest(k=K, method="poss", seed=1, options={"iterations": length})
                    seconds[W] = run_selection(data, request, context).seconds["search"]
                allowed[W] = at_once(client, searched, stored, iterations // 10)
    return shown(f"{iterations:,} iterations, n = {N}, k = {K}", {"poss": seconds}, allowed)


def evaluated(criterion: Costly, times: int) -> None:
    """Evaluate a criterion some times in this process."""
    for _ in range(times):
        criterion((0, 1))


def criterion(quick: bool) -> Figures:
    """Measure PPOSS and PPOSS-asy with a criterion that computes for 50 ms."""
    given = Costly(regression(*regression_data(1000, CRITERION_N)), computes=True)
    seconds: dict[str, Measured] = {"pposs": {}, "pposs-asy": {}}
    allowed: Measured = {}
    for W in counts():
        with workers(W) as client:
            costly(client, given, W, 0, 0.5)
            for name, processors in (("pposs", PROCESSORS), ("pposs-asy", 0)):
                run = costly(client, given, W, processors, 1.0 if quick else 6.0)
                seconds[name][W] = run.seconds / run.evaluations
            allowed[W] = at_once(client, evaluated, given, 20)
    return shown("one evaluation of 50 ms", seconds, allowed)


def read_and_multiply(data: Dataset, blocks: int) -> None:
    """Read some blocks and multiply them in this process, as the Gram pass does."""
    with one_blas_thread():
        for block in data.blocks[:blocks]:
            multiply_block(load_block(block.x), None, block)


def passes(quick: bool) -> Figures:
    """Measure passes over a store: the Gram matrices, and five rounds of greedy RLS."""
    m, n = QUICK_SHAPE if quick else SHAPE
    seconds: dict[str, Measured] = {"gram": {}, "greedy-rls": {}}
    allowed: Measured = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "data.zarr"
        generate_regression(store, samples=m, features=n, chunks=(m // 64, n))
        data = as_dataset(str(store))
        for W in counts():
            with workers(W) as client:
                engine = DaskEngine(client)
                gram_statistics(data, engine=engine)
                seconds["gram"][W] = timed(partial(gram_statistics, data, engine=engine))
                seconds["greedy-rls"][W] = _greedy_rls(data, engine)
                allowed[W] = at_once(client, read_and_multiply, data, 64 // max(counts()))
    return shown(f"{m} x {n} float32", seconds, allowed)


def _greedy_rls(data: Dataset, engine: DaskEngine) -> float:
    request = SelectionRequest(k=5, method="greedy-rls", lam=1.0)
    return run_selection(data, request, RunContext(engine)).seconds["search"]


def proved(objective: DenseObjective, k: int) -> None:
    """Prove the best k columns in this process."""
    search = BranchAndBound(objective, k, incumbent=starting_subset(objective, k))
    search.warm_up()
    search.advance(1 << 62)


def proof(quick: bool) -> Figures:
    """Measure branch and bound on workers, on the sonar data."""
    data = one_target("sonar")
    if data is None:
        return {"missing": missing("sonar")}
    objective, k = regression(*data), SPEEDUP_K_QUICK if quick else SPEEDUP_K
    first = starting_subset(objective, k)
    seconds: Measured = {}
    allowed: Measured = {}
    for W in counts():
        with workers(W) as client:
            for size in (6, k):  # the first proof compiles
                search = BranchAndBound(objective, size, incumbent=first if size == k else ())
                on = on_workers(DaskEngine(client).executor)
                seconds[W] = timed(partial(on, search, Stop(iterations=1 << 62)))
            allowed[W] = at_once(client, proved, objective, SPEEDUP_K_QUICK)
    return shown(f"sonar, k = {k}", {"proof": seconds}, allowed)


BENCHMARK = Benchmark(
    "cores",
    "Measure searches, passes and proofs on 1, 2, 4, ... workers, up to the cores of this machine.",
    {"poss": poss, "criterion": criterion, "passes": passes, "proof": proof},
)
