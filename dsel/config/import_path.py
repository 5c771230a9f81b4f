"""A user's own function, named in a job file as package.module:function. Nothing is ever unpickled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from dsel.errors import OptionError


def load_function(path: str) -> Callable[..., Any]:
    """The function at package.module:function; modules in the working directory are found too.

    Errors: OptionError where the module or the function is not there.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise OptionError(f"{path!r} names no function.", "Write it as package.module:function.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"{path!r} cannot be imported: {error}.", "Write it as package.module:function.") from error
    if not callable(function):
        raise OptionError(f"{path!r} is not a function but {type(function).__name__}.")
    found: Callable[..., Any] = function
    return found


def import_path(function: Callable[..., Any]) -> str:
    """How `load_function` would name it."""
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"
