"""A saved selection is what was saved, or an error that names the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import dsel
from dsel.errors import DataError, DselError
from dsel.selection import saved
from dsel.storage.json_files import checked_json

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 8))
Y = X[:, 3] - 2 * X[:, 6] + 0.1 * RNG.standard_normal(60)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(saved, "_PUBLISH_SECONDS", 0.0)
    dsel.select(X, Y, k=2, method="forward", preprocess="none").save(tmp_path / "saved")
    return tmp_path / "saved"


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def test_each_flipped_bit_is_noticed(folder: Path) -> None:
    for file in files_of(folder):
        whole = file.read_bytes()
        for position in RNG.choice(len(whole), min(len(whole), 25), replace=False):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << int(RNG.integers(8))
            file.write_bytes(damaged)
            with pytest.raises(DataError, match=file.name):
                dsel.open_selection(folder)
        file.write_bytes(whole)
    assert dsel.open_selection(folder).k == 2


def test_a_file_that_is_lost_or_cut_is_named(folder: Path) -> None:
    for file in files_of(folder):
        whole, name = file.read_bytes(), str(file.relative_to(folder))
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match=name):
            dsel.open_selection(folder)
        file.unlink()
        with pytest.raises(DselError, match=name):
            dsel.open_selection(folder)
        file.write_bytes(whole)


def test_arrays_of_zeros_are_stored_too(folder: Path) -> None:
    """Zarr leaves out chunks of fill values, so that a lost one would read as zeros."""
    assert not np.asarray(zarr.open_group(folder / "selection.zarr", mode="r")["intercept"]).any()
    assert (folder / "selection.zarr/intercept/c/0").is_file()


def test_other_readers_notice_a_flipped_bit_in_a_chunk(folder: Path) -> None:
    chunk = folder / "selection.zarr/coefficients/c/0/0"
    damaged = bytearray(chunk.read_bytes())
    damaged[-6] ^= 1
    chunk.write_bytes(damaged)
    with pytest.raises(ValueError, match="checksum"):
        np.asarray(zarr.open_group(folder / "selection.zarr", mode="r")["coefficients"])


@pytest.mark.parametrize("path", ["../other/selection.zarr", "/tmp/selection.zarr", "selection.zarr/..", 3])
def test_arrays_in_another_folder_are_refused(folder: Path, path: Any) -> None:
    values = json.loads((folder / "selection.json").read_text())
    del values["digest"]
    (folder / "selection.json").write_text(checked_json({**values, "arrays": path}))
    with pytest.raises(DataError, match="not in this folder"):
        dsel.open_selection(folder)


def test_an_edited_selection_is_refused(folder: Path) -> None:
    text = (folder / "selection.json").read_text()
    (folder / "selection.json").write_text(text.replace('"method": "forward"', '"method": "poss"'))
    with pytest.raises(DataError, match="digest"):
        dsel.open_selection(folder)


def test_a_selection_that_is_replaced_while_it_is_read_is_the_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrays appear before the JSON."""
    new = dsel.select(X, Y, k=3, method="forward")
    old = (folder / "selection.json").read_text()
    new.save(folder, overwrite=True)
    now = (folder / "selection.json").read_text()
    (folder / "selection.json").write_text(old)
    monkeypatch.setattr(saved.time, "sleep", lambda _: (folder / "selection.json").write_text(now))
    assert dsel.open_selection(folder) == new


def test_arrays_that_did_not_change_stay_unless_they_are_damaged(folder: Path) -> None:
    """A process that is killed between two writes, such as that of certificates, then leaves a whole selection."""
    chunk, selection = folder / "selection.zarr/coefficients/c/0/0", dsel.open_selection(folder)
    number = chunk.stat().st_ino
    noted = replace(selection, notes=("a note",))
    noted.save(folder, overwrite=True)
    assert chunk.stat().st_ino == number
    assert dsel.open_selection(folder) == noted
    chunk.write_bytes(b"")
    noted.save(folder, overwrite=True)
    assert dsel.open_selection(folder) == noted
