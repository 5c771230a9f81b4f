"""Packages that only some clusters need, imported when a job uses them."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from typing import Any

from dsel.errors import MissingExtraError


def import_extra(module: str, package: str, extra: str) -> Any:
    """Import and return a module, or raise MissingExtraError with the extra that installs it.

    The handler of SIGINT is restored: dask-jobqueue replaces it on import.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"cluster: {extra} needs {package}, which is not installed ({error}).", f"pip install 'dsel[{extra}]'."
        ) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
