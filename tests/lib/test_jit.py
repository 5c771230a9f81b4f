"""Compiled code is kept between runs, and compiled again when anything that it was made of has changed."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel._lib.jit import imported_modules
from dsel.objective.dense import DenseObjective
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound

PACKAGE = Path(dsel.__file__).parent
NAMES = """
from dsel.search.exact.branch_and_bound.kernel import explore
from dsel.search.pareto.kernel import run
print(explore.__qualname__, run.__qualname__)
"""


def names_of_caches(folder: Path, **environment: str) -> list[str]:
    """The names that the caches of two searches get from the package in a folder."""
    env = {**os.environ, "PYTHONPATH": str(folder), "DSEL_CHECK_KERNELS": "", **environment}
    found = subprocess.run(
        [sys.executable, "-c", NAMES], cwd=folder, capture_output=True, text=True, check=True, env=env
    )
    return found.stdout.split()


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """The names that the caches get from the package itself."""
    return names_of_caches(PACKAGE.parent)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(PACKAGE, folder / "dsel", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_copy_of_the_package_has_the_same_caches(copied: Path, plain: list[str]) -> None:
    assert names_of_caches(copied) == plain


@pytest.mark.parametrize(
    ("changed", "old", "new", "expected"),
    [
        (
            "search/exact/branch_and_bound/suffix_bounds.py",
            "total = 0.0",
            "total = 0.5",
            [True, False],
        ),  # a function that it calls
        (
            "search/exact/branch_and_bound/layout.py",
            "(2, N, N) A,",
            "(3, N, N) A,",
            [True, False],
        ),  # a layout, imported as a module
        ("objective/kernels/layout.py", "MOST_FLIPS = 8", "MOST_FLIPS = 9", [True, True]),
    ],
)
def test_a_caller_is_compiled_again_after_a_change_in_what_it_uses(
    copied: Path, plain: list[str], changed: str, old: str, new: str, expected: list[bool]
) -> None:
    module = copied / "dsel" / changed
    source = module.read_text()
    assert old in source
    module.write_text(source.replace(old, new))
    found = names_of_caches(copied)
    shutil.copy2(PACKAGE / changed, module)
    assert [a != b for a, b in zip(plain, found, strict=True)] == expected


def test_checked_kernels_have_their_own_cache(plain: list[str]) -> None:
    checked = names_of_caches(PACKAGE.parent, DSEL_CHECK_KERNELS="1")
    assert not set(plain) & set(checked)


def test_compiled_code_names_the_modules_it_uses() -> None:
    """Not the packages they are in, where a change would not be seen."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if not re.search(r"^(@|\w+ = )compiled\(", source, re.MULTILINE):
            continue
        importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        assert not re.search(r"^(import dsel|from \.)", source, re.MULTILINE), path
        found = imported_modules(source)
        assert len(found) >= 1, path
        for module in found:
            assert (PACKAGE.parent / f"{module.replace('.', '/')}.py").is_file(), f"{path.name}: {module}"


def test_a_kernel_of_a_search_is_compiled_for_one_set_of_types():
    """What begins as a literal (`first = 0`) makes numba compile all that it is given to twice."""
    BranchAndBound(DenseObjective(np.eye(3), np.ones((3, 2)), 9.0), 2).warm_up()
    kept, version = 0, f"py{sys.version_info.major}{sys.version_info.minor}"
    for module in [module for name, module in sys.modules.items() if name.startswith("dsel.search.")]:
        for name, function in vars(module).items():
            folder = getattr(getattr(function, "stats", None), "cache_path", None)
            if folder is None or function.__module__ != module.__name__:
                continue
            codes = list(Path(folder).glob(f"*.{function.__qualname__}-*.{version}.*.nbc"))
            assert len(codes) <= 1, f"{module.__name__}.{name}"
            kept += len(codes)
    assert kept > 20


def test_a_new_cache_is_filled_from_the_kernels_of_an_image(tmp_path: Path) -> None:
    kernels, cache = tmp_path / "kernels", tmp_path / "new" / "cache"
    (kernels / "folder").mkdir(parents=True)
    (kernels / "folder" / "kernel.nbi").write_text("compiled")
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "DSEL_KERNELS": str(kernels), "NUMBA_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", "import dsel._lib.jit"], env=env, check=True, cwd=tmp_path)
    assert (cache / "folder" / "kernel.nbi").read_text() == "compiled"
    assert [path.name for path in cache.parent.iterdir()] == ["cache"]


def test_python_calls_no_kernel_that_only_compiled_code_may_call() -> None:
    """Such a call has no entry from Python: it would end the process."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if "import" not in source or not re.search(r"kernel|rng|compiled", source):
            continue
        names = vars(importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)))
        for called in _called_from_python(ast.parse(source)):
            kernel: Any = names
            for part in called.split("."):
                kernel = kernel.get(part) if isinstance(kernel, dict) else getattr(kernel, part, None)
            dispatcher = getattr(kernel, "_dispatcher", kernel)
            assert not getattr(dispatcher, "targetoptions", {}).get("no_cpython_wrapper"), f"{path}: {called}"


def _called_from_python(tree: ast.AST) -> set[str]:
    """The names that code outside of compiled functions calls."""
    if isinstance(tree, ast.FunctionDef) and any("compiled(" in ast.unparse(x) for x in tree.decorator_list):
        return set()
    own = {ast.unparse(tree.func)} if isinstance(tree, ast.Call) else set()
    return own.union(*map(_called_from_python, ast.iter_child_nodes(tree)))
