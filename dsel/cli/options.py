"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsel.cli.application import LogFormat, remember_log_format

Job = Annotated[Path, typer.Argument(help="Job file (YAML).")]
Out = Annotated[str | None, typer.Option(help="Folder for the result: a path, or an s3://, gs:// or az:// URL.")]
Cluster = Annotated[Path | None, typer.Option(help="A file with a cluster section, used instead of the job file's.")]
K = Annotated[str | None, typer.Option("--k", help="Number of columns, or auto; used instead of the job file's.")]
MaxK = Annotated[int | None, typer.Option(min=1, help="Upper limit of --k auto.")]
ChooseK = Annotated[str | None, typer.Option(help="How --k auto chooses: folds, bic, ebic or path.")]
Folder = Annotated[str, typer.Argument(help="Result folder: a path, or an s3://, gs:// or az:// URL.")]
Store = Annotated[str, typer.Argument(help="A path, or an s3://, gs:// or az:// URL.")]
Log = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines as text or JSON.", callback=remember_log_format)
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for programs.")]

Trust = Annotated[
    bool, typer.Option("--trust", help="Run code that the job names, also if the folder belongs to another user.")
]


def as_size(k: str | None) -> int | str | None:
    """Return a number of columns, or the word that was given."""
    return int(k) if k is not None and k.lstrip("-").isdigit() else k


def changes(k: str | None, max_k: int | None, choose_k: str | None) -> dict[str, Any]:
    """Return the keys of a job file that the options for k replace."""
    return {"k": as_size(k), "max_k": max_k, "choose_k": choose_k}
