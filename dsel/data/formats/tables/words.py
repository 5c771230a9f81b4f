"""Text in tables: the words that stand for a missing value, and numbers that are written as text."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Words for a missing value, in lower case.
MISSING: Final = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "?"))

_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?([iI][nN][fF]([iI][nN][iI][tT][yY])?)$"


def missing_words(more: tuple[str, ...]) -> list[str]:
    """Return the words for a missing value as they may be written, and those in `more` exactly."""
    usual = {form for word in MISSING for form in (word, word.upper(), word.capitalize())}
    return sorted(usual | {"NaN", "#N/A", "N/A", *more})


def without_missing(text: Any, more: tuple[str, ...]) -> Any:
    """Return an Arrow array of text without spaces at the ends, and with nulls for the words for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    words = pa.array([*MISSING], text.type)
    is_missing = pc.or_(pc.is_in(pc.utf8_lower(text), words), pc.is_in(text, pa.array([*more], text.type)))
    return pc.if_else(is_missing, pa.scalar(None, text.type), text)


def as_numbers(text: Any, decimal: str = ".") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the values of text as float64, NaN for nulls, and where there is text that is no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if decimal != ".":
        text = pc.replace_substring(text, decimal, ".", max_replacements=1)
    try:
        return _values(text.cast(pa.float64())), np.zeros(len(text), bool)
    except pa.ArrowInvalid:
        is_number = pc.fill_null(pc.match_substring_regex(text, _NUMBER), True)
        kept = pc.if_else(is_number, text, pa.scalar(None, text.type))
    bad = ~_booleans(is_number)
    try:
        return _values(pc.replace_substring_regex(kept, r"^\+", "").cast(pa.float64())), bad
    except pa.ArrowInvalid:  # a number that float64 does not have, such as 1e999
        return np.array([np.nan if v is None else float(v) for v in kept.to_pylist()], np.float64), bad


def as_integers(text: Any) -> NDArray[np.int64] | None:
    """Return the values of text as int64, exactly; None if one of them is no integer or missing."""
    import pyarrow as pa

    try:
        values = text.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return None if values.null_count else np.asarray(values.to_numpy(zero_copy_only=False))


@cache
def truth_words() -> Any:
    """Return the words for true and false, in lower case, as an Arrow array."""
    import pyarrow as pa

    return pa.array(["false", "true"])


def _values(numbers: Any) -> NDArray[np.float64]:
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _booleans(mask: Any) -> NDArray[np.bool_]:
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)
