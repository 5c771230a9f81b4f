"""What to select, and every check of it that needs no pass over the data: options, columns."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dsel._lib.text import suggest
from dsel.config.types import first_error
from dsel.data.dataset import Dataset
from dsel.data.labels import format_labels, resolve_labels
from dsel.errors import OptionError
from dsel.passes.gram import Missing
from dsel.passes.statistics import PREPROCESS, Preprocess
from dsel.search.method import Method, ProblemSummary, Requirements
from dsel.search.options import Options
from dsel.search.registry import METHODS, methods_with

Column = str | int


@dataclass(frozen=True)
class Settings:
    """What to select. include and exclude name columns by label or 0-based index; options are the method's own.

    criterion: a function f(S) of the ascending columns chosen, or f(S, data) with the data
    (dsel.data.criterion_data), to be
    minimised in place of f; +inf where not allowed.
    """

    k: int
    method: str = "poss"
    lam: float = 0.0
    preprocess: Preprocess = "standardize"
    missing: Missing = "refuse"
    include: tuple[Column, ...] = ()
    exclude: tuple[Column, ...] = ()
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    criterion: Callable[..., float] | None = None


@dataclass(frozen=True)
class Checked:
    """Settings after every check that needs no data; include and exclude are ascending 0-based columns."""

    settings: Settings
    method: Method
    options: Options
    include: NDArray[np.int64]
    exclude: NDArray[np.int64]
    requirements: Requirements


def check(dataset: Dataset, settings: Settings) -> Checked:
    """Refuse what can be seen without the data: k, the method and its options, columns that are not there. Errors:
    OptionError; CapacityError where the option `memory` is too small to begin with."""
    n = dataset.n
    if not isinstance(settings.method, str) or settings.method not in METHODS:
        raise OptionError(f"There is no method {settings.method!r}.", suggest(str(settings.method), list(METHODS)))
    method = METHODS[settings.method]
    try:
        options = method.options(**settings.options)
    except ValidationError as error:
        raise OptionError(f"Options of {settings.method}: {first_error(error, method.options)}") from error
    if not (_is_whole(settings.k) and 1 <= settings.k <= n):
        raise OptionError(f"k is {settings.k!r}, and X has {n} columns.", f"k is a whole number from 1 to {n}.")
    if not (_is_whole(settings.seed) and 0 <= settings.seed < 2**63):
        raise OptionError(f"seed is {settings.seed!r}.", "It is a whole number from 0 to 2^63 - 1.")
    if not (_is_real(settings.lam) and 0 <= settings.lam < math.inf):
        raise OptionError(f"lam is {settings.lam!r}.", "The ridge penalty is a number >= 0.")
    if settings.preprocess not in PREPROCESS:
        raise OptionError(
            f"There is no preprocess {settings.preprocess!r}.", suggest(str(settings.preprocess), PREPROCESS)
        )
    if settings.missing not in ("refuse", "mean"):
        raise OptionError(f"missing is {settings.missing!r}.", "One of refuse, mean.")
    if settings.criterion is not None and not callable(settings.criterion):
        raise OptionError(f"criterion is {settings.criterion!r}.", "It is a function of the columns chosen.")
    if settings.criterion is not None and not method.takes_criterion:
        able = ", ".join(methods_with("takes_criterion"))
        raise OptionError(f"{settings.method} does not take a criterion.", f"Use one of {able}.")
    conflict = options.conflict(settings.criterion is not None)
    if conflict:
        raise OptionError(f"Options of {settings.method}: {conflict}.", "Leave it out.")
    if method.unsupervised_only and dataset.n_targets:
        raise OptionError(f"{settings.method} selects columns for X itself (Y = X).", "Leave Y out, or choose another.")
    include = resolve_labels(settings.include, dataset.features, "feature", "include")
    exclude = resolve_labels(settings.exclude, dataset.features, "feature", "exclude")
    both = np.intersect1d(include, exclude)
    if both.size:
        raise OptionError(f"Columns {format_labels(dataset.features, both)} are both included and excluded.")
    if include.size > settings.k:
        raise OptionError(f"{include.size} columns are included, and k is {settings.k}.", "Raise k or include fewer.")
    if exclude.size == n:
        raise OptionError("All columns are excluded: none is left to choose from.")
    summary = ProblemSummary(
        dataset.m, n, dataset.n_targets, int(settings.k), include.size, exclude.size, float(settings.lam),
        settings.criterion is not None,
    )  # fmt: skip
    return Checked(settings, method, options, include, exclude, method.requirements(summary, options))


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
