"""The command that checks proofs: verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsel.cli.application import app, examples
from dsel.cli.options import Folder


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
        Path | None,
        typer.Option(help="A folder of yours for what is checked so far, by default in ~/.local/state."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check the proofs of a result against the data. The exit code is 1 if a proof is rejected."""
    from json import dumps

    from dsel.jobs.verify import verify as verify_result

    found = verify_result(
        folder, store=store, sample=sample, seed=seed, tolerance=tolerance, workers=workers, state=state,
        progress=_show,
    )  # fmt: skip
    typer.echo(dumps(found.as_dict(), indent=1) if json else str(found))
    if not found.accepted:
        raise typer.Exit(1)


def _show(done: int, files: int) -> None:
    if done < files:
        typer.echo(f"{done} of {files} files of the log are checked", err=True)
