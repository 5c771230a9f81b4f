"""Objectives for workers: as a file that they read once, named by the digest of its numbers, or by rows on demand.

On demand, the client computes each row once, and writes it to a file or sends it.

The client publishes the Gram rows that it has fetched in a folder. A worker opens the rows that its task lists, when a
search needs them, and keeps them. What is not published yet, it reports by `MissingInputs`. The client then makes a
pass over the data. So the traffic follows from the number of columns that enter a solution, not from the number of
iterations: a row is computed once, written once, and read at most once by each worker. Where the workers share no
folder, a worker reports every row that it does not have, and gets it with its next task.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from dsel._lib.damage import DamagedFileError, warn_of_damage
from dsel._lib.npz import pack_npz, read_npz
from dsel._lib.types import Floats, Ints
from dsel.errors import ClusterError, OutputError
from dsel.objective.dense import DenseObjective
from dsel.objective.kernels.layout import Partial
from dsel.objective.matrix_factor import InMemoryFactor
from dsel.objective.objective_interface import Objective
from dsel.objective.on_demand import OnDemandObjective
from dsel.storage.paths import AnyPath, make_folder, write_bytes

#: Objectives read in this process, by digest. They are large: only the last one is kept, no longer than its search.
_loaded: dict[str, DenseObjective] = {}
#: Of several threads that need an objective, one reads it, and the others wait.
_lock = threading.Lock()


@dataclass(frozen=True)
class ObjectiveFile:
    """The place of the arrays (.npz), and their digest."""

    place: AnyPath
    digest: str

    def load(self) -> DenseObjective:
        """Return the objective; the file is read on the first call in this process. Errors: ClusterError."""
        with _lock:
            found = _loaded.get(self.digest)
            if found is None:
                found = _from_arrays(read_arrays(self.place))
                _loaded.clear()
                _loaded[self.digest] = found
        return found


def unload(digest: str) -> None:
    """Release the memory of an objective that this process has read, if it has."""
    _loaded.pop(digest, None)  # without the lock: a worker calls this where it must not wait for a file


def write_arrays(place: AnyPath, arrays: dict[str, Any]) -> None:
    """Write arrays, completely or not at all, and their folder where it is missing. Errors: OutputError."""
    try:
        make_folder(place.parent)
        write_bytes(place, pack_npz(arrays))
    except OSError as error:
        raise OutputError(f"{place} cannot be written: {error.strerror}.", "Name another folder.") from error


def read_arrays(place: AnyPath) -> dict[str, Any]:
    """Return the arrays of a file that the client has written. Errors: ClusterError."""
    try:
        with place.open("rb") as file:
            return read_npz(file)
    except DamagedFileError as error:
        raise ClusterError(f"{place} is damaged: {error}.", "Start the same job again: it writes the file.") from error
    except OSError as error:
        raise ClusterError(
            f"A worker cannot read {place}: {error}.",
            "Put the folder of the result on a file system that the workers share, or set search_on: client.",
        ) from error


def save_objective(objective: Objective, folder: AnyPath) -> ObjectiveFile:
    """Write an objective, completely or not at all; the same objective is written once.

    M is written, too, where the searches use it. Errors: OutputError, and those of `ObjectPath` in object storage.
    """
    arrays = _to_arrays(objective)
    digest = _digest(arrays)
    place = folder / f"objective-{digest}.npz"
    if not _is_saved(place, digest):
        write_arrays(place, arrays)
    return ObjectiveFile(place.absolute(), digest)


def _is_saved(place: AnyPath, digest: str) -> bool:
    """Return whether an earlier run has left the file, and it is whole."""
    try:
        with place.open("rb") as file:
            if _digest(read_npz(file)) == digest:
                return True
        warn_of_damage(place, "it is written again", "its numbers are other ones")
    except FileNotFoundError:
        pass
    except (OSError, DamagedFileError) as error:
        warn_of_damage(place, "it is written again", error)
    return False


def _digest(arrays: dict[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=10)
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _to_arrays(objective: Objective) -> dict[str, Any]:
    arrays = {
        "K": objective.K, "columns": objective.columns, "scale": objective.scale,
        "included": np.asarray(objective.included, np.int64),
        "scalars": np.array([objective.c, objective.lam, objective.total, objective.tolerance]),
    }  # fmt: skip
    if objective.few_targets:
        return {**arrays, "cross": objective.cross}
    return {**arrays, "moments": objective.M}


def _from_arrays(arrays: dict[str, Any]) -> DenseObjective:
    c, lam, total, tolerance = (float(x) for x in arrays["scalars"])
    return DenseObjective(
        K=arrays["K"], cross=arrays.get("cross"), c=c, lam=lam, columns=arrays["columns"],
        included=tuple(int(j) for j in arrays["included"]), scale=arrays["scale"], total=total, tolerance=tolerance,
        moments=arrays.get("moments"),
    )  # fmt: skip


#: Bytes of rows that are sent with one task, and of coordinates that are sent once, at most.
_MOST_SENT = 64 << 20
#: Single entries that a worker keeps from one task to the next, at most.
_MOST_ENTRIES = 1 << 18


def _no_pairs() -> Ints:
    return np.empty((2, 0), np.int64)


@dataclass(frozen=True)
class NeededInputs:
    """What a search on a worker needs and the client has not published.

    Parameters
    ----------
    rows : tuple of int
        Local columns whose rows are needed.
    likely : tuple of int
        Local columns whose rows are likely to be needed next, the likeliest first.
    pairs : (2, pairs) array of int
        Local columns j and l of single entries that are needed.
    """

    rows: tuple[int, ...] = ()
    likely: tuple[int, ...] = ()
    pairs: Ints = field(default_factory=_no_pairs)


class MissingInputs(Exception):
    """Raised on a worker where a search needs rows or entries that it does not have."""

    def __init__(self, needed: NeededInputs) -> None:
        super().__init__("rows or entries of the Gram matrix are not on this worker")
        self.needed = needed


@dataclass(frozen=True)
class PublishedInputs:
    """What a task may use: the columns whose rows are published, and single entries.

    rows: local columns. pairs: (2, pairs) local columns j and l; values: (2, pairs) K_jl and M_jl. sent: rows of K, and
    of M where it is kept, that no file holds.
    """

    rows: tuple[int, ...]
    pairs: Ints = field(default_factory=_no_pairs)
    values: Floats = field(default_factory=lambda: np.empty((2, 0)))
    sent: dict[int, dict[str, Floats]] = field(default_factory=dict)

    def with_more(self, other: PublishedInputs) -> PublishedInputs:
        """Return the rows of the other inputs, and the entries of both."""
        pairs, values = np.hstack([self.pairs, other.pairs]), np.hstack([self.values, other.values])
        return PublishedInputs(other.rows, pairs, values, other.sent)


class RowsOnWorker(OnDemandObjective):
    """The objective on a worker. `use` names what is published."""

    _folder: AnyPath | None
    _published: frozenset[int]
    _entries: dict[tuple[int, int], Floats]

    def use(self, inputs: PublishedInputs) -> None:
        """Take note of what the client has published."""
        self._published = frozenset(inputs.rows)
        if len(self._entries) > _MOST_ENTRIES:
            self._entries = {}
        for (j, l), value in zip(inputs.pairs.T.tolist(), inputs.values.T, strict=True):
            self._entries[j, l] = value
        for j, rows in inputs.sent.items():
            self._hold(j, rows)

    def fetch_rows(self, S: Iterable[int], likely: Callable[[], Ints] | None = None) -> None:
        """Read the missing rows of the columns S. Errors: MissingInputs, ClusterError."""
        wanted = self.missing_rows(S)
        absent = [j for j in wanted if j not in self._published]
        for j in wanted:
            if j in self._published:
                self._load(j)
        if absent:
            coming = [] if likely is None else likely().tolist()
            likely_ones = tuple(j for j in coming if j not in self._published and j not in absent)
            raise MissingInputs(NeededInputs(tuple(absent), likely_ones))

    def _load(self, j: int) -> None:
        """Read a published row."""
        assert self._folder is not None
        self._hold(j, read_arrays(self._folder / f"{j}.npz"))

    def _hold(self, j: int, arrays: dict[str, Any]) -> None:
        """Keep a row, unless it is here."""
        if not self.missing_rows([j]):
            return
        self._store(self._gram_table, np.array([j]), arrays["K"][None])
        if not self.few_targets:
            self._store(self._moment_table, np.array([j]), arrays["M"][None])

    def entries(self, J: Ints, L: Ints) -> Floats:
        """Return (2, pairs) K_jl and M_jl, from a published row if there is one. Errors: MissingInputs."""
        pairs = list(zip(J.tolist(), L.tolist(), strict=True))
        found = [self._entry(j, l) for j, l in pairs]
        unknown = [pair for pair, value in zip(pairs, found, strict=True) if value is None]
        if unknown:
            raise MissingInputs(NeededInputs(pairs=np.array(unknown, np.int64).T))
        return np.array(found).T.reshape(2, -1)

    def _entry(self, j: int, l: int) -> Floats | None:
        """Return K_jl and M_jl, or None if they are not known here."""
        if (j, l) in self._entries:
            return self._entries[j, l]
        for row, column in ((j, l), (l, j)):
            if row in self._published:
                if self.missing_rows([row]):
                    self._load(row)
                M = 0.0 if self.few_targets else self._moment_table.held[row][column]
                return np.array([self._gram_table.held[row][column], M])
        return None


@dataclass(frozen=True)
class SharedRows:
    """A published objective.

    row_cache_bytes: memory for rows on a worker; others are kept on its disk. folder: where it is, or None if its
    description `arrays` is sent.
    """

    row_cache_bytes: int
    folder: AnyPath | None = None
    arrays: dict[str, Any] = field(default_factory=dict)

    def load(self) -> RowsOnWorker:
        """Return the objective that `RowPublisher` has described. Errors: ClusterError."""
        arrays = self.arrays if self.folder is None else read_arrays(self.folder / "objective.npz")
        shape = arrays["shape"]
        cross = arrays.get("cross")
        c, lam, total, tolerance, cost = (float(x) for x in arrays["scalars"])
        found = RowsOnWorker(
            InMemoryFactor(np.empty((int(shape[0]), 0))), arrays["diagonal"], cross, c, lam,
            target_operator=np.empty(0) if cross is None else None, columns=arrays["columns"], scale=arrays["scale"],
            moment_diagonal=arrays.get("moment_diagonal", np.empty(0)), total=total, batch=int(shape[1]),
            row_cache_bytes=self.row_cache_bytes,
        )  # fmt: skip
        found.tolerance = tolerance
        found._folder, found._published, found._entries = self.folder, frozenset(), {}
        found.fetch_cost, found.max_entries = int(cost), int(shape[2])
        found._partial = Partial(arrays["leading"], arrays["tail"])
        return found


class RowPublisher:
    """Publishes what workers need of an objective on demand, in a folder that they can read.

    Parameters
    ----------
    objective : OnDemandObjective
        The objective in this process, which fetches rows by passes over the data.
    folder : Path or ObjectPath, optional
        Where a folder for the files is created. Without one, rows are sent with the tasks that need them.
    """

    def __init__(self, objective: OnDemandObjective, folder: AnyPath | None) -> None:
        self.objective = objective
        self.folder = None if folder is None else folder.absolute() / f"gram-rows-{uuid4().hex[:12]}"
        self._rows: list[int] = []
        if self.folder is not None:
            write_arrays(self.folder / "objective.npz", _described(objective))

    @property
    def rows(self) -> tuple[int, ...]:
        """Local columns whose rows are files: all that were fetched. New ones are written first."""
        if self.folder is None:
            return ()
        for j in sorted(self.objective.fetched_rows.difference(self._rows)):
            write_arrays(self.folder / f"{j}.npz", self._row(j))
            self._rows.append(j)
        return tuple(self._rows)

    def _row(self, j: int) -> dict[str, Floats]:
        """Return a row of K, and of M where it is kept."""
        row = {"K": self.objective.rows([j])[0]}
        return row if self.objective.few_targets else {**row, "M": self.objective.moment_rows([j])[0]}

    @property
    def shared(self) -> SharedRows:
        """What workers make the objective from."""
        arrays = {} if self.folder is not None else _described(self.objective, _MOST_SENT)
        return SharedRows(self.objective.row_cache_bytes, self.folder, arrays)

    def fetch(self, missing: list[NeededInputs]) -> list[PublishedInputs]:
        """Fetch what several tasks miss, rows together in as few passes as possible, and return it for each."""
        rows = list(dict.fromkeys(j for one in missing for j in one.rows))
        likely = np.array(list(dict.fromkeys(j for one in missing for j in one.likely)), np.int64)
        if rows:
            self.objective.fetch_rows(rows, lambda: likely)
        return [
            PublishedInputs(self.rows, needed.pairs, self._entries(needed.pairs), self._sent(needed.rows))
            for needed in missing
        ]

    def _sent(self, rows: tuple[int, ...]) -> dict[int, dict[str, Floats]]:
        """Return the rows to send: some of those that are needed. A worker that needs more asks again."""
        if self.folder is not None:
            return {}
        most = max(_MOST_SENT // (8 * self.objective.n * (1 if self.objective.few_targets else 2)), 1)
        return {j: self._row(j) for j in rows[:most]}

    def _entries(self, pairs: Ints) -> Floats:
        return self.objective.entries(pairs[0], pairs[1]) if pairs.size else np.empty((2, 0))

    def close(self) -> None:
        """Remove the files."""
        if self.folder is None:
            return
        for name in ["objective.npz", *(f"{j}.npz" for j in self._rows)]:
            (self.folder / name).unlink(missing_ok=True)
        if isinstance(self.folder, Path):
            self.folder.rmdir()


def _described(objective: OnDemandObjective, most_bytes: int | None = None) -> dict[str, Any]:
    """Return everything of an objective but its rows. most_bytes: of the coordinates that bound its entries."""
    partial = objective._partial
    leading, tail = partial.leading, partial.tail
    if most_bytes is not None and leading.nbytes > most_bytes:
        rest = np.ascontiguousarray(leading[:, (p := max(most_bytes // (4 * objective.n), 1)) :]).astype(np.float64)
        leading, tail = np.ascontiguousarray(leading[:, :p]), np.hypot(tail, np.linalg.norm(rest, axis=1))
    arrays = {
        "diagonal": objective.diagonal, "columns": objective.columns, "scale": objective.scale,
        "leading": leading, "tail": tail,
        "shape": np.array([objective.factor.shape[0], objective.batch, objective.max_entries]),
        "scalars": np.array(
            [objective.c, objective.lam, objective.total, objective.tolerance, objective.fetch_cost], np.float64
        ),
    }  # fmt: skip
    if objective.cross is not None:
        arrays["cross"] = objective.cross
    if not objective.few_targets:
        arrays["moment_diagonal"] = objective.moment_diagonal
    return arrays
