"""Handle SIGTERM and SIGINT: at once, or at the end of a slice while a search is in memory."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from dsel._lib.termination import SIGNALS, Stopped, defer, in_callback, on_force, send_again
from dsel.errors import DselError, Interrupted

#: Another thread sends this signal to the main thread to end what it does.
_WAKE = signal.SIGUSR1


class Interrupts:
    """Context manager that raises `Interrupted` on SIGTERM or SIGINT.

    With `deferred` set, the first signal only sets `received`, for the caller to check. A second signal ends the
    context at once, and so does a command whose time to end runs out. Outside the main thread, signals keep their
    handlers.

    Attributes
    ----------
    deferred : bool
        Whether signals wait until the caller asks for them.
    received : str or None
        What arrived: the name of a signal, or of an error that another thread reported.
    """

    def __init__(self) -> None:
        self.deferred = False
        self.received: str | None = None
        self._failure: DselError | None = None
        self._before: dict[int, Any] = {}
        self._raised = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
            self._before[_WAKE] = signal.signal(_WAKE, self._wake)
            on_force.append(self._force)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.deferred = self._raised = True
        defer(None)
        if self._before:
            on_force.remove(self._force)
        for number, handler in self._before.items():
            # One that is on its way must not end the process, as it would by default.
            late = number == _WAKE and handler == signal.SIG_DFL
            signal.signal(number, _ignore if late else handler)
        # A signal may surface as another error, such as that of a call that it broke off.
        if isinstance(error, Stopped) or (self.received is not None and isinstance(error, Exception)):
            raise self._reason() from (None if isinstance(error, Stopped | DselError) else error)

    def fail(self, error: DselError) -> None:
        """End the context with an error that another thread has found, as a signal would end it."""
        if self.received is None:
            self._failure, self.received = error, type(error).__name__
            self._send_wake()

    def raise_received(self) -> None:
        """Raise the error of a signal that was deferred, or whose exception was swallowed."""
        if self.received is not None:
            raise self._reason()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        if self._failure is None:
            self.received = signal.Signals(number).name
        if not self.deferred or again:
            self._raise(number, frame)
        else:
            defer(self.received)

    def _wake(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and not self.deferred and not self._raised:
            self._raise(number, frame)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if in_callback(frame):
            defer(None)  # the signal that is sent again raises, and nothing else
            send_again(number)
            return
        self._raised = True
        raise Stopped(str(self.received))

    def _force(self) -> None:
        """Wait no longer for the end of a slice."""
        if not self._raised:
            self.deferred = False
            self._send_wake()

    def _send_wake(self) -> None:
        if self._before:
            signal.pthread_kill(threading.main_thread().ident or 0, _WAKE)

    def _reason(self) -> DselError:
        if self._failure is not None:
            return self._failure
        return Interrupted(f"Stopped by {self.received}.", "Start the same command again to continue.")


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
