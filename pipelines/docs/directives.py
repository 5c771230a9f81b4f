"""A Sphinx extension: the directive {generated} NAME, and formulas as SVG, which needs no script and no font."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from ziamath.config import config
from ziamath.zmath import Latex

from pipelines.docs import generated

_PARTS = {
    "job-file-keys": generated.job_file_keys,
    "methods": generated.methods,
    "exit-codes": generated.exit_codes,
    "commands": generated.commands,
}


class Generated(SphinxDirective):
    """Insert a part of the reference, which is made from the code when the site is built."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # the code may change while the page does not
        lead, heading, sections = _PARTS[self.arguments[0]]().partition("\n## ")
        found = self._parse(lead, match_titles=False)
        return found + (self._parse(f"## {sections}", match_titles=True) if heading else [])

    def _parse(self, text: str, *, match_titles: bool) -> list[nodes.Node]:
        section = nodes.section()
        section.document = self.state.document
        lines = StringList(text.splitlines(), source=self.arguments[0])
        self.state.nested_parse(lines, self.content_offset, section, match_titles=match_titles)
        return list(section.children)


def _math(translator: Any, node: Any) -> None:
    translator.body.append(_svg(node.astext(), inline=True))
    raise nodes.SkipNode


def _math_block(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="dsel-math" tabindex="0">{_svg(node.astext(), inline=False)}</div>\n')
    raise nodes.SkipNode


def _svg(formula: str, *, inline: bool) -> str:
    """Return a formula as SVG in the color of the text, which stands on the line and is read out as LaTeX."""
    config.svg2 = False  # no ids, which several formulas of a page would share
    svg = Latex(formula, size=18.0, inline=inline, color="currentColor").svg()
    top, height = (float(svg.split('viewBox="')[1].split('"')[0].split()[i]) for i in (1, 3))
    style = f"vertical-align: {-(top + height):.2f}px"
    label = escape(" ".join(formula.split()), quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" style="{style}" ', 1)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the renderer of formulas."""
    app.add_html_math_renderer("svg", (_math, None), (_math_block, None))
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
