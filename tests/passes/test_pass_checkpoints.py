"""A pass that is interrupted continues where it was saved, and its result has the same bits."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dsel.passes.reduce_blocks as reduce_blocks
from dsel.data.as_dataset import as_dataset
from dsel.engine.engine_protocol import THREADS, ThreadEngine
from dsel.errors import OutputError
from dsel.passes.columns.column_blocks import ColumnBlocks
from dsel.passes.columns.column_factor import product_pass, right_product_pass, row_gram_pass
from dsel.passes.columns.column_statistics import column_moments_pass
from dsel.passes.data_pass import FAN_IN, MergeTree, complete_subtrees
from dsel.passes.execution.pass_checkpoints import PassCheckpoints, checkpoint_passes
from dsel.passes.gram import gram_pass
from tests.stores import make_store, regression


class StoppedError(Exception):
    """The run was killed."""


@dataclass(frozen=True)
class Killed(ThreadEngine):
    """An engine that stops after some graphs, and counts the leaves that it computed."""

    graphs: int = 0
    leaves: list[int] = field(default_factory=list)

    def run(self, graph: Any, *, before: int = 0, after: int = 0) -> Any:
        if len(self.leaves) == self.graphs:
            raise StoppedError
        self.leaves.append(len(graph))
        return super().run(graph, before=before, after=after)


@pytest.fixture(scope="module")
def tall(tmp_path_factory: pytest.TempPathFactory) -> str:
    X, Y = regression(m=430)
    return str(make_store(tmp_path_factory.mktemp("tall") / "t.zarr", X, Y, chunks=(10, 24)))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    X = np.random.default_rng(1).standard_normal((9, 86))
    return str(make_store(tmp_path_factory.mktemp("wide") / "w.zarr", X, chunks=(9, 2)))


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_blocks, "GROUP_BYTES", 1)


def gram(store: str) -> Callable[[Any], Any]:
    dataset = as_dataset(store)
    return lambda engine: gram_pass(dataset, dataset.row_ranges).run(engine, fill=None)


def over_columns(store: str, name: str) -> Callable[[Any], Any]:
    def run(engine: Any) -> Any:
        blocks = ColumnBlocks(as_dataset(store))
        scaling = np.vstack([np.zeros(86), np.ones(86), np.zeros(86)])
        V = np.random.default_rng(0).standard_normal((9, 3))
        if name == "columns":
            return column_moments_pass(blocks).run(engine)
        if name == "rows":
            return row_gram_pass(blocks).run(engine, per_column=scaling)
        if name == "right":
            R = np.random.default_rng(0).standard_normal((3, 86))
            return right_product_pass(blocks, 3).run(engine, per_column=np.vstack([scaling, R]), shared=3)
        return product_pass(blocks, 3).run(engine, per_column=scaling, shared=V)

    return run


def numbers(value: Any) -> list[Any]:
    """Return all arrays in a result; of a Gram matrix only the upper triangle, which is what it has."""
    if isinstance(value, np.ndarray):
        return [np.triu(value) if value.ndim == 2 and value.shape[0] == value.shape[1] else value]
    return [number for part in vars(value).values() if isinstance(part, np.ndarray) for number in numbers(part)]


def killed_and_resumed(run: Callable[[Any], Any], folder: Path, lives: list[int], seconds: float) -> tuple[Any, int]:
    """Return the result of a run that is killed after some graphs in each life, and how many leaves it computed."""
    leaves = 0
    for graphs in (*lives, 10**6):
        engine = Killed(graphs=graphs)
        with checkpoint_passes(PassCheckpoints(folder, seconds)):
            try:
                found = run(engine)
            except StoppedError:
                continue
            finally:
                leaves += sum(engine.leaves)
    return found, leaves


@pytest.mark.parametrize("lives", [[1], [2, 1], [3, 0, 2, 2], [1, 1, 1, 1, 1]])
def test_the_gram_pass_continues_with_the_same_bits(tall: str, tmp_path: Path, lives: list[int]) -> None:
    run = gram(tall)
    expected = run(THREADS)
    found, _ = killed_and_resumed(run, tmp_path / "passes", lives, 1e-6)
    for a, b in zip(numbers(found), numbers(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


@pytest.mark.parametrize("name", ["columns", "rows", "right", "products"])
def test_the_wide_passes_continue_with_the_same_bits(wide: str, tmp_path: Path, name: str) -> None:
    run = over_columns(wide, name)
    expected = run(THREADS)
    found, leaves = killed_and_resumed(run, tmp_path / "passes", [2, 3], 1e-6)
    for a, b in zip(numbers(found), numbers(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    assert leaves <= 43 + 2, "a leaf that was saved was computed again"


def test_work_that_was_saved_is_not_done_again(tall: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    block_moments = reduce_blocks._reduce_group

    def counted(*arguments: Any, blocks: Any, **options: Any) -> Any:
        read.append(blocks[0].start)
        return block_moments(*arguments, blocks=blocks, **options)

    monkeypatch.setattr(reduce_blocks, "_reduce_group", counted)
    killed_and_resumed(gram(tall), tmp_path / "passes", [4, 5, 6], 1e-6)
    assert sorted(read) == [10 * i for i in range(43)]


def test_a_checkpoint_holds_few_files(tall: str, tmp_path: Path) -> None:
    checkpoints = PassCheckpoints(tmp_path / "passes", 1e-6)
    with checkpoint_passes(checkpoints), pytest.raises(StoppedError):
        gram(tall)(Killed(graphs=23))
    nodes = list(tmp_path.rglob("node-*"))
    assert 0 < len(nodes) <= 3 * (FAN_IN - 1)
    assert checkpoints.saved >= 20


def test_without_time_for_it_nothing_is_written(tall: str, tmp_path: Path) -> None:
    with checkpoint_passes(PassCheckpoints(tmp_path / "passes", 1000.0)):
        gram(tall)(THREADS)
    assert not (tmp_path / "passes").exists()


def test_results_of_a_stage_are_kept_until_it_is_complete(wide: str, tmp_path: Path) -> None:
    checkpoints = PassCheckpoints(tmp_path / "passes", 1e-6, keep=True)
    with checkpoint_passes(checkpoints):
        first = over_columns(wide, "rows")(THREADS)
        again = Killed(graphs=0)
        np.testing.assert_array_equal(over_columns(wide, "rows")(again), first)
        checkpoints.clear()
    assert not (tmp_path / "passes").exists()


def test_another_argument_is_another_pass(tall: str, tmp_path: Path) -> None:
    with checkpoint_passes(PassCheckpoints(tmp_path / "passes", 1e-6)):
        with pytest.raises(StoppedError):
            gram(tall)(Killed(graphs=3))
        dataset = as_dataset(tall)
        found = gram_pass(dataset, dataset.row_ranges).run(THREADS, fill=np.full(24, 7.0))
    np.testing.assert_array_equal(np.triu(found.K), np.triu(gram(tall)(THREADS).K))


@pytest.mark.parametrize("damage", ["state.json", "node"])
def test_a_damaged_checkpoint_starts_the_pass_again(tall: str, tmp_path: Path, damage: str) -> None:
    with checkpoint_passes(PassCheckpoints(tmp_path / "passes", 1e-6)), pytest.raises(StoppedError):
        gram(tall)(Killed(graphs=6))
    for file in tmp_path.rglob(f"{damage}*"):
        file.write_bytes(file.read_bytes()[:30])
    found, _ = killed_and_resumed(gram(tall), tmp_path / "passes", [], 1e-6)
    np.testing.assert_array_equal(np.triu(found.K), np.triu(gram(tall)(THREADS).K))


def test_a_folder_that_cannot_be_written_does_not_stop_the_pass(
    tall: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    killed_and_resumed(gram(tall), tmp_path / "file", [], 1e-6)
    assert "the pass is not saved" in caplog.text


def test_a_lost_lock_stops_the_pass(tall: str, tmp_path: Path) -> None:
    def require() -> None:
        raise OutputError("Another run holds the folder.")

    checkpoints = PassCheckpoints(tmp_path / "passes", 1e-6, require)
    with checkpoint_passes(checkpoints), pytest.raises(OutputError, match="Another run"):
        gram(tall)(THREADS)


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_largest_nodes_cover_the_leaves(a: int, b: int) -> None:
    first, last = min(a, b), max(a, b)
    nodes = complete_subtrees(first, last)
    assert [i for level, start in nodes for i in range(start, start + FAN_IN**level)] == list(range(first, last))
    assert all(start % FAN_IN**level == 0 for level, start in nodes)


@given(st.integers(1, 90), st.lists(st.integers(0, 90), max_size=6))
def test_the_order_of_merges_does_not_depend_on_where_a_pass_was_cut(count: int, cuts: list[int]) -> None:
    def combine(parts: list[Any]) -> Any:
        return f"({' '.join(parts)})"

    level = [str(i) for i in range(count)]
    while len(level) > 1:
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [combine(group) if len(group) > 1 else group[0] for group in groups]
    tree = MergeTree(combine)
    edges = [0, *sorted(min(cut, count) for cut in cuts), count]
    for first, last in pairwise(edges):
        for at, start in complete_subtrees(first, last):
            part = MergeTree(combine)
            for i in range(start, start + FAN_IN**at):
                part.add(0, str(i))
            tree.add(at, part.finish()[0])
        tree = MergeTree(combine, pickle.loads(pickle.dumps(tree.nodes)))
    assert tree.finish() == level
