"""What a result says where columns are exact sums of others: by squared error, losses, groups and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import dsel
from dsel._lib.types import Floats

RNG = np.random.default_rng(31)
FRAME = pd.DataFrame({"a": RNG.normal(size=120), "b": RNG.normal(size=120)})
FRAME["c"], FRAME["d"] = FRAME.a + FRAME.b, RNG.normal(size=120)
SCORE = FRAME.a.to_numpy() + RNG.normal(size=120)
TARGETS: dict[str, Floats] = {
    "squared": SCORE,
    "poisson": RNG.poisson(np.exp(0.5 * FRAME.a)).astype(float),
    "huber": SCORE,
    "multinomial": np.digitize(SCORE, [-0.5, 0.5]).astype(float),
}
WHY = ["k is 4; 3 columns are chosen, because the other candidates depend on them"]


def selected(loss: str, **options: Any) -> dsel.Selection:
    return dsel.select(FRAME, TARGETS[loss], loss=loss, **options)


@pytest.mark.parametrize("loss", TARGETS)
def test_a_note_says_why_fewer_columns_than_k_are_chosen(loss: str) -> None:
    assert [note for note in selected(loss, k=4).notes if note.startswith("k is")] == WHY
    assert not any(note.startswith("k is") for note in selected(loss, k=3).notes)


def test_the_note_on_the_size_is_true_of_groups_and_sums_and_where_columns_are_excluded() -> None:
    groups = {"first": ["a", "b"], "second": ["c"], "third": ["d"]}
    notes = dsel.select(FRAME, SCORE, k=3, groups=groups).notes
    assert "k is 3; 2 groups of columns are chosen, because the other candidates depend on them" in notes
    assert WHY[0] in dsel.from_sums(dsel.sums(FRAME, SCORE), k=4).notes
    assert "k is 4, but only 3 columns can be chosen" in selected("squared", k=4, exclude=["c"]).notes


@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("method", ["poss", "exchange", "splicing"])
@pytest.mark.parametrize("k", [3, 4])
def test_the_row_of_the_chosen_size_is_the_selection(loss: str, method: str, k: int) -> None:
    found = selected(loss, k=k, method=method)
    assert set(found.front[-1].indices) == set(found.indices)
    assert " <-" in str(dsel.certify(found, FRAME, TARGETS[loss]))


@pytest.mark.parametrize("loss", TARGETS)
def test_lists_have_independent_subsets_alone(loss: str) -> None:
    found = dsel.alternatives(selected(loss, k=3), FRAME, TARGETS[loss], within=0.5)
    assert {frozenset(S) for S in found.to_frame()["columns"]} == {frozenset(S) for S in ("abd", "acd", "bcd")}
    assert found.labels("necessary") == ["d"]
    assert found.complete
    none = dsel.alternatives(selected(loss, k=4), FRAME, TARGETS[loss])
    assert str(none).startswith("every allowed subset of 4 columns is dependent (proved)")
    assert (none.complete, none.verdicts, none.labels("undecided")) == (True, {}, [])
    copies = FRAME[["a", "d"]].assign(a2=2.0 * FRAME.a)
    kept = dsel.select(copies, TARGETS[loss], loss=loss, k=2, near_copies="keep")
    listed = dsel.alternatives(kept, copies, TARGETS[loss], within=0.9).to_frame()["columns"]
    assert {frozenset(S) for S in listed} == {frozenset(("a", "d")), frozenset(("a2", "d"))}
