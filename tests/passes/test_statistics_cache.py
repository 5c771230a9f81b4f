"""Statistics on disk are reused for the same data and options only, and are there whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsel.data.as_dataset import as_dataset
from dsel.passes.gram import gram_statistics
from dsel.passes.statistics import Statistics
from dsel.passes.statistics_cache import StatisticsCache


@pytest.fixture
def statistics() -> object:
    return gram_statistics(as_dataset(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30.0)))


def test_what_was_saved_comes_back_bit_for_bit(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    key = store.key("abc", missing="refuse")
    store.save(key, statistics)
    found = store.load(key)
    assert found is not None
    assert found.m == statistics.m
    for name in ("mean_x", "mean_y", "K", "B", "yy", "constant", "constant_y"):
        np.testing.assert_array_equal(getattr(found, name), getattr(statistics, name))


def test_other_data_or_options_are_another_entry(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    store.save(store.key("abc", missing="refuse"), statistics)
    assert store.load(store.key("abd", missing="refuse")) is None
    assert store.load(store.key("abc", missing="mean")) is None


@pytest.mark.parametrize("rest", [20, 2000])
def test_a_damaged_entry_is_none_and_is_replaced(tmp_path: Path, statistics, rest: int) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    key = store.key("abc")
    path = store.save(key, statistics)
    path.write_bytes(path.read_bytes()[:rest])
    assert store.load(key) is None
    store.save(key, statistics)
    assert store.load(key) is not None


@pytest.mark.parametrize("header", ["[]", "3", "{}", "[[], {}]", "[{}, 3]"])
def test_a_header_of_another_shape_is_none(tmp_path: Path, statistics, header: str) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    key = store.key("abc")
    path = store.save(key, statistics)
    with np.load(path) as arrays:
        np.savez(path, **{**arrays, "header": np.frombuffer(header.encode(), np.uint8)})
    assert store.load(key) is None
    assert not store.has(key)


def test_an_entry_of_an_earlier_version_is_none_and_stays(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    """Entries were folders with a manifest."""
    store = StatisticsCache(tmp_path)
    earlier = {**store.key("abc"), "format": 2}
    folder = tmp_path / store.path(earlier).name.removesuffix(".npz")
    folder.mkdir()
    np.savez(folder / "arrays.npz", **{f.name: getattr(statistics, f.name) for f in fields(Statistics)})
    (folder / "manifest.json").write_text(json.dumps({"key": earlier}))
    assert store.load(store.key("abc")) is None
    assert not store.has(store.key("abc"))
    assert store.save(store.key("abc"), statistics)
    assert store.load(store.key("abc")) is not None


@pytest.mark.parametrize(
    "wrong",
    [{"K": np.eye(3)}, {"mean_x": np.zeros(5)}, {"B": np.zeros((4, 2))}, {"yy": np.zeros(3)}, {"m": np.zeros(2)},
     {"constant": np.zeros((4, 1), bool)}, {"mean_y": np.float64(0)}],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_none(tmp_path: Path, statistics, wrong: dict[str, Any]) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    key = store.key("abc")
    store.save(key, replace(statistics, **wrong))
    assert store.load(key) is None


def test_bytes_that_flipped_never_raise(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    key = store.key("abc")
    path = store.save(key, statistics)
    whole = path.read_bytes()
    for byte in range(0, len(whole), 7):
        path.write_bytes(whole[:byte] + bytes([whole[byte] ^ 0xFF]) + whole[byte + 1 :])
        store.load(key)


def test_without_targets_it_comes_back_too(tmp_path: Path) -> None:
    found = gram_statistics(as_dataset(np.random.default_rng(0).normal(size=(30, 4)), None))
    store = StatisticsCache(tmp_path)
    store.save(store.key("abc"), found)
    assert store.load(store.key("abc")) is not None


def test_what_another_process_saved_meanwhile_stays(tmp_path: Path, statistics, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    store = StatisticsCache(tmp_path)
    key = store.key("abc")
    rename = os.rename

    def too_late(source: Path, target: Path) -> None:
        shutil.copy(source, target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", too_late)
    assert store.save(key, statistics) == store.path(key)
    assert [p.name for p in tmp_path.iterdir()] == [store.path(key).name]
    assert store.load(key) is not None


def test_a_folder_that_cannot_be_written_is_a_warning_and_leaves_nothing(tmp_path: Path, statistics, caplog) -> None:  # type: ignore[no-untyped-def]
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = StatisticsCache(blocked)
    assert store.save(store.key("abc"), statistics) is None
    assert "cannot be written" in caplog.text
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
