"""Read YAML files that somebody else may have written: bounded, each key once, with errors that name the file.

Job files, logs and manifests must not contain secrets: what looks like one is refused, and not repeated.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from dsel.errors import MissingInputError, OptionError

#: Values that a file may have once its aliases are expanded. A few lines of aliases of aliases make billions.
_MOST_VALUES = 100_000
#: Bytes that a file may have. A list of 100 000 columns has fewer.
_MOST_BYTES = 4 << 20
#: Levels of nesting that a file may have.
_MOST_LEVELS = 100
#: libyaml, where PyYAML was built with it, is ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path, what: str = "job file") -> Any:
    """Return the content of a YAML file.

    Parameters
    ----------
    path : Path
        The file.
    what : str
        What it is called in errors.

    Raises
    ------
    MissingInputError
        The file cannot be read.
    OptionError
        It is not YAML, has a key twice, or is too large or too deeply nested for what it should be.
    """
    return parse_yaml(_text(path, what), str(path), what)


def parse_yaml(text: str, where: str, what: str = "value") -> Any:
    """Return the content of YAML text. where: its place in errors. what, Raises: see `read_yaml`."""
    try:
        _require_small(text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _checked_size(node, {}) > _MOST_VALUES:
                raise OptionError(
                    f"its aliases expand to more than {_MOST_VALUES:,} values.", "Write the values without aliases."
                )
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except OptionError as error:
        raise OptionError(f"{where}: {error.what}", error.remedy) from error
    except RecursionError:
        raise OptionError(f"{where} is nested too deeply.", f"Check that it is a {what}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise OptionError(
            f"{where} is not YAML: {' '.join(str(error).split())}.", "Correct the place, or put the value in quotes."
        ) from error


def _text(path: Path, what: str) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for ever
            raise MissingInputError(f"The {what} {path} is not a file.", "Name a YAML file.")
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that form a loop
        remedy = f"Check the path of the {what}" + (", or write one with dsel init." if what == "job file" else ".")
        why = getattr(error, "strerror", None) or error
        raise MissingInputError(f"The {what} {path} cannot be read: {why}.", remedy) from error
    if len(content) > _MOST_BYTES:
        raise OptionError(f"{path} has more than {_MOST_BYTES >> 20} MiB.", f"Check that it is a {what}.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not a text file: {error}.", f"Name the {what} (YAML, in UTF-8).") from error


def _require_small(text: str) -> None:
    """Raise an error if the text has too many values or is nested too deeply. Reading stops where that shows."""
    values = depth = 0
    for event in yaml.parse(text, _LOADER):
        values += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if values > _MOST_VALUES:
            raise OptionError(f"it has more than {_MOST_VALUES:,} values.", "Write fewer values.")
        if depth > _MOST_LEVELS:
            raise RecursionError


def _checked_size(node: Any, sizes: dict[int, int]) -> int:
    """Return how many values a node has with its aliases expanded, and refuse a key that a mapping has twice.

    YAML would silently ignore the first one. `sizes`: those known; 0 for a node being counted.
    """
    known = sizes.get(id(node))
    if known == 0:
        raise OptionError("an alias (*) refers to what contains it.", "Write the values without aliases.")
    if known is None:
        sizes[id(node)] = 0
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            _require_each_key_once(node)
            inner = [part for pair in inner for part in pair]
        known = 1 + sum(_checked_size(part, sizes) for part in inner)
        sizes[id(node)] = known
    return known


def _require_each_key_once(mapping: Any) -> None:
    lines: dict[str, int] = {}
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            if key.value in lines:
                raise OptionError(
                    f"the key {key.value!r} is in line {lines[key.value]} and again in line {line}.", "Keep one."
                )
            lines[key.value] = line


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
