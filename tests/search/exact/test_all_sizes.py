"""One traversal finds the best subset of every size, and proves it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import dsel
from dsel.errors import Interrupted
from dsel.jobs.certify import ProofBudget, certify_selection, data_again
from dsel.objective.dense import DenseObjective
from dsel.search.anytime import Deadline
from dsel.search.exact.all_sizes import ALL_SIZES, AllSizes, best_of_sizes
from dsel.selection.context import RunContext
from tests.search.exact.cases import regression


def problem(seed: int, N: int = 1, lam: float = 0.0) -> DenseObjective:
    """Return an objective over 4 to 9 correlated columns."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 10))
    X = rng.standard_normal((30, n)) @ (np.eye(n) + 0.4 * rng.standard_normal((n, n)))
    Y = X[:, :2] @ rng.standard_normal((2, N)) + rng.standard_normal((30, N))
    return DenseObjective(X.T @ X, X.T @ Y, float(np.sum(Y**2)), lam)


@pytest.mark.parametrize("N", [1, 3])
@pytest.mark.parametrize("lam", [0.0, 4.0])
@pytest.mark.parametrize("seed", range(8))
def test_every_size_has_its_best_subset(seed: int, lam: float, N: int) -> None:
    objective = problem(seed, N, lam)
    for k in (objective.n, objective.n // 2):
        found = best_of_sizes(objective, k, [], Deadline(None))
        assert found.proven
        for size in range(1, k + 1):
            best = min(objective.value(S) for S in combinations(range(objective.n), size))
            assert objective.value(found.subsets[size]) == pytest.approx(best, abs=1e-9 * objective.total)


def test_known_subsets_save_nodes() -> None:
    objective = problem(3)
    first = best_of_sizes(objective, objective.n, [], Deadline(None))
    again = best_of_sizes(objective, objective.n, list(first.subsets.values()), Deadline(None))
    assert again.subsets == first.subsets
    assert again.nodes < first.nodes


def test_a_traversal_can_end_before_it_is_complete() -> None:
    objective = problem(5)
    found = best_of_sizes(objective, objective.n, [(0,), (0, 1)], Deadline(1e-9))
    assert not found.proven
    assert found.subsets == {1: (0,), 2: (0, 1)}


def test_nearly_dependent_columns_are_left_to_other_proofs() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 5))
    X[:, 4] = X[:, 3] + 1e-5 * rng.standard_normal(30)
    with pytest.raises(ValueError, match="nearly dependent"):
        AllSizes(regression(X, X[:, :1]), np.zeros(6))


def test_an_interrupted_traversal_leaves_the_selection_without_a_loss() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((80, 24))
    y = X @ rng.standard_normal(24) + 6.0 * rng.standard_normal(80)
    selection = dsel.select(X, y, k=24, method="forward")
    dataset, request = data_again(selection, X, y, None)

    def interrupt(search: object) -> None:
        raise Interrupted("SIGTERM")

    context = RunContext(on_slice=interrupt)
    with pytest.raises(Interrupted):
        certify_selection(dataset, request, selection, ProofBudget(sizes="all"), context)
    partial = certify_selection(dataset, request, selection, ProofBudget(sizes="all", keep_partial=True), context)
    assert partial.indices == selection.indices


def test_certificates_of_all_sizes_come_from_the_traversal_where_it_is_quick() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 12))
    y = X @ rng.standard_normal(12) + 3.0 * rng.standard_normal(60)
    selection = dsel.select(X, y, k=12, method="forward")
    together = dsel.certify(selection, X, y, sizes="all").certificate
    assert {row["method"] for row in together} == {ALL_SIZES}
    assert all(row["proven"] for row in together)
    apart = dsel.certify(selection, X, y, sizes="all", nodes=10**6).certificate  # a limit of nodes is for each size
    assert [row["indices"] for row in apart if row["size"]] == [row["indices"] for row in together]
    assert [row["value"] for row in apart if row["size"]] == pytest.approx([row["value"] for row in together])
