"""Noisy sums: how much noise there is, what follows from them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import dsel
from dsel._lib.types import Floats
from dsel.data.as_dataset import as_dataset
from dsel.errors import DataError, OptionError
from dsel.passes.noise import SENSITIVITY, Noise
from dsel.passes.sums import Sums, noisy_sums_of
from dsel.search.exact.certificate_words import caveat, claim
from tests.cli_runner import call
from tests.stores import make_store

RNG = np.random.default_rng(7)
X = RNG.uniform(-1.0, 1.0, (4000, 6)) + 0.2
Y = X[:, 1] - 2.0 * X[:, 4] + 0.3 * RNG.normal(size=4000)
ASKED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "bounds": {"*": 1.2, "y0": 4.0}}


def draws(seed: int) -> Callable[[int], Floats]:
    return np.random.default_rng(seed).standard_normal


def noisy(seed: int, X: Floats = X, Y: Floats | None = Y, **changes: Any) -> Sums:
    dataset = as_dataset(X, Y)
    asked = {**ASKED, **changes} if Y is not None else {**ASKED, "bounds": 1.2, **changes}
    return noisy_sums_of(dataset, Noise.of(asked, dataset), draw=draws(seed))


def clipped(X: Floats, Y: Floats, units: Floats) -> Floats:
    """The rows (X, Y) with norm 1 at most in the given units, in the units of the data."""
    rows = np.column_stack([X, Y]) / units
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0) * units)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (1.0, 0.3), (8.0, 1e-6), (50.0, 1e-3)])
def test_sigma_is_the_least_that_gives_epsilon_and_delta(epsilon: float, delta: float) -> None:
    sigma = Noise(epsilon, delta, np.ones(3)).sigma

    def leaks(sigma: float) -> float:
        a, b = SENSITIVITY / (2 * sigma), epsilon * sigma / SENSITIVITY
        return float(norm.cdf(a - b) - np.exp(epsilon) * norm.cdf(-a - b))

    assert leaks(sigma) == pytest.approx(delta, rel=1e-6)
    assert leaks(sigma * 0.999) > delta
    if epsilon <= 1.0:
        assert sigma <= SENSITIVITY * np.sqrt(2 * np.log(1.25 / delta)) / epsilon  # the classical mechanism


def products(found: Sums) -> Floats:
    """The matrix of the sums of products of 1, X and one Y, in the units of the noise."""
    moments = found.moments
    means = np.concatenate([[1.0], moments.mean_x, moments.mean_y])
    whole = moments.weight * np.outer(means, means)
    K = np.triu(moments.K) + np.triu(moments.K, 1).T
    whole[1:, 1:] += np.block([[K, moments.B], [moments.B.T, np.diag(moments.yy)]])
    assert found.noise is not None
    scale = np.concatenate([[1.0], found.noise.units])
    return np.asarray(whole / np.outer(scale, scale))


def test_the_noise_is_symmetric_with_the_stated_variances_and_norm() -> None:
    found = [noisy(seed, row_norm=2.0) for seed in range(300)]
    noise = found[0].noise
    assert noise is not None
    units = np.array(noise.units)
    rows = np.column_stack([np.ones(4000), clipped(X, Y, units) / units])
    differences = np.array([products(one) - rows.T @ rows for one in found]) / noise.sigma
    spread = differences.var(axis=0)
    diagonal = np.eye(8, dtype=bool)
    assert spread[diagonal] == pytest.approx(1.0, abs=0.35)
    assert spread[~diagonal] == pytest.approx(0.5, abs=0.2)
    assert spread[diagonal].mean() == pytest.approx(1.0, abs=0.1)
    assert spread[~diagonal].mean() == pytest.approx(0.5, abs=0.03)
    assert differences.mean(axis=0)[1:, 1:] == pytest.approx(0.0, abs=0.25)
    norms = np.linalg.norm(differences, ord=2, axis=(1, 2)) * noise.sigma
    assert norms.max() <= noise.norm + max(one.noise.raised for one in found if one.noise)
    assert norms.max() > 0.4 * noise.norm


def test_a_row_changes_the_sums_by_the_sensitivity_at_most() -> None:
    far = np.vstack([X, np.full(6, 1e6)])
    less, more = (noisy(3, A, b) for A, b in ((X, Y), (far, np.append(Y, -1e6))))
    change = products(more) - products(less)
    assert np.linalg.norm(change) == pytest.approx(SENSITIVITY, rel=1e-6)


def test_many_rows_give_the_columns_without_noise() -> None:
    A, b = np.tile(X, (50, 1)), np.tile(Y, 50)
    found = dsel.from_sums(noisy(1, A, b, row_norm=2.0), k=2, method="forward")
    rows = dsel.select(A, b, k=2, method="forward")
    assert found.indices == rows.indices
    assert found.r2 == pytest.approx(rows.r2, abs=0.02)


def test_a_method_that_proves_its_answer_names_the_noise_as_a_later_proof_does() -> None:
    both = noisy(1, np.tile(X, (10, 1)), np.tile(Y, 10), row_norm=2.5)
    (mine,) = dsel.from_sums(both, k=2, method="branch-and-bound").certificate
    (theirs,) = dsel.certify(dsel.from_sums(both, k=2, method="forward"), both).certificate
    assert 0.0 < mine["noise"] == theirs["noise"]
    assert (mine["status"], mine["bound"]) == (theirs["status"], theirs["bound"])


@pytest.mark.parametrize("preprocess", ["standardize", "center", "unit", "none"])
def test_the_errors_of_all_subsets_on_the_rows_are_within_the_bounds(preprocess: Any) -> None:
    A, b = np.tile(X, (10, 1)), np.tile(Y, 10)
    for seed in range(5):
        both = dsel.open_sums(*(noisy(seed + 9 * i, A[i::2], b[i::2], row_norm=2.5, epsilon=2.0) for i in range(2)))
        found = dsel.certify(dsel.select(both, k=2, method="random", preprocess=preprocess), both)
        assert both.noise is not None
        rows = clipped(A, b, np.array(both.noise.units))
        columns, target = rows[:, :6], rows[:, 6]
        yy = both.moments.yy[0] + (preprocess in ("unit", "none")) * both.m * both.moments.mean_y[0] ** 2
        ones = [np.ones(len(rows))] * (preprocess in ("standardize", "center"))
        row = found.certificate[0]
        assert 0.0 < row["noise"] < 1.0
        least = row["bound"] / row["total"] - row["noise"]
        for S in combinations(range(6), 2):
            design = np.column_stack([*ones, columns[:, S]])
            left = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
            assert left @ left / yy >= least
        residuals = target - found.intercept[0] - columns[:, found.indices] @ found.coefficients[:, 0]
        noise = both.noise
        chosen = list(found.indices)
        more = noise.more(both.moments, preprocess, chosen, found.coefficients, found.intercept)
        assert residuals @ residuals / yy <= 1.0 - found.r2 + more < 1.0
        assert any(f"at most {1.0 - found.r2 + more:.4g}" in note for note in found.notes)


def test_the_certificate_says_that_it_is_about_noisy_sums() -> None:
    one = noisy(4, np.tile(X, (20, 1)), np.tile(Y, 20), row_norm=2.0)
    found = dsel.from_sums(one, k=2, method="forward", proof_seconds=20)
    row = found.certificate[0]
    assert claim(row) == "proved optimal for the noisy sums"
    assert "on the rows, the noise leaves no bound." in caveat(row, str, {}, ())
    assert "leaves at least 0.5 of ||Y||^2" in caveat({**row, "bound": 0.7 * row["total"], "noise": 0.2}, str, {}, ())
    assert any("epsilon 1 and delta 1e-06 for each row" in note for note in found.notes)
    assert "noise" not in dsel.from_sums(dsel.sums(X, Y), k=2).counts


def test_few_rows_give_no_bound_on_the_rows_but_an_answer() -> None:
    found = dsel.from_sums(noisy(2, X[:30], Y[:30]), k=2, method="forward", proof_seconds=5)
    assert found.certificate[0]["noise"] == 1.0


def test_variances_of_parts_add_and_files_keep_them(tmp_path: Path) -> None:
    parts = [noisy(i, X[i::2], Y[i::2], epsilon=1.0 + i) for i in range(2)]
    files = [part.save(tmp_path / f"{i}.sums") for i, part in enumerate(parts)]
    both, records = dsel.open_sums(*files), [part.noise for part in parts]
    assert both.noise is not None
    assert records[0] is not None
    assert records[1] is not None
    assert both.noise.sigma == pytest.approx(np.hypot(records[0].sigma, records[1].sigma))
    assert (both.noise.epsilon, both.noise.delta) == (2.0, 1e-6)
    assert both.noise.raised == records[0].raised + records[1].raised
    assert dsel.open_sums(files[0]).noise == records[0]


def test_a_file_has_neither_the_number_of_rows_nor_a_fingerprint(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a.zarr", X, Y[:, None])
    found = [dsel.sums(store, noise={**ASKED, "bounds": 4.0}) for _ in range(8)]
    assert len({one.m for one in found} - {4000}) > 1
    assert all(one.parts[0]["segments"] == [] for one in found)
    assert all(one.parts[0]["rows"] == one.m and one.parts[0]["blocks"] >= one.m for one in found)
    assert len({one.parts[0]["digest"] for one in found}) == 8  # the random source of the system


def test_several_targets_and_no_targets() -> None:
    A = np.tile(X, (100, 1))
    two = np.column_stack([A[:, 1] - A[:, 4], A[:, 4] + 0.1 * A[:, 2]])
    found = dsel.from_sums(noisy(1, A, two, bounds=2.4, epsilon=4.0), k=2, method="forward", proof_seconds=20)
    assert sorted(found.indices) == [1, 4]
    assert 0.0 < found.certificate[0]["noise"] < 1.0
    assert len(dsel.from_sums(noisy(1, A, None), k=3, method="forward").indices) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0"), ({"epsilon": np.inf}, "epsilon is inf"), ({"delta": 1.0}, "delta is 1"),
        ({"delta": "x"}, "delta is 'x'"), ({"bounds": {"x0": 1.0}}, "bounds lacks x1"), ({"row_norm": -1}, "row_norm"),
        ({"bounds": {"*": 1.0, "z": 1.0}}, "lack: z"), ({"bounds": 0.0}, "The bound of x0 is 0"), ({"eps": 1}, "'eps'"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(change: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what) as caught:
        dsel.sums(X, Y, noise={**ASKED, **change})
    assert caught.value.remedy


def test_what_noise_cannot_do_is_refused() -> None:
    with pytest.raises(OptionError, match="noise lacks delta, bounds"):
        dsel.sums(X, Y, noise={"epsilon": 1.0})
    with pytest.raises(OptionError, match="have weights"):
        dsel.sums(X, Y, sample_weight=np.ones(4000), noise=ASKED)
    with pytest.raises(OptionError, match="sums already"):
        dsel.sums(noisy(1), noise=ASKED)
    with pytest.raises(DataError, match="x2"):
        dsel.sums(np.where(np.arange(6) == 2, np.nan, X), Y, noise=ASKED)
    for other, what in ((dsel.sums(X, Y), "has noise.*has none"), (noisy(2, row_norm=2.0), "other bounds")):
        with pytest.raises(DataError, match=what):
            dsel.open_sums(noisy(1), other)
    with pytest.raises(DataError, match="same rows"):
        dsel.open_sums(noisy(1), noisy(1))
    with pytest.raises(OptionError, match="reveal what the noise protects"):
        dsel.check_part(dsel.from_sums(noisy(1), k=2), X, Y)


def test_the_command_line(tmp_path: Path) -> None:
    store, out = make_store(tmp_path / "a.zarr", X, Y[:, None]), tmp_path / "a.sums"
    options = ["--epsilon", 1, "--delta", 1e-6, "--bound", 1.2, "--bound", "y0=4", "--row-norm", 2]
    code, text, err = call("sums", store, "--out", out, *options)
    assert code == 0, err
    assert "All sums have noise: epsilon 1, delta 1e-06." in text
    noise = dsel.open_sums(out).noise
    assert noise is not None
    assert noise.units == pytest.approx([2.4] * 6 + [8.0])
    code, _, err = call("sums", store, "--out", out, "--epsilon", 1)
    assert code == OptionError.exit_code
    assert "noise lacks delta, bounds" in err
