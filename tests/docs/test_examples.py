"""Every example of the README, of the documentation's pages and of the docstrings runs.

On a page, Python code runs, commands that start with dsel run and print what the page says, and YAML is a valid job
file or section of one. Each page runs in a separate folder, which has measurements.csv (with a column yield), data.zarr
and a result.
"""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from sybil import Document, Example, Region, Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

import dsel
from dsel.config.cluster import ClusterSection
from dsel.config.job import JobFile
from dsel.data.ingest import ingest
from tests.cli_runner import call

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "deploy" / "docs"
PAGES = [ROOT / "README.md", *(p for p in sorted(DOCS.rglob("*.md")) if "generated" not in p.parts)]
BLOCK = re.compile(r"^```(?P<language>console|yaml)[^\n]*\n(?P<text>.*?)^```", re.S | re.M)
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def fenced_blocks(document: Document) -> Iterator[Region]:
    """Yield the blocks of commands and of YAML."""
    for found in BLOCK.finditer(document.text):
        parsed = (found["language"], found["text"])
        yield Region(found.start(), found.end(), parsed, evaluate)


def evaluate(example: Example) -> str | None:
    language, text = example.parsed
    return check_yaml(text) if language == "yaml" else run_commands(text)


def check_yaml(text: str) -> str | None:
    """Return what is wrong with a job file or a section of one."""
    values = yaml.safe_load(text)
    if "store" in values:
        JobFile.model_validate(values)
    elif set(values) == {"cluster"}:
        ClusterSection.model_validate(values["cluster"])
    else:
        JobFile.model_validate({"store": "data.zarr", "k": 3, **values})
    return None


def run_commands(text: str) -> str | None:
    """Run the commands of dsel in a block, in this process, and return how their output differs from the page."""
    for command in re.split(r"^\$ ", text, flags=re.M)[1:]:
        line, _, expected = command.partition("\n")
        words = shlex.split(line, comments=True)
        if words[0] != "dsel":
            continue
        code, out, err = call(*words[1:])
        if code:
            return f"$ {line}\nended with {code}:\n{out}{err}"
        if expected and not doctest.OutputChecker().check_output(expected, out, LIKE):
            return f"$ {line}\nprinted\n{out}\ninstead of\n{expected}"
    return None


SYBIL = Sybil(parsers=[PythonCodeBlockParser(), SkipParser(), fenced_blocks])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the pages begin with."""
    folder = tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(7)
    table = pd.DataFrame(rng.normal(size=(120, 30)).round(4), columns=[f"sensor_{j:02}" for j in range(30)])
    table["yield"] = (3 * table["sensor_02"] - 2 * table["sensor_07"] + rng.normal(size=120)).round(4)
    table.to_csv(folder / "measurements.csv", index=False)
    for name in ("data.zarr", "new.zarr"):
        ingest(folder / "measurements.csv", folder / name, target=["yield"])
    (folder / "job.yaml").write_text("{store: data.zarr, k: 3, method: omp, out: result}")
    dsel.select(folder / "data.zarr", k=3, method="omp").save(folder / "result")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = SYBIL.parse(page)
    examples = list(document.examples())
    if not examples:
        pytest.skip("the page has no example")
    folder = tmp_path / "page"
    shutil.copytree(prepared, folder)
    if page.name in ("README.md", "tutorial.md"):  # a reader has no store yet
        for name in ("data.zarr", "data.zarr.artefacts", "result"):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / "job.yaml").unlink()
    monkeypatch.chdir(folder)
    texts = sorted(examples, key=lambda example: example.start)
    if page.name == "README.md":  # its Python section needs the store that its commands make
        texts.sort(key=lambda example: not isinstance(example.parsed, tuple))
    for example in texts:
        example.evaluate()


def modules() -> list[str]:
    """Return the modules that have examples in docstrings."""
    files = (path for path in sorted((ROOT / "dsel").rglob("*.py")) if ">>> " in path.read_text())
    return [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_the_docstrings_run(name: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    found = doctest.testmod(importlib.import_module(name), optionflags=LIKE)
    assert found.attempted
    assert not found.failed
