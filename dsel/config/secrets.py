"""Job files, logs and manifests are no places for secrets: what looks like one is refused, and not repeated."""

from __future__ import annotations

import re
from typing import Any

from dsel.errors import OptionError

#: Names of variables whose values belong in no file.
_NAME = re.compile(r"secret|passw|token|credential|private|access_?key|account_?key|api_?key", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][\w+.-]*://[^/\s@]*:[^/\s@]+@|[?&](sig|x-amz-signature|token)=", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret."""
    return _NAME.search(name) is not None


def refuse_passwords(value: Any, place: str = "the job file") -> None:
    """Look through what was read for addresses with a password or signature in them. Errors: OptionError."""
    if isinstance(value, dict):
        for name, inner in value.items():
            refuse_passwords(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            refuse_passwords(inner, place)
    elif isinstance(value, str) and _URL.search(value):
        raise OptionError(
            f"{place} holds an address with a password or signature in it.",
            "Leave it out: credentials come from the environment (AWS_ACCESS_KEY_ID, ...) or the machine's role.",
        )
