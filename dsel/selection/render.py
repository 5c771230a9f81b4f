"""Print a Selection in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsel._lib.text import printable
from dsel.search.exact.certificate import GROUPS, STATUS_WORDS, caveat, claim, covered, effort
from dsel.selection.changes.compare import describe_changes
from dsel.selection.result import Selection
from dsel.selection.size_curve import FrontRow, SizeCurve

#: Width of text that is not for a terminal: so wide that no line is broken.
_ENDLESS = 1_000_000
#: Subsets are printed in full up to this many characters where there is no terminal to ask.
_FULL = 100
#: Stands after the subset that is the answer.
_MARK = " <-"


def render(selection: Selection, width: int | None = None, *, details: bool = False) -> str:
    """Return a selection as text: the chosen columns, the quality of each size, and the certificate.

    Parameters
    ----------
    selection : Selection
        What to print.
    width : int, optional
        Columns of the terminal; longer lines are broken. By default no line is broken.
    details : bool
        Add the cost, and the plan compared with what was measured.

    Returns
    -------
    str
        Lines that end with a line break. Control characters in labels are escaped.
    """
    from rich.console import Console

    # Labels are not markup: they may contain [C] or :apple:.
    # Without force_jupyter=False a notebook would show what only the record should hold.
    console = Console(
        width=width or _ENDLESS, record=True, file=io.StringIO(), markup=False, emoji=False, highlight=False,
        force_jupyter=False,
    )  # fmt: skip
    console.print(printable(_headline(selection)))
    if selection.path:
        console.print("Steps, by the error on left-out rows:")
        console.print(_path(selection))
    else:
        console.print("Best subset found of each size:")
        console.print(_front(selection, width))
    if selection.size_curve is not None:
        console.print(f"k = {selection.k}: {selection.size_curve.description}")
        console.print(_size_curve(selection.size_curve))
    chosen = list(selection.groups) or selection.labels
    console.print(f"Chosen, in order of {'choice' if selection.path else 'gain'}: {_join(chosen)}")
    if selection.groups:
        console.print(f"Their columns: {_join(selection.labels)}")
    for certificate in selection.certificate:
        console.print(_proof(certificate, selection.lam > 0.0))
        for sentence in filter(None, [caveat(certificate, selection.label)]):
            console.print(f"  {printable(sentence)}")
    for line in describe_guarantees(selection):
        console.print(line)
    for line in describe_changes(selection.changes) if selection.changes else ():
        console.print(printable(line))
    for line in describe_cost(selection) if details else ():
        console.print(line)
    for note in selection.notes:
        console.print(f"note: {printable(note)}")
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


def describe_cost(selection: Selection) -> Iterator[str]:
    """Yield one line about the cost of a selection, and one about its plan compared with what was measured."""
    yield _cost(selection)
    if selection.plan is not None:
        yield _plan(selection.plan)


def describe_guarantees(selection: Selection) -> Iterator[str]:
    """Yield one line about the submodularity ratio, and one about the best approximation of X, where they are known."""
    gamma = selection.submodularity
    if gamma is not None:
        yield (
            f"Submodularity ratio: at least {gamma.bound:.4f} (proved), about {gamma.estimate:.4f} (estimate); forward "
            f"selection explains at least {gamma.guarantee:.2%} of what the best columns explain (proved), about "
            f"{gamma.estimated_guarantee:.2%} (estimate)"
        )
    if selection.error_ratio is not None:
        yield f"Error ratio to the best approximation of rank {len(selection)}: {selection.error_ratio:.4f}"


def _headline(selection: Selection) -> str:
    m, n = selection.shape
    about = "of Y" if selection.coefficients.shape[1] != n or selection.targets else "of X itself"
    further = f"seed {selection.seed}" + (f", weights: {selection.weights}" if selection.weights else "")
    criterion = "" if selection.criterion is None else f"; criterion {selection.criterion:.6g}"
    what = f"{len(selection.groups)} groups with {len(selection)}" if selection.groups else str(len(selection))
    return (
        f"{what} of {n:,} columns explain {selection.r2:.4%} {about} ({m:,} rows; {selection.method}, "
        f"{selection.preprocess}{f', lam = {selection.lam:g}' if selection.lam else ''}, {further}{criterion})"
    )


def _front(selection: Selection, width: int | None) -> Any:
    """Return the best subsets as a table: all of their labels, or what changes from row to row if that is too wide."""
    from rich.table import Table

    group = _groups(selection)
    included = len({group.get(int(j), str(j)) for j in selection.include})
    rows = [row for row in selection.front if included <= row.size <= selection.k]
    subsets = [list(dict.fromkeys(group.get(j) or selection.label(j) for j in row.indices)) for row in rows]
    by_criterion = any(row.criterion is not None for row in rows)
    proofs = {proof["size"]: proof for proof in selection.certificate} if len(selection.certificate) > 1 else {}
    figures = ("size", *(("criterion",) if by_criterion else ()), "error", "R2", *(("gap",) if proofs else ()))
    values = [[*_figures(row, by_criterion), *([_gap(proofs.get(row.size))] if proofs else [])] for row in rows]
    columns = zip(figures, *values, strict=True)
    taken = sum(2 + max(map(len, column)) for column in columns)
    in_full = all(len(_join(subset)) <= (width or _FULL) - taken - len(_MARK) for subset in subsets)
    table = Table(box=None, pad_edge=False)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("columns" if in_full else "columns, compared with the row above", overflow="fold")
    before: Sequence[str] = ()
    for row, subset, cells in zip(rows, subsets, values, strict=True):
        mark = _MARK if set(row.indices) == set(selection.indices) else ""
        table.add_row(*cells, (_join(subset) if in_full else _change(before, subset)) + mark)
        before = subset
    return table


def _figures(row: FrontRow, by_criterion: bool) -> list[str]:
    """Return the figures of one row as text."""
    criterion = ["" if row.criterion is None else f"{row.criterion:.6g}"] if by_criterion else []
    return [str(row.size), *criterion, f"{row.error:.6g}", f"{row.r2:.6f}"]


def _gap(proof: Mapping[str, Any] | None) -> str:
    """Return by how much the error of a size may be above the best one, as text."""
    if proof is None:
        return ""
    return f"{proof['gap']:.4g}" if proof["status"] == "bounded" else STATUS_WORDS[proof["status"]]


def _change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return which labels come and go between two subsets."""
    gone, come = set(before) - set(after), set(after) - set(before)
    parts = [f"-{printable(label)}" for label in before if label in gone]
    parts += [f"+{printable(label)}" for label in after if label in come]
    return " ".join(parts)


def _join(labels: Sequence[str]) -> str:
    return ", ".join(printable(label) for label in labels)


def _path(selection: Selection) -> Any:
    """Return the steps as a table, at most the first and last 20."""
    from rich.table import Table

    path = selection.path
    names = ["size", "step", "column", "error"]
    extra = [name for name in ("accuracy", "test_error", "test_accuracy") if getattr(path[0], name) is not None]
    table = Table(box=None, pad_edge=False)
    for name in [*names, *(name.replace("_", " ") for name in extra)]:
        left = name in ("step", "column")
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "column", overflow="fold")
    for i, row in enumerate(path):
        if 20 <= i < len(path) - 20:
            if i == 20:
                table.add_row("...")
            continue
        figures = [f"{getattr(row, name):.6g}" for name in ("error", *extra)]
        table.add_row(str(row.size), row.action, printable(row.label), *figures)
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


def _groups(selection: Selection) -> dict[int, str]:
    """Return the name of the group of each column that is in one."""
    return {int(j): name for name, columns in (selection.request.groups or {}).items() for j in columns}


def _proof(row: dict[str, Any], penalized: bool) -> str:
    size = f"{row['size']} {'groups of columns' if row['method'] == GROUPS else 'columns'}"
    took = f"{effort(row)}, {row['seconds']:.1f} s"
    limit, words = row["coefficients"], claim(row)
    among = f" {covered(limit)}" if limit else ""
    useless = "no useful bound, " if row["status"] == "no-useful-bound" else ""
    if penalized:  # what is proved is the error with its penalty, from which no R2 follows
        proved = f"error {row['value']:.6g} with the ridge penalty"
        if words is not None:
            return f"Certificate, {size}: {words}, {proved} ({took})"
        return (
            f"Certificate, {size}: {useless}{proved}, none is below {row['bound']:.6g} (gap {row['gap']:.4g}, "
            f"{row['relative_gap']:.2%} of the error; {took})"
        )
    if words is not None:
        return f"Certificate, {size}: {words}, R2 {row['r2']:.6f} ({took})"
    return (
        f"Certificate, {size}: {useless}R2 {row['r2']:.6f}{among}, none is above {row['r2_bound']:.6f}; error "
        f"{row['value']:.6g}, none is below {row['bound']:.6g} (gap {row['gap']:.4g}, {row['relative_gap']:.2%} of the "
        f"error; {took})"
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
    passes = "1 pass" if selection.passes == 1 else f"{selection.passes} passes"
    read = f"{passes}, {format_bytes(selection.bytes_read)} read"
    return f"{selection.iterations:,} iterations, ended by {selection.ended}; {read}; {seconds}"
