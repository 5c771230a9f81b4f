"""What may be asked of `dsel.ingest` and `dsel.append`: one declaration for Python, the commands and the formats.

A new option is a field and a key of the keywords here, and the code that uses it. The signatures, the documentation and
the command-line options follow. The command line reads this module when it starts, so it imports nothing large.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, TypeVar

from dsel._lib.text import suggest, without_pydantic_prefix
from dsel.errors import OptionError

if TYPE_CHECKING:
    from dsel.storage.paths import AnyPath
else:
    AnyPath = Any

#: Columns by name or position: one or several.
Columns = str | int | Sequence[str | int]
#: Called with what is done and the total.
Progress = Callable[[int, int], None]
#: What is done about missing values: they stay as NaN; they are refused; their rows are left out; they become the mean
#: of their column.
Missing = Literal["keep", "refuse", "rows", "mean"]
#: Dates are refused, or become numbers.
Dates = Literal["refuse", "days"]

#: The option that stores record and users do not give.
_INTERNAL = "first_column"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _option(default: Any, text: str, *names: str, **limits: Any) -> Any:
    """Return a field that is a command-line option, with its help, its names and its limits."""
    return field(default=default, metadata={"help": text, "names": names, "limits": limits})


@dataclass(frozen=True)
class SourceOptions:
    """Options of `dsel.ingest` that say which parts of a file are what. `dsel.append` takes the same ones.

    Parameters
    ----------
    target : str, int or sequence of them
        The columns of a table that become Y, by name or position; the arrays or variables of other files; the columns
        of obs of AnnData. Text becomes one column for each class.
    index : str or int, optional
        The column, array or variable with the sample labels.
    weight : str, int or array, optional
        The weights of the samples: a column, array or variable, or for .npy a second file. For data in memory also an
        array.
    drop : str, int or sequence of them
        The columns that are not stored.
    categorical : str, int or sequence of them
        The columns that become one column of zeros and ones for each value, with labels such as ``colour=red``.
        "auto" stands for all columns of text with at most 50 values. Columns whose type says that they are categories
        need not be named.
    dates : {"refuse", "days"}
        Columns of dates and times are refused, or become numbers: days since the beginning of 1970.
    missing : {"keep", "refuse", "rows", "mean"}
        Missing values are stored as NaN; are refused; their rows are left out; become the mean of their column,
        weighted where rows have weights. A format may use it to report them early.
    separator, decimal : str, optional
        The separator and the decimal mark of a text file; by default those of the suffix, and a point.
    header : bool, optional
        Whether the first line of a text file holds names. By default it should, and a line of numbers is refused.
    na : str or sequence of str
        More words for a missing value in the text of a table, next to NA, NaN, null, None, ? and an empty field. Of
        Parquet, Arrow and frames, all text is then read as that of a text file: numbers in it are numbers.
    variable : str, optional
        The array or variable that becomes X, if a file has several.
    dimension : str, optional
        The dimension of that variable along which the samples are.
    y : str, path, array, Series or DataFrame, optional
        For .npy: a second .npy file with the targets. For data in memory: the targets, as in `dsel.select`.
    dtype : str, optional
        The dtype of X. By default that of the source, float64 for text.
    scanned : callable, optional
        Called as ``scanned(done, total)`` while a source is examined before it is written, in bytes or rows. A total
        of 0 is unknown.
    first_column : int, optional
        The number of the first column, where an append must follow the first file of a store. By default 0 if there is
        a column 0, else 1. Only stores record it.
    """

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True, "revalidate_instances": "always"}

    target: tuple[str | int, ...] = _option((), "Column, array or variable that becomes a target; repeatable.")
    index: str | int | None = _option(None, "Column that labels the samples.")
    weight: str | int | None = _option(None, "Column or array with weights of the rows; for .npy, a second file.")
    drop: tuple[str | int, ...] = _option((), "Of tables: columns that are not stored; a list a,b or repeated.")
    categorical: tuple[str | int, ...] = _option(
        (), "Of tables: columns that become one column for each value, or auto; a list a,b or repeated."
    )
    dates: Dates = _option("refuse", "Of tables: dates and times are refused, or become days since 1970 as numbers.")  # noqa: RUF009
    missing: Missing = _option("keep", "Missing values: keep as NaN, refuse, leave out the rows, fill in the mean.")  # noqa: RUF009
    separator: str | None = _option(None, "Of text files: what is between the fields, one character or tab.")
    decimal: str | None = _option(None, "Of text files: the decimal mark.")
    header: bool | None = _option(None, "Of text files: whether the first line holds names.", "--header/--no-header")
    na: tuple[str, ...] = _option((), "Of tables: another word for a missing value in text; repeatable.")
    variable: str | None = _option(None, "Of files with several arrays: that which becomes X.")
    dimension: str | None = _option(None, "Of NetCDF and Zarr: the dimension along which the samples are.")
    y: AnyPath | None = _option(None, "For .npy: a second file with the targets.")  # noqa: RUF009
    dtype: str | None = _option(None, "dtype of X; by default that of the source.")
    scanned: Progress | None = field(default=None, compare=False)
    first_column: int | None = None

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return the options with these values, of which None stands for the default. Errors: OptionError."""
        from pydantic import TypeAdapter, ValidationError

        from dsel.storage.paths import as_path

        values = {name: value for name, value in values.items() if value is not None}
        known = [option.name for option in fields(cls)]
        if unknown := sorted(values.keys() - set(known)):
            raise OptionError(f"{unknown[0]} is no option of ingestion.", suggest(unknown[0], known))
        lists = {option.name for option in fields(cls) if option.default == ()} & values.keys()
        values |= {name: _listed(values[name]) for name in lists}
        if "y" in values:
            values["y"] = as_path(values["y"])
        if "dtype" in values and not isinstance(values["dtype"], str):
            values["dtype"] = values["dtype"].__name__  # of a type such as numpy.float32
        try:
            return TypeAdapter(cls).validate_python(cls(**values))
        except ValidationError as error:
            first = error.errors()[0]
            what = "is not known" if first["type"] == "literal_error" else "is of another type"
            raise OptionError(
                f"{first['loc'][0]}={first['input']!r} {what}.", f"{without_pydantic_prefix(first['msg'])}."
            ) from None

    def recorded(self) -> dict[str, Any]:
        """Return the options that an append takes over, where they differ from their defaults, as JSON."""
        changed = {o.name: getattr(self, o.name) for o in fields(SourceOptions) if getattr(self, o.name) != o.default}
        return {name: value for name, value in changed.items() if name not in ("y", "scanned")}


@dataclass(frozen=True)
class IngestRequest(SourceOptions):
    """What `dsel.ingest` takes: which parts of a source are what, and how the store is written.

    Parameters
    ----------
    compression : {"none", "zstd", "lz4"}
        How chunks are compressed.
    worker_memory : int, optional
        The memory of a worker in bytes, for which the chunks are chosen. 1 GiB by default.
    chunks : tuple of int, optional
        Rows and columns of a chunk of X.
    chunk_rows : int, optional
        Rows of a chunk, even if the source has fewer: for a small store to which `dsel.append` will add many rows.
    overwrite : bool
        Whether an existing store is replaced.
    progress : callable, optional
        Called as ``progress(rows_done, rows)`` after each row of chunks.
    """

    compression: str = _option("none", "none, zstd or lz4.")
    worker_memory: int | None = None
    chunks: Any = None
    chunk_rows: int | None = _option(None, "Rows of a chunk, for a small store that dsel append will let grow.", min=1)
    overwrite: bool = _option(False, "Replace the store if it exists.", "--overwrite")
    progress: Progress | None = field(default=None, compare=False)


class SourceKeywords(TypedDict, total=False):
    """The options of a source as keywords, for type checkers. In an append, None stands for that of the ingest."""

    target: Columns | None
    index: str | int | None
    weight: Any
    drop: Columns | None
    categorical: Columns | None
    dates: Dates | None
    missing: Missing | None
    separator: str | None
    decimal: str | None
    header: bool | None
    na: str | Sequence[str] | None
    variable: str | None
    dimension: str | None
    y: Any
    dtype: str | None
    scanned: Progress | None


class IngestKeywords(SourceKeywords, total=False):
    """The options of an ingest as keywords."""

    compression: str
    worker_memory: int | None
    chunks: tuple[int, int] | None
    chunk_rows: int | None
    overwrite: bool
    progress: Progress | None


def with_options(model: type[SourceOptions], *, given: bool = False) -> Callable[[_Function], _Function]:
    """Give a function the options of a model as parameters and in its documentation, in place of its ``**options``.

    With `given`, an option that is not given is None, and the documentation names the options only.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = [
            inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=None if given else o.default)
            for o in fields(model) if o.name != _INTERNAL
        ]  # fmt: skip
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        text = ", ".join(o.name for o in options) if given else _documented(model)
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace("**options", text)
        return function

    return decorate


def _documented(model: type[SourceOptions]) -> str:
    """Return what the docstrings of a model and of those that it extends say about the options."""
    texts = [inspect.cleandoc(kind.__doc__ or "").partition("-\n")[2] for kind in reversed(model.__mro__[:-1])]
    return "\n".join(text.partition(f"{_INTERNAL} :")[0].strip() for text in texts)


def _listed(value: Any) -> tuple[Any, ...]:
    """Return columns or words that were given as one or several."""
    return (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
