"""What follows a proof for a loss: it saves its leaves, from which the same proof or that of a later run continues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from dsel.errors import Interrupted
from dsel.jobs.proof_store import MOST_TREE_BYTES, ProofBudget, SeriesOfProofs
from dsel.search.anytime import SLICE_SECONDS
from dsel.search.exact.losses.tree import LossTree

log = logging.getLogger("dsel")


class LossWatcher:
    """The saved leaves of the proof for one size, and what is called between its nodes.

    Parameters
    ----------
    size : int
        Columns to choose, without included ones.
    budget : ProofBudget
        How often the leaves are saved, and what an interruption does.
    trees : SeriesOfProofs or None
        Where leaves are read and written. None: they are not kept.
    on_slice : callable or None
        Called with the tree a few times in a second. It raises Interrupted to end the proof.
    """

    def __init__(
        self, size: int, budget: ProofBudget, trees: SeriesOfProofs | None, on_slice: Callable[[Any], None] | None
    ) -> None:  # fmt: skip
        self._size, self._budget, self._trees, self._on_slice = size, budget, trees, on_slice
        self._saved = self._told = time.monotonic()

    def begin(self, tree: LossTree) -> None:
        """Let the tree follow the leaves of this run, or those of the run before."""
        if self._trees is None:
            return
        tree.keeps = True
        own, why = self._trees.own_tree(self._size, self._budget), ""
        saved = own
        if saved is None:
            saved, why = self._trees.last_tree(self._size, self._budget)
        if saved is not None and not tree.follow(saved):
            why = "because the saved tree does not fit"
        if why and self._trees.last:
            log.info("the proof for size %d begins again, %s", self._size, why)
            tree.began_again = why
        elif saved is not None:
            log.info("continuing the proof for size %d%s", self._size, "" if own else " of the run before")

    def after_node(self, tree: LossTree) -> bool:
        """Save the leaves when it is time, and call `on_slice`. Return whether it interrupted a proof that may end."""
        now = time.monotonic()
        if now - self._saved >= self._budget.save_seconds:
            self.at_end(tree)
        if self._on_slice is None or now - self._told < SLICE_SECONDS:
            return False
        self._told = now
        try:
            self._on_slice(tree)
        except Interrupted:
            if not self._budget.keep_partial:
                self.at_end(tree)
                raise
            return True
        return False

    def at_end(self, tree: LossTree) -> None:
        """Save the leaves."""
        if self._trees is not None and (kept := tree.kept(MOST_TREE_BYTES)):
            self._trees.write(self._size, self._budget, kept)
            self._saved = time.monotonic()
