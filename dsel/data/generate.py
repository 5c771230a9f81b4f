"""Generated data of any size with a known true model: for examples, benchmarks and tests."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsel.config.ingest_request import IngestRequest, Progress
from dsel.data.formats.source import Array, PieceReader, Reader, Rows, Source
from dsel.data.ingest import write_source
from dsel.data.ingest_report import IngestReport
from dsel.data.labels import default_labels
from dsel.data.schema import ATTR_GENERATOR
from dsel.errors import OptionError
from dsel.storage.paths import AnyPath, as_path

GROUP_ELEMENTS: Final = 4_000_000
GROUP_ROWS: Final = 1000
MODEL_STREAM: Final = 1 << 32  # the key of the generator of the model; groups of rows have the keys 0, 1, ...


def generate_regression(
    store: str | AnyPath, *, samples: int, features: int, informative: int = 30, noise: float = 0.5,
    correlation: float = 0.7, dtype: str = "float32", seed: int = 0, worker_memory: int | None = None,
    chunks: tuple[int, int] | None = None, overwrite: bool = False, progress: Progress | None = None,
) -> IngestReport:  # fmt: skip
    """Write a linear regression problem into a new store, block by block.

    The features are standard normal. Features i and j of a sequence correlate by ``correlation ** |i - j|``; then the
    columns are shuffled. Y = X[:, true] @ beta + e, where beta has `informative` entries of size 1 to 2 with random
    signs, and the standard deviation of e is `noise` times that of the signal. So R^2 of the true model is
    1 / (1 + noise^2).

    Parameters
    ----------
    store : str or path
        The store to write, a path or a URL.
    samples, features : int
        The shape of X, (m, n).
    informative : int
        The number of features that Y depends on.
    noise : float
        The standard deviation of the noise, relative to the signal.
    correlation : float
        The correlation of neighbours, between -1 and 1.
    dtype : {"float32", "float64", "float16"}
        The dtype of X.
    seed : int
        The seed of all random numbers.
    worker_memory, chunks, overwrite, progress
        As for `dsel.ingest`.

    Returns
    -------
    IngestReport
        Shapes, chunks, bytes and seconds.

    Raises
    ------
    OptionError
        If a parameter is out of range.
    OutputError, CapacityError
        If the store cannot be written.

    Notes
    -----
    The attribute `dsel_generator` of the store has all parameters, the true features, beta and R^2. Each fixed group of
    rows has its own generator, keyed (seed, group). So the values depend neither on the chunks nor on memory, and an
    interrupted call continues where it stopped. 4 GB take about a minute on one core.

    Examples
    --------
    >>> from dsel.data.generate import generate_regression
    >>> generate_regression("data.zarr", samples=10_000, features=500, seed=1)  # doctest: +SKIP
    """
    model = RegressionSource(samples, features, informative, noise, correlation, dtype, seed)
    request = IngestRequest(worker_memory=worker_memory, chunks=chunks, overwrite=overwrite, progress=progress)
    return write_source(model, as_path(store), request, {ATTR_GENERATOR: model.truth()})


class RegressionSource(Source):
    """The model as a source. Any rows can be generated at any time."""

    name = "generate_regression"
    n_targets = 1
    targets = ("y",)
    y_dtype = np.dtype(np.float64)

    def __init__(
        self, samples: int, features: int, informative: int, noise: float, correlation: float, dtype: str, seed: int
    ) -> None:
        share = f"informative={informative} of {features} features"
        for holds, what, remedy in (
            (samples >= 1, f"samples={samples}", "It must be at least 1."),
            (1 <= informative <= features, share, "Take 1 to all of them."),
            (noise >= 0.0, f"noise={noise}", "It must be 0 or more."),
            (-1.0 < correlation < 1.0, f"correlation={correlation}", "It must be between -1 and 1."),
            (dtype in ("float16", "float32", "float64"), f"dtype={dtype!r}", "Use float16, float32 or float64."),
            (0 <= seed < 1 << 63, f"seed={seed}", "It must be 0 or more, and below 2^63."),
        ):
            if not holds:
                raise OptionError(f"generate_regression: {what} is not possible.", remedy)
        self.shape = (samples, features)
        self.dtype = np.dtype(dtype)
        self.features = default_labels("x", features)
        self.seed, self.correlation = seed, correlation
        rng = keyed_generator(seed, MODEL_STREAM)
        self.order: NDArray[np.int64] = rng.permutation(features)  # column j is element order[j] of the sequence
        self.true = np.sort(rng.choice(features, informative, replace=False))
        self.beta = rng.choice([-1.0, 1.0], informative) * rng.uniform(1.0, 2.0, informative)
        lag = np.abs(np.subtract.outer(self.order[self.true], self.order[self.true]))
        signal = float(self.beta @ np.power(correlation, lag) @ self.beta)
        self.noise_scale = noise * np.sqrt(signal)
        self._parameters = {
            "samples": samples, "features": features, "informative": informative, "noise": noise,
            "correlation": correlation, "dtype": str(self.dtype), "seed": seed,
        }  # fmt: skip
        self.r2 = 1.0 / (1.0 + noise**2)
        self.group_rows = max(1, min(GROUP_ROWS, GROUP_ELEMENTS // features))

    def truth(self) -> dict[str, Any]:
        """Return the parameters, the true features, beta, and R^2 of the true model."""
        return {**self._parameters, "true_features": self.true.tolist(), "beta": self.beta.tolist(), "r2": self.r2}

    def identity(self) -> dict[str, Any]:
        return {"generator": self.name, "version": 1, **self._parameters}

    def open(self, start: int, scratch: Path) -> Reader:
        return PieceReader(self._groups(start))

    def _groups(self, start: int) -> Generator[Rows, None, None]:
        index, skip = divmod(start, self.group_rows)
        while True:
            x, y = self.group(index)
            yield Rows(x[skip:], y[skip:])
            index, skip = index + 1, 0

    def group(self, index: int) -> tuple[Array, Array]:
        """Return X (in its dtype) and Y (float64) of one group of rows, from row index * group_rows on."""
        from scipy.signal import lfilter

        rng = keyed_generator(self.seed, index)
        rho = self.correlation
        working = np.float64 if self.dtype == np.float64 else np.float32
        steps = rng.standard_normal((self.group_rows, self.shape[1]), dtype=working)
        steps[:, 1:] *= np.sqrt(1.0 - rho**2)  # so that every column has variance 1
        process = lfilter(np.array([1.0], working), np.array([1.0, -rho], working), steps, axis=1)
        x = np.take(process, self.order, axis=1).astype(self.dtype, copy=False)
        errors = self.noise_scale * rng.standard_normal(self.group_rows)
        y = (x[:, self.true].astype(np.float64) * self.beta).sum(axis=1) + errors
        return x, y[:, None]


def keyed_generator(seed: int, stream: int) -> np.random.Generator:
    """Return a Philox generator keyed by two numbers: streams are independent, and need not be made in order."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)))
