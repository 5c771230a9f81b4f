"""Columns that are nearly copies of each other are one signal, which the first of them represents."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.errors import OptionError
from dsel.selection.results.compare import compare_selections

RNG = np.random.default_rng(0)
M = 400
BASE = RNG.standard_normal((M, 10))
Y = 2 * BASE[:, 2] + BASE[:, 3] - BASE[:, 5] + RNG.standard_normal(M)


def with_copies(noise: float, offset: float = 0.0) -> Any:
    near = [BASE[:, j] + noise * RNG.standard_normal(M) for j in (3, 3, 5)]
    return np.column_stack([BASE, *near, 100 * BASE[:, 2] + 5]) + offset


@pytest.mark.parametrize("method", ["poss", "forward", "exchange", "branch-and-bound", "splicing"])
@pytest.mark.parametrize(("noise", "offset"), [(1e-6, 0.0), (1e-5, 1e4), (1e-4, 0.0)])
def test_the_first_column_represents_the_others(method: str, noise: float, offset: float) -> None:
    found = dsel.select(with_copies(noise, offset), Y, k=3, method=method)
    assert sorted(found.indices) == [2, 3, 5]
    assert found.counts["copies"] == [[2, 13], [3, 10, 11], [5, 12]]
    assert any("the first represents the others: x2 for x13; x3 for x10, x11; x5 for x12" in n for n in found.notes)
    assert all(j < 10 for row in found.front for j in row.indices)


def test_kept_columns_of_a_cluster_are_the_first_substitutes() -> None:
    found = dsel.select(with_copies(1e-5), Y, k=3, method="forward").substitutes()
    assert [one.label for one in found["x3"][:2]] == ["x10", "x11"]
    assert found["x3"][0].correlation == pytest.approx(1.0, abs=1e-6)
    assert found["x3"][0].r2 == pytest.approx(dsel.select(BASE, Y, k=3, method="forward").r2, abs=1e-4)


def test_at_most_five_near_copies_come_before_at_most_five_other_substitutes() -> None:
    X = np.column_stack([BASE, *(BASE[:, 3] + 1e-6 * RNG.standard_normal(M) for _ in range(7))])
    found = dsel.select(X, Y, k=3, method="forward").substitutes()
    assert {label: len(those) for label, those in found.items()} == {"x2": 5, "x3": 10, "x5": 5}
    copies, others = found["x3"][:5], found["x3"][5:]
    assert all(one.index >= 10 for one in copies)
    assert all(one.index < 10 for one in others)
    assert [one.r2 for one in others] == sorted((one.r2 for one in others), reverse=True)


def test_stability_does_not_split_its_vote() -> None:
    found = dsel.stability(with_copies(1e-4), Y, k=3, samples=20).to_frame()
    assert found.loc["x3"].iloc[-1] == 1.0
    assert found.loc["x10"].iloc[-1] == 0.0


def test_a_proof_is_about_one_column_of_each_cluster() -> None:
    X = with_copies(0.0)
    proved = dsel.certify(dsel.select(X, Y, k=3), X, Y)
    assert proved.certificate[-1]["status"] == "optimal"
    differ = with_copies(1e-6)  # by more than rounding: a copy may be better than its representative
    assert dsel.certify(dsel.select(differ, Y, k=3), differ, Y).certificate[-1]["represented"] == 3
    assert not proved.certificate[-1]["near_copies"]


def test_an_included_column_represents_its_cluster() -> None:
    found = dsel.select(with_copies(1e-5), Y, k=3, method="forward", include=["x11"])
    assert sorted(found.indices) == [2, 5, 11]
    excluded = dsel.select(with_copies(1e-5), Y, k=3, method="forward", exclude=["x3"])
    assert sorted(excluded.indices) == [2, 5, 10]
    assert (found.exclude, excluded.exclude) == ((), (3,))  # the others are in counts["copies"]
    kept = dsel.select(with_copies(1e-5), Y, k=3, method="forward", include=["x11"], near_copies="keep")
    assert compare_selections(found, kept).options == {"near_copies": ("first", "keep")}


def test_columns_next_to_groups_represent_each_other_and_groups_stay_whole() -> None:
    X = with_copies(1e-5)
    found = dsel.select(X, Y, k=3, method="forward", groups={"pair": [2, 13]})
    assert found.counts["copies"] == [[3, 10, 11], [5, 12]]
    assert set(found.indices) <= {2, 13, 3, 5}
    assert dsel.certify(found, X, Y).certificate[-1]["bound"] <= found.error


def test_missing_values_of_represented_columns_are_counted() -> None:
    data = pd.DataFrame(BASE).rename(columns=lambda j: f"x{j}")
    data.loc[:6, "x2"] = np.nan
    data["triple"] = 3.0 * data["x2"]
    counted = f"7 of {M} in 'x2', 7 of {M} in 'triple'"
    for rule in ("first", "keep"):
        notes = dsel.select(data, Y, k=3, method="forward", missing="mean", near_copies=rule).notes
        assert any(note.endswith(counted) for note in notes), rule
    notes = dsel.select(data, Y, k=3, method="forward", missing="mean", exclude=["triple"]).notes
    assert any(note.endswith(f"7 of {M} in 'x2'") for note in notes)


def test_near_copies_are_kept_or_refused_on_request() -> None:
    X = with_copies(1e-5)
    kept = dsel.select(X, Y, k=3, method="forward", near_copies="keep")
    assert "copies" not in kept.counts
    with pytest.raises(
        OptionError, match=r"X has 4 columns that are nearly copies .*: x10, x11, x12, x13.*Exclude them"
    ):
        dsel.select(X, Y, k=3, near_copies="refuse")
    with pytest.raises(OptionError, match=r"columns whose cosine is at least 1 - 1e-6"):
        dsel.select(BASE + 1e5, Y, k=3, near_copies="refuse", preprocess="unit")


def test_a_correlation_below_the_limit_is_no_copy() -> None:
    X = np.column_stack([BASE, BASE[:, 3] + 3e-3 * RNG.standard_normal(M)])
    assert "copies" not in dsel.select(X, Y, k=3, method="forward").counts


def test_data_without_near_copies_give_the_same_bits() -> None:
    first, kept = (dsel.select(BASE, Y, k=3, near_copies=how) for how in ("first", "keep"))
    assert (first.indices, first.error, first.notes) == (kept.indices, kept.error, kept.notes)


def test_a_saved_selection_keeps_its_clusters(tmp_path: Path) -> None:
    found = dsel.select(with_copies(1e-5), Y, k=3)
    found.save(tmp_path / "result")
    assert dsel.open_selection(tmp_path / "result").counts["copies"] == found.counts["copies"]


def test_a_certificate_over_representatives_says_so_unless_copies_are_exact() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(100, 6))
    y = X[:, 0] - X[:, 3] + 0.3 * rng.normal(size=100)
    near, exact = (np.c_[X, X[:, 0] + noise * rng.normal(size=100)] for noise in (1e-5, 0.0))
    found = dsel.certify(dsel.select(near, y, k=2), near, y)
    assert found.certificate[0]["status"] == "optimal-except-near-copies"
    assert found.certificate[0]["represented"] == 1
    assert "The proof does not cover subsets with 1 column that another one represents" in str(found)
    assert dsel.certify(dsel.select(exact, y, k=2), exact, y).certificate[0]["status"] == "optimal"
    kept = dsel.select(near, y, k=2, near_copies="keep")
    assert dsel.certify(kept, near, y).certificate[0]["represented"] == 0
    proof, listed = dsel.certify(kept, near, y).certificate[0], dsel.alternatives(kept, near, y)
    assert listed.dependent_gap == proof["dependent_gap"] > 0.0
    assert "no other independent ones (proved)" in str(listed)


def test_a_certificate_names_the_multiples_that_it_covers() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(100, 6))
    y = X[:, 0] - X[:, 3] + 0.3 * rng.normal(size=100)
    X = np.c_[X, X[:, 0] + 1e-5 * rng.normal(size=100), 2 * X[:, 0], 1 - X[:, 3]]
    found = dsel.certify(dsel.select(X, y, k=2), X, y)
    assert any("the first represents the others: x0 for x6, x7; x3 for x8" in note for note in found.notes)
    proof = next(line for line in str(found).splitlines() if "The proof does not cover" in line)
    assert "subsets with 1 column that another one represents" in proof
    assert "It covers those with the 2 others, which are multiples up to rounding." in proof


def test_a_loss_searches_one_column_of_each_cluster_and_its_proof_says_so() -> None:
    classes = np.median(Y) < Y
    found = dsel.select(with_copies(1e-5), classes, k=3, loss="logistic")
    assert sorted(found.indices) == [2, 3, 5]
    assert found.counts["copies"] == [[2, 13], [3, 10, 11], [5, 12]]
    proved = dsel.certify(found, with_copies(1e-5), classes)
    assert proved.certificate[-1]["represented"] == 4  # the proof limits coefficients, which copies may share
    assert proved.certificate[-1]["status"] == "optimal-except-near-copies"
    assert sorted(proved.indices) == [2, 3, 5]
    assert "copies" not in dsel.select(with_copies(1e-5), classes, k=3, loss="logistic", near_copies="keep").counts


@pytest.mark.parametrize("preprocess", ["center", "none"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_penalty_tells_columns_of_other_scales_apart(preprocess: str, loss: str) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=100)
    X = np.column_stack([1e-3 * z, z, rng.normal(size=100), z * (1 + 1e-6)])
    y = z + 0.3 * rng.normal(size=100)
    target = y if loss == "squared" else y > 0
    asked: dict[str, Any] = {"k": 1, "lam": 1.0, "preprocess": preprocess, "loss": loss}
    found = dsel.select(X, target, **asked)
    assert found.indices == (1,)
    assert found.counts["copies"] == [[1, 3]]
    assert found.error == pytest.approx(dsel.select(X, target, near_copies="keep", **asked).error, rel=1e-5)
    assert dsel.certify(found, X, target).certificate[-1]["status"] == "optimal-except-near-copies"
    assert dsel.select(X, y, k=1, preprocess=preprocess).counts["copies"] == [[0, 1, 3]]


def test_a_proof_with_a_penalty_leaves_out_subsets_with_two_copies_and_says_so() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=100)
    X, y = np.column_stack([z, z, rng.normal(size=(100, 3))]), z + 0.3 * rng.normal(size=100)
    kept = dsel.select(X, y, k=2, lam=100.0, near_copies="keep")
    assert sorted(kept.indices) == [0, 1]  # two coefficients cost less than one
    found = dsel.select(X, y, k=2, lam=100.0)
    assert found.error > kept.error
    row = dsel.certify(found, X, y).certificate[-1]
    assert (row["status"], row["represented"]) == ("optimal-except-near-copies", 1)


@pytest.mark.parametrize(
    ("noise", "lam", "within", "verdict"),
    [
        (0, 0, 0.01, "replaceable"), (1e-5, 0, 0.01, "replaceable"), (0, 1, 0.01, "replaceable"),
        (0, 0, 0, "replaceable"), (1e-3, 0, 0, "replaceable"), (-1e-3, 0, 0, "undecided"),
    ],
)  # fmt: skip
def test_a_column_that_represents_another_is_not_necessary(
    noise: float, lam: float, within: float, verdict: str
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    z = rng.normal(size=100)
    X, y = np.column_stack([z, z + noise * rng.normal(size=100), rng.normal(size=(100, 3))]), z + rng.normal(size=100)
    listed = dsel.alternatives(dsel.select(X, y, k=1, lam=lam), X, y, within=within)
    assert listed.verdicts["x0"] == verdict
    assert listed.prices["x0"].without_column == (1,)
    kept = dsel.select(X, y, k=1, lam=lam, include=[1])
    assert listed.prices["x0"].error_without == pytest.approx(kept.error)
    assert "no others without near-copies (proved)" in str(listed.lines())
    assert (
        dsel.alternatives(dsel.select(X[:, [0, 2, 3]], y, k=1, lam=lam), X[:, [0, 2, 3]], y).verdicts["x0"]
        == "necessary"
    )


def test_a_copy_replaces_a_column_where_rounding_leaves_a_gap_in_the_certificate() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 50))
    X[:, -1] = 2 * X[:, 1] + 3
    y = 2 * X[:, 1] - 1.5 * X[:, 2] + X[:, 3] + rng.normal(size=30)
    found = dsel.alternatives(dsel.select(X, y, k=4), X, y, within=0.1)
    assert (found.certificate["status"], found.complete, found.proven) == ("bounded", True, True)
    assert found.verdicts["x1"] == "replaceable"
    assert set(found.prices["x1"].without_column) == {49, *found.subsets[0].indices} - {1}


@pytest.mark.parametrize("near_copies", ["first", "keep"])
def test_near_copies_whose_difference_explains_the_target_are_both_searched(near_copies: str) -> None:
    rng = np.random.default_rng(0)
    start, days = rng.random(300) * 3000, rng.random(300) * 2
    X, y = np.column_stack([start, start + days, rng.normal(size=300)]), days + 0.1 * rng.normal(size=300)
    found = dsel.select(X, y, k=2, near_copies=near_copies)
    assert sorted(found.indices) == [0, 1]
    assert found.r2 > 0.96
    assert any(
        "x0 and x1 are nearly copies, but their difference explains 96.8% of Y more: both" in n for n in found.notes
    )
    assert dsel.certify(found, X, y).certificate[-1]["status"] == "optimal"


@pytest.mark.parametrize("near_copies", ["first", "keep"])
def test_a_difference_that_no_subset_can_have_is_named(near_copies: str) -> None:
    rng = np.random.default_rng(0)
    total, tax = 1e5 * rng.random(100), rng.random(100)
    X = np.column_stack([total, total - tax, rng.normal(size=100)])
    found = dsel.select(X, tax, k=2, near_copies=near_copies)
    assert set(found.indices) != {0, 1}
    assert any("x0 and x1" in n and "make it a column" in n for n in found.notes)


def test_without_centering_the_note_speaks_of_the_cosine() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) + 1e4
    found = dsel.select(X, X[:, 0] - X[:, 1], k=2, preprocess="unit")
    assert any("cosine is at least 1 - 1e-6" in n and "preprocess=center" in n for n in found.notes)


def test_an_exact_copy_replaces_a_column_where_another_one_has_a_near_copy() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    X = np.column_stack([X, 3 * X[:, 1] - 1, X[:, 2] + 1e-5 * rng.normal(size=60)])
    y = X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=60)
    listed = dsel.alternatives(dsel.select(X, y, k=2), X, y)
    assert (listed.verdicts["x1"], listed.verdicts["x2"]) == ("replaceable", "replaceable")
    assert (listed.prices["x1"].without_column, listed.prices["x2"].without_column) == ((5, 2), (1, 6))


def standardized_errors(X: np.ndarray, y: np.ndarray, k: int, lam: float = 0.0) -> dict[tuple[int, ...], float]:
    """f of each independent subset of k columns."""
    subsets = combinations(range(X.shape[1]), k)
    return {S: float(left(X[:, S], y, lam)) for S in subsets if lam or np.linalg.cond(standardized(X[:, S])) < 3e3}


def standardized(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def require_true_prices(found: dsel.Alternatives, values: dict[tuple[int, ...], float]) -> None:
    """Compare the prices with all subsets of all columns, those with copies counted."""
    for price in found.columns:
        for side, inside in (("with", True), ("without", False)):
            bound, error = getattr(price, f"bound_{side}"), getattr(price, f"error_{side}")
            assert bound <= min(f for S, f in values.items() if (price.index in S) == inside) + 1e-9
            assert error >= bound - 1e-9
            witness = tuple(sorted(getattr(price, f"{side}_column")))
            assert values[witness] == pytest.approx(error)
            assert (price.index in witness) == inside


def test_prices_count_subsets_with_near_copies() -> None:
    rng = np.random.default_rng(1001)
    X = rng.normal(size=(60, 8))
    X[:, 7], X[:, 6] = X[:, 3] + 3e-4 * rng.normal(size=60), X[:, 3] + 0.7 * rng.normal(size=60)
    y = 2 * X[:, 1] - X[:, 2] + 0.8 * X[:, 3] + rng.normal(size=60)
    found = dsel.alternatives(dsel.select(X, y, k=3), X, y, within=0.1)
    price = found.prices["x3"]
    assert (price.verdict, sorted(price.without_column)) == ("replaceable", [1, 2, 7])
    require_true_prices(found, standardized_errors(X, y, 3))
    assert min(price.bound_with, price.bound_without) > 0.98 * price.error_without  # the bound says something


def test_prices_with_a_penalty_count_subsets_with_two_copies() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 6))
    X[:, 4], X[:, 5] = X[:, 1], -X[:, 2]
    y = 2 * X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=60)
    for lam in (2.0, 30.0):
        found = dsel.alternatives(dsel.select(X, y, k=2, lam=lam), X, y, within=0.05)
        values = standardized_errors(X, y, 2, lam)
        require_true_prices(found, values)
        price = found.prices["x1"]
        assert (price.verdict, sorted(price.without_column)) == ("replaceable", [2, 4])
        assert price.error_without == pytest.approx(values[1, 2])
        assert price.bound_without > 0.0
    assert min(values.values()) == values[1, 4] < values[1, 2]  # two copies share a coefficient


def test_no_bound_is_stated_where_two_near_copies_may_be_in_a_subset() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 5))
    X[:, 4] = X[:, 1] + 1e-3 * rng.normal(size=60)
    y = X[:, 1] + X[:, 2] + 0.5 * rng.normal(size=60)
    found = dsel.alternatives(dsel.select(X, y, k=2), X, y, within=0.05)
    require_true_prices(found, standardized_errors(X, y, 2))
    assert {price.bound_without for price in found.columns} == {0.0}
    assert found.verdicts["x2"] == "necessary"
    assert found.verdicts["x1"] == "replaceable"


def test_a_substitute_is_proved_next_to_multiples() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 10))
    X[:, 8], X[:, 9] = 0.95 * X[:, 1] + 0.3 * X[:, 8], 1 - 2.5 * X[:, 2]
    y = X[:, 1:8] @ np.arange(8.0, 1.0, -1.0) + rng.normal(size=60)
    selection = dsel.select(X, y, k=7)
    found = selection.with_alternatives(dsel.alternatives(selection, X, y, within=0.1)).substitutes()
    assert [(found[label][0].label, found[label][0].proved) for label in ("x1", "x2")] == [("x8", True), ("x9", True)]


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_a_copy_replaces_a_column_by_a_loss(lam: float) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(200, 6))
    X[:, 5] = X[:, 1]
    y = X[:, 1] + X[:, 2] + rng.normal(size=200) > 0.0
    found = dsel.alternatives(dsel.select(X, y, k=2, loss="logistic", lam=lam), X, y, within=0.05)
    price = found.prices["x1"]
    assert (price.verdict, sorted(price.without_column)) == ("replaceable", [2, 5])
    assert price.error_without == pytest.approx(price.error_with)
    assert price.bound_without <= price.error_without


def left(X: np.ndarray, y: np.ndarray, lam: float) -> np.longdouble:
    """Return f of all columns, standardized, in extended precision."""
    Z, t = X.astype(np.longdouble), y.astype(np.longdouble)
    Z, t = Z - Z.mean(axis=0), t - t.mean()
    Z, t = Z / np.sqrt((Z * Z).mean(axis=0)), t / np.sqrt((t * t).mean())
    Z = np.vstack([Z, np.sqrt(np.longdouble(lam)) * np.eye(Z.shape[1])])
    t = np.concatenate([t, np.zeros(Z.shape[1])])
    for j in range(Z.shape[1]):  # Gram-Schmidt
        q = Z[:, j] / np.sqrt(Z[:, j] @ Z[:, j])
        Z[:, j + 1 :] -= np.outer(q, q @ Z[:, j + 1 :])
        t = t - q * (q @ t)
    return t @ t


@pytest.mark.parametrize("near_copies", ["first", "keep"])
@pytest.mark.parametrize("lam", [0.0, 0.5])
@pytest.mark.parametrize("scale", [1.0, 5.0, -2.5, 1 / 3])
@pytest.mark.parametrize("along", ["residual", "random"])
def test_no_covered_subset_is_below_the_bound(along: str, scale: float, lam: float, near_copies: str) -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 4))
    y = 2 * A[:, 0] - A[:, 1] + 2 * rng.normal(size=60)
    first = np.column_stack([np.ones(60), A[:, :2]])
    residual = y - first @ np.linalg.lstsq(first, y, rcond=None)[0]
    moved = residual / residual.std() if along == "residual" else rng.normal(size=60)
    for distance in (0.0, 1e-9, 1e-8, 1e-7, 3e-7, 1e-6):
        X = np.column_stack([A, scale * (A[:, 0] + distance * moved)])
        found = dsel.certify(dsel.select(X, y, k=2, lam=lam, near_copies=near_copies), X, y)
        row = found.certificate[-1]
        covered = [S for S in combinations(range(5), 2) if S != (0, 4) and not (row["represented"] and 4 in S)]
        assert row["bound"] <= min(left(X[:, S], y, lam) for S in covered)
        assert row["represented"] == int(near_copies == "first" and (distance > 0.0 or lam > 0.0))
        if near_copies == "first":
            assert row["status"] == ("optimal-except-near-copies" if row["represented"] else "optimal")
            assert row["rounding_error"] < 1e-11


@pytest.mark.parametrize("kind", ["weights", "filled", "raw", "dask", "float32"])
def test_a_multiple_is_told_from_a_near_copy_by_a_read_of_the_columns(kind: str) -> None:
    import dask.array as da

    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 5)) + 3.0
    if kind == "filled":
        X[::7, :3] = np.nan
    if kind == "float32":
        X = X.astype(np.float32)
    X = np.column_stack([X, -X[:, 0] / 3, X[:, 1] * (1 + 1e-8 * rng.normal(size=80)).astype(X.dtype)])
    y = rng.normal(size=80) + X[:, 3]
    asked: dict[str, Any] = {"missing": "mean"} if kind == "filled" else {"preprocess": "none"} if kind == "raw" else {}
    if kind == "weights":
        asked["sample_weight"] = rng.uniform(0.5, 2.0, 80)
    data = da.from_array(X, chunks=(17, 7)) if kind == "dask" else X
    found = dsel.select(data, y, k=2, method="forward", **asked)
    assert found.counts["copies"] == [[0, 5], [1, 6]]
    # float32 rounds a third of a column by 3e-8 of it, and does not tell 1 + 1e-8 from 1
    assert found.counts["not_covered"] == ([5] if kind == "float32" else [6])


def test_sums_without_rows_cannot_tell_a_multiple() -> None:
    X = np.column_stack([BASE, BASE[:, 2]])
    sums = dsel.sums(X, Y)
    row = dsel.certify(dsel.select(sums, k=3), sums).certificate[-1]
    assert (row["status"], row["represented"]) == ("optimal-except-near-copies", 1)


def test_a_category_under_two_names_is_named_once() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"x": rng.normal(size=60), "city": rng.choice(["bonn", "kiel", "ulm"], 60)})
    frame["town"], y = frame["city"].str.upper(), frame["x"] + frame["city"].eq("ulm")
    single = dsel.select(frame, y, k=2, categories="columns").notes
    assert any(
        "the first represents the others: the 3 columns of city for those of town, in proofs" in n for n in single
    )
    same = "columns or groups that explain the same, so that it does not matter which is chosen: city and town"
    assert same in dsel.select(frame, y, k=2).notes
    frame["land"] = frame["city"].eq("ulm").map({True: "south", False: "north"})
    notes = dsel.select(frame, y, k=2).notes
    shared = "city=ulm and town=ULM and land=north and land=south"
    assert same in notes
    assert f"columns that are multiples of each other to 1e-6 of their norm in different groups: {shared}" in notes
    frame["many"] = frame["city"].where(frame["city"] != "kiel", rng.choice(["kiel", "wien"], 60))
    equal = "city=bonn and town=BONN and many=bonn; city=ulm and town=ULM and many=ulm"
    notes = dsel.select(frame.drop(columns="land"), y, k=2).notes
    assert f"columns that are equal to 1e-6 of their norm in different groups: {equal}" in notes


def test_the_note_on_kept_multiples_says_how_near_they_are_and_what_a_proof_leaves_out() -> None:
    X = np.column_stack([BASE, BASE[:, 2] + 1e-9 * RNG.standard_normal(M)])
    kept = dsel.certify(dsel.select(X, Y, k=3, near_copies="keep"), X, Y)
    assert kept.certificate[-1]["status"] == "optimal-except-near-copies"  # both together are not covered
    assert kept.certificate[-1]["near_copies"] == [[2, 10]]
    wanted = "columns that are equal to 1e-6 of their norm, of which at most one is chosen; a proof is optimal-except"
    assert any(wanted in note and note.endswith(": x2 and x10") for note in kept.notes)
    first = dsel.certify(dsel.select(X, Y, k=3), X, Y)
    assert first.certificate[-1]["represented"] == 1  # x10 in place of x2 may be better


@pytest.mark.parametrize(
    ("distance", "status"),
    [(0.0, "optimal"), (1e-12, "optimal-except-near-copies"), (1e-8, "optimal-except-near-copies")],
)
def test_kept_columns_that_are_nearly_multiples_are_excepted_from_a_proof(distance: float, status: str) -> None:
    rng = np.random.default_rng(0)
    data, noise = rng.normal(size=(120, 8)), rng.normal(size=120)
    data[:, 4] = 2.0 * data[:, 3] + distance * noise
    target = data[:, 3] - data[:, 7] + 2.0 * noise
    for method in ("poss", "branch-and-bound"):
        selection = dsel.select(data, target, k=2, near_copies="keep", method=method)
        (row,) = dsel.certify(selection, data, target).certificate
        assert row["status"] == status
        assert row["near_copies"] == ([[3, 4]] if distance else [])
        assert row["proven"] == (not distance)
        # Both columns together explain nearly all of Y, which the Gram matrix does not show.
        assert row["dependent_gap"] == pytest.approx(row["value"] / row["total"] if distance else 0.0)


def test_figures_about_a_bound_say_which_subsets_it_is_about() -> None:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(120, 6))
    y = X[:, 0] - X[:, 3] + 0.3 * rng.normal(size=120)
    near = np.c_[X, X[:, 0] + 1e-4 * rng.normal(size=120)]
    first, kept = (dsel.certify(dsel.select(near, y, k=2, near_copies=rule), near, y) for rule in ("first", "keep"))
    notes = compare_selections(first, kept, ("first", "kept")).notes
    words = "among subsets without 1 column that another one represents"
    assert [note for note in notes if "the best" in note] == [
        f"the error of the best in first is {words}",
        "the error of the best in kept is among independent subsets",
    ]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("asked", [{"k": "auto", "choose_k": "ebic"}, {"k": 2, "include": [0, 1]}])
def test_where_one_subset_may_be_chosen_near_copies_are_no_exception(loss: str, asked: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(100, 6)), rng.normal(size=100)
    X[:, 5] = X[:, 2] + 1e-4 * rng.normal(size=100)
    y = noise if loss == "squared" else noise > 0
    found = dsel.select(X, y, loss=loss, **asked)
    for sizes in ("chosen", "all"):
        proved = dsel.certify(found, X, y, sizes=sizes)
        (row,) = proved.certificate
        assert (row["size"], row["status"], row["proven"], row["represented"]) == (found.k, "optimal", True, 0)
        assert not row["largest_coefficient"]
        assert f"Certificate, {found.k} columns: proved optimal, " in str(proved)
        assert "(only one subset may be chosen, " in str(proved)
        assert "does not cover" not in str(proved)
    assert not [note for note in compare_selections(proved, proved).notes if "the best" in note]
    one_more = dsel.select(X, y, k=found.k + 1, include=asked.get("include", ()), loss=loss)
    assert dsel.certify(one_more, X, y).certificate[0]["status"] == "optimal-except-near-copies"


def test_a_copy_of_the_only_column_is_an_exception_where_both_were_asked_for() -> None:
    X = np.c_[BASE[:, 0], BASE[:, 0] + 1e-4 * RNG.standard_normal(M)]
    (row,) = dsel.certify(dsel.select(X, Y, k=2, include=[0]), X, Y).certificate
    assert (row["size"], row["status"], row["represented"]) == (1, "optimal-except-near-copies", 1)
    (row,) = dsel.certify(dsel.select(X, Y, k=1, include=[0]), X, Y).certificate
    assert (row["size"], row["status"], row["represented"]) == (1, "optimal", 0)
