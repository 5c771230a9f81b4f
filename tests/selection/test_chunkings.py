"""What the planner accepts runs: every method with every representation, with Y and for Y = X, on one of the chunkings.

The chunkings go round, so that each representation meets all of them, and each method two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dsel
import dsel.objective.on_demand as on_demand
import dsel.planning.plan as planning
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.planning.validation import validate
from dsel.search.registry import METHODS
from tests.stores import make_store

M, N, K = 30, 14, 2
CHUNKS = {"full rows": (12, N), "column blocks": (M, 6), "both": (12, 6)}
SHORT: dict[str, dict[str, Any]] = {
    name: {"iterations": 500, "exchange_every": 0} for name in ("poss", "pposs", "pposs-asy")
}
#: Methods that draw columns at random: rounding decides which ones.
DRAWN = {"two-stage"}
#: Each process compiles their kernels, which takes longest of all methods.
COMPILED = {"mcp", "scad"}


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((M, N)) * 2 + 5
    return X, X[:, :3] @ rng.standard_normal((3, 1)) + rng.standard_normal((M, 1))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("chunks")
    return [str(make_store(folder / f"{name}.zarr", *data(), chunks)) for name, chunks in CHUNKS.items()]


def accepted(store: str, request: SelectionRequest) -> Iterator[str]:
    """Yield the names of the representations that the planner accepts for a request, given enough memory."""
    dataset = as_dataset(store, unsupervised=request.unsupervised)
    validated = validate(dataset, request)
    shape = ProblemShape.of(dataset, request.limit, validated.requirements, request.reduce)
    yield from (one.name for one in candidates(shape, Resources(1, None, 1 << 60)) if not one.obstacle)


@pytest.mark.parametrize("unsupervised", [False, True], ids=["Y", "Y = X"])
@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.slow] if name in COMPILED else []) for name in METHODS]
)
def test_no_plan_promises_what_the_run_refuses(
    monkeypatch: pytest.MonkeyPatch, stores: list[str], method: str, unsupervised: bool
) -> None:
    monkeypatch.setattr(on_demand, "FEW_COLUMNS", 8)
    entry, store = METHODS[method], stores[(list(METHODS).index(method) + unsupervised) % len(stores)]
    if (entry.uses_rows and unsupervised) or (entry.unsupervised_only and not unsupervised):
        pytest.skip("the method is not for this kind of problem")
    arguments: dict[str, Any] = {"k": K, "method": method, "unsupervised": unsupervised}
    options = SHORT.get(method, {})
    errors = {}
    for name in accepted(store, SelectionRequest.of(**arguments, options=options)):

        def choose(shape: ProblemShape, available: Resources, name: str = name) -> Representation:
            enough = candidates(shape, replace(available, worker_memory=None, client_memory=1 << 60))
            return next(one for one in enough if one.name == name)

        monkeypatch.setattr(planning, "choose", choose)
        found = dsel.select(store, **arguments, **options)
        assert found.plan is not None
        assert found.plan["representation"] == name
        if found.plan["exact"]:
            assert found.plan["planned"]["passes"] == found.plan["measured"]["passes"]
        errors[name] = found.error
    assert errors
    if method in DRAWN:
        return
    np.testing.assert_allclose(list(errors.values()), next(iter(errors.values())), rtol=1e-7)
