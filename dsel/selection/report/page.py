"""The report: one HTML page that works offline, with everything that a result says.

A notebook shows a small form without pictures. Both are templates that jinja2 fills, with the functions of
`tables`. Every value is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from dsel._lib.versions import versions
from dsel.errors import OutputError
from dsel.selection.changes.runs import RunSummary
from dsel.selection.record import SelectionRecord
from dsel.selection.render import describe_changes, describe_guarantees
from dsel.selection.report import tables
from dsel.selection.report.figures import figures
from dsel.selection.saved import certify_call
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
    environment.globals["tables"] = tables
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


def render_report(
    selection: SelectionRecord, stability: Stability | None = None, history: Sequence[RunSummary] = (),
    certify: str = "",
) -> str:  # fmt: skip
    """Return a selection as one HTML page.

    Parameters
    ----------
    selection : Selection
        The selection.
    stability : Stability, optional
        How often its columns are chosen on subsamples of the same data.
    history : sequence of RunSummary
        The runs of a repeated job, oldest first.
    certify : str, optional
        What certifies the selection. By default a call in Python for a selection in memory.

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
        "report.html", selection=selection, guarantees=list(describe_guarantees(selection)),
        how_to_certify=certify or certify_call(selection),
        figures=figures(selection, history), stability=tables.stability_section(selection, stability),
        changes=list(describe_changes(selection.changes)) if selection.changes else [], version=versions()["dsel"],
    )  # fmt: skip


def write_report(
    selection: SelectionRecord, out: AnyPath, stability: Stability | None = None, history: Sequence[RunSummary] = (),
    certify: str = "",
) -> AnyPath:  # fmt: skip
    """Write the page of a selection to a file, which may exist, and return the file. For `certify` see `render_report`.

    Errors: OutputError if the name of the file is not that of an HTML page, or if it cannot be written.
    """
    if (suffix := PurePosixPath(out.name).suffix.lower()) not in ("", ".html", ".htm"):
        raise OutputError(f"A report is an HTML page, and {out} ends in {suffix}.", "Name a file that ends in .html.")
    page = render_report(selection, stability, history, certify)
    try:
        make_folder(out.parent)
        write_bytes(out, page.encode())
    except OSError as error:
        raise OutputError(f"The report cannot be written to {out}: {error}.", "Choose another place.") from error
    return out


def notebook_html(selection: SelectionRecord) -> str:
    """Return a selection as a fragment of HTML with its own style."""
    return fill("notebook.html", selection=selection)
