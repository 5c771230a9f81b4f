"""Custom functions, named in job files as package.module:function. Nothing is unpickled.

Their modules are code that runs with the rights of the job. A job file with one deserves the same trust as a program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import Any

from dsel.errors import DselError, OptionError

#: What `load_function` calls before it imports anything: it raises an error for code that is not trusted.
_guard: ContextVar[Callable[[str], None] | None] = ContextVar("guard of imports", default=None)


@contextmanager
def guarding_imports(guard: Callable[[str], None]) -> Iterator[None]:
    """Call `guard` with the path of each function before its module is imported."""
    before = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(before)


def load_function(path: str) -> Callable[..., Any]:
    """Return the function at package.module:function. Modules in the working directory are found too.

    Raises
    ------
    OptionError
        The module or the function does not exist.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise OptionError(f"{path!r} is not the path of a function.", "Write it as package.module:function.")
    if (guard := _guard.get()) is not None:
        guard(path)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"{path!r} cannot be imported: {error}.", f"Name a module that is installed or in {here}, and its function."
        ) from error
    except DselError:
        raise
    except (Exception, SystemExit) as error:  # of the module itself, whose code runs when it is imported
        raise OptionError(
            f"{path!r} cannot be imported: the module {module} raised {type(error).__name__}: {error}.",
            "Correct the module. Its code runs when it is imported.",
        ) from error
    if not callable(function):
        raise OptionError(f"{path!r} is a {type(function).__name__}, not a function.", "Name a function or a class.")
    found: Callable[..., Any] = function
    return found


def import_path(function: Callable[..., Any]) -> str:
    """Return the path by which `load_function` finds the function."""
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"
