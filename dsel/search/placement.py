"""Where a search runs, and why: in this process, or by tasks on the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

#: What a user may ask for. "auto": workers where they help.
SearchOn = Literal["auto", "client", "workers"]


@dataclass(frozen=True)
class Site:
    """What is known of the place of a search before it runs.

    Parameters
    ----------
    cluster : bool
        Whether there is a cluster with workers.
    has_gram : bool
        Whether this process will hold the whole Gram matrix.
    shares_folder : bool
        Whether the workers can read a folder of this process.
    """

    cluster: bool = False
    has_gram: bool = True
    shares_folder: bool = True


@dataclass(frozen=True)
class Placement:
    """Where a search runs.

    Parameters
    ----------
    where : {"client", "workers"}
        In this process, or by tasks on workers.
    why : str
        The reason, in words.
    options : dict
        Options of the method that follow from it. The result records them, so that a rerun is the same.
    tasks : int
        How many tasks may be out at the same time: more workers are of no use.
    seconds : float, optional
        The time of the search on one core of the reference machine, where it is known.
    tables : int
        Bytes of the tables that a worker keeps for each of its threads.
    iterations : int, optional
        How many iterations the search makes at most, where that depends on the representation of the Gram matrix.
    notes : tuple of str
        Remarks for the user of the plan.
    """

    where: Literal["client", "workers"] = "client"
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    tasks: int = 1
    seconds: float | None = None
    tables: int = 0
    iterations: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def on_workers(self) -> bool:
        """Return whether workers run tasks of the search."""
        return self.where == "workers"


#: The place of a method that has no choice.
HERE = Placement()
NO_CLUSTER = "there is no cluster"
ASKED = "search_on=client"
