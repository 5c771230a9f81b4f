"""How well a selection tells classes apart on the rows that it was made from, as plain data of a few kilobytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.losses.multinomial import class_name

if TYPE_CHECKING:
    from dsel.passes.class_tables import ClassTable
    from dsel.passes.loss_data import LossData

#: Points of a ROC curve that are kept.
_POINTS = 200

Curve = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class ClassFigures:
    """The ROC curve, the calibration and the confusion on the rows of the selection.

    Parameters
    ----------
    names : tuple of str
        The q classes.
    auc : tuple of float
        The area under each ROC curve: one of the second class for two classes, else one of each class.
    roc : tuple of pairs
        The shares of false and of true positives along each ROC curve.
    calibration : tuple of pairs
        The mean probability and the share of the class, in tenths of the rows by probability.
    confusion : tuple of tuple of float
        The weight of the rows of each class by predicted class.
    """

    names: tuple[str, ...]
    auc: tuple[float, ...]
    roc: tuple[Curve, ...]
    calibration: tuple[Curve, ...]
    confusion: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, table: ClassTable, names: Sequence[str]) -> ClassFigures:
        """Return the figures of counted rows."""
        curves = [table.roc(number) for number in range(len(table.bins))]
        return cls(
            tuple(names), tuple(float(np.trapezoid(true, false)) for false, true in curves),
            tuple(_thinned(*curve) for curve in curves),
            tuple(_pair(*table.calibration(number)) for number in range(len(curves))),
            tuple(tuple(row) for row in table.confusion.tolist()),
        )  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClassFigures:
        """Return the figures that were saved as JSON."""
        curves = {name: tuple(_pair(*map(np.array, pair)) for pair in values[name]) for name in ("roc", "calibration")}
        confusion = tuple(tuple(row) for row in values["confusion"])
        return cls(tuple(values["names"]), tuple(values["auc"]), curves["roc"], curves["calibration"], confusion)

    @property
    def drawn(self) -> list[str]:
        """The names of the curves: nothing for two classes, and each class for more."""
        return [""] if len(self.names) == 2 else [f"{name}: " for name in self.names]

    @property
    def accuracy(self) -> float:
        """The share of the rows whose most probable class is theirs."""
        table = np.array(self.confusion)
        return float(np.trace(table) / table.sum())


def _thinned(false: Floats, true: Floats) -> Curve:
    """Return some points of a curve, about equally far from each other."""
    along = (false + true) / 2.0
    at = np.unique(np.searchsorted(along, np.linspace(0.0, 1.0, _POINTS)).clip(0, along.size - 1))
    at = np.unique(np.concatenate([[0], at, [along.size - 1]]))
    return _pair(false[at], true[at])


def _pair(a: Floats, b: Floats) -> Curve:
    return tuple(a.tolist()), tuple(b.tolist())


def class_names(problem: LossData) -> list[str]:
    """Return the classes of the targets as text, in the order of the loss."""
    dataset = problem.dataset
    levels = next(iter(dataset.classes.values()), None)
    if levels is not None:
        return list(levels)
    if problem.loss.contrasts is not None and dataset.n_targets > 1:
        return [str(target) for target in dataset.targets]
    return [class_name(value) for value in problem.loss.parameters()["classes"]]
