"""A method that proves its answer leaves the certificate that `dsel.certify` would leave."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel._lib.text import at_least
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.search.exact.certificate import Certificate
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_selection
from dsel.selection.results.compare import compare_selections
from dsel.sklearn import BestSubsetSelector

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 10)) + RNG.normal(size=(60, 1))
Y = X[:, :4].sum(axis=1) + 2.0 * RNG.normal(size=60)
TWO = np.stack([Y, X[:, 7] - X[:, 2]], axis=1)
DOUBLED = np.column_stack([X, 2.0 * X[:, 0]])
NEAR = np.column_stack([X, X[:, 0] + 1e-5 * RNG.normal(size=60)])
GROUPS = [[0, 1], [2, 3], [4, 5], [6, 7, 8]]
#: Independent columns, so that a few nodes prove nothing.
HARD, NOISE = RNG.normal(size=(60, 30)), RNG.normal(size=60)
FIELDS = ("size", "status", "proven", "represented", "near_copies", "columns", "coefficients", "noise")
FIGURES = ("value", "bound", "gap", "rounding_error", "dependent_gap", "total", "r2_bound")


def error(columns: Any, y: Any, S: tuple[int, ...]) -> float:
    """f of standardized columns."""
    Z, target = ((part - part.mean(axis=0)) / part.std(axis=0) for part in (columns[:, list(S)], y))
    return float(np.square(target - Z @ np.linalg.lstsq(Z, target, rcond=None)[0]).sum())


def least(columns: Any, y: Any, k: int) -> float:
    """The least f of all subsets of k columns."""
    return min(error(columns, y, S) for S in combinations(range(columns.shape[1]), k))


@pytest.mark.parametrize(
    ("columns", "targets", "options"),
    [
        (X, Y, {}),
        (X, Y, {"lam": 4.0, "preprocess": "center"}),
        (X, TWO, {"include": [9], "exclude": [0, 1]}),
        (X, None, {}),
        (DOUBLED, Y, {}),
        (NEAR, Y, {}),
        (NEAR, Y, {"near_copies": "keep"}),
        (NEAR, Y, {"lam": 1.0}),
        (X[:8], Y[:8], {}),
        (X[:8], Y[:8], {"lam": 1.0}),
        (X, Y, {"groups": GROUPS, "k": 2}),
        (HARD, NOISE, {"k": 8, "nodes": 20}),
    ],
    ids=["plain", "penalty", "columns-in-and-out", "Y=X", "duplicate", "near-copy", "near-copy-kept",
         "near-copy-penalty", "more-columns-than-rows", "the-same-penalty", "groups", "stopped"],
)  # fmt: skip
def test_the_certificate_is_that_of_certify(columns: Any, targets: Any, options: dict[str, Any]) -> None:
    data = (columns,) if targets is None else (columns, targets)
    asked = {"k": 3, **options}
    nodes = asked.pop("nodes", None)
    (mine,) = dsel.select(*data, method="branch-and-bound", nodes=nodes, **asked).certificate
    method = "forward" if "groups" in asked else "exchange"
    (theirs,) = dsel.certify(dsel.select(*data, method=method, **asked), *data, nodes=nodes).certificate
    assert [mine[name] for name in FIELDS] == [theirs[name] for name in FIELDS]
    assert [mine[name] for name in FIGURES] == pytest.approx([theirs[name] for name in FIGURES], rel=1e-9, abs=1e-12)
    assert sorted(mine["indices"]) == sorted(theirs["indices"])
    assert mine["method"] == theirs["method"]
    assert (mine["status"] == "bounded") == (nodes is not None)


@pytest.mark.parametrize("targets", [Y, TWO, None], ids=["one", "two", "Y=X"])
@pytest.mark.parametrize("method", ["astar", "exhaustive"])
def test_other_exact_methods_prove_the_same(method: str, targets: Any) -> None:
    data = (X,) if targets is None else (X, targets)
    mine = dsel.select(*data, k=3, method=method).certificate
    theirs = dsel.certify(dsel.select(*data, k=3), *data, sizes="all").certificate[-len(mine) :]
    assert len(mine) == (3 if method == "exhaustive" else 1)
    for a, b in zip(mine, theirs, strict=True):
        assert (a["size"], a["status"], a["proven"]) == (b["size"], "optimal", True)
        assert (a["value"], a["bound"]) == pytest.approx((b["value"], b["bound"]), abs=1e-9 * b["total"])


def test_a_stopped_search_says_how_large_its_gap_is(tmp_path: Path) -> None:
    stopped = dsel.select(HARD, NOISE, k=8, method="branch-and-bound", nodes=20)
    (row,) = stopped.certificate
    assert (stopped.ended, row["status"], row["nodes"]) == ("iterations", "bounded", 20)
    assert 0.0 < row["bound"] < stopped.error == pytest.approx(row["value"])
    assert f"none is below {at_least(row['bound'])}" in str(stopped)
    assert compare_selections(stopped, stopped).figures["error of the best is at least"][0] == row["bound"]
    stopped.save(tmp_path / "saved")
    assert dsel.open_selection(tmp_path / "saved").certificate == stopped.certificate
    assert not {"bound", "status", "proven", "rounding_error"} & set(stopped.counts)
    whole = dsel.certify(stopped, HARD, NOISE)
    assert whole.certificate[-1]["status"] == "optimal"
    assert whole.certificate[-1]["nodes"] > 20


def test_the_certificate_of_a_weighted_search_is_about_its_answer() -> None:
    best = least(X, Y, 3)
    for weight in ({"epsilon": 3.0}, {"gamma": float("inf")}, {"gamma": 2.0}):
        found = dsel.select(X, Y, k=3, method="astar", **weight)
        (row,) = found.certificate
        assert row["value"] == pytest.approx(found.error)
        assert sorted(row["indices"]) == sorted(found.indices)
        assert row["bound"] <= best * (1.0 + 1e-9)
        assert row["status"] == "bounded"
        polished = dsel.select(X, Y, k=3, method="astar", polish="exchange", **weight)
        assert polished.certificate[-1]["value"] == pytest.approx(polished.error) == pytest.approx(best)
        assert polished.certificate[-1]["bound"] == row["bound"]


def test_a_finished_proof_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dsel.select(X, Y, k=3, method="branch-and-bound")
    (row,) = found.certificate
    rounded = Certificate.from_dict({**row, "bound": row["value"] - 1e-5 * row["total"], "rounding_error": 1e-5})
    coarse = replace(found, certificate=(rounded.as_dict(),))
    every = dsel.select(X, Y, k=3, method="exhaustive")
    monkeypatch.setattr("dsel.jobs.proof_store.Proof.begin", None)
    assert dsel.certify(found, X, Y).certificate == found.certificate
    assert dsel.certify(coarse, X, Y).certificate == coarse.certificate  # rounding alone leaves this gap
    assert rounded.status == "bounded"
    assert dsel.certify(every, X, Y, sizes="all").certificate == every.certificate


def test_all_sizes_are_proved_but_the_finished_one() -> None:
    found = dsel.select(X, Y, k=3, method="branch-and-bound")
    rows = dsel.certify(found, X, Y, sizes="all").certificate
    assert [(row["size"], row["status"]) for row in rows] == [(1, "optimal"), (2, "optimal"), (3, "optimal")]
    assert rows[-1]["nodes"] == found.certificate[0]["nodes"]


def test_every_size_that_is_searched_for_an_automatic_k_has_a_certificate() -> None:
    found = dsel.select(X, Y, k="auto", max_k=5, choose_k="bic", method="branch-and-bound")
    assert [row["size"] for row in found.certificate] == list(range(1, found.k + 1))
    assert {row["status"] for row in found.certificate} == {"optimal"}
    assert next(row for row in found.information_criteria() if row.criterion == "bic").proved
    folds = dsel.select(X, Y, k="auto", max_k=3, method="branch-and-bound")
    assert [(row["size"], row["status"]) for row in folds.certificate] == [(folds.k, "optimal")]
    bound = dsel.select(X, Y, k="auto", max_k=6, choose_k="bic", method="portfolio").certificate[-1]
    assert bound["size"] == found.k  # that of 6 columns holds for fewer
    assert bound["bound"] <= least(X, Y, found.k)


def test_included_columns_alone_and_no_column_are_optimal() -> None:
    found = dsel.select(X, Y, k=2, include=[3, 5], method="branch-and-bound")
    (row,) = found.certificate
    assert (row["size"], row["status"], row["method"]) == (2, "optimal", "nothing to choose")
    assert row == dsel.certify(found, X, Y).certificate[0]
    selector = BestSubsetSelector(2, include=[3, 5]).fit(X, Y)
    assert (selector.status_, selector.proven_) == ("optimal", True)
    none = dsel.select(HARD[:, :3], NOISE, k="auto", choose_k="bic", method="branch-and-bound")
    assert (none.k, len(none), none.certificate[-1]["status"]) == (0, 0, "optimal")


def test_a_perfect_fit_by_fewer_columns_is_optimal() -> None:
    found = dsel.select(X, X[:, 1] - X[:, 6], k=4, method="branch-and-bound")
    (row,) = found.certificate
    assert (sorted(found.indices), row["size"], row["status"]) == ([1, 6], 2, "optimal")
    assert BestSubsetSelector(4).fit(X, X[:, 1] - X[:, 6]).proven_


def test_a_reduced_problem_proves_only_what_holds_for_the_data() -> None:
    found = dsel.select(X, Y, k=3, method="astar", reduce={"rank": 6})
    (row,) = found.certificate
    assert row["value"] == pytest.approx(found.error)
    assert row["bound"] <= least(X, Y, 3)
    assert row["method"].endswith("on a reduced problem")
    assert not row["proven"]
    assert f"f is at least {row['bound']:.6g}" in " ".join(found.notes)
    assert dsel.certify(found, X, Y).certificate[0]["proven"]


def test_a_search_on_models_of_a_loss_proves_nothing() -> None:
    found = dsel.select(X, (Y > 0.0).astype(float), k=2, loss="logistic", method="branch-and-bound")
    assert found.certificate == ()
    assert not any("proved" in line for line in str(found).splitlines())


@pytest.mark.parametrize("method", ["branch-and-bound", "astar"])
def test_the_time_of_earlier_runs_counts(method: str) -> None:
    states: list[Any] = []
    request = SelectionRequest(k=6, method=method, options={"nodes": 40})
    dataset = as_dataset(HARD, NOISE)
    run_selection(dataset, request, RunContext(on_slice=lambda search: states.append(json.dumps(search.state()))))
    state = json.loads(states[0])
    state["effort"] = {"seconds": 1e6, "cpu_seconds": 2e6}
    (row,) = run_selection(dataset, request, RunContext(state=state)).certificate
    assert row["seconds"] >= 1e6
    assert row["cpu_seconds"] >= 2e6
    assert row["nodes"] == 40
