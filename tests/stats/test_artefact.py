"""Statistics on disk are reused for the same data and options only, and are there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsel.data.source import make_source
from dsel.errors import OutputError
from dsel.stats.artefact import ArtefactStore
from dsel.stats.gram import gram


@pytest.fixture
def statistics() -> object:
    return gram(make_source(np.random.default_rng(0).normal(size=(30, 4)), np.arange(30.0)))[0]


def test_what_was_saved_comes_back_bit_for_bit(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    store = ArtefactStore(tmp_path)
    key = store.key("abc", missing="refuse")
    store.save(key, statistics)
    found = store.load(key)
    assert found is not None
    assert found.m == statistics.m
    for name in ("mean_x", "mean_y", "K", "B", "yy", "constant", "constant_y"):
        np.testing.assert_array_equal(getattr(found, name), getattr(statistics, name))


def test_other_data_or_options_are_another_artefact(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    store = ArtefactStore(tmp_path)
    store.save(store.key("abc", missing="refuse"), statistics)
    assert store.load(store.key("abd", missing="refuse")) is None
    assert store.load(store.key("abc", missing="mean")) is None


@pytest.mark.parametrize("file", ["manifest.json", "arrays.npz"])
def test_a_damaged_artefact_is_none_and_is_replaced(tmp_path: Path, statistics, file: str) -> None:  # type: ignore[no-untyped-def]
    store = ArtefactStore(tmp_path)
    key = store.key("abc")
    path = store.save(key, statistics) / file
    path.write_bytes(path.read_bytes()[:20])
    assert store.load(key) is None
    store.save(key, statistics)
    assert store.load(key) is not None


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path, statistics) -> None:  # type: ignore[no-untyped-def]
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = ArtefactStore(blocked)
    with pytest.raises(OutputError, match="cannot be written"):
        store.save(store.key("abc"), statistics)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
