"""The command that writes a result as a page: report."""

from __future__ import annotations

from typing import Annotated

import typer

from dsel.cli.application import app
from dsel.cli.options import Folder


@app.command()
def report(
    folder: Folder,
    out: Annotated[
        str | None, typer.Option(help="File for the page: a path or a URL. By default report.html in the folder.")
    ] = None,
) -> None:
    """Write a result as one HTML page with pictures. It works offline, prints, and runs no script.

    Example: dsel report result --out report.html
    """
    from dsel.selection.report.page import report as write

    typer.echo(write(folder, out))
