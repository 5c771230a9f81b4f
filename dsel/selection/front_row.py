"""A subset of columns with its error."""

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
