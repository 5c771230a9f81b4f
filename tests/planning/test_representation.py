"""Which representation is chosen follows from the shape and the memory, with the reason in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsel.errors import CapacityError
from dsel.planning.representations.choice import candidates, choose, methods_without_gram
from dsel.planning.representations.column_blocks import InColumnBlocks
from dsel.planning.representations.reduced import EigenReduced
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.search.method import Requirements

GIB = 1 << 30


def chosen(m: int, n: int, N: int, chunk: tuple[int, int], worker: int, client: int = 16 * GIB) -> Representation:
    return choose(ProblemShape(m, n, N, 4, 20, chunk, Requirements(table_slots=43)), Resources(2, worker, client))


def test_tall_data_have_a_gram_matrix() -> None:
    found = chosen(1_000_000, 1000, 1, (10_000, 1000), GIB)
    assert (found.name, found.passes, found.bytes_read) == ("gram", 1, 4_000_000_000)


@pytest.mark.parametrize(("worker", "kept", "bytes_read"), [(6 * GIB, True, 8 * 10**9), (2 * GIB, False, 32 * 10**9)])
def test_wide_data_are_cut_into_column_blocks_that_workers_keep_where_they_fit(
    worker: int, kept: bool, bytes_read: int
) -> None:
    found = chosen(2000, 1_000_000, 1, (2000, 5000), worker)
    assert isinstance(found, InColumnBlocks)
    assert (found.name, found.exact, found.keeps_blocks) == ("column-blocks", True, kept)
    assert found.worker_bytes <= worker
    assert found.bytes_read == bytes_read
    assert "1000000 x 1000000" in found.reason


def test_wide_data_for_themselves_are_reduced_by_their_rows() -> None:
    found = chosen(300, 100_000, 0, (300, 30_000), 2 * GIB)
    assert isinstance(found, EigenReduced)
    assert (found.name, found.exact, found.rank) == ("row-gram", True, 300)


def test_data_huge_in_both_are_sketched() -> None:
    found = chosen(100_000, 1_000_000, 0, (500, 20_000), 4 * GIB)
    assert isinstance(found, EigenReduced)
    assert (found.name, found.exact, found.rank, found.passes) == ("sketch", False, 100, 9)


def test_what_fits_nothing_is_refused_with_the_numbers_of_each() -> None:
    words = r"7\.28 TiB a partial Gram.* As column-blocks: A worker needs .* As sketch:"
    with pytest.raises(CapacityError, match=words):
        chosen(100_000, 1_000_000, 0, (500, 20_000), GIB // 8)


def test_a_method_that_needs_few_rows_of_a_large_gram_matrix_does_without_it() -> None:
    needs = Requirements(few_columns=True)
    few = ProblemShape(1000, 20_000, 1, 8, 10, (1000, 20_000), needs, in_memory=True)
    resources = Resources(1, None, 64 * GIB)
    assert choose(few, resources).name == "column-blocks"
    assert "few rows of the Gram matrix (20000 x 20000)" in choose(few, resources).reason
    for other in (
        replace(few, needs=Requirements()), replace(few, n=1000, chunk=(1000, 1000)), replace(few, N=0),
        replace(few, needs=replace(needs, gram_sums=5)), replace(few, k=500),
        replace(few, needs=replace(needs, whole_gram=True)),
    ):  # fmt: skip
        assert choose(other, resources).name == "gram"


def test_a_search_in_memory_with_a_short_limit_does_without_a_large_gram_matrix() -> None:
    short = ProblemShape(1000, 20_000, 1, 8, 10, (1000, 20_000), Requirements(seconds=5.0), in_memory=True)
    resources = Resources(1, None, 64 * GIB)
    assert choose(short, resources).name == "column-blocks"
    for other in (
        replace(short, needs=Requirements(seconds=60.0)), replace(short, in_memory=False), replace(short, n=5000),
    ):  # fmt: skip
        assert choose(other, resources).name == "gram"


def test_a_method_that_needs_the_gram_matrix_gets_nothing_else() -> None:
    problem = ProblemShape(2000, 1_000_000, 1, 4, 20, (2000, 5000), Requirements(whole_gram=True))
    assert [c.name for c in candidates(problem, Resources(2, GIB, 16 * GIB)) if not c.obstacle] == []


def test_the_methods_that_do_without_the_gram_matrix_are_named() -> None:
    able = methods_without_gram(ProblemShape(2000, 1_000_000, 1, 4, 20, (2000, 5000), Requirements()))
    expected = [
        "astar",
        "exchange",
        "foba",
        "forward",
        "greedy-rls",
        "kfold",
        "omp",
        "portfolio",
        "poss",
        "pposs",
        "pposs-asy",
        "random",
        "splicing",
    ]
    assert sorted(able) == expected
