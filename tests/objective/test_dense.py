"""f(S) = min_A ||Y - X_S A||^2 + lam ||A||^2 from K = X'X, B = X'Y and c: equal to least squares on the data."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsel._lib.types import Floats
from dsel.errors import OptionError
from dsel.objective.dense import DenseObjective
from dsel.objective.objective_interface import FEW_TARGETS
from dsel.objective.subset_state import SubsetState
from tests.oracles.literal_poss import Criterion, least_squares

M_ROWS, N_COLUMNS = 30, 9
steady = settings(derandomize=True, deadline=None, max_examples=60)

#: N targets, or None for Y = X. Up to FEW_TARGETS they are kept one by one, with more by their cross-moments.
targets = st.sampled_from([1, 3, FEW_TARGETS, FEW_TARGETS + 4, None])
penalties = st.sampled_from([0.0, 0.7])
seeds = st.integers(0, 2**32 - 1)
subsets = st.sets(st.integers(0, N_COLUMNS - 1)).map(sorted)


def data(seed: int, N: int | None, n: int = N_COLUMNS) -> tuple[Floats, Floats]:
    """Correlated columns (30, n) and N targets that they explain in part."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((M_ROWS, n)) + 0.5 * rng.standard_normal((M_ROWS, 1))
    if N is None:
        return X, X
    return X, X[:, :4] @ rng.standard_normal((4, N)) + rng.standard_normal((M_ROWS, N))


def objective(X: Floats, Y: Floats, lam: float = 0.0) -> DenseObjective:
    return DenseObjective(X.T @ X, None if Y is X else X.T @ Y, float(np.sum(Y**2)), lam)


def problem(seed: int, N: int | None, lam: float) -> tuple[Criterion, DenseObjective]:
    """f from the data, and the objective."""
    X, Y = data(seed, N)
    return least_squares(X, Y, lam), objective(X, Y, lam)


def subset_of(obj: DenseObjective, limit: int, S: list[int]) -> SubsetState:
    """S, whose columns are independent, inserted in this order."""
    state = SubsetState(obj, limit)
    assert all(state.insert(j) for j in S)
    return state


def expand(obj: DenseObjective, S: list[int]) -> tuple[Floats, Floats]:
    """The gains of all insertions and the losses of all deletions."""
    state = subset_of(obj, max(len(S), 1), S)
    return state.gains(), state.losses()


@steady
@given(seeds, targets, penalties, subsets)
def test_value_is_the_error_of_least_squares(seed: int, N: int | None, lam: float, S: list[int]) -> None:
    f, obj = problem(seed, N, lam)
    assert obj.value(S) == pytest.approx(f(frozenset(S)), abs=1e-10 * obj.c)
    assert obj.rank(S) == len(S)


@steady
@given(seeds, targets, penalties, subsets)
def test_value_has_the_same_bits_in_any_order(seed: int, N: int | None, lam: float, S: list[int]) -> None:
    _, obj = problem(seed, N, lam)
    shuffled = np.random.default_rng(seed).permutation(S).astype(int).tolist()
    assert obj.value(shuffled) == obj.value(S)


@steady
@given(seeds, targets, penalties, subsets)
def test_gains_and_losses_are_those_of_every_insertion_and_deletion(
    seed: int, N: int | None, lam: float, S: list[int]
) -> None:
    f, obj = problem(seed, N, lam)
    here = f(frozenset(S))
    gains, losses = expand(obj, S)
    gain = [0.0 if j in S else here - f(frozenset({*S, j})) for j in range(obj.n)]
    loss = [f(frozenset(S) - {i}) - here for i in S]
    np.testing.assert_allclose(gains, gain, atol=1e-10 * obj.c)
    np.testing.assert_allclose(losses, loss, atol=1e-10 * obj.c)


@steady
@given(seeds, targets, penalties, subsets, subsets)
def test_included_columns_are_in_every_answer(
    seed: int, N: int | None, lam: float, include: list[int], S: list[int]
) -> None:
    _, obj = problem(seed, N, lam)
    inner = obj.condition(include)
    rest = [j for j in range(obj.n) if j not in include]
    local = [rest.index(j) for j in S if j in rest]
    union = sorted({*include, *S})
    tolerance = 1e-10 * obj.c
    assert inner.value(local) == pytest.approx(obj.value(union), abs=tolerance)
    assert sorted(inner.in_data(local)) == union
    np.testing.assert_allclose(expand(inner, local)[0], expand(obj, union)[0][rest], atol=tolerance)
    kept = [union.index(j) for j in S if j in rest]
    np.testing.assert_allclose(expand(inner, local)[1], expand(obj, union)[1][kept], atol=tolerance)
    assert inner.total == obj.total


def test_nearly_dependent_included_columns_leave_moments_of_the_residuals() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 6))
    X[:, 1] = X[:, 0] + 1e-3 * rng.standard_normal(12)
    X[:, 2] = X[:, :2] @ [1.0, 2.0] + 1e-3 * rng.standard_normal(12)
    Q = np.linalg.qr(X[:, :2])[0]
    B = (X - Q @ (Q.T @ X))[:, 2:].T @ X
    found = DenseObjective(X.T @ X, None, float(np.square(X).sum())).condition([0, 1])
    assert np.abs(found.M - B @ B.T).max() < 1e-10 * np.abs(B @ B.T).max()


@steady
@given(seeds, targets, penalties, subsets.filter(bool), st.data())
def test_restriction_keeps_the_values_and_the_names(
    seed: int, N: int | None, lam: float, allowed: list[int], draw: st.DataObject
) -> None:
    _, obj = problem(seed, N, lam)
    local = draw.draw(st.sets(st.integers(0, len(allowed) - 1)).map(sorted))
    inner = obj.restrict(allowed)
    outer = [allowed[j] for j in local]
    assert inner.n == len(allowed)
    assert inner.in_data(local) == outer
    assert inner.value(local) == pytest.approx(obj.value(outer), abs=1e-12 * obj.c)
    np.testing.assert_allclose(expand(inner, local)[0], expand(obj, outer)[0][allowed], atol=1e-12 * obj.c)


@pytest.mark.parametrize("N", [1, 3, 12, None])
def test_restriction_and_inclusion_go_together(N: int | None) -> None:
    _, obj = problem(5, N, 0.0)
    inner = obj.restrict([8, 6, 3, 1, 0]).condition([1, 4])  # includes 6 and 0; left are 8, 3, 1
    assert inner.included == (6, 0)
    assert inner.in_data([0, 2]) == [6, 0, 8, 1]
    assert inner.value([0, 2]) == pytest.approx(obj.value([0, 1, 6, 8]), abs=1e-10 * obj.c)


@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_many_targets_have_the_values_of_few(lam: float) -> None:
    X, Y = data(1, FEW_TARGETS)
    few, many = objective(X, Y, lam), objective(X, np.hstack([Y, np.zeros((M_ROWS, 1))]), lam)
    assert (few.few_targets, many.few_targets) == (FEW_TARGETS, 0)
    S = [0, 2, 7]
    assert many.value(S) == pytest.approx(few.value(S), rel=1e-12)
    np.testing.assert_allclose(expand(many, S)[0], expand(few, S)[0], atol=1e-10 * few.c)


@steady
@given(seeds, targets, subsets)
def test_values_do_not_depend_on_units_of_the_columns_or_rotation_of_the_targets(
    seed: int, N: int | None, S: list[int]
) -> None:
    X, Y = data(seed, N)
    rng = np.random.default_rng(seed)
    units = 10.0 ** rng.uniform(-4, 4, X.shape[1])
    rotation = np.linalg.qr(rng.standard_normal((Y.shape[1], Y.shape[1])))[0]
    plain, scaled, rotated = objective(X, Y), objective(X * units, Y.copy()), objective(X, Y @ rotation)
    assert scaled.value(S) == pytest.approx(plain.value(S), abs=1e-10 * plain.c)
    assert rotated.value(S) == pytest.approx(plain.value(S), abs=1e-10 * plain.c)


@steady
@given(seeds, targets, penalties, subsets)
def test_values_do_not_depend_on_the_order_of_the_columns(seed: int, N: int | None, lam: float, S: list[int]) -> None:
    X, Y = data(seed, N)
    order = np.random.default_rng(seed).permutation(X.shape[1])
    plain, permuted = objective(X, Y, lam), objective(X[:, order], Y.copy(), lam)
    moved = [int(np.flatnonzero(order == j)[0]) for j in S]
    assert permuted.value(moved) == pytest.approx(plain.value(S), abs=1e-10 * plain.c)


@pytest.mark.parametrize("N", [1, 3, 12, None])
def test_columns_that_depend_on_others_explain_nothing(N: int | None) -> None:
    rng = np.random.default_rng(2)
    X, Y = data(2, N or 1)
    dependent = [
        X[:, 0],
        -3.0 * X[:, 1],
        X[:, 0] + X[:, 2],
        np.zeros(M_ROWS),
        X[:, 3] + 1e-5 * rng.standard_normal(M_ROWS),
    ]
    X = np.column_stack([X, *dependent])
    obj = objective(X, X if N is None else Y)
    S, extra = [0, 1, 2, 3], list(range(N_COLUMNS, X.shape[1]))
    assert obj.rank(S + extra) == 4
    assert obj.value(S + extra) == pytest.approx(obj.value(S), abs=1e-9 * obj.c)
    gain = expand(obj, S)[0]
    assert (gain[extra] == 0.0).all()
    assert (gain[4:N_COLUMNS] > 0.0).all()


def test_with_a_penalty_a_repeated_column_is_another_column() -> None:
    X, Y = data(3, 1)
    X = np.column_stack([X, X[:, 0]])
    obj = objective(X, Y, 0.7)
    assert obj.rank([0, N_COLUMNS]) == 2
    assert obj.value([0, N_COLUMNS]) == pytest.approx(least_squares(X, Y, 0.7)(frozenset({0, N_COLUMNS})), rel=1e-12)


def test_more_columns_than_rows_explain_everything_with_as_many_as_rows() -> None:
    X, Y = data(4, 2, n=50)
    obj = objective(X, Y)
    assert obj.rank(range(50)) == M_ROWS
    assert obj.value(range(50)) == pytest.approx(0.0, abs=1e-8 * obj.c)


@pytest.mark.parametrize("N", [1, FEW_TARGETS + 4])
def test_it_is_pickled_without_the_addresses_of_its_arrays(N: int) -> None:
    _, f = problem(5, N, 0.0)
    value = f.value([1, 4])
    copied = pickle.loads(pickle.dumps(f))
    assert "_gram_table" in f.__dict__
    assert not {"_gram_table", "_moment_table"} & set(copied.__dict__)
    assert copied.value([1, 4]) == value
    with pytest.raises(TypeError, match="one process"):
        pickle.dumps(f.subset_tables(2, 1))


def test_the_empty_set_explains_nothing() -> None:
    _, obj = problem(0, 3, 0.0)
    assert obj.value([]) == obj.c
    assert obj.rank([]) == 0
    assert obj.condition([]) is obj


def test_matrices_that_do_not_fit_are_refused() -> None:
    X, Y = data(0, 1)
    K, B = X.T @ X, X.T @ Y
    with pytest.raises(OptionError, match="do not fit"):
        DenseObjective(K[:, :4], B, 1.0)
    with pytest.raises(OptionError, match="do not fit"):
        DenseObjective(K, B[:4], 1.0)
    for lam in (-0.1, float("nan")):
        with pytest.raises(OptionError, match="lam is"):
            DenseObjective(K, B, 1.0, lam)


@pytest.mark.parametrize("S", [[N_COLUMNS], [-1], [0, 100_000]])
def test_unknown_columns_are_refused(S: list[int]) -> None:
    _, obj = problem(0, 1, 0.0)
    with pytest.raises(OptionError, match="not all among 0 to 8"):
        obj.value(S)


def test_included_columns_must_be_independent() -> None:
    X, Y = data(0, 1)
    obj = objective(np.column_stack([X, X[:, 2]]), Y)
    with pytest.raises(OptionError, match=r"included columns \[2, 9\] depend on each other"):
        obj.condition([2, 9])
