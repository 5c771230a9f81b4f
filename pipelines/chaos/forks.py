"""Processes that are forked from one that has imported everything, so that a life costs little."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_ZOMBIE = psutil.STATUS_ZOMBIE


class Child:
    """A child process, the leader of its own session."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal; None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float) -> int | None:
        """Return the exit code as soon as it ends; None if that takes longer."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.code

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self.send(signal.SIGINT)
        while self.poll() is None:
            time.sleep(0.05)

    def end(self) -> None:
        """Kill it and all of its session."""
        for process in self.session():
            with suppress(psutil.Error):
                process.kill()
        self.wait(10)

    def session(self) -> list[psutil.Process]:
        """Return the living processes of its session."""
        found = []
        for name in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(int(name)) == self.pid and (process := psutil.Process(int(name))).status() != _ZOMBIE:
                    found.append(process)
        return found

    def handles(self, number: signal.Signals) -> bool:
        """Return whether it has a handler for the signal, or has ended."""
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            mask = next(line.split()[1] for line in status if line.startswith("SigCgt"))
            return bool(int(mask, 16) >> (number - 1) & 1)
        return True


def fork(
    target: Callable[[], object], output: Path, environment: Mapping[str, str], *, folder: Path,
    most_bytes: int | None = None,
) -> Child:  # fmt: skip
    """Run a function in a child process.

    Parameters
    ----------
    target : callable
        What to run. A SystemExit becomes the exit code; another exception becomes 1.
    output : Path
        Where standard output and standard error are appended.
    environment : mapping
        Variables to set.
    folder : Path
        The working directory.
    most_bytes : int, optional
        No file that it writes can be longer, as if the disk were full.
    """
    stream = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if most_bytes is not None:  # the limit is not for what it prints
        stream = _relay(stream)
    pid = os.fork()
    if pid:
        os.close(stream)
        return Child(pid)
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in (1, 2):
            os.dup2(stream, descriptor)
        os.environ.update(environment)
        os.chdir(folder)
        tempfile.tempdir = None
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
        target()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer_of(
    work: Callable[[], object], output: Path, *, folder: Path, wait: Callable[[Child], object]
) -> Any:  # fmt: skip
    """Return what a function returns in a child process; None if it fails. It must be JSON.

    Parameters
    ----------
    work : callable
        The function.
    output, folder : Path
        As for `fork`. The answer is written to the folder.
    wait : callable
        Waits for the process.
    """
    file = folder / "answer.json"
    file.unlink(missing_ok=True)
    wait(fork(lambda: file.write_text(json.dumps(work())), output, {}, folder=folder))
    return json.loads(file.read_text()) if file.exists() else None


def _relay(stream: int) -> int:
    """Return the end of a pipe; a process copies what arrives to the stream."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        while data := os.read(reading, 65536):
            os.write(stream, data)
        os._exit(0)
    os.close(reading)
    os.close(stream)
    return writing
