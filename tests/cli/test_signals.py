"""A signal ends a command with 75 within ten seconds, from its first line on, whatever it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from dsel._lib.termination import END_SECONDS, FORCE_SECONDS, in_callback
from tests.cli_runner import LIMIT, start, wait_for
from tests.stores import make_store, regression

X, Y = regression(m=500)


def job_file(folder: Path, **keys: Any) -> Path:
    make_store(folder / "data.zarr", X, Y, chunks=(100, 24))
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"store": "data.zarr", "k": 3, "cluster": {"local": {"workers": 1}}, **keys}))
    return path


def is_handled(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_the_limits_after_a_signal_are_within_ten_seconds() -> None:
    assert FORCE_SECONDS < END_SECONDS < 10.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("after", [0.0, 0.7])
def test_while_modules_are_imported_and_the_job_is_read(tmp_path: Path, number: signal.Signals, after: float) -> None:
    process = start("run", job_file(tmp_path))
    wait_for(lambda: is_handled(process, signal.SIGTERM) and is_handled(process, number))
    time.sleep(after)
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, err
    assert f"dsel: Stopped by {number.name}." in err
    assert "Traceback" not in err
    assert not out


def test_for_a_program_the_message_is_json(tmp_path: Path) -> None:
    process = start("run", job_file(tmp_path), "--log-format", "json")
    wait_for(lambda: is_handled(process, signal.SIGTERM))
    process.terminate()
    _, err = process.communicate(timeout=LIMIT)
    assert yaml.safe_load(err.splitlines()[-1])["exit_code"] == process.returncode == 75


#: The thread in which Zarr reads takes longer to stop than Zarr waits for it, as on a busy machine.
_BUSY = """
import sys, threading
join = threading.Thread.join
def waits_too_short(self, timeout=None):
    if self.name != "zarr_io" or timeout is None or timeout > 1:
        join(self, timeout)
threading.Thread.join = waits_too_short
"""


@pytest.mark.parametrize(
    "program", ["from dsel.__main__ import main; main()", "import dsel; dsel.select(sys.argv[-1], k=2)"]
)
def test_the_end_waits_for_the_thread_in_which_zarr_reads(tmp_path: Path, program: str) -> None:
    make_store(tmp_path / "data.zarr", X, Y, chunks=(100, 24))
    process = start("info", tmp_path / "data.zarr", program=("-c", f"{_BUSY}{program}"))
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, "")


@pytest.mark.slow
def test_while_a_search_is_compiled(tmp_path: Path) -> None:
    job, log = job_file(tmp_path), tmp_path / "job.result" / "run.log"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    process = start("run", job, env=environment, start_new_session=True)
    group = process.pid
    wait_for(lambda: log.exists() and "compiling" in log.read_text())
    process.terminate()
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, err
    assert "Traceback" not in err
    wait_for(lambda: not [p for p in psutil.pids() if group_of(p) == group])


def group_of(pid: int) -> int | None:
    """The process group of a process that works."""
    try:
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getpgid(pid)
    except (psutil.Error, ProcessLookupError):
        return None


def test_a_signal_waits_until_modules_of_numba_are_imported() -> None:
    """They are imported by compiled code, too, which would turn the exception into an ImportError."""
    found: list[bool] = []
    code = "found.append(in_callback(sys._getframe()))"
    for file in ("site-packages/numba/core/dispatcher.py", "site-packages/dask/base.py"):
        exec(compile(code, f"/lib/{file}", "exec"), {"found": found, "in_callback": in_callback, "sys": sys})
    assert found == [True, False]
