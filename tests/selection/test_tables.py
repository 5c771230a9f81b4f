"""A selection as a frame, as a labelled dataset, on disk, and as text."""

from __future__ import annotations

import csv
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import dsel
from dsel.errors import DataError, OptionError, OutputError
from dsel.selection.results.export import export_text, write_export
from tests.stores import regression

X, Y = regression(m=150, n=18)
NAMES = [f"gene {j}" for j in range(18)]
SELECTION = dsel.select(pd.DataFrame(X, columns=NAMES), pd.Series(Y[:, 0], name="yield"), k=4, include=["gene 1"])
TWO = dsel.select(X, np.column_stack([Y, X[:, 3]]), k=3, method="forward")


def test_a_frame_has_a_row_for_each_chosen_column() -> None:
    frame = SELECTION.to_frame()
    assert frame.index.tolist() == SELECTION.labels
    assert frame["index"].tolist() == list(SELECTION.indices)
    assert frame["included"].tolist() == [True, False, False, False]
    np.testing.assert_array_equal(frame["coefficient"], SELECTION.coefficients[:, 0])
    assert frame["gain"].sum() == pytest.approx(SELECTION.r2)
    assert list(TWO.to_frame().columns) == ["index", "included", "gain", "coefficient_y0", "coefficient_y1"]
    assert list(dsel.select(X, k=2, method="forward").to_frame().columns) == ["index", "included", "gain"]


def test_the_saved_arrays_open_with_labels_and_without_a_warning(tmp_path: Path) -> None:
    folder = SELECTION.save(tmp_path / "answer")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xr.open_zarr(folder / "selection.zarr").load()
    assert found.equals(SELECTION.to_xarray())
    assert found.attrs == SELECTION.to_xarray().attrs
    assert found.attrs["method"] == "poss"
    chosen = SELECTION.labels[2]
    assert float(found.coefficients.sel(selected=chosen, target="yield")) == SELECTION.coefficients[2, 0]


def test_json_holds_the_coefficients(tmp_path: Path) -> None:
    values = json.loads((SELECTION.save(tmp_path / "answer") / "selection.json").read_text())
    assert values["coefficients"] == SELECTION.coefficients.tolist()
    assert values["intercept"] == SELECTION.intercept.tolist()


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_a_selection_equals_itself_after_saving_and_no_other(tmp_path: Path, missing: str) -> None:
    x = X if missing == "refuse" else np.where(np.arange(18) == 3, np.nan, 1.0) * X + 0.0
    x[1:, 3] = X[1:, 3]
    s = dsel.select(x, Y, k=3, missing=missing)  # type: ignore[arg-type]
    again = dsel.open_selection(s.save(tmp_path / "answer"))
    assert again == s
    assert again.predict(X).tolist() == s.predict(X).tolist()
    assert s != dsel.select(X, Y, k=2)
    assert s != "something else"


class TestExport:
    def test_labels_are_one_a_line(self) -> None:
        assert export_text(SELECTION).splitlines() == SELECTION.labels

    def test_csv_has_coefficients_that_predict(self) -> None:
        rows = list(csv.DictReader(io.StringIO(export_text(TWO, "csv"))))
        assert rows[0]["feature"] == "(intercept)"
        found = np.array([float(rows[0][f"coefficient_{t}"]) for t in TWO.targets])
        for row in rows[1:]:
            found = found + X[7, int(row["index"])] * np.array([float(row[f"coefficient_{t}"]) for t in TWO.targets])
        np.testing.assert_allclose(found, TWO.predict(X)[7], rtol=1e-12)

    def test_json_has_everything_to_predict(self) -> None:
        found = json.loads(export_text(SELECTION, "json"))
        assert found["labels"] == SELECTION.labels
        value = found["intercept"][0] + X[7, found["indices"]] @ np.array(found["coefficients"])[:, 0]
        assert value == pytest.approx(SELECTION.predict(X)[7])

    def test_a_label_that_would_break_the_lines_is_refused(self) -> None:
        s = dsel.select(pd.DataFrame(X, columns=["a\nb", *NAMES[1:]]), Y, k=1, include=["a\nb"])
        with pytest.raises(DataError, match="not printable"):
            export_text(s)
        assert next(csv.reader(io.StringIO(export_text(s, "csv").split("\n", 2)[2])))[0] == "a\nb"

    def test_an_unknown_form_is_refused(self) -> None:
        with pytest.raises(OptionError, match="labels, csv, json"):
            export_text(SELECTION, "xml")  # type: ignore[arg-type]

    def test_a_file_is_replaced_only_on_demand(self, tmp_path: Path) -> None:
        write_export("a\n", tmp_path / "new" / "labels.txt")
        with pytest.raises(OutputError, match="exists already"):
            write_export("b\n", tmp_path / "new" / "labels.txt")
        write_export("b\n", tmp_path / "new" / "labels.txt", overwrite=True)
        assert (tmp_path / "new" / "labels.txt").read_text() == "b\n"
