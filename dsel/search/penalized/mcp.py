"""MCP: the columns of the models along the path of the minimax concave penalty.

Source: Zhang, "Nearly unbiased variable selection under minimax concave penalty", Annals of Statistics 38, 2010. The
solver is skglm's.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dsel.config.types import Float
from dsel.search.method import Method, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.penalized.nonconvex import solver
from dsel.search.penalized.path import EXTRA, PathOptions, needs, supports


class McpOptions(PathOptions):
    """Options of MCP.

    Parameters
    ----------
    shape : float
        Where the penalty ends, in multiples of its strength. The less, the closer to the best subset.
    """

    shape: Float = Field(3.0, gt=1)


def run(task: SearchTask) -> SearchOutcome:
    """Run the method on a task."""
    shape = task.options.shape

    def one(strength: float) -> Any:
        from skglm.penalties import MCPenalty

        return MCPenalty(strength, shape)

    def several(strength: float) -> Any:
        from skglm.penalties import BlockMCPenalty

        return BlockMCPenalty(strength, shape)

    return supports(task, solver(one, several))


METHOD = Method(
    "mcp",
    "Choose the columns of the models along the path of the minimax concave penalty.",
    run,
    options=McpOptions,
    requirements=needs(("skglm", "skglm")),
    every_size=True,
    extra=EXTRA,
)
