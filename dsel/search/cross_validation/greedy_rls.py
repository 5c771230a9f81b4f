"""Greedy RLS as a method: selection by the exact leave-one-out error of ridge regression.

Source: Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010.
"""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from dsel.objective.cross_validation.leave_one_out import Intercept
from dsel.objective.cross_validation.losses import Loss
from dsel.search.cross_validation.base import CrossValidationOptions, run
from dsel.search.method import CrossValidation, Method, ProblemSummary, Requirements


def _rounds(value: Any) -> Any:
    if isinstance(value, str) and value in ("auto", "never"):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError("it must be a whole number of rounds from 1, auto or never")
    return int(value)


class GreedyRlsOptions(CrossValidationOptions):
    """Options of greedy RLS.

    Parameters
    ----------
    loss : {"squared", "zero-one"}
        The loss of a left-out row. The zero-one loss takes labels -1 and +1, or 0 and 1.
    intercept : {"center", "column", "none"}, optional
        "center" is not penalized and exact under leave-one-out; it is the default where `preprocess` centers. "column"
        is the paper's column of ones, which is always included and penalized. "none" fits no intercept.
    fold_every : int or {"auto", "never"}
        Where X is not in memory, the rounds between two rewrites of a cache on disk, which is as large as X in float64
        (1: the paper's Algorithm 3). "auto" takes what costs least in a job, and "never" in `dsel.select`. The cache
        goes with `direction` forward only.
    """

    loss: Loss = "squared"
    intercept: Intercept | None = None
    fold_every: Annotated[int | Literal["auto", "never"], BeforeValidator(_rounds)] = "auto"

    @model_validator(mode="after")
    def _forward_only(self) -> GreedyRlsOptions:
        if isinstance(self.fold_every, int) and self.direction != "forward":
            raise ValueError(f"fold_every goes with direction forward, not {self.direction}")
        return self


def requirements(problem: ProblemSummary, options: GreedyRlsOptions) -> Requirements:
    """Return what greedy RLS needs: a row of the Gram matrix, and a pass over the data, for each round."""
    scored = CrossValidation(
        direction=options.direction, penalties=len(options.penalties), held_out=options.held_out, loss=options.loss,
        intercept=options.intercept, rewrite_every=options.fold_every,
    )  # fmt: skip
    return Requirements(whole_gram=scored.whole_gram, few_columns=True, cross_validation=scored)


METHOD = Method(
    "greedy-rls",
    "Insert or delete columns by the exact leave-one-out error of ridge regression (greedy RLS).",
    run,
    options=GreedyRlsOptions,
    requirements=requirements,
    uses_rows=True,
    every_size=True,
    no_groups="its left-out errors are updated column by column",
)
