"""What a run tells while it runs: bars in a terminal, plain log lines elsewhere, both in run.log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsel.errors import OutputError
from dsel.search.progress import Progress
from dsel.search.stopping import AnytimeSearch

log = logging.getLogger("dsel")

#: Without a terminal, progress is a line every so many seconds.
LINE_SECONDS = 10.0
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class Reporter:
    """Progress of the passes (tasks) and of the search (iterations, best value)."""

    def __init__(self, bars: Any | None = None) -> None:
        self._bars = bars
        self._task: Any = None
        self._stage = ""
        self._last = 0.0
        self._start = 0.0

    @classmethod
    def for_terminal(cls) -> Reporter:
        """Bars on standard error if it is a terminal, lines if not."""
        if not sys.stderr.isatty():
            return cls()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        return cls(Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)))

    @contextmanager
    def logging_to(self, path: Path) -> Iterator[None]:
        """Log lines of dsel to standard error and to a file; bars are shown meanwhile. Errors: OutputError."""
        try:
            handlers: list[logging.Handler] = [logging.FileHandler(path)]
        except OSError as error:
            raise OutputError(
                f"The log {path} cannot be written: {error.strerror}.", "Mend its permissions, or choose another --out."
            ) from error
        if self._bars is not None:
            from rich.logging import RichHandler

            handlers.append(RichHandler(console=self._bars.console, show_path=False))
        else:
            handlers.append(logging.StreamHandler())
            handlers[-1].setFormatter(logging.Formatter(_FORMAT))
        handlers[0].setFormatter(logging.Formatter(_FORMAT))
        before = log.level, log.propagate
        log.setLevel(logging.INFO)
        log.propagate = False
        for handler in handlers:
            log.addHandler(handler)
        try:
            if self._bars is not None:
                with self._bars:
                    yield
            else:
                yield
        finally:
            for handler in handlers:
                log.removeHandler(handler)
                handler.close()
            log.setLevel(before[0])
            log.propagate = before[1]

    def stage(self, name: str) -> None:
        """A stage begins: statistics, search, check."""
        log.info("%s", name)
        self._stage, self._start, self._last = name, time.monotonic(), time.monotonic()
        if self._bars is not None:
            self._task = self._bars.add_task(name, total=None, note="")

    def tasks(self, done: int, total: int) -> None:
        """Tasks of the present pass that are finished."""
        self._show(done, total, f"{done} of {total} tasks")

    def search(self, search: AnytimeSearch, total: int | None = None) -> None:
        """The search stands between two slices; one on workers says itself how it gets on."""
        progress: Progress | None = getattr(search, "progress", None)
        if progress is not None:
            self._show(progress.iterations, progress.limit, str(progress))
            return
        speed = search.iteration / max(time.monotonic() - self._start, 1e-9)
        self._show(
            search.iteration,
            total,
            f"{search.iteration:,} iterations, best {search.best_value:.6g}, {speed:,.0f} a second",
        )

    def _show(self, done: int, total: int | None, note: str) -> None:
        if self._bars is not None:
            if self._task is not None:
                self._bars.update(self._task, completed=done, total=total, note=note)
            return
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS:
            self._last = now
            log.info("%s: %s", self._stage, note)
