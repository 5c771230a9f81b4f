"""The eigendecomposition of the data, for users: exact where that is cheap, else randomized."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Floats
from dsel.config.request import SelectionRequest, SketchRule
from dsel.engine.engine_protocol import Engine
from dsel.errors import CapacityError, OptionError
from dsel.passes.columns.eigendecomposition import ROUNDING, signed, sketch_passes
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import gram_statistics
from dsel.planning.representations.gram import GramMatrix
from dsel.planning.representations.reduced import EigenReduced, RowGram, Sketch
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.planning.validation import ValidatedRequest
from dsel.search.method import Requirements

if TYPE_CHECKING:
    import xarray as xr

#: How the eigendecomposition is computed.
EighMethod = Literal["auto", "gram", "row-gram", "randomized"]
_NAMES = {Sketch.name: "randomized"}


@dataclass(frozen=True, eq=False)
class Eigendecomposition:
    """The leading eigenvalues of X X' and X'X, for the preprocessed X, with what they leave out.

    Parameters
    ----------
    values : ndarray of shape (r,)
        Eigenvalues in descending order.
    components : ndarray of shape (r, n)
        Eigenvectors of X'X as orthonormal rows. The largest entry of each is positive.
    features : ndarray of shape (n,)
        Labels of the columns.
    total : float
        ||X||_F^2, the sum of all eigenvalues.
    error_bound : float
        The spectral norm of X less its projection is at most this, with probability 1 - `error_chance`. It is 0 for an
        exact decomposition of full rank.
    error_chance : float
        The probability that `error_bound` fails; 0 if it always holds.
    method : {"gram", "row-gram", "randomized"}
        How it was computed.
    passes : int
        Passes over X.
    """

    values: Floats
    components: Floats
    features: NDArray[np.object_]
    total: float
    error_bound: float
    error_chance: float
    method: str
    passes: int

    @property
    def rank(self) -> int:
        """The number r of eigenvalues."""
        return int(self.values.size)

    @property
    def captured(self) -> float:
        """The share of ||X||_F^2 that the components capture."""
        return min(float(self.values.sum()) / self.total, 1.0) if self.total else 1.0

    @property
    def relative_error(self) -> float:
        """The Frobenius norm of X less its projection, as a share of ||X||_F. It follows from `captured`."""
        return math.sqrt(max(1.0 - self.captured, 0.0))

    @property
    def reduced(self) -> Floats:
        """W of shape (r, n): rows of `components` times the roots of `values`, so that W'W is about X'X."""
        return np.asarray(np.sqrt(self.values)[:, None] * self.components)

    @property
    def figures(self) -> dict[str, Any]:
        """The rank, what the components capture and miss, and how they were computed, by name."""
        names = ("rank", "captured", "relative_error", "error_bound", "error_chance", "total", "method", "passes")
        return {name: getattr(self, name) for name in names}

    def to_xarray(self) -> xr.Dataset:
        """Return values and components as an xarray Dataset with labels, and the figures as attributes.

        Returns
        -------
        Dataset
            Variables `values` and `components`, with the dimensions component and feature.
        """
        import xarray as xr

        variables = {"values": ("component", self.values), "components": (("component", "feature"), self.components)}
        return xr.Dataset(variables, {"feature": self.features}, self.figures)

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {self.features.size:,} columns captures {self.captured:.4%} of ||X||^2 "
            f"(relative error {self.relative_error:.2e}; {self.method}, {self.passes} passes)"
        )


def eigh_request(
    rank: int | None, accuracy: float | None, oversampling: int, power_iterations: int, **more: Any
) -> SelectionRequest:
    """Return the request for the eigenvalues of X, up to a rank or an accuracy. more: other fields of a request.

    Errors: OptionError for values that make no sense.
    """
    rule = None
    if rank is not None or accuracy is not None:
        rule = SketchRule.of(rank=rank, accuracy=accuracy, oversampling=oversampling, power_iterations=power_iterations)
    return SelectionRequest.of(k=1, method="forward", unsupervised=True, reduce=rule, **more)


def plan_lines(validated: ValidatedRequest, method: EighMethod, available: Resources) -> list[str]:
    """Return how a dataset will be decomposed, as text: method, passes, bytes and memory. No data are read."""
    chosen, rule = _choose(validated, available, method), validated.request.reduce
    passes = {GramMatrix.name: 1, RowGram.name: 3}.get(chosen.name)
    again = ""
    if passes is None:
        assert rule is not None
        each = sketch_passes(rule.power_iterations)
        passes = 1 + each
        again = f", and {each} more for each doubling of the rank" if rule.accuracy is not None else ""
    return [
        f"method: {_NAMES.get(chosen.name, chosen.name)}",
        f"passes: {passes}, {format_bytes(passes * validated.dataset.x_bytes)} read{again}",
        f"memory: {format_bytes(chosen.worker_bytes)} a worker, {format_bytes(chosen.client_bytes)} in this process",
    ]


def decompose(
    validated: ValidatedRequest, method: EighMethod, engine: Engine, available: Resources
) -> Eigendecomposition:
    """Return the eigendecomposition of the data of an `eigh_request`."""
    chosen, dataset, request = _choose(validated, available, method), validated.dataset, validated.request
    with log_passes() as made:
        if isinstance(chosen, EigenReduced):
            found = chosen.eigen(validated, engine)
            values, components = found.values, found.W / np.sqrt(found.values)[:, None]
            total, bound, chance = found.total, found.error_bound, found.error_chance
        else:
            K = gram_statistics(dataset, missing=request.missing, engine=engine).objective(request.preprocess).K
            values, V = scipy.linalg.eigh(K)
            order = values[::-1] > ROUNDING * max(float(values[-1]), 0.0)
            values, components = values[::-1][order], signed(np.ascontiguousarray(V.T[::-1][order]))[0]
            total, bound, chance = float(np.trace(K)), 0.0, 0.0
    kept = _kept(values, total, request.reduce)
    if kept < values.size:
        bound = math.hypot(bound, math.sqrt(values[kept]))  # of parts in orthogonal directions
    return Eigendecomposition(
        values[:kept], components[:kept], np.asarray(dataset.features, object), total, bound, chance,
        _NAMES.get(chosen.name, chosen.name), made.passes,
    )  # fmt: skip


def _choose(validated: ValidatedRequest, available: Resources, method: EighMethod) -> Representation:
    """Return the cheapest way that fits in memory, or the one that is named."""
    dataset, rule = validated.dataset, validated.request.reduce
    least = min(dataset.m, dataset.n)
    if rule is not None and rule.rank is not None and rule.rank > least:
        raise OptionError(f"rank is {rule.rank}, and X is {dataset.m} x {dataset.n}.", f"It is at most {least}.")
    if method == "randomized" and rule is None:
        raise OptionError("A randomized eigendecomposition has a limit.", "Give rank or accuracy.")
    if method not in ("auto", "gram", "row-gram", "randomized"):
        raise OptionError(f"There is no method {method!r}.", "auto, gram, row-gram or randomized.")
    shape = ProblemShape.of(dataset, 1, Requirements(), rule)
    exact: list[Representation] = [GramMatrix(shape, available), RowGram(shape, available)]
    exact.sort(key=lambda one: _operations(one, shape))
    every = [*exact, Sketch(shape, available)] if rule is not None else exact
    if rule is not None and rule.rank is not None and method == "auto":
        every.sort(key=lambda one: _operations(one, shape))
    wanted = {"randomized": Sketch.name}.get(method, method)
    found = [one for one in every if method == "auto" or one.name == wanted]
    for one in found:
        if not one.obstacle:
            return one
    raise CapacityError(
        " ".join(one.obstacle for one in found), "Give rank or accuracy, a smaller one, or more memory."
    )


def _operations(one: Representation, shape: ProblemShape) -> float:
    """Return about how many multiplications one way takes. A pass over the data counts as 50 for each entry."""
    width = {GramMatrix.name: shape.n / 2, RowGram.name: shape.m}.get(one.name)
    if width is None:
        assert isinstance(one, Sketch)
        width = one.passes * (one.rank + one.rule.oversampling)
    side = {GramMatrix.name: shape.n, RowGram.name: shape.m}.get(one.name, 0)
    return float(shape.m * shape.n * (width + 50.0 * one.passes) + 9.0 * side**3)


def _kept(values: Floats, total: float, rule: SketchRule | None) -> int:
    """Return how many eigenvalues a rule asks for."""
    if rule is None:
        return int(values.size)
    most = int(min(values.size, rule.most))
    if rule.accuracy is None:
        return most
    enough = np.flatnonzero(np.cumsum(values[:most]) >= rule.accuracy * total)
    return int(enough[0]) + 1 if enough.size else most
