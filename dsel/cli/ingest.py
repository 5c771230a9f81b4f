"""The command that makes a store from files: ingest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json, Store, with_flags
from dsel.cli.output import print_json
from dsel.config.ingest_request import IngestRequest

if TYPE_CHECKING:
    from dsel.data.growth.report import AppendReport
    from dsel.data.ingest_report import IngestReport

Progress = Callable[[int, int], None]


@app.command(
    epilog=examples(
        "dsel ingest measurements.csv data.zarr --target yield --index name",
        "dsel ingest survey.csv.gz data.zarr --separator ';' --categorical auto --drop comment --missing rows",
        "dsel ingest s3://bucket/table/ data.zarr --target price",
        "dsel ingest cells.h5ad data.zarr --target cell_type",
    )
)
@with_flags(IngestRequest)
def ingest(
    source: Annotated[
        str,
        typer.Argument(
            help="CSV, TSV, Parquet (also a folder), Arrow, NPY, NPZ, HDF5, NetCDF, Zarr, .h5ad or SVMlight: a path, "
            "or a URL as for STORE."
        ),
    ],
    store: Store,
    memory: Annotated[str, typer.Option(help="Memory of a worker that will read it; sets the chunk size.")] = "1GiB",
    json: Json = False,
    **options: Any,
) -> None:
    """Write a file into a store, block by block, and report what its columns hold.

    Repeat the command to continue after an interruption. All problems of a table are listed together, before anything
    is written.
    """
    from dsel.data.ingest import ingest as write
    from dsel.engine.clusters.local import worker_memory

    options |= {"worker_memory": worker_memory(memory=memory)}
    with show_progress() as (scanned, progress):
        report = write(source, store, **options, progress=progress, scanned=scanned)
    print_report(store, report, json)


def print_report(store: str, report: IngestReport | AppendReport, json: bool) -> None:
    """Print what an ingest or an append did, as text or as JSON."""
    from dsel._lib.text import printable

    if json:
        print_json({"store": store, **report.to_dict()})
        return
    first, *rest = report.lines()
    typer.echo("\n".join(printable(line) for line in (f"{store}: {first}", *(f"  {line}" for line in rest))))


@contextmanager
def show_progress() -> Iterator[tuple[Progress | None, Progress | None]]:
    """Yield functions that show how much has been examined and written; None unless standard error is a terminal."""
    if not sys.stderr.isatty():
        yield None, None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:

        def show(title: str) -> Progress:
            task: list[Any] = []

            def update(done: int, total: int) -> None:
                if not task:
                    task.append(bars.add_task(title))
                bars.update(task[0], completed=done, total=total or None)

            return update

        yield show("examined"), show("written")
