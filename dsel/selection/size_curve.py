"""The curve along which ``k="auto"`` chooses the number of columns.

The rows of a result's tables: the front, the improvements of the search, and the steps of a path.
"""

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


@dataclass(frozen=True)
class FrontRow:
    """The best subset found of one size.

    Parameters
    ----------
    size : int
        Number of columns, or of groups of columns, those that are always included counted.
    error : float
        f(S).
    r2 : float
        Share of ||Y||^2 that is explained, without the ridge penalty.
    indices : tuple of int
        The columns, 0-based.
    criterion : float, optional
        Value of the custom criterion, if one was minimized.
    """

    size: int
    error: float
    r2: float
    indices: tuple[int, ...]
    criterion: float | None = None


@dataclass(frozen=True)
class TraceRow:
    """An improvement of the best subset of at most k columns.

    Parameters
    ----------
    iteration : int
        Iterations until then.
    size : int
        Number of columns of the new best subset.
    error : float
        Its f(S), or its criterion.
    """

    iteration: int
    size: int
    error: float


@dataclass(frozen=True)
class PathRow:
    """One step of a method that minimizes a cross-validated error.

    Parameters
    ----------
    action : {"insert", "remove"}
        What the step did.
    index : int
        The column, 0-based.
    label : str
        Its label.
    size : int
        Number of columns after the step.
    error : float
        Error per left-out row: squared, on the preprocessed data, summed over targets; or the share of wrong labels.
    accuracy : float, optional
        Share of right labels, for the zero-one loss.
    test_error, test_accuracy : float, optional
        The same on held-out rows, if there are any.
    """

    action: str
    index: int
    label: str
    size: int
    error: float
    accuracy: float | None = None
    test_error: float | None = None
    test_accuracy: float | None = None
