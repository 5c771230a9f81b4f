"""A whole journal, replayed."""

from __future__ import annotations

from pathlib import Path

from dsel.search.archive import IsolationFunction, together
from dsel.search.journal import read_journal
from dsel.search.replay import Replay


def replayed(path: Path, k: int, isolation: IsolationFunction = together) -> Replay:
    """All events of the journal of a search for k columns, taken in."""
    found = Replay(k, isolation)
    for event in read_journal(path):
        found.take(event)
    return found
