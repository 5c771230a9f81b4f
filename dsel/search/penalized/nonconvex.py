"""What MCP and SCAD share: the models along the path of a concave penalty, by skglm (Bertrand et al., NeurIPS 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.search.method import Method, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.penalized.path import EXTRA, PathOptions, PenalizedProblem, Solver, needs, supports

#: Makes the penalty from its strength.
MakePenalty = Callable[[float], Any]
_TOLERANCE, _SWEEPS = 1e-5, 200


def concave_method(name: str, title: str, options: type[PathOptions], penalties: tuple[str, str]) -> Method:
    """Return the method of a concave penalty.

    options: has the field `shape`. penalties: skglm's names of the penalty for one target, and for the rows of
    coefficients of several targets.
    """

    def run(task: SearchTask) -> SearchOutcome:
        """Run the method on a task."""
        one, several = (_maker(penalty, task.options.shape) for penalty in penalties)
        return supports(task, _solver(one, several))

    return Method(
        name, title, run, options=options, requirements=needs(("skglm", "skglm")), every_size=True, extra=EXTRA,
        no_groups="its penalty is on single coefficients",
    )  # fmt: skip


def _maker(penalty: str, shape: float) -> MakePenalty:
    def make(strength: float) -> Any:
        import skglm.penalties

        return getattr(skglm.penalties, penalty)(strength, shape)

    return make


def _solver(one: MakePenalty, several: MakePenalty) -> Solver:
    def models(problem: PenalizedProblem, penalties: Floats) -> Iterator[Floats]:
        if problem.T.shape[1] == 1:
            yield from _one_target(problem, penalties, one)
        else:
            yield from _several_targets(problem, penalties, several)

    return models


def _one_target(problem: PenalizedProblem, penalties: Floats, make: MakePenalty) -> Iterator[Floats]:
    from skglm.datafits import Quadratic
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.solvers import AndersonCD

    solver = AndersonCD(tol=_TOLERANCE, fit_intercept=False, warm_start=True, max_iter=_SWEEPS)
    model = GeneralizedLinearEstimator(datafit=Quadratic(), penalty=make(float(penalties[0])), solver=solver)
    for penalty in penalties:
        model.penalty = make(float(penalty))
        model.fit(problem.W, problem.T[:, 0])
        yield np.asarray(model.coef_).reshape(-1, 1).copy()


def _several_targets(problem: PenalizedProblem, penalties: Floats, make: MakePenalty) -> Iterator[Floats]:
    from skglm.datafits import QuadraticMultiTask
    from skglm.solvers import MultiTaskBCD
    from skglm.utils.jit_compilation import compiled_clone

    W, T = problem.W, problem.T
    fit = MultiTaskBCD(tol=_TOLERANCE, fit_intercept=False, warm_start=True, max_iter=_SWEEPS)
    datafit = compiled_clone(QuadraticMultiTask())
    datafit.initialize(W, T)
    coefficients, fitted = np.zeros((W.shape[1], T.shape[1])), np.zeros_like(T, order="F")
    for penalty in penalties:
        found = fit.solve(W, T, datafit, compiled_clone(make(float(penalty))), coefficients, fitted)[0]
        coefficients = np.array(found)
        fitted = np.asfortranarray(W @ coefficients)
        yield coefficients.copy()
