"""A Selection as text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.selection.render import describe_changes, render


def frame(labels: list[str]) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(0).normal(size=(80, len(labels))), columns=labels)


def test_labels_are_printed_as_they_are() -> None:
    X = frame(["temp [C]", "a:apple:b", "[bold]x[/bold]", "[/]"])
    text = render(dsel.select(X, X.to_numpy() @ [4, 3, 2, 1], k=4, method="forward"))
    assert "Chosen, in order of gain: temp [C], a:apple:b, [bold]x[/bold], [/]" in text
    assert "\x1b" not in text


def test_lines_are_as_wide_as_the_terminal_and_no_column_is_lost() -> None:
    X = frame([f"a_long_label_of_column_{j}" for j in range(12)])
    selection = dsel.select(X, X.to_numpy() @ np.arange(12.0, 0.0, -1.0), k=10, method="forward")
    for width in (60, 80, 200):
        lines = render(selection, width).splitlines()
        assert max(map(len, lines)) <= width
        for label in selection.labels:
            assert any(label in line for line in lines)


def test_what_proofs_of_all_sizes_leave_open_is_said_once() -> None:
    X = frame(list("abcdefgh"))
    y = X.to_numpy() @ np.arange(8.0) + np.random.default_rng(1).normal(size=80)
    X["copy"] = X.h + 1e-6 * X.a
    text = render(dsel.certify(dsel.select(X, y, k=4), X, y, sizes="all"))
    assert text.count("The proof does not cover subsets with") == 1
    assert "\n  Sizes 1, 2, 3, 4: The proof does not cover subsets with 1 column that another one represents" in text
    assert text.count("nodes of one search for all sizes, ") == 4  # that is all the work, not one fourth of it
    del X["copy"]
    X["sum"] = X.g + X.h + 1e-6 * X.a
    text = render(dsel.certify(dsel.select(X, y, k=4), X, y, sizes="all"))
    assert text.count("These columns are nearly dependent") == 1
    assert "\n  Sizes 3, 4: These columns are nearly dependent: g, h, sum. A subset" in text


def test_why_a_search_ended_is_in_words() -> None:
    X = frame(list("abc"))
    y = X.a + X.b.to_numpy() * np.random.default_rng(1).normal(size=80)
    for method, why in (
        ("branch-and-bound", "its answer is proved"), ("poss", "it made all that were allowed"),
        ("astar", "its bounds exclude better subsets, up to gamma and epsilon"), ("forward", "it ran to its end"),
    ):  # fmt: skip
        assert f": {why}; " in render(dsel.select(X, y, k=2, method=method), details=True)


def test_a_row_that_is_too_wide_says_what_changes() -> None:
    X = frame([f"a_long_label_of_column_{j}" for j in range(12)])
    selection = dsel.select(X, X.to_numpy() @ np.arange(12.0, 0.0, -1.0), k=10, method="forward")
    text = render(selection, 80)
    assert "columns, compared with the row above" in text
    assert "+a_long_label_of_column_9 <-" in text
    assert "a_long_label_of_column_0, a_long_label_of_column_2" in render(selection, 1000)


def test_a_notebook_shows_what_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: shown.append(parts))
    X = np.random.default_rng(0).normal(size=(80, 4))
    text = render(dsel.select(X, X[:, 1], k=1, method="forward"))
    assert text.startswith("1 of 4 columns")
    assert not shown


def test_columns_of_groups_are_printed_where_a_group_has_several() -> None:
    X = frame(list("abcd"))
    for groups, said in ([["a", "b"], ["c", "d"]], True), ([["a", "b"], ["c"], ["d"]], False):
        text = render(dsel.select(X, X.c + X.d, k=1 + (not said), groups=groups))
        assert ("Their columns: " in text) == said


def test_changes_count_one_row_and_say_what_a_negative_share_means() -> None:
    nothing = dict.fromkeys(("previous_error", "bound", "distance", "comparison", "drift"))
    changes = {"run": "r", "new_rows": 1, "changed": False, "on_new_rows": {"r2": -0.5}, **nothing}
    first, last = describe_changes(changes)
    assert first == "Unchanged since run r, 1 new row"
    assert last.endswith("coefficients explain -50.0000%, less than no columns do")
