"""Compile the kernels that a search will call before it starts, on all cores and while a line says so."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from dsel._lib.blas import usable_cores
from dsel._lib.jit import is_compiled
from dsel._lib.quick_numba import without_collection
from dsel._lib.separate_kernel import SeparateKernel
from dsel._lib.termination import raise_deferred

log = logging.getLogger("dsel")

#: Called with a line that says what is compiled and how long it takes, before it is.
on_compilation: ContextVar[Callable[[str], None] | None] = ContextVar("on_compilation", default=None)

#: Kernels for each process that helps. It costs about two seconds of a processor, to import and to compile what both
#: need. So one process compiles the kernels of a search or of a proof, and several those of both together.
KERNELS_OF_A_HELPER = 56
#: Wall time of the mean kernel, and of what the first one needs, on one quiet core.
_SECONDS_OF_A_KERNEL, _SECONDS_OF_THE_FIRST = 0.15, 0.5
#: Most processes that compile at a time, this one included.
_MOST_PROCESSES = 4


def load_kernels(*entries: Any, what: str = "the search", without: Sequence[Any] = ()) -> bool:
    """Compile these kernels and all that they call, and return whether this machine compiles some of them now.

    Parameters
    ----------
    *entries : compiled functions
        The kernels that are called from Python.
    what : str
        What they are for, for the log.
    without : sequence of compiled functions
        Kernels that are left out with what only they call. A kernel that is called nevertheless is compiled then.
    """
    kernels = reachable(entries, without)
    if all(kernel.is_loaded for kernel in kernels):
        return False
    missing = _missing(kernels)
    if missing:
        line = (
            f"compiling {what} for this machine: about {_seconds(missing)} s on quiet cores, only this once; a time "
            "limit begins after it"
        )
        log.info("%s", line)
        if (listener := on_compilation.get()) is not None:
            listener(line)
        missing.sort(key=_size, reverse=True)
    with _helpers(missing), without_collection():
        for kernel in missing:
            raise_deferred()
            kernel.load()
    for kernel in kernels:  # from the cache within a second: a signal then waits for the first checkpoint
        kernel.load()
    return bool(missing)


def seconds_to_compile(*entries: Any, without: Sequence[Any] = ()) -> int:
    """Return about how many seconds `load_kernels` will compile on quiet cores; 0 if the cache has all kernels."""
    return _seconds(_missing(reachable(entries, without)))


def _missing(kernels: Sequence[SeparateKernel]) -> list[SeparateKernel]:
    return [kernel for kernel in kernels if not kernel.is_loaded and not is_compiled(kernel)]


def _seconds(missing: list[SeparateKernel]) -> int:
    shared = _SECONDS_OF_A_KERNEL * len(missing) / (1 + _helpers_for(missing))
    return math.ceil(_SECONDS_OF_THE_FIRST + shared) if missing else 0


def reachable(entries: Sequence[Any], without: Sequence[Any] = ()) -> list[SeparateKernel]:
    """Return the kernels among `entries` and those that they call, directly or not."""
    found: list[SeparateKernel] = []
    seen = {id(x) for x in without}
    waiting = list(entries)
    while waiting:
        function = waiting.pop()
        python = getattr(function, "py_func", None)
        if python is None or id(function) in seen:
            continue
        seen.add(id(function))
        if isinstance(function, SeparateKernel):
            found.append(function)
        waiting += [python.__globals__[name] for name in python.__code__.co_names if name in python.__globals__]
    return found


def _size(kernel: SeparateKernel) -> int:
    return len(kernel.py_func.__code__.co_code)


@contextlib.contextmanager
def compiling_in_background(*entries: Any, without: Sequence[Any] = ()) -> Iterator[None]:
    """Let another process compile kernels and all that they call into the cache during the block, in this order.

    It ends with the block. Arguments as for `load_kernels`.
    """
    in_order = dict.fromkeys(kernel for entry in entries for kernel in reachable((entry,), without))
    missing = _missing(list(in_order))
    process = _process(missing) if missing and usable_cores() > 1 else None
    try:
        yield
    finally:
        _end(process)


@contextlib.contextmanager
def _helpers(missing: list[SeparateKernel]) -> Iterator[None]:
    """Let other processes compile the last of these kernels into the cache while this one compiles the first."""
    helpers = _helpers_for(missing)
    started = [_process(missing[::-1][x::helpers]) for x in range(helpers)]
    try:
        yield
    finally:
        for process in started:
            _end(process)


def _helpers_for(missing: list[SeparateKernel]) -> int:
    return min(usable_cores() - 1, _MOST_PROCESSES - 1, len(missing) // KERNELS_OF_A_HELPER)


def _process(kernels: list[SeparateKernel]) -> subprocess.Popen[bytes] | None:
    """Start a process that compiles these kernels. None if it does not start: this process then compiles all."""
    names = [f"{kernel.__module__}:{kernel.__name__}" for kernel in kernels]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "dsel._lib.compile_kernels", *names], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return None


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()
