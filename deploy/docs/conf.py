"""Configuration of the documentation's build. `python -m pipelines.docs` builds and checks it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

_project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
project = "dsel"
author = _project["authors"][0]["name"]
copyright = author
release = version = _project["version"]

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "pipelines.docs.directives",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpick_ignore_regex = [("py:.*", ".*")]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

html_math_renderer = "svg"
html_theme = "pydata_sphinx_theme"
html_title = "dsel"
html_static_path = ["_static"]
html_css_files = ["dsel.css"]
html_show_sourcelink = False
html_sidebars = {"changelog": [], "contributing": [], "tutorial": [], "user-guide": [], "glossary": []}
html_theme_options = {
    "logo": {"text": "dsel"},
    "show_toc_level": 2,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}
# The site must work without a network: no address of another host in its pages.
html_baseurl = ""
