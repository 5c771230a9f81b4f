"""Plans of POSS are within a factor of three of the runs on ten shapes, by counts; some are exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.planning.calibration import search_seconds
from dsel.planning.plan import Plan
from dsel.selection.result import Selection
from tests.on_workers import hold_column_blocks
from tests.stores import make_store

FACTOR = 3.0
#: Rows, columns, k, targets or Y = X, and how the problem is held.
SHAPES = [
    ("tall", 2000, 30, 5, True, "gram"),
    ("tall", 2000, 30, 5, False, "gram"),
    ("square", 150, 150, 5, True, "gram"),
    ("square", 100, 100, 5, False, "gram"),
    ("wide", 40, 300, 5, False, "gram"),
    ("wide", 40, 300, 5, True, "on demand"),
    ("wide", 40, 300, 5, False, "on demand"),
    ("wide", 100, 1000, 10, True, "on demand, from a store"),
    ("tall", 500, 30, 4, True, "criterion"),
    ("wide", 40, 200, 3, False, "criterion"),
]


def of_least_sum(S: Any) -> float:
    return float(sum(S))


def planned_and_run(shape: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Selection]:
    _, m, n, k, targets, held = shape
    rng = np.random.default_rng(0)
    X = rng.standard_normal((m, n))
    Y = X[:, :10] @ rng.uniform(0.5, 1.5, (10, 1)) + rng.standard_normal((m, 1)) if targets else None
    asked: dict[str, Any] = {"k": k, "method": "poss", "seed": 1}
    if held.startswith("on demand"):
        hold_column_blocks(monkeypatch.setattr)
    if held == "criterion":
        asked["criterion"] = of_least_sum
    data: tuple[Any, ...] = (X, Y)
    if held.endswith("store"):
        data = (make_store(tmp_path / "data.zarr", X, Y, chunks=(m, n // 10)),)
    return dsel.plan(*data, calibrate=False, **asked), dsel.select(*data, **asked)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape[0]}, {'Y' if shape[4] else 'Y = X'}, {shape[5]}")
def test_passes_bytes_tasks_and_iterations_are_near_those_planned(
    shape: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, found = planned_and_run(shape, tmp_path, monkeypatch)
    assert found.plan is not None
    assert plan.iterations == found.iterations
    for name in ("passes", "bytes_read", "tasks"):
        planned, measured = getattr(plan.expected, name), found.plan["measured"][name]
        assert measured / FACTOR <= planned <= measured * FACTOR, name
        if plan.exact:
            assert planned == measured
    if shape[-1] == "criterion":  # the plan cannot know how long an evaluation takes, but how many there are
        assert search_seconds(plan, None) is None  # type: ignore[arg-type]
        assert plan.evaluations / FACTOR <= found.counts["evaluated"] <= plan.evaluations * FACTOR
    else:
        assert plan.placement.seconds is not None


def test_the_plan_prints_the_passes_that_a_search_probably_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _ = planned_and_run(SHAPES[5], tmp_path, monkeypatch)
    assert plan.expected.passes > plan.passes
    assert f"with the Gram rows that the search fetches: about {plan.expected.passes} passes" in str(plan)


def test_the_plan_of_a_criterion_states_how_often_it_is_called() -> None:
    X = np.random.default_rng(0).standard_normal((30, 8))
    plan = dsel.plan(X, k=2, criterion=of_least_sum)
    assert (
        f"at most {plan.iterations:,} iterations, with an estimate of {plan.evaluations:,} evaluations, fewer"
        in str(plan)
    )
