"""The site is built without a warning, its links lead somewhere, and its reference is complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsel import errors
from dsel.cli import app
from dsel.config.job import JobFile
from dsel.search.registry import METHODS
from pipelines.docs import generated, notebooks, pictures
from pipelines.docs.links import broken_links

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_a_broken_link_or_a_misspelled_word(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines.docs", "--out", str(tmp_path)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout + found.stderr
    first = (tmp_path / "html" / "index.html").read_text()
    for page in ("tutorial", "how-to/index", "reference/index", "explanation/index", "changelog"):
        assert f'href="{page}.html"' in first
    assert "SyntaxError" not in first
    assert "<svg" in (tmp_path / "html" / "explanation" / "mathematics.html").read_text()


def test_a_broken_link_an_absent_anchor_and_a_fetch_from_another_host_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html">right</a> <a href="b.html#here">right</a> <a href="none.html">wrong</a>'
        '<a href="b.html#there">wrong</a> <a href="https://example.org">not checked</a>'
        '<script src="https://example.org/script.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="here">')
    assert broken_links(tmp_path) == [
        "a.html: there is no such page: none.html",
        "a.html: there is no such anchor: b.html#there",
        "a.html: it is fetched from another host: https://example.org/script.js",
    ]


@pytest.mark.parametrize("name", generated.TABLES)
def test_the_pages_of_the_reference_are_those_of_the_code(name: str) -> None:
    assert (generated.REFERENCE / name).read_text() == generated.page(name), "Run python -m pipelines.docs, and commit."


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_a_notebook_has_the_text_the_code_and_the_outputs_of_its_page(page: str) -> None:
    file = notebooks.GALLERY / "notebooks" / f"{page}.ipynb"
    assert file.read_text() == notebooks.notebook(page), "Run python -m pipelines.docs, and commit."
    cells = json.loads(file.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    text = (notebooks.GALLERY / f"{page}.md").read_text()
    for source in code:
        compile(source, page, "exec")
        assert all(line.strip() in text for line in source.splitlines())
    printed = ["".join(output["text"]) for cell in cells for output in cell.get("outputs", [])]
    assert len(printed) == len(re.findall(r"^>>> .*\n(?:\.\.\. .*\n)*(?!>>>|```)", text, re.MULTILINE))
    for cell in cells:
        for link in re.findall(r"\]\(([\w./-]+)", "".join(cell["source"]) if cell["cell_type"] == "markdown" else ""):
            assert "//" in link or (file.parent / link).exists(), link


@pytest.mark.parametrize("page", sorted(pictures.GALLERY.glob("[!i]*.md")), ids=lambda page: page.stem)
def test_the_code_of_an_example_saves_the_pictures_that_the_gallery_shows(page: Path) -> None:
    index = pictures.shown_by(pictures.GALLERY / "index.md")
    assert pictures.saved_by(page) == pictures.shown_by(page) != set()
    assert pictures.saved_by(page) <= index
    assert all((pictures.FOLDER / name).is_file() for name in pictures.saved_by(page))


def test_the_reference_has_every_key_of_a_job_file() -> None:
    text = generated.job_file_keys()
    for name in JobFile.model_fields:
        assert f"| `{name}` |" in text


def test_the_reference_has_every_method_and_option() -> None:
    text = generated.methods()
    for name, method in ((name, METHODS[name]) for name in METHODS):
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert all(f"| `{option}` |" in section for option in method.options.model_fields)


def test_the_reference_has_every_exit_code_and_command() -> None:
    table = generated.exit_codes()
    for error in errors.DselError.__subclasses__():
        assert f"| {error.exit_code} | {error.kind} | `{error.__name__}` |" in table
    commands = generated.commands()
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"## dsel {command.name or command.callback.__name__}\n" in commands


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 125


def test_the_architecture_names_every_folder() -> None:
    page = (ROOT / "deploy/docs/explanation/architecture.md").read_text()
    tree = page.split("## The tree")[1].split("\n## ")[0]
    for folder in sorted(path.parent for path in (ROOT / "dsel").rglob("__init__.py")):
        assert re.search(rf"[`/]{folder.name}/", tree), f"{folder} is not in the tree"


def test_the_entries_of_the_changelog_are_one_line_each_under_headings_that_occur_once() -> None:
    text = (ROOT / "deploy/docs/changelog.md").read_text()
    for section in text.split("\n## ")[1:]:
        version, *lines = [line for line in section.splitlines() if line]
        headings = [line for line in lines if line.startswith("#")]
        assert len(headings) == len(set(headings)), f"{version} repeats a heading: {headings}"
        assert all(line.startswith(("- ", "### ")) for line in lines), f"{version} has an entry of several lines"
