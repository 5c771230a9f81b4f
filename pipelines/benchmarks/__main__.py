"""Run a benchmark and print its figures: python -m pipelines.benchmarks NAME."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.benchmarks import (
    alternatives,
    card,
    certificate,
    cold,
    greedy_rls,
    growing,
    growing_proofs,
    losses,
    losses_proofs,
    methods,
    out_of_core,
    pareto,
    scaling,
    sums,
)
from pipelines.benchmarks.proofs import run as proofs
from pipelines.benchmarks.proofs.solving import SOLVERS

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.command("pareto")
def pareto_command(
    quick: Annotated[bool, typer.Option("--quick", help="Make shorter runs with rougher figures.")] = False,
) -> None:
    """Measure the Pareto search: speed, quality at equal time, and the effect of each extension."""
    pareto.run(quick)


@app.command("certificate")
def certificate_command(
    quick: Annotated[bool, typer.Option("--quick", help="Stop long proofs sooner and repeat less.")] = False,
) -> None:
    """Measure branch and bound: nodes with each bound, nodes per second, speedup with two workers."""
    certificate.run(quick)


@app.command("cold")
def cold_command(
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the second run, which is compiled.")] = False,
) -> None:
    """Measure the first selection and the first proof on a machine, whose kernels are not compiled yet."""
    cold.run(quick)


@app.command("card")
def card_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use small data; figures are rougher.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Run only this part. Repeat for several.")] = None,
) -> None:
    """Measure what the papers promise and a cluster must keep."""
    for part in only or ():
        if part not in card.PARTS:
            raise typer.BadParameter(f"{part} is not one of {', '.join(card.PARTS)}.")
    card.run(quick, only or tuple(card.PARTS))


@app.command("greedy-rls")
def greedy_rls_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use small data; figures are rougher.")] = False,
    store: Annotated[
        Path | None, typer.Option(help="Zarr store with Y for the out-of-core part. Default: generate 4 GB.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this part: memory, height or disk. Repeat for several.")
    ] = None,
) -> None:
    """Measure greedy RLS in memory, and out of core on two workers of 1 GiB."""
    for part in only or ():
        if part not in greedy_rls.PARTS:
            raise typer.BadParameter(f"{part} is not one of {', '.join(greedy_rls.PARTS)}.")
    greedy_rls.run(quick, store, only or greedy_rls.PARTS)


@app.command("out-of-core")
def out_of_core_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use small data; figures are rougher.")] = False,
    store: Annotated[Path | None, typer.Option(help="Zarr store to read. Default: generate 4 GB.")] = None,
    memory: Annotated[str, typer.Option(help="Memory limit of each of the two workers.")] = "1GiB",
) -> None:
    """Compare the Gram pass and the eigendecomposition with Dask and dask-ml, on data larger than memory."""
    out_of_core.run(quick, store, memory)


@app.command("growing")
def growing_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use small data; figures are rougher.")] = False,
    certify: Annotated[
        bool, typer.Option("--certify", help="Measure the proofs of 60 nights in place of runs.")
    ] = False,
) -> None:
    """Compare a nightly run on a store that has grown by 1 % with a run from the beginning."""
    (growing_proofs if certify else growing).run(quick)


@app.command("sums")
def sums_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use a tenth of the rows.")] = False,
) -> None:
    """Select from the sums of ten sites, and compare with all rows."""
    sums.run(quick)


@app.command("scaling")
def scaling_command(
    full: Annotated[bool, typer.Option("--full", help="Make longer runs with steadier figures.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("scaling-report"),
) -> None:
    """Measure PPOSS on 1 to 32 workers, and R^2 against the number of processors."""
    scaling.run(out, full)


@app.command("methods")
def methods_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few data sets and less time.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Run only this data set. Repeat for several.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds of each method in a cell; 1.5 by default.")] = None,
    processes: Annotated[int, typer.Option(help="How many cells run at a time.")] = 2,
) -> None:
    """Compare every method with the portfolio at equal total time, on every data set and size."""
    for name in only or ():
        if name not in methods.names():
            raise typer.BadParameter(f"{name} is not one of {', '.join(methods.names())}.")
    methods.run(quick, only or (), seconds, processes)


@app.command("proofs")
def proofs_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few problems and five seconds for each solve.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Processor seconds of a solve; 3 by default.", min=1.0)] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this data set, such as sonar or n=1000, or group. Repeatable.")
    ] = None,
    solver: Annotated[list[str] | None, typer.Option(help="Run only dsel and this solver. Repeatable.")] = None,
) -> None:
    """Compare proofs of the best subset with those of other exact solvers, installed in separate environments."""
    for name in solver or ():
        if name not in SOLVERS:
            raise typer.BadParameter(f"{name} is not one of {', '.join(SOLVERS)}.")
    if not proofs.chosen(quick, only or ()):
        raise typer.BadParameter("No problem has this name.")
    proofs.run(quick, seconds, only or (), solver or SOLVERS)


@app.command("losses-proofs")
def losses_proofs_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few problems and ten seconds for each solve.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Processor seconds of a solve; 60 by default.", min=1.0)] = None,
) -> None:
    """Compare proofs for the logistic loss with those of El0ps, which is installed in a separate environment."""
    losses_proofs.run(quick, seconds)


@app.command("alternatives")
def alternatives_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few problems.")] = False,
) -> None:
    """Measure lists of near-best subsets: the time compared with one proof, and how many columns are decided."""
    alternatives.run(quick)


@app.command("losses")
def losses_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few data sets.")] = False,
) -> None:
    """Compare selections by the logistic loss with other tools on data with two classes."""
    losses.run(quick)


if __name__ == "__main__":
    app()
