"""Sparse stores, weights, plans and eigendecompositions in a bucket."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import yaml
import zarr
from typer.testing import CliRunner

import dsel
from dsel.cli import app
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.info import describe
from dsel.data.ingest import ingest
from dsel.data.store.reader import open_store
from dsel.errors import OptionError
from dsel.passes.statistics_cache import StatisticsCache
from dsel.planning import plan as planning
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.storage.paths import as_path, zarr_store
from pipelines.s3_faults import FaultProxy
from tests.stores import make_store, regression

X, Y = regression(m=60)
W = np.random.default_rng(0).uniform(0.5, 2, 60)


def put(place: str, save: Any, *arrays: Any, **named: Any) -> str:
    """Write a .npy file to the bucket."""
    from io import BytesIO

    file = BytesIO()
    save(file, *arrays, **named)
    as_path(place).write_bytes(file.getvalue())  # type: ignore[union-attr]
    return place


def test_weights_come_from_each_kind_of_source(url: str) -> None:
    x = put(f"{url}/x.npy", np.save, X)
    y = put(f"{url}/y.npy", np.save, Y)
    w = put(f"{url}/w.npy", np.save, W)
    both = put(f"{url}/both.npz", np.savez, X=X, Y=Y, w=W)
    columns = [*(f"c{j}" for j in range(X.shape[1])), *(f"t{j}" for j in range(Y.shape[1])), "w"]
    rows = [",".join(map(repr, row)) for row in np.column_stack([X, Y, W]).tolist()]
    as_path(f"{url}/t.csv").write_bytes("\n".join([",".join(columns), *rows]).encode())  # type: ignore[union-attr]
    ingest(x, f"{url}/1.zarr", y=y, weight=w)
    ingest(both, f"{url}/2.zarr", weight="w")
    ingest(f"{url}/t.csv", f"{url}/3.zarr", target=columns[X.shape[1] : -1], weight="w")
    expected = dsel.select(X, Y, k=3, method="forward", sample_weight=W)
    for number in (1, 2, 3):
        found = dsel.select(f"{url}/{number}.zarr", k=3, method="forward")
        assert (found.indices, found.weights) == (expected.indices, "weight")
        assert found.error == pytest.approx(expected.error)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_sparse_store_is_read(url: str, zarr_format: int) -> None:
    place = as_path(f"{url}/cells.zarr")
    S = scipy.sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0.0))
    root = zarr.open_group(zarr_store(place), mode="w", zarr_format=zarr_format)  # type: ignore[arg-type]
    group = root.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": list(S.shape)})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(S, name), chunks=(50,))
    obs = root.create_group("obs", attributes={"encoding-type": "dataframe"})
    obs.create_array("y", data=Y[:, 0])
    obs.create_array("w", data=W)
    found = dsel.select(str(place), k=3, method="forward", targets=["y"], sample_weight="w")
    expected = dsel.select(S, Y[:, :1], k=3, method="forward", sample_weight=W)
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error)
    assert describe(str(place)).attributes["obs"] == "w, y"
    with pytest.raises(OptionError, match="It has w, y"):
        as_dataset(str(place), targets=["z"])
    before = as_dataset(str(place), targets=["y"]).fingerprint
    obs.create_array("y", data=-Y[:, 0], overwrite=True)
    assert as_dataset(str(place), targets=["y"]).fingerprint != before


def test_an_eigendecomposition_is_complete_or_absent(
    url: str, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(problem: ProblemShape, available: Resources) -> Representation:
        found = candidates(problem, replace(available, worker_memory=None, client_memory=1 << 60))
        return next(one for one in found if one.name == "row-gram")

    monkeypatch.setattr(planning, "choose", rows)
    wide = make_store(tmp_path / "wide.zarr", X[:20], chunks=(5, 6))
    dataset, settings = as_dataset(wide), SelectionRequest(k=3, method="forward")
    cache = StatisticsCache(as_path(f"{url}/artefacts"))
    context = RunContext(cache=cache)
    proxy.rule = lambda r: "403" if r.method == "PUT" and "eigen-" in r.key else None
    first = run_selection(dataset, settings, context)
    proxy.reset()
    assert {name.partition("-")[0] for name in cache.folder.list_names()} == {"columns"}  # type: ignore[union-attr]
    second = run_selection(dataset, settings, context)
    assert {name.partition("-")[0] for name in cache.folder.list_names()} == {"columns", "eigen"}  # type: ignore[union-attr]
    third = run_selection(dataset, settings, context)
    assert (first.passes, second.passes, third.passes) == (4, 3, 1)
    assert first.indices == second.indices == third.indices
    assert first.error == second.error == third.error


def test_a_plan_of_a_job_in_a_bucket_writes_nothing(url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    ingest(put(f"{url}/both.npz", np.savez, X=X, Y=Y), f"{url}/data.zarr")
    open_store(f"{url}/data.zarr")
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"store": f"{url}/data.zarr", "k": 3, "method": "forward", "out": f"{url}/out"}))
    proxy.record.clear()
    said = CliRunner().invoke(app, ["plan", str(job)])
    assert said.exit_code == 0, said.output
    assert said.output.startswith("representation: gram")
    assert not [request for request, _ in proxy.record if request.method != "GET" and request.method != "HEAD"]
