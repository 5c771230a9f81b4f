"""Columns that are nearly copies of others are one signal: the first of each cluster represents it in the search.

Otherwise rounding and noise decide which of them is chosen, so that choices change between rows, sizes and runs, and
proofs about subsets with two of them say little. A penalty tells columns of different scales apart. Then only columns
of nearly the same norm are one signal, and two of them may be better than one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
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
    perturbation,
    same_norm,
)  # fmt: skip
from dsel._lib.types import Floats, Ints
from dsel.config.request import SCALED, Preprocess, SelectionRequest
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels
from dsel.engine.engine_protocol import Engine
from dsel.errors import OptionError
from dsel.objective.objective_interface import Objective
from dsel.passes.columns.column_statistics import SIGNED, ColumnStatistics
from dsel.passes.multiples import distances_to_multiples
from dsel.passes.statistics import ColumnScales, duplicates
from dsel.planning.validation import ValidatedRequest
from dsel.selection.represented import left_out

_CENTERED = ("standardize", "center")
#: Clusters that a note names.
_MOST_NAMED = 10
#: Rows of the Gram matrix that are compared at the same time.
_ROWS = 256
#: Near-copies are two signals if their difference explains at least this share of Y more, and this over m, which is
#: more than the best of many differences explains by chance.
_LEAST_GAIN, _CHANCE = 0.01, 25.0
#: Sums with random signs estimate 1 - correlation. Pairs may be near-copies if it is below the first of these times the
#: limit, and are so beyond doubt below the second. A pair is on the wrong side with a probability below 1e-12.
_DOUBTFUL, _CERTAIN = 4.0, 0.05
#: The most pairs for each column that are read.
_MOST_PAIRS = 20

Clusters = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class NearCopies:
    """Sets of columns of which the first represents the others, and notes on them.

    distances: how far columns are from multiples of others, as shares of their norms, for pairs that were read.
    """

    clusters: Clusters = ()
    notes: tuple[str, ...] = ()
    distances: Mapping[tuple[int, int], float] = field(default_factory=dict)


def one_of_each(
    validated: ValidatedRequest, statistics: ColumnScales, whole: Objective, engine: Engine
) -> tuple[ValidatedRequest, NearCopies]:
    """Return the request with all columns excluded that others represent, and the near-copies.

    whole: the objective over all columns, whose Gram matrix has the correlations. Without it, the statistics show which
    columns may be near-copies, and a read of these decides. Included columns represent others, and columns that are
    excluded do not. Columns of a group stay together, and are compared with no others. For a custom criterion no column
    is left out. Errors: OptionError if the request refuses near-copies.
    """
    request, labels = validated.request, validated.dataset.features
    sees_all = validated.criterion is not None and request.near_copies != "refuse"
    if sees_all or whole.n != validated.summary.n:
        return validated, NearCopies()
    wide = not whole.has_gram
    if wide and not isinstance(statistics, ColumnStatistics):
        return validated, NearCopies()
    unusable = np.flatnonzero(validated.useless(statistics))
    left = np.setdiff1d(np.arange(whole.n), [*validated.exclude, *unusable, *validated.include])
    if validated.groups is not None:
        left = left[validated.groups.sizes[validated.groups.of_column[left]] == 1]
    compared = [*validated.include.tolist(), *left.tolist()]
    penalty = request.lam > 0.0 or bool(getattr(validated.options, "penalties", ()))
    any_scale = request.preprocess in SCALED or not penalty
    found: _Comparison | _WideComparison = (
        _WideComparison(validated, statistics, whole, any_scale, engine)
        if wide and isinstance(statistics, ColumnStatistics)
        else _Comparison(whole, statistics.m, any_scale)
    )
    clusters, notes = found.clusters(compared), tuple(found.notes(labels.tolist()))
    # Without centering, a multiple is one of the columns as they are, and another read tells.
    distances = found.distances if request.preprocess in _CENTERED else {}
    if request.near_copies == "keep":
        return validated, NearCopies(notes=notes, distances=distances)
    included = set(validated.include.tolist())
    clusters = tuple((first, *[j for j in rest if j not in included]) for first, *rest in clusters)
    clusters = tuple(cluster for cluster in clusters if len(cluster) > 1)
    copies = left_out(clusters)
    if not copies:
        return validated, NearCopies(notes=notes)
    which = "whose cosine is at least 1 - 1e-6"
    if request.preprocess in _CENTERED or wide:
        which = "that correlate by at least 1 - 1e-6"
    if request.preprocess not in _CENTERED and wide:
        which += " and have means in the same proportion"
    if request.near_copies == "refuse":
        raise OptionError(
            f"X has {len(copies)} columns that are nearly copies of others (columns {which}): "
            f"{format_labels(labels, copies)}.",
            'Exclude them, or use near_copies="first".',
        )
    notes = (*notes, note_on(clusters, validated.dataset, which, any_scale))
    validated = replace(validated, exclude=np.union1d(validated.exclude, copies).astype(np.int64))
    return validated, NearCopies(clusters, notes, distances)


class _Comparison:
    """Comparisons of columns by their Gram matrix, which find near-copies and where their differences explain Y.

    whole: the objective over all columns of m rows. any_scale: whether columns of different norms may be in a cluster.
    """

    def __init__(self, whole: Objective, m: int, any_scale: bool) -> None:
        self._K, self._any_scale = whole.K, any_scale
        self._norms = np.sqrt(np.maximum(np.diag(self._K), 0.0))
        self._differences = _Differences(whole, self._K if whole.cross is None else whole.cross, m)
        self.distances: dict[tuple[int, int], float] = {}

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
        slope, squares = self._K[copies, i] / self._K[i, i], np.diag(self._K)[copies]
        left = squares - slope * self._K[copies, i]
        return self._differences.tell(np.full(copies.size, i), copies, slope, left, squares)

    def notes(self, labels: Sequence[str]) -> Iterator[str]:
        """Yield which differences of near-copies explain much."""
        return self._differences.notes(labels)


class _Differences:
    """How much of Y the differences of near-copies explain, and so which near-copies are two signals.

    whole: the objective over all columns of m rows. of_targets: (n, N) their products with the targets.
    """

    def __init__(self, whole: Objective, of_targets: Floats, m: int) -> None:
        self._of_targets, self._total, self._lam = of_targets, whole.total, whole.lam
        self._least, self._n = _LEAST_GAIN + _CHANCE / m, whole.n
        #: Of pairs whose difference explains much: its share of Y, and whether a subset can have both.
        self.telling: dict[tuple[int, int], tuple[float, bool]] = {}

    def tell(self, first: Ints, copies: Ints, slope: Floats, left: Floats, squares: Floats) -> NDArray[np.bool_]:
        """Return which copies can be chosen with the first column of their pair, and then explain much more.

        All are (p,): the columns, the best multiples of the first ones, what these leave, and the squared norms of the
        copies.
        """
        product = self._of_targets[copies] - slope[:, None] * self._of_targets[first]
        real = left > REAL * perturbation(self._n) * squares
        root = np.sqrt(np.where(real, left, 1.0) + 2.0 * self._lam) * np.sqrt(self._total)  # squares may overflow
        gain = np.where(real, np.square(product / root[:, None]).sum(axis=1), 0.0)
        independent: NDArray[np.bool_] = left > DEPENDENCE_TOLERANCE * squares
        telling = gain > self._least
        for p in np.flatnonzero(telling).tolist():
            self.telling[int(first[p]), int(copies[p])] = float(gain[p]), bool(independent[p])
        return telling & independent

    def keep(self, pairs: Set[tuple[int, int]]) -> None:
        """Forget what is known of other pairs."""
        self.telling = {pair: told for pair, told in self.telling.items() if pair in pairs}

    def notes(self, labels: Sequence[str]) -> Iterator[str]:
        """Yield which differences of near-copies explain much, first those that explain most."""
        for (i, j), (share, both) in sorted(self.telling.items(), key=lambda row: -row[1][0])[:_MOST_NAMED]:
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


class _WideComparison:
    """The same without the Gram matrix: sums with random signs show which pairs may be near-copies, and a read decides.

    Without centering, the columns of a set are also multiples of each other: large means hide no difference. Where
    Y = X, no difference is known to explain Y.
    """

    def __init__(
        self, validated: ValidatedRequest, statistics: ColumnStatistics, whole: Objective, any_scale: bool,
        engine: Engine,
    ) -> None:  # fmt: skip
        self._statistics, self._preprocess, self._any_scale = statistics, validated.request.preprocess, any_scale
        self._kept = validated.request.near_copies == "keep"
        self._norms = np.sqrt(statistics.preprocessed_squares(self._preprocess))
        of_targets = whole.cross if self._preprocess in _CENTERED else None
        self._differences = None if of_targets is None else _Differences(whole, of_targets, statistics.m)
        fill = statistics.mean_x if validated.request.missing == "mean" else None
        self.distances: dict[tuple[int, int], float] = {}
        self._read = partial(
            distances_to_multiples, validated.dataset, squares=statistics.squares, centers=statistics.mean_x, fill=fill,
            engine=engine,
        )  # fmt: skip
        #: Whether too many pairs may be near-copies: then those alone are that are beyond doubt.
        self.estimated = False

    def clusters(self, columns: Sequence[int]) -> Clusters:
        """Return the same sets: O(n log n), and mostly one read of the columns that may be near-copies."""
        from scipy.spatial import KDTree

        order = np.asarray(columns, np.int64)
        order = order[self._statistics.squares[order] > 0.0]
        points = _points(self._statistics, order, self._preprocess)
        tree = KDTree(np.vstack([points, -points]), compact_nodes=False, balanced_tree=False)
        radius = np.sqrt(2.0 * NEAR_COPY * SIGNED * _DOUBTFUL)
        crowded = np.flatnonzero(np.isfinite(tree.query(points, k=2, distance_upper_bound=radius)[0][:, 1]))

        def near(i: int) -> Ints:
            """Return the later places that may be near-copies of a place."""
            places = np.unique(np.asarray(tree.query_ball_point(points[i], radius), np.int64) % order.size)
            places = places[places > i]
            return places[self._any_scale | same_norm(self._norms[order[i]], self._norms[order[places]])]

        verdicts: dict[tuple[int, int], bool] = {}
        while True:
            likely = 2.0 * NEAR_COPY * SIGNED * (_CERTAIN if self.estimated else 1.0)
            free, found, compared = np.ones(order.size, np.bool_), [], set()
            for i in crowded.tolist():
                others = near(i) if free[i] else crowded[:0]
                others = others[free[others]]
                pairs = [(int(order[i]), j) for j in order[others].tolist()]
                guesses = (_apart(points[others], points[i])[0] <= likely).tolist()
                copies = others[[verdicts.get(pair, guess) for pair, guess in zip(pairs, guesses, strict=True)]]
                compared.update(pairs)
                if copies.size:
                    free[copies] = False
                    found.append((int(order[i]), *order[copies].tolist()))
            asked = sorted(compared - verdicts.keys())
            if not asked or self.estimated:
                break
            self.estimated = len(verdicts) + len(asked) > _MOST_PAIRS * order.size
            if not self.estimated:
                verdicts.update(zip(asked, self._near(asked).tolist(), strict=True))
        if self._differences is not None:
            self._differences.keep(compared)
        return tuple(found)

    def _near(self, pairs: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
        """Return which pairs are near-copies, by a read of their columns."""
        known = self._statistics
        first, copies = np.asarray(pairs, np.int64).T
        distances = self._read(pairs)
        self.distances.update(zip(pairs, distances.tolist(), strict=True))
        left = np.minimum(np.square(distances), 1.0)
        cosines = np.sqrt(1.0 - left)
        apart = 2.0 * left / (1.0 + cosines)
        sign = _apart(*(_points(known, columns, self._preprocess) for columns in (first, copies)))[1]
        if self._preprocess not in _CENTERED:
            means = known.mean_x / np.sqrt(np.where(known.squares > 0.0, known.squares, 1.0))
            apart = apart + known.weight * np.square(means[copies] - sign * means[first])
        near: NDArray[np.bool_] = apart <= 2.0 * NEAR_COPY
        if self._differences is not None:
            squares = np.square(self._norms[copies])
            slope = sign * cosines * self._norms[copies] / self._norms[first]
            of_pairs = (first, copies, slope, left * squares, squares)
            near[near] = ~self._differences.tell(*(values[near] for values in of_pairs))
        return near

    def notes(self, labels: Sequence[str]) -> Iterator[str]:
        """Yield which differences of near-copies explain much, and whether pairs are left that only look alike."""
        if self._differences is not None:
            yield from self._differences.notes(labels)
        if self.estimated and not self._kept:
            yield (
                "many columns are nearly copies of each other, by estimates of their correlations: they are one signal "
                "only where these are beyond doubt"
            )


def _apart(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the squared distances of points, or of points and the negative ones, and 1 or -1 for these."""
    same, negative = np.square(a - b).sum(axis=-1), np.square(a + b).sum(axis=-1)
    return np.minimum(same, negative), np.where(same <= negative, 1.0, -1.0)


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
    clusters: Clusters, known: Mapping[tuple[int, int], float], dataset: Dataset, request: SelectionRequest,
    statistics: ColumnScales, whole: Objective, engine: Engine,
) -> dict[str, Any]:  # fmt: skip
    """Return as counts which columns that others represent may be in better subsets, and how far the rest differ.

    With a penalty these are all, since two coefficients cost less than one. Without, these are the columns that are no
    multiples of their representative up to rounding, by a read of those that may be, unless their distances are known.
    `copies_differ` is the largest distance of the multiples, as a share of their norms.
    """
    counts: dict[str, Any] = {"copies": [list(cluster) for cluster in clusters], "copies_differ": 0.0}
    pairs = [(first, j) for first, *rest in clusters for j in rest]
    multiples: dict[int, float] = {}
    if request.lam == 0.0:
        unread = [pair for pair in pairs if pair not in known]
        likely = _likely_multiples(unread, request.preprocess, statistics, whole)
        found = {**known, **_distances(likely, dataset, request, statistics, engine)}
        multiples = {pair[1]: found[pair] for pair in pairs if found.get(pair, np.inf) <= EXACT_COPY}
        counts["copies_differ"] = max(multiples.values(), default=0.0)
    represented = [j for _, j in pairs if j not in multiples]
    return counts | ({"not_covered": represented} if represented else {})


def nearly_multiples(
    used: Ints, dataset: Dataset, request: SelectionRequest, statistics: ColumnScales, whole: Objective, engine: Engine
) -> dict[str, Any]:  # fmt: skip
    """Return as a count which pairs of searched columns are multiples in the Gram matrix alone, by a read of them.

    Such a pair counts as dependent in every search and proof, although both columns together may explain much more.
    used: the columns of the data that are searched.
    """
    pairs = duplicates(whole.K, used) if whole.has_gram and not request.lam else []
    apart = _distances(pairs, dataset, request, statistics, engine)
    different = [list(pair) for pair in pairs if apart[pair] > EXACT_COPY]
    return {"nearly_multiples": different} if different else {}


def _distances(
    pairs: list[tuple[int, int]], dataset: Dataset, request: SelectionRequest, statistics: ColumnScales, engine: Engine
) -> dict[tuple[int, int], float]:
    """Return how far columns are from multiples of others, as shares of their norms, by a read of these columns."""
    centered, filled = request.preprocess in _CENTERED, request.missing == "mean"
    means = statistics.mean_x
    squares = statistics.squares + (0.0 if centered else statistics.weight * means**2)
    centers, fill = means if centered else None, means if filled else None
    distances = distances_to_multiples(dataset, pairs, squares, centers, fill, engine)
    return dict(zip(pairs, distances.tolist(), strict=True))


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
