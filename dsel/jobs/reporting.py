"""Progress and logs of a run: bars in a terminal, log lines elsewhere, and always lines in run.log."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from dsel._lib.text import counted_items, noun, printable
from dsel.errors import DselError, OutputError
from dsel.jobs.status import StatusFile, describe_seconds
from dsel.search.anytime import AnytimeSearch, slice_event
from dsel.search.runtime.dispatcher import SearchProgress
from dsel.storage.json_files import valid_json
from dsel.storage.log_handler import log_handler
from dsel.storage.object_store import ending
from dsel.storage.paths import AnyPath

log = logging.getLogger("dsel")

#: Seconds between lines of progress: in the first minute of a stage, and later.
LINE_SECONDS, HEARTBEAT_SECONDS = 10.0, 60.0
#: This variable sets the level of log lines, such as DEBUG for those of Dask.
LEVEL_VARIABLE = "DSEL_LOG_LEVEL"

LogFormat = Literal["text", "json"]

#: The progress of a stage that has just begun.
_NOTHING = {"done": None, "total": None, "best": None, "note": "", "seconds_left": None}


class _JsonLines(logging.Formatter):
    """Format a record as one JSON object: time (UTC), level, run, message, and fields of progress and errors."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self._run = run

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname, "run": self._run, "message": record.getMessage()}
        if record.name.split(".")[0] != "dsel":
            line["logger"] = record.name
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(valid_json({**line, **getattr(record, "fields", {})}))


class _Lines(logging.Formatter):
    """Format a record as one line. Control characters are escaped, so that no label forges a line."""

    def __init__(self, run: str, form: str = "%(asctime)s {run} %(levelname)s %(message)s") -> None:
        super().__init__(form.format(run=run))

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))


@contextmanager
def output_errors(what: str, remedy: str) -> Iterator[None]:
    """Raise OutputError for an OSError of the block. what: what it could not do."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{what}: {error.strerror or error}.", remedy) from error


def _level() -> int:
    """Return the level that the environment asks for."""
    return logging.getLevelNamesMapping().get(os.environ.get(LEVEL_VARIABLE, "").upper(), logging.INFO)


class Reporter:
    """Report the progress of passes (tasks) and of the search (iterations, best value).

    Parameters
    ----------
    bars : rich.progress.Progress, optional
        Bars in a terminal. Without them, progress is written as log lines.
    log_format : {"text", "json"}
        Format of the log lines.

    Attributes
    ----------
    run : str
        The id of this run. It is in every line.
    publish : callable or None
        Called with each report of progress as a dict, for metrics.
    status : StatusFile or None
        It is told about the same progress, for `dsel status`.
    events : tuple of str
        Names of the observers that are told what happens, such as "jsonl".
    """

    def __init__(self, bars: Any | None = None, log_format: LogFormat = "text") -> None:
        moment = datetime.now(UTC).strftime("%Y%m%dt%H%M%S")
        self.run = f"{moment}-{uuid4().hex[:4]}"
        self.publish: Callable[[dict[str, Any]], None] | None = None
        self.status: StatusFile | None = None
        self.events: tuple[str, ...] = ()
        self._expected: tuple[int | None, float | None] = (None, None)
        self._json = log_format == "json"
        self._bars = bars
        self._task: Any = None
        self._stage = ""
        self._showing = False
        self._last = 0.0
        self._start = 0.0
        self._saved: float | None = None
        self._progress: dict[str, Any] = {}
        self._first: tuple[int, float] | None = None

    @classmethod
    def for_terminal(cls, log_format: LogFormat = "text") -> Reporter:
        """Return a reporter with bars if standard error is a terminal and text is wanted, else with log lines."""
        if log_format == "json" or not sys.stderr.isatty():
            return cls(log_format=log_format)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
        return cls(Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)))

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Show the bars, or write the log lines of dsel to standard error, during the block.

        Next to bars, only warnings and errors are written: the details go to the log file. Within such a block another
        one changes nothing.
        """
        if self._showing:
            yield
            return
        if self._bars is None:
            handler = self._formatted(logging.StreamHandler())
        else:
            from rich.logging import RichHandler

            handler = RichHandler(logging.WARNING, console=self._bars.console, show_path=False)
            handler.setFormatter(_Lines(self.run, "%(message)s"))
        self._showing = True
        before = log.level, log.propagate
        log.setLevel(_level())
        log.propagate = False
        try:
            with self._attached(handler), self._heartbeat(), self._bars or nullcontext():
                yield
        finally:
            self._showing = False
            log.setLevel(before[0])
            log.propagate = before[1]

    @contextmanager
    def logging_to(self, path: AnyPath, *, is_new: bool = False) -> Iterator[None]:
        """Write the same lines to a file, and the error that ends the block, if any.

        is_new: whether the file is known not to exist, which saves a request.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        with output_errors(f"The log {path} cannot be written", "Change its permissions, or choose another --out."):
            handler = self._formatted(log_handler(path, is_new=is_new))
        with self._attached(handler):
            try:
                yield
            except Exception as error:
                level, message, fields = logging.ERROR, "unexpected error", {}
                trace: Any = sys.exc_info()
                if isinstance(error, DselError):
                    level = logging.WARNING if error.kind == "interrupted" else logging.ERROR
                    message, trace = str(error), None
                    fields = {"kind": error.kind, "exit_code": error.exit_code}
                handler.handle(log.makeRecord(log.name, level, "", 0, message, (), trace, extra={"fields": fields}))
                raise

    @contextmanager
    def _attached(self, handler: logging.Handler) -> Iterator[None]:
        log.addHandler(handler)
        with ending(handler.close):
            try:
                yield
            finally:
                log.removeHandler(handler)

    def _formatted(self, handler: logging.Handler) -> logging.Handler:
        handler.setFormatter(_JsonLines(self.run) if self._json else _Lines(self.run))
        return handler

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Log a line now and then during the block, also while nothing reports progress."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(LINE_SECONDS):
                if self._stage and time.monotonic() - self._last >= HEARTBEAT_SECONDS:
                    self._log_progress()

        thread = threading.Thread(target=beat, name="dsel-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()

    def _log_progress(self) -> None:
        """Log how far the stage is, and how long it still takes."""
        self._last = time.monotonic()
        note, left = self._progress.get("note") or "working", self._progress.get("seconds_left")
        text = note if left is None else f"{note}, about {describe_seconds(left)} left"
        fields = {name: value for name, value in self._progress.items() if name != "note" and value is not None}
        log.info("%s: %s", self._stage, text, extra={"fields": {"stage": self._stage, **fields}})

    def stage(self, name: str) -> None:
        """Report that a stage begins: statistics, search or check."""
        log.info("%s", name, extra={"fields": {"stage": name}})
        self._stage, self._start, self._last, self._first = name, time.monotonic(), time.monotonic(), None
        self._progress = {}
        if self.status is not None:
            self.status.update({**_NOTHING, "stage": name})
        if self._bars is not None:
            self._task = self._bars.add_task(name, total=None, note="")

    def expect(self, iterations: int | None, seconds: float | None) -> None:
        """Record how long the search takes at most, so that its progress says how much is left."""
        self._expected = (iterations, seconds)

    def tasks(self, done: int, total: int, what: str = "tasks") -> None:
        """Report the finished tasks of the current pass, or what else the stage counts."""
        self._show(done, total, f"{done} of {counted_items(total, what)}")

    def search(self, search: AnytimeSearch) -> None:
        """Report a search between two slices. A search on workers describes its own progress."""
        slice_event(self._stage, search)
        progress: SearchProgress | None = getattr(search, "progress", None)
        size = f"size {search.size}, " if self._stage == "certificate" and hasattr(search, "size") else ""
        if progress is not None:
            note = f"{size}{progress}"
            self._show(progress.iterations, progress.limit, note, progress.best, progress.seconds_left)
            return
        spent = max(time.monotonic() - self._start, 1e-9)
        iterations, seconds = self._expected if self._stage == "search" else (None, None)
        note = (
            f"{size}{search.iteration:,} {noun(search.iteration, 'iteration')}, best {search.best_value:.6g}"
            f"{self._speed(search.iteration)}"
        )
        left = None if seconds is None else max(seconds - spent, 0.0)
        self._show(search.iteration, iterations, note, search.best_value, left)

    @property
    def has_saved(self) -> bool:
        """Whether this run has saved something that the next one continues from. An unfinished proof is saved."""
        return self._saved is not None or self._stage == "certificate"

    def saved(self) -> None:
        """Record that a checkpoint was written."""
        self._saved = time.time()

    def _show(
        self, done: int, total: int | None, note: str, best: float | None = None, seconds_left: float | None = None
    ) -> None:
        best = None if best is None or not math.isfinite(best) else best  # no subset has a value yet
        progress = {"stage": self._stage, "done": done, "total": total, "best": best, "checkpoint": self._saved}
        if self.publish is not None:
            self.publish(progress)
        self._progress = {**progress, "note": note, "seconds_left": self._seconds_left(done, total, seconds_left)}
        if self.status is not None:
            self.status.update(self._progress)
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, total=total, note=note)
        now = time.monotonic()
        if now - self._last >= (LINE_SECONDS if now - self._start < HEARTBEAT_SECONDS else HEARTBEAT_SECONDS):
            self._log_progress()

    def _speed(self, done: int) -> str:
        """Return how much is done in a second since the first report: a resumed search begins with a large number."""
        if self._first is None or done <= self._first[0]:
            return ""
        first, since = self._first
        return f", {(done - first) / max(time.monotonic() - since, 1e-9):,.0f} per second"

    def _seconds_left(self, done: int, total: int | None, known: float | None) -> float | None:
        """Return about how long the stage still takes: the shorter of its time limit and its work at this speed."""
        if self._first is None or done < self._progress.get("done", 0):  # the next pass of the stage
            self._first = (done, time.monotonic())
        first, since = self._first
        by_work = None
        if total and done > first:
            by_work = (time.monotonic() - since) / (done - first) * max(total - done, 0)
        return min((seconds for seconds in (known, by_work) if seconds is not None), default=None)
