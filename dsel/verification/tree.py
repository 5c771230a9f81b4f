"""Read the files of a proof log, and follow the tree that their records describe.

deploy/docs/explanation/proof-logs.md describes the format. A log has a manifest, and files with the numbers and bounds
of its records. A node of the tree is a set S of chosen columns, in the order in which they were chosen, and a set R of
columns of which q = k - |S| may still be added. It stands for all S + Q, Q in R, |Q| <= q. Sets of columns are Python
integers here: bit j stands for column j. In a proof about groups of columns, a "column" is a group everywhere here.

What `Tree` accepts covers every subset: the subsets of a node are those of its children and leaves together.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.damage import DamagedFileError
from dsel._lib.npz import read_npz
from dsel.errors import DataError, MissingInputError
from dsel.storage.json_files import read_json
from dsel.storage.paths import AnyPath

FORMAT = 1
MANIFEST = "manifest.json"
_PLAIN_NAME = re.compile(r"\w+\.npz")


class LogError(Exception):
    """A record of a proof log is wrong. `where` names the leaf or the place in the file."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what


def read_manifest(folder: AnyPath) -> dict[str, Any]:
    """Return the manifest of a log, or raise MissingInputError or DataError."""
    values = read_json(folder / MANIFEST)
    if not isinstance(values, dict):
        raise MissingInputError(
            f"{folder} holds no complete proof log.", "Certify with a log: dsel certify --log, or certify: {log: true}."
        )
    if values.get("format") != FORMAT:
        raise DataError(f"{folder / MANIFEST} has an unknown format.", "Use a newer version of dsel.")
    if not _makes_sense(values):
        raise DataError(f"{folder / MANIFEST} is damaged.", "Certify with a log again.")
    return values


def _makes_sense(values: dict[str, Any]) -> bool:
    """Return whether a manifest has all values, of the right types."""
    counts = all(_is_number(values.get(name), int) for name in ("n", "k"))
    numeric = all(_is_number(values.get(name)) for name in ("bound", "value", "lam"))
    columns = all(_is_list(values.get(name), int) for name in ("columns", "included", "indices"))
    files = values.get("files")
    named = isinstance(files, list) and all(isinstance(f, str) and _PLAIN_NAME.fullmatch(f) for f in files)
    claim = values.get("relaxation")
    claimed = claim is None or (
        isinstance(claim, dict) and _is_number(claim.get("bound")) and _is_list(claim.get("d"))
        and _is_list(claim.get("z"))
    )  # fmt: skip
    groups = values.get("groups")
    grouped = groups is None or (isinstance(groups, list) and all(_is_list(group, int) for group in groups))
    return counts and numeric and columns and named and claimed and grouped and _lists(values.get("near_best"))


def _lists(claim: Any) -> bool:
    """Return whether a claim about near-best subsets has all values, of the right types, or there is none."""
    if not isinstance(claim, dict):
        return claim is None
    numeric = all(_is_number(claim.get(name)) for name in ("within", "threshold", "complete_below"))
    subsets, verdicts = claim.get("subsets"), claim.get("verdicts")
    listed = isinstance(subsets, list) and all(
        isinstance(one, list) and len(one) == 2 and _is_list(one[0], int) and _is_number(one[1]) for one in subsets
    )
    said = verdicts is None or (isinstance(verdicts, list) and all(isinstance(word, str) for word in verdicts))
    return numeric and listed and said


def _is_number(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)


def _is_list(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, list) and all(_is_number(number, kind) for number in value)


def digest_of(content: bytes) -> str:
    """Return the digest by which the content of a file is known."""
    return hashlib.sha256(content).hexdigest()


class RecordReader:
    """The numbers and bounds of a file of a log, in their order."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raise LogError if the content is damaged."""
        try:
            arrays = read_npz(io.BytesIO(content), ("numbers", "bounds"))
            numbers, bounds = arrays["numbers"], arrays["bounds"]
        except (OSError, DamagedFileError) as error:
            raise LogError(name, f"the file is damaged: certify with a log again ({error})") from error
        if numbers.dtype.kind != "u" or numbers.ndim != 1 or bounds.dtype.kind != "f" or bounds.ndim != 1:
            raise LogError(name, "its arrays are not numbers and bounds")
        self.name, self.place = name, 0
        self._numbers: list[int] = numbers.tolist()
        self._bounds: Iterator[float] = iter(bounds.astype(np.float64).tolist())

    @property
    def more(self) -> bool:
        return self.place < len(self._numbers)

    @property
    def where(self) -> str:
        return f"{self.name}, number {self.place}"

    def number(self) -> int:
        return self.list(1)[0]

    def list(self, size: int) -> list[int]:
        if self.place + size > len(self._numbers):
            raise LogError(self.where, "the file ends within a segment")
        self.place += size
        return self._numbers[self.place - size : self.place]

    def bound(self) -> float:
        bound = next(self._bounds, None)
        if bound is None:
            raise LogError(self.where, "a bound is missing")
        return bound

    def require_end(self) -> None:
        if next(self._bounds, None) is not None:
            raise LogError(self.where, "there are more bounds than leaves")


END, PRUNED, COMPARED, BRANCHED, DEPENDENT, DROPPED, CORES, SPLIT = range(8)

#: The reasons for which a leaf is closed.
BOUND, COMPARISON, DEPENDENCE = "bound", "comparison", "dependence"

#: A node by what it stands for: S in its order, and R.
Node = tuple[tuple[int, ...], int]


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


def columns_of(mask: int) -> list[int]:
    """Return the columns of a set, ascending."""
    return [j for j in range(mask.bit_length()) if mask >> j & 1]


class Tree:
    """The tree of one file, followed record by record. Each kind of record has a method that yields its leaves.

    It is complete when all leaves were taken.

    Parameters
    ----------
    n, k : int
        The number of columns, and the most columns to choose.
    most_compared : int
        Most columns that the subsets of a leaf may add if they are compared.

    Attributes
    ----------
    nodes : int
        The nodes of the search.
    open : Counter
        For each node that the file leaves open 1, for each one that it continues -1, without those that cancel out.
    reasons : Counter
        The number of leaves by reason.
    """

    def __init__(self, n: int, k: int, most_compared: int) -> None:
        self.n, self.k, self.most_compared = n, k, most_compared
        self.nodes, self.open, self.reasons = 0, Counter[Node](), Counter[str]()
        self.reader: RecordReader
        self._stack: list[Node] = []  # the open nodes of the present segment, the next one last
        self._records: dict[int, Callable[[Node, int], Iterator[Leaf]]] = {
            PRUNED: self._pruned, COMPARED: self._compared, BRANCHED: self._branched, DEPENDENT: self._dependent,
            DROPPED: self._dropped, CORES: self._excluded_by_cores, SPLIT: self._split,
        }  # fmt: skip

    def follow(self, reader: RecordReader) -> Iterator[Leaf]:
        """Yield all leaves of the file.

        Raises
        ------
        LogError
            A record is impossible, or its subsets are not those of its node.
        """
        self.reader = reader
        while reader.more:
            self._stack = _segment(reader, self.n, self.k)
            self.open.subtract(self._stack)
            while (code := reader.number()) != END:
                if not self._stack:
                    raise LogError(reader.where, "a segment continues after its last node")
                if code not in self._records:
                    raise LogError(reader.where, f"there is no record {code}")
                node = self._stack.pop()
                yield from self._records[code](node, self.k - len(node[0]))
            self.open.update(self._stack)
        reader.require_end()
        self.open = Counter({node: count for node, count in self.open.items() if count})

    def _leaf(self, reason: str, node: Node, most: int, bound: float = np.nan) -> Leaf:
        number = self.reasons.total()
        self.reasons[reason] += 1
        return Leaf(number, reason, *node, most, bound)

    def _wrong(self, node: Node, what: str) -> LogError:
        return LogError(f"{self.reader.name}, leaf {self.reasons.total()} at columns {list(node[0])}", what)

    def _pruned(self, node: Node, most: int) -> Iterator[Leaf]:
        """Yield a node that a bound excludes."""
        yield self._leaf(BOUND, node, most, self.reader.bound())

    def _dependent(self, node: Node, most: int) -> Iterator[Leaf]:
        """Yield a node whose S is dependent."""
        yield self._leaf(DEPENDENCE, node, most)

    def _compared(self, node: Node, most: int) -> Iterator[Leaf]:
        """Yield a node of which all subsets were compared."""
        if most > self.most_compared:
            raise self._wrong(node, f"{most} columns are left, too many to compare all")
        self.nodes += 1
        yield self._leaf(COMPARISON, node, most)

    def _dropped(self, node: Node, most: int) -> Iterator[Leaf]:
        """Yield columns that depend on S; the node continues without them."""
        chosen, allowed = node
        for j in _subset(self.reader, allowed):
            allowed &= ~(1 << j)
            yield self._leaf(DEPENDENCE, ((*chosen, j), allowed), most - 1)
        self._stack.append((chosen, allowed))

    def _excluded_by_cores(self, node: Node, most: int) -> Iterator[Leaf]:
        """Yield what is left without each core, which a bound excludes; as many cores as columns leave their union."""
        chosen, allowed = node
        cores = _cores(self.reader, allowed)
        if len(cores) < most:
            raise self._wrong(node, f"{len(cores)} cores do not exclude {most} columns")
        together = 0
        for core in cores:
            together |= core
            yield self._leaf(BOUND, (chosen, allowed & ~core), most, self.reader.bound())
        if len(cores) == most:
            self._stack.append((chosen, together))
        else:
            self.nodes += 1

    def _split(self, node: Node, most: int) -> Iterator[Leaf]:
        """Divide a node into what is left with one column of R and without it; the latter is next. It has no leaf."""
        chosen, allowed = node
        self.nodes += 1
        j = self.reader.number()
        if most < 1 or not allowed >> j & 1:
            raise self._wrong(node, f"column {j} cannot be added")
        rest = allowed & ~(1 << j)
        self._stack += [((*chosen, j), rest), (chosen, rest)]
        yield from ()

    def _branched(self, node: Node, most: int) -> Iterator[Leaf]:
        """Yield the columns that are no children, and children, that bounds exclude; the other children are open."""
        chosen, allowed = node
        self.nodes += 1
        children = _subset(self.reader, allowed)
        rest = allowed
        for j in children:
            rest &= ~(1 << j)
        if children and most < 1:
            raise self._wrong(node, f"it has children, but only {self.k} columns may be chosen")
        closed = self.reader.list(self.reader.number())
        if any(i >= len(children) for i in closed) or len(set(closed)) < len(closed):
            raise self._wrong(node, "it closes a child that it does not have")
        yield self._leaf(BOUND, (chosen, rest), most, self.reader.bound())
        nodes: list[Node] = []
        for j in reversed(children):
            nodes.append(((*chosen, j), rest))
            rest |= 1 << j
        nodes.reverse()
        for i in closed:
            yield self._leaf(BOUND, nodes[i], most - 1, self.reader.bound())
        self._stack += [nodes[i] for i in reversed(range(len(nodes))) if i not in set(closed)]


def _segment(reader: RecordReader, n: int, k: int) -> list[Node]:
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


def _subset(reader: RecordReader, allowed: int) -> list[int]:
    """Return some different columns of R."""
    columns = reader.list(reader.number())
    if len(set(columns)) < len(columns) or any(not allowed >> j & 1 for j in columns):
        raise LogError(reader.where, f"columns {columns} are not some of those that may be added")
    return columns


def _cores(reader: RecordReader, allowed: int) -> list[int]:
    """Return disjoint sets of columns of R."""
    cores = []
    for _ in range(reader.number()):
        core = sum(1 << j for j in _subset(reader, allowed))
        allowed &= ~core
        cores.append(core)
    return cores
