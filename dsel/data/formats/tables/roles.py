"""The columns of a table: which of them are X, Y, the sample labels and the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dsel._lib.text import suggest
from dsel.data.formats.base import SourceOptions
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
