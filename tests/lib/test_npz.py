"""Archives of arrays are read in several threads."""

import ast
import io
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dsel._lib.npz import _PARSER_IS_SHARED, open_npz


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
        with open_npz(io.BytesIO(archive.getvalue())) as arrays:
            return float(arrays["a"].sum() + arrays["b"].sum())

    monkeypatch.setattr(ast, "literal_eval", slow_parse)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, range(8))) == [5.0] * 8
    assert most == [1]
