"""The eigenvalues of rank-one downdates are those of a dense solver."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel.search.exact.astar.secular_equation import downdated


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_the_secular_equation_gives_the_eigenvalues(seed, r, t):
    rng = np.random.default_rng(seed)
    d = np.sort(np.abs(rng.standard_normal(r)) * 10.0 ** rng.integers(-4, 4, r))[::-1].copy()
    if seed % 3 == 0:
        d[: r // 2] = d[0]
    Z = rng.standard_normal((r, t)) * np.sqrt(d)[:, None] * 0.7
    if seed % 4 == 0:
        Z[rng.integers(r)] = 0.0
    if seed % 5 == 0:
        Z[:, 0] = 0.0
    q = int(rng.integers(0, r + 1))
    found = downdated(d, Z, q)
    for z, mine in zip(Z.T, found.T, strict=True):
        theirs = np.linalg.eigvalsh(np.diag(d) - np.outer(z, z))[::-1][:q]
        np.testing.assert_allclose(mine, theirs, atol=1e-13 * max(d[0], z @ z))
