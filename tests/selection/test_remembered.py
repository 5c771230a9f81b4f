"""Values of a custom criterion that a file keeps: which are used again, and which are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.errors import OptionError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 8))
Y = X[:, 2] - X[:, 5] + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=40)


class Counted:
    """A criterion f(S, data) that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, S: tuple[int, ...], data: Any) -> float:
        self.calls.append(tuple(S))
        if 7 in S:
            return np.inf
        A = data.columns(S)
        return float(np.square(data.Y - A @ np.linalg.lstsq(A, data.Y, rcond=None)[0]).sum())


def run(criterion: Any, **asked: Any) -> dsel.Selection:
    return dsel.select(asked.pop("X", X), Y, criterion=criterion, progress=False, **{"method": "forward", **asked})


def test_runs_with_other_options_evaluate_only_new_subsets(tmp_path: Path) -> None:
    f = Counted()
    remembered = dsel.Remembered(f, tmp_path / "values.jsonl", name="squares")
    run(remembered, k=2)
    first = set(f.calls)
    assert {len(S) for S in first} == {1, 2}
    run(remembered, k=2, seed=3)
    assert set(f.calls) == first
    three = run(remembered, k=3)
    assert {len(S) for S in set(f.calls) - first} == {3}
    run(remembered, k=3, method="exchange")
    run(remembered, k=3, method="poss", iterations=100)
    assert len(f.calls) == len(set(f.calls))  # +inf is remembered, too
    assert three.indices == run(Counted(), k=3).indices


def test_another_process_reads_them_but_not_what_a_kill_left_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    run(dsel.Remembered(Counted(), path, name="squares"), k=2)
    text = path.read_text()
    copy = tmp_path / "copy.jsonl"  # as a process that has not read the file
    lines = [line for line in text.split("\n") if line]
    copy.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:20])
    f = Counted()
    found = run(dsel.Remembered(f, copy, name="squares"), k=2)
    assert len(f.calls) == 1
    assert found.indices == run(Counted(), k=2).indices
    again = Counted()
    run(dsel.Remembered(again, copy, name="squares"), k=2)
    assert not again.calls


def test_other_data_and_other_names_have_their_own_values(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    first, f, g = Counted(), Counted(), Counted()
    run(dsel.Remembered(first, path, name="squares"), k=1)
    run(dsel.Remembered(f, path, name="squares"), k=1, X=X + 1e-9)
    run(dsel.Remembered(g, path, name="changed"), k=1)
    assert sorted(first.calls) == sorted(f.calls) == sorted(g.calls)
    path.unlink()
    run(dsel.Remembered(first, path, name="squares"), k=1)
    assert len(first.calls) == 2 * len(f.calls)


def test_what_cannot_be_remembered_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no name"):
        dsel.Remembered(lambda S: 0.0, tmp_path / "values.jsonl")
    for path in (tmp_path / "none" / "values.jsonl", "s3://bucket/values.jsonl"):
        with pytest.raises(OptionError, match="not in a folder on disk"):
            dsel.Remembered(Counted(), path, name="squares")


def test_values_of_other_targets_or_weights_are_not_used(tmp_path: Path) -> None:
    f, both, w = Counted(), np.column_stack([Y, X[:, 3]]), np.arange(1.0, 41.0)
    remembered = dsel.Remembered(f, tmp_path / "values.jsonl", name="squares")
    asked: list[dict[str, Any]] = [{"targets": [0]}, {"targets": [1]}, {}, {"sample_weight": w}]
    for number, given in enumerate([*asked, *asked]):
        dsel.select(X, both, k=1, method="forward", criterion=remembered, **given)
        assert len(f.calls) == 8 * min(number + 1, 4)
