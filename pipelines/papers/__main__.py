"""python -m pipelines.papers TABLE: compute a paper's table again, beside the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.papers import greedy_rls_curves, heuristic_tables, mnist5_all, pocss_table_1, poss_optima, poss_table_2

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Only = Annotated[list[str] | None, typer.Option(help="This data set alone; may be given several times.")]
Processes = Annotated[int, typer.Option(min=1, help="Processes, one BLAS thread each.")]


def _known(only: list[str] | None, names: list[str]) -> list[str]:
    for name in only or []:
        if name not in names:
            raise typer.BadParameter(f"{name} is not in this table: {', '.join(names)}.")
    return only or []


@app.command("poss-table-2")
def table_2(
    splits: Annotated[int, typer.Option(min=1, help="Random splits into halves.")] = 100,
    only: Only = None,
    processes: Processes = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the splits.")] = 0,
) -> None:
    """Training R^2 of POSS and its comparators for k = 8."""
    poss_table_2.run(splits, _known(only, list(poss_table_2.PAPER)), processes, seed)


@app.command("pocss-table-1")
def table_1(
    runs: Annotated[int, typer.Option(min=1, help="Runs of every randomised method.")] = 10,
    only: Only = None,
    processes: Processes = 2,
) -> None:
    """Error ratio of POCSS and its comparators for k = 50."""
    pocss_table_1.run(runs, _known(only, list(pocss_table_1.PAPER)), processes)


@app.command("heuristic-tables")
def heuristic(
    only: Only = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each best-first search.")] = 20.0,
    proof_seconds: Annotated[float, typer.Option(min=0.1, help="For each proof; oes97 at k = 7 can use all.")] = 60.0,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for Figure 3 (needs matplotlib).")] = None,
) -> None:
    """Errors and bounds of best-first search with f = l + gamma u, and the proved optima."""
    names = sorted({name.split()[0] for name, _ in heuristic_tables.PAPER})
    heuristic_tables.run(_known(only, names), seconds, proof_seconds, folder)


@app.command("poss-optima")
def optima(
    only: Only = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each proof.")] = 600.0,
) -> None:
    """Proved optima of R^2 for k = 8 on full data."""
    poss_optima.run(_known(only, list(poss_optima.NAMES)), seconds)


@app.command("greedy-rls")
def greedy_rls(
    only: Only = None,
    folds: Annotated[int, typer.Option(min=1, max=10, help="How many of the ten folds to run.")] = 10,
    most: Annotated[int | None, typer.Option(min=1, help="Features to choose at most; all by default.")] = None,
    processes: Processes = 2,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the curves.")] = Path("greedy-rls-curves"),
    seed: Annotated[int, typer.Option(min=0, help="Of the folds and of random selection.")] = 0,
    mnist5: Annotated[
        bool, typer.Option("--mnist5-all", help="Instead: all columns of all of mnist5 out of core, in --out.")
    ] = False,
) -> None:
    """Accuracy curves of greedy RLS, random selection and the majority; leave-one-out against test."""
    if mnist5:
        mnist5_all.run(folder)
        return
    names = _known(only, list(greedy_rls_curves.SETS)) or list(greedy_rls_curves.SETS)
    greedy_rls_curves.run(names, folds, most, processes, folder, seed)


if __name__ == "__main__":
    app()
