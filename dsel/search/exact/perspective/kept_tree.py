"""What a finished tree of relaxations leaves to the same proof on other data, as arrays of bounded size.

It is the advice of `dsel.search.exact.perspective.node` for each node. The next tree computes its own bounds from it,
whatever changed in the data: only how long it takes depends on that. Columns of norm 1 are other columns when rows are
added, so coefficients are saved with the norms, and rescaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats
from dsel.search.exact.perspective.node import CachedRelaxation, Path, WarmStart

#: Of the largest diagonal that keeps K - D positive semidefinite, the share that is used.
_INSIDE = 1.0 - 1e-6
#: Bytes of a node besides its coefficients.
_NODE_BYTES = 16
_NO_COLUMNS = np.zeros(0, np.int64)


def as_arrays(advice: WarmStart, norms: Floats, most_bytes: int, seconds: float) -> dict[str, Any]:
    """Return the advice of a tree as arrays.

    seconds: about how long the last tree took that followed none. norms (n,): of the columns, whose coefficients are
    for norm 1. most_bytes: nodes far from the root are left out if there would be more.
    """
    known = sorted(advice.known.items(), key=lambda item: len(item[0] or ()))
    sizes = np.cumsum([_NODE_BYTES + 4 * (found.support.size + found.b.size) for _, found in known])
    known = known[: int(np.searchsorted(sizes, most_bytes - 24 * norms.size, side="right"))]
    place: dict[Path, int] = {path: i for i, (path, _) in enumerate(known)}
    parents = [place.get(path[:-1], -1) if path else -1 for path, _ in known]
    targets = next((found.b.reshape(found.support.size, -1).shape[1] for _, found in known if found.support.size), 1)
    rows = [found.b.reshape(found.support.size, targets) for _, found in known]
    return {
        "k": np.int64(advice.k), "seconds": np.float64(seconds), "d": advice.d, "norms": norms,
        "learned": np.asarray(advice.learned, np.float64),
        "parent": np.asarray(parents, np.int32),
        "step": np.asarray([path[-1] if path else 0 for path, _ in known], np.int32),
        "column": np.asarray([advice.column(path) for path, _ in known], np.int32),
        "support_sizes": np.asarray([found.support.size for _, found in known], np.int32),
        "support": np.concatenate([_NO_COLUMNS, *(found.support for _, found in known)]).astype(np.int32),
        "b": np.concatenate([np.zeros((0, targets)), *rows]).astype(np.float32),
    }  # fmt: skip


def from_arrays(saved: Mapping[str, Any], K: Floats, norms: Floats) -> WarmStart:
    """Return the advice that `as_arrays` wrote, for other columns.

    K (n, n): K + lam I for columns of norm 1. norms (n,): theirs. Raises ValueError if nothing can follow it.
    """
    k = int(saved["k"])
    advice = WarmStart(
        k,
        feasible(K, np.asarray(saved["d"], np.float64)),
        (),
        learned=saved["learned"].tolist(),
        seconds=float(saved["seconds"]),
    )
    paths: list[Path] = []
    ends = np.cumsum(saved["support_sizes"])
    ratio = norms / saved["norms"]
    for i, (parent, step, column, end) in enumerate(
        zip(*(saved[name].tolist() for name in ("parent", "step", "column")), ends.tolist(), strict=True)
    ):
        path = (*(paths[parent] or ()), step) if parent >= 0 else (() if step == 0 else None)
        paths.append(path)
        own = slice(end - int(saved["support_sizes"][i]), end)
        support = saved["support"][own].astype(np.int64)
        b = saved["b"][own].astype(np.float64) * ratio[support][:, None]
        advice.keep(path, CachedRelaxation(k, support, b[:, 0] if b.shape[1] == 1 else b))
        if column >= 0:
            advice.branched(path, column)
    return advice


def feasible(K: Floats, d: Floats) -> Floats:
    """Return the largest multiple of a diagonal (n,) for which K - D is positive semidefinite. O(n^3)."""
    if d.shape != K.shape[:1] or not (np.isfinite(d).all() and d.min() > 0.0):
        raise ValueError("the diagonal of the saved tree does not fit the columns")
    root = np.sqrt(d)
    most = scipy.linalg.eigh(
        K / np.outer(root, root), eigvals_only=True, subset_by_index=[0, 0], check_finite=False
    )[0]  # fmt: skip
    if not most > 0.0:
        raise ValueError("columns are nearly dependent")
    return np.asarray(_INSIDE * float(most) * d)
