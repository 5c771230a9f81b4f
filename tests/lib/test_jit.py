"""What is compiled is kept between runs, and compiled anew when anything it was made of has changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import dsel
from dsel.objective.dense import DenseObjective
from dsel.search.exact.branch_and_bound import BranchAndBound

PACKAGE = Path(dsel.__file__).parent
NAMES = """
from dsel.search.exact.bb_kernel import explore
from dsel.search.pareto.kernel import run
print(explore.__qualname__, run.__qualname__)
"""


def names_of_caches(folder):
    """How the caches of two searches are named by the package in a folder."""
    found = subprocess.run([sys.executable, "-c", NAMES], cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout.split()


def test_a_caller_is_compiled_anew_after_a_change_in_what_it_calls(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "dsel", ignore=shutil.ignore_patterns("__pycache__"))
    before = names_of_caches(tmp_path)
    assert before == names_of_caches(tmp_path)
    called = tmp_path / "dsel" / "search" / "exact" / "eigenvalue_sums.py"
    called.write_text(called.read_text().replace("total = 0.0", "total = 0.5"))
    after = names_of_caches(tmp_path)
    assert after[0] != before[0]
    assert after[1] == before[1]  # calls nothing of it


def test_compiled_code_names_the_modules_it_uses():
    """Not the packages they are in, where a change would not be seen."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if "@compiled(" not in source:
            continue
        for line in source.splitlines():
            assert not line.startswith(("import dsel", "from ."))
            if line.startswith("from dsel"):
                assert (PACKAGE.parent / f"{line.split()[1].replace('.', '/')}.py").is_file(), f"{path.name}: {line}"


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
