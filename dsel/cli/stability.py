"""The command that selects on subsamples: stability."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from dsel.cli.application import LogFormat, app, examples
from dsel.cli.options import Cluster, Json, Log, Out, Store
from dsel.cli.output import print_json


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
    from dsel.jobs.stability import stability_run
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
