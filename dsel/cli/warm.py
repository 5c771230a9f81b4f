"""The command that compiles the searches before they are used."""

from __future__ import annotations

from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json
from dsel.cli.output import print_json


@app.command(epilog=examples("dsel warm", "dsel warm --method poss --method forward"))
def warm(
    method: Annotated[list[str] | None, typer.Option(help="A method; repeat for more. By default all.")] = None,
    json: Json = False,
) -> None:
    """Compile the searches for this machine, so that the first selection starts at once. For images and clusters."""
    from time import perf_counter

    from dsel.jobs.reporting import Reporter
    from dsel.jobs.warm import warm as compile_methods

    began = perf_counter()
    reporter = Reporter.for_terminal()
    with reporter.showing():
        names = compile_methods(method or [], lambda name: reporter.stage(f"compile {name}"))
    seconds = round(perf_counter() - began, 1)
    if json:
        print_json({"methods": names, "seconds": seconds})
    else:
        typer.echo(f"Compiled in {seconds:.1f} s: {', '.join(names)}")
