"""How a randomized eigendecomposition is made: its rank or accuracy, and its cost."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dsel.config.types import Float, Int, first_error
from dsel.errors import OptionError

#: The largest rank for an accuracy, if none is given.
MOST_RANK = 1000


class SketchRule(BaseModel):
    """How X is replaced by a randomized sketch of lower rank.

    Parameters
    ----------
    rank : int, optional
        The rank. With `accuracy` the largest rank, by default 1000.
    accuracy : float, optional
        The share of ||X||^2 to capture, between 0 and 1. The rank is doubled until it is reached.
    oversampling : int
        Further random vectors beyond the rank.
    power_iterations : int
        Power iterations. Each one takes two passes over the data and makes the sketch sharper.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: Int | None = Field(None, ge=1)
    accuracy: Float | None = Field(None, gt=0, lt=1)
    oversampling: Int = Field(10, ge=0)
    power_iterations: Int = Field(2, ge=1)

    @model_validator(mode="after")
    def _limit(self) -> Self:
        if self.rank is None and self.accuracy is None:
            raise ValueError("give the rank or the accuracy of the sketch")
        return self

    @property
    def most(self) -> int:
        """The largest rank."""
        return MOST_RANK if self.rank is None else self.rank


def sketch_rule(**values: Any) -> SketchRule:
    """Return the rule with these values. Errors: OptionError."""
    try:
        return SketchRule(**values)
    except ValidationError as error:
        raise OptionError(first_error(error, SketchRule)) from error
