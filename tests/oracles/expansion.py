"""Gains and losses of all single flips of a subset, from the objective alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.objective_interface import Objective


def expand(objective: Objective, S: Sequence[int]) -> tuple[Floats, Floats]:
    """The gain (n,) of inserting each column into an independent S (0 for members and columns that depend on S) and the
    loss (s,) of deleting each member."""
    members = np.asarray(S, np.int64)
    lam, K_S = objective.lam, objective.rows(members)
    A = np.linalg.inv(K_S[:, members] + lam * np.eye(members.size))
    a = A @ K_S
    d = objective.diagonal + lam - np.einsum("sn,sn->n", K_S, a)
    M_S = objective.moment_rows(members)
    M_SS = M_S[:, members]
    m = objective.moment_diagonal - 2.0 * np.einsum("sn,sn->n", M_S, a) + np.einsum("sn,sn->n", a, M_SS @ a)
    loss = np.einsum("ij,jk,ki->i", A, M_SS, A) / np.diag(A)
    insertable = d > objective.floor
    insertable[members] = False
    gain = np.zeros(objective.n)
    gain[insertable] = np.maximum(m[insertable], 0.0) / d[insertable]
    return gain, loss
