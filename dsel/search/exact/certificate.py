"""The certificate of a subset: its value, and a proved lower bound on the value of all subsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from dsel._lib.tolerances import MARGIN
from dsel.errors import OptionError
from dsel.objective.objective_interface import ItemObjective, Objective

#: What a certificate proves, the most first, see `Certificate.status`.
Status = Literal["optimal", "optimal-except-near-copies", "bounded", "no-useful-bound"]
#: What older versions called fields. They do not have all fields.
_EARLIER_NAMES = {"rounding_error": "error", "dependent_gap": "excluded"}
#: Of two certificates that are merged: what is about the last run, and what a proof that continues keeps.
_OF_LAST_RUN = ("node_seconds", "time_limit", "time_needed", "ended_by")
_KEPT = ("leaves_checked", "leaves_searched", "began_again")
#: How the `method` of a certificate begins that a tree over groups of columns proved.
GROUPS = "branch-and-bound over groups"
#: The `method` of certificates of all sizes by one traversal. Each has all of its nodes and of its time.
ALL_SIZES = "leaps and bounds over all sizes"
#: The `method` of a certificate without a bound: the proof had too little time to begin.
NO_TIME = "no time for a bound"
#: How the `method` of a certificate begins where only one subset may be chosen.
NOTHING = "nothing to choose"
#: How the `method` of a certificate ends whose bound is that of a reduced problem, lowered by what it leaves out.
REDUCED = ", on a reduced problem"
#: A bound that exceeds the value of a subset by more than this share of ||Y||^2, and by more than the error of the
#: proof (dsel.search.exact.guarantee), is wrong.
CONTRADICTION = 1e-6
#: The most that rounding, and what near-copies may explain, may be worth in a proof, as shares of ||Y||^2.
MOST_ROUNDING = _MOST_EXCEPTED = 1e-6
#: A finished proof says more than another one if it leaves less open by more than this share of ||Y||^2.
_SAYS_MORE = 1e-8
#: A bound below this share of the value is of no use.
_USEFUL = 0.01


def consistent_bound(bound: float, value: float, total: float, error: float = 0.0) -> float:
    """Return a lower bound on f given the value of one subset: at most that value, and 0 if they contradict.

    error: how far the bound may be above f, as a share of `total`. A bound that is not finite is 0.
    """
    return max(min(bound, value), 0.0) if 0.0 <= bound <= value + max(CONTRADICTION, error) * total else 0.0


@dataclass(frozen=True)
class Certificate:
    """What is proved about the best subset of at most `size` columns.

    Attributes
    ----------
    size : int
        The most columns or groups of columns, always included ones counted.
    value : float
        f of the best known subset.
    bound : float
        Proved lower bound on f of all allowed subsets of at most `size` columns, see Notes. `rounding_error` is
        subtracted.
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
    rounding_error : float
        The share of ||Y||^2 that rounding and ridges in the proof may be worth.
    dependent_gap : float
        The share of ||Y||^2 by which a dependent subset, which the proof does not cover, may be better; 0 if there is
        none.
    near_copies : tuple of tuple of int
        Sets of columns of which no allowed subset has all: the last one is nearly a copy of the other, or nearly a
        combination of the others. Empty if there are none, or if they could not be told.
    columns : int
        The number of columns that may be chosen, if the proof made passes over the data; 0 otherwise.
    screened : int
        How many of these are in no better subset, by their reduced costs.
    read : int
        How many of these the search had in memory. The others were bounded by the passes alone.
    passes : int
        Passes over the data in all runs of the proof.
    coefficients : float
        If not 0, the bound is about subsets whose squared coefficients, for columns of norm 1, sum to at most this
        share of ||Y||^2. Others may be better.
    largest_coefficient : float
        If not 0, the bound is about fits whose coefficients are at most this: of columns of norm 1 by the squared
        error, and by a loss of columns after preprocessing, without a penalty of those divided by their standard
        deviation, or where there is no intercept by their root mean square. Others may be better.
    represented : int
        How many columns were left out because another one, which nearly copies them, represents them. Without a
        penalty and a limit for coefficients, multiples up to the rounding of float64 do not count.
    leaves_checked : int
        Leaves of the tree of an earlier proof, on data that have grown since, that were bounded again.
    leaves_searched : int
        How many of these were searched, because their bound no longer sufficed.
    cpu_seconds : float
        Processor seconds of all runs of the proof, without its workers.
    began_again : str
        Why the proof of a later run did not continue that of the run before. Empty if it did, or if there was none.
    noise : float
        If not 0, value and bound are those of noisy sums. On the rows, f of every covered subset is at least
        ``bound - noise * total``, with probability 1 - 1e-6.
    node_seconds : float
        If not 0, the last run visited no node, because its time was shorter than a node takes: about these seconds.
    closed : bool
        Whether no node is open in a proof by a loss. A gap that is left then comes from fits that do not converge.
    groups : bool
        Whether `size` counts groups of columns.
    beyond : tuple of (float, float, float)
        Of a bound within a limit, what other proofs show about subsets beyond it: a lower bound that is less good, and
        its limits `coefficients` and `largest_coefficient`, both 0 for all subsets.
    ended_by : str
        The option that ended the last run where that was neither its time nor a proof: "nodes", or one with its value,
        such as "memory=200000" or "gamma=inf".
    time_limit, time_needed : float
        If `node_seconds` is not 0, the time limit in seconds, and the one that suffices for nodes; 0 if not known.

    Notes
    -----
    f(S) = min_A ||Y - X_S A||_F^2 + lam ||A||_F^2, on the preprocessed data. The certificate guarantees

        f(T) >= bound

    for every allowed subset T of at most `size` columns. T is allowed if it holds the included columns, no excluded or
    constant column, and is independent. It is independent if the others of T leave more than 1e-7 of the squared norm
    of each chosen column (`dsel._lib.tolerances.DEPENDENCE_TOLERANCE`). No method chooses another subset, and the proof
    does not cover them. `dependent_gap` says how much better one of them may be.

    The bound holds in floating point: `rounding_error` was subtracted. It covers the ridge that keeps rounding small,
    and rounding itself, taken as 8 n eps of a column's squared norm for n columns (`dsel.search.exact.guarantee`), and
    that of means (`dsel.objective.centering`). It is negligible unless columns are nearly dependent, more columns than
    rows make it impossible to exclude that, or means are much larger than deviations.
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
    rounding_error: float = 0.0
    dependent_gap: float = 0.0
    near_copies: tuple[tuple[int, ...], ...] = ()
    columns: int = 0
    screened: int = 0
    read: int = 0
    passes: int = 0
    coefficients: float = 0.0
    largest_coefficient: float = 0.0
    represented: int = 0
    leaves_checked: int = 0
    leaves_searched: int = 0
    cpu_seconds: float = 0.0
    began_again: str = ""
    noise: float = 0.0
    node_seconds: float = 0.0
    time_limit: float = 0.0
    time_needed: float = 0.0
    closed: bool = False
    groups: bool = False
    beyond: tuple[tuple[float, float, float], ...] = ()
    ended_by: str = ""

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
    def status(self) -> Status:
        """What is proved, in one word.

        "optimal": the gap is at most 2e-10 of ||Y||^2 and what rounding is worth, which counts up to 1e-6 of ||Y||^2;
        and every independent subset is covered. "optimal-except-near-copies": the same, and dependent ones may be
        better by `dependent_gap`; or subsets with columns that others represent are not covered.
        "no-useful-bound": the bound is below 1 % of the value. "bounded": any other gap.
        """
        if self.gap <= (2.0 * MARGIN + min(self.rounding_error, MOST_ROUNDING)) * self.total:
            return "optimal-except-near-copies" if self.dependent_gap or self.represented else "optimal"
        return "no-useful-bound" if self.bound < _USEFUL * self.value else "bounded"

    @property
    def reach(self) -> tuple[float, float]:
        """The limits for coefficients, within which subsets are covered; 0 for none."""
        return self.coefficients, self.largest_coefficient

    @property
    def claims(self) -> tuple[tuple[float, float, float], ...]:
        """All bounds that are proved, each with its limits; see `beyond`."""
        return ((self.bound, *self.reach), *self.beyond)

    @property
    def undecided(self) -> bool:
        """Whether subsets may be nearly dependent that cannot be told, as with more columns than rows."""
        return bool(self.dependent_gap) and not self.near_copies

    @property
    def proven(self) -> bool:
        """Whether the known subset is the best one, or dependent subsets alone are better, by at most 1e-6 of ||Y||^2.

        Within a limit for coefficients, if there is one.
        """
        status = self.status
        if self.represented:  # nothing is known about how much better a subset with a near-copy may be
            return False
        return status == "optimal" or (status == "optimal-except-near-copies" and self.dependent_gap < _MOST_EXCEPTED)

    def merged(self, other: Certificate, *, of_list: bool = False) -> Certificate:
        """Return the better value and the better bound of this certificate and a newer one of the same size.

        The bound, and all that says how it was proved, are those of one proof: of two that prove as much, of the newer
        one, whose log may be there; but if a list of near-best subsets proved it once more (`of_list`), of this one. A
        finished proof counts as much as another one, whose bound may be better by what counts as equally good. A bound
        that the better value contradicts is dropped. Of different limits, the better bound counts, and of equal ones
        that of the wider limit. A bound that is less good stays in `beyond` if it is about other subsets, too.
        """
        if other.size != self.size:
            raise OptionError(f"Certificates of {self.size} and {other.size} columns cannot be merged.")
        margin = MARGIN * self.total
        best = other if other.value < self.value else self
        known: dict[str, Any] = {
            "value": best.value, "indices": best.indices, "better": self.better or other.better,
        }  # fmt: skip
        if self.reach != other.reach:  # the wider one counts, or else the newer, unless it proves less
            first, second = (self, other) if _covers(self.reach, other.reach) else (other, self)
            margin += (MARGIN + min(first.rounding_error, MOST_ROUNDING)) * self.total
            proof = first if first.bound > second.bound - margin else second
            proof = replace(proof, **known, bound=min(proof.bound, best.value))
            return replace(proof, beyond=_beyond(proof, (*self.claims, *other.claims), margin))
        bounds = [consistent_bound(one.bound, best.value, best.total, one.rounding_error) for one in (self, other)]
        mine, theirs = (replace(one, **known, bound=at) for one, at in zip((self, other), bounds, strict=True))
        finished, lead = of_list and mine._is_finished, -margin if of_list else margin
        stays = not theirs._says_more(mine) if finished else mine.bound > theirs.bound + lead
        if stays:
            proof = mine if finished else replace(mine, **{name: getattr(other, name) for name in _OF_LAST_RUN})
        else:
            before = {} if other.began_again else {name: getattr(other, name) or getattr(self, name) for name in _KEPT}
            proof = replace(theirs, **before)
        return replace(proof, beyond=_beyond(proof, (*self.beyond, *other.beyond), margin))

    @property
    def _is_finished(self) -> bool:
        """Whether the gap is rounding, and what counts as equally good."""
        return self.gap <= (2.0 * MARGIN + self.rounding_error) * self.total

    def _says_more(self, other: Certificate) -> bool:
        """Return whether this proof leaves less open than a finished one, and nothing that the other one does not."""
        mine, others = (
            (get_args(Status).index(one.status), one.represented, one.relative_to_total, one.rounding_error,
             one.dependent_gap) for one in (self, other)
        )  # fmt: skip
        pairs = list(zip(mine, others, strict=True))
        return all(a <= b + _SAYS_MORE for a, b in pairs) and any(a < b - _SAYS_MORE for a, b in pairs)

    def about(self, size: int, value: float, indices: Sequence[int]) -> Certificate:
        """Return what this certificate proves about another known subset, of its size or smaller.

        A bound for more columns also holds for fewer, because a subset of few columns is one of at most more columns.
        """
        hidden = min(self.dependent_gap + max(value - self.value, 0.0) / self.total, value / self.total)
        return replace(
            self, size=size, value=value, indices=tuple(indices), better=False,
            bound=consistent_bound(self.bound, value, self.total, self.rounding_error),
            dependent_gap=hidden if self.dependent_gap and hidden > 2.0 * MARGIN else 0.0,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON holds it, with the derived figures.

        r2, r2_bound: 1 - f / ||Y||^2 of the value and of the bound. A ridge penalty is a part of f.
        """
        return {
            "size": self.size, "status": self.status, "proven": self.proven, "value": self.value, "bound": self.bound,
            "gap": self.gap, "relative_gap": self.relative_gap, "relative_to_total": self.relative_to_total,
            "r2": 1.0 - self.value / self.total if self.total else 0.0,
            "r2_bound": 1.0 - self.bound / self.total if self.total else 0.0,
            **asdict(self), "indices": list(self.indices),
            "near_copies": [list(columns) for columns in self.near_copies],
            "beyond": [list(claim) for claim in self.beyond],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """Return the certificate that `as_dict` wrote, in this version or an older one. What is derived is not read."""
        names = {field.name: _EARLIER_NAMES.get(field.name, field.name) for field in fields(cls)}
        known = {name: values.get(name, values.get(earlier)) for name, earlier in names.items()}
        known["indices"] = tuple(values["indices"])
        for name in ("near_copies", "beyond"):
            known[name] = tuple(tuple(one) for one in values.get(name, ()))
        return cls(**{name: value for name, value in known.items() if value is not None})


def _covers(reach: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether subsets within limits for coefficients are all those within other limits, or more."""
    return all(not limit or 0.0 < smaller <= limit for limit, smaller in zip(reach, other, strict=True))


def _beyond(
    proof: Certificate, claims: Iterable[tuple[float, float, float]], margin: float
) -> tuple[tuple[float, float, float], ...]:
    """Return the bounds with their limits that neither the proof nor another one of them implies, best first."""
    kept = [proof.claims[0]]
    for bound, *reach in sorted(claims, reverse=True):
        if bound > 0.0 and not any(at >= bound - margin and _covers(limits, reach) for at, *limits in kept):
            kept.append((bound, reach[0], reach[1]))
    return tuple(kept[1:])


def is_finished(row: Mapping[str, Any], *, limited: bool) -> bool:
    """Return whether a proof has no gap but what rounding is worth, so that none later can show more.

    row: what `Certificate.as_dict` returns. limited: whether the later proof has a limit for coefficients, by which
    rounding is worth less.
    """
    about_all = not (row["coefficients"] or row["largest_coefficient"] or row["method"].endswith(REDUCED))
    rounding = row["gap"] <= (2.0 * MARGIN + row["rounding_error"]) * row["total"] and not limited
    return about_all and bool(rounding or row["status"].startswith("optimal"))


def nothing_to_choose(objective: Objective, rounding: float) -> Certificate:
    """Return the certificate of the included columns alone. rounding: what it is worth, as a share of ||Y||^2."""
    size, bound = len(objective.included), max(objective.c - rounding * objective.total, 0.0)
    return Certificate(
        size, objective.c, bound, objective.total, tuple(objective.included), rounding_error=rounding,
        method=NOTHING,
    )  # fmt: skip


def without_bound(objective: ItemObjective, k: int, S: Sequence[int]) -> Certificate:
    """Return the certificate of a subset S of k columns or groups when there was no time for a bound."""
    size, value = objective.included_size + k, float(objective.value(S))
    return Certificate(size, value, 0.0, objective.total, tuple(objective.in_data(S)), method=NO_TIME)


def up_to(proofs: Iterable[Certificate], size: int, value: float, indices: Sequence[int]) -> tuple[Certificate, ...]:
    """Return the certificates of at most `size` columns; that of this size may follow from one of more columns.

    value, indices: the known subset of at most `size` columns.
    """
    proofs = sorted(proofs, key=lambda proof: proof.size)
    kept = [proof for proof in proofs if proof.size <= size]
    larger = proofs[len(kept) :]
    if larger and size not in (proof.size for proof in kept):
        kept.append(larger[0].about(size, value, indices))
    return tuple(kept)


def across_sizes(found: Mapping[int, Certificate]) -> dict[int, Certificate]:
    """Return the certificates by size, each with the best bound of this and all larger sizes.

    A bound for more columns also holds for fewer, because a subset of few columns is one of at most more columns.
    """
    result: dict[int, Certificate] = {}
    bound, error, method = 0.0, 0.0, NO_TIME
    for size in sorted(found, reverse=True):
        if found[size].coefficients or found[size].largest_coefficient:  # it is not about all subsets
            result[size] = replace(found[size], bound=max(found[size].bound, min(bound, found[size].value)))
            continue
        if found[size].bound >= bound and found[size].method != NO_TIME:
            method = found[size].method
        bound, error = max(bound, found[size].bound), max(error, found[size].rounding_error)
        holds = consistent_bound(bound, found[size].value, found[size].total, error)
        how = method if found[size].method == NO_TIME and holds > 0.0 else found[size].method
        result[size] = replace(found[size], bound=holds, rounding_error=error, method=how)
    return dict(sorted(result.items()))
