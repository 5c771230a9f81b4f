"""Types of options: whole numbers, numbers, truth values, durations; and what pydantic finds wrong, in one sentence.

For an option that dsel does not know, the sentence suggests one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from numbers import Integral
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dsel._lib.text import suggest, without_pydantic_prefix
from dsel.errors import OptionError

#: Options, and the names that other libraries have for them.
_OTHER_NAMES = {
    "criterion": ("scorer", "scoring"),
    "iterations": ("max_iter", "n_iter"),
    "k": ("n_features", "n_features_to_select", "n_select"),
    "lam": ("alpha", "lambda", "lambda_"),
    "preprocess": ("normalize", "scaler", "standardize"),
    "sample_weight": ("sample_weights", "weight", "weights"),
    "seconds": ("max_time", "time_limit", "timeout"),
    "seed": ("random_seed", "random_state", "rng"),
}
_SYNONYMS = {other: name for name, others in _OTHER_NAMES.items() for other in others}

#: What takes the place of arguments that dsel does not have.
_REMARKS = {
    "verbose": "Progress goes to the logger 'dsel': logging.getLogger('dsel').setLevel(logging.INFO).",
    "n_jobs": "Workers come from the active Dask client, or from the section cluster of a job file.",
    "n_workers": "Workers come from the active Dask client, or from the section cluster of a job file.",
    "cv": "Use method='kfold' with the option folds, or criterion=dsel.CrossValidated(estimator, folds=...).",
    "estimator": "Use criterion=dsel.CrossValidated(estimator).",
}


def suggest_option(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests an option for an unknown one, or lists the known ones.

    It knows the names that other libraries use.
    """
    names = list(known)
    synonym = _SYNONYMS.get(word.lower())
    if synonym in names:
        return f"Did you mean {synonym!r}?"
    hint = suggest(word, names)
    return _REMARKS.get(word.lower(), hint) if hint.startswith("Known") else hint


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|min|s|m|h|d)")


def parse_share(text: str | float) -> float:
    """Return the share in 1%, or in a plain number such as 0.01.

    Raises
    ------
    OptionError
        The text is not a number.

    Examples
    --------
    >>> parse_share("1%")
    0.01
    """
    words = str(text).strip()
    try:
        return float(words.removesuffix("%")) / 100.0 if words.endswith("%") else float(words)
    except ValueError:
        raise OptionError(f"{text!r} is not a share.", "Write it as 1% or 0.01.") from None


def parse_duration(text: str | float) -> float:
    """Return the seconds in 90s, 10m, 2h, 1h30m, 1.5h, or in a plain number of seconds.

    Raises
    ------
    OptionError
        The text is not a duration above 0.

    Examples
    --------
    >>> parse_duration("1h30m")
    5400.0
    """
    try:
        seconds = float(text)
    except ValueError:
        parts = _PART.findall(str(text))
        if not parts or _PART.sub("", str(text)).strip():
            raise OptionError(f"{text!r} is not a duration.", "Write it as 90s, 10m, 2h or 1h30m.") from None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not (math.isfinite(seconds) and seconds > 0.0):
        raise OptionError(f"{text!r} is not a duration above 0.", "Write it as 90s, 10m, 2h or 1h30m.")
    return seconds


#: YAML reads 1e-3 as text: it wants a point before the exponent.
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def _number(value: Any) -> Any:
    """Refuse text, and a truth value, which YAML reads for yes, no, on and off, and which Python takes for 1 or 0."""
    if isinstance(value, bool):
        raise ValueError("it must be a number, not true or false")
    if isinstance(value, str | bytes) and not (isinstance(value, str) and _EXPONENT.fullmatch(value)):
        raise ValueError("it must be a number (not text, in quotes)")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError("it must be a whole number")
    return int(value)


def _no_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("it is not a number")
    return value


def _share(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse_share(value)
        except OptionError as error:
            raise ValueError(str(error)) from error
    return _number(value)


def _duration(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("it must be a duration, such as 90s, 10m or 2h")
    try:
        parse_duration(value)
    except OptionError as error:
        raise ValueError(str(error)) from error  # with the key it stands for
    return value


#: A whole number of Python or NumPy, neither text nor a truth value; a number; yes or no and nothing like it.
Int = Annotated[int, BeforeValidator(_whole)]
Float = Annotated[float, BeforeValidator(_number), AfterValidator(_no_nan)]
Bool = Annotated[bool, Field(strict=True)]
#: 1%, or 0.01.
Share = Annotated[float, BeforeValidator(_share), AfterValidator(_no_nan)]
#: 90s, 10m, 1h30m, or a number of seconds.
Duration = Annotated[str | float, BeforeValidator(_duration)]

#: What pydantic finds, in the words of somebody who writes YAML.
_MUST_BE = {
    "string_type": "it must be text (in quotes, where YAML reads something else)",
    "too_short": "it is empty",
    "string_too_short": "it is empty",
    "list_type": "it must be a list, such as [a, b]",
    "dict_type": "it must be keys with their values",
    "model_type": "it must be keys with their values",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "finite_number": "it must be a finite number",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be above {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be below {lt}",
}


def first_error(error: ValidationError, model: type[BaseModel], remark: str = "") -> str:
    """Return one sentence about the first error, and how many more there are.

    Parameters
    ----------
    error : ValidationError
        What pydantic found.
    model : type of BaseModel
        The model that was validated.
    remark : str
        Follows an error about an unknown key that is close to none.
    """
    problems = error.errors(include_url=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return _sentence(problems[0], model, remark) + more


def _sentence(problem: Any, model: type[BaseModel], remark: str) -> str:
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place)
    kind = problem["type"]
    if not place:
        return without_pydantic_prefix(problem["msg"]).removesuffix(".") + "."
    if kind == "extra_forbidden":
        hint = suggest_option(place[-1], _model_at(model, place[:-1]).model_fields)
        return f"unknown key {key!r}. {hint}" + (f" {remark}" if remark and hint.startswith("Known") else "")
    if kind == "missing":
        return f"{key!r} is missing: write it as {place[-1]}: ... in the file."
    if kind == "literal_error":
        choices = problem["ctx"]["expected"]
        hint = suggest(str(problem["input"]), [c.strip(" '") for c in choices.replace(" or ", ",").split(",")])
        return f"{key!r} is {problem['input']!r}; it must be {choices}." + (f" {hint}" if "Did" in hint else "")
    if kind in _MUST_BE:
        found = _MUST_BE[kind].format(**problem.get("ctx", {}))
    else:
        found = without_pydantic_prefix(problem["msg"]).removesuffix(".")
    return f"{key!r} is {_short(problem['input'])}: {found}."


def _short(value: Any, limit: int = 200) -> str:
    """Return how a value is written, in one line, without the middle of a long one, such as an array."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 4 :]}"


def _model_at(model: type[BaseModel], place: list[str]) -> type[BaseModel]:
    """Return the model of the section at `place`."""
    for name in place:
        field = model.model_fields.get(name)
        if field is None:
            continue
        candidates = [field.annotation, *get_args(field.annotation)]
        inner = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if inner:
            model = inner[0]
    return model


class Section(BaseModel):
    """A model whose keys are known, and whose errors are sentences."""

    model_config = ConfigDict(extra="forbid")

    #: The names that keys had in earlier versions, with the present ones. Old job files and results have them.
    renamed: ClassVar[dict[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _present_names(cls, values: Any) -> Any:
        """Return the fields by their present names. ValueError: one is given by both, with different values."""
        if not isinstance(values, dict):
            return values
        named = {name: value for name, value in values.items() if name not in cls.renamed}
        for old in cls.renamed.keys() & values.keys():
            present, value = cls.renamed[old], values[old]
            if value is None:
                continue
            if named.get(present) not in (None, value):
                raise ValueError(f"{old} is the earlier name of {present}: leave it out, for both name one key")
            named[present] = value
        return named

    def is_changed(self, name: str) -> bool:
        """Return whether a key differs from its default. A key that is given as its default is as one left out."""
        value, default = getattr(self, name), type(self).model_fields[name].get_default(call_default_factory=True)
        is_array = hasattr(value, "shape") or (isinstance(default, str) and not isinstance(value, str))
        return is_array or bool(value != default)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Return the model with these values.

        Raises
        ------
        OptionError
            A value is wrong. The error is one sentence.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise OptionError(first_error(error, cls)) from error
