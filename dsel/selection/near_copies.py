"""Columns that are nearly copies of others are one signal: the first of each cluster represents it in the search.

Otherwise rounding and noise decide which of them is chosen, so that choices change between rows, sizes and runs, and
proofs about subsets with two of them say little. A penalty tells columns of different scales apart. Then only columns
of nearly the same norm are one signal, and two of them may be better than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel._lib.tolerances import (
    DEPENDENCE_TOLERANCE,
    EXACT_COPY,
    LIKELY_COPY,
    NEAR_COPY,
    REAL,
    copies_share,
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
from dsel.search.exact.certificate import Certificate
from dsel.selection.alternatives import Alternatives

_CENTERED = ("standardize", "center")
#: Their columns have equal norms.
_SCALED = ("standardize", "unit")
#: Clusters that a note names.
_MOST_NAMED = 10
#: Rows of the Gram matrix that are compared at the same time.
_ROWS = 256
#: Sums of products of unit columns are rounded to this, and so are their eigenvalues, for each column. Eigenvalues are
#: computed of at most this many columns. Smaller singular values say nothing.
_ROUNDING, _MOST_COLUMNS, _LEAST_SINGULAR = 1e-10, 3000, 1e-3
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
    unusable = np.flatnonzero(statistics.unusable(request.preprocess))
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
    notes = (*notes, note_on(clusters, labels.tolist(), which, any_scale))
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


def note_on(clusters: Clusters, labels: Sequence[str], which: str, any_scale: bool) -> str:
    """Return which columns represent which others, and by which rule. which: what their columns have in common."""
    named = "; ".join(
        f"{labels[first]} for {format_labels(np.asarray(labels, object), rest)}"
        for first, *rest in clusters[:_MOST_NAMED]
    )
    more = f"; and {len(clusters) - _MOST_NAMED} more" if len(clusters) > _MOST_NAMED else ""
    norms = "" if any_scale else ", and have nearly the same norm,"
    means = "; means count, and large ones hide what differs: preprocess=center compares without them"
    return (
        f"columns {which}{norms} are one signal, and the first represents the others: {named}{more}, in proofs, too "
        f"(near_copies=keep searches all of them{means if 'cosine' in which else ''})"
    )


def left_out(clusters: Sequence[Sequence[int]]) -> list[int]:
    """Return the columns of the data that another column represents, ascending."""
    return sorted(j for _, *rest in clusters for j in rest)


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


def inexact_copies(counts: Mapping[str, Any]) -> list[int]:
    """Return the columns that others represent and that may be in better subsets, from the counts of a selection.

    Earlier versions judged by correlations, which cannot tell. So all columns count that they left out.
    """
    return list(counts.get("not_covered", ())) if "copies_differ" in counts else left_out(counts.get("copies", ()))


def gain_of_copies(
    counts: Mapping[str, Any], size: int, whole: Objective | None = None, searched: Objective | None = None
) -> float:  # fmt: skip
    """Return by which share of ||Y||^2 subsets with represented columns can be better than those of searched ones.

    counts: of the selection. size: the most columns. whole, searched: over all columns, and over those that were
    searched; None for a loss. The share is 1 if nothing is known.

    Notes
    -----
    Let a subset U leave R of Y by the coefficients b_j, and F^2 = ||Y||^2 - f(U). Put c_j x_i in the place of each copy
    x_j = c_j x_i + e_j. The columns x_i then leave at most R + E, ||E|| <= sqrt(p) max ||e_j|| ||b|| for p copies, and
    2 ||R|| ||E|| + ||E||^2 is the share if ||E|| is one of F. Without a penalty, ||b|| <= F / s for columns of norm 1,
    where s is their least singular value. It is that of the searched columns, less sqrt(p) max ||e_j||. No independent
    subset may have two columns of a cluster. With a penalty, c_j is 1 or -1, and ||b|| <= F / sqrt(lam). Then q columns
    of a cluster share a coefficient a, and cost lam (1 - 1/q) a^2 less. All of it is at most (q - 1) / 4 of ||Y||^2,
    since lam ||b||^2 is at most a quarter, and ||a|| <= (F + ||E||) / s.
    """
    if not inexact_copies(counts):
        return copies_share(size, counts["copies_differ"])
    if whole is None or searched is None or not whole.has_gram:
        return 1.0
    clusters, K, lam = [list(cluster) for cluster in counts["copies"]], whole.K, whole.lam
    used = np.asarray([*searched.columns, *searched.included], np.int64)
    norms = np.sqrt(np.diag(K))
    least = 0.0
    if used.size <= _MOST_COLUMNS:
        unit = K[np.ix_(used, used)] / np.outer(norms[used], norms[used])
        least = max(float(np.linalg.eigvalsh(unit)[0]) - _ROUNDING * used.size, 0.0)
    first, copies = np.asarray([(i, j) for i, *rest in clusters for j in rest], np.int64).T
    p = min(copies.size, size)
    if not lam:
        between = [np.abs(K[np.ix_(S, S)]) / np.outer(norms[S], norms[S]) for S in clusters]
        both = max(1.0 - float(cosines.min()) ** 2 for cosines in between) > (1.0 - 1e-3) * DEPENDENCE_TOLERANCE
        cosines = np.abs(K[first, copies]) / (norms[first] * norms[copies])
        apart = np.sqrt(p * (2.0 * (1.0 - cosines).max() + _ROUNDING))
        smallest = np.sqrt(least) - apart
        if both or smallest <= _LEAST_SINGULAR:
            return 1.0
        moved, cheaper = apart / smallest, 0.0
    else:
        squares = norms[first] ** 2 + norms[copies] ** 2
        moved = np.sqrt(p * ((1.0 + _ROUNDING) * squares - 2.0 * np.abs(K[first, copies])).max() / lam)
        q = min(max(map(len, clusters)), size)
        cheaper = (q - 1) / 4
        if least > 0.0:
            cheaper = min(cheaper, lam * (1 - 1 / q) * (1.0 + moved) ** 2 / (least * float(norms[first].min()) ** 2))
        if searched.n <= size:  # with two columns of a cluster there are subsets where the searched ones do not suffice
            cheaper = 1.0
    return float(min(moved + moved**2 + cheaper, 1.0))


def over_copies(proof: Certificate, counts: Mapping[str, Any]) -> Certificate:
    """Return a certificate over representatives as a statement about all subsets, as far as it is one.

    counts: those of the selection. Two copies share a coefficient between them, so that limits leave out multiples,
    too.
    """
    if proof.coefficients or proof.largest_coefficient:
        return replace(proof, represented=len(left_out(counts.get("copies", ()))))
    represented = len(inexact_copies(counts)) or int(counts.get("represented", 0))
    share = copies_share(proof.size, counts.get("copies_differ", 0.0))
    bound = max(proof.bound - share * proof.total, 0.0)
    return replace(proof, bound=bound, rounding_error=proof.rounding_error + share, represented=represented)


def listed_over_copies(
    found: Alternatives, counts: Mapping[str, Any], errors_of: Callable[[Sequence[tuple[int, ...]]], Sequence[float]],
    whole: Objective | None = None, searched: Objective | None = None,
) -> Alternatives:  # fmt: skip
    """Return near-best subsets of representatives, whose verdicts and prices count the columns that they represent.

    errors_of: returns f of subsets of columns of the data, infinity where they are dependent. Others: see
    `gain_of_copies`.
    """
    if "copies" not in counts:
        return found
    gain_of = partial(gain_of_copies, counts, whole=whole, searched=searched)
    return found.over_representatives(counts["copies"], errors_of, gain_of)
