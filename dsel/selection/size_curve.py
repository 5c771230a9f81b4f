"""The curve along which ``k="auto"`` chooses the number of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Values that differ by at most this share are equal, and the smaller size wins.
_TIE = 1e-12


@dataclass(frozen=True)
class SizePoint:
    """One size on the curve.

    Parameters
    ----------
    size : int
        The number of columns, always included ones counted.
    value : float
        The squared error per left-out row, on the preprocessed data, summed over targets; or the information
        criterion.
    standard_error : float, optional
        The standard error of the error; None for an information criterion.
    """

    size: int
    value: float
    standard_error: float | None = None


@dataclass(frozen=True)
class SizeCurve:
    """How ``k="auto"`` chose the number of columns.

    Parameters
    ----------
    rule : str
        The criterion: folds, held-out, bic, ebic or path.
    description : str
        The rule in words.
    k : int
        The chosen size.
    one_standard_error : bool
        Whether the smallest size within one standard error of the best was chosen.
    points : tuple of SizePoint
        All sizes, ascending.
    """

    rule: str
    description: str
    k: int
    one_standard_error: bool
    points: tuple[SizePoint, ...]

    @classmethod
    def choose(
        cls, rule: str, description: str, points: tuple[SizePoint, ...], one_standard_error: bool = False
    ) -> SizeCurve:
        """Return the curve with the chosen size: the one of least value, or the smallest near it."""
        best = min(points, key=lambda point: (point.value, point.size))
        limit = best.value + _TIE * abs(best.value)
        if one_standard_error and best.standard_error is not None:
            limit = best.value + best.standard_error
        k = min(point.size for point in points if point.value <= limit)
        return cls(rule, description, k, one_standard_error, points)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SizeCurve:
        """Return the curve that was saved as JSON."""
        return cls(**{**values, "points": tuple(SizePoint(**point) for point in values["points"])})
