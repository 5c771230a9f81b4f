"""Commands that use a saved result: export and predict."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from dsel._lib.text import printable
from dsel.cli.application import LogFormat, app, examples
from dsel.cli.options import Cluster, Folder, Json, Log, Store
from dsel.cli.output import print_json


class ExportForm(StrEnum):
    """The form of an export."""

    labels = "labels"
    csv = "csv"
    json = "json"


@app.command(epilog=examples("dsel export result", "dsel export result --format csv --out coefficients.csv"))
def export(
    folder: Folder,
    form: Annotated[
        ExportForm, typer.Option("--format", help="labels: one a line; csv or json: with coefficients and intercept.")
    ] = ExportForm.labels,
    out: Annotated[str | None, typer.Option(help="File to write: a path or a URL. By default standard output.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the chosen columns, and the coefficients for the data in their own units."""
    from dsel.selection.saved import open_selection
    from dsel.selection.use.export import export_text, write_export
    from dsel.storage.paths import as_path

    text = export_text(open_selection(folder), "json" if json else form.value)
    if out is None:
        # A program gets the labels as they are. To a terminal they could be commands.
        typer.echo(printable(text, keep_lines=True) if sys.stdout.isatty() else text, nl=False)
    else:
        write_export(text, as_path(out), overwrite=overwrite)


@app.command(epilog=examples("dsel predict result new.zarr predictions.zarr"))
def predict(
    folder: Folder,
    store: Store,
    out: Annotated[str, typer.Argument(help="The Zarr group to write: a path, or an s3://, gs:// or az:// URL.")],
    cluster: Cluster = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a Zarr group.")] = False,
    log_format: Log = LogFormat.text,
    json: Json = False,
) -> None:
    """Predict the targets for every row of a store, block by block, and write them to a Zarr group."""
    from dataclasses import asdict

    from dask.utils import format_bytes

    from dsel.config.job import read_cluster
    from dsel.jobs.predict import predict_run
    from dsel.jobs.reporting import Reporter
    from dsel.storage.paths import as_path

    section = None if cluster is None else read_cluster(cluster)
    reporter = Reporter.for_terminal(log_format.value)
    found = predict_run(
        as_path(folder), as_path(store), as_path(out), cluster=section, overwrite=overwrite, reporter=reporter
    )
    if json:
        print_json({"out": out, **asdict(found)})
        return
    m, N = found.shape
    typer.echo(
        f"{out}: {m:,} rows x {N:,} targets from {found.columns} columns, {format_bytes(found.bytes_read)} read in "
        f"{found.seconds:.1f} s"
    )
