"""`dsel.alternatives` of groups: near-best sets, verdicts and prices are those of all sets of groups."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.config.job import ListLimits
from dsel.data.as_dataset import as_dataset
from dsel.errors import OptionError
from dsel.jobs.certify import ProofBudget, certify_selection
from dsel.selection.render import render, render_alternatives
from dsel.selection.results.compare import compare_selections
from dsel.sklearn import SubsetSelector

M = 70
RNG = np.random.default_rng(12)
WEIGHTS = RNG.uniform(0.2, 2.0, M)


def frame() -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers and categories of unequal sizes, and a target that some of them explain."""
    rng = np.random.default_rng(5)
    data = pd.DataFrame(rng.normal(size=(M, 3)), columns=list("abc"))
    data["city"] = rng.choice(["ulm", "kiel", "bonn", "jena", "trier"], M)
    data["color"] = rng.choice(["red", "blue"], M)
    data["d"] = data["a"] + 0.3 * rng.normal(size=M)
    data["day"] = rng.choice(["mo", "tu", "we"], M)
    y = data["a"] + data["city"].map({"ulm": 1, "kiel": -1, "bonn": 0.5, "jena": 0, "trier": 0.2})
    return data, (y + data["day"].map({"mo": 0.5, "tu": 0.0, "we": -0.5}) + rng.normal(size=M)).to_numpy()


DATA, Y = frame()
GROUPS = list(DATA.columns)


def error_of(names: tuple[str, ...], lam: float, weights: np.ndarray | None) -> float:
    """f of the standardized columns of some columns of the frame, by weighted least squares on the rows."""
    w = np.ones(M) if weights is None else weights
    Z = pd.get_dummies(DATA[list(names)]).to_numpy(float) if names else np.zeros((M, 0))
    Z, T = ((A - np.average(A, axis=0, weights=w)) for A in (Z, Y[:, None]))
    Z, T = (A / np.sqrt(np.average(A**2, axis=0, weights=w)) * np.sqrt(w)[:, None] for A in (Z, T))
    Z, T = np.vstack([Z, np.sqrt(lam) * np.eye(Z.shape[1])]), np.vstack([T, np.zeros((Z.shape[1], 1))])
    return float(np.square(T - Z @ np.linalg.lstsq(Z, T, rcond=1e-9)[0]).sum())


def require_right(found: dsel.Alternatives, values: dict[tuple[str, ...], float], empty: float) -> None:
    """Compare what is known with f of all sets of groups. empty: f of the included groups."""
    best, named = min(values.values()), {price.label: price for price in found.columns}
    limit = best + found.within * (empty - best) + 1e-9
    near = {S for S, f in values.items() if f <= limit}
    assert [row.error for row in found.subsets] == pytest.approx(sorted(values[S] for S in near))
    assert {names_of(found, row.indices) for row in found.subsets} == {frozenset(named.keys() & set(S)) for S in near}
    assert (found.complete, found.more, found.proven) == (True, False, True)
    for name, price in named.items():
        has = {name in S for S in near}
        assert price.verdict == {(True,): "necessary", (False,): "useless"}.get(tuple(has), "replaceable")
        inside = min(f for S, f in values.items() if name in S)
        outside = min(f for S, f in values.items() if name not in S)
        assert price.bound_with <= inside + 1e-7
        assert price.bound_without <= outside + 1e-7
        assert price.error_with >= inside - 1e-7
        assert price.error_without >= outside - 1e-7
        assert name in names_of(found, price.with_column)
        assert name not in names_of(found, price.without_column)


def names_of(found: dsel.Alternatives, indices: tuple[int, ...]) -> frozenset[str | int]:
    """The candidate groups that have columns among some; they have all of theirs."""
    some = [price for price in found.columns if set(price.columns) & set(indices)]
    assert all(set(price.columns) <= set(indices) for price in some)
    return frozenset(price.label for price in some)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("lam", [0.0, 5.0])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weights"])
def test_all_near_best_sets_of_groups_are_listed(k: int, lam: float, weights: Any) -> None:
    values = {S: error_of(S, lam, weights) for S in combinations(GROUPS, k)}
    selection = dsel.select(DATA, Y, k=k, lam=lam, sample_weight=weights)
    for within in (0.0, 0.05, 0.4):
        found = dsel.alternatives(selection, DATA, Y, within=within, sample_weight=weights)
        require_right(found, values, float(M) if weights is None else weights.sum())
    assert {row.size for row in found.subsets} == {k}
    assert next(len(price.columns) for price in found.columns if price.label == "city") == 5


def test_included_groups_are_in_every_set_and_excluded_ones_have_no_verdict() -> None:
    selection = dsel.select(DATA, Y, k=3, include=["color"], exclude=["c"])
    found = dsel.alternatives(selection, DATA, Y, within=0.2)
    others = [name for name in GROUPS if name not in ("color", "c")]
    values = {("color", *S): error_of(("color", *S), 0.0, None) for S in combinations(others, 2)}
    require_right(found, values, error_of(("color",), 0.0, None))
    assert list(found.verdicts) == others
    assert found.size == 3
    color = set(selection.groups["color"])  # its two columns depend on each other
    assert len(color) == 2
    assert all(color <= set(row.indices) for row in found.subsets)
    assert all(color <= set(price.with_column) & set(price.without_column) for price in found.columns)
    assert "color, a, city" in render_alternatives(selection.with_alternatives(found))


def test_each_size_has_its_own_list_and_a_number_may_be_asked_for() -> None:
    selection = dsel.select(DATA, Y, k=3)
    found = dsel.alternatives(selection, DATA, Y, sizes="all", within=0.1)
    for size, one in found.by_size.items():
        require_right(one, {S: error_of(S, 0.0, None) for S in combinations(GROUPS, size)}, float(M))
    best = dsel.alternatives(selection, DATA, Y, nbest=4)
    values = sorted(error_of(S, 0.0, None) for S in combinations(GROUPS, 3))
    assert [row.error for row in best.subsets] == pytest.approx(values[:4])


@pytest.mark.parametrize("seed", range(6))
def test_prices_and_verdicts_count_every_set_of_at_most_k_groups_where_one_follows_from_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = DATA[["a", "b", "city", "color"]].sample(frac=1, axis=1, random_state=seed)
    kinds = dict(zip(["ulm", "kiel", "bonn", "jena", "trier"], rng.permutation(["n", "n", "s", "s", "w"]), strict=True))
    data = data.assign(country=data["city"].map(kinds), town=data["city"].str.upper())
    y, k = Y + rng.normal() * data["b"].to_numpy(), 6 if seed == 0 else int(rng.integers(2, 5))
    Z = {name: pd.get_dummies(data[[name]]).to_numpy(float) for name in data}

    def error(names: tuple[str, ...]) -> float:
        X = np.hstack([np.ones((M, 1)), *(Z[name] for name in names)])
        return M * float(np.square(y - X @ np.linalg.lstsq(X, y, rcond=1e-9)[0]).sum() / np.square(y - y.mean()).sum())

    values = {S: error(S) for size in range(k + 1) for S in combinations(data.columns, size)}
    found = dsel.alternatives(dsel.select(data, y, k=k), data, y, within=0.2, limit=100)
    limit = min(values.values()) + 0.2 * (M - min(values.values())) + 1e-9
    near = [set(S) for S, f in values.items() if f <= limit]
    assert found.complete
    assert {names_of(found, row.indices) for row in found.subsets} == {frozenset(S) for S in near if len(S) == k}
    for name, price in found.prices.items():
        having = sum(name in S for S in near)
        assert price.verdict == {0: "useless", len(near): "necessary"}.get(having, "replaceable")
        least = [min(f for S, f in values.items() if (name in S) == inside) for inside in (True, False)]
        assert price.bound_with <= least[0] + 1e-7
        assert price.bound_without <= least[1] + 1e-7
        assert (price.error_with, price.error_without) == pytest.approx(least)


def test_the_reliance_is_what_leaving_a_group_out_costs() -> None:
    found = dsel.alternatives(dsel.select(DATA, Y, k=2), DATA, Y, within=0.3)
    for price in found.columns:
        sets = [tuple(names_of(found, row.indices)) for row in found.subsets]
        losses = [
            (error_of(tuple(name for name in S if name != price.label), 0.0, None) - error_of(S, 0.0, None)) / M
            for S in sets
            if price.label in S
        ]
        assert price.reliance == (None if not losses else pytest.approx((min(losses), max(losses)), abs=1e-9))


def test_text_pictures_report_and_file_name_the_groups(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    selection = dsel.select(DATA, Y, k=3)
    kept = selection.with_alternatives(dsel.alternatives(selection, DATA, Y, within=0.05))
    found = kept.alternatives
    assert found is not None
    near = f"{len(found.subsets)} subsets of 3 groups of columns within 5.00% of the best, no others (proved)"
    assert f"Alternatives: {near}" in render(kept)
    lines = render_alternatives(kept).splitlines()
    assert lines[1].split() == ["error", "R2", "groups"]
    assert lines[2].endswith("a, city, day")
    assert any(line.split()[:2] == ["city", "necessary"] for line in lines)
    assert "Groups: " in render_alternatives(kept)
    for draw in (kept.plot.alternatives, kept.plot.prices, kept.plot.reliance):
        assert "city" in [label.get_text() for label in draw().get_yticklabels()]
    page = kept.report(tmp_path / "report.html").read_text()
    assert f"There are {near}" in page
    assert "What subsets lose without a group" in page
    kept.save(tmp_path / "kept")
    opened = dsel.open_selection(tmp_path / "kept")
    assert opened.alternatives == found
    city = next(row for row in found.as_dict()["columns"] if row["label"] == "city")
    assert (city["columns"], city["index"]) == ((3, 4, 5, 6, 7), 3)


def test_two_results_are_compared_by_the_verdicts_on_groups() -> None:
    both = [dsel.select(DATA, Y, k=k) for k in (1, 2)]
    first, second = (one.with_alternatives(dsel.alternatives(one, DATA, Y, within=0.0)) for one in both)
    found = compare_selections(first, second)
    assert found.verdicts["city"] == ("useless", "necessary")
    assert any("1 group within 0.00% and 2 groups within 0.00% of the best" in note for note in found.notes)


def test_a_selector_lists_groups() -> None:
    selector = SubsetSelector(n_features_to_select=2, alternatives=0.05).fit(DATA, Y)
    assert selector.alternatives_.verdicts["city"] == "necessary"


def test_an_unfinished_proof_claims_only_what_it_proved() -> None:
    selection = dsel.select(DATA, Y, k=3, method="forward")
    budget = ProofBudget(nodes=1, near_best=ListLimits(within=0.3))
    found = certify_selection(as_dataset(DATA, Y), selection.request, selection, budget).alternatives
    values = {S: error_of(S, 0.0, None) for S in combinations(GROUPS, 3)}
    assert found is not None
    assert not found.complete
    whole = dsel.alternatives(selection, DATA, Y, within=0.3)
    for price in found.columns:
        assert price.verdict in ("undecided", whole.verdicts[price.label])
        assert price.bound_with <= min(f for S, f in values.items() if price.label in S) + 1e-7
        assert price.bound_without <= min(f for S, f in values.items() if price.label not in S) + 1e-7


def test_what_there_is_for_columns_only_is_refused() -> None:
    selection = dsel.select(DATA, Y, k=2)
    with pytest.raises(OptionError, match=r'by: there is none for groups of columns.*categories="columns"'):
        dsel.alternatives(selection, DATA, Y, nbest=3, by="bic")
