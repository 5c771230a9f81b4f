"""The command that adds rows to a store: append."""

from __future__ import annotations

from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.ingest import MissingValues, show_progress
from dsel.cli.options import Json, Store
from dsel.cli.output import print_json


@app.command(
    epilog=examples(
        "dsel append tonight.csv data.zarr",
        "dsel append s3://bucket/2026-08-01.parquet s3://bucket/data.zarr --time 2026-08-01",
    )
)
def append(
    source: Annotated[str, typer.Argument(help="A file that dsel ingest reads: a path, or a URL as for STORE.")],
    store: Store,
    time: Annotated[
        str | None, typer.Option(help="The time that the rows are from, such as 2026-08-01; by default now.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Append the file even if it was appended before and has not changed.")
    ] = False,
    target: Annotated[list[str] | None, typer.Option(help="Column that becomes a target; repeatable.")] = None,
    index: Annotated[str | None, typer.Option(help="Column that labels the samples.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column or array with weights; for .npy, a second file.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Columns that are not stored; a list a,b or repeated.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="Columns that become one column for each value, or auto.")
    ] = None,
    missing: Annotated[MissingValues | None, typer.Option(help="What is done about missing values.")] = None,
    separator: Annotated[str | None, typer.Option(help="Between the fields of text.")] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal mark of text.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether the first line of text holds names.")
    ] = None,
    na: Annotated[list[str] | None, typer.Option(help="Another word for a missing value; repeatable.")] = None,
    variable: Annotated[str | None, typer.Option(help="Array that becomes X, if the file has several.")] = None,
    dimension: Annotated[str | None, typer.Option(help="Dimension along which the samples are.")] = None,
    y: Annotated[str | None, typer.Option(help="For .npy: a second file with the targets.")] = None,
    dtype: Annotated[str | None, typer.Option(help="dtype to convert the rows to.")] = None,
    memory: Annotated[str, typer.Option(help="Memory that may be used.")] = "1GiB",
    json: Json = False,
) -> None:
    """Append the rows of a file to a store. Readers see the old rows until all new ones are there.

    The options are by default those with which the store was ingested. Repeat the command to continue after an
    interruption. A file that was appended before is not appended again.
    """
    from dsel._lib.text import printable
    from dsel.data.growth.append import append as add
    from dsel.engine.clusters.local import worker_memory

    size = worker_memory(memory=memory)
    with show_progress() as (scanned, progress):
        report = add(
            source, store, y=y, target=target or None, index=index, weight=weight, drop=drop or None,
            categorical=categorical or None, missing=None if missing is None else missing.value, separator=separator,
            decimal=decimal, header=header, na=na or None, variable=variable, dimension=dimension, dtype=dtype,
            time=time, again=again, worker_memory=size, progress=progress, scanned=scanned,
        )  # fmt: skip
    if json:
        print_json({"store": store, **report.to_dict()})
        return
    first, *rest = report.lines()
    typer.echo("\n".join(printable(line) for line in (f"{store}: {first}", *(f"  {line}" for line in rest))))
