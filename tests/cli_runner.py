"""The command line: as a separate process, forked or new, or in this process where no test needs another one."""

from __future__ import annotations

import multiprocessing.forkserver
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import dask

from dsel.cli import main

#: Only a process that hangs takes this many seconds, however busy the machine is.
LIMIT = 600.0

#: `dsel` whose search waits after its first checkpoint with new evaluations until a signal arrives.
HELD = """
import time
from dsel.jobs.checkpoint import Checkpoints
plain = Checkpoints._save
def save(self, search):
    made = getattr(search, "evaluations", search.iteration)
    if made > self.__dict__.setdefault("made_before", 0 if self.saved is None else made):
        plain(self, search)
        while self._interrupts.received is None:
            time.sleep(0.02)
Checkpoints._save = save
from dsel.__main__ import main
main()
"""


#: `dsel` as it is.
PLAIN = "from dsel.__main__ import main; main()"


class Forked:
    """A program whose process, as those of its workers, is forked from one that has imported everything."""

    def __init__(self, program: str, *arguments: Any, cwd: Path | None = None) -> None:
        self._folder = TemporaryDirectory()
        self._said = [Path(self._folder.name, name) for name in ("out", "err")]
        process = multiprocessing.get_context("forkserver").Process
        words = ["dsel", *map(str, arguments)]
        self._process = process(target=_run_forked, args=(program, words, cwd or Path(), {**os.environ}, self._said))
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        self._process.join(timeout)
        out, err = (path.read_text() for path in self._said)
        return out, err


def _run_forked(program: str, words: list[str], cwd: Path, environment: dict[str, str], said: list[Path]) -> None:
    for number, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.update(environment)
    sys.argv, sys.path = words, [str(cwd), *sys.path]
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]  # it runs
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    dask.config.set({"distributed.nanny.environ": environment})
    exec(program, {"__name__": "__main__"})


def start(*arguments: Any, program: Sequence[str] = ("-m", "dsel"), **kwargs: Any) -> subprocess.Popen[str]:
    """`dsel` with these arguments, running."""
    return subprocess.Popen(
        [sys.executable, *program, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def start_held(*arguments: Any, **kwargs: Any) -> subprocess.Popen[str]:
    """The same, which stays at the first checkpoint of its search until it gets a signal."""
    return start(*arguments, program=("-c", HELD), **kwargs)


def run(*arguments: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a process."""
    process = start(*arguments)
    out, err = process.communicate(timeout=LIMIT)
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


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
