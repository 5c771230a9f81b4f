"""The simplest tree of proofs, as another package would write it."""

from __future__ import annotations

from dsel.search.exact.choose_tree import TreeEntry
from dsel.search.exact.tree import BestFirstTree


class PlainTree(BestFirstTree):
    """Branch and bound by f of all columns that are left: a node is (chosen, columns that may follow)."""

    kind = "plain"

    def __init__(self, objective, k, incumbent=()):
        super().__init__(objective, k, "all columns")
        self._push(0.0, ((), tuple(range(objective.n))))
        self.offer(incumbent)

    @property
    def lower(self):
        return min([self.best_value, *(key for key, _, _ in self._heap[:1])])

    def _prunes(self, key):
        return key >= self.best_value

    def _visit(self, until):
        key, (chosen, allowed) = self._pop()
        self._visited += 1
        if self._prunes(key):
            self._prune_all(key, (chosen, allowed))
            return
        for i, j in enumerate(allowed if len(chosen) < self.k else ()):
            self._accept((*chosen, j), key)
            self._push(self.objective.value((*chosen, *allowed[i:])), ((*chosen, j), allowed[i + 1 :]))

    def state(self):
        return {**self._shared_state(), "nodes": [[key, *node] for key, _, node in self._entries()]}

    @classmethod
    def _restored(cls, objective, state, memory_limit, log, setup):
        tree = cls(objective, state["k"])
        tree._restore_shared(state)
        tree._clear()
        for key, chosen, allowed in state["nodes"]:
            tree._push(key, (tuple(chosen), tuple(allowed)))
        return tree


def entry_of(tree: type[BestFirstTree]) -> TreeEntry:
    """Return the entry of a tree for up to three columns."""
    return TreeEntry(tree, lambda p: p.k < 4 and not p.grouped, lambda p: tree(p.objective, p.k, p.incumbent))
