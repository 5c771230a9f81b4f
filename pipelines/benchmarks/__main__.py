"""python -m pipelines.benchmarks NAME: measure, and print the figures."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.benchmarks import certificate, pareto

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


@app.command("certificate")
def certificate_command(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller proofs, rougher figures.")] = False,
) -> None:
    """Branch and bound: nodes with each bound, nodes a second, speedup of a second worker."""
    certificate.run(quick)


if __name__ == "__main__":
    app()
