"""One line that says what a selection does, in notebooks and terminals."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from dsel._lib.kernel_loading import on_compilation
from dsel._lib.text import counted, noun
from dsel.search.anytime import AnytimeSearch
from dsel.selection.context import RunContext

#: A selection that is shorter than this many seconds, and compiles nothing, shows no line.
_PATIENCE = 1.0
#: Seconds between lines where a line cannot be written over.
_LINE_SECONDS = 10.0


class ProgressLine:
    """The stage of a run, with its tasks or iterations. It appears when a run takes long or compiles."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._stage = ""
        self._printed = 0.0
        self._console: Any = None
        self._bars: Any = None
        self._task: Any = None

    def stage(self, name: str) -> None:
        """Show that a stage begins."""
        self._stage = name
        self._show("")

    def tasks(self, done: int, total: int) -> None:
        """Show how many tasks of the current pass are finished."""
        self._show(f"{done} of {counted(total, 'task')}")

    def slice(self, search: AnytimeSearch) -> None:
        """Show how far a search is."""
        self._show(f"{search.iteration:,} {noun(search.iteration, 'iteration')}, best {search.best_value:.6g}")

    def compiling(self, line: str) -> None:
        """Show at once that kernels are compiled."""
        self._show(line, at_once=True)

    def close(self) -> None:
        """Remove the line."""
        if self._bars is not None:
            self._bars.stop()

    def _show(self, note: str, at_once: bool = False) -> None:
        now = time.monotonic()
        if self._console is None:
            if not at_once and now - self._began < _PATIENCE:
                return
            self._start()
        if self._bars is not None:
            self._bars.update(self._task, description=self._stage, note=note)
        elif at_once or not note or now - self._printed >= _LINE_SECONDS:
            self._printed = now
            self._console.print(f"{self._stage}: {note}" if note else self._stage, highlight=False)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        if self._console.is_terminal or self._console.is_jupyter:
            columns = (SpinnerColumn(), TextColumn("{task.description}: {task.fields[note]}"), TimeElapsedColumn())
            self._bars = Progress(*columns, console=self._console, transient=True)
            self._bars.start()
            self._task = self._bars.add_task(self._stage, total=None, note="")


@contextmanager
def showing_progress(context: RunContext, progress: bool | None) -> Iterator[tuple[RunContext, ProgressLine | None]]:
    """Provide a context that shows its progress during the block, and the line that shows it, or None.

    progress: None for a line in notebooks and terminals only.
    """
    if not (_is_interactive() if progress is None else progress):
        yield context, None
        return
    line = ProgressLine()
    token = on_compilation.set(line.compiling)
    try:
        yield replace(context, on_slice=line.slice, on_stage=line.stage), line
    finally:
        on_compilation.reset(token)
        line.close()


def _is_interactive() -> bool:
    """Return whether a person may watch: standard error is a terminal, or the code runs in a notebook."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"
