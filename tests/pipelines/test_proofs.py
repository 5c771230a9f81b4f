"""The comparison of proofs runs with dsel alone, and counts only proofs of the same statement."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipelines.benchmarks.proofs import adapters, environments, run, solving
from pipelines.benchmarks.proofs.problems import Problem, drawn, everything
from pipelines.benchmarks.proofs.report import Cell, summary, table
from pipelines.benchmarks.proofs.solving import Answer, obstacle, penalty_for, squared_error

TINY = Problem("tiny", drawn(20, 0.5), 3, 0.0, 5.0)


def cell(dsel: Answer, **others: Answer) -> Cell:
    return Cell(TINY, {"dsel": dsel, **others}, 100.0)


def proof(seconds: float, value: float = 50.0) -> Answer:
    return Answer("proved", seconds, value=value, bound=value)


@pytest.mark.slow
def test_a_tiny_problem_is_proved_by_dsel_without_and_with_a_bound_on_the_coefficients(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "quick", lambda: iter([TINY]))
    cells = run.run(True, 600.0, solvers=["dsel", "dsel+M"])
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["proved"], report["proved_by_best_peer"]) == (1, 0)
    assert report["worst_time_ratio_to_best_peer"] is None
    assert report["contradictions"] == {}
    X = TINY.data.columns()
    assert X is not None
    y = TINY.data.target(X, 3, 5.0)
    best = min(squared_error(X, y, 0.0, (a, b, c))[0] for a in range(20) for b in range(a) for c in range(b))
    for answer in cells[0].answers.values():
        assert answer.state == "proved"
        assert answer.value == pytest.approx(best)
        assert answer.bound <= best


def test_the_ratio_is_that_to_the_fastest_proof_without_a_bound_on_the_coefficients() -> None:
    cells = [cell(proof(2.0), el0ps=proof(4.0), okridge=proof(8.0), **{"el0ps+M": proof(1.0)})]
    cells.append(cell(proof(1.0), el0ps=Answer("open", 9.0, value=50.0, bound=10.0)))
    found = summary(cells)
    assert found["worst_time_ratio_to_best_peer"] == 0.5
    assert found["worst_time_ratio_with_bound_on_coefficients"] == 2.0
    counts = {"problems": 2, "dsel": 2, "best_peer": 1, "dsel+M": 2, "best_peer+M": 1}
    assert found["groups"] == {"tiny": counts}
    assert found["behind"] == []
    assert [row["peer"] for row in found["behind_with_bound_on_coefficients"]] == ["el0ps+M"]
    text = table(cells, ["dsel", "el0ps", "el0ps+M", "okridge"])
    assert "80.0 % (9)" in text
    assert "0.50" in text


def test_with_a_bound_on_the_coefficients_dsel_is_compared_with_solvers_that_know_it_too() -> None:
    told = {"dsel+M": proof(0.5), "el0ps+M": proof(1.0)}
    found = summary([cell(proof(3.0), **told), cell(Answer("open", 9.0, value=50.0, bound=10.0), **told)])
    assert found["worst_time_ratio_to_best_peer"] is None
    assert found["worst_time_ratio_with_bound_on_coefficients"] == 0.5
    assert (found["proved"], found["groups"]["tiny"]["dsel+M"], found["groups"]["tiny"]["best_peer+M"]) == (1, 2, 2)


def test_times_below_the_resolution_count_as_equal() -> None:
    found = summary([cell(proof(0.03), leaps=proof(0.002)), cell(proof(0.1), leaps=proof(0.002))])
    assert found["worst_time_ratio_to_best_peer"] == 2.0
    assert found["longest_within_resolution"] == 0.03
    assert [row["dsel"] for row in found["behind"]] == [0.1]


def test_the_noise_of_a_problem_is_not_one_of_its_columns() -> None:
    problems = [p for p in everything() if p.data.n == 1000]
    for data in {p.data for p in problems}:
        X = data.columns()
        assert X is not None
        for k in {p.k for p in problems}:
            true = np.linspace(0.0, data.n - 1.0, k + 2).astype(np.int64)[1:-1]
            y = data.target(X, k, 1.0)
            others = np.delete(X, true, axis=1)
            rest = y - X[:, true] @ np.linalg.lstsq(X[:, true], y)[0]
            assert np.abs(others.T @ rest).max() < 0.3 * np.sqrt(1000) * np.linalg.norm(rest)


def test_it_says_where_another_solver_is_ahead() -> None:
    slower = cell(proof(3.0), el0ps=proof(1.5))
    unproved = cell(Answer("open", 60.0, value=50.0, bound=40.0), okridge=proof(5.0))
    found = summary([slower, unproved])
    assert found["worst_time_ratio_to_best_peer"] == 2.0
    assert [(row["dsel"], row["peer"], row["seconds"]) for row in found["behind"]] == [
        (3.0, "el0ps", 1.5),
        (None, "okridge", 5.0),
    ]


def test_a_proof_of_worse_columns_and_a_bound_that_is_too_high_are_contradictions() -> None:
    wrong = cell(proof(1.0, 50.0), el0ps=proof(1.0, 55.0), okridge=Answer("open", 1.0, value=50.0, bound=51.0))
    assert not wrong.proved("el0ps")
    assert summary([wrong])["contradictions"] == {TINY.name: ["el0ps", "okridge"]}


def test_the_penalty_makes_k_columns_the_best_size() -> None:
    values = {0: 100.0, 1: 60.0, 2: 40.0, 3: 30.0, 4: 28.0}
    for k in range(1, 4):
        price = penalty_for(values, k)
        assert price is not None
        assert min(values, key=lambda size: values[size] + price * size) == k
    assert penalty_for({0: 100.0, 1: 90.0, 2: 20.0}, 1) is None  # the second column gains more than the first


def test_solvers_that_cannot_state_a_problem_are_skipped_with_a_reason() -> None:
    plain = {"penalty": 1.0, "lam": 0.0}
    assert obstacle("el0ps", plain, 50) == "needs a ridge penalty or +M"
    assert obstacle("el0ps+M", plain, 50) == obstacle("dsel", plain, 50) == ""
    assert obstacle("l0bnb+M", {**plain, "penalty": None}, 50) == "no penalty gives k columns"
    assert obstacle("leaps", plain, 500) == "too many columns"


def test_a_solver_that_cannot_be_installed_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(command: list[str], **_: object) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="no such\nERROR: no matching distribution\n")

    monkeypatch.setattr(environments.subprocess, "run", fail)
    monkeypatch.setenv(environments.VARIABLE, str(tmp_path))
    found = solving.call("okridge", [tmp_path / "0.json"], 1.0)
    assert found == {tmp_path / "0.json": {"skipped": "ERROR: no matching distribution"}}


def test_the_problems_have_the_grid_and_distinct_names() -> None:
    problems = list(everything())
    assert len({p.name for p in problems}) == len(problems)
    assert sum(p.group.startswith("n=") for p in problems) == 4 * 3 * 2 * 3 * 2 - 1  # one is among the first ones
    X = drawn(400, 0.5).columns()
    assert X is not None
    assert np.corrcoef(X[:, :-1].ravel(), X[:, 1:].ravel())[0, 1] == pytest.approx(0.5, abs=0.02)


def test_a_bound_on_the_penalised_problem_is_one_on_k_columns() -> None:
    values, price = {0: 100.0, 1: 60.0, 2: 40.0, 3: 30.0}, 15.0
    optimum = min(f + price * size for size, f in values.items()) / 2.0
    for k, f in values.items():
        found = adapters.penalised(np.array([1.0, 0.0, 2.0, 0.0]), optimum, True, {"penalty": price, "k": k})
        assert found["bound"] <= f
        assert (found["indices"], found["proved"]) == ([0, 2], k == 2)
    assert adapters.penalised(np.ones(2), optimum, True, {"penalty": price, "k": 2})["bound"] == pytest.approx(40.0)


def test_a_solver_that_hangs_is_ended() -> None:
    assert solving._run(["bash", "-c", "sleep 600 & wait"], 0.3) == "it did not end"
