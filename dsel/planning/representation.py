"""What a problem is searched as, and why: arithmetic on shapes and memory, before anything is read.

    gram     K = X'X (n x n) and B = X'Y, from one pass. Everything can be searched on it.
    tiles    the same K, summed part by part in as many passes as its parts need (dsel.passes.tiles).
    shards   X itself, cut into column blocks over the workers: the diagonal of K and B from one pass, and the Gram
             rows of the columns that enter a solution, when they enter. Exact; for wide data.
    rows     the row Gram X X' (m x m) and from it the eigen-reduced W (r x n, r <= m), eq. (8) of Wan and Schweitzer,
             AAAI 2021; K = W'W. Exact; for wide data that are their own targets.
    sketch   W of a chosen rank by a randomized eigendecomposition (Halko, Martinsson and Tropp, 2011) in 1 + 2q passes;
             for data that are their own targets, where neither n x n nor m x m fits.

Symbols: X m x n, N targets (0 where Y = X), k columns to choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dask.utils import format_bytes

from dsel.errors import CapacityError
from dsel.objective.base import FEW_TARGETS
from dsel.passes.base import FAN_IN
from dsel.passes.eigendecomposition import OVERSAMPLING, sketch_passes
from dsel.passes.tiles import plan_tiles

Name = Literal["gram", "tiles", "shards", "rows", "sketch"]

#: A worker's interpreter, with the libraries it needs.
INTERPRETER = 192 << 20
#: Share of its limit up to which a worker is still given tasks, and up to which it keeps results without spilling.
FED, KEPT = 0.9, 0.7
#: Gram rows that one pass over the column shards brings: so many at least and at most, and bytes of them at once.
FEWEST_ROWS, MOST_ROWS, ROW_BYTES_A_PASS = 8, 32, 128 << 20
#: Why what has no K will not do for a method that asks for K.
_WHOLE = "The method needs the whole Gram matrix."
#: The methods that do, as they are by default; astar with targets apart from X.
WITHOUT_GRAM = "forward, omp, foba, exchange, poss, pposs, pposs-asy, astar"
#: And why column shards will not do for one that goes by W.
_FACTOR = "The method needs W, the eigen-reduced data, in this process."
#: Power iterations of the sketch.
POWERS = 2
#: Rows of every column that the client keeps for bounds on inner products, and the bytes it gives them at most.
SKETCH_ROWS, SKETCH_BYTES = 256, 1 << 30


@dataclass(frozen=True)
class Problem:
    """What is asked: m x n data of `itemsize` bytes, stored in chunks (rows, columns); N targets (0: Y = X), k columns.

    sums: Gram matrices that one partial sum holds (folds). slots: subsets whose tables of n numbers the search keeps.
    looks: numbers for each column that it holds while it looks at all children of one. needs_gram: the method asks for
    all of K; needs_factor: for K or W.
    """

    m: int
    n: int
    N: int
    itemsize: int
    k: int
    chunk: tuple[int, int]
    sums: int = 1
    slots: int = 1
    looks: int = 0
    needs_gram: bool = False
    needs_factor: bool = False

    @property
    def x_bytes(self) -> int:
        """Bytes of X, read once."""
        return self.m * self.n * self.itemsize

    @property
    def tile(self) -> int:
        """Bytes of a chunk."""
        return self.chunk[0] * self.chunk[1] * self.itemsize

    @property
    def row_block(self) -> int:
        """Bytes of a block of full rows, as the Gram pass reads them."""
        return self.chunk[0] * (self.n * self.itemsize + 8 * self.N)

    @property
    def column_block(self) -> int:
        """Bytes of a block of full columns."""
        return self.m * self.chunk[1] * self.itemsize

    @property
    def tables(self) -> int:
        """Bytes of the search's tables: for every subset 4 numbers a column, and one for each target kept apart."""
        return 8 * self.n * (self.looks + self.slots * (4 + (self.N if self.N <= FEW_TARGETS else 0)))

    @property
    def keeps_moments(self) -> bool:
        """Whether a row of M comes with each row of K."""
        return not 0 < self.N <= FEW_TARGETS

    @property
    def rows_a_pass(self) -> int:
        """Gram rows that one pass over the column shards brings."""
        rows = FEWEST_ROWS
        while rows < MOST_ROWS and 2 * rows * self.row_bytes <= ROW_BYTES_A_PASS:
            rows *= 2
        return rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of K, and of M where that is kept."""
        return 8 * self.n * (2 if self.keeps_moments else 1)

    @property
    def sketch_rows(self) -> int:
        """Rows of X that the client may keep for bounds where Gram rows come on demand."""
        return min(self.m, SKETCH_ROWS, SKETCH_BYTES // (4 * self.n))


@dataclass(frozen=True)
class Resources:
    """Workers, the memory limit of each (None: not limited), and what this process can still take, in bytes.

    keeps_values: whether workers can keep values between passes.
    """

    workers: int
    worker_memory: int | None
    client_memory: int
    keeps_values: bool = True


@dataclass(frozen=True)
class Representation:
    """One way to hold the problem: bytes in a worker and in this process, passes over X, bytes they read, flops.

    rows_a_pass > 0: one more pass for every so many distinct columns that enter a solution (`passes`, `bytes_read` and
    `flops` count those for k of them), of whose rows kept_bytes are kept in memory, the others on disk; in_memory:
    these read no store, for the workers keep the shards; bound_rows: rows of X that this process keeps for bounds.
    exact: whether f is that of the data. lacks: why it will not do, empty where it will. reason: why it is (not) the
    one, in words.
    """

    name: Name
    worker_bytes: int
    client_bytes: int
    passes: int
    bytes_read: int
    flops: int
    exact: bool
    rows_a_pass: int = 0
    kept_bytes: int = 0
    bound_rows: int = 0
    in_memory: bool = False
    rank: int = 0
    lacks: str = ""
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether it can be used."""
        return not self.lacks


def candidates(problem: Problem, resources: Resources) -> tuple[Representation, ...]:
    """All representations, the most preferred first: tiles before what needs no K where they read no more."""
    makers: tuple[Callable[[], Representation], ...] = (
        lambda: _gram(problem, resources),
        lambda: _tiles(problem, resources),
        lambda: _rows(problem, resources),
        lambda: _shards(problem, resources),
        lambda: _sketch(problem, resources),
    )
    gram, tiles, *others, sketch = (make() for make in makers)
    if any(other.fits and other.bytes_read < tiles.bytes_read for other in others):
        return (gram, *others, tiles, sketch)
    return (gram, tiles, *others, sketch)


def choose(problem: Problem, resources: Resources) -> Representation:
    """The first candidate that fits. Errors: CapacityError with the numbers of each where none does."""
    found = candidates(problem, resources)
    for one in found:
        if one.fits:
            return one
    gram = found[0]
    tried = " " + " ".join(f"As {c.name}: {c.lacks}" for c in found[1:] if c.lacks not in (_WHOLE, _FACTOR))
    raise CapacityError(f"{gram.lacks}{tried}", _remedy(problem, resources, gram))


def _remedy(problem: Problem, resources: Resources, gram: Representation) -> str:
    if resources.worker_memory is not None and gram.worker_bytes > resources.worker_memory:
        need = math.ceil(10 * gram.worker_bytes / 2**30) / 10
        remedies = [f"Give each worker at least {need} GiB", "smaller row blocks"]
    else:
        remedies = ["Use a machine with more memory"]
    if problem.needs_gram or problem.needs_factor:
        options = "without exchange_every or isolation by a function"
        remedies.append(f"a method that does without ({WITHOUT_GRAM}; {options})")
    return ", ".join([*remedies, "or select from fewer columns."])


def gib(size: float) -> str:
    """Bytes in words, in GiB unless that would be next to 0."""
    return f"{size / 2**30:.2f} GiB" if size >= 0.01 * 2**30 else format_bytes(int(size))


def _limit(size: float) -> int:
    """The limit of a worker that holds so many bytes of numbers."""
    return math.ceil((size + INTERPRETER) / FED)


def _short(problem: Problem, resources: Resources, worker: int, client: int, of_what: str, here: str) -> str:
    """What is missing, in words; nothing where all fits."""
    if resources.worker_memory is not None and worker > resources.worker_memory:
        return (
            f"A worker needs {gib(worker)} for {problem.n} columns ({of_what}) and is limited to "
            f"{gib(resources.worker_memory)}."
        )
    if client > resources.client_memory:
        return (
            f"The search over {problem.n} columns needs {gib(client)} in this process ({here}); "
            f"{gib(resources.client_memory)} are available."
        )
    return ""


def _gram(p: Problem, r: Resources) -> Representation:
    partial = p.sums * 8 * p.n * (p.n + p.N)
    worker = _limit((FAN_IN + 2) * partial + 2 * p.row_block)
    client = (4 + 2 * p.sums) * 8 * p.n * p.n
    blocks = f"{gib(partial)} a partial Gram matrix, {gib(p.row_block)} a row block"
    lacks = _short(p, r, worker, client, blocks, f"the Gram matrix, {p.n} x {p.n}")
    reason = f"the Gram matrix ({p.n} x {p.n}, {gib(8 * p.n * p.n)}) fits, and one pass makes it"
    return Representation(
        "gram", worker, client, 1, p.x_bytes, p.m * p.n * (p.n + 2 * p.N), True, lacks=lacks,
        reason=lacks or reason, rank=min(p.m, p.n),
    )  # fmt: skip


def tile_budget(p: Problem, r: Resources) -> float:
    """Bytes that a partial sum of tiles may take in a worker."""
    if r.worker_memory is None:
        return math.inf
    free = FED * r.worker_memory - INTERPRETER - 2 * p.row_block
    return free / (FAN_IN + 2) - 8 * p.n * (p.N + 8)


def _tiles(p: Problem, r: Resources) -> Representation:
    client = 6 * 8 * p.n * p.n
    budget, lacks, reads, partial = tile_budget(p, r), "", 1, 0
    here = f"the Gram matrix, {p.n} x {p.n}"
    if client > r.client_memory:
        lacks = _short(p, r, 0, client, "", here)
    elif p.sums > 1:
        lacks = f"The Gram matrices of {p.sums} folds are summed in one pass."
    else:
        try:
            tiling = plan_tiles(p.n, min(budget, 8.0 * p.n * p.n))
            reads, partial = len(tiling.reads), tiling.partial_bytes
        except CapacityError as error:
            lacks = error.what
    worker = _limit((FAN_IN + 2) * (partial + 8 * p.n * (p.N + 8)) + 2 * p.row_block)
    lacks = lacks or _short(p, r, worker, client, f"{gib(partial)} of the Gram matrix at once", here)
    size = f"{p.n} x {p.n}, {gib(8 * p.n * p.n)}"
    reason = f"the Gram matrix ({size}) fits here but not in a worker, which sums it in {reads} parts"
    return Representation(
        "tiles", worker, client, reads, reads * p.x_bytes, p.m * p.n * (p.n + 2 * p.N), True, lacks=lacks,
        reason=lacks or reason, rank=min(p.m, p.n),
    )  # fmt: skip


def _rows(p: Problem, r: Resources) -> Representation:
    rank = min(p.m, p.n)
    worker = _limit((FAN_IN + 2) * 8 * p.m * p.m + 2 * p.column_block + (64 << 20))
    client = 4 * 8 * p.m * p.m + 2 * 8 * rank * p.n + p.tables
    parts = f"{gib(8 * p.m * p.m)} a partial row Gram matrix, {gib(p.column_block)} a column block"
    if p.needs_gram:
        lacks = _WHOLE
    elif p.N:
        lacks = "With targets apart from X the data themselves do, in column shards."
    else:
        lacks = _short(p, r, worker, client, parts, f"W, {rank} x {p.n}")
    reason = (
        f"n x n does not fit, W ({rank} x {p.n}, {gib(8 * rank * p.n)}) does; it takes a pass for the norms, two for W "
        "and one for the check"
    )
    flops = p.m * p.m * p.n + 2 * p.m * rank * p.n + 9 * p.m**3
    return Representation(
        "rows", worker, client, 4, 4 * p.x_bytes, flops, True, lacks=lacks, reason=lacks or reason, rank=rank
    )


def _shards(p: Problem, r: Resources) -> Representation:
    share, rows = math.ceil(p.x_bytes / max(r.workers, 1)), p.rows_a_pass
    found = rows * p.row_bytes  # what a pass brings: on the workers until it is fetched, here twice while it is joined
    piece = 2 * p.tile + 8 * rows * p.m * (2 if p.keeps_moments else 1) + found // max(r.workers, 1) + (64 << 20)
    square = 0 if p.N else 8 * p.m * p.m  # Y = X: M = X' (X X') X
    kept = math.ceil((share * 1.02 + piece + square + INTERPRETER) / KEPT)
    in_memory = r.worker_memory is None or kept <= r.worker_memory
    worker = kept if in_memory else _limit(piece + 2 * p.tile + (FAN_IN + 2) * square)  # read, decoded, cast
    kept_rows = 2 * p.k * p.row_bytes
    bound_rows = p.sketch_rows if p.slots > 2 else 0
    client = p.tables + kept_rows + 2 * found + 4 * bound_rows * p.n + 8 * p.n * (6 + p.N) + 4 * square
    lacks = _WHOLE if p.needs_gram else _short(p, r, worker, client, f"{gib(p.tile)} a chunk", "tables, Gram rows")
    lacks = (p.needs_factor and _FACTOR) or lacks
    more = math.ceil(p.k / rows)
    first = (1 if p.N else 4) + bool(bound_rows)  # norms; X X', the diagonal of M, and the check; rows for bounds
    where = "kept in the workers' memory" if in_memory else "read from the store for each pass"
    reason = (
        f"the Gram matrix ({p.n} x {p.n}) does not fit; columns stay in blocks of {p.chunk[1]}, {where}, and "
        f"a pass brings the Gram rows of {rows} columns"
    )
    passes = first + more
    read = p.x_bytes * (1 if in_memory else passes)
    flops = 2 * p.m * p.n * (p.N + rows * more) + (0 if p.N else 3 * p.m * p.m * p.n)
    return Representation(
        "shards", worker, client, passes, read, flops, True, rows_a_pass=rows, kept_bytes=kept_rows,
        bound_rows=bound_rows,
        in_memory=in_memory, lacks=lacks, reason=lacks or reason, rank=min(p.m, p.n),
    )  # fmt: skip


def _sketch(p: Problem, r: Resources) -> Representation:
    kept = min(max(50, 5 * p.k), p.m, p.n)
    width = min(kept + OVERSAMPLING, p.m, p.n)
    tall, wide = 8 * (width + OVERSAMPLING) * p.m, 8 * (width + OVERSAMPLING) * p.n
    if p.chunk[1] >= p.n:  # row blocks: sums of l x n, and rows of m x l that wait until they are fetched
        sums, waiting, sent = (FAN_IN + 2) * wide, tall, tall + wide
    else:  # column blocks: sums of m x l, and columns of l x n that wait
        sums, waiting, sent = (FAN_IN + 2) * tall, wide, 2 * tall
    worker = _limit(2 * p.tile + sums + sent + waiting // max(r.workers, 1) + (64 << 20))
    client = 3 * tall + 5 * wide + p.tables
    if p.needs_gram:
        lacks = _WHOLE
    elif p.N:
        lacks = "With targets apart from X the data themselves do, in column shards."
    else:
        lacks = _short(p, r, worker, client, f"{gib(p.tile)} a chunk", f"W, {kept} x {p.n}")
    passes = 2 + sketch_passes(POWERS)  # with the norms and the check
    reason = f"neither {p.n} x {p.n} nor {p.m} x {p.m} fits: {kept} dimensions of the data, and an estimate of the rest"
    return Representation(
        "sketch", worker, client, passes, passes * p.x_bytes, 2 * p.m * p.n * width * passes, False,
        lacks=lacks, reason=lacks or reason, rank=kept,
    )  # fmt: skip
