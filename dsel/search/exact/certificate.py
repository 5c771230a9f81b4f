"""The certificate of a subset: its value, and a proved lower bound on the value of all subsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsel._lib.tolerances import MARGIN
from dsel.errors import OptionError
from dsel.objective.base import Objective
from dsel.search.exact.base import consistent_bound

#: Fields that certificates of older versions do not have.
_LATER = ("error", "excluded", "columns", "screened", "read", "passes", "coefficients")
#: The `method` of a certificate whose size counts groups of columns.
GROUPS = "branch-and-bound over groups"


@dataclass(frozen=True)
class Certificate:
    """What is proved about the best subset of at most `size` columns.

    Attributes
    ----------
    size : int
        The most columns, always included ones counted.
    value : float
        f of the best known subset.
    bound : float
        Proved lower bound on f of all allowed subsets of at most `size` columns, see Notes. `error` is subtracted.
    total : float
        ||Y||_F^2 of the preprocessed targets.
    indices : tuple of int
        The best known subset, as column indices of the data.
    nodes : int
        Nodes of branch and bound that were visited in all runs of the proof.
    seconds : float
        Wall time of all runs of the proof.
    method : str
        What proved `bound`.
    better : bool
        Whether `value` is below f of the subset that was to be certified, by more than 1e-10 of ||Y||^2.
    error : float
        The share of ||Y||^2 that rounding and ridges in the proof may be worth.
    excluded : float
        The share of ||Y||^2 by which a dependent subset, which the proof does not cover, may be better; 0 if there is
        none.
    columns : int
        The number of columns that may be chosen, if the proof made passes over the data; 0 otherwise.
    screened : int
        How many of these are in no better subset, by their reduced costs.
    read : int
        How many of these were read into memory. The others were bounded by the passes alone.
    passes : int
        Passes over the data in all runs of the proof.
    coefficients : float
        If not 0, the bound is about subsets whose squared coefficients, for columns of norm 1, sum to at most this
        share of ||Y||^2. Others may be better.

    Notes
    -----
    f(S) = min_A ||Y - X_S A||_F^2 + lam ||A||_F^2, on the preprocessed data. The certificate guarantees

        f(T) >= bound

    for every allowed subset T of at most `size` columns. T is allowed if it holds the included columns, no excluded or
    constant column, and is independent. It is independent if the others of T leave more than 1e-7 of the squared norm
    of each chosen column (`dsel._lib.tolerances.DEPENDENCE_TOLERANCE`). No method chooses another subset, and the proof
    does not cover them. `excluded` says how much better one of them may be.

    The bound holds in floating point: `error` was subtracted. It covers the ridge that keeps rounding small, and
    rounding itself, taken as 8 n eps of a column's squared norm for n columns (`dsel.search.exact.guarantee`), and that
    of means (`dsel.objective.centering`). It is negligible unless columns are nearly dependent, more columns than rows
    make it impossible to exclude that, or means are much larger than deviations.

    `proven` means that the gap is at most 2e-10 of ||Y||_F^2 and `error`.
    """

    size: int
    value: float
    bound: float
    total: float
    indices: tuple[int, ...] = ()
    nodes: int = 0
    seconds: float = 0.0
    method: str = "branch-and-bound"
    better: bool = False
    error: float = 0.0
    excluded: float = 0.0
    columns: int = 0
    screened: int = 0
    read: int = 0
    passes: int = 0
    coefficients: float = 0.0

    @property
    def gap(self) -> float:
        """value - bound: the best subset is better by at most this."""
        return max(self.value - self.bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the value, 0 if the value is 0."""
        return self.gap / self.value if self.value > 0.0 else 0.0

    @property
    def relative_to_total(self) -> float:
        """The gap as a share of ||Y||^2: R^2 of the best subset is higher by at most this."""
        return self.gap / self.total if self.total > 0.0 else 0.0

    @property
    def proven(self) -> bool:
        """Whether the known subset is the best one, see Notes."""
        return bool(self.gap <= (2.0 * MARGIN + self.error) * self.total)

    @property
    def effort(self) -> str:
        """What the proof took, in words: nodes, and where it made passes over the data, what they screened."""
        return effort(self.as_dict())

    @property
    def claim(self) -> str:
        """What is proved if `proven`, in words."""
        return claim(self.error, self.excluded, self.coefficients)

    def merged(self, other: Certificate) -> Certificate:
        """Return the better value and the better bound of two certificates of the same size.

        A bound that the better value contradicts is dropped.
        """
        if other.size != self.size:
            raise OptionError(f"Certificates of {self.size} and {other.size} columns cannot be merged.")
        if self.coefficients != other.coefficients:
            return self._widest(other)
        best = other if other.value < self.value else self
        bounds = (consistent_bound(one.bound, best.value, best.total, one.error) for one in (self, other))
        return replace(
            best, bound=max(bounds), error=max(self.error, other.error), excluded=max(self.excluded, other.excluded),
            nodes=self.nodes + other.nodes,
            seconds=self.seconds + other.seconds, better=self.better or other.better,
            columns=max(self.columns, other.columns), screened=max(self.screened, other.screened),
            read=max(self.read, other.read), passes=max(self.passes, other.passes),
        )  # fmt: skip

    def _widest(self, other: Certificate) -> Certificate:
        """Return one of two certificates about different subsets, this one unless the other covers more by a bound."""
        reach, others = (one.coefficients or float("inf") for one in (self, other))
        first, second = (self, other) if reach > others else (other, self)
        found = first if first.bound >= second.bound else self
        value = min(self.value, other.value)
        best = other if other.value < self.value else self
        return replace(found, value=value, indices=best.indices, bound=min(found.bound, value),
                       better=self.better or other.better)  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON holds it, with the derived figures."""
        return {
            "size": self.size, "value": self.value, "bound": self.bound, "gap": self.gap,
            "relative_gap": self.relative_gap, "relative_to_total": self.relative_to_total, "proven": self.proven,
            "r2": 1.0 - self.value / self.total if self.total else 0.0,
            "r2_bound": 1.0 - self.bound / self.total if self.total else 0.0,
            "total": self.total, "indices": list(self.indices), "nodes": self.nodes, "seconds": self.seconds,
            "method": self.method, "better": self.better, "error": self.error, "excluded": self.excluded,
            "columns": self.columns, "screened": self.screened, "read": self.read, "passes": self.passes,
            "coefficients": self.coefficients,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """Return the certificate that `as_dict` wrote."""
        names = ("size", "value", "bound", "total", "nodes", "seconds", "method", "better")
        later = {name: values[name] for name in _LATER if name in values}
        return cls(**{name: values[name] for name in names}, **later, indices=tuple(values["indices"]))


def claim(error: float, excluded: float, coefficients: float = 0.0) -> str:
    """Return what a finished proof shows, in words. error, excluded, coefficients: those of `Certificate`."""
    words = "proved optimal" if error <= 1e-8 else f"proved optimal to {error:.0e} of ||Y||^2"
    if coefficients:
        return f"{words} {covered(coefficients)}"
    return f"{words} among independent subsets" if excluded else words


def covered(coefficients: float) -> str:
    """Return which subsets a proof with a limit for coefficients is about, in words."""
    return f"among subsets whose squared coefficients sum to at most {coefficients:.3g} of ||Y||^2"


def effort(row: Mapping[str, Any]) -> str:
    """Return what a proof took, in words: nodes, and if it made passes over the data, what they screened.

    row: what `Certificate.as_dict` returns.
    """
    words = f"{row['nodes']:,} nodes"
    if not row.get("columns"):
        return words
    passes = f", {row['passes']} passes" if row["passes"] else ""
    read = f"{row['read']:,} of {row['columns']:,} columns read into memory"
    return f"{words}{passes}; {row['screened']:,} columns screened, {read}"


def nothing_to_choose(objective: Objective) -> Certificate:
    """Return the certificate of the included columns alone."""
    size = len(objective.included)
    return Certificate(
        size, objective.c, objective.c, objective.total, tuple(objective.included), method="nothing to choose"
    )


def across_sizes(found: Mapping[int, Certificate]) -> dict[int, Certificate]:
    """Return the certificates by size, each with the best bound of this and all larger sizes.

    A bound for more columns also holds for fewer, because a subset of few columns is one of at most more columns.
    """
    result: dict[int, Certificate] = {}
    bound, error = 0.0, 0.0
    for size in sorted(found, reverse=True):
        if found[size].coefficients:  # it is not about all subsets
            result[size] = replace(found[size], bound=max(found[size].bound, min(bound, found[size].value)))
            continue
        bound, error = max(bound, found[size].bound), max(error, found[size].error)
        holds = consistent_bound(bound, found[size].value, found[size].total, error)
        result[size] = replace(found[size], bound=holds, error=error)
    return dict(sorted(result.items()))
