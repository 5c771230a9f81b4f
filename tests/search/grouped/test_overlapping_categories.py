"""Proofs where categories overlap: a second spelling, a coarser or a finer category, next to independent columns."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import dsel


def study(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A clinic under two names, its land, and in some studies finer and coarser categories."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(60, 200))
    frame = pd.DataFrame(
        {"age": rng.normal(50, 9, m), "bmi": rng.normal(26, 4, m), "clinic": rng.choice(list("ABCDEF"), m)}
    )
    frame["clinic_name"] = frame["clinic"].str.lower() + "x"
    frame["land"] = frame["clinic"].map(dict(zip("ABCDEF", ["BY", "HE", "NRW"] * 2, strict=True)))
    if seed % 2:
        frame["ward"] = rng.choice(list("uvw"), m)
        frame["clinic_and_ward"] = frame["clinic"] + frame["ward"]
        frame["south"] = frame["land"].eq("BY").map({True: "yes", False: "no"})
    effects = frame["clinic"].map({name: rng.normal() for name in "ABCDEF"})
    return frame, (0.1 * rng.normal() * frame["age"] + effects + rng.normal(size=m)).to_numpy()


def error(frame: pd.DataFrame, y: np.ndarray, names: tuple[str, ...]) -> float:
    """f of the standardized columns of some columns of the frame, by least squares on the rows."""
    Z = pd.get_dummies(frame[list(names)]).to_numpy(float)
    Z, t = (Z - Z.mean(axis=0)) / Z.std(axis=0), (y - y.mean()) / y.std()
    return float(np.square(t - Z @ np.linalg.lstsq(Z, t, rcond=1e-10)[0]).sum())


@pytest.mark.parametrize("included", [(), ("land",), ("clinic",)])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_proofs_are_optimal_where_categories_overlap(seed: int, k: int, included: tuple[str, ...]) -> None:
    frame, y = study(seed)
    least = min(error(frame, y, S) for S in combinations(frame.columns, k) if set(included) <= set(S))
    found = dsel.select(frame, y, k=k, include=list(included))
    certified = dsel.certify(found, frame, y)
    (proof,) = certified.certificate
    assert (proof["status"], proof["near_copies"]) == ("optimal", [])
    assert proof["rounding_error"] < 1e-8
    assert certified.error == pytest.approx(least, abs=1e-9 * len(y))
    assert proof["bound"] <= least + 1e-10 * len(y)
    listed = dsel.alternatives(found, frame, y)
    assert listed.proven
    assert listed.subsets[0].error == pytest.approx(least, abs=1e-9 * len(y))


def test_groups_with_nearly_dependent_columns_are_named_and_only_where_they_are_chosen_together() -> None:
    frame, y = study(0)
    noise = np.random.default_rng(1).normal(size=(2, len(frame)))
    frame["age_again"] = frame["age"] + 1e-4 * noise[0]
    frame["both"] = frame["age"] / 9 + frame["bmi"] / 4 + 1e-5 * noise[1]
    named = []
    for k in (1, 2, 3):
        found = dsel.certify(dsel.select(frame, y, k=k, near_copies="keep"), frame, y)
        (proof,) = found.certificate
        named.append([{found.label(j) for j in columns} for columns in proof["near_copies"]])
        assert proof["status"] == ("optimal-except-near-copies" if named[-1] else "optimal")
        assert proof["rounding_error"] < 1e-8
    pair, three = {"age", "age_again"}, [{"age", "bmi", "both"}, {"age_again", "bmi", "both"}]
    assert named[:2] == [[], [pair]]
    assert named[2][0] == pair
    assert all(columns in named[2] for columns in three)


def test_a_proof_that_cannot_look_at_all_sets_of_groups_says_so() -> None:
    frame, y = study(0)
    numbers = pd.DataFrame(np.random.default_rng(2).normal(size=(len(frame), 28)), columns=[f"x{i}" for i in range(28)])
    frame = pd.concat([frame, numbers], axis=1)
    certified = dsel.certify(dsel.select(frame, y, k=4), frame, y, seconds=2)
    assert certified.certificate[-1]["status"] != "optimal"
    assert "there are too many sets of groups to compare" in str(certified)
