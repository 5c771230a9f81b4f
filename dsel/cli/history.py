"""The command about the runs of a repeated job: history."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Json
from dsel.cli.output import print_json, terminal_width

if TYPE_CHECKING:
    from dsel.config.job import JobFile


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
