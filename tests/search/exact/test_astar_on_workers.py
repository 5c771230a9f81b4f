"""A* with workers that expand nodes ahead of it: the same nodes in the same order as in one process."""

from __future__ import annotations

from typing import Any

import pytest

from dsel.search.anytime import Stop, drive
from dsel.search.exact.astar import on_workers
from dsel.search.exact.astar.on_workers import drive_on_workers
from dsel.search.exact.astar.search import AStar
from tests.search.exact.cases import hard_case
from tests.search.shuffled_executor import ShuffledExecutor


@pytest.fixture(autouse=True)
def _small_tasks_from_the_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock decides how the nodes are divided into tasks."""
    for name in ("_ALONE", "_SHARE", "_STEP_SECONDS"):
        monkeypatch.setattr(on_workers, name, 0)


def state(search: AStar) -> dict[str, Any]:
    """Return the state of a search with its closed list, which is a set, in order."""
    return {**search.state(), "closed": sorted(search.state()["closed"])}


SEARCHES: list[dict[str, Any]] = [
    {}, {"gamma": 0.5}, {"epsilon": 0.1}, {"bound": "combined"}, {"incumbent": (0, 1, 2)},
]  # fmt: skip


@pytest.mark.parametrize("options", SEARCHES)
def test_the_state_is_that_of_a_search_in_one_process(options: dict[str, Any]) -> None:
    """Whatever the order of the results, and though tasks are lost."""
    objective, stop = hard_case(5, n=20), Stop(iterations=2**62)
    here, there = AStar(objective, 4, **options), AStar(objective, 4, **options)
    drive(here, stop)
    ended, _ = drive_on_workers(there, ShuffledExecutor, stop)
    assert ended == "goal"
    assert state(there) == state(here)
    assert there.lower == here.lower


def test_an_exact_number_of_nodes_is_expanded() -> None:
    objective, stop = hard_case(5, n=20), Stop(iterations=333)
    here, there = AStar(objective, 5), AStar(objective, 5)
    drive(here, stop)
    ended, counts = drive_on_workers(there, ShuffledExecutor, stop)
    assert ended == "iterations"
    assert there.iteration == here.iteration == 333
    assert state(there) == state(here)
    assert counts["futures"] > 0
    assert counts["lost_tasks"] > 0


def test_an_interrupted_search_continues_with_the_same_nodes() -> None:
    class Interrupted(Exception):
        pass

    objective, stop = hard_case(5, n=20), Stop(iterations=2**62)
    whole, first = AStar(objective, 4), AStar(objective, 4)
    drive(whole, stop)

    def interrupt(search: Any) -> None:
        if search.iteration >= 40:
            raise Interrupted

    with pytest.raises(Interrupted):
        drive_on_workers(first, ShuffledExecutor, stop, interrupt)
    again = AStar.restore(objective, first.state())
    drive_on_workers(again, ShuffledExecutor, stop)
    assert state(again) == state(whole)
