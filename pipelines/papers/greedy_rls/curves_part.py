"""Figures 4 to 15 of the greedy RLS paper as a part of the report."""

from __future__ import annotations

import numpy as np

from pipelines.papers.datasets import load
from pipelines.papers.greedy_rls import curves
from pipelines.papers.greedy_rls.curves import DISAGREES, SETS, Curves
from pipelines.papers.report.model import Claim, Content, Grid, Plot, Series
from pipelines.papers.report.settings import Settings

#: Folds and features, where they are fewer than the paper's ten folds and all features.
_FEWER = {"mnist5": (10, 100), "colon-cancer": (10, 400)}


def make(settings: Settings) -> Content:
    """Compute the curves. Finished folds are kept in the folder of the report."""
    wanted = settings.pick([*SETS], ["australian"])
    names = [name for name in wanted if load(SETS[name][0]) is not None]
    if not names:
        return Content.without_data("Figures 4 to 15: no data set is available.")
    plan = [
        (name, fold, _most(name, settings), 0, settings.folder / "folds")
        for name in sorted(names, key=lambda name: -len(_FEWER.get(name, ())))
        for fold in range(_folds(name, settings))
    ]
    each = settings.map(curves.saved_fold, plan)
    found: dict[str, Curves] = {}
    said: list[Claim] = []
    for name in names:
        mine = [fold for fold, task in zip(each, plan, strict=True) if task[0] == name]
        found[name] = curves.mean_curves(mine)
        said += _claims(curves.findings(name, found[name], curves.optimism_error(mine)))
    for line in curves.overall_findings(found):
        said += _claims(line)
    return Content(
        lead="Accuracy against the number of features, means over stratified folds. The penalty is chosen in each fold "
        "by leave-one-out accuracy with all features. The paper prints no numbers for these figures.",
        plots=tuple(plot for name in names for plot in _plots(name, found[name])),
        grids=(_grid(found),), claims=tuple(said),
        reduced=(
            *(f"{name}: {folds} of ten folds, the first {most} features." for name, (folds, most) in _FEWER.items()
              if name in names and not settings.quick),
            "Columns are standardized and there is an intercept; the paper does not say.",
        ),
        missing=("Figures 8 and 14: ijcnn1 is not available.",),
    )  # fmt: skip


def _folds(name: str, settings: Settings) -> int:
    return settings.pick(_FEWER.get(name, (curves.FOLDS, None))[0], 2)


def _most(name: str, settings: Settings) -> int | None:
    fewer: int | None = _FEWER.get(name, (0, None))[1]
    return settings.pick(fewer, 4)


def _claims(line: str) -> list[Claim]:
    """Return the statements of a line of findings. Its parts are joined by semicolons."""
    subject, _, rest = line.partition(": ") if ": " in line and not line.startswith(DISAGREES) else ("", "", line)
    claims = []
    for part in rest.rstrip(".").split("; "):
        holds = not part.startswith(DISAGREES)
        text = part.removeprefix(DISAGREES).removeprefix("and ")
        if "features are as accurate as all" in text:
            continue  # a finding, which is in the table
        claims.append(Claim(said=f"{subject}: {text}." if subject else f"{text[:1].upper()}{text[1:]}.", holds=holds))
    return claims


def _plots(name: str, found: Curves) -> tuple[Plot, Plot]:
    x = tuple(map(float, range(1, found.test.size + 1)))
    low = min(float(np.min([found.test.min(), found.random.min(), found.majority])), found.loo.min())
    limits = (max(low - 0.02, 0.0), 1.0)
    best = int(np.argmax(found.test))
    test = Series(name="greedy RLS", x=x, y=tuple(found.test))
    return (
        Plot(
            title=f"Figure {SETS[name][1]}: {name}", x="selected features", y="test accuracy", limits=limits,
            series=(
                test, Series(name="random selection", x=x, y=tuple(found.random)),
                Series(name="majority voter", x=(), y=(found.majority,), kind="level"),
            ),
            words=f"Best test accuracy {found.test[best]:.3f} with {best + 1} features; majority {found.majority:.3f}.",
        ),
        Plot(
            title=f"Figure {SETS[name][2]}: {name}", x="selected features", y="accuracy", limits=limits,
            series=(
                Series(name="test", x=x, y=tuple(found.test)), Series(name="leave-one-out", x=x, y=tuple(found.loo)),
            ),
            words=f"Leave-one-out is {found.optimism:+.3f} above test accuracy on average.",
        ),
    )  # fmt: skip


def _grid(found: dict[str, Curves]) -> Grid:
    return Grid(
        title="Accuracies",
        head=(
            "data", "features", "majority", "test with 1", "best test", "with", "test with the last",
            "as accurate from", "LOO − test",
        ),
        rows=tuple(
            (
                name, str(one.test.size), f"{one.majority:.3f}", f"{one.test[0]:.3f}", f"{one.test.max():.3f}",
                str(int(np.argmax(one.test)) + 1), f"{one.test[-1]:.3f}",
                str(curves.enough_features(one)), f"{one.optimism:+.3f}",
            )
            for name, one in found.items()
        ),
    )  # fmt: skip
