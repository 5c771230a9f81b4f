"""A Sphinx extension: the directive {generated} NAME, and formulas as MathML, which browsers show without scripts."""

from __future__ import annotations

from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

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
        text = _PARTS[self.arguments[0]]()
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(
            StringList(text.splitlines(), source=self.arguments[0]), self.content_offset, section, match_titles=True
        )
        return list(section.children)


def _math(translator: Any, node: Any) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _math_block(translator: Any, node: Any) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math" tabindex="0">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the renderer of formulas."""
    app.add_html_math_renderer("mathml", (_math, None), (_math_block, None))
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
