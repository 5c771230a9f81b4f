"""Chunked arrays of other libraries stay lazy: the same answer as for NumPy, in a fraction of their memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dsel
from dsel.errors import DataError, MissingInputError, OptionError

ROOT = Path(__file__).parents[2]


class Collection:
    """An array with Dask's collection protocol of which no module is called dask."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim, self.chunks = array.shape, array.dtype, array.ndim, array.chunks

    def __dask_graph__(self) -> Any:
        return dict(self._array.__dask_graph__())

    def __dask_keys__(self) -> Any:
        return self._array.__dask_keys__()

    def __dask_optimize__(self, graph: Any, keys: Any) -> Any:
        return type(self._array).__dask_optimize__(graph, keys)

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("the whole array is computed")


class Slices:
    """A chunked array without Dask's protocol, such as one of Cubed or of HDF5. It is never read whole."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.chunks = array.chunks

    def __getitem__(self, key: Any) -> Any:
        part = self._array[key]
        assert part.shape[0] < self.shape[0], "the whole array is read"
        return part.compute()

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise AssertionError("the whole array is computed")


def expression(array: Any) -> Any:
    """An array of the package dask-array, whose module is not dask."""
    found = pytest.importorskip("dask_array")
    return found.from_array(array.compute(), chunks=array.chunks)


def cubed(array: Any) -> Any:
    found = pytest.importorskip("cubed")
    return found.from_array(array.compute(), chunks=array.chunksize)


def in_xarray(array: Any) -> Any:
    import xarray as xr

    return xr.DataArray(cubed(array), dims=("sample", "feature"))


def in_zarr(array: Any) -> Any:
    import zarr

    return zarr.array(array.compute(), chunks=array.chunksize)


@pytest.mark.parametrize("kind", [Collection, Slices, expression, cubed, in_xarray, in_zarr], ids=lambda k: k.__name__)
@pytest.mark.parametrize("chunks", [(100, 12), (70, 5)], ids=str)
def test_it_gives_the_answer_of_numpy(kind: Callable[[Any], Any], chunks: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 12))
    y = X[:, 3] - 2 * X[:, 7] + rng.normal(size=500)
    expected = dsel.select(X, y, k=3, method="forward")
    found = dsel.select(kind(da.from_array(X, chunks=chunks)), y, k=3, method="forward")
    assert found.indices == expected.indices
    assert found.r2 == pytest.approx(expected.r2, rel=1e-10)


PEAK = """
import json, resource, sys
import dask, dask.array as da, dask.dataframe as dd
import numpy as np
import dsel
from tests.data.test_lazy_arrays import Collection, Slices

def made(block_info=None):
    place = block_info[None]["array-location"]
    rows = place[0][1] - place[0][0]
    return np.random.default_rng(place[0][0]).random((rows, 128))

def array(m):
    return da.map_blocks(made, chunks=((4000,) * (m // 4000), (128,)), dtype=float)

def labelled(array):
    import xarray as xr
    return xr.DataArray(array, dims=("sample", "feature"))

def expression(array):
    import dask_array
    return dask_array.random.default_rng(0).random(array.shape, chunks=array.chunks)

def frame(array):
    return dd.from_dask_array(array, columns=[f"x{j}" for j in range(128)])

kinds = {"Collection": Collection, "Slices": Slices, "xarray": labelled, "dask-array": expression, "frame": frame}
with dask.config.set(scheduler="threads", num_workers=2):
    def select(kind, m):
        dsel.select(kinds[kind](array(m)), np.arange(m, dtype=float), k=3, method="forward")
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    small = max(select(kind, 16_000) for kind in sys.argv[1:])
    print(json.dumps({kind: select(kind, 100_000) - small for kind in sys.argv[1:]}))
"""


@pytest.mark.slow
def test_98_mib_take_a_fraction_of_their_memory() -> None:
    """The peak is that of all kinds up to the named one: no kind may pass the limit."""
    kinds = ["Collection", "Slices", "xarray", *(["dask-array"] if find_spec("dask_array") else []), "frame"]
    command = [sys.executable, "-c", PEAK, *kinds]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)
    assert list(peaks) == kinds
    assert max(peaks.values()) < 60 << 20, peaks  # each array has 98 MiB


@pytest.mark.filterwarnings("ignore")
def test_an_icechunk_snapshot_is_read_through_xarray(tmp_path: Path) -> None:
    icechunk, xr = pytest.importorskip("icechunk"), pytest.importorskip("xarray")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 12))
    y = X[:, 3] - 2 * X[:, 7] + rng.normal(size=500)
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
    session = repository.writable_session("main")
    data = xr.Dataset({"X": (("sample", "feature"), X), "Y": ("sample", y)}).chunk(sample=100)
    data.to_zarr(session.store, consolidated=False)
    snapshot = session.commit("measurements")
    expected = dsel.select(X, y, k=3, method="forward")
    store = repository.readonly_session(snapshot_id=snapshot).store
    assert dsel.select(xr.open_zarr(store, consolidated=False), k=3, method="forward").indices == expected.indices

    by_session = dsel.select(repository.readonly_session("main"), k=3, method="forward")
    url = f"icechunk://{tmp_path / 'repository'}"
    by_url = dsel.select(url, k=3, method="forward")
    assert by_session.indices == by_url.indices == expected.indices
    assert by_url.source == f"{url}?snapshot={snapshot}"
    assert by_session.fingerprint == by_url.fingerprint
    assert snapshot in str(by_url.fingerprint)
    assert dsel.certify(by_url, url).certificate[-1]["proven"]
    np.testing.assert_allclose(by_url.predict(url), expected.predict(X))

    for rows in (url, repository.readonly_session("main")):  # as for any store
        other = dsel.select(rows, X[:, 0] - y, k=3, method="forward")
        assert other.indices == dsel.select(X, X[:, 0] - y, k=3, method="forward").indices
        assert other.fingerprint is None
        with pytest.raises(OptionError, match=r"Y is text, and X is the store icechunk://.*Name targets of the store"):
            dsel.select(rows, "Y", k=3)

    later = repository.writable_session("main")
    xr.Dataset({"Y": ("sample", -y)}).to_zarr(later.store, consolidated=False, mode="a")
    with pytest.raises(OptionError, match="changes that are not committed"):
        dsel.select(later, k=3)
    later.commit("other targets")
    moved = dsel.select(url, k=3, method="forward")
    assert moved.fingerprint != by_url.fingerprint
    assert np.allclose(moved.coefficients, -by_url.coefficients)
    grouped = repository.writable_session("main")
    data.to_zarr(grouped.store, group="lab/first", consolidated=False)
    grouped.commit("a group")
    with pytest.raises(DataError, match=r"no such group\. Leave .* root\. Name one .*: lab/first"):
        dsel.select(f"{url}?group=lab/second", k=3)
    pinned = dsel.select(f"{url}?snapshot={snapshot}", k=3, method="forward")
    assert pinned.fingerprint == by_url.fingerprint
    for wrong, error, message in [
        (f"{url}?branch=dev", MissingInputError, r"opened: ref not found `dev`\. Check the path"),
        (f"{url}?brnch=dev", OptionError, "Did you mean 'branch'"),
        (f"{url}?group=other", DataError, "no such group. Leave group out: the variables are in the root."),
        (f"{url}-2", MissingInputError, "There is no Icechunk repository"),
        ("icechunk://ftp://host/x", OptionError, "not supported"),
    ]:
        with pytest.raises(error, match=message):
            dsel.select(wrong, k=3)


def test_icechunk_urls_say_what_to_install() -> None:
    program = "import sys; sys.modules['icechunk'] = None; import dsel; dsel.select('icechunk://x', k=1)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "icechunk:// needs icechunk, which is not installed. pip install 'dsel[icechunk]'" in done.stderr
