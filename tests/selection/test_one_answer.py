"""One answer for the same data: in every kind of input, dtype, chunking, representation, and way to state weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dsel
import dsel.planning.plan as planning
from dsel.data.ingest import ingest_arrays
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources

#: Values that each of these types holds exactly.
DTYPES = ("float64", "float32", "float16", "int8", "int64", "uint8")
Chunks = tuple[int, int]


def _frame(X: Any, chunks: Chunks) -> Any:
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def _transposed(X: Any, chunks: Chunks) -> Any:
    return xr.DataArray(X.T, dims=("feature", "sample"), coords={"sample": np.arange(X.shape[0])})


INPUTS: dict[str, Callable[[Any, Chunks], Any]] = {
    "array": lambda X, chunks: X,
    "by columns": lambda X, chunks: np.asfortranarray(X),
    "every second row": lambda X, chunks: np.repeat(X, 2, axis=0)[::2],
    "sparse rows": lambda X, chunks: scipy.sparse.csr_matrix(X.astype(np.float64)),
    "sparse columns": lambda X, chunks: scipy.sparse.csc_array(X.astype(np.float64)),
    "data frame": _frame,
    "Dask": lambda X, chunks: da.from_array(X, chunks=chunks),
    "Dask of sparse blocks": lambda X, chunks: da.from_array(X.astype(np.float64), chunks=(chunks[0], -1)).map_blocks(
        scipy.sparse.csr_matrix
    ),
    "xarray, features first": _transposed,
}
REPRESENTATIONS = ("gram", "tiled-gram", "row-gram", "column-blocks")


def using(name: str) -> Any:
    """Have a representation used where it is possible, whatever fits."""

    def choose(problem: ProblemShape, available: Resources) -> Representation:
        found = candidates(problem, replace(available, worker_memory=1 << 30, client_memory=1 << 60))
        return next((c for c in found if c.name == name and not c.obstacle), found[0])

    return patch.object(planning, "choose", choose)


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    """Draw data, and a way to give them."""
    m, n = draw(st.integers(6, 40)), draw(st.integers(2, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.integers(0, 9, size=(m, n)) * (rng.random((m, n)) < draw(st.sampled_from([0.3, 1.0])))
    return {
        "X": X,
        "Y": X @ rng.normal(size=(n, draw(st.integers(1, 2)))) + rng.normal(size=(m, 1)),
        "weights": draw(st.sampled_from([None, rng.integers(0, 4, size=m) + (np.arange(m) < 4)])),
        "k": draw(st.integers(1, min(n, 4))),
        "kind": draw(st.sampled_from([*INPUTS, "store"])),
        "dtype": draw(st.sampled_from(DTYPES)),
        "chunks": (draw(st.integers(1, m)), draw(st.integers(1, n))),
        "representation": draw(st.sampled_from(REPRESENTATIONS)),
        "preprocess": draw(st.sampled_from(["standardize", "center", "unit", "none"])),
        "lam": draw(st.sampled_from([0.0, 0.5])),
    }


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(problems())
def test_the_answer_depends_on_the_data_alone(problem: dict[str, Any]) -> None:
    X, Y, weights = (problem[name] for name in ("X", "Y", "weights"))
    asked = {name: problem[name] for name in ("k", "preprocess", "lam")} | {"method": "forward"}
    # Whole weights are the same as repeated rows.
    repeated = slice(None) if weights is None else np.repeat(np.arange(len(X)), weights)
    try:
        expected = dsel.select(X[repeated].astype(np.float64), Y[repeated], **asked)
    except dsel.errors.DselError as error:
        expected = error
    data = X.astype(problem["dtype"])
    with using(problem["representation"]), tempfile.TemporaryDirectory() as folder:
        if problem["kind"] == "store":
            store = Path(folder) / "data.zarr"
            ingest_arrays(
                data, store, y=Y, chunks=problem["chunks"], **({} if weights is None else {"weight": weights})
            )
            given_data: tuple[Any, ...] = (store,)
        else:
            given_data = (INPUTS[problem["kind"]](data, problem["chunks"]), Y)
            asked["sample_weight"] = weights
        if isinstance(expected, dsel.errors.DselError):
            with pytest.raises(type(expected)):
                dsel.select(*given_data, **asked)
            return
        found = dsel.select(*given_data, **asked)
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-8, abs=1e-8 * float((Y**2).sum()))
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-6, atol=1e-7)
