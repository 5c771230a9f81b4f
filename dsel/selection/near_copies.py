"""Columns that are nearly copies of others are one signal: the first of each cluster represents it in the search.

Otherwise rounding and noise decide which of them is chosen, so that choices change between rows, sizes and runs, and
proofs about subsets with two of them say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dsel._lib.tolerances import EXACT_COPY, NEAR_COPY
from dsel._lib.types import Floats, Ints
from dsel.data.labels import format_labels
from dsel.errors import OptionError
from dsel.objective.objective_interface import Objective
from dsel.planning.validation import ValidatedRequest

#: Clusters that a note names.
_MOST_NAMED = 10

Clusters = tuple[tuple[int, ...], ...]


def one_of_each(validated: ValidatedRequest, unusable: Ints, whole: Objective) -> tuple[ValidatedRequest, Clusters]:
    """Return the request with all columns excluded that another one represents, and the clusters, that one first.

    unusable: constant columns. whole: the objective over all columns, whose Gram matrix has the correlations. Included
    columns represent others, and columns that are excluded do not. Columns of a group stay together. Without a Gram
    matrix, and for another loss or a custom criterion, no column is left out. Errors: OptionError if the request
    refuses near-copies.
    """
    request = validated.request
    if request.near_copies == "keep" or not whole.has_gram or whole.n != validated.summary.n:
        return validated, ()
    if validated.criterion is not None or validated.loss is not None:
        return validated, ()
    left = np.setdiff1d(np.arange(whole.n), [*validated.exclude, *unusable, *validated.include])
    if validated.groups is not None:
        left = left[validated.groups.sizes[validated.groups.of_column[left]] == 1]
    clusters = clusters_of(whole.K, [*validated.include.tolist(), *left.tolist()])
    copies = sorted(set(j for cluster in clusters for j in cluster[1:]) - set(validated.include.tolist()))
    if not copies:
        return validated, ()
    if request.near_copies == "refuse":
        raise OptionError(
            f"X has {len(copies)} columns that are nearly copies of others (correlation above 1 - 1e-6): "
            f"{format_labels(validated.dataset.features, copies)}.",
            'Exclude them, or use near_copies="first".',
        )
    return replace(validated, exclude=np.union1d(validated.exclude, copies).astype(np.int64)), clusters


def clusters_of(K: Floats, columns: Sequence[int]) -> Clusters:
    """Return sets of columns of a Gram matrix, of which the first correlates with all others by at least 1 - 1e-6.

    columns: those that are compared, in the order in which they may represent others. O(n^2).
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
        copies = i + 1 + np.flatnonzero(near & free[i + 1 :])
        if copies.size:
            free[copies] = False
            found.append((j, *order[copies].tolist()))
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


def inexact(clusters: Clusters, K: Floats) -> int:
    """Return how many columns another one represents without being a multiple of it, up to rounding."""
    pairs = [(first, j) for first, *rest in clusters for j in rest]
    return int(sum(abs(K[i, j]) < (1.0 - EXACT_COPY) * np.sqrt(K[i, i] * K[j, j]) for i, j in pairs))
