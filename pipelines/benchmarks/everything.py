"""All benchmarks, and what `all` says of them together: peers that are ahead, what became slower, versions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipelines.benchmarks import (
    alternatives,
    card,
    certificate,
    cold,
    cores,
    greedy_rls,
    growing,
    history,
    limits,
    losses,
    losses_missed,
    losses_proofs,
    methods,
    out_of_core,
    page,
    pareto,
    peers,
    scaling,
    sums,
)
from pipelines.benchmarks.proofs import run as proofs
from pipelines.benchmarks.proofs.problems import quick as quick_problems
from pipelines.benchmarks.proofs.solving import SOLVERS
from pipelines.benchmarks.protocol import Benchmark, Figures, Work, commit, run

#: Packages whose versions are stated, with the names of distributions.
_PACKAGES = ("dsel", "numpy", "scipy", "numba", "dask", "scikit-learn")


def _proofs(quick: bool) -> Figures:
    names = ("sonar", "n=600") if quick else sorted({p.data.name for p in quick_problems()})
    solvers = [s for s in SOLVERS if not quick or s not in ("el0ps", "l0bnb")]  # El0ps compiles for half a minute
    return proofs.figures(True, 1.0 if quick else 3.0, names, solvers)


def _losses_proofs(quick: bool) -> Figures:
    return losses_proofs.run(quick, 1.0 if quick else 5.0, peer=not quick)


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        peers.BENCHMARK, limits.BENCHMARK, pareto.BENCHMARK, certificate.BENCHMARK,
        Benchmark("proofs", "Compare proofs with those of other exact solvers.", {"proofs": _proofs}),
        alternatives.BENCHMARK, losses.BENCHMARK, losses_missed.BENCHMARK,
        Benchmark("losses-proofs", "Compare proofs for the logistic loss with El0ps.", {"all": _losses_proofs}),
        Benchmark("methods", "Compare every method with the portfolio at equal time.", {"all": methods.run}),
        Benchmark("out-of-core", "Compare passes with Dask and dask-ml on 4 GB.", {"all": out_of_core.run}),
        sums.BENCHMARK, greedy_rls.BENCHMARK, growing.BENCHMARK, card.BENCHMARK, scaling.BENCHMARK,
        cores.BENCHMARK, cold.BENCHMARK,
    )
}  # fmt: skip


#: The parts that `all --quick` runs, where it leaves some out.
_QUICK = {
    "pareto": ("speed", "first-round"), "certificate": ("nodes",), "greedy-rls": ("memory", "height"),
    "growing": (), "card": ("greedy-rls",), "scaling": (), "cores": (),
}  # fmt: skip


def _quick_parts(benchmark: Benchmark) -> dict[str, Work]:
    return {part: work for part, work in benchmark.parts.items() if part in _QUICK.get(benchmark.name, benchmark.parts)}


def run_all(quick: bool, out: Path, seconds: float | None, record: bool) -> Figures:
    """Run all benchmarks, write the results and a page, and return the figures of the last line.

    record: whether the ratios to the calibration kernel are added to the history file, and the page to the site.
    """
    chosen = [replace(b, parts=_quick_parts(b) if quick else b.parts) for b in BENCHMARKS.values()]
    ran = {b.name: b.parts.keys() for b in chosen}
    found = run(chosen, quick, out, seconds=seconds)
    report = {
        "benchmark": "all", "quick": quick, "commit": commit(), "versions": _versions(), "cores": os.cpu_count(),
        "behind": behind(found), "far_from_limit": found.get("limits", {}).get("far_from_limit", []),
        "slower": history.compared(found, quick, record), "absent": _absent(found),
        "left_out": [f"{b.name} {p}" for b in BENCHMARKS.values() for p in b.parts.keys() - ran[b.name]],
        "unfinished": [n for n, f in found.items() if {"left", "failed", "stopped"} & f.keys()],
        **_scalars(found), "parts": found,
    }  # fmt: skip
    page.write(out, report, record)
    return report


#: Ratios that count as behind above 1: the key, what is compared, and with what.
_RATIOS = (
    ("eigh_over_best_peer_time", "time of 50 eigenvectors of 4 GB", "dask.array or dask-ml"),
    ("eigh_over_best_peer_memory", "memory of 50 eigenvectors of 4 GB", "dask.array or dask-ml"),
    ("lmsubsets_ratio", "time of lists of best subsets", "lmSubsets, as published for another machine"),
    ("greedy_rls_over_numpy", "time of greedy RLS", "Algorithm 3 in NumPy"),
)
_NOT_PROVED = "dsel does not prove it in the time"
_LIMITED = "it has a limit for each coefficient, and dsel for the sum of their squares"


def behind(found: Mapping[str, Figures]) -> list[Figures]:
    """Return the rows in which another tool is ahead: where, what, its name, the factor, and a reason."""
    rows = []
    for name, figures in found.items():
        for row in [*figures.get("behind", ()), *figures.get("behind_with_bound_on_coefficients", ())]:
            ours, theirs = row.get("dsel"), row.get("seconds")
            factor = row.get("factor", ours / theirs if ours and theirs else None)
            proof = _LIMITED if row["peer"].endswith("+M") else "its tree ends sooner on this problem"
            reason = row.get("reason", proof if ours else _NOT_PROVED)
            rows.append({"in": name, **row, "factor": factor, "reason": reason})
        for key, what, tool in _RATIOS:
            if (factor := figures.get(key) or 0.0) > 1.0:
                rows.append({"in": name, "problem": what, "peer": tool, "factor": factor, "reason": "see its table"})
        for what in figures.get("beaten", ()) if name == "losses" else ():
            row = {"in": name, "problem": what, "peer": "another tool", "factor": None}
            rows.append({**row, "reason": "it found a smaller deviance"})
    return rows


def _scalars(found: Mapping[str, Figures]) -> Figures:
    """Return the single figures whose names are in one part only."""
    names = [key for figures in found.values() for key in figures]
    return {
        key: value
        for figures in found.values()
        for key, value in figures.items()
        if names.count(key) == 1 and isinstance(value, (int, float, str))
    }


def _absent(found: Mapping[str, Figures]) -> dict[str, str]:
    """Return why tools were not compared with."""
    found_here = {name: figures.get("absent") or {} for name, figures in found.items()}
    dask_ml = {} if find_spec("dask_ml") else {"dask-ml": "not installed here: pip install -e .[benchmarks]"}
    return {
        "RLScore": "0.8.1 does not build with Python 3.11 or newer; tests compare with selections that it made before",
        **dask_ml,
        **{tool: why for absent in found_here.values() for tool, why in absent.items()},
    }


def _versions() -> dict[str, Any]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
