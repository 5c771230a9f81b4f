"""Read YAML files that somebody else may have written: bounded, each key once, with errors that name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dsel.errors import MissingInputError, OptionError

#: Values that a file may have once its aliases are expanded. A few lines of aliases of aliases make billions.
_MOST_VALUES = 100_000


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
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None and _size(node, {}) > _MOST_VALUES:
            raise OptionError(
                f"its aliases expand to more than {_MOST_VALUES:,} values.", "Write the values without aliases."
            )
        _require_each_key_once(node)
        return yaml.safe_load(text)
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
        return path.read_text(encoding="utf-8")
    except (OSError, RuntimeError) as error:  # RuntimeError: links that form a loop
        remedy = f"Check the path of the {what}" + (", or write one with dsel init." if what == "job file" else ".")
        why = getattr(error, "strerror", None) or error
        raise MissingInputError(f"The {what} {path} cannot be read: {why}.", remedy) from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not a text file: {error}.", f"Name the {what} (YAML, in UTF-8).") from error


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
