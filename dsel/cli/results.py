"""Commands that read a saved result: show."""

from __future__ import annotations

import typer

from dsel.cli.application import app
from dsel.cli.options import Folder


@app.command()
def show(folder: Folder) -> None:
    """Print a saved selection."""
    from dsel.selection.render import render
    from dsel.selection.result import open_selection

    typer.echo(render(open_selection(folder)))
