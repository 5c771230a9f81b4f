"""A selection in a folder: selection.zarr with the large arrays, and selection.json with the rest."""

from __future__ import annotations

import json

import numpy as np

from dsel.config.request import SelectionRequest
from dsel.errors import DataError, DselError, MissingInputError, OutputError
from dsel.search.exact.certificate import Certificate
from dsel.selection.arrays import arrays_of, attributes_of
from dsel.selection.chosen import ChosenStatistics
from dsel.selection.result import FORMAT, Selection
from dsel.selection.rows import FrontRow, PathRow, TraceRow
from dsel.selection.size_curve import SizeCurve
from dsel.selection.use.tables import group_files
from dsel.storage.json_files import read_json, valid_json
from dsel.storage.latest import resolve_run
from dsel.storage.paths import (
    AnyPath,
    as_path,
    discard_tree,
    list_names,
    make_folder,
    publish_tree,
    published_name,
    remove_stale,
    staged_write,
    staging_tree,
    write_files,
    zarr_store,
)

SELECTION, _ZARR = "selection.json", "selection.zarr"
#: Fields of a request that format 1 held next to the others.
_REQUEST_1 = ("k", "method", "preprocess", "lam", "seed", "options", "include", "exclude")


def save_selection(selection: Selection, folder: AnyPath, *, overwrite: bool = False) -> AnyPath:
    """Write a selection to a folder, and return the folder. `Selection.save` describes it."""
    if not overwrite and (folder / SELECTION).is_file():
        raise OutputError(f"{folder} holds a selection already.", "Choose another folder, or overwrite=True.")
    try:
        make_folder(folder)
        _write(selection, folder)
    except OSError as error:
        raise OutputError(f"The selection cannot be written to {folder}: {error}.") from error
    return folder


def _write(selection: Selection, folder: AnyPath) -> None:
    names = list_names(folder)
    before = read_json(folder / SELECTION) if SELECTION in names else None
    remove_stale(folder, _ZARR, names, keep=before.get("arrays") if isinstance(before, dict) else None)
    staging = staging_tree(folder, _ZARR)
    values = valid_json({**selection.as_dict(), "arrays": published_name(staging, _ZARR)})
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    try:
        write_files(staging, group_files(arrays_of(selection), attributes_of(selection)))
        with staged_write(folder / SELECTION, text.encode()) as put:
            publish_tree(staging, _ZARR)
            put()
    finally:
        discard_tree(staging)


def open_selection(path: str | AnyPath) -> Selection:
    """Open a saved Selection.

    Parameters
    ----------
    path : str, Path or ObjectPath
        The folder, or the selection.json in it. A folder of runs, or `latest` in it, stands for the last good run.

    Returns
    -------
    Selection
        The selection, equal to the one that was saved.

    Raises
    ------
    MissingInputError
        If there is no selection.
    DataError
        If it is damaged or incomplete.
    """
    folder = as_path(path)
    folder = folder.parent if folder.name == SELECTION else resolve_run(folder)
    if not (folder / SELECTION).is_file():
        if (folder / "job.json").is_file():
            raise MissingInputError(
                f"There is no {SELECTION} in {folder} yet: its run continues, or was stopped (see run.log).",
                f"If it was stopped: dsel resume {folder}",
            )
        raise MissingInputError(f"There is no {SELECTION} in {folder}.", "Name the folder that a run wrote to.")
    import zarr

    try:
        values = json.loads((folder / SELECTION).read_text())
        version = values.pop("format")
        if version not in (1, FORMAT):
            raise DataError(f"{folder / SELECTION} has an unknown format.", "Use a newer version of dsel.")
        if version == 1:
            values["request"] = {name: values.pop(name) for name in _REQUEST_1}
        values["request"] = SelectionRequest(**values["request"])
        group = zarr.open_group(zarr_store(folder / values.pop("arrays", _ZARR)), mode="r")
        values["coefficients"] = np.asarray(group["coefficients"])
        values["intercept"] = np.asarray(group["intercept"])
        values["fill"] = np.asarray(group["fill"]) if "fill" in group else None
        trace = np.asarray(group["trace"])
        values["statistics"] = ChosenStatistics.from_arrays(group)
        values["column_labels"] = {int(j): label for j, label in values.get("column_labels", {}).items()}
        for name in ("front", "forward"):
            rows = values.get(name, ())
            values[name] = tuple(FrontRow(**{**row, "indices": tuple(row["indices"])}) for row in rows)
        values["trace"] = tuple(TraceRow(int(i), int(s), float(f)) for i, s, f in trace)
        values["path"] = tuple(PathRow(**row) for row in values.get("path", ()))
        groups = values.get("groups", {})
        values["groups"] = {name: tuple(columns) for name, columns in groups.items()}
        curve = values.get("size_curve")
        values["size_curve"] = None if curve is None else SizeCurve.from_dict(curve)
        # Older versions named the fields differently, and judged gaps by other rules.
        values["certificate"] = tuple(Certificate.from_dict(row).as_dict() for row in values.get("certificate", ()))
        for name in ("indices", "shape", "targets", "constant", "notes"):
            values[name] = tuple(values[name])
        values["peak_memory"] = {address: tuple(pair) for address, pair in values["peak_memory"].items()}
        return Selection(**values)
    except DselError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise DataError(
            f"The selection in {folder} is damaged: {type(error).__name__}: {error}.", "Run the job again."
        ) from error
