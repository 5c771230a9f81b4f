"""The answer: which columns, how good they are, how they were found, and what that cost."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsel.errors import DataError, DselError, MissingInputError, OutputError
from dsel.storage.json_files import read_json
from dsel.storage.paths import (
    AnyPath,
    as_path,
    discard_tree,
    make_folder,
    publish_tree,
    published_name,
    remove_stale,
    staged_write,
    staging_tree,
    zarr_store,
)

FORMAT = 1
SELECTION, _ZARR = "selection.json", "selection.zarr"


@dataclass(frozen=True)
class FrontRow:
    """The best subset found of one size (columns that are always included count): f, 1 - f / ||Y||^2, its columns, and
    the user's criterion where that was searched by."""

    size: int
    error: float
    r2: float
    indices: tuple[int, ...]
    criterion: float | None = None


@dataclass(frozen=True)
class TraceRow:
    """The best subset of at most k columns became better after so many iterations."""

    iteration: int
    size: int
    error: float


@dataclass(frozen=True)
class PathRow:
    """One step of a method that values subsets on rows left out: the column inserted or removed, how many there are
    then, and the error per row (squared, on the preprocessed data and summed over targets; or the share of wrong
    labels) left out; test_error likewise on held-out rows, where there are any. Accuracies for the zero-one loss."""

    action: str
    index: int
    label: str
    size: int
    error: float
    accuracy: float | None = None
    test_error: float | None = None
    test_accuracy: float | None = None


@dataclass(frozen=True)
class Selection:
    """Chosen columns of an m x n matrix X for N targets (N = n where Y = X).

    indices: 0-based, in order of gain, included ones first; labels likewise. error: f = ||Y - X_S A||^2 + lam ||A||^2
    on the preprocessed data, recomputed from the data on the chosen columns by QR; r2: share of ||Y||^2 explained.
    coefficients (s, N) and intercept (N,) are for the data as they are: Y ~ intercept + X[:, indices] @ coefficients.
    front: best subset of every size up to 2k - 1 that beats all smaller ones, by the Gram matrices; trace: every
    improvement (of the criterion, where there is one); path: every step of a method that values subsets on rows left
    out, for which front holds the answer alone. criterion: the user's own, of the chosen columns.
    certificate: what is proved, by size (see dsel.search.exact.certificate.Certificate.as_dict). ended: which rule
    stopped
    the search. bytes_read and passes: over the data, the final check included. weights: name of the samples' weights.
    plan: what was planned and what was measured (passes, bytes_read, tasks, worker_memory, seconds of the passes).
    """

    indices: tuple[int, ...]
    labels: tuple[str, ...]
    k: int
    error: float
    r2: float
    method: str
    preprocess: str
    lam: float
    seed: int
    options: dict[str, Any]
    coefficients: NDArray[np.float64]
    intercept: NDArray[np.float64]
    front: tuple[FrontRow, ...]
    trace: tuple[TraceRow, ...]
    ended: str
    iterations: int
    shape: tuple[int, int]
    targets: tuple[str, ...]
    include: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    constant: tuple[str, ...] = ()
    counts: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = ""
    fingerprint: str | None = None
    bytes_read: int = 0
    passes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, tuple[int, int]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    criterion: float | None = None
    certificate: tuple[dict[str, Any], ...] = ()
    path: tuple[PathRow, ...] = ()
    weights: str | None = None
    plan: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __str__(self) -> str:
        from dsel.selection.render import render

        return render(self).rstrip()

    def save(self, path: str | AnyPath, *, overwrite: bool = False) -> AnyPath:
        """Write selection.json (all but the large arrays) and selection.zarr (those) to the folder `path`.

        Each is written under a temporary name and renamed, the JSON last. In object storage the arrays keep a name of
        their own, selection-*.zarr, which the JSON says. Errors: OutputError where there is a
        selection already (unless `overwrite`) or the folder cannot be written.
        """
        folder = as_path(path)
        if (folder / SELECTION).is_file() and not overwrite:
            raise OutputError(f"{folder} holds a selection already.", "Choose another folder, or overwrite=True.")
        try:
            make_folder(folder)
            self._write(folder)
        except OSError as error:
            raise OutputError(f"The selection cannot be written to {folder}: {error}.") from error
        return folder

    def _write(self, folder: AnyPath) -> None:
        import zarr

        before = read_json(folder / SELECTION)
        remove_stale(folder, _ZARR, keep=before.get("arrays") if isinstance(before, dict) else None)
        staging = staging_tree(folder, _ZARR)
        text = json.dumps({**self.as_dict(), "arrays": published_name(staging, _ZARR)}, indent=1) + "\n"
        try:
            group = zarr.create_group(zarr_store(staging), zarr_format=3)
            for name, (array, dims) in self._arrays().items():
                group.create_array(name, data=array, dimension_names=dims)
            with staged_write(folder / SELECTION, text.encode()) as put:
                publish_tree(staging, _ZARR)
                put()
        finally:
            discard_tree(staging)

    def _arrays(self) -> dict[str, tuple[NDArray[Any], tuple[str, ...]]]:
        width = max((row.size for row in self.front), default=1) or 1
        members = np.full((len(self.front), width), -1, np.int64)
        for i, row in enumerate(self.front):
            members[i, : row.size] = row.indices
        trace = np.array([[t.iteration, t.size, t.error] for t in self.trace], np.float64).reshape(-1, 3)
        return {
            "indices": (np.asarray(self.indices, np.int64), ("selected",)),
            "coefficients": (self.coefficients, ("selected", "target")),
            "intercept": (self.intercept, ("target",)),
            "front_size": (np.array([row.size for row in self.front], np.int64), ("front",)),
            "front_error": (np.array([row.error for row in self.front], np.float64), ("front",)),
            "front_members": (members, ("front", "place")),
            "trace": (trace, ("improvement", "iteration_size_error")),
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything but coefficients, intercept and trace, as JSON holds it."""
        values = asdict(self)
        for name in ("coefficients", "intercept", "trace"):
            del values[name]
        return {"format": FORMAT, **values}


def open_selection(path: str | AnyPath) -> Selection:
    """Open a saved Selection: its folder, or the selection.json in it.

    Errors: MissingInputError where there is none, DataError where it is not whole.
    """
    folder = as_path(path)
    if folder.name == SELECTION:
        folder = folder.parent
    if not (folder / SELECTION).is_file():
        if (folder / "job.json").is_file():
            raise MissingInputError(
                f"There is no {SELECTION} in {folder} yet: its run goes on, or was stopped (run.log says).",
                f"If it was stopped: dsel resume {folder}",
            )
        raise MissingInputError(f"There is no {SELECTION} in {folder}.", "Name the folder that a run wrote to.")
    import zarr

    try:
        values = json.loads((folder / SELECTION).read_text())
        if values.pop("format") != FORMAT:
            raise DataError(f"{folder / SELECTION} has a format that this version does not know.", "Use a newer dsel.")
        group = zarr.open_group(zarr_store(folder / values.pop("arrays", _ZARR)), mode="r")
        values["coefficients"] = np.asarray(group["coefficients"])
        values["intercept"] = np.asarray(group["intercept"])
        trace = np.asarray(group["trace"])
        values["front"] = tuple(FrontRow(**{**row, "indices": tuple(row["indices"])}) for row in values["front"])
        values["trace"] = tuple(TraceRow(int(i), int(s), float(f)) for i, s, f in trace)
        values["path"] = tuple(PathRow(**row) for row in values.get("path", ()))
        values["certificate"] = tuple(values.get("certificate", ()))
        for name in ("indices", "labels", "shape", "targets", "include", "exclude", "constant", "notes"):
            values[name] = tuple(values[name])
        values["peak_memory"] = {address: tuple(pair) for address, pair in values["peak_memory"].items()}
        return Selection(**values)
    except DselError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise DataError(
            f"The selection in {folder} is not whole: {type(error).__name__}: {error}.", "Run the job again."
        ) from error
