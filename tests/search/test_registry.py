"""Options of methods: what only looks right is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from dsel.objective.dense import DenseObjective
from dsel.search.method import SearchTask
from dsel.search.pareto.compiled import Poss
from dsel.search.registry import METHODS
from dsel.search.runtime.dispatcher import Dispatcher


def test_options_that_are_yes_or_no_take_nothing_else():
    with pytest.raises(ValidationError):
        METHODS["astar"].options(prune=1)
    with pytest.raises(ValidationError, match="not a number"):
        METHODS["poss"].options(target=float("nan"))
    assert METHODS["astar"].options(prune=True).prune


def test_each_method_is_registered_by_its_own_name():
    assert {name: method.name for name, method in METHODS.own.items()} == {name: name for name in METHODS.own}


@pytest.mark.parametrize("name", ["poss", "pposs", "pposs-asy"])
def test_no_clock_runs_while_the_search_is_compiled(name, monkeypatch):
    objective, done = DenseObjective(np.eye(6), np.ones((6, 1)), 7.0), []
    warm_up, run_tasks = Poss.warm_up, Dispatcher.run

    def warmed(search, *arguments):
        warm_up(search, *arguments)
        assert search.iteration == 0
        done.append("compiled")

    def dispatched(*arguments):
        done.append("dispatched")
        return run_tasks(*arguments)

    monkeypatch.setattr(Poss, "warm_up", warmed)
    monkeypatch.setattr(Dispatcher, "run", dispatched)
    METHODS[name].run(SearchTask(objective, 3, 0, METHODS[name].options(iterations=100)))
    assert done == ["compiled", "dispatched"]


def test_numbers_may_be_written_as_yaml_gives_them():
    assert METHODS["poss"].options(iterations=np.int64(10)).iterations == 10
    with pytest.raises(ValidationError, match="whole number"):
        METHODS["poss"].options(iterations=10.0)
    assert METHODS["astar"].options(gamma="1e-3").gamma == 1e-3
    assert METHODS["kfold"].options(lam_grid=[1, 2.5]).lam_grid == (1.0, 2.5)
    with pytest.raises(ValidationError):
        METHODS["kfold"].options(lam_grid=[True])
