"""Kernels that are compiled quickly compute what numba's usual way of compiling gives."""

from __future__ import annotations

import gc
import runpy
from typing import Any, Literal

import numba._dynfunc
import numpy as np
import pytest
from llvmlite.ir import IRBuilder
from numba import njit
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.errors import TypingError
from numba.core.postproc import PostProcessor
from numba.core.types.functions import BaseFunction
from numba.np import arrayobj

from dsel._lib import quick_numba as module
from dsel._lib.jit import compiled
from dsel._lib.quick_numba import quick_numba
from dsel._lib.types import Floats, Int, Ints

_PLACES = (
    (BaseFunction, "get_call_type"), (CPUCodeLibrary, "_optimize_final_module"), (arrayobj, "make_array"),
    (PostProcessor, "run"), (CPUContext, "refresh"), (IRBuilder, "extract_value"), (PassManager, "_runPass"),
)  # fmt: skip


@compiled(inner=True)
def _copied(x: Floats, i: Any) -> Any:
    return x[i] / (1.0 + x[i] * x[i])


@compiled("f8(f8[::1], i8)", inner=True)
def _called(x: Floats, s: Int) -> float:
    total = 0.0
    for i in range(s):
        total += _copied(x, i) * max(x[i], 0.5)
    return total


@compiled("f8(f8[::1])")
def kernel(x: Floats) -> float:
    least = np.inf
    for s in range(1, x.size):
        least = min(least, _called(x, s) - x[s] // 3)
    return least + _copied(x, 0)


@compiled("f8[::1](f8[::1])", allocates=True)
def halves(x: Floats) -> Floats:
    return x / 2.0


def literal(x: Floats) -> float:
    def copied(i: int) -> float:
        return float(x[i] / (1.0 + x[i] * x[i]))

    values = [sum((copied(i) * max(x[i], 0.5) for i in range(s)), 0.0) - x[s] // 3 for s in range(1, x.size)]
    return float(min(values) + copied(0))


def test_it_gives_the_bits_of_the_same_operations_in_python() -> None:
    x = np.random.default_rng(0).normal(size=200)
    assert kernel(x) == literal(x)
    assert halves(x).tolist() == (x / 2.0).tolist()


@compiled("f8(f8[:, :, ::1], f8[:, :], i8)")
def moved(x: Floats, y: Floats, i: Int) -> float:
    total = 0.0
    for l in range(x.shape[1]):
        x[i, l, 1] += y[l, i]
        total += x[i][l, 1] + x[i, l:, 0].sum()
    return total


@compiled("i8(i8, i8, i8, i8[::1])")
def walked(start: Int, stop: Int, step: Int, seen: Ints) -> int:
    count, last = np.int64(0), np.int64(-1)
    for i in range(start, stop, step):
        for l in range(3, 0, -1):
            if l == 2:
                continue
            seen[count] = 10 * i + l
            count += 1
        last = i
        if count == 12:
            break
    for _ in range(start):
        count += 100
    return int(count if last < 0 else count + 1000 * last)


@pytest.mark.parametrize(
    "bounds", [(0, 4, 1), (2, 9, 3), (9, 2, -3), (5, 1, -1), (4, 4, 1), (4, 0, 1), (0, 50, 1), (1, 2, 7)]
)
def test_loops_over_ranges_are_those_of_python(bounds: tuple[int, int, int]) -> None:
    seen, expected = np.full(12, -1), np.full(12, -1)
    start, stop, step = (np.int64(x) for x in bounds)
    literal = walked.py_func(*bounds, expected)  # type: ignore[attr-defined]
    assert walked(start, stop, step, seen) == literal
    assert seen.tolist() == expected.tolist()


def test_a_range_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be zero"):
        walked(np.int64(0), np.int64(1), np.int64(0), np.zeros(12, np.int64))


@compiled("f8(f8[::1])")
def _without_a_type(x: Floats) -> float:
    return float(x.nothing)  # type: ignore[attr-defined]


def test_a_kernel_that_cannot_be_compiled_gets_the_message_of_numba() -> None:
    with pytest.raises(TypingError, match=r"Unknown attribute 'nothing'(.|\n)*test_quick_numba.py"):
        _without_a_type(np.ones(1))


@pytest.mark.parametrize("order", ["C", "F"])
def test_elements_and_parts_of_arrays_are_those_of_python(order: Literal["C", "F"]) -> None:
    x, y = np.arange(24.0).reshape(4, 3, 2), np.asarray(np.arange(20.0).reshape(5, 4), order=order)
    literal = x.copy()
    literal[2, :, 1] += y[:3, 2]
    total = sum(literal[2, l, 1] + literal[2, l:, 0].sum() for l in range(3))
    assert moved(x, y, np.int64(2)) == total
    assert x.tolist() == literal.tolist()


@pytest.mark.skipif(not module.is_known, reason="this numba compiles in its own way")
def test_a_negative_index_is_refused_where_bounds_are_checked() -> None:
    @njit(boundscheck=True)
    def element(x: Any, i: Any) -> Any:
        return x[i, 1]

    with quick_numba("element", allocates=True):
        element.compile("(f8[:, ::1], i8)")
    assert element(np.eye(2), 1) == 1.0
    with pytest.raises(IndexError):
        element(np.eye(2), -1)


@pytest.mark.skipif(not module.is_known, reason="this numba compiles in its own way")
def test_numba_is_as_before_after_it() -> None:
    before = [getattr(*place) for place in _PLACES]
    with quick_numba("kernel", allocates=False):
        assert not gc.isenabled()
        assert [getattr(*place) for place in _PLACES] != before
    assert gc.isenabled()
    assert [getattr(*place) for place in _PLACES] == before


def test_other_functions_call_what_was_compiled_quickly() -> None:
    x = np.array([1.0, 2.0])

    @njit
    def caller(x: Any) -> Any:
        return _copied(x, 1) + kernel(x) + min(x[0], x[1])

    assert caller(x) == x[1] / 5.0 + literal(x) + 1.0


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_numba_is_as_before_after_an_interruption(error: type[BaseException]) -> None:
    before = [getattr(*place) for place in _PLACES]
    with pytest.raises(error), quick_numba("kernel", allocates=False):
        raise error
    assert gc.isenabled()
    assert [getattr(*place) for place in _PLACES] == before


@pytest.mark.parametrize("version", ["0.61.2", "0.64.0", "0.69.0rc1", "1.0.0", "0+unknown"])
def test_an_unknown_numba_compiles_in_its_own_way(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba, "__version__", version)
    assert not runpy.run_path(str(module.__file__))["is_known"]


def test_a_numba_without_the_inner_functions_compiles_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delattr(numba._dynfunc, "make_function")
        assert not runpy.run_path(str(module.__file__))["is_known"]
    monkeypatch.setattr(module, "is_known", False)

    @compiled("f8(f8[::1])")
    def other(x: Floats) -> float:
        return _called(x, np.int64(2)) + min(x[0], x[1])

    before = [getattr(*place) for place in _PLACES]
    with quick_numba("other", allocates=False):
        assert [getattr(*place) for place in _PLACES] == before
    x = np.array([1.0, 2.0, 3.0])
    assert other(x) == 0.5 * 1.0 + 0.4 * 2.0 + 1.0
