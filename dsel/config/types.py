"""Numbers as options take them, and what pydantic found wrong, in one sentence that names the key, the value and the
nearest valid one."""

from __future__ import annotations

import math
from difflib import get_close_matches
from numbers import Integral
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from dsel.config.durations import parse_duration
from dsel.errors import OptionError


def not_bool(value: Any) -> Any:
    """The value, unless it is a truth value: YAML reads yes, no, on, off so, and Python takes them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("it must not be yes or no (quote a label that reads so)")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError("it must be a whole number")
    return int(value)


def _no_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("it is not a number")
    return value


def _duration(value: Any) -> Any:
    if not isinstance(not_bool(value), str | int | float):
        raise ValueError("it must be a duration, such as 90s, 10m or 2h")
    try:
        parse_duration(value)
    except OptionError as error:
        raise ValueError(str(error)) from error  # with the key it stands for
    return value


#: A whole number of Python or NumPy, neither text nor a truth value; a number; yes or no and nothing like it.
Int = Annotated[int, BeforeValidator(_whole)]
Float = Annotated[float, BeforeValidator(not_bool), AfterValidator(_no_nan)]
Bool = Annotated[bool, Field(strict=True)]
#: 90s, 10m, 1h30m, or a number of seconds: see dsel.config.durations.
Duration = Annotated[str | float, BeforeValidator(_duration)]

#: What pydantic finds, in the words of somebody who writes YAML.
_MUST_BE = {
    "string_type": "it must be text (in quotes, where YAML reads something else)",
    "list_type": "it must be a list, such as [a, b]",
    "dict_type": "it must be keys with their values",
    "model_type": "it must be keys with their values",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be above {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be below {lt}",
}


def first_error(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing wrong, and how many more there are."""
    problems = error.errors(include_url=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return _sentence(problems[0], model) + more


def _sentence(problem: Any, model: type[BaseModel]) -> str:
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place)
    kind = problem["type"]
    if not place:
        return str(problem["msg"]).removeprefix("Value error, ").removesuffix(".") + "."
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
    if kind in _MUST_BE:
        found = _MUST_BE[kind].format(**problem.get("ctx", {}))
    else:
        found = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    return f"{key!r} is {problem['input']!r}: {found}."


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
