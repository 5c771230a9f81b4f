"""Comma- or tab-separated text, also compressed, read by pyarrow.csv a few megabytes at a time.

The types of the columns are guessed from the first block, and the columns are parsed as these types, which is fast. If
a later value does not fit, the table is read again with every column as text, so that all such values are found.

A quoted field may contain the separator and line breaks. Blank lines are skipped. An empty field, NA, N/A, NaN, null,
None and ? are missing values.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from dsel._lib.text import shorten
from dsel.data.formats.source import Format, SourceOptions, file_identity
from dsel.data.formats.tables.scan import is_date_type
from dsel.data.formats.tables.source import TableSource
from dsel.data.formats.tables.table import Table, TableColumns, from_row, has_long_numbers, missing_words
from dsel.data.labels import default_labels, require_unique
from dsel.errors import DataError, OptionError
from dsel.storage.paths import AnyPath, stat

#: Bytes that pyarrow reads at a time. It holds up to 32 such blocks. A block of few rows is slow to parse.
BLOCK_BYTES: Final = 1 << 17
WIDE_BLOCK_BYTES: Final = 1 << 23
#: With this many descending numbers, the first line has names rather than values.
MANY_NAMES: Final = 8
#: The largest number of bytes in a line.
LONGEST_LINE: Final = 1 << 28

_NO_NUMBERS: Final = "With threads, wrong lines have no numbers."
_CODECS: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_SEPARATORS: Final = {"tab": "\t", "\\t": "\t", "space": " "}


class DelimitedTable(Table):
    """A table in text. `separator` is that of the format, unless the options give another one."""

    is_text = True

    def __init__(self, path: AnyPath, options: SourceOptions, separator: str) -> None:
        self.name, self.where, self._path = path.name, str(path), path
        given = options.separator or separator
        self._separator = _SEPARATORS.get(given, given)
        self._decimal = options.decimal or "."
        for option, value in (("separator", self._separator), ("decimal", self._decimal)):
            if len(value) != 1 or not value.isascii() or value in '"\r\n':
                raise OptionError(f"{option}={value!r} is not one character.", "Give one, such as ';' or tab.")
        if self._separator == self._decimal:
            raise OptionError(f"separator and decimal are both {self._decimal!r}.", "Give two different characters.")
        self._options, self._block, self._position = options, BLOCK_BYTES, 0
        self._wrong_lines: list[str] = []
        self._threads = True
        schema = self._schema()
        self._raw_names = list(schema.names)
        self.names = _names(self._raw_names, options.header, self.where, self._separator)
        self.hint = _separator_hint(self.names, self._separator)
        self.types = list(schema.types)
        self._block = max(self._block, min(WIDE_BLOCK_BYTES, 800 * len(self.names)))
        self._asked_integers = options.dtype is not None and "int" in options.dtype

    def identity(self) -> dict[str, Any]:
        return {"files": [file_identity(self._path)], "reading": [self._separator, self._options.header]}

    def prepare(self, roles: TableColumns) -> None:
        """Choose how each column is parsed: numbers as float64, unless integers are asked for."""
        import pyarrow as pa
        import pyarrow.types as types

        if "" in (self.names[i] for i in (*roles.features, *roles.targets)):
            raise DataError(
                f"{self.where} has a column without a name, as pandas writes an index.",
                "If it contains sample labels, give index=0 (its position); otherwise name it.",
            )
        words = {*roles.categorical, *([] if roles.index is None else [roles.index])}
        features = set(roles.features)
        self.whole = frozenset(i for i, kind in enumerate(self.types) if types.is_integer(kind)) | self._long_numbers()
        for i, kind in enumerate(self.types):
            is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_null(kind)
            if i in words:
                self.types[i] = pa.string()
            elif self._options.dates == "days" and is_date_type(kind):
                self.types[i] = pa.string()  # so that a value that is no date does not stop the reading
            elif is_number:
                exact = self._asked_integers and i in features and types.is_integer(kind)
                self.types[i] = pa.int64() if exact else pa.float64()

    def batches(self, columns: Sequence[int], start: int) -> Iterator[Any]:
        import pyarrow.types as types
        from pyarrow import ArrowInvalid, string

        self._wrong_lines.clear()
        kinds = {i: string() if types.is_temporal(self.types[i]) else self.types[i] for i in columns}
        names = self._raw_names
        convert = self._conversion(
            include_columns=[names[i] for i in columns], column_types={names[i]: kind for i, kind in kinds.items()}
        )
        with _streams(self._path) as (raw, stream), self._reader(stream, convert) as reader:
            for batch in from_row(reader, start):
                self._position = raw.tell()
                yield batch
        if self._wrong_lines and self._threads:
            raise ArrowInvalid(_NO_NUMBERS)

    def relax(self, error: Exception) -> bool:
        """Read every column as text after a value that is not of the guessed type, and longer lines if needed."""
        import pyarrow as pa

        said = str(error)
        if said == _NO_NUMBERS:
            self._threads = False
            return True
        if "UTF8" in said or "UTF-8" in said:
            raise DataError(f"{self.where} is not UTF-8 text: {said}.", "Convert it to UTF-8.") from error
        if "straddling" in said and self._block < LONGEST_LINE:
            self._block *= 8
            return True
        if "conversion error" in said and not all(kind == pa.string() for kind in self.types):
            self.types = [pa.string()] * len(self.types)
            return True
        if "straddling" in said:
            raise DataError(
                f"{self.where} has a line of more than {LONGEST_LINE >> 20} MiB.", "Close the quotes that are open."
            ) from error
        return False

    def progress(self, rows: int) -> tuple[int, int]:
        return self._position, stat(self._path).size

    def problems(self) -> list[str]:
        if not self._wrong_lines:
            return []
        return [f"{shorten(self._wrong_lines)}. Correct these lines, or the separator."]

    def _schema(self) -> Any:
        """Return the names of the columns, and their types as guessed from the first block."""
        import pyarrow as pa

        convert = self._conversion()
        with _streams(self._path) as (_, stream):
            start = bytes(stream.read(BLOCK_BYTES))
        try:
            codecs.getincrementaldecoder("utf-8")().decode(start)
        except UnicodeDecodeError as error:
            raise DataError(f"{self.where} is not UTF-8 text: {error}.", "Convert it to UTF-8.") from error
        while True:
            try:
                with _streams(self._path) as (_, stream), self._reader(stream, convert) as reader:
                    return reader.schema
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                if "Empty CSV" in str(error):
                    raise DataError(f"{self.where} has no header line.", "Put the column names into it.") from error
                self.types = []
                if not self.relax(error):
                    raise DataError(f"{self.where} is not a table in text: {error}.", "Check the file.") from error

    def _long_numbers(self) -> frozenset[int]:
        """Return which columns, guessed as floats, have numbers of many digits in the first block."""
        import pyarrow.types as types
        from pyarrow import string

        floats = [i for i, kind in enumerate(self.types) if types.is_floating(kind)]
        names = [self._raw_names[i] for i in floats]
        if not floats:
            return frozenset()
        convert = self._conversion(include_columns=names, column_types=dict.fromkeys(names, string()))
        with _streams(self._path) as (_, stream), self._reader(stream, convert) as reader:
            first = next(reader, None)
        columns = [] if first is None else first.columns
        return frozenset(i for i, column in zip(floats, columns, strict=False) if has_long_numbers(column))

    def _conversion(self, **more: Any) -> Any:
        from pyarrow import csv

        words = missing_words(self._options.na)
        return csv.ConvertOptions(null_values=words, strings_can_be_null=True, decimal_point=self._decimal, **more)

    def _reader(self, stream: Any, convert: Any) -> Any:
        from pyarrow import csv

        read = csv.ReadOptions(
            use_threads=self._threads, block_size=self._block, autogenerate_column_names=self._options.header is False
        )
        parse = csv.ParseOptions(
            delimiter=self._separator, newlines_in_values=True, invalid_row_handler=self._wrong_line
        )
        return csv.open_csv(stream, read, parse, convert)

    def _wrong_line(self, row: Any) -> str:
        if row.text.strip():
            self._wrong_lines.append(
                f"line {row.number} has {row.actual_columns} fields and the header has {row.expected_columns}"
                if len(self._wrong_lines) < 100
                else ""
            )
        return "skip"


@contextmanager
def _streams(path: AnyPath) -> Iterator[tuple[Any, Any]]:
    """Yield the file as it is stored, and its text, which is the same unless it is compressed."""
    import pyarrow as pa

    codec = _CODECS.get(path.suffix.lower())
    with ExitStack() as stack:
        if isinstance(path, Path):
            raw: Any = stack.enter_context(pa.OSFile(str(path)))
        else:
            raw = stack.enter_context(pa.PythonFile(stack.enter_context(path.open("rb")), "r"))
        yield raw, raw if codec is None else stack.enter_context(pa.CompressedInputStream(raw, codec))


def _names(raw: Sequence[str], header: bool | None, where: str, separator: str) -> list[str]:
    """Return the names of the columns. Raises DataError if the first line holds none, or the same twice."""
    if header is False:
        return default_labels("x", len(raw))
    names = [name.strip() for name in raw]
    if len(names) == 1 and (hint := _separator_hint(names, separator)):
        raise DataError(f"{where} has one column, named {names[0][:60]!r}.", hint)
    if header is None and _looks_like_data(names):
        raise DataError(
            f"The first line of {where} has numbers, not names: {shorten(names)}.",
            "If the table has no line of names, give header=False (--no-header); if these are names, header=True.",
        )
    require_unique(names, "column", where, "Give every column a unique name in the first line.")
    return names


def _separator_hint(names: Sequence[str], separator: str) -> str:
    """Return a sentence on another separator that the first name has, or nothing."""
    other = next((mark for mark in ";\t|," if mark != separator and mark in names[0]), None)
    shown = "tab" if other == "\t" else other
    return "" if other is None else f"If its fields are divided by {shown!r}, give it as separator."


def _looks_like_data(names: Sequence[str]) -> bool:
    """Return whether the names may be a row of data: all are numbers, or some are and they are in no order.

    Ascending numbers next to words are names, such as years or wavelengths. So are many descending ones.
    """
    numbers = [value for value in map(_number, names) if value is not None]
    steps = np.diff(numbers)
    in_order = bool((steps > 0).all()) or (len(numbers) >= MANY_NAMES and bool((steps < 0).all()))
    return bool(numbers) and (len(numbers) == len(names) or not in_order)


def _number(name: str) -> float | None:
    try:
        return float(name)
    except ValueError:
        return None


_TABLE = frozenset(
    ("target", "index", "weight", "drop", "categorical", "dates", "separator", "decimal", "header", "na")
)


def _format(name: str, suffix: str, separator: str) -> Format:
    suffixes = (suffix, *(suffix + packed for packed in _CODECS))
    return Format(
        name, suffixes, lambda path, options: TableSource(DelimitedTable(path, options, separator), options), _TABLE,
        "Name the target columns of the table instead (target).",
    )  # fmt: skip


CSV = _format("csv", ".csv", ",")
TSV = _format("tsv", ".tsv", "\t")
