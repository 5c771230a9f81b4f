"""The certificate of a subset: its value, and a proved lower bound on the value of all subsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from dsel._lib.text import counted, counted_items, noun, shorten
from dsel._lib.tolerances import MARGIN
from dsel.errors import OptionError
from dsel.objective.objective_interface import ItemObjective, Objective

#: What a certificate proves, see `Certificate.status`.
Status = Literal["optimal", "optimal-except-near-copies", "bounded", "no-useful-bound"]
#: A status in words for people.
STATUS_WORDS: dict[str, str] = {
    "optimal": "optimal", "optimal-except-near-copies": "optimal except for near-copies", "bounded": "bounded",
    "no-useful-bound": "no useful bound",
}  # fmt: skip
#: What older versions called fields. They do not have all fields.
_EARLIER_NAMES = {"rounding_error": "error", "dependent_gap": "excluded"}
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
_MOST_ROUNDING = _MOST_EXCEPTED = 1e-6
#: A bound below this share of the value is of no use.
_USEFUL = 0.01
#: Above this share of ||Y||^2, rounding is named where a subset is proved optimal.
_NAMED_ROUNDING = 1e-8
#: Sets of nearly dependent columns that a sentence names, and columns of one set.
_MOST_SETS, _MOST_MEMBERS = 50, 6


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
        How many of these were read into memory. The others were bounded by the passes alone.
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
        if self.gap <= (2.0 * MARGIN + min(self.rounding_error, _MOST_ROUNDING)) * self.total:
            return "optimal-except-near-copies" if self.dependent_gap or self.represented else "optimal"
        return "no-useful-bound" if self.bound < _USEFUL * self.value else "bounded"

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

    def merged(self, other: Certificate) -> Certificate:
        """Return the better value and the better bound of this certificate and a newer one of the same size.

        A bound that the better value contradicts is dropped.
        """
        if other.size != self.size:
            raise OptionError(f"Certificates of {self.size} and {other.size} columns cannot be merged.")
        if self.largest_coefficient != other.largest_coefficient:
            about_all = not (self.coefficients or self.largest_coefficient)
            return self if (about_all and self.bound >= other.bound) or other.bound <= 0.0 else other
        if self.coefficients != other.coefficients:
            return self._widest(other)
        best = other if other.value < self.value else self
        bounds = [consistent_bound(one.bound, best.value, best.total, one.rounding_error) for one in (self, other)]
        return replace(
            best, bound=max(bounds), rounding_error=(self if bounds[0] > bounds[1] else other).rounding_error,
            dependent_gap=max(self.dependent_gap, other.dependent_gap),
            near_copies=other.near_copies or self.near_copies, nodes=self.nodes + other.nodes,
            seconds=self.seconds + other.seconds, better=self.better or other.better,
            columns=max(self.columns, other.columns), screened=max(self.screened, other.screened),
            read=max(self.read, other.read), passes=max(self.passes, other.passes),
            leaves_checked=max(self.leaves_checked, other.leaves_checked),
            leaves_searched=max(self.leaves_searched, other.leaves_searched),
            cpu_seconds=self.cpu_seconds + other.cpu_seconds, began_again=other.began_again or self.began_again,
            node_seconds=other.node_seconds, time_limit=other.time_limit, time_needed=other.time_needed,
            closed=other.closed,
        )  # fmt: skip

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
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Certificate:
        """Return the certificate that `as_dict` wrote, in this version or an older one. What is derived is not read."""
        names = {field.name: _EARLIER_NAMES.get(field.name, field.name) for field in fields(cls)}
        known = {name: values.get(name, values.get(earlier)) for name, earlier in names.items()}
        known["indices"] = tuple(values["indices"])
        known["near_copies"] = tuple(tuple(columns) for columns in values.get("near_copies", ()))
        return cls(**{name: value for name, value in known.items() if value is not None})


def counted_size(row: Mapping[str, Any]) -> str:
    """Return the size of a certificate and what it counts, in words. row: what `Certificate.as_dict` returns."""
    return counted_items(row["size"], "groups of columns" if _over_groups(row) else "columns")


def _over_groups(row: Mapping[str, Any]) -> bool:
    return bool(row.get("groups", row["method"].startswith(GROUPS)))  # older ones have the method only


def whole_of(row: Mapping[str, Any]) -> str:
    """Return what the shares of a proof are relative to, in words. row: what `Certificate.as_dict` returns."""
    return "the deviance without columns" if row["method"].endswith(" loss)") else "||Y||^2"


def claim(row: Mapping[str, Any]) -> str | None:
    """Return what a proof of the best subset shows, in words; None if it leaves a gap.

    row: what `Certificate.as_dict` returns.
    """
    if not row["status"].startswith("optimal"):
        return None
    words = "still proved optimal" if row.get("leaves_checked") else "proved optimal"
    words += " for the noisy sums" if row.get("noise") else ""
    if row["rounding_error"] > _NAMED_ROUNDING:
        words += f" to {row['rounding_error']:.0e} of {whole_of(row)}"
    if row["status"] != "optimal":
        words += " except for near-copies"
    return f"{words} {covered(row)}".strip()


def is_finished(row: Mapping[str, Any], *, limited: bool) -> bool:
    """Return whether a proof has no gap but what rounding is worth, so that none later can show more.

    row: what `Certificate.as_dict` returns. limited: whether the later proof has a limit for coefficients, by which
    rounding is worth less.
    """
    about_all = not (row["coefficients"] or row["largest_coefficient"] or row["method"].endswith(REDUCED))
    rounding = row["gap"] <= (2.0 * MARGIN + row["rounding_error"]) * row["total"] and not limited
    return about_all and bool(rounding or row["status"].startswith("optimal"))


def caveat(
    row: Mapping[str, Any], label: Callable[[int], str], counts: Mapping[str, Any], chosen: Sequence[int]
) -> str:
    """Return what a proof leaves open and what helps, in words; "" if there is nothing to say.

    row: what `Certificate.as_dict` returns. label: the label of a column. counts, chosen: those of the
    selection, with all copies, and its columns. All sizes give one advice about them.
    """
    sentences = []
    if row.get("closed") and not row["status"].startswith("optimal"):
        sentences.append(
            "All nodes are closed, but fits by the loss do not converge: more time does not help. A larger ridge "
            "penalty (lam) does, and a limit for coefficients may: where lam is 0, the best fit can be infinite."
        )
    elif row["status"] == "no-useful-bound":
        sentences.append(_why_useless(row))
    if row.get("node_seconds") and not row["status"].startswith("optimal"):
        sentences.append(_time_for_a_node(row))
    if row["status"] == "bounded" and is_finished(row, limited=False) and not row.get("noise"):
        sentences.append("The gap is rounding alone: a log of the proof and dsel verify decide it in more digits.")
    if row.get("represented"):
        sentences.append(
            f"The proof does not cover subsets with {'' if row['represented'] == 1 else 'any of '}{_represented(row)} "
            "(near_copies=keep covers the independent ones)."
        )
        multiples = sum(len(copies) - 1 for copies in counts.get("copies", ())) - row["represented"]
        if multiples > 0:
            others = counted(multiples, "other one, which is a multiple", "others, which are multiples")
            sentences.append(f"It covers those with the {others} up to rounding.")
    if row.get("noise"):
        left = row["bound"] / row["total"] - row["noise"]
        known = f"each such subset leaves at least {left:.4g} of ||Y||^2" if left > 0.0 else "the noise leaves no bound"
        sentences.append(f"The bound is about noisy sums: on the rows, {known}, with probability 1 - 1e-6.")
    if row["dependent_gap"]:
        compared = "sets of groups" if _over_groups(row) else "subsets"
        sentences.append(dependence(row["near_copies"], chosen, row["dependent_gap"], label, compared))
    return " ".join(sentences)


def dependence(
    near_copies: Sequence[Sequence[int]], chosen: Sequence[int], gap: float, label: Callable[[int], str],
    compared: str = "subsets",
) -> str:  # fmt: skip
    """Return which columns are nearly dependent, what subsets with them may explain, and what helps, in words.

    chosen: the columns of the selection, which stay where possible. gap: the `dependent_gap`. label: the label of a
    column. compared: what would have to be compared to find such columns.
    """
    what = f"may explain up to {gap:.2g} of ||Y||^2 more, and no proof covers it"
    if not near_copies:
        return (
            "Nearly dependent subsets cannot be excluded: all columns together may be dependent, as with more columns "
            f"than rows, and there are too many {compared} to compare. Such a subset {what}. A ridge penalty covers "
            "it: lam above 1e-7 of the largest squared norm of a column."
        )
    sets = [shorten([label(j) for j in columns], _MOST_MEMBERS) for columns in near_copies[:_MOST_SETS]]
    more = f"; and {len(near_copies) - _MOST_SETS} more" if len(near_copies) > _MOST_SETS else ""
    named = "; ".join(names.replace(", ", " and ") if names.count(", ") == 1 else names for names in sets)
    without = json.dumps([label(j) for j in to_exclude(near_copies, chosen)], ensure_ascii=False)
    return (
        f"These columns are nearly dependent: {named}{more}. A subset with all columns of such a set {what}. "
        f"Leave out one of each by the option exclude: {without}."
    )


def to_exclude(near_copies: Sequence[Sequence[int]], chosen: Sequence[int]) -> list[int]:
    """Return columns without which no set of nearly dependent columns is whole, not chosen ones where possible."""
    excluded: list[int] = []
    for columns in near_copies:
        if not set(columns) & set(excluded):
            excluded.append(next((j for j in reversed(columns) if j not in chosen), columns[-1]))
    return excluded


def _time_for_a_node(row: Mapping[str, Any]) -> str:
    """Return how long a node of a proof takes that had no time for it, and what time suffices."""
    takes = f"A node of the proof takes about {row['node_seconds']:.3g} s"
    if not row["time_needed"]:
        return f"{takes}, which is more than the time that was left."
    needed = f"{row['time_needed']:g}"
    return (
        f"{takes}, and the time limit of {row['time_limit']:g} s left less. "
        f"To visit more nodes takes {needed} s or more: --time {needed}s, in Python seconds={needed}."
    )


def _why_useless(row: Mapping[str, Any]) -> str:
    """Return why a bound is of no use, and what helps."""
    if row["rounding_error"] * row["total"] > 0.5 * row["value"]:
        why = f"Rounding in the proof may be worth {row['rounding_error']:.2g} of {whole_of(row)}"
        if row["near_copies"]:
            return f"{why}."
        return (
            f"{why}: columns are nearly dependent, or more columns than rows hide whether they are, or means are much "
            "larger than deviations. Exclude what nearly depends on other columns, subtract a constant near the mean, "
            "or use a ridge penalty: lam."
        )
    if row["method"].startswith("targets"):
        return (
            "The bound follows from the targets alone. For one target, a ridge penalty (lam) or a limit for "
            "coefficients (largest_coefficient, such as 1.5) gives a better one."
        )
    if row["method"].endswith("loss)"):
        return (
            "The proof ended before its bound was of use. A larger ridge penalty (lam) helps, and so does more time, "
            "unless lam is 0 and columns separate the classes."
        )
    return (
        "The proof ended before its bound was of use. A larger ridge penalty (lam) helps, or for one target a limit "
        "for coefficients, or a lower one (largest_coefficient, such as 1.5). More time may help, but without them the "
        "bound can stay near 0 until the last nodes."
    )


def covered(row: Mapping[str, Any]) -> str:
    """Return which subsets a proof with a limit for coefficients is about, in words; empty if it has no limit.

    row: what `Certificate.as_dict` returns.
    """
    if row.get("largest_coefficient"):
        return f"among fits whose scaled coefficients are at most {row['largest_coefficient']:.3g}"
    if row.get("coefficients"):
        return f"among subsets whose squared coefficients sum to at most {row['coefficients']:.3g} of ||Y||^2"
    return ""


def _represented(row: Mapping[str, Any]) -> str:
    return counted(row["represented"], "column that another one represents", "columns that others represent")


def scope(row: Mapping[str, Any]) -> str:
    """Return which subsets the bound of a proof is about, in words; empty if it is about all.

    row: what `Certificate.as_dict` returns.
    """
    words = [covered(row)]
    if row.get("represented"):
        words.append(f"among subsets without {_represented(row)}")
    elif row["dependent_gap"]:
        words.append("among independent subsets")
    return ", ".join(filter(None, words))


def effort(row: Mapping[str, Any]) -> str:
    """Return what a proof took, in words: nodes, and if it made passes over the data, what they screened.

    row: what `Certificate.as_dict` returns.
    """
    if row["method"].startswith(NOTHING):
        return "only one subset may be chosen"
    words = f"{row['nodes']:,} {noun(row['nodes'], 'node')}"
    if row["method"] == ALL_SIZES:
        words = f"{words} of one search for all sizes"
    if row.get("leaves_checked"):  # certificates of older versions have none of the next fields
        leaves = noun(row["leaves_checked"], "leaf", "leaves")
        words = (
            f"{row['leaves_checked']:,} {leaves} checked, {row['leaves_searched']:,} searched, "
            f"{row['cpu_seconds']:.2f} CPU s; {words}"
        )
    elif row.get("began_again"):
        words = f"the proof began again, {row['began_again']}: {row['cpu_seconds']:.2f} CPU s; {words}"
    if not row.get("columns"):
        return words
    passes = f", {counted(row['passes'], 'pass', 'passes')}" if row["passes"] else ""
    read = f"{row['read']:,} of {row['columns']:,} columns read into memory"
    return f"{words}{passes}; {row['screened']:,} {noun(row['screened'], 'column')} screened, {read}"


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
    bound, error = 0.0, 0.0
    for size in sorted(found, reverse=True):
        if found[size].coefficients or found[size].largest_coefficient:  # it is not about all subsets
            result[size] = replace(found[size], bound=max(found[size].bound, min(bound, found[size].value)))
            continue
        bound, error = max(bound, found[size].bound), max(error, found[size].rounding_error)
        holds = consistent_bound(bound, found[size].value, found[size].total, error)
        result[size] = replace(found[size], bound=holds, rounding_error=error)
    return dict(sorted(result.items()))
