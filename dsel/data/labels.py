"""Labels of columns: defaults, uniqueness, and the columns that a label or an index names.

Data of optional libraries, which bring their own labels, are recognised by the names of their types (`is_a`).
"""

from __future__ import annotations

import numbers
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel._lib.text import shorten, suggest
from dsel.errors import DataError, OptionError

#: Labels of columns or rows, as an array of str.
Labels = NDArray[np.object_]
#: How the text of a moment ends that is the begin of a day.
MIDNIGHT: Final = " 00:00:00"


def is_a(value: Any, package: str, name: str) -> bool:
    """Return whether a value is of the type of this name in this package, which is not imported, or of a subclass."""
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == package for kind in type(value).__mro__)


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame of any package, or of a subclass, such as obs of a view of AnnData."""
    return any(kind.__name__ == "DataFrame" for kind in type(value).__mro__) and hasattr(value, "columns")


def coordinate_values(coordinate: Any, *, whole: bool = True) -> list[Any]:
    """Return the values of a coordinate of xarray as Python objects; moments and durations as text, as pandas has it.

    whole: where all moments are at midnight, they are written as dates. Without it, a value has the same text in any
    slice of the coordinate.
    """
    values: list[Any] = coordinate.values.tolist()
    if coordinate.dtype.kind in "mM":  # their values are whole numbers
        return index_words(coordinate.to_index(), whole=whole)
    return values


def index_words(index: Iterable[Any], *, whole: bool = True) -> list[str]:
    """Return the labels of an index as text. whole: as for `coordinate_values`."""
    words = [str(label) for label in index]
    if whole and is_a(index, "pandas", "DatetimeIndex") and all(word.endswith(MIDNIGHT) for word in words):
        return [word.removesuffix(MIDNIGHT) for word in words]
    return words


def default_labels(prefix: str, count: int) -> list[str]:
    """Return `count` labels: x0, x1, ... for features, y0, y1, ... for targets."""
    return [f"{prefix}{i}" for i in range(count)]


def as_labels(names: Iterable[Any]) -> Labels:
    """Return labels as an array of str."""
    return np.array([str(name) for name in names], dtype=object)


def column_of(label: str, columns: Collection[str]) -> str:
    """Return the longest of these names of columns of which a label `name=class` is a class, or else the label."""
    names = (label[:i] for i in range(len(label) - 1, 0, -1) if label[i] == "=")
    return next((name for name in names if name in columns), label)


def by_source(counts: Iterable[int], labels: Iterable[Any], sources: Iterable[str] | None = None) -> dict[str, int]:
    """Return the counts that are not 0 by column; those of the columns that were made of a category count once.

    counts, labels: of each column. sources: for each the column of the frame that it was made from, if that differs.
    """
    labels = list(labels)
    named = zip(labels if sources is None else sources, counts, strict=True)
    return {str(name): int(count) for name, count in named if count}


def of_means(counts: Mapping[str, int], rows: int, labels: Iterable[str]) -> list[str]:
    """Return a note on missing values that means replace, if there are any.

    counts: by the column of the frame. labels: of the columns, which have no label of a category.
    """
    if not counts:
        return []
    shown = shorten(f"{count} of {rows} in {name!r}" for name, count in counts.items())
    shares = "; a row without a category has the share of each value in its indicator columns"
    return [f"missing values became the mean of their column: {shown}{'' if counts.keys() <= set(labels) else shares}"]


def require_unique(labels: Sequence[str], what: str, where: str, remedy: str) -> None:
    """Raise DataError unless all `labels` differ; it names the repeated ones and how often they occur."""
    if len(set(labels)) == len(labels):
        return
    repeated = [(label, times) for label, times in Counter(labels).most_common() if times > 1]
    shown = shorten(f"{label!r} ({times} times)" for label, times in repeated)
    occur = " occurs" if len(repeated) == 1 else "s occur"
    raise DataError(f"{where}: {len(repeated)} {what} label{occur} more than once: {shown}.", remedy)


def format_labels(labels: Labels, indices: NDArray[np.int64] | Sequence[int]) -> str:
    """Return the labels of the first columns, and how many more there are."""
    return shorten(str(labels[i]) for i in indices)


def column_list(wanted: Any, argument: str) -> tuple[Any, ...]:
    """Return the columns that an argument lists. Raises OptionError for a single label or number."""
    try:
        if not isinstance(wanted, str | bytes):
            return tuple(wanted)
    except TypeError:
        pass
    raise OptionError(f"{argument} is {wanted!r}.", f"Give a list of labels or indices, such as [{wanted!r}].")


def resolve_labels(
    wanted: Sequence[str | int], labels: Labels, what: str, argument: str, groups: Iterable[str] = ()
) -> NDArray[np.int64]:
    """Return the indices of columns given by label or by index from 0, in the order given.

    groups: names of groups that the argument may have, for suggestions. Raises OptionError for a column that does not
    exist, with suggestions, and for one that is given twice.
    """
    columns = column_list(wanted, argument)
    named = any(isinstance(column, str) for column in columns)
    by_label = {str(label): i for i, label in enumerate(labels)} if named else {}
    found = []
    for column in columns:
        if isinstance(column, bool) or not isinstance(column, str | numbers.Integral):
            raise OptionError(f"{argument}: {column!r} names no {what}.", "Give its label, or its index from 0.")
        if isinstance(column, str) and column in by_label:
            found.append(by_label[column])
        elif not isinstance(column, str) and 0 <= int(column) < len(labels):
            found.append(int(column))
        else:
            hint = f"Indices go from 0 to {len(labels) - 1}."
            if isinstance(column, str):
                hint = suggest(column, [*groups, *by_label], closest=3, listed=8)
            raise OptionError(f"{argument}: there is no {what} {column!r} among {len(labels)}.", hint)
    if len(set(found)) < len(found):
        raise OptionError(f"{argument}: a {what} is named twice in {list(wanted)}.")
    return np.asarray(found, np.int64)


def target_places(targets: Sequence[str | int], labels: Labels) -> NDArray[np.int64]:
    """Return the columns of Y in ascending order, as they are read."""
    if not targets:
        raise OptionError("targets is empty.", "Name at least one, or leave it out to use all.")
    return np.sort(resolve_labels(targets, labels, "target", "targets"))
