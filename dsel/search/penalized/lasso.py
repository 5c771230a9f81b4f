"""Lasso: the columns of the models along the path of the absolute penalty.

Sources: Tibshirani, "Regression shrinkage and selection via the lasso", Journal of the Royal Statistical Society B 58,
1996; with several targets the group lasso of Yuan and Lin, ibid. 68, 2006. The solver is scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsel._lib.types import Floats
from dsel.search.method import Method, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.penalized.path import EXTRA, PathOptions, PenalizedProblem, needs, supports

_TOLERANCE, _SWEEPS = 1e-6, 10_000


def _models(problem: PenalizedProblem, penalties: Floats) -> Iterator[Floats]:
    from sklearn.linear_model import Lasso, MultiTaskLasso

    several = problem.T.shape[1] > 1
    settings = {"fit_intercept": False, "warm_start": True, "tol": _TOLERANCE, "max_iter": _SWEEPS}
    model = MultiTaskLasso(**settings) if several else Lasso(**settings)
    targets = problem.T if several else problem.T[:, 0]
    for penalty in penalties:
        model.alpha = float(penalty)
        model.fit(problem.W, targets)
        yield np.array(model.coef_).reshape(problem.T.shape[1], -1).T


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    return supports(task, _models)


METHOD = Method(
    "lasso",
    "Choose the columns of the models along the path of the lasso.",
    run,
    options=PathOptions,
    requirements=needs(("sklearn", "scikit-learn")),
    every_size=True,
    no_groups="its penalty is on single coefficients",
    extra=EXTRA,
)
