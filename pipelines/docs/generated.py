"""Parts of the reference that are made from the code: options, job file keys, exit codes, commands and methods.

`python -m pipelines.docs` writes them into the pages, between two comments, so that they can be read without a build.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from numpydoc.docscrape import ClassDoc
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dsel import errors
from dsel.config.cluster import ClusterSection
from dsel.config.job import JobFile
from dsel.search.method import in_this_process
from dsel.search.registry import METHODS
from pipelines.docs.notebooks import write_notebooks


def job_file_keys() -> str:
    """Return every key of a job file as Markdown tables: its type, its default and what it means."""
    parts = [_table(JobFile), "## cluster", _summary(ClusterSection)]
    for name, field in ClusterSection.model_fields.items():
        section = _model_of(field.annotation)
        parts += [f"### cluster.{name}", _summary(section), _table(section)]
    for name in ("choose_k", "certify", "alternatives"):
        section = _model_of(JobFile.model_fields[name].annotation)
        parts += [f"## {name}", _summary(section), _table(section)]
    return "\n\n".join(parts)


def methods() -> str:
    """Return every method of dsel as Markdown: what it does, what it can do, and its options."""
    rows = [f"| [`{name}`](#{name}) | {METHODS[name].summary} |" for name in METHODS]
    parts = ["\n".join(["| method | what it does |", "|---|---|", *rows])]
    for name in METHODS:
        method = METHODS[name]
        parts += [f"## {name}", method.summary, " ".join(_abilities(method))]
        if method.options.model_fields:
            parts += [_rest_of_summary(method.options), _table(method.options)]
        else:
            parts.append("It has no options.")
    return "\n\n".join(part for part in parts if part)


def _abilities(method: Any) -> Iterator[str]:
    if method.unsupervised_only:
        yield "Only for Y = X."
    if method.takes_criterion:
        yield "It can minimize a custom criterion."
    if method.place is not in_this_process:
        yield "It can send evaluations to workers."
    if method.uses_rows:
        yield "It scores subsets on left-out rows and needs targets."
    if method.resumable:
        yield "An interrupted search continues from its checkpoint."


def exit_codes() -> str:
    """Return the exit codes of the command line as a Markdown table, from the classes of dsel.errors."""
    by_code: dict[int, list[type[errors.DselError]]] = {}
    for _, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.DselError) and error is not errors.DselError:
            by_code.setdefault(error.exit_code, []).append(error)
    rows = ["| exit code | kind | error | meaning |", "|---|---|---|---|", "| 0 | | | The command did its work. |"]
    rows.append("| 2 | usage | | The command line is wrong. |")
    for code in sorted(by_code):
        for error in by_code[code]:
            rows.append(f"| {code} | {error.kind} | `{error.__name__}` | {_first_paragraph(error)} |")
    rows.append("| 70 | error | `DselError` | Every other error: a defect of dsel or of a library. |")
    return "\n".join(rows)


def commands() -> str:
    """Return the help of every command as Markdown."""
    import typer

    from dsel.cli import app

    group: Any = typer.main.get_command(app)
    parts = []
    for name, command in group.commands.items():
        parts += [f"## dsel {name}", command.help or ""]
        usage = " ".join([f"dsel {name}", "[OPTIONS]", *_arguments(command)])
        parts += [f"```text\n{usage}\n```", _parameters(command)]
        if command.epilog:
            examples = [line.strip() for line in command.epilog.splitlines() if line.strip().startswith("$")]
            parts.append("```text\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(part for part in parts if part)


def _arguments(command: Any) -> list[str]:
    return [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in command.params if _is_argument(p)]


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _parameters(command: Any) -> str:
    rows = ["| argument or option | default | meaning |", "|---|---|---|"]
    for parameter in command.params:
        if parameter.name == "help":
            continue
        name = parameter.name.upper() if _is_argument(parameter) else ", ".join(parameter.opts)
        default = "" if parameter.required else _default_text(parameter.default)
        rows.append(f"| `{name}` | {default} | {_cell(parameter.help or '')} |")
    return "\n".join(rows)


def _default_text(value: Any) -> str:
    value = getattr(value, "value", value)
    return "" if value is None or value is False or callable(value) or value == () else f"`{value}`"


def _table(model: type[BaseModel]) -> str:
    """Return the fields of a model as a Markdown table, described by its docstring and those of its bases."""
    described = _described(model)
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        kind, meaning = described.get(name, ("", ""))
        if not meaning:
            raise LookupError(f"{model.__name__} has a field {name} that its docstring does not describe")
        default = "required" if field.is_required() else _default(field)
        rows.append(f"| `{name}` | {_cell(kind)} | {default} | {_cell(meaning)} |")
    return "\n".join(rows)


def _described(model: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """Return type and meaning of each field, from the docstrings of the model and its bases."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(model.__mro__):
        if base is BaseModel or not (isinstance(base, type) and issubclass(base, BaseModel)):
            continue
        for parameter in ClassDoc(base, config={"show_class_members": False})["Parameters"]:
            for name in parameter.name.split(", "):
                kind = re.sub(r", optional$", "", parameter.type)
                found[name] = (kind, " ".join(parameter.desc))
    return found


def _default(field: Any) -> str:
    value = field.default_factory() if field.default_factory is not None else field.default
    if value is PydanticUndefined or value is None or value in ((), {}, []):
        return ""
    if isinstance(value, BaseModel):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _model_of(annotation: Any) -> type[BaseModel]:
    """Return the model in an annotation such as Model | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        with suppress(LookupError):
            return _model_of(argument)
    raise LookupError(f"{annotation} holds no model")


def _summary(model: type[BaseModel]) -> str:
    doc = ClassDoc(model, config={"show_class_members": False})
    return " ".join([*doc["Summary"], *doc["Extended Summary"]])


def _rest_of_summary(model: type[BaseModel]) -> str:
    return " ".join(ClassDoc(model, config={"show_class_members": False})["Extended Summary"])


def _first_paragraph(item: Any) -> str:
    return " ".join((inspect.getdoc(item) or "").split("\n\n")[0].split())


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table: code as in reStructuredText becomes Markdown's."""
    return re.sub(r"``([^`]+)``", r"`\1`", text).replace("|", "\\|").replace("\n", " ").replace("$VAR", "\\$VAR")


REFERENCE = Path(__file__).parents[2] / "deploy" / "docs" / "reference"
#: The tables of each page of the reference, which are made from the code.
TABLES: dict[str, Callable[[], str]] = {
    "job-file.md": job_file_keys,
    "methods.md": methods,
    "exit-codes.md": exit_codes,
    "command-line.md": commands,
}
_BEGIN, _END = "<!-- Made by python -m pipelines.docs -->", "<!-- The end of what is made -->"


def page(name: str) -> str:
    """Return a page of the reference with its tables as the code has them now."""
    before, begin, rest = (REFERENCE / name).read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, f"{name} has no comment {_BEGIN}"
    assert end, f"{name} has no comment {_END}"
    lines = [line.rstrip() for line in TABLES[name]().splitlines()]
    return "\n".join([before + begin, "", *lines, "", end + after])


def write_pages() -> None:
    """Write the tables into the pages, and the notebooks of the gallery."""
    for name in TABLES:
        (REFERENCE / name).write_text(page(name))
    write_notebooks()
