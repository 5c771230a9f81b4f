"""The command that decomposes a store: eigh."""

from __future__ import annotations

from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json, Store
from dsel.cli.output import print_json


class How(StrEnum):
    """How the eigendecomposition is computed."""

    auto = "auto"
    gram = "gram"
    row_gram = "row-gram"
    randomized = "randomized"


class Scaling(Enum):
    """How columns are centered and scaled."""

    standardize = "standardize"
    center = "center"
    unit = "unit"
    none = "none"


@app.command(epilog=examples("dsel eigh data.zarr --rank 30", "dsel eigh data.zarr --accuracy 0.95 --out eigen.zarr"))
def eigh(
    store: Store,
    rank: Annotated[int | None, typer.Option(help="Eigenvalues at most. By default all of them.")] = None,
    accuracy: Annotated[float | None, typer.Option(help="Share of ||X||^2 to capture, between 0 and 1.")] = None,
    out: Annotated[Path | None, typer.Option(help="Zarr group for values and components.")] = None,
    method: Annotated[How, typer.Option(help="By default what costs least and fits in memory.")] = How.auto,
    oversampling: Annotated[int, typer.Option(help="Random vectors beyond the rank.")] = 10,
    power_iterations: Annotated[int, typer.Option(help="Power iterations, of two passes each.")] = 2,
    preprocess: Annotated[Scaling, typer.Option(help="How columns are centered and scaled.")] = Scaling.standardize,
    missing: Annotated[bool, typer.Option("--fill-missing", help="Replace missing values by means.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random vectors.")] = 0,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Time between checkpoints of a pass.")] = 60.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the Zarr group.")] = False,
    json: Json = False,
) -> None:
    """Decompose X'X out of core: the leading eigenvalues, what they capture, and what they miss at most.

    With --out, the same command continues after an interruption.
    """
    from dsel.config.sketch import sketch_rule
    from dsel.jobs.eigh import eigh_run

    rule = None
    if rank is not None or accuracy is not None:
        rule = sketch_rule(rank=rank, accuracy=accuracy, oversampling=oversampling, power_iterations=power_iterations)
    found = eigh_run(
        store, rule, out, method=method.value, preprocess=preprocess.value, missing="mean" if missing else "refuse",
        seed=seed, overwrite=overwrite, checkpoint_seconds=checkpoint_seconds,
        on_plan=lambda line: typer.echo(f"plan: {line}", err=True),
    )  # fmt: skip
    if json:
        names = ("rank", "captured", "relative_error", "error_bound", "error_chance", "total", "method", "passes")
        figures = {name: getattr(found, name) for name in names}
        print_json({**figures, "values": found.values.tolist(), "out": None if out is None else str(out)})
        return
    typer.echo(str(found))
    typer.echo(f"spectral norm of what is missed: at most {found.error_bound:.6g}")
