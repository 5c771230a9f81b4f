"""Packages that only some sites need, imported when a job asks for them."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from typing import Any

from dsel.errors import MissingExtraError


def import_extra(module: str, package: str, extra: str) -> Any:
    """The module. Errors: MissingExtraError naming the extra that brings the package.

    What it does to SIGINT as it is imported (dask-jobqueue makes Ctrl-C an exit) is undone.
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
