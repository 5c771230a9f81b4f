"""Commands that make or describe a store: ingest, generate and info."""

from __future__ import annotations

from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json, Store
from dsel.cli.output import print_json, terminal_width


@app.command(epilog=examples("dsel info data.zarr", "dsel info s3://bucket/data.zarr --json"))
def info(store: Store, json: Json = False) -> None:
    """Print what a store contains."""
    from dsel.data.info import describe, render

    found = describe(store)
    if json:
        print_json(found.as_dict())
    else:
        typer.echo(render(found, terminal_width()))


@app.command(
    epilog=examples(
        "dsel ingest measurements.csv data.zarr --target yield", "dsel ingest arrays.npz data.zarr --overwrite"
    )
)
def ingest(
    source: Annotated[str, typer.Argument(help=".npz, .npy, .csv, .tsv or .parquet: a path, or a URL as for STORE.")],
    store: Store,
    y: Annotated[str | None, typer.Option(help="A second .npy file with the targets.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Column of a table that becomes a target; repeatable.")
    ] = None,
    index: Annotated[str | None, typer.Option(help="Column of a table that labels the samples.")] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column of a table, array of an .npz, or .npy file with weights of the rows.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="dtype of X; by default that of the source.")] = None,
    compression: Annotated[str, typer.Option(help="none, zstd or lz4.")] = "none",
    memory: Annotated[str, typer.Option(help="Memory of a worker that will read it; sets the chunk size.")] = "1GiB",
    overwrite: bool = False,
    json: Json = False,
) -> None:
    """Write a file into a store, block by block. Repeat the command to continue after an interruption."""
    from dataclasses import asdict

    from dask.utils import format_bytes

    from dsel.data.ingest import ingest as write
    from dsel.engine.clusters.local import worker_memory

    report = write(
        source, store, y=y, target=target or (), index=_position(index), weight=weight, dtype=dtype,
        compression=compression, worker_memory=worker_memory(memory=memory), overwrite=overwrite,
    )  # fmt: skip
    if json:
        print_json({"store": store, **asdict(report)})
        return
    m, n = report.shape
    typer.echo(
        f"{store}: {m:,} samples x {n:,} features and {report.targets} targets, {report.dtype}, chunks "
        f"{report.chunks[0]} x {report.chunks[1]}, {format_bytes(report.bytes_written)} in {report.seconds:.1f} s"
    )


@app.command(epilog=examples("dsel generate data.zarr --samples 1000000 --features 1000 --informative 20"))
def generate(
    store: Store,
    samples: Annotated[int, typer.Option(min=1)] = 100_000,
    features: Annotated[int, typer.Option(min=1)] = 1000,
    informative: Annotated[int, typer.Option(min=1)] = 30,
    dtype: str = "float32",
    seed: int = 0,
    overwrite: bool = False,
    json: Json = False,
) -> None:
    """Write a random regression problem of any size into a store."""
    from dsel.data.generate import generate_regression

    generate_regression(
        store, samples=samples, features=features, informative=min(informative, features), dtype=dtype, seed=seed,
        overwrite=overwrite,
    )  # fmt: skip
    info(store, json)


def _position(column: str | None) -> str | int | None:
    return int(column) if column is not None and column.lstrip("-").isdigit() else column
