"""Coordinate descent for the perspective relaxation, and products with few columns of K.

For a level t, each free column pays h(a) with a = sqrt(d_j) |b_j|: 2 t a up to a = t, then a^2 + t^2 (the reverse Huber
penalty). That is its penalty with the best weight z_j = min(1, a / t), where weights cost t^2. A column that is fixed
in pays a^2. The best b_j for the others is known in closed form.
"""

from __future__ import annotations

import numpy as np

from dsel._lib.jit import compiled
from dsel._lib.types import Bools, Floats, Ints


@compiled("i8(f8[:,::1], f8[::1], f8[::1], b1[::1], f8, i8, f8, f8[::1], f8[::1])", nogil=True)
def descend(
    K: Floats, d: Floats, root: Floats, fixed: Bools, t: float, most: int, tolerance: float, b: Floats, r: Floats
) -> int:  # fmt: skip
    """Improve the coefficients b (s,) of s columns in place, and return after how many rounds they settled.

    K (s, s), d (s,), root = sqrt(d), fixed (s,): those of the columns. t: the level. most: most rounds. tolerance: the
    largest change in the last round. r (s,): c - (K - D) b, which is kept up to date.
    """
    s = b.size
    for done in range(most):
        largest = 0.0
        for j in range(s):
            g = r[j] + (K[j, j] - d[j]) * b[j]
            size = abs(g)
            if fixed[j] or root[j] * size > t * K[j, j]:
                new = g / K[j, j]
            elif size <= t * root[j]:
                new = 0.0
            else:
                new = (size - t * root[j]) / (K[j, j] - d[j])
                if g < 0.0:
                    new = -new
            change = new - b[j]
            if change != 0.0:
                row = K[j]
                for i in range(s):
                    r[i] -= change * row[i]
                r[j] += change * d[j]
                b[j] = new
                largest = max(largest, abs(change))
        if largest <= tolerance:
            return done + 1
    return most


@compiled("void(f8[:,::1], i8[::1], f8[::1], f8[::1])", nogil=True)
def add_rows(K: Floats, S: Ints, b: Floats, found: Floats) -> None:
    """Add the rows S (s,) of K, each times its factor in b (s,), to `found` (n,)."""
    for i in range(S.size):
        row = K[S[i]]
        for j in range(found.size):
            found[j] += b[i] * row[j]


#: What `dsel.search.exact.perspective_tree.relaxation.relax` calls.
RELAXATION_KERNELS = (descend, add_rows)


def combination(K: Floats, S: Ints, b: Floats) -> Floats:
    """Return K_S' b (n,) for the rows S (s,) of the symmetric K, without a copy of them."""
    found = np.zeros(K.shape[0])
    add_rows(K, S, np.ascontiguousarray(b), found)
    return found
