"""The command line: as a separate process, or in this process where no test needs another one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

from dsel.cli import main


def start(*arguments: Any, **kwargs: Any) -> subprocess.Popen[str]:
    """`dsel` with these arguments, running."""
    return subprocess.Popen(
        [sys.executable, "-m", "dsel", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def run(*arguments: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a process."""
    process = start(*arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def call(*arguments: Any) -> tuple[int, str, str]:
    """The same of the entry point called here, which saves a process its imports. What is not dsel's own error is
    raised, not printed."""
    out, err = StringIO(), StringIO()
    with patch.object(sys, "argv", ["dsel", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), out.getvalue(), err.getvalue()


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
