"""Columns that are nearly copies of others are one signal: the first of each cluster represents it in the search.

Otherwise rounding and noise decide which of them is chosen, so that choices change between rows, sizes and runs, and
proofs about subsets with two of them say little. A penalty tells columns of different scales apart. Then only columns
of nearly the same norm are one signal, and two of them may be better than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dsel._lib.tolerances import EXACT_COPY, NEAR_COPY, same_norm
from dsel._lib.types import Floats
from dsel.data.labels import format_labels
from dsel.errors import OptionError
from dsel.objective.objective_interface import Objective
from dsel.passes.columns.column_statistics import SIGNED, ColumnStatistics
from dsel.passes.statistics import ColumnScales
from dsel.planning.validation import ValidatedRequest

_CENTERED = ("standardize", "center")
#: Their columns have equal norms.
_SCALED = ("standardize", "unit")
#: Clusters that a note names.
_MOST_NAMED = 10

Clusters = tuple[tuple[int, ...], ...]


def one_of_each(
    validated: ValidatedRequest, statistics: ColumnScales, whole: Objective
) -> tuple[ValidatedRequest, Clusters]:
    """Return the request with all columns excluded that another one represents, and the clusters, that one first.

    whole: the objective over all columns, whose Gram matrix has the correlations. Without it, those of centered columns
    are estimated from the statistics. Included columns represent others, and columns that are excluded do not. Columns
    of a group stay together, and are compared with no others. For a custom criterion no column is left out. Errors:
    OptionError if the request refuses near-copies.
    """
    request = validated.request
    if request.near_copies == "keep" or validated.criterion is not None or whole.n != validated.summary.n:
        return validated, ()
    of_columns = None if whole.has_gram else statistics
    if of_columns is not None and not (isinstance(of_columns, ColumnStatistics) and request.preprocess in _CENTERED):
        return validated, ()
    unusable = np.flatnonzero(statistics.unusable(request.preprocess))
    left = np.setdiff1d(np.arange(whole.n), [*validated.exclude, *unusable, *validated.include])
    if validated.groups is not None:
        left = left[validated.groups.sizes[validated.groups.of_column[left]] == 1]
    compared = [*validated.include.tolist(), *left.tolist()]
    penalty = request.lam > 0.0 or bool(getattr(validated.options, "penalties", ()))
    any_scale = request.preprocess in _SCALED or not penalty
    if of_columns is None:
        clusters = clusters_of(whole.K, compared, any_scale)
    else:
        clusters = estimated_clusters(of_columns, compared, any_scale)
    included = set(validated.include.tolist())
    clusters = tuple((first, *[j for j in rest if j not in included]) for first, *rest in clusters)
    clusters = tuple(cluster for cluster in clusters if len(cluster) > 1)
    copies = left_out(clusters)
    if not copies:
        return validated, ()
    if request.near_copies == "refuse":
        raise OptionError(
            f"X has {len(copies)} columns that are nearly copies of others (correlation above 1 - 1e-6): "
            f"{format_labels(validated.dataset.features, copies)}.",
            'Exclude them, or use near_copies="first".',
        )
    return replace(validated, exclude=np.union1d(validated.exclude, copies).astype(np.int64)), clusters


def clusters_of(K: Floats, columns: Sequence[int], any_scale: bool = True) -> Clusters:
    """Return sets of columns of a Gram matrix, of which the first correlates with all others by at least 1 - 1e-6.

    columns: those that are compared, in the order in which they may represent others. any_scale: whether columns of
    different norms may be in a cluster. O(n^2).
    """
    order = np.asarray(columns, np.int64)
    norms = np.sqrt(np.maximum(np.diag(K), 0.0))[order]
    free = norms > 0.0
    if not np.array_equal(order, np.arange(len(K))):
        K = K[np.ix_(order, order)]
    found = []
    for i, j in enumerate(order.tolist()):
        if not free[i]:
            continue
        near = np.abs(K[i, i + 1 :]) >= (1.0 - NEAR_COPY) * norms[i] * norms[i + 1 :]
        near &= any_scale | same_norm(norms[i], norms[i + 1 :])
        copies = i + 1 + np.flatnonzero(near & free[i + 1 :])
        if copies.size:
            free[copies] = False
            found.append((j, *order[copies].tolist()))
    return tuple(found)


def estimated_clusters(statistics: ColumnStatistics, columns: Sequence[int], any_scale: bool = True) -> Clusters:
    """Return the same for wide data, by sums of the standardized columns with random signs: O(n log n).

    The squares of the differences of the sums of two columns have twice 1 - correlation as their expected value.
    """
    from scipy.spatial import KDTree

    order = np.asarray(columns, np.int64)
    order = order[statistics.squares[order] > 0.0]
    norms = np.sqrt(statistics.squares[order])
    points = statistics.sums[order] / norms[:, None]
    signed, radius = np.vstack([points, -points]), np.sqrt(2.0 * NEAR_COPY * SIGNED)
    tree = KDTree(signed, compact_nodes=False, balanced_tree=False)
    distance, _ = tree.query(points, k=2, distance_upper_bound=radius)
    free, found = np.isfinite(distance[:, 1]), []
    for i in np.flatnonzero(free).tolist():
        if not free[i]:
            continue
        near = np.unique(np.asarray(tree.query_ball_point(points[i], radius)) % order.size)
        near = near[free[near] & (near > i)]
        copies = near[any_scale | same_norm(norms[i], norms[near])]
        if copies.size:
            free[copies] = False
            found.append((int(order[i]), *order[copies].tolist()))
    return tuple(found)


def note_on(clusters: Clusters, labels: Sequence[str]) -> str:
    """Return which columns represent which others."""
    named = "; ".join(
        f"{labels[first]} for {format_labels(np.asarray(labels, object), rest)}"
        for first, *rest in clusters[:_MOST_NAMED]
    )
    more = f"; and {len(clusters) - _MOST_NAMED} more" if len(clusters) > _MOST_NAMED else ""
    return (
        f"columns that correlate by more than 1 - 1e-6 are one signal, and the first one represents the others: {named}"
        f"{more}, in proofs, too (near_copies=keep searches all of them)"
    )


def left_out(clusters: Sequence[Sequence[int]]) -> list[int]:
    """Return the columns of the data that another column represents, ascending."""
    return sorted(j for _, *rest in clusters for j in rest)


def not_covered(clusters: Clusters, lam: float, statistics: ColumnScales, whole: Objective) -> int:
    """Return how many columns are left out that may be in better subsets.

    With a penalty these are all that others represent, since two coefficients cost less than one. Without, these are
    the columns that are no multiples of their representative, up to rounding.
    """
    if lam > 0.0:
        return len(left_out(clusters))
    pairs = [(first, j) for first, *rest in clusters for j in rest]
    if isinstance(statistics, ColumnStatistics) and not whole.has_gram:
        z = {j: statistics.sums[j] / np.sqrt(statistics.squares[j]) for pair in pairs for j in pair}
        apart = (min(float(np.square(z[i] + sign * z[j]).mean()) for sign in (1, -1)) for i, j in pairs)
        return sum(squared > 2.0 * EXACT_COPY for squared in apart)
    K = whole.K
    return int(sum(abs(K[i, j]) < (1.0 - EXACT_COPY) * np.sqrt(K[i, i] * K[j, j]) for i, j in pairs))
