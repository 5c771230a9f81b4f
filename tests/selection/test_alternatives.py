"""`dsel.alternatives`: all near-best subsets, with verdicts and prices, compared with those found by trying all."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.config.job import ListLimits
from dsel.data.as_dataset import as_dataset
from dsel.errors import CapacityError, DataError, DselError, OptionError
from dsel.jobs import certify
from dsel.objective.objective_interface import MOST_DENSE
from dsel.search.anytime import OutOfTime
from dsel.search.exact.proof import Proof
from dsel.selection.render import render, render_alternatives
from dsel.selection.results.compare import compare_selections
from tests.datasets import load

RNG = np.random.default_rng(4)
N, K = 9, 3
X = RNG.standard_normal((40, N)) @ (np.eye(N) + RNG.standard_normal((N, N)) / 2)
Y = X[:, :4] @ RNG.standard_normal(4) + 2 * RNG.standard_normal(40)


def every_subset(size: int = K, Y: Any = Y, lam: float = 0.0) -> dict[tuple[int, ...], float]:
    """f of each subset of some size, best first."""
    A = (X - X.mean(0)) / X.std(0)
    B = A if Y is None else ((Y - Y.mean(0)) / Y.std(0)).reshape(len(X), -1)
    found = {}
    for S in combinations(range(N), size):
        part = np.vstack([A[:, S], np.sqrt(lam) * np.eye(size)])
        target = np.vstack([B, np.zeros((size, B.shape[1]))])
        found[S] = float(np.sum((target - part @ np.linalg.lstsq(part, target, rcond=None)[0]) ** 2))
    return dict(sorted(found.items(), key=lambda item: item[1]))


def require_right(found: dsel.Alternatives, values: dict[tuple[int, ...], float], total: float) -> None:
    """Compare what is known with the values of all subsets of the size."""
    best = min(values.values())
    near = {S: f for S, f in values.items() if f <= best + found.within * (total - best) + 1e-9}
    assert {tuple(sorted(row.indices)): row.error for row in found.subsets} == pytest.approx(near)
    assert (found.complete, found.more, found.proven) == (True, False, True)
    assert found.best_error == pytest.approx(best)
    for price in found.columns:
        has = {price.index in S for S in near}
        assert price.verdict == {(True,): "necessary", (False,): "useless"}.get(tuple(has), "replaceable")
        inside = min(f for S, f in values.items() if price.index in S)
        outside = min(f for S, f in values.items() if price.index not in S)
        assert price.bound_with <= inside + 1e-9
        assert price.bound_without <= outside + 1e-9
        assert price.error_with >= inside - 1e-9
        assert price.error_without >= outside - 1e-9
        assert values[tuple(sorted(price.with_column))] == pytest.approx(price.error_with)
        assert values[tuple(sorted(price.without_column))] == pytest.approx(price.error_without)


@pytest.mark.parametrize("within", [0.0, 0.01, 0.05, 0.2])
def test_all_near_best_subsets_are_listed(within: float) -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K), X, Y, within=within)
    assert found.within == within
    require_right(found, every_subset(), 40.0)


@pytest.mark.parametrize(
    ("how", "targets", "total"),
    [
        ({"lam": 3.0}, Y, 40.0), ({"method": "forward"}, None, 40.0 * N),
        ({}, np.column_stack([Y, X[:, 0] - X[:, 5]]), 80.0),
    ],
)  # fmt: skip
def test_a_penalty_several_targets_and_the_data_themselves(how: dict[str, Any], targets: Any, total: float) -> None:
    found = dsel.alternatives(dsel.select(X, targets, k=K, **how), X, targets, within=0.08)
    assert len(found.subsets) > 1
    require_right(found, every_subset(Y=targets, lam=how.get("lam", 0.0)), total)


def test_included_columns_are_in_every_subset_and_excluded_ones_have_no_verdict() -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K, include=[4], exclude=[0]), X, Y, within=0.2)
    near = {S: f for S, f in every_subset().items() if 4 in S and 0 not in S}
    require_right(found, near, 40.0)
    assert found.size == K
    assert set(found.verdicts) == {f"x{j}" for j in (1, 2, 3, 5, 6, 7, 8)}


def test_the_table_has_a_row_for_each_subset_best_first() -> None:
    values = {S: f for S, f in every_subset().items() if 4 in S}
    found = dsel.alternatives(dsel.select(X, Y, k=K, include=[4]), X, Y, within=0.2)
    table = found.to_frame()
    assert list(table) == ["columns", "error", "r2", "lost"]
    assert list(table.index) == list(range(1, len(found.subsets) + 1))
    assert all(labels[0] == "x4" for labels in table["columns"])
    numbered = [tuple(sorted(int(label[1:]) for label in labels)) for labels in table["columns"]]
    assert numbered == list(values)[: len(table)]
    assert table["error"].tolist() == pytest.approx(list(values.values())[: len(table)])
    explained = (40.0 - table["error"]) / 40.0
    assert table["r2"].tolist() == pytest.approx(explained.tolist())
    assert table["lost"].tolist() == pytest.approx((1.0 - explained / explained[1]).tolist())
    assert 0.0 == table["lost"][1] < table["lost"].max() <= 0.2
    assert dsel.Alternatives.from_dict(json.loads(json.dumps(found.as_dict()))).to_frame().equals(table)


def test_the_table_by_a_criterion_has_its_values() -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K), X, Y, by="bic", nbest=4)
    assert found.to_frame()["criterion"].tolist() == [row.criterion for row in found.subsets]


def test_print_names_the_columns_of_each_verdict_and_a_notebook_shows_the_table() -> None:
    frame = pd.DataFrame(X, columns=[f"<{j}>" for j in range(N)])
    found = dsel.alternatives(dsel.select(frame, Y, k=K), frame, Y, within=0.05)
    first, *verdicts = str(found).splitlines()
    assert first == found.lines()[0]
    assert verdicts == [
        f"{len(found.labels(verdict))} {verdict}: {', '.join(found.labels(verdict))}"
        for verdict in ("necessary", "replaceable", "useless") if found.labels(verdict)
    ]  # fmt: skip
    page = found._repr_html_()
    assert page.count("<tr") == 2 + len(found.subsets)  # two rows of heads
    assert "&lt;0&gt;" in page
    assert "<0>" not in page


@pytest.mark.parametrize("within", [0.01, 0.05, 0.3, 0.9])
@pytest.mark.parametrize(
    ("how", "targets", "total"),
    [
        ({}, Y, 40.0), ({"lam": 3.0}, Y, 40.0), ({"method": "forward"}, None, 40.0 * N),
        ({}, np.column_stack([Y, X[:, 0] - X[:, 5]]), 80.0),
    ],
)  # fmt: skip
def test_what_included_columns_explain_counts(within: float, how: dict[str, Any], targets: Any, total: float) -> None:
    values = {S: f for S, f in every_subset(Y=targets, lam=how.get("lam", 0.0)).items() if {0, 1} <= set(S)}
    selection = dsel.select(X, targets, k=K, include=[0, 1], **how)
    found = dsel.alternatives(selection, X, targets, within=within)
    require_right(found, values, total)
    best = found.r2(found.best_error)
    assert all(found.r2(row.error) >= (1.0 - within) * best - 1e-12 for row in found.subsets)
    some = dsel.alternatives(selection, X, targets, nbest=3)
    least = sorted(values.values())[2]
    assert some.within == pytest.approx((least - found.best_error) / (total - found.best_error))


def test_what_included_columns_explain_by_a_loss_counts() -> None:
    selection = dsel.select(X, Y > 0, k=2, include=[0], loss="logistic", lam=0.5)
    errors = {j: dsel.select(X, Y > 0, k=2, include=[0, j], loss="logistic", lam=0.5).error for j in range(1, N)}
    positive = np.mean(Y > 0)
    null = -2.0 * len(Y) * (positive * np.log(positive) + (1.0 - positive) * np.log(1.0 - positive))
    for within in (0.05, 0.2, 0.5):
        found = dsel.alternatives(selection, X, Y > 0, within=within)
        best = min(errors.values())
        assert found.limit_error == pytest.approx(best + within * (null - best), rel=1e-6)
        near = {j for j, error in errors.items() if error <= found.limit_error}
        assert {max(row.indices) for row in found.subsets} == near


def test_a_saved_list_of_an_earlier_version_has_the_share_of_all_that_is_explained(tmp_path: Path) -> None:
    selection = dsel.select(X, Y, k=K, include=[4])
    found = dsel.alternatives(selection, X, Y, within=0.2)
    beyond = next(f for S, f in every_subset(1).items() if S == (4,)) - found.best_error
    earlier = (found.limit_error - found.best_error) / beyond
    old = replace(found, within=earlier, complete_within=earlier)
    selection.with_alternatives(old).save(tmp_path / "old")
    opened = dsel.open_selection(tmp_path / "old").alternatives
    assert opened is not None
    assert (opened.within, opened.complete_within) == pytest.approx((0.2, 0.2))
    assert replace(opened, within=found.within, complete_within=found.complete_within) == found


def test_a_number_of_best_subsets_may_be_asked_for() -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K), X, Y, nbest=5)
    values = list(every_subset().values())
    assert [row.error for row in found.subsets] == pytest.approx(values[:5])
    assert found.within == pytest.approx((values[4] - values[0]) / (40.0 - values[0]))
    assert (found.complete, found.more) == (True, False)


@pytest.mark.parametrize("rule", [{"nbest": count} for count in range(1, 80, 7)] + [{"within": 0.0123456}])
def test_the_share_in_the_text_separates_the_list_from_all_others(rule: dict[str, Any]) -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K), X, Y, **rule)
    text = str(found).split("%")[0].split("within ")[1]
    best, *_ = values = np.array(list(every_subset().values()))
    assert np.sum((values - best) / (40.0 - best) <= float(text) / 100.0 + 1e-15) == len(found.subsets)
    assert len(text) < 7


def test_a_list_has_others_if_the_next_subset_is_as_good() -> None:
    a, b, _ = np.linalg.qr(RNG.normal(size=(40, 3)) - np.eye(40, 3).mean(axis=0))[0].T
    even = np.column_stack([a + b, a - b])
    found = dsel.alternatives(dsel.select(even, a, k=1, preprocess="none"), even, a, nbest=1)
    assert (found.complete, found.more) == (False, True)
    assert "1 subset of 1 column within 0.00% of the best, and more;" in repr(found)


def test_verdicts_count_subsets_beyond_the_limit() -> None:
    selection = dsel.select(X, Y, k=K)
    part = dsel.alternatives(selection, X, Y, within=0.2, limit=2)
    whole = dsel.alternatives(selection, X, Y, within=0.2)
    values = list(every_subset().values())
    assert [row.error for row in part.subsets] == pytest.approx(values[:2])
    assert part.verdicts == whole.verdicts
    assert (part.complete, part.more) == (False, True)
    assert part.complete_within == pytest.approx((values[2] - values[0]) / (40.0 - values[0]))
    assert "and more; the list is complete within 5.55%" in repr(part)


def test_each_size_has_its_own_list() -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K), X, Y, sizes="all", within=0.05)
    assert list(found.by_size) == [1, 2, 3]
    for size, one in found.by_size.items():
        require_right(one, every_subset(size), 40.0)


def test_the_reliance_is_what_leaving_a_column_out_costs() -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K), X, Y, within=0.05)
    values = every_subset() | every_subset(K - 1)
    for price in found.columns:
        losses = [
            (values[tuple(sorted(set(row.indices) - {price.index}))] - row.error) / 40.0
            for row in found.subsets
            if price.index in row.indices
        ]
        assert price.reliance == (None if not losses else pytest.approx((min(losses), max(losses))))


def test_a_saved_selection_keeps_them(tmp_path: Path) -> None:
    selection = dsel.select(X, Y, k=K)
    assert selection.alternatives is None
    found = dsel.alternatives(selection, X, Y, sizes="all", within=0.05)
    kept = selection.with_alternatives(found)
    kept.save(tmp_path / "kept")
    opened = dsel.open_selection(tmp_path / "kept")
    assert opened.alternatives == found
    assert opened == kept
    assert "Alternatives: 2 subsets of 3 columns within 5.00% of the best, no others (proved)" in str(opened)
    assert found.prices["x0"].verdict == found.verdicts["x0"] == "necessary"
    assert found.labels("necessary") == ["x0", "x2"]


def test_an_unfinished_proof_claims_only_what_it_proved() -> None:
    selection = dsel.select(X, Y, k=K, method="forward")
    budget = certify.ProofBudget(nodes=1, near_best=ListLimits(within=0.2))
    found = certify.certify_selection(as_dataset(X, Y), selection.request, selection, budget).alternatives
    values, whole = every_subset(), dsel.alternatives(selection, X, Y, within=0.2)
    assert found is not None
    assert not found.complete
    assert ("; proved complete within" in repr(found)) == bool(found.complete_within)
    assert "within 0.00%" not in repr(found)
    for price in found.columns:
        assert price.verdict in ("undecided", whole.verdicts[price.label])
        assert price.bound_with <= min(f for S, f in values.items() if price.index in S) + 1e-9
        assert price.bound_without <= min(f for S, f in values.items() if price.index not in S) + 1e-9


def test_a_list_of_one_subset_or_of_none_is_in_words() -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=2, method="forward"), X, Y, nbest=1, by="bic")
    size = len(found.subsets[0].indices)
    assert str(found).startswith(f"1 best subset by bic, of {size} columns, no others (proved)")
    few, y = X[:5, :6], Y[:5]  # centered rows: no five columns are independent
    found = dsel.alternatives(dsel.select(few, y, k=5, method="forward"), few, y)
    assert str(found) == "every allowed subset of 5 columns is dependent (proved)"


def test_by_a_loss_the_list_is_of_as_many_columns_as_can_be_chosen() -> None:
    A, y = X[:, :5].copy(), np.exp(X[:, 0] / 4)
    few = dsel.select(A, y, k=5, loss="gamma", exclude=[4], include=[3], lam=1.0, method="forward")
    assert dsel.alternatives(few, A, y).labels("necessary") == ["x0", "x1", "x2"]
    assert [row["size"] for row in dsel.certify(few, A, y, sizes="all").certificate] == [2, 3, 4]
    A[:, 2:] = 1.0
    one = dsel.select(A, y, k=2, loss="gamma", groups=[[0, 1]], include=[0], method="backward")
    assert not any("proves the best subset" in note for note in one.notes)  # there is one alone
    with pytest.raises(OptionError, match="no column can be chosen besides the included ones"):
        dsel.alternatives(one, A, y)


def test_a_list_knows_what_the_certificate_of_the_selection_proves() -> None:
    proved = dsel.certify(dsel.select(X, Y, k=K), X, Y)
    budget = certify.ProofBudget(nodes=1, near_best=ListLimits(within=0.2))
    found = certify.certify_selection(as_dataset(X, Y), proved.request, proved, budget).alternatives
    assert found is not None
    assert not found.complete
    assert found.proven
    assert "neither the list nor its first subset" not in repr(found)
    bound = proved.certificate[-1]["bound"]
    assert min(min(price.bound_with, price.bound_without) for price in found.columns) >= bound


def test_the_example_of_the_documentation() -> None:
    X, Y, _ = load("sonar")
    found = dsel.alternatives(dsel.select(X, Y, k=8, method="forward"), X, Y, seconds=600.0)
    assert (len(found.subsets), found.complete) == (7, True)
    counts = {verdict: len(found.labels(verdict)) for verdict in ("necessary", "replaceable", "useless")}
    assert counts == {"necessary": 2, "replaceable": 15, "useless": 43}


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda s: dsel.alternatives(s, X, Y, within=-0.1), OptionError, "'within' is -0.1"),
        (lambda s: dsel.alternatives(s, X, Y, within=1.0), OptionError, "'within' is 1.0"),
        (lambda s: dsel.alternatives(s, X, Y, within=float("nan")), OptionError, "'within' is nan"),
        (lambda s: dsel.alternatives(s, X, Y, nbest=0), OptionError, "'nbest' is 0"),
        (lambda s: dsel.alternatives(s, X, Y, limit=0), OptionError, "'limit' is 0"),
        (lambda s: dsel.alternatives(s, X, Y, seconds=0.0), OptionError, "'seconds' is 0.0"),
        (lambda s: dsel.alternatives(s, X, Y, sizes="some"), OptionError, "'sizes' is 'some'"),
        (lambda s: dsel.alternatives(s, X, Y, by="bic", nbest=3, sizes="all"), OptionError, "leave sizes out"),
        (lambda s: dsel.stability(X, Y, k=2, reduce={"rank": 3}), DselError, "Leave reduce out"),
        (lambda s: dsel.alternatives(s, X[:, ::-1], Y), DataError, "not the data of the selection"),
        (lambda s: dsel.alternatives("folder", X, Y), OptionError, "selection is a str"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(call: Any, kind: type[DselError], says: str) -> None:
    with pytest.raises(kind, match=says):
        call(dsel.select(X, Y, k=K, method="forward"))


def test_criteria_have_no_alternatives() -> None:
    by_criterion = dsel.select(X, Y, k=1, criterion=lambda S: -sum(S), iterations=50)
    with pytest.raises(OptionError, match="custom criterion"):
        dsel.alternatives(by_criterion, X, Y)
    included = dsel.select(X, Y, k=1, method="forward", include=[3])
    with pytest.raises(OptionError, match="k is 1, and as many columns are included"):
        dsel.alternatives(included, X, Y)


def test_a_proof_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise np.linalg.LinAlgError("not positive definite")

    selection = dsel.select(X, Y, k=K, method="forward")
    kept = selection.with_alternatives(dsel.alternatives(selection, X, Y))
    monkeypatch.setattr(Proof, "run", fail)
    with pytest.raises(CapacityError, match=r"subsets for 3 columns failed .*not positive definite"):
        dsel.alternatives(kept, X, Y)


def test_a_list_of_fewer_columns_is_not_that_of_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = dsel.select(X, Y, k=K, method="forward")
    begin = Proof.begin

    def late(objective: Any, k: int, *args: Any, **options: Any) -> Proof:
        if k == K:
            raise OutOfTime("too late")
        return begin(objective, k, *args, **options)

    monkeypatch.setattr(Proof, "begin", late)
    with pytest.raises(CapacityError) as error:
        dsel.alternatives(selection, X, Y, sizes="all")
    why = "the list of near-best subsets for 3 columns has too little time: too late"
    assert str(error.value) == f"No near-best subset could be listed: {why}. Allow more time."


def test_too_many_columns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify.ProofProblem, "wide", True)
    with pytest.raises(CapacityError, match="Near-best subsets of 9 columns are not listed"):
        dsel.alternatives(dsel.select(X, Y, k=K, method="forward"), X, Y)


@pytest.mark.parametrize(
    ("how", "targets", "total"),
    [
        ({}, Y, 40.0), ({"lam": 3.0}, Y, 40.0), ({"method": "forward", "include": [4]}, Y, 40.0),
        ({"method": "forward"}, None, 40.0 * N),
    ],
)  # fmt: skip
def test_substitutes_are_the_best_swaps(how: dict[str, Any], targets: Any, total: float, tmp_path: Path) -> None:
    selection = dsel.select(X, targets, k=K, **how)
    values = every_subset(Y=targets, lam=how.get("lam", 0.0))
    kept = [j for j in selection.indices if j not in how.get("include", ())]
    found = selection.substitutes()
    assert list(found) == [f"x{j}" for j in kept]
    for j in kept:
        rest = set(selection.indices) - {j}
        swapped = {i: values[tuple(sorted({*rest, i}))] for i in range(N) if i not in selection.indices}
        best = sorted(swapped, key=swapped.__getitem__)[:5]
        assert [one.index for one in found[f"x{j}"]] == best
        assert [one.error for one in found[f"x{j}"]] == pytest.approx([swapped[i] for i in best])
        for one in found[f"x{j}"]:
            assert one.correlation == pytest.approx(np.corrcoef(X[:, j], X[:, one.index])[0, 1])
            least = 1.0 - one.error / total  # a penalty counts as not explained here
            assert one.r2 > least if "lam" in how else one.r2 == pytest.approx(least)
    selection.save(tmp_path / "kept")
    assert dsel.open_selection(tmp_path / "kept").substitutes() == found
    assert "What could replace each column" in render(selection, details=True)


def test_results_without_substitutes_say_why_and_what_helps() -> None:
    frame = pd.DataFrame(X[:, :3], columns=list("abc")).assign(kind=np.where(Y > 0, "high", "low"))
    with pytest.raises(OptionError, match=r'not for groups. Use dsel.alternatives, or .*\(categories="columns"'):
        dsel.select(frame, Y, k=2).substitutes()
    with pytest.raises(OptionError, match=r"not for another loss. Use dsel.alternatives"):
        dsel.select(frame[["a", "b", "c"]], frame["kind"], k=2, loss="logistic").substitutes()


def test_alternatives_prove_that_no_substitute_is_better() -> None:
    selection = dsel.select(X, Y, k=K)
    assert not any(one.proved for several in selection.substitutes().values() for one in several)
    with_lists = selection.with_alternatives(dsel.alternatives(selection, X, Y, within=0.2))
    for label, several in with_lists.substitutes().items():
        without = min(f for S, f in every_subset().items() if int(label[1:]) not in S)
        assert several[0].proved == (abs(several[0].error - without) < 1e-9)
    assert "the best (proved)" in render(with_lists, details=True)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"groups": [[0, 1], [2, 3]], "method": "forward"}, "not for groups"),
        ({"criterion": lambda S: -sum(S), "iterations": 50}, "not for a custom criterion"),
    ],
)
def test_without_substitutes_the_result_says_why(how: dict[str, Any], says: str) -> None:
    selection = dsel.select(X, Y, k=2, **how)
    with pytest.raises(OptionError, match=says):
        selection.substitutes()
    render(selection, details=True)


def test_substitutes_of_many_columns_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsel.selection.alternatives._MOST_SUBSTITUTED", 2)
    with pytest.raises(OptionError, match="no substitutes: k is too large"):
        dsel.select(X, Y, k=K, method="forward").substitutes()


def test_wide_data_have_no_substitutes() -> None:
    wide = np.random.default_rng(0).normal(size=(40, MOST_DENSE + 1))
    with pytest.raises(OptionError, match="no substitutes: the search was as column-blocks, without the Gram matrix"):
        dsel.select(wide, wide[:, 3], k=2, method="forward").substitutes()


def test_a_comparison_says_whose_verdict_differs() -> None:
    a = dsel.select(X, Y, k=K)
    b = dsel.select(X[:30], Y[:30], k=K)
    first, second = dsel.alternatives(a, X, Y, within=0.05), dsel.alternatives(b, X[:30], Y[:30], within=0.05)
    assert compare_selections(a, b.with_alternatives(second)).verdicts == {}
    found = compare_selections(a.with_alternatives(first), b.with_alternatives(second))
    differ = {label for label, verdict in first.verdicts.items() if verdict != second.verdicts[label]}
    assert differ
    assert found.verdicts == {label: (first.verdicts[label], second.verdicts[label]) for label in differ}
    assert f"Other verdicts ({len(differ)}): " in found.render()
    assert not any("verdicts" in note for note in found.notes)
    wider = dsel.alternatives(a, X, Y, within=0.2)
    found = compare_selections(a.with_alternatives(first), a.with_alternatives(wider))
    assert "the verdicts are about other subsets: 3 columns within 5.00% and 3 columns within 20.00%" in found.render()


CRITERIA = {
    "aic": lambda m, rss, s, full, total: m * np.log(rss / m) + 2 * s,
    "bic": lambda m, rss, s, full, total: m * np.log(rss / m) + s * np.log(m),
    "cp": lambda m, rss, s, full, total: rss / (full / (m - 8)) - m + 2 * (s + 1),
    "adjusted-r2": lambda m, rss, s, full, total: (rss / (m - s - 1)) / (total / (m - 1)) - 1,
}


@pytest.mark.parametrize("by", CRITERIA)
def test_the_best_subsets_by_a_criterion_are_those_of_enumeration(by: Any) -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((40, 7))
    y = X[:, :3] @ np.array([1.0, -1.0, 0.7]) + 2.0 * rng.standard_normal(40)
    found = dsel.alternatives(dsel.select(X, y, k=3, method="forward"), X, y, nbest=12, by=by)
    Z, t = X - X.mean(axis=0), (y - y.mean()) / y.std()

    def rss(S: tuple[int, ...]) -> float:
        return float(np.square(t - Z[:, S] @ np.linalg.lstsq(Z[:, S], t, rcond=None)[0]).sum()) if S else float(t @ t)

    full = rss(tuple(range(7)))
    every = [S for s in range(8) for S in combinations(range(7), s)]
    best = sorted((CRITERIA[by](40, rss(S), len(S), full, float(t @ t)), S) for S in every)[:12]
    assert found.complete
    assert [tuple(sorted(row.indices)) for row in found.subsets] == [S for _, S in best]
    assert [row.criterion for row in found.subsets] == pytest.approx([value for value, _ in best])
    for j in range(7):
        having = [j in S for _, S in best]
        expected = "necessary" if all(having) else "replaceable" if any(having) else "useless"
        assert found.verdicts[f"x{j}"] == expected


def test_a_criterion_needs_a_number_of_subsets_and_no_penalty() -> None:
    X, y = np.random.default_rng(0).standard_normal((30, 5)), np.arange(30.0)
    with pytest.raises(OptionError, match="say how many in nbest"):
        dsel.alternatives(dsel.select(X, y, k=2, method="forward"), X, y, by="bic")
    with pytest.raises(OptionError, match="without a penalty"):
        dsel.alternatives(dsel.select(X, y, k=2, method="forward", lam=1.0), X, y, nbest=3, by="bic")


def test_lost_is_negative_where_a_subset_explains_more_than_the_best_by_a_criterion() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 6))
    y = X[:, 0] + rng.normal(size=50)
    table = dsel.alternatives(dsel.select(X, y, k=1), X, y, nbest=9, by="bic").to_frame()
    explained = table["r2"] / table["r2"].iloc[0]
    assert table["lost"].to_numpy() == pytest.approx((1 - explained).to_numpy())
    assert (table["lost"] < 0).any()


def test_a_comparison_of_groups_is_short_and_says_what_slices_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 40))
    y = X[:, 0] + rng.normal(size=60)
    few, many = ({f"group {j}": list(range(j, 40, size)) for j in range(size)} for size in (4, 20))
    compared = compare_selections(*(dsel.select(X, y, k=2, groups=groups) for groups in (few, many)))
    assert "group 0 (10), group 1 (10), group 2 (10) and 1 more" in compared.render()
    assert "group 0 (2), group 1 (2), group 2 (2) and 17 more" in compared.render()
    assert "divide a search into slices, and its result may depend on them" in str(compared.notes)
    assert max(map(len, compared.render().split("note:")[0].splitlines())) < 150


@pytest.mark.parametrize(
    ("complete_within", "proven", "says"),
    [(0.004, True, "proved complete within 0.39% only"), (0.0, True, "only the best subset is proved"),
     (0.0, False, "neither the list nor its first subset is proved yet")],
)  # fmt: skip
def test_an_incomplete_list_says_what_is_proved(complete_within: float, proven: bool, says: str) -> None:
    found = dsel.alternatives(dsel.select(X, Y, k=K, method="forward"), X, Y, within=0.05)
    part = replace(found, complete=False, more=False, complete_within=complete_within, proven=proven)
    assert repr(part).split("; ")[1] == says


def test_a_comparison_shows_of_a_rule_what_differs_from_the_defaults() -> None:
    a = dsel.select(X, Y, k="auto", max_k=3, choose_k="bic")
    b = dsel.select(X, Y, k="auto", max_k=3, choose_k={"folds": 3, "split": "blocks"})
    compared = compare_selections(a, b)
    (line,) = (line for line in compared.render().splitlines() if line.startswith("choose_k"))
    assert line.split(maxsplit=1)[1].split("  ") == ["by bic", "by folds, folds 3, split blocks"]
    assert "gap" in compared.as_dict()["options"]["choose_k"][0]
    (line,) = (x for x in compare_selections(a, dsel.select(X, Y, k=2)).render().splitlines() if x.startswith("choose"))
    assert line.split() == ["choose_k", "by", "bic", "-"]


def test_a_list_says_that_the_selection_is_not_on_it() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 80))
    data = np.column_stack([a + b + 0.3 * rng.normal(size=80), a, b, rng.normal(size=(80, 3))])
    y = a + b + 0.01 * rng.normal(size=80)  # forward begins with the first column
    missed = dsel.select(data, y, k=2, method="forward")
    found = dsel.alternatives(missed, data, y)
    assert found.selected_error == missed.error > found.limit_error
    shares = f"it explains {missed.r2:.4%}, the best listed subset {found.subsets[0].r2:.4%}"
    says = f"the selection itself is not listed: {shares}; dsel.certify takes better columns"
    assert str(found).splitlines()[-1] == says
    assert says in found._repr_html_()
    kept = missed.with_alternatives(found)
    assert f"Alternatives: {says}" in render(kept)
    assert says[1:] in render_alternatives(kept)
    assert dsel.Alternatives.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    better = dsel.certify(kept, data, y)
    assert better.alternatives.selected_error is None
    assert "not listed" not in render(better)
    assert better.with_alternatives(found).alternatives.selected_error is None
    assert dsel.alternatives(better, data, y).selected_error is None
    by = dsel.alternatives(missed, data, y, by="bic", nbest=2)
    assert str(by).splitlines()[-1] == "the selection itself is not listed"


@pytest.mark.parametrize("how", [{"loss": "huber"}, {"lam": 2.0}, {"groups": [[0, 3], [1], [2]]}])
def test_a_selection_is_compared_with_the_list_by_what_it_minimizes(how: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 80))
    data = np.column_stack([a + b + 0.3 * rng.normal(size=80), a, b, rng.normal(size=80)])
    y = a + b + 0.01 * rng.normal(size=80)
    without = dsel.select(data, y, k=2, method="forward", exclude=[2], **how)
    missed = replace(without, request=without.request.model_copy(update={"exclude": ()}))
    found = dsel.alternatives(missed, data, y)
    assert found.selected_error == missed.error
    assert f"the best listed subset {found.r2(found.best_error):.4%}" in str(found)
    best = dsel.certify(missed, data, y)
    assert dsel.alternatives(best, data, y).selected_error is None


def test_nothing_is_printed_where_no_column_explains_anything(capfd: pytest.CaptureFixture[str]) -> None:
    """LAPACK printed that an argument was wrong."""
    X, y = np.array([[1.0, -1.0] * 4, [1.0, 1.0, -1.0, -1.0] * 2]).T, np.repeat([0.0, 1.0], 4)
    found = dsel.alternatives(dsel.select(X, y, k=1, loss="logistic", progress=False), X, y, progress=False)
    assert len(found.subsets) == 2
    assert capfd.readouterr() == ("", "")


def test_what_rounding_may_be_worth_is_subtracted_from_bounds_and_leaves_verdicts_open() -> None:
    rng = np.random.default_rng(2)
    near = rng.normal(size=(60, 8))
    near[:, 5] = near[:, 2] + 4e-4 * rng.normal(size=60)
    y = near[:, 2] + near[:, 4] + 0.7 * near[:, 7] + rng.normal(size=60)
    chosen = dsel.certify(dsel.select(near, y, k=3, near_copies="keep"), near, y)
    (proof,) = chosen.certificate
    found = dsel.alternatives(chosen, near, y, within=0.2)
    total, rounding = found.total, proof["rounding_error"] * found.total
    assert "no others (proved to " in str(found)
    assert 1e-7 < proof["rounding_error"] < 1e-6
    for price in found.columns:
        assert price.bound_with == pytest.approx(min(price.error_with, found.limit_error) - rounding, abs=rounding / 2)
    price = found.prices["x0"]
    for beyond, verdict in ((-0.5, "replaceable"), (0.5, "undecided"), (1.5, "useless")):
        within = (price.error_with - beyond * rounding - found.best_error) / (total - found.best_error)
        listed = dsel.alternatives(chosen, near, y, within=within)
        assert listed.complete
        assert listed.verdicts["x0"] == verdict
