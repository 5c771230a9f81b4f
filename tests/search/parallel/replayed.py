"""A whole journal, replayed."""

from __future__ import annotations

from pathlib import Path

from dsel.search.parallel.journal import read_journal
from dsel.search.parallel.replay import Replay
from dsel.search.pareto.archive import IsolationFunction, together


def replayed(path: Path, k: int, isolation: IsolationFunction = together) -> Replay:
    """All events of the journal of a search for k columns, taken in."""
    found = Replay(k, isolation)
    for event in read_journal(path):
        found.take(event)
    return found
