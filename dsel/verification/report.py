"""What a verification found."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dsel._lib.text import counted_items, noun, percent_between, printable, shorten

#: Columns that a log leaves out, with the columns that they nearly copy, and how far they are from multiples of these;
#: infinity if they may have another f.
Copies = Mapping[int, Mapping[int, float]]


#: The verdict of a column that represents near-copies and is in all listed subsets, by whether one replaces it.
_WITH_COPIES = {True: "replaceable", False: "undecided"}


@dataclass(frozen=True)
class ListCheck:
    """The near-best subsets that a log claims.

    Parameters
    ----------
    within, threshold : float
        A subset is near-best if it explains at least 1 - within of what the best one explains: its f is at most the
        threshold.
    complete_below : float
        All subsets with a smaller f are listed.
    listed : frozenset of tuple of int
        The subsets, by the places of their columns in `columns`.
    verdicts : list of str or None
        That of each column, with regard to near-copies that the log leaves out. None if not all near-best subsets are
        listed.
    columns : tuple of int
        The columns of the data that may be chosen; the first one of each group where groups are chosen.
    """

    within: float
    threshold: float
    complete_below: float
    listed: frozenset[tuple[int, ...]]
    verdicts: list[str] | None
    columns: tuple[int, ...]

    def with_copies(self, copies: Copies, replaced: Collection[int]) -> ListCheck:
        """Return the same where the log leaves out near-copies of columns: then those columns are not necessary.

        replaced: the columns in whose place a near-copy is in a near-best subset.
        """
        copied = {j for others in copies.values() for j in others}

        def judged(j: int, verdict: str) -> str:
            return verdict if verdict != "necessary" or j not in copied else _WITH_COPIES[j in replaced]

        verdicts = None if self.verdicts is None else list(map(judged, self.columns, self.verdicts))
        return replace(self, verdicts=verdicts)

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON holds it."""
        subsets = [[self.columns[j] for j in S] for S in sorted(self.listed)]
        return {**asdict(self), "listed": subsets, "columns": list(self.columns)}

    def describe(self, items: str) -> str:
        """Return the subsets and verdicts as text. items: what the verdicts are about, in the plural."""
        count = f"{len(self.listed)} of these subsets {'is' if len(self.listed) == 1 else 'are'}"
        if self.verdicts is None:
            return f"{count} listed; no other one has an error below {self.complete_below:.12g}"
        names = ("necessary", "replaceable", "useless", *(["undecided"] if "undecided" in self.verdicts else []))
        verdicts = ", ".join(f"{self.verdicts.count(name)} {name}" for name in names)
        share = percent_between(self.within, self.within, self.within)
        return f"{count} within {share} of the best, no others; {items}: {verdicts}"


@dataclass(frozen=True)
class ProofCheck:
    """The check of one proof log.

    Parameters
    ----------
    size : int
        The most columns, always included ones counted.
    bound : float
        The lower bound on f of all subsets that the log claims.
    value : float
        f of the best known subset, recomputed from the data in extended precision.
    total : float
        ||Y||^2.
    error : float
        What the check allows for rounding and for near dependence, as a share of ||Y||^2: every independent subset
        has f >= bound - error ||Y||^2.
    indices : tuple of int
        The best known subset, as columns of the data.
    nodes : int
        Nodes of the search in the log.
    leaves : dict
        Number of leaves by reason: bound, comparison, dependence.
    checked : int
        Number of leaves that were recomputed.
    sampled : bool
        Whether those are a random sample.
    failures : tuple of str
        What is wrong, with the leaf. Empty if the proof holds.
    seconds : float
        Wall time.
    seed : int, optional
        The seed of the sample.
    noun : str
        What `size` counts: columns, or groups of columns.
    near_best : ListCheck, optional
        The near-best subsets, if the log claims to list them.
    represented : tuple of int
        Columns of the data that the log leaves out, because others, which they nearly copy, represent them. Nothing is
        proved about subsets with them.
    only : bool
        Whether only one subset may be chosen, which needs no log. `value` is checked alone.
    labels, represented_labels : tuple of str
        The labels of `indices`, and of `represented`.
    """

    size: int
    bound: float
    value: float
    total: float
    error: float
    indices: tuple[int, ...]
    nodes: int
    leaves: dict[str, int]
    checked: int
    sampled: bool
    failures: tuple[str, ...]
    seconds: float
    seed: int | None = None
    noun: str = "columns"
    near_best: ListCheck | None = None
    represented: tuple[int, ...] = ()
    only: bool = False
    labels: tuple[str, ...] = ()
    represented_labels: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether nothing is wrong."""
        return not self.failures

    @property
    def gap(self) -> float:
        """No covered subset is better than the best known one by more than this share of ||Y||^2."""
        return max(self.value - self.bound, 0.0) / self.total + self.error

    @property
    def optimal(self) -> bool:
        """Whether all leaves were recomputed, and show that no independent subset is better apart from the error."""
        return self._best_of_covered and not self.represented

    @property
    def _best_of_covered(self) -> bool:
        return self.accepted and not self.sampled and self.value - self.bound <= 1e-9 * self.total

    @property
    def _subsets(self) -> str:
        """What the proof covers, in words."""
        if not self.represented:
            return "independent subset"
        columns = shorten(map(printable, self.represented_labels or self.represented))
        if len(self.represented) == 1:
            return f"independent subset without column {columns}, which another one represents,"
        return f"independent subset without the {len(self.represented)} columns {columns}, which others represent,"

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON holds it."""
        values = {**asdict(replace(self, near_best=None)), "gap": self.gap, "accepted": self.accepted}
        listed = None if self.near_best is None else self.near_best.as_dict()
        return {**values, "optimal": self.optimal, "near_best": listed}

    def __str__(self) -> str:
        total = sum(self.leaves.values())
        nodes, leaves = f"{self.nodes:,} {noun(self.nodes, 'node')}", f"{total:,} {noun(total, 'leaf', 'leaves')}"
        kinds = ", ".join(f"{count:,} by {reason}" for reason, count in self.leaves.items())
        others = " of the other columns" if self.represented else ""
        share = f", a random sample ({self.checked / max(total, 1):.2%}, seed {self.seed})"
        names = [printable(label) for label in self.labels or self.indices]
        size = counted_items(self.size, self.noun)
        size += "" if self.near_best is None else ", near-best subsets"
        lines = [
            f"{size}: {'accepted' if self.accepted else 'REJECTED'} in {self.seconds:.1f} s",
            f"  the leaves cover all subsets{others}: {nodes}, {leaves} ({kinds})",
            f"  leaves recomputed from the data: {self.checked:,}{share if self.sampled else ', all'}",
            f"  every {self._subsets} has an error of at least {self.bound:.12g}",
            f"  the error of {noun(len(self.indices), 'column')} {', '.join(names)} is {self.value:.12g}"
            + (": the best of these" if self._best_of_covered else ""),
            f"  none of these subsets is better by more than {self.gap:.1e} of ||Y||^2, rounding included",
        ]
        if self.near_best is not None:
            lines.append(f"  {self.near_best.describe(self.noun.split(' of ')[0])}")
        if self.only:
            error = f"the error, which is {self.value:.12g}"
            lines[1:] = [f"  only one subset may be chosen, so there is nothing to verify but {error}"]
        if self.failures:
            del lines[1:]
            lines += [f"  {failure}" for failure in self.failures]
        return "\n".join(lines)


@dataclass(frozen=True)
class Verification:
    """The check of all proof logs of a result.

    Parameters
    ----------
    checks : tuple of ProofCheck
        One for each log, by ascending size.
    unverified : tuple of str
        Certificates of the result that no log proves.
    passes : int
        Passes over the data.
    precision : str
        The precision of the check.
    """

    checks: tuple[ProofCheck, ...]
    unverified: tuple[str, ...] = ()
    passes: int = 0
    precision: str = field(default="")

    @property
    def accepted(self) -> bool:
        """Whether every log holds, and every certificate has one."""
        return bool(self.checks) and not self.unverified and all(check.accepted for check in self.checks)

    @property
    def verdict(self) -> str:
        """The result in a word: accepted, rejected, or incomplete if certificates have no log."""
        if self.accepted:
            return "accepted"
        return "incomplete" if all(check.accepted for check in self.checks) else "rejected"

    def as_dict(self) -> dict[str, Any]:
        """Return everything, as JSON holds it."""
        checks = [c.as_dict() for c in self.checks]
        return {
            "accepted": self.accepted, "verdict": self.verdict, "checks": checks, "unverified": list(self.unverified),
            "passes": self.passes, "precision": self.precision,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [str(check) for check in self.checks]
        lines += [f"not verified: {what}" for what in self.unverified]
        return "\n".join([*lines, f"{self.verdict.replace('rejected', 'REJECTED')} ({self.precision})"])
