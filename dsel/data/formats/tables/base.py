"""What a table is to the rest of this package: names and types of columns, and record batches in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from dsel.data.formats.tables.roles import TableColumns

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
        Whether a column of text may hold numbers, as in a text file whose types are guessed.
    """

    name: str
    where: str
    names: list[str]
    types: list[Any]
    rows: int | None = None
    index: str | None = None
    is_text: bool = False

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
