"""What is published in a bucket is complete or absent, whichever write is the last that succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dsel
from dsel.data.as_dataset import as_dataset
from dsel.data.info import describe, render
from dsel.data.ingest import ingest, ingest_arrays
from dsel.data.schema import staging_path
from dsel.data.store.reader import open_store
from dsel.errors import AccessError, DataError, DselError, MissingInputError, OutputError
from dsel.passes.gram import gram_pass, gram_statistics
from dsel.passes.statistics_cache import StatisticsCache
from dsel.storage.paths import as_path, walk, zarr_store
from pipelines.s3_faults import FaultProxy, Kind, Request, Rule, always, drawn
from tests.stores import make_store, regression

X, Y = regression(m=60)
X = X[:, :6]


def writes_through(allowed: int) -> Rule:
    """Return a rule that lets this many writes succeed; those of the lock do not count."""
    writes = 0

    def rule(request: Request) -> Kind | None:
        nonlocal writes
        writes += (is_write := request.method in ("PUT", "POST", "DELETE") and ".lock" not in request.key)
        return "403" if is_write and writes > allowed else None

    return rule


def interrupted(
    proxy: FaultProxy, rules: Iterable[Rule], work: Callable[[], Any], look: Callable[[], Any]
) -> list[Any]:
    """Start the work under each rule, which stops it; return what `look` saw after each."""
    seen = []
    for rule in rules:
        proxy.rule = rule
        with pytest.raises(AccessError):
            work()
        proxy.reset()
        seen.append(look())
    return seen


def error_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except DselError as error:
        return type(error)


def test_a_selection_is_the_old_one_or_the_new_one(url: str, proxy: FaultProxy) -> None:
    old = dsel.select(X, Y, k=2, method="forward")
    new = replace(dsel.select(X, Y, k=3, method="forward"), notes=("new",))
    proxy.record.clear()
    old.save(f"{url}/elsewhere")
    total = sum(request.method == "PUT" for request, _ in proxy.record)
    assert total > 10
    rules = [writes_through(n) for n in (0, 1, total // 2, total - 2, total - 1)]
    place = as_path(f"{url}/out")

    def look() -> Any:
        return error_of(lambda: dsel.open_selection(place).notes)

    assert set(interrupted(proxy, rules, lambda: old.save(place, overwrite=True), look)) == {MissingInputError}
    old.save(place)
    assert set(interrupted(proxy, rules, lambda: new.save(place, overwrite=True), look)) == {old.notes}
    new.save(place, overwrite=True)
    found = dsel.open_selection(f"{url}/out/selection.json")
    assert found.notes == ("new",)
    assert (found.coefficients == new.coefficients).all()
    new.save(place, overwrite=True)
    trees = {entry.key.partition("/")[0] for entry in walk(place)} - {"selection.json"}
    assert len(trees) == 1  # equal arrays are not written again, and nothing else is left
    with pytest.raises(OutputError, match="already"):
        new.save(place)


def test_statistics_are_complete_or_absent(url: str, proxy: FaultProxy) -> None:
    statistics = gram_statistics(as_dataset(X, Y))
    store = StatisticsCache(as_path(f"{url}/artefacts"))
    key = store.key("abc", missing="refuse")
    saved: list[Any] = []
    for refused in ("gram-", "artefacts"):
        proxy.rule = lambda r, refused=refused: "403" if r.method == "PUT" and refused in r.key else None
        saved.append(store.save(key, statistics))
        proxy.reset()
        assert store.load(key) is None
    assert saved == [None, None]
    proxy.rule = drawn(5)
    assert store.save(key, statistics) == store.path(key)
    found = store.load(key)
    assert found is not None
    assert found.K.tobytes() == statistics.K.tobytes()


class TestAStore:
    def test_it_appears_with_its_last_object_and_an_interrupted_ingest_continues(
        self, url: str, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        table = tmp_path / "table.csv"
        lines = ["name,a,b,yield", *(f"s{i},{r[0]},{r[1]},{r[2]}" for i, r in enumerate(X.tolist()))]
        table.write_text("\n".join(lines) + "\n")
        source = as_path(f"{url}/table.csv")
        source.write_bytes(table.read_bytes())
        store = as_path(f"{url}/t.zarr")

        def work() -> None:
            ingest(source, store, target=["yield"], index="name", chunks=(10, 2))

        rules = [*map(writes_through, (0, 1, 3, 7, 20, 5, 9)), always("403", "t.zarr/zarr.json", "PUT")]
        saw = interrupted(proxy, rules, work, lambda: error_of(lambda: open_store(store)))
        assert set(saw) == {MissingInputError}
        work()
        assert not staging_path(store).exists()
        ingest(table, tmp_path / "t.zarr", target=["yield"], index="name", chunks=(10, 2))
        here, there = open_store(tmp_path / "t.zarr"), open_store(store)
        assert (there.x.read(0, 60) == here.x.read(0, 60)).all()
        assert there.samples is not None
        assert there.samples.tolist() == [f"s{i}" for i in range(60)]
        files = {e.key: e.size for e in walk(tmp_path / "t.zarr") if e.key != "zarr.json"}
        assert {e.key: e.size for e in walk(store) if e.key != "zarr.json"} == files
        assert xr.open_zarr(zarr_store(store), consolidated=False, chunks={})["X"].shape == (60, 2)
        assert "60 x 2" in render(describe(store))

    def test_it_continues_after_the_last_complete_row_of_chunks(
        self, url: str, proxy: FaultProxy, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "x.npy", X)
        proxy.rule = lambda r: "403" if r.method == "PUT" and "X/c/4/" in r.key else None
        with pytest.raises(AccessError):
            ingest(tmp_path / "x.npy", f"{url}/n.zarr", chunks=(10, 6))
        proxy.reset()
        with pytest.raises(MissingInputError, match="was interrupted"):
            open_store(f"{url}/n.zarr")
        assert ingest(tmp_path / "x.npy", f"{url}/n.zarr", chunks=(10, 6)).resumed_rows == 40
        assert [r.key[-8:] for r in proxy.done("PUT", "/X/c/")] == ["/X/c/4/0", "/X/c/5/0"]

    @pytest.mark.parametrize("name", ["x.npy", "f.npy", "x.npz", "x.parquet"])
    def test_sources_of_every_format_are_read_from_a_bucket(
        self, url: str, proxy: FaultProxy, tmp_path: Path, name: str
    ) -> None:
        local = tmp_path / name
        if name == "x.npz":
            np.savez_compressed(local, X=X, Y=Y)
        elif name == "x.parquet":
            import pandas as pd

            pd.DataFrame(X, columns=list("abcdef")).to_parquet(local)
        else:
            np.save(local, np.asfortranarray(X) if name == "f.npy" else X)
        (source := as_path(f"{url}/{name}")).write_bytes(local.read_bytes())
        proxy.rule = drawn(7)
        proxy.slow_seconds = 0.01
        ingest(source, f"{url}/s.zarr", chunks=(20, 6))
        assert (open_store(f"{url}/s.zarr").x.read(0, 60) == X).all()

    def test_an_overwritten_store_is_removed_before_the_new_one_begins(self, url: str, proxy: FaultProxy) -> None:
        store = f"{url}/o.zarr"
        make_store(store, X, Y, chunks=(10, 6))  # type: ignore[arg-type]
        with pytest.raises(OutputError, match="exists already"):
            ingest_arrays(X, store)
        dataset = as_dataset(store)
        proxy.rule = lambda r: "403" if r.method == "PUT" and "X/c/2/" in r.key else None
        with pytest.raises(AccessError):
            ingest_arrays(X + 1, store, chunks=(10, 6), overwrite=True)
        proxy.reset()
        with pytest.raises(DataError, match=r"replaced while it was read|is lost"):  # a reader does not mix both
            gram_pass(dataset, dataset.row_ranges).run()
        assert error_of(lambda: open_store(store)) is MissingInputError
        ingest_arrays(X + 1, store, y=Y, chunks=(10, 6))
        with pytest.raises(DataError, match="replaced while it was read"):
            gram_pass(dataset, dataset.row_ranges).run()
        assert (open_store(store).x.read(0, 60) == X + 1).all()

    def test_anything_else_is_not_overwritten(self, url: str) -> None:
        (as_path(url + "/mine") / "notes.txt").write_bytes(b"mine")
        with pytest.raises(OutputError, match="not a Zarr store"):
            ingest_arrays(X, f"{url}/mine", overwrite=True)
        assert (as_path(url + "/mine") / "notes.txt").read_bytes() == b"mine"

    def test_lost_chunks_and_changes_are_noticed(self, url: str) -> None:
        store = f"{url}/l.zarr"
        make_store(store, X, Y, chunks=(10, 6))  # type: ignore[arg-type]
        before = open_store(store).fingerprint()
        assert open_store(store).fingerprint() == before
        chunk = as_path(store) / "X/c/3/0"
        data = chunk.read_bytes()
        chunk.write_bytes(data[::-1])
        assert open_store(store).fingerprint() != before
        with pytest.raises(DataError, match=r"Chunk \(3, 0\) of X"):
            open_store(store).x.read(0, 60)
        dataset = as_dataset(store)
        chunk.unlink()
        with pytest.raises(DataError, match="lost 1 chunk: X/c/3/0"):
            open_store(store)
        with pytest.raises(DataError, match="is lost"):
            dataset.blocks[3].x.read()
