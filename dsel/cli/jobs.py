"""Commands that run a job, show its runs, or select on subsamples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsel.cli.application import (
    ChooseK,
    Cluster,
    Folder,
    Job,
    Json,
    K,
    Log,
    LogFormat,
    MaxK,
    Out,
    Store,
    Trust,
    app,
    as_size,
    changes,
    examples,
    print_json,
    print_selection,
    terminal_width,
)

if TYPE_CHECKING:
    from dsel.config.job import JobFile


from enum import StrEnum


@app.command(epilog=examples("dsel init data.zarr", "dsel init data.zarr --out night.yaml --k 20"))
def init(
    store: Store,
    out: Annotated[Path, typer.Option(help="The job file to write.")] = Path("job.yaml"),
    k: Annotated[str | None, typer.Option(help="How many columns to choose, or auto; by default 10, or fewer.")] = None,
    method: Annotated[str, typer.Option(help="The method.")] = "poss",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: Json = False,
) -> None:
    """Write a commented job file for a store. It runs as it is; its comments explain what can be changed."""
    from dsel.jobs.job_template import write_job_file

    size = write_job_file(store, out, k=as_size(k), method=method, overwrite=overwrite)
    if json:
        print_json({"job": str(out), "store": store, "k": size, "method": method})
    else:
        typer.echo(f"{out} chooses {size} columns of {store}. Read it, then: dsel run {out}")


@app.command(epilog=examples("dsel run job.yaml", "dsel run job.yaml --out s3://bucket/result --cluster cluster.yaml"))
def run(
    job: Job,
    out: Out = None,
    cluster: Cluster = None,
    k: K = None,
    max_k: MaxK = None,
    choose_k: ChooseK = None,
    fail_on_change: Annotated[
        bool,
        typer.Option("--fail-on-change", help="End with exit code 80 if the selection differs from the last one."),
    ] = False,
    require_progress: Annotated[
        bool,
        typer.Option("--require-progress", help="End with exit code 76, not 75, if a stopped run has saved nothing."),
    ] = False,
    log_format: Log = LogFormat.text,
    json: Json = False,
) -> None:
    """Run a job. An interrupted job continues; a finished one is not run again.

    With out: {folder: runs} in the job file, each run on changed data gets its own folder.
    """
    from dsel.config.job import RunSeries, read_job
    from dsel.errors import Interrupted, NoProgressError
    from dsel.jobs.finished import finished_job
    from dsel.jobs.locations import out_folder
    from dsel.jobs.reporting import Reporter
    from dsel.storage.latest import resolve_run
    from dsel.storage.paths import as_path

    asked = read_job(job, None if out is None else as_path(out), cluster, changes(k, max_k, choose_k))
    with require_no_change(asked, fail_on_change):
        reporter = Reporter.for_terminal(log_format.value)
        selection = finished_job(asked, reporter)
        if selection is None:
            from dsel.jobs.runner import run_job  # it imports all that searches need

            try:
                selection = run_job(asked, reporter)
            except Interrupted as error:
                if not require_progress or reporter.has_saved:
                    raise
                raise NoProgressError(
                    f"{error.what} This run has saved nothing.", "Give the job more time, or save more often."
                ) from error
        folder = resolve_run(out_folder(asked)) if isinstance(asked.out, RunSeries) else out_folder(asked)
        print_selection(selection, json, footer=f"Saved in {folder} (details in run.log)")


@app.command(epilog=examples("dsel plan job.yaml", "dsel plan job.yaml --json"))
def plan(
    job: Job,
    out: Out = None,
    cluster: Cluster = None,
    k: K = None,
    max_k: MaxK = None,
    choose_k: ChooseK = None,
    json: Json = False,
) -> None:
    """Print what a job will need: representation, passes, bytes, tasks, memory, disk and time. Nothing runs."""
    from dsel.config.job import read_job
    from dsel.jobs.runner import plan_job
    from dsel.planning.calibration import calibrated
    from dsel.storage.paths import as_path

    made, dataset = plan_job(read_job(job, None if out is None else as_path(out), cluster, changes(k, max_k, choose_k)))
    made = calibrated(made, dataset)
    if json:
        print_json(made.as_dict())
    else:
        typer.echo(str(made))
    made.require()


@app.command(epilog=examples("dsel resume result"))
def resume(
    folder: Folder,
    trust: Trust = False,
    log_format: Log = LogFormat.text,
    json: Json = False,
) -> None:
    """Continue an interrupted job."""
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.runner import resume_job
    from dsel.storage.paths import as_path

    print_selection(resume_job(as_path(folder), Reporter.for_terminal(log_format.value), trust=trust), json)


@app.command(epilog=examples("dsel certify result --time 10m", "dsel certify result --time 1h --all-sizes --workers 4"))
def certify(
    folder: Folder,
    time: Annotated[str, typer.Option(help="Time for the proof: 90s, 10m, 2h.")] = "1m",
    nodes: Annotated[int | None, typer.Option(min=1, help="Stop after this many nodes.")] = None,
    all_sizes: Annotated[
        bool, typer.Option("--all-sizes", help="Certify every size up to k, not only the chosen size.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that work on the proof.")] = 1,
    log: Annotated[bool, typer.Option("--log", help="Write the proof, so that dsel verify can check it.")] = False,
    coefficients: Annotated[
        float | None,
        typer.Option(min=1, help="Cover coefficients with up to this many times the sum of squares only."),
    ] = None,
    trust: Trust = False,
    log_format: Log = LogFormat.text,
    json: Json = False,
) -> None:
    """Prove how far a selection can be from the best one. Repeat the command to continue the proof."""
    from dsel.config.types import parse_duration
    from dsel.jobs.certify import ProofBudget, Sizes
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.runner import certify_run
    from dsel.storage.paths import as_path

    sizes: Sizes = "all" if all_sizes else "chosen"
    budget = ProofBudget(parse_duration(time), nodes, sizes, log=log, coefficients=coefficients)
    reporter = Reporter.for_terminal(log_format.value)
    print_selection(certify_run(as_path(folder), budget, workers, reporter, trust=trust), json)


@app.command(epilog=examples("dsel status result", "dsel status s3://bucket/result --json"))
def status(folder: Folder, json: Json = False) -> None:
    """Print whether a job runs, on which host, how far it is, and what it said last."""
    from dsel.jobs.status import read_status
    from dsel.storage.paths import as_path

    found = read_status(as_path(folder))
    if json:
        print_json(found.as_dict())
    else:
        typer.echo(found.render())


@app.command(epilog=examples("dsel demo", "dsel demo --out /tmp/dsel-demo"))
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the store and the result of the demo.")] = Path("dsel-demo"),
    json: Json = False,
) -> None:
    """Ingest a small example data set, select from it, and compare methods."""
    from dsel.jobs.demo import render_demo, run_demo

    found = run_demo(out)
    if json:
        print_json({name: selection.as_dict() for name, selection in found.items()})
    else:
        typer.echo(render_demo(found, out, terminal_width()))


@app.command(epilog=examples("dsel history runs", "dsel history s3://bucket/runs --json"))
def history(
    folder: Annotated[str, typer.Argument(help="Folder of runs: a path, or an s3://, gs:// or az:// URL.")],
    json: Json = False,
) -> None:
    """Print a table of runs: rows, k, error, bound, duration, bytes read, and what changed from run to run."""
    from dsel.selection.changes.runs import read_history, render_history
    from dsel.storage.paths import as_path

    found = read_history(as_path(folder))
    if json:
        print_json([one.as_dict() for one in found])
    else:
        typer.echo(render_history(found, terminal_width()), nl=False)


@contextmanager
def require_no_change(job: JobFile, asked: bool) -> Iterator[None]:
    """Raise SelectionChanged after the block if a run in it has changed the selection, and that was asked for."""
    from dsel.config.job import RunSeries
    from dsel.errors import OptionError, SelectionChanged
    from dsel.selection.changes.runs import RunSummary
    from dsel.storage.latest import latest_name

    if not asked:
        yield
        return
    if not isinstance(job.out, RunSeries):
        raise OptionError(
            "--fail-on-change needs a folder of runs.", "Write out: {folder: runs, keep: 30} in the job file."
        )
    before = latest_name(job.out.folder)
    yield
    now = latest_name(job.out.folder)
    summary = None if now is None or now == before else RunSummary.open(job.out.folder / now)
    if summary is not None and summary.changed:
        entered, left = ", ".join(summary.entered) or "none", ", ".join(summary.left) or "none"
        raise SelectionChanged(
            f"The selection changed since run {summary.previous}: entered {entered}; left {left}.",
            f"It is saved in {job.out.folder / summary.run}.",
        )


class Resample(StrEnum):
    """How subsamples are drawn."""

    pairs = "pairs"
    halves = "halves"
    bootstrap = "bootstrap"


class Split(StrEnum):
    """How the rows are divided into parts."""

    random = "random"
    blocks = "blocks"


@app.command(
    epilog=examples("dsel stability data.zarr --k 10", "dsel stability data.zarr --k 10 --max-errors 1 --out stable")
)
def stability(
    store: Store,
    k: Annotated[int, typer.Option("--k", min=1, help="Number of columns to choose at most on each subsample.")],
    method: Annotated[str, typer.Option(help="Method: forward, poss, omp, ...")] = "forward",
    resample: Annotated[Resample, typer.Option(help="Halves in pairs, halves, or bootstrap samples.")] = Resample.pairs,
    samples: Annotated[int, typer.Option(min=2, help="Number of subsamples.")] = 100,
    parts: Annotated[int, typer.Option(min=4, help="Parts of the rows that subsamples are made of.")] = 20,
    split: Annotated[Split, typer.Option(help="Parts at random, or blocks of consecutive rows.")] = Split.random,
    row_groups: Annotated[str | None, typer.Option(help="Variable with the group of each row.")] = None,
    groups: Annotated[str | None, typer.Option(help="Coordinate with the groups of columns, such as source.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="A target of the store; repeatable. By default all.")] = None,
    lam: Annotated[float, typer.Option(min=0.0, help="Ridge penalty.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    threshold: Annotated[float | None, typer.Option(help="Print the columns chosen on this share or more.")] = None,
    max_errors: Annotated[
        float | None, typer.Option(help="Print the columns of which this many are expected by mistake at most.")
    ] = None,
    out: Out = None,
    cluster: Cluster = None,
    log_format: Log = LogFormat.text,
    json: Json = False,
) -> None:
    """Print how often each column is chosen on subsamples of the rows. All subsamples take one pass."""
    from dsel.config.job import read_cluster
    from dsel.config.request import SelectionRequest
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.workers import stability_run
    from dsel.storage.paths import as_path

    request = SelectionRequest.of(k=k, method=method, lam=lam, seed=seed, groups=groups, targets=target or None)
    found = stability_run(
        as_path(store), request, out=None if out is None else as_path(out),
        cluster=None if cluster is None else read_cluster(cluster), reporter=Reporter.for_terminal(log_format.value),
        resample=resample.value, samples=samples, parts=parts, split=split.value, row_groups=row_groups,
    )  # fmt: skip
    asked = threshold is not None or max_errors is not None
    stable = found.stable(threshold, max_errors=max_errors) if asked else None
    if json:
        print_json(found.as_dict() | ({} if stable is None else {"stable": stable}))
        return
    typer.echo(str(found))
    if stable is not None:
        least = found.threshold(max_errors) if max_errors is not None else threshold
        typer.echo(f"Stable, on {least:.1%} or more: {', '.join(stable) or 'none'}")
