"""Compare what plans say with the CPU time of the runs, on ten shapes: tall, square and wide, with Y and with Y = X."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import dsel
from dsel._lib.types import Floats


@dataclass(frozen=True)
class Shape:
    """A problem for POSS.

    rows, columns, k: of the data, and to choose. targets: one target, or Y = X. iterations: by default those of the
    paper. criterion: least squares on the data in place of f.
    """

    rows: int
    columns: int
    k: int
    targets: bool = True
    iterations: int | None = None
    criterion: bool = False

    def __str__(self) -> str:
        kind = "a criterion" if self.criterion else "Y" if self.targets else "Y = X"
        return f"{self.rows} x {self.columns}, k = {self.k}, {kind}"


#: The Gram matrix of the last four does not fit, but for the criterion.
SHAPES = (
    Shape(100_000, 200, 10), Shape(20_000, 300, 20, targets=False), Shape(1000, 1000, 20),
    Shape(1000, 1000, 8, targets=False), Shape(200, 4000, 10), Shape(100, 3000, 8, targets=False),
    Shape(300, 60, 6, criterion=True), Shape(60, 60_000, 10, iterations=3_000_000),
    Shape(400, 80_000, 10, iterations=4_000_000), Shape(40, 60_000, 5, targets=False, iterations=1_000_000),
)  # fmt: skip


def data(rows: int, columns: int) -> tuple[Floats, Floats]:
    """Return standardized X (rows, columns) and y (rows,), which depends on ten columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    y = X[:, :10] @ rng.uniform(0.5, 1.5, 10) + rng.standard_normal(rows)
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def planned_and_used(shape: Shape) -> tuple[float, float]:
    """Return the seconds of the passes and the search by the plan, and the CPU seconds of the run."""
    X, y = data(shape.rows, shape.columns)
    asked: dict[str, Any] = {"k": shape.k, "method": "poss"}
    if shape.iterations is not None:
        asked["iterations"] = shape.iterations
    if shape.criterion:
        asked["criterion"] = lambda S: float(np.linalg.lstsq(X[:, list(S)], y, rcond=None)[1].sum())
    given = X, y if shape.targets else None
    dsel.select(*given, **{**asked, "iterations": 1})  # loads the compiled code
    plan = dsel.plan(*given, **asked)
    search = plan.search_seconds
    if shape.criterion:  # the plan says how often it may be called; who writes it knows how long a call takes
        before = time.process_time()
        for i in range(100):
            asked["criterion"](range(i % shape.k + 1))
        search = plan.evaluations * (time.process_time() - before) / 100
    before = time.process_time()
    dsel.select(*given, **asked)
    return plan.workers * (plan.seconds or 0.0) + (search or float("nan")), time.process_time() - before


def plan_worst_factor(quick: bool) -> dict[str, Any]:
    """Return the largest factor between planned seconds and CPU seconds, and its shape."""
    factors = {}
    for shape in SHAPES[::4] if quick else SHAPES:
        planned, used = planned_and_used(shape)
        factors[str(shape)] = max(planned / used, used / planned)
        print(f"plan of {shape}: {planned:.2f} s, {used:.2f} s of CPU time", flush=True)
    worst = max(factors, key=lambda name: factors[name])
    return {"plan_worst_factor": factors[worst], "plan_worst_shape": worst}
