"""Read YAML files that somebody else may have written: bounded, each key once, with errors that name the file."""

from __future__ import annotations

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
    text = _text(path, what)
    try:
        _require_small(text)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            if _size(node, {}) > _MOST_VALUES:
                raise OptionError(
                    f"its aliases expand to more than {_MOST_VALUES:,} values.", "Write the values without aliases."
                )
            _require_each_key_once(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except OptionError as error:
        raise OptionError(f"{path}: {error.what}", error.remedy) from error
    except RecursionError:
        raise OptionError(f"{path} is nested too deeply.", f"Check that it is a {what}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise OptionError(
            f"{path} is not YAML: {' '.join(str(error).split())}.", "Correct the place, or put the value in quotes."
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


def _size(node: Any, sizes: dict[int, int]) -> int:
    """Return how many values a node has with its aliases expanded. `sizes`: those known; 0 for a node being counted."""
    known = sizes.get(id(node))
    if known == 0:
        raise OptionError("an alias (*) refers to what contains it.", "Write the values without aliases.")
    if known is None:
        sizes[id(node)] = 0
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        pairs = [part for pair in inner for part in pair] if isinstance(node, yaml.MappingNode) else inner
        known = 1 + sum(_size(part, sizes) for part in pairs)
        sizes[id(node)] = known
    return known


def _require_each_key_once(node: Any) -> None:
    """Refuse a key that a mapping has twice: YAML would silently ignore the first one."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise OptionError(
                        f"the key {key.value!r} is in line {lines[key.value]} and again in line {line}.", "Keep one."
                    )
                lines[key.value] = line
            _require_each_key_once(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _require_each_key_once(value)
