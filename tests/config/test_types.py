"""Durations are numbers of seconds, or numbers with units."""

from __future__ import annotations

import pytest

from dsel.config.types import parse_duration
from dsel.errors import OptionError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("0.5", 0.5), ("250ms", 0.25), (7, 7)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "ten", "5 weeks", "-3s", "0", "inf", "3s later"])
def test_no_durations(text):
    with pytest.raises(OptionError, match="duration"):
        parse_duration(text)
