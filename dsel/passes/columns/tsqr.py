"""QR of a tall matrix in place, one block of rows after the other.

Source: Demmel, Grigori, Hoemmen, Langou, "Communication-optimal parallel and sequential QR and LU factorizations", SIAM
Journal on Scientific Computing 2012 (sequential TSQR, one level of blocks at a time). It is as stable as Householder's
QR of the whole matrix, whatever its condition.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.linalg

from dsel._lib.types import Floats

#: Rows of a block per column.
_ROWS_PER_COLUMN = 16


def orthonormalise(Y: Floats) -> Floats:
    """Overwrite Y (m, l), m >= l, by Q of Y = QR and return R (l, l).

    Y may be in any memory order. Cost: O(m l^2) operations, and memory for a block of 16 l rows and a sixteenth of Y.
    """
    m, l = Y.shape
    edges = [*range(0, max(m - l, 1), _ROWS_PER_COLUMN * max(l, 1)), m]
    if len(edges) == 2:
        Y[...], R = _qr(Y)
        return R
    stack = np.empty((l * (len(edges) - 1), l))
    for i, (a, b) in enumerate(pairwise(edges)):
        Y[a:b], stack[i * l : (i + 1) * l] = _qr(Y[a:b])
    R = orthonormalise(stack)
    for i, (a, b) in enumerate(pairwise(edges)):
        Y[a:b] = Y[a:b] @ stack[i * l : (i + 1) * l]
    return R


def _qr(Y: Floats) -> tuple[Floats, Floats]:
    Q, R = scipy.linalg.qr(Y, mode="economic", check_finite=False)
    return np.asarray(Q), np.asarray(R)
