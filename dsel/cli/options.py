"""Arguments and options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from dsel.cli.application import LogFormat, remember_log_format
from dsel.config.ingest_request import Missing, SourceOptions

Command = TypeVar("Command", bound=Callable[..., None])

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
