"""The residual of every column given a selection is accurate to rounding, however small it is."""

from __future__ import annotations

import numpy as np
import pytest

from dsel.search.exact.astar.projection import project_out


def projected_by_qr(W, P, S):
    """Return squares, Z and P Q by QR."""
    Q = np.linalg.qr(W[:, S])[0]
    rest = W - Q @ (Q.T @ W)
    rest -= Q @ (Q.T @ rest)
    return np.square(rest).sum(axis=0), P @ rest, P @ Q


def projected(W, P, S):
    squares, Z, Z_S = np.empty(W.shape[1]), np.empty((P.shape[0], W.shape[1])), np.empty((len(S), P.shape[0]))
    determinant = project_out(W, P, P @ W, np.asarray(S, np.int64), np.square(W).sum(axis=0), squares, Z, Z_S)
    return determinant, squares, Z, Z_S


def unit_columns(seed, r=7, n=9):
    W = np.random.default_rng(seed).standard_normal((r, n))
    return W / np.linalg.norm(W, axis=0)


@pytest.mark.parametrize("S", [(), (4,), (6, 1, 3)])
@pytest.mark.parametrize("little", [1.0, 1e-3, 1e-6])
def test_the_squares_and_directions_left_are_those_of_the_projection(S, little):
    W = unit_columns(len(S))
    if S:
        W[:, 0] = W[:, S[0]] + little * W[:, 0]
    P = np.random.default_rng(9).standard_normal((4, 7))
    determinant, squares, Z, Z_S = projected(W, P, S)
    expected, directions, of_S = projected_by_qr(W, P, list(S))
    others = [j for j in range(9) if j not in S]
    np.testing.assert_allclose(squares[others], expected[others], rtol=1e-8)
    np.testing.assert_allclose(Z[:, others], directions[:, others], atol=1e-14)
    np.testing.assert_allclose(Z_S.T @ Z_S, of_S @ of_S.T, atol=1e-12)
    assert determinant == pytest.approx(np.linalg.det(W[:, S].T @ W[:, S]))
    assert squares[list(S)] == pytest.approx(0.0, abs=1e-28)


def test_a_member_in_the_span_of_the_others_adds_nothing():
    W = unit_columns(1)
    W[:, 5] = W[:, 2]
    P = np.eye(7)
    determinant, squares, _, Z_S = projected(W, P, (2, 5))
    np.testing.assert_allclose(squares, projected_by_qr(W, P, [2])[0], atol=1e-15)
    assert determinant == pytest.approx(0.0, abs=1e-28)
    assert not Z_S[1].any()
