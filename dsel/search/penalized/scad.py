"""SCAD: the columns of the models along the path of the smoothly clipped absolute deviation penalty.

Source: Fan, Li, "Variable selection via nonconcave penalized likelihood and its oracle properties", Journal of the
American Statistical Association 96, 2001. The solver is skglm's.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dsel.config.types import Float
from dsel.search.method import Method, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.penalized.nonconvex import solver
from dsel.search.penalized.path import EXTRA, PathOptions, needs, supports


class ScadOptions(PathOptions):
    """Options of SCAD.

    Parameters
    ----------
    shape : float
        Where the penalty ends, in multiples of its strength; by default the value of Fan and Li.
    """

    shape: Float = Field(3.7, gt=2)


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    shape = task.options.shape

    def one(strength: float) -> Any:
        from skglm.penalties import SCAD

        return SCAD(strength, shape)

    def several(strength: float) -> Any:
        from skglm.penalties import BlockSCAD

        return BlockSCAD(strength, shape)

    return supports(task, solver(one, several))


METHOD = Method(
    "scad",
    "Choose the columns of the models along the path of the SCAD penalty.",
    run,
    options=ScadOptions,
    requirements=needs(("skglm", "skglm")),
    every_size=True,
    extra=EXTRA,
)
