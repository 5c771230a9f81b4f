"""Commands that prepare a machine: compile the searches, and write certificates for a Dask cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dsel.cli.application import Json, app, examples, print_answer, reporter_of


@app.command(epilog=examples("dsel warm", "dsel warm --method poss --method forward"))
def warm(
    method: Annotated[list[str] | None, typer.Option(help="A method; repeat for more. By default all.")] = None,
    json: Json = False,
) -> None:
    """Compile the searches for this machine, so that the first selection starts at once. For images and clusters."""
    from time import perf_counter

    from dsel.jobs.warm import warm as compile_methods

    began = perf_counter()
    reporter = reporter_of("text")
    with reporter.showing():
        names = compile_methods(method or [], lambda name: reporter.stage(f"compile {name}"))
    seconds = round(perf_counter() - began, 1)
    values = {"methods": names, "seconds": seconds}
    print_answer(json, values, lambda: f"Compiled in {seconds:.1f} s: {', '.join(names)}")


@app.command(epilog=examples("dsel tls certificates > tls.sh", "source tls.sh && dask scheduler"))
def tls(folder: Annotated[Path, typer.Argument(help="A new folder, which all hosts see.")], json: Json = False) -> None:
    """Write certificates for one cluster, and print shell lines that make Dask's commands use them.

    Whoever can read the folder can run code on the cluster. Only its owner can. Remove it when the cluster has ended.
    """
    from dsel.engine.clusters.tls import environment, write_certificates
    from dsel.jobs.reporting import output_errors

    with output_errors(f"The folder {folder} cannot be created", "Name a new folder."):
        folder.mkdir()
        write_certificates(folder)
    variables = environment(folder)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    print_answer(json, {"folder": str(folder), "variables": variables}, lambda: "\n".join(lines))
