"""The command line: it parses arguments, calls the library, and prints the answer."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dsel.errors import DselError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip


class LogFormat(StrEnum):
    """The format of log lines."""

    text = "text"
    json = "json"


def _remember(log_format: LogFormat) -> LogFormat:
    _chosen["log_format"] = log_format
    return log_format


#: Options that `main` needs to print an error in the requested format.
_chosen = {"log_format": LogFormat.text}

Out = Annotated[str | None, typer.Option(help="Folder for the result: a path, or an s3://, gs:// or az:// URL.")]
Cluster = Annotated[Path | None, typer.Option(help="A file with a cluster section, used instead of the job file's.")]
Folder = Annotated[str, typer.Argument(help="Result folder: a path, or an s3://, gs:// or az:// URL.")]
Store = Annotated[str, typer.Argument(help="A path, or an s3://, gs:// or az:// URL.")]
Log = Annotated[LogFormat, typer.Option("--log-format", help="Log lines as text or JSON.", callback=_remember)]


def _version(asked: bool) -> None:
    if asked:
        from dsel._lib.versions import versions

        typer.echo("\n".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit


@app.callback()
def about(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions of dsel and its libraries.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Select features from data larger than memory, and prove how good the selection is."""


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="Job file (YAML).")],
    out: Out = None,
    cluster: Cluster = None,
    log_format: Log = LogFormat.text,
) -> None:
    """Run a job. An interrupted job continues; a finished one is not run again."""
    from dsel.config.job import read_job
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.runner import run_job
    from dsel.selection.render import render
    from dsel.storage.paths import as_path

    typer.echo(
        render(
            run_job(
                read_job(job, None if out is None else as_path(out), cluster), Reporter.for_terminal(log_format.value)
            )
        )
    )


@app.command()
def plan(
    job: Annotated[Path, typer.Argument(help="Job file (YAML).")],
    out: Out = None,
    cluster: Cluster = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print what a job will need: representation, passes, bytes, tasks, memory, disk and time. Nothing runs."""
    from json import dumps

    from dsel.config.job import read_job
    from dsel.jobs.runner import plan_job
    from dsel.planning.calibration import calibrated
    from dsel.storage.paths import as_path

    made, dataset = plan_job(read_job(job, None if out is None else as_path(out), cluster))
    made = calibrated(made, dataset)
    typer.echo(dumps(made.as_dict(), indent=1) if json else str(made))
    made.require()


@app.command()
def resume(
    folder: Folder,
    log_format: Log = LogFormat.text,
) -> None:
    """Continue an interrupted job."""
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.runner import resume_job
    from dsel.selection.render import render
    from dsel.storage.paths import as_path

    typer.echo(render(resume_job(as_path(folder), Reporter.for_terminal(log_format.value))))


@app.command()
def certify(
    folder: Folder,
    time: Annotated[str, typer.Option(help="Time for the proof: 90s, 10m, 2h.")] = "1m",
    nodes: Annotated[int | None, typer.Option(min=1, help="Stop after this many nodes.")] = None,
    all_sizes: Annotated[bool, typer.Option(help="Certify every size up to k, not only the chosen size.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that work on the proof.")] = 1,
    log_format: Log = LogFormat.text,
) -> None:
    """Prove how far a selection can be from the best one. Repeat the command to continue the proof."""
    from dsel.config.types import parse_duration
    from dsel.jobs.certify import ProofBudget
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.runner import certify_run
    from dsel.selection.render import render
    from dsel.storage.paths import as_path

    budget = ProofBudget(parse_duration(time), nodes, "all" if all_sizes else "chosen")
    typer.echo(render(certify_run(as_path(folder), budget, workers, Reporter.for_terminal(log_format.value))))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the store and the result of the demo.")] = Path("dsel-demo"),
) -> None:
    """Ingest a small example data set, select from it, and compare methods."""
    from dsel.jobs.demo import run_demo

    typer.echo(run_demo(out))


@app.command()
def show(folder: Folder) -> None:
    """Print a saved selection."""
    from dsel.selection.render import render
    from dsel.selection.result import open_selection

    typer.echo(render(open_selection(folder)))


@app.command()
def info(store: Store) -> None:
    """Print what a store contains."""
    from dsel.data.info import describe, render

    typer.echo(render(describe(store)))


@app.command()
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
) -> None:
    """Write a file into a store, block by block. Repeat the command to continue after an interruption."""
    from dask.utils import format_bytes

    from dsel.data.ingest import ingest as write
    from dsel.engine.clusters.local import worker_memory

    report = write(
        source, store, y=y, target=target or (), index=_position(index), weight=weight, dtype=dtype,
        compression=compression, worker_memory=worker_memory(memory=memory), overwrite=overwrite,
    )  # fmt: skip
    m, n = report.shape
    typer.echo(
        f"{store}: {m:,} samples x {n:,} features and {report.targets} targets, {report.dtype}, chunks "
        f"{report.chunks[0]} x {report.chunks[1]}, {format_bytes(report.bytes_written)} in {report.seconds:.1f} s"
    )


@app.command()
def generate(
    store: Store,
    samples: Annotated[int, typer.Option(min=1)] = 100_000,
    features: Annotated[int, typer.Option(min=1)] = 1000,
    informative: Annotated[int, typer.Option(min=1)] = 30,
    dtype: str = "float32",
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Write a random regression problem of any size into a store."""
    from dsel.data.generate import generate_regression

    generate_regression(
        store, samples=samples, features=features, informative=min(informative, features), dtype=dtype, seed=seed,
        overwrite=overwrite,
    )  # fmt: skip
    info(store)


def _position(column: str | None) -> str | int | None:
    return int(column) if column is not None and column.lstrip("-").isdigit() else column


def _print_unexpected(error: Exception) -> None:
    """Print an unexpected error with its traceback: a defect of dsel or of a dependency."""
    import traceback

    lines = "".join(traceback.format_exception(error))
    message = f"unexpected error: {type(error).__name__}: {error}"
    if _chosen["log_format"] is LogFormat.json:
        fields = {"level": "ERROR", "message": message, "kind": DselError.kind, "exit_code": DselError.exit_code}
        typer.echo(json.dumps({**fields, "traceback": lines}), err=True)
    else:
        typer.echo(f"{lines}dsel: {message}", err=True)


def main() -> NoReturn:
    """Run the command line. An error of dsel becomes one line on standard error and its exit code."""
    try:
        app(standalone_mode=True)
    except DselError as error:
        fields = {"level": "ERROR", "message": str(error), "kind": error.kind, "exit_code": error.exit_code}
        as_json = _chosen["log_format"] is LogFormat.json
        typer.echo(json.dumps(fields) if as_json else f"dsel: {error}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        _print_unexpected(error)
        sys.exit(DselError.exit_code)
    except KeyboardInterrupt:
        typer.echo("dsel: interrupted", err=True)
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
