"""Proofs and lists of one selection, one after the other: what is saved and printed is true, and no part contradicts
another one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.config.job import JobFile
from dsel.errors import CapacityError
from dsel.jobs import size_proofs
from dsel.jobs.certify import describe
from dsel.jobs.runner import run_job
from dsel.search.exact.certificate import NO_TIME
from dsel.selection.result import Selection

RNG = np.random.default_rng(33)
X = RNG.standard_normal((60, 9)) @ (np.eye(9) + RNG.standard_normal((9, 9)) / 2)
Y = X[:, :5] @ RNG.standard_normal(5) + 2 * RNG.standard_normal(60)  # forward selection misses the best subset
COPIES = np.column_stack([X, X[:, 1] + 1e-3 * RNG.standard_normal(60)])
LOSS = {"loss": "logistic", "lam": 0.5}

Step = Callable[..., Selection]


def listed(selection: Selection, *data: Any, **how: Any) -> Selection:
    return selection.with_alternatives(dsel.alternatives(selection, *data, within=0.05, **how))


STEPS: dict[str, Step] = {
    "no time": lambda *given: dsel.certify(*given, seconds=1e-9),
    "one node": lambda *given: dsel.certify(*given, nodes=1),
    "whole": dsel.certify,
    "all sizes": lambda *given: dsel.certify(*given, sizes="all"),
    "limit": lambda *given: dsel.certify(*given, largest_coefficient=1.0),
    "list": listed,
    "one of the list": lambda *given: listed(*given, limit=1),
    "no time for the list": lambda *given: listed(*given, seconds=1e-9),
}


def after(step: Step, selection: Selection, *data: Any, **how: Any) -> Selection:
    """The selection after a step; as it is if there was no time for a list."""
    try:
        return step(selection, *data, **how)
    except CapacityError:
        return selection


def least_errors(columns: np.ndarray, y: np.ndarray, how: dict[str, Any]) -> list[float]:
    """The least error of each size up to 2, by trying all subsets of columns that none represents."""
    fixed = (
        [
            dsel.select(columns, y, k=size, include=S, method="forward", **how).error
            for S in combinations(range(9), size)
        ]
        for size in (1, 2)
    )
    return [np.inf, *map(min, fixed)]


def claims(row: dict[str, Any]) -> list[tuple[float, float]]:
    """The bounds of a certificate, and the largest coefficients that each is about."""
    every = [(row["bound"], 0.0, row["largest_coefficient"]), *row["beyond"]]
    return [(bound, largest or np.inf) for bound, _, largest in every]


def require_truth(found: Selection, least: list[float]) -> None:
    printed = str(found).splitlines()
    lists = {} if found.alternatives is None else found.alternatives.by_size
    for row in found.certificate:
        size, optimal, slack = row["size"], row["status"].startswith("optimal"), 1e-6 * row["total"]
        assert row["value"] >= least[size] - slack
        assert not optimal or row["largest_coefficient"] or row["value"] == pytest.approx(least[size], abs=slack)
        assert all(bound <= least[size] + slack for bound, limit in claims(row) if limit == np.inf)
        assert (row["method"] == NO_TIME) <= (row["bound"] == 0.0)
        (line,) = (line for line in printed if line.startswith(f"Certificate, {size} "))
        assert ("proved optimal" in line) == ("proved optimal" in describe(row, found)) == optimal
        if size in lists and row["largest_coefficient"] == lists[size].largest_coefficient:
            known = lists[size].best_error == pytest.approx(row["value"], abs=slack)
            assert lists[size].proven == optimal or not (optimal or known)
        assert not (row["proven"] and any(note.startswith(f"the proof for {size} ") for note in found.notes))


@pytest.mark.parametrize(
    ("columns", "y", "how"),
    [(X, Y, {}), (COPIES, Y, {}), (X, Y > 0, LOSS), (COPIES, Y > 0, LOSS)],
    ids=["squared error", "near-copies", "loss", "loss and near-copies"],
)
def test_what_two_proofs_say_together_is_true(
    columns: np.ndarray, y: np.ndarray, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(size_proofs, "_LEAST_SECONDS", 0.0)
    least = least_errors(columns, y, how)
    selection = dsel.select(columns, y, k=2, method="forward", **how)
    steps = [STEPS[name] for name in STEPS if not how or name not in ("all sizes", "one of the list")]
    for found in [selection, *(after(step, selection, columns, y) for step in steps)]:
        require_truth(found, least)
        for step in steps:
            last = after(step, found, columns, y)
            require_truth(last, least)
            rows = {row["size"]: row for row in last.certificate}
            for row in found.certificate:
                for bound, limit in claims(row):  # nothing is lost
                    kept = [at for at, reach in claims(rows[row["size"]]) if reach >= limit]
                    assert max(kept, default=0.0) >= bound - 1e-6 * row["total"]
    last.save(tmp_path)
    assert str(dsel.open_selection(tmp_path)) == str(last)


@pytest.mark.parametrize("sizes", ["chosen", "all"])
@pytest.mark.parametrize(
    ("y", "how"),
    [(Y, {}), (Y, {"groups": [[0, 1], [2, 3], [4, 5], [6, 7, 8]]}), (Y > 0, LOSS), (Y > 0, {"loss": "logistic"})],
    ids=["squared error", "groups", "loss", "loss without a penalty"],
)
def test_a_list_leaves_a_finished_proof_as_it_is(sizes: str, y: np.ndarray, how: dict[str, Any]) -> None:
    proved = dsel.certify(dsel.select(X, y, k=2, method="forward", **how), X, y, sizes=sizes)
    assert {row["status"] for row in proved.certificate} == {"optimal"}
    for asked in ({}, {"sizes": "all"}, {"seconds": 0.001}):
        rows = {row["size"]: row for row in after(listed, proved, X, y, **asked).certificate}
        for row in proved.certificate:
            assert {**rows[row["size"]], "better": False} == {**row, "better": False}


NIGHTS: list[dict[str, Any]] = [
    {"certify": {"nodes": 2}},
    {"certify": {"time": 1e-9, "sizes": "all"}, "alternatives": {"within": "5%", "limit": 1}},
    {"certify": {"nodes": 4, "sizes": "all"}, "alternatives": {"nbest": 3, "time": 1e-9}},
]


@pytest.mark.usefixtures("no_workers")
@pytest.mark.parametrize(("target", "how", "first"), [(Y, {}, 1), (Y > 0, LOSS, 2)], ids=["squared error", "loss"])
def test_what_proofs_say_of_rows_that_were_appended_is_true(
    target: np.ndarray, how: dict[str, Any], first: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(size_proofs, "_LEAST_SECONDS", 0.0)
    store, last = tmp_path / "data.zarr", 0
    for rows, asked in zip((30, 36, 60), (*NIGHTS[first:], *NIGHTS[:first]), strict=True):
        np.save(tmp_path / "x.npy", X[last:rows])
        np.save(tmp_path / "y.npy", target[last:rows, None].astype(float))
        (dsel.append if last else dsel.ingest)(tmp_path / "x.npy", store, y=tmp_path / "y.npy")
        out = {"folder": str(tmp_path / "runs")}
        job = {"store": str(store), "out": out, "k": 2, "method": "forward", **how, **asked}
        found, last = run_job(JobFile.model_validate(job)), rows
        require_truth(found, least_errors(X[:rows], target[:rows], how))
        most = asked["certify"].get("nodes", 2**62)
        assert "alternatives" in asked or sum(row["nodes"] for row in found.certificate) <= most
