"""choose_chunks: at most 40 MB and 1/16 of a worker, full rows if 512 of them fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsel.data.schema import TARGET_BYTES, bounds, choose_chunks
from dsel.errors import OptionError

GB = 1 << 30
SIZES = {
    "shape": st.tuples(st.integers(1, 10**9), st.integers(1, 10**7)),
    "itemsize": st.sampled_from([1, 2, 4, 8]),
    "worker_memory": st.integers(10**6, 10**12),
}


@given(**SIZES)
def test_a_chunk_is_within_the_array_and_the_limits(shape: tuple[int, int], itemsize: int, worker_memory: int) -> None:
    rows, columns = choose_chunks(shape, itemsize, worker_memory=worker_memory)
    assert 1 <= rows <= shape[0]
    assert 1 <= columns <= shape[1]
    assert rows * columns * itemsize <= min(TARGET_BYTES, worker_memory // 16)


@given(**SIZES)
def test_rows_are_full_whenever_512_of_them_or_all_fit(
    shape: tuple[int, int], itemsize: int, worker_memory: int
) -> None:
    rows, columns = choose_chunks(shape, itemsize, worker_memory=worker_memory)
    limit = min(TARGET_BYTES, worker_memory // 16)
    if min(512, shape[0]) * shape[1] * itemsize <= limit:
        assert columns == shape[1]
        assert rows >= min(shape[0], 256)  # equal chunks that may have 512 rows have more than half of that
    else:
        assert columns < shape[1] or rows < 512


@given(**SIZES)
def test_the_last_chunk_is_not_much_smaller(shape: tuple[int, int], itemsize: int, worker_memory: int) -> None:
    """The chunks are as equal as the smallest number of chunks permits."""
    for size, step in zip(shape, choose_chunks(shape, itemsize, worker_memory=worker_memory), strict=True):
        pieces = -(-size // step)
        assert (step - 1) * pieces < size


@pytest.mark.parametrize(
    ("shape", "itemsize", "expected"),
    [
        ((1_000_000, 1000), 4, (10_000, 1000)),  # 40 MB of full rows
        ((1_000_000, 1000), 8, (5000, 1000)),
        ((100, 10), 8, (100, 10)),  # small: one chunk
        ((2000, 1_000_000), 4, (2000, 5000)),  # wide: all rows, divided by columns
        ((1_000_000, 50_000), 4, (512, 16_667)),  # tall and wide: 512 rows, equal chunks
    ],
)
def test_known_shapes(shape: tuple[int, int], itemsize: int, expected: tuple[int, int]) -> None:
    assert choose_chunks(shape, itemsize, worker_memory=4 * GB) == expected


def test_a_small_worker_gets_smaller_chunks() -> None:
    rows, columns = choose_chunks((1_000_000, 1000), 4, worker_memory=160_000_000)
    assert (rows, columns) == (2500, 1000)


@pytest.mark.parametrize(("shape", "memory"), [((0, 5), GB), ((5, 0), GB), ((5, 5), 0)])
def test_nothing_to_chunk_is_refused_with_the_numbers(shape: tuple[int, int], memory: int) -> None:
    with pytest.raises(OptionError, match=f"{shape[0]} x {shape[1]}"):
        choose_chunks(shape, 4, worker_memory=memory)


def test_bounds_end_with_the_size() -> None:
    assert bounds(10, 4) == [0, 4, 8, 10]
    assert bounds(8, 4) == [0, 4, 8]
