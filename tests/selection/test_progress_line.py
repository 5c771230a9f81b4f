"""A line says what a selection does, if a person may watch."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import dsel
from dsel._lib.kernel_loading import on_compilation
from dsel.selection import progress_line
from dsel.selection.context import RunContext
from dsel.selection.progress_line import showing_progress

X = np.random.default_rng(0).normal(size=(60, 8))


def test_it_shows_the_search_and_does_not_change_the_answer(capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress_line, "_PATIENCE", 0.0)
    shown = dsel.select(X, X[:, 2], k=2, progress=True)
    assert "search" in capsys.readouterr().err
    assert shown.indices == dsel.select(X, X[:, 2], k=2, progress=False).indices
    assert capsys.readouterr().err == ""


def test_a_short_selection_shows_nothing(capsys) -> None:
    dsel.select(X, X[:, 2], k=2, method="forward")
    dsel.select(X, X[:, 2], k=2, method="forward", progress=True)
    assert capsys.readouterr().err == ""


def test_compilation_is_shown_at_once(capsys) -> None:
    with showing_progress(RunContext(), True):
        listener = on_compilation.get()
        assert listener is not None
        listener("compiling the search for this machine")
    assert "compiling the search for this machine" in capsys.readouterr().err
    assert on_compilation.get() is None


@pytest.mark.parametrize("terminal", [False, True])
def test_by_default_it_is_for_terminals(terminal: bool, monkeypatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with showing_progress(RunContext(), None) as (_, line):
        assert (line is not None) == terminal
