"""Common criteria for `dsel.select(..., criterion=...)`."""

from __future__ import annotations

import math
import numbers
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dsel.config.size_rule import RowSplit, check_split
from dsel.data.criterion_data import ColumnData
from dsel.errors import MissingExtraError, OptionError
from dsel.search.pareto.archive import Subset
from dsel.storage.json_files import checked_json, parse_checked_json
from dsel.storage.paths import as_path

_INSTALL = "pip install 'dsel[sklearn]'."


@dataclass(frozen=True)
class CrossValidated:
    """Minus the mean cross-validated score of a scikit-learn estimator, as a criterion to minimize.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn estimator. It gets the chosen columns of X as they are in the data, so put a scaler into a
        pipeline.
    folds : int or splitter
        Number of folds, or a splitter of scikit-learn. Give a shuffling splitter a `random_state`.
    scoring : str or callable, optional
        As for `sklearn.model_selection.cross_val_score`, where more is better. Default: the score of the estimator.
    split : {"random", "blocks", "forward"}
        With a number of folds: the default folds of scikit-learn, which are stratified for a classifier, and blocks of
        consecutive rows otherwise; such blocks; or a time series, where each block but the first is predicted from the
        blocks before it.
    row_groups : str or (m,) array, optional
        The group of each row. All rows of a group are in one fold. A store names a variable over its samples.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed.
    OptionError
        If the data have no targets.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> criterion = CrossValidated(Ridge(), folds=5)
    """

    estimator: Any
    folds: Any = 5
    scoring: Any = None
    split: RowSplit = "random"
    row_groups: Any = None

    def __post_init__(self) -> None:
        if find_spec("sklearn") is None:  # before a pass over the data, not after it
            raise MissingExtraError("CrossValidated needs scikit-learn, which is not installed.", _INSTALL)
        if not hasattr(self.estimator, "fit"):
            raise OptionError(f"CrossValidated: {self.estimator!r} is no estimator.", "Give one, such as Ridge().")
        try:
            check_split(self.split, 1, self.row_groups)
        except ValueError as error:
            raise OptionError(f"CrossValidated: {error}.") from error
        if self.split != "random" and not isinstance(self.folds, int):
            raise OptionError(f"CrossValidated: split {self.split} needs a number of folds, not a splitter.")

    def __call__(self, S: Subset, data: ColumnData) -> float:
        try:
            from sklearn.model_selection import cross_val_score
        except ImportError as error:
            raise MissingExtraError("scikit-learn is not installed.", _INSTALL) from error
        if not data.n_targets:
            raise OptionError("There are no targets to predict.", "Give Y.")
        Y = data.Y if data.n_targets > 1 else data.Y[:, 0]
        groups = None if self.row_groups is None else data.row_groups(self.row_groups)
        scores = cross_val_score(
            self.estimator, data.columns(S), Y, cv=self._splitter(), scoring=self.scoring, groups=groups,
            error_score="raise",
        )  # fmt: skip
        return -float(scores.mean())

    def _splitter(self) -> Any:
        """Return what scikit-learn divides the rows by."""
        from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit

        if not isinstance(self.folds, int):
            return self.folds
        if self.row_groups is not None:
            return GroupKFold(self.folds)
        splitters = {"blocks": KFold, "forward": TimeSeriesSplit}
        return splitters[self.split](self.folds) if self.split in splitters else self.folds


@dataclass(frozen=True)
class Remembered:
    """A criterion whose values are kept in a file, so that no later run evaluates the same subset again.

    Parameters
    ----------
    criterion : callable
        f(S) or f(S, data), as for `dsel.select`.
    path : str or Path
        The file, which need not exist. Workers that share it know the values of each other.
    name : str
        What the criterion is called in the file. By default the import path of a function, or what `repr` prints of
        an object. Give another name when the function has changed: its old values are then not used.

    Raises
    ------
    OptionError
        If the criterion has no name, such as a lambda, and none is given; or if the folder of the file does not exist.

    Notes
    -----
    Values are those of a name, of the data and of the chosen columns. Method, k and all other options may differ. The
    data of f(S, data) are told by the fingerprint of their store, or by a digest of arrays in memory. Those of f(S)
    cannot be told: use one file for each. `counts` of a result counts remembered values as evaluations.

    Examples
    --------
    >>> def criterion(S, data):
    ...     return float(abs(data.columns(S).sum(axis=1) - data.Y[:, 0]).max())
    >>> remembered = Remembered(criterion, "values.jsonl", name="largest error")
    """

    criterion: Callable[..., float]
    path: str | Path
    name: str = ""

    def __post_init__(self) -> None:
        f = self.criterion
        name = self.name or (f"{f.__module__}:{f.__qualname__}" if hasattr(f, "__qualname__") else repr(f))
        if not self.name and ("<" in name or " at 0x" in name):
            raise OptionError("Remembered: the criterion has no name to keep its values under.", "Give one, as name.")
        object.__setattr__(self, "name", name)
        place = as_path(self.path)
        if not isinstance(place, Path) or not place.absolute().parent.is_dir():
            raise OptionError(f"Remembered: {place} is not in a folder on disk.", "Name a file in one that exists.")
        object.__setattr__(self, "path", place.absolute())
        object.__setattr__(self, "__wrapped__", f)  # its signature says whether it takes data

    def __call__(self, S: Subset, *data: ColumnData) -> Any:
        key = self.name, "".join(one.identity for one in data), tuple(int(j) for j in S)
        values = _files.setdefault(str(self.path), _Values(Path(self.path)))
        found = values.get(key)
        if found is None:
            value: Any = self.criterion(S, *data)
            real = float(value) if isinstance(value, numbers.Real) else math.nan
            if real > -math.inf:  # the search raises an error for anything else
                values.add(key, real)
            return value
        return found


@dataclass
class _Values:
    """The values in a file, to which other processes may add lines at any time."""

    path: Path
    known: dict[tuple[str, str, Subset], float] = field(default_factory=dict)
    size: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def get(self, key: tuple[str, str, Subset]) -> float | None:
        """Return a value, or None if no process has written it yet."""
        with self.lock:
            if not self.path.exists() or self.path.stat().st_size < self.size:  # it was removed
                self.known, self.size = {}, 0
            if key not in self.known:
                self._read_more()
            return self.known.get(key)

    def add(self, key: tuple[str, str, Subset], value: float) -> None:
        """Append a value by one system call. What a killed process has left of a line stays a separate line."""
        name, data, S = key
        row = {"criterion": name, "data": data, "columns": S, "value": value if value < math.inf else None}
        with self.path.open("ab", buffering=0) as file:
            file.write(f"\n{checked_json(row)}\n".encode())

    def _read_more(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.size)
            lines = file.read()
        whole = lines.rfind(b"\n") + 1
        self.size += whole
        for line in lines[:whole].split(b"\n"):
            with suppress(ValueError, TypeError, KeyError):  # blank or damaged: the value is computed again
                row = parse_checked_json(line.decode())[0]
                value = math.inf if row["value"] is None else float(row["value"])
                self.known[row["criterion"], row["data"], tuple(row["columns"])] = value


#: The files that this process has read.
_files: dict[str, _Values] = {}
