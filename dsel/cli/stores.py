"""Commands that make, describe or tidy a store: generate, info and compact."""

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


@app.command(epilog=examples("dsel compact data.zarr", "dsel compact data.zarr --segments 12"))
def compact(
    store: Store,
    segments: Annotated[int, typer.Option(min=1, help="Segments that are left at most.")] = 32,
    json: Json = False,
) -> None:
    """Merge the small segments of a store that was appended to often. No rows are moved."""
    from dsel.data.growth.compact import compact_store

    left = compact_store(store, segments)
    if json:
        print_json([{"start": one.start, "stop": one.stop, "time": one.time} for one in left])
    else:
        typer.echo(f"{store} has {len(left)} segments.")


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
