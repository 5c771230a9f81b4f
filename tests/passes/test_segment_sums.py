"""A store that grows: only new segments are read, and the statistics have the bits of a run from the beginning."""

from __future__ import annotations

import shutil
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dsel
from dsel.api.run_select import select_from
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.data.dataset import Dataset
from dsel.data.divide_rows import partition_rows, split_held_out
from dsel.data.store.segments import compact
from dsel.engine.engine_protocol import ThreadEngine
from dsel.passes.data_pass import log_passes
from dsel.passes.gram import fold_statistics, gram_statistics
from dsel.passes.moments import plan_tiles
from dsel.passes.statistics import Statistics
from dsel.passes.statistics_cache import StatisticsCache
from tests.stores import append_rows, count_reads, make_store, regression

X, Y = regression(m=500)
#: After each append the rows of the store. Row blocks have 20 rows.
NIGHTS = [300, 307, 309, 360, 400, 455, 500]


def first_night(tmp_path: Path, chunks: tuple[int, int] = (20, 24)) -> tuple[Path, StatisticsCache]:
    return make_store(tmp_path / "s.zarr", X[:300], Y[:300], chunks=chunks), StatisticsCache(tmp_path / "artefacts")


def equal(a: Statistics, b: Statistics) -> None:
    for field in fields(Statistics):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def chunks_read(reads: Any) -> list[int]:
    return sorted(int(key.split("/")[2]) for key in reads if key.startswith("X/"))


def of(store: Path, cache: StatisticsCache | None = None, **options: Any) -> Statistics:
    return gram_statistics(as_dataset(str(store)), cache=cache, **options)


def test_each_night_reads_the_chunks_of_the_new_segment_alone(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)
    of(store, cache)
    for before, rows in pairwise(NIGHTS):
        append_rows(store, X[:rows], Y[:rows])
        reads = count_reads()
        found = of(store, cache)
        assert chunks_read(reads) == list(range(before // 20, -(-rows // 20)))
        assert set(reads.values()) == {1}
        equal(found, of(store))
        reads.clear()
        equal(of(store, cache), found)
        assert not chunks_read(reads)


def test_the_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    store, _ = first_night(tmp_path)
    for rows in NIGHTS[1:]:
        append_rows(store, X[:rows], Y[:rows])
    found, expected = of(store), gram_statistics(as_dataset(X, Y))
    np.testing.assert_allclose(found.K, expected.K, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.B, expected.B, rtol=1e-12, atol=1e-9)
    assert found.m == 500


@pytest.mark.parametrize("saved", [[0], [2, 4], [0, 1, 2, 3, 4, 5, 6]])
def test_any_part_that_is_saved_gives_the_same_bits(tmp_path: Path, saved: list[int]) -> None:
    """What was saved for the nights in `saved` is there, and nothing else."""
    store, cache = first_night(tmp_path)
    for rows in NIGHTS[1:]:
        append_rows(store, X[:rows], Y[:rows])
    expected = of(store, cache)
    sums = sorted(cache.folder.glob("sums-*-*.npz"))
    assert len(sums) == len(NIGHTS)
    for i, file in enumerate(sums):
        if i not in saved:
            file.unlink()
    for file in cache.folder.glob("sums-*.npz"):
        if file not in sums:
            file.unlink()
    equal(of(store, cache), expected)


def test_a_rewritten_segment_is_read_again_and_only_that_one(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)
    for rows in NIGHTS[1:]:
        append_rows(store, X[:rows], Y[:rows])
        of(store, cache)
    zarr.open_group(store)["X"][380:400] = 1.5 * X[380:400]  # a row of chunks in the segment of rows 360 to 400
    reads = count_reads()
    found = of(store, cache)
    assert chunks_read(reads) == [18, 19]
    equal(found, of(store))


def test_the_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    store, _ = first_night(tmp_path)
    for rows in NIGHTS[1:]:
        append_rows(store, X[:rows], Y[:rows])
    expected = of(store)
    for workers in (2, 4):
        equal(of(store, engine=ThreadEngine(workers)), expected)


def test_compacting_reads_the_merged_segments_once(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)
    for rows in NIGHTS[1:]:
        append_rows(store, X[:rows], Y[:rows])
    of(store, cache)
    segments = compact(store, 500, 4)
    assert [(one.start, one.stop) for one in segments] == [(0, 300), (300, 360), (360, 455), (455, 500)]
    reads = count_reads()
    found = of(store, cache)
    assert chunks_read(reads) == [15, 16, 17, 18, 19, 20, 21, 22]
    equal(found, of(store))


def test_other_targets_or_weights_are_other_sums(tmp_path: Path) -> None:
    two = np.column_stack([Y, Y[::-1]])
    store = make_store(tmp_path / "s.zarr", X[:300], two[:300], chunks=(20, 24))
    cache = StatisticsCache(tmp_path / "artefacts")
    for rows in (300, 350):
        if rows > 300:
            append_rows(store, X[:rows], two[:rows])
        for options in ({}, {"targets": [0]}, {"targets": [1]}, {"unsupervised": True}):
            dataset = as_dataset(str(store), **options)  # type: ignore[arg-type]
            equal(gram_statistics(dataset, cache=cache), gram_statistics(dataset))


def test_missing_values_are_replaced_by_the_means_of_all_rows(tmp_path: Path) -> None:
    holes = X.copy()
    holes[::7, 3] = np.nan
    store, cache = (
        make_store(tmp_path / "s.zarr", holes[:300], Y[:300], chunks=(20, 24)),
        StatisticsCache(tmp_path / "a"),
    )
    of(store, cache, missing="mean")
    append_rows(store, holes[:360], Y[:360])
    reads = count_reads()
    found = of(store, cache, missing="mean")
    assert {key for key, times in reads.items() if times > 1} == {"X/c/15/0", "X/c/16/0", "X/c/17/0"}
    equal(found, of(store, missing="mean"))
    reads.clear()
    equal(of(store, cache, missing="mean"), found)
    assert not chunks_read(reads)


def test_tiles_give_the_same_sums_and_are_saved(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((500, 70))
    store, cache = make_store(tmp_path / "s.zarr", x[:300], Y[:300], chunks=(20, 35)), StatisticsCache(tmp_path / "a")
    tiling = plan_tiles(70, 8 * 40 * 40)
    of(store, cache, tiling=tiling)
    append_rows(store, x, Y)
    found = of(store, cache, tiling=tiling)
    equal(found, of(store, tiling=tiling))


def folds(dataset: Dataset, cache: StatisticsCache | None) -> list[Statistics]:
    partition = partition_rows(dataset, folds=3, repeats=2, seed=5)
    whole, parts = fold_statistics(dataset, partition, cache)
    return [whole, *(parts[key] for key in sorted(parts))]


def test_random_folds_read_only_the_new_segment(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)
    folds(as_dataset(str(store)), cache)
    append_rows(store, X[:360], Y[:360])
    reads = count_reads()
    found = folds(as_dataset(str(store)), cache)
    assert chunks_read(reads) == [15, 16, 17]
    for a, b in zip(found, folds(as_dataset(str(store)), None), strict=True):
        equal(a, b)


@pytest.mark.parametrize("split", ["blocks", "forward"])
def test_folds_that_move_with_the_rows_are_summed_again(tmp_path: Path, split: Any) -> None:
    store, cache = first_night(tmp_path)
    for rows in (300, 360):
        if rows > 300:
            append_rows(store, X[:rows], Y[:rows])
        dataset = as_dataset(str(store))
        partition = partition_rows(dataset, folds=3, split=split)
        equal(fold_statistics(dataset, partition, cache)[0], fold_statistics(dataset, partition, None)[0])


def test_rows_to_train_on_read_only_the_new_segment(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)

    def training() -> Dataset:
        dataset = as_dataset(str(store))
        return split_held_out(dataset, partition_rows(dataset, held_out=0.2, seed=1))[0]

    gram_statistics(training(), cache=cache)
    append_rows(store, X[:360], Y[:360])
    reads = count_reads()
    found = gram_statistics(training(), cache=cache)
    assert chunks_read(reads) == [15, 16, 17]
    equal(found, gram_statistics(training()))


@pytest.mark.parametrize("method", ["forward", "greedy-rls", "poss"])
def test_a_selection_after_every_night_is_that_of_a_run_from_the_beginning(tmp_path: Path, method: Any) -> None:
    store, cache = first_night(tmp_path)
    request = SelectionRequest(k=3, method=method, options={"iterations": 2000} if method == "poss" else {})
    for rows in (300, 307, 360):
        if rows > 300:
            append_rows(store, X[:rows], Y[:rows])
        with log_passes() as made:
            found = select_from(as_dataset(str(store)), request, cache)
        expected = select_from(as_dataset(str(store)), request)
        assert found.indices == expected.indices
        assert (found.error, found.front) == (expected.error, expected.front)
        assert found.plan is not None
        planned, measured = (found.plan[key]["bytes_read"] for key in ("planned", "measured"))
        assert measured == sum(record.bytes_read for record in made.records)
        if method != "greedy-rls":
            assert measured <= planned


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)
    append_rows(store, X, Y)
    expected = of(store, cache)
    for file in cache.folder.iterdir():
        whole = file.read_bytes()
        for cut in (0, 10, len(whole) // 2):
            file.write_bytes(whole[:cut])
            equal(of(store, cache), expected)


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, _ = first_night(tmp_path)
    (tmp_path / "file").write_text("in the way")
    equal(of(store, StatisticsCache(tmp_path / "file")), of(store))
    assert "cannot be written" in caplog.text


def test_a_copy_of_the_store_with_its_times_uses_what_is_saved(tmp_path: Path) -> None:
    store, cache = first_night(tmp_path)
    append_rows(store, X, Y)
    expected = of(store, cache)
    shutil.copytree(store, tmp_path / "copy.zarr", copy_function=shutil.copy2)
    reads = count_reads()
    reads.clear()
    equal(of(tmp_path / "copy.zarr", cache), expected)
    assert not chunks_read(reads)


def test_dsel_select_reads_a_store_that_was_appended_to(tmp_path: Path) -> None:
    store, _ = first_night(tmp_path, chunks=(7, 5))
    append_rows(store, X, Y)
    found, expected = dsel.select(str(store), k=3), dsel.select(X, Y, k=3)
    assert found.indices == expected.indices
    assert found.error == pytest.approx(expected.error, rel=1e-12)
