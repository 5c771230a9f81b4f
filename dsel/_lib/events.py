"""What happens in a run, as events, and who is told of it.

Code says what happens with `emit`. It costs next to nothing where nobody observes. An observer that fails is left out
from then on, with one warning: it never changes a result.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal

log = logging.getLogger("dsel")

EventKind = Literal["run-begins", "stage-begins", "stage-ends", "pass", "slice", "certificate", "run-ends"]
Tell = Callable[["Event"], None]

#: Seconds that the end of a run waits for an observer at most, such as one whose server does not answer.
CLOSE_SECONDS: Final = 20.0
#: Events that wait for a slow observer at most. Slices are left out beyond half of that.
_MOST_WAITING: Final = 10_000
_MOST_SLICES: Final = _MOST_WAITING // 2


@dataclass(frozen=True)
class Event:
    """One thing that happened in a run.

    Attributes
    ----------
    kind : {"run-begins", "stage-begins", "stage-ends", "pass", "slice", "certificate", "run-ends"}
        What happened.
    at : float
        When, in seconds since 1970.
    values : dict
        Figures and names, as values that JSON has. Their keys depend on the kind.
    """

    kind: EventKind
    at: float
    values: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the event as one dict."""
        return {"event": self.kind, "at": self.at, **self.values}


class Observer:
    """Takes the events of one run. Other packages list an `ObserverKind` in the entry-point group dsel.observers."""

    def observe(self, event: Event) -> None:
        """Take an event. Calls come in the order of the events, from one thread. An error ends the observation."""
        raise NotImplementedError

    def close(self) -> None:
        """Send what has not been sent. The run is over."""


_TOLD: ContextVar[tuple[Tell, ...]] = ContextVar("_TOLD", default=())


def is_observed() -> bool:
    """Return whether anyone is told what happens."""
    return bool(_TOLD.get())


def emit(kind: EventKind, **values: Any) -> None:
    """Tell the observers of this run what happens now."""
    if told := _TOLD.get():
        event = Event(kind, time.time(), values)
        for tell in told:
            tell(event)


@contextmanager
def telling(tell: Tell | None, what: str = "on_event") -> Iterator[None]:
    """Tell a function of the events in the block, in the thread where they happen. what: its name in a warning."""
    if tell is None:
        yield
        return
    works = True

    def carefully(event: Event) -> None:
        nonlocal works
        if works:
            try:
                tell(event)
            except Exception as error:
                works = False
                log.warning("%s fails, and is not called again: %s: %s", what, type(error).__name__, error)

    token = _TOLD.set((*_TOLD.get(), carefully))
    try:
        yield
    finally:
        _TOLD.reset(token)


@contextmanager
def observing(observer: Observer, name: str, close_seconds: float | None = None) -> Iterator[None]:
    """Tell an observer of the events in the block, in a separate thread, so that a slow server never stops the run."""
    close_seconds = CLOSE_SECONDS if close_seconds is None else close_seconds
    waiting: queue.Queue[Event | None] = queue.Queue(_MOST_WAITING)

    def work() -> None:
        try:
            while (event := waiting.get()) is not None:
                observer.observe(event)
            observer.close()
        except Exception as error:
            log.warning("events %s: %s: %s. The run continues without it.", name, type(error).__name__, error)

    thread = threading.Thread(target=work, name=f"dsel-events-{name}", daemon=True)
    thread.start()

    def put(event: Event) -> None:
        if thread.is_alive() and not (event.kind == "slice" and waiting.qsize() > _MOST_SLICES):
            waiting.put_nowait(event)

    try:
        with telling(put, f"events {name}"):
            yield
    finally:
        try:
            waiting.put_nowait(None)
            thread.join(close_seconds)
        except queue.Full:
            pass
        if thread.is_alive():
            log.warning("events %s: it has not taken all events after %g s; the rest is lost", name, close_seconds)
