"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsel.cli.application import LogFormat, remember_log_format

Out = Annotated[str | None, typer.Option(help="Folder for the result: a path, or an s3://, gs:// or az:// URL.")]
Cluster = Annotated[Path | None, typer.Option(help="A file with a cluster section, used instead of the job file's.")]
Folder = Annotated[str, typer.Argument(help="Result folder: a path, or an s3://, gs:// or az:// URL.")]
Store = Annotated[str, typer.Argument(help="A path, or an s3://, gs:// or az:// URL.")]
Log = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines as text or JSON.", callback=remember_log_format)
]
