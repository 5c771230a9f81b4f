"""Kernels that are compiled once and called by address."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsel._lib.jit import compiled
from dsel._lib.kernel_loading import KERNELS_OF_A_HELPER, load_kernels, reachable
from dsel._lib.types import Floats, Int
from dsel.objective.kernels.elimination import RARE
from dsel.search.pareto.compiled import pareto_kernels


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


@compiled("f8(f8[::1])", inner=True)
def inner(x: Floats) -> float:
    return 2.0 * x[0]


@compiled()
def twice(x: Any) -> Any:
    return inner(x)


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


def test_an_inner_kernel_is_called_from_compiled_code_only() -> None:
    x = np.array([1.5])
    assert twice(x) == 3.0
    with pytest.raises(TypeError, match="inner is compiled for calls from other compiled functions only"):
        inner(x)


def test_the_caller_gets_the_exception_of_a_kernel() -> None:
    with pytest.raises(ValueError, match="negative"):
        plain(np.array([-1.0]), 1)


def test_loading_takes_what_a_kernel_calls_but_for_what_is_left_out() -> None:
    assert set(reachable([plain])) == {power_sum, rarely, never}
    assert set(reachable([plain], without=[never])) == {power_sum, rarely}
    load_kernels(plain)
    assert never.is_loaded  # type: ignore[attr-defined]
    assert not load_kernels(plain)


def test_a_default_search_is_compiled_by_one_process_without_what_it_rarely_needs() -> None:
    kernels = reachable(*pareto_kernels(exchange_every=1000))
    assert not set(RARE) & set(kernels)
    assert len(kernels) < KERNELS_OF_A_HELPER
