"""The proof log: the tree of branch and bound in a folder, with a reason for each leaf.

`SegmentLog` collects the records of one explorer. `ProofLog` writes them to numbered files while the search runs, so
that neither holds much in memory. deploy/docs/explanation/proof-logs.md describes the format. `dsel.verification` reads
it; it shares no code with the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.npz import pack_npz, read_npz
from dsel._lib.types import Floats, Ints
from dsel.errors import OutputError
from dsel.objective.objective_interface import ItemObjective
from dsel.search.exact.branch_and_bound.log_records import END, PRUNED
from dsel.storage.json_files import write_json
from dsel.storage.paths import AnyPath, make_folder, write_bytes

#: A node of groups is divided: into what is left with a group and without it.
SPLIT = 7
FORMAT = 1
MANIFEST, OPEN = "manifest.json", "open.npz"
#: Numbers of one file, about 10,000 nodes.
_FILE_NUMBERS = 1 << 16


@dataclass(frozen=True)
class OpenNode:
    """An open node: the chosen items in the order of the search, the items that may be added, and a bound."""

    chosen: Sequence[int]
    allowed: Sequence[int] | Ints | NDArray[np.int32]
    lower: float


@dataclass(frozen=True)
class LogPart:
    """Complete segments: their numbers, and the bounds of their records, as shares of f of the empty set."""

    numbers: NDArray[np.uint32]
    bounds: NDArray[np.float32]


@dataclass
class SegmentLog:
    """The segments of one explorer.

    unit: f of the empty set.
    """

    unit: float
    _numbers: list[NDArray[np.uint32]] = field(default_factory=list)
    _bounds: list[NDArray[np.float32]] = field(default_factory=list)
    _running: bool = False
    size: int = 0

    def begin(self, nodes: Sequence[OpenNode]) -> None:
        """Begin a segment with these open nodes, the last of which is visited first."""
        self.end()
        header = [np.array([len(nodes)], np.uint32)]
        for node in nodes:
            header.append(np.array([len(node.chosen), len(node.allowed), *node.chosen], np.uint32))
            header.append(np.asarray(node.allowed, np.uint32))
        self._append(np.concatenate(header))
        self._running = True

    def add(self, numbers: Ints, bounds: Floats) -> None:
        """Append records."""
        self._append(numbers.astype(np.uint32))
        self._bounds.append((bounds / self.unit).astype(np.float32))

    def end(self) -> None:
        """End the segment: what it left open stays open."""
        if self._running:
            self._append(np.array([END], np.uint32))
            self._running = False

    def write(self, node: OpenNode, numbers: Sequence[int | np.int64], bounds: Sequence[float] = ()) -> None:
        """Write a segment with these records about a node."""
        self.begin([node])
        self.add(np.array(numbers), np.array(bounds, np.float64))
        self.end()

    def close(self, node: OpenNode) -> None:
        """Write a segment in which a node is closed by its bound."""
        self.write(node, [PRUNED], [node.lower])

    def take(self) -> LogPart:
        """Return the segments so far and forget them. The present segment must have ended."""
        part = LogPart(
            np.concatenate(self._numbers) if self._numbers else np.empty(0, np.uint32),
            np.concatenate(self._bounds) if self._bounds else np.empty(0, np.float32),
        )
        self._numbers.clear()
        self._bounds.clear()
        self.size = 0
        return part

    def _append(self, numbers: NDArray[np.uint32]) -> None:
        self._numbers.append(numbers)
        self.size += numbers.size


class ProofLog:
    """The folder of a proof log, while the proof runs.

    Parameters
    ----------
    folder : Path or ObjectPath
        The folder of the log.
    objective : ItemObjective
        The problem of the proof, over columns or groups.
    k : int
        The most columns or groups to choose.
    files : int
        Number of files that are part of the proof. A proof that continues writes the next ones.
    """

    def __init__(self, folder: AnyPath, objective: ItemObjective, k: int, files: int = 0) -> None:
        self.folder, self.files, self._objective, self._k = folder, files, objective, k
        self._waiting: list[LogPart] = []
        self._size = 0

    def add(self, part: LogPart) -> None:
        """Append segments; write a file when there are enough."""
        if not part.numbers.size:
            return
        self._waiting.append(part)
        self._size += part.numbers.size
        if self._size >= _FILE_NUMBERS:
            self.flush()

    def require_whole(self) -> None:
        """Read the files that are part of the proof. Errors: those of `read_files`."""
        read_files(self.folder, [f"{i:06d}.npz" for i in range(self.files)])

    def flush(self) -> int:
        """Write all segments, and return the number of files."""
        if self._waiting:
            self._write(f"{self.files:06d}.npz", self._waiting)
            self.files += 1
            self._waiting = []
            self._size = 0
        return self.files

    def finish(self, nodes: Iterable[OpenNode], claim: Mapping[str, Any], problem: Mapping[str, Any]) -> None:
        """Write the open nodes, and the manifest, which makes the log complete.

        claim: what the log proves: `bound`, `value` and `indices` of the best subset. problem: what identifies the data
        and their preprocessing.
        """
        self.flush()
        segments = SegmentLog(self._objective.c)
        for node in nodes:
            segments.close(node)
        self._write(OPEN, [segments.take()])
        items, objective = self._objective, self._objective.columns_of
        groups = [objective.columns[group].tolist() for group in items.groups or ()]
        values = {
            "format": FORMAT, **problem, "n": items.n, "k": self._k, "columns": objective.columns.tolist(),
            "groups": groups or None, "included": list(objective.included), "lam": objective.lam,
            "total": objective.total, **claim,
            "files": [*(f"{i:06d}.npz" for i in range(self.files)), OPEN],
        }  # fmt: skip
        write_json(self.folder / MANIFEST, values, digest=False)

    def _write(self, name: str, parts: Sequence[LogPart]) -> None:
        numbers = np.concatenate([part.numbers for part in parts])
        small = numbers.astype(np.uint16) if not numbers.size or int(numbers.max()) < 1 << 16 else numbers
        bounds = np.concatenate([part.bounds for part in parts])
        try:
            make_folder(self.folder)
            write_bytes(self.folder / name, pack_npz({"numbers": small, "bounds": bounds}, compressed=True))
        except OSError as error:
            raise OutputError(
                f"The proof log in {self.folder} cannot be written: {error.strerror}.",
                "Free some space there, change the folder's permissions, or prove without a log.",
            ) from error


def read_files(folder: AnyPath, names: Iterable[str]) -> None:
    """Read files of a log. Raises DamagedFileError or OSError for one that cannot be read."""
    for name in names:
        with (folder / name).open("rb") as file:
            read_npz(file)
