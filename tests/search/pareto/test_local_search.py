"""Exchange search in a slot ends where no exchange of one column helps."""

from __future__ import annotations

import numpy as np
import pytest

from dsel._lib.kernel_arrays import KernelArrays
from dsel._lib.rng import stream
from dsel.objective.dense import DenseObjective
from dsel.objective.kernels import layout
from dsel.objective.kernels.layout import SubsetTables
from dsel.search.pareto.local_search import local_search, perturb


def problem(seed: int, targets: int | None, lam: float = 0.0, n: int = 14) -> DenseObjective:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, n)) + rng.normal(size=(40, 1))
    X[:, -1] = X[:, 0]  # a duplicate
    Y = X if targets is None else rng.normal(size=(40, targets))
    return DenseObjective(X.T @ X, None if targets is None else X.T @ Y, float((Y**2).sum()), lam)


def filled(obj: DenseObjective, size: int, seed: int) -> KernelArrays[SubsetTables]:
    """Slot 1 holds a random subset, slot 0 the empty set."""
    memory = obj.subset_tables(size, 2)
    memory[layout.STATUS][0, layout.SIZE] = 0
    perturb(memory.P, 0, 1, size, 1.0, np.uint64(stream(seed, 0, np.int64(2))))
    return memory


def members(memory: KernelArrays[SubsetTables], slot: int = 1) -> list[int]:
    return [int(j) for j in memory[layout.S][slot, : memory[layout.STATUS][slot, layout.SIZE]]]


@pytest.mark.parametrize("targets", [None, 1, 3, 12])
@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_no_exchange_of_one_column_improves_what_it_ends_with(targets: int | None, lam: float, seed: int) -> None:
    obj = problem(seed, targets, lam)
    memory = filled(obj, 5, seed)
    start = obj.value(members(memory))
    local_search(memory.P, 1, np.zeros(10, np.int64))
    S = members(memory)
    f = obj.value(S)
    assert len(set(S)) == 5
    assert f <= start + 1e-9 * obj.c
    assert memory[layout.F][1] == pytest.approx(f, abs=1e-9 * obj.c)
    for i in S:
        for j in set(range(obj.n)) - set(S):
            assert obj.value([*(set(S) - {i}), j]) >= f - 2e-9 * obj.c


def test_a_perturbed_subset_keeps_its_size_and_about_the_share_it_should() -> None:
    obj = problem(0, 1, n=60)
    memory = filled(obj, 20, 1)
    before = set(members(memory))
    memory[layout.SORTED][1, :20] = sorted(before)
    kept = []
    for seed in range(200):
        perturb(memory.P, 1, 0, 20, 0.25, np.uint64(stream(seed, 1, np.int64(2))))
        after = set(members(memory, 0))
        assert len(after) == 20
        assert obj.rank(after) == 20
        kept.append(len(after & before))
    # 15 of 20 are kept, and of the 5 others drawn from 45 one in nine was there before.
    assert 14.5 < np.mean(kept) < 16.5
