"""The templates of the HTML, filled by jinja2. Every value is escaped."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

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
