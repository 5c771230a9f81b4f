"""The streams of random numbers: the same compiled and on NumPy arrays, and the same on every machine."""

from __future__ import annotations

import numpy as np

from dsel._lib.rng import permutation, stream, uniforms
from dsel._lib.splitmix import GOLDEN, mix, to_unit


def test_a_stream_is_splitmix64_on_numpy_arrays() -> None:
    state = np.uint64(stream(3, 5, 7))
    with np.errstate(over="ignore"):
        words = mix(state + np.arange(6, dtype=np.uint64) * GOLDEN)
    np.testing.assert_array_equal(to_unit(words), uniforms(3, 5, 7, 6))


def test_splitmix64_gives_the_published_numbers() -> None:
    """The first outputs of the generator from state 1234567, as its authors' C code prints them."""
    with np.errstate(over="ignore"):
        words = mix(np.uint64(1234567) + np.arange(1, 4, dtype=np.uint64) * GOLDEN)
    assert words.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_permutation_has_every_number_once() -> None:
    assert sorted(permutation(1, 2, 3, 50)) == list(range(50))
