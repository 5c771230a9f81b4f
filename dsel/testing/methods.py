"""Check a method: its declaration, its options, its answers, and how it continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from pydantic import BaseModel, ValidationError

from dsel._lib.types import Floats
from dsel.api.select import select
from dsel.config.request import SelectionRequest
from dsel.data.as_dataset import as_dataset
from dsel.errors import OptionError
from dsel.planning.validation import validate
from dsel.search.method import Method, Options, SearchTask
from dsel.search.outcome import SearchOutcome
from dsel.search.registry import METHODS
from dsel.selection.context import RunContext
from dsel.selection.pipeline import run_validated
from dsel.selection.result import Selection
from dsel.testing.problems import SmallProblem, require

_ROWS, _COLUMNS = 60, 10
#: A column that is 0.5 times another, a constant column, and the columns that are included and excluded.
_ORIGINAL, _COPY, _CONSTANT, _INCLUDED, _EXCLUDED = 1, 7, 4, 2, 5


class _Interrupted(Exception):
    """The search was stopped between two slices."""


def check_method(method: Method, *, k: int = 3, seed: int = 1, **options: Any) -> None:
    """Check that a method keeps the contract of `dsel.search.method.Method`.

    Parameters
    ----------
    method : Method
        The method. It need not be installed.
    k : int
        How many columns to choose, from 2 to 5.
    seed : int
        The seed of the method.
    **options
        Options of the method for the searches, such as a number of iterations.

    Raises
    ------
    AssertionError
        The method breaks the contract. The message says how.

    Notes
    -----
    These statements are checked, on small data with a constant column and a copy of a column:

    - the options are a model that refuses unknown keys, and truth values and text in place of numbers;
    - the answer has at most k different columns. Included columns are in it; excluded and constant ones are not;
    - labels, coefficients and predictions are those of the chosen columns in the data, in the order of the indices;
    - the error of each size is that of a least-squares fit, and no error is below the least one of all subsets;
    - bounds of certificates are at most the least error of all subsets;
    - the same seed gives the same bits, and the data are not changed;
    - a resumable search that is interrupted and continued from its saved state gives the same answer;
    - a method that takes groups counts them, and chooses all columns of a group or none.

    Examples
    --------
    >>> from dsel.search.greedy.path import OMP
    >>> check_method(OMP, k=2)
    """
    _check_declaration(method)
    _check_options(method.options)
    with METHODS.including(replace(method, run=partial(_run_and_check, method))):
        check = _Check(method, k, seed, options)
        check.errors()
        check.answer()
        check.interruption()
        if method.takes_groups:
            check.groups()


def _check_declaration(method: Method) -> None:
    name = method.name
    require(name == name.strip().lower() and name, f"The name {name!r} must be in lower case, without spaces.")
    require(method.summary.endswith("."), f"The summary of {name} must be a sentence: {method.summary!r}.")
    require(issubclass(method.options, Options), f"The options of {name} must be a subclass of Options.")


def _check_options(model: type[BaseModel]) -> None:
    """Check that numbers are not taken from truth values, nor whole numbers from text or fractions."""
    _require_refused(model, "no_such_option", 1)
    for key, field in model.model_fields.items():
        types = _types_in(field.annotation)
        if types & {bool, Any} or not types & {int, float}:
            continue
        _require_refused(model, key, True)
        if types & {int, float, str, tuple, list} == {int}:
            for value in ("10", 10.5):
                _require_refused(model, key, value)


def _require_refused(model: type[BaseModel], key: str, value: Any) -> None:
    try:
        model(**{key: value})
    except ValidationError:
        return
    raise AssertionError(
        f"{model.__name__} accepts {key}={value!r}. Use the types of dsel.config.types, and extra='forbid'."
    )


def _types_in(annotation: Any) -> set[Any]:
    """Return all types that an annotation names."""
    return {annotation}.union(*(_types_in(argument) for argument in get_args(annotation) if _is_type(argument)))


def _is_type(argument: Any) -> bool:
    return isinstance(argument, type) or argument is Any or bool(get_args(argument))


def _run_and_check(method: Method, task: SearchTask) -> SearchOutcome:
    """Return the outcome of a method on local columns, with values that are those of the objective."""
    outcome, name = method.run(task), method.name
    sizes = [point.size for point in outcome.front]
    require(all(a < b for a, b in pairwise(sizes)), f"{name}: the front has the sizes {sizes}, which do not ascend.")
    require(sizes and sizes[0] <= task.k, f"{name}: the front has the sizes {sizes}, k is {task.k}.")
    for S, value in ((point.members, point.value) for point in outcome.front if task.groups is None):
        require(len(set(S)) == len(S), f"{name} chooses a column twice: {S}.")
        require(all(0 <= j < task.objective.n for j in S), f"{name}: {S} are not below n = {task.objective.n}.")
        if not method.uses_rows:
            _same(value, task.objective.value(S), task.objective.total, f"{name}: the value of {S}")
    return outcome


class _Check:
    """Runs of one method on small data."""

    def __init__(self, method: Method, k: int, seed: int, options: dict[str, Any]) -> None:
        rng = np.random.default_rng(3)
        X = rng.normal(size=(_ROWS, _COLUMNS)) @ (np.eye(_COLUMNS) + 0.3 * rng.normal(size=(_COLUMNS, _COLUMNS)))
        X[:, _COPY], X[:, _CONSTANT] = 0.5 * X[:, _ORIGINAL] - 1.0, 7.0
        self.method, self.k, self.X = method, k, X
        self.Y = None if method.unsupervised_only else X[:, [1, 2, 5, 9]] @ rng.normal(size=4) + rng.normal(size=_ROWS)
        self.arguments = {"k": k, "seed": seed, "method": method.name, **options}

    @property
    def name(self) -> str:
        return self.method.name

    def select(self, **arguments: Any) -> Selection:
        return select(self.X, self.Y, **{**self.arguments, **arguments}, progress=False)

    def errors(self) -> None:
        """Check that wrong requests are refused before the search."""
        with _refused(f"{self.name} with an unknown option", "no_such_option"):
            self.select(no_such_option=1)
        with _refused(f"{self.name} with k = 0", "k"):
            self.select(k=0)
        if self.method.unsupervised_only:
            with _refused(f"{self.name} with targets", self.name):
                select(self.X, self.X[:, 0], **self.arguments, progress=False)

    def answer(self) -> None:
        """Check the answer, also with included and excluded columns and a penalty, and that it is repeatable."""
        before = self.X.copy()
        first, again = self.select(), self.select()
        require(np.array_equal(self.X, before), f"{self.name} changes the data.")
        require(_bits(first) == _bits(again), f"{self.name} gives other bits with the same seed.")
        self._check(first, 0.0, (), ())
        given = self.select(include=[_INCLUDED], exclude=[_EXCLUDED], lam=2.0)
        self._check(given, 2.0, (_INCLUDED,), (_EXCLUDED,))
        self._check(self.select(k=1), 0.0, (), ())

    def _check(self, selection: Selection, lam: float, include: tuple[int, ...], exclude: tuple[int, ...]) -> None:
        chosen, k = selection.indices, selection.k
        require(len(set(chosen)) == len(chosen), f"{self.name} chooses a column twice: {chosen}.")
        require(1 <= len(chosen) <= k, f"{self.name} chooses {len(chosen)} columns, k is {k}.")
        require(set(include) <= set(chosen), f"{self.name} leaves out an included column: {chosen}.")
        require(not {*exclude, _CONSTANT} & set(chosen), f"{self.name} chooses an excluded or constant column.")
        require(not {_ORIGINAL, _COPY} <= set(chosen), f"{self.name} chooses a column and its copy: {chosen}.")
        self._check_columns(selection)
        self._check_errors(selection, lam, include, exclude)

    def _check_columns(self, selection: Selection) -> None:
        """Check that labels and coefficients are in the order of the indices."""
        labels = [f"x{j}" for j in selection.indices]
        require(selection.labels == labels, f"{self.name}: the labels are {selection.labels}, not {labels}.")
        fitted = selection.intercept + self.X[:, list(selection.indices)] @ selection.coefficients
        targets = self.X if self.Y is None else self.Y[:, None]
        deviation = np.where(targets.std(axis=0) > 1e-12, targets.std(axis=0), 1.0)
        error = float(np.square((targets - fitted) / deviation).sum())
        r2 = 1.0 - error / float(np.square(_standardized(targets)).sum())
        require(abs(r2 - selection.r2) <= 1e-7, f"{self.name}: R2 is {selection.r2!r}; the coefficients give {r2!r}.")

    def _check_errors(
        self, selection: Selection, lam: float, include: tuple[int, ...], exclude: tuple[int, ...]
    ) -> None:
        """Check errors and bounds with least squares on all subsets."""
        X = _standardized(self.X)
        problem = SmallProblem(self.name, X, None if self.Y is None else _standardized(self.Y[:, None]), lam)
        total = float(np.square(problem.targets).sum())
        for row in selection.front:
            require(row.size == len(set(row.indices)), f"{self.name}: {row.indices} are not {row.size} columns.")
            _same(row.error, problem.error(row.indices), total, f"{self.name}: f{row.indices}")
        _same(selection.error, problem.error(selection.indices), total, f"{self.name}: the error of the answer")
        allowed = set(range(_COLUMNS)) - {_CONSTANT, *exclude}
        least = problem.least_error(selection.k, include, allowed)
        require(selection.error >= least - 1e-8 * total, f"{self.name} has an error below the least one.")
        for proved in selection.certificate or ():
            least, bound = problem.least_error(proved["size"], include, allowed), proved["bound"]
            require(
                bound <= least + 1e-9 * total,
                f"{self.name} states the bound {bound!r} for {proved['size']} columns; {least!r} is reached.",
            )

    def interruption(self) -> None:
        """Check that a search continues from its saved state to the same answer."""
        if not self.method.resumable:
            return
        validated = validate(as_dataset(self.X, self.Y), SelectionRequest.of(**self._split()))
        saved: list[dict[str, Any]] = []

        def stop(search: Any) -> None:
            saved.append(json.loads(json.dumps(search.state())))
            raise _Interrupted

        whole = run_validated(validated, RunContext())
        try:
            run_validated(validated, RunContext(on_slice=stop))
        except _Interrupted:
            continued = run_validated(validated, RunContext(state=saved[0]))
            require(_bits(continued) == _bits(whole), f"{self.name} that continues has another answer.")

    def _split(self) -> dict[str, Any]:
        """Return the arguments of a request, with the options of the method by themselves."""
        fields = set(SelectionRequest.model_fields)
        options = {name: value for name, value in self.arguments.items() if name not in fields}
        return {**{name: self.arguments[name] for name in fields & set(self.arguments)}, "options": options}

    def groups(self) -> None:
        """Check that groups enter as a whole, and count as one."""
        groups = {"a": [0, 3], "b": [1, 2, 6], "c": [8, 9]}
        selection = self.select(groups=groups, k=2)
        chosen = selection.groups
        require(chosen is not None, f"{self.name} says that it takes groups, and returns none.")
        assert chosen is not None
        require(1 <= len(chosen) <= 2, f"{self.name} chooses {len(chosen)} groups, k is 2.")
        for name, columns in groups.items():
            common = set(columns) & set(selection.indices)
            require(common in (set(), set(columns)), f"{self.name} chooses a part of the group {name}: {common}.")


def _standardized(values: Floats) -> Floats:
    centered = values - values.mean(axis=0)
    deviation = centered.std(axis=0)
    return np.asarray(centered / np.where(deviation > 1e-12, deviation, 1.0))


def _same(stated: float, computed: float, total: float, what: str) -> None:
    require(abs(stated - computed) <= 1e-7 * total, f"{what} is stated as {stated!r}, and is {computed!r}.")


def _bits(selection: Selection) -> tuple[Any, ...]:
    """Return what must be the same in two runs."""
    coefficients = np.asarray(selection.coefficients).tobytes()
    return selection.indices, selection.error, coefficients, tuple(selection.front), tuple(selection.trace)


@contextmanager
def _refused(what: str, word: str) -> Iterator[None]:
    """Require an OptionError that has a word."""
    try:
        yield
    except OptionError as error:
        require(word in str(error), f"The error of {what} does not name {word!r}: {error}")
    else:
        raise AssertionError(f"{what} is not refused.")
