"""python -m pipelines.benchmarks NAME: measure, and print the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.benchmarks import certificate, greedy_rls, out_of_core, pareto, scaling

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


@app.command("greedy-rls")
def greedy_rls_command(
    quick: Annotated[bool, typer.Option("--quick", help="Small data, rougher figures.")] = False,
    store: Annotated[
        Path | None, typer.Option(help="Store with Y to go through out of core; else 4 GB are made.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="This part alone (memory, height, disk); may be given several times.")
    ] = None,
) -> None:
    """Greedy RLS in memory, and out of core on two workers of 1 GiB."""
    for part in only or ():
        if part not in greedy_rls.PARTS:
            raise typer.BadParameter(f"{part} is none of {', '.join(greedy_rls.PARTS)}.")
    greedy_rls.run(quick, store, only or greedy_rls.PARTS)


@app.command("out-of-core")
def out_of_core_command(
    quick: Annotated[bool, typer.Option("--quick", help="Small data, rougher figures.")] = False,
    store: Annotated[Path | None, typer.Option(help="Store to read; else 4 GB are made.")] = None,
    memory: Annotated[str, typer.Option(help="Memory limit of each of the two workers.")] = "1GiB",
) -> None:
    """Gram pass and eigendecomposition on data larger than the workers' memory, beside other programs."""
    out_of_core.run(quick, store, memory)


@app.command("scaling")
def scaling_command(
    full: Annotated[bool, typer.Option("--full", help="Longer runs, steadier figures.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("scaling-report"),
) -> None:
    """PPOSS on 1 to 32 workers, synchronous and asynchronous; R^2 against the number of processors."""
    scaling.run(out, full)


if __name__ == "__main__":
    app()
