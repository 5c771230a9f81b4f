"""The proofs of nights on rows that grow by 1 %, continued from the tree of the night before, and from the beginning.

Both prove the same subset, that of exchange search on the rows of the night. A proof from the beginning also makes its
own quick search. CPU seconds are those of this process, without the search for the subset to prove. Columns are
standardized, so their scales change each night.

The rows are stationary; or coefficients, means and scales drift; or half of the columns of the model are replaced
half-way.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.exact.exact_search import CommonSetup
from dsel.search.exact.proof import Proof
from dsel.search.greedy.exchange import exchange
from pipelines.table import text_table

KINDS = ("stationary", "drift", "change")
#: Columns, columns to choose, and the rows of the first night.
COLUMNS, CHOSEN, ROWS = 200, 9, 600
NIGHTS = 60
_MOST_TREE_BYTES = 64 << 20
#: Nights between two lines about the progress.
_REPORTED = 5


@dataclass(frozen=True)
class Night:
    """The proofs of one night: the CPU seconds of both, leaves, bytes of the tree, and whether they agree.

    false_bound: whether the bound of the continued proof is above the value of the best subset that any proof found.
    """

    continued: float
    beginning: float
    checked: int
    searched: int
    kept: int
    same: bool
    proven: bool
    false_bound: bool


def run(quick: bool) -> dict[str, float]:
    """Print a table, and return the figures."""
    nights = 6 if quick else NIGHTS
    print(f"{ROWS} x {COLUMNS}, k = {CHOSEN}; {nights} nights of 1 % more rows")
    found = {}
    for kind in KINDS:
        found[kind] = follow(kind, nights)
        print(f"{kind}: ratio {_ratio(found[kind]):.2f}", flush=True)
    rows = [
        [
            kind, f"{median(one.beginning for one in all_):.2f}", f"{median(one.continued for one in all_):.2f}",
            f"{_ratio(all_):.2f}", f"{_total_ratio(all_):.2f}", f"{_hold(all_):.1%}",
            f"{max(one.kept for one in all_) / 1e6:.2f}", str(sum(one.proven for one in all_)),
        ]
        for kind, all_ in found.items()
    ]  # fmt: skip
    titles = ["", "from the beginning, CPU s", "continued", "ratio", "of the sums", "leaves hold", "MB", "proved"]
    print(text_table(titles, rows))
    every = [one for all_ in found.values() for one in all_]
    figures = {
        "proof_ratio": _ratio(every), "proof_ratio_of_sums": _total_ratio(every),
        **{f"proof_ratio_{kind}": _ratio(all_) for kind, all_ in found.items()}, "leaves_hold": _hold(every),
        "false_bounds": float(sum(one.false_bound for one in every)),
        "different": float(sum(not one.same for one in every)), "nights": float(len(every)),
        "most_tree_bytes": float(max(one.kept for one in every)),
    }  # fmt: skip
    return figures


def follow(kind: str, nights: int) -> list[Night]:
    """Return the nights after the first one, on data of a kind."""
    rng = np.random.default_rng(KINDS.index(kind))
    Z = _rows(rng, kind, 0.0, ROWS)
    proof = _proof(_objective(Z), (), None)
    found = []
    for night in range(1, nights + 1):
        best, tree = proof.search.best, proof.search.kept(_MOST_TREE_BYTES)
        late = 0.5 if nights < NIGHTS and night > nights // 2 else 0.0  # so that few nights see a change as well
        Z = np.vstack([Z, _rows(rng, kind, night / NIGHTS + late, Z.shape[0] // 100)])
        objective = _objective(Z)
        proof, whole = _proof(objective, best, tree or None), _proof(objective, best, None)
        certificate, other = proof.certificate(), whole.certificate()
        least = min(certificate.value, other.value)
        found.append(
            Night(
                certificate.cpu_seconds, other.cpu_seconds, certificate.leaves_checked, certificate.leaves_searched,
                sum(array.nbytes for array in tree.values()),
                abs(certificate.value - other.value) <= 1e-9 * objective.total, certificate.proven,
                certificate.bound > least + 1e-9 * objective.total,
            )
        )  # fmt: skip
        if night % _REPORTED == 0 or night == nights:
            line = f"{kind}: night {night} of {nights}, {_ratio(found):.2f} of the CPU from the beginning so far"
            print(line, file=sys.stderr, flush=True)
    return found


def _proof(objective: DenseObjective, before: tuple[int, ...], tree: dict[str, Any] | None) -> Proof:
    """Return the finished proof of the better one of two subsets: exchange search finds one, the other is known."""
    known = [exchange(objective, CHOSEN, start="forward").best(CHOSEN).members, before]
    best = min((S for S in known if S), key=objective.value)
    proof = Proof.begin(objective, CHOSEN, best, setup=CommonSetup(objective, guided=True), kept=tree)
    proof.run()
    return proof


def _rows(rng: np.random.Generator, kind: str, time: float, count: int) -> Floats:
    """Return rows of X and y at a time from 0 to 1."""
    X = rng.standard_normal((count, COLUMNS))
    beta = np.zeros(COLUMNS)
    beta[: CHOSEN + 1] = np.linspace(0.25, 0.5, CHOSEN + 1)
    if kind == "drift":
        beta[: CHOSEN + 1] *= 1.0 + 0.5 * time * np.where(np.arange(CHOSEN + 1) % 2, 1.0, -1.0)
    if kind == "change" and time > 0.5:
        beta = np.roll(beta, CHOSEN // 2)
        beta *= 2.0
    y = X @ beta + 2.4 * rng.standard_normal(count)
    if kind == "drift":
        X = (X + time) * (1.0 + 0.5 * time)
    return np.column_stack([X, y])


def _objective(Z: Floats) -> DenseObjective:
    """Return the objective of standardized rows."""
    Z = Z - Z.mean(axis=0)
    Z[:, :-1] /= Z[:, :-1].std(axis=0)
    G = Z.T @ Z
    return DenseObjective(G[:-1, :-1].copy(), G[:-1, -1:].copy(), float(G[-1, -1]))


def _ratio(nights: list[Night]) -> float:
    """Return the median CPU of the proofs that continued over that of those from the beginning."""
    return median(one.continued for one in nights) / median(one.beginning for one in nights)


def _total_ratio(nights: list[Night]) -> float:
    """Return the same of the sums, where long nights count."""
    return sum(one.continued for one in nights) / sum(one.beginning for one in nights)


def _hold(nights: list[Night]) -> float:
    """Return the share of leaves that needed no search."""
    checked = sum(one.checked for one in nights)
    return 1.0 - sum(one.searched for one in nights) / checked if checked else 1.0
