"""The tree of merges on threads of this process is that of the tasks."""

from __future__ import annotations

from typing import Any

import pytest

from dsel.passes.data_pass import FAN_IN, MergeTree, merge_tasks
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


def test_the_tree_has_as_many_merges_as_are_planned_and_none_of_a_single_result() -> None:
    for leaves in range(1, 200):
        sizes: list[int] = []

        def combine(parts: list[int], sizes: list[int] = sizes) -> int:
            sizes.append(len(parts))
            return sum(parts)

        assert MergeTree(combine, ((0, i, 1) for i in range(leaves))).finish() == [leaves]
        assert len(sizes) == merge_tasks(leaves)
        assert min(sizes, default=2) > 1
