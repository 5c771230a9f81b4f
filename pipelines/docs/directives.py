"""A Sphinx extension: formulas as SVG, which needs no script and no font; and one template for all docstrings."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from docutils import nodes
from numpydoc import docscrape_sphinx
from sphinx.application import Sphinx
from ziamath.config import config
from ziamath.zmath import Latex


def _math(translator: Any, node: Any) -> None:
    translator.body.append(_svg(node.astext(), inline=True))
    raise nodes.SkipNode


def _math_block(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="dsel-math" tabindex="0">{_svg(node.astext(), inline=False)}</div>\n')
    raise nodes.SkipNode


@cache
def _svg(formula: str, *, inline: bool) -> str:
    """Return a formula as SVG in the color of the text, which stands on the line and is read out as LaTeX."""
    config.svg2 = False  # no ids, which several formulas of a page would share
    svg = Latex(formula, size=18.0, inline=inline, color="currentColor").svg()
    top, height = (float(svg.split('viewBox="')[1].split('"')[0].split()[i]) for i in (1, 3))
    style = f"vertical-align: {-(top + height):.2f}px"
    label = escape(" ".join(formula.split()), quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" style="{style}" ', 1)


def _compile_the_template_once() -> None:
    """Keep numpydoc's environment of templates. It makes one for each docstring, which takes an eighth of a build."""
    environment = docscrape_sphinx.SandboxedEnvironment
    made: dict[None, Any] = {}
    docscrape_sphinx.SandboxedEnvironment = lambda loader: made.setdefault(None, environment(loader=loader))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer of formulas."""
    _compile_the_template_once()
    app.add_html_math_renderer("svg", (_math, None), (_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
