"""The division of the rows of a data set into parts: folds, held-out rows, and blocks to draw subsamples from.

The part of a row depends on its number, the seed and the group of the row alone. So it is the same on every worker, and
for all chunks.

Divide the rows of a dataset: into folds, by groups of rows, or into rows to train on and held-out rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.splitmix import GOLDEN, mix
from dsel._lib.types import Ints
from dsel.config.size_rule import RowSplit

#: Each of this many consecutive rows has another rank, by which a share of them is held out.
_RANKS = 100
#: Rows that only one model is tested on are in this many parts, so that their error has a standard error.
HELD_OUT_PARTS = 5

#: A part: the repetition, and the number of the part in it.
Part = tuple[int, int]


@dataclass(frozen=True)
class TrainTest:
    """The parts that a model is trained on, and those that it is tested on."""

    train: tuple[Part, ...]
    test: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class RowPartition:
    """A division of m rows into parts, once or several times.

    Parameters
    ----------
    m : int
        The number of rows.
    parts : int
        How many parts there are.
    split : {"random", "blocks", "forward"}
        At random, or blocks of consecutive rows. With "forward" each part but the first is tested on a model of the
        parts before it.
    seed : int
        The seed of the hash.
    repeats : int
        How often the rows are divided.
    held_out : float, optional
        The share of the rows that parts 1 and up hold together. Part 0 has the others. By default parts are of equal
        size.
    labels : (repeats, m) array of int, optional
        The part of each row, if it depends on groups of rows, or on splits.
    models : tuple of TrainTest
        What is trained and tested on what, where `of_splits` has divided the rows.
    words : str
        Such a division in words.
    """

    m: int
    parts: int
    split: RowSplit = "random"
    seed: int = 0
    repeats: int = 1
    held_out: float | None = None
    labels: NDArray[Any] | None = None
    models: tuple[TrainTest, ...] = ()
    words: str = ""

    @classmethod
    def of_splits(cls, m: int, splits: Iterable[tuple[Ints, Ints]], words: str) -> RowPartition:
        """Return the division of m rows into the fewest parts of which splits are made.

        splits: the row numbers that each model is trained on, and those that it is tested on. Rows that play the same
        role in all splits are one part. Splits whose tests share no row are in one repetition, as folds are. The tested
        rows of a single split are in HELD_OUT_PARTS parts.
        Errors: ValueError where a split has no rows, shares rows, or names rows that do not exist.
        """
        codes: list[Ints] = []  # of each repetition: the part of each row so far
        tested: list[NDArray[np.bool_]] = []
        roles: list[tuple[int, NDArray[np.int8]]] = []
        for number, (train, test) in enumerate(splits, 1):
            role = np.zeros(m, np.int8)
            for rows, value in ((np.asarray(train), 1), (np.asarray(test), 2)):
                if not rows.size or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= m:
                    raise ValueError(f"split {number} has no rows to train or to test on, or others than 0 to {m - 1}")
                if role[rows].any():
                    raise ValueError(f"split {number} tests on rows that it is trained on")
                role[rows] = value
            where = next((i for i, used in enumerate(tested) if not used[role == 2].any()), len(tested))
            if where == len(tested):
                tested.append(np.zeros(m, bool))
                codes.append(np.zeros(m, np.int64))
            tested[where] |= role == 2
            codes[where] = np.unique(codes[where] * 3 + role, return_inverse=True)[1].reshape(-1)
            roles.append((where, role))
        if not roles:
            raise ValueError("there are no splits")
        if len(roles) == 1:
            tests = np.flatnonzero(roles[0][1] == 2)
            codes[0][tests] += np.arange(tests.size) * HELD_OUT_PARTS // tests.size
        parts = 1 + max(int(code.max()) for code in codes)
        labels = np.stack(codes).astype(np.uint16 if parts <= 65_536 else np.uint32)
        models = tuple(
            TrainTest(*(tuple((i, int(p)) for p in np.unique(labels[i, role == value])) for value in (1, 2)))
            for i, role in roles
        )
        return cls(m, parts, "random", repeats=len(codes), labels=labels, models=models, words=words)

    def of_rows(self, start: int, stop: int, repetition: int = 0) -> Ints:
        """Return (stop - start,) the parts of the rows [start, stop)."""
        if self.labels is not None:
            return np.asarray(self.labels[repetition, start:stop], np.int64)
        rows = np.arange(start, stop)
        if self.held_out is None:
            if self.split == "random":
                return folds_of(start, stop, self.parts, self.seed, repetition)
            return rows * self.parts // self.m
        if self.split == "random":
            ranks = min(_RANKS, self.m)
            rank = folds_of(start, stop, ranks, self.seed, repetition)
            return np.where(rank < max(1, round(self.held_out * ranks)), 1 + rank % (self.parts - 1), 0)
        tested = max(1, round(self.held_out * self.m))
        later = rows - (self.m - tested)
        return np.where(later >= 0, 1 + later * (self.parts - 1) // tested, 0)

    def tests(self) -> Iterator[TrainTest]:
        """Yield what is trained and tested on what, one entry for each model."""
        if self.models:
            yield from self.models
            return
        for repetition in range(self.repeats):
            all_parts = tuple((repetition, part) for part in range(self.parts))
            if self.held_out is not None:
                yield TrainTest(all_parts[:1], all_parts[1:])
            elif self.split == "forward":
                for part in range(1, self.parts):
                    yield TrainTest(all_parts[:part], (all_parts[part],))
            else:
                for part in range(self.parts):
                    yield TrainTest((*all_parts[:part], *all_parts[part + 1 :]), (all_parts[part],))

    @property
    def by_row(self) -> bool:
        """Whether the part of a row stays the same if more rows follow."""
        return self.labels is None and self.split == "random" and (self.held_out is None or self.m >= _RANKS)

    @property
    def fewest_trained(self) -> int:
        """About how many rows the smallest training set has."""
        if self.labels is not None and self.models:
            counts = [np.bincount(labels, minlength=self.parts) for labels in self.labels]
            return min(sum(int(counts[i][p]) for i, p in model.train) for model in self.models)
        if self.held_out is not None:
            return self.m - max(1, round(self.held_out * self.m))
        return self.m // self.parts if self.split == "forward" else self.m - self.m // self.parts - 1

    @property
    def row_bytes(self) -> int:
        """Bytes of the labels, which every worker holds."""
        return 0 if self.labels is None else self.labels.nbytes

    @property
    def key(self) -> dict[str, Any]:
        """What the parts depend on, as JSON holds it."""
        key: dict[str, Any] = {"folds": self.parts, "repeats": self.repeats, "seed": self.seed}
        if self.split != "random":
            key["split"] = self.split
        if self.held_out is not None:
            key["held_out"] = self.held_out
        if self.labels is not None:
            key["labels"] = hashlib.blake2b(self.labels.tobytes(), digest_size=16).hexdigest()
        return key

    @property
    def description(self) -> str:
        """What the parts are, in words."""
        if self.words:
            return self.words
        groups = " of whole groups" if self.labels is not None else ""
        if self.held_out is not None:
            which = "the last " if self.split != "random" else ""
            return f"{which}{self.held_out * 100:.3g} % of the rows{groups}, held out"
        if self.split == "forward":
            return f"{self.parts - 1} blocks of rows, each predicted from those before it"
        kind = "blocks of consecutive rows" if self.split == "blocks" else f"random folds{groups}"
        return f"{self.parts} {kind}" + (f", {self.repeats} times" if self.repeats > 1 else "")


def folds_of(start: int, stop: int, folds: int, seed: int, repetition: int) -> NDArray[np.int64]:
    """Return the fold of each row in [start, stop), drawn by a hash of row, seed and repetition.

    Each of `folds` consecutive rows is in another fold. So folds differ by one row at most, whatever the chunks.
    """
    first = start - start % folds
    rows = np.arange(first, stop + (-stop) % folds, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = rows
        for word in (seed, repetition):
            z = _next(z ^ _next(np.full(1, word, np.uint64) + np.uint64(0x51ED2701)))
    places = np.argsort(z.reshape(-1, folds), axis=1, kind="stable")
    return np.asarray(np.argsort(places, axis=1).ravel()[start - first : stop - first], np.int64)


def _next(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers of SplitMix64 that follow the states z."""
    return np.asarray(mix(z + GOLDEN))
