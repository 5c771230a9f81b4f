"""Compare the bounds of branch and bound, and measure its speed on one and on two workers.

Branch and bound proves the same problems from the same incumbent with three bounds:

- the eigenvalue bound of Wan and Schweitzer (eigenvalues of the residual targets);
- leaps and bounds (the error of all columns that may be added);
- the combined bound.

dsel finds the last two columns by a search over all pairs ("pair search"), which any bound can use. The node ratios
are the nodes of the better published bound over the nodes of the combined bound, as geometric means:

- `node_ratio_multi_target`: no bound uses pair search;
- `node_ratio_with_pairs`: all bounds use pair search;
- `node_ratio_as_run`: only the combined bound uses it; the others run as they were published.

Each search stops after at most `limit` nodes. The ratio is then a lower bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dsel._lib.blas import usable_cores
from dsel._lib.types import Floats
from dsel.engine.clusters.local import local_cluster
from dsel.engine.dask_engine import DaskEngine
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Stop
from dsel.search.exact.bounds import BOUNDS, BoundName, BoundProblem
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.trees_on_workers import on_workers
from dsel.search.pareto.starting_subset import starting_subset
from pipelines.benchmarks.protocol import Benchmark
from pipelines.papers.datasets import load, missing
from pipelines.papers.preprocess import regression, standardized
from pipelines.table import text_table

#: Problems with several targets: data set, number of columns in X (the other columns and the target are Y), k.
#: None in place of the number: use the data set's own Y, centered.
MULTI_TARGET: tuple[tuple[str, int | None, int], ...] = (
    ("spectf", 22, 5), ("spectf", 22, 10), ("libras", 45, 3), ("libras", 45, 5), ("oes97", None, 4),
)  # fmt: skip
ONE_TARGET = (("ionosphere", 8), ("sonar", 8), ("coil2000", 8), ("mushrooms", 8))
#: Ratios of a row, and the names of their means.
KEYS = {
    "ratio_singly": "node_ratio_multi_target", "ratio_pairs": "node_ratio_with_pairs",
    "ratio_as_run": "node_ratio_as_run", "ratio_to_paper": "node_ratio_to_paper", "time_ratio": "time_ratio",
}  # fmt: skip
#: How the last two columns are found: one at a time, with a node for the first, or by pair search.
LAST_TWO = ("singly", "pairs")
#: Columns to choose from sonar when nodes per second and the speedup are measured.
SPEED_K, SPEEDUP_K, SPEEDUP_K_QUICK = 8, 12, 9


def several_targets(name: str, half: int | None) -> tuple[Floats, Floats] | None:
    """Return X and Y: raw if the columns are split, centered if the data set has its own Y."""
    arrays = load(name)
    if arrays is None:
        return None
    X, Y = arrays["X"], arrays["Y"]
    if half is None:
        return X - X.mean(axis=0), Y - Y.mean(axis=0)
    return X[:, :half], np.hstack([X[:, half:], Y])


def one_target(name: str) -> tuple[Floats, Floats] | None:
    """Return X and y, standardized."""
    arrays = load(name)
    return None if arrays is None else (standardized(arrays["X"]), standardized(arrays["Y"][:, :1]))


def nodes_to_proof(X: Floats, Y: Floats, k: int, bound: BoundName, pairs: bool, limit: int) -> dict[str, Any]:
    """Return the nodes and processor seconds that a proof of the optimum takes with one bound."""
    objective = regression(X, Y)
    problem = BoundProblem.of(objective, Y.T @ Y) if bound == "eigenvalue" else None
    search = BranchAndBound(
        objective, k, incumbent=starting_subset(objective, k), bound=bound, problem=problem, most_open=0, pairs=pairs
    )
    search.warm_up()
    start = time.process_time()
    search.advance(limit)
    return {"nodes": search.iteration, "seconds": time.process_time() - start, "proven": search.done}


def compare(name: str, k: int, data: tuple[Floats, Floats], limit: int) -> dict[str, Any]:
    """Return the nodes of each bound without and with pair search, and the node ratios of the combined bound."""
    row: dict[str, Any] = {"data": name, "k": k, "targets": data[1].shape[1]}
    for bound in BOUNDS:
        row[bound] = {last: nodes_to_proof(*data, k, bound, last == "pairs", limit) for last in LAST_TWO}

    def published(last: str, what: str = "nodes") -> float:
        return float(min(row["eigenvalue"][last][what], row["leaps"][last][what]))

    for last in LAST_TWO:
        row[f"ratio_{last}"] = published(last) / row["combined"][last]["nodes"]
    combined = row["combined"]["pairs"]
    row["ratio_as_run"] = published("singly") / combined["nodes"]
    row["ratio_to_paper"] = row["eigenvalue"]["singly"]["nodes"] / row["combined"]["singly"]["nodes"]
    row["time_ratio"] = published("singly", "seconds") / combined["seconds"]
    return row


def nodes_per_second(objective: DenseObjective, k: int) -> float:
    """Return the nodes per processor second of depth-first search alone."""
    start_from = starting_subset(objective, k)
    best = 0.0
    for _ in range(3):
        search = BranchAndBound(objective, k, incumbent=start_from, most_open=0)
        search.warm_up()
        start = time.process_time()
        search.advance(2**62)
        best = max(best, search.iteration / (time.process_time() - start))
    return best


def wall_seconds(client: Any, make: Callable[[], BranchAndBound]) -> float:
    """Return the wall time of a proof on the workers of a client."""
    search = make()
    start = time.perf_counter()
    ended = on_workers(DaskEngine(client).executor)(search, Stop(iterations=2**62))
    assert ended == "proven"
    return time.perf_counter() - start


def speedup(objective: DenseObjective, k: int, repeats: int) -> dict[str, Any]:
    """Return the wall time of the same proof on one worker and on two, the least of several alternating runs.

    `unrelated` is the speedup of two independent proofs that run at the same time: what this machine allows.
    """
    first = starting_subset(objective, k)

    def make() -> BranchAndBound:
        return BranchAndBound(objective, k, incumbent=first)

    with (
        local_cluster(1) as one, local_cluster(1) as another, local_cluster(2) as two,
        ThreadPoolExecutor(2) as threads,
    ):  # fmt: skip
        for client in (one, another, two):
            wall_seconds(client, lambda: BranchAndBound(objective, 6, incumbent=()))
        times = [
            (
                wall_seconds(one, make),
                wall_seconds(two, make),
                max(threads.map(lambda client: wall_seconds(client, make), (one, another))),
            )
            for _ in range(repeats)
        ]
    alone, together, unrelated = (min(column) for column in zip(*times, strict=True))
    return {
        "one": alone, "two": together, "speedup": alone / together, "unrelated": 2 * alone / unrelated,
        "cores": usable_cores(),
    }  # fmt: skip


def nodes(quick: bool) -> dict[str, Any]:
    """Print the nodes with each bound, and return the figures."""
    limit = 20_000 if quick else 2_000_000
    rows = []
    problems = [(name, k, several_targets(name, half)) for name, half, k in MULTI_TARGET[: 1 if quick else None]]
    problems += [(name, k, one_target(name)) for name, k in ONE_TARGET[: 2 if quick else None]]
    for name, k, data in problems:
        if data is None:
            print(missing(name))
            continue
        rows.append(compare(name, k, data, limit))
        print(f"{name}, k = {k}: {rows[-1]['combined']['pairs']['nodes']:,} nodes", flush=True)
    print("Nodes until the optimum is proved, without / with pair search (+: stopped at the limit).")
    print("Node ratio: nodes of the better published bound over nodes of the combined bound, if no bound uses pair")
    print("search, if all use it, and as run (only the combined bound uses it).\n")
    header = (
        "data set", "k", "targets", "eigenvalue", "leaps", "combined", "ratio", "with pairs", "as run",
        "seconds (leaps, combined)",
    )  # fmt: skip
    print(text_table(header, [_written(row) for row in rows]))
    report: dict[str, Any] = {"rows": rows}
    several = [row for row in rows if row["targets"] > 1]
    for key, name in KEYS.items():
        report[name] = float(np.exp(np.mean([np.log(row[key]) for row in several]))) if several else None
    return report


def workers(quick: bool) -> dict[str, Any]:
    """Return the nodes per second, and the speedup of a second worker."""
    data = one_target("sonar")
    if data is None:
        return {"missing": missing("sonar")}
    objective = regression(*data)
    speed = nodes_per_second(objective, SPEED_K)
    print(f"Depth-first, sonar, k = {SPEED_K}: {speed:,.0f} nodes per second", flush=True)
    found = speedup(objective, SPEEDUP_K_QUICK if quick else SPEEDUP_K, 1 if quick else 6)
    print(f"Speedup of two workers on {found['cores']} cores: {found['speedup']:.2f}")
    print(f"Speedup of two independent proofs: {found['unrelated']:.2f}")
    return {"nodes_per_second": speed, "workers": found, "speedup_2": found["speedup"]}


def _written(row: dict[str, Any]) -> list[str]:
    bounds = ("eigenvalue", "leaps", "combined")
    cells = [" / ".join(_nodes(row[bound][last]) for last in LAST_TWO) for bound in bounds]
    ratios = [f"{row[key]:.1f}" for key in ("ratio_singly", "ratio_pairs", "ratio_as_run")]
    seconds = f"{row['leaps']['singly']['seconds']:.3f}, {row['combined']['pairs']['seconds']:.3f}"
    return [row["data"], str(row["k"]), str(row["targets"]), *cells, *ratios, seconds]


def _nodes(found: dict[str, Any]) -> str:
    return f"{found['nodes']:,}{'' if found['proven'] else '+'}"


BENCHMARK = Benchmark(
    "certificate",
    "Measure branch and bound: nodes with each bound, nodes per second, speedup with two workers.",
    {"nodes": nodes, "workers": workers},
)
