"""The portfolio: never below the methods it runs, reproducible without a time limit, and with a certificate."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dsel
import dsel.planning.plan as planning
from dsel.objective.dense import DenseObjective
from dsel.planning.representations.choice import candidates
from dsel.planning.representations.representation import ProblemShape, Representation, Resources
from dsel.search.method import SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.portfolio import method as portfolio
from dsel.search.portfolio.method import METHOD
from dsel.search.portfolio.streams import ROUNDS, STREAMS
from tests.search.shuffled_executor import ShuffledExecutor


def data(seed: int = 0, n: int = 30, targets: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, n)) + rng.normal(size=(60, 1))
    return X, X[:, :6] @ rng.normal(size=(6, targets)) + rng.normal(size=(60, targets))


def task(seed: int = 0, k: int = 4, **options: Any) -> SearchTask:
    X, Y = data(seed)
    objective = DenseObjective(X.T @ X, X.T @ Y, float(np.vdot(Y, Y)))
    return SearchTask(objective, k, seed, METHOD.options(**options))


def answers(found: SearchOutcome) -> tuple[Any, ...]:
    return found.front, found.trace, found.ended, found.counts


@pytest.mark.parametrize("targets", [1, 3, 0])
def test_no_method_finds_a_better_subset(targets: int) -> None:
    X, Y = data(1, targets=max(targets, 1))
    args = (X, Y) if targets else (X,)
    found = dsel.select(*args, k=5, method="portfolio")
    for method in ("forward", "omp", "foba", "backward", "exchange", "poss", "branch-and-bound"):
        assert found.r2 >= dsel.select(*args, k=5, method=method).r2 - 1e-12


def test_its_certificate_holds_and_is_tight_on_a_small_problem() -> None:
    X, Y = data(2, n=14)
    found = dsel.select(X, Y, k=3, method="portfolio", preprocess="none")
    least = min(
        float(np.square(Y - X[:, S] @ np.linalg.lstsq(X[:, S], Y, rcond=None)[0]).sum())
        for S in map(list, combinations(range(14), 3))
    )
    certificate = found.certificate[0]
    assert found.ended == "proven"
    assert certificate["proven"]
    assert certificate["size"] == 3
    assert certificate["bound"] <= least * (1 + 1e-9)
    assert found.error == pytest.approx(least)


def test_a_bound_comes_with_an_answer_that_could_not_be_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "_PROOF_NODES", 50)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 80))
    y = X @ rng.normal(size=80)
    found = dsel.select(X, y, k=6, method="portfolio")
    assert found.ended == "complete"
    certificate = found.certificate[0]
    assert 0 < certificate["bound"] < found.error
    assert certificate["value"] == pytest.approx(found.error)
    assert dsel.select(X, y, k=6, method="portfolio", certify=False).certificate == ()


def test_without_a_time_limit_the_order_of_results_does_not_matter() -> None:
    serial = METHOD.run(task(certify=False))
    shuffled = METHOD.run(replace(task(certify=False), executor=ShuffledExecutor))
    assert serial.counts["steps"] == ROUNDS * len(STREAMS)
    assert answers(serial)[:3] == answers(shuffled)[:3]


@pytest.mark.parametrize("cut", [1, 5, 9])
def test_an_interrupted_run_continues_with_the_same_result(cut: int) -> None:
    whole = METHOD.run(task(certify=False))
    states: list[Any] = []

    def stop(search: Any) -> None:
        states.append(json.loads(json.dumps(search.state())))
        if len(states) > cut:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        METHOD.run(replace(task(certify=False), on_slice=stop))
    again = METHOD.run(replace(task(certify=False), state=states[-1]))
    assert (again.front, again.trace) == (whole.front, whole.trace)


@pytest.mark.parametrize("seconds", [0.05, 0.6])
def test_the_time_limit_holds_and_the_time_is_used(seconds: float) -> None:
    whole = METHOD.run(task(certify=False))  # compiles everything that the next call needs
    began, worked = time.monotonic(), time.process_time()
    found = METHOD.run(task(seconds=seconds, certify=False))
    assert found.ended == "seconds"
    assert time.monotonic() - began >= 0.9 * seconds
    assert time.process_time() - worked < seconds + 1.5  # however busy the machine is
    assert found.best(4).value <= whole.best(4).value * 1.05


def test_on_wide_data_it_starts_from_forward_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data(3, n=90)
    greedy = dsel.select(X, Y, k=5, method="forward")
    monkeypatch.setattr(planning, "choose", _column_blocks)
    found = dsel.select(X, Y, k=5, method="portfolio", seconds=0.1)
    assert found.r2 >= greedy.r2 - 1e-12
    assert any("no time for a proof" in note for note in found.notes)


def test_on_wide_data_with_one_target_and_a_penalty_it_proves_in_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data(3, n=90)
    y = Y[:, :1]
    best = dsel.select(X, y, k=2, method="branch-and-bound", lam=20.0)
    monkeypatch.setattr(planning, "choose", _column_blocks)
    found = dsel.select(X, y, k=2, method="portfolio", lam=20.0, seconds=4.0)
    for proof in found.certificate:  # on a busy machine there may be none
        assert proof["method"].startswith("wide-tree")
        assert proof["bound"] <= best.error * (1.0 + 1e-9) <= proof["value"] * (1.0 + 2e-9)
    assert found.certificate or found.notes


def _column_blocks(problem: ProblemShape, available: Resources) -> Representation:
    found = candidates(problem, replace(available, client_memory=1 << 60))
    return next(c for c in found if c.name == "column-blocks")


def test_included_columns_and_penalties_are_respected() -> None:
    X, Y = data(4)
    found = dsel.select(X, Y, k=4, method="portfolio", include=[7], exclude=[0, 1], lam=2.0)
    exact = dsel.select(X, Y, k=4, method="branch-and-bound", include=[7], exclude=[0, 1], lam=2.0)
    assert set(found.indices) == set(exact.indices)
    assert found.certificate[0]["proven"]


def test_the_front_is_saved_with_the_certificate(tmp_path: Any) -> None:
    X, Y = data(5)
    found = dsel.select(X, Y, k=4, method="portfolio")
    found.save(tmp_path / "answer")
    assert dsel.open_selection(tmp_path / "answer").certificate == found.certificate
    assert [row.size for row in found.front][:5] == [0, 1, 2, 3, 4]
