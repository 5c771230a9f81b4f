"""The application that commands register with, and the form in which it prints errors."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dsel._lib.termination import Stopped
from dsel._lib.text import printable
from dsel.errors import DselError, Interrupted

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

#: Exit code of a wrong command line.
USAGE = 2


class LogFormat(StrEnum):
    """The format of log lines."""

    text = "text"
    json = "json"


def remember_log_format(log_format: LogFormat) -> LogFormat:
    _chosen["log_format"] = log_format
    return log_format


#: Options that `main` needs to print an error in the requested format.
_chosen: dict[str, Any] = {"log_format": LogFormat.text, "debug": False}


def examples(*commands: str) -> str:
    """Return the text that ends a command's help: commands to copy."""
    title = "Example" if len(commands) == 1 else "Examples"
    return f"{title}:\n\n" + "\n".join(f"$ {command}" for command in commands)


def _version(asked: bool) -> None:
    if asked:
        from dsel._lib.versions import versions

        typer.echo("\n".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit


@app.callback(
    epilog=examples(
        "dsel demo", "dsel ingest measurements.csv data.zarr --target yield", "dsel init data.zarr", "dsel run job.yaml"
    )
)
def about(
    _version_option: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions of dsel and its libraries.", callback=_version, is_eager=True
        ),
    ] = False,
    _debug_option: Annotated[
        bool,
        typer.Option(
            "--debug", help="Print the traceback of an error, and log what Dask logs. Any place in the command will do."
        ),
    ] = False,
) -> None:
    """Select features from data larger than memory, and prove how good the selection is."""


def report(what: str, remedy: str = "", *, where: str = "", exit_code: int, kind: str, trace: str = "") -> None:
    """Print an error on standard error: what is wrong, where, and the remedy; or one JSON object for a program.

    Parameters
    ----------
    what, where, remedy : str
        The parts of the message. `where` and `remedy` may be empty.
    exit_code : int
        What the command will return.
    kind : str
        A stable word for the class of the error.
    trace : str
        The traceback, if it was asked for or if the error is unexpected.
    """
    if _chosen["log_format"] is LogFormat.json:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": now,
            "level": "ERROR",
            "message": f"{what} {remedy}".rstrip(),
            "kind": kind,
            "exit_code": exit_code,
        }
        fields |= {"where": where} if where else {}
        typer.echo(json.dumps({**fields, **({"traceback": trace} if trace else {})}), err=True)
        return
    if trace and _chosen["debug"]:
        typer.echo(trace, err=True, nl=False)
    lines = [f"dsel: {printable(what, keep_lines=True)}"]
    lines += [f"  where: {printable(where)}"] if where else []
    lines += [f"  remedy: {printable(remedy, keep_lines=True)}"] if remedy else []
    typer.echo("\n".join(lines), err=True)


def _report_unexpected(error: Exception) -> None:
    """Report an error that dsel did not raise on purpose: a defect of dsel or of a dependency."""
    import traceback

    report(
        f"unexpected error: {type(error).__name__}: {error}",
        "This is a defect. Run the command again with --debug, and report the traceback.",
        where=_origin(error), exit_code=DselError.exit_code, kind=DselError.kind,
        trace="".join(traceback.format_exception(error)),
    )  # fmt: skip


def _origin(error: BaseException) -> str:
    """Return the last line of dsel that the error passed through."""
    import traceback

    package = str(Path(__file__).parents[1]) + os.sep
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed([frame for frame in frames if frame.filename.startswith(package)] or frames):
        name = frame.filename.removeprefix(package.removesuffix(f"dsel{os.sep}"))
        return f"{name}, line {frame.lineno}, in {frame.name}"
    return ""


def main() -> NoReturn:
    """Run the command line. An error becomes a message on standard error and an exit code."""
    arguments = sys.argv[1:]
    _chosen["debug"] = "--debug" in arguments
    try:
        code = app([word for word in arguments if word != "--debug"], prog_name="dsel", standalone_mode=False)
    except DselError as error:
        import traceback

        trace = "".join(traceback.format_exception(error)) if _chosen["debug"] else ""
        report(error.what, error.remedy, exit_code=error.exit_code, kind=error.kind, trace=trace)
        sys.exit(error.exit_code)
    except Stopped as signal:
        ended = Interrupted(f"Stopped by {signal.name}.", "Start the same command again to continue.")
        report(ended.what, ended.remedy, exit_code=ended.exit_code, kind=ended.kind)
        sys.exit(ended.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("dsel: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # such as dsel show result | head
        sys.stdout = None
        sys.exit(0)
    except Exception as error:
        if _is_usage(error):
            _report_usage(error)
            sys.exit(USAGE)
        _report_unexpected(error)
        sys.exit(DselError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _is_usage(error: Exception) -> bool:
    """Return whether the error is about the command line. Versions of typer differ in where its class is."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def _report_usage(error: Any) -> None:
    """Report a wrong command line with the help that corrects it."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    if context is None:
        report(message, "See dsel --help.", exit_code=USAGE, kind="usage")
    elif type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, err=True)
    else:
        report(message, f"See {context.command_path} --help.", exit_code=USAGE, kind="usage")
