"""Options, requirements and places of POSS, PPOSS and PPOSS-asy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from dsel.config.import_path import load_function
from dsel.config.types import Float, Int
from dsel.objective.objective_interface import Objective
from dsel.search.anytime import Stop
from dsel.search.method import Options, ProblemSummary, Requirements
from dsel.search.pareto.archive_layout import check_tables, first_slots, restart_slots, size_limit, table_bytes
from dsel.search.pareto.compiled import any_size_iterations, isolated_iterations, paper_iterations
from dsel.search.placement import ASKED, NO_CLUSTER, Placement, SearchOn, Site
from dsel.search.runtime.schedule import Division, Schedule, evaluations_at_a_time, wide_iterations

WarmStart = Literal["forward", "exchange", "none"]


def path_size(k: int, *, has_gram: bool, limited: bool) -> int:
    """Return how many columns the path of forward selection has: 2k - 1, as many as an archived subset at most.

    It has k in a search with a time limit if the Gram matrix is not in memory, since columns then take passes over the
    data.
    """
    return k if limited and not has_gram else 2 * k - 1


#: The least number of iterations between two exchange searches, by default.
LEAST_INTERVAL = 1000
#: A short search has at least this many exchange searches, by default.
LEAST_EXCHANGES = 64


def default_interval(n: int, k: int) -> int:
    """Return the iterations between two exchange searches, by default.

    An exchange search takes a time of the order n k^2, and an iteration one that grows with k^2 for large k. The rule
    was fitted so that exchange searches take about a fifth of the time of large problems with one target. In T
    iterations there are dozens to hundreds of them.

    Parameters
    ----------
    n, k : int
        The columns to choose from, and the columns to choose.

    Returns
    -------
    int
        40 n k^2 / (k^2 + 500), and at least 1000.
    """
    return max(LEAST_INTERVAL, 40 * n * k * k // (k * k + 500))


class ParetoOptions(Options):
    """Options of every Pareto search: when it ends, its archive, and how it runs on workers.

    The first rule that applies ends the search. The published algorithm has ``warm_start: none`` and
    ``exchange_every: 0``. The defaults only add solutions to its archive, so its guarantee holds. With a custom
    criterion or isolation function, the search is the published one by default. The tables of an archive may take
    `memory` bytes in each thread of each worker.

    Parameters
    ----------
    iterations : int, optional
        T, by default floor(2 e k^2 n) for k columns still to choose out of n candidates; with isolation: min-index
        floor(k^2 (n - k) n log n), with any_size floor(e k n (n + 1)). Where the Gram matrix does not fit, and without
        `seconds`, it is at most what takes about 20 seconds on the reference core. That is the case for 10 000 or more
        columns in memory, if there are fewer rows. The plan states the number, which constant
        columns and near-copies lower.
    seconds : float, optional
        Wall time. Compilation is not counted.
    target_value : float, optional
        The search ends when f (or the criterion) is at or below this value. The earlier name is `target`, which
        `dsel.select` takes for the name of a target.
    target_r2 : float, optional
        The search ends when 1 - f / ||Y||^2 is at or above this value.
    patience : int, optional
        Iterations without an improvement.
    bound : float, optional
        A proven lower bound on f. The search ends when f reaches it.
    warm_start : {"forward", "exchange", "none"}, optional
        What the archive is offered first: the path of forward selection (default), or the best result of exchange
        search. With "forward" the result is never worse than that of forward selection. With a custom criterion or
        isolation function the default is "none". With a criterion "forward" takes about k n evaluations.
    restarts : int
        Random starts of the exchange search of `warm_start`.
    exchange_every : int, optional
        Iterations between two exchange searches from a perturbed subset of the archive; 0 for never. By default
        40 n k^2 / (k^2 + 500), at least 1000 or T / 64, where the whole Gram matrix is in memory, and 0 elsewhere.
        A search for groups, such as the categories of a frame, starts from ten exchange searches instead, which end
        after a fifth of `seconds`; 0 and any other `warm_start` than "forward" leave them out. Any other number makes
        separate columns of the categories of a frame.
    swaps : float
        The share of mutations that replace one column by another in place of flips, with a custom criterion or
        isolation function; 0 in the papers. With 0.5, fewer evaluations find good subsets.
    isolation : {"none", "min-index"} or callable
        Subsets compete only where the isolation function has the same value. A function receives a tuple of ascending
        columns. A job file names it as package.module:function.
    any_size : bool
        Archive subsets of any size. In the papers' experiments, and by default, those of 2k columns and more are
        refused. The tables take memory of the order n^3, so this is for a few hundred columns.
    memory : int
        Bytes that the tables of the archive may take.
    evaluation_limit : float, optional
        Seconds that one evaluation of a custom criterion or isolation function may take. After that its worker is
        given up and another worker evaluates the subset.
    processes : int
        Worker processes of this machine, where there is no Dask cluster. They are spawned, so that a script needs
        ``if __name__ == "__main__":``.
    search_on : {"auto", "client", "workers"}
        Where the search runs. "auto": as Dask futures on the workers, wherever there is a cluster. "client": in this
        process, with the same bits. "workers" differs from "auto" for PPOSS with ``max_in_flight: 1`` only.
    """

    renamed: ClassVar[dict[str, str]] = {"target": "target_value"}

    iterations: Int | None = Field(None, ge=1)
    seconds: Float | None = Field(None, gt=0)
    target_value: Float | None = None
    target_r2: Float | None = Field(None, le=1)
    patience: Int | None = Field(None, ge=1)
    bound: Float | None = Field(None, ge=0)
    warm_start: WarmStart | None = None
    restarts: Int = Field(10, ge=1)
    exchange_every: Int | None = Field(None, ge=0)
    swaps: Float = Field(0.0, ge=0, le=1)
    isolation: Literal["none", "min-index"] | Callable[[tuple[int, ...]], Any] = "none"
    any_size: bool = False
    memory: Int = Field(8 << 30, gt=0)
    evaluation_limit: Float | None = Field(None, gt=0)
    processes: Int = Field(1, ge=1)
    search_on: SearchOn = "auto"

    #: The order in which results merge.
    _order: ClassVar[Literal["index", "arrival"]] = "index"

    def iterations_within(self, k: int, n: int, few_targets: int, has_gram: bool) -> int:
        """Return T, by default at most what ends within minutes where the Gram matrix does not fit."""
        T = self.iterations_of(k, n)
        if has_gram or self.iterations is not None or self.seconds is not None:
            return T
        return min(T, wide_iterations(k, few_targets))

    def cut_short(self, k: int, n: int, few_targets: int, has_gram: bool) -> tuple[str, ...]:
        """Return a note if the search makes fewer iterations than the theorem asks for, by default."""
        T, made = self.iterations_of(k, n), self.iterations_within(k, n, few_targets, has_gram)
        if made == T:
            return ()
        return (
            f"{T:,} iterations would take long on data so wide that there is no Gram matrix: the search begins with "
            f"forward selection and makes {made:,} at most; the options iterations and seconds change that, and the "
            "methods splicing and forward take seconds",
        )

    def stop(self, k: int, objective: Objective) -> Stop:
        """Return the stopping rules of a search for k columns."""
        target = self.target_value
        if self.target_r2 is not None:
            target = (1.0 - self.target_r2) * objective.total
        T = self.iterations_within(k, objective.n, objective.few_targets, objective.has_gram)
        return Stop(T, self.seconds, target, self.patience, self.bound)

    @field_validator("isolation", mode="before")
    @classmethod
    def _load_isolation(cls, value: Any) -> Any:
        if isinstance(value, str) and ":" in value:
            return load_function(value)
        if isinstance(value, str) and value not in ("none", "min-index"):
            close = get_close_matches(value, ["none", "min-index"], 1)
            raise ValueError(
                "it must be none, min-index or a function" + (f"; did you mean {close[0]!r}" if close else "")
            )
        return value

    def limit(self, k: int, n: int) -> int:
        """Return half the size from which on subsets of n columns are not archived: k, and more with `any_size`."""
        return size_limit(k, n, self.any_size)

    def iterations_of(self, k: int, n: int) -> int:
        """Return T for k of n columns: as asked, or of the theorem about these options."""
        if self.iterations is not None:
            return self.iterations
        if self.isolation == "min-index":
            return isolated_iterations(k, n)
        return any_size_iterations(k, n) if self.any_size else paper_iterations(k, n)

    def calls_function(self, criterion: bool) -> bool:
        """Return whether a user's function is called for each subset: a criterion, or an isolation function."""
        return criterion or callable(self.isolation)

    def conflict_with_groups(self) -> str:
        extras = self._asked_extras(warm_start=self.calls_function(False)) or ("swaps" if self.swaps else "")
        return f"{extras} cannot be used for groups of columns" if extras else ""

    def conflict_with_loss(self) -> str:
        given = [name for name in ("target_value", "target_r2", "bound") if self.is_changed(name)]
        return f"{given[0]} is about the squared error, and a loss has quadratic models of it" if given else ""

    @model_validator(mode="before")
    @classmethod
    def _without_recombination(cls, values: Any) -> Any:
        if isinstance(values, dict) and "recombination" in values:
            raise ValueError("recombination was removed: exchange_every brings more")
        return values

    def conflict(self, criterion: bool) -> str:
        evaluates = self.evaluates_subsets(criterion, grouped=False)
        if self.evaluation_limit is not None and not evaluates:
            return "evaluation_limit: only with a custom criterion or isolation function, whose evaluations it limits"
        if self.processes > 1 and not evaluates:
            return "processes: only with a custom criterion or isolation function"
        if self.is_changed("restarts") and self.warm_start != "exchange":
            return "restarts: only with warm_start=exchange"
        if self.swaps and not self.calls_function(criterion):
            return "swaps: only with a custom criterion or isolation function; elsewhere exchange_every does more"
        if self.any_size and self.isolation == "min-index":
            return "any_size cannot be combined with isolation=min-index"
        extras = self._asked_extras(warm_start=not criterion) if self.calls_function(criterion) else ""
        extras = extras or ("target_r2" if criterion and self.target_r2 is not None else "")
        return f"{extras} cannot be combined with {self._evaluates_for}" if extras else ""

    def resolved(self, criterion: bool) -> Self:
        """Return the options as a search uses them: a warm start that takes evaluations only if it is asked for."""
        default = "none" if self.calls_function(criterion) else "forward"
        return self.model_copy(update={"warm_start": self.warm_start or default})

    @property
    def _evaluates_for(self) -> str:
        """What makes tasks evaluate subsets one by one, in words."""
        return "a custom criterion or isolation function"

    def _asked_extras(self, warm_start: bool = True) -> str:
        """Return the names of the asked options that only searches by slices have. warm_start: count it."""
        asked = {
            "warm_start": warm_start and self.warm_start not in (None, "none"),
            "exchange_every": bool(self.exchange_every), "any_size": self.any_size,
        }  # fmt: skip
        return ", ".join(name for name, is_asked in asked.items() if is_asked)

    def exchange_interval(self, n: int, k: int, has_gram: bool) -> int:
        """Return the iterations between two exchange searches for k of n columns; 0 for none."""
        if self.exchange_every is None:
            balanced = min(default_interval(n, k), max(self.iterations_of(k, n) // LEAST_EXCHANGES, 20))
            return max(balanced, 40 * n * k * k // (k * k + 500)) if has_gram else 0
        return self.exchange_every

    def notes(self, objective: Objective, k: int) -> tuple[str, ...]:
        """Return what the user should know about the search for k columns on an objective."""
        notes = self.cut_short(k, objective.n, objective.few_targets, objective.has_gram)
        if self.exchange_every is None and not objective.has_gram:
            notes += ("the search made no exchange searches, which need the whole Gram matrix in memory",)
        return notes

    def starts_from_exchanges(self) -> bool:
        """Return whether a search for groups starts from exchange searches, too, as it does by default."""
        return self.exchange_every is None and self.warm_start == "forward"

    def requirements(self, problem: ProblemSummary) -> Requirements:
        """Return what an archive over this problem needs.

        Raises
        ------
        CapacityError
            The first tables of the archive take more than `memory`.
        """
        notes = self._notes_of_plan(problem)
        if problem.criterion:
            return Requirements(seconds=self.seconds, notes=notes)
        if not callable(self.isolation):
            self._check_memory(problem)
        needs_gram = callable(self.isolation) or bool(self.exchange_every) or self.any_size
        return Requirements(
            whole_gram=needs_gram, table_slots=first_slots(self.limit(problem.k, problem.n)), seconds=self.seconds,
            columns_entered=self._columns_entered(problem), notes=notes,
            adapts=not needs_gram and self.iterations is None and self.seconds is None and self.exchange_every is None,
        )  # fmt: skip

    def _notes_of_plan(self, problem: ProblemSummary) -> tuple[str, ...]:
        """Return what the plan says about the number of iterations."""
        k, n = problem.to_choose
        if self.iterations is not None or not 0 < k <= n:
            return ()
        rules = {"isolation=min-index": "k^2 (n - k) n log n", "any_size": "e k n (n + 1)"}
        name = "any_size" if self.any_size else f"isolation={self.isolation}"
        if name not in rules:
            return ()
        T = self.iterations_of(k, n)
        return (f"{name} makes at most {T:,} iterations, {rules[name]}; the option iterations changes it",)

    def _columns_entered(self, problem: ProblemSummary) -> int | None:
        """Return how many columns enter at least, where the Gram matrix does not fit: those of the warm start."""
        k, free = problem.to_choose
        size = path_size(k, has_gram=False, limited=self.seconds is not None)
        return None if self.warm_start not in (None, "forward") else problem.included + min(size, free)

    def _check_memory(self, problem: ProblemSummary) -> None:
        k, free = problem.to_choose
        if 0 < k <= free:
            limit = self.limit(k, free)
            check_tables(free, problem.few_targets, limit, first_slots(limit), self.memory)

    def known_iterations(self, problem: ProblemSummary) -> int | None:
        """Return how many iterations there are at most; None where there is nothing to choose."""
        k, n = problem.to_choose
        return self.iterations_of(k, n) if 0 < k <= n else None

    def evaluates_subsets(self, criterion: bool, grouped: bool) -> bool:
        """Return whether tasks evaluate subsets one by one: for a user's function, and for groups of columns."""
        return self.calls_function(criterion) or grouped

    def _asked(self) -> tuple[int | None, int | None, int]:
        """Return the slices at a time and their iterations, where they are asked for, and N of PPOSS or 0."""
        return None, None, 0

    def schedule(self, n: int, k: int, few_targets: int, has_gram: bool, *, evaluates: bool = False) -> Schedule:
        """Return the division of the search into tasks. It depends on the problem only.

        Parameters
        ----------
        n, k : int
            The columns (or groups) to choose from, and to choose.
        few_targets : int
            N where targets are kept one by one, 0 where M is kept.
        has_gram : bool
            Whether the whole Gram matrix is in memory.
        evaluates : bool
            Whether tasks evaluate subsets.
        """
        in_flight, length, processors = self._asked()
        if evaluates:
            at_a_time = in_flight or (1 if processors else evaluations_at_a_time(self.iterations_of(k, n)))
            return Schedule(at_a_time, 1, processors, self._order)
        iterations = self.iterations_within(k, n, few_targets, has_gram)
        every = self.exchange_interval(n, k, has_gram)
        division = Division(n, self.limit(k, n), few_targets, every, iterations, self.seconds, processors, has_gram)
        return replace(division.schedule(in_flight, length), order=self._order)


class PossOptions(ParetoOptions):
    """Options of POSS and POCSS, which search by slices.

    `exchange_every` cannot be combined with a custom criterion, nor it or `warm_start` with an isolation function. The
    result depends on `max_in_flight` and `task_iterations`, and not on where the slices run. It records both.

    Parameters
    ----------
    max_in_flight : int, optional
        Slices of iterations that may be out at the same time. Each starts from the archive as it was this many
        slices before. With 1 the search is the published one: one offspring, or one round, after the other. By default
        4 to 64 with exchange searches, and 1 to 64 without, by a formula of the problem. With groups, a custom
        criterion or isolation function, iterations that may be out at the same time, by default 1 to 128.
    task_iterations : int, optional
        Iterations of a slice, by default 0.2 s of work on the reference core, and less in a short search. It is 1 with
        a custom criterion or isolation function, and with groups. A task then has the subsets of several iterations.
        Any other number makes separate columns of the categories of a frame.
    """

    renamed: ClassVar[dict[str, str]] = {
        **ParetoOptions.renamed, "slices": "max_in_flight", "slice_iterations": "task_iterations",
    }  # fmt: skip

    max_in_flight: Int | None = Field(None, ge=1, le=100_000)
    task_iterations: Int | None = Field(None, ge=1)

    def conflict(self, criterion: bool) -> str:
        if self.evaluates_subsets(criterion, grouped=False) and self.task_iterations not in (None, 1):
            return f"task_iterations is 1 with {self._evaluates_for}"
        return super().conflict(criterion)

    def conflict_with_groups(self) -> str:
        asked = self.task_iterations not in (None, 1)
        return "task_iterations cannot be used for groups of columns" if asked else super().conflict_with_groups()

    def _asked(self) -> tuple[int | None, int | None, int]:
        return self.max_in_flight, self.task_iterations, 0

    def requirements(self, problem: ProblemSummary) -> Requirements:
        needs = replace(super().requirements(problem), iterations=self.known_iterations(problem))
        limit = self.limit(problem.k, problem.n)
        if needs.table_slots < first_slots(limit):
            return needs
        return replace(needs, table_slots=restart_slots(problem.n, problem.few_targets, limit))


#: Tasks of the order of arrival that may be out at the same time.
_MANY = 1000


def place(problem: ProblemSummary, options: ParetoOptions, site: Site) -> Placement:
    """Return where a Pareto search runs, with its division into tasks, which is the same everywhere."""
    (k, n), few = problem.to_choose, problem.few_targets
    if not 0 < k <= n:
        return Placement(why="there is nothing to search")
    evaluates = options.evaluates_subsets(problem.criterion, problem.grouped)
    schedule = options.schedule(n, k, few, site.has_gram, evaluates=evaluates)
    here = "" if site.cluster else f"{NO_CLUSTER}; "
    here = f"{ASKED}; " if options.search_on == "client" else here
    why, at_a_time = here + _described(schedule, evaluates, options), schedule.in_flight
    recorded = {"max_in_flight": at_a_time, "task_iterations": schedule.length}
    if evaluates and schedule.processors:
        at_a_time, recorded = schedule.processors, {}
    if schedule.order == "arrival":
        at_a_time, recorded = _MANY, {}
    where: Literal["client", "workers"] = "client" if here else "workers"
    if evaluates:
        return Placement(where, why, recorded, at_a_time)
    every, T = options.exchange_interval(n, k, site.has_gram), options.iterations_within(k, n, few, site.has_gram)
    limit = options.limit(k, n)
    seconds = Division(n, limit, few, every, T, options.seconds, has_gram=site.has_gram).estimate
    tables = table_bytes(n, few, limit, restart_slots(n, few, limit))
    notes = options.cut_short(k, n, few, site.has_gram)
    return Placement(where, why, recorded, at_a_time, seconds, tables, T if notes else None, notes)


def _described(schedule: Schedule, evaluates: bool, options: ParetoOptions) -> str:
    """Return the division of a search in words."""
    if schedule.order == "arrival":
        slices = f"slices of {schedule.length:,} iterations as workers are free"
        return "tasks of some evaluations" if evaluates else slices
    if evaluates and schedule.processors:
        return f"rounds of {schedule.processors} evaluations"
    if evaluates:
        return f"{schedule.in_flight} evaluations at a time, of one iteration each"
    if schedule.in_flight > 1:
        return f"{schedule.in_flight} slices of {schedule.length:,} iterations at a time"
    asked = "asked by max_in_flight: 1" if options._asked()[0] == 1 else "it has no exchange searches and is short"
    return f"slices of {schedule.length:,} iterations one after the other ({asked})"


class PpossOptions(PossOptions):
    """Options of PPOSS, which makes T = floor(2 e k^2 n / processors) rounds.

    Without a custom criterion or isolation function an offspring takes about a microsecond, less than a message to a
    worker. So a task is a slice of whole rounds. With ``max_in_flight: 1`` and ``search_on: workers`` the search is
    Algorithm 2 of the paper to the letter: the offspring of each round are divided among the workers. It has no warm
    start and no exchange searches then, and takes some milliseconds for each round.

    Parameters
    ----------
    processors : int
        N, the offspring of each round. The same seed and `processors` give the same bits on any number of workers. A
        few times the number of workers keeps them busy, because a third of the offspring need no evaluation. With
        groups, a custom criterion or isolation function it takes the place of `max_in_flight`.
    """

    processors: Int = Field(32, ge=1, le=100_000)

    @property
    def _divides_rounds(self) -> bool:
        return self.max_in_flight == 1 and self.search_on == "workers"

    @property
    def _evaluates_for(self) -> str:
        return "max_in_flight=1 and search_on=workers" if self._divides_rounds else super()._evaluates_for

    def calls_function(self, criterion: bool) -> bool:
        return super().calls_function(criterion) or self._divides_rounds

    def conflict_with_groups(self) -> str:
        if self.max_in_flight is not None and not self._divides_rounds:
            return "max_in_flight: with groups of columns, use processors"
        return super().conflict_with_groups()

    def conflict(self, criterion: bool) -> str:
        if super().calls_function(criterion) and self.max_in_flight is not None:
            return "max_in_flight: with a custom criterion or isolation function, use processors"
        return super().conflict(criterion)

    def _asked(self) -> tuple[int | None, int | None, int]:
        return self.max_in_flight, self.task_iterations, self.processors


class PpossAsyOptions(ParetoOptions):
    """Options of PPOSS-asy. On several workers the result depends on the order in which their results arrive."""

    _order: ClassVar[Literal["index", "arrival"]] = "arrival"
