"""Run benchmarks and print their figures: python -m pipelines.benchmarks NAME, or `all`.

Each one runs in parts of limited time, shows its progress, and ends within ten minutes. The last line is JSON. Results
are kept in a folder, one file for each part; a call that was interrupted continues there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pipelines.benchmarks import losses_proofs, methods, out_of_core
from pipelines.benchmarks.everything import BENCHMARKS, run_all
from pipelines.benchmarks.proofs import run as proofs
from pipelines.benchmarks.proofs.solving import SOLVERS
from pipelines.benchmarks.protocol import Benchmark, run, run_part
from pipelines.table import json_line

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Quick = Annotated[bool, typer.Option("--quick", help="Use small data; figures are rougher.")]
Out = Annotated[Path, typer.Option(help="Folder for the results of the parts.")]
Seconds = Annotated[float | None, typer.Option(min=1.0, help="Seconds of the benchmark; 600 by default.")]
FOLDER = Path("build/benchmarks")


@app.command("all")
def all_command(
    quick: Quick = False,
    out: Out = FOLDER,
    seconds: Annotated[
        float | None,
        typer.Option(min=1.0, help="Seconds of each benchmark; 600 by default. With --quick of all; 285 by default."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Add an entry to the history file, and write the page of the site.")
    ] = False,
) -> None:
    """Run all benchmarks with their peers, and write all.json and one page with pictures into the folder."""
    print(json_line(run_all(quick, out, seconds, record)))


@app.command("part", hidden=True)
def part_command(name: str, part: str, file: Path, quick: Quick = False) -> None:
    """Run one part in this process."""
    run_part(BENCHMARKS[name], part, quick, file)


def _command(benchmark: Benchmark) -> Callable[..., None]:
    parts = ", ".join(benchmark.parts)

    def command(
        quick: Quick = False,
        only: Annotated[list[str] | None, typer.Option(help="Run only this part. Repeat for several.")] = None,
        out: Out = FOLDER,
        seconds: Seconds = None,
    ) -> None:
        for part in only or ():
            if part not in benchmark.parts:
                raise typer.BadParameter(f"{part} is not one of {parts}.")
        found = run([benchmark], quick, out, only or tuple(benchmark.parts), seconds)
        merged = {
            key: value
            for figures in found.values()
            for key, value in figures.items()
            if key not in ("seconds", "cpu_seconds")
        }
        print(json_line({"benchmark": benchmark.name, "quick": quick, **merged}))

    return command


@app.command("out-of-core")
def out_of_core_command(
    quick: Quick = False,
    store: Annotated[Path | None, typer.Option(help="Zarr store to read. Default: generate 4 GB.")] = None,
    memory: Annotated[str, typer.Option(help="Memory limit of each of the two workers.")] = "1GiB",
) -> None:
    """Compare the Gram pass and the eigendecomposition with Dask and dask-ml, on data larger than memory."""
    out_of_core.run(quick, store, memory)


@app.command("methods")
def methods_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few data sets and less time.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Run only this data set. Repeat for several.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds of each method in a cell; 0.5 by default.")] = None,
    processes: Annotated[int, typer.Option(help="How many cells run at a time.")] = 2,
) -> None:
    """Compare every method with the portfolio at equal total time, on every data set and size."""
    for name in only or ():
        if name not in methods.names():
            raise typer.BadParameter(f"{name} is not one of {', '.join(methods.names())}.")
    print(json_line(methods.run(quick, only or (), seconds, processes)))


@app.command("proofs")
def proofs_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use five seconds for each solve.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Solve all problems, which takes hours.")] = False,
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
    if not proofs.chosen(not full, only or ()):
        raise typer.BadParameter("No problem has this name.")
    proofs.run(not full, seconds or (None if quick or full else proofs.SECONDS), only or (), solver or SOLVERS)


@app.command("losses-proofs")
def losses_proofs_command(
    quick: Annotated[bool, typer.Option("--quick", help="Use few problems.")] = False,
    seconds: Annotated[float, typer.Option(help="Processor seconds of a solve.", min=1.0)] = 5.0,
) -> None:
    """Compare proofs for the logistic loss with those of El0ps, which is installed in a separate environment."""
    print(json_line(losses_proofs.run(quick, seconds)))


@app.command("growing")
def growing_command(
    quick: Quick = False,
    certify: Annotated[bool, typer.Option("--certify", help="Measure proofs in place of runs: part `proofs`.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Run only this part: runs or proofs.")] = None,
    out: Out = FOLDER,
    seconds: Seconds = None,
) -> None:
    """Compare nightly runs, and proofs, on a store that has grown by 1 % with those from the beginning."""
    _command(BENCHMARKS["growing"])(quick, ["proofs"] if certify else only, out, seconds)


#: Commands with options that the others do not have.
_SPECIAL = ("out-of-core", "methods", "proofs", "losses-proofs", "growing")
for _name in BENCHMARKS:
    if _name not in _SPECIAL:
        app.command(_name, help=f"{BENCHMARKS[_name].summary} Parts: {', '.join(BENCHMARKS[_name].parts)}.")(
            _command(BENCHMARKS[_name])
        )


if __name__ == "__main__":
    app()
