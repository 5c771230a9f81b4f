"""Arrays must fit the layout; checked kernels refuse arrays that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NewType

import numpy as np
import pytest

from dsel._lib.jit import compiled
from dsel._lib.kernel_arrays import KernelArrays, Layout, int_vector, matrix
from dsel._lib.types import Ints
from dsel.objective.kernels import layout
from dsel.search.exact.branch_and_bound import layout as bb_layout
from dsel.search.pareto import archive_layout

Small = NewType("Small", Ints)
Larger = NewType("Larger", Small)
SMALL = Layout[Small]("Small")
COUNT = SMALL.integer("COUNT", "a number")
X = SMALL.matrix("X", "(2, 3)")
LARGER = Layout[Larger]("Larger", base=SMALL)
Y = LARGER.int_vector("Y", "(4,)")


@compiled()
def total(P: Larger) -> Any:
    return P[COUNT] + matrix(P, X).sum() + int_vector(P, Y).sum()


def arrays() -> KernelArrays[Larger]:
    small = KernelArrays(SMALL)
    small.P[COUNT] = 1000
    small.put(X, np.arange(6.0).reshape(2, 3))
    found = small.extended(LARGER)
    found.put(Y, np.array([10, 20, 30, 40]))
    return found


def test_a_kernel_finds_the_arrays_of_a_layout_and_of_its_base() -> None:
    held = arrays()
    assert total(held.P) == 1115.0
    held[X][0, 0] = 0.5
    assert total(held.P) == 1115.5
    assert held[Y].tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize(
    "array", [np.zeros(6), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.float32), np.zeros((3, 2)).T, np.array("x")]
)
def test_an_array_that_does_not_fit_its_slot_is_refused(array: Any) -> None:
    with pytest.raises(TypeError, match=r"Small\.X: float64, \(2, 3\)"):
        KernelArrays(SMALL).put(X, array)


def test_a_slot_of_another_layout_is_refused() -> None:
    with pytest.raises(TypeError, match="a slot of this layout"):
        KernelArrays(SMALL).put(bb_layout.FLOOR, np.zeros(3))


def test_layouts_that_are_not_bases_of_each_other_have_no_number_in_common() -> None:
    assert not set(archive_layout.ARCHIVE.names) & set(bb_layout.BRANCH.names)
    assert set(layout.TABLES.names) < set(archive_layout.ARCHIVE.names)


def run(module: str, checked: str) -> list[str]:
    """The lines that a module of this folder prints in another process, with or without checks."""
    env = {**os.environ, "DSEL_CHECK_KERNELS": checked, "PYTHONPATH": os.pathsep.join(sys.path)}
    if checked:
        env["NUMBA_OPT"] = "0"  # only the tests run checked kernels: compiling them takes longest
    command = [sys.executable, "-m", f"tests.lib.{module}"]
    found = subprocess.run(command, capture_output=True, text=True, env=env)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def test_checked_kernels_refuse_arrays_that_are_not_what_they_ask_for() -> None:
    assert run("wrong_kernels", "1") == ["TypeError", "TypeError", "TypeError", "IndexError", "ValueError"]


@pytest.mark.slow
def test_checked_searches_find_what_the_others_find() -> None:
    assert run("searches", "1") == run("searches", "")
