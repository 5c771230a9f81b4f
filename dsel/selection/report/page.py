"""The report: one HTML page that works offline, with everything that a result says.

A notebook shows a small form without pictures. Both are templates that jinja2 fills. Every value is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dsel._lib.versions import versions
from dsel.errors import OutputError
from dsel.search.exact.certificate import STATUS_WORDS
from dsel.selection.changes.runs import RunSummary
from dsel.selection.plots.style import counted, printable
from dsel.selection.record import SelectionRecord
from dsel.selection.render import describe_changes, describe_guarantees
from dsel.selection.report import tables
from dsel.selection.report.figures import figures
from dsel.selection.report.tables import stability_section
from dsel.selection.stability.result import Stability
from dsel.storage.paths import AnyPath, make_folder, write_bytes

#: A label that is too long for one line on a phone, and where it may continue on the next.
_LONG = re.compile(r"\S{24,}")
#: All but tabs and line breaks.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS = re.compile(r"(?<=[_\-/:])(?=\w)|(?<=\.)(?=[^\W\d])")


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("dsel.selection.report", "templates"),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["breakable"] = _breakable
    return environment


def _breakable(text: str) -> Any:
    """Return text that may break inside of long labels, between their words."""
    from markupsafe import Markup

    pieces, end = [], 0
    for found in _LONG.finditer(text):
        pieces += [text[end : found.start()], Markup("<wbr>").join(_BREAKS.split(found[0]))]
        end = found.end()
    return Markup("").join([*pieces, text[end:]])


def fill(template: str, **values: Any) -> str:
    """Return a template with its values. Only `markupsafe.Markup` is not escaped.

    Control characters, with which a label could command a terminal that prints the page, are replaced.
    """
    text: str = _environment().get_template(template).render(values)
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True)
class KeyFigure:
    """A number at the top of the page. state: "good", "open" or empty."""

    term: str
    value: str
    detail: str = ""
    state: str = ""


def render_report(
    selection: SelectionRecord, stability: Stability | None = None, history: Sequence[RunSummary] = ()
) -> str:
    """Return a selection as one HTML page.

    Parameters
    ----------
    selection : Selection
        The selection.
    stability : Stability, optional
        How often its columns are chosen on subsamples of the same data.
    history : sequence of RunSummary
        The runs of a repeated job, oldest first.

    Returns
    -------
    str
        The page. It loads nothing and runs no script. Labels are escaped.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    return fill(
        "report.html",
        title=tables.headline(selection),
        source=printable(selection.source or "data in memory"),
        selection=selection,
        key_figures=_key_figures(selection),
        explained=tables.explained(selection),
        rows=tables.chosen_rows(selection),
        substitutes=tables.substitute_rows(selection),
        coefficient_heads=tables.coefficient_heads(selection),
        many_targets=selection.coefficients.shape[1] > tables.MOST_TARGETS,
        front=tables.front_rows(selection),
        proofs=tables.proofs(selection),
        guarantees=list(describe_guarantees(selection)),
        alternatives=tables.alternatives_section(selection),
        figures=figures(selection, history),
        changes=list(describe_changes(selection.changes)) if selection.changes else [],
        stability=stability_section(selection, stability),
        search_end=tables.search_end(selection),
        asked=tables.asked(selection),
        plan=tables.plan_rows(selection),
        provenance=tables.provenance(selection),
        version=versions()["dsel"],
    )


def _key_figures(selection: SelectionRecord) -> list[KeyFigure]:
    """Return the numbers that a reader looks for first."""
    m, n = selection.shape
    limit = counted(selection.k, True) if selection.groups else str(selection.k)
    limit = f"at most {limit}" if selection.size_curve is None else "chosen automatically"
    figures = [
        KeyFigure("Columns", str(len(selection)), f"of {n:,}, {limit}"),
        KeyFigure("R²", f"{selection.r2:.4f}".replace("-", "−"), f"error {tables.number(selection.error, 6)}"),
        _proof_figure(selection),
        KeyFigure("Rows", f"{m:,}", f"{selection.passes} passes over the data"),
        KeyFigure("Time", tables.duration(sum(selection.seconds.values())), selection.method),
    ]
    if selection.criterion is not None:
        figures.insert(1, KeyFigure("Criterion", tables.number(selection.criterion), "minimized"))
    return figures


def _proof_figure(selection: SelectionRecord) -> KeyFigure:
    row = tables.certificate_of_choice(selection)
    if selection.criterion is not None:
        return KeyFigure("Certificate", "none", "for the squared error only")
    if row is None:
        return KeyFigure("Certificate", "none yet", "dsel certify proves a bound")
    status = row["status"]
    if status == "optimal":
        within = "proved, for limited coefficients" if row["coefficients"] else "proved: nothing is better"
        return KeyFigure("Certificate", STATUS_WORDS[status], within, "good")
    if status != "bounded":
        more = "proved but for these" if status == "optimal-except-near-copies" else "it says why below"
        return KeyFigure("Certificate", STATUS_WORDS[status], more, "good" if row["proven"] else "open")
    if selection.lam:
        return KeyFigure("Least possible error", f"≥ {tables.number(row['bound'], 5)}", "by the certificate", "open")
    return KeyFigure("Best possible R²", f"≤ {row['r2_bound']:.4f}", "proved by the certificate", "open")


def write_report(
    selection: SelectionRecord, out: AnyPath, stability: Stability | None = None, history: Sequence[RunSummary] = ()
) -> AnyPath:
    """Write the page of a selection to a file, which may exist, and return the file."""
    page = render_report(selection, stability, history)
    try:
        make_folder(out.parent)
        write_bytes(out, page.encode())
    except OSError as error:
        raise OutputError(f"The report cannot be written to {out}: {error}.", "Choose another --out.") from error
    return out


#: Columns that are listed; the others are counted.
_MOST_ROWS = 15


def notebook_html(selection: SelectionRecord) -> str:
    """Return a selection as a fragment of HTML with its own style."""
    row = tables.certificate_of_choice(selection)
    rows = tables.chosen_rows(selection)
    return fill(
        "notebook.html",
        title=tables.headline(selection),
        method=selection.method,
        preprocess=selection.preprocess,
        shape=selection.shape,
        r2=f"{selection.r2:.4f}".replace("-", "−"),
        proof="" if row is None else tables.proof(selection, row),
        explained=tables.explained(selection),
        rows=rows[:_MOST_ROWS],
        more=max(len(rows) - _MOST_ROWS, 0),
        heads=tables.coefficient_heads(selection),
        notes=selection.notes,
    )
