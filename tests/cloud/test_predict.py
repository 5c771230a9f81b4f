"""Predictions of a store in a bucket, written to a bucket: whole or absent, whatever requests fail."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

import dsel
from dsel.data.ingest import ingest_arrays
from dsel.errors import OutputError
from dsel.selection.results.export import export_text, write_export
from dsel.selection.results.predict_store import predict_store
from dsel.storage.paths import as_path, zarr_store
from pipelines.s3_faults import FaultProxy
from tests.stores import regression

X, Y = regression(m=90, n=18)


def test_they_are_those_of_the_arrays_and_appear_last(url: str, proxy: FaultProxy) -> None:
    ingest_arrays(X, f"{url}/data.zarr", y=Y, chunks=(40, 6))
    s = dsel.select(f"{url}/data.zarr", k=3, method="forward")
    s.save(f"{url}/result")
    out = as_path(f"{url}/predictions.zarr")
    for overwrite in (False, True):
        predict_store(dsel.open_selection(f"{url}/result"), f"{url}/data.zarr", out, overwrite=overwrite)
        found = zarr.open_group(zarr_store(out), mode="r")
        np.testing.assert_allclose(np.asarray(found["prediction"]), s.predict(X), rtol=1e-12)
    with pytest.raises(OutputError, match="exists already"):
        predict_store(s, f"{url}/data.zarr", out)
    np.testing.assert_allclose(s.predict(f"{url}/data.zarr").values, s.predict(X), rtol=1e-12)


def test_an_export_is_not_replaced(url: str) -> None:
    s = dsel.select(X, Y, k=2, method="forward")
    out = as_path(f"{url}/labels.txt")
    write_export(export_text(s), out)
    assert out.read_text().split() == s.labels
    with pytest.raises(OutputError, match="exists already"):
        write_export("other", out)
