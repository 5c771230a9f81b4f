"""The options of every method, checked; the defaults are the papers', where a paper has them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from dsel.config.import_path import load_function
from dsel.config.types import Bool, Float, Int


class Options(BaseModel):
    """Options of a method; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")

    def conflict(self, criterion: bool) -> str:
        """What of them cannot be had with a criterion of one's own, or without one; empty where all can."""
        return ""


class NoOptions(Options):
    """A method without options."""


class StopOptions(Options):
    """When a Pareto search ends.

    iterations: T, by default floor(2 e k^2 n) for the k columns still to choose of n candidates. It ends sooner by
    seconds (once it is compiled), target (f, or the criterion), target_r2 (1 - f / ||Y||^2), patience (iterations
    without improvement), or bound (a proven lower bound on f).
    """

    iterations: Int | None = Field(None, ge=1)
    seconds: Float | None = Field(None, gt=0)
    target: Float | None = None
    target_r2: Float | None = Field(None, le=1)
    patience: Int | None = Field(None, ge=1)
    bound: Float | None = Field(None, ge=0)


_CANNOT = "{} cannot be had with a function of one's own"


class ArchiveOptions(StopOptions):
    """isolation: "none", "min-index", or a function of the ascending columns chosen (package.module:function in a job
    file): subsets compete only where it has the same value. memory: bytes for the archive's tables."""

    isolation: Literal["none", "min-index"] | Callable[[tuple[int, ...]], Any] = "none"
    memory: Int = Field(8 << 30, gt=0)

    @field_validator("isolation", mode="before")
    @classmethod
    def _by_path(cls, value: Any) -> Any:
        if isinstance(value, str) and ":" in value:
            return load_function(value)
        if isinstance(value, str) and value not in ("none", "min-index"):
            close = get_close_matches(value, ["none", "min-index"], 1)
            raise ValueError(
                "it must be none, min-index or a function" + (f"; did you mean {close[0]!r}" if close else "")
            )
        return value

    def by_calls(self, criterion: bool) -> bool:
        """Whether subsets are valued one by one: by the user's criterion, or under the user's isolation function."""
        return criterion or callable(self.isolation)

    def conflict(self, criterion: bool) -> str:
        return _CANNOT.format("target_r2") if criterion and self.target_r2 is not None else ""


class PossOptions(ArchiveOptions):
    """POSS and POCSS. Defaults are the papers'.

    warm_start: put before the archive first what "forward" selection finds, or the best of `restarts` random
    starts of "exchange" search (it finds what flips of single bits take long to). exchange_every: iterations
    between exchange searches from a disturbed archived subset (0: never).
    isolation, memory: see ArchiveOptions.

    With a criterion or an isolation function of one's own each subset is valued by a call in this process, and
    warm_start and exchange_every are not available.
    """

    warm_start: Literal["none", "forward", "exchange"] = "none"
    restarts: Int = Field(10, ge=1)
    exchange_every: Int = Field(0, ge=0)

    def conflict(self, criterion: bool) -> str:
        asked = {"warm_start": self.warm_start != "none", "exchange_every": self.exchange_every > 0}
        extras = [name for name, is_asked in asked.items() if is_asked and self.by_calls(criterion)]
        return _CANNOT.format(", ".join(extras)) if extras else super().conflict(criterion)


class PpossAsyOptions(ArchiveOptions):
    """PPOSS-asy: on workers, each future from the newest archive; the result depends on the order they come back in.
    On wide data, whose rows are kept where the search is, all of it is done there.

    isolation: as for poss. For a criterion or an isolation function of one's own: evaluation_limit: seconds that one
    evaluation may take before its worker is given up and it goes to another one. processes: worker processes of this
    machine, where there is no Dask cluster (they are spawned: a script that asks for them needs
    `if __name__ == "__main__":`). memory: bytes for an archive's tables, of which every thread of every worker has its
    own where slices of iterations are made there.
    """

    evaluation_limit: Float | None = Field(None, gt=0)
    processes: Int = Field(1, ge=1)


class PpossOptions(PpossAsyOptions):
    """PPOSS: rounds of `processors` offspring of one parent, T = floor(2 e k^2 n / processors) of them.

    The same seed and `processors` give the same bits on any number of workers; some times as many as there are workers
    keep them busy, since a third of the offspring need no evaluation. Without a criterion or an isolation function of
    one's own the rounds are made in this process: an offspring takes about a microsecond, less than any worker could be
    told of it.
    """

    processors: Int = Field(32, ge=1, le=100_000)

    def conflict(self, criterion: bool) -> str:
        asked = {"evaluation_limit": self.evaluation_limit is not None, "processes": self.processes > 1}
        unused = [name for name, is_asked in asked.items() if is_asked and not self.by_calls(criterion)]
        if unused:
            return f"{' and '.join(unused)}: only with a function of one's own, without which all is done here"
        return super().conflict(criterion)


class FobaOptions(Options):
    """FoBa: a column is deleted where that costs at most `nu` of what its like brought; path_factor k steps."""

    nu: Float = Field(0.5, gt=0, lt=1)
    path_factor: Int = Field(5, ge=1)


class ExchangeOptions(Options):
    """Exchange search (IterFS) from `restarts` random subsets, or from forward selection's."""

    restarts: Int = Field(1, ge=1)
    start: Literal["random", "forward"] = "random"


class BranchAndBoundOptions(Options):
    """Branch and bound: the best subset, proved, unless `seconds` or `nodes` end it before. bound: see
    dsel.search.exact.bounds. memory: bytes for its tables."""

    seconds: Float | None = Field(None, gt=0)
    nodes: Int | None = Field(None, ge=1)
    bound: Literal["combined", "eigenvalue", "leaps"] = "combined"
    memory: Int = Field(8 << 30, gt=0)


class AStarOptions(Options):
    """Best-first search with f = l + gamma u (gamma .inf: f = u); with epsilon instead for an answer of at most
    1 + epsilon times the least error. bound: "eigenvalue", the paper's, or "combined".

    prune: whether a subset from a quick search cuts the fringe. seconds, nodes (expanded), memory (bytes) end it
    before.
    """

    gamma: Float = Field(0.0, ge=0)
    epsilon: Float = Field(0.0, ge=0, allow_inf_nan=False)
    seconds: Float | None = Field(None, gt=0)
    nodes: Int | None = Field(None, ge=1)
    bound: Literal["eigenvalue", "combined"] = "eigenvalue"
    prune: Bool = False
    memory: Int = Field(4 << 30, gt=0)

    @model_validator(mode="after")
    def _one_weight(self) -> AStarOptions:
        if self.gamma > 0.0 and self.epsilon > 0.0:
            raise ValueError("gamma and epsilon are two ways to weight the search: leave one of them out")
        return self


def _grid(value: Any) -> Any:
    """Penalties, or what stands for them: one sentence on all that it may be, not one for each kind."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    numbers = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if not numbers or any(isinstance(lam, bool) or not isinstance(lam, Real) for lam in numbers):
        raise ValueError("it must be auto or numbers > 0")
    lams = tuple(float(lam) for lam in numbers)
    if not all(0.0 < lam < float("inf") for lam in lams):
        raise ValueError("it must be auto or numbers > 0")
    return lams


def _rounds(value: Any) -> Any:
    if isinstance(value, str) and value in ("auto", "never"):
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError("it must be a whole number of rounds from 1, auto or never")
    return int(value)


LamGrid = Annotated[Literal["auto"] | tuple[float, ...] | None, BeforeValidator(_grid)]


class GreedyRlsOptions(Options):
    """Greedy RLS: selection by the exact leave-one-out error of ridge regression.

    loss: squared, or zero-one (labels -1 and +1, or 0 and 1). intercept: "center", not penalised, exact under
    leave-one-out (default where preprocess centres); "column", the paper's column of ones, always in and penalised;
    "none". lam_grid: choose lam by leave-one-out with all columns, from these or "auto" (4^-8 ... 4^8); else the job's
    lam. direction: forward, backward elimination, or floating (after each insertion, deletions as long as they make a
    better subset of their size). held_out: a store with rows to report the test error of every step on, its targets and
    weights by the names of the data's (from Python also a pair X, Y). fold_every: where X is not in memory, rounds
    between rewrites of a cache as large as X in float64 on disk (1: the paper's Algorithm 3), "never", or "auto": what
    costs the least by dsel.passes.leave_one_out.cost_model, in a job; never for dsel.select. Forward alone.
    """

    loss: Literal["squared", "zero-one"] = "squared"
    intercept: Literal["center", "column", "none"] | None = None
    lam_grid: LamGrid = None
    direction: Literal["forward", "backward", "floating"] = "forward"
    held_out: Any = None
    fold_every: Annotated[int | Literal["auto", "never"], BeforeValidator(_rounds)] = "auto"

    @model_validator(mode="after")
    def _forward_alone(self) -> GreedyRlsOptions:
        if isinstance(self.fold_every, int) and self.direction != "forward":
            raise ValueError(f"fold_every goes with direction forward, not {self.direction}")
        return self


class KfoldOptions(Options):
    """Selection by K-fold cross-validated squared error of ridge regression, from one pass over the data.

    folds, repeats: rows fall into `folds` parts by their index and the seed, `repeats` times over. lam_grid (by
    cross-validation), direction and held_out: as for greedy-rls.
    """

    folds: Int = Field(10, ge=2)
    repeats: Int = Field(1, ge=1)
    lam_grid: LamGrid = None
    direction: Literal["forward", "backward", "floating"] = "forward"
    held_out: Any = None
