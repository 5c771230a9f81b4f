"""Commands that run a job, show its runs, or select on subsamples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dsel.cli.application import (
    Cluster,
    Folder,
    Json,
    Log,
    Out,
    Store,
    app,
    examples,
    folder_of,
    path_of,
    print_answer,
    print_selection,
    reporter_of,
    terminal_width,
)

if TYPE_CHECKING:
    from dsel.config.job import JobFile

Job = Annotated[Path, typer.Argument(help="Job file (YAML).")]
K = Annotated[str | None, typer.Option("--k", help="Number of columns, or auto; used instead of the job file's.")]
MaxK = Annotated[int | None, typer.Option(min=1, help="Upper limit of --k auto.")]
ChooseK = Annotated[
    str | None,
    typer.Option(
        help="How --k auto chooses, as in a job file: folds, path, aic, aicc, bic, ebic, cp or adjusted-r2; for "
        'classes also auc or log-loss; or "{held_out: 0.2}".'
    ),
]
LossOption = Annotated[
    str | None,
    typer.Option("--loss", help='What is minimized, as in a job file: poisson, or "{quantile: {level: 0.9}}".'),
]
Lam = Annotated[float | None, typer.Option("--lam", min=0, help="The ridge penalty; used instead of the job file's.")]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="The method; used instead of the job file's. The options of the file must be those of this method.",
    ),
]
Events = Annotated[
    list[str] | None,
    typer.Option(
        help="Also tell what happens: jsonl (events.jsonl in the result's folder), otel (an OpenTelemetry trace), "
        "mlflow (an MLflow run), or an observer of a package. May be repeated."
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run code that the job names, also if the folder belongs to another user.")
]
Parts = Annotated[
    list[str] | None,
    typer.Argument(
        help="For a result from sums: the files that dsel sums wrote, in their order, if they have moved.",
        metavar="[PARTS]...", show_default=False,
    ),
]  # fmt: skip
ProofLog = Annotated[
    bool,
    typer.Option(
        "--log", help="Write the proof, so that dsel verify can check it. It is for the squared error, not for a loss."
    ),
]


def as_size(k: str | None) -> int | str | None:
    """Return a number of columns, or the word that was given."""
    return int(k) if k is not None and k.lstrip("-").isdigit() else k


def job_of(
    job: Path,
    out: str | None,
    cluster: Path | None,
    k: str | None,
    loss: str | None,
    choose_k: str | None,
    **changes: Any,
) -> JobFile:
    """Return a job with the values that options replace. changes: keys of the job file; None leaves a key as it is."""
    from dsel.config.job import read_job
    from dsel.config.yaml_files import parse_yaml

    changes |= {"k": as_size(k), "loss": loss and parse_yaml(loss, "--loss")}
    changes["choose_k"] = choose_k and parse_yaml(choose_k, "--choose-k")
    return read_job(job, None if out is None else path_of(out), cluster, changes)


#: How subsamples are drawn, and how the rows are divided into parts.
Resample = Literal["pairs", "halves", "bootstrap"]
Split = Literal["random", "blocks"]


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
    from dsel._lib.text import counted
    from dsel.jobs.job_template import write_job_file

    size, problem = write_job_file(store, out, k=as_size(k), method=method, overwrite=overwrite)
    values = {"job": str(out), "store": store, "k": size, "method": method, "problem": problem}
    note = f"\nnote: {problem}" if problem else ""
    chosen = counted(size, "column") if isinstance(size, int) else "columns"
    print_answer(json, values, lambda: f"{out} chooses {chosen} of {store}. Read it, then: dsel run {out}{note}")


@app.command(epilog=examples("dsel run job.yaml", "dsel run job.yaml --out s3://bucket/result --cluster cluster.yaml"))
def run(
    job: Job,
    out: Out = None,
    cluster: Cluster = None,
    k: K = None,
    max_k: MaxK = None,
    choose_k: ChooseK = None,
    loss: LossOption = None,
    lam: Lam = None,
    method: MethodOption = None,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="End with exit code 80 if the selection differs from the last one.")
    ] = False,
    require_progress: Annotated[
        bool,
        typer.Option("--require-progress", help="End with exit code 76, not 75, if a stopped run has saved nothing."),
    ] = False,
    events: Events = None,
    log_format: Log = "text",
    json: Json = False,
) -> None:
    """Run a job. An interrupted job continues; a finished one is not run again.

    With out: {folder: runs} in the job file, each run on changed data gets its own folder.
    """
    from dsel.config.job import RunSeries
    from dsel.errors import Interrupted, NoProgressError
    from dsel.jobs.locations import finished_job, out_folder
    from dsel.storage.paths import resolve_run

    asked = job_of(job, out, cluster, k, loss, choose_k, max_k=max_k, lam=lam, method=method)
    with require_no_change(asked, fail_on_change):
        reporter = reporter_of(log_format, events)
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


@app.command(
    epilog=examples(
        "dsel select --sums a.sums b.sums --k 8", "dsel select --sums a.sums b.sums --k 8 --out answer --certify 1m"
    )
)
def select(
    parts: Annotated[list[str], typer.Argument(help="Files that dsel sums wrote: paths or URLs.", metavar="PARTS")],
    k: Annotated[str, typer.Option("--k", help="Number of columns, or auto.")],
    of_sums: Annotated[bool, typer.Option("--sums", help="Select from sums of rows.")] = False,
    choose_k: Annotated[str | None, typer.Option(help="How --k auto chooses: aic, aicc, bic, ebic, cp.")] = None,
    method: Annotated[str, typer.Option(help="The method.")] = "poss",
    lam: Annotated[float, typer.Option(min=0.0, help="Ridge penalty.")] = 0.0,
    preprocess: Annotated[
        Literal["standardize", "center", "unit", "none"], typer.Option(help="How columns are centered and scaled.")
    ] = "standardize",
    categories: Annotated[
        Literal["groups", "columns", "refuse"], typer.Option(help="How the indicator columns of categories are chosen.")
    ] = "groups",
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    rows: Annotated[
        int | None, typer.Option(min=1, help="The number of rows of all parts: another one is an error.")
    ] = None,
    certify: Annotated[str | None, typer.Option(help="Prove the answer, for this time at most: 90s, 10m.")] = None,
    out: Out = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the result if it exists.")] = False,
    json: Json = False,
) -> None:
    """Select from the sums of rows that no one may pool. The parts count in their order."""
    import dsel
    from dsel.config.types import parse_duration
    from dsel.errors import OptionError
    from dsel.selection.saved import require_new

    if not of_sums:
        raise OptionError(
            "dsel select works on sums of rows.", "Write: dsel select --sums FILES. For a store: dsel init STORE."
        )
    if out is not None and not overwrite:
        require_new(path_of(out))  # before the search
    size: Any = as_size(k)
    selection = dsel.from_sums(
        *parts, k=size, m=rows, choose_k=choose_k, method=method, lam=lam, preprocess=preprocess, seed=seed,
        categories=categories, proof_seconds=None if certify is None else parse_duration(certify),
    )  # fmt: skip
    if out is not None:
        selection.save(out, overwrite=overwrite)
    print_selection(selection, json, footer="" if out is None else f"Saved in {out}")


@app.command(epilog=examples("dsel plan job.yaml", "dsel plan job.yaml --json"))
def plan(
    job: Job,
    out: Out = None,
    cluster: Cluster = None,
    k: K = None,
    max_k: MaxK = None,
    choose_k: ChooseK = None,
    loss: LossOption = None,
    lam: Lam = None,
    method: MethodOption = None,
    json: Json = False,
) -> None:
    """Print what a job will need: representation, passes, bytes, tasks, memory, disk and time. Nothing runs."""
    from dsel.jobs.runner import plan_job
    from dsel.planning.calibration import calibrated

    made = calibrated(*plan_job(job_of(job, out, cluster, k, loss, choose_k, max_k=max_k, lam=lam, method=method)))
    print_answer(json, made.as_dict(), lambda: made)
    made.require()


@app.command(epilog=examples("dsel resume result"))
def resume(
    folder: Folder, trust: Trust = False, events: Events = None, log_format: Log = "text", json: Json = False
) -> None:
    """Continue an interrupted job."""
    from dsel.jobs.runner import resume_job

    print_selection(resume_job(path_of(folder), reporter_of(log_format, events), trust=trust), json)


@app.command(epilog=examples("dsel certify result --time 10m", "dsel certify result --time 1h --all-sizes --workers 4"))
def certify(
    folder: Folder,
    parts: Parts = None,
    time: Annotated[str, typer.Option(help="Time for the proof: 90s, 10m, 2h.")] = "1m",
    nodes: Annotated[int | None, typer.Option(min=1, help="Visit at most this many nodes in all sizes.")] = None,
    all_sizes: Annotated[
        bool, typer.Option("--all-sizes", help="Certify every size up to k, not only the chosen size.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that work on the proof.")] = 1,
    log: ProofLog = False,
    coefficient_limit: Annotated[
        float | None,
        typer.Option(
            "--coefficient-limit",
            "--coefficients",
            min=1,
            help="Cover coefficients with up to this many times the sum of squares only.",
        ),
    ] = None,
    largest_coefficient: Annotated[
        float | None, typer.Option(min=1, help="Cover coefficients of up to this many times the largest one only.")
    ] = None,
    trust: Trust = False,
    events: Events = None,
    log_format: Log = "text",
    json: Json = False,
) -> None:
    """Prove how far a selection can be from the best one. Repeat the command to continue the proof."""
    from dsel.config.types import parse_duration
    from dsel.jobs.certify_folder import certify_run
    from dsel.jobs.proof_store import ProofBudget

    budget = ProofBudget.of(
        seconds=parse_duration(time), nodes=nodes, sizes="all" if all_sizes else "chosen", log=log,
        coefficient_limit=coefficient_limit, largest_coefficient=largest_coefficient,
    )  # fmt: skip
    reporter = reporter_of(log_format, events)
    found = certify_run(path_of(folder), budget, workers, reporter, trust=trust, parts=parts or ())
    print_selection(found, json)


@app.command(epilog=examples("dsel alternatives result", "dsel alternatives result --within 2% --time 10m"))
def alternatives(
    folder: Folder,
    parts: Parts = None,
    within: Annotated[
        str, typer.Option(help="How much less than the best subset a near-best one may explain: 1% or 0.01.")
    ] = "1%",
    nbest: Annotated[
        int | None, typer.Option(min=1, help="List this many best subsets instead, whatever they explain.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Rank subsets of any size by aic, aicc, bic, ebic, cp or adjusted-r2.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many near-best subsets.")] = 1000,
    time: Annotated[str, typer.Option(help="Time for the proof: 90s, 10m, 2h.")] = "1m",
    all_sizes: Annotated[
        bool, typer.Option("--all-sizes", help="For every size up to k, not only the chosen size.")
    ] = False,
    log: ProofLog = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that work on the proof.")] = 1,
    trust: Trust = False,
    events: Events = None,
    log_format: Log = "text",
    json: Json = False,
) -> None:
    """List all subsets that are nearly as good as the best one, with a verdict for each column.

    Repeat the command to continue the proof. The result keeps the list.
    """
    from dsel.config.job import ListLimits
    from dsel.config.types import parse_duration
    from dsel.jobs.certify_folder import certify_run
    from dsel.jobs.proof_store import ProofBudget
    from dsel.jobs.size_proofs import why_no_list
    from dsel.selection.render import render_alternatives

    limits = ListLimits.of(within=within, nbest=nbest, by=by, limit=limit)
    sizes = "all" if all_sizes else "chosen"
    budget = ProofBudget.of(seconds=parse_duration(time), sizes=sizes, log=log, near_best=limits)
    reporter = reporter_of(log_format, events)
    selection = certify_run(path_of(folder), budget, workers, reporter, trust=trust, parts=parts or ())
    if selection.alternatives is None:
        print_answer(json, None, lambda: why_no_list(selection))
        return
    values = selection.alternatives.as_dict()
    print_answer(json, values, lambda: render_alternatives(selection, terminal_width()).rstrip("\n"))


@app.command(epilog=examples("dsel status result", "dsel status job.yaml", "dsel status s3://bucket/result --json"))
def status(folder: Folder, json: Json = False) -> None:
    """Print whether a job runs, on which host, how far it is, and what it said last."""
    from dsel.jobs.status import read_status

    status = read_status(path_of(folder))
    print_answer(json, status.as_dict(), status.render)


@app.command(epilog=examples("dsel demo", "dsel demo --out /tmp/dsel-demo"))
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the store and the result of the demo.")] = Path("dsel-demo"),
    json: Json = False,
) -> None:
    """Ingest a small example data set, select from it, and compare methods."""
    from dsel.jobs.demo import render_demo, run_demo

    selections = run_demo(out)
    values = {name: selection.as_dict() for name, selection in selections.items()}
    print_answer(json, values, lambda: render_demo(selections, out, terminal_width()))


@app.command(epilog=examples("dsel history runs", "dsel history s3://bucket/runs --json"))
def history(
    folder: Annotated[
        str,
        typer.Argument(
            help="Folder of runs: a path, or an s3://, gs:// or az:// URL. A job file stands for its runs.",
            callback=folder_of,
        ),
    ],
    json: Json = False,
) -> None:
    """Print a table of runs: rows, k, error, bound, duration, bytes read, and what changed from run to run."""
    from dsel.selection.changes.runs import read_history, render_history

    runs = read_history(path_of(folder))
    print_answer(json, [run.as_dict() for run in runs], lambda: render_history(runs, terminal_width()).rstrip("\n"))


@contextmanager
def require_no_change(job: JobFile, asked: bool) -> Iterator[None]:
    """Raise SelectionChanged after the block if a run in it has changed the selection, and that was asked for."""
    from dsel.config.job import RunSeries
    from dsel.errors import OptionError, SelectionChanged
    from dsel.selection.changes.runs import RunSummary
    from dsel.storage.paths import latest_name

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


@app.command(
    epilog=examples("dsel stability data.zarr --k 10", "dsel stability data.zarr --k 10 --max-errors 1 --out stable")
)
def stability(
    store: Store,
    k: Annotated[int, typer.Option("--k", min=1, help="Number of columns to choose at most on each subsample.")],
    method: Annotated[str, typer.Option(help="Method: forward, poss, omp, ...")] = "forward",
    resample: Annotated[Resample, typer.Option(help="Halves in pairs, halves, or bootstrap samples.")] = "pairs",
    samples: Annotated[int, typer.Option(min=2, help="Number of subsamples.")] = 100,
    parts: Annotated[int, typer.Option(min=4, help="Parts of the rows that subsamples are made of.")] = 20,
    split: Annotated[Split, typer.Option(help="Parts at random, or blocks of consecutive rows.")] = "random",
    row_groups: Annotated[str | None, typer.Option(help="Variable with the group of each row.")] = None,
    groups: Annotated[str | None, typer.Option(help="Coordinate with the groups of columns, such as source.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="A target of the store; repeatable. By default all.")] = None,
    loss: LossOption = None,
    lam: Annotated[float, typer.Option(min=0.0, help="Ridge penalty.")] = 0.0,
    missing: Annotated[str, typer.Option(help="Missing values: refuse, or mean of the column.")] = "refuse",
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")] = 0,
    threshold: Annotated[float | None, typer.Option(help="Print the columns chosen on this share or more.")] = None,
    max_errors: Annotated[
        float | None, typer.Option(help="Print the columns of which this many are expected by mistake at most.")
    ] = None,
    out: Out = None,
    cluster: Cluster = None,
    log_format: Log = "text",
    json: Json = False,
) -> None:
    """Print how often each column is chosen on subsamples of the rows. All subsamples take one pass."""
    from dsel.config.job import read_cluster
    from dsel.config.request import SelectionRequest
    from dsel.config.yaml_files import parse_yaml
    from dsel.errors import OptionError
    from dsel.jobs.workers import stability_run
    from dsel.selection.stability.result import require_one_limit

    require_one_limit(threshold, max_errors)  # before the passes
    request = SelectionRequest.of(
        k=k, method=method, lam=lam, missing=missing, seed=seed, groups=groups, targets=target or None,
        loss=parse_yaml(loss, "--loss") if loss else "squared",
    )  # fmt: skip
    found = stability_run(
        path_of(store), request, out=None if out is None else path_of(out),
        cluster=None if cluster is None else read_cluster(cluster), reporter=reporter_of(log_format),
        resample=resample, samples=samples, parts=parts, split=split, row_groups=row_groups,
    )  # fmt: skip
    values, text = found.as_dict(), str(found)
    if threshold is not None or max_errors is not None:
        try:
            stable = found.stable(threshold, max_errors=max_errors)
        except OptionError:
            print_answer(json, values, lambda: text)  # the passes are not lost
            raise
        least = threshold if threshold is not None else found.threshold(max_errors or 0.0)
        values["stable"] = stable
        listed = f"Stable, on {least:.1%} or more: {', '.join(map(str, stable)) or 'none'}"
        text = f"{found.render(threshold=least)}\n{listed}"
    print_answer(json, values, lambda: text)
