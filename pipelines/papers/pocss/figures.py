"""Figures 1 and 2 of the POCSS paper: the error ratio against k, and against evaluations in units of k n."""

from __future__ import annotations

import math

import numpy as np

from dsel._lib.types import Floats
from dsel.search.pareto.compiled import Poss, paper_iterations
from pipelines.papers.pocss import table_1
from pipelines.papers.preprocess import self_expression
from pipelines.papers.report.model import Claim, Content, Plot, Series
from pipelines.papers.report.settings import Settings

_POINTS = 200
#: Sets for Figure 2; the paper's are Rl CTs and sEMG.
FIGURE_2 = ("sonar", "dna")


def make_figure_1(settings: Settings) -> Content:
    """Compute the error ratio on dna for k = 50 to 100."""
    name = "dna"
    missing = ("Figure 1: mediamill, musk and scene are not available.",)
    if table_1.prepared(name) is None:
        return Content.without_data(f"Figure 1: {name} is not available.")
    sizes, runs = settings.pick(((50, 60, 70, 80, 90, 100), 3), ((20,), 2))
    plan = [
        (name, method, k, seed)
        for k in reversed(sizes)
        for method in table_1.METHODS
        for seed in range(runs if method in table_1.RANDOM else 1)
    ]
    ratios = settings.map(table_1.one_run, plan)
    means: dict[str, list[float]] = {
        method: [
            float(np.mean([r for r, task in zip(ratios, plan, strict=True) if task[1:3] == (method, k)])) for k in sizes
        ]
        for method in table_1.METHODS
    }
    behind = min(
        float(np.min(np.array(values) - means["POCSS"])) for method, values in means.items() if method != "POCSS"
    )
    return Content(
        lead="Error ratio on dna, all 2000 rows. The paper prints no numbers for this figure.",
        plots=(
            Plot(
                title="Figure 1(c): dna", x="k", y="error ratio",
                series=tuple(
                    Series(name=method, x=tuple(map(float, sizes)), y=tuple(values), kind="points")
                    for method, values in means.items()
                ),
                words=f"At k = {sizes[-1]}: "
                + ", ".join(f"{method} {values[-1]:.3f}" for method, values in means.items()) + ".",
            ),
        ),
        claims=(
            Claim(
                said="POCSS is better than the other methods for every k.", holds=behind > -5e-4,
                found=f"The smallest lead is {behind:+.4f}.",
            ),
        ),
        reduced=(f"{runs} runs of the randomised methods, where the paper has 10.", "WA*-b is left out."),
        missing=missing,
    )  # fmt: skip


def one_curve(task: tuple[str, int, int]) -> list[float]:
    """Return the error ratio of POCSS at evenly spaced times up to T; task: (data set, k, seed)."""
    name, k, seed = task
    X = table_1.prepared(name)
    assert X is not None
    objective = self_expression(X)
    T = paper_iterations(k, objective.n)
    search = Poss(objective, k, seed=seed, exchange_every=0)
    search.advance(T)
    steps = [(0, objective.c), *((t.iteration, t.value) for t in search.trace)]
    at = np.searchsorted([step[0] for step in steps], np.linspace(0.0, T, _POINTS + 1), side="right") - 1
    least = table_1.least_error(objective, k)
    return [steps[i][1] / least for i in at]


def make_figure_2(settings: Settings) -> Content:
    """Compute the error ratio against evaluations, with the levels of Greedy and IterFS."""
    names = [name for name in settings.pick(FIGURE_2, ("sonar",)) if table_1.prepared(name) is not None]
    if not names:
        return Content.without_data("Figure 2: no data set is available.")
    k, runs = settings.pick((table_1.K, 10), (10, 2))
    curves = settings.map(one_curve, [(name, k, seed) for name in names for seed in range(runs)])
    levels = settings.map(table_1.one_run, [(name, method, k, 0) for name in names for method in ("Greedy", "IterFS")])
    plots, shares = [], []
    for place, name in enumerate(names):
        greedy, iterfs = levels[2 * place : 2 * place + 2]
        curve = np.mean(curves[place * runs : (place + 1) * runs], axis=0)
        plot, share = _time_plot(name, k, curve, greedy, iterfs)
        plots.append(plot)
        shares.append(share)
    return Content(
        lead=f"Means of {runs} runs, k = {k}. The paper's data sets are not available, so the figure is on others.",
        plots=tuple(plots),
        claims=(
            Claim(
                said="POCSS is better than Greedy after much less time than 2 e k² n.",
                holds=bool(shares) and max(shares) < 0.5,
                found="Share of the time: "
                + ", ".join(f"{100 * s:.0f} % on {name}" for s, name in zip(shares, names, strict=True)) + ".",
            ),
        ),
        missing=("Figure 2: Rl CTs and sEMG are not available.",),
    )  # fmt: skip


def _time_plot(name: str, k: int, curve: Floats, greedy: float, iterfs: float) -> tuple[Plot, float]:
    """Return the plot, and the share of T until the mean is as good as Greedy (inf if it never is)."""
    times = np.linspace(0.0, 2.0 * math.e * k, _POINTS + 1)  # T = 2 e k k n
    as_good = np.flatnonzero(curve <= greedy + 1e-12)
    share = float(as_good[0]) / _POINTS if as_good.size else float("inf")
    end = float(curve[-1])
    plot = Plot(
        title=name, x="evaluations / (k n)", y="error ratio", limits=(min(end, iterfs) - 0.05, 1.4 * greedy),
        series=(
            Series(name="POCSS", x=tuple(times), y=tuple(curve)),
            Series(name="Greedy", x=(), y=(greedy,), kind="level"),
            Series(name="IterFS", x=(), y=(iterfs,), kind="level"),
        ),
        words=f"POCSS ends at {end:.3f}; Greedy {greedy:.3f}, IterFS {iterfs:.3f}.",
    )  # fmt: skip
    return plot, share
