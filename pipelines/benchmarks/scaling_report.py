"""Fit a model of the communication costs to the measurements of the scaling benchmark, and draw both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def draw_efficiencies(axes: Any, points: Mapping[str, Mapping[str, float]], model: Model, processors: int) -> None:
    """Draw the measured efficiencies by the number of workers, and the model."""
    W = np.unique(np.round(np.geomspace(1, 1000, 200)))
    for colour, (name, measured) in zip(("C0", "C1"), points.items(), strict=True):
        axes.plot([int(w) for w in measured], list(measured.values()), "o", color=colour, label=f"{name}: measured")
    axes.plot(W, model.asynchronous(W), "-", color="C0", label="asynchronous: model")
    N = np.full(W.size, float(processors))
    axes.plot(W, model.synchronous(W, N), "-", color="C1", label=f"synchronous, N = {processors}: model")
    axes.set(xscale="log", ylim=(0.0, 1.1), xlabel="workers", ylabel="efficiency")
    axes.legend(fontsize=8)
