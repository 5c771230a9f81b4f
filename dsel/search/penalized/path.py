"""What the penalized methods share: the problem on the Gram matrix, the supports along a path, and the packages.

The data enter through K and B alone: with K = W'W, W (r, n), the penalized problem on W and T, where W'T = B, has the
same solutions as that on X and Y. Columns count as if they had the same norm, as in glmnet and ncvreg, so that the
penalty treats them alike.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from pydantic import Field

from dsel._lib.types import Floats
from dsel.config.types import Float, Int
from dsel.errors import MissingExtraError
from dsel.objective.base import Objective
from dsel.objective.few_targets import few_targets
from dsel.objective.subset_state import load_subset_kernels
from dsel.search.greedy.path import Path
from dsel.search.method import ProblemSummary, Requirements, SearchTask, whole_gram
from dsel.search.options import Options
from dsel.search.outcome import SearchOutcome
from dsel.search.validation import check_size

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


#: Yields the coefficients (n, N) for each penalty.
Solver = Callable[[PenalizedProblem, Floats], Iterable[Floats]]


def supports(task: SearchTask, solve: Solver) -> SearchOutcome:
    """Return the supports of a path of at most k columns, refitted without the penalty."""
    objective, k = task.objective, task.k
    check_size(k, objective.n)
    load_subset_kernels()
    problem, path = PenalizedProblem.of(objective), Path(objective)
    seen: set[tuple[int, ...]] = set()
    for coefficients in _quietly(solve(problem, problem.penalties(task.options))):
        path.steps += 1
        strength = np.square(coefficients).sum(axis=1)
        members = tuple(np.flatnonzero(strength).tolist())
        if len(members) > k:
            break
        if members and members not in seen:
            seen.add(members)
            path.add(members)
            path.evaluated += 1
    return path.outcome()


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


def needs(*packages: tuple[str, str]) -> Callable[[ProblemSummary, PathOptions], Requirements]:
    """Return the requirements of a method that uses packages, as pairs of module and package.

    Raises
    ------
    MissingExtraError
        A package is not installed.
    """

    def requirements(problem: ProblemSummary, options: PathOptions) -> Requirements:
        for module, package in packages:
            if importlib.util.find_spec(module) is None:
                raise MissingExtraError(
                    f"The penalized methods need {package}, which is not installed.", f"pip install 'dsel[{EXTRA}]'."
                )
        return whole_gram(problem, options)

    return requirements
