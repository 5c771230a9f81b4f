"""SIGTERM and SIGINT: at once while nothing is lost by it, at the end of a slice while a search stands in memory."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from dsel.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Stop(BaseException):
    """On its way from the signal to the end of the context: no `except Exception` on it holds it up."""


class Interrupts:
    """A context that ends in `Interrupted` at one of the two signals. With `deferred` set the first one only leaves
    `received` for the caller to see; a second one is obeyed at once. Outside the main thread signals are left alone."""

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
        """Raise for a signal that was deferred, or whose exception got lost on its way."""
        if self.received is not None:
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(f"Stopped by {self.received}.", "Start the same job again to go on.")
