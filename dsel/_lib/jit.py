"""The one way functions are compiled here: cached on disk, with IEEE division, and typed as in Python."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit

from dsel._lib.separate_kernel import SeparateKernel

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Whether kernels check the arrays that they are given and the bounds of every index, which is slow.
CHECKED = os.environ.get("DSEL_CHECK_KERNELS", "0") not in ("", "0")

#: Re-association and contraction: sums may differ in the last bits from one kind of processor to another.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def _take_compiled_kernels() -> None:
    """Fill a new cache from the folder that DSEL_KERNELS names, such as one that an image was built with."""
    given, cache = Path(os.environ.get("DSEL_KERNELS", "")), Path(os.environ.get("NUMBA_CACHE_DIR", ""))
    if given == Path() or cache == Path() or cache.exists() or not given.is_dir():
        return
    with suppress(OSError):  # the kernels are then compiled
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f"{cache.name}-", dir=cache.parent))
        shutil.copytree(given, part, dirs_exist_ok=True)
        try:
            part.rename(cache)  # at once, for other processes that start now
        except OSError:  # one of them was faster
            shutil.rmtree(part, ignore_errors=True)


_take_compiled_kernels()
if getattr(config, "DISABLE_JIT", False):
    raise ImportError("dsel runs compiled code only. Unset NUMBA_DISABLE_JIT before you import it.")


def compiled(
    signature: str | None = None,
    *,
    fast: bool = False,
    inline: bool = False,
    nogil: bool = False,
    allocates: bool = False,
    inner: bool = False,
) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function for this processor, once, and keeps the result in numba's cache.

    signature: the types of the result and the arguments. With it, compiled callers call the function by its address.
    Without it, its code is copied into each caller and optimized again there: for small functions in inner loops.
    fast: the order of operations may change; for figures that decide nothing. inline: the body is copied into each
    caller. nogil: several threads of one process may run it at the same time. allocates: it makes or returns arrays,
    or calls a function that does. Otherwise no code counts references, which takes time in small functions. inner: only
    compiled functions call it, so that no code is compiled which takes arguments from Python. A call from Python fails.
    Call compiled functions with typed integers, np.int64(2), not 2 nor a variable that was set to 2: for a literal,
    numba compiles the called function again, and all that it calls. Attributes of modules (`layout.K`) are typed.
    """
    options: dict[str, Any] = {"error_model": "numpy", "nogil": nogil, "no_cfunc_wrapper": True, "_nrt": allocates}
    if CHECKED:
        options["boundscheck"] = True
    if inner:
        options["no_cpython_wrapper"] = True
    if fast:
        options["fastmath"] = _FAST
    if inline:
        options["inline"] = "always"
    options["cache"] = not inline and (not inner or signature is not None)

    def decorate(function: _Function) -> _Function:
        function.__qualname__ += f"_{_fingerprint(function.__module__)[:12]}"  # numba names the files of its cache so
        dispatcher = njit(**options)(function)
        return cast(_Function, dispatcher if signature is None else SeparateKernel(dispatcher, signature))

    return decorate


@cache
def _fingerprint(module: str) -> str:
    """Return a digest of the source of a module and of all modules of this package that it imports.

    Numba compiles a function again when its own file has changed, not when the file of a function it calls has. After
    an upgrade it would run old callers with arrays in the new layout, and corrupt memory.
    """
    sources: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = inspect.getsource(sys.modules[name])
            waiting += imported_modules(sources[name])
    return hashlib.sha256("".join([str(CHECKED), *(sources[name] for name in sorted(sources))]).encode()).hexdigest()


def imported_modules(source: str) -> list[str]:
    """Return the modules of this package that a source imports.

    Both `from module import name` and `from package import module` count.
    """
    found = set()
    for package, listed, single in re.findall(r"^from (dsel[.\w]*) import (?:\(([^)]*)\)|(.*))$", source, re.MULTILINE):
        for name in re.findall(r"(\w+)(?: as \w+)?", listed or single.split("#")[0]):
            found.add(f"{package}.{name}" if f"{package}.{name}" in sys.modules else package)
    return sorted(found)


def is_compiled(function: Callable[..., Any]) -> bool:
    """Return whether numba's cache on this machine holds the compiled function."""
    stats = getattr(function, "stats", None)
    folder = Path(stats.cache_path) if stats is not None and stats.cache_path else None
    return folder is not None and any(folder.glob(f"*.{function.__qualname__}-*.nbi"))
