"""Read a proof log and follow the tree that it describes.

deploy/docs/explanation/proof-logs.md describes the format. A node is a set S of chosen columns, in the order in which
they were chosen, and a set R of columns of which q = k - |S| may still be added. It stands for all S + Q, Q in R,
|Q| <= q. Sets of columns are Python integers here: bit j stands for column j.

What `follow` accepts covers every subset: the subsets of a node are those of its children and leaves together.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.errors import DataError, MissingInputError
from dsel.storage.json_files import read_json
from dsel.storage.paths import AnyPath

FORMAT = 1
MANIFEST = "manifest.json"
_PLAIN_NAME = re.compile(r"\w+\.npz")
END, PRUNED, COMPARED, BRANCHED, DEPENDENT, DROPPED, CORES = range(7)

#: The reasons for which a leaf is closed.
BOUND, COMPARISON, DEPENDENCE = "bound", "comparison", "dependence"

#: A node by what it stands for: S in its order, and R.
Node = tuple[tuple[int, ...], int]


class LogError(Exception):
    """A record of a proof log is wrong. `where` names the leaf or the place in the file."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what


@dataclass(frozen=True)
class Leaf:
    """A set of subsets that the search closed for one reason.

    Parameters
    ----------
    number : int
        The place among the leaves of its file, from 0.
    reason : {"bound", "comparison", "dependence"}
        A bound excludes all subsets; all subsets were compared; or S is dependent.
    chosen : tuple of int
        S.
    allowed : int
        R, one bit for each column.
    most : int
        q, the number of columns of R that may be added.
    bound : float
        The bound of the search as a share of f of the empty set, NaN if there is none.
    """

    number: int
    reason: str
    chosen: tuple[int, ...]
    allowed: int
    most: int
    bound: float


@dataclass
class Tree:
    """What `follow` found in one file.

    nodes: the nodes of the search. open: for each node that the file leaves open 1, for each one that it continues -1,
    without those that cancel out.
    """

    nodes: int = 0
    open: Counter[Node] = field(default_factory=Counter)


def read_manifest(folder: AnyPath) -> dict[str, Any]:
    """Return the manifest of a log, or raise MissingInputError or DataError."""
    values = read_json(folder / MANIFEST)
    if not isinstance(values, dict):
        raise MissingInputError(
            f"{folder} holds no complete proof log.", "Certify with a log: dsel certify --log, or certify: {log: true}."
        )
    if values.get("format") != FORMAT:
        raise DataError(f"{folder / MANIFEST} has an unknown format.", "Use a newer version of dsel.")
    numbers, lists = ("n", "k", "bound", "value", "lam"), ("columns", "included", "indices", "files")
    numeric = all(isinstance(values.get(name), int | float) and math.isfinite(values[name]) for name in numbers)
    listed = all(isinstance(values.get(name), list) for name in lists)
    if not numeric or not listed or not all(_PLAIN_NAME.fullmatch(str(name)) for name in values["files"]):
        raise DataError(f"{folder / MANIFEST} is damaged.", "Certify with a log again.")
    return values


def read_file(file: AnyPath) -> tuple[list[int], NDArray[np.float64]]:
    """Return the numbers and bounds of a file of a log, or raise LogError."""
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
            numbers, bounds = arrays["numbers"], arrays["bounds"]
    except FileNotFoundError:
        raise LogError(file.name, "the file is missing") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise LogError(file.name, f"the file is damaged: {error}") from error
    if numbers.dtype.kind != "u" or numbers.ndim != 1 or bounds.dtype.kind != "f" or bounds.ndim != 1:
        raise LogError(file.name, "its arrays are not numbers and bounds")
    return numbers.tolist(), bounds.astype(np.float64)


class _Reader:
    """Numbers and bounds in their order."""

    def __init__(self, name: str, numbers: list[int], bounds: NDArray[np.float64]) -> None:
        self.name, self._numbers = name, numbers
        self._bounds: list[float] = bounds.tolist()
        self.place = 0
        self._bound = 0

    @property
    def more(self) -> bool:
        return self.place < len(self._numbers)

    @property
    def where(self) -> str:
        return f"{self.name}, number {self.place}"

    def number(self) -> int:
        if not self.more:
            raise LogError(self.where, "the file ends within a segment")
        self.place += 1
        return self._numbers[self.place - 1]

    def list(self, size: int) -> list[int]:
        if self.place + size > len(self._numbers):
            raise LogError(self.where, "the file ends within a segment")
        self.place += size
        return self._numbers[self.place - size : self.place]

    def bound(self) -> float:
        if self._bound >= len(self._bounds):
            raise LogError(self.where, "a bound is missing")
        self._bound += 1
        return self._bounds[self._bound - 1]

    def require_end(self) -> None:
        if self._bound != len(self._bounds):
            raise LogError(self.where, "there are more bounds than leaves")


def columns_of(mask: int) -> list[int]:
    """Return the columns of a set, ascending."""
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


def follow(name: str, numbers: list[int], bounds: NDArray[np.float64], n: int, k: int, tree: Tree) -> Iterator[Leaf]:
    """Yield the leaves of a file, and count its nodes in `tree`.

    Parameters
    ----------
    name : str
        The name of the file, for messages.
    numbers, bounds : list of int, ndarray
        The content of the file.
    n, k : int
        The number of columns, and the most columns to choose.
    tree : Tree
        It is complete when all leaves were taken.

    Raises
    ------
    LogError
        A record is impossible, or its subsets are not those of its node.
    """
    reader = _Reader(name, numbers, bounds)
    leaves = 0
    while reader.more:
        stack = _segment(reader, n, k)
        for node in stack:
            tree.open[node] -= 1
        while True:
            code = reader.number()
            if code == END:
                break
            if not stack:
                raise LogError(reader.where, "a segment continues after its last node")
            chosen, allowed = stack.pop()
            most = k - len(chosen)
            if code == DROPPED:
                for j in _subset(reader, allowed):
                    yield Leaf(leaves, DEPENDENCE, (*chosen, j), allowed & ~(1 << j), most - 1, np.nan)
                    leaves += 1
                    allowed &= ~(1 << j)
                stack.append((chosen, allowed))
                continue
            if code == PRUNED:
                yield Leaf(leaves, BOUND, chosen, allowed, most, reader.bound())
                leaves += 1
                continue
            if code == DEPENDENT:
                yield Leaf(leaves, DEPENDENCE, chosen, allowed, most, np.nan)
                leaves += 1
                continue
            if code == COMPARED:
                if most > 2:
                    raise LogError(_named(reader, leaves, chosen), f"{most} columns are left, too many to compare all")
                tree.nodes += 1
                yield Leaf(leaves, COMPARISON, chosen, allowed, most, np.nan)
                leaves += 1
                continue
            if code == CORES:
                cores = _cores(reader, allowed)
                if len(cores) < most:
                    raise LogError(_named(reader, leaves, chosen), f"{len(cores)} cores do not exclude {most} columns")
                together = 0
                for core in cores:
                    together |= core
                    yield Leaf(leaves, BOUND, chosen, allowed & ~core, most, reader.bound())
                    leaves += 1
                if len(cores) == most:
                    stack.append((chosen, together))
                else:
                    tree.nodes += 1
                continue
            if code != BRANCHED:
                raise LogError(reader.where, f"there is no record {code}")
            tree.nodes += 1
            children = _subset(reader, allowed)
            rest = allowed
            for j in children:
                rest &= ~(1 << j)
            if children and most < 1:
                raise LogError(_named(reader, leaves, chosen), f"it has children, but only {k} columns may be chosen")
            closed = reader.list(reader.number())
            if any(i >= len(children) for i in closed) or len(set(closed)) < len(closed):
                raise LogError(_named(reader, leaves, chosen), "it closes a child that it does not have")
            yield Leaf(leaves, BOUND, chosen, rest, most, reader.bound())
            leaves += 1
            nodes: list[Node] = []
            for j in reversed(children):
                nodes.append(((*chosen, j), rest))
                rest |= 1 << j
            for i in closed:
                path, after = nodes[len(children) - 1 - i]
                yield Leaf(leaves, BOUND, path, after, most - 1, reader.bound())
                leaves += 1
            stack += [node for i, node in enumerate(nodes) if len(children) - 1 - i not in set(closed)]
        for node in stack:
            tree.open[node] += 1
    reader.require_end()
    for node in [node for node, count in tree.open.items() if not count]:
        del tree.open[node]


def _named(reader: _Reader, leaf: int, chosen: tuple[int, ...]) -> str:
    return f"{reader.name}, leaf {leaf} at columns {list(chosen)}"


def _segment(reader: _Reader, n: int, k: int) -> list[Node]:
    """Return the open nodes with which a segment begins."""
    nodes: list[Node] = []
    for _ in range(reader.number()):
        s, t = reader.number(), reader.number()
        chosen, allowed = tuple(reader.list(s)), reader.list(t)
        both = [*chosen, *allowed]
        if s > k or len(set(both)) < len(both) or max(both, default=0) >= n:
            raise LogError(reader.where, "a segment begins with an impossible node")
        nodes.append((chosen, sum(1 << j for j in allowed)))
    return nodes


def _subset(reader: _Reader, allowed: int) -> list[int]:
    """Return some different columns of R."""
    columns = reader.list(reader.number())
    if len(set(columns)) < len(columns) or any(not allowed >> j & 1 for j in columns):
        raise LogError(reader.where, f"columns {columns} are not some of those that may be added")
    return columns


def _cores(reader: _Reader, allowed: int) -> list[int]:
    """Return disjoint sets of columns of R."""
    cores = []
    for _ in range(reader.number()):
        core = sum(1 << j for j in _subset(reader, allowed))
        allowed &= ~core
        cores.append(core)
    return cores
