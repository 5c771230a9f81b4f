"""A selection in a folder: selection.zarr with the large arrays, and selection.json with the rest.

The JSON has a digest of itself, and of each file of the arrays. Formats 1 and 2 had none: there, what both hold must
agree.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dsel._lib.damage import DamagedFileError, digest_of
from dsel.config.request import SelectionRequest
from dsel.data.dataset import GIVEN_TARGETS
from dsel.errors import DataError, DselError, MissingInputError, OutputError
from dsel.search.exact.certificate import Certificate
from dsel.selection import record
from dsel.selection.alternatives import Alternatives, Substitute
from dsel.selection.class_figures import ClassFigures
from dsel.selection.record import Arrays, SelectionRecord
from dsel.selection.record_values import ChosenStatistics, FrontRow, PathRow, SizeCurve, TraceRow
from dsel.selection.submodularity import Submodularity
from dsel.storage import paths
from dsel.storage.json_files import checked_json, parse_checked_json, read_json, valid_json
from dsel.storage.paths import ICECHUNK, AnyPath, as_path, zarr_store
from dsel.storage.zarr_store import LostChunkError

if TYPE_CHECKING:
    import zarr

_Record = TypeVar("_Record", bound=SelectionRecord)

SELECTION, _ZARR = "selection.json", "selection.zarr"
#: Fields of a request that format 1 held next to the others.
_REQUEST_1 = ("k", "method", "preprocess", "lam", "seed", "options", "include", "exclude")
#: The first format with digests.
_CHECKED = 3
#: Between the arrays and the JSON of a new selection, on disk, there is less time than this.
_PUBLISH_SECONDS = 0.2


def is_from_sums(selection: SelectionRecord) -> bool:
    """Return whether a selection was made from sums of rows."""
    return "parts" in selection.counts


def certify_call(selection: SelectionRecord, folder: AnyPath | None = None) -> str:
    """Return the call in Python that certifies a selection.

    folder: where the selection was saved; by default it is in memory.
    """
    named = "selection" if folder is None else f"dsel.open_selection({json.dumps(str(folder))})"
    if is_from_sums(selection):
        files = ", ".join(map(json.dumps, selection.counts.get("files", ()))) or "*parts"
        return f"dsel.certify({named}, dsel.open_sums({files}))"
    source, fingerprint = selection.source, selection.fingerprint
    in_memory = source in ("", "X")
    is_object = in_memory or source.startswith(f"{ICECHUNK}@")  # such as a session of Icechunk
    y = ", y" if in_memory or fingerprint is None or GIVEN_TARGETS in fingerprint else ""
    return f"dsel.certify({named}, {'X' if is_object else json.dumps(source)}{y})"


def save_selection(selection: SelectionRecord, folder: AnyPath, *, overwrite: bool = False) -> AnyPath:
    """Write a selection to a folder, and return the folder. `Selection.save` describes it."""
    if not overwrite:
        require_new(folder)
    try:
        paths.make_folder(folder)
        _write(selection, folder)
    except OSError as error:
        raise OutputError(f"The selection cannot be written to {folder}: {error}.") from error
    return folder


def require_new(folder: AnyPath) -> None:
    """Raise OutputError if a folder holds a selection."""
    if (folder / SELECTION).is_file():
        raise OutputError(
            f"{folder} holds a selection already.", "Choose another folder, or overwrite=True (--overwrite)."
        )


def _write(selection: SelectionRecord, folder: AnyPath) -> None:
    names = paths.list_names(folder)
    before = read_json(folder / SELECTION) if SELECTION in names else None
    before = before if isinstance(before, dict) else {}
    paths.remove_stale(folder, _ZARR, names, keep=before.get("arrays"))
    files = group_files(selection.arrays(), selection.attributes())
    digests = {name: digest_of(data) for name, data in files.items()}
    if before.get("files") == digests and _are_whole(folder, before["arrays"], digests):
        paths.write_bytes(folder / SELECTION, _as_text(selection, before["arrays"], digests))
        return  # such as a selection with its certificates, which are not in the arrays
    staging = paths.staging_tree(folder, _ZARR)
    text = _as_text(selection, paths.published_name(staging, _ZARR), digests)
    try:
        paths.write_files(staging, files)
        with paths.staged_write(folder / SELECTION, text) as put:
            paths.publish_tree(staging, _ZARR)
            put()
    finally:
        paths.discard_tree(staging)


def _as_text(selection: SelectionRecord, arrays: str, digests: Mapping[str, str]) -> bytes:
    values = valid_json({**selection.as_dict(), "arrays": arrays, "files": digests})
    return f"{checked_json(values, indent=1)}\n".encode()


def _are_whole(folder: AnyPath, name: str, digests: Mapping[str, str]) -> bool:
    try:
        return bool(_read_files(folder, name, digests))
    except DamagedFileError:
        return False


def read_selection(path: str | AnyPath, kind: type[_Record]) -> _Record:
    """Return a saved selection. `open_selection` describes it."""
    folder = as_path(path)
    folder = folder.parent if folder.name == SELECTION else paths.resolve_run(folder)
    if not (folder / SELECTION).is_file():
        if (folder / "job.json").is_file():
            raise MissingInputError(
                f"There is no {SELECTION} in {folder} yet: its run continues, or was stopped (see run.log).",
                f"If it was stopped: dsel resume {folder}",
            )
        from dsel.selection.changes.runs import run_names

        if runs := run_names(folder):
            raise MissingInputError(
                f"{folder} has no finished run yet: the newest is {runs[-1]}.",
                f"dsel status {folder} says what it does. If it was stopped: dsel resume {folder / runs[-1]}",
            )
        raise MissingInputError(f"There is no {SELECTION} in {folder}.", "Name the folder that a run wrote to.")
    try:
        values, group = _opened(folder)
        values["request"] = SelectionRequest(**values["request"])
        values["coefficients"] = np.asarray(group["coefficients"])
        values["intercept"] = np.asarray(group["intercept"])
        values["fill"] = np.asarray(group["fill"]) if "fill" in group else None
        values["approximated"] = (
            () if values["targets"] or "target" not in group else tuple(group["target"][:].tolist())
        )
        values["trace"] = tuple(TraceRow(int(i), int(s), float(f)) for i, s, f in np.asarray(group["trace"]))
        values["statistics"] = ChosenStatistics.from_arrays(group)
        values["column_labels"] = {int(j): label for j, label in values.get("column_labels", {}).items()}
        for name in ("front", "forward"):
            rows = values.get(name, ())
            values[name] = tuple(map(FrontRow.from_dict, rows))
        values["path"] = tuple(PathRow(**row) for row in values.get("path", ()))
        values["groups"] = {name: tuple(columns) for name, columns in values.get("groups", {}).items()}
        if values.get("size_curve") is not None:
            values["size_curve"] = SizeCurve.from_dict(values["size_curve"])
        if values.get("submodularity") is not None:
            values["submodularity"] = Submodularity(**values["submodularity"])
        if values.get("alternatives") is not None:
            values["alternatives"] = Alternatives.from_dict(values["alternatives"])
        if values.get("class_figures") is not None:
            values["class_figures"] = ClassFigures.from_dict(values["class_figures"])
        if values.get("swaps") is not None:
            values["swaps"] = tuple(Substitute(**row) for row in values["swaps"])
        # Older versions named the fields differently, and judged gaps by other rules.
        values["certificate"] = tuple(Certificate.from_dict(row).as_dict() for row in values.get("certificate", ()))
        for name in ("indices", "shape", "targets", "constant", "notes", "categories"):
            values[name] = tuple(values.get(name, ()))
        values["peak_memory"] = {address: tuple(pair) for address, pair in values["peak_memory"].items()}
        return kind(**values)
    except DselError:
        raise
    except DamagedFileError as error:
        raise _damaged(folder, str(error)) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise _damaged(folder, f"{type(error).__name__}: {error}") from error


def _damaged(folder: AnyPath, what: str) -> DataError:
    again = f"Run the job again: dsel resume {folder}" if (folder / "job.json").is_file() else "Save it again."
    return DataError(f"The selection in {folder} is damaged: {what}.", again)


def _opened(folder: AnyPath) -> tuple[dict[str, Any], Any]:
    """Return the values of the JSON as those of the present format, and the group of the arrays, all checked."""
    text = _text(folder)
    try:
        return _checked(folder, text)
    except DamagedFileError:
        time.sleep(_PUBLISH_SECONDS)
        if (again := _text(folder)) == text:
            raise
        return _checked(folder, again)  # a new selection took the place of the old one meanwhile


def _text(folder: AnyPath) -> str:
    try:
        return (folder / SELECTION).read_text()
    except ValueError as error:
        raise DamagedFileError(f"{SELECTION} is not text ({error})") from error


def _checked(folder: AnyPath, text: str) -> tuple[dict[str, Any], Any]:
    try:
        values, has_digest = parse_checked_json(text)
    except DamagedFileError as error:
        raise DamagedFileError(f"{SELECTION}: {error}") from error
    version = values.pop("format")
    if version not in (1, 2, record.FORMAT):
        raise DataError(f"{folder / SELECTION} has an unknown format.", "Use a newer version of dsel.")
    if version >= _CHECKED and not has_digest:
        raise DamagedFileError(f"{SELECTION}: its digest is lost")
    if version == 1:
        values["request"] = {name: values.pop(name) for name in _REQUEST_1}
    name = values.pop("arrays", _ZARR)
    _require_inside(name)
    if version >= _CHECKED:
        return values, group_of(_read_files(folder, name, values.pop("files")))
    import zarr

    group = zarr.open_group(zarr_store(folder / name), mode="r")
    _require_agreement(values, group)
    _require_chunks(values, zarr.open_group(zarr_store(folder / name, complete=True), mode="r"))
    return values, group


def _require_inside(name: str) -> None:
    """Raise DamagedFileError unless a path is a relative one that stays in the folder."""
    if not isinstance(name, str) or name.startswith("/") or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise DamagedFileError(f"{SELECTION} refers to {name!r}, which is not in this folder")


def _read_files(folder: AnyPath, name: str, digests: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content of all files of the arrays. Raises DamagedFileError for one that is lost or changed."""
    files = {}
    for key, digest in digests.items():
        _require_inside(key)
        try:
            files[key] = (folder / name / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DamagedFileError(f"{name}/{key} is lost") from error
        if digest_of(files[key]) != digest:
            raise DamagedFileError(f"{name}/{key} is not what was written (its digest differs)")
    return files


def _require_chunks(values: Mapping[str, Any], group: Any) -> None:
    """Raise DamagedFileError where an older format has lost a chunk that the JSON does not repeat.

    Its arrays leave out chunks of zeros. Coefficients are not zero, and without centering the intercept is.
    """
    names = ["coefficients", *([] if values["request"]["preprocess"] == "none" else ["intercept"])]
    for name in names:
        if name not in values:
            try:
                np.asarray(group[name])
            except LostChunkError as error:
                raise DamagedFileError(f"{error} of the arrays is lost") from error


def _require_agreement(values: Mapping[str, Any], group: Any) -> None:
    """Raise DamagedFileError where the JSON and the arrays of an older format hold different numbers."""
    front = values.get("front", ())
    both = {name: values[name] for name in ("indices", "coefficients", "intercept", "fill") if name in values}
    both |= {f"front_{name}": [row[name] for row in front] for name in ("size", "error", "r2")}
    for name, numbers in both.items():
        if name in group and numbers is not None:
            known, array = np.array(numbers, np.float64), np.asarray(group[name], np.float64)
            if known.size != array.size or not np.allclose(
                known.ravel(), np.where(np.isfinite(array), array, np.nan).ravel(), rtol=1e-12, atol=0, equal_nan=True
            ):
                raise DamagedFileError(f"{SELECTION} and the array {name} differ")


def group_files(arrays: Arrays, attributes: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a Zarr group with these arrays, which xarray opens without a warning.

    Each chunk has a checksum. It is there, too, if it holds nothing but the fill value, so that an absent one is lost.
    Zarr asks for files before and after it writes one. In memory that costs nothing.
    """
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec
    from zarr.core.buffer import Buffer
    from zarr.storage import MemoryStore

    files: dict[str, Buffer] = {}
    store = MemoryStore(files)
    group = zarr.create_group(store, zarr_format=3, attributes=attributes)
    for name, (array, dims) in arrays.items():
        created = group.create_array(
            name, shape=array.shape, dtype="string" if array.dtype == object else array.dtype, dimension_names=dims,
            compressors=[ZstdCodec(), Crc32cCodec()], config={"write_empty_chunks": True},
        )  # fmt: skip
        created[...] = array
    consolidate(store)
    return {key: value.to_bytes() for key, value in files.items()}


def group_of(files: Mapping[str, bytes]) -> zarr.Group:
    """Return the Zarr group with these files, in memory."""
    import zarr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    as_buffer = default_buffer_prototype().buffer.from_bytes
    return zarr.open_group(MemoryStore({key: as_buffer(data) for key, data in files.items()}), mode="r")


def consolidate(store: Any) -> None:
    """Write the metadata of all arrays into those of the group, where xarray looks for them first."""
    import zarr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the specification of version 3 does not have them yet
        zarr.consolidate_metadata(store, zarr_format=3)
