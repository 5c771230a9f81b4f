"""Information criteria of a subset: BIC, and EBIC for many candidate columns.

    BIC(S)  = m N log(RSS(S) / (m N)) + N df(S) log(m)
    EBIC(S) = BIC(S) + 2 gamma log C(p, s)

with s of p candidate columns chosen, N targets whose errors count as independent with one variance, and the effective
degrees of freedom df(S) = tr(K_SS (K_SS + lam I)^-1), which is the rank of X_S without a penalty. Sources: Schwarz,
"Estimating the dimension of a model", Annals of Statistics 6, 1978; Chen and Chen, "Extended Bayesian information
criteria for model selection with large model spaces", Biometrika 95, 2008.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from dsel.objective.base import Objective

#: A residual of at most this share of ||Y||^2 is rounding error.
_NO_RESIDUAL = 1e-12


def residual_and_freedom(whole: Objective, members: Sequence[int]) -> tuple[float, float]:
    """Return RSS, without the penalty, and the effective degrees of freedom. O(s^3)."""
    if whole.lam == 0.0 or not len(members):
        return whole.value(members), float(whole.rank(members))
    S = np.asarray(members, np.int64)
    whole.fetch_rows(S.tolist())
    K = whole.rows(S)[:, S]
    M = whole.moment_rows(S)[:, S] if whole.cross is None else whole.cross[S] @ whole.cross[S].T
    values, V = np.linalg.eigh(K)
    values = np.maximum(values, 0.0)
    shrunk = 1.0 / (values + whole.lam)
    explained = np.einsum("si,st,ti->i", V, M, V)
    rss = whole.total - float((explained * (2.0 * shrunk - values * shrunk**2)).sum())
    return rss, float((values * shrunk).sum())


def bayesian_criterion(
    rss: float, total: float, freedom: float, weight: float, n_targets: int, subsets: tuple[int, int], gamma: float
) -> float:
    """Return BIC, or EBIC with gamma above 0.

    rss: of the subset. total: ||Y||^2. freedom: effective degrees of freedom. weight: number of rows. subsets: s of p
    candidates are chosen.
    """
    count = weight * n_targets
    s, p = subsets
    choices = gammaln(p + 1) - gammaln(s + 1) - gammaln(p - s + 1)
    fit = count * math.log(max(rss, _NO_RESIDUAL * total) / count)
    return fit + n_targets * freedom * math.log(weight) + 2.0 * gamma * float(choices)
