"""`dsel.certify`: certificates of a selection made in Python."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import dsel
from dsel.errors import DataError, DselError, OptionError
from dsel.objective.objective_interface import MOST_DENSE
from dsel.planning.representations import choice

RNG = np.random.default_rng(4)
X = RNG.standard_normal((40, 9)) @ (np.eye(9) + RNG.standard_normal((9, 9)) / 2)
Y = X[:, :4] @ RNG.standard_normal((4, 2)) + 2 * RNG.standard_normal((40, 2))
WEIGHTS = RNG.uniform(0.5, 2.0, 40)


def least_error(size: int) -> float:
    """The least error of any subset of some size, by trying all."""
    A, B = ((Z - Z.mean(0)) / Z.std(0) for Z in (X, Y))
    return min(
        float(np.sum((B - A[:, S] @ np.linalg.lstsq(A[:, S], B, rcond=None)[0]) ** 2))
        for S in map(list, combinations(range(9), size))
    )


def test_each_size_is_proved() -> None:
    certified = dsel.certify(dsel.select(X, Y, k=3, method="omp"), X, Y, sizes="all")
    assert [row["size"] for row in certified.certificate] == [1, 2, 3]
    for row in certified.certificate:
        assert row["proven"]
        assert row["value"] == pytest.approx(least_error(row["size"]))
        assert row["bound"] == pytest.approx(row["value"])
    assert certified.error == pytest.approx(least_error(3))


def test_sizes_of_few_subsets_are_proved_however_short_the_time_is() -> None:
    certified = dsel.certify(dsel.select(X, Y, k=3, method="omp"), X, Y, sizes="all", seconds=1e-9)
    assert [row["proven"] for row in certified.certificate] == [True, True, True]


@pytest.mark.parametrize(
    "how",
    [
        {}, {"lam": 2.0}, {"include": [5]}, {"exclude": [2]}, {"method": "greedy-rls", "lam": 1.0}, {"k": "auto"},
        {"groups": [[0, 1, 2], [3, 4], [5, 6, 7, 8]], "k": 2}, {"preprocess": "center"}, {"method": "lasso"},
    ],
)  # fmt: skip
def test_the_request_says_how_to_read_the_data(how: dict[str, Any]) -> None:
    y = Y[:, :1]
    found = dsel.certify(dsel.select(X, y, **{"k": 3, **how}), X, y)
    assert found.certificate[-1]["proven"]
    assert found.error == pytest.approx(found.certificate[-1]["value"])


@pytest.mark.parametrize("targets", [1, 5])
def test_many_columns_that_explain_everything_need_no_gram_matrix(targets: int) -> None:
    wide = np.random.default_rng(3).normal(size=(30, MOST_DENSE + 1))
    several = wide[:, :targets] + np.random.default_rng(4).normal(size=(30, targets))
    selection = dsel.select(wide, several, k=4, method="forward", preprocess="none")
    (proof,) = dsel.certify(selection, wide, several).certificate
    rest = np.linalg.eigvalsh(several.T @ several)[:-4].sum() if targets > 4 else 0.0
    assert proof["bound"] == pytest.approx(rest, abs=1e-9 * proof["total"])
    assert (proof["nodes"], proof["passes"]) == (0, 0)
    assert proof["bound"] < proof["value"] < proof["total"]


@pytest.mark.parametrize(("included", "sizes"), [([4, 7, 9], "chosen"), ([], "all")])
def test_few_of_many_columns_are_compared_with_all_others(
    monkeypatch: pytest.MonkeyPatch, included: list[int], sizes: Any
) -> None:
    monkeypatch.setattr(choice, "MOST_DENSE", 100)
    monkeypatch.setattr(choice, "_MOST_TRIED", 200)
    wide, y = np.random.default_rng(3).normal(size=(30, 120)), np.random.default_rng(4).normal(size=30)
    selection = dsel.select(wide, y, k=4, method="forward", include=included)
    found = {proof["size"]: proof for proof in dsel.certify(selection, wide, y, sizes=sizes, nodes=10).certificate}
    assert found[min(found)]["proven"]


def test_dependent_subsets_within_a_limit_for_coefficients_are_excluded_from_the_certificate() -> None:
    share, part, rng = 5e-8, 1e-2, np.random.default_rng(0)
    wide = rng.standard_normal((60, 160))
    wide /= np.linalg.norm(wide, axis=0)
    other = rng.standard_normal(60)
    other -= wide[:, 0] * (wide[:, 0] @ other)
    other /= np.linalg.norm(other)
    wide[:, 1] = wide[:, 0] * np.sqrt(1.0 - share) + np.sqrt(share) * other
    y = wide[:, 0] + part * other  # the first two columns explain all of it
    selection = dsel.select(wide, y, k=2, method="forward", preprocess="none", near_copies="keep")
    certified = dsel.certify(selection, wide, y, coefficient_limit=20_000, nodes=50)  # what is excluded needs no tree
    (proof,) = certified.certificate
    assert proof["value"] - proof["dependent_gap"] * proof["total"] <= 0.0
    assert "These columns are nearly dependent: x0 and x1." in str(certified)


def test_dask_arrays_and_weights() -> None:
    selection = dsel.select(X, Y, k=3, sample_weight=WEIGHTS)
    chunked = (da.from_array(X, chunks=(10, 9)), da.from_array(Y, chunks=(10, 2)))
    assert dsel.certify(selection, *chunked, sample_weight=WEIGHTS).certificate[-1]["proven"]
    for proof in (dsel.certify, dsel.alternatives):
        with pytest.raises(OptionError, match=r"made with weights\. Give them again as sample_weight"):
            proof(selection, *chunked)
    with pytest.raises(DataError, match="not the data of the selection"):
        dsel.certify(selection, *chunked, sample_weight=WEIGHTS[::-1])


def test_weights_that_were_a_column_of_the_frame_are_asked_for() -> None:
    frame = pd.DataFrame(X).add_prefix("x").assign(y=Y[:, 0], w=WEIGHTS)
    selection = dsel.select(frame, "y", k=2, sample_weight="w")
    for proof in (dsel.certify, dsel.alternatives):
        with pytest.raises(OptionError, match=r'made with weights\. .* such as sample_weight="w"'):
            proof(selection, frame, "y")
    assert dsel.certify(selection, frame, "y", sample_weight="w").certificate[-1]["proven"]


def test_columns_for_the_data_themselves() -> None:
    assert dsel.certify(dsel.select(X, k=3), X).certificate[-1]["proven"]


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda s: dsel.certify("folder", X, Y), OptionError, "selection is a str"),
        (lambda s: dsel.certify(s, X[:, :8], Y), DataError, "X has 8 columns, and the selection was made from 9"),
        (lambda s: dsel.certify(s, X[:, ::-1], Y), DataError, "not the data of the selection"),
        (lambda s: dsel.certify(s, X, Y, seconds=0.0), OptionError, "'seconds' is 0.0"),
        (lambda s: dsel.certify(s, X, Y, nodes=0), OptionError, "'nodes' is 0"),
        (lambda s: dsel.certify(s, X, Y, sizes="some"), OptionError, "'sizes' is 'some'"),
        (lambda s: dsel.certify(s, X, Y, coefficient_limit=0.5), OptionError, "'coefficient_limit' is 0.5"),
        (lambda s: dsel.certify(s, X, Y, coefficient_limit=np.inf), OptionError, "'coefficient_limit' is inf"),
        (lambda s: dsel.certify(s, X, Y, coefficient_limit=2.0), OptionError, "2 targets"),
    ],
)  # fmt: skip
def test_what_cannot_be_certified_is_refused(call: Any, kind: type[DselError], says: str) -> None:
    selection = dsel.select(X, Y, k=3)
    with pytest.raises(kind, match=says):
        call(selection)


def test_a_custom_criterion_has_no_certificate() -> None:
    selection = dsel.select(X, Y, k=1, method="poss", criterion=lambda S: -sum(S), iterations=50)
    with pytest.raises(OptionError, match=r"no certificate\. Select by the squared error, or by a loss"):
        dsel.certify(selection, X, Y)
    with pytest.raises(OptionError, match="no list of near-best subsets"):
        dsel.alternatives(selection, X, Y)


@pytest.mark.parametrize("method", ["greedy-rls", "kfold"])
def test_rows_that_were_held_out_take_no_part_in_a_proof(method: str) -> None:
    selection = dsel.select(X, Y, k=2, method=method, held_out=0.3, lam_grid=(0.1, 1.0), sample_weight=WEIGHTS)
    proved = dsel.certify(selection, X, Y, sample_weight=WEIGHTS)
    assert proved.certificate[0]["proven"]
    assert proved.error <= selection.error
    assert dsel.alternatives(selection, X, Y, sample_weight=WEIGHTS).proven


def test_groups_in_memory_that_were_held_out_are_refused() -> None:
    selection = dsel.select(X, Y, k=2, method="kfold", folds=3, held_out=0.3, row_groups=np.arange(40) // 2)
    with pytest.raises(OptionError, match=r"held out groups of rows in memory.*held_out=\(X, Y\)"):
        dsel.certify(selection, X, Y)


def test_notes_are_about_the_columns_that_a_proof_found() -> None:
    A = np.random.default_rng(3).normal(size=(30, 6))
    A[:, 0], y = 1.0, A[:, 1] + A[:, 2] - A[:, 3]
    found = dsel.select(A, y, k=2, method="exchange", preprocess="none", include=[0], restarts=1)
    first = "the proof found these columns: they explain 1.0000%, those of random 0.5000%"
    free = found.request.model_copy(update={"include": ()})
    (note,) = dsel.certify(replace(found, request=free, notes=(*found.notes, first)), A, y).notes
    assert "as the intercept" in found.notes[0]
    assert note.startswith("the proof found these columns: they explain ")
    assert note.endswith(", those of random 0.5000%")


def test_with_a_penalty_a_note_compares_what_the_proof_is_about() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(12, 6))
    y = A @ rng.normal(size=6) + rng.normal(size=12)
    found = dsel.select(A, y, k=2, method="random", lam=20.0, draws=1, seed=1)
    better = dsel.certify(found, A, y)
    assert better.r2 < found.r2  # f counts the penalty
    shares = (1.0 - one.error / 12.0 for one in (better, found))
    said = "the proof found these columns: they explain {:.4%}, those of random {:.4%}, less the penalty"
    assert better.notes[-1] == said.format(*shares)
