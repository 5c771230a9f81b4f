"""What a table is to the rest of this package: names and types of columns, and record batches in order.

Text in tables: the words that stand for a missing value, and numbers that are written as text.

The columns of a table: which of them are X, Y, the sample labels and the weights.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import suggest
from dsel.data.formats.source import SourceOptions
from dsel.errors import DataError, OptionError

#: In place of columns, `categorical` may say that dsel decides.
AUTO: Final = "auto"


@dataclass(frozen=True)
class TableColumns:
    """What the columns of a table are, by position. X has all columns that are nothing else, in the same order."""

    features: list[int]
    targets: list[int]
    index: int | None
    weight: int | None
    categorical: frozenset[int] = frozenset()
    auto: bool = False

    @classmethod
    def of(cls, names: Sequence[str], options: SourceOptions, where: str) -> TableColumns:
        """Find the columns that the options name.

        Raises OptionError for a column that does not exist, with suggestions, or that is named twice; DataError if no
        column is left for X.
        """
        targets = [_position(names, column, "target", where) for column in _split(options.target, names)]
        dropped = [_position(names, column, "drop", where) for column in _split(options.drop, names)]
        index = None if options.index is None else _position(names, options.index, "index", where)
        weight = None if options.weight is None else _position(names, options.weight, "weight", where)
        taken = [*targets, *dropped, *(column for column in (index, weight) if column is not None)]
        for i, column in enumerate(taken):
            if column in taken[:i]:
                raise OptionError(f"{where}: column {names[column]!r} is given twice.", "Give it once.")
        features = [i for i in range(len(names)) if i not in set(taken)]
        if not features:
            raise DataError(f"{where} has no column left for X.", "Name fewer columns as targets, index or drop.")
        listed = _split(options.categorical, names)
        auto = AUTO in listed and AUTO not in names
        named = [column for column in listed if not (auto and column == AUTO)]
        categorical = frozenset(_position(names, column, "categorical", where) for column in named)
        for column in categorical - {*features, *targets}:
            raise OptionError(
                f"categorical={names[column]!r}: that column of {where} is no feature and no target.",
                "Name it under one option only.",
            )
        return cls(features, targets, index, weight, categorical, auto)

    @property
    def used(self) -> list[int]:
        """The columns that are read, in the order of the table."""
        single = [column for column in (self.index, self.weight) if column is not None]
        return sorted([*self.features, *self.targets, *single])


def _split(columns: Sequence[str | int], names: Sequence[str]) -> list[str | int]:
    """Return columns; text that is no name but a list of them, such as a,b, becomes several."""
    found: list[str | int] = []
    for column in columns:
        is_list = isinstance(column, str) and column not in names and "," in column
        found += [part.strip() for part in column.split(",")] if is_list else [column]  # type: ignore[union-attr]
    return found


def _position(names: Sequence[str], column: str | int, option: str, where: str) -> int:
    if isinstance(column, str) and column in names:
        return list(names).index(column)
    try:
        index = int(column)
    except ValueError:
        index = len(names)
    if -len(names) <= index < len(names):
        return index % len(names)
    raise OptionError(
        f"{option}={column!r}: {where} has {len(names)} columns and none of that name or index.",
        suggest(str(column), names),
    )


#: A record batch has about this many bytes of numbers.
BATCH_BYTES: Final = 2_000_000


def rows_of_batch(columns: Sequence[int]) -> int:
    """Return how many rows of these columns have about `BATCH_BYTES` bytes."""
    return max(1, BATCH_BYTES // (8 * max(1, len(columns))))


def from_row(batches: Iterable[Any], start: int) -> Iterator[Any]:
    """Yield record batches without their first `start` rows."""
    for batch in batches:
        cut = min(start, batch.num_rows)
        start -= cut
        if cut < batch.num_rows:
            yield batch.slice(cut) if cut else batch


@dataclass(frozen=True)
class Remedies:
    """What messages advise for columns that cannot be used as they are."""

    drop: str
    days: str
    levels: str
    too_many: str
    mixed: str


#: An ingest has an option for each remedy.
IN_INGEST: Final = Remedies(
    drop="name it under drop or index",
    days="Ask for numbers with dates=days",
    levels=(
        "Name it under categorical to have a column of zeros and ones for each value, under index if it labels the "
        "samples, or under drop"
    ),
    too_many="Name it under drop, or under index if it labels the samples",
    mixed=(
        "Correct them, or give words for missing values under na; if the column holds categories, name it under "
        "categorical"
    ),
)
#: A frame in memory is changed by its owner.
IN_MEMORY: Final = Remedies(
    drop="leave the column out",
    days='Ask for numbers with dates="days"',
    levels="Make it a category to have a column of zeros and ones for each value, or leave it out",
    too_many="Leave it out, or make it the index if it labels the samples",
    mixed="Correct them, or make the column a category",
)


class Table(ABC):
    """A table that is read as record batches of pyarrow, in the order of its rows.

    Attributes
    ----------
    name : str
        The name of the file, recorded in the store.
    where : str
        What messages call the table.
    names : list of str
        The names of the columns.
    types : list of pyarrow.DataType
        Their types.
    rows : int, optional
        The number of rows, if it is known before the table is read.
    index : str, optional
        The column that holds the sample labels if no option names one.
    is_text : bool
        Whether a column of text may hold numbers, as in a text file whose types are guessed. The option `na` says so,
        too.
    whole : frozenset of int
        The columns whose first values are whole numbers, and that are read as floats.
    remedies : Remedies
        What messages advise.
    hint : str
        What they advise where an option names a column that does not exist.
    """

    name: str
    where: str
    names: list[str]
    types: list[Any]
    rows: int | None = None
    index: str | None = None
    is_text: bool = False
    whole: frozenset[int] = frozenset()
    remedies: Remedies = IN_INGEST
    hint: str = ""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the values depend on, as JSON: two equal identities mean equal values."""

    @abstractmethod
    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        """Yield record batches of these columns, in the order asked for, from row `start` on.

        Raises
        ------
        pyarrow.ArrowInvalid, OSError
            If the table cannot be read. `relax` says whether it can be read in another way.
        """

    def prepare(self, roles: TableColumns) -> None:
        """Take note of what the columns are, before the table is read."""
        return

    def relax(self, error: Exception) -> bool:
        """Return whether the table has changed how it is read, so that another attempt may succeed after `error`."""
        return False

    def progress(self, rows: int) -> tuple[int, int]:
        """Return how much of the table has been read after `rows` rows, and the total in the same unit."""
        return rows, self.rows or 0

    def problems(self) -> list[str]:
        """Return what is wrong with the rows themselves, after all of them were read: a sentence for each."""
        return []


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

    if decimal != ".":  # a point is then no decimal mark: 1.234 may be 1234
        text = pc.replace_substring(pc.replace_substring(text, ".", ".."), decimal, ".", max_replacements=1)
    try:
        return _values(text.cast(pa.float64())), np.zeros(len(text), bool)
    except pa.ArrowInvalid:
        is_number = pc.fill_null(pc.match_substring_regex(text, _NUMBER), True)
        kept = pc.if_else(is_number, text, pa.scalar(None, text.type))
    bad = ~np.asarray(is_number.to_numpy(zero_copy_only=False), bool)
    try:
        return _values(pc.replace_substring_regex(kept, r"^\+", "").cast(pa.float64())), bad
    except pa.ArrowInvalid:  # a number that float64 does not have, such as 1e999
        return np.array([np.nan if v is None else float(v) for v in kept.to_pylist()], np.float64), bad


#: Numbers as people write them, which are text here, and what to do about them.
_WRITTEN: Final = {
    r"[+-]?[0-9]+([.,][0-9]+)? *%": "If these are percentages, write them without the sign %",
    r"[+-]?[0-9]*(,[0-9]+)+(\.[0-9]+)?": (
        "If a comma marks thousands, write the numbers without it; if it is the decimal mark, decimal=',' reads it in "
        "text files"
    ),
    r"[+-]?[0-9]{1,3}([. '\u2019\u00a0\u202f][0-9]{3})+([.,][0-9]+)?": (
        "If these are numbers, write them without marks of thousands"
    ),
}


def written_number(value: str) -> str:
    """Return what to do with text that is a number as people write it, with a space before, or nothing."""
    found = (remedy for form, remedy in _WRITTEN.items() if re.fullmatch(form, value.strip()))
    return next((f" {remedy}." for remedy in found), "")


#: A number of 16 digits or more, not counting a fraction of zeros.
_LONG: Final = r"^ *[+-]?[0-9]{16,}([^0-9eE][0-9]*[1-9][0-9]*)? *$"


def has_long_numbers(text: Any) -> bool:
    """Return whether text has numbers with too many digits for float64."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(text, _LONG)).as_py())


def as_integers(text: Any) -> NDArray[np.int64] | None:
    """Return the values of text as int64, exactly; None if one of them is no integer or missing."""
    import pyarrow as pa

    try:
        values = text.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return None if values.null_count else np.asarray(values.to_numpy(zero_copy_only=False))


#: A date of ISO 8601, alone or with a time and a zone.
_DATE: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$"
)


def as_days(text: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return dates of ISO 8601 in text as days since 1970 in UTC, NaN for nulls, and where there is other text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    bad = ~_mask(pc.match_substring_regex(text, _DATE), True)
    is_zoned = _mask(pc.match_substring_regex(text, r"(Z|[+-][0-9]{2}:?[0-9]{2})$"), False) & _mask(
        pc.match_substring(text, ":"), False
    )
    short = pc.replace_substring_regex(text, r"([.][0-9]{6})[0-9]+", r"\1")
    days = np.full(len(text), np.nan)
    for kind, rows in ((pa.timestamp("us"), ~is_zoned & ~bad), (pa.timestamp("us", "UTC"), is_zoned & ~bad)):
        try:
            days[rows] = _days(short.filter(pa.array(rows)).cast(kind))
        except pa.ArrowInvalid:  # a date that does not exist, such as 2022-02-30
            for i in np.flatnonzero(rows).tolist():
                try:
                    days[i] = _days(short.slice(i, 1).cast(kind))[0]
                except pa.ArrowInvalid:
                    bad[i] = True
    return days, bad


def _days(times: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    values = times.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False)
    return np.asarray((values - np.datetime64("1970-01-01")) / np.timedelta64(1, "D"), np.float64)


def _mask(is_true: Any, null: bool) -> NDArray[np.bool_]:
    return np.asarray(is_true.fill_null(null).to_numpy(zero_copy_only=False), bool)


def is_date(value: str) -> bool:
    """Return whether a value of text looks like a date of ISO 8601."""
    return re.match(_DATE, value.strip()) is not None


#: The words for true and false, in lower case.
TRUTH_WORDS: Final = frozenset(("false", "true"))


def _values(numbers: Any) -> NDArray[np.float64]:
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)
