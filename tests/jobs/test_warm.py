"""The searches can be compiled before they are used."""

from __future__ import annotations

import pytest

from dsel.errors import OptionError
from dsel.jobs.warm import warm
from dsel.objective.kernels import neighbour_table


def test_a_method_is_compiled() -> None:
    assert warm(["forward"]) == ["forward"]
    assert neighbour_table.insert.is_loaded


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(OptionError, match="forwards"):
        warm(["forwards"])
