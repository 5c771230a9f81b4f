"""Figures 1, 3 and 4 of the POSS paper on sonar: training and test R^2 for every k up to 8, also with a ridge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dsel._lib.types import Floats
from dsel.objective.dense import DenseObjective
from dsel.search.exact.proof import Proof
from dsel.search.pareto.compiled import Poss, paper_iterations
from pipelines.papers.poss import penalized, table_2
from pipelines.papers.poss.halves import halves, rows_and_target
from pipelines.papers.preprocess import regression
from pipelines.papers.report.model import Claim, Content, Plot, Series
from pipelines.papers.report.settings import Settings

NAME = "sonar"
SIZES = tuple(range(1, table_2.K + 1))
#: The paper's lambda, a penalty per row.
RIDGE = 0.9615
_FIGURES = ("training R²", "test R²", "training RSS", "test R², ridge")
_GREEDY = ("FR", "FoBa", "OMP", "RFE")
#: The best subsets of every size of one search for the largest k, next to "POSS", a search for each k.
ONE_RUN = "POSS, one run"


def one_split(task: tuple[int, tuple[int, ...]]) -> dict[str, list[list[float]]]:
    """Return for every method four lists over k, as in `_FIGURES`; task: (split, values of k)."""
    return greedy_split(task, table_2.PENALISED)


def greedy_split(task: tuple[int, tuple[int, ...]], penalised: Sequence[str] = ()) -> dict[str, list[list[float]]]:
    """Return the same of the searches, and of those of the penalized methods that are installed."""
    split, sizes = task
    data = halves(NAME, split, 0)
    plain = regression(data.X, data.y)
    m = data.y.size
    ridge = replace(plain, lam=RIDGE * m)
    found: dict[str, list[list[float]]] = {}
    whole, whole_ridge = _poss(plain, max(sizes), split), _poss(ridge, max(sizes), split)
    for k in sizes:
        chosen, chosen_ridge = _chosen(plain, k, split), _chosen(ridge, k, split)
        chosen[ONE_RUN], chosen_ridge[ONE_RUN] = _members(whole, k), _members(whole_ridge, k)
        for method in filter(penalized.installed, penalised):
            chosen[method] = chosen_ridge[method] = penalized.support(method, plain, k)
        for method, S in chosen.items():
            with_ridge = chosen_ridge[method]
            figures = (
                1.0 - plain.value(S) / plain.c, data.test_r2(S), ridge.value(with_ridge) / m,
                data.test_r2(with_ridge, RIDGE * m),
            )  # fmt: skip
            for values, figure in zip(found.setdefault(method, [[] for _ in _FIGURES]), figures, strict=True):
                values.append(figure)
    return found


def _chosen(objective: DenseObjective, k: int, seed: int) -> dict[str, list[int]]:
    """Return the columns that the searches choose."""
    proof = Proof.begin(objective, k)
    proof.run(30.0)
    found = {"POSS": _members(_poss(objective, k, seed), k), "OPT": list(proof.certificate().indices)}
    return found | {method: list(table_2.GREEDY[method](objective, k).best(k).members) for method in _GREEDY}


def _poss(objective: DenseObjective, k: int, seed: int) -> Poss:
    search = Poss(objective, k, seed=seed, exchange_every=0)
    search.advance(paper_iterations(k, objective.n))
    return search


def _members(search: Any, k: int) -> list[int]:
    best = min((point for point in search.front() if point.size <= k), key=lambda point: point.value)
    return list(best.members)


def make(settings: Settings) -> Content:
    """Compute the curves."""
    if rows_and_target(NAME) is None:
        return Content.without_data(f"Figures 1, 3 and 4: {NAME} is not available.")
    splits, sizes = settings.pick((100, SIZES), (2, (1, 3)))
    work = settings.pick(one_split, greedy_split)  # the penalized methods take long to compile
    found = settings.map(work, [(split, sizes) for split in range(splits)])
    curves = {
        method: np.array([one[method] for one in found]) for method in found[0]
    }  # (splits, figures, sizes) for each method
    means = {method: values.mean(axis=0) for method, values in curves.items()}
    titles = ("Figure 1(b): training R²", "Figure 3(b): test R²", "Figure 4(a): training RSS with ridge",
              "Figure 4(b): test R² with ridge")  # fmt: skip
    plots = tuple(
        Plot(
            title=f"{title}, sonar", x="k", y=_FIGURES[place].split(",")[0],
            series=tuple(
                Series(name=method, x=tuple(map(float, sizes)), y=tuple(values[place]), kind="points")
                for method, values in means.items()
            ),
            words=_words(means, place, sizes),
        )
        for place, title in enumerate(titles)
    )  # fmt: skip
    return Content(
        lead=f"Means over {splits} random halves of sonar. The paper prints no numbers for its figures.",
        plots=plots, claims=_claims(means),
        reduced=(
            "OPT is proved for every k; the paper enumerated only k ≤ 5.",
            "The paper does not say whether POSS ran once or for each k. Both are shown; the statements are about one "
            "run.",
            "Lasso, SCAD and MCP choose their columns without the ridge.",
            "The test half is standardized by itself.",
        ),
        missing=("Figures 1(a) and 3(a): svmguide3 is not available.",),
    )  # fmt: skip


def _words(means: dict[str, Floats], place: int, sizes: tuple[int, ...]) -> str:
    said = ", ".join(f"{method} {values[place][-1]:.3f}" for method, values in means.items())
    return f"At k = {sizes[-1]}: {said}."


def _claims(means: dict[str, Floats]) -> tuple[Claim, ...]:
    train, test, rss, test_ridge = ({method: values[i] for method, values in means.items()} for i in range(4))
    others = [method for method in means if method not in ("POSS", ONE_RUN, "OPT")]
    convex = [method for method in others if method in table_2.PENALISED]
    behind = {form: float((train["OPT"] - train[form]).max()) for form in (ONE_RUN, "POSS")}
    lead = {form: min(float((train[form] - train[other]).mean()) for other in others) for form in behind}
    best_test = max(others, key=lambda method: test[method][-1])
    worst_rss = max(float((rss[ONE_RUN] - rss[method]).mean()) for method in others)
    best_ridge = max(others, key=lambda method: float(test_ridge[method].mean()))
    ahead = float((test_ridge[ONE_RUN] - test_ridge[best_ridge]).mean())
    claims = [
        Claim(
            said="POSS tightly follows OPT.", holds=behind[ONE_RUN] < 0.01,
            found=f"It is at most {behind[ONE_RUN]:.4f} below, and {behind['POSS']:.4f} with a run for each k.",
        ),
        Claim(
            said="POSS has an advantage over the other methods.", holds=lead[ONE_RUN] > 0.0,
            found=f"Its mean lead in training R² is at least {lead[ONE_RUN]:.4f}, and {lead['POSS']:.4f} with a run "
            "for each k.",
        ),
        Claim(
            said="Better training R² leads to worse test R² on sonar.",
            holds=test[ONE_RUN][-1] < test[best_test][-1],
            found=f"At the largest k, POSS has test R² {test[ONE_RUN][-1]:.3f}, {best_test} {test[best_test][-1]:.3f}.",
        ),
        Claim(
            said="With the ridge, POSS has the least training RSS.", holds=worst_rss <= 0.0,
            found=f"Averaged over k, the next method is {-worst_rss:+.5f} above it.",
        ),
        Claim(
            said="With the ridge, POSS has the best test R².", holds=ahead >= 0.0,
            found=f"Averaged over k, its difference from {best_ridge} is {ahead:+.4f}.",
        ),
    ]  # fmt: skip
    if convex:
        margin = min(float((train[g] - train[c]).mean()) for g in ("FR", "FoBa", "OMP") for c in convex)
        claims.insert(
            2,
            Claim(
                said="FR, FoBa and OMP are better than MCP, SCAD and Lasso in training R².", holds=margin > 0.0,
                found=f"The smallest mean difference is {margin:+.4f}.",
            ),
        )  # fmt: skip
    return tuple(claims)
