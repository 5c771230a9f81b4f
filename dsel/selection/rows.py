"""The rows of a result's tables: the front, the improvements of the search, and the steps of a path."""

from __future__ import annotations

from dataclasses import dataclass


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
