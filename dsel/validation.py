"""Numbers as options take them, and what pydantic found wrong, in one sentence that names the key, the value and the
nearest valid one."""

from __future__ import annotations

from difflib import get_close_matches
from numbers import Integral
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, Field, ValidationError


def not_bool(value: Any) -> Any:
    """The value, unless it is a truth value: YAML reads yes, no, on, off so, and Python takes them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("it must not be yes or no (quote a label that reads so)")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError("it must be a whole number")
    return int(value)


#: A whole number of Python or NumPy, neither text nor a truth value; a number; yes or no and nothing like it.
Int = Annotated[int, BeforeValidator(_whole)]
Float = Annotated[float, BeforeValidator(not_bool)]
Bool = Annotated[bool, Field(strict=True)]


def first_error(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing wrong, and how many more there are."""
    problems = error.errors(include_url=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return _sentence(problems[0], model) + more


def _sentence(problem: Any, model: type[BaseModel]) -> str:
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place)
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = list(_model_at(model, place[:-1]).model_fields)
        close = get_close_matches(place[-1], known, n=1, cutoff=0.4)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known) or 'none'}."
        return f"unknown key {key!r}. {hint}"
    if kind == "missing":
        return f"{key!r} is missing."
    if kind == "literal_error":
        choices = problem["ctx"]["expected"]
        close = get_close_matches(
            str(problem["input"]), [c.strip(" '") for c in choices.replace(" or ", ",").split(",")], 1
        )
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return f"{key!r} is {problem['input']!r}; it must be {choices}.{hint}"
    return f"{key!r} is {problem['input']!r}: {problem['msg'].removeprefix('Value error, ').lower()}."


def _model_at(model: type[BaseModel], place: list[str]) -> type[BaseModel]:
    """The model of the section at `place`."""
    for name in place:
        field = model.model_fields.get(name)
        if field is None:
            continue
        candidates = [field.annotation, *get_args(field.annotation)]
        inner = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if inner:
            model = inner[0]
    return model
