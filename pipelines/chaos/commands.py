"""The command line in a process that has imported everything, or in a new interpreter."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from pipelines.chaos.storms import obey_impatience

_MODULES = (
    "dsel.cli", "dsel.jobs.runner", "dsel.jobs.certify_folder", "dsel.jobs.verify",
    "dsel.data.ingest", "dsel.data.append.append", "distributed", "zarr", "obstore",
)  # fmt: skip


def import_everything(methods: Sequence[str]) -> None:
    """Import what commands use, and load the compiled kernels of methods, without starting a thread that stays."""
    from dsel.jobs.warm import warm

    for name in _MODULES:
        import_module(name)
    if methods:
        warm(list(methods))


def run_here(words: list[str]) -> None:
    """Run the command line in this process."""
    sys.argv = ["dsel", *words]
    faulthandler.register(signal.SIGUSR2)
    obey_impatience()
    from dsel.__main__ import main

    main()


def run_in_new_interpreter(words: list[str]) -> None:
    """Become a new interpreter that runs the command line."""
    os.execv(sys.executable, [sys.executable, "-m", "dsel", *words])
