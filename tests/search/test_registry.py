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


@pytest.mark.parametrize("name", METHODS)
def test_no_number_is_taken_from_a_truth_value_and_no_whole_number_from_text(name):
    model = METHODS[name].options
    numbers = [key for key, field in model.model_fields.items() if "float" in str(field) or "int" in str(field)]
    numbers = [key for key in numbers if key not in ("held_out", "isolation")]
    for key in numbers:
        with pytest.raises(ValidationError):
            model(**{key: True})
    for key in set(numbers) & {"iterations", "nodes", "folds", "repeats", "restarts", "memory", "path_factor"}:
        for value in ("10", 10.5, 10.0):
            with pytest.raises(ValidationError, match="whole number"):
                model(**{key: value})
        assert getattr(model(**{key: np.int64(10)}), key) == 10


def test_options_that_are_yes_or_no_take_nothing_else():
    with pytest.raises(ValidationError):
        METHODS["astar"].options(prune=1)
    with pytest.raises(ValidationError, match="not a number"):
        METHODS["poss"].options(target=float("nan"))
    assert METHODS["astar"].options(prune=True).prune


@pytest.mark.parametrize("name", ["poss", "pposs", "pposs-asy"])
def test_no_clock_runs_while_the_search_is_compiled(name, monkeypatch):
    objective, done = DenseObjective(np.eye(6), np.ones((6, 1)), 7.0), []
    warm_up, run_tasks = Poss.warm_up, Dispatcher.run

    def warmed(search):
        warm_up(search)
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
    assert METHODS["astar"].options(gamma="1e-3").gamma == 1e-3
    assert METHODS["kfold"].options(lam_grid=[1, 2.5]).lam_grid == (1.0, 2.5)
    with pytest.raises(ValidationError):
        METHODS["kfold"].options(lam_grid=[True])
