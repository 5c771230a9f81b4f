"""A proof for a loss: the best subset of at most k columns, the bound of all, and the near-best ones if asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dsel._lib.blas import one_blas_thread
from dsel._lib.kernel_loading import load_kernels
from dsel.search.anytime import Deadline
from dsel.search.exact.alternatives import NearBestAnswer
from dsel.search.exact.losses.coordinate_descent import LOSS_RELAXATION_KERNELS
from dsel.search.exact.losses.problem import LossProblem, dual_bound
from dsel.search.exact.losses.tree import LossTree
from dsel.search.exact.near_best import ListRule

__all__ = ["LossProblem", "LossProof", "Watcher", "dual_bound", "limit_of_proof", "prove_loss"]

#: The largest gap of a finished proof that counts as rounding, as a share of F without the columns to choose.
_PROVEN = 1e-6


class Watcher(Protocol):
    """What follows a proof: it may tell how far it is, save the tree, and end the proof."""

    def begin(self, tree: LossTree) -> None:
        """Take the new tree, which may follow what an earlier one has kept."""

    def after_node(self, tree: LossTree) -> bool:
        """Take the tree after a node, or after a pass of a wide one. Return whether the proof ends."""

    def at_end(self, tree: LossTree) -> None:
        """Take the tree at the end of the proof."""


@dataclass(frozen=True)
class LossProof:
    """The result of a proof.

    Attributes
    ----------
    value : float
        F of the best subset that was found.
    members : tuple of int
        Its columns, in order.
    bound : float
        A lower bound on F of all subsets of at most k columns.
    proven : bool
        Whether no better subset is possible, to rounding and the gap that was asked for.
    nodes : int
        How many nodes were bounded.
    seconds : float
        The wall time.
    ended : str
        Why it ended: "proven", "time", "nodes", "interrupted", or "rounding", whose gap no node can close.
    root_bound : float
        The bound of the first node.
    limit : float
        The largest size of a coefficient that the bound is about; infinity if it is about all.
    cpu_seconds : float
        The processor time of this call.
    checked, searched : int
        Leaves of a tree of other data that were bounded again, and that were searched then.
    began_again : str
        Why it did not continue an earlier proof that there might have been.
    near_best : NearBestAnswer, optional
        The near-best subsets and the verdicts, if they were asked for. Its items are the columns that may be chosen, in
        order, without included and excluded ones.
    """

    value: float
    members: tuple[int, ...]
    bound: float
    proven: bool
    nodes: int
    seconds: float
    ended: str
    root_bound: float
    limit: float = np.inf
    cpu_seconds: float = 0.0
    checked: int = 0
    searched: int = 0
    began_again: str = ""
    near_best: NearBestAnswer | None = None


def prove_loss(
    problem: LossProblem, k: int, *, include: Sequence[int] = (), exclude: Sequence[int] = (),
    incumbent: tuple[tuple[int, ...], float] | None = None, seconds: float | None = None, gap: float = 0.0,
    nodes: int | None = None, listing: ListRule | None = None, watcher: Watcher | None = None,
) -> LossProof:  # fmt: skip
    """Find the subset of at most k columns with the least F, and prove it.

    Parameters
    ----------
    problem : LossProblem
        The problem.
    k : int
        The largest number of columns, with the included ones.
    include, exclude : sequence of int
        Columns that are in all subsets, and in none.
    incumbent : tuple of columns and F, optional
        A good subset that is known.
    seconds, nodes : float and int, optional
        Limits of the wall time and of the nodes. Bound and subset are valid then, too.
    gap : float
        The relative gap that counts as proved, by default none.
    listing : ListRule, optional
        Which near-best subsets of k columns are listed, with a verdict for each column.
    watcher : Watcher, optional
        Follows the proof, and knows the leaves of an earlier one.

    Returns
    -------
    LossProof
        The best subset, and what is proved about all.
    """
    deadline = Deadline(seconds)
    return proof_by(lambda: LossTree(problem, k, include, exclude, gap, deadline, listing), incumbent, nodes, watcher)


def limit_of_proof(problem: LossProblem) -> float:
    """Return the largest size of a coefficient that a proof of a problem is about; infinity if it is about all."""
    if problem.limit is not None or problem.lam > 0.0:
        return np.inf if problem.limit is None else problem.limit
    load_kernels(*LOSS_RELAXATION_KERNELS, what="the proof")
    with one_blas_thread():
        return LossTree(problem, 0, (), (), 0.0, Deadline(None)).limit


def proof_by(
    make_tree: Callable[[], LossTree], incumbent: tuple[tuple[int, ...], float] | None = None,
    nodes: int | None = None, watcher: Watcher | None = None,
) -> LossProof:  # fmt: skip
    """Search a tree, and return what it proves. incumbent, nodes, watcher: as for `prove_loss`."""
    load_kernels(*LOSS_RELAXATION_KERNELS, what="the proof")
    start = time.process_time()
    with one_blas_thread():
        tree = make_tree()
        if incumbent is not None:
            tree.offer_fit(np.array(sorted(incumbent[0]), np.int64))
        if watcher is not None:
            watcher.begin(tree)
        ended = tree.run(nodes, None if watcher is None else watcher.after_node)
        if watcher is not None:
            watcher.at_end(tree)
        done = ended == "proven" or tree.is_decided  # a list may lack subsets where the best one is known
        proven = done and bool(tree.value - tree.bound <= max(_PROVEN * tree.total, tree.gap * abs(tree.value)))
        ended = "rounding" if ended == "proven" and not proven else ended
        near = tree.near_best_answer(proven)
    return LossProof(
        tree.value, tree.members, tree.bound, proven, tree.nodes, tree.seconds, ended, tree.root_bound, tree.limit,
        time.process_time() - start, tree.checked, tree.searched, tree.began_again, near,
    )  # fmt: skip
