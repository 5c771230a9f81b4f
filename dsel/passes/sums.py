"""The sums of rows that stay where they are: what a selection needs of data that no one may pool.

A site writes the sums of its rows to a file: X'X and X'Y about the means, the squared norms of Y, means, weight, number
of rows, and labels. It has no row, and no minimum or maximum, which would be the value of a row. The sums of several
sites are merged as those of the segments of a store. So the columns and the bits are those of a store whose segments
are these parts, in this order.

The same from arrays that another program has summed, and with noise (dsel.passes.noise).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.linalg.lapack import dtrttp

from dsel._lib.text import counted, shorten
from dsel._lib.types import Floats
from dsel._lib.versions import versions
from dsel.data.blocks import Block
from dsel.data.dataset import Dataset
from dsel.data.labels import Labels, as_labels, default_labels, require_unique
from dsel.data.schema import SOURCE
from dsel.data.store.array import StoredArray, open_array
from dsel.data.weights import Weights
from dsel.engine.engine_protocol import THREADS, Engine
from dsel.errors import AccessError, DataError, MissingInputError, OptionError, OutputError
from dsel.passes.execution.pass_checkpoints import DAMAGE, load_value, write_value
from dsel.passes.finite_values import NonFiniteError
from dsel.passes.gram import gram_moments, require_in_range
from dsel.passes.moments import Moments, merge
from dsel.passes.noise import Noise, NoiseRecord, from_system, noisy_products
from dsel.passes.statistics import Statistics, constant_columns
from dsel.passes.statistics_cache import StatisticsCache
from dsel.storage.paths import AnyPath, as_path, make_folder

_KIND = "sums of rows"
#: The format of a file. Versions that know no noise refuse the second, and those that know no categories the third.
_FORMAT, _NOISY_FORMAT, _CATEGORY_FORMAT = 1, 2, 3
_AGAIN = "Copy it again from its site, or write it again there: dsel sums STORE --out FILE."
#: What rounding may leave of a sum of squares after the mean is subtracted, as a share of it.
_ROUNDING = 1e-13
#: How much a product of two columns may be above that of their norms, as a share of it.
_TOO_LARGE = 1e-8


@dataclass(frozen=True, kw_only=True)
class Sums(Dataset):
    """The sums of rows that are not there. `dsel.select`, `dsel.certify` and `dsel.alternatives` take them as X.

    Parameters
    ----------
    moments : Moments
        The sums.
    weight_dtype : str, optional
        The dtype of the weights of the rows; None without weights.
    parts : tuple of dict
        For each part its name, its numbers of rows and of blocks, the digest of its sums, and the fingerprints of the
        segments of its store; with noise, what is known of it, and no fingerprint.
    files : tuple of str
        The files that hold the sums; empty if some are in memory only.

    Examples
    --------
    >>> import dsel
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = X[:, 3] - 2 * X[:, 7]
    >>> a, b = dsel.sums(X[:80], y[:80]), dsel.sums(X[80:], y[80:])
    >>> both = dsel.open_sums(a, b)
    >>> both.m, dsel.select(both, k=2).indices
    (200, (7, 3))
    """

    moments: Moments
    weight_dtype: str | None
    parts: tuple[dict[str, Any], ...]
    files: tuple[str, ...] = ()

    def __repr__(self) -> str:
        about = f"{counted(self.m, 'row')}, {counted(self.n, 'column')}, {counted(self.n_targets, 'target')}"
        return f"<Sums of {counted(len(self.parts), 'part')}: {about}>"

    @classmethod
    def made(
        cls, name: str, features: Labels, targets: Labels, moments: Moments, *, weight: str, weight_dtype: str | None,
        flat_target: bool, parts: Sequence[dict[str, Any]], files: tuple[str, ...] = (),
        categories: Labels | None = None,
    ) -> Sums:  # fmt: skip
        """Return sums as a data set without rows. weight: the name of the weights. categories: of the features."""
        known = json.dumps([part["digest"] for part in parts]).encode()
        return cls(
            name=name, m=sum(part["rows"] for part in parts), n=len(features), n_targets=len(targets),
            features=features, targets=targets, blocks=(), x_bytes=0, y_bytes=0, moments=moments,
            weight_dtype=weight_dtype, parts=tuple(parts),
            weights=None if weight_dtype is None else Weights(weight, np.empty(0), moments.count),
            flat_target=flat_target, digest=f"sums-{hashlib.blake2b(known, digest_size=12).hexdigest()}", files=files,
            coordinates={} if categories is None else {SOURCE: categories},
        )  # fmt: skip

    @cached_property
    def statistics(self) -> Statistics:
        """Return the statistics of all rows."""
        return Statistics.from_moments(self.moments)

    @property
    def summed_blocks(self) -> int:
        """Return how many blocks of rows were merged, each of which rounds the means."""
        return sum(part["blocks"] for part in self.parts)

    @cached_property
    def noise(self) -> NoiseRecord | None:
        """Return the noise of all parts; None without any."""
        found = [part["noise"] for part in self.parts if "noise" in part]
        return NoiseRecord.together(found) if found else None

    def rows(self, start: int, stop: int) -> tuple[Block, ...]:
        """Raise OptionError: there are no rows."""
        raise needs_rows("This")

    def save(self, path: str | AnyPath, *, overwrite: bool = False) -> AnyPath:
        """Write the sums to a file, and return its path.

        Parameters
        ----------
        path : str or path
            The file. With n columns it has about 4 n^2 bytes.
        overwrite : bool
            Whether to replace a file.

        Raises
        ------
        OutputError
            If the file exists, or cannot be written.
        """
        path = as_path(path)
        if path.exists() and not overwrite:
            raise OutputError(f"{path} exists.", "Choose another place, or overwrite it.")
        try:
            make_folder(path.parent)
            write_value(path, {**self._header, "check": self._check, "versions": versions()}, self.moments)
        except OSError as error:
            raise OutputError(f"The sums cannot be written to {path}: {error}.", "Choose another place.") from error
        return path

    @property
    def _header(self) -> dict[str, Any]:
        plain = _FORMAT if self.noise is None else _NOISY_FORMAT
        found = {
            "kind": _KIND, "format": plain if self.categories is None else _CATEGORY_FORMAT,
            "features": self.features.tolist(), "targets": self.targets.tolist(),
            "weight": "" if self.weights is None else self.weights.name, "weight_dtype": self.weight_dtype,
            "flat_target": self.flat_target, "parts": list(self.parts),
        }  # fmt: skip
        return found if self.categories is None else {**found, "categories": self.categories.tolist()}

    @property
    def _check(self) -> str:
        """Return the digest of all that a file holds."""
        return _digest(self.moments, json.dumps(self._header, sort_keys=True))


def needs_rows(what: str) -> OptionError:
    """Return the error for what sums cannot do."""
    return OptionError(
        f"{what} needs the rows of the data, and these are sums.",
        'Choose a method and a k that need no rows, such as forward, poss or portfolio; k="auto" by bic.',
    )


def sums_of(
    dataset: Dataset, *, weight_dtype: str | None = None, engine: Engine = THREADS, cache: StatisticsCache | None = None
) -> Sums:
    """Return the sums of the rows of a dataset, from one pass.

    weight_dtype: of weights in memory. cache: where the sums of the segments of a store are saved.

    Errors: DataError for missing values, which each site would replace by another mean.
    """
    if isinstance(dataset, Sums):
        raise OptionError("These are sums already.", "Save them, or give the data.")
    try:
        moments = gram_moments(dataset, engine=engine, cache=cache)
    except NonFiniteError as error:
        named = error.named(dataset)
        raise DataError(
            named.what, "Correct the data, or replace missing values by the same numbers at every site."
        ) from error
    weights = dataset.weights
    if weights is not None and isinstance(weights.values, StoredArray):
        weight_dtype = str(np.dtype(open_array(weights.values.path, weights.values.variable).array.dtype))
    stored = dataset.n_targets and not dataset.has_given_targets
    variables = ["X", *(["Y"] if stored else []), *([] if weights is None else [weights.name])]
    moments = _without_extremes(moments)
    part = {
        "name": as_path(dataset.name).name, "rows": dataset.m, "blocks": len(dataset.blocks),
        "digest": _digest(moments),
        "segments": [segment.fingerprint(*variables) + (dataset.digest or "") for segment in dataset.segments],
    }  # fmt: skip
    return Sums.made(
        dataset.name, dataset.features, dataset.targets, moments, weight="" if weights is None else weights.name,
        weight_dtype=None if weights is None else weight_dtype or "float64", flat_target=dataset.flat_target,
        parts=[part], categories=dataset.categories,
    )  # fmt: skip


def noisy_sums_of(
    dataset: Dataset, noise: Noise, engine: Engine = THREADS, draw: Callable[[int], Floats] = from_system
) -> Sums:
    """Return the sums of the rows of a dataset with noise, from one pass. draw: returns standard normal numbers.

    All that follows from the rows is in the noisy sums, the number of rows, too. There are no fingerprints.

    Errors: DataError for values that are not finite.
    """
    if isinstance(dataset, Sums):
        raise OptionError("These are sums already.", "Give the data.")
    products, record = noisy_products(dataset, noise, engine, draw)
    n, means = dataset.n, products[0, 1:] / products[0, 0]
    B, yy = (products[1 : n + 1, n + 1 :], products[n + 1 :, n + 1 :]) if dataset.n_targets else (None, None)
    made = sums_of_arrays(
        products[1 : n + 1, 1 : n + 1], B, yy, m=int(products[0, 0]), means=(means[:n], means[n:]),
        features=dataset.features.tolist(), targets=dataset.targets.tolist(),
    )  # fmt: skip
    part = {**made.parts[0], "name": as_path(dataset.name).name, "noise": asdict(record)}
    coordinates = {} if dataset.categories is None else {SOURCE: dataset.categories}
    return replace(made, name=dataset.name, parts=(part,), flat_target=dataset.flat_target, coordinates=coordinates)


def read_sums(path: str | AnyPath) -> Sums:
    """Return the sums in a file. Errors: MissingInputError, and DataError for a damaged file or one of another kind."""
    path = as_path(path)
    if not path.is_file():
        raise MissingInputError(f"There is no file {path}.", "Name the file that dsel sums wrote.")
    try:
        header, moments = load_value(path)
        if header.get("kind") != _KIND:
            raise DataError(f"{path} holds no sums of rows.", "Name the file that dsel sums wrote.")
        if header["format"] > _CATEGORY_FORMAT:
            raise DataError(f"{path} was written by a newer version of dsel.", "Use that version, or a newer one.")
        found = Sums.made(
            str(path), as_labels(header["features"]), as_labels(header["targets"]), moments, weight=header["weight"],
            weight_dtype=header["weight_dtype"], flat_target=header["flat_target"], parts=header["parts"],
            files=(str(path.absolute()),),
            categories=as_labels(header["categories"]) if "categories" in header else None,
        )  # fmt: skip
        if header["check"] != found._check:
            raise ValueError("its digest differs")
        if not found.statistics.consistent:
            raise ValueError("the shapes of its arrays do not fit together")
    except (OSError, AccessError) as error:
        raise MissingInputError(f"{path} cannot be read: {error}.", "Check its permissions.") from error
    except DAMAGE as error:
        raise DataError(f"{path} is damaged: {error}.", _AGAIN) from error
    return found


def pooled(parts: Sequence[Sums]) -> Sums:
    """Return the sums of all rows of some parts, merged in their order.

    Errors: OptionError without parts, or for one that is given twice; DataError for parts that do not fit together.
    """
    if not parts:
        raise OptionError("There are no sums.", "Name the files that dsel sums wrote.")
    if len({part.name for part in parts}) < len(parts):  # errors tell them apart by their places
        parts = [replace(part, name=f"{part.name} (part {i})") for i, part in enumerate(parts, 1)]
    for other in parts[1:]:
        _require_same(parts[0], other)
        _require_same_noise(parts[0], other)
    for a, b in combinations(parts, 2):
        _require_other_rows(a, b)
    if len(parts) == 1:
        return parts[0]
    moments = deepcopy(parts[0].moments)
    for other in parts[1:]:
        moments = merge(moments, other.moments)
    names = {part.weights.name for part in parts if part.weights is not None}
    found = Sums.made(
        f"sums of {sum(len(part.parts) for part in parts)} parts", parts[0].features, parts[0].targets, moments,
        weight=names.pop() if len(names) == 1 else "weight", weight_dtype=parts[0].weight_dtype,
        flat_target=all(part.flat_target for part in parts), parts=[one for part in parts for one in part.parts],
        files=tuple(file for part in parts for file in part.files) if all(part.files for part in parts) else (),
        categories=next((part.categories for part in parts if part.categories is not None), None),
    )  # fmt: skip
    require_in_range(found, moments)
    return found


def sums_of_arrays(
    XtX: Any, Xty: Any = None, yty: Any = None, *, m: int, weight: float | None = None, means: Any = None,
    features: Sequence[str] | None = None, targets: Sequence[str] | None = None,
) -> Sums:  # fmt: skip
    """Return sums that another program has made. `dsel.from_sums` describes the arguments.

    Errors: DataError for arrays that are no sums of rows.
    """
    K, B, yy, flat = _products(XtX, Xty, yty)
    n, total = K.shape[0], _total_weight(m, weight)
    mean_x, mean_y = np.zeros(n), np.zeros(yy.size)
    if means is not None:
        mean_x, mean_y = (_array(one, "means", None).reshape(-1) for one in means)
        if mean_x.shape != (n,) or mean_y.shape != yy.shape:
            raise DataError("means do not fit XtX and yty.", "They are a pair: one number per feature, and per target.")
    raw_x, raw_y = np.diag(K).copy(), yy.copy()
    K -= total * np.outer(mean_x, mean_x)
    B -= total * np.outer(mean_x, mean_y)
    yy -= total * mean_y**2
    squares, constant = _squares(np.diag(K), raw_x, "XtX")
    yy, constant_y = _squares(yy, raw_y, "yty")
    K[constant], K[:, constant], B[constant], B[:, constant_y] = 0.0, 0.0, 0.0, 0.0
    np.fill_diagonal(K, squares)
    norms, norms_y = np.sqrt(squares), np.sqrt(yy)
    slack = _TOO_LARGE * np.sqrt(raw_x)  # what rounding leaves of products about 0
    for product, right, rounded, name in (
        (K, norms, np.sqrt(raw_x), "XtX"), (B, norms_y, np.sqrt(raw_y), "Xty"),
    ):  # fmt: skip
        if (np.abs(product) > np.outer(norms, right) + np.outer(slack, rounded)).any():
            raise DataError(
                f"{name} has products above those of the norms of their columns: no rows have such sums.",
                "Check that all sums are of the same rows and weights, and that means are those of these rows.",
            )
    half_x, half_y = _half_width(mean_x, squares, constant, total), _half_width(mean_y, yy, constant_y, total)
    moments = Moments(
        int(m), total, mean_x, mean_y, np.asfortranarray(K), B, yy, mean_x - half_x, mean_x + half_x, mean_y - half_y,
        mean_y + half_y,
    )  # fmt: skip
    # Products about 0 lose as many digits as the mean has more than the deviation: as if there were more blocks.
    varies, varies_y = squares > 0.0, yy > 0.0
    of_means = np.concatenate([mean_x[varies] / norms[varies], mean_y[varies_y] / norms_y[varies_y]])
    lost = math.sqrt(total) * float(np.abs(of_means).max(initial=0.0))
    blocks = int(m * min(max(1.0, math.ceil(lost)), 1e12))
    labels, of_targets = (
        as_labels(default_labels(prefix, count) if given is None else given)
        for prefix, count, given in (("x", n, features), ("y", yy.size, targets))
    )  # fmt: skip
    for found, count, name in ((labels, n, "features"), (of_targets, yy.size, "targets")):
        if len(found) != count:
            raise DataError(f"{name} has {len(found)} labels for {count} columns.", "Give one for each.")
        require_unique(found.tolist(), name.removesuffix("s"), name, "Give every column a unique name.")
    made = Sums.made(
        "sums", labels, of_targets, moments, weight="weight", weight_dtype=None if weight is None else "float64",
        flat_target=flat,
        parts=[{"name": "arrays", "rows": int(m), "blocks": blocks, "digest": _digest(moments), "segments": []}],
    )  # fmt: skip
    require_in_range(made, moments)
    return made


def _products(XtX: Any, Xty: Any, yty: Any) -> tuple[Floats, Floats, Floats, bool]:
    """Return X'X, X'Y and the squared norms of Y as new arrays, and whether Y has one dimension.

    Errors: DataError for wrong shapes.
    """
    K = _array(XtX, "XtX", 2)
    n = K.shape[0]
    if K.shape != (n, n) or not n or not np.allclose(K, K.T, rtol=1e-9, atol=1e-9 * np.abs(np.diag(K)).max()):
        raise DataError(f"XtX has shape {K.shape}, or is not symmetric.", "It is X'X: one row and column per feature.")
    if (Xty is None) != (yty is None):
        raise DataError("Xty and yty belong together.", "Give both, or none of them for Y = X.")
    B = np.zeros((n, 0)) if Xty is None else _array(Xty, "Xty", None)
    flat = B.ndim == 1
    B = B[:, None] if flat else B
    yy = np.zeros(0) if yty is None else _array(yty, "yty", None)
    yy = np.diag(yy).copy() if yy.ndim == 2 else yy.reshape(-1)
    if B.ndim != 2 or B.shape[0] != n or yy.shape != (B.shape[1],):
        raise DataError(
            f"XtX has {n} columns, Xty has shape {B.shape} and yty {yy.shape}.",
            "Xty has one row per feature and one column per target, and yty one number per target.",
        )
    return K, B, yy, flat


def _total_weight(m: int, weight: float | None) -> float:
    """Return the sum of the weights of the rows. Errors: DataError for numbers that make no sense."""
    total = float(m if weight is None else weight)
    if int(m) != m or m < 1 or not 0.0 < total < np.inf:
        raise DataError(f"m is {m} and weight {total:g}.", "Give the number of rows, and the sum of their weights.")
    return total


def _array(value: Any, name: str, ndim: int | None) -> Floats:
    """Return a new array of finite numbers."""
    try:
        found = np.array(value, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot be an array of numbers: {error}.") from error
    if not np.isfinite(found).all() or (ndim is not None and found.ndim != ndim) or found.ndim > 2:
        raise DataError(f"{name} has shape {found.shape}, or numbers that are not finite.", "Give finite sums.")
    return found


def _squares(squares: Floats, raw: Floats, name: str) -> tuple[Floats, Any]:
    """Return sums of squares about the means, and which columns have one value only."""
    if (squares < -_TOO_LARGE * np.abs(raw)).any() or (raw < 0.0).any():
        raise DataError(
            f"{name} has a sum of squares that is less than that of the mean: no rows have such sums.",
            "Check that means are those of the same rows and weights, and that the sums are not centered already.",
        )
    constant = squares <= _ROUNDING * raw
    return np.where(constant, 0.0, squares), constant


def _require_same(a: Sums, b: Sums) -> None:
    """Raise DataError unless the sums of two parts can be added."""
    for what, mine, its in (("columns", a.features, b.features), ("targets", a.targets, b.targets)):
        if mine.tolist() == its.tolist():
            continue
        if set(mine) == set(its):
            raise DataError(
                f"{a.name} and {b.name} have the same {what} in another order.",
                f"Bring the {what} of all sites into one order.",
            )
        only = [sorted(set(one) - set(other)) for one, other in ((mine, its), (its, mine))]
        raise DataError(
            f"{a.name} and {b.name} have other {what}: only the first has {shorten(only[0]) or 'none'}, only the "
            f"second {shorten(only[1]) or 'none'}.",
            f"All parts have the same {what} with the same labels, in the same order.",
        )
    if a.weight_dtype != b.weight_dtype:
        raise DataError(
            f"The rows of {a.name} have {_weights(a)}, and those of {b.name} {_weights(b)}.",
            "Give the rows of all parts weights of one dtype (1 where they have none), or none of them.",
        )


def _require_same_noise(a: Sums, b: Sums) -> None:
    """Raise DataError unless both parts have noise in the same units, or none."""
    if (a.noise is None) != (b.noise is None):
        noisy, other = (a, b) if a.noise else (b, a)
        raise DataError(
            f"{noisy.name} has noise, and {other.name} has none.", "Write all parts with noise, or all without."
        )
    if a.noise is not None and b.noise is not None and a.noise.units != b.noise.units:
        raise DataError(
            f"{a.name} and {b.name} have other bounds of the rows.", "Use the same bounds and row_norm at every site."
        )


def _weights(part: Sums) -> str:
    return "no weights" if part.weight_dtype is None else f"weights of dtype {part.weight_dtype}"


def _require_other_rows(a: Sums, b: Sums) -> None:
    """Raise DataError if two parts are known to have rows in common."""
    for mine in a.parts:
        for its in b.parts:
            if mine["digest"] == its["digest"]:
                raise DataError(
                    f"{a.name} and {b.name} hold the same rows ({mine['name']}, {mine['rows']} rows).",
                    "Give each part once.",
                )
            if not set(mine["segments"]).isdisjoint(its["segments"]):
                raise DataError(
                    f"Some rows of {a.name} are also in {b.name}: they are of the same segment of a store.",
                    "Give the sums of all rows of that store once.",
                )


def _without_extremes(moments: Moments) -> Moments:
    """Return the moments without minima and maxima, which are values of rows, but of columns with one value only.

    In their place are bounds by which the same columns are constant, whatever rows follow.
    """
    weight, squares = moments.weight, moments.squares
    bounds = []
    for low, high, mean, of_columns in (
        (moments.low_x, moments.high_x, moments.mean_x, squares),
        (moments.low_y, moments.high_y, moments.mean_y, moments.yy),
    ):
        constant = constant_columns(low, high, of_columns, weight)
        half = _half_width(mean, of_columns, constant, weight)
        bounds += [np.where(constant, low, mean - half), np.where(constant, high, mean + half)]
    return replace(moments, low_x=bounds[0], high_x=bounds[1], low_y=bounds[2], high_y=bounds[3])


def _half_width(mean: Floats, squares: Floats, constant: Any, weight: float) -> Floats:
    """Return the standard deviation of each column, but more than rounding of the mean; 0 of a constant one."""
    deviation = np.sqrt(np.maximum(squares, 0.0) / weight)
    return np.where(constant, 0.0, np.maximum(deviation, 16.0 * np.finfo(np.float64).eps * np.abs(mean)))


def _digest(moments: Moments, text: str = "") -> str:
    """Return a digest of sums, of which K counts with its upper triangle, and of a text."""
    found = hashlib.blake2b(text.encode(), digest_size=16)
    for name, value in sorted(vars(moments).items()):
        array = dtrttp(value, uplo="U")[0] if name == "K" else np.asarray(value)
        found.update(f"{name} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
