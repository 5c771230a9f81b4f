"""`dsel` and `dask` as commands, for scripts and pods, whether or not this environment has them installed."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Reads after the third in a process wait until a file exists: a pass cannot end before.
HELD_READS = """\
import time
from pathlib import Path
from dsel.data.store.array import StoredArray
plain_read, reads = StoredArray.read, []
def read(self, *args, **kwargs):
    reads.append(1)
    while len(reads) > 3 and not Path({gate!r}).exists():
        time.sleep(0.05)
    return plain_read(self, *args, **kwargs)
StoredArray.read = read
"""

#: A search waits after a checkpoint until a file exists or a signal arrives: it cannot end before.
HELD_SEARCH = """\
import time
from pathlib import Path
from dsel.jobs.checkpoint import Checkpoints
plain_save = Checkpoints._save
def save(self, search):
    plain_save(self, search)
    while not Path({gate!r}).exists() and self._interrupts.received is None:
        time.sleep(0.05)
Checkpoints._save = save
"""


def commands(folder: Path) -> Path:
    """A folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in ("dsel", "dask"):
        program = folder / module
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        program.chmod(0o755)
    return folder


def at_start(folder: Path, program: str) -> Path:
    """A folder for PYTHONPATH: every Python that has it runs the program first."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(program)
    return folder
