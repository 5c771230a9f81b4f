"""Archives of arrays are read in several threads."""

import ast
import io
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dsel._lib.damage import DamagedFileError
from dsel._lib.npz import _PARSER_IS_SHARED, pack_npz, read_npz


@pytest.mark.skipif(not _PARSER_IS_SHARED, reason="this Python parses in several threads without error")
def test_one_thread_at_a_time_parses_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = io.BytesIO()
    np.savez(archive, a=np.arange(3), b=np.eye(2))
    parse, parsing, most = ast.literal_eval, [], [0]

    def slow_parse(text: str) -> Any:
        parsing.append(text)
        most[0] = max(most[0], len(parsing))
        time.sleep(0.005)
        parsing.remove(text)
        return parse(text)

    def read(_: int) -> float:
        arrays = read_npz(io.BytesIO(archive.getvalue()))
        return float(arrays["a"].sum() + arrays["b"].sum())

    monkeypatch.setattr(ast, "literal_eval", slow_parse)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, range(8))) == [5.0] * 8
    assert most == [1]


def test_what_is_packed_is_read() -> None:
    arrays = {"a": np.arange(3), "b": np.eye(2, dtype=np.float32), "c": np.array(2.5)}
    for compressed in (False, True):
        found = read_npz(io.BytesIO(pack_npz(arrays, compressed=compressed)))
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype


def test_no_changed_bit_of_an_archive_changes_an_array() -> None:
    """Also one in the shape, which would have NumPy read fewer numbers and skip the checksum."""
    whole, expected = pack_npz({"a": np.arange(9.0)}), np.arange(9.0)
    assert b"(9,)" in whole
    noticed = 0
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            try:
                found = read_npz(io.BytesIO(bytes(damaged)), ("a",))
            except DamagedFileError:
                noticed += 1
            else:
                np.testing.assert_array_equal(found["a"], expected)
    assert noticed > 8 * expected.nbytes
