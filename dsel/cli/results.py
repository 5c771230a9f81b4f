"""Commands that read saved results: show and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Folder, Json
from dsel.cli.output import print_json, print_selection, terminal_width


@app.command(epilog=examples("dsel show result", "dsel show result --details", "dsel show result --json"))
def show(
    folder: Folder,
    details: Annotated[bool, typer.Option("--details", help="Print the cost and the plan, too.")] = False,
    json: Json = False,
) -> None:
    """Print a saved selection."""
    from dsel.selection.saved import open_selection

    print_selection(open_selection(folder), json, details=details)


@app.command(epilog=examples("dsel compare result-poss result-forward"))
def compare(a: Folder, b: Folder, json: Json = False) -> None:
    """Compare two results: columns in common, errors, and the options that differ."""
    from dsel.selection.saved import open_selection
    from dsel.selection.use.comparison import compare_selections

    found = compare_selections(open_selection(a), open_selection(b), names=(a, b))
    if json:
        print_json(found.as_dict())
    else:
        typer.echo(found.render(terminal_width()))
