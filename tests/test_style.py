"""The code is typed and linted, and imports go downward."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command",
    [pytest.param(["mypy"], marks=pytest.mark.slow), ["ruff", "check", "."], ["ruff", "format", "--check", "."]],
)
def test_it_passes(command: list[str]) -> None:
    found = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


def test_imports_follow_the_contracts() -> None:
    """Imports go downward through the layers in pyproject.toml, which name every module."""
    program = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([program], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]


def test_no_imports_go_round_in_a_circle() -> None:
    """Those for type checkers count, too; those inside functions, made when they are called, do not."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for top in ("dsel", "pipelines")
        for path in (ROOT / top).rglob("*.py")
    }
    needs: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        at_once: list[ast.AST] = [ast.parse(path.read_text())]
        for node in at_once:
            if not isinstance(node, ast.FunctionDef):
                at_once += ast.iter_child_nodes(node)
            if isinstance(node, ast.Import):
                needs[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                inside = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                needs[name] |= inside or {node.module}
    TopologicalSorter({name: found & files.keys() - {name} for name, found in needs.items()}).prepare()
