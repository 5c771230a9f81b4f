"""The cases: every method, option, kind of data and representation, each small, by names that do not change.

They go by what users call alone (dsel.select, dsel.plan, dsel.open_selection, dsel.ingest, the command line), so that
they outlive whatever is moved or renamed behind it.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dsel
from tests.same_results.fields import of_plan, of_selection
from tests.same_results.places import job, run_job, shell, workers
from tests.same_results.problems import in_form, problem, store, weights

#: Fields and a word about them for people.
Found = tuple[dict[str, Any], str]


@dataclass(frozen=True)
class Case:
    """A name, and what it comes to in a scratch folder. drop: fields left out, for the reason in `why`."""

    name: str
    run: Callable[[Path], Found]
    drop: tuple[str, ...] = ()
    why: str = ""

    def found(self, folder: Path) -> Found:
        fields, about = self.run(folder)
        return {name: value for name, value in fields.items() if name not in self.drop}, about


def _of(selection: Any) -> Found:
    return of_selection(selection), str((selection.plan or {}).get("representation", ""))


def selected(
    name: str, data: str, form: str = "numpy", drop: tuple[str, ...] = (), why: str = "", *,
    memory: str | None = None, client: bool = False, chunks: tuple[int, int] | None = None, dtype: str = "float64",
    weighted: bool = False, **asked: Any,
) -> Case:  # fmt: skip
    """dsel.select. memory: of each of two workers, which then do the passes over a store in these chunks. Options that
    need the folder are functions of it."""

    def run(folder: Path) -> Found:
        given = {key: value(folder) if key == "held_out" else value for key, value in asked.items()}
        if chunks is not None:
            args: tuple[Any, ...] = (store(folder, data, chunks, dtype, weighted),)
        else:
            args, more = in_form(form, data, folder)
            given = {**more, **given}
        if memory is None and not client:
            return _of(dsel.select(*args, **given))
        with workers(memory):
            return _of(dsel.select(*args, **given))

    return Case(name, run, drop, why)


def refused(name: str, data: str, **asked: Any) -> Case:
    """What is refused, by its exit code."""

    def run(folder: Path) -> Found:
        try:
            dsel.select(*problem(data), **asked)
        except Exception as error:
            return {"code": getattr(error, "exit_code", None)}, str(error)
        raise AssertionError("it was not refused")

    return Case(name, run)


def planned(
    name: str, data: str, chunks: tuple[int, int] | None = None, dtype: str = "float64", why: str = "", **asked: Any
) -> Case:
    """dsel.plan, of a store where there are chunks."""

    def run(folder: Path) -> Found:
        args = problem(data) if chunks is None else (store(folder, data, chunks, dtype),)
        made = dsel.plan(*args, calibrate=False, **asked)
        return of_plan(made), str(getattr(made, "representation", ""))

    return Case(name, run, (), why)


# Functions to be minimized, and to isolate by.


def by_sum(S: tuple[int, ...]) -> float:
    """A function of the columns alone, with many ties."""
    return float(sum((j * 7) % 5 for j in S) - 3 * len({j % 4 for j in S}))


def by_data(S: tuple[int, ...], data: Any) -> float:
    """A function of the columns and the data."""
    if not S:
        return float(np.abs(data.Y[:, 0]).sum())
    return float(np.abs(data.Y[:, 0] - data.columns(S).sum(axis=1)).sum())


def by_parity(S: tuple[int, ...]) -> int:
    """An isolation function."""
    return sum(S) % 3


def cross_validated() -> Any:
    """Ridge regression's score by three folds."""
    from sklearn.linear_model import Ridge

    return dsel.CrossValidated(Ridge(alpha=1.0), folds=3, scoring="neg_mean_squared_error")


SHORT: dict[str, dict[str, Any]] = {
    "poss": {"iterations": 3000}, "pposs": {"iterations": 3000, "processors": 8}, "pposs-asy": {"iterations": 3000},
    "forward": {}, "omp": {}, "foba": {}, "backward": {}, "rfe": {}, "exchange": {}, "greedy-rls": {}, "kfold": {},
    "branch-and-bound": {}, "astar": {}, "two-stage": {}, "approx-svd": {},
}  # fmt: skip
#: Methods for Y = X alone, and for targets alone.
ITSELF, TARGETS = ("two-stage", "approx-svd"), ("greedy-rls", "kfold")
#: What pposs-asy sends to workers at once follows the clock: what it meets, and in which order, differ between runs.
ASY = ("front", "trace", "counts", "iterations")
WHY_ASY = "packages follow the clock; the best subset of so small a problem is always found"


def of_method(name: str, data: str, method: str, **more: Any) -> Case:
    """A method with few iterations."""
    asked: dict[str, Any] = {"k": 4, "method": method, **SHORT[method], **more}
    if method == "pposs-asy":
        asked |= {"iterations": 100_000, "drop": ASY, "why": WHY_ASY}
    return selected(name, data, **asked)


def fits(method: str, data: str) -> bool:
    """Whether the method is for such data."""
    itself = problem(data)[1] is None
    return method not in (TARGETS if itself else ITSELF)


def _methods() -> Iterator[Case]:
    for method in SHORT:
        for data in ("one", "several", "itself"):
            for lam in (0.0, 0.75):
                if fits(method, data):
                    yield of_method(f"{method}/{data}/lam {lam}", data, method, lam=lam)
        data = "itself" if method in ITSELF else "several"
        yield of_method(
            f"{method}/include and exclude", data, method, include=[2, 7], exclude=[0, 11], preprocess="center"
        )
        yield of_method(f"{method}/trouble", "trouble-itself" if method in ITSELF else "trouble", method, lam=0.5)
    for method in ("poss", "forward", "omp", "foba", "exchange", "backward", "branch-and-bound", "astar"):
        yield of_method(f"{method}/many targets", "many", method)
    for method in ("poss", "pposs", "forward", "foba", "exchange", "greedy-rls", "kfold"):
        yield of_method(f"{method}/more columns than rows", "short", method, lam=0.5)
    for method in ("poss", "forward", "exchange", "two-stage", "approx-svd", "astar"):
        yield of_method(f"{method}/itself, more columns than rows", "flat", method, k=3)


def _preparations() -> Iterator[Case]:
    for preprocess in ("standardize", "center", "unit", "none"):
        for method in ("poss", "forward", "greedy-rls", "kfold"):
            yield of_method(f"preprocess/{preprocess}/{method}", "several", method, preprocess=preprocess, lam=0.5)
        yield of_method(f"preprocess/{preprocess}/itself", "itself", "forward", preprocess=preprocess)
    for method in ("poss", "forward", "greedy-rls", "kfold", "branch-and-bound", "astar"):
        yield of_method(f"weights/{method}", "several", method, sample_weight=weights(60), lam=0.5)
    yield of_method("weights/itself", "itself", "poss", sample_weight=weights(40))
    for method in ("poss", "forward", "greedy-rls", "kfold"):
        yield of_method(f"missing/{method}", "holes", method, missing="mean", lam=0.5)
    yield of_method("missing/itself", "holes-itself", "two-stage", missing="mean")
    yield of_method("missing/itself, unit", "holes-itself", "forward", missing="mean", preprocess="unit")
    yield selected("targets/some", "many", k=3, method="forward", targets=[4, "y1"])
    yield selected("targets/none of them", "several", k=3, method="forward", unsupervised=True)
    yield selected("include/all that are chosen", "several", k=2, include=[4, 9])
    yield selected("include/by label", "several", "pandas", k=3, include=["c4"], exclude=["c1", 2], method="forward")
    yield selected("k/all columns", "one", k=12, method="forward")
    yield selected("k/one", "several", k=1)
    yield refused("refused/values missing", "holes", k=3)
    yield refused("refused/k", "one", k=13)
    yield refused("refused/method for Y = X", "one", k=3, method="two-stage")
    yield refused("refused/target_r2 with a criterion", "one", k=3, criterion=by_sum, target_r2=0.5)
    yield refused("refused/included and excluded", "one", k=3, include=[1], exclude=[1])


def _forms() -> Iterator[Case]:
    for form in (
        "fortran", "integers", "float32", "csr", "csc", "csr-float32", "pandas", "masked", "DataArray", "Dataset",
        "Dataset-weight", "dask", "dask-tiles", "dask-float32", "store", "store-blocks", "store-columns",
        "store-tiles", "store-float32", "store-weight", "sparse-store-2", "sparse-store-3",
    ):  # fmt: skip
        yield selected(f"form/{form}/poss", "several", form, k=4, iterations=3000)
    for form in ("float32", "csr", "dask", "dask-tiles", "store-blocks", "store-columns", "store-float32",
                 "store-weight", "sparse-store-3"):  # fmt: skip
        yield selected(f"form/{form}/greedy-rls", "several", form, k=4, method="greedy-rls", lam=0.5)
    for form in ("csr", "store-blocks", "store-tiles", "store-weight", "sparse-store-2"):
        yield selected(f"form/{form}/kfold", "several", form, k=4, method="kfold", lam=0.5, folds=4)
    for form in ("csr", "dask", "pandas", "store-blocks", "store-columns", "store-float32"):
        yield selected(f"form/{form}/itself", "itself", form, k=4, method="forward")
    for form in ("dask-float32", "store-blocks", "store-tiles", "store-weight", "sparse-store-3"):
        for method in ("poss", "greedy-rls", "kfold"):
            yield of_method(f"on workers/{form}/{method}", "several", method, form=form, lam=0.5, client=True)
    yield of_method("on workers/store-blocks/pposs-asy", "several", "pposs-asy", form="store-blocks", client=True)
    yield of_method("on workers/store-blocks/itself", "itself", "two-stage", form="store-blocks", client=True)
    yield selected("form/store-weight/without weights", "several", "store-weight", k=4, sample_weight=False)
    yield selected("form/sparse-store-3/weights of obs", "several", "sparse-store-3", k=4, sample_weight="w")
    yield selected("form/sparse-store-3/itself", "several", "sparse-store-3", k=3, targets=None)


def _pareto() -> Iterator[Case]:
    poss: dict[str, dict[str, Any]] = {
        "the paper's iterations": {}, "iterations": {"iterations": 200}, "target_r2": {"target_r2": 0.6},
        "target": {"target": 60.0}, "patience": {"patience": 150}, "bound not met": {"bound": 1e-3},
        "bound met": {"bound": 1e6}, "isolation min-index": {"isolation": "min-index"},
        "isolation of one's own": {"isolation": by_parity, "iterations": 800},
        "warm_start forward": {"warm_start": "forward", "iterations": 100},
        "warm_start exchange": {"warm_start": "exchange", "restarts": 3, "iterations": 100},
        "exchange_every": {"exchange_every": 200, "iterations": 2000},
        "exchange_every and min-index": {"exchange_every": 150, "isolation": "min-index", "iterations": 1500},
        "seed": {"seed": 17},
        "memory": {"memory": 1 << 22, "iterations": 2000},
        "criterion": {"criterion": by_sum, "iterations": 1500},
        "criterion of the data": {"criterion": by_data, "iterations": 1500},
        "criterion, include": {"criterion": by_data, "iterations": 1000, "include": [5], "exclude": [1]},
        "criterion, min-index": {"criterion": by_sum, "iterations": 1000, "isolation": "min-index"},
        "criterion, isolation": {"criterion": by_data, "iterations": 1000, "isolation": by_parity},
        "criterion, target": {"criterion": by_data, "iterations": 1500, "target": 1500.0},
        "criterion, patience": {"criterion": by_data, "iterations": 1500, "patience": 120},
    }  # fmt: skip
    for name, options in poss.items():
        yield selected(f"poss/{name}", "several", k=4, **options)
    for name in ("exchange_every", "warm_start exchange", "isolation min-index"):
        yield selected(f"poss/{name}/itself", "itself", k=4, **poss[name])
        yield selected(f"poss/{name}/many targets", "many", k=4, lam=0.5, **poss[name])
    pposs: dict[str, dict[str, Any]] = {
        "the paper's iterations": {}, "processors": {"processors": 5, "iterations": 2000},
        "target_r2": {"target_r2": 0.6}, "patience": {"patience": 200}, "min-index": {"isolation": "min-index"},
        "isolation of one's own": {"isolation": by_parity, "iterations": 900}, "seed": {"seed": 17},
        "criterion": {"criterion": by_sum, "iterations": 1000},
        "criterion of the data": {"criterion": by_data, "iterations": 1000, "processors": 6},
    }  # fmt: skip
    for name, options in pposs.items():
        yield selected(f"pposs/{name}", "several", k=4, method="pposs", **options)
    yield selected("pposs/itself, min-index", "itself", k=4, method="pposs", isolation="min-index", iterations=3000)
    yield selected(
        "pposs/criterion on workers", "several", k=3, method="pposs", criterion=by_data, iterations=300, processors=16,
        client=True,
    )  # fmt: skip
    for name, options in {"criterion": {"criterion": by_sum}, "criterion of the data": {"criterion": by_data}}.items():
        yield selected(
            f"pposs-asy/{name}", "several", k=3, method="pposs-asy", iterations=8000, drop=ASY, why=WHY_ASY, **options
        )  # fmt: skip
    yield selected(
        "pposs-asy/min-index", "several", k=4, method="pposs-asy", iterations=100_000, isolation="min-index", drop=ASY,
        why=WHY_ASY,
    )  # fmt: skip
    for method in ("poss", "pposs"):

        def run(folder: Path, method: str = method) -> Found:
            asked: dict[str, Any] = {"k": 3, "method": method, "iterations": 120}
            return _of(dsel.select(*problem("one"), criterion=cross_validated(), **asked))

        yield Case(f"{method}/CrossValidated", run)


def _greedy() -> Iterator[Case]:
    for nu, factor in ((0.1, 5), (0.9, 5), (0.9, 1)):
        yield selected(f"foba/nu {nu}, {factor}", "trouble", k=5, method="foba", nu=nu, path_factor=factor)
    for restarts in (1, 6):
        yield selected(f"exchange/{restarts} restarts", "several", k=5, method="exchange", restarts=restarts, seed=3)
    yield selected("exchange/start forward", "several", k=5, method="exchange", start="forward")
    yield selected("exchange/start forward, itself", "itself", k=5, method="exchange", start="forward")
    yield selected("two-stage/seed", "itself", k=5, method="two-stage", seed=5)
    rest = problem("rest")
    several = problem("rest-several")
    rls: dict[str, tuple[str, dict[str, Any]]] = {
        "zero-one": ("labels", {"loss": "zero-one", "lam": 1.0}),
        "zero-one, recoded": ("recoded", {"loss": "zero-one", "lam": 1.0}),
        "intercept column": ("several", {"intercept": "column", "preprocess": "none", "lam": 1.0}),
        "intercept none, unit": ("several", {"intercept": "none", "preprocess": "unit", "lam": 1.0}),
        "intercept column, unit": ("several", {"intercept": "column", "preprocess": "unit", "lam": 1.0}),
        "intercept none, preprocess none": ("several", {"intercept": "none", "preprocess": "none", "lam": 1.0}),
        "lam_grid": ("several", {"lam_grid": [0.1, 1.0, 10.0]}), "lam_grid auto": ("one", {"lam_grid": "auto"}),
        "lam_grid, zero-one": ("labels", {"lam_grid": [0.1, 1.0, 10.0], "loss": "zero-one"}),
        "backward": ("several", {"direction": "backward", "lam": 1.0}),
        "floating": ("trouble", {"direction": "floating", "lam": 0.1, "k": 6}),
        "held_out": ("several", {"held_out": lambda folder: several, "lam": 1.0}),
        "held_out, zero-one": ("labels", {"held_out": lambda folder: (rest[0], np.sign(rest[1] - np.median(rest[1]))
                                                                        + (rest[1] == np.median(rest[1]))),
                                          "loss": "zero-one", "lam": 1.0}),
        "backward, include, weights": ("several", {"direction": "backward", "include": [3], "lam": 1.0,
                                                   "sample_weight": weights(60)}),
        "backward, held_out": ("several", {"direction": "backward", "held_out": lambda folder: several, "lam": 1.0}),
    }  # fmt: skip
    for name, (data, options) in rls.items():
        yield selected(f"greedy-rls/{name}", data, **{"k": 4, "method": "greedy-rls", **options})
    for every in (1, 2, "auto", "never"):
        yield selected(
            f"greedy-rls/fold_every {every}", "several", "store-blocks", k=5, method="greedy-rls", lam=0.5,
            fold_every=every,
        )  # fmt: skip
    yield selected(
        "greedy-rls/fold_every 2, zero-one", "labels", k=5, method="greedy-rls", lam=0.5, fold_every=2,
        loss="zero-one", chunks=(13, 12),
    )  # fmt: skip
    yield selected(
        "greedy-rls/held_out store", "several", "store-blocks", k=4, method="greedy-rls", lam=0.5,
        held_out=lambda folder: store(folder, "rest-several", (7, 12)),
    )  # fmt: skip
    yield selected(
        "greedy-rls/store, lam_grid", "several", "store-blocks", k=4, method="greedy-rls", lam_grid=[0.5, 5.0]
    )
    kfold: dict[str, dict[str, Any]] = {
        "folds": {"folds": 4}, "repeats": {"folds": 5, "repeats": 3}, "seed": {"seed": 9},
        "lam_grid": {"lam_grid": [0.1, 1.0, 10.0]}, "lam_grid auto": {"lam_grid": "auto", "folds": 3},
        "backward": {"direction": "backward", "lam": 1.0}, "floating": {"direction": "floating", "k": 6},
        "held_out": {"held_out": lambda folder: several}, "weights": {"sample_weight": weights(60), "lam": 1.0},
        "preprocess none": {"preprocess": "none", "lam": 1.0},
    }  # fmt: skip
    for name, options in kfold.items():
        yield selected(f"kfold/{name}", "several", **{"k": 4, "method": "kfold", **options})


def _exact() -> Iterator[Case]:
    branch: dict[str, dict[str, Any]] = {
        "eigenvalue": {"bound": "eigenvalue"}, "leaps": {"bound": "leaps"}, "nodes": {"nodes": 3},
        "nodes 12": {"nodes": 12, "bound": "eigenvalue"},
    }  # fmt: skip
    for data in ("several", "itself", "short"):
        for name, options in branch.items():
            if (name, data) == ("nodes", "itself"):
                continue  # the last bit of its bound depends on where BLAS finds its arrays in memory
            yield selected(f"branch-and-bound/{name}/{data}", data, k=4, method="branch-and-bound", **options)
    for data in ("one", "several"):
        yield selected(
            f"branch-and-bound/leaps, lam/{data}", data, k=4, method="branch-and-bound", bound="leaps", lam=2
        )
    yield selected("branch-and-bound/seed", "several", k=5, method="branch-and-bound", seed=8)
    astar: dict[str, dict[str, Any]] = {
        "gamma 1": {"gamma": 1.0}, "gamma inf": {"gamma": float("inf")}, "epsilon": {"epsilon": 0.3},
        "combined": {"bound": "combined"}, "combined, prune": {"bound": "combined", "prune": True},
        "prune": {"prune": True}, "nodes": {"nodes": 4}, "prune, include": {"prune": True, "include": [2], "lam": 0.5},
    }  # fmt: skip
    for data in ("several", "itself"):
        for name, options in astar.items():
            yield selected(f"astar/{name}/{data}", data, k=4, method="astar", **options)
    yield selected("astar/gamma 1/more columns than rows", "short", k=3, method="astar", gamma=1.0)


def _representations() -> Iterator[Case]:
    """What the workers' memory limit makes of it. The names say what it is now."""
    for limit in ("219MiB", "216MiB"):
        for method, more in (("forward", {}), ("poss", {"iterations": 3000}), ("backward", {}), ("omp", {"lam": 0.5})):
            yield selected(
                f"tiles/{limit}/{method}", "tiles", memory=limit, chunks=(20, 400), k=4, method=method, **more
            )
    yield selected("tiles/itself/poss", "tiles-itself", memory="219MiB", chunks=(20, 400), k=4, iterations=3000)
    yield selected(
        "tiles/itself/two-stage, unit", "tiles-itself", memory="219MiB", chunks=(20, 400), k=4, method="two-stage",
        preprocess="unit",
    )  # fmt: skip
    wide: dict[str, dict[str, Any]] = {
        "forward": {"method": "forward"}, "omp": {"method": "omp"}, "foba": {"method": "foba"},
        "exchange": {"method": "exchange"}, "poss": {"iterations": 3000},
        "poss, warm start": {"warm_start": "forward", "iterations": 2000},
        "pposs": {"method": "pposs", "iterations": 2000, "processors": 16},
        "astar": {"method": "astar", "gamma": float("inf"), "k": 2},
        "forward, lam, include": {"method": "forward", "lam": 0.5, "include": [17], "exclude": [5]},
        "forward, unit": {"method": "forward", "preprocess": "unit"},
    }  # fmt: skip
    for name, options in wide.items():
        yield selected(f"shards read/{name}", "wide", memory="290MiB", chunks=(24, 500), **{"k": 3, **options})
    for name, more in {
        "missing": {"missing": "mean"},
        "missing, weights": {"missing": "mean", "weighted": True},
    }.items():
        for method in ("forward", "poss"):
            yield selected(
                f"shards read/{method}, {name}", "wide-holes", memory="290MiB", chunks=(24, 500), k=3,
                **{**wide[method], **more},
            )  # fmt: skip
    yield selected(
        "rows/forward, missing", "wide-holes-itself", memory="287MiB", chunks=(24, 500), k=3, method="forward",
        missing="mean",
    )  # fmt: skip
    yield selected("tiles/weights", "tiles", memory="219MiB", chunks=(20, 400), weighted=True, k=4, iterations=2000)
    for name in ("forward", "poss"):
        yield selected(
            f"shards read/{name}, many targets",
            "wide-many",
            memory="290MiB",
            chunks=(24, 500),
            **{"k": 3, **wide[name]},
        )
        yield selected(
            f"shards read/{name}, float32 tiles", "wide", memory="290MiB", chunks=(10, 500), dtype="float32",
            **{"k": 3, **wide[name]},
        )  # fmt: skip
    yield selected("shards kept/forward", "wide-kept", memory="380MiB", chunks=(24, 500), k=3, method="forward")
    yield selected("shards kept/poss", "wide-kept", memory="380MiB", chunks=(24, 500), k=3, iterations=2000)
    yield selected(
        "shards kept/itself", "square-itself", memory="450MiB", chunks=(2000, 300), dtype="float32", k=2,
        method="forward",
    )  # fmt: skip
    for name, options in {
        "forward": {"method": "forward"}, "poss": {"iterations": 3000}, "exchange": {"method": "exchange"},
        "foba, lam": {"method": "foba", "lam": 0.5}, "astar": {"method": "astar", "gamma": 1.0, "k": 2},
        "poss, unit": {"preprocess": "unit", "iterations": 3000},
    }.items():  # fmt: skip
        yield selected(f"rows/{name}", "wide-itself", memory="287MiB", chunks=(24, 500), **{"k": 3, **options})
    yield selected("sketch/forward", "huge-itself", memory="292MiB", chunks=(400, 200), k=3, method="forward")
    yield selected("sketch/poss", "huge-itself", memory="292MiB", chunks=(400, 200), k=3, iterations=3000)


def _plans() -> Iterator[Case]:
    for method, options in SHORT.items():
        data = "itself" if method in ITSELF else "several"
        yield planned(f"plan/{method}", data, k=4, method=method, workers=2, worker_memory="1GiB", **options)
    blocks: dict[str, Any] = {"chunks": (13, 12), "workers": 3, "worker_memory": "2GiB"}
    for name, more in {
        "kfold": {"method": "kfold", "folds": 3, "repeats": 2, "lam_grid": [1.0, 2.0]},
        "greedy-rls, lam_grid": {"method": "greedy-rls", "lam_grid": [1.0, 2.0]},
        "greedy-rls, cache": {"method": "greedy-rls", "fold_every": 2},
        "greedy-rls, backward": {"method": "greedy-rls", "direction": "backward"},
        "missing": {"missing": "mean"}, "unsupervised": {"unsupervised": True}, "patience": {"patience": 50},
    }.items():  # fmt: skip
        yield planned(f"plan/store/{name}", "several", k=4, **{**blocks, **more})
    yield planned("plan/tiles", "tiles", (20, 400), k=4, workers=2, worker_memory="219MiB")
    yield planned("plan/shards read", "wide", (24, 500), k=3, workers=2, worker_memory="290MiB")
    yield planned("plan/shards read, pposs", "wide", (24, 500), k=3, method="pposs", workers=2, worker_memory="290MiB")
    yield planned("plan/shards kept", "wide-kept", (24, 500), k=3, workers=2, worker_memory="380MiB")
    yield planned("plan/rows", "wide-itself", (24, 500), k=3, workers=2, worker_memory="287MiB")
    yield planned("plan/sketch", "huge-itself", (400, 200), k=3, workers=2, worker_memory="292MiB")
    yield planned("plan/does not fit", "wide", (24, 500), k=3, method="rfe", workers=2, worker_memory="150MiB")


def _saved() -> Iterator[Case]:
    def reopened(folder: Path) -> Found:
        made = dsel.select(*problem("several"), k=4, lam=0.5, iterations=2000)
        made.save(str(folder / "saved"), overwrite=True)
        found = of_selection(dsel.open_selection(str(folder / "saved")))
        assert found == of_selection(made)
        return found, ""

    yield Case("saved and opened again", reopened)


def _certificates(folder: Path) -> Any:
    return of_selection(dsel.open_selection(str(folder)))


_CERTIFIED = ("indices", "error", "r2", "front", "certificate", "notes", "passes", "bytes_read")


def _certified(result: Path, *steps: tuple[Any, ...]) -> dict[str, Any]:
    """`dsel certify` with each of these arguments in turn, and what the result holds after each."""
    fields: dict[str, Any] = {}
    for i, step in enumerate(steps):
        code, _, err = shell("certify", result, *step)
        assert code == 0, err
        found = _certificates(result)
        fields |= {f"certify {i}, {name}": found[name] for name in _CERTIFIED}
    code, shown, _ = shell("show", result)
    return {**fields, "show": [code, bool(shown)]}


def _jobs() -> Iterator[Case]:
    def fresh(folder: Path, name: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        return folder / name

    def poss_and_proofs(folder: Path) -> Found:
        here = fresh(folder, "job-poss")
        data = store(here, "several", (13, 12))
        result = run_job(here, store=data, k=4, seed=4, options={"iterations": 40}, lam=0.5)
        fields = _certificates(result)
        fields |= _certified(result, ("--nodes", 2), ("--nodes", 5), ("--time", "1m"), ("--all-sizes",))
        code, _, _ = shell("run", here / "job.yaml")  # it is done: nothing happens
        assert _certificates(result)["certificate"] == fields["certify 3, certificate"]
        return {**fields, "again": code}, "poss, certify, show"

    def table(folder: Path) -> Found:
        here = fresh(folder, "job-table")
        X, Y = problem("one")
        with (here / "table.csv").open("w", newline="") as file:
            write = csv.writer(file)
            write.writerow(["name", *(f"c{j}" for j in range(12)), "yield", "count"])
            for i, row in enumerate(X):
                write.writerow([f"s{i}", *map(repr, row.tolist()), repr(float(Y[i, 0])), i % 3])
        columns = ("--target", "yield", "--index", "name", "--weight", "count")
        code, _, err = shell("ingest", here / "table.csv", here / "table.zarr", *columns)
        assert code == 0, err
        result = run_job(here, store="table.zarr", k=4, method="exchange", options={"restarts": 2}, include=["c3"])
        fields = {**_certificates(result), **_certified(result, ("--nodes", 3), ("--all-sizes",))}
        return fields, "ingest, exchange, certify"

    def rounds(folder: Path) -> Found:
        here = fresh(folder, "job-rounds")
        data, rest = store(here, "several", (13, 12)), store(here, "rest-several", (7, 12))
        options = {"fold_every": 2, "held_out": rest}
        result = run_job(here, store=data, k=5, method="greedy-rls", lam=0.5, options=options)
        return _certificates(result), "greedy-rls with a cache on disk"

    def twice(folder: Path) -> Found:
        """The second finds the statistics saved, and a proof of every size follows."""
        here = fresh(folder, "job-twice")
        data = store(here, "several", (13, 12))
        first = _certificates(run_job(here, store=data, k=4, method="omp"))
        again = run_job(here, store=data, k=4, method="omp", out="again", certify={"time": "1m", "sizes": "all"})
        second = _certificates(again.parent / "again")
        second["certificate"] = [row[:-1] for row in second["certificate"]]
        return {**first, **{f"second {name}": value for name, value in second.items()}}, "omp twice, certify"

    def small_workers(folder: Path) -> Found:
        here = fresh(folder, "job-wide")
        data = store(here, "wide", (24, 500))
        cluster = {"local": {"workers": 2, "memory": "290MiB"}}
        result = run_job(here, store=data, k=3, method="forward", cluster=cluster)
        return _of(dsel.open_selection(str(result)))

    def refused_by_the_shell(folder: Path) -> Found:
        here = fresh(folder, "job-refused")
        data = store(here, "several", (13, 12))
        codes = [
            shell("run", job(here / str(i), **{"store": data, "k": 3, **keys}))[0]
            for i, keys in enumerate((
                {"method": "posss"}, {"k": 40}, {"store": "nowhere.zarr"}, {"options": {"iteration": 3}},
                {"cluster": {"local": {"workers": 1, "memory": "50MB"}}},
            ))
        ]  # fmt: skip
        return {"code": codes}, ""

    why = (
        "workers take nodes as they come: how many they need may differ from run to run, what is proved at the end not"
    )
    yield Case("job/poss, certify, show", poss_and_proofs)
    yield Case("job/ingest, exchange, certify", table)
    yield Case("job/greedy-rls, cache, held_out", rounds)
    yield Case("job/omp twice, certify", twice, (), why)
    yield Case("job/shards read", small_workers)
    yield Case("job/refused", refused_by_the_shell)


CASES = (
    *_methods(), *_preparations(), *_forms(), *_pareto(), *_greedy(), *_exact(), *_representations(), *_plans(),
    *_saved(), *_jobs(),
)  # fmt: skip
