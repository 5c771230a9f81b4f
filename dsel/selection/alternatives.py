"""What could take the place of a selection or of its columns, as plain data.

All near-best subsets, with a verdict and a price for each column, and the best substitutes of each chosen column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dsel._lib.text import counted, percent, percent_below, percent_between, printable, shorten
from dsel.search.exact.alternatives import Verdict
from dsel.search.exact.certificate_words import up_to_rounding
from dsel.search.exact.near_best import EQUAL
from dsel.selection.record_values import FrontRow

if TYPE_CHECKING:
    import pandas as pd

#: How the note begins that a proof, or the proof of a list, replaced the columns.
FROM_PROOF = "the proof found these columns"
#: Labels that a line names, and subsets in the table of a notebook.
_SHOWN, _NOTEBOOK_ROWS = 20, 20
#: Shares that differ by at most this are equal, up to rounding.
_SAME_SHARE = 1e-9
#: A selection that explains less by at most this share of ||Y||^2 looks the same in a sentence.
_SEEN_SHARE = 1e-6

Members = tuple[int, ...]


@dataclass(frozen=True)
class Price:
    """What it costs to have a column or a group of columns, or to do without it.

    Parameters
    ----------
    index : int
        The column, 0-based.
    label : str or int
        Its label.
    verdict : {"necessary", "useless", "replaceable", "undecided"}
        Whether all near-best subsets have the column, none has it, or some do and some do not.
    error_with, error_without : float or None
        f of the best known subset that has the column, and of the best one that lacks it. None if none is known: no
        independent subset of this size is like that, or the time ended before one was found, or none is in a list by
        an information criterion.
    bound_with, bound_without : float
        Proved: no such subset of this size has a smaller f, also none with columns that others represent. What rounding
        may be worth is subtracted, as from the bound of a certificate. 0 if nothing is proved. Sets in which a group
        adds nothing to the others count.
    with_column, without_column : tuple of int
        The subsets of `error_with` and `error_without`, as indices, not as labels.
    reliance : tuple of float, optional
        The smallest and the largest increase of f, as a share of ||Y||^2, when the column is left out of a listed
        near-best subset that has it. None if none has it.
    columns : tuple of int
        All columns of a group, of which `index` is the first and `label` the name. Empty if no groups are chosen.
    """

    index: int
    label: str | int
    verdict: Verdict
    error_with: float | None
    error_without: float | None
    bound_with: float
    bound_without: float
    with_column: tuple[int, ...] = ()
    without_column: tuple[int, ...] = ()
    reliance: tuple[float, float] | None = None
    columns: tuple[int, ...] = ()

    def with_known(self, errors: Mapping[Members, float]) -> Price:
        """Return the price with more known subsets and their f."""

        def best(inside: bool, known: float | None, example: Members) -> tuple[float | None, Members]:
            rows = ((error, S) for S, error in errors.items() if (self.index in S) == inside)
            error, S = min(rows, default=(np.inf, ()))
            return (error, S) if error < (np.inf if known is None else known) else (known, example)

        error_with, with_column = best(True, self.error_with, self.with_column)
        error_without, without_column = best(False, self.error_without, self.without_column)
        return replace(
            self, error_with=error_with, with_column=with_column, error_without=error_without,
            without_column=without_column,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Price:
        """Return the price that was saved as JSON."""
        reliance = values.get("reliance")
        lists = {name: tuple(values.get(name, ())) for name in ("with_column", "without_column", "columns")}
        return cls(**{**values, **lists, "reliance": None if reliance is None else tuple(reliance)})


#: The largest number of chosen columns and of elementary steps for which substitutes are looked up.
_MOST_SUBSTITUTED, _MOST_STEPS = 100, 1e8


def few_to_substitute(n: int, k: int) -> bool:
    """Return whether the substitutes of k of n columns are quickly found."""
    return k <= _MOST_SUBSTITUTED and n * k**2 <= _MOST_STEPS


@dataclass(frozen=True)
class Substitute:
    """A column that could take the place of a chosen one.

    Parameters
    ----------
    replaces : int
        The chosen column, 0-based.
    index : int
        The column that takes its place.
    label : str or int
        Its label.
    error, r2 : float
        f of the subset after the swap, and the share of ||Y||^2 that it explains.
    correlation : float or None
        The correlation of the two columns. None if one of them does not vary.
    proved : bool
        Whether no subset of as many columns without the chosen one has a smaller f, which is proved.
    """

    replaces: int
    index: int
    label: str | int
    error: float
    r2: float
    correlation: float | None
    proved: bool = False


@dataclass(frozen=True, repr=False)
class Alternatives:
    """The near-best subsets of one size, and what they say about each column.

    A subset is near-best if it explains at least (1 - `within`) of what the best subset of its size explains. What
    included columns explain counts.

    Parameters
    ----------
    size : int
        The number of columns, or of groups of columns, always included ones counted.
    within : float
        How much less than the best a near-best subset may explain, as a share.
    best_error, limit_error, total : float
        f of the best known subset, the largest f of a near-best one, and ||Y||^2.
    subsets : tuple of FrontRow
        The listed near-best subsets, best first.
    complete : bool
        Whether these are all near-best subsets, which is proved.
    complete_within : float
        The list is complete for this share, which is proved; 0 if it may lack any.
    more : bool
        Whether there are more near-best subsets than were asked for. The verdicts count them, too.
    proven : bool
        Whether the first subset is proved to be the best one.
    columns : tuple of Price
        The verdict and the price of each candidate column or group of columns.
    nodes, seconds : int, float
        Nodes of the tree, and the time that it took.
    smaller : tuple of Alternatives
        Those of the smaller sizes, if all sizes were asked for.
    by : str
        The criterion by which subsets of any size were ranked; empty if they all have `size` columns. The rows of
        `subsets` then have it as `criterion`, and the verdicts are about the listed subsets.
    largest_coefficient : float
        If not 0, all of it is about fits by a loss whose coefficients are at most this; see
        `dsel.search.exact.certificate.Certificate`.
    copies : tuple of tuple of int
        Clusters of near-copies. The first column of each represents the others, which no listed subset has. Verdicts
        are about subsets without them, but a column that a copy can replace is not necessary.
    dependent_gap : float
        If not 0, there are dependent subsets that are not exact: none of them is listed, and verdicts and prices leave
        them out. The share of ||Y||^2 by which one of them may be better than the best listed subset.
    included : tuple of str or int
        Labels of the columns or groups that every subset has because `include` names them. Results of older versions
        have none.
    selected_error : float or None
        f of the selection that the subsets were listed for, if it is worse than all near-best ones, or with `by` if it
        is not listed. None otherwise, and in results of older versions.
    certificate : dict
        What the tree of the list proves about the best subset; see `dsel.search.exact.certificate.Certificate`. Empty
        with `by`, and in results of older versions.
    """

    size: int
    within: float
    best_error: float
    limit_error: float
    total: float
    subsets: tuple[FrontRow, ...]
    complete: bool
    complete_within: float
    more: bool
    proven: bool
    columns: tuple[Price, ...]
    nodes: int = 0
    seconds: float = 0.0
    smaller: tuple[Alternatives, ...] = ()
    by: str = ""
    largest_coefficient: float = 0.0
    copies: tuple[tuple[int, ...], ...] = ()
    dependent_gap: float = 0.0
    included: tuple[str | int, ...] = ()
    selected_error: float | None = None
    certificate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def noun(self) -> str:
        """What subsets are made of: "column" or "group"."""
        return "group" if any(price.columns for price in self.columns) else "column"

    @property
    def verdicts(self) -> dict[str | int, Verdict]:
        """The verdict of each candidate column, by its label; empty where every allowed subset is dependent."""
        return {price.label: price.verdict for price in self.columns if self.subsets or not self.complete}

    @property
    def prices(self) -> dict[str | int, Price]:
        """What it costs to have each candidate column, or to do without it, by its label."""
        return {price.label: price for price in self.columns}

    @property
    def by_size(self) -> dict[int, Alternatives]:
        """The alternatives of each size that was asked for, ascending."""
        return {found.size: found for found in (*self.smaller, self)}

    @property
    def counts(self) -> dict[int, int]:
        """How many of the listed subsets have each column that any of them has."""
        return dict(Counter(j for row in self.subsets for j in row.indices))

    def labels(self, verdict: Verdict) -> list[str | int]:
        """Return the labels of the columns with this verdict."""
        return [label for label, found in self.verdicts.items() if found == verdict]

    def r2(self, error: float) -> float:
        """Return 1 - f / ||Y||^2. With a ridge penalty, its part of f counts as not explained."""
        return 1.0 - error / self.total if self.total > 0.0 else 0.0

    def to_frame(self) -> pd.DataFrame:
        """Return the listed subsets as a pandas DataFrame, one row each, best first.

        Returns
        -------
        DataFrame
            The rank is the index and begins at 1. `columns` has the labels of the columns or groups, always included
            ones first. `error` is f, and `r2` what is explained: of a loss other than the squared error D2. `lost` is
            how much less than the first subset a row explains, as a share, like `within`. With `by` there is a
            `criterion`, of which less is better: without the constants of `information_criteria`, and minus the
            adjusted R2. `lost` is then negative for a subset that explains more than the first.
        """
        import pandas as pd

        labels = {j: price.label for price in self.columns for j in price.columns or (price.index,)}
        explained = self.total - self.best_error
        columns: dict[str, Any] = {
            "columns": [
                (*self.included, *dict.fromkeys(labels[j] for j in row.indices if j in labels)) for row in self.subsets
            ],
            **({"criterion": [row.criterion for row in self.subsets]} if self.by else {}),
            "error": [row.error for row in self.subsets],
            "r2": [row.r2 for row in self.subsets],
            "lost": [(row.error - self.best_error) / explained if explained > 0.0 else 0.0 for row in self.subsets],
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(1, len(self.subsets) + 1, name="rank"))

    def __repr__(self) -> str:
        return f"Alternatives({'; '.join(filter(None, self.lines()))})"

    def __str__(self) -> str:
        first, _, *about = self.lines()
        return "\n".join((first, *self._columns_by_verdict(), *about))

    def _repr_html_(self) -> str:
        import pandas as pd

        table = self.to_frame()[:_NOTEBOOK_ROWS]
        table["columns"] = [", ".join(map(printable, labels)) for labels in table["columns"]]
        with pd.option_context("display.max_colwidth", None):
            subsets = table.to_html(border=0)
        more = len(self.subsets) - _NOTEBOOK_ROWS
        rest = [f"and {counted(more, 'more subset')}"] if more > 0 else []
        first, _, *about = self.lines()
        notes = "".join(f"<p>{escape(line)}</p>" for line in (*rest, *self._columns_by_verdict(), *about))
        return f"<div><p>{escape(first)}</p>{subsets}{notes}</div>"

    def _columns_by_verdict(self) -> list[str]:
        """Return a line for each verdict that a column has, with the labels of these columns."""
        found = {verdict: [printable(label) for label in self.labels(verdict)] for verdict in VERDICTS}
        return [f"{len(labels)} {verdict}: {shorten(labels, _SHOWN)}" for verdict, labels in found.items() if labels]

    def lines(self) -> list[str]:
        """Return what was found in short sentences, as text: the list, the verdicts, and a selection that it lacks."""
        counts = {name: len(self.labels(name)) for name in VERDICTS}
        columns = f"{counted(self.size, self.noun)}{'' if self.noun == 'column' else ' of columns'}"
        verdicts = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        if not self.subsets:
            none = f"every allowed subset of {columns} is dependent (proved)"
            return [none, ""] if self.complete else [f"no independent subset of {columns} is known yet", verdicts]
        listed = f"{counted(len(self.subsets), 'subset')} of {columns}"
        explained = self.total - self.best_error
        last = (self.subsets[-1].error - self.best_error) / explained if explained > 0.0 else 0.0
        share = percent_between(self.within, last, self.complete_within if self.complete else np.inf)
        near = f"{listed} within {share} of the best"
        if self.by:
            sizes = sorted({row.size for row in self.subsets})
            near = f"{counted(len(self.subsets), 'best subset')} by {self.by}, of "
            near += f"{f'{sizes[0]} to ' if len(sizes) > 1 else ''}{counted(sizes[-1], 'column')}"
        if self.complete:
            rounding = up_to_rounding(self.certificate) if self.certificate else ""
            others = "no other independent ones" if self.dependent_gap else "no others"
            near += f", {others}{' without near-copies' if self.copies else ''} (proved{rounding})"
        elif self.by:
            near += ", not proved"
        elif self.more:
            near += ", and more"
            if self.complete_within:
                near += f"; the list is complete within {percent_below(self.complete_within)}"
        elif self.complete_within:
            near += f"; proved complete within {percent_below(self.complete_within)} only"
        else:
            neither = "neither the list nor its first subset is proved yet"
            near += f"; {'only the best subset is proved' if self.proven else neither}"
        if self.largest_coefficient:
            near += f", among fits whose scaled coefficients are at most {self.largest_coefficient:.3g}"
        return [near, verdicts, *self._about_selection()]

    def _about_selection(self) -> Iterator[str]:
        """Yield that the selection is not listed, if it is not."""
        if self.selected_error is None:
            return
        shares = (f"{self.r2(error):.4%}" for error in (self.selected_error, self.best_error))
        better = ": it explains {}, the best listed subset {}; dsel.certify takes better columns".format(*shares)
        yield f"the selection itself is not listed{'' if self.by else better}"

    def listed_for(self, error: float, indices: Sequence[int]) -> Alternatives:
        """Return the same with `selected_error` of a selection. error, indices: its f and its columns."""
        near = error <= self.limit_error + _SEEN_SHARE * self.total
        if self.by:
            near = any(set(row.indices) == set(indices) for row in self.subsets)
        return replace(self, selected_error=None if near else float(error))

    def with_proofs(self, certificates: Sequence[Mapping[str, Any]]) -> Alternatives:
        """Return the same with what certificates prove about the best subset of this size, and of smaller ones.

        certificates: what `Certificate.as_dict` returns.
        """
        smaller = tuple(one.with_proofs(certificates) for one in self.smaller)
        for row in () if self.by else certificates:
            same_reach = row["largest_coefficient"] == self.largest_coefficient and not row["coefficients"]
            best = self.best_error <= row["value"] + _SAME_SHARE * self.total
            if row["size"] == self.size and row["status"].startswith("optimal") and same_reach and best:
                bound = 0.0 if row["represented"] else row["bound"]  # bounds are about all columns
                columns = (
                    replace(one, bound_with=max(one.bound_with, bound), bound_without=max(one.bound_without, bound))
                    for one in self.columns
                )  # fmt: skip
                return replace(self, proven=True, columns=tuple(columns), smaller=smaller)
        return replace(self, smaller=smaller)

    def over_representatives(
        self, clusters: Sequence[Sequence[int]], errors_of: Callable[[Sequence[Members]], Sequence[float]],
        gain_of: Callable[[int], float], sure: float
    ) -> Alternatives:  # fmt: skip
        """Return the same where columns represent others: no such column is necessary, and the others count in prices.

        clusters: near-copies, of which the first represents the others. errors_of: returns f of subsets of columns,
        infinity where they are dependent. gain_of: returns by which share of ||Y||^2 subsets of a size with the others
        may be better. sure: see `NearBestAnswer`.
        """
        others = {first: rest for first, *rest in clusters}
        swapped = {
            tuple(copy if j == price.index else j for j in price.with_column): price.index
            for price in self.columns if price.with_column for copy in others.get(price.index, ())
        }  # fmt: skip
        values = zip(swapped, errors_of(list(swapped)), strict=True)
        errors = {S: error for S, error in values if error < np.inf}
        lost = gain_of(self.size) * self.total

        def judged(price: Price) -> Price:
            known, replaced = errors, price.index in others
            if self.by:  # these are no prices: a copy counts if it is as good
                most = -1.0 if price.error_with is None else price.error_with + EQUAL * self.total
                known = {S: f for S, f in errors.items() if swapped[S] == price.index and f <= most}
            price = replace(
                price.with_known(known), bound_with=max(price.bound_with - lost, 0.0),
                bound_without=max(min(price.bound_without, price.bound_with if replaced else np.inf) - lost, 0.0),
            )  # fmt: skip
            if max(np.inf if f is None else f for f in (price.error_with, price.error_without)) <= sure:
                return replace(price, verdict="replaceable")
            return replace(price, verdict="undecided") if replaced and price.verdict == "necessary" else price

        return replace(self, columns=tuple(map(judged, self.columns)), copies=tuple(map(tuple, clusters)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Alternatives:
        """Return the alternatives that were saved as JSON."""
        subsets = tuple(map(FrontRow.from_dict, values["subsets"]))
        columns = tuple(Price.from_dict(price) for price in values["columns"])
        smaller = tuple(cls.from_dict(found) for found in values.get("smaller", ()))
        copies = tuple(map(tuple, values.get("copies", ())))
        lists = {"subsets": subsets, "columns": columns, "smaller": smaller, "copies": copies}
        found = cls(**{**values, **lists, "included": tuple(values.get("included", ()))})
        return found._of_all_that_is_explained()

    def _of_all_that_is_explained(self) -> Alternatives:
        """Return the same with shares of what the best subset explains.

        Earlier versions took shares of what it explains beyond the included columns.
        """
        explained = self.total - self.best_error
        if self.by or not self.within or not explained > 0.0:
            return self
        within = (self.limit_error - self.best_error) / explained
        if abs(within - self.within) <= _SAME_SHARE:
            return self
        return replace(self, within=within, complete_within=self.complete_within * within / self.within)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON types."""
        return asdict(self)


def changed_verdicts(before: Alternatives | None, after: Alternatives | None) -> dict[str, tuple[Verdict, Verdict]]:
    """Return both verdicts of each column whose verdict differs, by its label; none if one of the two is missing."""
    if before is None or after is None:
        return {}
    old = before.verdicts
    pairs = {label: (old[label], new) for label, new in after.verdicts.items() if label in old}
    return {str(label): pair for label, pair in pairs.items() if pair[0] != pair[1]}


def other_subsets(before: Alternatives | None, after: Alternatives | None) -> str:
    """Return which subsets the verdicts of two lists are about; empty if these are the same or one is missing."""
    found = [(one.size, one.noun, one.within) for one in (before, after) if one is not None]
    if len(found) < 2 or found[0] == found[1]:
        return ""
    first, second = (f"{counted(size, noun)} within {percent(within)}" for size, noun, within in found)
    return f"{first} and {second} of the best"


#: The verdicts, the strongest statements first.
VERDICTS: tuple[Verdict, ...] = ("necessary", "replaceable", "useless", "undecided")
