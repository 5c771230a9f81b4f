"""The other solvers, each in a virtual environment that is created at the first use and kept in a cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: What pip installs for each solver. MPI is a library that El0ps loads; L0BnB needs an older NumPy.
PINNED = {
    "el0ps": ("el0ps==0.0.4", "numba==0.68.1", "numpy==2.4.6", "mpich==5.0.2"),
    "l0bnb": ("l0bnb==1.0.0", "numba==0.68.1", "numpy==1.26.4"),
    "abess": (  # and all other peers without a proof
        "abess==0.4.11", "fastcan==0.6.0", "skmatter==0.4.1", "zoopt==0.4.2", "skglm==0.5", "scikit-learn==1.8.0",
        "numpy==2.4.6", "numba==0.68.1",
    ),
    "okridge": ("okridge==0.1.1", "numpy==1.26.4", "requests==2.34.2"),
}  # fmt: skip
#: The folder of the environments, if it is not the default.
VARIABLE = "DSEL_BENCHMARKS_CACHE"
_SECONDS = 1200


class Unavailable(Exception):
    """A solver cannot be installed here."""


def cache_folder() -> Path:
    """Return the folder that holds the environments."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsel-benchmarks"


def python_of(solver: str) -> Path:
    """Return the interpreter that can import a solver. The first call installs it. Errors: Unavailable."""
    if solver == "dsel":
        return Path(sys.executable)
    pinned = PINNED[solver]
    folder = cache_folder() / pinned[0].replace("==", "-")
    python, complete = folder / "bin" / "python", folder / "complete"
    if not (complete.exists() and complete.read_text().split() == list(pinned)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _call([sys.executable, "-m", "venv", str(folder)])
        _call([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned])
        complete.write_text("\n".join(pinned))
    return python


def rscript(package: str) -> str:
    """Return the program that runs R with a package. Errors: Unavailable."""
    found = shutil.which("Rscript")
    if found is None:
        raise Unavailable("R is not installed")
    try:
        _call([found, "-e", f"library({package})"])
    except Unavailable as error:
        raise Unavailable(f"R has no package {package}") from error
    return found


def _call(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)[:200]) from error
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "it failed").strip().splitlines()
        raise Unavailable(lines[-1][:200] if lines else "it failed") from error
