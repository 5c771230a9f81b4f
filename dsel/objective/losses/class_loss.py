"""What losses for classes have in common: the values of the classes, and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dsel._lib.text import shorten
from dsel._lib.types import Floats
from dsel.errors import DataError
from dsel.objective.losses.loss import Loss

#: Truth values as text, as a request has them: an array of them is one of 0 and 1.
_TRUTH: dict[Any, float] = {"False": 0.0, "True": 1.0}


@dataclass(frozen=True)
class ClassLoss(Loss):
    """A loss whose targets are classes.

    classes: the values of the targets in the data. class_weight: what was asked for: "balanced", a weight for some of
    the values, or None. factors: by which the rows of each class are multiplied; empty for 1.
    """

    classes: tuple[float, ...] = (0.0, 1.0)
    class_weight: Any = None
    factors: tuple[float, ...] = ()

    classifies = True
    endless = "separate the classes"

    def row_weights(self, y: Floats, w: Floats | None) -> Floats | None:
        """Return the weights of rows, multiplied by those of their classes."""
        if not self.factors:
            return w
        found = np.asarray(self.factors)[y.astype(np.int64)]
        return found if w is None else found * w

    def without_class_weights(self) -> Self:
        return replace(self, class_weight=None, factors=())

    def with_classes(self, values: Floats, y: Floats, w: Floats | None) -> Self:
        """Return the loss with classes of these values, and with their weights for the targets y as in the data."""
        found = replace(self, classes=tuple(float(value) for value in values), factors=())
        if self.class_weight is None:
            return found
        if self.class_weight == "balanced":
            sums = np.bincount(found.encode(y).astype(np.int64), w)
            factors = sums.sum() / (sums.size * sums)
        else:
            factors = _stated(self.class_weight, found.classes)
        return replace(found, factors=tuple(factors.tolist()))


def _stated(weights: Mapping[Any, float], classes: tuple[float, ...]) -> Floats:
    """Return the stated weight of each class, and 1 where none is. Errors: DataError for other classes."""
    factors, place = np.ones(len(classes)), {value: i for i, value in enumerate(classes)}
    for name, weight in weights.items():
        try:
            factors[place[float(_TRUTH.get(name, name))]] = weight
        except (KeyError, TypeError, ValueError) as error:
            known = shorten([f"{value:g}" for value in classes])
            raise DataError(f"class_weight has the class {name!r}, and the classes are {known}.") from error
    return factors
