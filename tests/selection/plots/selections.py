"""Selections to draw: of one and several targets, of X itself, with a proof, a criterion, a path, hostile labels."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

import dsel
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.jobs.certify import ProofBudget, certify_selection
from dsel.search.exact.certificate import Certificate
from tests.stores import regression

X, Y = regression(m=120)
#: Labels that are markup, formulas, control characters, long, wide, or nothing.
HOSTILE = [
    "<script>alert('x')</script>", "<img src=http://example.org/x.png>", "price $a$ in $", "a & b \"c\" 'd'",
    "\x1b]52;c;ZXZpbA==\x07", "two\nlines", "a_very_long_name_" * 12, "度数" * 30, " ", "]]>", "{{ 7 * 7 }}", "#1f2933",
]  # fmt: skip


@cache
def plain() -> dsel.Selection:
    """Return a selection by POSS for one target."""
    return dsel.select(X, Y, k=6, iterations=4000)


@cache
def certified() -> dsel.Selection:
    """Return a selection with certificates for every size, all proved."""
    dataset, request = as_dataset(X, Y), SelectionRequest(k=6, options={"iterations": 4000})
    return certify_selection(dataset, request, plain(), ProofBudget(sizes="all"))


@cache
def half_certified() -> dsel.Selection:
    """Return a selection whose proof has not ended: what is still possible is known."""
    found = plain()
    total = found.error / (1.0 - found.r2)
    one = Certificate(6, found.error, 0.6 * found.error, total, found.indices, nodes=1000, seconds=60.0)
    return replace(found, certificate=(one.as_dict(),))


@cache
def with_alternatives() -> dsel.Selection:
    """Return a selection with its near-best subsets."""
    return plain().with_alternatives(dsel.alternatives(plain(), X, Y, within=0.05))


@cache
def listed_by_bic() -> dsel.Selection:
    """Return a selection with the subsets of any size of least BIC."""
    return plain().with_alternatives(dsel.alternatives(plain(), X, Y, by="bic", nbest=5))


@cache
def several_targets() -> dsel.Selection:
    """Return a selection for three targets, by forward selection."""
    targets = np.column_stack([X[:, :3] @ [1.0, 2.0, 3.0], X[:, 5], X[:, 7] - X[:, 0]])
    return dsel.select(X, targets, k=5, method="forward")


@cache
def of_itself() -> dsel.Selection:
    """Return a selection for X itself."""
    return dsel.select(X, k=5, iterations=4000)


@cache
def by_criterion() -> dsel.Selection:
    """Return a selection that minimizes a function."""
    return dsel.select(X, Y, k=3, iterations=300, criterion=lambda S: float(sum(S)) - 10.0 * len(S))


@cache
def with_path() -> dsel.Selection:
    """Return a selection by cross-validated error, with held-out rows."""
    return dsel.select(X[:100], Y[:100], k=5, method="kfold", folds=4, held_out=(X[100:], Y[100:]))


@cache
def automatic() -> dsel.Selection:
    """Return a selection whose number of columns was chosen by folds."""
    return dsel.select(X, Y, k="auto", method="forward")


@cache
def grouped() -> dsel.Selection:
    """Return a selection of groups of columns."""
    groups = {"wind": [2, 3], "rain": [5, 6, 7], "sun": [0, 1]}
    return dsel.select(X, Y, k=3, method="forward", groups=groups)


@cache
def hostile() -> dsel.Selection:
    """Return a selection whose labels try to break a page or a picture."""
    frame = pd.DataFrame(X[:, : len(HOSTILE)], columns=HOSTILE)
    target = pd.Series(frame.to_numpy() @ np.linspace(3, 1, len(HOSTILE)), name="<b>yield</b>")
    return dsel.select(frame, target, k=len(HOSTILE), method="forward", exclude=())


@cache
def nothing() -> dsel.Selection:
    """Return a selection without a column."""
    return dsel.select(X, Y, k=2, iterations=300, criterion=lambda S: float("inf"))


@cache
def automatic_nothing() -> dsel.Selection:
    """Return a selection in which k="auto" chose no column."""
    return dsel.select(X, np.random.default_rng(4).normal(size=len(X)), k="auto", choose_k="bic")


ALL = {
    "plain": plain, "certified": certified, "half certified": half_certified,
    "with alternatives": with_alternatives, "listed by BIC": listed_by_bic, "automatic nothing": automatic_nothing,
    "several targets": several_targets,
    "of itself": of_itself, "by criterion": by_criterion, "with path": with_path, "automatic": automatic,
    "grouped": grouped, "hostile": hostile, "nothing": nothing,
}  # fmt: skip
