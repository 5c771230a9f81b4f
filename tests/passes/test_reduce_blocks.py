"""The tree of merges on threads of this process is that of the tasks."""

from __future__ import annotations

from typing import Any

import pytest

from dsel.passes.base import FAN_IN
from dsel.passes.reduce_blocks import PartialResult, merge_partials, merge_stream


def join(a: Any, b: Any) -> Any:
    return f"({a} {b})"


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16, 17, 23, 64, 83])
def test_results_are_merged_in_the_same_order_as_level_by_level(count: int) -> None:
    level = leaves = [PartialResult(str(i), i) for i in range(count)]
    while len(level) > 1:
        level = [merge_partials(level[i : i + FAN_IN], join) for i in range(0, len(level), FAN_IN)]
    assert merge_stream(iter(leaves), join) == level[0]
    assert level[0].bytes_read == sum(range(count))
