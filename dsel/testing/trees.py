"""Check a tree of proofs: its bounds, its answer, and how it is saved and shared."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

from dsel.search.exact.choose_tree import TREES, ProofProblem, TreeEntry
from dsel.search.exact.proof import Proof
from dsel.search.exact.tree import BestFirstTree
from dsel.testing.problems import SmallProblem, require, small_problems

#: What rounding in the least squares of this module may be worth, as a share of ||Y||^2.
_ROUNDING = 1e-9
#: The most steps of a proof. A tree of nine columns has fewer nodes.
_MOST_STEPS = 10_000


def check_tree(entry: TreeEntry, problems: Sequence[SmallProblem] | None = None, *, k: int = 3) -> None:
    """Check that a tree of proofs keeps the contract of `dsel.search.exact.tree.BestFirstTree`.

    Parameters
    ----------
    entry : TreeEntry
        The tree. It need not be installed.
    problems : sequence of SmallProblem, optional
        What to prove; by default `small_problems`. Those that the tree does not suit are left out.
    k : int
        The most columns or groups to choose.

    Raises
    ------
    AssertionError
        The tree breaks the contract, or suits none of the problems. The message says how.

    Notes
    -----
    These statements are checked on each problem, where all subsets are tried:

    - the bound is at most the least error at every moment of the proof, but for what the certificate says it leaves
      open; it never falls while the best subset stays the same;
    - a proof that ends has the least error, at most k columns, and a certificate that says so;
    - the known subset is never lost;
    - a tree that is saved and restored visits the same nodes, and proves the same;
    - leased nodes stay open, can be put back, and can be explored by another process, if the tree is `distributable`.

    Examples
    --------
    >>> from dsel.search.exact.choose_tree import TREES
    >>> check_tree(TREES["branch-and-bound"], small_problems()[:1])
    """
    require(entry.name == entry.tree.kind, f"The entry {entry.name!r} has a tree of the kind {entry.tree.kind!r}.")
    suited = [problem for problem in problems or small_problems() if entry.suits(_problem(problem, k))]
    require(suited, f"{entry.name} suits none of the problems. Give problems that it suits.")
    with TREES.including(entry):
        for problem in suited:
            check = _Check(entry, problem, k)
            check.proof()
            check.restored()
            check.leases()


def _problem(problem: SmallProblem, k: int, incumbent: tuple[int, ...] = ()) -> ProofProblem:
    return ProofProblem(problem.objective, k, incumbent)


class _Check:
    """Proofs of one tree about one problem."""

    def __init__(self, entry: TreeEntry, problem: SmallProblem, k: int) -> None:
        self.entry, self.problem, self.k = entry, problem, k
        self.least, self.total = problem.least_error(k), problem.objective.total
        self.what = f"{entry.name}, {problem.name}"

    def begin(self, incumbent: tuple[int, ...] = ()) -> Proof:
        tree = self.entry.begin(_problem(self.problem, self.k, incumbent))
        value = self.problem.objective.value(incumbent) if incumbent else float("inf")
        return Proof(tree, value)

    def proof(self) -> None:
        """Check the bound after every node, and the answer."""
        known = tuple(range(self.k))
        proof = self.begin(known)
        self._bound_is_true(proof.search)
        lower = proof.search.lower
        for _ in range(_MOST_STEPS):
            if not proof.search.active:
                break
            before = proof.search.best
            proof.run(nodes=1)
            self._bound_is_true(proof.search)
            if proof.search.best == before:
                fell = proof.search.lower < lower - _ROUNDING * self.total
                require(not fell, f"{self.what}: the bound falls from {lower!r} to {proof.search.lower!r}.")
            lower = proof.search.lower
        require(not proof.search.active, f"{self.what}: the proof does not end.")
        self._answer_is_right(proof)
        require(
            proof.search.best_value <= self.problem.error(known) + _ROUNDING * self.total,
            f"{self.what}: the known subset is lost.",
        )

    def _bound_is_true(self, tree: BestFirstTree[Any]) -> None:
        certificate = tree.certificate()
        most = self.least + (_ROUNDING + certificate.dependent_gap) * self.total
        require(certificate.bound <= most, f"{self.what}: the bound {certificate.bound!r} is above {self.least!r}.")
        require(len(tree.best) <= self.k, f"{self.what}: {tree.best} are more than {self.k}.")

    def _answer_is_right(self, proof: Proof) -> None:
        tree, certificate = proof.search, proof.certificate()
        value = self.problem.error(tree.best)
        same = abs(certificate.value - value) <= 1e-7 * self.total
        require(same, f"{self.what}: the certificate states f = {certificate.value!r}; least squares give {value!r}.")
        if tree.proven:
            require(
                abs(value - self.least) <= 1e-7 * self.total,
                f"{self.what}: {value!r} is said to be proved, and {self.least!r} is reached.",
            )
            gap = certificate.gap - (1e-9 + certificate.rounding_error) * self.total
            require(gap <= 0.0, f"{self.what}: proved, and the certificate has the bound {certificate.bound!r}.")

    def restored(self) -> None:
        """Check that a saved tree continues as if it had not been interrupted."""
        whole, cut = self.begin(), self.begin()
        cut.run(nodes=2)
        state = json.loads(json.dumps(cut.state()))
        again = Proof.resume(self.problem.objective, state)
        require(type(again.search) is type(cut.search), f"{self.what}: another tree is restored.")
        require(again.search.iteration == cut.search.iteration, f"{self.what}: the count of nodes is lost.")
        require(
            abs(again.search.lower - cut.search.lower) <= _ROUNDING * self.total, f"{self.what}: the bound is lost."
        )
        require(again.search.best == cut.search.best, f"{self.what}: the best subset is lost.")
        for proof in (whole, again):
            proof.run()
        ends = [(proof.search.best, proof.search.iteration, proof.search.proven) for proof in (whole, again)]
        require(ends[0] == ends[1], f"{self.what}: after a restart it ends with {ends[1]} in place of {ends[0]}.")

    def leases(self) -> None:
        """Check that leased nodes stay in the bound and can be explored elsewhere."""
        tree = self.begin().search
        if not tree.distributable:
            return
        for _ in range(_MOST_STEPS):
            if tree.done:
                break
            if not self._explored(tree):
                tree.advance(tree.iteration + 1)
        require(tree.done, f"{self.what}: subtrees that are explored elsewhere do not end.")
        self._answer_is_right(Proof(tree, float("inf")))

    def _explored(self, tree: BestFirstTree[Any]) -> bool:
        """Lease nodes twice, put them back the first time, and explore them the second; return whether there were any.

        Nodes and what explores them are pickled, as they are for another process.
        """
        lower = tree.lower
        lease, nodes = tree.checkout(2, float("inf"), tree.subtree_size)
        if nodes:
            require(not tree.done, f"{self.what}: leased nodes are not open.")
            self._bound_is_true(tree)
            tree.requeue(lease)
            require(abs(tree.lower - lower) <= _ROUNDING * self.total, f"{self.what}: a lease changes the bound.")
            lease, nodes = tree.checkout(2, float("inf"), tree.subtree_size)
            work = pickle.loads(pickle.dumps(tree.work()))
            sent = pickle.loads(pickle.dumps(nodes))
            tree.complete(lease, work.explore(work.explorer(), sent, tree.best_value, 3))
        self._bound_is_true(tree)
        return bool(nodes)
