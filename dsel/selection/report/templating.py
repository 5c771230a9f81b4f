"""The templates of the HTML, filled by jinja2. Every value is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("dsel.selection.report", "templates"),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def fill(template: str, **values: Any) -> str:
    """Return a template with its values. Only `markupsafe.Markup` is not escaped."""
    text: str = _environment().get_template(template).render(values)
    return text
