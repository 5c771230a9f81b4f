"""The default method adapts to wide data in memory, and a long search is announced with a method that takes seconds."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import dsel
from dsel.errors import CapacityError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 300))
Y = X[:, [10, 50, 200]] @ np.array([2.0, -2.0, 1.5]) + 0.3 * RNG.standard_normal(60)


def test_wide_data_in_memory_take_no_gram_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = dsel.select(X, Y, k=3)
    monkeypatch.setattr("dsel.planning.representations.representation.WIDE", 300)
    wide = dsel.select(X, Y, k=3)
    assert sorted(wide.indices) == sorted(dense.indices) == [10, 50, 200]
    assert wide.r2 == pytest.approx(dense.r2, abs=1e-10)
    assert wide.counts["representation"] == "column-blocks"
    assert "representation" not in dense.counts
    asked = dsel.select(X, Y, k=3, iterations=2000)
    assert "representation" not in asked.counts


def test_a_long_search_is_announced_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dsel.selection.pipeline.LONG_SECONDS", 1e-9)
    with caplog.at_level(logging.WARNING, "dsel"):
        dsel.select(X, Y, k=3)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("poss is expected to search for about ")
    assert line.endswith("method=splicing takes seconds, and seconds=10 limits the time")


@pytest.mark.parametrize(
    ("method", "y"),
    [
        ("rfe", Y),
        ("backward", Y),
        ("exhaustive", Y),
        ("exchange", Y),
        ("foba", Y),
        ("arp", None),
        ("leverage", None),
        ("approx-svd", None),
    ],
)
def test_a_long_search_without_a_limit_of_time_is_announced_too(
    method: str, y: np.ndarray | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dsel.selection.pipeline.LONG_SECONDS", 1e-9)
    with caplog.at_level(logging.WARNING, "dsel"):
        dsel.select(X, y, k=3, method=method)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"{method} is expected to search for about ")
    assert line.endswith("method=splicing takes seconds")


def test_a_short_search_or_one_with_a_limit_is_not_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dsel"):
        dsel.select(X, Y, k=3)
        monkeypatch.setattr("dsel.selection.pipeline.LONG_SECONDS", 1e-9)
        dsel.select(X, Y, k=3, seconds=0.2)
    assert not caplog.records


def test_folds_that_do_not_fit_name_a_criterion() -> None:
    wide = np.broadcast_to(RNG.standard_normal((200, 1)), (200, 200_000))
    with pytest.raises(CapacityError, match='choose_k="ebic"'):
        dsel.select(wide, RNG.standard_normal(200), k="auto", method="forward")
