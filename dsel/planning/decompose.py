"""How the eigendecomposition of the data is computed: exactly where that is cheap, else randomized."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.types import Floats
from dsel.config.request import SelectionRequest, SketchRule
from dsel.engine.engine_protocol import Engine
from dsel.errors import CapacityError, OptionError
from dsel.passes.columns.eigendecomposition import ROUNDING, signed, sketch_passes
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import gram_statistics
from dsel.planning.eigh import Eigendecomposition, EighMethod
from dsel.planning.representations.gram import GramMatrix
from dsel.planning.representations.reduced import EigenReduced, RowGram, Sketch
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.planning.validation import ValidatedRequest
from dsel.search.method import Requirements

_NAMES = {Sketch.name: "randomized"}


def eigh_request(
    rank: int | None, accuracy: float | None, oversampling: int, power_iterations: int, **more: Any
) -> SelectionRequest:
    """Return the request for the eigenvalues of X, up to a rank or an accuracy. more: other fields of a request.

    Errors: OptionError for values that make no sense.
    """
    whole = rank is None and accuracy is None
    rule = SketchRule.of(
        rank=1 if whole else rank, accuracy=accuracy, oversampling=oversampling, power_iterations=power_iterations
    )
    given = [name for name in ("oversampling", "power_iterations") if whole and rule.is_changed(name)]
    if given:
        raise OptionError(f"{given[0]} is for a randomized eigendecomposition.", "Give rank or accuracy.")
    return SelectionRequest.of(k=1, method="forward", unsupervised=True, reduce=None if whole else rule, **more)


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
