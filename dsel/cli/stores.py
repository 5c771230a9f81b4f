"""Commands that make, extend, describe, tidy or decompose a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import dsel
from dsel._lib.text import counted, noun, printable
from dsel.cli.application import Json, Store, Weight, app, examples, print_answer, terminal_width, with_flags
from dsel.config.ingest_request import IngestRequest, SourceOptions

if TYPE_CHECKING:
    from dsel.data.append.append import AppendReport
    from dsel.data.ingest_report import IngestReport


@app.command(epilog=examples("dsel info data.zarr", "dsel info s3://bucket/data.zarr --json"))
def info(store: Store, json: Json = False) -> None:
    """Print what a store contains."""
    from dsel.data.info import describe, render

    description = describe(store)
    print_answer(json, description.as_dict(), lambda: render(description, terminal_width()))


@app.command(epilog=examples("dsel compact data.zarr", "dsel compact data.zarr --segments 12"))
def compact(
    store: Store,
    segments: Annotated[int, typer.Option(min=1, help="Segments that are left at most.")] = 32,
    json: Json = False,
) -> None:
    """Merge the small segments of a store that was appended to often. No rows are moved.

    The windows of `rows` stay as they are: a merged segment records its appends.
    """
    from dsel.data.append.append import compact_store

    left = compact_store(store, segments)
    values = [{"start": segment.start, "stop": segment.stop, "time": segment.time} for segment in left]
    print_answer(json, values, lambda: f"{store} has {counted(len(left), 'segment')}.")


@app.command(
    epilog=examples(
        "dsel sums data.zarr --out part.sums",
        "dsel sums data.zarr --out part.sums --target yield",
        "dsel sums data.zarr --out part.sums --epsilon 1 --delta 1e-6 --bound 5 --bound yield=200",
    )
)
def sums(
    store: Store,
    out: Annotated[str, typer.Option(help="The file to write: a path, or an s3://, gs:// or az:// URL.")],
    target: Annotated[list[str] | None, typer.Option(help="A target of the store; repeatable. By default all.")] = None,
    weight: Weight = None,
    epsilon: Annotated[float | None, typer.Option(help="Add noise that protects each row: the epsilon.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta of the noise.")] = None,
    bound: Annotated[
        list[str] | None,
        typer.Option(help="The largest absolute value in all columns, or LABEL=NUMBER for one; repeatable. For noise."),
    ] = None,
    row_norm: Annotated[
        float | None, typer.Option(help="Scale rows down to this norm, in units of their bounds. For noise.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: Json = False,
) -> None:
    """Write the sums of the rows of a store, from which dsel select works without the rows."""
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "bounds": _bounds(bound), "row_norm": row_norm}
    noise = {name: value for name, value in asked.items() if value is not None}
    found = dsel.sums(store, targets=target or None, sample_weight=weight, noise=noise or None)
    found.save(out, overwrite=overwrite)
    values = {"out": out, "rows": found.m, "columns": found.n, "targets": found.targets.tolist(), "parts": found.parts}
    columns, targets = f"{found.n:,} {noun(found.n, 'column')}", counted(found.n_targets, "target")
    text = f"{out}: the sums of {found.m:,} rows, {columns} and {targets}. It holds no row."
    if found.noise is not None:
        text += f" All sums have noise: epsilon {found.noise.epsilon:g}, delta {found.noise.delta:g}."
    print_answer(json, values, lambda: text)


def _bounds(words: list[str] | None) -> dict[str, str] | None:
    """Return bounds by label; "*" is all other columns."""
    pairs = [word.rpartition("=") for word in words or ()]
    return {label or "*": number for label, _, number in pairs} or None


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


Progress = Callable[[int, int], None]
#: How the eigendecomposition is computed, and how columns are centered and scaled before.
How = Literal["auto", "gram", "row-gram", "randomized"]
Scaling = Literal["standardize", "center", "unit", "none"]


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
    from dsel.engine.this_machine import worker_memory

    options |= {"worker_memory": worker_memory(memory=memory)}
    with show_progress() as (scanned, progress):
        report = dsel.ingest(source, store, **options, progress=progress, scanned=scanned)
    print_report(store, report, json)


def print_report(store: str, report: IngestReport | AppendReport, json: bool) -> None:
    """Print what an ingest or an append did, as text or as JSON."""
    first, *rest = report.lines()
    lines = [printable(line) for line in (f"{store}: {first}", *(f"  {line}" for line in rest))]
    print_answer(json, {"store": store, **report.to_dict()}, lambda: "\n".join(lines))


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
    from dsel.engine.this_machine import worker_memory

    options |= {"worker_memory": worker_memory(memory=memory), "time": time, "again": again}
    with show_progress() as (scanned, progress):
        report = dsel.append(source, store, **options, progress=progress, scanned=scanned)
    print_report(store, report, json)


@app.command(epilog=examples("dsel eigh data.zarr --rank 30", "dsel eigh data.zarr --accuracy 0.95 --out eigen.zarr"))
def eigh(
    store: Store,
    rank: Annotated[int | None, typer.Option(help="Eigenvalues at most. By default all of them.")] = None,
    accuracy: Annotated[float | None, typer.Option(help="Share of ||X||^2 to capture, between 0 and 1.")] = None,
    out: Annotated[Path | None, typer.Option(help="Zarr group for values and components.")] = None,
    method: Annotated[How, typer.Option(help="By default what costs least and fits in memory.")] = "auto",
    oversampling: Annotated[int, typer.Option(help="Random vectors beyond the rank.")] = 10,
    power_iterations: Annotated[int, typer.Option(help="Power iterations, of two passes each.")] = 2,
    preprocess: Annotated[Scaling, typer.Option(help="How columns are centered and scaled.")] = "standardize",
    missing: Annotated[bool, typer.Option("--fill-missing", help="Replace missing values by means.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random vectors.")] = 0,
    checkpoint_seconds: Annotated[float, typer.Option(min=0.0, help="Time between checkpoints of a pass.")] = 60.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the Zarr group.")] = False,
    json: Json = False,
) -> None:
    """Decompose X'X out of core: the leading eigenvalues, what they capture, and what they miss at most.

    With --out, the same command continues after an interruption.
    """
    from dsel.jobs.workers import eigh_run
    from dsel.planning.decompose import eigh_request

    request = eigh_request(
        rank, accuracy, oversampling, power_iterations, preprocess=preprocess,
        missing="mean" if missing else "refuse", seed=seed,
    )  # fmt: skip
    found = eigh_run(
        store, request, out, method=method, overwrite=overwrite, checkpoint_seconds=checkpoint_seconds,
        on_plan=lambda line: typer.echo(f"plan: {line}", err=True),
    )  # fmt: skip
    values = {**found.figures, "values": found.values.tolist(), "out": None if out is None else str(out)}
    bound = f"spectral norm of what is missed: at most {found.error_bound:.6g}"
    print_answer(json, values, lambda: f"{found}\n{bound}")
