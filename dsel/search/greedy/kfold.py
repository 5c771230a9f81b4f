"""Selection by the K-fold cross-validated squared error of ridge regression, from one pass over the data."""

from __future__ import annotations

from pydantic import Field

from dsel.config.types import Int
from dsel.search.greedy.cross_validated_base import CrossValidationOptions, run
from dsel.search.method import CrossValidation, Method, ProblemSummary, Requirements


class KfoldOptions(CrossValidationOptions):
    """Options of selection by K-fold cross-validation.

    Parameters
    ----------
    folds : int
        K, the number of folds. The index of a row and the seed decide its fold.
    repeats : int
        How often the rows are divided into folds.
    """

    folds: Int = Field(10, ge=2)
    repeats: Int = Field(1, ge=1)


def requirements(problem: ProblemSummary, options: KfoldOptions) -> Requirements:
    """Return what K-fold cross-validation needs: the Gram matrices of all folds."""
    scored = CrossValidation(
        folds=options.folds, repeats=options.repeats, direction=options.direction, penalties=len(options.penalties),
        held_out=options.held_out,
    )  # fmt: skip
    return Requirements(whole_gram=True, cross_validation=scored)


METHOD = Method(
    "kfold",
    "Insert or delete columns by the K-fold cross-validated error of ridge regression.",
    run,
    options=KfoldOptions,
    requirements=requirements,
    uses_rows=True,
)
