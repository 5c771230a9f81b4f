"""Selections on small data that take the way of wide data: rows of the Gram matrix, and blocks of columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import dsel
from dsel.planning.representations.representation import ProblemShape


@contextmanager
def without_gram() -> Iterator[None]:
    """Let the planner prefer blocks of columns for rounds on left-out rows, however small the Gram matrix is."""
    with mock.patch.object(ProblemShape, "rows_beat_gram", property(lambda shape: shape.rounds)):
        yield


def select_without_gram(*arguments: Any, **options: Any) -> dsel.Selection:
    """Return what `dsel.select` returns, and check that it took that way."""
    with without_gram():
        found = dsel.select(*arguments, **options)
    assert found.counts["representation"] == "column-blocks"
    return found
