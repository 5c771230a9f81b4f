"""End a command on SIGTERM or SIGINT with exit code 75, from its first line on and within ten seconds.

While modules are imported there is nothing to save, and the process ends at once. Later the signal raises `Stopped` in
the main thread, so that files are closed and workers end. Python calls a handler only between two instructions of the
main thread. So a thread reads the signals, too, and ends the process if that takes too long.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: "Temporary failure" in sysexits.h: start the same command again.
EXIT_CODE = 75
#: Seconds after a signal when a command that waits for a good moment must stop, and when the process ends.
FORCE_SECONDS, END_SECONDS = 3.0, 8.0
#: Seconds that the end of a process waits for the thread in which Zarr reads.
_ZARR_SECONDS = 5.0
#: Seconds until a signal is sent again that arrived in a callback.
_AGAIN_SECONDS = 0.05
#: Callbacks by the start of their names and a part of their file names. A signal during compilation often arrives here:
#: it is the first Python code after long work in LLVM. The extension modules of numba import others.
_CALLBACKS = (("_raw_object_cache", "llvmlite"), ("_resolve", "separate_kernel"), ("<module>", "-packages/numba/"))

_MESSAGE = "Stopped by {}. Start the same command again to continue."

_state: dict[str, Any] = {"watching": False, "importing": True, "deferred": None, "stops zarr": False}

#: Called when a command must not wait any longer for a good moment.
on_force: list[Callable[[], None]] = []


class Stopped(BaseException):
    """Carry a signal through the program. As a BaseException it passes every `except Exception`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def handle_signals() -> None:
    """Handle signals from now on: end the process at once."""
    _state["importing"] = True
    for number in SIGNALS:
        signal.signal(number, _handle)
    if not _state["watching"]:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=_watch, args=(reading,), name="dsel-signals", daemon=True).start()
        _state["watching"] = True


def raise_on_signals() -> None:
    """Raise `Stopped` in the main thread when a signal arrives, instead of ending the process."""
    _state["importing"] = False


def leave(code: int) -> NoReturn:
    """End the process with this exit code, after the functions that were registered for its end.

    Python's own end waits for threads, and may wait for ever: a thread that Python stopped may hold a lock.
    """
    handle_signals()  # there is nothing more to save
    threading.Timer(END_SECONDS, os._exit, [code]).start()
    logging.disable()  # all is said; what threads of libraries log now is about their own end
    _stop_zarr()
    with suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def stop_zarr_at_exit() -> None:
    """Let the end of this process wait until Zarr has stopped. Call it after Zarr was imported: it must stop first.

    Zarr stops the thread in which it reads, waits 0.2 seconds, and then fails with a traceback. A busy machine takes
    longer.
    """
    if "zarr.core.sync" in sys.modules and not _state["stops zarr"]:
        _state["stops zarr"] = True
        atexit.register(_stop_zarr)


def _stop_zarr() -> None:
    with suppress(Exception):
        zarr = sys.modules["zarr.core.sync"]
        zarr.loop[0].call_soon_threadsafe(zarr.loop[0].stop)
        zarr.iothread[0].join(_ZARR_SECONDS)


def defer(name: str | None) -> None:
    """Record that a signal waits for a good moment; None: none waits."""
    _state["deferred"] = name


def raise_deferred() -> None:
    """Raise `Stopped` if a signal waits. Long work with nothing to save calls this now and then."""
    if (name := _state["deferred"]) is not None:
        raise Stopped(name)


def in_callback(frame: FrameType | None) -> bool:
    """Return whether compiled code called this frame, directly or not. It would print and drop an exception."""
    while frame is not None:
        code = frame.f_code
        if any(code.co_name.startswith(name) and file in code.co_filename for name, file in _CALLBACKS):
            return True
        frame = frame.f_back
    return False


def send_again(number: int) -> None:
    """Send a signal to the main thread again in a moment."""
    timer = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, [threading.main_thread().ident, number])
    timer.daemon = True
    timer.start()


def _handle(number: int, frame: FrameType | None) -> None:
    if _state["importing"]:
        _end(number)
    if in_callback(frame):
        send_again(number)
    else:
        raise Stopped(signal.Signals(number).name)


def _watch(reading: int) -> None:
    while (number := os.read(reading, 1)[0]) not in SIGNALS:
        pass
    time.sleep(FORCE_SECONDS)
    for force in on_force:
        force()
    time.sleep(END_SECONDS - FORCE_SECONDS)
    _end(number)


def _end(number: int) -> None:
    text = _MESSAGE.format(signal.Signals(number).name)
    if "json" in sys.argv:
        import json

        fields = {"level": "ERROR", "message": text, "kind": "interrupted", "exit_code": EXIT_CODE}
        text = json.dumps(fields)
    else:
        text = f"dsel: {text}"
    os.write(2, f"{text}\n".encode())
    os._exit(EXIT_CODE)
