"""Job files, logs and manifests must not contain secrets: what looks like one is refused, and not repeated."""

from __future__ import annotations

import re
from typing import Any

from dsel.errors import OptionError

#: Names of variables whose values must not be written to a file.
_NAME = re.compile(r"secret|passw|token|credential|private|access_?key|account_?key|api_?key", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][\w+.-]*://[^/\s@]*:[^/\s@]+@|[?&](sig|x-amz-signature|token)=", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether a variable with this name holds a secret."""
    return _NAME.search(name) is not None


def refuse_passwords(value: Any, where: str = "the job file") -> None:
    """Raise OptionError if a value that was read contains a URL with a password or a signature."""
    if isinstance(value, dict):
        for name, inner in value.items():
            refuse_passwords(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            refuse_passwords(inner, where)
    elif isinstance(value, str) and _URL.search(value):
        raise OptionError(
            f"{where} contains a URL with a password or a signature.",
            "Leave it out: credentials come from the environment (AWS_ACCESS_KEY_ID, ...) or the role of the machine.",
        )
