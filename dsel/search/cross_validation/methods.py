"""What greedy-rls and kfold share: options, requirements, and rounds on errors of left-out rows.

Greedy RLS selects by the exact leave-one-out error of ridge regression.

Source: Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010.

The other method selects by the K-fold cross-validated squared error of ridge regression, from one pass over the data.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from dsel.config.size_rule import RowGroups, RowSplits, check_split, is_share
from dsel.config.types import Int
from dsel.errors import OptionError
from dsel.objective.cross_validation.leave_one_out import Direction, Intercept
from dsel.objective.cross_validation.losses import Loss
from dsel.search.cross_validation.rounds import LAM_GRID, GreedyRls, choose_lam, run_greedy_rls
from dsel.search.method import CrossValidation, Method, Options, ProblemSummary, Requirements, SearchTask
from dsel.search.outcome import FrontPoint, SearchOutcome

log = logging.getLogger("dsel")


def _grid(value: Any) -> Any:
    """Validate all forms of the grid at once, so that an error is one sentence."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    numbers = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if not numbers or any(isinstance(lam, bool) or not isinstance(lam, Real) for lam in numbers):
        raise ValueError("it must be auto or numbers > 0")
    lams = tuple(float(lam) for lam in numbers)
    if not all(0.0 < lam < float("inf") for lam in lams):
        raise ValueError("it must be auto or numbers > 0")
    return lams


LamGrid = Annotated[Literal["auto"] | tuple[float, ...] | None, BeforeValidator(_grid)]


class CrossValidationOptions(Options):
    """Options of selection by the error on left-out rows.

    Parameters
    ----------
    lam_grid : "auto" or sequence of float, optional
        Values of lam to choose from, by the error with all columns; "auto" for 4^-8, ..., 4^8. By default lam is the
        `lam` of the request.
    direction : {"forward", "backward", "floating"}
        Insert columns; or delete columns, starting from all of them; or delete columns after each insertion as long as
        that gives a better subset of its size.
    held_out : float, str, AnyPath or pair (X, Y), optional
        Rows on which the test error of every step is reported. A number is the share of the rows that are drawn at
        random and take no part in the selection. A store has its targets and weights under the names that the data
        have.
    """

    lam_grid: LamGrid = None
    direction: Direction = "forward"
    held_out: Any = None

    @field_validator("held_out")
    @classmethod
    def _share(cls, value: Any) -> Any:
        return float(value) if is_share(value) else value

    @property
    def penalties(self) -> tuple[float, ...]:
        """The values of lam to choose from; empty where lam is given."""
        if self.lam_grid is None:
            return ()
        return LAM_GRID if self.lam_grid == "auto" else self.lam_grid


def run(task: SearchTask) -> SearchOutcome:
    """Run rounds until k columns are chosen. Each round asks for the errors of all neighbours of the subset."""
    objective, options, rows = task.objective, task.options, task.rows
    assert rows is not None
    include = list(objective.included)
    candidates = [int(j) for j in objective.columns]
    lam, tried = objective.lam, None
    if task.state is not None:
        lam = task.state["lam"]
    elif options.penalties:
        lam, tried = choose_lam(rows, options.penalties, sorted([*include, *candidates]))
        log.info("lam = %g by leave-one-out with all columns", lam)
    search = GreedyRls(rows.problem(lam), task.k + len(include), candidates, include, options.direction)
    search.lam_grid = tried
    if task.state is not None:
        search.restore(task.state)
    rounds = run_greedy_rls(search, rows, task.on_slice)
    chosen = search.answer()
    local = {column: place for place, column in enumerate(candidates)}
    members = tuple(local[j] for j in chosen if j in local)
    counts: dict[str, Any] = {"rounds": search.iteration, "rounds_of_this_run": rounds, **rows.counts()}
    if search.lam_grid is not None:
        counts["lam_grid"] = search.lam_grid
    return SearchOutcome(
        (FrontPoint(len(members), objective.value(members), members),), iterations=search.iteration,
        ended=search.ended, counts=counts, path=tuple(search.path), chosen=tuple(chosen), lam=lam,
        passes=rows.passes,
    )  # fmt: skip


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
    rewrite_every : int or {"auto", "never"}
        Where X is not in memory, the rounds between two rewrites of a cache on disk, which is as large as X in float64
        (1: the paper's Algorithm 3). "auto" takes what costs least in a job, and "never" in `dsel.select`. The cache
        goes with `direction` forward only.
    """

    renamed: ClassVar[dict[str, str]] = {"fold_every": "rewrite_every"}

    loss: Loss = "squared"
    intercept: Intercept | None = None
    rewrite_every: Annotated[int | Literal["auto", "never"], BeforeValidator(_rounds)] = "auto"

    @model_validator(mode="after")
    def _forward_only(self) -> GreedyRlsOptions:
        if isinstance(self.rewrite_every, int) and self.direction != "forward":
            raise ValueError(f"rewrite_every goes with direction forward, not {self.direction}")
        return self


class KfoldOptions(CrossValidationOptions):
    """Options of selection by K-fold cross-validation.

    Parameters
    ----------
    folds : int
        K, the number of folds. The index of a row and the seed decide its fold.
    repeats : int
        How often the rows are divided into folds.
    split : {"random", "blocks", "forward"}
        Divide the rows at random, or into blocks of consecutive rows. With "forward" each block but the first is
        predicted from the blocks before it, as for a time series. Or a splitter of scikit-learn, or pairs of row
        numbers to train and to test on, without `folds`.
    gap : int
        With split "blocks" or "forward": rows next to a tested block that no model of it is trained on.
    row_groups : str or (m,) array, optional
        The group of each row. All rows of a group are in one fold. A store names a variable over its samples.
    """

    folds: Int = Field(10, ge=2)
    repeats: Int = Field(1, ge=1)
    split: RowSplits = "random"
    gap: Int = Field(0, ge=0)
    row_groups: RowGroups = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_split(self.split, self.repeats, self.row_groups, self.gap, self.is_changed("folds"))
        return self


def requirements(problem: ProblemSummary, options: CrossValidationOptions) -> Requirements:
    """Return what the rounds need.

    Greedy RLS needs a row of the Gram matrix, and a pass over the data, for each round. K-fold cross-validation needs
    the Gram matrices of all folds, or their rows of chosen columns. Errors: OptionError for a penalty next to a grid.
    """
    if options.lam_grid is not None and problem.lam:
        raise OptionError("lam and lam_grid are both given.", "Leave one of them out.")
    shared = {field.name for field in fields(CrossValidation)} & set(type(options).model_fields)
    scored = CrossValidation(
        penalties=len(options.penalties), **{name: getattr(options, name) for name in shared}
    )  # fmt: skip
    return Requirements(whole_gram=scored.whole_gram, few_columns=True, cross_validation=scored)


def _method(name: str, summary: str, options: type[CrossValidationOptions]) -> Method:
    return Method(
        name, summary, run, options=options, requirements=requirements, uses_rows=True, every_size=True,
        no_groups="its left-out errors are updated column by column",
    )  # fmt: skip


GREEDY_RLS = _method(
    "greedy-rls", "Insert or delete columns by the exact leave-one-out error of ridge regression (greedy RLS).",
    GreedyRlsOptions,
)  # fmt: skip
KFOLD = _method(
    "kfold", "Insert or delete columns by the K-fold cross-validated error of ridge regression.", KfoldOptions
)
