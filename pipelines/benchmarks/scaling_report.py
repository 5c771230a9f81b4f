"""Write the report of the scaling benchmark, and fit a model of the communication costs to its measurements."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize

from dsel._lib.types import Floats
from dsel.search.runtime.dispatcher import TASK_SECONDS
from pipelines.benchmarks.measured_run import Run


@dataclass(frozen=True)
class Model:
    """A model of the efficiency on W workers. All costs are in seconds.

    cost: one evaluation. gap: idle time of a worker between two tasks (asynchronous). barrier: overhead of a round
    (synchronous). task, evaluation: time that the client and scheduler, one process, spend per task and per
    evaluation. valued: share of offspring that need an evaluation.
    """

    cost: float
    gap: float
    barrier: float
    task: float
    evaluation: float
    valued: float

    @property
    def grouped(self) -> float:
        """Evaluations per task of the asynchronous search."""
        return max(1.0, TASK_SECONDS // self.cost)

    def asynchronous(self, workers: Floats) -> Floats:
        """Return the efficiency: workers lose a gap per task, until the client is saturated."""
        g = self.grouped
        client = 1.0 / (self.task / g + self.evaluation)
        speed = np.minimum(workers * g / (g * self.cost + self.gap), client)
        return np.asarray(speed * self.cost / workers)

    def synchronous(self, workers: Floats, processors: Floats) -> Floats:
        """Return the efficiency: workers share the evaluations of a round evenly, and the client's time adds to it."""
        E = np.maximum(self.valued * processors, 1.0)
        seconds = np.ceil(E / workers) * self.cost + self.barrier
        seconds += self.task * np.minimum(workers, E) + self.evaluation * E
        return np.asarray(E * self.cost / (workers * seconds))

    def __str__(self) -> str:
        ms = {name: 1000.0 * getattr(self, name) for name in ("gap", "barrier", "task", "evaluation")}
        return (
            "Model, fitted to the runs of the waiting criterion: a worker idles for {gap:.1f} ms between tasks. "
            "A round has an overhead of {barrier:.1f} ms. Client and scheduler spend {task:.2f} ms per task and "
            "{evaluation:.3f} ms per evaluation. One client can keep about {most:,.0f} workers busy."
        ).format(**ms, most=self.grouped * self.cost / (self.task + self.grouped * self.evaluation))


def fit(asynchronous: Sequence[Run], synchronous: Sequence[Run], single: Sequence[Run], cost: float) -> Model:
    """Fit the client's costs to its processor time by least squares, then the gap and the barrier to wall time.

    single: runs with about one evaluation per task, which separate the two costs of the client.
    """
    both = [*asynchronous, *synchronous, *single]
    A = np.array([[run.tasks, run.evaluations] for run in both], float)
    (task, evaluation), _ = scipy.optimize.nnls(A, np.array([run.client for run in both]))
    gaps = [(run.workers * run.seconds - run.evaluations * cost) / run.tasks for run in asynchronous]
    barriers = []
    for run in synchronous:
        E = run.evaluations / run.rounds
        rest = np.ceil(E / run.workers) * cost + task * min(run.workers, E) + evaluation * E
        barriers.append(run.seconds / run.rounds - rest)
    valued = sum(r.evaluations for r in synchronous) / sum(r.rounds * r.processors for r in synchronous)
    mean_gap, mean_barrier = max(float(np.mean(gaps)), 0.0), max(float(np.mean(barriers)), 0.0)
    return Model(cost, mean_gap, mean_barrier, float(task), float(evaluation), valued)


def write(
    out: Path, sections: Sequence[str], asynchronous: Sequence[Run], synchronous: Sequence[Run], model: Model,
    quality: Sequence[dict[str, Any]],
) -> None:  # fmt: skip
    """Write the printed text and two figures to scaling.html in `out`; without matplotlib, only the text."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        pictures = ["<p>No figures: pip install 'dsel[plots]'.</p>"]
    else:
        pictures = [
            _picture(_efficiencies(Figure(figsize=(8, 5)), asynchronous, synchronous, model)),
            _picture(_qualities(Figure(figsize=(10, 6)), quality)),
        ]
    text = "".join(f"<pre>{html.escape(section)}</pre>\n" for section in sections)
    body = f"<!doctype html><meta charset='utf-8'><title>PPOSS: scaling</title>\n{''.join(pictures)}\n{text}"
    (out / "scaling.html").write_text(body)


def _picture(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, bbox_inches="tight")
    return f"<p><img src='data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}'></p>\n"


def _efficiencies(figure: Any, asynchronous: Sequence[Run], synchronous: Sequence[Run], model: Model) -> Any:
    axes = figure.subplots()
    W = np.unique(np.round(np.geomspace(1, 1000, 200)))
    N = float(synchronous[0].processors)
    for runs, colour, name in ((asynchronous, "C0", "asynchronous"), (synchronous, "C1", f"synchronous, N = {N:.0f}")):
        one = next(run.speed for run in runs if run.workers == 1)
        points = [run.speed / (run.workers * one) for run in runs]
        axes.plot([run.workers for run in runs], points, "o", color=colour, label=f"{name}: measured")
    axes.plot(W, model.asynchronous(W), "-", color="C0", label="asynchronous: model")
    axes.plot(W, model.synchronous(W, np.full(W.size, N)), "-", color="C1", label=f"synchronous, N = {N:.0f}: model")
    axes.plot(W, model.synchronous(W, 10.0 * W), "--", color="C1", label="synchronous, N = 10 workers: model")
    axes.set_xscale("log")
    axes.set_ylim(0.0, 1.1)
    axes.set_xlabel("workers")
    axes.set_ylabel("efficiency")
    axes.set_title("A criterion that waits 50 ms. Points: measured; lines: fitted model")
    axes.legend(fontsize=8)
    return figure


def _qualities(figure: Any, quality: Sequence[dict[str, Any]]) -> Any:
    for i, row in enumerate(quality):
        axes = figure.add_subplot(2, -(-len(quality) // 2), i + 1)
        for shift, form, name in ((0.0, "", "PPOSS"), (0.15, "async_", "PPOSS-asy")):
            mean, spread = zip(*(row[f"{form}{N}"] for N in range(1, 11)), strict=True)
            axes.errorbar(np.arange(1, 11) + shift, mean, spread, marker="o", markersize=3, label=name)
        axes.axhline(row["forward"], color="C2", label="forward selection")
        axes.set_title(row["data"], fontsize=9)
        axes.set_xlabel("N", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.axes[0].legend(fontsize=7)
    figure.suptitle("R^2 of 8 columns against the number N of processors (Figure 1 of the paper)")
    figure.tight_layout()
    return figure
