"""The pages of the gallery as notebooks, with the outputs that the tests of these pages have checked."""

from __future__ import annotations

import doctest
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from pipelines.docs.pictures import GALLERY

PAGES: Final = tuple(sorted(path.stem for path in GALLERY.glob("*.md") if path.stem != "index"))
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?!\w+:|#)")


def notebook(page: str) -> str:
    """Return a page of the gallery as a notebook: text, code, and what the code prints."""
    text, cells, at = _LINK.sub("](../", (GALLERY / f"{page}.md").read_text()), list[dict[str, Any]](), 0
    for block in _BLOCK.finditer(text):
        cells += [*_words(text[at : block.start()]), *_code(block[1])]
        at = block.end()
    cells += _words(text[at:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    found = {
        "cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4,
        "nbformat_minor": 4,
    }  # fmt: skip
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def write_notebooks() -> None:
    """Write the notebooks into their folder, next to the pages."""
    for page in PAGES:
        (GALLERY / "notebooks" / f"{page}.ipynb").write_text(notebook(page))


def _words(text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"cell_type": "markdown", "metadata": {}, "source": _lines(text.strip())}


def _code(block: str) -> Iterator[dict[str, Any]]:
    """Yield a cell for a block of code, or for each example of a session with what it prints."""
    if not block.startswith(">>>"):
        yield _cell(block, "")
        return
    waiting = ""
    for example in doctest.DocTestParser().get_examples(block):
        waiting += example.source
        if example.want:
            yield _cell(waiting, example.want)
            waiting = ""
    if waiting:
        yield _cell(waiting, "")


def _cell(source: str, printed: str) -> dict[str, Any]:
    output = {"name": "stdout", "output_type": "stream", "text": _lines(printed.rstrip("\n"))}
    return {
        "cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [output] if printed else [],
        "source": _lines(source.rstrip("\n")),
    }  # fmt: skip


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
