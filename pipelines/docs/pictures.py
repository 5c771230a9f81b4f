"""The pictures of the gallery, which the code of its pages draws: python -m pipelines.docs --pictures."""

from __future__ import annotations

import os
import re
import shutil
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DOCS = Path(__file__).parents[2] / "deploy" / "docs"
GALLERY = DOCS / "gallery"
FOLDER = DOCS / "_static" / "gallery"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def code_of(page: Path) -> str:
    """Return the code of a page without the examples that show output."""
    return "\n".join(block for block in _BLOCK.findall(page.read_text()) if not block.startswith(">>>"))


def saved_by(page: Path) -> set[str]:
    """Return the names of the pictures that the code of a page saves."""
    return set(re.findall(r'savefig\("([^"]+)"', code_of(page)))


def shown_by(page: Path) -> set[str]:
    """Return the names of the pictures of the gallery that a page shows."""
    return set(re.findall(r"_static/gallery/([\w.-]+)\)", page.read_text()))


def draw_pictures() -> None:
    """Run the code of each page of the gallery, and keep the pictures that it saves."""
    import matplotlib as mpl

    mpl.use("Agg")
    FOLDER.mkdir(exist_ok=True)
    draw_front(DOCS / "_static" / "front.png")
    before = Path.cwd()
    for page in sorted(GALLERY.glob("*.md")):
        with TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                _run(page)
                for name in saved_by(page):
                    shutil.copy(name, FOLDER / name)
            finally:
                os.chdir(before)


def _run(page: Path) -> None:
    """Run all code of a page: the statements of examples, too, since later code uses what they make."""
    lines: list[str] = []
    for block in _BLOCK.findall(page.read_text()):
        if block.startswith(">>>"):
            lines += [line[4:] for line in block.splitlines() if line.startswith((">>> ", "... "))]
        else:
            lines.append(block)
    namespace: dict[str, Any] = {}
    exec(compile("\n".join(lines) + "\n", str(page), "exec"), namespace)


def draw_front(path: Path) -> None:
    """Draw the picture of the first page: the front of the demo's data, compared with forward selection."""
    import dsel
    from dsel.data.ingest import ingest

    with TemporaryDirectory() as folder:
        store = Path(folder) / "sonar.zarr"
        ingest(str(files("dsel") / "examples" / "sonar.csv"), store, target=["rock"], chunks=(64, 60))
        selection = dsel.select(store, k=8, seed=2)
        axes = selection.plot.front()
        axes.figure.set_size_inches(6.4, 3.6)
        axes.figure.savefig(path, dpi=120, bbox_inches="tight")
