"""The columns of the models along the path of a penalty: the lasso, MCP and SCAD.

The data enter through K and B alone: with K = W'W, W (r, n), the penalized problem on W and T, where W'T = B, has the
same solutions as that on X and Y. Columns count as if they had the same norm, as in glmnet and ncvreg, so that the
penalty treats them alike.

Sources: for the lasso Tibshirani, "Regression shrinkage and selection via the lasso", Journal of the Royal Statistical
Society B 58, 1996; with several targets the group lasso of Yuan and Lin, ibid. 68, 2006. For MCP Zhang, "Nearly
unbiased variable selection under minimax concave penalty", Annals of Statistics 38, 2010. For SCAD Fan, Li, "Variable
selection via nonconcave penalized likelihood and its oracle properties", Journal of the American Statistical
Association 96, 2001. scikit-learn solves the lasso, and skglm (Bertrand et al., NeurIPS 2022) the others.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from pydantic import Field

from dsel._lib.types import Floats
from dsel.config.types import Float, Int
from dsel.errors import MissingExtraError
from dsel.objective.few_targets import few_targets
from dsel.objective.objective_interface import Objective
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import Path
from dsel.search.method import Method, Options, ProblemSummary, Requirements, SearchTask, whole_gram
from dsel.search.outcome import SearchOutcome, check_size

#: Directions with at most this share of the largest eigenvalue are left out.
_RANK_TOLERANCE = 1e-12
#: The extra that installs the packages.
EXTRA = "penalized"


class PathOptions(Options):
    """Options of a path of penalties.

    The path ends early when a model has more than k columns.

    Parameters
    ----------
    penalties : int
        How many penalties there are, in geometric steps from the least one without any column.
    smallest_penalty : float
        The last penalty, as a share of the first one.
    """

    penalties: Int = Field(200, ge=2)
    smallest_penalty: Float = Field(1e-3, gt=0, lt=1)


@dataclass(frozen=True)
class PenalizedProblem:
    """The penalized problem: minimize |T - W b|^2 / (2 r) + the penalty of the rows of b.

    Parameters
    ----------
    W : (r, n) array
        Columns of norm sqrt(r), or 0 for columns without variation.
    T : (r, N) array
        The targets in the same coordinates.
    """

    W: Floats
    T: Floats

    @classmethod
    def of(cls, objective: Objective) -> PenalizedProblem:
        """Return the problem of an objective; a ridge penalty belongs to K. O(n^3)."""
        diagonal = objective.diagonal + objective.lam
        scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        K = (objective.K + objective.lam * np.eye(objective.n)) * scale[:, None] * scale
        values, vectors = scipy.linalg.eigh(K)
        real = values > _RANK_TOLERANCE * values[-1]
        roots, V = np.sqrt(values[real]), vectors[:, real]
        r = np.sqrt(float(roots.size))
        B = few_targets(objective) * scale[:, None]
        return cls(np.asfortranarray(r * roots[:, None] * V.T), np.asfortranarray(r * (V.T @ B) / roots[:, None]))

    def penalties(self, options: PathOptions) -> Floats:
        """Return the penalties, from the least one without any column downwards."""
        largest = float(np.sqrt(np.square(self.W.T @ self.T).sum(axis=1).max())) / self.W.shape[0]
        return np.asarray(largest * np.geomspace(1.0, options.smallest_penalty, options.penalties))


#: Yields the coefficients (n, N) for each penalty, with the options of the method.
Solver = Callable[[PenalizedProblem, Floats, Any], Iterable[Floats]]


def supports(task: SearchTask, solve: Solver) -> SearchOutcome:
    """Return the supports of a path of at most k columns, refitted without the penalty."""
    objective, k = task.objective, task.k
    check_size(k, objective.n)
    load_subset_kernels()
    problem, path = PenalizedProblem.of(objective), Path(objective)
    seen: set[tuple[int, ...]] = set()
    notes: tuple[str, ...] = ()
    for coefficients in _quietly(solve(problem, problem.penalties(task.options), task.options)):
        path.steps += 1
        strength = np.square(coefficients).sum(axis=1)
        members = tuple(np.flatnonzero(strength).tolist())
        if len(members) > k:
            if not seen:
                notes = (f"the first model of the path has {len(members)} columns: more penalties have smaller steps",)
            break
        if members and members not in seen:
            seen.add(members)
            path.add(members)
            path.evaluated += 1
    return replace(path.outcome(), notes=notes)


def _quietly(models: Iterable[Floats]) -> Iterator[Floats]:
    """Yield the models without warnings that one did not converge to the last digit: only its support is used."""
    iterator = iter(models)
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = next(iterator, None)
        if found is None:
            return
        yield found


def _method(
    name: str, summary: str, solve: Solver, options: type[PathOptions], package: tuple[str, str]
) -> Method:  # fmt: skip
    """Return a method that solves with a package: its module, and its name. Raises MissingExtraError without it."""

    def requirements(problem: ProblemSummary, options: PathOptions) -> Requirements:
        if importlib.util.find_spec(package[0]) is None:
            raise MissingExtraError(
                f"The penalized methods need {package[1]}, which is not installed.", f"pip install 'dsel[{EXTRA}]'."
            )
        return whole_gram(problem, options)

    return Method(
        name, summary, partial(supports, solve=solve), options=options, requirements=requirements, every_size=True,
        extra=EXTRA, no_groups="its penalty is on single coefficients",
    )  # fmt: skip


_TOLERANCE, _SWEEPS = 1e-6, 10_000


def _models(problem: PenalizedProblem, penalties: Floats, options: PathOptions) -> Iterator[Floats]:
    from sklearn.linear_model import Lasso, MultiTaskLasso

    several = problem.T.shape[1] > 1
    settings = {"fit_intercept": False, "warm_start": True, "tol": _TOLERANCE, "max_iter": _SWEEPS}
    model = MultiTaskLasso(**settings) if several else Lasso(**settings)
    targets = problem.T if several else problem.T[:, 0]
    for penalty in penalties:
        model.alpha = float(penalty)
        model.fit(problem.W, targets)
        yield np.array(model.coef_).reshape(problem.T.shape[1], -1).T


LASSO = _method(
    "lasso", "Choose the columns of the models along the path of the lasso.", _models, PathOptions,
    ("sklearn", "scikit-learn"),
)  # fmt: skip


_CONCAVE_TOLERANCE, _CONCAVE_SWEEPS = 1e-5, 200


def concave_method(name: str, title: str, options: type[PathOptions], penalties: tuple[str, str]) -> Method:
    """Return the method of a concave penalty.

    options: has the field `shape`. penalties: skglm's names of the penalty for one target, and for the rows of
    coefficients of several targets.
    """

    def models(problem: PenalizedProblem, strengths: Floats, options: Any) -> Iterator[Floats]:
        import skglm.penalties

        several = problem.T.shape[1] > 1
        penalty = getattr(skglm.penalties, penalties[several])
        solve = _several_targets if several else _one_target
        return solve(problem, strengths, lambda strength: penalty(strength, options.shape))

    return _method(name, title, models, options, ("skglm", "skglm"))


def _one_target(problem: PenalizedProblem, penalties: Floats, make: Callable[[float], Any]) -> Iterator[Floats]:
    from skglm.datafits import Quadratic
    from skglm.estimators import GeneralizedLinearEstimator
    from skglm.solvers import AndersonCD

    solver = AndersonCD(tol=_CONCAVE_TOLERANCE, fit_intercept=False, warm_start=True, max_iter=_CONCAVE_SWEEPS)
    model = GeneralizedLinearEstimator(datafit=Quadratic(), penalty=make(float(penalties[0])), solver=solver)
    for penalty in penalties:
        model.penalty = make(float(penalty))
        model.fit(problem.W, problem.T[:, 0])
        yield np.asarray(model.coef_).reshape(-1, 1).copy()


def _several_targets(problem: PenalizedProblem, penalties: Floats, make: Callable[[float], Any]) -> Iterator[Floats]:
    from skglm.datafits import QuadraticMultiTask
    from skglm.solvers import MultiTaskBCD
    from skglm.utils.jit_compilation import compiled_clone

    W, T = problem.W, problem.T
    fit = MultiTaskBCD(tol=_CONCAVE_TOLERANCE, fit_intercept=False, warm_start=True, max_iter=_CONCAVE_SWEEPS)
    datafit = compiled_clone(QuadraticMultiTask())
    datafit.initialize(W, T)
    coefficients, fitted = np.zeros((W.shape[1], T.shape[1])), np.zeros_like(T, order="F")
    for penalty in penalties:
        found = fit.solve(W, T, datafit, compiled_clone(make(float(penalty))), coefficients, fitted)[0]
        coefficients = np.array(found)
        fitted = np.asfortranarray(W @ coefficients)
        yield coefficients.copy()


class McpOptions(PathOptions):
    """Options of MCP.

    Parameters
    ----------
    shape : float
        Where the penalty ends, in multiples of its strength. The less, the closer to the best subset.
    """

    shape: Float = Field(3.0, gt=1)


MCP = concave_method(
    "mcp", "Choose the columns of the models along the path of the minimax concave penalty.", McpOptions,
    ("MCPenalty", "BlockMCPenalty"),
)  # fmt: skip


class ScadOptions(PathOptions):
    """Options of SCAD.

    Parameters
    ----------
    shape : float
        Where the penalty ends, in multiples of its strength; by default the value of Fan and Li.
    """

    shape: Float = Field(3.7, gt=2)


SCAD = concave_method(
    "scad", "Choose the columns of the models along the path of the SCAD penalty.", ScadOptions, ("SCAD", "BlockSCAD")
)
