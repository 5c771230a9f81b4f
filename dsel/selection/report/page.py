"""The report: one HTML page that works offline, with everything that a result says.

What a notebook shows for a selection: small, without pictures, on light and dark backgrounds.

The templates of the HTML, filled by jinja2. Every value is escaped.
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
from dsel.selection.changes.compare import describe_changes
from dsel.selection.changes.runs import SUMMARY, RunSummary, read_history
from dsel.selection.plots.style import counted, printable
from dsel.selection.render import describe_guarantees
from dsel.selection.report import tables, wording
from dsel.selection.report.figures import figures
from dsel.selection.report.tables import stability_section
from dsel.selection.result import Selection
from dsel.selection.saved import open_selection
from dsel.selection.stability.result import FILE as STABILITY
from dsel.selection.stability.result import Stability
from dsel.storage.latest import resolve_run
from dsel.storage.paths import AnyPath, as_path, make_folder, write_bytes

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


def render_report(selection: Selection, stability: Stability | None = None, history: Sequence[RunSummary] = ()) -> str:
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
        title=wording.headline(selection),
        source=printable(selection.source or "data in memory"),
        selection=selection,
        key_figures=_key_figures(selection),
        explained=wording.explained(selection),
        rows=tables.chosen_rows(selection),
        coefficient_heads=tables.coefficient_heads(selection),
        many_targets=selection.coefficients.shape[1] > tables.MOST_TARGETS,
        front=tables.front_rows(selection),
        proofs=wording.proofs(selection),
        guarantees=list(describe_guarantees(selection)),
        figures=figures(selection, history),
        changes=list(describe_changes(selection.changes)) if selection.changes else [],
        stability=stability_section(selection, stability),
        search_end=wording.search_end(selection),
        asked=tables.asked(selection),
        plan=tables.plan_rows(selection),
        provenance=tables.provenance(selection),
        version=versions()["dsel"],
    )


def _key_figures(selection: Selection) -> list[KeyFigure]:
    """Return the numbers that a reader looks for first."""
    m, n = selection.shape
    figures = [
        KeyFigure("Columns", str(len(selection)), f"of {n:,}, {_limit(selection)}"),
        KeyFigure("R²", f"{selection.r2:.4f}".replace("-", "−"), f"error {wording.number(selection.error, 6)}"),
        _proof_figure(selection),
        KeyFigure("Rows", f"{m:,}", f"{selection.passes} passes over the data"),
        KeyFigure("Time", wording.duration(sum(selection.seconds.values())), selection.method),
    ]
    if selection.criterion is not None:
        figures.insert(1, KeyFigure("Criterion", wording.number(selection.criterion), "minimized"))
    return figures


def _limit(selection: Selection) -> str:
    limit = counted(selection.k, True) if selection.groups else str(selection.k)
    return f"at most {limit}" if selection.size_curve is None else "chosen automatically"


def _proof_figure(selection: Selection) -> KeyFigure:
    row = wording.certificate_of_choice(selection)
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
        return KeyFigure("Least possible error", f"≥ {wording.number(row['bound'], 5)}", "by the certificate", "open")
    return KeyFigure("Best possible R²", f"≤ {row['r2_bound']:.4f}", "proved by the certificate", "open")


def write_report(
    selection: Selection, out: AnyPath, stability: Stability | None = None, history: Sequence[RunSummary] = ()
) -> AnyPath:
    """Write the page of a selection to a file, which may exist, and return the file."""
    page = render_report(selection, stability, history)
    try:
        make_folder(out.parent)
        write_bytes(out, page.encode())
    except OSError as error:
        raise OutputError(f"The report cannot be written to {out}: {error}.", "Choose another --out.") from error
    return out


def report(result: Selection | str | AnyPath, out: str | AnyPath | None = None) -> AnyPath:
    """Write the report of a selection: one HTML page with pictures that works offline.

    Parameters
    ----------
    result : Selection, str or Path
        A selection, or the folder of a saved one. A folder of runs stands for the last good one; the page then shows
        the columns of all runs.
    out : str or Path, optional
        The file. By default report.html in the result's folder, or in the current folder for a Selection. A file that
        exists is replaced.

    Returns
    -------
    Path or ObjectPath
        The file.

    Raises
    ------
    MissingInputError
        If there is no selection in the folder.
    OutputError
        If the file cannot be written.
    MissingExtraError
        If matplotlib is not installed: ``pip install 'dsel[plots]'``.

    Notes
    -----
    The page has no script and loads nothing, so that it can be mailed or archived. Labels are escaped. It has the
    selection frequencies of ``dsel stability --out FOLDER`` if that is the same folder.

    Examples
    --------
    >>> import dsel
    >>> dsel.report("result")  # doctest: +SKIP
    PosixPath('result/report.html')
    """
    if isinstance(result, Selection):
        return result.report(out)
    folder = resolve_run(as_path(result))
    selection = open_selection(folder)
    stability = Stability.open(folder) if (folder / STABILITY).is_file() else None
    history = read_history(folder.parent) if (folder / SUMMARY).is_file() else []
    place = folder / "report.html" if out is None else as_path(out)
    return write_report(selection, place, stability, history)


#: Columns that are listed; the others are counted.
_MOST_ROWS = 15


def notebook_html(selection: Selection) -> str:
    """Return a selection as a fragment of HTML with its own style."""
    row = wording.certificate_of_choice(selection)
    rows = tables.chosen_rows(selection)
    return fill(
        "notebook.html",
        title=wording.headline(selection),
        method=selection.method,
        preprocess=selection.preprocess,
        shape=selection.shape,
        r2=f"{selection.r2:.4f}".replace("-", "−"),
        proof="" if row is None else wording.proof(selection, row),
        explained=wording.explained(selection),
        rows=rows[:_MOST_ROWS],
        more=max(len(rows) - _MOST_ROWS, 0),
        heads=tables.coefficient_heads(selection),
        notes=selection.notes,
    )
