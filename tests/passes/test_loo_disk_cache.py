"""The cache of greedy RLS on disk: it changes what a round costs, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.errors import CapacityError, OptionError
from dsel.objective.cross_validation.leave_one_out import prepare
from dsel.passes.cross_validation import disk_cache as cache_on_disk
from dsel.passes.cross_validation.disk_cache import DiskCache, cache_width
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.gram import gram_statistics
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from tests.search.cross_validation.test_greedy_rls import problem
from tests.stores import make_store, regression

X, Y = regression(m=600)
SETTINGS = SelectionRequest(k=12, method="greedy-rls", lam=1.0, options={"rewrite_every": 3})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 24))


@settings(max_examples=10, deadline=None)
@given(
    m=st.integers(8, 40), n=st.integers(3, 9), N=st.integers(1, 2), seed=st.integers(0, 10**6),
    lam=st.sampled_from([0.01, 1.0, 20.0]), loss=st.sampled_from(["squared", "zero-one"]),
    intercept=st.sampled_from(["none", "center", "column"]), every=st.integers(1, 5), chunk=st.integers(1, 40),
    include=st.sampled_from([(), (2,)]),
)  # fmt: skip
def test_selections_and_errors_are_those_without_it(
    m: int, n: int, N: int, seed: int, lam: float, loss: str, intercept: str, every: int, chunk: int, include: Any
) -> None:
    A, B = problem(m, n, N, seed, loss == "zero-one")
    options = {"k": n, "method": "greedy-rls", "lam": lam, "loss": loss, "intercept": intercept, "include": include,
               "preprocess": "standardize" if intercept == "center" else "none"}  # fmt: skip
    data = da.from_array(A, chunks=(min(chunk, m), n))
    never = dsel.select(data, B, rewrite_every="never", **options)
    found = dsel.select(data, B, rewrite_every=every, **options)
    rounds = n - len(include)
    assert found.indices == never.indices
    assert [p.error for p in found.path] == pytest.approx([p.error for p in never.path], rel=1e-9)
    assert found.counts["cache_rewrites"] == (rounds - 1) // every
    assert found.passes == never.passes - rounds + min(every + 1, rounds)  # over X: until the first rewrite


def test_every_chunk_is_written_once_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_on_disk, "CHUNK_BYTES", 8 * 24 * 64)
    A, B = regression(m=1000)
    data = da.from_array(A, chunks=((1, 300, 7, 192, 500), 24))
    chunks: Counter[int] = Counter()
    plain = cache_on_disk.Target.write

    def write(self: Any, start: int, R: Any, vectors: Any = None, left: int = 0) -> None:
        place = self.places[start]
        assert place % self.rows == 0
        assert len(R) <= self.rows
        chunks[place // self.rows] += 1
        plain(self, start, R, vectors, left)

    monkeypatch.setattr(cache_on_disk.Target, "write", write)
    found = dsel.select(data, B, k=6, method="greedy-rls", lam=1.0, rewrite_every=5)
    assert set(chunks.values()) == {1}
    assert found.indices == dsel.select(A, B, k=6, method="greedy-rls", lam=1.0).indices


def test_rows_in_the_cache_are_those_of_the_paper() -> None:
    """lam C = lam G X', lam a and lam d."""
    A, B = problem(30, 6, 1, 4)
    dataset = as_dataset(da.from_array(A, chunks=(11, 6)), B)
    statistics = gram_statistics(dataset)
    cache = DiskCache(dataset, every=2, first=0, width=cache_width(dataset, "squared"), key={})
    rows = DatasetRows(dataset, statistics, "none", disk=cache)
    whole = rows.problem(0.7)
    for size in range(5):
        rows.errors(prepare(whole, np.array([4, 1, 2, 0][:size])))
    assert cache._disk is not None
    blocks = cache._disk.rows().blocks
    R, vectors = (np.vstack([getattr(b, name).read() for b in blocks]) for name in ("x", "y"))
    rows.close()
    S = [4, 1, 2, 0]
    G = np.linalg.inv(A[:, S] @ A[:, S].T + 0.7 * np.eye(30))
    assert pytest.approx(0.7 * G @ A) == R
    assert vectors == pytest.approx(0.7 * np.hstack([G @ B, np.diag(G)[:, None]]))


def interrupted_after(store: Path, scratch: Path, rounds: int) -> dict[str, Any]:
    """The state of a run that was stopped there, its cache in `scratch`."""

    class Stopped(Exception):
        pass

    states: list[Any] = []

    def on_slice(search: Any) -> None:
        states.append(search.state())
        if len(states) == rounds:
            raise Stopped

    with pytest.raises(Stopped):
        run_selection(as_dataset(str(store)), SETTINGS, RunContext(scratch=scratch, on_slice=on_slice))
    state: dict[str, Any] = json.loads(json.dumps(states[-1]))
    return state


def test_a_resumed_run_continues_with_the_cache_and_gives_the_same_bits(store: Path, tmp_path: Path) -> None:
    dataset = as_dataset(str(store))
    expected = run_selection(dataset, SETTINGS, RunContext(scratch=tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
    for rounds in (2, 4, 9):
        state = interrupted_after(store, tmp_path / "cache", rounds)
        (tmp_path / "cache" / ".halfway").mkdir(parents=True, exist_ok=True)
        found = run_selection(dataset, SETTINGS, RunContext(scratch=tmp_path / "cache", state=state))
        assert found.path == expected.path  # bit for bit
        assert found.counts["cache_rewrites"] == 3 - max(0, rounds - 1) // 3
        assert not (tmp_path / "cache").exists()


def lose_all(cache: Path) -> None:
    shutil.rmtree(cache)


def lose_a_chunk(cache: Path) -> None:
    (cache / "R" / "c" / "3" / "0").unlink()


def damage_a_chunk(cache: Path) -> None:
    chunk = cache / "vectors" / "c" / "2" / "0"
    content = bytearray(chunk.read_bytes())
    content[17] ^= 1
    chunk.write_bytes(content)


def another_job(cache: Path) -> None:
    manifest = json.loads((cache / "manifest.json").read_text())
    manifest["key"]["lam"] = 2.0
    (cache / "manifest.json").write_text(json.dumps(manifest))
    lose_a_chunk(cache)


def no_manifest(cache: Path) -> None:
    (cache / "manifest.json").write_text("{")
    lose_a_chunk(cache)


@pytest.mark.parametrize(
    ("harm", "rounds"),  # after 9 the next round works the cache forward, after 5 it reads it
    [(lose_all, 5), (lose_a_chunk, 5), (lose_a_chunk, 9), (damage_a_chunk, 9), (another_job, 5), (no_manifest, 9)],
)
def test_whatever_is_lost_is_computed_again(harm: Any, rounds: int, store: Path, tmp_path: Path) -> None:
    dataset = as_dataset(str(store))
    expected = run_selection(dataset, SelectionRequest(k=12, method="greedy-rls", lam=1.0), RunContext())
    state = interrupted_after(store, tmp_path / "cache", rounds)
    (cache,) = (tmp_path / "cache").iterdir()
    harm(cache)
    found = run_selection(dataset, SETTINGS, RunContext(scratch=tmp_path / "cache", state=state))
    assert found.indices == expected.indices
    assert [p.error for p in found.path] == pytest.approx([p.error for p in expected.path], rel=1e-10)


def test_a_cache_that_is_lost_again_and_again_is_given_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cache_on_disk.CacheFile.rewrite
    made = 0

    def rewrite(self: Any, *arguments: Any) -> Any:
        nonlocal made
        found = plain(self, *arguments)
        made += 1
        lose_a_chunk(Path(str(self._path)))
        return found

    monkeypatch.setattr(cache_on_disk.CacheFile, "rewrite", rewrite)
    dataset = as_dataset(str(store))
    found = run_selection(dataset, SETTINGS, RunContext())
    assert found.indices == run_selection(dataset, SelectionRequest(k=12, method="greedy-rls", lam=1.0)).indices
    assert made == 4  # at the first rewrite, and after three losses


def test_without_room_it_is_refused_or_with_auto_left_out(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsel.passes.cross_validation.disk_cache.best_every", lambda *arguments: 3)
    before = set(tmp_path.iterdir())
    usage = shutil.disk_usage(tmp_path)
    needed = 2 * 8 * 600 * 26  # two of R, e and g
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=needed - 1))
    dataset = as_dataset(str(store))
    with pytest.raises(CapacityError, match=r"needs 0\.00 GB"):
        run_selection(dataset, SETTINGS, RunContext(scratch=tmp_path / "cache", on_stage=pytest.fail))
    assert set(tmp_path.iterdir()) == before
    auto = SelectionRequest(k=12, method="greedy-rls", lam=1.0)
    found = run_selection(dataset, auto, RunContext(scratch=tmp_path / "cache"))
    assert found.passes == 1 + 12 + 1
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=needed))
    cached = run_selection(dataset, auto, RunContext(scratch=tmp_path / "cache"))
    assert cached.counts["cache_rewrites"] == 3
    assert cached.indices == found.indices


def test_room_for_two_is_room_enough_also_when_one_is_there(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage, cache, one = shutil.disk_usage(tmp_path), tmp_path / "cache", 8 * 600 * 26
    monkeypatch.setattr(
        shutil, "disk_usage", lambda place: usage._replace(free=(2 - len(list(cache.glob("cache-*")))) * one)
    )
    dataset = as_dataset(str(store))
    state = interrupted_after(store, cache, 5)
    found = run_selection(dataset, SETTINGS, RunContext(scratch=cache, state=state))
    assert found.counts["cache_rewrites"] == 2
    assert not cache.exists()


def test_a_folder_that_cannot_be_written_costs_auto_nothing_but_the_cache(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsel.passes.cross_validation.disk_cache.best_every", lambda *arguments: 3)
    (tmp_path / "file").write_text("")
    dataset = as_dataset(str(store))
    auto = SelectionRequest(k=12, method="greedy-rls", lam=1.0)
    found = run_selection(dataset, auto, RunContext(scratch=tmp_path / "file" / "cache"))
    assert found.passes == 1 + 12 + 1


def test_it_is_for_insertions_and_for_data_that_are_not_in_memory() -> None:
    with pytest.raises(OptionError, match="goes with direction forward"):
        dsel.select(X, Y, k=2, method="greedy-rls", lam=1.0, rewrite_every=2, direction="floating")
    with pytest.raises(OptionError, match="rewrite_every"):
        dsel.select(X, Y, k=2, method="greedy-rls", lam=1.0, rewrite_every=0)
    assert "cache_rewrites" not in dsel.select(X, Y, k=4, method="greedy-rls", lam=1.0, rewrite_every=1).counts


def test_it_has_no_weights(tmp_path: Path) -> None:
    dataset = as_dataset(da.from_array(X, chunks=(100, 24)), Y, sample_weight=np.linspace(0.0, 2.0, len(X)))
    asked = SelectionRequest(k=12, method="greedy-rls", lam=1.0)
    found = run_selection(dataset, asked, RunContext(scratch=tmp_path))
    assert "cache_rewrites" not in found.counts
    with pytest.raises(OptionError, match="support weights"):
        run_selection(dataset, SETTINGS, RunContext(scratch=tmp_path))
