"""The command that writes a result as a page: report."""

from __future__ import annotations

from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Folder, Json
from dsel.cli.output import print_json


@app.command(epilog=examples("dsel report result", "dsel report result --out report.html"))
def report(
    folder: Folder,
    out: Annotated[
        str | None, typer.Option(help="File for the page: a path or a URL. By default report.html in the folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a result as one HTML page with pictures. It works offline, prints, and runs no script."""
    from dsel.selection.report.page import report as write

    page = write(folder, out)
    if json:
        print_json({"report": str(page)})
    else:
        typer.echo(page)
