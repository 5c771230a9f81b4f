"""The application that commands register with: its errors, its output, and the options that several commands share."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

import typer

from dsel._lib.termination import Stopped
from dsel._lib.text import printable, without_pydantic_prefix
from dsel.config.ingest_request import Missing, SourceOptions
from dsel.errors import DselError, Interrupted

if TYPE_CHECKING:
    from dsel.jobs.reporting import Reporter
    from dsel.selection.result import Selection
    from dsel.storage.paths import AnyPath

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

#: Exit code of a wrong command line.
USAGE = 2


#: The format of log lines.
LogFormat = Literal["text", "json"]


def remember_log_format(log_format: LogFormat) -> LogFormat:
    _chosen["log_format"] = log_format
    return log_format


#: Options that `main` needs to print an error in the requested format.
_chosen: dict[str, Any] = {"log_format": "text", "debug": False}


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
    if _chosen["log_format"] == "json":
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        fields = {"time": now, "level": "ERROR", "message": f"{what} {remedy}".rstrip(), "kind": kind}
        optional = {name: text for name, text in (("where", where), ("traceback", trace)) if text}
        typer.echo(json.dumps({**fields, "exit_code": exit_code, **optional}), err=True)
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
    except (DselError, Stopped) as error:
        import traceback

        ended, trace = error, "".join(traceback.format_exception(error)) if _chosen["debug"] else ""
        if isinstance(ended, Stopped):
            ended = Interrupted(f"Stopped by {ended.name}.", "Start the same command again to continue.")
        report(ended.what, ended.remedy, exit_code=ended.exit_code, kind=ended.kind, trace=trace)
        sys.exit(ended.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("dsel: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:  # such as dsel show result | head
        sys.stdout = None
        sys.exit(0)
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # of typer: its class moves with versions
            _report_usage(error)
            sys.exit(USAGE)
        _report_unexpected(error)
        sys.exit(DselError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _report_usage(error: Any) -> None:
    """Report a wrong command line with the help that corrects it."""
    message = without_pydantic_prefix(error.format_message())
    context = getattr(error, "ctx", None)
    if context is None:
        report(message, "See dsel --help.", exit_code=USAGE, kind="usage")
    elif type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, err=True)
    else:
        report(message, f"See {context.command_path} --help.", exit_code=USAGE, kind="usage")


def terminal_width() -> int | None:
    """Return the columns of the terminal that reads the answer; None for a file or a pipe, which has no width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _plain(value: Any) -> Any:
    """Return an array as a list, and text for other values that JSON does not have."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def print_json(value: Any) -> None:
    """Print a value as JSON. Numbers that JSON does not have become null."""
    from dsel.storage.json_files import valid_json

    plain = json.loads(
        json.dumps(value, default=lambda other: other.tolist() if hasattr(other, "tolist") else str(other))
    )
    typer.echo(json.dumps(valid_json(plain), indent=1, allow_nan=False))


def print_answer(as_json: bool, values: Any, text: Callable[[], Any]) -> None:
    """Print values as JSON, or what `text` returns."""
    if as_json:
        print_json(values)
    else:
        typer.echo(text())


def path_of(text: str) -> AnyPath:
    """Return a path of the file system, or of object storage."""
    from dsel.storage.paths import as_path

    return as_path(text)


def folder_of(text: str) -> str:
    """Return the folder that is named, or in which the job file that is named has its result."""
    job = Path(text)
    if job.suffix not in (".yaml", ".yml") or not job.is_file():
        return text
    from dsel.config.job import read_job
    from dsel.jobs.locations import out_folder

    return str(out_folder(read_job(job)))


def reporter_of(log_format: LogFormat, events: Sequence[str] | None = None) -> Reporter:
    """Return what shows the progress of a job in this terminal, or logs it, and the observers that are told."""
    from dsel.jobs.reporting import Reporter

    reporter = Reporter.for_terminal(log_format)
    reporter.events = tuple(events or ())
    return reporter


def print_selection(selection: Selection, as_json: bool, *, details: bool = False, footer: str = "") -> None:
    """Print a selection.

    Parameters
    ----------
    selection : Selection
        The answer.
    as_json : bool
        Print everything that is saved, with coefficients and intercept, as JSON.
    details : bool
        Print the cost and the plan, too.
    footer : str
        A last line of the text.
    """
    if as_json:
        values = selection.as_dict()
        for row in (*values["front"], *values["forward"]):
            row["labels"] = [selection.label(j) for j in row["indices"]]
        print_json({**values, "coefficients": selection.coefficients, "intercept": selection.intercept})
        return
    from dsel.selection.render import render

    typer.echo(render(selection, terminal_width(), details=details).rstrip("\n"))
    if footer:
        typer.echo(footer)


Command = TypeVar("Command", bound=Callable[..., None])

Out = Annotated[str | None, typer.Option(help="Folder for the result: a path, or an s3://, gs:// or az:// URL.")]
Cluster = Annotated[Path | None, typer.Option(help="A file with a cluster section, used instead of the job file's.")]
Folder = Annotated[
    str,
    typer.Argument(
        help="Result folder: a path, or an s3://, gs:// or az:// URL. A job file stands for its result.",
        callback=folder_of,
    ),
]
Store = Annotated[str, typer.Argument(help="A path, or an s3://, gs:// or az:// URL.")]
Weight = Annotated[
    str | None, typer.Option(help="Variable with the weights of the rows; by default weight, if it is there.")
]
Log = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines as text or JSON.", callback=remember_log_format)
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for programs.")]

#: Types of options on the command line by that of the field; text for all others.
_TYPES: dict[Any, Any] = {
    "bool": bool, "bool | None": bool | None, "int | None": int | None, "Missing": Missing | None,
    "tuple[str | int, ...]": list[str] | None, "tuple[str, ...]": list[str] | None,
}  # fmt: skip


def with_flags(model: type[SourceOptions], *, given: bool = False) -> Callable[[Command], Command]:
    """Give a command the options that a model declares, after its arguments and in place of its ``**options``.

    With `given`, an option that is not given is None.
    """

    def flag(field: Field[Any]) -> inspect.Parameter:
        info = typer.Option(*field.metadata["names"], help=field.metadata["help"], **field.metadata["limits"])
        default = None if field.default == () or (given and field.default is not False) else field.default
        return inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default,
            annotation=Annotated[_TYPES.get(field.type, str | None), info],
        )  # fmt: skip

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        arguments = [p for p in own if p.default is p.empty]
        flags = [flag(field) for field in fields(model) if "help" in field.metadata]
        parameters = [*arguments, *flags, *(p for p in own if p.default is not p.empty)]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate
