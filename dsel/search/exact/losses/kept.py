"""What a tree of a proof for a loss leaves to a later proof: its leaves, as arrays of bounded size.

A leaf is a path of columns that are in or out, the coefficients at which its relaxation ended, and a bound. The later
tree relaxes each leaf again from these coefficients, whatever changed. The bounds count only for a problem of the same
bits. Where leaves were left out, the nodes next to the others take their place: so the leaves always hold all subsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsel._lib.types import Ints
from dsel.search.exact.losses.problem import START, Point

#: Columns of the problem from 1 on, the first split first: positive if the column is in, negative if it is out.
Path = tuple[int, ...]
#: Bytes of a leaf without its path and its coefficients.
_LEAF_BYTES = 40


@dataclass(frozen=True)
class Leaf:
    """A set of subsets that a tree did not split: its path, a bound on F of them, and where its relaxation ended.

    The columns of the point are those of the whole problem.
    """

    path: Path
    bound: float = -np.inf
    point: Point = START


@dataclass(frozen=True)
class KeptLeaves:
    """The leaves of a tree over n columns, the best subset, and what the tree took.

    digest: of its problem and size.
    """

    leaves: Sequence[Leaf]
    members: tuple[int, ...]
    digest: str
    nodes: int
    seconds: float
    n: int

    @property
    def columns(self) -> Ints:
        """All columns at which the leaves are split, or where they have coefficients."""
        steps = [abs(step) - 1 for leaf in self.leaves for step in leaf.path]
        return np.unique(np.concatenate([np.array(steps, np.int64), *(leaf.point.S for leaf in self.leaves)]))

    def as_arrays(self, most_bytes: int) -> dict[str, Any]:
        """Return them as arrays; leaves far from the root are left out if there would be more bytes."""
        kept = sorted(self.leaves, key=lambda leaf: len(leaf.path))
        outputs = max((np.size(leaf.point.b0) for leaf in kept), default=1)
        width = max((leaf.point.b.size // leaf.point.S.size for leaf in kept if leaf.point.S.size), default=outputs)
        sizes = [_LEAF_BYTES + 4 * (len(leaf.path) + (1 + width) * leaf.point.S.size) for leaf in kept]
        kept = kept[: int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right"))]
        points = [leaf.point for leaf in kept]
        b = np.concatenate([np.zeros((0, width)), *(p.b.reshape(p.S.size, width) for p in points)])
        return {
            "depth": np.asarray([len(leaf.path) for leaf in kept], np.int32),
            "steps": np.asarray([step for leaf in kept for step in leaf.path], np.int32),
            "bound": np.asarray([leaf.bound for leaf in kept]),
            "support_sizes": np.asarray([p.S.size for p in points], np.int32),
            "support": np.concatenate([np.zeros(0, np.int64), *(p.S for p in points)]).astype(np.int32),
            "b": b.astype(np.float32), "b0": np.asarray([np.broadcast_to(p.b0, outputs) for p in points]),
            "price": np.asarray([p.s for p in points]), "members": np.asarray(self.members, np.int32),
            "digest": np.frombuffer(self.digest.encode(), np.uint8), "nodes": np.int64(self.nodes),
            "seconds": np.float64(self.seconds),
        }  # fmt: skip

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Any], n: int, outputs: int, width: int) -> KeptLeaves:
        """Return the leaves of `as_arrays` for n items, and the nodes that take the place of those left out.

        width: the coefficients of an item. Raises ValueError if they do not fit, LookupError if arrays are missing.
        """
        depth, sizes = saved["depth"].tolist(), saved["support_sizes"].tolist()
        support, b, b0 = saved["support"].astype(np.int64), saved["b"].astype(np.float64), saved["b0"]
        members = tuple(saved["members"].tolist())
        inside = all(((x >= 0) & (x < n)).all() for x in (support, np.abs(saved["steps"]) - 1, saved["members"]))
        if not (inside and b.shape in ((sum(sizes), width), (0, outputs)) and b0.shape == (len(depth), outputs)):
            raise ValueError("the saved tree does not fit the columns")
        if min([*depth, *sizes], default=0) < 0 or sum(depth) != saved["steps"].size or support.size != sum(sizes):
            raise ValueError("the saved tree does not fit its leaves")
        leaves = list(_leaves(saved, depth, sizes, support, b if width > 1 else b[:, 0], b0))
        leaves += [Leaf(path) for path in missing_nodes([leaf.path for leaf in leaves])]
        return cls(leaves, members, bytes(saved["digest"]).decode(), int(saved["nodes"]), float(saved["seconds"]), n)


def _leaves(
    saved: Mapping[str, Any], depth: Sequence[int], sizes: Sequence[int], support: Ints, b: Any, b0: Any
) -> Iterator[Leaf]:
    steps, step, end = saved["steps"].tolist(), 0, 0
    for i, (length, size) in enumerate(zip(depth, sizes, strict=True)):
        own = slice(end, end + size)
        finite = bool(np.isfinite(b[own]).all() and np.isfinite(b0[i]).all())
        at = b0[i] if b0.shape[1] > 1 else float(b0[i, 0])
        point = Point(support[own], b[own], at, float(saved["price"][i])) if finite else START
        yield Leaf(tuple(steps[step : step + length]), float(saved["bound"][i]), point)
        step, end = step + length, end + size


def missing_nodes(paths: Iterable[Path]) -> list[Path]:
    """Return the nodes that hold the subsets of no path, so that the paths and they are the leaves of one tree.

    Raises ValueError if the paths are not leaves of one tree.
    """
    known, column = list(paths), dict[Path, int]()
    for path in known:
        for i, step in enumerate(path):
            if column.setdefault(path[:i], abs(step)) != abs(step):
                raise ValueError("two leaves are split at different columns")
    if len(set(known)) < len(known) or any(path in column for path in known):
        raise ValueError("a leaf is split")
    nodes = {*known, *column}
    if not nodes:
        return [()]
    both = ((*path, sign * j) for path, j in column.items() for sign in (1, -1))
    return [path for path in both if path not in nodes]
