"""Columns that are nearly copies of others are one signal: the first of each cluster represents it in the search.

Otherwise rounding and noise decide which of them is chosen, so that choices change between rows, sizes and runs, and
proofs about subsets with two of them say little. A penalty tells columns of different scales apart. Then only columns
of nearly the same norm are one signal, and two of them may be better than one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.tolerances import (
    DEPENDENCE_TOLERANCE,
    EXACT_COPY,
    LIKELY_COPY,
    NEAR_COPY,
    REAL,
    perturbation,
    same_norm,
)  # fmt: skip
from dsel._lib.types import Floats, Ints
from dsel.config.request import Preprocess, SelectionRequest
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels
from dsel.engine.engine_protocol import Engine
from dsel.errors import OptionError
from dsel.objective.objective_interface import Objective
from dsel.passes.columns.column_statistics import SIGNED, ColumnStatistics
from dsel.passes.multiples import distances_to_multiples
from dsel.passes.statistics import ColumnScales
from dsel.planning.validation import ValidatedRequest
from dsel.selection.represented import left_out

_CENTERED = ("standardize", "center")
#: Their columns have equal norms.
_SCALED = ("standardize", "unit")
#: Clusters that a note names.
_MOST_NAMED = 10
#: Rows of the Gram matrix that are compared at the same time.
_ROWS = 256
#: Near-copies are two signals if their difference explains at least this share of Y more, and this over m, which is
#: more than the best of many differences explains by chance.
_LEAST_GAIN, _CHANCE = 0.01, 25.0

Clusters = tuple[tuple[int, ...], ...]


def one_of_each(
    validated: ValidatedRequest, statistics: ColumnScales, whole: Objective
) -> tuple[ValidatedRequest, Clusters, tuple[str, ...]]:
    """Return the request with all columns excluded that others represent, the clusters, and notes on them.

    whole: the objective over all columns, whose Gram matrix has the correlations. Without it, they are estimated from
    the statistics. Included columns represent others, and columns that are excluded do not. Columns
    of a group stay together, and are compared with no others. For a custom criterion no column is left out. Errors:
    OptionError if the request refuses near-copies.
    """
    request, labels = validated.request, validated.dataset.features
    if validated.criterion is not None or whole.n != validated.summary.n:
        return validated, (), ()
    of_columns = None if whole.has_gram else statistics
    if of_columns is not None and (request.near_copies == "keep" or not isinstance(of_columns, ColumnStatistics)):
        return validated, (), ()
    unusable = np.flatnonzero(validated.useless(statistics))
    left = np.setdiff1d(np.arange(whole.n), [*validated.exclude, *unusable, *validated.include])
    if validated.groups is not None:
        left = left[validated.groups.sizes[validated.groups.of_column[left]] == 1]
    compared = [*validated.include.tolist(), *left.tolist()]
    penalty = request.lam > 0.0 or bool(getattr(validated.options, "penalties", ()))
    any_scale = request.preprocess in _SCALED or not penalty
    if of_columns is None:
        found = _Comparison(whole, statistics.m, any_scale)
        clusters, notes = found.clusters(compared), tuple(found.notes(labels.tolist()))
    else:
        clusters, notes = estimated_clusters(of_columns, compared, request.preprocess, any_scale), ()
    if request.near_copies == "keep":
        return validated, (), notes
    included = set(validated.include.tolist())
    clusters = tuple((first, *[j for j in rest if j not in included]) for first, *rest in clusters)
    clusters = tuple(cluster for cluster in clusters if len(cluster) > 1)
    copies = left_out(clusters)
    if not copies:
        return validated, (), notes
    if request.near_copies == "refuse":
        raise OptionError(
            f"X has {len(copies)} columns that are nearly copies of others (correlation of at least 1 - 1e-6): "
            f"{format_labels(labels, copies)}.",
            'Exclude them, or use near_copies="first".',
        )
    which = "whose cosine is at least 1 - 1e-6"
    if request.preprocess in _CENTERED or of_columns is not None:
        which = "that correlate by at least 1 - 1e-6"
    if request.preprocess not in _CENTERED and of_columns is not None:
        which += " and have means in the same proportion"
    notes = (*notes, note_on(clusters, validated.dataset, which, any_scale))
    return replace(validated, exclude=np.union1d(validated.exclude, copies).astype(np.int64)), clusters, notes


class _Comparison:
    """Comparisons of columns by their Gram matrix, which find near-copies and where their differences explain Y.

    whole: the objective over all columns of m rows. any_scale: whether columns of different norms may be in a cluster.
    """

    def __init__(self, whole: Objective, m: int, any_scale: bool) -> None:
        self._K, self._any_scale = whole.K, any_scale
        self._cross, self._total, self._lam = whole.cross, whole.total, whole.lam
        self._least = _LEAST_GAIN + _CHANCE / m
        self._norms = np.sqrt(np.maximum(np.diag(self._K), 0.0))
        self._telling: list[tuple[int, int, float, bool]] = []

    def clusters(self, columns: Sequence[int]) -> Clusters:
        """Return sets of columns of which the first correlates with all others by at least 1 - 1e-6. O(n^2).

        columns: those that are compared, in the order in which they may represent others. A column whose difference
        from the first explains Y is in no set with it, unless both are too nearly dependent to be chosen together.
        """
        order, norms, found = np.asarray(columns, np.int64), self._norms, []
        free = norms[order] > 0.0
        for i in self._with_copies(order).tolist():
            if not free[i]:
                continue
            j = int(order[i])
            others = order[i + 1 :]
            near = free[i + 1 :] & (np.abs(self._K[j, others]) >= (1.0 - NEAR_COPY) * norms[j] * norms[others])
            near &= self._any_scale | same_norm(norms[j], norms[others])
            if near.any():
                near[near] = ~self._differ(j, others[near])
                free[i + 1 :][near] = False
                found.append((j, *others[near].tolist()))
        return tuple(cluster for cluster in found if len(cluster) > 1)

    def _with_copies(self, order: Ints) -> Ints:
        """Return the places of the columns that have a near-copy, ascending."""
        scale = (1.0 - NEAR_COPY) * self._norms[order]
        whole = np.array_equal(order, np.arange(len(self._K)))
        found = [np.empty(0, np.int64)]
        for start in range(0, order.size, _ROWS):
            places = np.arange(start, min(start + _ROWS, order.size))
            rows = np.abs(self._K[start : places[-1] + 1] if whole else self._K[np.ix_(order[places], order)])
            near = rows >= np.outer(self._norms[order[places]], scale)
            near[places - start, places] = False
            found.append(places[near.any(axis=1)])
        return np.concatenate(found)

    def _differ(self, i: int, copies: Ints) -> NDArray[np.bool_]:
        """Return which near-copies of a column can be chosen with it, and then explain much more than it does."""
        slope = self._K[copies, i] / self._K[i, i]
        left = np.diag(self._K)[copies] - slope * self._K[copies, i]
        of_targets = self._K if self._cross is None else self._cross
        explained = np.square(of_targets[copies] - slope[:, None] * of_targets[i]).sum(axis=1)
        real = left > REAL * perturbation(len(self._K)) * np.diag(self._K)[copies]
        gain = np.where(real, explained / (np.maximum(left, 1e-300) + 2.0 * self._lam), 0.0) / self._total
        independent: NDArray[np.bool_] = left > DEPENDENCE_TOLERANCE * np.diag(self._K)[copies]
        telling = gain > self._least
        rows = zip(copies[telling].tolist(), gain[telling].tolist(), independent[telling].tolist(), strict=True)
        self._telling += [(i, j, share, both) for j, share, both in rows]
        return telling & independent

    def notes(self, labels: Sequence[str]) -> Iterator[str]:
        """Yield which differences of near-copies explain much, first those that explain most."""
        for i, j, share, both in sorted(self._telling, key=lambda row: -row[2])[:_MOST_NAMED]:
            pair = f"{labels[i]} and {labels[j]} are nearly copies, but their difference explains {share:.1%} of Y more"
            alone = ", and no subset has both, as they depend on each other within 1e-7: make it a column"
            yield pair + (": both are searched" if both else alone)


def _points(statistics: ColumnStatistics, columns: Ints, preprocess: Preprocess) -> Floats:
    """Return sums of the standardized columns with random signs, and without centering their means over deviations.

    The squares of the differences of the sums of two columns have twice 1 - correlation as their expected value. The
    means count as much as an equal part of the columns would.
    """
    norms = np.sqrt(statistics.squares[columns])[:, None]
    means = np.sqrt(SIGNED * statistics.weight) * statistics.mean_x[columns, None]
    return np.hstack([statistics.sums[columns], *([] if preprocess in _CENTERED else [means])]) / norms


def estimated_clusters(
    statistics: ColumnStatistics, columns: Sequence[int], preprocess: Preprocess, any_scale: bool
) -> Clusters:
    """Return the same for wide data, by sums of the columns with random signs: O(n log n).

    Without centering, the columns of a set are also multiples of each other: large means hide no difference.
    """
    from scipy.spatial import KDTree

    order = np.asarray(columns, np.int64)
    order = order[statistics.squares[order] > 0.0]
    norms = np.sqrt(statistics.preprocessed_squares(preprocess)[order])
    points = _points(statistics, order, preprocess)
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


def note_on(clusters: Clusters, dataset: Dataset, which: str, any_scale: bool) -> str:
    """Return which columns represent which others, and by which rule. which: what their columns have in common.

    Several columns of a category that represent those of others are named together.
    """
    labels = dataset.features
    sources = labels if dataset.categories is None else dataset.categories
    alike: dict[tuple[str, ...], list[tuple[int, ...]]] = defaultdict(list)
    for cluster in clusters:
        alike[tuple(sources[list(cluster)])].append(cluster)
    every = [
        f"{labels[found[0][0]]} for {format_labels(labels, found[0][1:])}" if len(found) == 1
        else f"the {len(found)} columns of {first} for those of {' and '.join(dict.fromkeys(others))}"
        for (first, *others), found in alike.items()
    ]  # fmt: skip
    named = "; ".join(every[:_MOST_NAMED])
    more = f"; and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    norms = "" if any_scale else ", and have nearly the same norm,"
    means = "; means count, and large ones hide what differs: preprocess=center compares without them"
    return (
        f"columns {which}{norms} are one signal, and the first represents the others: {named}{more}, in proofs, too "
        f"(near_copies=keep searches all of them{means if 'cosine' in which else ''})"
    )


def judged(
    clusters: Clusters, dataset: Dataset, request: SelectionRequest, statistics: ColumnScales, whole: Objective,
    engine: Engine,
) -> dict[str, Any]:  # fmt: skip
    """Return as counts which columns that others represent may be in better subsets, and how far the rest differ.

    With a penalty these are all, since two coefficients cost less than one. Without, these are the columns that are no
    multiples of their representative up to rounding, by a read of those that may be. `copies_differ` is the largest
    distance of the multiples, as a share of their norms.
    """
    counts: dict[str, Any] = {"copies": [list(cluster) for cluster in clusters], "copies_differ": 0.0}
    pairs = [(first, j) for first, *rest in clusters for j in rest]
    multiples: dict[int, float] = {}
    if request.lam == 0.0:
        likely = _likely_multiples(pairs, request.preprocess, statistics, whole)
        centered, filled = request.preprocess in _CENTERED, request.missing == "mean"
        squares = statistics.squares + (0.0 if centered else statistics.weight * statistics.mean_x**2)
        means = statistics.mean_x
        distances = distances_to_multiples(
            dataset, likely, squares, means if centered else None, means if filled else None, engine
        )
        found = zip(likely, distances.tolist(), strict=True)
        multiples = {j: distance for (_, j), distance in found if distance <= EXACT_COPY}
        counts["copies_differ"] = max(multiples.values(), default=0.0)
    represented = [j for _, j in pairs if j not in multiples]
    return counts | ({"not_covered": represented} if represented else {})


def _likely_multiples(
    pairs: list[tuple[int, int]], preprocess: Preprocess, statistics: ColumnScales, whole: Objective
) -> list[tuple[int, int]]:
    """Return the pairs that correlate so well that one may be a multiple of the other."""
    if not pairs:
        return []
    first, copies = np.asarray(pairs, np.int64).T
    if isinstance(statistics, ColumnStatistics) and not whole.has_gram:
        a, b = (_points(statistics, columns, preprocess) for columns in (first, copies))
        apart = np.minimum(np.square(a - b).sum(axis=1), np.square(a + b).sum(axis=1))
        likely = apart <= 2.0 * LIKELY_COPY * SIGNED
    else:
        diagonal = np.diag(whole.K)
        likely = np.abs(whole.K[first, copies]) >= (1.0 - LIKELY_COPY) * np.sqrt(diagonal[first] * diagonal[copies])
    return [pair for pair, is_likely in zip(pairs, likely.tolist(), strict=True) if is_likely]
