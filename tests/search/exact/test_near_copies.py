"""A certificate has one status; near-copies of columns leave the bound as it is, and are named with the remedy."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import dsel
from dsel.search.exact.certificate import Certificate
from dsel.search.exact.guarantee import Limits
from dsel.storage.json_files import checked_json
from tests.search.exact.cases import regression

#: The noise of a near-copy, whose square is above rounding and below the tolerance.
NOISE = 1e-6


def near_copy(m: int = 400, noise: float = NOISE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 8 columns, the last of which is nearly the fourth, and a target."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 7))
    y = 2.0 * X[:, 2] + X[:, 3] - X[:, 5] + rng.normal(size=m)
    return np.column_stack([X, X[:, 3] + noise * rng.normal(size=m)]), y


def certified(X: np.ndarray, y: np.ndarray, k: int = 3, **arguments: Any) -> dsel.Selection:
    selection = dsel.select(X, y, k=k, method="forward", near_copies="keep", progress=False, **arguments)
    return dsel.certify(selection, X, y, progress=False)


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", html)))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_near_copy_leaves_the_bound_as_it_is_without_it(k: int) -> None:
    X, y = near_copy()
    (proof,) = certified(X, y, k).certificate
    (without,) = certified(X, y, k, exclude=[7]).certificate
    assert without["status"] == "optimal"
    assert proof["status"] == "optimal-except-near-copies"
    assert proof["near_copies"] == [[3, 7]]
    assert proof["rounding_error"] < 1e-9
    assert proof["bound"] == pytest.approx(without["bound"], rel=1e-5)
    assert proof["bound"] > proof["value"] - 1e-9 * proof["total"]
    assert proof["dependent_gap"] > 1e-3
    assert not proof["proven"]


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("missing", [0, 30])
def test_filled_means_cost_a_proof_hardly_more_rounding(missing: int, blocks: int) -> None:
    X, y = near_copy(300, noise=1e-3)
    X += 10.0
    X[:missing, 0] = np.nan
    full = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    asked, before = (certified(da.from_array(Z, (300 // blocks, 8)), y, missing=how).certificate[0]
                     for Z, how in ((X, "mean"), (full, "refuse")))  # fmt: skip
    assert before["rounding_error"] > 1e-9
    assert asked["rounding_error"] < 1.2 * before["rounding_error"]
    in_memory = certified(full, y, missing="mean").certificate[0]
    assert in_memory["rounding_error"] == certified(full, y).certificate[0]["rounding_error"]


@pytest.mark.parametrize("columns", ["copies", "copies and a sum", "two copies of one", "categories"])
def test_the_inflation_covers_all_independent_subsets(columns: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4)) + rng.normal(size=(60, 1))

    def noise() -> np.ndarray:
        return 1e-5 * rng.normal(size=60)

    more = {
        "copies": [X[:, 0] + noise(), X[:, 1] - noise()],
        "copies and a sum": [X[:, 0] + noise(), X[:, 1] + 0.2 * X[:, 2] - 3.0 * X[:, 3] + noise()],
        "two copies of one": [X[:, 0] + noise(), X[:, 0] + noise()],
        "categories": [X[:, 1] + X[:, 2] + X[:, 3], X[:, 0] + noise()],
    }[columns]
    X = np.column_stack([X, *more])
    objective = regression(X, rng.normal(size=(60, 1)))
    k, C = 4, objective.K / np.sqrt(np.outer(*[np.diag(objective.K)] * 2))
    found = Limits(objective).guarantee(k)
    inflation = [np.diag(np.linalg.inv(C[np.ix_(S, S)])) for S in combinations(range(objective.n), k)
                 if np.linalg.eigvalsh(C[np.ix_(S, S)])[0] > 1e-12]  # fmt: skip
    independent = [v.sum() for v in inflation if v.max() < 1e7]
    share = 2.0 * (1e-14 + 8.0 * np.finfo(float).eps * objective.n)
    assert found.error >= share * max(independent) * (1.0 - 1e-9)
    assert found.error < 1e-8
    assert found.explained_by_all > 0.0
    for members in found.near_copies:
        assert objective.rank(members) < len(members)


def test_a_near_copy_of_an_included_column_is_named() -> None:
    X, y = near_copy()
    (proof,) = certified(X, y, 3, include=[3]).certificate
    assert (proof["status"], proof["near_copies"]) == ("optimal-except-near-copies", [[3, 7]])


def test_columns_that_are_nearly_a_sum_of_others_are_named() -> None:
    X, y = near_copy(noise=1.0)
    X = np.column_stack([X, X[:, 0] + X[:, 1] + NOISE * np.random.default_rng(2).normal(size=len(y))])
    (proof,) = certified(X, y).certificate
    assert proof["status"] == "optimal-except-near-copies"
    assert [sorted(columns) for columns in proof["near_copies"]] == [[0, 1, 8]]
    assert proof["rounding_error"] < 1e-9


@pytest.mark.usefixtures("no_pictures")
def test_every_view_says_the_same(tmp_path: Path) -> None:
    X, y = near_copy()
    X = np.column_stack([X, X[:, [0, 0, 1, 1, 2]]])  # many copies, which must not hide the pair that matters
    selection = certified(X, y)
    remedy = 'exclude: ["x3"]' if 7 in selection.indices else 'exclude: ["x7"]'
    selection.save(tmp_path / "saved")
    assert dsel.open_selection(tmp_path / "saved").certificate == selection.certificate
    page = plain(selection.report(tmp_path / "page.html").read_text())
    for text in (str(selection), plain(selection._repr_html_()), page):
        assert "optimal except for near-copies" in text
        assert "x3 and x7" in text
        assert remedy in text
        assert "no independent subset is better" not in text
    assert 'class="good"' not in (tmp_path / "page.html").read_text()
    assert "except for near-copies" in dsel.selection.plots.front.describe(selection)


def test_branch_and_bound_and_its_estimator_say_it_too() -> None:
    from sklearn.exceptions import ConvergenceWarning

    from dsel.sklearn import BestSubsetSelector

    X, y = near_copy()
    found = dsel.select(X, y, k=3, method="branch-and-bound", near_copies="keep", progress=False)
    assert (found.ended, found.certificate[-1]["status"], found.certificate[-1]["proven"]) == (
        "complete", "optimal-except-near-copies", False,
    )  # fmt: skip
    assert "x3 and x7" in str(found)
    assert "exclude: [" in str(found)
    with pytest.warns(ConvergenceWarning, match="x3 and x7"):
        selector = BestSubsetSelector(3, near_copies="keep").fit(X, y)
    assert (selector.status_, selector.proven_) == ("optimal-except-near-copies", False)
    selector = BestSubsetSelector(3).fit(X[:, :7], y)
    assert (selector.status_, selector.proven_) == ("optimal", True)


def test_a_portfolio_does_not_call_it_proven() -> None:
    X, y = near_copy()
    assert dsel.select(X, y, k=3, method="portfolio", near_copies="keep", progress=False).ended == "complete"
    assert dsel.select(X[:, :7], y, k=3, method="portfolio", progress=False).ended == "proven"


@pytest.mark.parametrize(
    ("bound", "rounding", "dependent", "status", "proven"),
    [
        (5.0, 0.0, 0.0, "optimal", True),
        (5.0 - 9e-6, 1.0, 0.0, "optimal", True),
        (5.0 - 2e-5, 1.0, 0.0, "bounded", False),  # rounding counts for at most 1e-6
        (0.0, 0.6, 0.0, "no-useful-bound", False),
        (0.049, 0.0, 0.0, "no-useful-bound", False),
        (0.051, 0.0, 0.0, "bounded", False),
        (5.0, 0.0, 1e-7, "optimal-except-near-copies", True),
        (5.0, 0.0, 1e-5, "optimal-except-near-copies", False),
        (4.0, 0.0, 1e-5, "bounded", False),
    ],
)
def test_the_status_follows_from_gap_rounding_and_what_is_not_covered(
    bound: float, rounding: float, dependent: float, status: str, proven: bool
) -> None:
    found = Certificate(3, 5.0, bound, 10.0, (1, 2, 3), rounding_error=rounding, dependent_gap=dependent)
    assert (found.status, found.proven) == (status, proven)
    assert (found.as_dict()["status"], found.as_dict()["proven"]) == (status, proven)


def test_a_certificate_of_an_older_version_is_judged_again() -> None:
    old = Certificate(6, 83_863.0, 0.0, 200_500.0, (1, 2)).as_dict()
    for name in ("status", "near_copies", "rounding_error", "dependent_gap"):
        del old[name]
    old |= {"error": 0.6, "excluded": 0.25, "proven": True}
    found = Certificate.from_dict(json.loads(json.dumps(old)))
    assert (found.rounding_error, found.dependent_gap) == (0.6, 0.25)
    assert (found.status, found.proven) == ("no-useful-bound", False)


@pytest.mark.usefixtures("no_pictures")
def test_an_older_saved_result_is_judged_when_it_is_opened(tmp_path: Path) -> None:
    X, y = near_copy()
    certified(X, y).save(tmp_path / "old")
    file = tmp_path / "old" / "selection.json"
    values = json.loads(file.read_text())
    (row,) = values["certificate"]
    row |= {"bound": 0.0, "error": row.pop("rounding_error") + 0.6, "excluded": row.pop("dependent_gap")}
    row["proven"] = True
    del row["status"], row["near_copies"], values["digest"]
    file.write_text(checked_json(values))
    opened = dsel.open_selection(tmp_path / "old")
    assert (opened.certificate[0]["status"], opened.certificate[0]["proven"]) == ("no-useful-bound", False)
    assert "no useful bound" in str(opened)
    assert "Rounding in the proof may be worth 0.6" in str(opened)
    assert "no useful bound" in plain(opened.report(tmp_path / "page.html").read_text())


@pytest.mark.parametrize("seed", [206, 235, 255, 267])
def test_certificates_of_all_sizes_name_independent_columns(seed: int) -> None:
    """Beyond a perfect fit, rounding alone makes larger subsets better."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(3, 7))
    X = rng.standard_normal((30, rank))
    sums = X @ rng.integers(-1, 2, (rank, rank))[:, : int(rng.integers(1, rank + 1))]
    y = X @ rng.integers(-2, 3, rank)
    X = np.hstack([X, sums[:, np.ptp(sums, axis=0) > 0.0]])
    k = min(rank + 2, X.shape[1] - 1)
    selection = dsel.select(X, y, k=k, method="forward", near_copies="keep", progress=False)
    for proof in dsel.certify(selection, X, y, sizes="all", progress=False).certificate:
        Z = X[:, proof["indices"]] - X[:, proof["indices"]].mean(axis=0)
        assert np.linalg.matrix_rank(Z, tol=1e-8) == len(proof["indices"])


def test_all_sizes_advise_to_leave_out_the_same_copy_which_is_not_chosen() -> None:
    X, _ = near_copy(seed=8)
    y = X[:, [3, 2, 5, 0, 1]] @ [3.0, 2.5, 2.0, 1.5, 1.0]
    selection = dsel.select(X, y, k=4, method="forward", near_copies="keep", progress=False)
    certified = dsel.certify(selection, X, y, sizes="all", progress=False)
    known = [set(row["indices"]) & {3, 7} for row in certified.certificate]
    assert {3} in known
    assert {7} in known  # sizes differ in which copy is slightly better
    left_out = ({3, 7} - set(certified.indices)).pop()
    assert set(re.findall(r"exclude: \[.*?\]", str(certified))) == {f'exclude: ["x{left_out}"]'}
