"""The summaries of the runs in a folder of runs, and the table that `dsel history` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.console import console_text, text_table
from dsel._lib.text import printable, shorten
from dsel.errors import MissingInputError
from dsel.selection.record import SelectionRecord
from dsel.storage.json_files import read_json, valid_json, write_json
from dsel.storage.paths import LATEST, AnyPath, list_names

#: It is written when a run is complete, so a run without one is unfinished.
SUMMARY = "summary.json"
_NAME = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


@dataclass(frozen=True)
class RunSummary:
    """One good run.

    Parameters
    ----------
    run : str
        The name of its folder.
    started, finished : str
        When, ISO 8601, UTC.
    rows : int
        The rows of the data.
    k : int
        How many columns, or groups of columns, were chosen.
    error, r2 : float
        How good they are.
    bound : float, optional
        The certified lower bound on the error.
    columns : list of str
        The labels of the chosen columns.
    entered, left : list of str
        What changed since the previous run.
    changed : bool
        Whether anything did. False for the first run.
    previous : str, optional
        The previous run.
    new_rows : int, optional
        The rows that came since then.
    previous_error, new_rows_r2 : float, optional
        Of the previous columns on these data, and of the previous coefficients on the new rows alone.
    beyond_splitting : bool, optional
        Whether the new columns are better beyond what splitting the rows explains.
    largest_shift : float, optional
        The largest drift of a mean, in standard deviations.
    seconds : float
        The time of the passes, the search and the comparison, without the start of the program and the proof.
    bytes_read : int
        What was read of the data.
    status : str, optional
        The status of the certificate.
    share_name : str
        The name of `r2`: R2, or D2 of a deviance.
    worse_beyond_splitting : bool, optional
        Whether the new columns are worse beyond what splitting the rows explains.
    """

    run: str
    started: str
    finished: str
    rows: int
    k: int
    error: float
    r2: float
    bound: float | None
    columns: list[str]
    entered: list[str]
    left: list[str]
    changed: bool
    previous: str | None
    new_rows: int | None
    previous_error: float | None
    new_rows_r2: float | None
    beyond_splitting: bool | None
    largest_shift: float | None
    seconds: float
    bytes_read: int
    status: str | None = None
    share_name: str = "R2"
    worse_beyond_splitting: bool | None = None

    @classmethod
    def of(cls, run: str, selection: SelectionRecord) -> RunSummary:
        """Return the summary of a run."""
        changes = selection.changes or {}
        rows = [row for row in selection.certificate if row["size"] == selection.k]
        drift, comparison = changes.get("drift") or {}, changes.get("comparison") or {}
        return cls(
            run, selection.provenance.get("started", ""), selection.provenance.get("finished", ""),
            selection.shape[0], len(selection.groups or selection), selection.error, selection.r2,
            float(rows[0]["bound"]) if rows else None, list(selection.names), list(changes.get("entered", ())),
            list(changes.get("left", ())), bool(changes.get("changed")), changes.get("run"), changes.get("new_rows"),
            changes.get("previous_error"), (changes.get("on_new_rows") or {}).get("r2"),
            comparison.get("beyond_splitting"), drift.get("largest_shift"),
            float(sum(selection.seconds.values())), selection.bytes_read, rows[0]["status"] if rows else None,
            selection.share_name, comparison["high"] < 0.0 if comparison else None,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the summary, ready for JSON."""
        return asdict(self)

    def save(self, folder: AnyPath) -> None:
        """Write the summary into the folder of its run."""
        write_json(folder / SUMMARY, valid_json(self.as_dict()))

    @classmethod
    def open(cls, folder: AnyPath) -> RunSummary | None:
        """Return the summary in the folder of a run, or None if the run is unfinished."""
        found = read_json(folder / SUMMARY, lost="its run is left out")
        names = {field.name for field in fields(cls)}
        later = {"status", "share_name", "worse_beyond_splitting"}  # older versions saved none of these
        if not isinstance(found, dict) or not names - later <= set(found):
            return None
        return cls(**{name: found[name] for name in names if name in found})


def run_names(folder: AnyPath) -> list[str]:
    """Return the names of the runs in a folder, oldest first."""
    return sorted((name for name in list_names(folder) if _NAME.fullmatch(name)), key=_order)


def _order(name: str) -> tuple[str, int]:
    time, _, number = name.partition("-")
    return time, int(number or 0)


def read_history(folder: AnyPath) -> list[RunSummary]:
    """Return the summaries of the good runs in a folder, oldest first.

    Raises
    ------
    MissingInputError
        If there is none.
    """
    found = [summary for name in run_names(folder) if (summary := RunSummary.open(folder / name)) is not None]
    if not found:
        raise MissingInputError(
            f"{folder} has no finished runs.", "Name the folder of a job with out: {folder: ..., keep: ...}."
        )
    return found


def is_series(folder: AnyPath) -> bool:
    """Return whether a folder holds runs."""
    return LATEST in list_names(folder)


def render_history(runs: Sequence[RunSummary], width: int | None = None) -> str:
    """Return a table of runs, one row each, oldest first."""
    share = " or ".join(dict.fromkeys(run.share_name for run in runs))
    of_groups = any(run.k != len(run.columns) for run in runs)
    sizes = ("k", "columns") if of_groups else ("k",)
    names = ("run", "rows", *sizes, "error", share, "bound", "time", "read", "changes")
    table = text_table(*names, left=("run", "changes"), fold=("changes",))
    for run in runs:
        bound = "" if run.bound is None else f"{run.bound:.6g}"
        bound = "none of use" if run.status == "no-useful-bound" else bound
        bound += " except near-copies" if run.status == "optimal-except-near-copies" else ""
        size = (str(run.k), str(len(run.columns))) if of_groups else (str(run.k),)
        table.add_row(
            run.run, f"{run.rows:,}", *size, f"{run.error:.6g}", f"{run.r2:.6f}", bound, f"{run.seconds:.1f} s",
            format_bytes(run.bytes_read), printable(_changes(run, runs[0])),
        )  # fmt: skip
    return console_text([table], width)


def _changes(run: RunSummary, first: RunSummary) -> str:
    if run.previous is None:
        return "first run" if run is first else "not compared"
    if not run.changed:
        return "none"
    parts = [f"+ {shorten(run.entered, 8)}"] if run.entered else []
    parts += [f"- {shorten(run.left, 8)}"] if run.left else []
    beyond = {True: "better beyond splitting", False: "within splitting", None: ""}[run.beyond_splitting]
    beyond = "worse beyond splitting" if run.worse_beyond_splitting else beyond
    return "  ".join(parts) + (f" ({beyond})" if beyond else "")
