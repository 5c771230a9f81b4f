"""Forward selection, exchange search and splicing by a criterion: literal versions choose the same, no subset is
evaluated twice, and an interrupted run continues."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.errors import CriterionError, Interrupted, OptionError
from dsel.search.ask_tell import Task, TaskResult
from dsel.search.greedy.by_criterion import BatchSearch, exchange_steps, forward_steps, splicing_steps
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection

Subset = tuple[int, ...]


def problem(n: int = 12) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, n))
    X[:, 1] += 0.8 * X[:, 0]
    return X, X[:, 0] - X[:, 4] + 0.5 * X[:, 7] + 0.5 * rng.normal(size=80)


class Absolute:
    """The mean absolute residual of least squares. It counts how often it is asked about each subset."""

    def __init__(self) -> None:
        self.X, self.y = problem()
        self.calls: Counter[Subset] = Counter()

    def __call__(self, S: Subset) -> float:
        self.calls[S] += 1
        A = np.column_stack([self.X[:, list(S)], np.ones(80)])
        return float(np.abs(self.y - A @ np.linalg.lstsq(A, self.y, rcond=None)[0]).mean())


def literal_forward(f: Any, n: int, k: int) -> list[Subset]:
    S, path = [], []
    for _ in range(k):
        S.append(min((j for j in range(n) if j not in S), key=lambda j: f(tuple(sorted([*S, j])))))
        path.append(tuple(sorted(S)))
    return path


def test_a_note_says_which_methods_also_try_subsets_below_a_budget() -> None:
    X, y = problem()

    def within_budget(S: Subset) -> float:
        return float(S[0]) if len(S) <= 2 else math.inf

    found = {m: dsel.select(X, y, k=4, method=m, criterion=within_budget) for m in ("exchange", "forward")}
    assert not found["exchange"].indices
    why = "exchange tries some subsets of exactly 4 columns, and others may be allowed"
    note = f"the criterion is +inf for every subset that was evaluated: {why}"
    assert any(one.startswith(note) for one in found["exchange"].notes)
    assert found["forward"].criterion == 0.0


@pytest.mark.parametrize("method", ["forward", "splicing"])
def test_a_note_says_which_methods_try_subsets_of_several_columns_where_no_single_one_is_allowed(method: str) -> None:
    X, y = problem()

    def three_at_least(S: Subset) -> float:
        return float(S[0]) if len(S) >= 3 else math.inf

    (note, *_) = dsel.select(X, y, k=4, method=method, criterion=three_at_least).notes
    assert note.startswith("the criterion is +inf for every subset that was evaluated: ")
    assert "poss and exchange from random subsets" in note
    for other in ("poss", "exchange"):
        assert dsel.select(X, y, k=4, method=other, criterion=three_at_least).criterion == 0.0
    assert "poss" not in dsel.select(X, y, k=1, method=method, criterion=three_at_least).notes[0]


def test_notes_on_what_a_criterion_may_choose_and_gets() -> None:
    """Two multiples may be best together, and missing values stay."""
    X, y = problem()
    X[:, 1] = 2.0 * X[:, 0]
    X[3, 4] = np.nan

    def both(S: Subset, data: Any) -> float:
        return np.isnan(data.columns(S)).sum() - float({0, 1} <= {*S})

    found = dsel.select(X, y, k=2, method="poss", criterion=both, missing="mean")
    assert {*found.indices} == {0, 1}
    assert "columns that are multiples of each other to 1e-6 of their norm: x0 and x1" in found.notes
    assert "1 column that depends on the others has coefficient 0: x1" in found.notes
    assert found.to_frame().loc["x1", "coefficient"] == 0.0
    on_means = "missing values became the mean of their column: 1 of 80 in 'x4'; that holds for R2 and coefficients"
    assert any(note.startswith(on_means) for note in found.notes)
    grouped = dsel.select(X, y, k=1, method="forward", criterion=both, missing="mean", groups=[[5, 6]])
    assert not any("does not matter" in note for note in grouped.notes)


def test_forward_inserts_the_column_of_least_criterion() -> None:
    criterion = Absolute()
    path = literal_forward(Absolute(), 12, 4)
    found = dsel.select(criterion.X, criterion.y, k=4, method="forward", criterion=criterion)
    assert [tuple(sorted(row.indices)) for row in found.front if row.size] == path
    assert found.criterion == Absolute()(path[-1])
    assert max(criterion.calls.values()) == 1
    assert found.counts["evaluated"] == len(criterion.calls) == 12 + 11 + 10 + 9


def test_exchange_ends_where_no_single_replacement_helps() -> None:
    criterion = Absolute()
    found = dsel.select(criterion.X, criterion.y, k=3, method="exchange", criterion=criterion, restarts=4)
    S = tuple(sorted(found.indices))
    again = Absolute()
    neighbours = [tuple(sorted({*S} - {i} | {j})) for i in S for j in range(12) if j not in S]
    assert len(S) == 3
    assert min(map(again, neighbours)) >= found.criterion
    assert max(criterion.calls.values()) == 1
    assert found.counts["recalled"] > 0


def test_splicing_ends_where_no_exchange_by_importance_helps() -> None:
    criterion, again = Absolute(), Absolute()
    found = dsel.select(criterion.X, criterion.y, k=4, method="splicing", criterion=criterion)
    S = {*found.indices}
    least = sorted(S, key=lambda i: again(tuple(sorted(S - {i}))))
    most = sorted({*range(12)} - S, key=lambda j: again(tuple(sorted(S | {j}))))
    assert min(again(tuple(sorted(S - {*least[:c]} | {*most[:c]}))) for c in range(1, 5)) >= found.criterion
    assert found.criterion <= again(literal_forward(again, 12, 4)[-1])
    assert max(criterion.calls.values()) == 1


def test_included_and_excluded_columns() -> None:
    criterion = Absolute()
    found = dsel.select(
        criterion.X, criterion.y, k=3, method="forward", criterion=criterion, include=[9], exclude=[0, 4]
    )  # fmt: skip
    assert 9 in found.indices
    assert not {0, 4} & {*found.indices}
    assert all(9 in S for S in criterion.calls)


@pytest.mark.parametrize("method", ["forward", "exchange", "splicing", "poss", "pposs", "pposs-asy"])
def test_the_included_columns_alone_are_an_answer(method: str) -> None:
    criterion = Absolute()
    options: dict[str, Any] = {"iterations": 60} if "poss" in method else {}

    def within_budget(S: Subset) -> float:
        return criterion(S) if len(S) <= 2 else math.inf

    options |= {"criterion": within_budget, "include": [0, 1]}
    found = dsel.select(criterion.X, criterion.y, k=3, method=method, **options)
    assert set(found.indices) == {0, 1}
    assert found.criterion == found.front[0].criterion == Absolute()((0, 1))
    assert max(criterion.calls.values()) == 1


@pytest.mark.parametrize("method", ["forward", "poss"])
def test_a_criterion_gets_all_columns_of_an_included_group(method: str) -> None:
    X, y = problem()
    X[:, 2] = X[:, 0] + X[:, 1]  # it depends on the others of the group
    seen = []
    groups = {"group": [0, 1, 2]}
    dsel.select(X, y, k=2, method=method, criterion=lambda S: seen.append(S) or 1.0, groups=groups, include=["group"])
    assert (0, 1, 2) in seen
    assert {S[:3] for S in seen} == {(0, 1, 2)}


def test_subsets_that_are_not_allowed_are_left_out_and_a_failure_names_its_subset() -> None:
    X, y = problem()
    allowed = dsel.select(X, y, k=4, method="forward", criterion=lambda S: math.inf if len(S) > 2 else -len(S))
    assert len(allowed) == 2

    def fails(S: Subset) -> float:
        if S == (0, 3):
            raise ZeroDivisionError("no folds left")
        return float(-len(S) - (0 in S))

    with pytest.raises(CriterionError, match=r"failed on the columns \[0, 3\]"):
        dsel.select(X, y, k=2, method="forward", criterion=fails)


@pytest.mark.parametrize("method", ["forward", "exchange", "splicing", "poss"])
def test_an_interrupted_run_evaluates_no_subset_again(method: str) -> None:
    X, y = problem()
    options: dict[str, Any] = {"warm_start": "forward", "iterations": 60} if method == "poss" else {}
    request = SelectionRequest(k=4, method=method, options=options, criterion=Absolute(), include=[9])
    whole = run_selection(as_dataset(X, y), request)
    criterion, states = Absolute(), []

    def stop_here(search: Any) -> None:
        if search.evaluations > 12 * (len(states) + 1):
            states.append(search.state())
            raise Interrupted("Stopped.")

    request = request.model_copy(update={"criterion": criterion})
    while True:
        try:
            state = states[-1] if states else None
            found = run_selection(as_dataset(X, y), request, RunContext(on_slice=stop_here, state=state))
            break
        except Interrupted:
            continue
    assert len(states) > 1
    assert found.indices == whole.indices
    assert found.criterion == whole.criterion
    repeated = sum(criterion.calls.values()) - len(criterion.calls)
    assert repeated <= len(states)  # an interruption loses the task that is out: one evaluation at a time here


@pytest.mark.parametrize("warm_start", ["forward", "exchange"])
def test_poss_may_start_from_a_greedy_search_by_the_criterion(warm_start: str) -> None:
    X, y = problem()
    criterion = Absolute()
    found = dsel.select(X, y, k=3, method="poss", criterion=criterion, warm_start=warm_start, iterations=50)
    greedy = dsel.select(
        X, y, k=3, method=warm_start, criterion=Absolute(), **({} if warm_start == "forward" else {"restarts": 10})
    )
    assert found.criterion <= greedy.criterion
    assert max(criterion.calls.values()) == 1
    assert found.counts["evaluated"] >= greedy.counts["evaluated"]


def test_poss_has_no_warm_start_by_a_criterion_unless_it_is_asked_for() -> None:
    X, y = problem()
    criterion = Absolute()
    selection = dsel.select(X, y, k=3, method="poss", criterion=criterion, iterations=5)
    assert criterion.calls.total() <= 5
    assert selection.options["warm_start"] == "none"
    assert dsel.select(X, y, k=3, method="poss", iterations=5).options["warm_start"] == "forward"
    with pytest.raises(OptionError, match="exchange_every cannot be combined"):
        dsel.select(X, y, k=3, method="poss", criterion=criterion, exchange_every=10)


def steps_of(name: str) -> Any:
    return {
        "forward": forward_steps(9, 3), "exchange": exchange_steps(9, 3, seed=1, restarts=2),
        "splicing": splicing_steps(9, 3, 2),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", ["forward", "exchange", "splicing"])
def test_any_number_of_workers_any_order_and_lost_tasks_give_the_same(name: str) -> None:
    f = Absolute()

    def front(workers: int, seed: int) -> Any:
        search, out, rng = BatchSearch(3, steps_of(name)), [], np.random.default_rng(seed)
        while search.finished() is None:
            while len(out) < workers and (task := search.ask(3, workers)) is not None:
                out.append(task)
            task: Task = out.pop(int(rng.integers(len(out))))
            if rng.random() < 0.2:
                search.requeue(task, suspect=bool(rng.random() < 0.5))
            else:
                search.tell(task, TaskResult(tuple(map(f, task.payload)), 0.0))
        return search.front(), search.trace, search.iteration, search.values

    one = front(1, 0)
    for workers, seed in ((2, 1), (5, 2), (40, 3)):
        assert front(workers, seed) == one


def test_a_job_continues_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli_runner import call
    from tests.stores import make_store

    X, y = problem()
    make_store(tmp_path / "data.zarr", X, y[:, None], (40, 12))
    calls = tmp_path / "calls"
    (tmp_path / "absolute.py").write_text(
        "import numpy as np\n"
        "def f(S, data):\n"
        f"    open({str(calls)!r}, 'a').write(f'{{S}}\\n')\n"
        "    A = np.column_stack([data.columns(S), np.ones(80)])\n"
        "    return float(np.abs(data.Y - A @ np.linalg.lstsq(A, data.Y, rcond=None)[0]).mean())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(dsel.__file__).parents[1]}")
    (tmp_path / "job.yaml").write_text(
        "store: data.zarr\nk: 3\nmethod: forward\ncriterion: absolute:f\ncluster: {local: {workers: 2}}\n"
    )
    code, _, errors = call("run", "job.yaml")
    assert code == 0, errors
    found = dsel.open_selection("job.result")
    lines = calls.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 12 + 11 + 10
    assert tuple(sorted(found.indices)) == literal_forward(Absolute(), 12, 3)[-1]
    assert found.counts["futures"] > 0


def squares(S: Subset, data: Any) -> float:
    """Return the squared error of a weighted fit of the targets that a criterion sees."""
    A, w = np.column_stack([data.columns(S), np.ones(data.m)]), np.sqrt(data.weights)[:, None]
    return float(((w * (data.Y - A @ np.linalg.lstsq(w * A, w * data.Y, rcond=None)[0])) ** 2).sum())


@pytest.mark.parametrize(("targets", "best"), [(["a"], 0), (["b"], 4), (["c", "b"], 4)])
def test_a_criterion_sees_the_rows_the_weights_and_the_targets_of_the_request(
    targets: list[str], best: int, tmp_path: Path
) -> None:
    rng, names, half = np.random.default_rng(0), ["a", "b", "c"], slice(0, 150)
    X, w = rng.normal(size=(300, 6)), rng.uniform(1, 2, 300)
    Y = np.column_stack([X[:, 0], 50 * X[:, 4], X[:, 2]]) + 0.1 * rng.normal(size=(300, 3))
    Y[150:] = 90 * X[150:, [5]]
    frame = pd.DataFrame({**{f"x{j}": X[:, j] for j in range(6)}, **dict(zip(names, Y.T, strict=True)), "weight": w})
    seen = SimpleNamespace(
        columns=lambda S: X[half, list(S)], m=150, weights=w[half], Y=frame[sorted(targets)].to_numpy()[half]
    )
    expected = squares((best,), seen)
    assert expected == min(squares((j,), seen) for j in range(6))
    dsel.ingest(frame, tmp_path / "dense.zarr", target=names, weight="weight")
    obs = frame[[*names, "weight"]].set_axis(frame.index.astype(str))
    dsel.ingest(
        anndata.AnnData(scipy.sparse.csr_matrix(X), obs=obs), tmp_path / "sparse.zarr", target=names, weight="weight"
    )
    request: dict[str, Any] = {"k": 1, "targets": targets, "criterion": squares}
    of_store = {"rows": {"first": 0.5}}
    found = [
        dsel.select(X[half], frame[names][half], method="forward", sample_weight=w[half], **request),
        dsel.select(tmp_path / "dense.zarr", method="forward", **of_store, **request),
        dsel.select(tmp_path / "sparse.zarr", method="forward", **of_store, **request),
        dsel.select(
            tmp_path / "dense.zarr", method="pposs", processes=len(targets), iterations=100, **of_store, **request
        ),
    ]
    assert [selection.indices for selection in found] == [(best,)] * 4
    np.testing.assert_allclose([selection.criterion for selection in found], expected)
