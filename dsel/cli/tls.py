"""The command that writes certificates for a Dask cluster that somebody else starts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json
from dsel.cli.output import print_json


@app.command(epilog=examples("dsel tls certificates > tls.sh", "source tls.sh && dask scheduler"))
def tls(folder: Annotated[Path, typer.Argument(help="A new folder, which all hosts see.")], json: Json = False) -> None:
    """Write certificates for one cluster, and print shell lines that make Dask's commands use them.

    Whoever can read the folder can run code on the cluster. Only its owner can. Remove it when the cluster has ended.
    """
    from dsel.engine.clusters.tls import environment, write_certificates
    from dsel.errors import OutputError

    try:
        folder.mkdir()
        write_certificates(folder)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be created: {error.strerror}.", "Name a new folder.") from error
    variables = environment(folder)
    if json:
        print_json({"folder": str(folder), "variables": variables})
    else:
        typer.echo("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))
