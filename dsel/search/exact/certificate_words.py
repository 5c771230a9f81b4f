"""A certificate in words: what it proves, what it leaves open and what helps.

A `row` is what `Certificate.as_dict` returns, in this version or in a saved result of an older one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import counted, counted_items, noun, shorten
from dsel.search.exact.certificate import ALL_SIZES, GROUPS, NOTHING, is_finished

#: A status in words for people.
STATUS_WORDS: dict[str, str] = {
    "optimal": "optimal", "optimal-except-near-copies": "optimal except for near-copies", "bounded": "bounded",
    "no-useful-bound": "no useful bound",
}  # fmt: skip
#: Above this share of ||Y||^2, rounded to one digit, rounding is named where a subset or a list is proved.
_NAMED_ROUNDING = 1e-8
#: Sets of nearly dependent columns that a sentence names, and columns of one set.
_MOST_SETS, _MOST_MEMBERS = 50, 6


def counted_size(row: Mapping[str, Any]) -> str:
    """Return the size of a certificate and what it counts, in words."""
    return counted_items(row["size"], "groups of columns" if _over_groups(row) else "columns")


def _over_groups(row: Mapping[str, Any]) -> bool:
    return bool(row.get("groups", row["method"].startswith(GROUPS)))  # older ones have the method only


def whole_of(row: Mapping[str, Any]) -> str:
    """Return what the shares of a proof are relative to, in words."""
    return "the deviance without columns" if row["method"].endswith(" loss)") else "||Y||^2"


def claim(row: Mapping[str, Any]) -> str | None:
    """Return what a proof of the best subset shows, in words; None if it leaves a gap."""
    if not row["status"].startswith("optimal"):
        return None
    words = "still proved optimal" if row.get("leaves_checked") else "proved optimal"
    words += " for the noisy sums" if row.get("noise") else ""
    words += up_to_rounding(row)
    if row["status"] != "optimal":
        words += " except for near-copies"
    return f"{words} {covered(row)}".strip()


def up_to_rounding(row: Mapping[str, Any]) -> str:
    """Return to which share rounding limits a proof, in words after a verb; "" if that is too little to be named."""
    shown = f"{row.get('rounding_error', 0.0):.0e}"
    return f" to {shown} of {whole_of(row)}" if float(shown) > _NAMED_ROUNDING else ""


def caveat(
    row: Mapping[str, Any], label: Callable[[int], str], counts: Mapping[str, Any], chosen: Sequence[int]
) -> str:
    """Return what a proof leaves open and what helps, in words; "" if there is nothing to say.

    label: the label of a column. counts, chosen: those of the selection, with all copies, and its columns. All sizes
    give one advice about them.
    """
    return " ".join(_open_questions(row, label, counts, chosen))


def _open_questions(
    row: Mapping[str, Any], label: Callable[[int], str], counts: Mapping[str, Any], chosen: Sequence[int]
) -> Iterator[str]:
    """Yield a sentence for each thing that a proof leaves open. Arguments: those of `caveat`."""
    for bound, squares, largest in row.get("beyond", ()):
        among = covered({"coefficients": squares, "largest_coefficient": largest}) or "among all subsets"
        yield f"Another proof shows that {among} none has an error below {bound:.6g}."
    if again := began_again(row):
        yield again
    if row.get("closed") and not row["status"].startswith("optimal"):
        yield (
            "All nodes are closed, but fits by the loss do not converge: more time does not help. A larger ridge "
            "penalty (lam) does, and a limit for coefficients may: where lam is 0, the best fit can be infinite."
        )
    elif row["status"] == "no-useful-bound":
        yield _why_useless(row)
    elif row["status"] == "bounded" and row.get("ended_by", "").startswith("memory"):
        yield "The proof ended{}. The gap closes with {}.".format(*_end(row))
    if row.get("node_seconds") and not row["status"].startswith("optimal"):
        yield _time_for_a_node(row)
    if row["status"] == "bounded" and is_finished(row, limited=False) and not row.get("noise"):
        yield (
            "The gap is rounding alone: dsel verify decides it in more digits, with the log of a job (log: true) or of "
            "dsel certify --log."
        )
    if row.get("represented"):
        yield (
            f"The proof does not cover subsets with {'' if row['represented'] == 1 else 'any of '}{_represented(row)} "
            "(near_copies=keep covers the independent ones)."
        )
        multiples = sum(len(copies) - 1 for copies in counts.get("copies", ())) - row["represented"]
        if multiples > 0:
            others = counted(multiples, "other one, which is a multiple", "others, which are multiples")
            yield f"It covers those with the {others} up to rounding."
    if row.get("noise"):
        left = row["bound"] / row["total"] - row["noise"]
        known = f"each such subset leaves at least {left:.4g} of ||Y||^2, with probability 1 - 1e-6"
        yield f"The bound is about noisy sums: on the rows, {known if left > 0.0 else 'the noise leaves no bound'}."
    if row["dependent_gap"]:
        compared = "sets of groups" if _over_groups(row) else "subsets"
        yield _dependence(row["near_copies"], chosen, row["dependent_gap"], label, compared)


def _dependence(
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
    without = json.dumps([label(j) for j in _to_exclude(near_copies, chosen)], ensure_ascii=False)
    return (
        f"These columns are nearly dependent: {named}{more}. A subset with all columns of such a set {what}. "
        f"Leave out one of each by the option exclude: {without}."
    )


def _to_exclude(near_copies: Sequence[Sequence[int]], chosen: Sequence[int]) -> list[int]:
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
    because, more = _end(row)
    ended = f"The proof ended before its bound was of use{because}. A larger ridge penalty (lam) helps"
    if row["method"].endswith("loss)"):
        return f"{ended}, and so does {more}, unless lam is 0 and columns separate the classes."
    return (
        f"{ended}, or for one target a proof by certify with a limit for coefficients, or a lower one "
        f"(largest_coefficient, such as 1.5). {more.capitalize()} may help, but without them the bound can stay near 0 "
        "until the last nodes."
    )


def _end(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return why a proof ended, where that was not its time, and what lets it continue."""
    name, _, value = row.get("ended_by", "").partition("=")
    if name == "memory":
        more = "more memory (an option of astar and branch-and-bound)"
        return f", because its memory of {format_bytes(int(value))} was full", more
    if name == "nodes":
        return f", because {row['nodes']:,} nodes were allowed", "more nodes"
    if name:
        return f", because {name}={value} let it end early", f"a smaller {name}"
    return "", "more time"


def covered(row: Mapping[str, Any]) -> str:
    """Return which subsets a proof with a limit for coefficients is about, in words; empty if it has no limit."""
    if row.get("largest_coefficient"):
        return f"among fits whose scaled coefficients are at most {row['largest_coefficient']:.3g}"
    if row.get("coefficients"):
        return f"among subsets whose squared coefficients sum to at most {row['coefficients']:.3g} of ||Y||^2"
    return ""


def _represented(row: Mapping[str, Any]) -> str:
    return counted(row["represented"], "column that another one represents", "columns that others represent")


def scope(row: Mapping[str, Any]) -> str:
    """Return which subsets the bound of a proof is about, in words; empty if it is about all."""
    words = [covered(row)]
    if row.get("represented"):
        words.append(f"among subsets without {_represented(row)}")
    elif row["dependent_gap"]:
        words.append("among independent subsets")
    return ", ".join(filter(None, words))


def began_again(row: Mapping[str, Any]) -> str:
    """Return why a proof did not continue that of the run before, as a sentence; "" if it did, or if there was none."""
    why = "" if row.get("leaves_checked") else row.get("began_again")  # older certificates have neither
    return f"The proof began again, {why}." if why else ""


def effort(row: Mapping[str, Any]) -> str:
    """Return what a proof took, in words: nodes, and if it made passes over the data, what they screened."""
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
        words = f"{row['cpu_seconds']:.2f} CPU s; {words}"
    if not row.get("columns"):
        return words
    passes = f", {counted(row['passes'], 'pass', 'passes')}" if row["passes"] else ""
    screened = f"{row['screened']:,} {noun(row['screened'], 'column')} screened, " if row["screened"] else ""
    return f"{words}{passes}; {screened}{row['read']:,} of {row['columns']:,} columns searched"
