"""The tables and lists of the report, as rows of text.

The section of the report about stability selection, where its result is in the folder of the selection.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from dask.utils import format_bytes

from dsel.search.exact.certificate import STATUS_WORDS
from dsel.selection.plots.coefficients import shown_values
from dsel.selection.plots.style import counted, printable
from dsel.selection.report.figures import Figure, figure
from dsel.selection.report.wording import aligned, duration, names, number
from dsel.selection.result import Selection
from dsel.selection.size_curve import FrontRow
from dsel.selection.stability.plot import draw
from dsel.selection.stability.result import Stability

#: Coefficients of more targets than this are left to the pictures.
MOST_TARGETS = 4


@dataclass(frozen=True)
class ChosenRow:
    """One chosen column.

    place: in order of gain, from 1. gain, total: shares of ||Y||^2, by this column and by all so far. width: of a bar,
    in percent. coefficients: in units of the data, for each target. standardized: where there is one target. group: of
    columns that count as one, if there are any.
    """

    place: int
    label: str
    index: int
    gain: str
    width: float
    total: str
    coefficients: tuple[str, ...]
    standardized: str
    std: str
    group: str


def chosen_rows(selection: Selection) -> list[ChosenRow]:
    """Return the rows of the table of chosen columns."""
    found, s = selection.statistics, len(selection)
    gains = np.full(s, np.nan) if found is None else found.gains
    totals, largest = np.cumsum(gains), float(np.nanmax(gains, initial=0.0)) or 1.0
    group = {j: name for name, columns in selection.groups.items() for j in columns}
    decimals = 4 if largest >= 0.01 else 6
    single = selection.coefficients.shape[1] == 1 and found is not None
    standardized = shown_values(selection, True, s)[:, 0] if single and s else np.full(s, np.nan)
    listed = selection.coefficients[:, : len(coefficient_heads(selection))]
    return [
        ChosenRow(
            place=i + 1,
            label=printable(selection.labels[i]),
            index=selection.indices[i],
            gain=_fixed(gains[i], decimals),
            width=round(100.0 * float(np.nan_to_num(gains[i])) / largest, 1),
            total=_fixed(totals[i], decimals),
            coefficients=tuple(number(value) for value in listed[i]),
            standardized=_fixed(standardized[i], 3),
            std=number(None if found is None else float(found.std[i])),
            group=printable(group.get(selection.indices[i], selection.labels[i])) if group else "",
        )
        for i in range(s)
    ]


def _fixed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}".replace("-", "−") if np.isfinite(value) else "–"


def coefficient_heads(selection: Selection) -> list[str]:
    """Return the heads of the columns of coefficients; none for many targets."""
    N = selection.coefficients.shape[1]
    if N > MOST_TARGETS:
        return []
    return ["Coefficient"] if N == 1 else [f"Coefficient, {printable(target)}" for target in selection.targets]


def front_rows(selection: Selection) -> list[dict[str, str]]:
    """Return the best subset of each size, with what it changes in the one before."""
    certified = {row["size"]: row for row in selection.certificate}
    rows = [row for row in selection.front if row.size]
    before = FrontRow(0, 0.0, 0.0, ())
    made = []
    for previous, row in pairwise([before, *rows]):
        proof = certified.get(row.size)
        made.append({
            "size": str(row.size),
            "criterion": aligned(row.criterion),
            "r2": f"{row.r2:.6f}".replace("-", "−"),
            "error": aligned(row.error),
            "bound": "" if proof is None else _bound(selection, proof),
            "change": _change(selection, previous, row),
            "chosen": "yes" if set(row.indices) == set(selection.indices) else "",
        })  # fmt: skip
    return made


def _bound(selection: Selection, proof: dict[str, Any]) -> str:
    if proof["status"] != "bounded":
        return STATUS_WORDS[proof["status"]]
    return aligned(proof["bound"]) if selection.lam else f"{proof['r2_bound']:.6f}"


def _change(selection: Selection, before: FrontRow, row: FrontRow) -> str:
    old, new = set(before.indices), set(row.indices)
    came = [selection.label(j) for j in row.indices if j not in old]
    left = [selection.label(j) for j in before.indices if j not in new]
    return f"+ {names(came, 6)}" + (f"  − {names(left, 6)}" if left else "")


def asked(selection: Selection) -> list[tuple[str, str]]:
    """Return what was requested, as terms and values."""
    request = selection.request
    options = [f"{name}: {_option(name, value)}" for name, value in request.options.items() if value is not None]
    facts = [
        ("Data", selection.source or "arrays in memory"),
        ("Size", f"{selection.shape[0]:,} rows, {selection.shape[1]:,} columns"),
        ("Targets", "none: columns are chosen for X itself" if selection.unsupervised else names(selection.targets, 8)),
        ("Columns to choose", _size(selection)),
        ("Method", request.method),
        ("Options", "; ".join(options) or "defaults"),
        ("Preprocessing", request.preprocess),
        ("Missing values", request.missing),
        ("Ridge penalty", number(request.lam, 6)),
        ("Weights of rows", selection.weights or "none"),
        ("Always chosen", _columns(selection, request.include)),
        ("Never chosen", _columns(selection, request.exclude)),
        ("Constant, not chosen", names(selection.constant)),
        ("Criterion", "squared error" if request.criterion is None else str(request.criterion)),
        ("Seed", str(request.seed)),
    ]
    return [(term, value) for term, value in facts if value not in ("", "none")]


def _size(selection: Selection) -> str:
    if selection.size_curve is None:
        return f"at most {counted(selection.k, True) if selection.groups else selection.k}"
    return f"automatic, at most {selection.request.limit}: {selection.size_curve.description}"


def _option(name: str, value: Any) -> str:
    if name == "memory" and isinstance(value, int):
        return str(format_bytes(value))
    return number(value, 6) if isinstance(value, float) else str(value)


def _columns(selection: Selection, columns: tuple[Any, ...]) -> str:
    return names([selection.label(j) if isinstance(j, int) else j for j in columns], 8)


def plan_rows(selection: Selection) -> list[tuple[str, str, str]]:
    """Return planned and measured figures."""
    if selection.plan is None:
        return []
    planned, measured = selection.plan["planned"], selection.plan["measured"]
    terms = {"bytes_read": "Bytes read", "worker_memory": "Memory of a worker", "seconds": "Time of the passes"}

    def text(name: str, value: Any) -> str:
        if value is None:
            return "–"
        if name in ("bytes_read", "worker_memory"):
            return str(format_bytes(int(value)))
        return duration(value) if name == "seconds" else f"{value:,}"

    return [
        (terms.get(name, name.replace("_", " ").capitalize()), text(name, value), text(name, measured.get(name)))
        for name, value in planned.items()
    ]


def provenance(selection: Selection) -> list[tuple[str, str]]:
    """Return when, where and with what the result was made."""
    made, seconds = selection.provenance, selection.seconds
    facts = [
        ("Started", _moment(made.get("started", ""))),
        ("Finished", _moment(made.get("finished", ""))),
        ("Host", made.get("host", "")),
        ("System", made.get("system", "")),
        ("Stages", ", ".join(f"{name} {duration(value)}" for name, value in seconds.items())),
        ("Search", f"{selection.iterations:,} iterations, ended: {selection.ended}"),
        ("Passes over the data", f"{selection.passes}, {format_bytes(selection.bytes_read)} read"),
        ("Largest memory of a worker", _peak(selection)),
        ("Seed", str(selection.seed)),
        ("Fingerprint of the data", selection.fingerprint or ""),
        ("Versions", ", ".join(f"{name} {version}" for name, version in selection.versions.items())),
    ]
    return [(term, value) for term, value in facts if value]


def _moment(iso: str) -> str:
    """Return a time in ISO 8601 as people read it."""
    return iso.replace("T", " ").replace("+00:00", " UTC")


def _peak(selection: Selection) -> str:
    peaks = [peak for peak, _ in selection.peak_memory.values()]
    return f"{format_bytes(max(peaks))} ({len(peaks)} worker{'' if len(peaks) == 1 else 's'})" if peaks else ""


#: Columns that were not chosen and are listed: the most frequent ones. Bars in the picture.
_OTHERS, _BARS = 5, 20


@dataclass(frozen=True)
class StabilityRow:
    """A column, or a group, with the share of the subsamples that it is chosen on."""

    label: str
    frequency: str
    chosen: bool


@dataclass(frozen=True)
class StabilitySection:
    """How often columns are chosen on subsamples, for sets as large as the selection."""

    text: str
    rows: tuple[StabilityRow, ...]
    picture: Figure


def stability_section(selection: Selection, stability: Stability | None) -> StabilitySection | None:
    """Return the section; None without a result of stability selection, or if it is of data of another shape."""
    if stability is None or stability.shape != selection.shape or not len(selection):
        return None
    chosen = list(selection.groups) if selection.groups else selection.labels
    size = min(len(chosen), stability.k)
    frequency = stability.frequency(size)
    order = [int(j) for j in np.argsort(-frequency, kind="stable") if frequency[j] > 0.0]
    mine = [j for j in order if stability.names[j] in chosen]
    others = [j for j in order if stability.names[j] not in chosen][:_OTHERS]
    rows = tuple(
        StabilityRow(printable(stability.names[j]), f"{frequency[j]:.2f}", j in mine)
        for j in sorted([*mine, *others], key=order.index)
    )
    method = stability.request.get("method", "")
    text = f"Share of {stability.description} on which {method} chooses a column, for sets of up to {size}."
    picture = figure(
        "stability", "Selection frequencies", text,
        lambda: "Bars: " + ", ".join(f"{row.label} {row.frequency}" for row in rows),
        lambda ax: draw(stability, ax, size, None, _BARS), 70 + 22 * min(len(order), _BARS),
    )  # fmt: skip
    return StabilitySection(text, rows, picture)
