"""Write the report: report.html, which holds everything, and report.md with its pictures in the folder figures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from dsel._lib.versions import versions
from pipelines.papers.report import plots, wording
from pipelines.papers.report.document import Document
from pipelines.papers.report.model import ComparisonTable
from pipelines.papers.report.wording import Line


@cache
def _environment() -> Any:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loaders = [PackageLoader("pipelines.papers.report"), PackageLoader("dsel.selection.report")]
    environment = Environment(
        loader=ChoiceLoader(loaders), autoescape=lambda name: name is None or not name.endswith(".md"),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"duration": wording.duration, "lines": _lines, "cell": _cell}
    environment.globals |= {"difference": wording.difference, "number": wording.number, "errors": wording.errors}
    return environment


def _lines(table: ComparisonTable) -> list[Line]:
    return [wording.line(row, table) for row in table.rows]


def _cell(text: str) -> str:
    """Return text that does not end a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def write(document: Document, folder: Path) -> tuple[Path, Path]:
    """Write both files and return them."""
    html, markdown = folder / "report.html", folder / "report.md"
    html.write_text(render_html(document))
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for made in document.made:
        for place, plot in enumerate(made.content.plots if made.content is not None else ()):
            plots.write_file(plot, figures / f"{made.name}-{place + 1}.svg")
    markdown.write_text(_fill("report.md", document))
    return html, markdown


def render_html(document: Document) -> str:
    """Return the page. It loads nothing and runs no script."""
    return _fill("papers.html", document, picture=plots.for_page)


def _fill(template: str, document: Document, **values: Any) -> str:
    text: str = _environment().get_template(template).render(document=document, versions=versions(), **values)
    return text
