"""`dsel` and `dask` as commands, for scripts and pods, whether or not this environment has them installed."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SLOW_READS = """\
import time
from dsel.data.store.array import StoredArray
plain = StoredArray.read
def read(self, *args, **kwargs):
    time.sleep(0.15)
    return plain(self, *args, **kwargs)
StoredArray.read = read
"""


def commands(folder: Path) -> Path:
    """A folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in ("dsel", "dask"):
        program = folder / module
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        program.chmod(0o755)
    return folder


def slow_reads(folder: Path, more: str = "") -> Path:
    """A folder for PYTHONPATH: whoever has it reads slowly, so that something can happen during a pass."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(SLOW_READS + more)
    return folder
