"""Commands that read, compare, use and check saved results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import dsel
from dsel._lib.text import counted, printable
from dsel.cli.application import (
    Cluster,
    Folder,
    Json,
    Log,
    Store,
    Weight,
    app,
    examples,
    path_of,
    print_answer,
    print_selection,
    reporter_of,
    terminal_width,
)


@app.command(epilog=examples("dsel show result", "dsel show result --details", "dsel show result --json"))
def show(
    folder: Folder,
    details: Annotated[bool, typer.Option("--details", help="Print the cost and the plan, too.")] = False,
    json: Json = False,
) -> None:
    """Print a saved selection."""
    print_selection(dsel.open_selection(folder), json, details=details)


@app.command(epilog=examples("dsel compare result-poss result-forward"))
def compare(a: Folder, b: Folder, json: Json = False) -> None:
    """Compare two results: columns in common, errors, and the options that differ."""
    from dsel.selection.results.compare import compare_selections

    compared = compare_selections(dsel.open_selection(a), dsel.open_selection(b), names=(a, b))
    print_answer(json, compared.as_dict(), lambda: compared.render(terminal_width()))


@app.command(epilog=examples("dsel export result", "dsel export result --format csv --out coefficients.csv"))
def export(
    folder: Folder,
    form: Annotated[
        Literal["labels", "csv", "json"],
        typer.Option("--format", help="labels: one a line; csv or json: with coefficients and intercept."),
    ] = "labels",
    out: Annotated[str | None, typer.Option(help="File to write: a path or a URL. By default standard output.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Print the chosen columns, and the coefficients for the data in their own units."""
    from dsel.selection.results.export import export_text, write_export

    text = export_text(dsel.open_selection(folder), "json" if json else form)
    if out is None:
        # A program gets the labels as they are. To a terminal they could be commands.
        typer.echo(printable(text, keep_lines=True) if sys.stdout.isatty() else text, nl=False)
    else:
        write_export(text, path_of(out), overwrite=overwrite)


@app.command(epilog=examples("dsel predict result new.zarr predictions.zarr"))
def predict(
    folder: Folder,
    store: Store,
    out: Annotated[str, typer.Argument(help="The Zarr group to write: a path, or an s3://, gs:// or az:// URL.")],
    offset: Annotated[
        str | None, typer.Option(help="The variable of the store to add to linear predictors; by default the result's.")
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="Write linear predictors, and not means.")] = False,
    cluster: Cluster = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a Zarr group.")] = False,
    log_format: Log = "text",
    json: Json = False,
) -> None:
    """Predict the targets for every row of a store, block by block, and write them to a Zarr group."""
    from dataclasses import asdict

    from dsel._lib.byte_sizes import format_bytes
    from dsel.config.job import read_cluster
    from dsel.jobs.workers import predict_run

    section = None if cluster is None else read_cluster(cluster)
    written = predict_run(
        path_of(folder), path_of(store), path_of(out), offset=offset, kind="link" if link else "mean", cluster=section,
        overwrite=overwrite, reporter=reporter_of(log_format),
    )  # fmt: skip
    m, N = written.shape
    text = (
        f"{out}: {m:,} rows x {counted(N, 'target')} from {counted(written.columns, 'column')}, "
        f"{format_bytes(written.bytes_read)} read in {written.seconds:.1f} s"
    )
    print_answer(json, {"out": out, **asdict(written)}, lambda: text)


@app.command(
    name="check-part",
    epilog=examples("dsel check-part answer data.zarr --out a.share", "dsel check-part answer --add a.share b.share"),
)
def check_part(
    folder: Folder,
    sources: Annotated[list[str], typer.Argument(help="The store of a part; with --add the shares of all parts.")],
    add: Annotated[bool, typer.Option("--add", help="Add shares, and compare with the error of the result.")] = False,
    out: Annotated[str, typer.Option(help="The file for the share: a path or a URL.")] = "part.share",
    weight: Weight = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    json: Json = False,
) -> None:
    """Check a result from sums on the rows of one part, or add the shares of all. The exit code is 1 if they differ."""
    from dataclasses import asdict

    from dsel.errors import OptionError
    from dsel.selection.results.check_part import add_shares, read_share

    selection = dsel.open_selection(folder)
    if add:
        added = add_shares(selection, [read_share(source) for source in sources])
        print_answer(json, asdict(added), lambda: added)
        if not added.agrees:
            raise typer.Exit(1)
        return
    if len(sources) != 1:
        raise OptionError(f"There are {len(sources)} stores.", "Name one store, or add shares with --add.")
    share = dsel.check_part(selection, sources[0], sample_weight=weight)
    share.save(out, overwrite=overwrite)
    print_answer(json, {"out": out, **asdict(share)}, lambda: f"{share}\nSaved in {out}")


@app.command(epilog=examples("dsel report result", "dsel report result --out report.html"))
def report(
    folder: Folder,
    out: Annotated[
        str | None,
        typer.Option(help="File for the page (.html): a path or a URL. By default report.html in the folder."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a result as one HTML page with pictures. It works offline, prints, and runs no script."""
    page = dsel.report(folder, out)
    print_answer(json, {"report": str(page)}, lambda: page)


@app.command(epilog=examples("dsel verify result", "dsel verify result --sample 1000 --workers 4"))
def verify(
    folder: Folder,
    store: Annotated[str | None, typer.Option(help="The data, if they are not where the job says.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Recompute a random sample of this many leaves.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the sample, to repeat a check; by default nobody can predict it.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Allowed rounding, as a share of ||Y||^2.")] = 1e-9,
    workers: Annotated[int, typer.Option(min=1, help="Processes that work on the check.")] = 1,
    state: Annotated[
        Path | None, typer.Option(help="A folder of yours for what is checked so far, by default in ~/.local/state.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the proofs of a result against the data. The exit code is 1 if a proof is rejected or incomplete."""
    found = dsel.verify(
        folder, store=store, sample=sample, seed=seed, tolerance=tolerance, workers=workers, state=state,
        reporter=reporter_of("text"),
    )  # fmt: skip
    print_answer(json, found.as_dict(), lambda: found)
    if not found.accepted:
        raise typer.Exit(1)
