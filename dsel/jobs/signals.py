"""Handle SIGTERM and SIGINT: at once, or at the end of a slice while a search is in memory."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from dsel.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Stop(BaseException):
    """Carry a signal to the end of the context. As a BaseException it passes every `except Exception`."""


class Interrupts:
    """Context manager that raises `Interrupted` on SIGTERM or SIGINT.

    With `deferred` set, the first signal only sets `received`, for the caller to check. A second signal ends the
    context at once. Outside the main thread, signals keep their handlers.
    """

    def __init__(self) -> None:
        self.deferred = False
        self.received: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deferred = True
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, _Stop):
            raise self._interrupted() from None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None
        self.received = signal.Signals(number).name
        if not self.deferred or again:
            raise _Stop

    def raise_received(self) -> None:
        """Raise Interrupted if a signal was deferred, or if its exception was swallowed."""
        if self.received is not None:
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(f"Stopped by {self.received}.", "Start the same job again to continue.")
