"""What becomes of each column after the first reading: an encoder, or a problem with its remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dsel.data.formats.base import Missing
from dsel.data.formats.tables.encoding import Encoder, Number, OneHot
from dsel.data.formats.tables.roles import TableColumns
from dsel.data.formats.tables.scan import MOST_LEVELS, ColumnScan, Found, TableScan
from dsel.errors import DataError

#: With `categorical=auto`, text becomes columns only if it has at most this many different values.
AUTO_LEVELS: Final = 50
#: The number of problems that are listed.
MOST_PROBLEMS: Final = 50


@dataclass
class Encoders:
    """How the columns are stored."""

    features: list[Encoder] = field(default_factory=list)
    targets: list[Encoder] = field(default_factory=list)
    weight: Encoder | None = None


def choose_encoders(scan: TableScan, roles: TableColumns, where: str, missing: Missing) -> Encoders:
    """Return an encoder for each column. Raises DataError that lists all problems of all columns."""
    found, problems = Encoders(), list(scan.problems)
    for i in roles.used:
        if i == roles.index:
            continue
        column = scan.columns[i]
        role = "weight" if i == roles.weight else "target" if i in roles.targets else "feature"
        wrong = _problem(column, role, i in roles.categorical, roles.auto)
        problems += [wrong] if wrong else _value_problems(column, role, missing)
        if not wrong and role == "feature":
            found.features.append(_encoder(column))
        if not wrong and role == "weight":
            found.weight = _encoder(column)
    if problems:
        raise DataError(_listed(where, problems))
    found.targets = [_encoder(scan.columns[i]) for i in roles.targets]
    return found


def _encoder(column: ColumnScan) -> Encoder:
    is_number = column.kind in ("number", "truth") and not column.has_levels
    return Number(column) if is_number else OneHot.of(column)


def _problem(column: ColumnScan, role: str, is_named: bool, auto: bool) -> str | None:
    """Return why a column as a whole cannot be used, or None."""
    kind, name = column.kind, column.name
    if column.has_levels or kind in ("text", "category"):
        return _level_problem(column, role, is_named, auto)
    if kind in ("time", "other"):
        what = "dates or times" if kind == "time" else "no numbers"
        example = f", such as {column.values.value[:60]} in row {column.values.row}" if column.values.count else ""
        remedy = "Replace them by numbers, such as days since the first one" if kind == "time" else "Encode it"
        return f"column {name!r} holds {what} ({column.type}){example}. {remedy}, or name it under drop or index."
    return None


def _level_problem(column: ColumnScan, role: str, is_named: bool, auto: bool) -> str | None:
    name, count = column.name, len(column.levels)
    at = f"row {column.values.row}, column {name!r}: {column.values.value[:60]!r} is text"
    many = f"more than {MOST_LEVELS}" if column.has_more_levels else str(count)
    if role == "weight":
        return f"{at}. Weights are finite numbers >= 0."
    if column.no_numbers.count and column.numbers and not is_named and column.kind != "category":
        wrong = column.no_numbers
        return (
            f"row {wrong.row}, column {name!r}: {wrong.value[:60]!r} is not a number ({wrong.count} of "
            f"{column.values.count} values are not). Correct them, or give words for missing values under na; if the "
            "column holds categories, name it under categorical."
        )
    if column.has_more_levels:
        return (
            f"{at} with {many} different values, too many for a column each. "
            "Name it under drop, or under index if it labels the samples."
        )
    if is_named or role == "target" or column.kind == "category":
        return None if count else f"column {name!r} has no values. Name it under drop."
    if not column.no_numbers.count:
        return f"{at} ({many} different values), though it holds numbers only. Convert the column to numbers."
    if auto and count <= AUTO_LEVELS:
        return None
    return (
        f"{at} ({many} different values). Name it under categorical to have a column of zeros and ones for each "
        "value, under index if it labels the samples, or under drop."
    )


def _value_problems(column: ColumnScan, role: str, missing: Missing) -> list[str]:
    """Return what is wrong with single values of a column that can be used otherwise."""
    checks = [(column.infinite, "is infinite", "Correct it, or make it a missing value.")]
    if role == "weight":
        checks.append((column.negative, "is negative", "Weights are finite numbers >= 0."))
    if column.dtype is not None:
        checks.append((column.misfits, f"does not fit {column.dtype}", 'Give a wider dtype, such as dtype="float64".'))
        if column.dtype.kind in "iu" and column.missing.count:
            remedy = 'Give dtype="float64", or fill it in.'
            checks.append((column.missing, f"is missing, which {column.dtype} does not have", remedy))
            return [_sentence(column.name, *check) for check in checks if check[0].count]
    needs_all = role == "weight" or (role == "target" and missing == "mean")
    if column.missing.count and (missing == "refuse" or (needs_all and missing != "rows")):
        rows = "missing=rows leaves such rows out"
        remedy = f"Fill it in; {rows}." if needs_all else f"Fill it in; {rows}, missing=mean or keep admits them."
        checks.append((column.missing, "is missing", remedy))
    return [_sentence(column.name, *check) for check in checks if check[0].count]


def _sentence(name: str, found: Found, what: str, remedy: str) -> str:
    value = f"the value {found.value}" if found.value not in ("", "nan") else "the value"
    more = f", and {found.count - 1} more" if found.count > 1 else ""
    return f"row {found.row}, column {name!r}: {value} {what}{more}. {remedy}"


def _listed(where: str, problems: list[str]) -> str:
    if len(problems) == 1:
        return f"{where}: {problems[0]}"
    shown = problems[:MOST_PROBLEMS]
    if len(problems) > MOST_PROBLEMS:
        shown.append(f"and {len(problems) - MOST_PROBLEMS} more problems.")
    return "\n".join([f"{where} has {len(problems)} problems:", *(f"  - {problem}" for problem in shown)])
