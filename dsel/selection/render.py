"""Print a Selection in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dsel._lib.console import console_text, text_table
from dsel._lib.text import at_least, at_most, counted, exponential, noun, passes_over_data, percent, printable, shorten
from dsel._lib.types import Floats
from dsel.search.exact.certificate_words import STATUS_WORDS, caveat, claim, counted_size, covered, effort
from dsel.selection.alternatives import FROM_PROOF, VERDICTS, Alternatives
from dsel.selection.record import SelectionRecord
from dsel.selection.record_values import SizeCurve
from dsel.selection.represented import inexact_copies

if TYPE_CHECKING:
    from rich.table import Table

#: Subsets are printed in full up to this many characters where there is no terminal to ask.
_FULL = 100
#: Errors that differ by at most this share are equal up to rounding.
_ROUNDING = 1e-9
#: A ratio with a smaller guarantee says nothing to a reader.
_LEAST_GUARANTEE = 0.01
#: Near-best subsets that are printed, and columns that a line names.
_LISTED, _FEW = 20, 20
#: Stands after the subset that is the answer.
_MARK = " <-"
#: Why a search ended, in words.
_ENDS = {
    "complete": "it ran to its end", "iterations": "it made all that were allowed",
    "seconds": "the time limit ended it", "memory": "the memory limit ended it",
    "patience": "it found nothing better for a long time", "target": "it reached the target",
    "bound": "it reached the proved bound", "proven": "its answer is proved",
    "goal": "its bounds exclude better subsets, up to gamma and epsilon", "failed": "no proof was possible",
    "contradiction": "rounding contradicts its bounds",
}  # fmt: skip


def render(selection: SelectionRecord, width: int | None = None, *, details: bool = False) -> str:
    """Return a selection as text: the chosen columns, the quality of each size, and the certificate.

    Parameters
    ----------
    selection : Selection
        What to print.
    width : int, optional
        Columns of the terminal; longer lines are broken. By default no line is broken.
    details : bool
        Add what could replace each column, the cost, and the plan compared with what was measured.

    Returns
    -------
    str
        Lines that end with a line break. Control characters in labels are escaped.
    """
    return console_text(_parts(selection, width, details), width)


def _parts(selection: SelectionRecord, width: int | None, details: bool) -> Iterator[str | Table]:
    yield printable(_headline(selection))
    if selection.path:
        yield "Steps, by the error on left-out rows:"
        yield _path(selection)
    else:
        yield "Best subset found of each size:"
        yield _front(selection, width)
    if selection.size_curve is not None:
        yield f"k = {selection.k}: {selection.size_curve.description}"
        yield _size_curve(selection.size_curve)
    chosen = list(selection.groups) or selection.names
    yield f"Chosen, {selection.order}: {_join(chosen)}" if chosen else "Chosen: none"
    if sorted(chosen) != sorted(selection.names):
        yield f"Their columns: {_join(selection.names)}"
    if selection.ratio_name is not None and len(selection):
        yield f"{selection.ratio_name.capitalize()}s, {_ratios(selection)}"
    if selection.concordance is not None:
        yield f"Concordance on these rows: {selection.concordance:.4f}"
    remarks = _remarks(selection)
    for certificate in selection.certificate:
        yield _proof(certificate, selection.lam > 0.0, selection.share_name)
        yield from remarks.get(certificate["size"], ())
    yield from describe_guarantees(selection)
    if selection.alternatives is not None:
        yield from (f"Alternatives: {line}" for line in selection.alternatives.lines())
    if selection.changes:
        yield from map(printable, describe_changes(selection.changes))
    if details:
        if selection.swaps:
            yield "What could replace each column:"
            yield _substitutes(selection)
        yield from describe_cost(selection)
    yield from (f"note: {printable(note)}" for note in selection.notes)


def render_alternatives(selection: SelectionRecord, width: int | None = None) -> str:
    """Return the near-best subsets of a selection as text: the subsets, and the verdict and price of each column.

    Parameters
    ----------
    selection : Selection
        A selection with `alternatives`.
    width : int, optional
        Columns of the terminal; longer lines are broken. By default no line is broken.

    Returns
    -------
    str
        Lines that end with a line break. Control characters in labels are escaped.
    """
    if selection.alternatives is None:
        return "The selection has no list of near-best subsets.\n"
    parts = [part for found in selection.alternatives.by_size.values() for part in _alternatives(selection, found)]
    replaced = "The result now has the best known columns"
    parts += [note.replace(FROM_PROOF, replaced) for note in selection.notes if note.startswith(FROM_PROOF)]
    return console_text(parts, width)


def _alternatives(selection: SelectionRecord, found: Alternatives) -> Iterator[str | Table]:
    near, verdicts, *about = found.lines()
    yield f"{near} ({found.nodes:,} {noun(found.nodes, 'node')}, {found.seconds:.1f} s)"
    if not verdicts:
        return
    labels = {j: name for name, columns in selection.groups.items() for j in columns}
    labels |= {j: str(price.label) for price in found.columns for j in price.columns or (price.index,)}
    table = text_table(
        *((f"-{found.by}" if found.by == "adjusted-r2" else found.by,) if found.by else ()),
        _error_name(selection),
        selection.share_name,
        f"{found.noun}s",
        left=(f"{found.noun}s",),
        fold=(f"{found.noun}s",),
    )
    for row in found.subsets[:_LISTED]:
        subset = list(dict.fromkeys(labels.get(j) or selection.label(j) for j in row.indices))
        by = [] if row.criterion is None else [f"{row.criterion:.6g}"]
        table.add_row(*by, f"{row.error:.6g}", f"{row.r2:.6f}", _join(subset))
    yield table
    if len(found.subsets) > _LISTED:
        yield f"and {len(found.subsets) - _LISTED:,} more, which the result holds"
    yield f"{found.noun.capitalize()}s: {verdicts}"
    prices = () if found.by else (f"best {selection.share_less_penalty} with it", "without it")
    table = text_table(found.noun, "verdict", *prices, left=(found.noun, "verdict"), fold=(found.noun,))
    for price in sorted(found.columns, key=lambda price: VERDICTS.index(price.verdict)):
        if price.verdict != "useless":
            both = [_r2_of(found, error) for error in (price.error_with, price.error_without)]
            table.add_row(printable(price.label), price.verdict, *both[: len(prices)])
    yield table
    if useless := found.labels("useless"):
        yield f"In no {'listed' if found.by else 'near-best'} subset: {shorten(map(str, useless), _FEW)}"
    yield from (f"{line[0].upper()}{line[1:]}" for line in about)


def _substitutes(selection: SelectionRecord) -> Table:
    """Return the best substitutes of each chosen column as a table."""
    names = ("column", "substitute", "further substitutes")
    table = text_table(*names[:2], "R2 with it", "correlation", names[2], left=names, fold=names)
    for label, (first, *others) in selection.substitutes().items():
        r2 = f"{first.r2:.6f}{', the best (proved)' if first.proved else ''}"
        correlation = "" if first.correlation is None else f"{first.correlation:.4f}"
        table.add_row(
            printable(str(label)), printable(first.label), r2, correlation,
            ", ".join(f"{printable(one.label)} ({one.r2:.4f})" for one in others),
        )  # fmt: skip
    return table


def _r2_of(found: Alternatives, error: float | None) -> str:
    return "" if error is None else f"{found.r2(error):.6f}"


def passes_made(selection: SelectionRecord) -> str:
    """Return the number of passes over the data in words, and how many of them proofs made."""
    total, plan = passes_over_data(selection.passes, selection.bytes_read), selection.plan
    by_proofs = 0 if plan is None else selection.passes - plan["measured"]["passes"]
    return f"{total} ({by_proofs} for proofs)" if by_proofs > 0 else total


def bytes_taken(selection: SelectionRecord) -> str:
    """Return the bytes that were read of the data in words, and how many of them proofs read."""
    from dsel._lib.byte_sizes import format_bytes

    plan, total = selection.plan, format_bytes(selection.bytes_read)
    by_proofs = 0 if plan is None else selection.bytes_read - plan["measured"]["bytes_read"]
    return f"{total} read ({format_bytes(by_proofs)} for proofs)" if by_proofs > 0 else f"{total} read"


def describe_cost(selection: SelectionRecord) -> Iterator[str]:
    """Yield one line about the cost of a selection, and one about its plan compared with what was measured."""
    seconds = ", ".join(f"{name} {value:.2f} s" for name, value in selection.seconds.items())
    read = f"{passes_made(selection)}; {bytes_taken(selection)}"
    evaluated = selection.counts.get("evaluated") if selection.criterion is not None else None
    evaluations = "" if evaluated is None else f", {evaluated:,} {noun(evaluated, 'evaluation')} of the criterion"
    iterations = f"{selection.iterations:,} {noun(selection.iterations, 'iteration')}"
    yield f"{iterations}{evaluations}: {end_of_search(selection)}; {read}; {seconds}"
    if selection.plan is not None:
        yield _plan(selection.plan, bool(selection.certificate))


def end_of_search(selection: SelectionRecord) -> str:
    """Return why the search ended, in words."""
    return _ENDS.get(selection.ended, selection.ended)


def describe_guarantees(selection: SelectionRecord) -> Iterator[str]:
    """Yield one line about the submodularity ratio, and one about the best approximation of X, where they are known."""
    gamma = selection.submodularity
    single = selection.k - len(selection.include) == 1
    useless = gamma is not None and gamma.guarantee < _LEAST_GUARANTEE
    for proof in selection.certificate:
        best_known = proof["status"].startswith("optimal") and not covered(proof)
        if proof["size"] == selection.k and (best_known or single or useless or selection.unsupervised):
            gamma = None  # says no more than the certificate
    if gamma is not None and single:
        yield "Submodularity ratio: 1, as for each choice of one column, where forward selection finds the best one"
    elif gamma is not None and useless:
        yield (
            f"Submodularity ratio: at most {gamma.estimate:.4f}; no useful lower bound is proved, so the ratio gives "
            "no guarantee here"
        )
    elif gamma is not None:
        others = " without those that others represent" if inexact_copies(selection.counts) else ""
        yield (
            f"Submodularity ratio: at least {gamma.bound:.4f} (proved), at most {gamma.estimate:.4f}; forward "
            f"selection explains at least {gamma.guarantee:.2%} of what the best columns{others} explain (proved)"
        )
    if selection.error_ratio is not None:
        ridge = " of the ridge fit, without its penalty," if selection.lam > 0.0 else ""
        rank = int(selection.coefficients.any(axis=1).sum())  # columns that depend on others have coefficient 0
        yield f"Error ratio{ridge} to the best approximation of rank {rank}: {selection.error_ratio:.4f}"


#: The exponential of a larger exponent, above 10^4, cannot be read.
_MOST = math.log(1e4)


def _ratios(selection: SelectionRecord) -> str:
    """Return the exponentials of the coefficients as text, by standard deviations where units make them unreadable."""
    b, about = selection.coefficients[:, 0], "for one more unit of a column"
    if selection.statistics is not None:
        by_deviation = b * selection.statistics.std
        finite = np.abs(by_deviation) < _MOST  # others have no end, in any unit
        if not _readable(b[finite]) and _readable(by_deviation[finite]):
            b, about = by_deviation, "for one more standard deviation of a column, since some units are small or large"
    pairs = zip(selection.names, b.tolist(), strict=True)
    return f"{about}: {shorten([f'{printable(label)} {exponential(value)}' for label, value in pairs], _FEW)}"


def _readable(exponents: Floats) -> bool:
    """Return whether all exponentials differ from 1 in four digits, and are from 10^-4 to 10^4."""
    sizes = np.abs(exponents)[exponents != 0.0]
    return bool(((sizes > 5e-4) & (sizes < _MOST)).all())


def _remarks(selection: SelectionRecord) -> dict[int, list[str]]:
    """Return what certificates leave open, by the size below which it is printed: once for all sizes alike."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for row in selection.certificate:
        same_gap = {**row, "dependent_gap": float(row["dependent_gap"] > 0.0)}
        if what := caveat(same_gap, selection.label, selection.counts, selection.indices):
            alike.setdefault(what, []).append(row)
    found: dict[int, list[str]] = {}
    for rows in alike.values():
        largest = {**rows[-1], "dependent_gap": max(row["dependent_gap"] for row in rows)}
        sizes = [str(row["size"]) for row in rows]
        which = f"Sizes {shorten(sizes, _FEW)}: " if len(sizes) > 1 else ""
        sentence = caveat(largest, selection.label, selection.counts, selection.indices)
        found.setdefault(rows[-1]["size"], []).append(f"  {which}{printable(sentence)}")
    return found


def _headline(selection: SelectionRecord) -> str:
    n = selection.shape[1]
    about = "of Y" if selection.coefficients.shape[1] != n or selection.targets else "of X itself"
    about = f"of the {selection.request.loss} deviance" if selection.by_loss else about
    further = f"seed {selection.seed}" + (f", weights: {selection.weights}" if selection.weights else "")
    criterion = "" if selection.criterion is None else f"; criterion {selection.criterion:.6g}"
    groups = f"{counted(len(selection.groups), 'group')} with " if selection.groups else ""
    verb = "explains" if len(selection.groups or selection) == 1 else "explain"
    penalty = f", lam = {selection.lam:g}" if selection.lam else ""
    ones = selection.counts.get("r2_with_ones")
    about += "" if ones is None else f", and {ones:.4%} with the column of ones"
    return (
        f"{groups}{len(selection)} of {n:,} {noun(n, 'column')} {verb} {selection.r2:.4%} {about} "
        f"({selection.rows_in_words}; {selection.method}, {selection.preprocess}{penalty}, {further}{criterion})"
    )


def _error_name(selection: SelectionRecord) -> str:
    """Return the name of what a subset minimizes."""
    return "error" if not selection.by_loss else "deviance + penalty" if selection.lam else "deviance"


def _front(selection: SelectionRecord, width: int | None) -> Table:
    """Return the best subsets as a table: all of their labels, or what changes from row to row if that is too wide."""
    group = {int(j): name for name, columns in (selection.request.groups or {}).items() for j in columns}
    included = len({group.get(int(j), str(j)) for j in selection.include})
    rows = [row for row in selection.front if included <= row.size <= selection.k]
    subsets = [list(dict.fromkeys(group.get(j) or selection.label(j) for j in row.indices)) for row in rows]
    by_criterion = any(row.criterion is not None for row in rows)
    proofs = {proof["size"]: proof for proof in selection.certificate} if len(selection.certificate) > 1 else {}
    figures = [_error_name(selection), selection.share_name, *(["gap"] if proofs else [])]
    figures = ["size", *(["criterion"] if by_criterion else []), *figures]
    values = []
    for row in rows:
        criterion = ["" if row.criterion is None else f"{row.criterion:.6g}"] if by_criterion else []
        gap = [_gap(proofs.get(row.size))] if proofs else []
        values.append([str(row.size), *criterion, f"{row.error:.6g}", f"{row.r2:.6f}", *gap])
    columns = zip(figures, *values, strict=True)
    taken = sum(2 + max(map(len, column)) for column in columns)
    in_full = all(len(_join(subset)) <= (width or _FULL) - taken - len(_MARK) for subset in subsets)
    last = "columns" if in_full else "columns, compared with the row above"
    table = text_table(*figures, last, left=(last,), fold=(last,))
    before: Sequence[str] = ()
    for row, subset, cells in zip(rows, subsets, values, strict=True):
        mark = _MARK if set(row.indices) == set(selection.indices) else ""
        table.add_row(*cells, (_join(subset) if in_full else _change(before, subset)) + mark)
        before = subset
    return table


def _gap(proof: Mapping[str, Any] | None) -> str:
    """Return by how much the error of a size may be above the best one, as text."""
    if proof is None:
        return ""
    return f"{proof['gap']:.4g}" if proof["status"] == "bounded" else STATUS_WORDS[proof["status"]]


def _change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return which labels come and go between two subsets."""
    gone, come = set(before) - set(after), set(after) - set(before)
    parts = [f"-{printable(label)}" for label in before if label in gone]
    parts += [f"+{printable(label)}" for label in after if label in come]
    return " ".join(parts)


def _join(labels: Sequence[str]) -> str:
    return ", ".join(printable(label) for label in labels)


def _path(selection: SelectionRecord) -> Table:
    """Return the steps as a table, at most the first and last 20."""
    path = selection.path
    extra = [name for name in ("accuracy", "test_error", "test_accuracy") if getattr(path[0], name) is not None]
    further = (name.replace("_", " ") for name in extra)
    table = text_table("size", "step", "column", "error", *further, left=("step", "column"), fold=("column",))
    for i, row in enumerate(path):
        if 20 <= i < len(path) - 20:
            if i == 20:
                table.add_row("...")
            continue
        figures = [f"{getattr(row, name):.6g}" for name in ("error", *extra)]
        table.add_row(str(row.size), row.action, printable(row.label), *figures)
    return table


def _size_curve(curve: SizeCurve) -> Table:
    """Return the curve of an automatic k as a table."""
    with_errors = any(point.standard_error is not None for point in curve.points)
    names = ("size", "value", *(["standard error"] if with_errors else []))
    table = text_table(*names, "", left=("",), fold=names)
    for point in curve.points:
        error = [] if not with_errors else [f"{point.standard_error:.3g}"]
        table.add_row(str(point.size), f"{point.value:.6g}", *error, "<-" if point.size == curve.k else "")
    return table


def _proof(row: dict[str, Any], penalized: bool, share: str) -> str:
    size = counted_size(row)
    took = f"{effort(row)}, {row['seconds']:.1f} s"
    words, among = claim(row), f" {covered(row)}".rstrip()
    useless = "no useful bound, " if row["status"] == "no-useful-bound" else ""
    if penalized:  # what is proved is the error with its penalty, from which no R2 follows
        proved = f"error {row['value']:.6g} with the ridge penalty"
        if words is not None:
            return f"Certificate, {size}: {words}, {proved} ({took})"
        return (
            f"Certificate, {size}: {useless}{proved}{among}, none is below {at_least(row['bound'])} "
            f"(gap {row['gap']:.4g}, {percent(row['relative_gap'])} of the error; {took})"
        )
    if words is not None:
        return f"Certificate, {size}: {words}, {share} {row['r2']:.6f} ({took})"
    return (
        f"Certificate, {size}: {useless}{share} {row['r2']:.6f}{among}, none is above {at_most(row['r2_bound'], 6)}; "
        f"error {row['value']:.6g}, none is below {at_least(row['bound'])} (gap {row['gap']:.4g}, "
        f"{percent(row['relative_gap'])} of the error; {took})"
    )


def _plan(plan: dict[str, Any], proved: bool) -> str:
    """Return the planned and the measured figures as one line. proved: whether there are proofs, which are left out."""
    from dsel._lib.byte_sizes import format_bytes

    planned, measured = plan["planned"], plan["measured"]
    about, without = "about " if planned["passes"] else "at least ", " (without proofs)" if proved else ""
    about = "" if plan["exact"] else about
    of_copies = measured.get("of_copies", 0)  # older results have none
    copies = f", of these {format_bytes(of_copies)} for columns that are copies" if of_copies else ""
    parts = [
        f"{_planned_passes(planned)} and {passes_over_data(measured['passes'], measured['bytes_read'])}",
        f"{format_bytes(planned['bytes_read'])} and {format_bytes(measured['bytes_read'])} read{copies}",
        f"{planned['tasks']} and {counted(measured['tasks'], 'task')}",
    ]
    if measured.get("worker_memory"):
        memory = format_bytes(planned["worker_memory"]), format_bytes(measured["worker_memory"])
        parts.append(f"{memory[0]} and {memory[1]} per worker")
    if planned["seconds"] is not None:
        parts.append(f"{planned['seconds']:.3g} and {measured['seconds']:.3g} s in passes")
    return f"As {plan['representation']}; planned and measured{without}: {about}{', '.join(parts)}"


def _planned_passes(planned: Mapping[str, Any]) -> str:
    """Return the number of planned passes, whose unit follows with the measured one."""
    passes, read = planned["passes"], planned["bytes_read"]
    return str(passes) if passes or not read else passes_over_data(passes, read)


#: A column whose mean moved by this number of standard deviations is named, and the most columns that are named.
LARGE_SHIFT, _NAMED = 1.0, 6


def _above_least(changes: dict[str, Any]) -> str:
    """Return how far the error of the previous columns is above the least possible one."""
    share = changes["distance"] / changes["previous_error"] if changes["previous_error"] > 0.0 else 0.0
    same_columns = not changes["changed"] and str(changes.get("status")).startswith("optimal")
    if same_columns or share <= _ROUNDING:
        return "The previous columns have the least possible error up to rounding"
    return f"The least possible error is at most {percent(share)} below that of the previous columns"


def _explained(found: dict[str, Any]) -> str:
    """Return how much more or less of Y the new columns explain."""
    gain, low, high = found["gain"], found["low"], found["high"]
    if gain < 0.0:
        return f"The new columns explain {-gain:.4%} less of Y (95 %: {-high:.4%} to {-low:.4%})"
    verdict = "more" if found["beyond_splitting"] else "no more"
    interval = f"(95 %: {low:.4%} to {high:.4%})"
    return f"The new columns explain {gain:.4%} more of Y {interval}, {verdict} than splitting the rows explains"


def describe_changes(changes: dict[str, Any]) -> Iterator[str]:
    """Yield lines about what changed, for people."""
    rows = changes["new_rows"]
    new = "" if rows is None else f", {rows:,} new {noun(rows, 'row')}"
    if changes["changed"]:
        parts = [f"{what}: {shorten(changes[what], 10)}" for what in ("entered", "left") if changes[what]]
        yield f"Changed since run {changes['run']}{new}: {'; '.join(parts)}"
    else:
        yield f"Unchanged since run {changes['run']}{new}"
    if changes["previous_error"] is not None and changes["changed"]:
        errors = f"{changes['previous_error']:.6g} on these data, now {changes['error']:.6g}"
        yield f"The previous columns have error {errors}"
    if changes["bound"] is not None and changes["distance"] is not None:
        among = f" {changes.get('scope', '')}".rstrip()  # older results have none
        yield f"{_above_least(changes)}{among}"
    if proof := changes.get("proof"):  # older results have none
        yield proof
    if verdicts := changes.get("verdicts"):  # older results have none
        shown = shorten([f"{label} ({old}, now {new})" for label, (old, new) in verdicts.items()], 10)
        about = f", about {subsets}" if (subsets := changes.get("verdicts_about")) else ""
        yield f"Other verdicts{about}: {shown}"
    rows = changes["on_new_rows"]
    if rows is not None and rows["r2"] is not None:
        worse = ", less than no columns do" if rows["r2"] < 0.0 else ""
        yield f"On the new rows alone, the previous coefficients explain {rows['r2']:.4%}{worse}"
    found = changes["comparison"]
    if found is not None:
        yield _explained(found)
    drift = changes["drift"] or {}
    moved = [column for column in drift.get("columns", ()) if abs(column["shift"]) >= LARGE_SHIFT]
    if moved:
        shown = ", ".join(f"{column['label']} ({column['shift']:+.2f} sd)" for column in moved[:_NAMED])
        rest = drift.get("moved", len(moved)) - len(moved[:_NAMED])  # older results have no such number
        more = f" and {rest} more" if rest else ""
        yield f"Means that moved by {LARGE_SHIFT:g} standard deviation or more: {shown}{more}"
    if unknown := drift.get("unknown"):  # older results have none
        yield f"The drift of {counted(unknown, 'column')} is not known: {drift['why_unknown']}"
