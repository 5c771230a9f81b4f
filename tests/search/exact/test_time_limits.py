"""Exact searches end at their deadline: the clock is a fake, and work is counted."""

import pickle
from collections import Counter

import numpy as np
import pytest

import dsel
from dsel._lib import low_rank
from dsel._lib.low_rank import ScaledMatrix, from_rows, pivoted_cholesky, square_of
from dsel.objective.dense import DenseObjective
from dsel.objective.few_targets import few_targets
from dsel.search.anytime import Deadline, OutOfTime
from dsel.search.exact.astar.search import AStar
from dsel.search.exact.bounds import BoundProblem, orthonormalised
from dsel.search.exact.branch_and_bound.subproblem_tree import BranchAndBound
from dsel.search.exact.exact_search import without_proof
from dsel.search.exact.guarantee import Limits
from dsel.search.exact.proof import Proof
from dsel.search.exact.proof_log import ProofLog
from dsel.search.method import SearchTask
from dsel.search.registry import METHODS
from dsel.verification.tree import RecordReader, Tree
from tests.search.exact.cases import regression


class Clock:
    """A clock that advances by `step` whenever someone looks at it."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def problem():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 14)) + rng.standard_normal((40, 1))
    return regression(X, X[:, :5] @ rng.standard_normal((5, 1)) + 3.0 * rng.standard_normal((40, 1)))


@pytest.fixture
def wide():
    """1100 columns of 12 rows: all bounds follow from 12 rows of K."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((12, 1100))
    return regression(X, rng.standard_normal((12, 1)))


def test_a_pause_does_not_count_in_a_deadline_nor_in_that_which_it_is_a_share_of():
    clock = Clock()
    whole = Deadline(10.0, clock)
    part = whole.share(0.3)
    with part.paused():
        clock.now += 100.0
    assert (whole.left, part.left) == (10.0, 3.0)
    clock.now += 3.0
    assert part.passed
    assert not whole.passed
    whole.require(7.0)
    with pytest.raises(OutOfTime, match="about 8 s, 7 s are left"):
        whole.require(8.0)
    with pytest.raises(OutOfTime, match="no time is left"):
        part.require()
    with pytest.raises(OutOfTime, match=r"about 0\.03 s, 0\.02 s are left"):
        Deadline(0.02, clock).require(0.03)


def subsets_left_open(log, problem, k):
    """Return the nodes that the files of a log leave open, less those that they continue."""
    left = Counter()
    for path in sorted(log.folder.glob("*.npz")):
        tree = Tree(problem.n, k, 2)
        list(tree.follow(RecordReader(path.name, path.read_bytes())))
        left.update(tree.open)
    return {node: count for node, count in left.items() if count}


def test_an_interrupted_branch_and_bound_keeps_its_open_nodes(problem):
    search = BranchAndBound(problem, 5)
    search.warm_up()
    while not search.done:
        search._explorer.interrupt()  # as the timer does
        before = search.iteration, search.lower
        assert not search.advance(search.iteration + 10)
        assert (search.iteration, search.lower) == before
        search._explorer.resume()
        search.advance(search.iteration + 10)
    whole = BranchAndBound(problem, 5)
    whole.advance(2**62)
    assert search.best == whole.best


@pytest.mark.parametrize("most_open", [0, 20_000])
def test_interruptions_anywhere_do_not_change_what_is_proved(most_open, tmp_path):
    rng = np.random.default_rng(8)
    problem = regression(rng.standard_normal((44, 30)), rng.standard_normal((44, 4)))
    whole = BranchAndBound(problem, 7, most_open=most_open)
    whole.advance(2**62)
    log = ProofLog(tmp_path, problem, 7)
    search = BranchAndBound(problem, 7, most_open=most_open, log=log)
    search.warm_up()
    seconds, limits, interruptions = 1e-5, 0, 0
    while not search.done:
        with search.time_limit(seconds):
            if limits % 2:
                search._explorer.interrupt()  # as if the time was over at once
            interruptions += not search.advance(search.iteration + 300)
        seconds, limits = 1.02 * seconds, limits + 1
    assert interruptions > 3
    assert search.proven
    assert search.best == whole.best
    log.finish([], {}, {})
    assert subsets_left_open(log, problem, 7) == {((), (1 << 30) - 1): -1}  # the leaves cover all


def test_time_limits_of_the_search_end_with_their_block(problem):
    search = BranchAndBound(problem, 5)
    search.warm_up()
    with search.time_limit(1e-6):
        while not search._explorer.interrupted:
            pass
        assert not search.advance(2**62)
        assert not search.done
    assert search.advance(2**62)
    with search.time_limit(None):
        assert search.proven


@pytest.mark.parametrize("bound", ["eigenvalue", "combined"])
def test_a_star_expands_nothing_after_its_deadline(problem, bound):
    clock = Clock()
    search = AStar(problem, 4, bound=bound, deadline=Deadline(1.0, clock))
    search.advance(3)
    assert search.iteration == 3
    clock.now = 2.0
    assert not search.advance(100)
    assert search.iteration == 3


def test_a_star_puts_a_node_back_that_takes_too_long(problem, monkeypatch):
    monkeypatch.setattr("dsel.search.exact.bounds._MANY", 0)
    clock = Clock()
    search = AStar(problem, 4, bound="combined", deadline=Deadline(1.0, clock))
    search.advance(2)
    before = (search.lower, search.iteration, len(search._fringe))
    clock.step = 0.3  # the clock is read for each column that is eliminated
    assert not search.advance(100)
    assert (search.lower, search.iteration, len(search._fringe)) == before


def test_an_elimination_looks_at_the_clock(problem, monkeypatch):
    monkeypatch.setattr("dsel.search.exact.bounds._MANY", 0)
    with pytest.raises(OutOfTime):
        orthonormalised(problem.K, problem.cross, problem.floor, Deadline(5.0, Clock(1.0)))


def test_a_wide_problem_takes_as_many_rows_as_its_rank(wide, monkeypatch):
    rows = []
    row, whole = ScaledMatrix.row, ScaledMatrix.whole
    monkeypatch.setattr(ScaledMatrix, "row", lambda C, j: rows.append(j) or row(C, j))
    monkeypatch.setattr(ScaledMatrix, "whole", lambda C: pytest.fail("all of K") if C.n > 500 else whole(C))
    problem = BoundProblem.of(wide)
    assert problem.root(4) == pytest.approx(0.0, abs=1e-9)
    assert len(rows) == 12
    rows.clear()
    assert Limits(wide).guarantee(4).error < 1e-2
    assert len(rows) <= 12 + 12  # for the limits, and for what all columns explain


def test_low_rank_and_dense_factorizations_agree(wide, monkeypatch):
    X = DenseObjective(wide.K, None, float(np.trace(wide.K)))
    few, square = few_targets(X), square_of(wide.K)
    C = ScaledMatrix.of(wide.K, np.sqrt(np.diag(wide.K)))
    quick = from_rows(C, 1e-10)
    limits = Limits(wide).guarantee(4)
    explained = BoundProblem.of(wide).explained
    monkeypatch.setattr(low_rank, "MANY", 10**6)
    assert quick is not None
    dense = pivoted_cholesky(C, 1e-10)
    assert (quick.rank, few.shape) == (dense.rank, (1100, 12))
    np.testing.assert_allclose(quick.W.T @ quick.W, dense.W.T @ dense.W, atol=1e-9)
    np.testing.assert_allclose(few @ few.T, wide.K @ wide.K, atol=1e-9 * np.trace(square))
    np.testing.assert_allclose(square, square_of(wide.K), atol=1e-9 * np.trace(square))
    np.testing.assert_allclose(explained, BoundProblem.of(wide).explained, rtol=1e-9)
    assert Limits(wide).guarantee(4) == pytest.approx(limits)


@pytest.mark.parametrize("name", ["branch-and-bound", "astar"])
def test_no_time_for_a_bound_leaves_the_subset_of_a_quick_search(name, monkeypatch):
    rng = np.random.default_rng(7)
    X = rng.standard_normal((30, 12))
    objective = regression(X, X)
    monkeypatch.setattr("dsel.objective.few_targets._MULTIPLICATIONS_PER_SECOND", 1.0)  # a very slow machine
    method = METHODS[name]
    outcome = method.run(SearchTask(objective, 3, 0, method.options(seconds=5.0)))
    assert outcome.ended == "seconds"
    (proof,) = outcome.certificates
    assert (proof.size, proof.status, proof.bound, proof.proven) == (3, "no-useful-bound", 0.0, False)
    assert proof.value == outcome.best(3).value
    assert outcome.best(3).size == 3
    assert "no time is left for a proof" in outcome.notes[0]
    with pytest.raises(OutOfTime, match="the next step takes about"):
        Proof.begin(objective, 3, deadline=Deadline(5.0))


def test_a_certificate_says_that_there_was_no_time_for_a_bound(monkeypatch):
    X = np.random.default_rng(7).standard_normal((30, 12))
    selection = dsel.select(X, k=3, method="forward")
    monkeypatch.setattr("dsel.objective.few_targets._MULTIPLICATIONS_PER_SECOND", 1.0)  # a very slow machine
    certified = dsel.certify(selection, X, seconds=5.0)
    (row,) = certified.certificate
    assert (row["status"], row["bound"], row["size"]) == ("no-useful-bound", 0.0, 3)
    assert row["indices"] == list(selection.indices)
    assert row["value"] == pytest.approx(selection.error)
    assert any("has too little time" in note for note in certified.notes)


@pytest.mark.parametrize(("rows", "k"), [(12, 3), (1500, 3), (1500, 6)])
def test_the_seconds_of_a_node_are_about_in_proportion_to_the_elements_that_it_changes(rows, k):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((rows, 1100))
    search = BranchAndBound(regression(X, X[:, :8].sum(axis=1, keepdims=True) + rng.standard_normal((rows, 1))), k)
    seconds = search.node_seconds()
    search.warm_up()
    search.advance(1)
    changed = search._explorer.work  # 2e9 of them take a second, of 2000 columns
    assert changed / 3.0 < 2e9 * seconds < 3.0 * changed
    if not search.done:
        assert search.node_seconds() < seconds


def test_a_certificate_says_what_time_a_node_needs(monkeypatch):
    monkeypatch.setattr("dsel.search.exact.branch_and_bound.subproblem_tree._ELEMENTS_PER_SECOND", 1e7)  # slow
    rng = np.random.default_rng(6)
    X = rng.standard_normal((12, 1100))
    y = rng.standard_normal(12)
    certified = dsel.certify(dsel.select(X, y, k=3, method="forward"), X, y, seconds=20.0)
    (row,) = certified.certificate
    assert row["node_seconds"] == pytest.approx(1100**3 / 3 / 1e7)
    assert (row["nodes"], row["time_limit"], row["time_needed"]) == (0, 20.0, 150.0)
    text = (
        "bound can stay near 0 until the last nodes. "  # what helps comes first
        "A node of the proof takes about 44.4 s, and the time limit of 20 s left less. "
        "To visit more nodes takes 150 s or more: --time 150s, in Python seconds=150."
    )
    assert text in str(certified)
    assert "A larger ridge penalty (lam) helps" in str(certified)
    later = dsel.certify(certified, X, y, seconds=1000.0, nodes=1)  # the sentence is about the last run
    assert later.certificate[0]["node_seconds"] == 0.0
    assert "A node of the proof" not in str(later)


def test_a_note_says_that_the_time_ended_before_the_first_node(monkeypatch):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40, 30))
    y = X[:, :9].sum(axis=1) + 9.0 * rng.standard_normal(40)
    selection = dsel.select(X, y, k=5, method="forward")
    with monkeypatch.context() as late:
        late.setattr("dsel.search.exact.tree.BestFirstTree._interrupted", property(lambda tree: True))
        late.setattr("dsel.search.exact.branch_and_bound.subproblem_tree.BranchAndBound._interrupted", True)
        certified = dsel.certify(selection, X, y, seconds=0.5)
    says = "the proof for 5 columns visited no node, because its time ended before the first one; more time helps"
    assert certified.certificate[0]["nodes"] == 0
    assert any(note.startswith(says) for note in certified.notes)
    assert not any("visited no node" in note for note in dsel.certify(certified, X, y, seconds=5.0, nodes=3).notes)


def test_failures_and_missing_time_are_told_apart(problem):
    late, failed = (without_proof(problem, 2, (1, 2), error) for error in (OutOfTime("soon"), ValueError("singular")))
    assert (late.ended, failed.ended) == ("seconds", "failed")
    assert "ValueError: singular" in failed.notes[0]


def test_problems_are_sent_to_workers_without_the_deadline(problem):
    sent = pickle.loads(pickle.dumps(BoundProblem.of(problem, deadline=Deadline(1.0))))
    assert sent.deadline is None
    assert sent.root(3) == BoundProblem.of(problem).root(3)
