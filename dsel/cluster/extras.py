"""Packages that only some sites need, imported when a job asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dsel.errors import MissingExtraError


def import_extra(module: str, package: str, extra: str) -> Any:
    """The module. Errors: MissingExtraError naming the extra that brings the package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"cluster: {extra} needs {package}, which is not installed ({error}).", f"pip install 'dsel[{extra}]'."
        ) from error
