"""Options of methods: what only looks right is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from dsel.objective.dense import DenseObjective
from dsel.search.anytime import drive
from dsel.search.method import SearchTask
from dsel.search.parallel import pposs, pposs_asy
from dsel.search.parallel.iteration_slices import SliceRunner
from dsel.search.pareto import poss
from dsel.search.pareto.search import Poss
from dsel.search.registry import METHODS


def test_options_that_are_yes_or_no_take_nothing_else():
    with pytest.raises(ValidationError):
        METHODS["astar"].options(prune=1)
    with pytest.raises(ValidationError, match="not a number"):
        METHODS["poss"].options(target=float("nan"))
    assert METHODS["astar"].options(prune=True).prune


@pytest.mark.parametrize("name", ["poss", "pposs"])
def test_no_clock_runs_while_the_search_is_compiled(name, monkeypatch):
    module = {"poss": poss, "pposs": pposs}[name]
    objective = DenseObjective(np.eye(6), np.ones((6, 1)), 7.0)
    done = []
    warm_up = Poss.warm_up

    def warmed(search):
        before = search.state()
        warm_up(search)
        assert search.state() == before
        done.append("compiled")

    def driven(*arguments):
        done.append("driven")
        return drive(*arguments)

    monkeypatch.setattr(Poss, "warm_up", warmed)
    monkeypatch.setattr(module, "drive", driven)
    METHODS[name].run(SearchTask(objective, 3, 0, METHODS[name].options(iterations=100)))
    assert done == ["compiled", "driven"]


def test_slices_are_compiled_before_the_first_is_sent(monkeypatch):
    done = []
    monkeypatch.setattr(pposs_asy, "load_pareto_kernels", lambda *_: True)
    monkeypatch.setattr(SliceRunner, "run", lambda _, part: done.append((part.start, part.stop)) or ())
    objective = DenseObjective(np.eye(6), np.ones((6, 1)), 7.0)
    options = METHODS["pposs-asy"].options(iterations=100)
    METHODS["pposs-asy"].run(SearchTask(objective, 3, 0, options))
    assert done[0] == (0, 1)
    assert done[1] == (0, 100)


def test_numbers_may_be_written_as_yaml_gives_them():
    assert METHODS["poss"].options(iterations=np.int64(10)).iterations == 10
    with pytest.raises(ValidationError, match="whole number"):
        METHODS["poss"].options(iterations=10.0)
    assert METHODS["astar"].options(gamma="1e-3").gamma == 1e-3
    assert METHODS["kfold"].options(lam_grid=[1, 2.5]).lam_grid == (1.0, 2.5)
    with pytest.raises(ValidationError):
        METHODS["kfold"].options(lam_grid=[True])
