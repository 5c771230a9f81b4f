"""The choice of a representation: the first in the order of preference that supports the method and fits the memory."""

from __future__ import annotations

import math
from dataclasses import replace

from dsel._lib.byte_sizes import format_bytes
from dsel.errors import CapacityError, DselError
from dsel.objective.objective_interface import MOST_DENSE
from dsel.planning.representations.column_blocks import InColumnBlocks
from dsel.planning.representations.gram import GivenSums, GramMatrix, TiledGram
from dsel.planning.representations.reduced import RowGram, Sketch
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.search.method import ProblemSummary
from dsel.search.registry import METHODS

#: All representations.
REPRESENTATIONS: tuple[type[Representation], ...] = (GramMatrix, TiledGram, RowGram, InColumnBlocks, Sketch)
#: With more columns than this, a few passes over columns in memory take less time than their Gram matrix.
_MOST_DENSE_IN_MEMORY = 1000
#: A proof may try this many subsets.
_MOST_TRIED = 10**11


def candidates(shape: ProblemShape, resources: Resources) -> tuple[Representation, ...]:
    """Return all representations, the most preferred first.

    The tiled Gram matrix comes after exact ones that read less. Columns in blocks come first where the method needs few
    rows of a large Gram matrix. Sums of rows are the Gram matrix.
    """
    if shape.summed:
        return (GivenSums(shape, resources),)
    gram, tiled, *others, sketch = (kind(shape, resources) for kind in REPRESENTATIONS)
    if shape.rows_beat_gram:
        others.sort(key=lambda one: one.name != InColumnBlocks.name)
        return (*others, gram, tiled, sketch)
    if any(not other.obstacle and other.bytes_read < tiled.bytes_read for other in others):
        return (gram, *others, tiled, sketch)
    return (gram, tiled, *others, sketch)


def choose(shape: ProblemShape, resources: Resources) -> Representation:
    """Return the first candidate that can be used.

    A requested sketch is the only one. Errors: CapacityError with the numbers of each where none can.
    """
    found = candidates(shape, resources)
    for one in found:
        if not one.obstacle and (one.name == Sketch.name or shape.sketch is None):
            return one
    if shape.sketch is not None:
        remedy = "Leave reduce out." if found[-1].unsupported else "Reduce to a smaller rank, or give more memory."
        raise CapacityError(found[-1].obstacle, remedy)
    first = found[0]
    tried = "".join(f" As {one.name}: {one.shortage}" for one in found[1:] if not one.unsupported)
    raise CapacityError(f"{first.obstacle}{tried}", _remedy(shape, resources, first))


def gram_proves_nothing(shape: ProblemShape, lam: float, to_choose: int) -> bool:
    """Return whether the Gram matrix proves no more than the targets alone, unless columns depend on each other.

    All columns explain the targets whatever these are, and there are too many subsets to try.
    """
    return shape.N > 0 and lam == 0.0 and shape.n >= shape.m and math.comb(shape.n, to_choose) > _MOST_TRIED


def choose_for_proof(
    shape: ProblemShape, resources: Resources, *, in_passes: bool, saved: bool, quick_passes: bool = False
) -> Representation:
    """Return the representation for a proof: the Gram matrix, unless it does not fit or there are many columns.

    in_passes: whether a proof without the Gram matrix proves as much. saved: whether the matrix is saved. quick_passes:
    whether a few passes over columns in memory suffice. Errors: CapacityError where none can be used.
    """
    found, most = choose(shape, resources), _MOST_DENSE_IN_MEMORY if quick_passes else MOST_DENSE
    if not found.holds_gram or not in_passes or saved or shape.summed or shape.n <= most:
        return found
    blocks = InColumnBlocks(shape, resources)
    return found if blocks.obstacle else blocks


def _remedy(shape: ProblemShape, resources: Resources, gram: Representation) -> str:
    if resources.worker_memory is not None and gram.worker_bytes > resources.worker_memory:
        least = format_bytes(gram.worker_bytes, up=True)
        remedies = [f"Give each worker at least {least}", "smaller row blocks (dsel ingest --memory)"]
    else:
        remedies = ["Use a machine with more memory"]
    if (sums := shape.needs.gram_sums) > 1:
        fewer = (type(gram)(replace(shape, needs=replace(shape.needs, gram_sums=q)), resources) for q in range(2, sums))
        fit = sum(1 for one in fewer if not one.obstacle)
        remedies.append(shape.needs.fewer_sums + f" (the Gram matrices of {fit + 1} fit)" * (fit > 0))
    elif shape.needs.whole_gram or shape.needs.eigen_factor:
        able = ", ".join(methods_without_gram(shape))
        remedies.append(f"a method that does not need the Gram matrix ({able}), with its default options")
    return ", ".join([*remedies, "or select from fewer columns."])


def methods_without_gram(shape: ProblemShape) -> list[str]:
    """Return the methods that need neither K nor W for such a problem, with their default options."""
    summary = ProblemSummary(shape.m, shape.n, shape.N, shape.k)
    found = []
    for name, method in METHODS.items():
        try:
            needs = method.requirements(summary, method.options())
        except DselError:  # its tables do not fit either
            continue
        if not (needs.whole_gram or needs.eigen_factor or (method.unsupervised_only and shape.N)):
            found.append(name)
    return found
