"""Figures 1 to 3 of the greedy RLS paper: processor time against the number of rows."""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

import dsel
from dsel._lib.types import Floats
from pipelines.papers.greedy_rls import low_rank_ls_svm
from pipelines.papers.report.model import Claim, Content, Grid, Plot, Series
from pipelines.papers.report.settings import Settings

_LAM = 1.0
#: "A bit less than twelve minutes" for 50 of 1000 features and 50 000 rows.
_PAPER_SECONDS = 720.0


def two_normals(m: int, n: int) -> tuple[Floats, Floats]:
    """Return X (m, n) from two normal distributions and labels -1, +1 (m, 1)."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(m) < 0.5, -1.0, 1.0)
    X = rng.standard_normal((m, n))
    X += 0.1 * labels[:, None]
    return X, labels[:, None]


def select(X: Floats, Y: Floats, k: int) -> dsel.Selection:
    """Return the selection of greedy RLS by squared leave-one-out error, in memory."""
    return dsel.select(X, Y, k=k, method="greedy-rls", lam=_LAM, preprocess="none", progress=False)


def seconds(m: int, n: int, k: int) -> float:
    """Return the processor seconds of greedy RLS, from the first pass to the final check."""
    X, Y = two_normals(m, n)
    start = time.process_time()
    select(X, Y, k)
    return time.process_time() - start


def make(settings: Settings) -> Content:
    """Measure the times."""
    n, k = settings.pick((1000, 50), (60, 5))
    small = settings.pick((500, 1000, 2000, 3000, 4000, 5000), (100, 200))
    large = settings.pick((1000, 10_000, 20_000, 30_000, 40_000, 50_000), (100, 400))
    candidates = settings.pick(8, 2)
    seconds(100, 20, 2)  # loads the compiled code
    with threadpool_limits(1):
        greedy = [seconds(m, n, k) for m in small]
        others = [_low_rank(m, n, k, candidates) for m in small]
        many = [seconds(m, n, k) for m in large]
        same = _same_selection()
    return Content(
        lead=f"Processor seconds to choose {k} of {n} columns of random data.",
        plots=(*_against_low_rank(small, greedy, others), _long(large, many)),
        grids=(
            Grid(
                title=f"{k} of {n} columns", head=("rows", "greedy RLS", "low-rank updated LS-SVM"),
                rows=(
                    *((f"{m:,}", f"{a:.2f} s", f"{b:,.0f} s") for m, a, b in zip(small, greedy, others, strict=True)),
                    (f"{large[-1]:,}", f"{many[-1]:.1f} s", "–"),
                    ("50,000, paper (2010)", f"a bit less than {_PAPER_SECONDS:.0f} s", "–"),
                ),
            ),
        ),
        claims=_claims(small, greedy, others, large, many, same),
        reduced=(
            f"The time of the low-rank updated LS-SVM is the least of {candidates} candidates times k n; all cost the "
            "same.", "One BLAS thread.",
        ),
    )  # fmt: skip


def _low_rank(m: int, n: int, k: int, candidates: int) -> float:
    X, Y = two_normals(m, n)
    return low_rank_ls_svm.projected_seconds(X, Y[:, 0], k, candidates)


def _same_selection() -> bool:
    """Return whether both algorithms choose the same columns on a small problem."""
    X, Y = two_normals(120, 30)
    return low_rank_ls_svm.select(X, Y[:, 0], 6, _LAM) == list(select(X, Y, 6).indices)


def _slope(rows: tuple[int, ...], times: list[float]) -> float:
    """Return the exponent p of time ~ rows^p over the larger half of the rows."""
    half = len(rows) // 2
    return float(np.polyfit(np.log(rows[half:]), np.log(times[half:]), 1)[0]) if len(rows) - half > 1 else float("nan")


def _against_low_rank(rows: tuple[int, ...], greedy: list[float], others: list[float]) -> tuple[Plot, Plot]:
    x = tuple(map(float, rows))
    series = (
        Series(name="greedy RLS", x=x, y=tuple(greedy), kind="points"),
        Series(name="low-rank updated LS-SVM", x=x, y=tuple(others), kind="points"),
    )
    words = f"At {rows[-1]} rows: {greedy[-1]:.2f} s and {others[-1]:,.0f} s."
    return (
        Plot(title="Figure 1", x="rows", y="processor seconds", series=series, words=words),
        Plot(title="Figure 2", x="rows", y="processor seconds", series=series, words=f"{words} Logarithmic scale.",
             log_y=True),
    )  # fmt: skip


def _long(rows: tuple[int, ...], times: list[float]) -> Plot:
    return Plot(
        title="Figure 3", x="rows", y="processor seconds",
        series=(Series(name="greedy RLS", x=tuple(map(float, rows)), y=tuple(times), kind="points"),),
        words=f"{times[-1]:.1f} s at {rows[-1]:,} rows.",
    )  # fmt: skip


def _claims(
    small: tuple[int, ...], greedy: list[float], others: list[float], large: tuple[int, ...], many: list[float],
    same: bool,
) -> tuple[Claim, ...]:  # fmt: skip
    linear, quadratic = _slope(large, many), _slope(small, others)
    return (
        Claim(said="Both algorithms choose the same columns.", holds=same, found="120 x 30, six columns."),
        Claim(
            said="Greedy RLS scales linearly in the rows.", holds=bool(0.7 < linear < 1.3),
            found=f"Time grows as rows to the power {linear:.2f}.",
        ),
        Claim(
            said="The low-rank updated LS-SVM scales quadratically.", holds=bool(1.6 < quadratic < 2.6),
            found=f"The power is {quadratic:.2f}.",
        ),
        Claim(
            said="50 of 1000 features from 50 000 rows take a bit less than twelve minutes.",
            holds=bool(many[-1] < _PAPER_SECONDS), found=f"{many[-1]:.1f} processor seconds at {large[-1]:,} rows.",
        ),
    )  # fmt: skip
