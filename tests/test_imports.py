"""A first step imports only what it needs: `import dsel`, `dsel --help`, a name of `dsel`, a selection from arrays."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dask.utils import format_bytes as dask_format
from dask.utils import parse_bytes as dask_parse

import dsel
from dsel._lib.byte_sizes import format_bytes, parse_bytes

#: Packages that take long to import, from the largest to the smallest.
HEAVY = (
    "numpy", "numba", "scipy.linalg", "scipy.special", "scipy.optimize", "dask", "distributed", "pandas", "pyarrow",
    "xarray", "zarr", "sklearn", "matplotlib", "pydantic", "jinja2", "rich", "typer", "cryptography", "obstore",
)  # fmt: skip
OF_SEARCH = {"numpy", "numba", "scipy.linalg", "pydantic"}
#: What a class or function imports when it is named. What it needs besides comes with the first call.
NAMED = {
    "select": set(), "plan": set(), "stability": set(), "eigh": set(), "sums": set(), "open_sums": set(),
    "from_sums": set(), "check_part": set(), "certify": set(), "alternatives": set(), "submodularity_ratio": set(),
    "Alternatives": {"numpy"}, "Eigendecomposition": {"numpy"}, "open_store": {"numpy"},
    "verify": {"numpy", "pydantic", "scipy.linalg"},
}  # fmt: skip
STEPS: dict[str, set[str]] = {
    "import dsel": set(),
    "import dsel; assert dsel.__version__[0].isdigit()": set(),
    "import runpy; sys.argv = ['dsel', '--help']; runpy.run_module('dsel', run_name='__main__')": {"rich", "typer"},
    **{f"import dsel; dsel.{name}": NAMED.get(name, {"numpy", "pydantic"}) for name in dsel.__all__},
    "import dsel, numpy; X = numpy.eye(9, 4); dsel.select(X, X[:, 1], k=2, method='forward')": OF_SEARCH,
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_imports_nothing_else(step: str) -> None:
    program = (
        f"import atexit, sys\natexit.register(lambda: print('heavy', *({set(HEAVY)} & sys.modules.keys())))\n{step}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()[-1].split()[1:]) <= STEPS[step]


@pytest.mark.parametrize("size", [0, 921, 922, 10**6, 943_718, 943_719, 1 << 30, 1_234_567_890_000, 1 << 62])
def test_bytes_are_written_as_dask_writes_them(size: int) -> None:
    assert format_bytes(size) == dask_format(size)


@pytest.mark.parametrize(
    "text",
    ["100", "100 MB", "5.4 kB", "1kiB", "1e6 kB", "MB", "2 GiB", "1.5tib", "3 pb", "b", "5 foos", "i", "x", "1bb"],
)
def test_bytes_are_read_as_dask_reads_them(text: str) -> None:
    try:
        expected = dask_parse(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"bytes|convert"):
            parse_bytes(text)
    else:
        assert parse_bytes(text) == expected


def test_a_selection_imports_its_own_method_only() -> None:
    program = (
        "import sys, dsel, numpy; X = numpy.eye(9, 4); dsel.select(X, X[:, 1], k=2, method='forward')\n"
        "print(*(m for m in sys.modules if m.startswith('dsel.search.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    others = {"astar", "branch_and_bound", "comparators", "out_of_core", "penalized", "portfolio", "tabu"}
    assert not others & {part for module in done.stdout.split() for part in module.split(".")}
