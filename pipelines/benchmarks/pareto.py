"""Measure the Pareto search: speed, quality at equal time, and the effect of each extension."""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipelines.benchmarks import ablation, first_round, quality, speed
from pipelines.benchmarks.protocol import Benchmark
from pipelines.benchmarks.synthetic import low_rank_data, regression_data
from pipelines.papers.preprocess import regression, self_expression
from pipelines.table import text_table

#: Expected figures on one core of a current machine.
EXPECTED = {
    "ratio_k8": (">=", 2000.0),
    "ratio_gram_k8": (">=", 100.0),
    "us_per_iteration_k8": ("<", 0.15),
    f"us_per_iteration_k{speed.POCSS_K}_n2500": ("<=", 2.0),
}

QUALITY_HEADER = (
    "package",
    "seconds",
    "R^2",
    *(f"dsel {start} {x}" for start in quality.OURS for x in ("s", "R^2")),
)


def _speeds(quick: bool) -> dict[str, Any]:
    with threadpool_limits(1):
        report = speed.at_k8(quick)
        for n in speed.POCSS_WIDTHS[: 1 if quick else None]:
            print(f"column subset selection with n = {n}", flush=True)
            report |= speed.pocss(n, quick)
    figures = [key for key in report if key.startswith(("us_", "ratio_"))]
    # The first iterations archive more than later ones, so a shortened run of POCSS is not representative.
    judged = [key for key in EXPECTED if not quick or "k50" not in key]
    report["expected"] = {key: _met(key, report[key]) for key in judged}
    print("Speed in processor time of one core" + (" (--quick: 1/20 of POCSS's iterations)" if quick else ""))
    rows = [[key, f"{report[key]:.4g}", _expectation(key, report)] for key in figures]
    if "ratio_zoopt_k8" not in report:
        rows.append(["ratio_zoopt_k8", "not installed", ""])
    print(text_table(("figure", "measured", "expected"), rows) + "\n")
    return report


def _met(key: str, measured: float) -> bool:
    sign, limit = EXPECTED[key]
    return {">=": measured >= limit, "<": measured < limit, "<=": measured <= limit}[sign]


def _expectation(key: str, report: dict[str, Any]) -> str:
    if key not in EXPECTED:
        return ""
    sign, limit = EXPECTED[key]
    verdict = {True: "met", False: "MISSED", None: "not judged (--quick)"}[report["expected"].get(key)]
    return f"{sign} {limit:g}: {verdict}"


def _qualities(quick: bool) -> dict[str, Any]:
    X, y = regression_data(speed.M, speed.N)
    with threadpool_limits(1):
        rows = quality.at_equal_time(X, y, speed.K, 1 if quick else 7)
    print(f"R^2 at equal wall time, m = {speed.M}, n = {speed.N}, k = {speed.K}; dsel's time includes the Gram matrix")
    print(text_table(QUALITY_HEADER, [_quality_row(r) for r in rows]) + "\n")
    return {"equal_time_k8": rows}


def _quality_row(row: dict[str, Any]) -> list[str]:
    if row["r2"] is None:
        return [row["peer"], "not installed", *[""] * (len(QUALITY_HEADER) - 2)]
    return [row["peer"], *(f"{x:.5f}" for key, x in row.items() if key != "peer")]


def _ablations(quick: bool) -> dict[str, Any]:
    with threadpool_limits(1):
        return _ablation_tables(quick)


def _ablation_tables(quick: bool) -> dict[str, Any]:
    A = low_rank_data(speed.M, speed.N, 150)
    columns = self_expression(A)
    rest = float(np.linalg.eigvalsh(columns.K)[: -speed.POCSS_K].sum())
    X, y = regression_data(400, 2000, seed=1)
    target = regression(X, y)
    seeds = 2 if quick else 3
    report = {}
    for seconds in (1.0,) if quick else (1.0, 4.0):
        report[f"error_ratio_n500_k50_{seconds:g}s"] = ablation.table(columns, speed.POCSS_K, rest, seconds, seeds)
        report[f"unexplained_n2000_k20_{seconds:g}s"] = ablation.table(target, 20, target.c, seconds, seeds)
    for name, rows in report.items():
        print(f"{name} at equal wall time, {seeds} seeds")
        header = ("variant", "mean", "least", "largest", "iterations or restarts")
        print(text_table(header, [_ablation_row(row) for row in rows]) + "\n")
    return report


def _ablation_row(row: dict[str, Any]) -> list[str]:
    figures = [f"{row[key]:.5f}" if key in row else "" for key in ("mean", "least", "largest")]
    return [row["variant"], *figures, f"{row['iterations']:.0f}" if "iterations" in row else ""]


BENCHMARK = Benchmark(
    "pareto",
    "Measure the Pareto search: speed, the first round's code, quality at equal time, effects of extensions.",
    {"speed": _speeds, "first-round": first_round.compare, "quality": _qualities, "extensions": _ablations},
)
