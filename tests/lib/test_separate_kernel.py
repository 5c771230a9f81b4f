"""Kernels that are compiled once and called by address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsel._lib.jit import compiled
from dsel._lib.kernel_loading import load_kernels, reachable
from dsel._lib.types import Floats, Int


@compiled("f8(f8[::1], i8)")
def power_sum(x: Floats, power: Int) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] ** power
    return total


@compiled("f8(f8[::1])")
def rarely(x: Floats) -> float:
    return x[0]


@compiled("f8(f8[::1])")
def never(x: Floats) -> float:
    if x[0] < 0.0:
        raise ValueError("negative")
    return x[0]


@compiled()
def plain(x: Any, power: Any) -> Any:
    return never(x) + power_sum(x, power) if power >= 0 else rarely(x)


def test_a_kernel_gives_the_same_from_python_and_from_compiled_code() -> None:
    x = np.array([1.0, 2.0, 3.0])
    assert power_sum(x, 2) == 14.0
    assert plain(x, 2) == 15.0
    assert plain(x, np.int64(3)) == 37.0


def test_a_kernel_is_compiled_when_it_is_first_called() -> None:
    x = np.array([1.0, 2.0])
    plain(x, 1)
    assert power_sum.is_loaded  # type: ignore[attr-defined]
    assert not rarely.is_loaded  # type: ignore[attr-defined]
    assert plain(x, -1) == 1.0
    assert rarely.is_loaded  # type: ignore[attr-defined]


def test_the_caller_gets_the_exception_of_a_kernel() -> None:
    with pytest.raises(ValueError, match="negative"):
        plain(np.array([-1.0]), 1)


def test_loading_takes_what_a_kernel_calls_but_for_what_is_left_out() -> None:
    assert set(reachable([plain])) == {power_sum, rarely, never}
    assert set(reachable([plain], without=[never])) == {power_sum, rarely}
    load_kernels(plain)
    assert never.is_loaded  # type: ignore[attr-defined]
    assert not load_kernels(plain)
