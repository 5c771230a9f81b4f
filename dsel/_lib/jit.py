"""The one way functions are compiled here: cached on disk, IEEE division, typed as what they are in Python."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

log = logging.getLogger("dsel")

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Re-association and contraction: sums may differ in the last bits from one kind of processor to another.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def compiled(*, fast: bool = False, inline: bool = False, nogil: bool = False) -> Callable[[_Function], _Function]:
    """Decorator: compile for this processor, once, and keep the result in numba's cache.

    fast: the order of operations may change, for figures that decide nothing. inline: the body goes into each caller.
    nogil: threads of one process may run it side by side.
    Call compiled functions with typed integers, np.int64(2), not 2 nor a variable that begins as 2: a literal makes
    numba compile the callee anew, and all that it calls.
    """
    options: dict[str, Any] = {"error_model": "numpy", "nogil": nogil}
    if fast:
        options["fastmath"] = _FAST
    options["inline" if inline else "cache"] = "always" if inline else True

    def decorate(function: _Function) -> _Function:
        function.__qualname__ += f"_{_fingerprint(function.__module__)[:12]}"  # numba names the files of its cache so
        return cast(_Function, njit(**options)(function))

    return decorate


@cache
def _fingerprint(module: str) -> str:
    """Of the source of a module and of all modules of this package that it imports.

    Numba compiles a function anew when its own file has changed, not when that of a function it calls has: after an
    upgrade it would run callers of yesterday with arrays laid out as today, and corrupt memory.
    """
    source = inspect.getsource(sys.modules[module])
    imported = sorted(set(re.findall(r"^from (dsel[.\w]*) import ", source, re.MULTILINE)))
    return hashlib.sha256("".join([source, *map(_fingerprint, imported)]).encode()).hexdigest()


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether numba's cache on this machine holds the compiled function already."""
    stats = getattr(function, "stats", None)
    folder = Path(stats.cache_path) if stats is not None and stats.cache_path else None
    return folder is not None and any(folder.glob(f"*.{function.__qualname__}-*.nbi"))


def log_compilation(function: Callable[..., Any], what: str = "the search") -> bool:
    """A line in the log before the first call on a machine, which takes long; whether this is one."""
    first = not is_compiled(function)
    if first:
        log.info("compiling %s for this machine: about half a minute, only this once", what)
    return first
