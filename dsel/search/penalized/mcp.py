"""MCP: the columns of the models along the path of the minimax concave penalty.

Source: Zhang, "Nearly unbiased variable selection under minimax concave penalty", Annals of Statistics 38, 2010. The
solver is skglm's.
"""

from __future__ import annotations

from pydantic import Field

from dsel.config.types import Float
from dsel.search.penalized.nonconvex import concave_method
from dsel.search.penalized.path import PathOptions


class McpOptions(PathOptions):
    """Options of MCP.

    Parameters
    ----------
    shape : float
        Where the penalty ends, in multiples of its strength. The less, the closer to the best subset.
    """

    shape: Float = Field(3.0, gt=1)


METHOD = concave_method(
    "mcp", "Choose the columns of the models along the path of the minimax concave penalty.", McpOptions,
    ("MCPenalty", "BlockMCPenalty"),
)  # fmt: skip
