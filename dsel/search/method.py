"""What a selection method is: a name, a model of its options, its requirements, and the function that runs it.

To add a method, write one module that ends with one ``Method`` and list it in ``dsel.search.registry``. A method in a
separate package is listed under the entry-point group ``dsel.methods`` of that package instead.

`Options` is the base of the options of every method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from dsel._lib.types import Ints
from dsel.config.types import Section
from dsel.objective.cross_validation.leave_one_out import Direction, Intercept, RowErrors
from dsel.objective.cross_validation.losses import Loss
from dsel.objective.groups import items_of
from dsel.objective.objective_interface import FEW_TARGETS, ItemObjective, Objective
from dsel.search.anytime import AnytimeSearch
from dsel.search.ask_tell import ExecutorFactory, SerialExecutor
from dsel.search.journal import Journal
from dsel.search.outcome import SearchOutcome
from dsel.search.placement import HERE, Placement, Site
from dsel.storage.paths import AnyPath


class Options(Section):
    """Options of a method. An unknown option is an error.

    Each method has its own subclass. A method without options uses this class itself.
    """

    def conflict(self, criterion: bool) -> str:
        """Return which options do not go together, or an empty string.

        Parameters
        ----------
        criterion : bool
            Whether the user's criterion replaces the squared error.
        """
        return ""

    def resolved(self, criterion: bool) -> Self:
        """Return the options as a search uses them, where defaults depend on whether there is a custom criterion."""
        return self

    def conflict_with_groups(self) -> str:
        """Return which options cannot be used for groups of columns, or an empty string."""
        return ""

    def conflict_with_loss(self) -> str:
        """Return which options cannot be used with a loss other than the squared error, or an empty string."""
        return ""


OnSlice = Callable[[AnytimeSearch], None]
#: f of a subset of ascending columns.
Criterion = Callable[[tuple[int, ...]], float]


@dataclass(frozen=True)
class SearchTask:
    """Everything that a method is run with.

    Parameters
    ----------
    objective : Objective
        f(S) over the columns that may be chosen, given the columns that are always included.
    k : int
        The number of columns to choose at most, without the included ones.
    seed : int
        The seed of every random stream of the method.
    options : Options
        The method's own options, validated.
    state : dict, optional
        The saved state of an interrupted search. The method continues from it.
    on_slice : callable, optional
        Called with the search between two slices of iterations. It may raise to interrupt the search.
    criterion : callable, optional
        The user's criterion, of ascending columns of the data. It replaces f.
    rows : RowErrors, optional
        Errors on left-out rows, for a method that uses rows.
    data : ColumnData, optional
        The second argument of a criterion f(S, data).
    executor : callable
        Makes the executor that a search on workers submits its tasks to; by default one in this process.
    journal : Journal, optional
        Records the events of a search on workers.
    on_workers : bool
        Whether the executor sends tasks to the workers of a cluster.
    runner : callable, optional
        ``runner(search, stop, on_slice)`` drives a branch and bound on workers, and returns why it ended.
    shared_folder : AnyPath, optional
        A folder that the workers can read. The arrays of the objective are written there. Without one they are sent.
    groups : tuple of arrays of int, optional
        The local columns of each group, for a method that takes groups. Then k counts groups, and so do the sizes of
        the outcome; members are still columns.
    included : int
        How many other groups, or columns, are always chosen. The sizes of certificates count them.
    always : tuple of int
        The columns of the data that are always chosen, with those that depend on others.
    start : tuple of tuple of int
        Subsets that a method with an archive is offered first, or that an exact method may start from.
    """

    objective: Objective
    k: int
    seed: int
    options: Any
    state: dict[str, Any] | None = None
    on_slice: OnSlice | None = None
    criterion: Criterion | None = None
    rows: RowErrors | None = None
    data: Any = None
    executor: ExecutorFactory = SerialExecutor
    journal: Journal | None = None
    on_workers: bool = False
    runner: Callable[..., str] | None = None
    shared_folder: AnyPath | None = None
    groups: tuple[Ints, ...] | None = None
    included: int = 0
    always: tuple[int, ...] = ()
    start: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def subject(self) -> ItemObjective:
        """Return the objective over what is chosen: groups of columns, if there are any, or columns."""
        return items_of(self.objective, self.groups, self.included)

    def in_data(self, S: Iterable[int]) -> tuple[int, ...]:
        """Return the ascending columns of the data of some items, with those that are always chosen."""
        return tuple(sorted({*self.always, *self.subject.in_data(S)}))


@dataclass(frozen=True)
class ProblemSummary:
    """The numbers of a problem that are known before any data are read.

    Parameters
    ----------
    m, n : int
        The shape of X.
    n_targets : int
        N, the number of targets; 0 where Y = X.
    k : int
        The number of columns to choose at most, with the included ones.
    included, excluded : int
        How many columns are always or never chosen.
    lam : float
        The ridge penalty.
    criterion : bool
        Whether a user's criterion replaces f.
    grouped : bool
        Whether n, k, `included` and `excluded` count groups of columns.
    """

    m: int
    n: int
    n_targets: int
    k: int
    included: int = 0
    excluded: int = 0
    lam: float = 0.0
    criterion: bool = False
    grouped: bool = False

    @property
    def to_choose(self) -> tuple[int, int]:
        """Return how many columns are still to choose, and from how many."""
        return self.k - self.included, self.n - self.included - self.excluded

    @property
    def few_targets(self) -> int:
        """Return N where the compiled searches use the targets one by one, else 0."""
        return self.n_targets if self.n_targets <= FEW_TARGETS else 0


@dataclass(frozen=True)
class CrossValidation:
    """How a method scores subsets on left-out rows.

    Parameters
    ----------
    folds : int, optional
        The number of folds; None for leave-one-out. The Gram matrices of the folds come from one pass over the data.
        Leave-one-out takes a pass for each round.
    repeats : int
        How often the rows are divided into folds.
    split : {"random", "blocks", "forward"}
        How the rows are divided into folds. Or a splitter of scikit-learn, or pairs of row numbers.
    gap : int
        Rows next to a tested block that are left out of its training rows.
    row_groups : str or array, optional
        The group of each row. All rows of a group are in one fold.
    direction : {"forward", "backward", "floating"}
        Whether rounds insert columns, remove them, or do both.
    penalties : int
        How many values of lam are compared before the first round; 0 where lam is given.
    held_out : float, str, AnyPath or pair of arrays, optional
        Rows that every step is tested on, or the share of the rows.
    loss : {"squared", "zero-one"}
        The loss of a left-out row.
    intercept : {"center", "column", "none"}, optional
        How the intercept is fitted; by default as the preprocessing asks.
    rewrite_every : int or {"auto", "never"}
        Rounds between two rewrites of a cache on disk, for data that are not in memory.
    """

    folds: int | None = None
    repeats: int = 1
    split: Any = "random"
    gap: int = 0
    row_groups: Any = None
    direction: Direction = "forward"
    penalties: int = 0
    held_out: Any = None
    loss: Loss = "squared"
    intercept: Intercept | None = None
    rewrite_every: Any = "never"

    @property
    def whole_gram(self) -> bool:
        """Whether rounds need the whole Gram matrix: they begin with all columns, or folds have other training rows."""
        return self.direction == "backward" or self.gap > 0 or self.split not in ("random", "blocks")

    @property
    def full_height(self) -> bool:
        """Whether rounds without the Gram matrix need columns of full height: for folds, and to compare penalties."""
        return bool(self.folds or self.penalties)


@dataclass(frozen=True)
class Requirements:
    """What one run of a method needs. The planner reads it before any data are read.

    Parameters
    ----------
    whole_gram : bool
        The method needs the whole Gram matrix K (n x n).
    eigen_factor : bool
        The method needs K, or else W with K = W'W, in this process.
    table_slots : int
        For how many subsets the search keeps tables of some numbers per column.
    lookahead : int
        How many more numbers per column the search keeps while it looks at the children of one node.
    iterations : int, optional
        How many iterations a Pareto search makes in this process, where that is known.
    seconds : float, optional
        The time limit of the search.
    cross_validation : CrossValidation, optional
        How subsets are scored on left-out rows, for a method that uses rows.
    gram_sums : int
        How many Gram matrices one partial result of the pass holds: one for each part of the rows, or one.
    fewer_sums : str
        What makes these fewer, as a remedy where they do not fit.
    row_bytes : int
        Bytes of the parts of the rows, which every worker holds.
    columns_entered : int, optional
        How many columns enter a subset at least, where that is more than k.
    few_columns : bool
        Only about k columns enter a subset, so that few rows of K are needed.
    gram_rows_alone : bool
        Where Y = X, rows of K of the columns that enter are enough: the search needs no row of M.
    adapts : bool
        The search has its default length and form, and may do without K where there are very many columns.
    notes : tuple of str
        Remarks for the user of the plan.
    """

    whole_gram: bool = False
    eigen_factor: bool = False
    table_slots: int = 2
    lookahead: int = 0
    iterations: int | None = None
    seconds: float | None = None
    cross_validation: CrossValidation | None = None
    gram_sums: int = 1
    fewer_sums: str = ""
    row_bytes: int = 0
    columns_entered: int | None = None
    few_columns: bool = False
    gram_rows_alone: bool = False
    adapts: bool = False
    notes: tuple[str, ...] = ()


def no_requirements(problem: ProblemSummary, options: Any) -> Requirements:
    """Return the requirements of a method that runs on any representation of the Gram matrix."""
    return Requirements()


def few_columns(problem: ProblemSummary, options: Any) -> Requirements:
    """Return the requirements of a method that needs about k rows of the Gram matrix."""
    return Requirements(few_columns=True)


def in_this_process(problem: ProblemSummary, options: Any, site: Site) -> Placement:
    """Return the place of a method that does not use workers."""
    return HERE


def estimated(seconds: Callable[[ProblemSummary, Any], float]) -> Callable[[ProblemSummary, Any, Site], Placement]:
    """Return the place of a method that does not use workers. seconds: its time on the reference core."""
    return lambda problem, options, site: Placement(seconds=seconds(problem, options))


def whole_gram(problem: ProblemSummary, options: Any) -> Requirements:
    """Return the requirements of a method that needs the whole Gram matrix and nothing else."""
    return Requirements(whole_gram=True)


@dataclass(frozen=True)
class Method:
    """A selection method.

    Parameters
    ----------
    name : str
        The name that ``dsel.select(method=...)`` and job files use.
    summary : str
        One sentence that says what the method does.
    run : callable
        Runs the method: ``run(SearchTask) -> SearchOutcome``.
    options : type of Options
        The pydantic model of the method's options.
    requirements : callable
        ``requirements(ProblemSummary, options) -> Requirements``. It may raise CapacityError for options that allow
        less memory than the method needs.
    resumable : bool
        The search can be interrupted between slices and continue from its saved state.
    unsupervised_only : bool
        The method chooses columns for X itself (Y = X).
    takes_criterion : bool
        The method can minimize a user's criterion f(S) in place of the squared error.
    place : callable
        ``place(ProblemSummary, options, Site) -> Placement``: where the search runs. A search on workers sends tasks
        through ``SearchTask.executor``, or passes itself to ``SearchTask.runner``.
    uses_rows : bool
        The method scores subsets on left-out rows, in rounds. It needs targets. A checkpoint follows each round.
    every_size : bool
        One run for k columns finds a subset of each size up to k. For ``k="auto"``, other methods run for each size.
    takes_groups : bool
        The method can choose groups of columns.
    no_groups : str
        Why it cannot, where it cannot.
    extra : str
        The extra of dsel with the packages that the method needs.

    Examples
    --------
    A method without options, which chooses the first k columns:

    >>> from dsel.search.outcome import FrontPoint
    >>> def first(task: SearchTask) -> SearchOutcome:
    ...     S = tuple(range(task.k))
    ...     return SearchOutcome((FrontPoint(task.k, task.objective.value(S), S),))
    >>> METHOD = Method("first", "Choose the first k columns.", run=first)
    """

    name: str
    summary: str
    run: Callable[[SearchTask], SearchOutcome]
    options: type[Options] = Options
    requirements: Callable[[ProblemSummary, Any], Requirements] = no_requirements
    resumable: bool = False
    unsupervised_only: bool = False
    takes_criterion: bool = False
    place: Callable[[ProblemSummary, Any, Site], Placement] = in_this_process
    uses_rows: bool = False
    every_size: bool = False
    takes_groups: bool = False
    no_groups: str = "it chooses single columns"
    extra: str = ""

    @property
    def takes_loss(self) -> bool:
        """Whether the method can minimize another loss, by quadratic models that it searches as the squared error."""
        return not self.uses_rows and not self.unsupervised_only
