"""The application that commands register with, and the form in which it prints errors."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
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


def remember_log_format(log_format: LogFormat) -> LogFormat:
    _chosen["log_format"] = log_format
    return log_format


#: Options that `main` needs to print an error in the requested format.
_chosen = {"log_format": LogFormat.text}


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
