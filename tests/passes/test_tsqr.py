"""The QR in place is a QR, for any shape and condition."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dsel.passes.columns.eigendecomposition import orthonormalise


@pytest.mark.parametrize(("m", "l"), [(1, 1), (5, 5), (33, 2), (34, 2), (2000, 7), (700, 20), (321, 20)])
@pytest.mark.parametrize("kind", ["any", "ill conditioned", "rank one", "zero"])
def test_q_is_orthonormal_and_qr_is_the_matrix(m: int, l: int, kind: str) -> None:
    rng = np.random.default_rng(m)
    Y = rng.standard_normal((m, l))
    if kind == "ill conditioned":
        Y = Y * 10.0 ** -np.arange(l)
    elif kind != "any":
        Y = np.outer(rng.standard_normal(m), rng.standard_normal(l)) * (kind != "zero")
    for Q in (Y.copy(), Y.copy(order="F")):
        R = orthonormalise(Q)
        assert R.shape == (l, l)
        np.testing.assert_allclose(Q.T @ Q, np.eye(l), atol=1e-13)
        np.testing.assert_allclose(Q @ R, Y, atol=1e-13 * max(1.0, np.abs(Y).max(initial=0.0)) * m)


def test_it_takes_little_memory_next_to_the_matrix() -> None:
    Y = np.random.default_rng(0).standard_normal((200_000, 10))
    tracemalloc.start()
    orthonormalise(Y)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < Y.nbytes / 8
