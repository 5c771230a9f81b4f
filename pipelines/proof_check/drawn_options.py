"""Random data with random pairs and triples of the options of `dsel.select`, in every kind of input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse
import xarray as xr
from numpy.random import Generator

import dsel.data.ingest
from dsel._lib.types import Floats
from dsel.search.registry import METHODS
from pipelines.proof_check.families import with_sums

#: The criteria and divisions of rows by which k is chosen.
_RULES: tuple[Any, ...] = ("aic", "aicc", "bic", "ebic", "cp", "adjusted-r2", {"by": "ebic", "gamma": 0.5})
#: Options of the methods: some of each.
_PARETO: dict[str, list[Any]] = {
    "iterations": [1, 40], "warm_start": ["exchange", "none"], "exchange_every": [0, 7], "any_size": [True],
    "isolation": ["min-index"], "patience": [5], "restarts": [2], "seconds": [0.05], "target_r2": [0.2],
    "memory": [10**7], "search_on": ["client"],
}  # fmt: skip
_OWN: dict[str, dict[str, list[Any]]] = {
    "poss": {**_PARETO, "max_in_flight": [1], "task_iterations": [3]},
    "pposs": {**_PARETO, "processors": [3], "max_in_flight": [1], "task_iterations": [3]}, "pposs-asy": _PARETO,
    "branch-and-bound": {"bound": ["combined", "eigenvalue", "leaps", "perspective"], "nodes": [1, 3]},
    "astar": {"bound": ["combined"], "epsilon": [0.2], "gamma": [0.5, np.inf], "prune": [True], "nodes": [1, 3]},
    "portfolio": {"certify": [False], "seconds": [0.2]}, "foba": {"nu": [0.2]}, "splicing": {"max_exchange": [1]},
    "exchange": {"start": ["forward"], "restarts": [2]}, "lasso": {"penalties": [9]}, "random": {"draws": [3]},
    "greedy-rls": {"lam_grid": ["auto"], "direction": ["backward", "floating"]},
    "kfold": {"lam_grid": [(0.1, 1.0)], "direction": ["backward", "floating"], "split": ["blocks"], "folds": [3]},
    "arp": {"choice": ["derandomized"], "draws": [3]}, "leverage": {"choice": ["largest"]},
}  # fmt: skip
#: Searches that were compared with enumeration last are drawn more often.
_OFTEN = ("astar", "portfolio", "poss", "pposs", "pposs-asy", "branch-and-bound", "exhaustive")


@dataclass
class Drawn:
    """One call of `dsel.select`.

    table: the columns, by name; text is a category. Y (m, N). asked: the arguments by name, with columns as labels or
    positions. groups, include, exclude: the same as numbers of columns. copies: columns that are near-copies. levels:
    the values of text. others: rows of a store that `rows` leaves out.
    """

    rng: Generator
    table: dict[str, Any]
    Y: Floats
    kind: str = "array"
    unsupervised: bool = False
    asked: dict[str, Any] = field(default_factory=dict)
    weights: Floats | None = None
    groups: list[list[int]] = field(default_factory=list)
    include: list[int] = field(default_factory=list)
    exclude: list[int] = field(default_factory=list)
    copies: tuple[int, ...] = ()
    levels: list[str] = field(default_factory=list)
    others: int = 0

    def __str__(self) -> str:
        shown = {
            name: "array" if isinstance(value, np.ndarray) else str(value)[:60] for name, value in self.asked.items()
        }
        return f"{self.kind}{' for X' if self.unsupervised else ''} {shown}"

    @property
    def columns(self) -> list[str]:
        return list(self.table)

    def named(self, columns: list[int]) -> list[Any]:
        """Return columns as the user names them: labels of a frame, or positions."""
        by_label = self.kind in ("frame", "polars") or (self.kind == "xarray" and self.rng.random() < 0.5)
        return [self.columns[j] if by_label else j for j in columns]

    def with_others(self, values: Floats) -> Floats:
        """Return values with those of the rows that `rows` leaves out."""
        others = np.full((self.others, *values.shape[1:]), 3.0)
        others[1::2] = -1.0
        return np.concatenate([others, values] if "last" in self.asked.get("rows", ()) else [values, others])

    def data(self, folder: Path, rows: Any = slice(None)) -> tuple[Any, Any]:
        """Return X and Y of these rows as users give them."""
        Y = None if self.unsupervised else self.Y[rows]
        if self.kind in ("frame", "polars"):
            make: Any = pd.DataFrame if self.kind == "frame" else pl.DataFrame
            return make({name: values[rows] for name, values in self.table.items()}), Y
        X = np.column_stack([self.table[name] for name in self.columns]).astype(np.float64)[rows]
        if self.kind == "sparse":
            return scipy.sparse.csr_array(X), Y
        if self.kind == "dask":
            from_array: Any = da.from_array
            return from_array(X, chunks=(max(len(X) // 3, 1), X.shape[1])), Y
        if self.kind == "xarray":
            return xr.DataArray(X, dims=("row", "x"), coords={"x": self.columns}), Y
        if self.kind.startswith("store"):
            in_memory = self.kind == "store-and-y"
            if isinstance(rows, slice):
                X, Y = self.with_others(X), None if Y is None else self.with_others(Y)
            folder.mkdir(exist_ok=True)
            store = folder / f"{len(X)}-{in_memory}.zarr"
            dsel.data.ingest.ingest_arrays(X, store, y=None if in_memory else Y, chunks=(7, 3), overwrite=True)
            return str(store), Y if in_memory else None
        return X, Y


def draw(seed: int, index: int) -> Drawn:
    """Return the call with this number: a method, k, and two or three options."""
    rng = np.random.default_rng([seed, index, 21])
    m, n = int(rng.integers(18, 40)), int(rng.integers(4, 8))
    if rng.random() < 0.2:  # few rows, and often fewer than columns
        m = int(rng.integers(4, n + 3))
    X = rng.standard_normal((m, n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 3.0)
    X = np.round(X * rng.uniform(0.5, 3.0, n) + rng.standard_normal(n), 3)
    Y = X[:, :3] @ rng.standard_normal((3, int(rng.choice([1, 1, 3])))) / 2.0
    call = Drawn(rng, {f"a{j}": X[:, j] for j in range(n)}, Y + rng.standard_normal(Y.shape) + 0.5)
    call.unsupervised = bool(rng.random() < 0.3)
    able = [name for name, method in METHODS.own.items() if call.unsupervised or not method.unsupervised_only]
    able = [name for name in able if not (call.unsupervised and METHODS[name].uses_rows)]
    often = [name for name in _OFTEN if rng.random() < 0.5]
    call.asked["method"] = str(rng.choice([*able, *often, *often]))
    call.asked["k"] = int(rng.integers(1, n + 1)) if rng.random() < 0.3 else int(rng.integers(1, 4))
    if rng.random() < 0.1:
        call.asked["k"] = int(rng.choice([0, n, n + 2]))
    chosen = set(rng.choice(len(_OPTIONS), int(rng.integers(2, 4)), replace=False).tolist())
    if rng.random() < 0.5:
        chosen.add(_OPTIONS.index(_dependent))
    for number, option in enumerate(_OPTIONS):
        if number in chosen:
            option(call)
    return call


def _kind(call: Drawn) -> None:
    kinds = ["frame", "polars", "sparse", "dask", "xarray", "store", "store-and-y"]
    call.kind = str(call.rng.choice(kinds[: -1 if call.unsupervised else None]))
    if call.kind == "sparse":
        call.table = {name: np.where(abs(values) < 0.5, 0.0, values) for name, values in call.table.items()}


def _rows(call: Drawn) -> None:
    """Use some rows of a store."""
    call.kind = str(call.rng.choice(["store", "store-and-y"][: 1 if call.unsupervised else 2]))
    call.others = int(call.rng.integers(1, 20))
    call.asked["rows"] = {str(call.rng.choice(["first", "last"])): len(call.Y) / (len(call.Y) + call.others)}


def _categories(call: Drawn) -> None:
    rng, place = call.rng, int(call.rng.integers(len(call.table)))
    call.others = 0 * len(call.asked.pop("rows", ""))  # text is in frames
    call.kind = str(rng.choice(["frame", "polars"]))
    values = rng.choice(["ash", "elm", "fir"][: int(rng.integers(2, 4))], len(call.Y))
    call.table[call.columns[place]], call.levels = values, sorted(set(values.tolist()))
    call.asked["categories"] = str(rng.choice(["groups", "columns"]))


def _dependent(call: Drawn) -> None:
    numbers = [name for name, values in call.table.items() if values.dtype.kind == "f"]
    X = with_sums(np.column_stack([call.table[name] for name in numbers]), call.rng)
    call.table |= dict(zip(numbers, X.T, strict=True))


def _copy_exactly(call: Drawn) -> None:
    """Leave no difference of copies that are chosen together: dsel takes it for rounding."""
    if call.copies:
        call.table["copy"] = 2.0 * call.table[call.columns[call.copies[0]]]


def _missing(call: Drawn) -> None:
    for name in call.columns[:2]:
        if call.table[name].dtype.kind == "f":
            call.table[name] = np.where(call.rng.random(len(call.Y)) < 0.15, np.nan, call.table[name])
    call.asked["missing"] = "mean"


def _copies(call: Drawn) -> None:
    numbers = [j for j, name in enumerate(call.columns) if call.table[name].dtype.kind == "f"]
    values = call.table[call.columns[numbers[0]]]
    call.table["copy"] = 2.0 * values + 1e-9 * np.nanstd(values) * call.rng.standard_normal(values.size)
    call.copies = (numbers[0], len(call.table) - 1)
    if call.levels:
        _copy_exactly(call)
    call.asked["near_copies"] = str(call.rng.choice(["first", "keep"]))


def _weights(call: Drawn) -> None:
    rng, m = call.rng, len(call.Y)
    call.weights = rng.uniform(0.2, 2.0, m) if rng.random() < 0.3 else rng.integers(0, 4, m).astype(np.float64)
    if rng.random() < 0.4:  # few rows have a weight
        call.weights[rng.permutation(m)[: m - int(rng.integers(2, len(call.table) + 3))]] = 0.0
    call.weights[int(rng.integers(m))] = 1.0
    call.asked["sample_weight"] = call.with_others(call.weights)


def _preprocess(call: Drawn) -> None:
    call.asked["preprocess"] = str(call.rng.choice(["center", "unit", "none"]))


def _lam(call: Drawn) -> None:
    call.asked["lam"] = float(call.rng.choice([0.5, 6.0]))


def _groups(call: Drawn) -> None:
    columns = call.rng.permutation(len(call.table)).tolist()
    _copy_exactly(call)
    call.groups = [sorted(columns[:2]), sorted(columns[2 : int(call.rng.integers(3, 5))])]
    call.asked["groups"] = [call.named(group) for group in call.groups]


def _include(call: Drawn) -> None:
    call.include = sorted(call.rng.choice(len(call.table), int(call.rng.integers(1, 3)), replace=False).tolist())
    call.asked["include"] = call.named(call.include)
    call.asked["k"] += int(call.rng.integers(0, 2))


def _exclude(call: Drawn) -> None:
    others = [j for j in range(len(call.table)) if j not in call.include]
    call.exclude = sorted(call.rng.choice(others, min(int(call.rng.integers(1, 3)), len(others) - 1), False).tolist())
    call.asked["exclude"] = call.named(call.exclude)


def _targets(call: Drawn) -> None:
    if not call.unsupervised and call.Y.shape[1] == 3:
        call.asked["targets"] = [0, 2]


def _polish(call: Drawn) -> None:
    call.asked["polish"] = "exchange"


def _reduce(call: Drawn) -> None:
    call.asked["reduce"] = {"rank": int(call.rng.integers(2, 7))}


def _size(call: Drawn) -> None:
    _copy_exactly(call)
    m, kind = len(call.Y), call.rng.integers(5)
    parts = [np.arange(i, m, 3) for i in range(3)]
    pairs = [(np.setdiff1d(np.arange(m), part), part) for part in parts]
    rule = _RULES[int(call.rng.integers(len(_RULES)))] if kind < 3 else {"split": pairs} if kind < 4 else {"folds": 3}
    call.asked |= {"k": "auto", "max_k": call.asked["k"], "choose_k": rule}


def _own(call: Drawn) -> None:
    known = _OWN.get(call.asked["method"], {})
    for name in call.rng.permutation(sorted(known))[: int(call.rng.integers(1, 3))]:
        call.asked[str(name)] = known[name][int(call.rng.integers(len(known[name])))]


def cost(S: tuple[int, ...]) -> float:
    """Return a criterion that is neither monotone nor submodular."""
    return float(9.0 - 2.0 * len(S) ** 0.5 + np.sin(7.0 * sum(S) + len(S)))


def cost_of_data(S: tuple[int, ...], data: Any) -> float:
    """Return a criterion of the rows, the targets and the weights: the largest part of a column in the targets."""
    X, Y = np.nan_to_num(data.columns(S)), data.Y if data.n_targets else np.ones((data.m, 1))
    products = np.abs(np.nan_to_num(Y).T @ (data.weights[:, None] * X)).sum(axis=0)
    return float(9.0 - products.max(initial=0.0) / 100.0 + 0.01 * len(S))


def _criterion(call: Drawn) -> None:
    _copy_exactly(call)
    plain = bool(call.levels) or call.kind == "dask" or call.rng.random() < 0.5
    call.asked["criterion"] = cost if plain else cost_of_data


#: What changes a call, in the order in which it does.
_OPTIONS: tuple[Callable[[Drawn], None], ...] = (
    _kind, _rows, _categories, _dependent, _missing, _copies, _weights, _preprocess, _lam, _groups, _include, _exclude,
    _targets, _polish, _reduce, _size, _own, _criterion,
)  # fmt: skip
