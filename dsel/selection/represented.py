"""What columns that others represent change in statements about the columns that were searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dsel._lib.tolerances import DEPENDENCE_TOLERANCE, copies_share
from dsel.objective.objective_interface import Objective
from dsel.search.exact.certificate import NOTHING, Certificate
from dsel.selection.alternatives import Alternatives

#: Eigenvalues are computed of at most this many columns. Sums of products of unit columns, and so their eigenvalues,
#: are rounded to this for each column. Smaller singular values say nothing.
_MOST_COLUMNS, _ROUNDING, _LEAST_SINGULAR = 3000, 1e-10, 1e-3


def left_out(clusters: Sequence[Sequence[int]]) -> list[int]:
    """Return the columns of the data that another column represents, ascending."""
    return sorted(j for _, *rest in clusters for j in rest)


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


def over_copies(proof: Certificate, counts: Mapping[str, Any], k: int) -> Certificate:
    """Return a certificate over representatives as a statement about all subsets, as far as it is one.

    counts: those of the selection. k: the columns that were asked for, or that a rule chose. If the included ones are
    as many, no subset has a copy. Two copies share a coefficient between them, so that limits leave out multiples, too.
    """
    if proof.method.startswith(NOTHING) and proof.size == k:
        return proof
    if proof.coefficients or proof.largest_coefficient:
        return replace(proof, represented=len(left_out(counts.get("copies", ()))))
    represented = len(inexact_copies(counts)) or int(counts.get("represented", 0))
    share = copies_share(proof.size, counts.get("copies_differ", 0.0))
    bound = max(proof.bound - share * proof.total, 0.0)
    proof = replace(proof, bound=bound, rounding_error=proof.rounding_error + share, represented=represented)
    pairs = [tuple(pair) for pair in counts.get("nearly_multiples", ()) if proof.size > 1]
    unknown = [pair for pair in pairs if not any(set(pair) <= set(columns) for columns in proof.near_copies)]
    if not unknown:
        return proof
    share = max(proof.dependent_gap, proof.value / proof.total)  # all that is left: the Gram matrix does not tell
    return replace(proof, near_copies=(*proof.near_copies, *unknown), dependent_gap=share)


def listed_over_copies(
    found: Alternatives, counts: Mapping[str, Any], errors_of: Callable[[Sequence[tuple[int, ...]]], Sequence[float]],
    sure: float, whole: Objective | None = None, searched: Objective | None = None,
) -> Alternatives:  # fmt: skip
    """Return near-best subsets of representatives, whose verdicts and prices count the columns that they represent.

    errors_of: returns f of subsets of columns of the data, infinity where they are dependent. sure: see
    `NearBestAnswer`. Others: see `gain_of_copies`.
    """
    if "copies" not in counts:
        return found
    gain_of = partial(gain_of_copies, counts, whole=whole, searched=searched)
    return found.over_representatives(counts["copies"], errors_of, gain_of, sure)
