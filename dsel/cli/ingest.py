"""The command that makes a store from files: ingest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json, Store
from dsel.cli.output import print_json

Progress = Callable[[int, int], None]


class MissingValues(StrEnum):
    """What is done about missing values."""

    keep = "keep"
    refuse = "refuse"
    rows = "rows"
    mean = "mean"


@app.command(
    epilog=examples(
        "dsel ingest measurements.csv data.zarr --target yield --index name",
        "dsel ingest survey.csv.gz data.zarr --separator ';' --categorical auto --drop comment --missing rows",
        "dsel ingest s3://bucket/table/ data.zarr --target price",
        "dsel ingest cells.h5ad data.zarr --target cell_type",
    )
)
def ingest(
    source: Annotated[
        str,
        typer.Argument(
            help="CSV, TSV, Parquet (also a folder), Arrow, NPY, NPZ, HDF5, NetCDF, Zarr, .h5ad or SVMlight: a path, "
            "or a URL as for STORE."
        ),
    ],
    store: Store,
    target: Annotated[
        list[str] | None, typer.Option(help="Column, array or variable that becomes a target; repeatable.")
    ] = None,
    index: Annotated[str | None, typer.Option(help="Column that labels the samples.")] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column or array with weights of the rows; for .npy, a second file.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns that are not stored; a list a,b or repeated.")] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(help="Columns that become one column for each value, or auto; a list a,b or repeated."),
    ] = None,
    missing: Annotated[
        MissingValues, typer.Option(help="Missing values: keep as NaN, refuse, leave out the rows, fill in the mean.")
    ] = MissingValues.keep,
    separator: Annotated[str | None, typer.Option(help="Between the fields of text: one character, or tab.")] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal mark of text.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line of text holds names.")
    ] = None,
    na: Annotated[list[str] | None, typer.Option(help="Another word for a missing value in text; repeatable.")] = None,
    variable: Annotated[str | None, typer.Option(help="Array that becomes X, if the file has several.")] = None,
    dimension: Annotated[str | None, typer.Option(help="Dimension along which the samples are.")] = None,
    y: Annotated[str | None, typer.Option(help="For .npy: a second file with the targets.")] = None,
    dtype: Annotated[str | None, typer.Option(help="dtype of X; by default that of the source.")] = None,
    compression: Annotated[str, typer.Option(help="none, zstd or lz4.")] = "none",
    memory: Annotated[str, typer.Option(help="Memory of a worker that will read it; sets the chunk size.")] = "1GiB",
    chunk_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows of a chunk, for a small store that dsel append will let grow.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the store if it exists.")] = False,
    json: Json = False,
) -> None:
    """Write a file into a store, block by block, and report what its columns hold.

    Repeat the command to continue after an interruption. All problems of a table are listed together, before anything
    is written.
    """
    from dsel._lib.text import printable
    from dsel.data.ingest import ingest as write
    from dsel.engine.clusters.local import worker_memory

    size = worker_memory(memory=memory)
    with show_progress() as (scanned, progress):
        report = write(
            source, store, y=y, target=target or (), index=index, weight=weight,
            drop=drop or (), categorical=categorical or (), missing=missing.value,
            separator=separator, decimal=decimal, header=header, na=na or (), variable=variable, dimension=dimension,
            dtype=dtype, compression=compression, worker_memory=size, chunk_rows=chunk_rows,
            overwrite=overwrite, progress=progress,
            scanned=scanned,
        )  # fmt: skip
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
