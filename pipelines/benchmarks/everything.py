"""All benchmarks, and what `all` says of them together: peers that are ahead, what became slower, versions."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipelines.benchmarks import (
    alternatives,
    card,
    certificate,
    greedy_rls,
    growing,
    history,
    limits,
    losses,
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
from pipelines.benchmarks.protocol import ROOT, Benchmark, Figures, behind, run

#: Packages whose versions are stated, with the names of distributions.
_PACKAGES = ("dsel", "numpy", "scipy", "numba", "dask", "scikit-learn")


def _proofs(quick: bool) -> Figures:
    names = ("sonar", "n=600") if quick else sorted({p.data.name for p in quick_problems()})
    return proofs.figures(True, 1.0 if quick else 3.0, names)


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        peers.BENCHMARK, limits.BENCHMARK, pareto.BENCHMARK, certificate.BENCHMARK,
        Benchmark("proofs", "Compare proofs with those of other exact solvers.", {"proofs": _proofs}),
        alternatives.BENCHMARK, losses.BENCHMARK,
        Benchmark("losses-proofs", "Compare proofs for the logistic loss with El0ps.", {"all": losses_proofs.run}),
        Benchmark("methods", "Compare every method with the portfolio at equal time.", {"all": methods.run}),
        Benchmark("out-of-core", "Compare passes with Dask and dask-ml on 4 GB.", {"all": out_of_core.run}),
        sums.BENCHMARK, greedy_rls.BENCHMARK, growing.BENCHMARK, card.BENCHMARK, scaling.BENCHMARK,
    )
}  # fmt: skip


def run_all(quick: bool, out: Path, seconds: float | None, record: bool) -> Figures:
    """Run all benchmarks, write the results and a page, and return the figures of the last line.

    record: whether the ratios to the calibration kernel are added to the history file, and the page to the site.
    """
    found = run(list(BENCHMARKS.values()), quick, out, seconds=seconds)
    report = {
        "benchmark": "all", "quick": quick, "commit": _commit(), "versions": _versions(), "cores": os.cpu_count(),
        "behind": behind(found), "far_from_limit": found.get("limits", {}).get("far_from_limit", []),
        "slower": history.compared(found, quick, record), "absent": _absent(found),
        "unfinished": [n for n, f in found.items() if {"left", "failed", "stopped"} & f.keys()],
        **_scalars(found), "parts": found,
    }  # fmt: skip
    page.write(out, report, record)
    return report


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
    return {
        "RLScore": "0.8.1 does not build with Python 3.11 or newer; tests compare with selections that it made before",
        **{name: why for figures in found.values() for name, why in dict(figures.get("absent") or {}).items()},
    }


def _commit() -> str:
    ran = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip()


def _versions() -> dict[str, Any]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found
