"""Figures 4 to 15 of Pahikkala, Airola, Salakoski, "Linear time feature selection for regularized least-squares", 2010:
accuracy against the number of chosen features, by stratified ten-fold cross-validation.

In each fold lam is chosen by leave-one-out accuracy with all features, then features by leave-one-out accuracy. The
paper does not say how features were scaled nor whether there was an intercept: here both are dsel's defaults
(standardised, an intercept that is not penalised). ijcnn1 is not to be had. Each fold is saved when it is done, and not
computed again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dsel
from dsel._lib.types import Floats, Ints
from dsel.data.dataset import make_source
from dsel.errors import MissingExtraError
from dsel.passes.gram import gram
from dsel.passes.leave_one_out.rows import RowsOfSource, held_out_errors
from dsel.search.greedy.greedy_rls import nested_fits
from pipelines.papers.datasets import load, missing
from pipelines.processes import map_processes
from pipelines.table import text_table

#: Name in the paper, file, and figures: accuracy against random selection, and leave-one-out against test.
SETS = {
    "adult": ("a9a", 4, 10), "australian": ("australian", 5, 11), "colon-cancer": ("colon-cancer", 6, 12),
    "german.numer": ("german.numer", 7, 13), "mnist5": ("mnist", 9, 15),
}  # fmt: skip
FOLDS = 10

#: Where section 4.3 of the paper sees leave-one-out overfit.
OVERFITTED = ("colon-cancer", "german.numer")


@dataclass(frozen=True)
class Curves:
    """Accuracies after each step, of one fold or the mean of several; `lam` that was chosen (their median)."""

    test: Floats
    loo: Floats
    random: Floats
    majority: float
    lam: float

    @property
    def optimism(self) -> float:
        """LOO - test accuracy, the mean over all numbers of features."""
        return float((self.loo - self.test).mean())

    @property
    def over_random(self) -> float:
        """Test accuracy less that of random selection, the mean over the first half: at the end both have all."""
        return float((self.test - self.random)[: max(self.test.size // 2, 1)].mean())


#: What the figures of all numbers of features hold.
_HEADER = [
    "data", "features", "majority", "test, 1", "best", "at", "last", "over random*", "above it*", "LOO - test", "lam",
]  # fmt: skip


def run(names: list[str], folds: int, most: int | None, processes: int, folder: Path, seed: int) -> None:
    """Compute `folds` of the ten folds of each data set with up to `most` features (None: all); draw the curves into
    `folder`."""
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
        each = map_processes(_saved_fold, tasks, processes)
        found[name] = mean_curves(each)
        _draw(name, found[name], folder)
        lines.append(in_words(name, found[name], optimism_error(each)))
    if not found:
        return
    print(f"Accuracy, mean of {folds} of {FOLDS} stratified folds; curves in {folder}")
    cells = [[f"{c:.4g}" if isinstance(c, float) else str(c) for c in _row(*item)] for item in found.items()]
    print(text_table(_HEADER, cells))
    print("* the mean, and the share of sizes, over the first half of the curve")
    for line in [*lines, *on_the_whole(found)]:
        print(line)


def _row(name: str, curves: Curves) -> list[Any]:
    best, half = int(np.argmax(curves.test)), max(curves.test.size // 2, 1)
    return [
        name, curves.test.size, curves.majority, float(curves.test[0]), float(curves.test[best]), best + 1,
        float(curves.test[-1]), curves.over_random, float((curves.test > curves.random)[:half].mean()),
        curves.optimism, curves.lam,
    ]  # fmt: skip


#: Mean LOO - test accuracy above this counts as overfitting, and accuracies this near each other as equal.
NEAR = 0.01


def in_words(name: str, curves: Curves, error: float) -> str:
    """What the paper's section 4 says of a data set, and whether these curves say it too; error: of the optimism."""
    enough, expected = enough_features(curves), name in OVERFITTED
    above = float(curves.test.max()) - curves.majority
    claims = [
        (
            curves.over_random > 0.0,
            f"greedy RLS is above random selection, by {curves.over_random:+.3f} over the first half",
        ),
        (above > 0.0, f"and above the majority voter, by {above:+.3f} at its best"),
        (
            (curves.optimism > NEAR) == expected,
            f"LOO is {'over-optimistic' if expected else 'close to test'}: LOO - test is {curves.optimism:+.3f} "
            f"(standard error {error:.3f}) on average",
        ),
    ]
    said = "; ".join(("" if holds else "NOT SO: ") + claim for holds, claim in claims)
    done = f"{enough} of {len(curves.test)} features do as well as all, within {NEAR}"
    return f"{name} (figures {SETS[name][1]} and {SETS[name][2]}): {said}; {done}."


def on_the_whole(found: dict[str, Curves]) -> list[str]:
    """What the paper says of all data sets together."""
    few = sum(enough_features(curves) <= len(curves.test) // 2 for curves in found.values())
    said = "" if 2 * few > len(found) else "NOT SO: "
    lines = [f"{said}half the features, or fewer, do as well as all on most data sets: {few} of {len(found)}."]
    if set(found) > set(OVERFITTED):
        most = max(found, key=lambda name: found[name].optimism)
        said = "" if most == "colon-cancer" else "NOT SO: "
        lines.append(f"{said}overfitting is clearest on colon-cancer: LOO - test is largest on {most}.")
    return lines


def enough_features(curves: Curves) -> int:
    """The least number of features whose test accuracy is near that of all."""
    return 1 + int(np.argmax(curves.test >= curves.test[-1] - NEAR))


def problem(name: str) -> tuple[Any, Floats]:
    """X (m, n) and labels -1, +1 (m, 1)."""
    arrays = load(SETS[name][0])
    assert arrays is not None
    Y = arrays["Y"][:, :1]
    return arrays["X"], np.where(Y == 5.0, 1.0, -1.0) if name == "mnist5" else np.where(Y > 0.0, 1.0, -1.0)


def stratified(y: Floats, folds: int, seed: int) -> Ints:
    """(m,) the fold of each row: each class is dealt out in random order."""
    rng = np.random.default_rng(seed)
    fold = np.empty(y.size, np.int64)
    dealt = 0
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        fold[rows] = (dealt + np.arange(rows.size)) % folds
        dealt += rows.size
    return fold


def _saved_fold(task: tuple[str, int, int | None, int, Path]) -> Curves:
    """One fold, from its file where that is there."""
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
    """All curves for one split into training and test rows."""
    varying = np.flatnonzero(np.ptp(X, axis=0) > 0.0)
    X, X_test = X[:, varying], X_test[:, varying]
    k = min(most or varying.size, varying.size)
    found = dsel.select(X, Y, k=k, method="greedy-rls", loss="zero-one", lam_grid="auto", held_out=(X_test, Y_test))
    order = np.random.default_rng(seed).permutation(varying.size)[:k]
    source = make_source(X, Y)
    statistics, _ = gram(source)
    rows = RowsOfSource(source, statistics, "standardize", loss="zero-one")
    nested = nested_fits(rows.problem(found.lam), order.tolist(), range(1, k + 1))
    wrong = held_out_errors(make_source(X_test, Y_test), nested, rows.view)
    majority = 1.0 if (Y > 0).mean() >= 0.5 else -1.0
    return Curves(
        np.array([p.test_accuracy for p in found.path], np.float64),
        np.array([p.accuracy for p in found.path], np.float64),
        1.0 - wrong, float((Y_test == majority).mean()), found.lam,
    )  # fmt: skip


def mean_curves(curves: list[Curves]) -> Curves:
    """Mean over folds, as far as all of them go."""
    length = min(c.test.size for c in curves)
    test, loo, random = (
        np.mean([getattr(c, part)[:length] for c in curves], axis=0) for part in ("test", "loo", "random")
    )
    return Curves(
        test, loo, random, float(np.mean([c.majority for c in curves])), float(np.median([c.lam for c in curves]))
    )


def optimism_error(curves: list[Curves]) -> float:
    """Standard error of the folds' mean optimism; NaN for one fold."""
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
