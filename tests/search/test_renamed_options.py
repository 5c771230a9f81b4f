"""Earlier names of options: job files, saved results and Python calls that have them work as with the present names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dsel
from dsel.config.job import read_job
from dsel.errors import OptionError
from dsel.search.registry import METHODS
from tests.search.cases import random_data

X, Y = random_data(0, m=40, n=12)

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "poss", {"slices": 3, "slice_iterations": 50}, {"max_in_flight": 3, "task_iterations": 50},
        {"iterations": 500, "seed": 1},
    ),
    (
        "pposs", {"slices": 2, "slice_iterations": 64}, {"max_in_flight": 2, "task_iterations": 64},
        {"iterations": 640, "seed": 1},
    ),
    ("greedy-rls", {"fold_every": 2}, {"rewrite_every": 2}, {"lam": 1.0}),
]  # fmt: skip
EACH = pytest.mark.parametrize(("method", "old", "new", "more"), CASES, ids=[case[0] for case in CASES])


@EACH
def test_a_call_with_earlier_names_finds_the_same(
    method: str, old: dict[str, Any], new: dict[str, Any], more: dict[str, Any]
) -> None:
    before = dsel.select(X, Y, k=4, method=method, progress=False, **old, **more)
    after = dsel.select(X, Y, k=4, method=method, progress=False, **new, **more)
    assert before.indices == after.indices
    assert before.error == after.error
    assert before.request == after.request
    assert {name: before.request.options[name] for name in new} == new


@EACH
def test_the_options_that_an_earlier_result_recorded_are_those_of_today(
    method: str, old: dict[str, Any], new: dict[str, Any], more: dict[str, Any]
) -> None:
    recorded = dsel.select(X, Y, k=4, method=method, progress=False, **new, **more).request.options
    earlier = {**{name: value for name, value in recorded.items() if name not in new}, **old}
    assert METHODS[method].options(**earlier) == METHODS[method].options(**recorded)


@EACH
def test_a_job_file_may_have_earlier_names(
    tmp_path: Path, method: str, old: dict[str, Any], new: dict[str, Any], more: dict[str, Any]
) -> None:
    path = tmp_path / "job.yaml"
    lines = [f"store: {tmp_path / 'data.zarr'}", "k: 4", f"method: {method}", f"out: {tmp_path / 'out'}", "options:"]
    path.write_text("\n".join([*lines, *(f"  {name}: {value}" for name, value in old.items())]) + "\n")
    options = METHODS[method].options(**read_job(path).request().options)
    assert options == METHODS[method].options(**new)


@EACH
def test_both_names_must_agree(
    method: str, old: dict[str, Any], new: dict[str, Any], more: dict[str, Any]
) -> None:  # fmt: skip
    assert METHODS[method].options(**old, **new) == METHODS[method].options(**new)
    name, present = next(iter(old)), next(iter(new))
    with pytest.raises(OptionError, match=f"{name} is the earlier name of {present}: leave it out"):
        dsel.select(X, Y, k=4, method=method, **{name: 5, present: 6}, **more)
