"""Print a Selection in a terminal."""

from __future__ import annotations

import io
from typing import Any

from dsel.selection.result import Selection
from dsel.selection.size_curve import SizeCurve


def render(selection: Selection, width: int = 100) -> str:
    """Return a selection as text: the chosen columns, the quality of each size, and the cost."""
    from rich.console import Console
    from rich.table import Table

    # Labels are not markup: they may contain [C] or :apple:.
    # Without force_jupyter=False a notebook would show what only the record should hold.
    console = Console(
        width=width, record=True, file=io.StringIO(), markup=False, emoji=False, highlight=False, force_jupyter=False
    )
    m, n = selection.shape
    about = "of Y" if selection.coefficients.shape[1] != n or selection.targets else "of X itself"
    further = f"seed {selection.seed}" + (f", weights: {selection.weights}" if selection.weights else "")
    console.print(
        f"{len(selection)} of {n:,} columns explain {selection.r2:.4%} {about} ({m:,} rows; {selection.method}, "
        f"{selection.preprocess}{f', lam = {selection.lam:g}' if selection.lam else ''}, {further})"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("size", "error", "R2", "columns"):
        table.add_column(name, justify="left" if name == "columns" else "right")
    for row in selection.front:
        if len(selection.include) <= row.size <= selection.k:
            marks = " <-" if set(row.indices) == set(selection.indices) else ""
            table.add_row(str(row.size), f"{row.error:.6g}", f"{row.r2:.6f}", _names(selection, row.indices) + marks)
    if selection.path:
        console.print("Steps, by the error on left-out rows:")
        console.print(_path(selection))
    else:
        console.print("Best subset found of each size:")
        console.print(table)
    if selection.size_curve is not None:
        console.print(f"k = {selection.k}: {selection.size_curve.description}")
        console.print(_size_curve(selection.size_curve))
    console.print(f"Chosen, in order of {'choice' if selection.path else 'gain'}: {', '.join(selection.labels)}")
    for certificate in selection.certificate:
        console.print(_proof(certificate, selection.lam > 0.0))
    console.print(_cost(selection))
    if selection.plan is not None:
        console.print(_plan(selection.plan))
    for note in selection.notes:
        console.print(f"note: {note}")
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


def _path(selection: Selection) -> Any:
    """Return the steps as a table, at most the first and last 20."""
    from rich.table import Table

    path = selection.path
    names = ["size", "step", "column", "error"]
    extra = [name for name in ("accuracy", "test_error", "test_accuracy") if getattr(path[0], name) is not None]
    table = Table(box=None, pad_edge=False)
    for name in [*names, *(name.replace("_", " ") for name in extra)]:
        table.add_column(name, justify="left" if name in ("step", "column") else "right")
    for i, row in enumerate(path):
        if 20 <= i < len(path) - 20:
            if i == 20:
                table.add_row("...")
            continue
        figures = [f"{getattr(row, name):.6g}" for name in ("error", *extra)]
        table.add_row(str(row.size), row.action, row.label, *figures)
    return table


def _size_curve(curve: SizeCurve) -> Any:
    """Return the curve of an automatic k as a table."""
    from rich.table import Table

    with_errors = any(point.standard_error is not None for point in curve.points)
    table = Table(box=None, pad_edge=False)
    for name in ("size", "value", *(["standard error"] if with_errors else [])):
        table.add_column(name, justify="right")
    table.add_column("")
    for point in curve.points:
        error = [] if not with_errors else [f"{point.standard_error:.3g}"]
        table.add_row(str(point.size), f"{point.value:.6g}", *error, "<-" if point.size == curve.k else "")
    return table


def _names(selection: Selection, indices: tuple[int, ...], most: int = 8) -> str:
    shown = " ".join(str(i) for i in indices[:most])
    return shown + (" ..." if len(indices) > most else "")


def _proof(row: dict[str, Any], penalized: bool) -> str:
    effort = f"{row['nodes']:,} nodes, {row['seconds']:.1f} s"
    if penalized:  # what is proved is the error with its penalty, from which no R2 follows
        proved = f"error {row['value']:.6g} with the ridge penalty"
        if row["proven"]:
            return f"Certificate, {row['size']} columns: proved optimal, {proved} ({effort})"
        return (
            f"Certificate, {row['size']} columns: {proved}, none is below {row['bound']:.6g} (gap {row['gap']:.4g}, "
            f"{row['relative_gap']:.2%} of the error; {effort})"
        )
    if row["proven"]:
        return f"Certificate, {row['size']} columns: proved optimal, R2 {row['r2']:.6f} ({effort})"
    return (
        f"Certificate, {row['size']} columns: R2 {row['r2']:.6f}, none is above {row['r2_bound']:.6f}; error "
        f"{row['value']:.6g}, none is below {row['bound']:.6g} (gap {row['gap']:.4g}, {row['relative_gap']:.2%} of the "
        f"error; {effort})"
    )


def _plan(plan: dict[str, Any]) -> str:
    """Return the planned and the measured figures as one line."""
    from dask.utils import format_bytes

    planned, measured = plan["planned"], plan["measured"]
    about = "" if plan["exact"] else "about "
    parts = [
        f"{planned['passes']} and {measured['passes']} passes",
        f"{format_bytes(planned['bytes_read'])} and {format_bytes(measured['bytes_read'])} read",
        f"{planned['tasks']} and {measured['tasks']} tasks",
    ]
    if measured.get("worker_memory"):
        memory = format_bytes(planned["worker_memory"]), format_bytes(measured["worker_memory"])
        parts.append(f"{memory[0]} and {memory[1]} per worker")
    if planned["seconds"] is not None:
        parts.append(f"{planned['seconds']:.3g} and {measured['seconds']:.3g} s in passes")
    return f"As {plan['representation']}; planned and measured: {about}{', '.join(parts)}"


def _cost(selection: Selection) -> str:
    from dask.utils import format_bytes

    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in selection.seconds.items())
    read = f"{selection.passes} passes, {format_bytes(selection.bytes_read)} read"
    return f"{selection.iterations:,} iterations, ended by {selection.ended}; {read}; {seconds}"
