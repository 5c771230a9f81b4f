"""Every method of dsel keeps the contract of a method, and `check_method` finds those that break it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dsel.config.types import Int
from dsel.search.exact.certificate import Certificate
from dsel.search.greedy.path import FORWARD
from dsel.search.method import Method, Options, SearchTask
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.search.pareto.run import POSS
from dsel.search.registry import METHODS
from dsel.testing import check_method

#: Each process compiles their kernels, which takes longest of all methods.
COMPILED = {"mcp", "scad"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in COMPILED else []) for name in METHODS]
)
def test_the_methods_of_dsel_keep_the_contract(name: str) -> None:
    check_method(METHODS[name])


def outcome(task: SearchTask, members: tuple[int, ...], error: float | None = None) -> SearchOutcome:
    """Return the outcome of a search that finds one subset."""
    value = task.objective.value(members) if error is None else error
    return SearchOutcome((FrontPoint(len(members), value, members),))


def greedy(task: SearchTask) -> tuple[int, ...]:
    return FORWARD.run(task).best(task.k).members


CALLS = itertools.count()


def too_many(task: SearchTask) -> SearchOutcome:
    return outcome(task, tuple(range(task.k + 1)))


def other_bits_each_time(task: SearchTask) -> SearchOutcome:
    return outcome(task, (next(CALLS) % 5,))


def a_wrong_error(task: SearchTask) -> SearchOutcome:
    members = greedy(task)
    return outcome(task, members, 0.5 * task.objective.value(members))


def indices_of_the_data(task: SearchTask) -> SearchOutcome:
    members = greedy(task)
    wrong = tuple(min(int(j), task.objective.n - 1) for j in task.objective.in_data(members)[-len(members) :])
    return outcome(task, wrong, task.objective.value(members))


def a_false_bound(task: SearchTask) -> SearchOutcome:
    result = outcome(task, greedy(task))
    value = result.front[0].value
    certificate = Certificate(task.objective.included_size + task.k, value, 0.999999 * value, task.objective.total)
    worse = FrontPoint(task.k, task.objective.value(tuple(range(task.k))), tuple(range(task.k)))
    certificate = replace(certificate, value=worse.value, bound=worse.value, indices=worse.members)
    return replace(result, front=(worse,), certificates=(certificate,))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (too_many, r"the front has the sizes \[4\], k is 3"),
        (other_bits_each_time, "other bits with the same seed"),
        (a_wrong_error, "is stated as"),
        (indices_of_the_data, "is stated as|chooses a column twice|not .* columns"),
        (a_false_bound, "states the bound"),
    ],
)
def test_a_method_with_a_wrong_answer_is_found(run: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(Method("broken", "It is broken.", run))


class Lax(Options):
    tries: int = 3


class Strict(Options):
    tries: Int = 3


def test_options_that_take_numbers_from_truth_values_are_found() -> None:
    check_method(replace(FORWARD, name="strict", options=Strict))
    with pytest.raises(AssertionError, match=r"Lax accepts tries=True\. Use the types of dsel.config.types"):
        check_method(replace(FORWARD, name="lax", options=Lax))


def test_a_search_that_forgets_its_state_is_found() -> None:
    def forgetful(task: SearchTask) -> SearchOutcome:
        return POSS.run(replace(task, state=None, seed=task.seed + 1) if task.state else task)

    with pytest.raises(AssertionError, match="that continues has another answer"):
        check_method(replace(POSS, name="forgetful", run=forgetful), iterations=40, warm_start="none")


def test_a_method_that_writes_into_its_objective_is_found() -> None:
    def writes(task: SearchTask) -> SearchOutcome:
        K: Any = task.objective.K
        K.flags.writeable = True
        K *= 2.0
        return outcome(task, tuple(np.arange(task.k)))

    with pytest.raises(AssertionError, match="is stated as"):
        check_method(Method("writes", "It writes.", writes))


def test_a_part_of_a_group_is_found() -> None:
    def first_columns(task: SearchTask) -> SearchOutcome:
        if task.groups is None:
            return FORWARD.run(task)
        return outcome(task, tuple(int(group[0]) for group in task.groups[: task.k]))

    with pytest.raises(AssertionError, match="a part of the group"):
        check_method(replace(FORWARD, name="parts", run=first_columns))


def test_a_name_with_capitals_or_a_summary_that_is_no_sentence_is_found() -> None:
    with pytest.raises(AssertionError, match="lower case"):
        check_method(replace(FORWARD, name="Forward"))
    with pytest.raises(AssertionError, match="must be a sentence"):
        check_method(replace(FORWARD, summary="forward selection"))
