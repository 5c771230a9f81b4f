"""python -m pipelines.benchmarks NAME: measure, and print the figures."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.benchmarks import pareto

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.callback()
def _group() -> None:
    """Benchmarks, each its own command."""


@app.command("pareto")
def pareto_command(
    quick: Annotated[bool, typer.Option("--quick", help="Shorter runs, rougher figures.")] = False,
) -> None:
    """The Pareto search on a quadratic objective."""
    pareto.run(quick)


if __name__ == "__main__":
    app()
