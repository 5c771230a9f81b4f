"""From a source and settings to a Selection: check, one pass, search, final check on the data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from dsel.data.source import Labels, Source, nearest, resolve_labels
from dsel.errors import CapacityError, OptionError
from dsel.import_path import import_path
from dsel.objective.quadratic import QuadraticObjective
from dsel.objective.solution import Solution
from dsel.result.selection import FrontRow, Selection, TraceRow
from dsel.search.methods import METHODS, Method, OnSlice, Options, Run
from dsel.search.outcome import FrontPoint, SearchOutcome
from dsel.stats.artefact import ArtefactStore
from dsel.stats.gram import Missing, gram, partial_bytes
from dsel.stats.residual import Fit, refit
from dsel.stats.statistics import PREPROCESS, Preprocess, Statistics, duplicates
from dsel.validation import first_error
from dsel.versions import versions

log = logging.getLogger("dsel")

Column = str | int


@dataclass(frozen=True)
class Settings:
    """What to select. include and exclude name columns by label or 0-based index; options are the method's own.

    criterion: a function of the ascending columns chosen, to be minimised in place of f; +inf where not allowed.
    """

    k: int
    method: str = "poss"
    lam: float = 0.0
    preprocess: Preprocess = "standardize"
    missing: Missing = "refuse"
    include: tuple[Column, ...] = ()
    exclude: tuple[Column, ...] = ()
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    criterion: Callable[[tuple[int, ...]], float] | None = None


@dataclass
class Surroundings:
    """What a run may use: workers (`compute` takes a Dask delayed object), their memory limit, saved statistics, the
    state of an interrupted search, and a look at the search between its slices."""

    compute: Callable[[Any], Any] | None = None
    worker_memory: int | None = None
    artefacts: ArtefactStore | None = None
    state: dict[str, Any] | None = None
    on_slice: OnSlice | None = None
    on_stage: Callable[[str], None] | None = None


@dataclass(frozen=True)
class Checked:
    """Settings after every check that needs no data."""

    settings: Settings
    method: Method
    options: Options
    include: NDArray[np.int64]
    exclude: NDArray[np.int64]


class _Clock:
    def __init__(self, on_stage: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        if self._on_stage is not None:
            self._on_stage(name)
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run_selection(source: Source, settings: Settings, around: Surroundings | None = None) -> Selection:
    """Select columns. Errors are raised before the pass over the data wherever they can be seen there."""
    around = around or Surroundings()
    checked = check(source, settings)
    check_capacity(source, around.worker_memory)
    clock = _Clock(around.on_stage)
    with clock.stage("statistics"):
        statistics, passes = _statistics(source, settings, around)
    with clock.stage("search"):
        objective, notes = _objective(source, checked, statistics)
        outcome = _search(objective, checked, around)
        best = outcome.best(settings.k - len(checked.include))
        ordered = _by_gain(statistics, settings, objective.included, [int(objective.columns[j]) for j in best.members])
    with clock.stage("check"):
        fit = _refit(source, settings, statistics, ordered, around)
    return _selection(
        source, checked, statistics, objective, outcome, ordered, fit,
        notes=notes, seconds=clock.seconds, passes=passes + 1,
        bytes_read=passes * source.nbytes + _check_bytes(source, ordered),
    )  # fmt: skip


def check(source: Source, settings: Settings) -> Checked:
    """Refuse what can be seen without the data: k, the method and its options, columns that are not there."""
    n = source.n
    if settings.method not in METHODS:
        raise OptionError(f"There is no method {settings.method!r}.", nearest(settings.method, METHODS))
    method = METHODS[settings.method]
    try:
        options = method.options(**settings.options)
    except ValidationError as error:
        raise OptionError(f"Options of {settings.method}: {first_error(error, method.options)}") from error
    if not isinstance(settings.k, int | np.integer) or isinstance(settings.k, bool) or not 1 <= settings.k <= n:
        raise OptionError(f"k is {settings.k!r}, and X has {n} columns.", f"k is a whole number from 1 to {n}.")
    if not 0 <= settings.seed < 2**63:
        raise OptionError(f"seed is {settings.seed}.", "It is a whole number from 0 to 2^63 - 1.")
    if not (np.isfinite(settings.lam) and settings.lam >= 0):
        raise OptionError(f"lam is {settings.lam}.", "The ridge penalty is a number >= 0.")
    if settings.preprocess not in PREPROCESS:
        raise OptionError(f"There is no preprocess {settings.preprocess!r}.", nearest(settings.preprocess, PREPROCESS))
    if settings.missing not in ("refuse", "mean"):
        raise OptionError(f"missing is {settings.missing!r}.", "One of refuse, mean.")
    if settings.criterion is not None and settings.method != "poss":
        raise OptionError(f"{settings.method} does not take a criterion.", "Use poss.")
    if method.unsupervised_only and source.n_targets:
        raise OptionError(f"{settings.method} selects columns for X itself (Y = X).", "Leave Y out, or choose another.")
    include = resolve_labels(settings.include, source.features, "feature")
    exclude = resolve_labels(settings.exclude, source.features, "feature")
    both = np.intersect1d(include, exclude)
    if both.size:
        raise OptionError(f"Columns {_named(source.features, both)} are both included and excluded.")
    if include.size > settings.k:
        raise OptionError(f"{include.size} columns are included, and k is {settings.k}.", "Raise k or include fewer.")
    if exclude.size == n:
        raise OptionError("All columns are excluded: none is left to choose from.")
    return Checked(settings, method, options, include, exclude)


def check_capacity(source: Source, worker_memory: int | None) -> None:
    """Refuse a pass whose partial sums do not fit: n (n + N) float64 each, three and a block at once on a worker."""
    import psutil

    n = source.n
    block = max((b.stop - b.start for b in source.blocks), default=0) * source.nbytes // max(source.m, 1)
    need = 3 * partial_bytes(source) + 2 * block + (96 << 20)
    if worker_memory is not None and need > worker_memory:
        raise CapacityError(
            f"A worker needs {need / 2**30:.2f} GiB for {n} columns ({partial_bytes(source) / 2**30:.2f} GiB a partial "
            f"Gram matrix, {block / 2**30:.2f} GiB a row block) and is limited to {worker_memory / 2**30:.2f} GiB.",
            f"Give each worker at least {need / 2**30:.1f} GiB, fewer columns, or smaller row blocks.",
        )
    here = 6 * 8 * n * n
    available = psutil.virtual_memory().available
    if here > available:
        raise CapacityError(
            f"The search over {n} columns needs {here / 2**30:.1f} GiB in this process; "
            f"{available / 2**30:.1f} GiB are available.",
            "Use a machine with more memory, or select from fewer columns.",
        )


def _named(labels: Labels, indices: NDArray[np.int64] | Sequence[int], most: int = 5) -> str:
    shown = ", ".join(str(labels[i]) for i in indices[:most])
    return shown + (f" and {len(indices) - most} more" if len(indices) > most else "")


def _statistics(source: Source, settings: Settings, around: Surroundings) -> tuple[Statistics, int]:
    """Statistics and the passes they took: 0 when they were saved before for the same data and options."""
    key = None
    if around.artefacts is not None and source.fingerprint is not None:
        key = ArtefactStore.key(source.fingerprint, missing=settings.missing)
        saved = around.artefacts.load(key)
        if saved is not None:
            log.info("statistics of %s are saved in %s: the data are not read", source.name, around.artefacts.path(key))
            return saved, 0
    statistics, passes = gram(source, missing=settings.missing, compute=around.compute)
    if key is not None and around.artefacts is not None:
        around.artefacts.save(key, statistics)
    return statistics, passes


def _objective(source: Source, checked: Checked, statistics: Statistics) -> tuple[QuadraticObjective, tuple[str, ...]]:
    """The objective over the columns that may be chosen, given those that always are; and notes for the user."""
    settings, labels = checked.settings, source.features
    whole = statistics.objective(settings.preprocess, settings.lam)
    unusable = statistics.unusable(settings.preprocess)
    notes = []
    if unusable.any():
        where = np.flatnonzero(unusable)
        notes.append(f"{where.size} constant columns are never chosen: {_named(labels, where)}")
    lost = checked.include[unusable[checked.include]]
    if lost.size:
        raise OptionError(f"Included columns are constant: {_named(labels, lost)}.", "Leave them out.")
    allowed = ~unusable
    allowed[checked.exclude] = False
    pairs = duplicates(whole.K)
    if pairs:
        named = "; ".join(f"{labels[i]} and {labels[j]}" for i, j in pairs[:3])
        more = " (and more)" if len(pairs) > 3 else ""
        notes.append(f"columns that are multiples of each other, of which at most one is chosen: {named}{more}")
    keep = np.flatnonzero(allowed)
    if not keep.size:
        raise OptionError("No column is left to choose from: all are constant or excluded.")
    if keep.size < settings.k:
        notes.append(f"k is {settings.k}, but only {keep.size} columns can be chosen")
    objective = whole.restrict(keep)
    return objective.condition(np.searchsorted(keep, checked.include).tolist()), tuple(notes)


def _search(objective: QuadraticObjective, checked: Checked, around: Surroundings) -> SearchOutcome:
    k = min(checked.settings.k - checked.include.size, objective.n)
    if k == 0:
        return SearchOutcome((FrontPoint(0, objective.c, ()),))
    return checked.method.run(
        Run(
            objective,
            k,
            checked.settings.seed,
            checked.options,
            around.state,
            around.on_slice,
            checked.settings.criterion,
        )
    )


def _by_gain(
    statistics: Statistics, settings: Settings, included: Sequence[int], chosen: Sequence[int]
) -> NDArray[np.int64]:
    """Included columns, then the others, each next one being that of the largest gain after those before it.

    A method that does not look at dependence (rfe) may choose columns that depend on others: they are left out.
    """
    members = [*included, *chosen]
    solution = Solution(statistics.objective(settings.preprocess, settings.lam).restrict(members), len(members))
    order: list[int] = []
    for group in (range(len(included)), range(len(included), len(members))):
        waiting = set(group)
        while waiting:
            gains = solution.gains()
            j = max(waiting, key=lambda j: (gains[j], -members[j]))
            if solution.insert(j):
                order.append(members[j])
            waiting.discard(j)
    return np.asarray(order, np.int64)


def _refit(
    source: Source, settings: Settings, statistics: Statistics, S: NDArray[np.int64], around: Surroundings
) -> Fit:
    fill = statistics.mean_x if settings.missing == "mean" else None
    return refit(
        source, S, statistics.scaling(settings.preprocess), settings.lam,
        usable=~statistics.unusable(settings.preprocess), fill=fill, compute=around.compute,
    )  # fmt: skip


def _check_bytes(source: Source, S: NDArray[np.int64]) -> int:
    """Bytes that the final check reads: whole chunks, so all of X unless it is chunked in columns."""
    if source.store is None or not source.n_targets:
        return source.nbytes
    edges = np.asarray(source.store.column_bounds)
    touched = np.unique(np.searchsorted(edges, S, side="right") - 1)
    share = float((edges[touched + 1] - edges[touched]).sum()) / source.n
    return int(share * source.x_bytes) + source.y_bytes


def _selection(
    source: Source, checked: Checked, statistics: Statistics, objective: QuadraticObjective,
    outcome: SearchOutcome, S: NDArray[np.int64], fit: Fit, *,
    notes: tuple[str, ...], seconds: dict[str, float], passes: int, bytes_read: int,
) -> Selection:  # fmt: skip
    settings, base = checked.settings, len(objective.included)
    coefficients, intercept = _in_data_units(statistics, settings.preprocess, S, fit)
    best = outcome.best(settings.k - base)
    by_criterion = settings.criterion is not None
    if not by_criterion and abs(fit.error - best.value) > 1e-6 * fit.total:
        notes += ("the error recomputed from the data differs from the search's by more than 1e-6 of ||Y||^2",)
    if S.size < base + best.size:
        notes += (f"{base + best.size - S.size} columns that depend on the others were left out",)
    front = tuple(_front_row(objective, point, by_criterion) for point in outcome.front)
    return Selection(
        indices=tuple(int(j) for j in S),
        labels=tuple(str(source.features[j]) for j in S),
        k=int(settings.k),
        error=fit.error,
        r2=1.0 - fit.rss / fit.total,
        method=settings.method,
        preprocess=settings.preprocess,
        lam=float(settings.lam),
        seed=int(settings.seed),
        options=_as_text(checked.options),
        coefficients=coefficients,
        intercept=intercept,
        front=front,
        trace=tuple(TraceRow(t.iteration, base + t.size, t.value) for t in outcome.trace),
        ended=outcome.ended,
        iterations=outcome.iterations,
        shape=(source.m, source.n),
        targets=tuple(str(t) for t in source.targets),
        include=tuple(int(j) for j in checked.include),
        exclude=tuple(int(j) for j in checked.exclude),
        constant=tuple(str(source.features[j]) for j in np.flatnonzero(statistics.unusable(settings.preprocess))),
        counts=outcome.counts,
        notes=notes,
        source=source.name,
        fingerprint=source.fingerprint,
        bytes_read=bytes_read,
        passes=passes,
        seconds=seconds,
        versions=versions(),
        criterion=best.value if by_criterion else None,
    )


def _front_row(objective: QuadraticObjective, point: FrontPoint, by_criterion: bool) -> FrontRow:
    f = objective.value(point.members)
    size = len(objective.included) + point.size
    criterion = point.value if by_criterion and np.isfinite(point.value) else None
    return FrontRow(size, f, 1.0 - f / objective.total, tuple(objective.in_data(point.members)), criterion)


def _as_text(options: Options) -> dict[str, Any]:
    return {name: import_path(value) if callable(value) else value for name, value in options}


def _in_data_units(
    statistics: Statistics, preprocess: Preprocess, S: NDArray[np.int64], fit: Fit
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients and intercept for X and Y as they are. Where Y = X, for all n columns, constant ones too."""
    scaling = statistics.scaling(preprocess)
    found = fit.coefficients
    if statistics.unsupervised:
        usable = ~statistics.unusable(preprocess)
        found = np.zeros((S.size, usable.size))
        found[:, usable] = fit.coefficients
    coefficients = found * scaling.scale_y / scaling.scale_x[S][:, None]
    intercept = scaling.center_y - scaling.center_x[S] @ coefficients
    return coefficients, intercept
