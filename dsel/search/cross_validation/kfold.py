"""Selection by the K-fold cross-validated squared error of ridge regression, from one pass over the data."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from dsel.config.size_rule import RowGroups, RowSplit, check_split
from dsel.config.types import Int
from dsel.search.cross_validation.base import CrossValidationOptions, run
from dsel.search.method import CrossValidation, Method, ProblemSummary, Requirements


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
        predicted from the blocks before it, as for a time series.
    row_groups : str or (m,) array, optional
        The group of each row. All rows of a group are in one fold. A store names a variable over its samples.
    """

    folds: Int = Field(10, ge=2)
    repeats: Int = Field(1, ge=1)
    split: RowSplit = "random"
    row_groups: RowGroups = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_split(self.split, self.repeats, self.row_groups)
        return self


def requirements(problem: ProblemSummary, options: KfoldOptions) -> Requirements:
    """Return what K-fold cross-validation needs: the Gram matrices of all folds, or their rows of chosen columns."""
    scored = CrossValidation(
        folds=options.folds, repeats=options.repeats, direction=options.direction, penalties=len(options.penalties),
        held_out=options.held_out, split=options.split, row_groups=options.row_groups,
    )  # fmt: skip
    return Requirements(whole_gram=scored.whole_gram, few_columns=True, cross_validation=scored)


METHOD = Method(
    "kfold",
    "Insert or delete columns by the K-fold cross-validated error of ridge regression.",
    run,
    options=KfoldOptions,
    requirements=requirements,
    uses_rows=True,
    every_size=True,
    no_groups="its left-out errors are updated column by column",
)
