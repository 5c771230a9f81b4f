"""Job files, logs and manifests must not contain secrets: what looks like one is refused, and not repeated."""

from __future__ import annotations

import re
from typing import Any

from dsel.errors import OptionError

#: Names of variables whose values must not be written to a file.
_NAME = re.compile(r"secret|passw|token|credential|private|access_?key|account_?key|api_?key", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?i)([\w-]*(?:secret|passw|token|credential|access_?key|account_?key|api_?key)[\w-]*)"  # a name
    r"(?:\s*[=:]\s*|\s+)(?![\"']?(?:\$|/|~|\.))[\"']?[^\s\"']{4,}"  # a value, no variable and no path
)
#: Values that are secrets by their form: an access key of AWS, a private key, a bearer token.
_FORM = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY|(?i:\bbearer\s+[\w.~+/-]{8,})")
_REMEDY = (
    "Set it in the environment of dsel (Slurm passes it on), or name a Secret (kubernetes: secrets). Text may refer to "
    "a variable or a file."
)
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


def refuse_secrets(value: Any, where: str) -> None:
    """Raise OptionError if text, or a value with such a name, looks like a secret. The value is not repeated.

    `where` is the key that the value has. Names of variables (``$NAME``) and of files are no secrets. The key
    `secrets` of a section lists names.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            place = f"{where}.{name}"
            plain = isinstance(inner, str | int | float) and not isinstance(inner, bool) and str(inner)[:1] != "$"
            if plain and is_secret_name(str(name)) and inner != "":
                raise OptionError(f"{place} looks like a secret, and a job file must not contain one.", _REMEDY)
            refuse_secrets(inner, place)
    elif isinstance(value, list):
        for inner in value:
            refuse_secrets(inner, where)
    elif isinstance(value, str):
        refuse_passwords(value, where)
        found = _ASSIGNED.search(value)
        if found or _FORM.search(value):
            what = f" ({found[1]})" if found else ""
            raise OptionError(
                f"{where} contains what looks like a secret{what}, and a job file must not contain one.", _REMEDY
            )
