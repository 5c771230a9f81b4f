"""Solve problems with one solver, and write what it proves as JSON.

This file runs in the environment of the solver, so that it imports NumPy and the solver only:

    python adapters.py SOLVER PROBLEM.json ...

A problem is: minimize f(S) = min |y - X_S b|^2 + lam |b|^2 over the sets S of k columns. PROBLEM.json holds `X` and `y`
(paths of .npy files), `loss` (the deviance in place of the squared error, for El0ps), `k`, `lam`, `seconds` and
`memory` (limits of the solve), `penalty` (the price of a column, for solvers without a limit of columns), `largest`
(a bound on the coefficients, for the solvers named "+M"), and `start` (good columns, for solvers that take a start).
PROBLEM.SOLVER.json gets `indices`, `bound` (on f of all sets of at most k columns), `proved`, `seconds` and
`preparation`: the processor seconds of the solve, and those of tiny problems before it, which compile.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

#: The relative gap at which the other solvers end.
GAP = 1e-4
#: Seconds of a Gram matrix, about, over m n^2. dsel's limits do not count the passes over the data before a proof.
_PASS_SECONDS = 1e-10
#: Bytes that OKRidge may use for its nodes and caches, in GB.
_OKRIDGE_MEMORY = 4

Found = dict[str, Any]


def cpu() -> float:
    """Return the processor seconds of this process, and of the processes that it waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def count_processor_time() -> None:
    """Have a solver's limit of time count processor time, so that other load on the machine does not matter."""
    time.time = time.monotonic = time.perf_counter = time.process_time


def count_processor_time_of_dsel() -> None:
    """Do the same for dsel, which has one clock for all limits."""
    from dsel.search import anytime

    anytime.default_clock = time.process_time


def by_dsel(X: Any, y: Any, options: Found) -> Found:
    """Solve by dsel's branch and bound, and with very many columns by splicing and a proof in passes."""
    import dsel
    from dsel.objective.objective_interface import MOST_DENSE_IN_BOX

    limited, start = options["largest"] is not None, cpu()
    in_passes = _is_wide(X) or (limited and X.shape[1] > MOST_DENSE_IN_BOX)
    seconds = options["seconds"] - (0.0 if in_passes else _PASS_SECONDS * X.shape[0] * X.shape[1] ** 2)
    usual = {"k": options["k"], "lam": options["lam"], "preprocess": "none", "progress": False}
    if in_passes or limited:
        selection = dsel.select(X, y, method="splicing", **usual)
        limit = _times_largest(selection, X, y, options) if limited else None
        left = max(seconds - (cpu() - start), 0.1)
        certified = dsel.certify(selection, X, y, seconds=left, largest_coefficient=limit, progress=False)
        (proof,) = certified.certificate
        hidden = proof["dependent_gap"] * proof["total"]
        proved = proof["proven"] or proof["value"] - proof["bound"] + hidden <= GAP * proof["value"]
        return {"indices": list(certified.indices), "bound": proof["bound"], "proved": proved}
    selection = dsel.select(X, y, method="branch-and-bound", seconds=max(seconds, 0.1), **usual)
    (proof,) = selection.certificate
    found = {"indices": list(selection.indices), "bound": proof["bound"], "proved": proof["proven"]}
    return {**found, "nodes": selection.iterations, "ended": selection.ended}


def _times_largest(selection: Any, X: Any, y: Any, options: Found) -> float:
    """Return the bound on coefficients as a multiple of the selection's largest one. All columns have the same norm."""
    A = X[:, list(selection.indices)]
    b = np.linalg.solve(A.T @ A + options["lam"] * np.eye(A.shape[1]), A.T @ y)
    return float(max(options["largest"] / np.abs(b).max(), 1.0))


def _is_wide(X: Any) -> bool:
    """Return whether dsel proves such a problem in passes, without the Gram matrix."""
    from dsel.objective.objective_interface import MOST_DENSE

    return bool(X.shape[1] > MOST_DENSE)


def by_el0ps(X: Any, y: Any, options: Found) -> Found:
    """Solve |y - X b|^2 / 2 + penalty |b|_0 / 2 + lam |b|^2 / 2 by El0ps, or with half the deviance of a loss."""
    from el0ps.datafit import Leastsquares, Logistic
    from el0ps.penalty import Bigm, BigmL2norm, L2norm
    from el0ps.solver import BnbSolver

    class Solver(BnbSolver):  # type: ignore[misc]
        bound = -np.inf

        def package_results(self, problem: Any, results: Any) -> Any:
            self.bound = results.bound
            return super().package_results(problem, results)

    lam, largest, price = options["lam"], options["largest"], options["penalty"] / 2.0
    kind = L2norm if largest is None else BigmL2norm if lam else Bigm
    penalty = kind(*([] if largest is None else [largest]), *([lam / 2.0] if lam else []))
    solver = Solver(relative_gap=GAP, time_limit=options["seconds"])
    datafit = Logistic(2.0 * y - 1.0) if options.get("loss") == "logistic" else Leastsquares(y)
    result = solver.solve(datafit, penalty, np.asfortranarray(X), price, started(X, y, options))
    return penalised(result.x, solver.bound, str(result.status) == "optimal", options)


def by_l0bnb(X: Any, y: Any, options: Found) -> Found:
    """Solve the same by L0BnB, which needs a start: its tree hardly improves on the columns that it begins with.

    One order of memory for tiny and real problems: L0BnB compiles again for another order.
    """
    from l0bnb import BNBTree

    largest = 1e20 if options["largest"] is None else options["largest"]
    tree = BNBTree(np.asfortranarray(X), y)
    found = tree.solve(
        options["penalty"] / 2.0, options["lam"] / 2.0, largest, gap_tol=GAP, time_limit=options["seconds"],
        warm_start=started(X, y, options),
    )  # fmt: skip
    ended = tree.bfs_queue.qsize() + tree.dfs_queue.qsize() == 0
    bound = found.cost * (1.0 - max(found.gap, 0.0)) if found.gap < 1e3 else 0.0
    return penalised(found.beta, found.cost if ended else bound, ended or found.gap <= GAP, options)


def started(X: Any, y: Any, options: Found) -> Any:
    """Return (n,) the ridge coefficients of the columns to start from, or None without them."""
    if not (S := options.get("start")):
        return None
    b = np.zeros(X.shape[1])
    A = X[:, S]
    b[S] = np.linalg.lstsq(A.T @ A + options["lam"] * np.eye(len(S)), A.T @ y, rcond=None)[0]
    return b


def penalised(b: Any, bound: float, optimal: bool, options: Found) -> Found:
    """Return what a bound on the penalised problem says about k columns."""
    S = np.flatnonzero(b)
    bound = 2.0 * bound - options["penalty"] * options["k"]
    return {"indices": S.tolist(), "bound": bound, "proved": optimal and S.size == options["k"], "optimal": optimal}


def by_okridge(X: Any, y: Any, options: Found) -> Found:
    """Solve by OKRidge, which has a limit of columns."""
    from okridge.tree import BNBTree

    tree = BNBTree(X, y, lambda2=options["lam"], max_memory_GB=_OKRIDGE_MEMORY)
    upper, b, gap, lower, _ = tree.solve(k=options["k"], gap_tol=GAP, time_limit=options["seconds"])
    bound = float(y @ y) + (upper if gap <= 0.0 else lower)
    return {"indices": np.flatnonzero(b).tolist(), "bound": bound, "proved": bool(gap <= GAP)}


def front(X: Any, y: Any, options: Found) -> Found:
    """Return good subsets of each size up to a few more than k, for the choice of the penalty."""
    import dsel

    method = "poss" if X.shape[1] <= 1000 else "splicing"
    k = min(options["k"] + 3, X.shape[1])
    found = dsel.select(X, y, k=k, lam=options["lam"], preprocess="none", method=method, progress=False)
    return {"front": [list(row.indices) for row in found.front]}


SOLVERS: dict[str, Callable[[Any, Any, Found], Found]] = {
    "dsel": by_dsel, "el0ps": by_el0ps, "l0bnb": by_l0bnb, "okridge": by_okridge, "front": front,
}  # fmt: skip


def tiny(options: Found) -> tuple[Any, Any, Found]:
    """Return a problem that takes no time and compiles what a real one needs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 160))
    y = X[:, :3] @ np.ones(3) + 0.5 * rng.standard_normal(200)
    y = (y > 0.0).astype(np.float64) if options.get("loss") == "logistic" else y
    largest = options["largest"] and 2.0
    penalty, lam = 20.0 if "loss" in options else 50.0, options["lam"] and 1.0
    return (
        X,
        y,
        {**options, "k": 3, "penalty": penalty, "largest": largest, "lam": lam, "seconds": 5.0, "start": [0, 1]},
    )


def prepare(name: str, kinds: Iterable[Found]) -> None:
    """Solve tiny problems of these kinds, so that what a solver compiles or loads is not counted."""
    for kind in kinds:
        X, y, options = tiny(kind)
        SOLVERS[name.removesuffix("+M")](X, y, options)
        if name.startswith("dsel"):  # it loads another search for few columns
            by_dsel(X[:, :20], y, {**options, "k": 4})
            real = np.load(options["X"], mmap_mode="r")
            if _is_wide(real):
                many = np.random.default_rng(1).standard_normal((50, real.shape[1]))
                by_dsel(many, y[:50], {**options, "seconds": 1.0})


def set_limits(options: Found) -> None:
    """Limit the processor time and the memory of this process from now on."""
    end = int(cpu() + 1.2 * options["seconds"]) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (end, end))
    resource.setrlimit(resource.RLIMIT_DATA, (options["memory"], options["memory"]))


def solve_here(name: str, problem: Path, options: Found, preparation: float) -> None:
    """Solve one problem and write the answer."""
    solve = SOLVERS[name.removesuffix("+M")]
    set_limits(options)
    try:
        X, y = np.load(options["X"]), np.load(options["y"])
        start = cpu()
        found = solve(X, y, options)
        answer = {**found, "seconds": cpu() - start}
    except MemoryError:
        answer = {"failed": f"more than {options['memory'] / 2**30:.0f} GiB"}
    except Exception as error:
        answer = {"failed": f"{type(error).__name__}: {error}"[:200]}
    Path(f"{problem}.{name}.json").write_text(json.dumps({**answer, "preparation": preparation}, default=float))


def main(name: str, problems: list[Path]) -> None:
    """Solve the tiny problems, and each given one in a separate process."""
    if name in ("dsel", "dsel+M", "front"):
        count_processor_time_of_dsel()
    else:
        os.environ["NUMBA_THREADING_LAYER"] = "workqueue"  # GNU OpenMP ends every forked process of L0BnB
        count_processor_time()
    listed = [json.loads(problem.read_text()) for problem in problems]
    for options in listed:
        options["largest"] = options["largest"] if name.endswith("+M") else None
    start = cpu()
    prepare(name, {(options["largest"] is None, options["lam"] == 0.0): options for options in listed}.values())
    preparation = cpu() - start
    for problem, options in zip(problems, listed, strict=True):
        if (child := os.fork()) == 0:
            solve_here(name, problem, options, preparation)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, -signal.SIGXCPU, -signal.SIGKILL):  # these are the limits of time and memory
            answer = {"failed": f"its process ended with status {status}"}
            Path(f"{problem}.{name}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], [Path(problem) for problem in sys.argv[2:]])
