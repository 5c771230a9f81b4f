"""Generated data: values do not depend on the chunks, and have the documented statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsel.data.generate import RegressionSource, generate_regression
from dsel.data.store.reader import Store, open_store
from dsel.errors import OptionError

SIZE: dict[str, Any] = {"samples": 2500, "features": 40, "informative": 5}


def generated(path: Path, **options: Any) -> tuple[Store, np.ndarray, np.ndarray]:
    generate_regression(path, **{**SIZE, **options})
    store = open_store(path)
    assert store.y is not None
    return store, store.x.read(0, store.shape[0]), store.y.read(0, store.shape[0])


def test_values_do_not_depend_on_chunks(tmp_path: Path) -> None:
    _, x, y = generated(tmp_path / "a")
    for number, chunks in enumerate([(2500, 40), (999, 7), (1, 40)]):
        _, other_x, other_y = generated(tmp_path / str(number), chunks=chunks, samples=2500 if number < 2 else 30)
        np.testing.assert_array_equal(other_x, x[: len(other_x)])
        np.testing.assert_array_equal(other_y, y[: len(other_y)])


def test_values_depend_on_the_seed_and_rows_differ_between_groups(tmp_path: Path) -> None:
    _, x, _ = generated(tmp_path / "a", seed=1)
    _, other, _ = generated(tmp_path / "b", seed=2)
    assert not np.isclose(x, other).any(axis=1).all()
    assert len(np.unique(x[:, 0])) > 2400


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_target_is_the_stated_model_of_the_stored_values(tmp_path: Path, dtype: str) -> None:
    store, x, y = generated(tmp_path / "a", noise=0.0, dtype=dtype)
    truth = store.attributes["dsel_generator"]
    assert x.dtype == dtype
    np.testing.assert_allclose(x[:, truth["true_features"]].astype(float) @ truth["beta"], y[:, 0], atol=1e-12)


def test_columns_have_variance_one_the_stated_correlation_and_r2(tmp_path: Path) -> None:
    store, x, y = generated(tmp_path / "a", samples=20_000, noise=0.5, correlation=0.7, dtype="float64")
    np.testing.assert_allclose(x.var(axis=0), 1.0, atol=0.06)
    found = np.corrcoef(x.T)
    order = RegressionSource(20_000, 40, 5, 0.5, 0.7, "float64", 0).order
    expected = 0.7 ** np.abs(np.subtract.outer(order, order))
    np.testing.assert_allclose(found, expected, atol=0.04)
    assert not np.array_equal(order, np.arange(40))
    truth = store.attributes["dsel_generator"]
    residual = y[:, 0] - x[:, truth["true_features"]] @ truth["beta"]
    assert truth["r2"] == pytest.approx(0.8)
    assert 1 - residual.var() / y.var() == pytest.approx(0.8, abs=0.02)


def test_an_interrupted_generation_continues(tmp_path: Path) -> None:
    _, x, y = generated(tmp_path / "whole", chunks=(700, 40))

    def stop(done: int, rows: int) -> None:
        if done >= 1400:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_regression(tmp_path / "parts", **SIZE, chunks=(700, 40), progress=stop)
    report = generate_regression(tmp_path / "parts", **SIZE, chunks=(700, 40))
    store = open_store(tmp_path / "parts")
    assert report.resumed_rows == 1400
    np.testing.assert_array_equal(store.x.read(0, 2500), x)
    assert store.y is not None
    np.testing.assert_array_equal(store.y.read(0, 2500), y)


@pytest.mark.parametrize(
    "option",
    [
        {"samples": 0},
        {"informative": 41},
        {"correlation": 1.0},
        {"noise": -1.0},
        {"dtype": "int8"},
        {"seed": -1},
    ],
)
def test_impossible_parameters_are_refused_by_name(tmp_path: Path, option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(option))):
        generate_regression(tmp_path / "a", **{**SIZE, **option})
