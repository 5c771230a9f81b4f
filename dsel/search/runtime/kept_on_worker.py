"""What a process keeps between the tasks of a run: searches with their tables, explorers of trees.

They are large. So only the last run has any, and a task that ends after its run leaves nothing in memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from functools import partial
from typing import Any

from dsel.search.ask_tell import Cleanup

#: (run, key, value), the value that was used last at the end.
_kept: list[tuple[str, Hashable, Any]] = []
#: Runs that have ended.
_ended: deque[str] = deque(maxlen=1000)
_lock = threading.Lock()


def take(run: str, key: Hashable = None) -> Any:
    """Return a kept value of a run, or None. No other task gets it until it is kept again."""
    with _lock:
        for i in reversed(range(len(_kept))):
            if _kept[i][:2] == (run, key):
                return _kept.pop(i)[2]
    return None


def keep(run: str, value: Any, key: Hashable = None, most: int | None = None) -> bool:
    """Keep a value for the next task of a run, and return whether the run continues.

    Values of other runs are released. most: the number of values that are kept, those that were used last.
    """
    with _lock:
        _kept[:] = [entry for entry in _kept if entry[0] == run]
        if run in _ended:
            return False
        _kept.append((run, key, value))
        if most is not None:
            del _kept[:-most]
        return True


def release(run: str) -> None:
    """Release all values of a run that has ended."""
    with _lock:
        _ended.append(run)
        _kept[:] = [entry for entry in _kept if entry[0] != run]


def releasing(run: str) -> Cleanup:
    """Return a function that releases a run on the worker that calls it."""
    return partial(release, run)
