"""Print answers: as text as wide as the terminal, or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from dsel.selection.result import Selection


def terminal_width() -> int | None:
    """Return the columns of the terminal that reads the answer; None for a file or a pipe, which has no width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_json(value: Any) -> None:
    """Print a value as JSON. Numbers that JSON does not have become null."""
    typer.echo(json.dumps(_finite(value), indent=1, allow_nan=False, default=str))


def print_selection(selection: Selection, as_json: bool, *, details: bool = False, footer: str = "") -> None:
    """Print a selection.

    Parameters
    ----------
    selection : Selection
        The answer.
    as_json : bool
        Print everything that is saved, with coefficients and intercept, as JSON.
    details : bool
        Print the cost and the plan, too.
    footer : str
        A last line of the text.
    """
    if as_json:
        print_json(_as_json(selection))
        return
    from dsel.selection.render import render

    typer.echo(render(selection, terminal_width(), details=details).rstrip("\n"))
    if footer:
        typer.echo(footer)


def _as_json(selection: Selection) -> dict[str, Any]:
    """Return all that is saved, with the coefficients, and with the labels of every subset of the front."""
    values = selection.as_dict()
    for name in ("front", "forward"):
        for row in values.get(name, ()):
            row["labels"] = [selection.label(j) for j in row["indices"]]
    return {**values, "coefficients": selection.coefficients, "intercept": selection.intercept}


def _finite(value: Any) -> Any:
    """Return a value with null in place of infinities and NaN."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return None if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
