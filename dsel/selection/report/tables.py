"""What the HTML says: numbers, sentences, and the rows of its tables and lists, as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dsel._lib.byte_sizes import format_bytes
from dsel._lib.text import at_least, at_most, noun, percent, shorten
from dsel.search.exact.certificate import NOTHING
from dsel.search.exact.certificate_words import STATUS_WORDS, caveat, claim, covered, scope
from dsel.selection.alternatives import Alternatives, Price
from dsel.selection.plots.alternatives import shown_prices
from dsel.selection.plots.coefficients import shown_values
from dsel.selection.plots.style import counted, printable
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import FrontRow
from dsel.selection.render import bytes_taken, end_of_search, passes_made
from dsel.selection.report.figures import figure
from dsel.selection.stability.result import Stability

#: Coefficients of more targets than this are left to the pictures.
MOST_TARGETS = 4
#: Classes of a table of confusions.
MOST_CLASSES = 12
#: The parameters of a loss that mean something to a reader.
_OF_LOSS = ("classes", "class_weight", "delta", "level", "width")
#: Columns that a notebook lists; the others are counted.
NOTEBOOK_ROWS = 15


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with this number of significant digits, and a real minus sign."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.{digits}g}".replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """Return a number with this number of decimals, and a real minus sign."""
    return f"{value:.{decimals}f}".replace("-", "−") if np.isfinite(value) else "–"


def aligned(value: float | None) -> str:
    """Return a number with six significant digits, zeros included, for a column of a table."""
    return "–" if value is None or not np.isfinite(value) else f"{value:#.6g}".rstrip(".").replace("-", "−")


def share(value: float) -> str:
    """Return a share in percent, or as a power of ten where two decimals would hide it."""
    return percent(value).replace("%", " %").replace("-", "−")


def duration(seconds: float) -> str:
    """Return a duration in the unit that people would use."""
    if 0.0 < seconds < 0.005:
        return "below 0.01 s"
    if seconds < 60.0:
        return f"{seconds:.2f} s" if seconds < 10.0 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def names(labels: Sequence[str], limit: int = 5) -> str:
    """Return labels in one line, at most `limit` of them."""
    return shorten([printable(label) for label in labels], limit) or "none"


def key_figures(selection: SelectionRecord) -> list[tuple[str, str, str, str]]:
    """Return the numbers that a reader looks for first: term, value, detail, and "good", "open" or nothing."""
    m, n = selection.shape
    limit = counted(selection.k, True) if selection.groups else str(selection.k)
    limit = f"at most {limit}" if selection.size_curve is None else "chosen automatically"
    figures = [
        ("Columns", str(len(selection)), f"of {n:,}, {limit}", ""),
        (selection.share_sign, fixed(selection.r2, 4), f"{_error_name(selection)} {number(selection.error, 6)}", ""),
        _proof_figure(selection),
        ("Rows", f"{m:,}", f"{passes_made(selection)} over the data", ""),
        ("Time", duration(selection.wall_seconds), selection.method, ""),
    ]
    if selection.criterion is not None:
        figures.insert(1, ("Criterion", number(selection.criterion), "minimized", ""))
    if selection.concordance is not None:
        figures.insert(2, ("Concordance", fixed(selection.concordance, 4), "on the rows of the selection", ""))
    return figures


def _proof_figure(selection: SelectionRecord) -> tuple[str, str, str, str]:
    row = certificate_of_choice(selection)
    if selection.criterion is not None:
        return "Certificate", "none", "there is none for a custom criterion", ""
    if row is None:
        return "Certificate", "none yet", "see below how to prove a bound", ""
    status = row["status"]
    if status == "optimal":
        limited = row["coefficients"] or row.get("largest_coefficient")
        size = "" if selection.size_curve is None else " of this size"
        within = "proved, for limited coefficients" if limited else f"proved: no allowed subset{size} is better"
        return "Certificate", STATUS_WORDS[status], within, "good"
    if status != "bounded":
        more = "proved but for these" if status == "optimal-except-near-copies" else "it says why below"
        return "Certificate", STATUS_WORDS[status], more, "good" if row["proven"] else "open"
    about = scope(row) or "by the certificate"
    if selection.lam:
        return "Least possible error", f"≥ {at_least(row['bound'], 5)}", about, "open"
    return f"Best possible {selection.share_sign}", f"≤ {at_most(row['r2_bound'])}", about, "open"


def confusion(selection: SelectionRecord) -> tuple[list[str], list[tuple[str, list[str]]]] | None:
    """Return the classes, and for each one the weight of its rows by predicted class; None for many or none."""
    figures = selection.class_figures
    if figures is None or len(figures.names) > MOST_CLASSES:
        return None
    rows = zip(figures.names, figures.confusion, strict=True)
    return list(figures.names), [(name, [number(value, 6) for value in row]) for name, row in rows]


def search_end(selection: SelectionRecord) -> str:
    """Return how long the search took and why it ended, as a sentence."""
    steps = f"{selection.iterations:,} {noun(selection.iterations, 'iteration')} of {selection.method}"
    return f"The search took {steps}: {end_of_search(selection)}."


def _error_name(selection: SelectionRecord) -> str:
    if not selection.by_loss:
        return "error"
    return f"{selection.request.loss} deviance" + (" with the penalty" if selection.lam else "")


def explained(selection: SelectionRecord) -> str:
    """Return the name of the sum of gains: R^2, or with a ridge penalty what is left of it."""
    if selection.by_loss:
        return "1 − F / F(∅)" if selection.lam else "D²"
    return "1 − f / ‖Y‖²" if selection.lam else "R²"


def headline(selection: SelectionRecord) -> str:
    """Return the result in one sentence."""
    columns = f"{len(selection):,} of {counted(selection.shape[1])}"
    if selection.groups:
        columns = f"{counted(len(selection.groups), True)} with {columns}"
    if selection.criterion is not None:
        return f"{columns}, criterion {number(selection.criterion, 6)}"
    subject = "X" if selection.unsupervised else f"{len(selection.targets)} targets"
    if len(selection.targets) == 1:
        subject = printable(selection.targets[0])
    elif len(selection.predicted) == 1 and selection.targets:
        subject = names(selection.targets)
    if selection.class_figures is not None and selection.classes:
        subject = names(list(selection.classes))
    subject = f"the {selection.request.loss} deviance of {subject}" if selection.by_loss else subject
    ones = selection.counts.get("r2_with_ones")
    subject += "" if ones is None else f", and {share(ones)} with the column of ones"
    return f"{columns} {_explain(len(selection.groups or selection))} {share(selection.r2)} of {subject}"


def proof(selection: SelectionRecord, row: dict[str, Any]) -> str:
    """Return what a certificate proves, in sentences: about R^2, or with a ridge penalty about the error f(S)."""
    remark = caveat(row, selection.label, selection.counts, selection.indices)
    return " ".join([_proved(selection, row), *([printable(remark)] if remark else [])])


def _proved(selection: SelectionRecord, row: dict[str, Any]) -> str:
    if row["method"].startswith(NOTHING):
        return f"Proved optimal: only one subset of {counted(row['size'], bool(selection.groups))} may be chosen."
    size, words = counted(row["size"], bool(selection.groups)).replace(" ", " independent ", 1), claim(row)
    none = f"no allowed subset of {size}"
    none += " without such near-copies" if row["status"] == "optimal-except-near-copies" else ""
    if selection.lam:
        if words is not None:
            return f"{_sentence(words)}: {none} has a smaller error f(S) than {number(row['value'], 6)}."
        known = (
            f"{none} has an error f(S) below {at_least(row['bound'])}; the best known has {number(row['value'], 6)}."
        )
    elif words is not None:
        return f"{_sentence(words)}: {none} explains more than {selection.share_sign} {row['r2']:.6f}."
    else:
        known = f"{none} explains more than {selection.share_sign} {at_most(row['r2_bound'])}; the best known explains "
        known += f"{row['r2']:.4f}."
    if among := covered(row):
        known = f"{among}: {known}"
    useless = "No useful bound. " if row["status"] == "no-useful-bound" else ""
    return f"{useless}{_sentence(known)} The error could be at most {share(row['relative_gap'])} lower."


def _explain(size: int) -> str:
    """Return the verb of as many columns or groups."""
    return "explains" if size == 1 else "explain"


def _sentence(words: str) -> str:
    return (words[0].upper() + words[1:]).replace("||Y||^2", "‖Y‖²")


def proofs(selection: SelectionRecord) -> list[str]:
    """Return what the certificates prove: the choice first, then the other sizes together."""
    choice = certificate_of_choice(selection)
    if choice is None:
        return []
    others = [row for row in selection.certificate if row is not choice and row["size"]]
    proven = [str(row["size"]) for row in others if row["status"] == "optimal" and not covered(row)]
    text = [proof(selection, choice)]
    if proven:
        counting = "group" if selection.groups else "column"
        counting = counting if proven == ["1"] else f"{counting}s"
        subsets = "subset of {} {} is" if len(proven) == 1 else "subsets of {} {} are"
        text.append(f"The best {subsets.format(shorten(proven, 12), counting)} proved optimal, too.")
    if len(proven) < len(others):
        text.append("The table shows what is proved for the other sizes.")
    return text


def certificate_of_choice(selection: SelectionRecord) -> dict[str, Any] | None:
    """Return the certificate that covers the chosen number of columns, or None."""
    rows = [row for row in selection.certificate if row["size"] >= (len(selection.groups) or len(selection))]
    return min(rows, key=lambda row: row["size"], default=None)


def chosen_rows(selection: SelectionRecord) -> list[dict[str, Any]]:
    """Return the rows of the table of chosen columns."""
    statistics, s = selection.statistics, len(selection)
    gains = np.full(s, np.nan) if statistics is None else statistics.gains
    totals, largest = np.cumsum(gains), float(np.nanmax(gains, initial=0.0)) or 1.0
    group = {j: name for name, columns in selection.groups.items() for j in columns}
    decimals = 4 if largest >= 0.01 else 6
    single = selection.coefficients.shape[1] == 1 and statistics is not None
    standardized = shown_values(selection, True, s)[:, 0] if single and s else np.full(s, np.nan)
    listed = selection.coefficients[:, : len(coefficient_heads(selection))]
    if selection.ratio_name is not None:
        listed = np.hstack([selection.coefficients, selection.ratios])
    return [
        {
            "place": i + 1,
            "label": printable(selection.names[i]),
            "index": selection.indices[i],
            "gain": fixed(gains[i], decimals),
            "width": round(100.0 * float(np.nan_to_num(gains[i])) / largest, 1),
            "total": fixed(totals[i], decimals),
            "coefficients": tuple(number(value) for value in listed[i]),
            "standardized": fixed(standardized[i], 3),
            "std": number(None if statistics is None else float(statistics.std[i])),
            "group": printable(group.get(selection.indices[i], selection.names[i])) if group else "",
        }
        for i in range(s)
    ]


def substitute_rows(selection: SelectionRecord) -> list[dict[str, str]]:
    """Return the rows of the table of substitutes of the chosen columns."""
    if not selection.swaps:
        return []
    return [
        {
            "label": printable(str(label)),
            "first": printable(str(best.label)),
            "r2": f"{best.r2:.6f}".replace("-", "−"),
            "proved": "the best (proved)" if best.proved else "",
            "correlation": fixed(np.nan if best.correlation is None else best.correlation, 4),
            "others": ", ".join(f"{printable(str(one.label))} ({one.r2:.4f})" for one in others),
        }
        for label, (best, *others) in selection.substitutes().items()
    ]


#: Columns of near-best subsets that get a sentence.
_MOST_SENTENCES = 30


def alternatives_section(selection: SelectionRecord) -> dict[str, Any] | None:
    """Return the section on near-best subsets: what was found, and a sentence on each column; None without any."""
    found = selection.alternatives
    if found is None or not found.subsets:
        return None
    near, verdicts, *about = found.lines()
    return {
        "lead": f"There {'is' if len(found.subsets) == 1 else 'are'} {near}. {found.noun.capitalize()}s: {verdicts}."
        + "".join(f" {line[0].upper()}{line[1:]}." for line in about),
        "sentences": [
            _about_column(found, price, selection.share_less_penalty.replace("2", "²"))
            for price in shown_prices(selection)[:_MOST_SENTENCES]
        ],
        "useless": f"In no {'listed' if found.by else 'near-best'} subset: {names([*map(str, useless)], 20)}."
        if (useless := found.labels("useless"))
        else "",
    }


def _about_column(found: Alternatives, price: Price, share: str) -> str:
    """Return what is known about a column in one sentence. share: the name of what is explained."""
    label, listed = printable(str(price.label)), len(found.subsets)
    every = "the only" if listed == 1 else f"all {listed:,}"
    where = f"{label} is in {found.counts.get(price.index, 0):,} of {listed:,} listed {noun(listed, 'subset')}"
    if found.by:
        return f"{where}."
    if price.verdict == "necessary":
        place = f"is in {every}" if found.complete else "is in every"
        subsets = "subset" if listed == 1 or not found.complete else "subsets"
        most = f"without it {share} is at most {at_most(found.r2(price.bound_without))}"
        if found.copies and not price.bound_without:
            most = "without it, nothing is proved about subsets with near-copies"
        return f"{label} {place} near-best {subsets}; {most}."
    if any(price.index == first for first, *_ in found.copies) and price.verdict == "undecided":
        return f"{where}; it represents near-copies, which no listed subset has."
    if price.verdict == "undecided" or price.error_without is None:
        return f"{where}; whether it is necessary or useless is not proved."
    return f"{where}; the best without it has {share} {found.r2(price.error_without):.4f}."


def coefficient_heads(selection: SelectionRecord) -> list[str]:
    """Return the heads of the columns of coefficients; none for many targets."""
    N = selection.coefficients.shape[1]
    if N > MOST_TARGETS:
        return []
    if selection.ratio_name is not None:
        return ["Coefficient", selection.ratio_name.capitalize()]
    return ["Coefficient"] if N == 1 else [f"Coefficient, {printable(target)}" for target in selection.targets]


def front_rows(selection: SelectionRecord) -> list[dict[str, str]]:
    """Return the best subset of each size up to k, with what it changes in the one before."""
    certified = {row["size"]: row for row in selection.certificate}
    rows = [row for row in selection.front if 0 < row.size <= selection.k]
    before = FrontRow(0, 0.0, 0.0, ())
    made = []
    for previous, row in pairwise([before, *rows]):
        proof = certified.get(row.size)
        made.append({
            "size": str(row.size),
            "criterion": aligned(row.criterion),
            "r2": fixed(row.r2, 6),
            "error": aligned(row.error),
            "bound": "" if proof is None else _bound(selection, proof),
            "change": _change(selection, previous, row),
            "chosen": "yes" if set(row.indices) == set(selection.indices) else "",
        })  # fmt: skip
    return made


def _bound(selection: SelectionRecord, proof: dict[str, Any]) -> str:
    if proof["status"] != "bounded":
        return STATUS_WORDS[proof["status"]]
    return at_least(proof["bound"], style="#").rstrip(".") if selection.lam else at_most(proof["r2_bound"], 6)


def _change(selection: SelectionRecord, before: FrontRow, row: FrontRow) -> str:
    old, new = set(before.indices), set(row.indices)
    came = [selection.label(j) for j in row.indices if j not in old]
    left = [selection.label(j) for j in before.indices if j not in new]
    return f"+ {names(came, 6)}" + (f"  − {names(left, 6)}" if left else "")


def asked(selection: SelectionRecord) -> list[tuple[str, str]]:
    """Return what was requested, as terms and values."""
    request = selection.request
    copies = {j for _, *others in selection.counts.get("copies", ()) for j in others}
    options = [f"{name}: {_option(name, value)}" for name, value in request.options.items() if value is not None]
    facts = [
        ("Data", selection.source or "arrays in memory"),
        ("Size", f"{selection.rows_in_words}, {selection.shape[1]:,} columns"),
        ("Targets", "none: columns are chosen for X itself" if selection.unsupervised else names(selection.targets, 8)),
        ("Columns to choose", _size(selection)),
        ("Method", request.method),
        ("Options", "; ".join(options) or "defaults"),
        ("Preprocessing", request.preprocess),
        ("Missing values", request.missing),
        ("Ridge penalty", number(request.lam, 6)),
        ("Weights of rows", selection.weights or "none"),
        ("Always chosen", _columns(selection, request.include)),
        ("Never chosen", _columns(selection, tuple(j for j in request.exclude if j not in copies))),
        ("Copies of others, not chosen", _columns(selection, tuple(sorted(copies)))),
        ("Constant, not chosen", names(selection.constant)),
        ("Criterion", _loss_of(selection) if request.criterion is None else str(request.criterion)),
        ("Offset", "none" if request.offset is None else str(request.offset)),
        ("Seed", str(request.seed)),
    ]
    return [(term, value) for term, value in facts if value not in ("", "none")]


def _loss_of(selection: SelectionRecord) -> str:
    """Return what was minimized, with its parameters."""
    if not selection.by_loss:
        return "squared error"
    known, figures = dict(selection.loss_parameters), selection.class_figures
    if figures is not None:  # the parameters have numbers in place of names
        known["classes"] = shorten(map(printable, figures.names), MOST_CLASSES)
    parts = [
        f"{name}: {_option(name, value)}" for name, value in known.items() if name in _OF_LOSS and value is not None
    ]
    return f"{selection.request.loss} deviance" + (f" ({'; '.join(parts)})" if parts else "")


def _size(selection: SelectionRecord) -> str:
    if selection.size_curve is None:
        return f"at most {counted(selection.k, True) if selection.groups else selection.k}"
    return f"automatic, at most {selection.request.limit}: {selection.size_curve.description}"


def _option(name: str, value: Any) -> str:
    if name == "memory" and isinstance(value, int):
        return str(format_bytes(value))
    return number(value, 6) if isinstance(value, float) else str(value)


def _columns(selection: SelectionRecord, columns: tuple[Any, ...]) -> str:
    return names([selection.label(j) if isinstance(j, int) else j for j in columns], 8)


def plan_rows(selection: SelectionRecord) -> list[tuple[str, str, str]]:
    """Return planned and measured figures."""
    if selection.plan is None:
        return []
    planned, measured = selection.plan["planned"], selection.plan["measured"]
    terms = {
        "bytes_read": "Bytes read", "worker_memory": "Memory of a worker", "seconds": "Time of the passes",
        "search_seconds": "Time of the search", "search_seconds_on_workers": "Time of the search on workers",
    }  # fmt: skip

    def text(name: str, value: Any) -> str:
        if value is None:
            return "–"
        if name in ("bytes_read", "worker_memory"):
            return str(format_bytes(int(value)))
        return duration(value) if name in terms else f"{value:,}"

    rows = [
        (terms.get(name, name.replace("_", " ").capitalize()), text(name, value), text(name, measured.get(name)))
        for name, value in planned.items()
        if not (value is None and measured.get(name) is None)
    ]
    of_copies = measured.get("of_copies", 0)  # older results have none
    return [*rows, ("Bytes read for columns that are copies", "–", format_bytes(of_copies))] if of_copies else rows


def provenance(selection: SelectionRecord) -> list[tuple[str, str]]:
    """Return when, where and with what the result was made."""
    made, seconds = selection.provenance, selection.seconds
    facts = [
        ("Started", _moment(made.get("started", ""))),
        ("Finished", _moment(made.get("finished", ""))),
        ("Host", made.get("host", "")),
        ("System", made.get("system", "")),
        ("Stages", ", ".join(f"{name} {duration(value)}" for name, value in seconds.items())),
        ("Passes over the data", f"{passes_made(selection)}; {bytes_taken(selection)}"),
        ("Largest memory of a worker", _peak(selection)),
        ("Seed", str(selection.seed)),
        ("Fingerprint of the data", selection.fingerprint or ""),
        ("Versions", ", ".join(f"{name} {version}" for name, version in selection.versions.items())),
    ]
    return [(term, value) for term, value in facts if value]


def _moment(iso: str) -> str:
    """Return a time in ISO 8601 as people read it."""
    return iso.replace("T", " ").replace("+00:00", " UTC")


def _peak(selection: SelectionRecord) -> str:
    peaks = [peak for peak, _ in selection.peak_memory.values()]
    return f"{format_bytes(max(peaks))} ({len(peaks)} worker{'' if len(peaks) == 1 else 's'})" if peaks else ""


#: Columns that were not chosen and are listed: the most frequent ones. Bars in the picture.
_OTHERS, _BARS = 5, 20


def stability_section(selection: SelectionRecord, stability: Stability | None) -> dict[str, Any] | None:
    """Return the section; None without a result of stability selection, or if it is of other data or groups."""
    chosen, noun = (list(selection.groups), "group") if selection.groups else (selection.names, "column")
    if stability is None or stability.shape != selection.shape or not chosen:
        return None
    if not set(chosen) <= set(map(str, stability.names)):
        return None
    size = min(len(chosen), stability.k)
    frequency, order = stability.frequency(size), stability.ranked(size)
    mine = [j for j in order if str(stability.names[j]) in chosen]
    others = [j for j in order if j not in mine][:_OTHERS]
    rows = [
        {"label": printable(str(stability.names[j])), "frequency": f"{frequency[j]:.2f}", "chosen": j in mine}
        for j in sorted([*mine, *others], key=order.index)
    ]
    method = stability.request.get("method", "")
    text = f"Share of {stability.description} on which {method} chooses a {noun}, for sets of up to {size}."
    picture = figure(
        "stability", "Selection frequencies", text,
        lambda: "Bars: " + ", ".join("{label} {frequency}".format_map(row) for row in rows),
        lambda ax: stability.plot(ax, size=size, most=_BARS), 70 + 22 * min(len(order), _BARS),
    )  # fmt: skip
    return {"rows": rows, "picture": picture, "noun": noun}
