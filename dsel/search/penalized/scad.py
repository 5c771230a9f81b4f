"""SCAD: the columns of the models along the path of the smoothly clipped absolute deviation penalty.

Source: Fan, Li, "Variable selection via nonconcave penalized likelihood and its oracle properties", Journal of the
American Statistical Association 96, 2001. The solver is skglm's.
"""

from __future__ import annotations

from pydantic import Field

from dsel.config.types import Float
from dsel.search.penalized.nonconvex import concave_method
from dsel.search.penalized.path import PathOptions


class ScadOptions(PathOptions):
    """Options of SCAD.

    Parameters
    ----------
    shape : float
        Where the penalty ends, in multiples of its strength; by default the value of Fan and Li.
    """

    shape: Float = Field(3.7, gt=2)


METHOD = concave_method(
    "scad", "Choose the columns of the models along the path of the SCAD penalty.", ScadOptions, ("SCAD", "BlockSCAD")
)
