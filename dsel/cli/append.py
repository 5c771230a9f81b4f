"""The command that adds rows to a store: append."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dsel.cli.application import app, examples
from dsel.cli.ingest import print_report, show_progress
from dsel.cli.options import Json, Store, with_flags
from dsel.config.ingest_request import SourceOptions


@app.command(
    epilog=examples(
        "dsel append tonight.csv data.zarr",
        "dsel append s3://bucket/2026-08-01.parquet s3://bucket/data.zarr --time 2026-08-01",
    )
)
@with_flags(SourceOptions, given=True)
def append(
    source: Annotated[str, typer.Argument(help="A file that dsel ingest reads: a path, or a URL as for STORE.")],
    store: Store,
    time: Annotated[
        str | None, typer.Option(help="The time that the rows are from, such as 2026-08-01; by default now.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Append the file even if it was appended before and has not changed.")
    ] = False,
    memory: Annotated[str, typer.Option(help="Memory that may be used.")] = "1GiB",
    json: Json = False,
    **options: Any,
) -> None:
    """Append the rows of a file to a store. Readers see the old rows until all new ones are there.

    The options are by default those with which the store was ingested. Repeat the command to continue after an
    interruption. A file that was appended before is not appended again.
    """
    from dsel.data.growth.append import append as add
    from dsel.engine.clusters.local import worker_memory

    options |= {"worker_memory": worker_memory(memory=memory), "time": time, "again": again}
    with show_progress() as (scanned, progress):
        report = add(source, store, **options, progress=progress, scanned=scanned)
    print_report(store, report, json)
