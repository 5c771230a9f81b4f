"""Recompute the tables and figures of the papers, and compare them: python -m pipelines.papers all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from pipelines.papers.contents import PAPERS
from pipelines.papers.greedy_rls import curves as greedy_rls_curves
from pipelines.papers.greedy_rls import mnist5_all
from pipelines.papers.heuristic_search import tables as heuristic_tables
from pipelines.papers.pocss import table_1 as pocss_table_1
from pipelines.papers.poss import optima as poss_optima
from pipelines.papers.poss import table_2 as poss_table_2
from pipelines.papers.report.document import Document
from pipelines.papers.report.saved import make_parts
from pipelines.papers.report.settings import Settings
from pipelines.papers.report.write import write
from pipelines.papers.unconfirmed import differences
from pipelines.table import json_line

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

_PARTS = {part.name: part for paper in PAPERS for part in paper.parts}

Only = Annotated[list[str] | None, typer.Option(help="Compute only this data set. Repeat for several.")]
Processes = Annotated[int, typer.Option(min=1, help="Number of processes, one BLAS thread each.")]


def _known(only: list[str] | None, names: list[str]) -> list[str]:
    for name in only or []:
        if name not in names:
            raise typer.BadParameter(f"{name} is not here. Known: {', '.join(names)}.")
    return only or []


@app.command("all")
def everything(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the report and its saved parts.")] = Path("papers"),
    only: Annotated[
        list[str] | None, typer.Option(help=f"Make this part again and leave the others. Repeat. {', '.join(_PARTS)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few runs and small data, to see that it works.")] = False,
    processes: Processes = 2,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Begin nothing new after this time. The next call continues.")
    ] = math.inf,
) -> None:
    """Write one report of all papers. A part that is already saved in the folder is not made again."""
    settings = Settings(folder, quick, processes)
    again = _known(only, list(_PARTS))
    made = make_parts(list(_PARTS.values()), settings, again, lambda line: print(line, flush=True), seconds)
    document = Document.of(PAPERS, made, quick)
    html, markdown = write(document, folder)
    print(f"{html}\n{markdown}")
    confirmed, claims = document.claims
    failed = [name for name, part in made.items() if part.content is None]
    figures = {"parts": len(made), "failed": failed, **document.counts, "claims": claims, "confirmed": confirmed}
    for line in [] if quick else differences(document):
        print(line)
    print(json_line({**figures, "seconds": document.seconds}))
    if failed:
        raise typer.Exit(1)


@app.command("poss-table-2")
def table_2(
    splits: Annotated[int, typer.Option(min=1, help="Number of random splits into halves.")] = 100,
    only: Only = None,
    processes: Processes = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits.")] = 0,
) -> None:
    """POSS (NIPS 2015), Table 2: training R^2 of POSS and other methods, k = 8."""
    poss_table_2.run(splits, _known(only, list(poss_table_2.PAPER)), processes, seed)


@app.command("pocss-table-1")
def table_1(
    runs: Annotated[int, typer.Option(min=1, help="Number of runs of each randomised method.")] = 10,
    only: Only = None,
    processes: Processes = 2,
) -> None:
    """POCSS (AAAI 2019), Table 1: error ratio of POCSS and other methods, k = 50."""
    pocss_table_1.run(runs, _known(only, list(pocss_table_1.PAPER)), processes)


@app.command("heuristic-tables")
def heuristic(
    only: Only = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of each best-first search.")] = 20.0,
    proof_seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of each proof.")] = 60.0,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for Figure 3 (needs matplotlib).")] = None,
) -> None:
    """Heuristic search (AAAI 2021), Tables 1 and 2, Figure 3: best-first search, and proved optima."""
    names = sorted({name.split()[0] for name, _ in heuristic_tables.PAPER})
    heuristic_tables.run(_known(only, names), seconds, proof_seconds, folder)


@app.command("poss-optima")
def optima(
    only: Only = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of each proof.")] = 600.0,
) -> None:
    """POSS (NIPS 2015), Table 2, column OPT: proved optima of R^2 on the full data, k = 8."""
    poss_optima.run(_known(only, list(poss_optima.NAMES)), seconds)


@app.command("greedy-rls")
def greedy_rls(
    only: Only = None,
    folds: Annotated[int, typer.Option(min=1, max=10, help="Number of the ten folds to run.")] = 10,
    most: Annotated[int | None, typer.Option(min=1, help="Most features to choose. Default: all.")] = None,
    processes: Processes = 2,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the curves.")] = Path("greedy-rls-curves"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds and of random selection.")] = 0,
    mnist5: Annotated[
        bool, typer.Option("--mnist5-all", help="Instead, rank all columns of mnist5 out of core.")
    ] = False,
) -> None:
    """Greedy RLS (2010), Figures 4 to 15: test and leave-one-out accuracy against the number of features."""
    if mnist5:
        mnist5_all.run(folder)
        return
    names = _known(only, list(greedy_rls_curves.SETS)) or list(greedy_rls_curves.SETS)
    greedy_rls_curves.run(names, folds, most, processes, folder, seed)


if __name__ == "__main__":
    app()
