"""Foreign stores that are wrong: a listed error, at once, and no answer that hides what is wrong."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dsel
from dsel.errors import DataError, OptionError
from dsel.selection.results.export import export_text
from tests.bad_inputs.conftest import LABELS, X, Y
from tests.cli_runner import call

#: Without a check, these stores take minutes, or all memory.
QUICK = 20.0


@pytest.fixture
def store(folder: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that writes X, as these values, and Y to a store with these attributes of X."""
    path = folder / "foreign.zarr"

    def write(x: Any = X, labels: list[str] = LABELS, **attributes: Any) -> Path:
        variables = {"X": (("sample", "feature"), x, attributes), "Y": (("sample", "target"), Y[:, None])}
        data = xr.Dataset(variables, coords={"feature": ("feature", np.array(labels))})
        data.to_zarr(path, zarr_format=3, consolidated=False)
        return path

    yield write
    shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(folder / "found", ignore_errors=True)


def change(store: Path, variable: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit the metadata of a variable, as damage or an attacker might."""
    file = store / variable / "zarr.json"
    metadata = json.loads(file.read_text())
    edit(metadata)
    file.write_text(json.dumps(metadata))


def endless(store: Path) -> None:
    for variable, columns in (("X", 10**9), ("Y", 1)):
        change(store, variable, lambda metadata, columns=columns: metadata.update(shape=[10**15, columns]))
    shutil.rmtree(store / "feature")


def many_rows(store: Path) -> None:
    for variable in ("X", "Y"):
        change(store, variable, lambda metadata: metadata.update(shape=[10**15, metadata["shape"][1]]))


def chunks_of(*shape: int) -> Callable[[Path], None]:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = list(shape)

    return lambda store: change(store, "X", edit)


@pytest.mark.parametrize(
    ("damage", "what", "remedy"),
    [
        (endless, r"X of .* has shape \(1000000000000000, 1000000000\) in chunks", "At most 100,000,000 columns"),
        (many_rows, r"X of .* has shape \(1000000000000000, 6\) in chunks", "10,000,000 chunks"),
        (chunks_of(0, 0), r"X of .* has chunks of shape \(0, 0\)|cannot be opened", "Restore the store"),
        (chunks_of(10**9, 10**6), "Chunk .* of X .* cannot be read", "Restore the store"),
        (lambda store: change(store, "X", lambda m: m.update(shape=[-5, 6])), "cannot be opened", "Restore the store"),
    ],
)
def test_metadata_that_cannot_be_true(
    store: Callable[..., Path], damage: Callable[[Path], None], what: str, remedy: str
) -> None:
    path = store()
    damage(path)
    began = time.monotonic()
    with pytest.raises(DataError) as error:
        dsel.select(path, k=2, method="forward")
    assert time.monotonic() - began < QUICK
    assert re.search(what, str(error.value)), error.value
    assert re.search(remedy, str(error.value)), error.value


@pytest.mark.parametrize("kind", ["m8[ns]", "M8[ns]"])
def test_times_that_are_stored_as_integers(store: Callable[..., Path], kind: str) -> None:
    times = (X * 1e9).astype("i8").astype(kind)
    times[3, 2] = "NaT"  # on disk a number, the smallest one
    with pytest.raises(DataError, match=r"X of .* has times, stored as integers.*np.timedelta64\(1, 's'\)"):
        dsel.select(store(times), k=2, method="forward")


def test_times_in_memory_and_in_tables(folder: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=LABELS).assign(d=pd.to_timedelta(X[:, 0], unit="s"))
    for do in (
        lambda: dsel.select(frame, Y, k=2), lambda: dsel.select((X * 1e9).astype("i8").astype("m8[ns]"), Y, k=2),
        lambda: dsel.ingest(frame, folder / "times.zarr"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=r"(?s)(timedelta64|duration).*number"):
            do()


@pytest.mark.parametrize("kind", ["i8", "u8"])
def test_integers_that_float64_rounds_are_noted(store: Callable[..., Path], kind: str) -> None:
    found = dsel.select(store(((X - X.min()) * 1e18).astype(kind)), k=2, method="forward")
    assert any("6 columns have numbers beyond 2^53, which float64 may round" in note for note in found.notes)
    found = dsel.select((X * 1e9).astype("i8"), Y, k=2, method="forward")
    assert not any("2^53" in note for note in found.notes)


def test_integers_whose_differences_are_lost_are_not_just_called_constant(store: Callable[..., Path]) -> None:
    with pytest.raises(OptionError, match=r"all are constant or excluded.*6 columns have numbers beyond 2\^53"):
        dsel.select(store((X * 1e2).astype("i8") + 2**62), k=2, method="forward")


def test_labels_cannot_command_a_terminal(store: Callable[..., Path], folder: Path) -> None:
    red = "\x1b[31mred\x1b]0;title\x07"
    labels = [red, red + "1", "\x9b31m", "\x1b[2J", "\x07", "b\rc"]
    found = dsel.select(store(labels=labels), k=6, method="forward", include=[red])
    found.save(folder / "found")
    for words in (["show", "found"], ["export", "found", "--format", "csv"], ["export", "found", "--format", "json"]):
        ended, out, err = call(*words)
        assert (ended, err) == (0, "")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out), words
    page = folder / "found" / "page.html"
    found.report(page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", page.read_text())
    assert r"\x1b[31mred" in export_text(found, "csv")
