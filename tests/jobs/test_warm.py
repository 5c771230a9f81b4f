"""The searches can be compiled before they are used."""

from __future__ import annotations

import pytest

from dsel.errors import OptionError
from dsel.jobs.warm import warm
from dsel.objective.kernels import neighbour_table


def test_a_method_is_compiled() -> None:
    assert warm(["forward"]) == ["forward"]
    assert neighbour_table.insert.is_loaded


def test_it_says_which_method_is_compiled_and_logs_no_selection(caplog: pytest.LogCaptureFixture) -> None:
    named: list[str] = []
    with caplog.at_level("INFO", logger="dsel"):
        warm(["forward", "omp"], named.append)
    assert named == ["forward", "omp"]
    assert caplog.messages == []


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(OptionError, match="forwards"):
        warm(["forwards"])
