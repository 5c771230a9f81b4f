"""Figures 4 to 15 of Pahikkala, Airola, Salakoski (2010): accuracy against the number of chosen features.

The paper is "Linear time feature selection for regularized least-squares". Curves are means over stratified ten-fold
cross-validation. In each fold, leave-one-out accuracy with all features chooses lam, and then the features. The paper
says neither how features are scaled nor whether there is an intercept. Here both are dsel's defaults: standardized
columns and an intercept without penalty. ijcnn1 is missing. Finished folds are saved and not computed again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dsel
from dsel._lib.types import Floats, Ints
from dsel.data.as_dataset import as_dataset
from dsel.errors import MissingExtraError
from dsel.passes.cross_validation.held_out import held_out_moments
from dsel.passes.cross_validation.rows import DatasetRows
from dsel.passes.gram import gram_statistics
from dsel.search.cross_validation.rounds import nested_fits
from pipelines.papers.datasets import load, missing
from pipelines.processes import map_processes
from pipelines.table import text_table

#: For each name in the paper: file, figure with random selection, figure with leave-one-out accuracy.
SETS = {
    "adult": ("a9a", 4, 10), "australian": ("australian", 5, 11), "colon-cancer": ("colon-cancer", 6, 12),
    "german.numer": ("german.numer", 7, 13), "mnist5": ("mnist", 9, 15),
}  # fmt: skip
FOLDS = 10
#: Prefix of a claim of the paper that the curves do not confirm.
DISAGREES = "NOT CONFIRMED: "

#: Data sets on which leave-one-out overfits according to section 4.3 of the paper.
OVERFITTED = ("colon-cancer", "german.numer")


@dataclass(frozen=True)
class Curves:
    """Accuracies after each step, of one fold or the mean of several; `lam` is the chosen one, or the median."""

    test: Floats
    loo: Floats
    random: Floats
    majority: float
    lam: float

    @property
    def optimism(self) -> float:
        """LOO accuracy - test accuracy, the mean over all numbers of features."""
        return float((self.loo - self.test).mean())

    @property
    def over_random(self) -> float:
        """Test accuracy - accuracy of random selection, the mean over the first half of the curve."""
        return float((self.test - self.random)[: max(self.test.size // 2, 1)].mean())


_HEADER = [
    "data", "features", "majority", "test at 1", "best", "at", "last", "over random*", "share above*",
    "LOO - test", "lam",
]  # fmt: skip


def run(names: list[str], folds: int, most: int | None, processes: int, folder: Path, seed: int) -> None:
    """Compute `folds` of the ten folds of each data set with at most `most` features; draw curves into `folder`."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("The curves need matplotlib.", "pip install 'dsel[plots]'.") from error
    found: dict[str, Curves] = {}
    lines = []
    for name in names:
        if load(SETS[name][0]) is None:
            print(missing(SETS[name][0]))
            continue
        tasks = [(name, fold, most, seed, folder / "folds") for fold in range(folds)]
        each = map_processes(saved_fold, tasks, processes)
        found[name] = mean_curves(each)
        _draw(name, found[name], folder)
        lines.append(findings(name, found[name], optimism_error(each)))
    if not found:
        return
    print(f"Accuracy, mean of {folds} of {FOLDS} stratified folds; curves in {folder}")
    cells = [[f"{c:.4g}" if isinstance(c, float) else str(c) for c in _row(*item)] for item in found.items()]
    print(text_table(_HEADER, cells))
    print("* over the first half of the curve: mean difference, and share of sizes above random selection")
    for line in [*lines, *overall_findings(found)]:
        print(line)


def _row(name: str, curves: Curves) -> list[Any]:
    best, half = int(np.argmax(curves.test)), max(curves.test.size // 2, 1)
    return [
        name, curves.test.size, curves.majority, float(curves.test[0]), float(curves.test[best]), best + 1,
        float(curves.test[-1]), curves.over_random, float((curves.test > curves.random)[:half].mean()),
        curves.optimism, curves.lam,
    ]  # fmt: skip


#: A mean LOO - test accuracy above this is overfitting; accuracies within it are equal.
TOLERANCE = 0.01


def findings(name: str, curves: Curves, error: float) -> str:
    """Return the claims of the paper's section 4 about a data set, and whether these curves agree.

    error: standard error of the optimism.
    """
    enough, expected = enough_features(curves), name in OVERFITTED
    above = float(curves.test.max()) - curves.majority
    claims = [
        (
            curves.over_random > 0.0,
            f"greedy RLS is above random selection, by {curves.over_random:+.3f} over the first half",
        ),
        (above > 0.0, f"and above the majority voter, by {above:+.3f} at its best"),
        (
            (curves.optimism > TOLERANCE) == expected,
            f"LOO is {'over-optimistic' if expected else 'close to test'}: LOO - test is {curves.optimism:+.3f} "
            f"(standard error {error:.3f}) on average",
        ),
    ]
    said = "; ".join(("" if holds else DISAGREES) + claim for holds, claim in claims)
    done = f"{enough} of {len(curves.test)} features are as accurate as all, within {TOLERANCE}"
    return f"{name} (figures {SETS[name][1]} and {SETS[name][2]}): {said}; {done}."


def overall_findings(found: dict[str, Curves]) -> list[str]:
    """Return the paper's claims about all data sets together, and whether these curves agree."""
    few = sum(enough_features(curves) <= len(curves.test) // 2 for curves in found.values())
    said = "" if 2 * few > len(found) else DISAGREES
    lines = [f"{said}half the features or fewer are as accurate as all on most data sets: {few} of {len(found)}."]
    if set(found) > set(OVERFITTED):
        most = max(found, key=lambda name: found[name].optimism)
        said = "" if most == "colon-cancer" else DISAGREES
        lines.append(f"{said}overfitting is clearest on colon-cancer: LOO - test is largest on {most}.")
    return lines


def enough_features(curves: Curves) -> int:
    """Return the least number of features whose test accuracy is within TOLERANCE of that of all."""
    return 1 + int(np.argmax(curves.test >= curves.test[-1] - TOLERANCE))


def problem(name: str) -> tuple[Any, Floats]:
    """Return X (m, n) and labels -1, +1 (m, 1)."""
    arrays = load(SETS[name][0])
    assert arrays is not None
    Y = arrays["Y"][:, :1]
    return arrays["X"], np.where(Y == 5.0, 1.0, -1.0) if name == "mnist5" else np.where(Y > 0.0, 1.0, -1.0)


def stratified(y: Floats, folds: int, seed: int) -> Ints:
    """Return the fold of each row (m,); each class is dealt out in random order."""
    rng = np.random.default_rng(seed)
    fold = np.empty(y.size, np.int64)
    dealt = 0
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        fold[rows] = (dealt + np.arange(rows.size)) % folds
        dealt += rows.size
    return fold


def saved_fold(task: tuple[str, int, int | None, int, Path]) -> Curves:
    """Return the curves of one fold, from its file if it exists."""
    name, number, most, seed, folder = task
    path = folder / f"{name}-fold-{number}-seed-{seed}-most-{most or 'all'}.npz"
    if not path.exists():
        X, Y = problem(name)
        inside = stratified(Y[:, 0], FOLDS, seed) == number
        curves = fold_curves(X[~inside], Y[~inside], X[inside], Y[inside], most, seed + number)
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, **asdict(curves))
        partial.replace(path)
    with np.load(path) as saved:
        return Curves(saved["test"], saved["loo"], saved["random"], float(saved["majority"]), float(saved["lam"]))


def fold_curves(X: Floats, Y: Floats, X_test: Floats, Y_test: Floats, most: int | None, seed: int) -> Curves:
    """Return the curves for one split into training and test rows."""
    varying = np.flatnonzero(np.ptp(X, axis=0) > 0.0)
    X, X_test = X[:, varying], X_test[:, varying]
    k = min(most or varying.size, varying.size)
    found = dsel.select(X, Y, k=k, method="greedy-rls", loss="zero-one", lam_grid="auto", held_out=(X_test, Y_test))
    order = np.random.default_rng(seed).permutation(varying.size)[:k]
    dataset = as_dataset(X, Y)
    statistics = gram_statistics(dataset)
    rows = DatasetRows(dataset, statistics, "standardize", loss="zero-one")
    nested = nested_fits(rows.problem(found.lam), order.tolist(), range(1, k + 1))
    wrong = held_out_moments(as_dataset(X_test, Y_test), nested, rows.transform)[0]
    majority = 1.0 if (Y > 0).mean() >= 0.5 else -1.0
    return Curves(
        np.array([p.test_accuracy for p in found.path], np.float64),
        np.array([p.accuracy for p in found.path], np.float64),
        1.0 - wrong, float((Y_test == majority).mean()), found.lam,
    )  # fmt: skip


def mean_curves(curves: list[Curves]) -> Curves:
    """Return the mean over folds, up to the length of the shortest."""
    length = min(c.test.size for c in curves)
    test, loo, random = (
        np.mean([getattr(c, part)[:length] for c in curves], axis=0) for part in ("test", "loo", "random")
    )
    return Curves(
        test, loo, random, float(np.mean([c.majority for c in curves])), float(np.median([c.lam for c in curves]))
    )


def optimism_error(curves: list[Curves]) -> float:
    """Return the standard error of the folds' mean optimism, NaN for one fold."""
    each = np.array([c.optimism for c in curves])
    return float(each.std(ddof=1) / np.sqrt(each.size)) if each.size > 1 else float("nan")


def _draw(name: str, curves: Curves, folder: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4))
    FigureCanvasAgg(figure)
    sizes = np.arange(1, curves.test.size + 1)
    left, right = figure.subplots(1, 2)
    left.plot(sizes, curves.test, label="greedy RLS")
    left.plot(sizes, curves.random, label="random selection")
    left.axhline(curves.majority, color="gray", linestyle="--", label="majority voter")
    left.set(title=f"{name} (figure {SETS[name][1]})", xlabel="selected features", ylabel="test accuracy")
    right.plot(sizes, curves.test, label="test")
    right.plot(sizes, curves.loo, label="LOO")
    right.set(title=f"{name} (figure {SETS[name][2]})", xlabel="selected features", ylabel="accuracy")
    for axes in (left, right):
        axes.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=100)
    np.savez(folder / f"{name}.npz", test=curves.test, loo=curves.loo, random=curves.random, majority=curves.majority)
