"""An option given as its default changes nothing, and an option without an effect is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsel
from dsel.config.job import JobFile, ListLimits
from dsel.config.request import SelectionRequest
from dsel.config.size_rule import SizeRule
from dsel.errors import DataError, OptionError
from dsel.jobs.same_work import is_same_work
from dsel.search.registry import METHODS
from dsel.sklearn import GreedyRLSSelector, SubsetRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
ETA = X[:, 3] - 1.5 * X[:, 1]
TARGETS: dict[str, Any] = {
    "squared": ETA + RNG.normal(size=40),
    "logistic": (ETA + RNG.logistic(size=40) > 0.0).astype(float),
    "poisson": RNG.poisson(np.exp(0.4 * ETA)).astype(float),
}
PAIRS = [(list(range(20)), list(range(20, 40))), (list(range(20, 40)), list(range(20)))]
#: Problems, as the arguments of a call. The loss names the target.
PROBLEMS: dict[str, dict[str, Any]] = {
    **{
        name: {"k": 2, "method": name} for name in METHODS.own if name not in ("portfolio", "exhaustive", "mcp", "scad")
    },
    "groups": {"k": 2, "method": "poss", "groups": [[0, 1], [2, 3]]},
    "criterion": {"k": 2, "method": "pposs", "criterion": lambda S: -float(sum(S)), "iterations": 100},
    "logistic": {"k": 2, "method": "forward", "loss": "logistic"},
    "poisson": {"k": 2, "method": "poss", "loss": "poisson", "iterations": 50},
    "auto": {"k": "auto", "method": "forward"},
    "auto, by ebic": {"k": "auto", "method": "forward", "choose_k": "ebic"},
    "auto, poisson": {"k": "auto", "method": "forward", "loss": "poisson", "max_k": 2},
}


def answer(**asked: Any) -> dict[str, Any]:
    """The answer without what is measured."""
    method = METHODS[asked["method"]]
    y = None if method.unsupervised_only else TARGETS[asked.get("loss", "squared")]
    found = dsel.select(X, y, **asked).as_dict()
    kept = ("indices", "error", "r2", "front", "ended", "notes", "size_curve", "passes", "swaps")
    proofs = [(row["status"], row["bound"]) for row in found["certificate"]]
    return {"options": found["request"]["options"], "proofs": proofs, **{name: found.get(name) for name in kept}}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_options_given_as_their_defaults_change_nothing(problem: str) -> None:
    asked = PROBLEMS[problem]
    options = METHODS[asked["method"]].options.model_fields
    fields = {**SelectionRequest.model_fields, **options}
    defaults = {name: field.default for name, field in fields.items() if name not in ("options", *asked)}
    expected = answer(**asked)
    assert answer(**{**defaults, **asked}) == expected
    if asked["method"] != "kfold":
        assert answer(**{**expected["options"], **asked})["indices"] == expected["indices"]


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_options_of_folds_choose_by_folds_also_next_to_a_criterion_that_is_none(loss: str) -> None:
    for rule in ({"folds": 5}, {"by": None, "folds": 5}, {"by": "folds"}, SizeRule(folds=5), {"split": "random"}):
        curve = answer(k="auto", max_k=2, method="forward", loss=loss, choose_k=rule)["size_curve"]
        assert curve["rule"] == "folds"
    saved = SizeRule().model_dump()
    assert SizeRule(**saved) == SizeRule()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"method": "exchange", "start": "forward", "restarts": 3}, "restarts: only with start=random"),
        ({"method": "kfold", "split": PAIRS, "folds": 3}, "folds goes with a split by name"),
        ({"method": "kfold", "split": PAIRS, "row_groups": np.arange(40)}, "row_groups goes with a splitter"),
        ({"method": "greedy-rls", "lam": 1.0, "lam_grid": "auto"}, "lam and lam_grid are both given"),
        ({"method": "poss", "criterion": len, "reduce": {"rank": 3}}, "reduce changes no criterion"),
        ({"method": "pposs", "groups": [[0, 1]], "max_in_flight": 3}, "with groups of columns, use processors"),
        (
            {"method": "pposs", "max_in_flight": 1, "search_on": "workers", "exchange_every": 9},
            "exchange_every cannot be combined with max_in_flight=1 and search_on=workers",
        ),
        ({"method": "poss", "loss": "poisson", "bound": 1.0}, "bound is about the squared error"),
        ({"method": "poss", "loss": "poisson", "target_r2": 0.5}, "target_r2 is about the squared error"),
        ({"method": "poss", "loss": "poisson", "target_value": 9.0}, "target_value is about the squared error"),
    ],
)
def test_an_option_without_an_effect_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        answer(k=2, **asked)


def test_folds_with_too_few_rows_are_named() -> None:
    with pytest.raises(DataError, match=r"a fold that trains on fewer rows than columns\. .*set lam > 0"):
        answer(k=2, method="kfold", direction="backward", split="forward", folds=10)


def test_near_copies_are_refused_for_a_criterion_too() -> None:
    copied = np.column_stack([X, X[:, 0]])
    with pytest.raises(OptionError, match="nearly copies"):
        dsel.select(copied, TARGETS["squared"], k=2, method="forward", criterion=len, near_copies="refuse")


def test_limits_that_exclude_each_other_are_refused() -> None:
    for more in ({"within": 0.1}, {"limit": 3}):
        with pytest.raises(OptionError, match=f"{next(iter(more))} and nbest exclude each other"):
            ListLimits.of(nbest=3, **more)
    assert ListLimits.of(nbest=3, within=0.01, limit=1000) == ListLimits.of(nbest=3)
    for sketch in ({"oversampling": 30}, {"power_iterations": 4}):
        with pytest.raises(OptionError, match="is for a randomized eigendecomposition"):
            dsel.eigh(X, **sketch)
    with pytest.raises(ValueError, match="cv and folds are both given"):
        GreedyRLSSelector(2, cv=3, folds=4).fit(X, TARGETS["squared"])


def test_a_search_ends_at_a_value_that_python_and_a_job_name() -> None:
    y = TARGETS["squared"]
    value = dsel.select(X, y, k=2, method="forward").error
    assert dsel.select(X, y, k=2, target_value=value * 1.001).ended == "target"
    assert METHODS["poss"].options(target=value) == METHODS["poss"].options(target_value=value)


@pytest.mark.parametrize("loss", ["squared", "poisson", "quantile"])
def test_a_loss_without_parameters_is_its_name(loss: str) -> None:
    y = TARGETS["squared" if loss == "quantile" else loss]
    first, second = (SubsetRegressor(2, loss=asked).fit(X, y) for asked in (loss, {loss: {}}))
    assert first.selection_.error == second.selection_.error
    assert first.score(X, y) == second.score(X, y)


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ({}, {"options": {"restarts": 10, "swaps": 0.0, "iterations": None}}),
        ({"method": "kfold"}, {"method": "kfold", "options": {"folds": 10}}),
        ({"k": "auto", "method": "forward"}, {"k": "auto", "method": "forward", "choose_k": "folds"}),
        ({"k": "auto", "loss": "poisson"}, {"k": "auto", "loss": {"poisson": {}}, "choose_k": {"by": "bic"}}),
        ({"loss": "quantile"}, {"loss": {"quantile": {"level": 0.5}}}),
        ({"certify": {}}, {"certify": {"time": 60, "nodes": None}}),
        ({"alternatives": {}}, {"alternatives": {"time": "60s", "within": "1%"}}),
    ],
)
def test_a_job_in_other_words_is_the_same_job(asked: dict[str, Any], same: dict[str, Any], tmp_path: Path) -> None:
    first, second, third = (
        {"job": JobFile(store=str(tmp_path), **{"k": 2, **keys}).identity()} for keys in (asked, same, {"lam": 1.0})
    )
    assert is_same_work(first, second)
    assert not is_same_work(first, third)
