"""Missing values in a frame or a matrix: how many the means replaced, and what an error says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import dsel
from dsel.errors import DataError

M = 40
RNG = np.random.default_rng(1)
FRAME = pd.DataFrame({"x": RNG.normal(size=M), "city": RNG.choice(["bonn", "kiel", "ulm"], M), "z": RNG.normal(size=M)})
Y = FRAME["x"].to_numpy() + FRAME["city"].eq("ulm").to_numpy() + RNG.normal(size=M)
HOLES = FRAME.assign(city=FRAME["city"].where(np.arange(M) % 9 > 0), x=FRAME["x"].where(np.arange(M) > 1))
COUNTS = "2 of 40 in 'x', 5 of 40 in 'city'"
SHARES = "; a row without a category has the share of each value in its indicator columns"


def note_on_means(notes: Any) -> list[str]:
    return [note.removeprefix("missing values became the mean of their column: ") for note in notes if "mean" in note]


@pytest.mark.parametrize("kind", [lambda f: f, lambda f: f.assign(city=f["city"].astype("category")), pl.from_pandas])
def test_a_note_counts_the_values_that_means_replaced(kind: Callable[[Any], Any]) -> None:
    frame = kind(HOLES)
    assert note_on_means(dsel.select(frame, Y, k=2, missing="mean").notes) == [COUNTS + SHARES]
    assert note_on_means(dsel.select(frame, Y, k=1, missing="mean", exclude=["city"]).notes) == ["2 of 40 in 'x'"]
    assert note_on_means(dsel.select(FRAME, Y, k=2, missing="mean").notes) == []


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, lambda X: np.ma.masked_invalid(X)])
def test_matrices_have_the_note_too(kind: Callable[[Any], Any]) -> None:
    X = HOLES[["x", "z"]].to_numpy()
    assert note_on_means(dsel.select(kind(X), Y, k=1, missing="mean").notes) == ["2 of 40 in 'x0'"]


def test_a_row_without_a_category_has_the_shares_of_its_values() -> None:
    chosen = dsel.select(HOLES, Y, k=3, missing="mean")
    fill = dict(zip(chosen.names, chosen.fill, strict=True))
    shares = HOLES["city"].value_counts(normalize=True)
    assert {name: fill[f"city={name}"] for name in shares.index} == pytest.approx(dict(shares))
    missing, filled = HOLES.tail(4).assign(city=None), pd.get_dummies(HOLES, columns=["city"], prefix_sep="=")
    filled = filled.tail(4).assign(**{f"city={name}": share for name, share in shares.items()})
    np.testing.assert_allclose(chosen.predict(missing), chosen.predict(filled))


def test_an_ingest_counts_them_by_column_of_the_frame(tmp_path: Path) -> None:
    kept = dsel.ingest(HOLES, tmp_path / "kept.zarr", categorical="city")
    assert any(line.startswith("missing values in 2 columns: x (2), city (5);") for line in kept.lines())
    replaced = dsel.ingest(HOLES, tmp_path / "replaced.zarr", categorical="city", missing="mean")
    assert note_on_means(replaced.notes) == [COUNTS + SHARES]


def test_an_error_names_the_category_and_what_helps(tmp_path: Path) -> None:
    dsel.ingest(HOLES, tmp_path / "kept.zarr", y=Y, categorical="city")
    says = r"NaN values: 7 .* in columns 'x' \(2\), 'city' \(5\), rows 0, 1, 9, .* A category may also have a value"
    for data in ((HOLES, Y), (tmp_path / "kept.zarr",)):
        with pytest.raises(DataError, match=says):
            dsel.select(*data, k=2)
    with pytest.raises(DataError, match=r"in column 'x', rows 0, 1 .*of each column\.$"):
        dsel.select(HOLES[["x", "z"]], Y, k=1)
