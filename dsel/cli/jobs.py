"""Commands that run a job: run, plan, resume, certify and demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsel.cli.application import LogFormat, app
from dsel.cli.options import ChooseK, Cluster, Folder, K, Log, MaxK, Out, changes


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="Job file (YAML).")],
    out: Out = None,
    cluster: Cluster = None,
    k: K = None,
    max_k: MaxK = None,
    choose_k: ChooseK = None,
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
                read_job(job, None if out is None else as_path(out), cluster, changes(k, max_k, choose_k)),
                Reporter.for_terminal(log_format.value),
            )
        )
    )


@app.command()
def plan(
    job: Annotated[Path, typer.Argument(help="Job file (YAML).")],
    out: Out = None,
    cluster: Cluster = None,
    k: K = None,
    max_k: MaxK = None,
    choose_k: ChooseK = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print what a job will need: representation, passes, bytes, tasks, memory, disk and time. Nothing runs."""
    from json import dumps

    from dsel.config.job import read_job
    from dsel.jobs.runner import plan_job
    from dsel.planning.calibration import calibrated
    from dsel.storage.paths import as_path

    made, dataset = plan_job(read_job(job, None if out is None else as_path(out), cluster, changes(k, max_k, choose_k)))
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
    log: Annotated[bool, typer.Option("--log", help="Write the proof, so that dsel verify can check it.")] = False,
    log_format: Log = LogFormat.text,
) -> None:
    """Prove how far a selection can be from the best one. Repeat the command to continue the proof."""
    from dsel.config.types import parse_duration
    from dsel.jobs.certify import ProofBudget
    from dsel.jobs.reporting import Reporter
    from dsel.jobs.runner import certify_run
    from dsel.selection.render import render
    from dsel.storage.paths import as_path

    budget = ProofBudget(parse_duration(time), nodes, "all" if all_sizes else "chosen", log=log)
    typer.echo(render(certify_run(as_path(folder), budget, workers, Reporter.for_terminal(log_format.value))))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the store and the result of the demo.")] = Path("dsel-demo"),
) -> None:
    """Ingest a small example data set, select from it, and compare methods."""
    from dsel.jobs.demo import run_demo

    typer.echo(run_demo(out))
